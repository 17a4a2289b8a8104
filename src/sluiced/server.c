/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of the server. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "sluiced/keeper.h"
#include "sluiced/spill.h"

#define EVENTS 64
/* The least between two sweeps, and how much longer than a sweep took. */
#define SWEEP_NS      INT64_C(200000)
#define SWEEP_REST    8
#define SWEEP_LATE_NS INT64_C(1000000)
/* How often what was deleted and is held is looked at though nobody has said anything. */
#define LOOK_NS INT64_C(1000000000)
#define TICK_NS INT64_C(1000000000)

void sl_server_at(struct sl_server *server, int64_t when)
{
	/* 0 would silence the alarm. */
	server->timer = SL_MIN(server->timer, SL_MAX(when, 1));
}

/* -------------------------------------------------------------------------------------- timer */

static void sweep(struct sl_server *server)
{
	int64_t now = server->now;

	if (!server->sweep)
		return;
	if (now < server->sweep_at) {
		/* Any request that comes by then does it on its way. */
		sl_server_at(server, server->sweep_at + SWEEP_LATE_NS);
		return;
	}
	sl_blob_sweep(server);
	if (server->dying)
		sl_server_at(server, now + LOOK_NS);
	server->now = sl_now();
	server->sweep_at = server->now + SL_MAX(SWEEP_NS, (server->now - now) * SWEEP_REST);
}

/* Whoever lets go of what was deleted says so; this is for those who could not. */
static void look_again(struct sl_server *server, int64_t now)
{
	if (now < server->look_at)
		return;
	server->look_at = now + LOOK_NS;
	sl_catalogue_tick(server->catalogue);
	server->sweep = server->sweep || server->dying;
	if (!sl_list_empty(&server->peers))
		sl_server_at(server, server->look_at);
}

static void timers(struct sl_server *server)
{
	int64_t now = server->now;

	sweep(server);
	if (now < server->timer)
		return;
	server->timer = SL_FOREVER;
	sl_get_expire(server, now);
	sl_peer_expire(server, now);
	sl_list_each (link, &server->peers) {
		struct sl_peer *peer = SL_CONTAINER(link, struct sl_peer, link);

		sl_peer_settle(server, peer, 0, now);
	}
	look_again(server, now);
	sweep(server);
}

/* Not by a time-out of each wait, which costs a tenth of a request. When it comes too early that does no harm. */
static void set_alarm(struct sl_server *server)
{
	struct itimerspec when = {.it_value = {.tv_sec = server->timer / 1000000000,
	                                       .tv_nsec = server->timer % 1000000000}};

	if (server->timer >= server->alarm_at)
		return;
	timerfd_settime(server->alarm_fd, TFD_TIMER_ABSTIME, &when, NULL);
	server->alarm_at = server->timer;
}

static void alarm_event(struct sl_server *server)
{
	uint64_t times;

	(void)!read(server->alarm_fd, &times, sizeof(times));
	server->alarm_at = SL_FOREVER;
}

/* ------------------------------------------------------------------------------------ events */

static int watch(struct sl_server *server, int fd, struct sl_source *source)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

	if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event))
		return sl_fail(-errno, "cannot watch a descriptor: %s", sl_error_text(-errno));
	return 0;
}

/* The keeper is dead: another one, which has the descriptors from us. */
static void replace_keeper(struct sl_server *server)
{
	epoll_ctl(server->epoll, EPOLL_CTL_DEL, server->vault->peer, NULL);
	if (sl_keeper_replace(server->vault, server->settings)) {
		server->keeper_gone = true;
		return;
	}
	watch(server, server->vault->peer, &server->keeper);
}

