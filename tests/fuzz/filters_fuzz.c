/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Undoes filters of chunks that are mutated, with values of filters that are, too, and requires a sentence for each that is
 * refused. Memory is as long as it is said to be, so that the sanitizer sees what goes beyond. Arguments: seconds, and a
 * seed to repeat a run.
 */
#include <errno.h>
#include <string.h>

#include "codec/codec.h"
#include "core/core.h"
#include "fuzz/fuzz.h"

#define MOST 5000

static uint64_t undone, refused, unknown;

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}

/* Of several the last compresses, mostly: others are refused. */
static void filter_draw(struct sl_filter *filter, bool last)
{
	static const int numbers[] = {1, 2, 3, 32000, 32001, 32004, 32008, 32015};

	memset(filter, 0, sizeof(*filter));
	filter->number = !draw(20)           ? (int)draw(70000)
	                 : last || !draw(10) ? numbers[draw(sizeof(numbers) / sizeof(numbers[0]))]
	                                     : 2 + (int)draw(2);
	filter->count = (unsigned)draw(7);
	if (draw(4) && !filter->count)
		filter->count = 1;
	for (unsigned i = 0; i < filter->count; i++)
		filter->values[i] = (unsigned)(draw(4) ? draw(20) : draw(UINT32_MAX));
}

/* Bytes that a codec made of the chunk, with some of them others; or noise. */
static size_t input_make(const struct sl_filters *filters, unsigned char *to, size_t room)
{
	const struct sl_codec *codec = NULL;
	unsigned char chunk[MOST];
	size_t n = 0;
	void *codec_state;

	for (size_t i = 0; i < filters->bytes; i++)
		chunk[i] = (unsigned char)(draw(5) ? i / 16 : draw(256));
	for (size_t i = 0; filters->count && sl_codec_at(i); i++)
		if (sl_codec_at(i)->filter == filters->filter[filters->count - 1].number &&
		    !sl_codec_at(i)->missing && sl_codec_at(i)->filter)
			codec = sl_codec_at(i);
	if (codec && draw(8) && !codec->state_new(1, 4, filters->bytes, &codec_state)) {
		n = codec->compress(codec_state, chunk, filters->bytes, to, room);
		codec->state_free(codec_state);
	}
	if (!n) {
		n = draw(SL_MIN(room, 2 * filters->bytes) + 1);
		for (size_t i = 0; i < n; i++)
			to[i] = (unsigned char)(i < filters->bytes && draw(3) ? chunk[i]
			                                                      : draw(256));
	}
	if (!draw(4))
		n = draw(n + 1);
	for (size_t i = draw(4); i && n; i--)
		to[draw(n)] ^= (unsigned char)(1 << draw(8));
	return n;
}

static void some(void)
{
	struct sl_filters filters = {.count = (unsigned)draw(4), .bytes = 1 + draw(MOST)};
	struct sl_unfilter *unfilter;
	unsigned char made[4 * MOST], *in, *out;
	size_t n;
	int rc;

	for (unsigned i = 0; i < filters.count; i++)
		filter_draw(&filters.filter[i], i + 1 == filters.count);
	rc = sl_filters_check(&filters);
	if (rc) {
		require(*sluice_last_message(), "filters are refused without a sentence");
		unknown++;
		return;
	}
	n = input_make(&filters, made, sizeof(made));
	in = malloc(n + !n);
	memcpy(in, made, n);
	out = malloc(filters.bytes);
	require(!sl_unfilter_new(&filters, &unfilter), "there is no memory");
	for (int k = 0; k < 2; k++) {
		rc = sl_unfilter_run(unfilter, draw(4) ? 0 : (uint32_t)draw(16), in, n, out);
		require(!rc || (rc == -EBADMSG && *sluice_last_message()),
		        "an error has no sentence");
		undone += !rc;
		refused += rc != 0;
	}
	sl_unfilter_free(unfilter);
	free(in);
	free(out);
}

int main(int argc, char **argv)
{
	fuzz(argc, argv, some);
	printf("%" PRIu64 " chunks undone, %" PRIu64 " refused; %" PRIu64
	       " lists of filters refused\n",
	       undone, refused, unknown);
	require(undone && refused && unknown, "a kind was never drawn");
	return 0;
}
