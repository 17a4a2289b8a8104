/* SPDX-License-Identifier: Apache-2.0 */
/* One operation: described, submitted, and written down for those who judge it. */
#include "system/torture/torture.h"

struct action *action_new(struct actor *actor, struct lane *lane, const char *what, bool write)
{
	struct run *run = actor->run;
	unsigned number = atomic_fetch_add(&run->action_count, 1);
	struct action *action;

	if (number >= OPS_MOST) {
		atomic_store(&run->action_count, OPS_MOST);
		return NULL;
	}
	action = &run->actions[number];
	action->what = what;
	action->lane = lane;
	action->write = write;
	action->seed = run->schedule->seed << 16 | (number + 1);
	return action;
}

uint32_t action_number(const struct run *run, const struct action *action)
{
	return (uint32_t)(action - run->actions) + 1;
}

void action_extent(struct action *action, void *data, size_t length, uint64_t offset)
{
	action->extents[action->count++] = (struct sluice_extent){data, length, offset};
	action->length += length;
	action->expected += (int64_t)length;
}

/* By the call that a program would use. */
static int submit(struct action *action, sluice_file *file, sluice_op **out)
{
	const struct sluice_extent *e = action->extents;
	const struct lane *lane = action->lane;
	sluice_stream stream = lane->stream;

	if (action->fanned) {
		struct sluice_request r = SLUICE_REQUEST_INIT;
		void *also[EXTENTS_MOST];

		for (unsigned i = 0; i < action->count; i++)
			also[i] = lane->also_part.memory +
			          ((unsigned char *)e[i].data - lane->awaited_part.memory);
		r.kind = SLUICE_READ;
		r.extents = e;
		r.count = action->count;
		r.also = also;
		r.also_count = 1;
		return sluice_submit(file, &r, out);
	}
	if (action->count == 1 && action->on)
		return action->write
		               ? sluice_write_on(file, e->data, e->length, e->offset, stream, out)
		               : sluice_read_on(file, e->data, e->length, e->offset, stream, out);
	if (action->on)
		return action->write ? submit_write_on(file, e, action->count, stream, out)
		                     : submit_read_on(file, e, action->count, stream, out);
	return action->write ? submit_write(file, e, action->count, out)
	                     : submit_read(file, e, action->count, out);
}

static bool may_refuse(const struct schedule *s, const struct action *action, int rc)
{
	if (s->nonblock && action->handle == HANDLES - 1 && (rc == -EAGAIN || rc == -E2BIG))
		return true;
	if (s->lose && rc == LOST_ERROR)
		return true;
	/* Slots of which a failing driver never tells the end are given up, in the end all of them. */
	return s->failures && (rc == DRIVER_ERROR || rc == -EIO);
}

int action_submit(struct actor *actor, struct action *action, sluice_file *file)
{
	const struct schedule *s = actor->run->schedule;
	bool handle =
		!s->carefree || !action->on || action->expected < 0 || rng_below(&actor->rng, 8);

	atomic_store(&action->state, ACTION_SUBMITTING);
	action->rc = submit(action, file, handle ? &action->op : NULL);
	moved();
	if (action->rc) {
		if (!may_refuse(s, action, action->rc))
			caught("wrong result", "submitting a %s on stream %u: %s: %s", action->what,
			       action->lane->index, strerror(-action->rc), sluice_last_message());
		atomic_store(&action->state, ACTION_REFUSED);
		return action->rc;
	}
	atomic_store(&action->state, ACTION_SUBMITTED);
	if (action->op && rng_below(&actor->rng, 200) < s->cancels) {
		atomic_store(&action->cancelled, true);
		sluice_cancel(action->op);
	}
	return 0;
}
