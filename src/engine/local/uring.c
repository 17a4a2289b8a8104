/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_uring
 *
 * Moves pieces of local files by reactors: threads each of which drives an io_uring of its own. All
 * take their pieces from the same queue.
 *
 * Threads: only a reactor submits to its ring, because the kernel completes a request on the thread
 * that submitted it, and the threads of the program compute. sl_uring_submit() runs on any thread
 * and does not wait.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "local/local_internal.h"

#define LARGEST_REQUEST ((size_t)1 << 30)
#define REAPED_AT_ONCE  32
#define STUCK_NS        INT64_C(1000000000)
/* With so many short requests a reactor waits for several at a time, or for a moment. */
#define DEEP        16
#define SHORT_MOST  ((size_t)64 << 10)
#define GATHER_MOST 8
#define GATHER_NS   50000
#define BACKLOG     32 /* pieces for which another reactor is woken all the same */

struct uring_reactor {
	struct sl_sleeper sleeper;
	struct sl_uring *uring;
	struct io_uring ring;
	int wake;            /* eventfd that ends the reactor's sleep in the kernel */
	uint64_t wake_value; /* where a pending read of it puts its count */
	bool wake_armed;
	int gone;      /* a pipe of which only the ring has the other end: it ends with the ring */
	int refused;   /* the error that io_uring_enter() returns for good, or 0 */
	int64_t stuck; /* when it began to return nothing but errors that may pass, or 0 */
	struct sl_list flying; /* pieces in the ring or in the kernel */
	unsigned in_flight;    /* their number, */
	unsigned briefs;       /* and that of the short ones */
	bool deep;             /* this reactor counts in core->deep, */
	bool idle;             /* but the last such wait has brought nothing */
	struct sl_list own;    /* pieces that this thread has submitted itself, without a wake */
	struct sl_spin spin;
	pthread_t thread;

	/* The result of making the ring, for sl_uring_start(). */
	_Atomic uint32_t started; /* 1 once the thread has set start_error */
	int start_error;
};

struct sl_uring {
	struct sl_core *core;
	struct sl_queue queue;
	unsigned depth;
	unsigned count;
	struct uring_reactor reactors[];
};

static _Thread_local struct uring_reactor *this_reactor; /* NULL on a thread that is no reactor */

static void uring_wake(struct sl_sleeper *sleeper)
{
	sl_eventfd_raise(SL_CONTAINER(sleeper, struct uring_reactor, sleeper)->wake);
}

/* Adds the read of the eventfd that ends a sleep. uring_room() has left room for it. */
static void uring_arm_wake(struct uring_reactor *reactor)
{
	if (reactor->wake_armed)
		return;
	struct io_uring_sqe *request = io_uring_get_sqe(&reactor->ring);
	io_uring_prep_read(request, reactor->wake, &reactor->wake_value,
	                   sizeof(reactor->wake_value), 0);
	io_uring_sqe_set_data(request, NULL);
	reactor->wake_armed = true;
}

static void uring_add_request(struct uring_reactor *reactor, struct sl_piece *piece)
{
	struct io_uring_sqe *request = io_uring_get_sqe(&reactor->ring);
	unsigned length = SL_MIN(piece->length - piece->moved, LARGEST_REQUEST);
	char *data = sl_piece_memory(piece);
	uint64_t offset = piece->offset + piece->moved;

	if (piece->write)
		io_uring_prep_write(request, sl_piece_descriptor(piece), data, length, offset);
	else
		io_uring_prep_read(request, sl_piece_descriptor(piece), data, length, offset);
	request->rw_flags = sl_piece_flags(piece);
	io_uring_sqe_set_data(request, piece);
}

/* Returns how many requests can be added before the kernel takes some; one is left for the wake.
 * The kernel itself may have any number: the permits of each file bound them. */
static unsigned uring_room(struct uring_reactor *reactor)
{
	unsigned left = io_uring_sq_space_left(&reactor->ring);

	return left ? left - 1 : 0;
}

static void uring_start_pieces(struct uring_reactor *reactor)
{
	struct sl_list taken = SL_LIST_INIT(taken), *link;

	sl_queue_take(&reactor->uring->queue, &taken, uring_room(reactor));
	while (uring_room(reactor) &&
	       ((link = sl_list_take(&taken)) || (link = sl_list_take(&reactor->own)))) {
		struct sl_piece *piece = SL_CONTAINER(link, struct sl_piece, link);

		if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed)) {
			piece->error = -ECANCELED;
			sl_local_done(piece);
			continue;
		}
		sl_list_append(&reactor->flying, &piece->link);
		reactor->in_flight++;
		reactor->briefs += piece->length <= SHORT_MOST;
		uring_add_request(reactor, piece);
	}
	sl_signals_send();
}

