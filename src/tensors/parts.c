/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of a load
 *
 * Divides a plan by files and devices, and makes the extents of each part, in the order of the
 * file; extents that follow each other in the file and in memory are one. A slice that several
 * devices want is read for the first of them, and copied for the others. Only arithmetic, and
 * questions about pointers; any thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "tensors/tensors.h"

#define NOWHERE (-2)
/* So many runs of narrow columns take longer as extents than it takes to make the buffers to gather
 * them. */
#define GATHERED_LEAST 32768

struct parts_maker {
	const struct sluice_tensor_plan *plan;
	const struct sluice_tensor_memory *memory;
	struct sl_tensor_parts *out;
};

/* Returns whether narrow columns are gathered. */
static bool parts_gather(const struct sluice_tensor_plan *plan, enum sl_tensor_parts_kind kind)
{
	uint64_t runs = 0;

	for (size_t i = 0; kind == SL_PARTS_COPIED && i < plan->count; i++)
		runs += sl_tensor_item_narrow(plan->order[i]) ? plan->order[i]->runs : 0;
	return runs >= GATHERED_LEAST;
}

/* Finds the device of each item, and its source. */
static void parts_find_targets(struct parts_maker *maker, enum sl_tensor_parts_kind kind)
{
	struct sl_tensor_item *const *order = maker->plan->order;
	struct sl_tensor_target *targets = maker->out->targets;
	bool gather = parts_gather(maker->plan, kind);
	size_t source = 0;

	for (size_t i = 0; i < maker->plan->count; i++) {
		struct sl_tensor_target *target = &targets[i];

		*target = (struct sl_tensor_target){order[i]->to, NOWHERE, i, SIZE_MAX, false};
		if (!order[i]->runs)
			continue;
		if (!target->to)
			target->to = (char *)maker->memory->data + order[i]->memory_offset;
		target->device = kind == SL_PARTS_BY_FILE ? 0 : sluice_device_of(target->to);
		if (!sl_tensor_item_same(order[i], order[source]))
			source = i;
		target->gathered = gather && sl_tensor_item_narrow(order[i]);
		if (target->gathered) {
			target->source = source;
			maker->out->gathered += source == i ? order[i]->bytes : 0;
			continue;
		}
		if (source == i)
			continue;
		if (kind == SL_PARTS_COPIED && target->device != targets[source].device)
			target->source = source;
		maker->out->copied |= target->source != i;
	}
}

static int part_compare(const void *first, const void *second)
{
	const struct sluice_extent *a = first, *b = second;

	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static bool parts_in_memory(const struct parts_maker *maker, const void *at)
{
	const struct sluice_tensor_memory *memory = maker->memory;

	return memory && (uintptr_t)at - (uintptr_t)memory->data < memory->bytes;
}

/*
 * Puts the extents of a part in the order of the file, and joins those that follow each other. No
 * driver copies across the border of two allocations.
 */
static void part_merge(const struct parts_maker *maker, struct sl_tensor_part *part)
{
	struct sluice_extent *v = part->extents;
	size_t last = 0;
	bool sorted = true;

	for (size_t i = 1; i < part->count && sorted; i++)
		sorted = v[i - 1].offset <= v[i].offset;
	if (!sorted)
		qsort(v, part->count, sizeof(*v), part_compare);
	for (size_t i = 1; i < part->count; i++) {
		if (v[last].offset + v[last].length == v[i].offset &&
		    (char *)v[last].data + v[last].length == v[i].data &&
		    (part->device < 0 ||
		     (parts_in_memory(maker, v[last].data) && parts_in_memory(maker, v[i].data))))
			v[last].length += v[i].length;
		else
			v[++last] = v[i];
	}
	part->count = last + 1;
}

/* Returns true if the item belongs to the part of item `first`. */
static bool part_has(const struct parts_maker *maker, size_t first, size_t i)
{
	const struct sl_tensor_target *targets = maker->out->targets;

	return targets[i].source == i && !targets[i].gathered &&
	       targets[i].device == targets[first].device;
}

/* Makes the part of item `first`, and of all behind it that belong to it. */
static int part_make(struct parts_maker *maker, size_t first, struct sl_tensor_part *part)
{
	struct sl_tensor_item *const *order = maker->plan->order;
	struct sl_tensor_target *targets = maker->out->targets;
	uint32_t file = order[first]->tensor->file;
	size_t end = first;
	uint64_t runs = 0;

	for (; end < maker->plan->count && order[end]->tensor->file == file; end++)
		runs += part_has(maker, first, end) ? order[end]->runs : 0;
	*part = (struct sl_tensor_part){.file = file, .device = targets[first].device};
	if (runs > SL_TENSOR_RUNS_MOST)
		return sl_fail(-E2BIG,
		               "in stream order, and with digests, at most %" PRIu64
		               " runs of bytes of a file are read, and not %" PRIu64,
		               SL_TENSOR_RUNS_MOST, runs);
	part->extents = calloc(runs, sizeof(*part->extents));
	if (!part->extents)
		return sl_fail(-ENOMEM, "no memory for %" PRIu64 " extents", runs);
	for (size_t i = first; i < end; i++) {
		if (!part_has(maker, first, i))
			continue;
		sl_tensor_item_extents(order[i], targets[i].to, &part->extents[part->count]);
		part->count += order[i]->runs;
		part->bytes += order[i]->bytes;
		targets[i].part = maker->out->count;
	}
	part_merge(maker, part);
	return 0;
}

int sl_tensor_parts_make(const struct sluice_tensor_plan *plan,
                         const struct sluice_tensor_memory *memory, enum sl_tensor_parts_kind kind,
                         struct sl_tensor_parts *out)
{
	struct parts_maker maker = {plan, memory, out};
	int rc = 0;

	*out = (struct sl_tensor_parts){.targets = calloc(plan->count + 1, sizeof(*out->targets))};
	if (!out->targets)
		return sl_fail(-ENOMEM, "no memory for %zu tensors", plan->count);
	parts_find_targets(&maker, kind);
	for (size_t i = 0; !rc && i < plan->count; i++) {
		const struct sl_tensor_target *target = &out->targets[i];
		struct sl_tensor_part *larger;

		if (target->device == NOWHERE || target->source != i || target->gathered ||
		    target->part != SIZE_MAX)
			continue;
		larger = realloc(out->parts, (out->count + 1) * sizeof(*larger));
		if (larger)
			out->parts = larger;
		rc = larger ? part_make(&maker, i, &larger[out->count])
		            : sl_fail(-ENOMEM, "no memory for %zu parts", out->count + 1);
		out->count += !rc;
	}
	if (rc)
		sl_tensor_parts_clear(out);
	return rc;
}

void sl_tensor_parts_clear(struct sl_tensor_parts *parts)
{
	for (size_t i = 0; i < parts->count; i++)
		free(parts->parts[i].extents);
	free(parts->parts);
	free(parts->targets);
	*parts = (struct sl_tensor_parts){0};
}
