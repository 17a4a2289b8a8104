/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reactors: threads that each drive one io_uring and take their pieces from one queue. Submission
 * happens on the reactor alone, because a request lives and is completed by the task that submitted
 * it, and the caller's threads compute.
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

struct reactor {
	struct sl_sleeper sleeper;
	struct sl_uring *uring;
	struct io_uring ring;
	int wake;            /* eventfd that ends the reactor's sleep in the kernel */
	uint64_t wake_value; /* where a pending read of it puts its count */
	bool wake_armed;
	int gone;              /* a pipe whose other end only the ring has: it ends with the ring */
	int refused;           /* what io_uring_enter() answers for good, or 0 */
	struct sl_list flying; /* pieces in the ring or in the kernel */
	unsigned in_flight;    /* their number */
	struct sl_list own;    /* pieces that this thread started itself: they need no wake */
	struct sl_spin spin;
	pthread_t thread;

	/* How sl_uring_start() learns what became of the ring. */
	_Atomic uint32_t started; /* 1 once start_error is set, by the thread */
	int start_error;
};

struct sl_uring {
	struct sl_core *core;
	struct sl_queue queue;
	unsigned depth;
	unsigned count;
	struct reactor reactors[];
};

static _Thread_local struct reactor *here; /* NULL on a thread that is none */

static void reactor_wake(struct sl_sleeper *sleeper)
{
	struct reactor *reactor = SL_CONTAINER(sleeper, struct reactor, sleeper);
	uint64_t one = 1;

	/* Fails only if 2^64 - 2 wakes are pending. */
	(void)!write(reactor->wake, &one, sizeof(one));
}

/* There is room for it: see room(). */
static void arm_wake(struct reactor *reactor)
{
	struct io_uring_sqe *request;

	if (reactor->wake_armed)
		return;
	request = io_uring_get_sqe(&reactor->ring);
	io_uring_prep_read(request, reactor->wake, &reactor->wake_value,
	                   sizeof(reactor->wake_value), 0);
	io_uring_sqe_set_data(request, NULL);
	reactor->wake_armed = true;
}

static void prepare(struct reactor *reactor, struct sl_piece *piece)
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

/* Requests that can be prepared before the kernel takes some; one is left for the wake. The kernel itself may have
 * any number: how many a file has is bounded by its turns. */
static unsigned room(struct reactor *reactor)
{
	unsigned left = io_uring_sq_space_left(&reactor->ring);

	return left ? left - 1 : 0;
}

static void start_pieces(struct reactor *reactor)
{
	struct sl_list taken;
	struct sl_list *link;

	sl_list_init(&taken);
	sl_queue_take(&reactor->uring->queue, &taken, room(reactor));
	while (room(reactor) &&
	       ((link = sl_list_take(&taken)) || (link = sl_list_take(&reactor->own)))) {
		struct sl_piece *piece = SL_CONTAINER(link, struct sl_piece, link);

		if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed)) {
			piece->error = -ECANCELED;
			sl_local_done(piece);
			continue;
		}
		sl_list_append(&reactor->flying, &piece->link);
		reactor->in_flight++;
		prepare(reactor, piece);
	}
}

static void land(struct reactor *reactor, struct sl_piece *piece)
{
	sl_list_remove(&piece->link);
	reactor->in_flight--;
}

/* Returns the pieces that are over in done; those that are not go on: on a worker, which can pause, those
 * that the file system did nothing for. */
static unsigned reap(struct reactor *reactor, struct sl_list *done)
{
	struct io_uring_cqe *completions[REAPED_AT_ONCE];
	unsigned count = io_uring_peek_batch_cqe(&reactor->ring, completions, REAPED_AT_ONCE);

	for (unsigned i = 0; i < count; i++) {
		struct sl_piece *piece = io_uring_cqe_get_data(completions[i]);

		if (!piece) {
			reactor->wake_armed = false;
		} else if (sl_transfer_step(piece, completions[i]->res)) {
			land(reactor, piece);
			sl_list_append(done, &piece->link);
		} else if (piece->vain) {
			land(reactor, piece);
			sl_posix_submit(piece);
		} else if (room(reactor)) {
			prepare(reactor, piece);
		} else {
			land(reactor, piece);
			sl_uring_start_piece(piece);
		}
	}
	io_uring_cq_advance(&reactor->ring, count);
	return count;
}

