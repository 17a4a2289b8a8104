/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the doors of the library share: a handle of each kind, and the judgement of calls.
 *
 * Exempt are the functions of the emulated device and of MPI; those whose results are no errno are only called.
 */
#ifndef TESTS_SYSTEM_DOORS_H
#define TESTS_SYSTEM_DOORS_H

#include <setjmp.h>

#include "sluice/arrays.h"
#include "sluice/device.h"
#include "sluice/frames.h"
#include "sluice/ranks.h"
#include "sluice/tensors.h"
#include "sluice/writer.h"
#include "store/device_common.h"

#define BYTES 4096

/* A handle of each kind. */
struct handles {
	struct daemon *d;
	sluice_context *ctx;
	sluice_file *file;
	sluice_op *op, *opening;
	sluice_queue *queue;
	sluice_list *list;
	sluice_tensors *tensors;
	sluice_tensor_plan *plan;
	sluice_tensor_memory *memory;
	sluice_tensor_load *load;
	sluice_collection *collection;
	sluice_writer *writer;
	sluice_series *series;
	sluice_frames *frames;
	sluice_store *store;
	sluice_blob *made, *sealed;
	sluice_watch *watch;
	void *frame, *device, *pinned;
	sluice_stream stream;
	sluice_event event;
	char bytes[BYTES];
};
extern struct handles h;

int doors_setup(void **state);
int doors_teardown(void **state);
#define DOORS_TEST(name) TEST_WITH(name, doors_setup, doors_teardown)

/* Begins to judge calls, in whose place signals of wrong addresses are caught. */
void judge_begin(void);
void judge(const char *call, int64_t rc, int64_t expected);
/* Returns how many calls have given what they should not; each was printed. */
int judge_end(void);
extern sigjmp_buf judge_fault;

/* The call gives that; a signal is an answer, too. */
#define GIVES(call, expected)                                                       \
	do {                                                                        \
		int signal_ = sigsetjmp(judge_fault, 1);                            \
		judge(#call, signal_ ? 1000 + signal_ : (int64_t)(call), expected); \
	} while (0)
#define REFUSED(call)   GIVES(call, -EINVAL)
#define INHERITED(call) GIVES(call, -ECHILD)
/* The call does nothing that a program would see. */
#define QUIET(call)                                      \
	do {                                             \
		int signal_ = sigsetjmp(judge_fault, 1); \
		if (signal_)                             \
			judge(#call, 1000 + signal_, 0); \
		else                                     \
			(void)(call);                    \
	} while (0)

#endif
