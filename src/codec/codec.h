/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the frame writer does to the bytes of a chunk: the contract of codecs, byte shuffle and
 * rounding. What comes out is what HDF5's own filters of the same numbers write and read.
 */
#ifndef SL_CODEC_H
#define SL_CODEC_H

#include "core/core.h"

/* ------------------------------------------------------------------------------------- codec */

#define SL_CODEC_VALUES   5                 /* a bound on the client data of a filter */
#define SL_CODEC_LEVEL    1                 /* the level where nothing else is asked for */
#define SL_BITSHUFFLE_LZ4 2                 /* the fifth of the client data of filter 32008 */
#define SL_CODEC_MOST     ((size_t)1 << 31) /* no chunk is longer: a bound of some encoders */

/*
 * One encoder of one format. A state belongs to one thread at a time and to one level; threads
 * with a state each need no lock. Nothing is allocated for a chunk of the length that the state
 * was made for: what it needs it gets when it is made. (zstd gives some of that back after shorter
 * pieces, as samples are, and takes it again.)
 */
struct sl_codec {
	const char *name;    /* of the format; several encoders may share it */
	const char *encoder; /* the library, for people */
	const char *missing; /* NULL; else why it is not built in, and all below is NULL */
	int filter;          /* HDF5's number; 0: the chunk is stored as it is */
	int least, most;     /* levels; 0 and 0: it has none, and takes any */
	bool shuffles;       /* by itself: a byte shuffle before it is of no use */

	/* What the filter's parameters in the file are for this level, and elements of so many bytes; how many. */
	unsigned (*client_data)(int level, size_t element, unsigned values[SL_CODEC_VALUES]);
	/* Room in which any n bytes fit. */
	size_t (*bound)(size_t n);
	/* For chunks of n bytes; shorter ones work too. -ENOMEM with a sentence. */
	int (*state_new)(int level, size_t element, size_t n, void **out);
	void (*state_free)(void *state); /* NULL is allowed */
	/* Memory that a state has, in bytes. */
	size_t (*state_bytes)(const void *state);
	/* The length in out, or 0: it does not fit. Room below n is how a caller says that a chunk
	 * which does not become smaller is of no use. Out may be garbage then. */
	size_t (*compress)(void *state, const void *in, size_t n, void *out, size_t room);
	/* Into exactly length bytes; -EBADMSG with a sentence if in is not that. in may be hostile. */
	int (*decompress)(void *state, const void *in, size_t n, void *out, size_t length);
};

/* "none", "deflate", "zstd", "lz4", "bitshuffle-lz4", at a level. -EINVAL: there is no such name or level; -ENOTSUP:
 * it is not built in; each with a sentence. */
int sl_codec_find(const char *name, int level, const struct sl_codec **out);
/* All of them, those that are not built in too; NULL past the last. */
const struct sl_codec *sl_codec_at(size_t index);

/*
 * Whether a chunk (shuffled, if it will be) is worth its compression: samples of it become smaller
 * by a thirty-second part, at least. Costs a hundredth or two of the compression where the answer
 * is a clear yes, a fifth where it is no; short chunks are always worth a try. Scratch is garbage afterwards; if
 * it holds less than bound(SL_CODEC_SAMPLE) bytes the answer is yes.
 */
#define SL_CODEC_SAMPLE ((size_t)64 << 10)
bool sl_codec_pays(const struct sl_codec *codec, void *state, const void *in, size_t n,
                   void *scratch, size_t room);

extern const struct sl_codec sl_codec_none, sl_codec_isal, sl_codec_libdeflate, sl_codec_zstd,
	sl_codec_lz4, sl_codec_bitshuffle;

/* -------------------------------------------------------------------------------------- SIMD */

/* What shuffling and rounding are done with, slowest first. What comes out is the same. */
enum sl_simd { SL_SIMD_NONE, SL_SIMD_SSE2, SL_SIMD_AVX2, SL_SIMD_WAYS };
enum sl_simd sl_simd(void);
/* For tests: what is used from now on, at most; what is used then. Not while others use it. */
enum sl_simd sl_simd_limit(enum sl_simd most);

/* ----------------------------------------------------------------------------------- shuffle */

/* HDF5's number of the filter; its client data is the size of an element. */
#define SL_SHUFFLE_FILTER 2

/*
 * HDF5's byte shuffle: the first bytes of all elements, then the second ones, and so on; what is
 * left of n beyond whole elements stays at the end as it is. in and out do not overlap.
 */
void sl_shuffle(const void *in, size_t n, size_t size, void *out);
void sl_unshuffle(const void *in, size_t n, size_t size, void *out);
/*
 * A part of that, for chunks whose elements do not lie together: elements in a row go to out, and
 * their second bytes to out + plane, where plane is the number of elements in the chunk.
 */
void sl_shuffle_row(const void *in, size_t elements, size_t size, void *out, size_t plane);
/* The way back, from in, in + plane, ... */
void sl_unshuffle_row(const void *in, size_t plane, size_t elements, size_t size, void *out);
/*
 * The bit shuffle of filter 32008: the lowest bits of the first bytes of all elements, then the next bits, and so
 * on. elements is a multiple of 8. planes is scratch of as many bytes; none of the three overlap.
 */
void sl_bit_shuffle(const void *in, size_t elements, size_t size, void *planes, void *out);
void sl_bit_unshuffle(const void *in, size_t elements, size_t size, void *planes, void *out);

/* --------------------------------------------------------------------------------- precision */

enum sl_float { SL_FLOAT16, SL_FLOAT32, SL_FLOAT64 };

/* Mantissa bits that the type has: 10, 23, 52. To keep so many or more changes nothing. */
unsigned sl_float_mantissa(enum sl_float type);
/*
 * Rounds count numbers to the nearest with so many bits of mantissa behind the leading one, ties to
 * even; returns the largest absolute error. NaN and infinity stay as they are, bit for bit, and so
 * do signs of zero. What is finite stays finite: the numbers that would round to infinity get the
 * largest number with so many bits. Numbers below the smallest normal one keep as many places as
 * that has, and may become zero. At least one bit; both are aligned to the type; in may be out.
 */
double sl_precision_round(enum sl_float type, const void *in, size_t count, unsigned bits,
                          void *out);

#endif
