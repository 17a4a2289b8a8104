/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters of chunks, undone
 *
 * Undoes the filters of HDF5 that a dataset of any program has, in the opposite order: shuffle and
 * fletcher32 keep the length of a chunk, or add a sum; one filter may compress.
 *
 * Threads: any; an sl_unfilter belongs to one thread at a time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"

enum { LZF = 32000, BLOSC = 32001, BITSHUFFLE = 32008 };

struct sl_unfilter {
	const struct sl_filters *filters;
	const struct sl_codec *codec; /* for the filter that compresses, or NULL */
	void *state;                  /* the codec's, or NULL */
	char *scratch[2];
	char *bits; /* of a bit shuffle */
	size_t room[2];
};

/* Codecs of other programs' files. */
static const struct sl_codec lzf = {.name = "lzf", .decompress = sl_lzf_decompress};
static const struct sl_codec blosc = {.name = "blosc", .decompress = sl_blosc_decompress};

/* Of a bit shuffle: 0, or the number of the codec of its blocks. */
static unsigned filter_blocks(const struct sl_filter *filter)
{
	return filter->count > 4 ? filter->values[4] : 0;
}

/* The codec that undoes a filter, or the blocks of a bit shuffle. NULL: the filter does not
 * compress, or is not known. */
static const struct sl_codec *filter_codec(const struct sl_filter *filter)
{
	switch (filter->number) {
	case LZF:
		return &lzf;
	case BLOSC:
		return &blosc;
	case BITSHUFFLE:
		return filter_blocks(filter) == SL_BITSHUFFLE_LZ4    ? &sl_codec_lz4
		       : filter_blocks(filter) == SL_BITSHUFFLE_ZSTD ? &sl_codec_zstd
		                                                     : NULL;
	default:
		return sl_codec_of(filter->number);
	}
}

const char *sl_filter_name(const struct sl_filter *filter)
{
	static const char *const own[] = {"",     "deflate", "shuffle",    "fletcher32",
	                                  "szip", "nbit",    "scaleoffset"};
	const struct sl_codec *codec = filter_codec(filter);

	if (filter->number > 0 && filter->number < (int)(sizeof(own) / sizeof(own[0])))
		return own[filter->number];
	if (filter->number == BITSHUFFLE)
		return codec == &sl_codec_lz4    ? "bitshuffle-lz4"
		       : codec == &sl_codec_zstd ? "bitshuffle-zstd"
		                                 : "bitshuffle";
	return codec ? codec->name : filter->name[0] ? filter->name : "unknown";
}

static int filter_check(const struct sl_filter *filter)
{
	const struct sl_codec *codec = filter_codec(filter);

	switch (filter->number) {
	case SL_SHUFFLE_FILTER:
	case SL_FLETCHER32_FILTER:
		return 0;
	case BLOSC:
		return sl_blosc_load();
	case BITSHUFFLE:
		if (filter->count < 3 || !filter->values[2] ||
		    filter->values[2] > SL_BITSHUFFLE_MOST)
			return sl_fail(-EBADMSG, "its bitshuffle has elements of %u bytes",
			               filter->count < 3 ? 0 : filter->values[2]);
		if (!filter_blocks(filter))
			return 0;
		if (!codec)
			return sl_fail(-ENOTSUP, "its bitshuffle has an unknown codec %u",
			               filter_blocks(filter));
		break;
	}
	if (!codec)
		return sl_fail(-ENOTSUP, "its filter %d (%s) cannot be undone here", filter->number,
		               sl_filter_name(filter));
	return codec->missing ? sl_fail(-ENOTSUP, "its filter %s: %s", sl_filter_name(filter),
	                                codec->missing)
	                      : 0;
}

int sl_filters_check(const struct sl_filters *filters)
{
	const struct sl_filter *first = NULL;
	int rc = 0;

	for (unsigned i = 0; !rc && i < filters->count; i++) {
		const struct sl_filter *filter = &filters->filter[i];

		rc = filter_check(filter);
		if (rc || !filter_codec(filter))
			continue;
		if (first)
			rc = sl_fail(-ENOTSUP, "its filters %s and %s both compress",
			             sl_filter_name(first), sl_filter_name(filter));
		first = filter;
	}
	return rc;
}

/* ---------------------------------------------------------------------------------------- undo */

void sl_unfilter_free(struct sl_unfilter *unfilter)
{
	if (!unfilter)
		return;
	if (unfilter->state)
		unfilter->codec->state_free(unfilter->state);
	free(unfilter->scratch[0]);
	free(unfilter->scratch[1]);
	free(unfilter->bits);
	free(unfilter);
}

