/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans
 *
 * Chooses tensors and slices of them, works out where the bytes of each lie in its file, and gives
 * those without a destination an offset in a memory, in the order of the files. On any thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "tensors/tensors.h"

#define OFFSET_ALIGN ((uint64_t)256)
/* Of narrow columns: shorter runs. */
#define NARROW ((uint64_t)16 << 10)
/* Bits of longer tensors are not counted in 64 bits. */
#define BYTES_MOST (UINT64_MAX / 16)

/* Orders items by file and offset; of the same offset, equal slices follow each other. */
static int item_compare(const struct sl_tensor_item *a, const struct sl_tensor_item *b)
{
	if (a->tensor->file != b->tensor->file)
		return a->tensor->file < b->tensor->file ? -1 : 1;
	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	if (a->index != b->index)
		return a->index < b->index ? -1 : 1;
	for (unsigned i = 0; i < a->tensor->rank; i++)
		if (a->shape[i] != b->shape[i])
			return a->shape[i] < b->shape[i] ? -1 : 1;
	return 0;
}

bool sl_tensor_item_same(const struct sl_tensor_item *a, const struct sl_tensor_item *b)
{
	return !item_compare(a, b);
}

/* Returns true if all runs of the item have the same distance. */
static bool item_has_rows(const struct sl_tensor_item *item)
{
	for (unsigned i = 1; i < item->outer; i++)
		if (item->shape[i] != item->tensor->shape[i])
			return false;
	return item->runs > 1;
}

bool sl_tensor_item_narrow(const struct sl_tensor_item *item, uint64_t row)
{
	return item->run < NARROW && item->stride / 8 <= SL_MAX(row, 2 * item->run) &&
	       item_has_rows(item);
}

bool sl_tensor_item_beside(const struct sl_tensor_item *first, const struct sl_tensor_item *item)
{
	return item->tensor == first->tensor && item->stride == first->stride &&
	       item->runs == first->runs &&
	       item->begin + item->run - first->begin <= first->stride / 8 &&
	       item_has_rows(first) && item_has_rows(item);
}

void sl_tensor_item_extents(const struct sl_tensor_item *item, char *to, struct sluice_extent *out)
{
	for (uint64_t run = 0; run < item->runs; run++, out++) {
		uint64_t left = run, stride = item->stride, bits = 0;

		for (unsigned i = item->outer; i-- > 0; stride *= item->tensor->shape[i]) {
			bits += left % item->shape[i] * stride;
			left /= item->shape[i];
		}
		*out = (struct sluice_extent){to + run * item->run, item->run,
		                              item->begin + bits / 8};
	}
}

/* --------------------------------------------------------------------------------------- items */

static int item_refuse(const struct sl_tensor_item *item, unsigned dimension, const char *why)
{
	return sl_fail(-EINVAL, "tensor '%s': the range of dimension %u %s", item->tensor->name,
	               dimension, why);
}

/* Sets the shape of a slice. Returns the number of its elements in *elements, or -EINVAL. */
static int item_shape(struct sl_tensor_item *item, const struct sluice_tensor_range *ranges,
                      uint64_t *shape)
{
	item->shape = shape;
	item->bytes = item->tensor->bytes;
	for (unsigned i = 0; i < item->tensor->rank; i++) {
		if (ranges[i].start > ranges[i].stop || ranges[i].stop > item->tensor->shape[i])
			return item_refuse(item, i, "is not in its shape");
		shape[i] = ranges[i].stop - ranges[i].start;
		if (!shape[i])
			item->bytes = 0;
	}
	return 0;
}

/* Finds the runs of a slice with elements: whole dimensions, and that before them, are in a run. */
static int item_slice(struct sl_tensor_item *item, const struct sluice_tensor_range *ranges)
{
	const uint64_t *whole = item->tensor->shape, bits = sl_type_find(item->tensor->type)->bits;
	uint64_t stride = bits, first = 0, odd = 0;
	bool inner = true;

	item->run = bits;
	for (unsigned i = item->tensor->rank; i-- > 0; stride *= whole[i]) {
		first += ranges[i].start * stride;
		if (inner) {
			item->run *= item->shape[i];
			item->outer = i;
			item->stride = stride * whole[i];
		} else {
			item->runs *= item->shape[i];
			odd |= item->shape[i] > 1 ? stride : 0;
		}
		inner = inner && item->shape[i] == whole[i];
	}
	if ((first | item->run | odd) % 8)
		return item_refuse(item, item->outer, "does not begin and end at a byte");
	item->begin += first / 8;
	item->run /= 8;
	item->bytes = item->run * item->runs;
	return 0;
}

