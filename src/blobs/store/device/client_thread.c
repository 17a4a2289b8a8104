/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client thread of a store with devices
 *
 * Reads messages that no call waits for, and connects again when the server was replaced, so that
 * memory that other clients have deleted is released even if the program is idle. Also polls the
 * words that streams write, and then seals or releases. It never calls a driver, so no device can
 * block it. sl_devices_wake() ends its sleep.
 */
#include <poll.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "store/device/store_devices.h"

#define SPIN_NS   1000000 /* longer than a copy takes; sleeps last longer than requested */
#define LEAST_NAP 20000
#define MOST_NAP  1000000
/* Time for the reading thread to read all that is there. */
#define POLITE_NS 1000000
/* Times between two tries to connect. */
#define LEAST_ALONE 20000000
#define MOST_ALONE  1000000000

/* Sleeps until wake_fd, the time or a message. Returns true if conn, unless NULL, has a message. */
static bool client_thread_sleep(struct sl_devices *devices, struct sl_conn *conn, int64_t length)
{
	struct pollfd p[2] = {{.fd = devices->wake_fd, .events = POLLIN},
	                      {.fd = conn ? conn->fd : -1, .events = POLLIN}};
	struct timespec time = {length / 1000000000, length % 1000000000};
	uint64_t rings;

	if (ppoll(p, 2, length == SL_FOREVER ? NULL : &time, NULL) <= 0)
		return false;
	if (p[0].revents && read(devices->wake_fd, &rings, sizeof(rings)) < 0)
		return false;
	return p[1].revents;
}

/* Returns how long to sleep before the words are polled again; doubles *pause for the next time. */
static int64_t client_thread_nap(struct sl_devices *devices, int64_t kept, int64_t *pause)
{
	if (!atomic_load(&devices->stream_op_count)) {
		*pause = LEAST_NAP;
		return SL_FOREVER;
	}
	if (sl_now() - kept < SPIN_NS) {
		sched_yield();
		return 0;
	}
	int64_t nap = *pause;
	*pause = SL_MIN(nap * 2, MOST_NAP);
	return nap;
}

/*
 * Reads a message unless another thread reads. Returns false if the next try must not be polite: a
 * thread that sends a request does not read yet, and may be blocked until another thread reads.
 */
static bool client_thread_read(struct sl_devices *devices, struct sl_conn *conn, bool polite)
{
	if (sl_conn_try_read(devices->store, conn, polite))
		return true;
	client_thread_sleep(devices, NULL,
	                    atomic_load(&devices->stream_op_count) ? LEAST_NAP : POLITE_NS);
	return false;
}

void *sl_client_thread_run(void *argument)
{
	struct sl_devices *devices = argument;
	int64_t kept = sl_now(), pause = LEAST_NAP, alone = LEAST_ALONE;
	unsigned before = 0;
	bool polite = true;

	while (!atomic_load(&devices->stop)) {
		bool any = sl_stream_op_run_next(devices);
		unsigned count = atomic_load(&devices->stream_op_count);

		/* After a new operation the words are polled without a pause. */
		if (any || count > before) {
			kept = sl_now();
			pause = LEAST_NAP;
		}
		before = count;
		if (any)
			continue;
		struct sl_conn *conn = sl_conn_acquire(devices->store);
		if (!conn) {
			client_thread_sleep(devices, NULL, alone);
			alone = SL_MIN(alone * 2, MOST_ALONE);
			continue;
		}
		alone = LEAST_ALONE;
		polite = !client_thread_sleep(devices, conn,
		                              client_thread_nap(devices, kept, &pause)) ||
		         client_thread_read(devices, conn, polite);
		sl_conn_release(devices->store, conn);
	}
	return NULL;
}
