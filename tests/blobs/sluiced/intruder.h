/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_STORE_INTRUDER_H
#define TESTS_STORE_INTRUDER_H

#include <stdatomic.h>

#include "lib/protocol_client.h"

/* A client that does not keep to the protocol, on a thread of its own. */
struct intruder {
	const struct daemon *d;
	_Atomic bool stop;
	const char *wrong; /* what the server did that it should not */
};

/* One thing that it does, over and over again; and what there is to be meanwhile, which is not what is measured. */
struct intruder_act {
	const char *name;
	void (*act)(struct intruder *);
	void (*before)(struct intruder *), (*after)(struct intruder *); /* NULL: nothing */
};
/* Ends with one that has no name. */
extern const struct intruder_act intruder_acts[];

#endif
