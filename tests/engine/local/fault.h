/* SPDX-License-Identifier: Apache-2.0 */
/* The fault suite is one program: what goes wrong, and what happens while something is held. */
#ifndef TESTS_FAULT_H
#define TESTS_FAULT_H

#include "lib/gate.h"
#include "lib/support.h"

int fault_setup(void **state);
/* Opens the gate first: a failed test may have left it closed. */
int fault_teardown(void **state);
#define FAULT_TEST(name) FIXTURE_TEST_WITH(name, fault_setup, fault_teardown)

/*
 * A context in which one thread does all the work, a piece of 64 KiB at a time, and nothing is done
 * by the submitting call: what one result holds at the gate, holds everything.
 */
void one_thread(struct fixture *f);

/* The next fsync() from sluice gives this; 0: what the kernel says. */
void fail_fsync(int error);
unsigned fsync_count(void);

/* From now on the n-th allocation of sluice's (1: the next) fails, once; 0: none does. */
void fail_allocation(unsigned n);
/* Whether it did. */
bool allocation_failed(void);
/* The same for pthread_create(). */
void fail_thread(unsigned n);

#endif
