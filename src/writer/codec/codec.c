/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Table of codecs
 *
 * Finds the codec for a name and a level, and estimates by samples whether compression pays.
 *
 * Threads: any; all tables are constant.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "codec/codec.h"

/* Rows of the encoders that this build has no libraries for. */
#define MISSING(format, library, package, number, highest, has_shuffle)                 \
	{                                                                               \
		.name = format, .encoder = library,                                     \
		.missing = "this library was built without " package, .filter = number, \
		.least = 1, .most = highest, .shuffles = has_shuffle                    \
	}
#ifdef SL_NO_ISAL
const struct sl_codec sl_codec_isal = MISSING("deflate", "ISA-L", "ISA-L (libisal)", 1, 1, false);
#endif
#ifdef SL_NO_LIBDEFLATE
const struct sl_codec sl_codec_libdeflate =
	MISSING("deflate", "libdeflate", "libdeflate", 1, 9, false);
#endif
#ifdef SL_NO_ZSTD
const struct sl_codec sl_codec_zstd = MISSING("zstd", "libzstd", "libzstd", 32015, 19, false);
#endif
#ifdef SL_NO_LZ4
const struct sl_codec sl_codec_lz4 = MISSING("lz4", "liblz4", "liblz4", 32004, 1, false);
const struct sl_codec sl_codec_bitshuffle =
	MISSING("bitshuffle-lz4", "liblz4", "liblz4", 32008, 1, true);
#endif

/* Every codec. Encoders of the same name stand side by side, and the first that has the level is
 * used. */
static const struct sl_codec *const codecs[] = {
	&sl_codec_none, &sl_codec_isal, &sl_codec_libdeflate,
	&sl_codec_zstd, &sl_codec_lz4,  &sl_codec_bitshuffle,
};

#define CODECS (sizeof(codecs) / sizeof(codecs[0]))

unsigned sl_codec_level_data(int level, size_t element, unsigned values[SL_CODEC_VALUES])
{
	(void)element;
	values[0] = level;
	return 1;
}

const struct sl_codec *sl_codec_at(size_t index)
{
	return index < CODECS ? codecs[index] : NULL;
}

const struct sl_codec *sl_codec_of(int filter)
{
	const struct sl_codec *found = NULL;

	for (size_t i = 0; filter && i < CODECS; i++)
		if (codecs[i]->filter == filter &&
		    (!found || (found->missing && !codecs[i]->missing)))
			found = codecs[i];
	return found;
}

static bool has_level(const struct sl_codec *codec, int level)
{
	return !codec->most || (level >= codec->least && level <= codec->most);
}

void sl_codec_list(char text[SL_CODEC_LIST])
{
	size_t n = 0;

	for (size_t i = 0; i < CODECS && n < SL_CODEC_LIST; i++)
		/* Encoders of the same format stand side by side. */
		if (i == 0 || strcmp(codecs[i]->name, codecs[i - 1]->name))
			n += (size_t)snprintf(text + n, SL_CODEC_LIST - n, "%s%s (%d)",
			                      i ? ", " : "", codecs[i]->name, codecs[i]->filter);
}

int sl_codec_find(const char *name, int level, const struct sl_codec **out)
{
	const struct sl_codec *named = NULL, *missing = NULL;
	int least = 0, most = 0;
	char list[SL_CODEC_LIST];

	for (size_t i = 0; i < CODECS; i++) {
		if (strcmp(codecs[i]->name, name))
			continue;
		least = named ? SL_MIN(least, codecs[i]->least) : codecs[i]->least;
		most = named ? SL_MAX(most, codecs[i]->most) : codecs[i]->most;
		named = codecs[i];
		if (!has_level(named, level))
			continue;
		if (!named->missing) {
			*out = named;
			return 0;
		}
		/* The last match, which of several encoders has the most levels. */
		missing = named;
	}
	if (!named) {
		sl_codec_list(list);
		return sl_fail(-EINVAL, "there is no codec '%s'; with HDF5's numbers there are %s",
		               name, list);
	}
	if (missing)
		return sl_fail(-ENOTSUP, "codec '%s' is not built in at level %d: %s", name, level,
		               missing->missing);
	return sl_fail(-EINVAL, "codec '%s' has levels from %d to %d, and not %d", name, least,
	               most, level);
}

/* ------------------------------------------------------------------------------------ samples */

#define PIECES 8
#define PIECE  ((size_t)4 << 10)

static bool sample_shrinks(size_t from, size_t to)
{
	return to <= from - from / 32;
}

/* Rounds down so that a sample begins at an element. */
static size_t at_element(size_t offset)
{
	return offset / 16 * 16;
}

bool sl_codec_pays(const struct sl_codec *codec, void *state, const void *in, size_t n,
                   void *scratch, size_t room)
{
	const unsigned char *bytes = in;
	size_t saved = 0, length;

	if (!codec->filter)
		return false;
	if (n <= SL_CODEC_SAMPLE || room < codec->bound(SL_CODEC_SAMPLE))
		return true;
	/*
	 * Compress pieces separately, because the planes of a shuffled chunk differ: a compressible
	 * plane pays even if the others are noise. Start at the end, where the bytes with sign and
	 * exponent are: usually the first piece decides.
	 */
	for (size_t i = PIECES; i--;) {
		length = codec->compress(state, bytes + at_element((n - PIECE) / (PIECES - 1) * i),
		                         PIECE, scratch, PIECE);
		saved += length ? PIECE - length : 0;
		if (sample_shrinks(PIECES * PIECE, PIECES * PIECE - saved))
			return true;
	}
	/* Noise that repeats is compressible: try a sample as long as a window of deflate. */
	length = codec->compress(state, bytes + at_element((n - SL_CODEC_SAMPLE) / 2),
	                         SL_CODEC_SAMPLE, scratch, SL_CODEC_SAMPLE);
	return length && sample_shrinks(SL_CODEC_SAMPLE, length);
}