static void uring_land(struct uring_reactor *reactor, struct sl_piece *piece)
{
	sl_list_remove(&piece->link);
	reactor->in_flight--;
	reactor->briefs -= piece->length <= SHORT_MOST;
}

/*
 * Takes completions. Appends the pieces that are over to done, and continues the others; a piece
 * for which the file system did nothing continues on a worker, which can pause. The kernel itself
 * cancels a request for which it can start no thread, as under a limit of processes; a worker,
 * which there always is, makes its call. Returns the number of completions.
 */
static unsigned uring_reap(struct uring_reactor *reactor, struct sl_list *done)
{
	struct io_uring_cqe *completions[REAPED_AT_ONCE];
	unsigned count = io_uring_peek_batch_cqe(&reactor->ring, completions, REAPED_AT_ONCE);

	for (unsigned i = 0; i < count; i++) {
		struct sl_piece *piece = io_uring_cqe_get_data(completions[i]);
		int result = completions[i]->res;

		if (!piece) {
			reactor->wake_armed = false;
		} else if (sl_transfer_step(piece, result == -ECANCELED ? -EAGAIN : result)) {
			uring_land(reactor, piece);
			sl_list_append(done, &piece->link);
		} else if (sl_local_way_of(piece)->vain) {
			uring_land(reactor, piece);
			sl_posix_submit(piece);
		} else if (uring_room(reactor)) {
			uring_add_request(reactor, piece);
		} else {
			uring_land(reactor, piece);
			sl_uring_start_piece(piece);
		}
	}
	io_uring_cq_advance(&reactor->ring, count);
	return count;
}

static void uring_finish_pieces(struct uring_reactor *reactor)
{
	struct sl_list done = SL_LIST_INIT(done);

	while (uring_reap(reactor, &done) == REAPED_AT_ONCE)
		;
	/* After reaping: the engine may push the next pieces to the queue of this thread. */
	sl_list_each_of (piece, &done, struct sl_piece, link)
		sl_local_done(piece);
	/* A thread that waits for any is woken once. */
	sl_signals_send();
}

static void uring_enter(struct uring_reactor *reactor, bool sleep)
{
	struct timespec moment = {0, 1000000};
	struct __kernel_timespec gather = {0, GATHER_NS};
	unsigned several = SL_MIN(reactor->briefs / 4, GATHER_MOST);
	struct io_uring_cqe *first;
	int rc;

	if (reactor->refused)
		return;
	if (reactor->deep)
		rc = io_uring_submit_and_wait_timeout(&reactor->ring, &first, several, &gather,
		                                      NULL);
	else
		rc = sleep ? io_uring_submit_and_wait(&reactor->ring, 1)
		           : io_uring_submit_and_get_events(&reactor->ring);
	if (rc >= 0 || rc == -EINTR || rc == -ETIME || io_uring_cq_ready(&reactor->ring)) {
		reactor->stuck = 0;
		return;
	}
	if (!reactor->stuck)
		reactor->stuck = sl_now();
	/* Out of memory for a moment: the next call submits the requests in the ring. */
	if ((rc == -EAGAIN || rc == -ENOMEM || rc == -EBUSY) &&
	    sl_now() - reactor->stuck < STUCK_NS)
		nanosleep(&moment, NULL);
	else
		reactor->refused = rc;
}

/* Returns whether there is something to reap, or to submit; for sl_spin_until(). */
static bool uring_has_work(void *argument)
{
	struct uring_reactor *reactor = argument;
	unsigned flags = IO_URING_READ_ONCE(*reactor->ring.sq.kflags);

	return atomic_load_explicit(&reactor->uring->queue.count, memory_order_relaxed) ||
	       !sl_list_empty(&reactor->own) || flags & IORING_SQ_TASKRUN ||
	       io_uring_cq_ready(&reactor->ring);
}

static void uring_set_deep(struct uring_reactor *reactor)
{
	unsigned least = reactor->deep ? DEEP / 2 : DEEP;
	bool deep = reactor->briefs >= least && !reactor->idle && !reactor->refused &&
	            reactor->ring.features & IORING_FEAT_EXT_ARG;

	if (deep != reactor->deep)
		atomic_fetch_add(&reactor->uring->core->deep, deep ? 1u : -1u);
	reactor->deep = deep;
}

