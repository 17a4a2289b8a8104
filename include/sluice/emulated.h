/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device "emulated": calls for tests and demonstrations of programs that will run on a GPU.
 *
 * They run C functions as kernels, choose the device's schedule by a seed, count the calls that the
 * device gets, and make calls fail. Everything in <sluice/device.h> works on this device as well.
 *
 * The calls are in libsluice-emulated.a, which goes with libsluice.a: both are named by
 * `pkg-config --libs sluice-emulated`. Beside libsluice.so it does not link; that library has the
 * device, and not these calls.
 */
#ifndef SLUICE_EMULATED_H
#define SLUICE_EMULATED_H

#include <sluice/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Returns the address at which kernels reach the bytes of this memory of a device, or NULL if the
 * memory is not a device's. A kernel that writes to memory which is mapped read-only ends the
 * program.
 */
void *sluice_emulated_memory(const void *memory);

/*
 * Runs kernel(argument) on a thread of the device, in stream order. The kernel must neither wait
 * nor call the device.
 */
int sluice_emulated_launch(int device, sluice_stream stream, void (*kernel)(void *),
                           void *argument);
/*
 * Runs function(argument) as a host function, in stream order. It may wait but must not call the
 * device. The device runs one host function at a time, whatever their streams.
 */
int sluice_emulated_call(int device, sluice_stream stream, void (*function)(void *),
                         void *argument);

/* The random part of the device's timing and choices. Start from SLUICE_EMULATED_OPTIONS_INIT. */
struct sluice_emulated_options {
	/* Required: sizeof(struct sluice_emulated_options). */
	size_t size;
	/* Seed of the random choices. 0: no delays, and the first of all runnable commands runs
	 * next. */
	uint64_t seed;
	/* The longest delay of a command that is ready, microseconds; 0: none. */
	unsigned delay_us;
	/* The longest sleep of a call to the device, at random calls, microseconds; 0: never. */
	unsigned preempt_us;
	/* 1: the device copies from no other device; the bytes come through the host. */
	unsigned no_peers;
};
#define SLUICE_EMULATED_OPTIONS_INIT                               \
	{                                                          \
		sizeof(struct sluice_emulated_options), 0, 0, 0, 0 \
	}
/* Applies the options from now on. The device must be idle, else the behaviour is undefined. */
int sluice_emulated_configure(int device, const struct sluice_emulated_options *o);

/* The kinds of driver calls that are counted and that can be made to fail. */
enum sluice_emulated_kind {
	SLUICE_EMULATED_ALLOC,
	SLUICE_EMULATED_FREE,
	SLUICE_EMULATED_REGISTER,    /* pinned memory made, registered or released */
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
	SLUICE_EMULATED_UNMAP,       /* such memory released */
	SLUICE_EMULATED_KINDS
};
/*
 * Returns the number of calls of this kind since the last reset, summed over all devices: those of
 * threads whose name begins with prefix, or all if prefix is NULL. A thread counts under the name
 * that it had at its first call.
 */
uint64_t sluice_emulated_calls(enum sluice_emulated_kind kind, const char *prefix);
/* Sets all these counts to 0. */
void sluice_emulated_reset_calls(void);

/*
 * Makes the nth call of this kind from now on (1 is the next) fail with this negative errno; with n
 * 0 no call fails.
 */
void sluice_emulated_fail(enum sluice_emulated_kind kind, uint64_t n, int error);
/*
 * Loses the device, or brings it back. While it is lost every call returns -EIO and nothing that
 * the device was given continues; calls that free a resource free it nevertheless. With lost 0 the
 * device is back and idle: its earlier work is forgotten. The same call recovers from an illegal
 * address (-EFAULT).
 */
void sluice_emulated_lose(int device, int lost);

/*
 * Calls line() with a text for each stream and each blocked call, which says what it is waiting
 * for.
 */
void sluice_emulated_report(int device, void (*line)(void *to, const char *text), void *to);

#ifdef __cplusplus
}
#endif
#endif
