/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_EMULATED_MEMORY_H
#define TESTS_EMULATED_MEMORY_H

#include <stdint.h>

/*
 * Bytes of that device ("emulated:0") that processes have made for others or lent, and that somebody still
 * has, by /proc: a descriptor, whoever it is, or a mapping in a process of this session (getsid()). Only of those
 * that processes of this session have made, so that tests that run at once do not count each other's.
 */
uint64_t emulated_memory_in_use(const char *device);

#endif
