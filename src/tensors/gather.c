/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Narrow columns
 *
 * A slice of the last dimension is a run of bytes in each row. Where the runs are many and short,
 * whole rows are read into buffers, and each buffer's runs are copied to their addresses by a
 * command for all of them. Slices of the same rows, such as those of several ranks, are read once.
 *
 * Threads: a crew, each of which takes the next rows, reads them, and copies during the next read.
 */
#include <errno.h>
#include <stdlib.h>

#include "tensors/crew.h"
#include "tensors/header.h"

#define BUFFER_BYTES ((size_t)8 << 20)
#define BUFFERS      2 /* of a thread */
#define THREADS_MOST 4
#define SPANS_MOST   64 /* of a buffer */
/* Direct I/O wants the same offset in a block of the file and in memory. */
#define BLOCK ((uint64_t)4096)

/* Items with the same rows: those from `first` on in the plan's order. */
struct gather_group {
	size_t first, count;
	uint64_t begin, width; /* of the bytes that the items have of the first row */
	uint64_t stride, rows;
};

/* Rows of a group that are in a buffer. */
struct gather_span {
	const struct gather_group *group;
	uint64_t row, rows;
	size_t at; /* of the first, in the buffer */
};

struct gather {
	const struct sluice_tensor_plan *plan;
	const struct sl_tensor_target *targets;
	struct gather_group *groups;
	size_t count;
	int device; /* for which the buffers are pinned; -1: none */
	_Atomic uint64_t *moved;
	_Atomic bool *stop;

	struct sl_mutex mutex;
	/* The next row that no thread has taken. */
	size_t group SL_GUARDED_BY(&mutex);
	uint64_t row SL_GUARDED_BY(&mutex);
};

/* --------------------------------------------------------------------------------------- groups */

static int gather_find_groups(struct gather *gather)
{
	struct sl_tensor_item *const *order = gather->plan->order;
	struct gather_group *group = NULL;

	gather->groups = calloc(gather->plan->count, sizeof(*gather->groups));
	if (!gather->groups)
		return sl_fail(-ENOMEM, "no memory for %zu tensors", gather->plan->count);
	for (size_t i = 0; i < gather->plan->count; i++) {
		const struct sl_tensor_item *item = order[i];

		if (!gather->targets[i].gathered)
			continue;
		if (gather->targets[i].device >= 0 && gather->device < 0)
			gather->device = gather->targets[i].device;
		if (!group || i != group->first + group->count ||
		    !sl_tensor_item_beside(order[group->first], item)) {
			group = &gather->groups[gather->count++];
			*group = (struct gather_group){
				i, 0, item->begin, 0, item->stride / 8, item->runs};
		}
		group->count++;
		group->width = SL_MAX(group->width, item->begin + item->run - group->begin);
	}
	return 0;
}

static uint64_t group_offset(const struct gather_group *group, uint64_t row)
{
	return group->begin + row * group->stride;
}

static size_t span_bytes(const struct gather_span *span)
{
	return (span->rows - 1) * span->group->stride + span->group->width;
}

/* -------------------------------------------------------------------------------------- threads */

/* Takes rows for a buffer, all of a file. Returns the number of spans; 0: there are no more. */
static size_t gather_take(struct gather *gather, struct gather_span spans[SPANS_MOST])
{
	struct sl_tensor_item *const *order = gather->plan->order;
	size_t count = 0, end = 0;

	sl_mutex_lock(&gather->mutex);
	while (gather->group < gather->count && count < SPANS_MOST) {
		const struct gather_group *group = &gather->groups[gather->group];
		uint64_t offset = group_offset(group, gather->row);
		size_t at = (end + BLOCK - 1) / BLOCK * BLOCK + offset % BLOCK;
		struct gather_span *span = &spans[count];

		if (count &&
		    order[group->first]->tensor->file != order[spans[0].group->first]->tensor->file)
			break;
		if (at + group->width > BUFFER_BYTES)
			break;
		*span = (struct gather_span){group, gather->row, 0, at};
		span->rows = SL_MIN((BUFFER_BYTES - at - group->width) / group->stride + 1,
		                    group->rows - gather->row);
		end = at + span_bytes(span);
		count++;
		gather->row += span->rows;
		if (gather->row == group->rows) {
			gather->row = 0;
			gather->group++;
		}
	}
	sl_mutex_unlock(&gather->mutex);
	return count;
}