/* *shape: of the slice, and behind it those of the next. */
static int item_set(struct sl_tensor_item *item, const struct sluice_tensors *tensors,
                    const struct sluice_tensor_want *want, uint64_t **shape)
{
	int rc = 0;

	if (want->tensor >= tensors->count)
		return sl_fail(-EINVAL, "there is no tensor %zu, but %zu", want->tensor,
		               tensors->count);
	const struct sl_tensor *tensor = &tensors->tensors[want->tensor];
	if (tensor->bytes > BYTES_MOST)
		return sl_fail(-E2BIG, "tensor '%s' has %" PRIu64 " bytes", tensor->name,
		               tensor->bytes);
	item->tensor = tensor;
	item->index = want->tensor;
	item->shape = tensor->shape;
	item->begin = tensor->offset;
	item->run = item->bytes = tensor->bytes;
	item->runs = 1;
	item->to = want->to;
	if (want->ranges) {
		rc = item_shape(item, want->ranges, *shape);
		*shape += tensor->rank;
		if (!rc && item->bytes)
			rc = item_slice(item, want->ranges);
	}
	if (!item->bytes)
		item->runs = 0;
	return rc;
}

/* --------------------------------------------------------------------------------------- ranks */

int sluice_tensors_slice(const sluice_tensors *tensors, size_t index, int dimension, uint32_t rank,
                         uint32_t ranks, int even, struct sluice_tensor_range *ranges)
{
	uint64_t n, each, rest;

	if (!tensors || !ranges)
		return sl_fail(-EINVAL, "sluice_tensors_slice: NULL");
	int rc = sl_context_check(tensors->ctx);
	if (rc)
		return rc;
	if (rank >= ranks || index >= tensors->count)
		return sl_fail(-EINVAL,
		               "there is no rank %" PRIu32 " of %" PRIu32
		               ", or no tensor %zu of %zu",
		               rank, ranks, index, tensors->count);
	const struct sl_tensor *t = &tensors->tensors[index];
	int64_t at = dimension < 0 ? (int64_t)t->rank + dimension : dimension;
	if (at < 0 || at >= (int64_t)t->rank)
		return sl_fail(-EINVAL, "tensor '%s' has %u dimensions, and no number %d", t->name,
		               t->rank, dimension);
	n = t->shape[at];
	each = n / ranks;
	rest = n % ranks;
	if (even && rest)
		return sl_fail(-EINVAL,
		               "tensor '%s': dimension %d has %" PRIu64 " elements, which %" PRIu32
		               " ranks do not divide",
		               t->name, dimension, n, ranks);
	for (unsigned i = 0; i < t->rank; i++)
		ranges[i] = (struct sluice_tensor_range){0, t->shape[i]};
	ranges[at].start = each * rank + rest * rank / ranks;
	ranges[at].stop = each * (rank + 1) + rest * (rank + 1) / ranks;
	return 0;
}

/* ---------------------------------------------------------------------------------------- plan */

static int item_compare_order(const void *first, const void *second)
{
	const struct sl_tensor_item *a = *(struct sl_tensor_item *const *)first;
	const struct sl_tensor_item *b = *(struct sl_tensor_item *const *)second;
	int order = item_compare(a, b);

	return order ? order : a < b ? -1 : 1;
}

