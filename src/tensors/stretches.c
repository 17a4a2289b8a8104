/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of a load
 *
 * Divides a plan by files and devices, and makes the extents of each stretch, in the order of the
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

/* Longer rows of a local file are not read for narrow columns in a device. */
#define NEAR_ROW ((uint64_t)64 << 10)
/* Of several slices of the same rows that are gathered: shorter runs, in rows not longer. */
#define SHARED_RUN ((uint64_t)64 << 10)
#define SHARED_ROW ((uint64_t)1 << 20)

struct stretches_maker {
	const struct sluice_tensor_plan *plan;
	const struct sluice_tensor_memory *memory;
	struct sl_tensor_stretches *out;
	struct sl_allocation allocation; /* that was met last, */
	int device;                      /* and its device */
};

/* Returns the number of the device of memory; -1: the host. Asks the driver once for those that
 * follow each other in an allocation. */
static int stretches_device(struct stretches_maker *maker, const void *memory)
{
	if ((uintptr_t)memory - maker->allocation.start < maker->allocation.length)
		return maker->device;
	struct sl_device *device = sl_device_of_allocation(memory, &maker->allocation);
	maker->device = device ? (int)device->index : -1;
	return maker->device;
}

/* Returns whether the item is columns that are gathered where they are many. */
static bool stretches_narrow(const struct stretches_maker *maker, size_t i)
{
	const struct sl_tensor_item *item = maker->plan->order[i];
	const struct sluice_file *file = maker->plan->tensors->files[item->tensor->file].file;
	/* Backends of servers plan the pieces. */
	bool near = maker->out->targets[i].device >= 0 && file && !sl_file_backend(file)->ops->cut;

	return sl_tensor_item_narrow(item, near ? NEAR_ROW : SL_TENSOR_ROW);
}

/* Finds the device of each item. Returns whether narrow columns are gathered. */
static bool stretches_find_devices(struct stretches_maker *maker,
                                   enum sl_tensor_stretches_kind kind)
{
	struct sl_tensor_item *const *order = maker->plan->order;
	uint64_t runs = 0;

	for (size_t i = 0; i < maker->plan->count; i++) {
		struct sl_tensor_target *target = &maker->out->targets[i];

		*target = (struct sl_tensor_target){
			.to = order[i]->to,
			.device = NOWHERE,
			.source = i,
			.stretch = SIZE_MAX,
		};
		if (!order[i]->runs)
			continue;
		if (!target->to)
			target->to = (char *)maker->memory->data + order[i]->memory_offset;
		target->device = kind == SL_PARTS_BY_FILE ? 0 : stretches_device(maker, target->to);
		runs += stretches_narrow(maker, i) ? order[i]->runs : 0;
	}
	return kind == SL_PARTS_COPIED && runs >= GATHERED_LEAST;
}

/*
 * Returns the end of the items from `first` on that are slices of the same rows, such as those of
 * several ranks. *gathered: whether one read is for all of them: there are several, their runs are
 * short, and have at least as many bytes as lie between.
 */
static size_t stretches_rows_end(const struct sluice_tensor_plan *plan, size_t first,
                                 bool *gathered)
{
	const struct sl_tensor_item *item = plan->order[first], *before = item;
	uint64_t bytes = item->run, most = item->run, end = item->begin + item->run;
	size_t i = first + 1;

	for (; i < plan->count && sl_tensor_item_beside(item, plan->order[i]); i++) {
		const struct sl_tensor_item *next = plan->order[i];

		bytes += sl_tensor_item_same(before, next) ? 0 : next->run;
		most = SL_MAX(most, next->run);
		end = SL_MAX(end, next->begin + next->run);
		before = next;
	}
	*gathered = bytes > item->run && bytes >= (end - item->begin) / 2 && most < SHARED_RUN &&
	            item->stride / 8 <= SHARED_ROW;
	return i;
}

/* Finds the device of each item, and its source. */
static void stretches_find_targets(struct stretches_maker *maker,
                                   enum sl_tensor_stretches_kind kind)
{
	struct sl_tensor_item *const *order = maker->plan->order;
	struct sl_tensor_target *targets = maker->out->targets;
	bool gather = stretches_find_devices(maker, kind), shared = false;
	size_t source = 0, end = 0;