static void uring_serve(struct uring_reactor *reactor)
{
	struct sl_queue *queue = &reactor->uring->queue;

	sl_signals_hold();
	while (!reactor->refused) {
		bool sleep;

		uring_start_pieces(reactor);
		uring_arm_wake(reactor);
		/* Before a sleep: a thread that pushes sees it, or this one sees the piece. */
		uring_set_deep(reactor);
		if (reactor->deep) {
			unsigned before = reactor->in_flight;

			uring_enter(reactor, false);
			uring_finish_pieces(reactor);
			reactor->idle = reactor->in_flight == before;
			continue;
		}
		reactor->idle = false;
		/* Polling costs less than a sleep if completions follow each other quickly. */
		if (reactor->in_flight) {
			uring_enter(reactor, false);
			if (sl_spin_until(&reactor->spin, uring_has_work, reactor)) {
				/* The next call submits what their end brings, too. */
				uring_finish_pieces(reactor);
				continue;
			}
		}
		/* The sleep is ended by a completion, a push, or sl_uring_stop(). */
		sleep = sl_list_empty(&reactor->own) && sl_queue_sleep(queue, &reactor->sleeper);
		if (!sleep && !reactor->in_flight && sl_queue_closed(queue))
			return;
		/* Closing with pieces in flight: their completions end the sleep. */
		uring_enter(reactor, sleep || sl_queue_closed(queue));
		sl_queue_awake(queue, &reactor->sleeper);
		uring_finish_pieces(reactor);
	}
}

static void uring_give_to_workers(struct sl_list *pieces)
{
	struct sl_piece *piece;

	while ((piece = sl_list_take_first(pieces, struct sl_piece, link)))
		sl_posix_submit(piece);
}

/* Gives all pieces of the queue to the workers. */
static void uring_forward(struct sl_uring *uring)
{
	struct sl_list taken = SL_LIST_INIT(taken);

	sl_queue_take(&uring->queue, &taken, UINT_MAX);
	uring_give_to_workers(&taken);
}

/* Returns how many pieces the kernel took from the ring: only io_uring_enter() does that. */
static unsigned uring_count_taken(struct uring_reactor *reactor)
{
	const struct io_uring_sq *queue = &reactor->ring.sq;
	unsigned taken = reactor->in_flight;

	for (unsigned at = *queue->khead; at != queue->sqe_tail; at++)
		taken -= queue->sqes[at & *queue->kring_mask].user_data != 0;
	return taken;
}

/*
 * Gives all pieces to the workers after io_uring_enter() has been refused for good, for example by
 * a seccomp filter that is newer than the context, or has had no memory for STUCK_NS.
 *
 * The kernel may still be moving the pieces that it has taken, to or from memory of the caller. No
 * completion says when it has finished, because the refused call runs the completions; and closing
 * the ring does not wait for requests that cannot be cancelled. But the kernel frees a ring, and
 * closes the files registered with it, only after its last request has ended. Once the pipe has
 * ended, therefore, the kernel does not touch that memory, and the workers can move the pieces
 * again: a read is overwritten, a write writes the same bytes, and operations that overlap them
 * still wait for their end. The kernel never takes the requests that are left in a closed ring. So
 * no operation ends, not even a cancelled one, while the kernel may touch its memory.
 *
 * Waits: for the end of the kernel's requests. A child of fork() also holds the ring: then until
 * that child ends.
 */
static void uring_retreat(struct uring_reactor *reactor)
{
	struct sl_uring *uring = reactor->uring;
	unsigned taken = uring_count_taken(reactor);
	char none;

	sl_log(&uring->core->settings, SL_LOG_ERROR,
	       "io_uring_enter: %s: from now on the workers do what io_uring did",
	       sl_error_text(reactor->refused));
	/* Under the mutex: a later push sees the error, and all earlier ones are taken below. */
	sl_mutex_lock(&uring->queue.mutex);
	atomic_store(&uring->core->kernel.uring_error, reactor->refused);
	sl_mutex_unlock(&uring->queue.mutex);
	this_reactor = NULL;
	uring_set_deep(reactor);
	uring_forward(uring);
	uring_give_to_workers(&reactor->own);
	io_uring_queue_exit(&reactor->ring);
	while (taken && read(reactor->gone, &none, 1) < 0 && errno == EINTR)
		;
	uring_give_to_workers(&reactor->flying);
}

/* Makes a first call, because a filter may allow io_uring_setup() and refuse io_uring_enter(). */
static int uring_check_ring(struct uring_reactor *reactor)
{
	struct io_uring_cqe *completion;
	int ends[2], rc;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	reactor->gone = ends[0];
	rc = io_uring_register_files(&reactor->ring, &ends[1], 1);
	close(ends[1]);
	if (rc)
		return rc;
	io_uring_prep_nop(io_uring_get_sqe(&reactor->ring));
	rc = io_uring_submit_and_wait(&reactor->ring, 1);
	if (rc < 0)
		return rc;
	if (io_uring_peek_cqe(&reactor->ring, &completion))
		return -ENOSYS;
	io_uring_cqe_seen(&reactor->ring, completion);
	return 0;
}

