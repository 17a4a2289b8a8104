/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window of an upload in parts
 *
 * Which parts have buffers, which of their bytes have come, and how far ahead a write may lie: see
 * multipart.c.
 *
 * Threads: any, with the mutex of the upload.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "http/multipart_internal.h"

#define FILES 8 /* that have as much memory as each other if they are opened at once */

/* -------------------------------------------------------------------------------------- plan */

void sl_http_plan_find(const struct sl_http_plan *plan, uint64_t offset, struct sl_http_cut *out)
{
	const struct sl_service_limits *limits = plan->limits;
	uint64_t start = 0, bytes = plan->bytes;
	unsigned number = 1;

	while (!plan->total && number + limits->group <= limits->parts &&
	       (offset - start) / bytes >= limits->group) {
		start += limits->group * bytes;
		number += limits->group;
		bytes = SL_MIN(2 * SL_MAX(bytes, limits->grown), limits->part_most);
	}
	out->number = number + (offset - start) / bytes;
	out->start = offset - (offset - start) % bytes;
	out->length = plan->total ? SL_MIN(bytes, plan->total - out->start) : bytes;
}

void sl_http_plan_make(const struct sl_service_limits *limits, uint64_t total, uint64_t part_bytes,
                       struct sl_http_plan *out)
{
	uint64_t least = (total + limits->parts - 1) / limits->parts, unit = 1 << 20;

	out->limits = limits;
	out->total = total;
	out->bytes = least <= part_bytes ? part_bytes : (least + unit - 1) / unit * unit;
}

/* -------------------------------------------------------------------------------------- part */

int sl_http_part_add(struct sl_http_part *part, size_t from, size_t to)
{
	unsigned i = 0;
	struct sl_http_span *spans = part->spans;

	while (i < part->span_count && spans[i].to < from)
		i++;
	if (i < part->span_count && spans[i].from <= to) {
		/* It touches that span, and perhaps the next. */
		spans[i].from = SL_MIN(spans[i].from, from);
		spans[i].to = SL_MAX(spans[i].to, to);
		if (i + 1 == part->span_count || spans[i].to < spans[i + 1].from)
			return 0;
		spans[i].to = spans[i + 1].to;
		part->span_count--;
		memmove(spans + i + 1, spans + i + 2, (part->span_count - i - 1) * sizeof(*spans));
		return 0;
	}
	if (part->span_count == part->room) {
		unsigned room = SL_MAX(2 * part->room, 4u);

		spans = realloc(spans, room * sizeof(*spans));
		if (!spans)
			return -ENOMEM;
		part->spans = spans;
		part->room = room;
	}
	memmove(spans + i + 1, spans + i, (part->span_count - i) * sizeof(*spans));
	spans[i] = (struct sl_http_span){from, to};
	part->span_count++;
	return 0;
}

const uint32_t *sl_http_part_sum(const struct sl_http_part *part, uint64_t length, uint32_t *sum)
{
	*sum = sl_crc32c_move(part->sum ^ UINT32_MAX, (int64_t)length);
	return part->summed == length ? sum : NULL;
}

/* Faults of small pages would be a seventh of the processor time of sluice cp. */
static char *part_memory(size_t length)
{
	void *data = NULL;

	if (length < SL_HUGE_PAGE)
		return malloc(length);
	if (posix_memalign(&data, SL_HUGE_PAGE, length))
		return NULL;
	madvise(data, length, MADV_HUGEPAGE);
	return data;
}

void sl_http_part_free(struct sl_http_part *part)
{
	free(part->spans);
	free(part->data);
	sl_http_answer_clear(&part->call.answer);
	free(part);
}

struct sl_http_part *sl_http_multipart_part_locked(struct sl_http_multipart *multipart,
                                                   unsigned number)
{
	sl_list_each_of (part, &multipart->locked.parts, struct sl_http_part, link)
		if (part->cut.number == number)
			return part;
	return NULL;
}

static bool multipart_is_full_locked(struct sl_http_multipart *multipart, unsigned number)
	SL_REQUIRES(&multipart->mutex)
{
	return number <= multipart->most && multipart->locked.known[number - 1].full;
}

/* Frees buffers that no part has, of another length than the next part needs. */
static void multipart_trim_locked(struct sl_http_multipart *multipart, uint64_t except)
	SL_REQUIRES(&multipart->mutex)
{
	sl_list_each_of (part, &multipart->locked.spare, struct sl_http_part, link) {
		if (part->cut.length == except)
			continue;
		sl_list_remove(&part->link);
		multipart->locked.used -= part->cut.length;
		sl_http_part_free(part);
	}
}

