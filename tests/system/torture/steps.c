/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread does, one step after the other. */
#include "system/torture/torture.h"

enum { STRETCHES = 48 }; /* of one extent, at most */

static size_t below(struct actor *actor, size_t bound)
{
	return rng_below(&actor->rng, bound);
}

/* A length that is often small, often all there is, and sometimes a power of two. */
static size_t draw_length(struct actor *actor, size_t most)
{
	size_t n;

	switch (below(actor, 6)) {
	case 0:
		n = 1 + below(actor, 300);
		break;
	case 1:
		n = (size_t)4096 << below(actor, 6);
		break;
	case 2:
	case 3:
		n = most;
		break;
	default:
		n = 1 + below(actor, most);
		break;
	}
	return n < most ? n : most;
}

static sluice_file *choose(struct actor *actor, sluice_file *const *files, struct action *action)
{
	action->handle = (unsigned)below(actor, HANDLES);
	return files[action->handle];
}

/* ------------------------------------------------------------------------- what is operated on */

/* Extents in memory one behind the other, in the file anywhere. */
static void choose_reading(struct actor *actor, struct action *action, const struct part *part)
{
	const struct schedule *s = actor->run->schedule;
	size_t file = s->http ? s->remote_bytes : READ_BYTES, at = below(actor, 100), n;
	unsigned count = below(actor, 4) ? 1 : 1 + (unsigned)below(actor, EXTENTS_MOST);

	for (unsigned i = 0; i < count && at < part->length; i++) {
		n = draw_length(actor, (part->length - at) / (count - i));
		if (s->http && n > 128 * KIB)
			n = 128 * KIB;
		if (n)
			action_extent(action, part->memory + at, n, below(actor, file - n + 1));
		at += n + below(actor, 70);
	}
}

/* Whole grains of the lane's range, front to back, with gaps. */
static void choose_range(struct actor *actor, struct action *action, const struct part *part)
{
	const struct lane *lane = action->lane;
	size_t region = actor->run->schedule->region;
	size_t from = below(actor, 3) ? below(actor, region / GRAIN) * GRAIN : 0, at = 0;
	unsigned count = below(actor, 4) ? 1 : 1 + (unsigned)below(actor, EXTENTS_MOST);

	if (!below(actor, 3))
		from = from / 4096 * 4096;
	for (unsigned i = 0; i < count && from < region; i++) {
		size_t room =
			(region - from < part->length - at ? region - from : part->length - at);
		size_t n = draw_length(actor, room / (count - i));

		n = (n + GRAIN - 1) / GRAIN * GRAIN;
		if (n > room / GRAIN * GRAIN)
			n = room / GRAIN * GRAIN;
		if (!n)
			break;
		action_extent(action, part->memory + at, n, lane->base + from);
		from += n + below(actor, 4) * GRAIN;
		at += n;
	}
}

/* What the action is to bring. */
static struct check *expect(struct actor *actor, struct lane *lane, const struct action *action,
                            bool shared)
{
	const struct schedule *s = actor->run->schedule;
	struct check *check = check_new(actor, lane, action->what, action,
	                                action->count * (shared ? STRETCHES : 1));
	unsigned count = 0;

	for (unsigned i = 0; i < action->count; i++) {
		const struct sluice_extent *e = &action->extents[i];

		if (shared) {
			count += lane_stretches(actor->run, lane, e->offset, e->length, e->data,
			                        &check->stretches[count], STRETCHES);
			continue;
		}
		check->stretches[count++] = (struct stretch){
			.bytes = e->data,
			.length = e->length,
			.offset = e->offset,
			.seed = READ_SEED,
			.origin = s->http ? ORIGIN_SERVED : ORIGIN_PATTERN,
		};
	}
	check->count = count;
	return check;
}

static bool is_known(const struct run *run, const struct action *action)
{
	for (unsigned i = 0; i < action->count; i++)
		if (!lane_known(run, action->lane, action->extents[i].offset,
		                action->extents[i].length))
			return false;
	return true;
}