static void keeper_event(struct sl_server *server)
{
	char byte;
	ssize_t n = recv(server->vault->peer, &byte, 1, MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		replace_keeper(server);
}

static void signal_event(struct sl_server *server)
{
	struct signalfd_siginfo signal;

	if (read(server->signals, &signal, sizeof(signal)) == sizeof(signal))
		server->stopping = true;
}

static void dispatch(struct sl_server *server, struct sl_source *source, uint32_t events)
{
	switch (source->kind) {
	case SL_SOURCE_LISTENER:
		sl_peer_accept(server);
		break;
	case SL_SOURCE_KEEPER:
		keeper_event(server);
		break;
	case SL_SOURCE_SIGNALS:
		signal_event(server);
		break;
	case SL_SOURCE_ALARM:
		alarm_event(server);
		break;
	case SL_SOURCE_MOVERS:
		sl_movers_event(server);
		break;
	case SL_SOURCE_PEER:
		if (!source->peer->gone)
			sl_peer_event(server, source->peer, events);
		break;
	case SL_SOURCE_DEATH:
		if (!source->peer->gone)
			sl_peer_died(server, source->peer);
		break;
	}
}

static int loop(struct sl_server *server)
{
	struct epoll_event events[EVENTS];

	while (!server->stopping) {
		int count;

		set_alarm(server);
		count = epoll_wait(server->epoll, events, EVENTS, -1);
		if (count < 0 && errno != EINTR)
			return sl_fail(-errno, "epoll_wait: %s", sl_error_text(-errno));
		server->now = sl_now();
		for (int i = 0; i < count; i++)
			dispatch(server, events[i].data.ptr, events[i].events);
		timers(server);
		sl_room_run(server);
		sl_peer_free_dead(server);
	}
	return 0;
}

/* --------------------------------------------------------------------------------- beginning */

static int prepare(struct sl_server *server)
{
	sigset_t signals;
	int rc;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	server->epoll = epoll_create1(EPOLL_CLOEXEC);
	server->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	server->alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (server->epoll < 0 || server->signals < 0 || server->alarm_fd < 0)
		return sl_fail(-errno, "cannot begin: %s", sl_error_text(-errno));
	rc = watch(server, server->signals, &server->signal);
	if (!rc)
		rc = watch(server, server->alarm_fd, &server->alarm);
	if (!rc)
		rc = watch(server, server->vault->peer, &server->keeper);
	return rc;
}

int sl_server_run(struct sl_vault *vault, const struct sl_server_settings *settings)
{
	/* What a process has, that of servers among its ancestors too: for a search for leaks at its end. */
	static struct sl_server *last;
	struct sl_server *server = calloc(1, sizeof(*server));
	int rc;

	if (!server)
		return sl_fail(-ENOMEM, "no memory");
	server->before = last;
	last = server;
	prctl(PR_SET_NAME, "sluiced-server");
	server->vault = vault;
	server->settings = settings;
	server->listener.kind = SL_SOURCE_LISTENER;
	server->keeper.kind = SL_SOURCE_KEEPER;
	server->signal.kind = SL_SOURCE_SIGNALS;
	server->alarm.kind = SL_SOURCE_ALARM;
	sl_list_init(&server->caches);
	sl_list_init(&server->warm);
	sl_list_init(&server->peers);
	sl_list_init(&server->strangers);
	sl_list_init(&server->dead);
	sl_list_init(&server->leaving);
	for (unsigned i = 0; i < SL_BUCKETS; i++) {
		sl_list_init(&server->regions[i]);
		sl_list_init(&server->tickets[i]);
	}
	server->begun = server->now = sl_now();
	server->timer = server->alarm_at = SL_FOREVER;
	server->offered = -1;
	sl_waits_init(server);
	rc = prepare(server);
	if (!rc)
		rc = sl_closer_start(&server->closer);
	if (!rc)
		rc = sl_spill_start(server);
	if (!rc && server->spill)
		rc = watch(server, server->spill->event, &server->spill->source);
	if (!rc)
		rc = sl_server_take_over(server);
	/* Nobody is let in before it is known what there is. */
	if (!rc)
		rc = watch(server, vault->listener, &server->listener);
	if (!rc) {
		sl_vault_ready(vault);
		rc = loop(server);
	}
	if (!rc)
		sl_vault_bye(vault);
	return rc;
}
