/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reactors: threads that each drive one io_uring and take their pieces from one queue. Submission
 * happens on the reactor alone, because a request lives and is completed by the task that submitted
 * it, and the caller's threads compute.
 */
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "backend/local.h"

#define LARGEST_REQUEST ((size_t)1 << 30)
#define REAPED_AT_ONCE  32

struct reactor {
	struct sl_sleeper sleeper;
	struct sl_uring *uring;
	struct io_uring ring;
	int wake;            /* eventfd that ends the reactor's sleep in the kernel */
	uint64_t wake_value; /* where a pending read of it puts its count */
	bool wake_armed;
	unsigned in_flight; /* pieces in the kernel */
	struct sl_spin spin;
	pthread_t thread;

	/* How sl_uring_start() learns what became of the ring. */
	_Atomic uint32_t started; /* 1 once start_error is set, by the thread */
	int start_error;
};

struct sl_uring {
	struct sl_queue queue;
	unsigned depth;
	unsigned count;
	struct reactor reactors[];
};

static void reactor_wake(struct sl_sleeper *sleeper)
{
	struct reactor *reactor = SL_CONTAINER(sleeper, struct reactor, sleeper);
	uint64_t one = 1;

	/* Fails only if 2^64 - 2 wakes are pending. */
	(void)!write(reactor->wake, &one, sizeof(one));
}

/* The queue of requests has room for depth pieces and the wake, so there is always one. */
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

static void start_pieces(struct reactor *reactor)
{
	struct sl_list taken;
	struct sl_list *link;

	sl_list_init(&taken);
	sl_queue_take(&reactor->uring->queue, &taken, reactor->uring->depth - reactor->in_flight);
	while ((link = sl_list_take(&taken))) {
		struct sl_piece *piece = SL_CONTAINER(link, struct sl_piece, link);

		if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed)) {
			piece->error = -ECANCELED;
			sl_local_done(piece);
			continue;
		}
		prepare(reactor, piece);
		reactor->in_flight++;
	}
}

/* Returns the pieces that are over in done; those that are not go on. */
static unsigned reap(struct reactor *reactor, struct sl_list *done)
{
	struct io_uring_cqe *completions[REAPED_AT_ONCE];
	unsigned count = io_uring_peek_batch_cqe(&reactor->ring, completions, REAPED_AT_ONCE);

	for (unsigned i = 0; i < count; i++) {
		struct sl_piece *piece = io_uring_cqe_get_data(completions[i]);

		if (!piece) {
			reactor->wake_armed = false;
		} else if (sl_transfer_step(piece, completions[i]->res)) {
			reactor->in_flight--;
			sl_list_append(done, &piece->link);
		} else {
			prepare(reactor, piece);
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
	if (rc < 0 && rc != -EINTR && rc != -EBUSY) {
		struct timespec moment = {0, 1000000};

		nanosleep(&moment, NULL);
	}
}

/* Whether there is something to reap, or to submit: at full depth the queue has to wait. */
static bool has_work(void *argument)
{
	struct reactor *reactor = argument;
	struct sl_uring *uring = reactor->uring;
	unsigned flags = IO_URING_READ_ONCE(*reactor->ring.sq.kflags);

	return flags & IORING_SQ_TASKRUN || io_uring_cq_ready(&reactor->ring) ||
	       (reactor->in_flight < uring->depth &&
	        atomic_load_explicit(&uring->queue.count, memory_order_relaxed));
}

static void serve(struct reactor *reactor)
{
	struct sl_queue *queue = &reactor->uring->queue;

	for (;;) {
		bool sleep;

		start_pieces(reactor);
		arm_wake(reactor);
		/* A look around is cheaper than a sleep, when completions come thick and fast. */
		if (reactor->in_flight) {
			enter_kernel(reactor, false);
			if (sl_spin(&reactor->spin, has_work, reactor)) {
				enter_kernel(reactor, false);
				finish_pieces(reactor);
				continue;
			}
		}
		/* At full depth a completion ends the sleep; else a push or sl_uring_stop() may. */
		if (reactor->in_flight == reactor->uring->depth)
			enter_kernel(reactor, true);
		else {
			sleep = sl_queue_sleep(queue, &reactor->sleeper);
			if (!sleep && !reactor->in_flight && sl_queue_closed(queue))
				return;
			/* Closing with pieces in flight: their completions end the sleep. */
			enter_kernel(reactor, sleep || sl_queue_closed(queue));
			sl_queue_awake(queue, &reactor->sleeper);
		}
		finish_pieces(reactor);
	}
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
	    !(reactor->ring.features & IORING_FEAT_RW_CUR_POS)) {
		io_uring_queue_exit(&reactor->ring);
		return -ENOSYS;
	}
	return 0;
}

static void *reactor_run(void *argument)
{
	struct reactor *reactor = argument;
	int rc = ring_open(reactor);

	reactor->start_error = rc;
	atomic_store(&reactor->started, 1);
	sl_word_wake(&reactor->started, 1);
	if (rc)
		return NULL;
	serve(reactor);
	io_uring_queue_exit(&reactor->ring);
	return NULL;
}

static int reactor_start(struct sl_uring *uring, struct reactor *reactor)
{
	char name[16];
	int rc;

	reactor->uring = uring;
	reactor->sleeper.wake = reactor_wake;
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
	close(reactor->wake);
	return rc;
}

int sl_uring_start(const struct sl_settings *settings, struct sl_uring **out)
{
	struct sl_uring *uring;
	int rc;

	uring = calloc(1, sizeof(*uring) + settings->reactors * sizeof(uring->reactors[0]));
	if (!uring)
		return sl_fail(-ENOMEM, "no memory for the reactors");
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
		close(uring->reactors[i].wake);
	sl_queue_destroy(&uring->queue);
	free(uring);
}

void sl_uring_submit(struct sl_piece *piece)
{
	struct sl_uring *uring = sl_local(piece->backend)->core->uring;

	sl_queue_push(&uring->queue, &piece->link, piece->urgent);
}
