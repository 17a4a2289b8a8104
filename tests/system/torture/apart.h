/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two wrong ways of stream order share: the stream gets nothing but something that holds it up,
 * and the copies are enqueued by another thread, on a stream of its own, when the caller's has come so
 * far. An operation in stream order becomes one that is awaited on the host, whose copies are held back.
 */
#ifndef TESTS_TORTURE_APART_H
#define TESTS_TORTURE_APART_H

#include "system/torture/torture.h"

#include "io/staged/staged.h"

struct apart {
	struct sluice_op *op;
	pthread_mutex_t mutex;
	bool begun;          /* guarded by mutex, as is the next */
	struct sl_list held; /* of struct sl_copy_job */
	struct apart *next;
	_Atomic uint32_t *words; /* wrong_waiting.c's */
};

/* Holds the stream up until apart->op is over, and calls apart_begin() when it comes to that. */
int apart_enqueue(struct apart *apart, struct sl_device *device, sluice_stream stream);
/* Lets the copies go. */
void apart_begin(struct apart *apart);
bool apart_is_over(const struct apart *apart);

#endif
