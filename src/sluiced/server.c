/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of the server. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <syslog.h>
#include <unistd.h>

#include "sluiced/listen.h"
#include "sluiced/spill.h"
#include "sluiced/supervisor.h"

#define EVENTS 64
/* The least between two sweeps, and how much longer than a sweep took. */
#define SWEEP_NS      INT64_C(200000)
#define SWEEP_REST    8
#define SWEEP_LATE_NS INT64_C(1000000)
/* How often what was deleted and is held is looked at though nobody has said anything. */
#define LOOK_NS INT64_C(1000000000)
/* How the kernel schedules the server: in slices of this length (Linux 6.12), and so nice where that is permitted. */
#define SLICE_NS 100000
#define NICE     (-19)
/* The least between two supervisors. */
#define REPLACE_NS INT64_C(50000000)

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
	if (now >= server->look_at) {
		server->look_at = now + LOOK_NS;
		sl_catalogue_tick(server->catalogue);
		server->sweep =
			server->sweep || server->dying || !sl_list_empty(&server->transients);
	}
	/* Also when the alarm came for something else: it is to come for this as well. */
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
	sl_regions_expire(server, now);
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

/* There is none. The sentence is sluice_last_message(). */
static void end_upgrade(struct sl_server *server, int error)
{
	sl_peer_refuse(server, server->upgrader, server->upgrade_serial, error);
	server->upgrader = NULL;
}

/* The supervisor is dead: another one inherits all from this process. REPLACE_NS bounds the work for them. */
static void replace_supervisor(struct sl_server *server)
{
	if (!server->alone)
		epoll_ctl(server->epoll, EPOLL_CTL_DEL, server->descriptors->peer, NULL);
	server->alone = true;
	if (server->upgrader)
		end_upgrade(server, sl_fail(-EAGAIN, "the supervisor has died meanwhile"));
	if (server->now >= server->supervise_at) {
		server->supervise_at = server->now + REPLACE_NS;
		server->alone = sl_supervisor_replace(server->descriptors) != 0;
	}
	if (server->alone)
		sl_server_at(server, server->supervise_at);
	else
		watch(server, server->descriptors->peer, &server->supervisor);
}

static void supervisor_event(struct sl_server *server)
{
	struct sl_no_upgrade no;
	ssize_t n = recv(server->descriptors->peer, &no, sizeof(no), MSG_DONTWAIT);

	if (n == sizeof(no) && server->upgrader)
		end_upgrade(server, sl_fail(no.error, "%s", no.text));
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		replace_supervisor(server);
}

/* An upgrade is answered when there is none; if there is one, this server ends. */
int sl_daemon(struct sl_server *server, struct sl_peer *peer)
{
	uint32_t serial = server->in.head.serial;
	int fd;

	if (server->in.daemon.act == SL_DAEMON_STOP) {
		sl_report(LOG_INFO, "stops, as process %d asks for", (int)peer->pid);
		server->stopping = true;
		fd = fcntl(server->descriptors->other_fd, F_DUPFD_CLOEXEC, 0);
		sl_message_begin(&server->out, SL_MSG_DONE, serial, 0);
		sl_peer_send(server, peer, &server->out, fd);
	} else if (server->upgrader || server->alone) {
		return sl_fail(-EBUSY, "another upgrade, or the start of a supervisor, is under "
		                       "way: try again");
	} else {
		server->upgrader = peer;
		server->upgrade_serial = serial;
		sl_descriptors_say(server->descriptors, SL_SAY_UPGRADE);
	}
	return 0;
}

static void signal_event(struct sl_server *server)
{
	struct signalfd_siginfo signal;

	if (read(server->signals, &signal, sizeof(signal)) == sizeof(signal))
		server->stopping = true;
}

static void dispatch(struct sl_server *server, struct sl_source *source, uint32_t events)
{
	if (source->event)
		source->event(server);
	else if (source == &source->peer->death)
		sl_peer_close(server, source->peer, true);
	else
		sl_peer_event(server, source->peer, events);
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
		if (server->alone && server->now >= server->supervise_at)
			replace_supervisor(server);
		sl_room_run(server);
		sl_peer_free_dead(server);
	}
	return 0;
}

/* --------------------------------------------------------------------------------- beginning */

static int prepare(struct sl_server *server)
{
	int rc;

	server->signals = sl_stop_signals();
	server->epoll = epoll_create1(EPOLL_CLOEXEC);
	server->alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (server->epoll < 0 || server->signals < 0 || server->alarm_fd < 0)
		return sl_fail(-errno, "cannot begin: %s", sl_error_text(-errno));
	rc = watch(server, server->signals, &server->signal);
	if (!rc)
		rc = watch(server, server->alarm_fd, &server->alarm);
	if (!rc)
		rc = watch(server, server->descriptors->peer, &server->supervisor);
	return rc;
}

/*
 * Each request of each client waits for this thread, which does some microseconds of work for it: among busy processors it
 * is not to wait for the slices of others. Threads and processes that it starts are scheduled as any other. A niceness
 * that somebody has chosen stays.
 */
static void be_prompt(void)
{
	int nice = getpriority(PRIO_PROCESS, 0);
	/* Some C libraries do not have struct sched_attr, and its header is at odds with <sched.h>. */
	struct {
		uint32_t size, policy;
		uint64_t flags; /* 1: SCHED_FLAG_RESET_ON_FORK */
		int32_t nice;
		uint32_t priority;
		uint64_t slice, deadline, period;
	} wish = {sizeof(wish), 0, 1, nice ? nice : NICE, 0, SLICE_NS, 0, 0};

	if (!syscall(SYS_sched_setattr, 0, &wish, 0))
		return;
	wish.nice = nice;
	syscall(SYS_sched_setattr, 0, &wish, 0);
}

int sl_server_run(struct sl_descriptors *descriptors)
{
	/* Ends with the process, and is found there by a search for leaks. */
	static struct sl_server *server;
	int rc;

	server = calloc(1, sizeof(*server));
	if (!server)
		return sl_fail(-ENOMEM, "no memory");
	prctl(PR_SET_NAME, "sluiced-server");
	server->descriptors = descriptors;
	server->settings = &descriptors->ledger->settings;
	server->listener.event = sl_peer_accept;
	server->supervisor.event = supervisor_event;
	server->signal.event = signal_event;
	server->alarm.event = alarm_event;
	sl_list_init(&server->caches);
	sl_list_init(&server->transients);
	sl_list_init(&server->kept);
	sl_list_init(&server->peers);
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
	be_prompt();
	rc = prepare(server);
	if (!rc)
		rc = sl_pool_start("closer", 1, 1, &server->closer.pool);
	if (!rc)
		rc = sl_spill_start(server);
	if (!rc && server->spill)
		rc = watch(server, server->spill->event, &server->spill->source);
	if (!rc)
		rc = sl_server_take_over(server);
	/* Nobody is let in before it is known what there is. */
	if (!rc)
		rc = watch(server, descriptors->ledger->listener, &server->listener);
	if (!rc) {
		sl_descriptors_say(descriptors, SL_SAY_READY);
		rc = loop(server);
	}
	if (!rc)
		sl_descriptors_say(descriptors, SL_SAY_BYE);
	return rc;
}
