/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices: memory that the processor should not touch, and streams of work on it.
 *
 * These calls let a program run unchanged on every kind of device. Their use is optional: memory
 * and streams that the program made with the driver of a device are equally valid in every call of
 * sluice.
 *
 * The devices "emulated:0" and "emulated:1" are made of threads and host memory and exist on every
 * machine. They behave as a GPU does where that matters to a program, reject the same mistakes, and
 * are slow. Their memory faults when the processor touches it. <sluice/emulated.h> has the calls
 * that are specific to them.
 *
 * Conventions, results and threads are those of <sluice/sluice.h>. None of these calls needs a
 * context. After a fork() the child must not use devices.
 */
#ifndef SLUICE_DEVICE_H
#define SLUICE_DEVICE_H

#include <sluice/sluice.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An event of a device; a cudaEvent_t can be passed as it is. */
typedef void *sluice_event;

/* Description of a device. Strings are constants. */
struct sluice_device {
	size_t size;           /* in: sizeof(struct sluice_device) */
	const char *name;      /* "emulated:0"; sluice_device_find() accepts it */
	const char *detail;    /* model of the device, for users */
	uint64_t memory_bytes; /* memory of the device, bytes */
	uint64_t free_bytes;   /* unallocated part of it, bytes */
	int stream_order;      /* 1: operations in stream order; 0: they return -ENOTSUP */

	const char *stream_order_detail; /* the reason, for users */
	const char *driver; /* "CUDA 13.0, kernel module 580.95.05"; NULL: it needs none */
	const char *pci;    /* PCI address, "0000:65:00.0"; NULL: it is on no bus */
	int numa_node;      /* nearest NUMA node; -1: not known, or there is only one */
	int real;           /* 1: hardware, which "device:N" counts */
};
/*
 * Describes the device with this number, counted from 0.
 *
 * Returns 0, or
 *   -ENOENT   the number is past the last device
 */
SLUICE_API int sluice_device_describe(int device, struct sluice_device *out);

/*
 * Describes a feature of the drivers of devices, the reason why a driver is missing, and a remedy,
 * for users; index counts from 0. The environment is examined once. Strings are constants.
 *
 * Returns 0, or
 *   -ENOENT   the index is past the last feature
 */
SLUICE_API int sluice_device_feature(int index, struct sluice_feature *out);

/*
 * Finds the number of a device by its name, such as "emulated:1"; without a number 0 is meant.
 * "device:N" is the Nth hardware device of any kind, so a program can ask for a GPU without naming
 * its driver. Only the requested device gets a context.
 *
 * Returns 0, or
 *   -ENODEV   there is no device of that name, or it cannot be used; sluice_last_message() says why
 *   -EINVAL   the text after the colon is not a number
 */
SLUICE_API int sluice_device_find(const char *name, int *device);

/* Returns the number of the device that holds the byte at this address, or -1 for host memory. */
SLUICE_API int sluice_device_of(const void *memory);

/* --------------------------------------------------------------------------------- memory */

/*
 * Allocates n bytes of a device's memory, aligned to 256 bytes. The contents are undefined.
 *
 * Returns 0, or
 *   -EINVAL   n is 0
 *   -ENODEV, -ENOMEM
 */
SLUICE_API int sluice_device_alloc(int device, size_t n, void **out);
/* Frees the memory. Waits for all work that the device was given before, as cuMemFree() does. */
SLUICE_API int sluice_device_free(void *memory);

/*
 * Allocate and free n bytes of host memory that the device copies from and to directly, aligned to
 * 4096 bytes. Both calls wait as sluice_device_free() does.
 */
SLUICE_API int sluice_pinned_alloc(int device, size_t n, void **out);
SLUICE_API int sluice_pinned_free(void *memory);

/* -------------------------------------------------------------------------------- streams */

/*
 * The default stream of a device, which every program has; see sluice_stream. Work on it comes
 * after all work that other streams were given before, and before all work that they are given
 * later. Streams of sluice_stream_new() are exempt.
 */
#define SLUICE_STREAM_DEFAULT ((sluice_stream)0)

/* Makes a stream that does not wait for the default stream. */
SLUICE_API int sluice_stream_new(int device, sluice_stream *out);
/* Frees the stream. Work that it holds is still done. */
SLUICE_API int sluice_stream_free(sluice_stream stream);
/*
 * Tells whether the stream has done all its work.
 *
 * Returns 1 if it has, 0 if not yet, or the error that stopped the stream.
 */
SLUICE_API int sluice_stream_query(int device, sluice_stream stream);
/* Waits until the stream has done all work that it was given before. */
SLUICE_API int sluice_stream_synchronize(int device, sluice_stream stream);

/*
 * Copies n bytes in stream order between two memories, of which at least one belongs to the device.
 * dst and src must not overlap. The call does not wait, but host memory that is not pinned is
 * copied before it returns.
 */
SLUICE_API int sluice_copy_on(void *dst, const void *src, size_t n, sluice_stream stream);
/* Copies n bytes and waits for the end of the copy; from host to host it is memcpy(). */
SLUICE_API int sluice_copy(void *dst, const void *src, size_t n);

/* --------------------------------------------------------------------------------- events */

/* Make and free an event. */
SLUICE_API int sluice_event_new(int device, sluice_event *out);
SLUICE_API int sluice_event_free(sluice_event event);
/* Lets the event stand for all work that the stream holds now. */
SLUICE_API int sluice_event_record(sluice_event event, sluice_stream stream);
/*
 * Makes later work of the stream wait for the work that the event stands for, in whatever stream.
 */
SLUICE_API int sluice_event_await(sluice_event event, sluice_stream stream);
/* Returns 1 if the work is done or the event was never recorded, 0 if not yet, or an error. */
SLUICE_API int sluice_event_query(sluice_event event);
/* Waits until the work that the event stands for is done. */
SLUICE_API int sluice_event_synchronize(sluice_event event);

#ifdef __cplusplus
}
#endif
#endif
