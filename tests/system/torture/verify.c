/* SPDX-License-Identifier: Apache-2.0 */
/* What must be true when all threads have ended. */
#include "system/torture/torture.h"

struct totals totals;

static bool succeeded(const struct action *action)
{
	return action->expected >= 0 && action->result == action->expected;
}

/* -------------------------------------------------------------------------------------- results */

/* An error that the schedule has asked for. */
static bool is_asked_for(const struct schedule *s, const struct action *action)
{
	switch (action->result) {
	case -ECANCELED:
		return atomic_load(&action->cancelled);
	case STORAGE_ERROR:
		return s->errors;
	case DRIVER_ERROR:
		return s->failures;
	case -EIO:
		/* A device is lost, or no slot is left; a file that grows is too short when a write has
		 * failed. */
		return s->lose || s->failures || (s->sparse && !s->carefree && !action->write);
	default:
		return s->sparse && !s->carefree && !action->write && !action->on &&
		       action->result >= 0 && action->result < action->expected;
	}
}

static void judge_action(const struct schedule *s, struct action *action)
{
	if (!action->op) {
		action->result = action->expected;
		return;
	}
	action->result = sluice_wait(action->op, -1);
	moved();
	if (action->result != action->expected && !is_asked_for(s, action))
		caught("wrong result",
		       "%s of %zu bytes in %u extents from %llu on stream %u: %lld "
		       "(%s), not %lld",
		       action->what, action->length, action->count,
		       (unsigned long long)action->extents[0].offset, action->lane->index,
		       (long long)action->result, sluice_op_message(action->op),
		       (long long)action->expected);
}

static void judge_actions(struct run *run)
{
	unsigned count = SL_MIN(atomic_load(&run->action_count), OPS_MOST);

	for (unsigned i = 0; i < count; i++) {
		struct action *action = &run->actions[i];

		totals.refused += atomic_load(&action->state) == ACTION_REFUSED;
		if (atomic_load(&action->state) != ACTION_SUBMITTED)
			continue;
		judge_action(run->schedule, action);
		totals.operations++;
		totals.cancelled += action->result == -ECANCELED;
		totals.failed += action->result < 0 && action->result != -ECANCELED;
	}
}

/* ---------------------------------------------------------------------------------------- bytes */

static void judge_check(const struct run *run, const struct check *check)
{
	if (check->launched && !atomic_load(&check->ran) && !run->schedule->lose)
		caught("lost kernel", "behind a %s on stream %u", check->what, check->lane->index);
	if (!atomic_load(&check->ran) || (check->reader && !succeeded(check->reader)))
		return;
	if (check->polled != 1)
		caught("wrong result", "the stream has passed a %s, and sluice_poll() says %d",
		       check->what, check->polled);
	for (unsigned i = 0; i < check->count; i++) {
		const struct stretch *stretch = &check->stretches[i];

		if (stretch->writer && !succeeded(&run->actions[stretch->writer - 1]))
			continue;
		if (check->found[i].wrong)
			caught("wrong byte",
			       "%zu of %zu bytes from %llu on, of write %u, after a %s on stream "
			       "%u "
			       "(operation %u)",
			       check->found[i].wrong, stretch->length,
			       (unsigned long long)stretch->offset, stretch->writer, check->what,
			       check->lane->index,
			       check->reader ? action_number(run, check->reader) : 0);
	}
}

static void judge_checks(const struct run *run)
{
	for (unsigned i = 0; i < run->schedule->threads; i++)
		for (const struct check *check = run->actors[i].checks; check; check = check->next)
			judge_check(run, check);
}

/* Bytes of the file that nobody wrote, or that the last write of a grain did. */
static void judge_range(const struct run *run, const unsigned char *file, uint64_t from,
                        size_t length, uint32_t writer)
{
	size_t good;

	if (writer ? !succeeded(&run->actions[writer - 1]) : run->schedule->sparse)
		return;
	good = pattern_match(file + from, length, from, writer_seed(run, writer));
	if (good < length)
		caught("wrong byte", "byte %llu of the file, of write %u",
		       (unsigned long long)(from + good), writer);
}

void verify_file(const struct run *run)
{
	const struct schedule *s = run->schedule;
	size_t n = (size_t)(run->first_bytes + run->stride * s->lanes), length;
	unsigned char *file = calloc(1, n);
	uint64_t at = 0;

	length = (size_t)file_length(run->path);
	file_read(run->path, file, SL_MIN(length, n), 0);
	for (unsigned i = 0; i < s->lanes; i++) {
		const struct lane *lane = &run->lanes[i];
		size_t grains = s->region / GRAIN, first = 0;

		judge_range(run, file, at, (size_t)(lane->base - at), 0);
		for (size_t g = 1; g <= grains; g++) {
			if (g < grains && lane->writers[g] == lane->writers[first])
				continue;
			judge_range(run, file, lane->base + first * GRAIN, (g - first) * GRAIN,
			            lane->writers[first]);
			first = g;
		}
		at = lane->base + s->region;
	}
	judge_range(run, file, at, (size_t)(n - at), 0);
	free(file);
}

/* ------------------------------------------------------------------------------------------ all */

void verify(struct run *run)
{
	const struct schedule *s = run->schedule;

	for (unsigned i = 0; i < s->lanes; i++) {
		doing("synchronising the streams");
		if (sluice_stream_synchronize(gpu_device(run->lanes[i].device),
		                              run->lanes[i].stream) &&
		    !s->lose)
			caught("wrong result", "synchronising stream %u: %s", i,
			       sluice_last_message());
		moved();
	}
	doing("waiting for the operations");
	judge_actions(run);
	doing("looking at the bytes");
	judge_checks(run);
	for (unsigned i = 0; i < s->threads; i++)
		kernels_free(&run->actors[i]);
	for (unsigned i = 0; i < OPS_MOST; i++)
		sluice_op_free(run->actions[i].op);
}
