/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices: memory that the processor should not touch, and streams of work on it.
 *
 * What a program needs to be written once for every kind of device. There is no need to use it:
 * memory and streams that the program made with the driver of a device itself are as good in every
 * call of sluice.
 *
 * The device "emulated:0" (and 1) is made of threads and host memory. It is there on every machine,
 * behaves as a GPU does where that matters to a program, refuses the same mistakes, and is slow.
 * Its memory faults when the processor touches it. <sluice/emulated.h> has what only it can do.
 *
 * Conventions, results and threads are those of <sluice/sluice.h>. None of these calls needs a
 * context. After a fork() a child must not use devices.
 */
#ifndef SLUICE_DEVICE_H
#define SLUICE_DEVICE_H

#include <sluice/sluice.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A CUDA event passes as it is. */
typedef struct CUevent_st *sluice_event;

/* What is told of a device. Strings are constants. */
struct sluice_device {
	size_t size;           /* in: sizeof(struct sluice_device) */
	const char *name;      /* "emulated:0"; what sluice_device_find() takes */
	const char *detail;    /* of what it is made, for people */
	uint64_t memory_bytes; /* that it has */
	uint64_t free_bytes;   /* that nobody has allocated */
	int stream_order;      /* 1: operations in stream order; 0: they answer -ENOTSUP */

	const char *stream_order_detail; /* why, for people */
	const char *driver; /* "CUDA 13.0, kernel module 580.95.05"; NULL: it needs none */
	const char *pci;    /* its address, "0000:65:00.0"; NULL: it is on no bus */
	int numa_node;      /* near which it is; -1: not known, or there is only one */
	int real;           /* 1: hardware, which "device:N" means */
};
/* The devices one by one, device from 0; -ENOENT past the last one. */
SLUICE_API int sluice_device_describe(int device, struct sluice_device *out);

/*
 * What the drivers of devices offer, why one is missing, and what would help, for people: one by one,
 * index from 0; -ENOENT past the last one. The environment is looked at once. Strings are constants.
 */
SLUICE_API int sluice_device_feature(int index, struct sluice_feature *out);

/*
 * The number of a device by its name, as in "emulated:1"; without a number it is 0. "device:N" is the
 * Nth of those that are hardware, of whatever kind: so a program asks for a GPU. Only the device that is
 * asked for gets a context. -ENODEV: there is none of that name, or it cannot be used;
 * sluice_last_message() says why. -EINVAL: what follows the colon is no number.
 */
SLUICE_API int sluice_device_find(const char *name, int *device);

/* The number of the device that holds the byte at this address, or -1: it is the processor's. */
SLUICE_API int sluice_device_of(const void *memory);

/* --------------------------------------------------------------------------------- memory */

/*
 * n bytes of a device's memory, aligned to 256 bytes; their contents are undefined. -ENOMEM, -ENODEV,
 * -EINVAL: n is 0.
 */
SLUICE_API int sluice_device_alloc(int device, size_t n, void **out);
/* Waits for all that was given to the device before, as cuMemFree() does. NULL is allowed. */
SLUICE_API int sluice_device_free(void *memory);

/* n bytes of host memory that the device copies from and to directly, aligned to 4096 bytes. Waits as
 * sluice_device_free() does. */
SLUICE_API int sluice_pinned_alloc(int device, size_t n, void **out);
SLUICE_API int sluice_pinned_free(void *memory);

/* -------------------------------------------------------------------------------- streams */

/* The default stream of a device that every program has; see sluice_stream. Work on it comes after
 * all work that other streams, but those of sluice_stream_new(), were given before, and before all
 * that they are given later. */
#define SLUICE_STREAM_DEFAULT ((sluice_stream)0)

/* A stream of its own, which does not wait for the default stream. */
SLUICE_API int sluice_stream_new(int device, sluice_stream *out);
/* What the stream holds is still done. NULL is allowed. */
SLUICE_API int sluice_stream_free(sluice_stream stream);
/* 1: the stream has done all it was given; 0: not yet; or the error that stopped it. */
SLUICE_API int sluice_stream_query(int device, sluice_stream stream);
/* Waits until the stream has done all it was given before. */
SLUICE_API int sluice_stream_synchronize(int device, sluice_stream stream);

/*
 * Copies n bytes in stream order, between any two memories of which one is the device's; the call does
 * not wait (memory that is not pinned is copied before it returns). dst and src must not overlap.
 */
SLUICE_API int sluice_copy_on(void *dst, const void *src, size_t n, sluice_stream stream);
/* The same, and waits for it; host to host is memcpy(). */
SLUICE_API int sluice_copy(void *dst, const void *src, size_t n);

/* --------------------------------------------------------------------------------- events */

SLUICE_API int sluice_event_new(int device, sluice_event *out);
SLUICE_API int sluice_event_free(sluice_event event);
/* The event stands for what the stream holds now. */
SLUICE_API int sluice_event_record(sluice_event event, sluice_stream stream);
/* What the stream is given from now on comes after what the event stands for, in any stream. */
SLUICE_API int sluice_event_await(sluice_event event, sluice_stream stream);
/* 1: done, or never recorded; 0: not yet; or an error. */
SLUICE_API int sluice_event_query(sluice_event event);
SLUICE_API int sluice_event_synchronize(sluice_event event);

#ifdef __cplusplus
}
#endif
#endif
