/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only the device "emulated" can do: run C functions as kernels, choose its schedule by a seed,
 * count the calls that it gets, and fail. For tests and demonstrations of programs that will run on a
 * GPU. Everything in <sluice/device.h> works on it.
 */
#ifndef SLUICE_EMULATED_H
#define SLUICE_EMULATED_H

#include <sluice/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where the bytes at an address of a device's memory really are, for kernels; NULL if it is none. A kernel
 * that writes to memory which is mapped read-only ends the program. */
SLUICE_API void *sluice_emulated_memory(const void *memory);

/* Runs kernel(argument) on a thread of the device, in stream order. It must not wait, nor call the
 * device. */
SLUICE_API int sluice_emulated_launch(int device, sluice_stream stream, void (*kernel)(void *),
                                      void *argument);
/* Runs function(argument) as a host function, which may wait but not call the device. The device
 * runs one of them at a time, whatever their streams. */
SLUICE_API int sluice_emulated_call(int device, sluice_stream stream, void (*function)(void *),
                                    void *argument);

/* What of the device's time and choices is left to chance. Start from SLUICE_EMULATED_OPTIONS_INIT. */
struct sluice_emulated_options {
	size_t size;
	uint64_t seed;       /* 0: no delays, and the first of what could run next */
	unsigned delay_us;   /* what is ready waits up to this before it runs; 0: it does not */
	unsigned preempt_us; /* a call to the device sleeps up to this, now and then; 0: never */
};
#define SLUICE_EMULATED_OPTIONS_INIT                            \
	{                                                       \
		sizeof(struct sluice_emulated_options), 0, 0, 0 \
	}
/* From now on. While the device has nothing to do, or what happens is undefined. */
SLUICE_API int sluice_emulated_configure(int device, const struct sluice_emulated_options *o);

/* The calls of a driver that are counted, and can be made to fail. */
enum sluice_emulated_kind {
	SLUICE_EMULATED_ALLOC,
	SLUICE_EMULATED_FREE,
	SLUICE_EMULATED_REGISTER,    /* pinned memory made, registered, or let go */
	SLUICE_EMULATED_STREAM,      /* made or freed */
	SLUICE_EMULATED_EVENT,       /* made or freed */
	SLUICE_EMULATED_COPY,        /* in stream order */
	SLUICE_EMULATED_WAIT,        /* for a word */
	SLUICE_EMULATED_WRITE,       /* of a word */
	SLUICE_EMULATED_RECORD,      /* of an event, and its await */
	SLUICE_EMULATED_LAUNCH,      /* of a kernel or a host function */
	SLUICE_EMULATED_QUERY,       /* of a stream or an event */
	SLUICE_EMULATED_CLASSIFY,    /* of a pointer */
	SLUICE_EMULATED_SYNCHRONIZE, /* of a stream or an event, and copies that wait */
	SLUICE_EMULATED_SHARE,       /* memory made for other processes, mapped, lent or borrowed */
	SLUICE_EMULATED_UNMAP,       /* such memory let go */
	SLUICE_EMULATED_KINDS
};
/*
 * Calls of one kind since the last reset, of all devices: by the threads whose name begins with
 * prefix, or by all if it is NULL. A thread's name is what it was at its first call.
 */
SLUICE_API uint64_t sluice_emulated_calls(enum sluice_emulated_kind kind, const char *prefix);
SLUICE_API void sluice_emulated_reset_calls(void);

/* The nth call of that kind from now on, 1 for the next, fails with this negative errno; 0 for n: none
 * does. */
SLUICE_API void sluice_emulated_fail(enum sluice_emulated_kind kind, uint64_t n, int error);
/*
 * The device is gone: every call answers -EIO, and nothing that it was given goes on. Calls that free
 * something do so all the same. With 0 it is back and has nothing to do: what it had been given is
 * forgotten. That is also the way back after an illegal address (-EFAULT).
 */
SLUICE_API void sluice_emulated_lose(int device, int lost);

/* Writes what each stream and each call that is held up is waiting for, as text. */
SLUICE_API void sluice_emulated_report(int device, void (*line)(void *to, const char *text),
                                       void *to);

#ifdef __cplusplus
}
#endif
#endif
