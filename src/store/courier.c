/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of an idle client: it hears what the server says unasked, and connects again when the server was
 * replaced, so that memory which others have deleted goes. And it sees what streams write, as the doorbell of an
 * operation does, and seals. It never calls a driver, so no wait of a device can hold it up.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "store/devices.h"

#define SPIN_NS   1000000 /* longer than a copy takes; naps take longer than they say */
#define LEAST_NAP 20000
#define MOST_NAP  1000000
/* While others read: they will be through with what there is. */
#define POLITE_NS 1000000
/* Between two tries to connect. */
#define LEAST_ALONE 20000000
#define MOST_ALONE  1000000000

/* Ended by the bell, by the time, and, if wire is not NULL, by what comes on it. */
static bool sleep_on(struct sl_devices *devices, struct sl_wire *wire, int64_t length)
{
	struct pollfd p[2] = {{.fd = devices->bell, .events = POLLIN},
	                      {.fd = wire ? wire->fd : -1, .events = POLLIN}};
	struct timespec time = {length / 1000000000, length % 1000000000};
	uint64_t rings;

	if (ppoll(p, 2, length == SL_FOREVER ? NULL : &time, NULL) <= 0)
		return false;
	if (p[0].revents && read(devices->bell, &rings, sizeof(rings)) < 0)
		return false;
	return p[1].revents;
}

/* How long to sleep before the next look at the words; pause is for the one after that. */
static int64_t next_nap(struct sl_devices *devices, int64_t kept, int64_t *pause)
{
	int64_t nap;

	if (!atomic_load(&devices->promised)) {
		*pause = LEAST_NAP;
		return SL_FOREVER;
	}
	if (sl_now() - kept < SPIN_NS) {
		sched_yield();
		return 0;
	}
	nap = *pause;
	*pause = SL_MIN(nap * 2, MOST_NAP);
	return nap;
}

/* There is something on the wire: takes it, unless somebody else will. False: the next look is not to be polite: who sends
 * a request does not read yet, and may wait for somebody to read. */
static bool look(struct sl_devices *devices, struct sl_wire *wire, bool polite)
{
	if (sl_wire_look(devices->store, wire, polite))
		return true;
	sleep_on(devices, NULL, atomic_load(&devices->promised) ? LEAST_NAP : POLITE_NS);
	return false;
}

void *sl_courier_run(void *argument)
{
	struct sl_devices *devices = argument;
	int64_t kept = sl_now(), pause = LEAST_NAP, alone = LEAST_ALONE;
	unsigned before = 0;
	bool polite = true;

	while (!atomic_load(&devices->stop)) {
		bool any = sl_promise_keep(devices);
		unsigned promised = atomic_load(&devices->promised);
		struct sl_wire *wire;

		/* Those that are young are watched without a pause. */
		if (any || promised > before) {
			kept = sl_now();
			pause = LEAST_NAP;
		}
		before = promised;
		if (any)
			continue;
		wire = sl_wire_acquire(devices->store);
		if (!wire) {
			sleep_on(devices, NULL, alone);
			alone = SL_MIN(alone * 2, MOST_ALONE);
			continue;
		}
		alone = LEAST_ALONE;
		polite = !sleep_on(devices, wire, next_nap(devices, kept, &pause)) ||
		         look(devices, wire, polite);
		sl_wire_release(devices->store, wire);
	}
	return NULL;
}

void sl_courier_ring(struct sl_devices *devices)
{
	uint64_t one = 1;

	/* It cannot fail: the count is far from its end. */
	while (write(devices->bell, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}
