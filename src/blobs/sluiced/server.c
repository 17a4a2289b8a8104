/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: its loop, its timers, and its relation to the supervisor.
 *
 * The loop waits for events with epoll, handles them, runs the timers that are due, and tries the
 * requests that wait for room. A single thread, which waits only in epoll_wait(), which a
 * descriptor or the alarm ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <syslog.h>
#include <unistd.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/peers/peers.h"
#include "sluiced/server.h"
#include "sluiced/spill/spill.h"
#include "sluiced/supervisor/supervisor.h"
#include "sluiced/waits/waits.h"

#define EVENTS 64
/* The least time between two sweeps, also as a multiple of a sweep's duration. */
#define SWEEP_NS      INT64_C(200000)
#define SWEEP_REST    8
#define SWEEP_LATE_NS INT64_C(1000000)
/* How often deleted blobs that are still held are looked at without a request. */
#define LOOK_NS INT64_C(1000000000)
/* Scheduling: slices of this length (Linux 6.12), and this niceness where it is permitted. */
#define SLICE_NS 100000
#define NICE     (-19)
/* The least time between two starts of a supervisor. */
#define REPLACE_NS INT64_C(50000000)

/* -------------------------------------------------------------------------------------- timer */

static void server_sweep(struct sl_server *server)
{
	int64_t now = server->now;

	if (!server->blobs->sweep_due)
		return;
	if (now < server->sweep_at) {
		/* A request that comes earlier sweeps on its way. */
		sl_server_at(server, server->sweep_at + SWEEP_LATE_NS);
		return;
	}
	sl_blob_sweep(server);
	if (server->counts.dying)
		sl_server_at(server, now + LOOK_NS);
	server->now = sl_now();
	server->sweep_at = server->now + SL_MAX(SWEEP_NS, (server->now - now) * SWEEP_REST);
}

/* Looks at deleted blobs again, for clients that could not report a release. */
static void server_look_again(struct sl_server *server, int64_t now)
{
	if (now >= server->look_at) {
		server->look_at = now + LOOK_NS;
		sl_catalogue_tick(server->catalogue);
		server->blobs->sweep_due = server->blobs->sweep_due || server->counts.dying ||
		                           !sl_list_empty(&server->blobs->transients);
	}
	/* Also when another timer ran: the alarm is to come for this as well. */
	if (!sl_list_empty(&server->peers->live))
		sl_server_at(server, server->look_at);
}

static void server_run_timers(struct sl_server *server)
{
	int64_t now = server->now;

	server_sweep(server);
	if (now < server->timer)
		return;
	server->timer = SL_FOREVER;
	sl_get_expire(server, now);
	sl_peer_expire(server, now);
	sl_regions_expire(server, now);
	server_look_again(server, now);
	server_sweep(server);
}

/* Sets a timerfd: a timeout of each epoll_wait() costs a tenth of a request. Early is harmless. */
static void server_set_alarm(struct sl_server *server)
{
	struct itimerspec when = {.it_value = {.tv_sec = server->timer / 1000000000,
	                                       .tv_nsec = server->timer % 1000000000}};

	if (server->timer >= server->alarm_at)
		return;
	timerfd_settime(server->alarm_fd, TFD_TIMER_ABSTIME, &when, NULL);
	server->alarm_at = server->timer;
}

static void server_alarm_event(struct sl_server *server)
{
	uint64_t times;

	(void)!read(server->alarm_fd, &times, sizeof(times));
	server->alarm_at = SL_FOREVER;
}

/* ------------------------------------------------------------------------------------ events */

static int server_watch(struct sl_server *server, int fd, struct sl_source *source)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

	if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event))
		return sl_fail(-errno, "cannot watch a descriptor: %s", sl_error_text(-errno));
	return 0;
}

/* Answers that there is no upgrade. The sentence is sluice_last_message(). */
static void server_refuse_upgrade(struct sl_server *server, int error)
{
	sl_peer_refuse(server, server->upgrader, server->upgrade_serial, error);
	server->upgrader = NULL;
}

