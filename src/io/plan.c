/* SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"

/* What is left to move of the current extent: what lies behind the file's end is not read. */
static uint64_t rest(const struct sl_plan *plan)
{
	const struct sluice_extent *extent = &plan->extents[plan->extent];
	uint64_t end = SL_MIN(extent->offset + extent->length, plan->file_size);
	uint64_t start = extent->offset + plan->position;

	return start < end ? end - start : 0;
}

size_t sl_plan_piece(const struct sl_limits *limits, uint64_t bytes)
{
	const uint64_t unit = 64 << 10;
	uint64_t piece;

	if (!limits->least_piece)
		return limits->piece_bytes;
	piece = (bytes / limits->spread + unit - 1) / unit * unit;
	return SL_MAX(SL_MIN(piece, limits->piece_bytes), limits->least_piece);
}

bool sl_plan_peek(struct sl_plan *plan, struct sl_next_piece *out)
{
	const struct sl_limits *limits = plan->limits;
	uint32_t alignment = limits->alignment;
	const struct sluice_extent *extent;
	size_t piece = plan->piece_bytes ? plan->piece_bytes : limits->piece_bytes;
	uint64_t left, head;

	while (plan->extent < plan->count && !rest(plan)) {
		plan->extent++;
		plan->position = 0;
	}
	if (plan->extent == plan->count)
		return false;
	extent = &plan->extents[plan->extent];
	left = rest(plan);
	out->data = (char *)extent->data + plan->position;
	out->offset = extent->offset + plan->position;
	out->large = extent->length >= plan->direct_bytes;
	out->aligned = false;
	if (limits->sequential) {
		out->length = left;
		return true;
	}
	/* Pieces end at multiples of their length, so that neighbours share no page. */
	out->length = SL_MIN(left, piece - out->offset % piece);
	if (!out->large || !alignment)
		return true;
	head = -out->offset & (alignment - 1);
	if (head) {
		out->length = SL_MIN(head, left);
	} else if (out->length >= alignment) {
		out->length -= out->length % alignment;
		out->aligned = true;
	}
	return true;
}

void sl_plan_advance(struct sl_plan *plan, const struct sl_next_piece *cut)
{
	plan->position += cut->length;
}
