/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each result that the kernel gives for a piece of an operation passes sl_transfer_step(). A
 * program that is linked with --wrap=sl_transfer_step can change these results on their way, and
 * hold them, and with them the operation, as long as it wants.
 */
#ifndef TESTS_SUPPORT_GATE_H
#define TESTS_SUPPORT_GATE_H

#include "backend/backend.h"
#include "lib/support.h"

/* Gives the result to go on with. Called on the backend's threads, several at a time. */
typedef ssize_t (*bend_function)(const struct sl_piece *piece, ssize_t result);

/* NULL: results pass as they are. */
void bend(bend_function function);

/* From now on results stop at the gate, those that pick() chooses; NULL: all. */
void gate_close(bool (*pick)(const struct sl_piece *piece));
/* Lets go what stopped, and stops no more. */
void gate_open(void);
/* Waits until n results stand at the gate; false after a while. */
bool gate_holds(unsigned n);
/* Closes the gate for all, starts the operation, and waits until it stands there. */
sluice_op *start_held(sluice_file *file, bool write, void *data, size_t n, uint64_t offset);
/* Results that have arrived since gate_close() or bend(). */
unsigned gate_count(void);

/* For fixtures: everything as it was. */
void gate_reset(void);

#endif