/*
 * Starts another supervisor, which inherits everything from this process, after the old one has
 * died. At most once per REPLACE_NS.
 */
static void server_replace_supervisor(struct sl_server *server)
{
	if (!server->alone)
		epoll_ctl(server->epoll, EPOLL_CTL_DEL, server->descriptors->peer, NULL);
	server->alone = true;
	if (server->upgrader)
		server_refuse_upgrade(server,
		                      sl_fail(-EAGAIN, "the supervisor has died meanwhile"));
	if (server->now >= server->supervise_at) {
		server->supervise_at = server->now + REPLACE_NS;
		server->alone = sl_supervisor_replace(server->descriptors) != 0;
	}
	if (server->alone)
		sl_server_at(server, server->supervise_at);
	else
		server_watch(server, server->descriptors->peer, &server->supervisor);
}

static void server_supervisor_event(struct sl_server *server)
{
	struct sl_no_upgrade no;
	ssize_t n = recv(server->descriptors->peer, &no, sizeof(no), MSG_DONTWAIT);

	if (n == sizeof(no) && server->upgrader)
		server_refuse_upgrade(server, sl_fail(no.error, "%s", no.text));
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		server_replace_supervisor(server);
}

int sl_handle_daemon(struct sl_server *server, struct sl_peer *peer)
{
	if (peer->uid && peer->uid != geteuid())
		return sl_fail(-EPERM, "only the daemon's user and root may upgrade or stop it");
	if (server->in.daemon.act == SL_DAEMON_STOP) {
		sl_report(LOG_INFO, "stops, as process %d asks for", (int)peer->pid);
		server->stopping = true;
		sl_message_begin(&server->out, SL_MSG_DONE, server->in.head.serial, 0);
		sl_peer_send(server, peer, &server->out,
		             fcntl(server->descriptors->other_fd, F_DUPFD_CLOEXEC, 0));
	} else if (server->upgrader || server->alone) {
		return sl_fail(-EBUSY, "another upgrade, or the start of a supervisor, is under "
		                       "way: try again");
	} else {
		server->upgrader = peer;
		server->upgrade_serial = server->in.head.serial;
		sl_descriptors_say(server->descriptors, SL_SAY_UPGRADE);
	}
	return 0;
}

static void server_signal_event(struct sl_server *server)
{
	struct signalfd_siginfo signal;

	if (read(server->signals, &signal, sizeof(signal)) == sizeof(signal))
		server->stopping = true;
}

static void server_dispatch(struct sl_server *server, struct sl_source *source, uint32_t events)
{
	if (source->event)
		source->event(server);
	else if (source == &source->peer->death)
		sl_peer_close(server, source->peer, true);
	else
		sl_peer_event(server, source->peer, events);
}

static int server_loop(struct sl_server *server)
{
	struct epoll_event events[EVENTS];

	while (!server->stopping) {
		int count;

		server_set_alarm(server);
		count = epoll_wait(server->epoll, events, EVENTS, -1);
		if (count < 0 && errno != EINTR)
			return sl_fail(-errno, "epoll_wait: %s", sl_error_text(-errno));
		server->now = sl_now();
		for (int i = 0; i < count; i++)
			server_dispatch(server, events[i].data.ptr, events[i].events);
		server_run_timers(server);
		if (server->alone && server->now >= server->supervise_at)
			server_replace_supervisor(server);
		sl_room_run(server);
		sl_watchers_tell(server);
		sl_peer_free_dead(server);
	}
	return 0;
}

/* --------------------------------------------------------------------------------- beginning */