/* A read of what nobody writes, or, if all of it has been written, of the lane's range. */
static struct action *new_read(struct actor *actor, struct lane *lane, const char *what,
                               const struct part *part, bool *shared)
{
	struct action *action = action_new(actor, lane, what, false);

	if (!action)
		return NULL;
	*shared = below(actor, 2);
	if (*shared)
		choose_range(actor, action, part);
	if (*shared && !is_known(actor->run, action)) {
		*shared = false;
		action->count = 0;
		action->length = 0;
		action->expected = 0;
	}
	if (!*shared)
		choose_reading(actor, action, part);
	for (unsigned i = 0; i < action->count && !*shared; i++) {
		const struct sluice_extent *e = &action->extents[i];

		if (actor->run->schedule->forbidden - e->offset < e->length)
			action->expected = -EACCES;
	}
	return action;
}

static sluice_file *const *files_of(const struct run *run, bool shared)
{
	return shared ? run->shared : run->reading;
}

/* ------------------------------------------------------------------------------- stream order */

/* The caller's own copies and kernels, behind what the stream has. */
static void queue_behind(struct actor *actor, struct lane *lane, const struct check *check)
{
	size_t n = 1 + below(actor, lane->scratch.length), from = below(actor, MIB);
	const struct part *part = &lane->stream_part;

	if (below(actor, 4)) {
		const unsigned char *pinned = pinned_memory[lane->device] + from;
		struct check *own = check_new(actor, lane, "copy to the device", NULL, 1);

		own->stretches[0] = (struct stretch){lane->scratch.memory, n, from, PINNED_SEED,
		                                     ORIGIN_PATTERN,       0};
		if (!sluice_copy_on(lane->scratch.memory, pinned, n, lane->stream))
			launch_check(own);
	}
	if (check && !below(actor, 4) &&
	    !sluice_copy_on(lane->pinned.memory, part->memory, part->length, lane->stream))
		launch_check(check_copy(actor, check, lane, "copy to the host", part->memory,
		                        lane->pinned.memory));
	if (check && !below(actor, 4) &&
	    !sluice_copy_on(lane->scratch.memory, part->memory, part->length, lane->stream))
		launch_check(check_copy(actor, check, lane, "copy on the device", part->memory,
		                        lane->scratch.memory));
}

/* The default streams of a device other than the first are not to be had with host memory. */
static bool use_plain(struct actor *actor, const struct lane *lane)
{
	return (lane->own || !lane->device) && !below(actor, 6);
}

static void step_read(struct actor *actor, struct lane *lane)
{
	bool plain = use_plain(actor, lane), shared;
	struct part *part = plain ? &lane->plain : &lane->stream_part;
	struct action *action =
		new_read(actor, lane, plain ? "read into host memory" : "read", part, &shared);
	struct check *check;

	if (!action)
		return;
	action->on = true;
	action->device_memory = !plain;
	if (!plain)
		lane->last = NULL;
	check = expect(actor, lane, action, shared);
	launch_scribble(actor, lane, part);
	if (action_submit(actor, action, choose(actor, files_of(actor->run, shared), action)))
		return;
	if (launch_check(check) && !plain)
		lane->last = check;
	queue_behind(actor, lane, plain ? NULL : lane->last);
}

static void step_write(struct actor *actor, struct lane *lane)
{
	bool plain = use_plain(actor, lane), filled = true;
	struct part *part = plain ? &lane->plain : &lane->stream_part;
	struct action *action =
		action_new(actor, lane, plain ? "write of host memory" : "write", true);

	if (!action)
		return;
	action->on = true;
	action->device_memory = !plain;
	choose_range(actor, action, part);
	if (!plain)
		lane->last = NULL;
	for (unsigned i = 0; i < action->count; i++) {
		const struct sluice_extent *e = &action->extents[i];

		filled &= launch_fill(lane, e->data, e->length, e->offset, action->seed);
	}
	if (!filled || action_submit(actor, action, choose(actor, actor->run->shared, action)))
		return;
	for (unsigned i = 0; i < action->count; i++)
		lane_written(actor->run, lane, action->extents[i].offset, action->extents[i].length,
		             action_number(actor->run, action));
	/* What comes behind may write over the source. */
	launch_scribble(actor, lane, part);
	queue_behind(actor, lane, NULL);
}