static void finish_pieces(struct reactor *reactor)
{
	struct sl_list done;
	struct sl_list *link;

	sl_list_init(&done);
	while (reap(reactor, &done) == REAPED_AT_ONCE)
		;
	/* After reaping: what the engine does next may push to the queue that this thread serves. */
	while ((link = sl_list_take(&done)))
		sl_local_done(SL_CONTAINER(link, struct sl_piece, link));
}

static void enter_kernel(struct reactor *reactor, bool sleep)
{
	int rc = sleep ? io_uring_submit_and_wait(&reactor->ring, 1)
	               : io_uring_submit_and_get_events(&reactor->ring);

	/* Out of memory for a moment: the requests stay in the ring and go with the next call. */
	if (rc == -EAGAIN || rc == -ENOMEM) {
		struct timespec moment = {0, 1000000};

		nanosleep(&moment, NULL);
	} else if (rc < 0 && rc != -EINTR && rc != -EBUSY) {
		reactor->refused = rc;
	}
}

/* Whether there is something to reap, or to submit. */
static bool has_work(void *argument)
{
	struct reactor *reactor = argument;
	unsigned flags = IO_URING_READ_ONCE(*reactor->ring.sq.kflags);

	return atomic_load_explicit(&reactor->uring->queue.count, memory_order_relaxed) ||
	       !sl_list_empty(&reactor->own) || flags & IORING_SQ_TASKRUN ||
	       io_uring_cq_ready(&reactor->ring);
}

static void serve(struct reactor *reactor)
{
	struct sl_queue *queue = &reactor->uring->queue;

	while (!reactor->refused) {
		bool sleep;

		start_pieces(reactor);
		arm_wake(reactor);
		/* A look around is cheaper than a sleep, when completions come thick and fast. */
		if (reactor->in_flight) {
			enter_kernel(reactor, false);
			if (sl_spin_until(&reactor->spin, has_work, reactor)) {
				enter_kernel(reactor, false);
				finish_pieces(reactor);
				continue;
			}
		}
		/* A completion ends the sleep, or a push, or sl_uring_stop(). */
		sleep = sl_list_empty(&reactor->own) && sl_queue_sleep(queue, &reactor->sleeper);
		if (!sleep && !reactor->in_flight && sl_queue_closed(queue))
			return;
		/* Closing with pieces in flight: their completions end the sleep. */
		enter_kernel(reactor, sleep || sl_queue_closed(queue));
		sl_queue_awake(queue, &reactor->sleeper);
		finish_pieces(reactor);
	}
}

static void give_to_workers(struct sl_list *pieces)
{
	struct sl_list *link;

	while ((link = sl_list_take(pieces)))
		sl_posix_submit(SL_CONTAINER(link, struct sl_piece, link));
}

/* Gives to the workers what came into the queue. */
static void forward(struct sl_uring *uring)
{
	struct sl_list taken;

	sl_list_init(&taken);
	sl_queue_take(&uring->queue, &taken, UINT_MAX);
	give_to_workers(&taken);
}

/* Pieces that the kernel has taken out of the ring. It takes none but in io_uring_enter(). */
static unsigned count_taken(struct reactor *reactor)
{
	const struct io_uring_sq *queue = &reactor->ring.sq;
	unsigned taken = reactor->in_flight;

	for (unsigned at = *queue->khead; at != queue->sqe_tail; at++)
		taken -= queue->sqes[at & *queue->kring_mask].user_data != 0;
	return taken;
}

/*
 * io_uring_enter() is refused for good, as by a seccomp filter that is younger than the context, and what is in
 * flight goes to the workers. What the kernel has taken may still be moved by it, to or from memory of the caller,
 * and nothing tells when: completions are run by that very call, and closing the ring does not wait for requests
 * that cannot be cancelled. But the kernel frees a ring after the end of its last request, and lets go of the ring's
 * registered files only then. So when the pipe has ended nothing touches that memory, and the pieces can be moved
 * once more: what a read got is overwritten, a write writes the same bytes, and what overlaps them still waits for
 * the operation. A child of fork() that has the ring, too, keeps it: then this waits for the end of the child.
 */