static int gather_read(const struct gather *gather, char *buffer, const struct gather_span *spans,
                       size_t count)
{
	const struct sl_tensor_file *file =
		&gather->plan->tensors
			 ->files[gather->plan->order[spans->group->first]->tensor->file];
	struct sluice_extent extents[SPANS_MOST];

	for (size_t i = 0; i < count; i++)
		extents[i] = (struct sluice_extent){buffer + spans[i].at, span_bytes(&spans[i]),
		                                    group_offset(spans[i].group, spans[i].row)};
	int64_t missing = sl_tensor_file_read_some(file, extents, count, gather->stop);
	return missing > 0
	               ? sl_fail(-EIO, "'%s' has become shorter than its header says", file->name)
	               : (int)missing;
}

/* Copies the columns of rows to all that want them. */
static int gather_copy(const struct gather *gather, struct sl_lanes *lanes, unsigned buffer,
                       const char *data, const struct gather_span *span)
{
	const struct gather_group *group = span->group;
	int rc = 0;

	for (size_t i = group->first; !rc && i < group->first + group->count; i++) {
		const struct sl_tensor_item *item = gather->plan->order[i];

		rc = sl_lanes_copy(
			lanes, buffer, gather->targets[i].device,
			gather->targets[i].to + span->row * item->run,
			data + span->at + (item->begin - group->begin),
			(struct sl_rows){span->rows, item->run, group->stride, item->run});
		if (gather->targets[i].source == i)
			atomic_fetch_add(gather->moved, span->rows * item->run);
	}
	return rc;
}

static int gather_work(void *argument)
{
	struct gather *gather = argument;
	struct gather_span spans[SPANS_MOST];
	struct sl_lanes lanes = {0};
	int rc = sl_lanes_open(&lanes, gather->device, BUFFERS, BUFFER_BYTES);
	size_t count;

	for (unsigned buffer = 0; !rc && (count = gather_take(gather, spans)); buffer ^= 1) {
		char *data = lanes.memory + buffer * BUFFER_BYTES;

		if (atomic_load(gather->stop))
			rc = sl_fail(-ECANCELED, "the load was cancelled");
		if (!rc)
			rc = sl_lanes_release(&lanes, buffer);
		if (!rc)
			rc = gather_read(gather, data, spans, count);
		for (size_t i = 0; !rc && i < count; i++)
			rc = gather_copy(gather, &lanes, buffer, data, &spans[i]);
		if (!rc)
			rc = sl_lanes_record(&lanes, buffer);
	}
	for (unsigned buffer = 0; !rc && buffer < BUFFERS; buffer++)
		rc = sl_lanes_release(&lanes, buffer);
	sl_lanes_close(&lanes);
	return rc;
}

int sl_tensor_gather(const struct sluice_tensor_plan *plan, const struct sl_tensor_target *targets,
                     _Atomic uint64_t *moved, _Atomic bool *stop)
{
	struct gather gather = {
		.plan = plan, .targets = targets, .device = -1, .moved = moved, .stop = stop};
	uint64_t bytes = 0;
	int rc = gather_find_groups(&gather);

	for (size_t i = 0; i < gather.count; i++)
		bytes += gather.groups[i].rows * gather.groups[i].stride;
	sl_mutex_init(&gather.mutex);
	if (!rc)
		rc = sl_crew_run("sluice-tensors",
		                 SL_MIN(bytes / BUFFER_BYTES + 1, SL_MIN(sl_cores(), THREADS_MOST)),
		                 gather_work, &gather, stop);
	sl_mutex_destroy(&gather.mutex);
	free(gather.groups);
	return rc;
}