struct sl_http_part *sl_http_multipart_buffer_locked(struct sl_http_multipart *multipart,
                                                     const struct sl_http_cut *cut, int *error)
{
	struct sl_list *before = &multipart->locked.parts;
	struct sl_http_part *part = sl_http_multipart_part_locked(multipart, cut->number);

	if (part)
		return part;
	multipart_trim_locked(multipart, cut->length);
	part = sl_list_take_first(&multipart->locked.spare, struct sl_http_part, link);
	if (!part && multipart->locked.used &&
	    multipart->locked.used + cut->length > multipart->locked.share)
		return NULL;
	if (!part && (part = calloc(1, sizeof(*part)))) {
		part->data = part_memory(cut->length);
		multipart->locked.used += cut->length;
	}
	if (!part || !part->data) {
		*error = -ENOMEM;
		if (part) {
			multipart->locked.used -= cut->length;
			sl_http_part_free(part);
		}
		return NULL;
	}
	part->multipart = multipart;
	part->cut = *cut;
	part->copied = part->summed = part->sum = part->span_count = 0;
	part->ready = false;
	while (before->previous != &multipart->locked.parts &&
	       SL_CONTAINER(before->previous, struct sl_http_part, link)->cut.number > cut->number)
		before = before->previous;
	sl_list_append(before, &part->link);
	return part;
}

/* ------------------------------------------------------------------------------------ window */

bool sl_http_multipart_move_locked(struct sl_http_multipart *multipart, bool grows)
{
	struct sl_gate *gate = &multipart->http->engine->uploads;
	uint64_t at = multipart->locked.low_start, total = multipart->plan.total, bytes = 0;
	uint64_t share = multipart->locked.share, before = multipart->locked.window;
	uint64_t more = grows ? SL_MIN(share, multipart->share_most - share) : 0;
	struct sl_http_cut cut;

	/* As much stays for new files. */
	if (more && sl_gate_take(gate, 2 * more, false)) {
		sl_gate_give(gate, more);
		multipart->locked.share = share += more;
	} else {
		more = 0;
	}
	while (multipart_is_full_locked(multipart, multipart->locked.low) &&
	       (!total || at < total)) {
		sl_http_plan_find(&multipart->plan, at, &cut);
		at = cut.start + cut.length;
		multipart->locked.low++;
	}
	multipart->locked.low_start = at;
	multipart->locked.window = at;
	while (!total || at < total) {
		sl_http_plan_find(&multipart->plan, at, &cut);
		if (bytes && bytes + cut.length > share)
			break;
		bytes += cut.length;
		at = multipart->locked.window = cut.start + cut.length;
	}
	return more || at > before;
}

/* Returns the end of a chain that ends there, with those bytes if they follow it. */
static uint64_t chain_extend(uint64_t end, uint64_t offset, uint64_t length)
{
	return offset <= end ? SL_MAX(end, offset + length) : end;
}

uint64_t sl_http_multipart_chain_locked(struct sl_http_multipart *multipart)
{
	uint64_t end = multipart->locked.low_start, before;
	struct sl_http_cut cut;
	struct sl_http_part *part;

	do {
		before = end;
		if (multipart->plan.total && end >= multipart->plan.total)
			break;
		sl_http_plan_find(&multipart->plan, end, &cut);
		part = sl_http_multipart_part_locked(multipart, cut.number);
		if (multipart_is_full_locked(multipart, cut.number))
			end = cut.start + cut.length;
		for (unsigned i = 0; part && i < part->span_count; i++)
			end = chain_extend(end, cut.start + part->spans[i].from,
			                   part->spans[i].to - part->spans[i].from);
		sl_list_each_of (piece, &multipart->locked.pieces, struct sl_piece, link)
			end = chain_extend(end, piece->offset, piece->length);
		sl_list_each_of (coming, &multipart->locked.coming, struct sl_coming, link)
			for (size_t i = 0; i < coming->count; i++)
				end = chain_extend(end, coming->extents[i].offset,
				                   coming->extents[i].length);
	} while (end > before);
	return end;
}

bool sl_http_multipart_overlaps_locked(struct sl_http_multipart *multipart, uint64_t from,
                                       uint64_t to)
{
	struct sl_http_cut cut;

	sl_list_each_of (piece, &multipart->locked.pieces, struct sl_piece, link)
		if (piece->offset < to && piece->offset + piece->length > from)
			return true;
	if (from < multipart->locked.low_start)
		return true;
	for (uint64_t at = from; at < SL_MIN(to, multipart->locked.window);
	     at = cut.start + cut.length) {
		struct sl_http_part *part;

		sl_http_plan_find(&multipart->plan, at, &cut);
		part = sl_http_multipart_part_locked(multipart, cut.number);
		if (multipart_is_full_locked(multipart, cut.number))
			return true;
		for (unsigned i = 0; part && i < part->span_count; i++)
			if (cut.start + part->spans[i].from < to &&
			    cut.start + part->spans[i].to > from)
				return true;
	}
	return false;
}

/* No other thread has the upload yet. */
void sl_http_multipart_take_share(struct sl_http_multipart *multipart) SL_UNCHECKED
{
	struct sl_gate *gate = &multipart->http->engine->uploads;
	uint64_t least = multipart->plan.bytes, total = multipart->plan.total;
	uint64_t all = multipart->http->core->settings.upload_bytes, share;

	if (total)
		least = SL_MIN(least, total);
	multipart->share_most = SL_MAX(total ? SL_MIN(all / 2, total) : all / 2, least);
	share = SL_MAX(SL_MIN(all / FILES, multipart->share_most), least);
	if (share == least || !sl_gate_take(gate, share, false))
		sl_gate_pass(gate, share = least);
	multipart->locked.share = share;
}
