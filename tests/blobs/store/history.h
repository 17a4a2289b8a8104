/* SPDX-License-Identifier: Apache-2.0 */
/* What processes have said about the blob of a name, and when; is there an order of their calls that explains it? */
#ifndef TESTS_STORE_HISTORY_H
#define TESTS_STORE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum what { PUT, REPLACE, EXCHANGE, GET, AWAIT, DELETE, DELETE_ID, EXISTS, PIN };

struct op {
	uint8_t what, name;
	int32_t rc;
	uint64_t value;      /* that it puts, or that it has got */
	double begun, ended; /* 0: it had no end */
	uint64_t old;        /* that it is to exchange, or to delete by its id */
};

struct event {
	const struct op *op;
	double at;
	bool end;
};
/* Appends the beginning and the end of a call to the events, unless it says nothing; returns their new count. */
size_t add_events(struct event *events, size_t count, const struct op *op);
/* Sorts the events, and returns the call that no order explains, or NULL. */
const struct op *check_events(struct event *events, size_t count);

#endif
