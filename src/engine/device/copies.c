/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that are given to a device together
 *
 * A driver that takes many copies in one call makes them in any order. This file finds those for
 * which the order makes no difference. Only arithmetic; any thread.
 */
#include "device/device.h"

/* Copies that a channel counts as a command, fewer than the 25 that were measured
 * (docs/internals/engine/stream.md). */
#define COPIES_OF_A_COMMAND 24

struct hull {
	uintptr_t start, end;
};

static bool hulls_meet(const struct hull *a, const struct hull *b)
{
	return a->start < b->end && b->start < a->end;
}

static void hull_extend(struct hull *hull, const struct hull *by)
{
	hull->start = SL_MIN(hull->start, by->start);
	hull->end = SL_MAX(hull->end, by->end);
}

static struct hull hull_of(const void *memory, size_t length)
{
	return (struct hull){(uintptr_t)memory, (uintptr_t)memory + length};
}

static bool copies_meet(const struct sl_command *commands, size_t count, const struct hull *to)
{
	for (size_t i = 0; i < count; i++) {
		struct hull other = hull_of(commands[i].copy.to, commands[i].copy.length);

		if (hulls_meet(&other, to))
			return true;
	}
	return false;
}

size_t sl_copies_joined(const struct sl_command *commands, size_t count)
{
	struct hull all_to = {UINTPTR_MAX, 0}, all_from = {UINTPTR_MAX, 0};
	size_t n;

	for (n = 0; n < SL_MIN(count, SL_COPIES_JOINED); n++) {
		const struct sl_command *next = &commands[n];
		struct hull to, from;

		if (next->kind != SL_COPY || !next->copy.length)
			break;
		to = hull_of(next->copy.to, next->copy.length);
		from = hull_of(next->copy.from, next->copy.length);
		if (hulls_meet(&to, &all_from) || hulls_meet(&from, &all_to) ||
		    (hulls_meet(&to, &all_to) && copies_meet(commands, n, &to)))
			break;
		hull_extend(&all_to, &to);
		hull_extend(&all_from, &from);
	}
	return n;
}

/* The largest distance between rows for CUDA: CU_DEVICE_ATTRIBUTE_MAX_PITCH as it was seen. */
#define PITCH_MOST INT32_MAX

size_t sl_copies_rows(const struct sl_command *commands, size_t count)
{
	const struct sl_command *first = commands;
	size_t length, to = 0, from = 0, n = 1;
	struct hull all_to, all_from;

	if (!count || first->kind != SL_COPY || !first->copy.length)
		return 0;
	length = first->copy.length;
	for (; n < count; n++) {
		const struct sl_command *next = &commands[n], *last = next - 1;
		size_t to_next = (uintptr_t)next->copy.to - (uintptr_t)last->copy.to;
		size_t from_next = (uintptr_t)next->copy.from - (uintptr_t)last->copy.from;

		if (next->kind != SL_COPY || next->copy.length != length)
			break;
		if (n > 1 && (to_next != to || from_next != from))
			break;
		if (to_next < length || to_next > PITCH_MOST || from_next < length ||
		    from_next > PITCH_MOST)
			break;
		to = to_next;
		from = from_next;
	}
	all_to = hull_of(first->copy.to, (n - 1) * to + length);
	all_from = hull_of(first->copy.from, (n - 1) * from + length);
	return hulls_meet(&all_to, &all_from) ? 1 : n;
}

unsigned sl_copies_cost(size_t count)
{
	return (unsigned)((count + COPIES_OF_A_COMMAND - 1) / COPIES_OF_A_COMMAND);
}

unsigned sl_commands_cost(struct sl_device *device, sluice_stream stream,
                          const struct sl_command *commands, size_t count)
{
	unsigned cost = 0;

	if (!device->ops->joins(device, stream))
		return (unsigned)count;
	for (size_t i = 0, joined; i < count; i += joined) {
		joined = SL_MAX(sl_copies_joined(commands + i, count - i), 1);
		cost += sl_copies_cost(joined);
	}
	return cost;
}
