/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 for machines without a GPU: the driver's functions over the emulated device, of which
 * the library has a copy of its own. What it refuses, and what it makes wait, a real one does too; where
 * the real one leaves it open the fake is the stricter. For its own files only: programs load it as they
 * load a driver.
 *
 * Two devices. The contexts of a device share its default streams. Words are compared with GEQ only, and
 * lie in registered memory.
 *
 * Environment: FAKE_CUDA_INIT=N: cuInit() answers that. FAKE_CUDA_NO_WORDS=1: no memory operations.
 * FAKE_CUDA_NO_SHARING=1: no memory that other processes could map.
 * FAKE_CUDA_SEED=N: the schedule of the emulated devices, with delays. More by functions: cuFake...
 */
#ifndef TESTS_FAKE_CUDA_H
#define TESTS_FAKE_CUDA_H

#include <sluice/emulated.h>

#include "device/cuda_api.h"
#include "device/emulated/emulated.h"
#include "lib/fake_cuda/fake_cuda_api.h"

enum fake_call {
#define FAKE_CALL(name, arguments) CALL_##name,
	SL_CUDA_FUNCTIONS(FAKE_CALL) SL_CUDA_OPTIONAL(FAKE_CALL) TEST_CUDA_FUNCTIONS(FAKE_CALL)
#undef FAKE_CALL
		FAKE_CALLS
};

struct CUctx_st {
	struct sl_interval handle; /* in fake.contexts */
	struct emulated *device;
	CUdevice ordinal;
	unsigned retained; /* of a primary one */
};

enum capture { CAPTURE_NONE, CAPTURE_ACTIVE, CAPTURE_INVALIDATED };
enum { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED };

struct CUstream_st {
	struct sl_interval handle; /* in fake.streams */
	struct sl_list link;       /* in fake.all_streams */
	CUcontext ctx;
	sluice_stream emulated;
	bool blocking;
	/* Guarded by fake.mutex. */
	enum capture capture;
	int mode;         /* of the capture, and whose it is: */
	pthread_t thread; /* who began it */
};

enum block_kind {
	BLOCK_DEVICE,
	BLOCK_POOL,
	BLOCK_MAPPED,
	BLOCK_BORROWED,
	BLOCK_MANAGED,
	BLOCK_PINNED,
	BLOCK_HOST
};

/* A range of memory that the driver knows. */
struct block {
	struct sl_interval at; /* in fake.blocks */
	enum block_kind kind;
	CUcontext ctx;
	CUdevice ordinal;
	uint64_t id;
};

extern struct fake {
	pthread_mutex_t mutex;
	/* Guarded by mutex, which is not held in calls to the emulated device. */
	struct sl_intervals contexts, streams, events, blocks;
	struct sl_list all_streams;
	uint64_t ids;
} fake;

/* ------------------------------------------------------------------------------ fake_cuda.c */

/* What a call asks for, besides cuInit(). */
enum {
	NEEDS_CONTEXT = 1 << 0, /* of the calling thread */
	UNSAFE = 1 << 1,        /* is refused while a capture might suffer */
};
/*
 * Every function begins with it: counts the call, has it fail if that was asked for, and finds what it
 * needs. ctx may be NULL.
 */
CUresult fake_enter(enum fake_call call, unsigned needs, CUcontext *ctx);
/* What a negative errno of the emulated device is here. */
CUresult fake_error(int rc);
/* A handle is an address in a set. fake.mutex held. */
void fake_publish(struct sl_intervals *set, struct sl_interval *handle, const void *object);
bool fake_known(const struct sl_intervals *set, const void *object);

/* ----------------------------------------------------------------------- fake_cuda_device.c */

struct emulated *fake_device(CUdevice ordinal); /* NULL: there is none */

/* ---------------------------------------------------------------------- fake_cuda_context.c */

/* The calling thread's; NULL: it has none. */
CUcontext fake_current(void);

/* ----------------------------------------------------------------------- fake_cuda_stream.c */

/* As both name them. */
#define FAKE_LEGACY     ((CUstream)1)
#define FAKE_PER_THREAD ((CUstream)2)

static inline bool fake_is_default(CUstream stream)
{
	return (uintptr_t)stream <= (uintptr_t)FAKE_PER_THREAD;
}
/* Others are in the set; fake.mutex held. */
static inline bool fake_is_stream(CUstream stream)
{
	return fake_known(&fake.streams, stream);
}

/* A stream as the emulated device knows it. */
struct on {
	CUcontext ctx;
	struct sl_device *device;
	CUstream stream;
	bool captured; /* what it is given is not done */
};
/* The calling thread has a context. */
CUresult fake_stream(CUstream stream, struct on *out);
/* With fake_enter(), for a call that gives something to a stream. */
CUresult fake_on(enum fake_call call, CUstream stream, struct on *out);

/* ---------------------------------------------------------------------- fake_cuda_capture.c */

/* 900 if the calling thread may not call what is unsafe now; the capture is over then. */
CUresult fake_captures(void);
/* The legacy stream would have to come behind what is only recorded. fake.mutex held. */
bool fake_holds_legacy_up(CUcontext ctx);

/* ------------------------------------------------------------------------- fake_cuda_word.c */

/* Once, before any may be waited for: it registers memory. */
bool fake_make_words(void);
/* A word that will have that value for the first time, as a command. */
struct sl_command fake_word(enum sl_command_kind kind);

/* ----------------------------------------------------------------------- fake_cuda_memory.c */

/* The block that has the byte, copied to *out. */
bool fake_block(const void *memory, struct block *out);
CUresult fake_add_block(enum block_kind kind, CUcontext ctx, CUdevice ordinal, void *memory,
                        size_t length);
/* Takes it out if one of these kinds (bits) begins there. */
bool fake_take_block(unsigned kinds, const void *memory, struct block *out);
/* Host memory for every device; start and end are rounded to pages. */
int fake_pin(void *memory, size_t length);
int fake_unpin(void *memory, size_t length);

/* ------------------------------------------------------------------------- fake_cuda_copy.c */

/* Runs on the device's thread, in stream order, as a kernel does. Frees argument by itself. */
CUresult fake_run(const struct on *on, void (*run)(void *), void *argument);
/* Where the bytes at an address are, for what runs there; a wrong one, or one that cannot be written to, is a
 * fault of the device, and NULL. */
void *fake_bytes(struct sl_device *device, const void *memory, size_t length, bool write);

/* ------------------------------------------------------------------------- fake_cuda_pool.c */

/* Once the stream has come to it. */
CUresult fake_pool_free(const struct on *on, const struct block *block);

#endif
