/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window of an upload in parts
 *
 * Which parts have buffers, which of their bytes have come, and how far ahead a write may lie: see multipart.c.
 *
 * Threads: any, with the mutex of the upload.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "http/multipart_internal.h"

#define HUGE_PAGE ((size_t)2 << 20)

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

/* Returns memory for a part. Faults of small pages would be a seventh of the processor time of sluice cp. */
static char *part_memory(size_t length)
{
	void *data = NULL;

	if (length < HUGE_PAGE)
		return malloc(length);
	if (posix_memalign(&data, HUGE_PAGE, length))
		return NULL;
	madvise(data, length, MADV_HUGEPAGE);
	return data;
}

void sl_http_part_free(struct sl_http_part *part)
{
	free(part->query);
	free(part->spans);
	free(part->data);
	sl_http_answer_clear(&part->call.answer);
	free(part);
}

struct sl_http_part *sl_http_multipart_part_locked(struct sl_http_multipart *multipart,
                                                   unsigned number) SL_REQUIRES(&multipart->mutex)
{
	sl_list_each_of (part, &multipart->locked.parts, struct sl_http_part, link) {
		if (part->place.number == number)
			return part;
	}
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
		if (part->place.length == except)
			continue;
		sl_list_remove(&part->link);
		multipart->locked.used -= part->place.length;
		sl_http_part_free(part);
	}
}

struct sl_http_part *sl_http_multipart_buffer_locked(struct sl_http_multipart *multipart,
                                                     const struct sl_s3_part *place, int *error)
	SL_REQUIRES(&multipart->mutex)
{
	struct sl_list *link, *before = &multipart->locked.parts;
	struct sl_http_part *part = sl_http_multipart_part_locked(multipart, place->number);

	if (part)
		return part;
	multipart_trim_locked(multipart, place->length);
	link = sl_list_take(&multipart->locked.spare);
	if (!link && multipart->locked.used &&
	    multipart->locked.used + place->length > multipart->share)
		return NULL;
	if (link) {
		part = SL_CONTAINER(link, struct sl_http_part, link);
	} else if ((part = calloc(1, sizeof(*part)))) {
		part->data = part_memory(place->length);
		multipart->locked.used += place->length;
	}
	if (!part || !part->data) {
		*error = -ENOMEM;
		if (part) {
			multipart->locked.used -= place->length;
			sl_http_part_free(part);
		}
		return NULL;
	}
	part->multipart = multipart;
	part->place = *place;
	part->copied = part->span_count = 0;
	part->ready = false;
	while (before->previous != &multipart->locked.parts &&
	       SL_CONTAINER(before->previous, struct sl_http_part, link)->place.number >
	               place->number)
		before = before->previous;
	sl_list_append(before, &part->link);
	return part;
}

/* ------------------------------------------------------------------------------------ window */

void sl_http_multipart_move_locked(struct sl_http_multipart *multipart)
	SL_REQUIRES(&multipart->mutex)
{
	struct sl_s3_part place;
	uint64_t at = multipart->locked.low_start, total = multipart->plan.total, bytes = 0;

	while (multipart_is_full_locked(multipart, multipart->locked.low) &&
	       (!total || at < total)) {
		sl_s3_plan_find(&multipart->plan, at, &place);
		at = place.start + place.length;
		multipart->locked.low++;
	}
	multipart->locked.low_start = at;
	multipart->locked.window = at;
	while (!total || at < total) {
		sl_s3_plan_find(&multipart->plan, at, &place);
		if (bytes && bytes + place.length > multipart->share)
			break;
		bytes += place.length;
		at = multipart->locked.window = place.start + place.length;
	}
}

/* Returns the end of the bytes that follow `end` in the extents of a write. */
static uint64_t coming_end(const struct sl_coming *coming, uint64_t end)
{
	for (size_t i = 0; i < coming->count; i++)
		if (coming->extents[i].offset <= end)
			end = SL_MAX(end, coming->extents[i].offset + coming->extents[i].length);
	return end;
}

uint64_t sl_http_multipart_chain_locked(struct sl_http_multipart *multipart)
	SL_REQUIRES(&multipart->mutex)
{
	uint64_t end = multipart->locked.low_start, before;
	struct sl_s3_part place;
	struct sl_http_part *part;

	do {
		before = end;
		if (multipart->plan.total && end >= multipart->plan.total)
			break;
		sl_s3_plan_find(&multipart->plan, end, &place);
		part = sl_http_multipart_part_locked(multipart, place.number);
		if (multipart_is_full_locked(multipart, place.number))
			end = place.start + place.length;
		for (unsigned i = 0; part && i < part->span_count; i++)
			if (place.start + part->spans[i].from <= end)
				end = SL_MAX(end, place.start + part->spans[i].to);
		sl_list_each_of (piece, &multipart->locked.pieces, struct sl_piece, link) {
			if (piece->offset <= end)
				end = SL_MAX(end, piece->offset + piece->length);
		}
		sl_list_each (link, &multipart->locked.coming)
			end = coming_end(SL_CONTAINER(link, struct sl_coming, link), end);
	} while (end > before);
	return end;
}

bool sl_http_multipart_overlaps_locked(struct sl_http_multipart *multipart, uint64_t from,
                                       uint64_t to) SL_REQUIRES(&multipart->mutex)
{
	struct sl_s3_part place;

	sl_list_each_of (piece, &multipart->locked.pieces, struct sl_piece, link) {
		if (piece->offset < to && piece->offset + piece->length > from)
			return true;
	}
	if (from < multipart->locked.low_start)
		return true;
	for (uint64_t at = from; at < SL_MIN(to, multipart->locked.window);
	     at = place.start + place.length) {
		struct sl_http_part *part;

		sl_s3_plan_find(&multipart->plan, at, &place);
		part = sl_http_multipart_part_locked(multipart, place.number);
		if (multipart_is_full_locked(multipart, place.number))
			return true;
		for (unsigned i = 0; part && i < part->span_count; i++)
			if (place.start + part->spans[i].from < to &&
			    place.start + part->spans[i].to > from)
				return true;
	}
	return false;
}

void sl_http_multipart_take_share(struct sl_http_multipart *multipart)
{
	struct sl_gate *gate = &multipart->http->engine->uploads;
	uint64_t least = multipart->plan.bytes, total = multipart->plan.total;
	uint64_t share = multipart->http->core->settings.s3_upload_bytes / 2;

	if (total)
		least = SL_MIN(least, total);
	share = SL_MAX(total ? SL_MIN(share, total) : share, least);
	while (share > least && !sl_gate_take(gate, share, false))
		share = SL_MAX(share / 2, least);
	if (share == least)
		sl_gate_pass(gate, share);
	multipart->share = share;
}