	for (size_t i = 0; i < maker->plan->count; i++) {
		struct sl_tensor_target *target = &targets[i];

		if (!order[i]->runs)
			continue;
		if (!sl_tensor_item_same(order[i], order[source]))
			source = i;
		if (i >= end)
			end = stretches_rows_end(maker->plan, i, &shared);
		target->gathered = source == i ? (kind == SL_PARTS_COPIED && shared) ||
		                                         (gather && stretches_narrow(maker, i))
		                               : targets[source].gathered;
		if (target->gathered) {
			target->source = source;
			maker->out->gathered += source == i ? order[i]->bytes : 0;
			continue;
		}
		if (source == i)
			continue;
		/* A second copy on the host is read: many threads read, and one would copy. */
		if (kind == SL_PARTS_COPIED && (target->device >= 0 || targets[source].device >= 0))
			target->source = source;
	}
}

static int stretch_compare(const void *first, const void *second)
{
	const struct sluice_extent *a = first, *b = second;

	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Returns true if both lie in the memory of the plan, or in one allocation of a device. */
static bool stretches_in_one(struct stretches_maker *maker, const void *a, const void *b)
{
	const struct sluice_tensor_memory *memory = maker->memory;

	if (memory && (uintptr_t)a - (uintptr_t)memory->data < memory->bytes &&
	    (uintptr_t)b - (uintptr_t)memory->data < memory->bytes)
		return true;
	return stretches_device(maker, a) >= 0 &&
	       (uintptr_t)b - maker->allocation.start < maker->allocation.length;
}

static bool stretch_is_sorted(const struct sl_tensor_stretch *stretch)
{
	for (size_t i = 1; i < stretch->count; i++)
		if (stretch->extents[i - 1].offset > stretch->extents[i].offset)
			return false;
	return true;
}

/*
 * Puts the extents of a stretch in the order of the file, and joins those that follow each other.
 * No driver copies across the border of two allocations.
 */
static void stretch_merge(struct stretches_maker *maker, struct sl_tensor_stretch *stretch)
{
	struct sluice_extent *v = stretch->extents;
	size_t last = 0;

	if (!stretch_is_sorted(stretch))
		qsort(v, stretch->count, sizeof(*v), stretch_compare);
	for (size_t i = 1; i < stretch->count; i++) {
		if (v[last].offset + v[last].length == v[i].offset &&
		    (char *)v[last].data + v[last].length == v[i].data &&
		    (stretch->device < 0 || stretches_in_one(maker, v[last].data, v[i].data)))
			v[last].length += v[i].length;
		else
			v[++last] = v[i];
	}
	stretch->count = last + 1;
}

/* Returns true if the item belongs to the stretch of item `first`. */
static bool stretch_has(const struct stretches_maker *maker, size_t first, size_t i)
{
	const struct sl_tensor_target *targets = maker->out->targets;

	return targets[i].source == i && !targets[i].gathered &&
	       targets[i].device == targets[first].device;
}

/* Returns true if the item may come with its source, which is in that stretch: to a device. */
static bool stretch_fans(const struct stretches_maker *maker, size_t stretch, size_t i)
{
	const struct sl_tensor_target *targets = maker->out->targets;
	const struct sl_tensor_target *source = &targets[targets[i].source];

	return targets[i].source != i && !targets[i].gathered && targets[i].device >= 0 &&
	       source->stretch == stretch && targets[i].to != source->to;
}

/* Makes `also`, a row for each device, for items from `first` to `end`, whose runs are the extents.
 * Slices that a device wants again, or all if there is no memory, are copied. */
static void stretch_fan(struct stretches_maker *maker, size_t first, size_t end,
                        struct sl_tensor_stretch *stretch)
{
	struct sl_tensor_target *targets = maker->out->targets;
	size_t number = maker->out->count, run = 0, begin = 0;
	unsigned row[SL_DEVICES_MOST] = {0};

	for (size_t i = first; i < end; i++)
		if (stretch_fans(maker, number, i) && !row[targets[i].device])
			row[targets[i].device] = ++stretch->further;
	if (!stretch->further || stretch->device < 0 || !stretch_is_sorted(stretch) ||
	    !(stretch->also = calloc(stretch->count, stretch->further * sizeof(void *)))) {
		stretch->further = 0;
		return;
	}
	for (size_t i = first; i < end; i++) {
		if (targets[i].stretch == number) {
			begin = run;
			run += maker->plan->order[i]->runs;
		}
		if (!stretch_fans(maker, number, i))
			continue;
		void **also = stretch->also + (row[targets[i].device] - 1) * stretch->count;
		targets[i].fanned = !also[begin];
		for (size_t k = begin; targets[i].fanned && k < run; k++)
			also[k] = targets[i].to + (k - begin) * maker->plan->order[i]->run;
	}
}

/* Makes the stretch of item `first`, and of all behind it that belong to it. */
static int stretch_make(struct stretches_maker *maker, size_t first,
                        struct sl_tensor_stretch *stretch)
{
	struct sl_tensor_item *const *order = maker->plan->order;
	struct sl_tensor_target *targets = maker->out->targets;
	uint32_t file = order[first]->tensor->file;
	size_t end = first;
	uint64_t runs = 0;

	for (; end < maker->plan->count && order[end]->tensor->file == file; end++)
		runs += stretch_has(maker, first, end) ? order[end]->runs : 0;
	*stretch = (struct sl_tensor_stretch){.file = file, .device = targets[first].device};
	if (runs > SL_TENSOR_RUNS_MOST)
		return sl_fail(-E2BIG,
		               "in stream order, and with digests, at most %" PRIu64
		               " runs of bytes of a file are read, and not %" PRIu64,
		               SL_TENSOR_RUNS_MOST, runs);
	stretch->extents = calloc(runs, sizeof(*stretch->extents));
	if (!stretch->extents)
		return sl_fail(-ENOMEM, "no memory for %" PRIu64 " extents", runs);
	for (size_t i = first; i < end; i++) {
		if (!stretch_has(maker, first, i))
			continue;
		sl_tensor_item_extents(order[i], targets[i].to, &stretch->extents[stretch->count]);
		stretch->count += order[i]->runs;
		stretch->bytes += order[i]->bytes;
		targets[i].stretch = maker->out->count;
	}
	stretch_fan(maker, first, end, stretch);
	if (!stretch->also)
		stretch_merge(maker, stretch);
	return 0;
}

int sl_tensor_stretches_make(const struct sluice_tensor_plan *plan,
                             const struct sluice_tensor_memory *memory,
                             enum sl_tensor_stretches_kind kind, struct sl_tensor_stretches *out)
{
	struct stretches_maker maker = {.plan = plan, .memory = memory, .out = out};
	int rc = 0;

	*out = (struct sl_tensor_stretches){.targets =
	                                            calloc(plan->count + 1, sizeof(*out->targets))};
	if (!out->targets)
		return sl_fail(-ENOMEM, "no memory for %zu tensors", plan->count);
	stretches_find_targets(&maker, kind);
	for (size_t i = 0; !rc && i < plan->count; i++) {
		const struct sl_tensor_target *target = &out->targets[i];
		struct sl_tensor_stretch *larger;

		if (target->device == NOWHERE || target->source != i || target->gathered ||
		    target->stretch != SIZE_MAX)
			continue;
		larger = realloc(out->stretches, (out->count + 1) * sizeof(*larger));
		if (larger)
			out->stretches = larger;
		rc = larger ? stretch_make(&maker, i, &larger[out->count])
		            : sl_fail(-ENOMEM, "no memory for %zu stretches", out->count + 1);
		out->count += !rc;
	}
	for (size_t i = 0; i < plan->count; i++)
		out->copied |= out->targets[i].source != i && !out->targets[i].gathered &&
		               !out->targets[i].fanned;
	if (rc)
		sl_tensor_stretches_clear(out);
	return rc;
}

void sl_tensor_stretches_clear(struct sl_tensor_stretches *stretches)
{
	for (size_t i = 0; i < stretches->count; i++) {
		free(stretches->stretches[i].extents);
		free(stretches->stretches[i].also);
	}
	free(stretches->stretches);
	free(stretches->targets);
	*stretches = (struct sl_tensor_stretches){0};
}
