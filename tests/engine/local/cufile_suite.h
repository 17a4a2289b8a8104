/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program "cufile": that cuFile is used where it is asked for or is worth it, what comes of its errors, and
 * the order of what it does on streams. What needs the fake libcufile is skipped with a real one.
 */
#ifndef TESTS_CUFILE_H
#define TESTS_CUFILE_H

#include <sys/stat.h>

#include "io/device_suite.h"

/* More extents than cuFile is given in one step. */
enum { MANY = 65 };

/* What descriptor 0 was when the program began. */
extern struct stat input;

bool has_fake(void);
#define NEEDS_FAKE                                             \
	do {                                                   \
		if (!has_fake())                               \
			SKIP("this needs the fake libcufile"); \
	} while (0)
/* See support/fake_cufile.c; 0 with a real one. */
unsigned fake_calls(const char *what);
/* See support/fake_cuda_api.h. */
void cuda_fail(const char *function, uint64_t nth, int error);
uint64_t cuda_calls(const char *function, const char *prefix);

int no_faults(void **state);
#define CUFILE_TEST(name) FIXTURE_TEST_WITH(name, no_faults, fixture_teardown)

/* A context that has not been told to use cuFile. */
void use_auto(struct fixture *f);
/* The operation failed, with that error and a sentence that has says in it. */
void assert_failed(sluice_op *op, int error, const char *says);

#endif
