/* SPDX-License-Identifier: Apache-2.0 */
/* What the caller runs on the device: it writes what is known, and looks what is there. */
#include "system/torture/torture.h"

bool launch_fill(struct lane *lane, void *memory, size_t length, uint64_t offset, uint64_t seed)
{
	return !gpu_fill(lane->device, lane->stream, memory, length, offset, seed);
}

bool launch_scribble(struct actor *actor, struct lane *lane, const struct part *part)
{
	return !gpu_scribble(lane->device, lane->stream, part->memory, part->length,
	                     (unsigned)rng_next(&actor->rng) & 0xff);
}

static void put(void *memory, const void *bytes, size_t length)
{
	if (gpu_put(memory, bytes, length))
		caught("environment", "%s", gpu_message());
}

void set_now(void *memory, unsigned byte, size_t length)
{
	void *bytes = malloc(length);

	memset(bytes, (int)byte, length);
	put(memory, bytes, length);
	free(bytes);
}

void fill_now(void *memory, size_t length, uint64_t offset, uint64_t seed)
{
	void *bytes = malloc(length);

	pattern_fill(bytes, length, offset, seed);
	put(memory, bytes, length);
	free(bytes);
}

/* -------------------------------------------------------------------------------------- checks */

struct check *check_new(struct actor *actor, struct lane *lane, const char *what,
                        const struct action *reader, unsigned stretches)
{
	struct check *check = calloc(1, sizeof(*check) + stretches * sizeof(check->stretches[0]));

	check->lane = lane;
	check->what = what;
	check->reader = reader;
	check->count = stretches;
	check->polled = 1;
	check->next = actor->checks;
	actor->checks = check;
	return check;
}

static size_t served_differ(const void *bytes, size_t n, uint64_t offset, uint64_t seed)
{
	(void)seed;
	return n - served_match(bytes, n, offset, 0);
}

static void prepare(struct check *check)
{
	check->found = calloc(check->count + 1, sizeof(*check->found));
	for (unsigned i = 0; i < check->count; i++) {
		const struct stretch *s = &check->stretches[i];

		check->found[i] = (struct gpu_match){
			.memory = s->bytes,
			.n = s->length,
			.offset = s->offset,
			.seed = s->seed,
			.differ = s->origin == ORIGIN_SERVED ? served_differ : NULL,
		};
	}
}

void look(struct check *check)
{
	prepare(check);
	for (unsigned i = 0; i < check->count; i++) {
		struct gpu_match *m = &check->found[i];
		unsigned char *held = malloc(m->n + 1);

		if (gpu_get(held, m->memory, m->n))
			caught("environment", "%s", gpu_message());
		m->wrong = (m->differ ? m->differ : pattern_differ)(held, m->n, m->offset, m->seed);
		free(held);
	}
	atomic_store(&check->ran, true);
}

/* On a thread of the driver. */
static void looked(void *argument)
{
	struct check *check = argument;

	/* May end the operation, on this thread: with a wrong library that may call the driver. */
	if (!wrong && check->reader && check->reader->on && check->reader->op)
		check->polled = sluice_poll(check->reader->op);
	atomic_store(&check->ran, true);
	moved();
}

bool launch_check(struct check *check)
{
	prepare(check);
	check->launched = !gpu_match(check->lane->device, check->lane->stream, check->found,
	                             check->count, looked, check);
	return check->launched;
}

struct check *check_copy(struct actor *actor, const struct check *from, struct lane *lane,
                         const char *what, const unsigned char *old_bytes,
                         const unsigned char *new_bytes)
{
	struct check *check = check_new(actor, lane, what, from->reader, from->count);

	for (unsigned i = 0; i < from->count; i++) {
		const struct stretch *old = &from->stretches[i];

		/* Not what the kernel finds, perhaps at this moment. */
		check->stretches[i] = (struct stretch){
			.bytes = new_bytes + (old->bytes - old_bytes),
			.length = old->length,
			.offset = old->offset,
			.seed = old->seed,
			.origin = old->origin,
			.writer = old->writer,
		};
	}
	return check;
}

void kernels_free(struct actor *actor)
{
	while (actor->checks) {
		struct check *next = actor->checks->next;

		free(actor->checks->found);
		free(actor->checks);
		actor->checks = next;
	}
}
