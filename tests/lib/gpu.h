/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two devices that a test runs on, and what a test does there besides what sluice offers: kernels,
 * and holding a stream up. SLUICE_TEST_DEVICE says which devices: "emulated" (without it, too), "cuda" or
 * "cuda:1". With one GPU, or with a number, both of a test's devices are that one.
 *
 * A test says which device by 0 or 1, and gets sluice's own number of it from gpu_device(). Calls return
 * 0 or a negative errno, and gpu_message() has the sentence. Any thread, if nothing else is said.
 */
#ifndef TESTS_GPU_H
#define TESTS_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice/device.h"

enum { GPU_DEVICES = 2 };

/* Bytes that are to be the pattern. */
struct gpu_match {
	const void *memory; /* of the device or the host */
	size_t n;
	uint64_t offset, seed;
	/* NULL, or, on emulated devices, how many bytes are not what else they are to be. */
	size_t (*differ)(const void *bytes, size_t n, uint64_t offset, uint64_t seed);
	size_t wrong; /* bytes, once it is done */
};
struct gpu_hold {
	_Atomic uint32_t *word;
	_Atomic uint32_t own;
};

/* What a kind of devices has to offer; memory may be of the host everywhere, if nothing else is said. */
struct gpu_kind {
	const char *name; /* as in SLUICE_TEST_DEVICE, without a number */
	/* Of the device of that name, or of the first two if it has no number. From the main thread, once;
	 * fills in gpu_numbers, and starts whatever a device starts late. */
	int (*open)(const char *name);
	void (*use)(int which);
	int (*fill)(int which, sluice_stream stream, void *memory, size_t n, uint64_t offset,
	            uint64_t seed);
	int (*scribble)(int which, sluice_stream stream, void *memory, size_t n, unsigned byte);
	int (*take)(int which, sluice_stream stream, void *out, const void *memory, size_t n);
	int (*spin)(int which, sluice_stream stream, uint64_t nanoseconds);
	int (*host)(int which, sluice_stream stream, void (*function)(void *), void *argument);
	int (*call)(int which, sluice_stream stream, void (*function)(void *), void *argument);
	int (*match)(int which, sluice_stream stream, struct gpu_match *list, unsigned count,
	             void (*done)(void *), void *argument);
	int (*hold)(int which, sluice_stream stream, struct gpu_hold *hold);
	int (*get)(void *out, const void *memory, size_t n);
	int (*put)(void *memory, const void *bytes, size_t n);
	int (*in_use)(int which, uint64_t *bytes);
};
extern const struct gpu_kind gpu_emulated, gpu_cuda;
extern int gpu_numbers[GPU_DEVICES];
/* Notes the sentence of this thread, and returns rc. */
__attribute__((format(printf, 2, 3))) int gpu_failed(int rc, const char *format, ...);

/* Once, before all others; kind may be NULL: as the environment says. -ENODEV: there is none here. */
int gpu_open(const char *kind);
const char *gpu_message(void);
/* What it is that programs will meet, and not the emulated one. */
bool gpu_is_real(void);
int gpu_device(int which);
/* 0 or 1 for such a number. */
int gpu_which(int device);
const char *gpu_name(int which);
/* Whether the two are different ones. */
bool gpu_has_two(void);
/* A device that is not the first one, if need be of another kind; sluice's number. */
int gpu_other(void);

/* The calling thread works on that device from now on, as far as the driver wants to know. */
void gpu_use(int which);

/* Kernels, in stream order. Memory: of the device, or of the host. */
int gpu_fill(int which, sluice_stream stream, void *memory, size_t n, uint64_t offset,
             uint64_t seed);
int gpu_scribble(int which, sluice_stream stream, void *memory, size_t n, unsigned byte);
/* To host memory, which is pinned. */
int gpu_take(int which, sluice_stream stream, void *out, const void *memory, size_t n);
int gpu_spin(int which, sluice_stream stream, uint64_t nanoseconds);
/* Runs function(argument) as a host function, which may wait, but must not call the driver. */
int gpu_host(int which, sluice_stream stream, void (*function)(void *), void *argument);
/* The same for one that does not wait. */
int gpu_call(int which, sluice_stream stream, void (*function)(void *), void *argument);
/* Looks at all memory in the list in stream order, and then calls done(argument), as gpu_call(). */
int gpu_match(int which, sluice_stream stream, struct gpu_match *list, unsigned count,
              void (*done)(void *), void *argument);

/* Holds the stream up from now on until gpu_let_go(). One at a time on each device; meanwhile nothing
 * may be allocated or freed. */
int gpu_hold(int which, sluice_stream stream, struct gpu_hold *hold);
void gpu_let_go(struct gpu_hold *hold);

/* What is in memory now, whatever streams do, and without a call that sluice_emulated_calls() counts. */
int gpu_get(void *out, const void *memory, size_t n);
int gpu_put(void *memory, const void *bytes, size_t n);

/* Memory of the device that is taken, whatever process has it: the driver's figure, or, of emulated devices, what
 * processes of this session have made for others or lent, and somebody still has (see emulated_memory.h). */
int gpu_in_use(int which, uint64_t *bytes);

#endif