/* A read that cannot be whole. */
static void step_past_end(struct actor *actor, struct lane *lane)
{
	const struct schedule *s = actor->run->schedule;
	struct action *action = action_new(actor, lane, "read past the end", false);
	size_t file = s->http ? s->remote_bytes : READ_BYTES;
	size_t n = 1 + below(actor, SL_MIN(lane->stream_part.length, file));

	if (!action)
		return;
	action->on = action->device_memory = true;
	lane->last = NULL;
	action_extent(action, lane->stream_part.memory, n, file - below(actor, n));
	action->expected = -EIO;
	if (!action_submit(actor, action, choose(actor, actor->run->reading, action)))
		queue_behind(actor, lane, NULL);
}

static struct lane *own_lane(struct actor *actor, size_t number)
{
	const struct schedule *s = actor->run->schedule;
	size_t count = (s->lanes - actor->index + s->threads - 1) / s->threads;

	return &actor->run->lanes[actor->index + number % count * s->threads];
}

/* Another stream takes what this one has read, and this one goes on when it is done with it. */
static void step_cross(struct actor *actor, struct lane *lane)
{
	struct lane *other = own_lane(actor, below(actor, 1000));
	const struct part *part = &lane->stream_part;

	if (other->device != lane->device || !lane->last)
		return;
	if (sluice_event_record(lane->event, lane->stream) ||
	    sluice_event_await(lane->event, other->stream))
		return;
	if (!sluice_copy_on(other->scratch.memory, part->memory, part->length, other->stream))
		launch_check(check_copy(actor, lane->last, other, "copy by another stream",
		                        part->memory, other->scratch.memory));
	if (sluice_event_record(other->event, other->stream) ||
	    sluice_event_await(other->event, lane->stream))
		while (sluice_stream_synchronize(gpu_device(other->device), other->stream) ==
		       DRIVER_ERROR)
			;
}

/* ---------------------------------------------------------------------- awaited on the host */

void finish_awaited(struct actor *actor, struct lane *lane)
{
	struct action *action = lane->awaited;
	struct check *check = actor->checks;

	if (!action)
		return;
	lane->awaited = NULL;
	sluice_wait(action->op, -1);
	moved();
	for (; check; check = check->next)
		if (check->reader == action)
			look(check);
}

static void step_awaited(struct actor *actor, struct lane *lane)
{
	bool write = below(actor, 2), device = below(actor, 3), shared = true;
	struct part *part = device ? &lane->awaited_part : &lane->host;
	const char *what = device  ? write ? "awaited write" : "awaited read"
	                   : write ? "awaited write of host memory"
	                           : "awaited read into host memory";
	struct action *action;
	struct check *check = NULL;

	finish_awaited(actor, lane);
	if (write) {
		action = action_new(actor, lane, what, true);
		if (action)
			choose_range(actor, action, part);
	} else {
		action = new_read(actor, lane, what, part, &shared);
	}
	if (!action)
		return;
	action->device_memory = device;
	if (!write) {
		set_now(part->memory, 0x77, part->length);
		check = expect(actor, lane, action, shared);
		/* apart.c knows no copies to further devices. */
		action->fanned = device && below(actor, 2) && !wrong;
	}
	if (action->fanned) {
		set_now(lane->also_part.memory, 0x77, part->length);
		check_copy(actor, check, lane, "read into a further device", part->memory,
		           lane->also_part.memory);
	}
	for (unsigned i = 0; i < action->count && write; i++) {
		const struct sluice_extent *e = &action->extents[i];

		fill_now(e->data, e->length, e->offset, action->seed);
	}
	if (action_submit(actor, action, choose(actor, files_of(actor->run, shared), action)))
		return;
	for (unsigned i = 0; i < action->count && write; i++)
		lane_written(actor->run, lane, action->extents[i].offset, action->extents[i].length,
		             action_number(actor->run, action));
	lane->awaited = action;
}

/* ---------------------------------------------------------------------------------------- one */

void step(struct actor *actor)
{
	struct lane *lane =
		own_lane(actor, actor->steps < LANES_MOST && below(actor, 4) ? actor->steps
	                                                                     : below(actor, 1000));

	switch (below(actor, 12)) {
	case 0:
	case 1:
	case 2:
		step_awaited(actor, lane);
		break;
	case 3:
	case 4:
	case 5:
		step_write(actor, lane);
		break;
	case 6:
		step_past_end(actor, lane);
		break;
	case 7:
		step_cross(actor, lane);
		break;
	default:
		step_read(actor, lane);
		break;
	}
	actor->steps++;
}
