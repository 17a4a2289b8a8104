/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Help of the thread that waits
 *
 * A thread that waits for a read of bytes in memory takes pieces that no worker has begun, and then
 * the copy to a device. Threads that have submitted a few such reads, and waited for each at once,
 * are expected to do so again: most pieces of their next read wake no worker. If such a thread does
 * not wait, a worker finds them (core/pool.c).
 *
 * Threads: those that submit and those that wait. A thread learns from its own waits.
 */
#include "io/staged/staged.h"

#define HELP_MOST   ((uint64_t)4 << 20)   /* bytes of a read in which the thread helps */
#define ALONE_MOST  ((uint64_t)512 << 10) /* of which each wakes a worker; less is read alone */
#define FEW_WORKERS 8
#define FEW_MOST    ((uint64_t)1 << 20)
#define PROMPT_NS   20000 /* from the submission to the wait */
/* Such waits in a row until the next is expected: twice as many after each that did not come, half
 * as many after some that did. */
#define LEAST_PROMPT 4
#define MOST_PROMPT  256
#define SOME_PROMPT  32

static _Thread_local struct {
	const struct sluice_op *last; /* not awaited yet; never followed */
	int64_t submitted;
	unsigned count, needed; /* of prompt waits in a row */
} prompt = {.needed = LEAST_PROMPT};

static void prompt_break(void)
{
	prompt.count = 0;
	prompt.needed = SL_MIN(prompt.needed * 2, MOST_PROMPT);
}

void sl_help_expect(struct sluice_op *op, uint64_t bytes)
{
	const struct sl_limits *limits = &op->file->limits;
	const struct sl_staged *staged = op->staged;

	op->helped = op->kind == SL_READ && op->count == 1 && !op->box && !op->device &&
	             !op->on_stream && !limits->remote && !limits->sequential &&
	             !(op->file->flags & SLUICE_OPEN_NONBLOCK) &&
	             bytes <= (staged ? ALONE_MOST : HELP_MOST) &&
	             !(staged && sl_commands_pending(staged->staging));
	if (!op->helped)
		return;
	if (prompt.last)
		prompt_break();
	op->patient = prompt.count >= prompt.needed;
	prompt.last = op;
}

void sl_help_submitted(const struct sluice_op *op)
{
	if (prompt.last == op)
		prompt.submitted = sl_now();
}

bool sl_help_wakes(const struct sluice_op *op, unsigned handed)
{
	uint64_t workers = op->ctx->core.settings.workers;

	if (!op->patient)
		return true;
	/* On few cores a worker that is woken takes more time than it saves. */
	if (workers < FEW_WORKERS && op->bytes <= FEW_MOST)
		return false;
	return handed < SL_MIN(op->bytes / ALONE_MOST, workers - 1);
}

/* Learns from a wait. calls: for a copy to a device the driver may be called. */
static void prompt_learn(const struct sluice_op *op, bool calls)
{
	if (prompt.last != op)
		return;
	prompt.last = NULL;
	if ((op->staged && !calls) || sl_now() - prompt.submitted > PROMPT_NS)
		prompt_break();
	else if (++prompt.count % SOME_PROMPT == 0)
		prompt.needed = SL_MAX(prompt.needed / 2, LEAST_PROMPT);
}

/* Returns a task for a thread that waits, or NULL. */
static struct sl_task *help_take(struct sluice_op *op, int64_t deadline)
{
	if (!op->helped || atomic_load_explicit(&op->state, memory_order_acquire) & SL_OP_DONE ||
	    (deadline != SL_FOREVER && sl_now() >= deadline))
		return NULL;
	return sl_pool_take(op->ctx->core.pool, op);
}

void sl_help(struct sluice_op *op, int64_t deadline)
{
	bool calls = deadline == SL_FOREVER;
	struct sl_task *task;

	prompt_learn(op, calls);
	while ((task = help_take(op, deadline)) || sl_copier_helps()) {
		/* The task, or a copy, keeps the operation from its end until here, and the hold
		 * the context until this thread has woken others for operations that it starts. */
		struct sluice_file *file = op->file;

		atomic_fetch_add(&file->in_flight, 1);
		if (task) {
			task->taken = calls;
			task->run(task);
		} else {
			sl_copier_settle();
		}
		sl_file_release(file);
	}
}