int sl_unfilter_new(const struct sl_filters *filters, struct sl_unfilter **out)
{
	struct sl_unfilter *unfilter = calloc(1, sizeof(*unfilter));
	int rc = 0;

	if (!unfilter)
		return sl_fail(-ENOMEM, "no memory");
	unfilter->filters = filters;
	for (unsigned i = 0; !rc && i < filters->count; i++) {
		const struct sl_codec *codec = filter_codec(&filters->filter[i]);

		unfilter->codec = codec ? codec : unfilter->codec;
		if (codec && codec->state_new)
			rc = codec->state_new(SL_CODEC_LEVEL, 1, 0, &unfilter->state);
	}
	if (rc)
		sl_unfilter_free(unfilter);
	else
		*out = unfilter;
	return rc;
}

static char *unfilter_scratch(struct sl_unfilter *unfilter, unsigned which, size_t length)
{
	if (!unfilter->scratch[which] || unfilter->room[which] < length) {
		free(unfilter->scratch[which]);
		unfilter->room[which] = SL_MAX(length, unfilter->filters->bytes);
		unfilter->scratch[which] = malloc(unfilter->room[which]);
	}
	return unfilter->scratch[which];
}

static int unfilter_bits(struct sl_unfilter *unfilter, const struct sl_filter *filter,
                         const void *in, size_t n, void *out, size_t length)
{
	size_t element = filter->values[2];
	struct sl_blocks blocks = {.element = element,
	                           .most = SL_BITSHUFFLE_BLOCK(element),
	                           .codec = filter_codec(filter),
	                           .state = unfilter->state,
	                           .room = SL_BITSHUFFLE_SCRATCH(element)};

	if (filter->count > 3 && filter->values[3])
		blocks.most = filter->values[3] * element;
	if (!unfilter->bits)
		unfilter->bits = malloc(blocks.room);
	blocks.scratch = unfilter->bits;
	return unfilter->bits ? sl_blocks_undo(&blocks, in, n, out, length)
	                      : sl_fail(-ENOMEM, "no memory");
}

/* Undoes a filter that does not just add a sum. */
static int unfilter_step(struct sl_unfilter *unfilter, const struct sl_filter *filter,
                         const void *in, size_t n, void *out, size_t length)
{
	if (filter->number == BITSHUFFLE)
		return unfilter_bits(unfilter, filter, in, n, out, length);
	if (filter->number != SL_SHUFFLE_FILTER)
		return unfilter->codec->decompress(unfilter->state, in, n, out, length);
	/* HDF5 leaves out such a shuffle, and says so in the mask of the chunk. */
	if (!filter->count || !filter->values[0])
		return sl_fail(-EBADMSG, "its elements have 0 bytes");
	if (n != length)
		return sl_fail(-EBADMSG, "a chunk has %zu bytes of %zu", n, length);
	/* Elements longer than the chunk stay as they are, and would take long. */
	sl_unshuffle(in, n, filter->values[0] > n ? 1 : filter->values[0], out);
	return 0;
}

/* The length that a filter was given, when the filters below it had been applied, of which the mask
 * leaves some out. n: that it gave; where one below compresses no filter changes it. */
static size_t unfilter_length(const struct sl_filters *filters, uint32_t mask, unsigned below,
                              size_t n)
{
	size_t length = filters->bytes;

	for (unsigned i = 0; i < below; i++) {
		if (mask >> i & 1)
			continue;
		if (filter_codec(&filters->filter[i]))
			return n;
		if (filters->filter[i].number == SL_FLETCHER32_FILTER)
			length += SL_FLETCHER32_BYTES;
	}
	return length;
}

int sl_unfilter_run(struct sl_unfilter *unfilter, uint32_t mask, const void *in, size_t n,
                    void *out)
{
	const struct sl_filters *filters = unfilter->filters;
	const void *from = in;
	unsigned which = 0;

	for (unsigned i = filters->count; i--;) {
		const struct sl_filter *filter = &filters->filter[i];
		size_t length = unfilter_length(filters, mask, i, n);
		bool last = length == filters->bytes;

		if (mask >> i & 1)
			continue;
		if (filter->number == SL_FLETCHER32_FILTER) {
			n -= SL_MIN(n, SL_FLETCHER32_BYTES);
			if (!n || !sl_fletcher32_holds(from, n))
				return sl_fail(-EBADMSG, "fletcher32: it has another checksum");
			continue;
		}
		/* The filter that is undone last writes where the chunk belongs. */
		for (unsigned k = 0; k < i; k++)
			last = last &&
			       (mask >> k & 1 || filters->filter[k].number == SL_FLETCHER32_FILTER);
		char *to = last ? out : unfilter_scratch(unfilter, which++ % 2, length);
		if (!to)
			return sl_fail(-ENOMEM, "no memory");
		int rc = unfilter_step(unfilter, filter, from, n, to, length);
		if (rc)
			return sl_fail(rc, "%s: %s", sl_filter_name(filter), sluice_last_message());
		from = to;
		n = length;
	}
	if (n != filters->bytes)
		return sl_fail(-EBADMSG, "it has %zu bytes, not %zu", n, filters->bytes);
	if (from != out)
		memcpy(out, from, n);
	return 0;
}
