/* SPDX-License-Identifier: Apache-2.0 */
/* Watchers, and the others beside them. */
#include <unistd.h>

#include "lib/protocol_client.h"

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Replaces a blob many times; returns the median time of one put in seconds. */
static double usual_put(sluice_store *store)
{
	static double times[101];

	for (size_t i = 0; i < COUNT_OF(times); i++) {
		double start = seconds_now();

		assert_ok(sluice_blob_release(put(store, "small", 100, SLUICE_BLOB_REPLACE)));
		times[i] = seconds_now() - start;
	}
	qsort(times, COUNT_OF(times), sizeof(times[0]), by_size);
	return times[COUNT_OF(times) / 2];
}

/* Events of a put are sent after its answer, and not before the next. */
DAEMON_TEST(seal_costs_nothing_beside_watchers)
{
	enum { WATCHES = 400, PUTS = 101 };
	int fds[WATCHES];
	union sl_message m;
	double quiet, busy = 1;

	quiet = usual_put(d->store);
	for (int k = 0; k < 5 && busy >= 3 * quiet + 200e-6; k++) {
		for (unsigned i = 0; i < WATCHES; i++)
			fds[i] = raw_watch(d);
		busy = usual_put(d->store);
		/* Each is told of all. */
		for (unsigned i = 0; i < WATCHES; i++) {
			for (unsigned n = 0; n < 3 * PUTS; n++) {
				assert_true(raw_receive(fds[i], &m, NULL) > 0);
				assert_int_equal(m.head.type, SL_MSG_EVENT);
				if (m.event.item.kind == SLUICE_WATCH_LOST)
					fail_msg("event %u is lost", n);
			}
			close(fds[i]);
		}
	}
	print_message("put: %.0f us, and %.0f us beside %d watchers\n", quiet * 1e6, busy * 1e6,
	              WATCHES);
	assert_true(busy < 3 * quiet + 200e-6);
	assert_ok(sluice_blob_delete(d->store, "small"));
	assert_idle(d->store);
}

DAEMON_MAIN("64M")
