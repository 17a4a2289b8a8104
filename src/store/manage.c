/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's own life: an upgrade, and the end. */
#include <errno.h>
#include <poll.h>

#include "store/client.h"

#define STOP_MS 30000

static int ask(sluice_store *store, enum sl_daemon_act act, struct sl_call *call)
{
	union sl_message m;

	sl_message_begin(&m, SL_MSG_DAEMON, 0, 0);
	m.daemon.act = act;
	return sl_call_begin(store, &m, SL_MSG_DONE, 0, SL_FOREVER, call);
}

/* The server that is asked ends; the next one counts the upgrade. If it does not, that one has died of something else. */
int sluice_store_upgrade(sluice_store *store)
{
	struct sluice_store_counts stats = {.size = sizeof(stats)};
	uint64_t before;
	struct sl_call call;
	int rc = sluice_store_stats(store, &stats);

	for (before = stats.upgrades; !rc && stats.upgrades == before;) {
		rc = ask(store, SL_DAEMON_UPGRADE, &call);
		if (!rc)
			sl_call_end(store, &call);
		if (!rc || rc == -ECONNRESET)
			rc = sluice_store_stats(store, &stats);
	}
	return rc;
}

int sluice_store_stop(sluice_store *store)
{
	int rc = sl_store_check(store, "sluice_store_stop"), n = 1;
	struct sl_call call;
	bool again = false;

	/* A server that is replaced meanwhile has not stopped the daemon; or another client has. */
	if (!rc)
		while ((rc = ask(store, SL_DAEMON_STOP, &call)) == -ECONNRESET)
			again = true;
	if (rc)
		return again && rc == -ECONNREFUSED ? 0 : rc;
	/* Ended by the end of the supervisor. */
	if (call.fds[0] >= 0)
		n = poll(&(struct pollfd){.fd = call.fds[0], .events = POLLIN}, 1, STOP_MS);
	sl_call_end(store, &call);
	return n > 0 ? 0 : sl_fail(-ETIMEDOUT, "the daemon has not ended in %d s", STOP_MS / 1000);
}
