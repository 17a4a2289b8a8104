/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a small blob costs who makes it, beside a bare round trip over a socket of the same kind with messages as
 * long as those of a seal and its answer. In turn, a hundred of each, in the same process; the other end of the
 * bare one is a process that does nothing but receive and send.
 */
#include "store_bench.h"

#include <err.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TURN = 100, ASK_BYTES = 312, ANSWER_BYTES = 120 };

/* Which processor somebody runs on decides more than all that he does: a wake-up of another one takes longest. */
static void run_on(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (core >= 0 && sched_setaffinity(0, sizeof(set), &set))
		err(1, "core %d", core);
}

static int start_echo(void)
{
	char buffer[512];
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
		err(1, "socketpair");
	switch (fork()) {
	case -1:
		err(1, "fork");
	case 0:
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		run_on(options.there);
		while (recv(pair[1], buffer, sizeof(buffer), 0) > 0)
			if (send(pair[1], buffer, ANSWER_BYTES, 0) < 0)
				break;
		_exit(0);
	default:
		close(pair[1]);
		return pair[0];
	}
}

static double round_trip(int fd)
{
	char buffer[512] = {0};
	int64_t begun = now_ns();

	if (send(fd, buffer, ASK_BYTES, 0) < 0 || recv(fd, buffer, sizeof(buffer), 0) < 0)
		err(1, "round trip");
	return (double)(now_ns() - begun);
}

struct made {
	double create_seal; /* without the filling between them */
	double all;
	double delete; /* and release */
};

static struct made publish(sluice_store *store, const char *from)
{
	int64_t begun = now_ns(), created, filled, sealed;
	sluice_blob *blob;

	must(sluice_blob_create(store, "a blob", options.bytes, -1, NULL, &blob), "create");
	created = now_ns();
	memcpy(sluice_blob_mutable_data(blob), from, options.bytes);
	filled = now_ns();
	must(sluice_blob_seal(blob), "seal");
	sealed = now_ns();
	sluice_blob_release(blob);
	must(sluice_blob_delete(store, "a blob"), "delete");
	return (struct made){.create_seal = (double)(created - begun + sealed - filled),
	                     .all = (double)(sealed - begun),
	                     .delete = (double)(now_ns() - sealed)};
}

static double *times(unsigned count)
{
	double *values = calloc(count, sizeof(*values));

	if (!values)
		errx(1, "no memory");
	return values;
}

void run_publish(void)
{
	unsigned count = (options.count + TURN - 1) / TURN * TURN;
	double *bare = times(count), *made = times(count), *all = times(count),
	       *gone = times(count);
	char *from = warm_memory(options.bytes);
	int echo = start_echo();
	sluice_store *store;

	run_on(options.here);
	store = store_open();
	for (unsigned i = 0; i < TURN; i++) {
		round_trip(echo);
		publish(store, from);
	}
	for (unsigned at = 0; at < count; at += TURN) {
		for (unsigned i = at; i < at + TURN; i++)
			bare[i] = round_trip(echo);
		for (unsigned i = at; i < at + TURN; i++) {
			struct made m = publish(store, from);

			made[i] = m.create_seal;
			all[i] = m.all;
			gone[i] = m.delete;
		}
	}
	sluice_store_close(store);
	printf("{\"round_trip\": %.0f, \"create_seal\": %.0f, \"all\": %.0f, \"delete\": %.0f}\n",
	       median(bare, count), median(made, count), median(all, count), median(gone, count));
}