/* Puts the items into the order of the files, and gives offsets. Returns 0 or -E2BIG. */
static int plan_lay_out(struct sluice_tensor_plan *plan)
{
	uint64_t runs = 0;

	for (size_t i = 0; i < plan->count; i++)
		plan->order[i] = &plan->items[i];
	qsort(plan->order, plan->count, sizeof(plan->order[0]), item_compare_order);
	for (size_t i = 0; i < plan->count; i++) {
		struct sl_tensor_item *item = plan->order[i];

		runs += sl_tensor_item_narrow(item, SL_TENSOR_ROW) ? 0 : item->runs;
		if (runs > SL_TENSOR_RUNS_MOST)
			return sl_fail(-E2BIG,
			               "a plan has at most %" PRIu64
			               " runs of bytes; of tensor '%s' it has %" PRIu64
			               ", each of %" PRIu64 " bytes",
			               SL_TENSOR_RUNS_MOST, item->tensor->name, item->runs,
			               item->run);
		item->memory_offset = UINT64_MAX;
		if (item->to)
			continue;
		item->memory_offset =
			(plan->bytes + OFFSET_ALIGN - 1) / OFFSET_ALIGN * OFFSET_ALIGN;
		plan->bytes = item->memory_offset + item->bytes;
		if (plan->bytes > INT64_MAX)
			return sl_fail(-E2BIG, "the plan is of more than INT64_MAX bytes");
	}
	return 0;
}

/* Allocates the arrays. The shapes of all slices lie behind each other. */
static int plan_allocate(struct sluice_tensor_plan *plan, const struct sluice_tensor_want *wants)
{
	const struct sluice_tensors *tensors = plan->tensors;
	size_t dimensions = 0;

	for (size_t i = 0; wants && i < plan->count; i++)
		if (wants[i].ranges && wants[i].tensor < tensors->count)
			dimensions += tensors->tensors[wants[i].tensor].rank;
	plan->items = calloc(plan->count + 1, sizeof(*plan->items));
	plan->order = calloc(plan->count + 1, sizeof(struct sl_tensor_item *));
	plan->shapes = calloc(dimensions + 1, sizeof(*plan->shapes));
	if (plan->items && plan->order && plan->shapes)
		return 0;
	return sl_fail(-ENOMEM, "no memory for a plan of %zu tensors", plan->count);
}

static int plan_fill(struct sluice_tensor_plan *plan, const struct sluice_tensor_want *wants)
{
	int rc = plan_allocate(plan, wants);
	uint64_t *shape = plan->shapes;

	for (size_t i = 0; !rc && i < plan->count; i++) {
		struct sluice_tensor_want whole = {.tensor = i};

		rc = item_set(&plan->items[i], plan->tensors, wants ? &wants[i] : &whole, &shape);
	}
	return rc ? rc : plan_lay_out(plan);
}

int sluice_tensor_plan_new(sluice_tensors *tensors, const struct sluice_tensor_want *wants,
                           size_t count, sluice_tensor_plan **out)
{
	if (!tensors || !out)
		return sl_fail(-EINVAL, "sluice_tensor_plan_new: NULL");
	int rc = sl_context_check(tensors->ctx);
	if (rc)
		return rc;
	struct sluice_tensor_plan *plan = calloc(1, sizeof(*plan));
	if (!plan)
		return sl_fail(-ENOMEM, "no memory");
	plan->tensors = tensors;
	plan->count = wants ? count : tensors->count;
	rc = plan_fill(plan, wants);
	if (rc)
		sluice_tensor_plan_free(plan);
	else
		*out = plan;
	return rc;
}

void sluice_tensor_plan_free(sluice_tensor_plan *plan)
{
	if (!plan)
		return;
	free(plan->items);
	free(plan->order);
	free(plan->shapes);
	free(plan);
}

int sluice_tensor_plan_item(const sluice_tensor_plan *plan, size_t index,
                            struct sluice_tensor_item *out)
{
	struct sluice_tensor_item told = {0};

	if (!plan || !out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_tensor_plan_item: NULL, or out->size is not set");
	int rc = sl_context_check(plan->tensors->ctx);
	if (rc)
		return rc;
	if (index >= plan->count)
		return sl_fail(-ENOENT, "the plan has %zu tensors, and no number %zu", plan->count,
		               index);
	const struct sl_tensor_item *item = &plan->items[index];
	told.tensor = item->index;
	told.type = item->tensor->type;
	told.rank = item->tensor->rank;
	told.shape = item->shape;
	told.bytes = item->bytes;
	told.memory_offset = item->memory_offset;
	sl_struct_give(out, &told, sizeof(told));
	return 0;
}

uint64_t sluice_tensor_plan_bytes(const sluice_tensor_plan *plan)
{
	return plan ? plan->bytes : 0;
}