static int uring_open_ring(struct uring_reactor *reactor)
{
	/* In order of preference: the first, of Linux 6.1, runs completions when asked for them. */
	static const unsigned flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		0,
	};
	unsigned entries = reactor->uring->depth + 1;
	int rc = -ENOSYS;

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct io_uring_params parameters = {.flags = flags[i]};

		rc = io_uring_queue_init_params(entries, &reactor->ring, &parameters);
		if (rc != -EINVAL)
			break;
	}
	if (rc)
		return rc;
	/* Linux 5.6 and older lack these features: reads would be refused, or completions lost. */
	if (!(reactor->ring.features & IORING_FEAT_NODROP) ||
	    !(reactor->ring.features & IORING_FEAT_RW_CUR_POS))
		rc = -ENOSYS;
	else
		rc = uring_check_ring(reactor);
	if (rc)
		io_uring_queue_exit(&reactor->ring);
	return rc;
}

static void *uring_run(void *argument)
{
	struct uring_reactor *reactor = argument;
	int rc = uring_open_ring(reactor);

	this_reactor = reactor;
	reactor->start_error = rc;
	sl_flag_raise(&reactor->started);
	if (rc)
		return NULL;
	uring_serve(reactor);
	if (reactor->refused)
		uring_retreat(reactor);
	else
		io_uring_queue_exit(&reactor->ring);
	return NULL;
}

static void uring_reactor_close(struct uring_reactor *reactor)
{
	close(reactor->wake);
	if (reactor->gone >= 0)
		close(reactor->gone);
}

static int uring_reactor_start(struct sl_uring *uring, struct uring_reactor *reactor)
{
	char name[16];

	reactor->uring = uring;
	reactor->gone = -1;
	sl_list_init(&reactor->flying);
	reactor->sleeper.wake = uring_wake;
	sl_list_init(&reactor->own);
	reactor->wake = eventfd(0, EFD_CLOEXEC);
	if (reactor->wake < 0)
		return sl_fail(-errno, "cannot make an eventfd: %s", sl_error_text(-errno));
	snprintf(name, sizeof(name), "sluice-ring-%u", uring->count % 1000);
	int rc = sl_thread_start(&reactor->thread, name, uring_run, reactor);
	if (!rc) {
		sl_flag_await(&reactor->started);
		rc = reactor->start_error;
		if (!rc)
			return 0;
		pthread_join(reactor->thread, NULL);
		sl_fail(rc, "cannot make an io_uring: %s", sl_error_text(rc));
	}
	uring_reactor_close(reactor);
	return rc;
}

int sl_uring_start(struct sl_core *core, struct sl_uring **out)
{
	const struct sl_settings *settings = &core->settings;
	struct sl_uring *uring;
	int rc;

	uring = calloc(1, sizeof(*uring) + settings->reactors * sizeof(uring->reactors[0]));
	if (!uring)
		return sl_fail(-ENOMEM, "no memory for the reactors");
	uring->core = core;
	sl_queue_init(&uring->queue);
	uring->depth = settings->reactor_depth;
	while (uring->count < settings->reactors) {
		rc = uring_reactor_start(uring, &uring->reactors[uring->count]);
		if (rc) {
			sl_uring_stop(uring);
			sl_uring_free(uring);
			return rc;
		}
		uring->count++;
	}
	*out = uring;
	return 0;
}

void sl_uring_stop(struct sl_uring *uring)
{
	if (!uring)
		return;
	sl_queue_close(&uring->queue);
	for (unsigned i = 0; i < uring->count; i++)
		pthread_join(uring->reactors[i].thread, NULL);
}

void sl_uring_free(struct sl_uring *uring)
{
	if (!uring)
		return;
	for (unsigned i = 0; i < uring->count; i++)
		uring_reactor_close(&uring->reactors[i]);
	sl_queue_destroy(&uring->queue);
	free(uring);
}

void sl_uring_start_piece(struct sl_piece *piece)
{
	struct sl_core *core = sl_local_of(piece->backend)->core;

	if (this_reactor && this_reactor->uring == core->uring) {
		sl_list_append(piece->urgent ? this_reactor->own.next : &this_reactor->own,
		               &piece->link);
		return;
	}
	if (piece->urgent || !atomic_load(&core->deep)) {
		sl_queue_push(&core->uring->queue, &piece->link, piece->urgent);
	} else {
		sl_queue_push_quietly(&core->uring->queue, &piece->link);
		if (!atomic_load(&core->deep) || atomic_load(&core->uring->queue.count) > BACKLOG)
			sl_queue_wake(&core->uring->queue);
	}
	/* The reactors may have ended: see uring_retreat(). */
	if (atomic_load(&core->kernel.uring_error))
		uring_forward(core->uring);
}

void sl_uring_submit(struct sl_piece *piece)
{
	sl_permit_take(piece, SL_PERMIT_RING);
}
