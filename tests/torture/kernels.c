/* SPDX-License-Identifier: Apache-2.0 */
/* What the caller runs on the device: it writes what is known, and looks what is there. */
#include "torture/torture.h"

/* The argument of a kernel that writes. In a list, freed at the end. */
struct fill {
	struct fill *next;
	unsigned char *bytes;
	size_t length;
	uint64_t offset, seed;
};

static void fill_kernel(void *argument)
{
	struct fill *fill = argument;

	pattern_fill(fill->bytes, fill->length, fill->offset, fill->seed);
	moved();
}

static void scribble_kernel(void *argument)
{
	struct fill *fill = argument;

	memset(fill->bytes, (int)(fill->seed & 0xff), fill->length);
	moved();
}

static bool launch(struct actor *actor, struct lane *lane, void (*kernel)(void *),
                   const struct fill *what)
{
	struct fill *fill = malloc(sizeof(*fill));

	*fill = *what;
	fill->next = actor->arguments;
	actor->arguments = fill;
	return !sluice_emulated_launch(lane->device, lane->stream, kernel, fill);
}

bool launch_fill(struct actor *actor, struct lane *lane, unsigned char *bytes, size_t length,
                 uint64_t offset, uint64_t seed)
{
	return launch(actor, lane, fill_kernel, &(struct fill){NULL, bytes, length, offset, seed});
}

bool launch_scribble(struct actor *actor, struct lane *lane, unsigned char *bytes, size_t length)
{
	return launch(actor, lane, scribble_kernel,
	              &(struct fill){NULL, bytes, length, 0, rng_next(&actor->rng)});
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

static size_t good_bytes(const struct stretch *stretch)
{
	if (stretch->origin == ORIGIN_SERVED)
		return served_match(stretch->bytes, stretch->length, stretch->offset, 0);
	return pattern_match(stretch->bytes, stretch->length, stretch->offset, stretch->seed);
}

void look(struct check *check)
{
	for (unsigned i = 0; i < check->count; i++)
		check->stretches[i].good = good_bytes(&check->stretches[i]);
	atomic_store(&check->ran, true);
}

static void check_kernel(void *argument)
{
	struct check *check = argument;

	/* May end the operation, on this thread: with a wrong library that may call the driver. */
	if (!wrong && check->reader && check->reader->on && check->reader->op)
		check->polled = sluice_poll(check->reader->op);
	look(check);
	moved();
}

bool launch_check(struct actor *actor, struct check *check)
{
	(void)actor;
	check->launched = !sluice_emulated_launch(check->lane->device, check->lane->stream,
	                                          check_kernel, check);
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

		free(actor->checks);
		actor->checks = next;
	}
	while (actor->arguments) {
		struct fill *next = ((struct fill *)actor->arguments)->next;

		free(actor->arguments);
		actor->arguments = next;
	}
}