static void retreat(struct reactor *reactor)
{
	struct sl_uring *uring = reactor->uring;
	unsigned taken = count_taken(reactor);
	char none;

	sl_log(&uring->core->settings, SL_LOG_ERROR,
	       "io_uring_enter: %s: from now on the workers do what io_uring did",
	       sl_error_text(reactor->refused));
	/* Under the mutex: whoever pushes later sees the error, and what was pushed before is taken here. */
	sl_mutex_lock(&uring->queue.mutex);
	atomic_store(&uring->core->kernel.uring_error, reactor->refused);
	sl_mutex_unlock(&uring->queue.mutex);
	here = NULL;
	forward(uring);
	give_to_workers(&reactor->own);
	io_uring_queue_exit(&reactor->ring);
	while (taken && read(reactor->gone, &none, 1) < 0 && errno == EINTR)
		;
	give_to_workers(&reactor->flying);
}

/* Setting up may be allowed where io_uring_enter() is not. */
static int ring_prove(struct reactor *reactor)
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

static int ring_open(struct reactor *reactor)
{
	/* From the newest kernels' (6.1) to the oldest: completions run when the reactor asks. */
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
	/* Without these reads would be refused or could be lost: Linux 5.6 and older. */
	if (!(reactor->ring.features & IORING_FEAT_NODROP) ||
	    !(reactor->ring.features & IORING_FEAT_RW_CUR_POS))
		rc = -ENOSYS;
	else
		rc = ring_prove(reactor);
	if (rc)
		io_uring_queue_exit(&reactor->ring);
	return rc;
}

static void *reactor_run(void *argument)
{
	struct reactor *reactor = argument;
	int rc = ring_open(reactor);

	here = reactor;
	reactor->start_error = rc;
	atomic_store(&reactor->started, 1);
	sl_word_wake(&reactor->started, 1);
	if (rc)
		return NULL;
	serve(reactor);
	if (reactor->refused)
		retreat(reactor);
	else
		io_uring_queue_exit(&reactor->ring);
	return NULL;
}

static void reactor_close(struct reactor *reactor)
{
	close(reactor->wake);
	if (reactor->gone >= 0)
		close(reactor->gone);
}

static int reactor_start(struct sl_uring *uring, struct reactor *reactor)
{
	char name[16];
	int rc;

	reactor->uring = uring;
	reactor->gone = -1;
	sl_list_init(&reactor->flying);
	reactor->sleeper.wake = reactor_wake;
	sl_list_init(&reactor->own);
	reactor->wake = eventfd(0, EFD_CLOEXEC);
	if (reactor->wake < 0)
		return sl_fail(-errno, "cannot make an eventfd: %s", sl_error_text(-errno));
	snprintf(name, sizeof(name), "sluice-ring-%u", uring->count % 1000);
	rc = sl_thread_start(&reactor->thread, name, reactor_run, reactor);
	if (!rc) {
		while (!atomic_load(&reactor->started))
			sl_word_wait(&reactor->started, 0, SL_FOREVER);
		rc = reactor->start_error;
		if (!rc)
			return 0;
		pthread_join(reactor->thread, NULL);
		sl_fail(rc, "cannot make an io_uring: %s", sl_error_text(rc));
	}
	reactor_close(reactor);
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
		rc = reactor_start(uring, &uring->reactors[uring->count]);
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
		reactor_close(&uring->reactors[i]);
	sl_queue_destroy(&uring->queue);
	free(uring);
}

void sl_uring_start_piece(struct sl_piece *piece)
{
	struct sl_core *core = sl_local(piece->backend)->core;

	if (here && here->uring == core->uring) {
		sl_list_append(piece->urgent ? here->own.next : &here->own, &piece->link);
		return;
	}
	sl_queue_push(&core->uring->queue, &piece->link, piece->urgent);
	/* No reactor may be there any more: see retreat(). */
	if (atomic_load(&core->kernel.uring_error))
		forward(core->uring);
}

void sl_uring_submit(struct sl_piece *piece)
{
	sl_turn_take(piece, SL_TURN_RING);
}