static int server_prepare(struct sl_server *server)
{
	int rc;

	server->signals = sl_stop_signals();
	server->epoll = epoll_create1(EPOLL_CLOEXEC);
	server->alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (server->epoll < 0 || server->signals < 0 || server->alarm_fd < 0)
		return sl_fail(-errno, "cannot begin: %s", sl_error_text(-errno));
	rc = server_watch(server, server->signals, &server->signal);
	if (!rc)
		rc = server_watch(server, server->alarm_fd, &server->alarm);
	if (!rc)
		rc = server_watch(server, server->descriptors->peer, &server->supervisor);
	return rc;
}

/*
 * Asks for prompt scheduling. Each request of each client waits for this thread, which works on it
 * for microseconds: on busy processors it should not wait for the slices of other threads. Threads
 * and processes that it starts are scheduled normally. A niceness that the user has chosen stays.
 */
static void server_be_prompt(void)
{
	int nice = getpriority(PRIO_PROCESS, 0);
	/* Some C libraries lack struct sched_attr, and the kernel's header breaks <sched.h>. */
	struct {
		uint32_t size, policy;
		uint64_t flags; /* SCHED_FLAG_RESET_ON_FORK */
		int32_t nice;
		uint32_t priority;
		uint64_t slice, deadline, period;
	} wish = {sizeof(wish), 0, 1, nice ? nice : NICE, 0, SLICE_NS, 0, 0};

	if (!syscall(SYS_sched_setattr, 0, &wish, 0))
		return;
	wish.nice = nice;
	syscall(SYS_sched_setattr, 0, &wish, 0);
}

/* Makes an empty server, which lives until the process ends. */
static struct sl_server *server_new(struct sl_descriptors *descriptors)
{
	static struct sl_blobs blobs;
	static struct sl_memory_pool memory;
	static struct sl_peers peers;
	static struct sl_waits waits;
	static struct sl_room room;
	static struct sl_server server = {.blobs = &blobs,
	                                  .memory = &memory,
	                                  .peers = &peers,
	                                  .waits = &waits,
	                                  .room = &room,
	                                  .listener.event = sl_peer_accept,
	                                  .supervisor.event = server_supervisor_event,
	                                  .signal.event = server_signal_event,
	                                  .alarm.event = server_alarm_event,
	                                  .offered = -1};

	server.descriptors = descriptors;
	server.settings = &descriptors->ledger->settings;
	sl_list_init(&blobs.caches);
	sl_list_init(&blobs.transients);
	sl_list_init(&memory.kept);
	sl_list_init(&memory.leaving);
	sl_list_init(&peers.live);
	sl_list_init(&peers.dead);
	sl_list_init(&peers.watches);
	for (unsigned i = 0; i < SL_BUCKETS; i++) {
		sl_list_init(&memory.regions[i]);
		sl_list_init(&blobs.leases[i]);
	}
	for (unsigned i = 0; i < SL_WAIT_BUCKETS; i++)
		sl_list_init(&waits.by_key[i]);
	sl_list_init(&room.queue);
	waits.due = room.due = SL_FOREVER;
	server.begun = server.now = sl_now();
	server.timer = server.alarm_at = SL_FOREVER;
	return &server;
}

int sl_server_run(struct sl_descriptors *descriptors)
{
	struct sl_server *server = server_new(descriptors);
	int rc;

	prctl(PR_SET_NAME, "sluiced-server");
	server_be_prompt();
	rc = server_prepare(server);
	if (!rc)
		rc = sl_pool_start("closer", 1, 1, &server->memory->freeing.pool);
	if (!rc)
		rc = sl_spill_start(server);
	if (!rc && server->spill)
		rc = server_watch(server, server->spill->event, &server->spill->source);
	if (!rc)
		rc = sl_server_recover(server);
	/* Connections are accepted only after recovery. */
	if (!rc)
		rc = server_watch(server, descriptors->ledger->listener, &server->listener);
	if (!rc) {
		sl_descriptors_say(descriptors, SL_SAY_READY);
		rc = server_loop(server);
	}
	if (!rc)
		sl_descriptors_say(descriptors, SL_SAY_BYE);
	return rc;
}
