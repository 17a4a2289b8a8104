/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs, byte shuffle, bit shuffle and rounding: the frame writer's processing of chunks. The
 * output is compatible with HDF5's filters of the same numbers.
 */
#ifndef SL_CODEC_H
#define SL_CODEC_H

#include "core/core.h"

/* ------------------------------------------------------------------------------------- codec */

#define SL_CODEC_VALUES    5                 /* maximum number of client data values of a filter */
#define SL_CODEC_LEVEL     1                 /* default level */
#define SL_BITSHUFFLE_LZ4  2                 /* fifth client data value of filter 32008; */
#define SL_BITSHUFFLE_ZSTD 3                 /* or this; 0: its blocks are not compressed */
#define SL_CODEC_MOST      ((size_t)1 << 31) /* bytes of a chunk, a limit of some encoders */

/*
 * An encoder of a format.
 *
 * A state belongs to one level and to one thread at a time; threads with separate states need no
 * lock. state_new() allocates all memory, so that compressing a chunk of length n allocates
 * nothing. (zstd releases some of it after shorter inputs, such as samples, and allocates it
 * again.)
 */
struct sl_codec {
	const char *name;    /* of the format, which several encoders may share */
	const char *encoder; /* name of the library, for users */
	/* NULL, or the reason why it is not built in; all below is NULL then */
	const char *missing;
	/* what a reader needs besides HDF5, for a sentence that begins with "readers need"; NULL:
	 * nothing */
	const char *plugin;
	int filter;      /* HDF5's number; 0: chunks are stored uncompressed */
	int least, most; /* levels; 0 and 0: any level is accepted */
	bool shuffles;   /* shuffles bits itself; a byte shuffle before is useless */

	/* Writes the filter's parameters for this level and element size; returns their number. */
	unsigned (*client_data)(int level, size_t element, unsigned values[SL_CODEC_VALUES]);
	/* Returns the maximum compressed size of n bytes. */
	size_t (*bound)(size_t n);
	/* Makes a state for chunks of up to n bytes. Returns -ENOMEM with a sentence. */
	int (*state_new)(int level, size_t element, size_t n, void **out);
	void (*state_free)(void *state); /* NULL is allowed */
	/* Returns the memory of a state in bytes. */
	size_t (*state_bytes)(const void *state);
	/*
	 * Returns the compressed length, or 0 if it exceeds room; out is garbage then. With room <
	 * n incompressible chunks are given up early. An empty chunk becomes at least 1 byte: HDF5
	 * stores no chunk of 0 bytes. Text, and fields whose neighbours are alike, must shrink.
	 */
	size_t (*compress)(void *state, const void *in, size_t n, void *out, size_t room);
	/*
	 * Writes a chunk as the format stores bytes that do not shrink. Returns the length, which
	 * is more than n and at most bound(n). NULL: there is no filter.
	 */
	size_t (*store)(void *state, const void *in, size_t n, void *out);
	/*
	 * Decompresses into exactly length bytes. `in` may be hostile. Returns -EBADMSG with a
	 * sentence if it is malformed or has another length.
	 */
	int (*decompress)(void *state, const void *in, size_t n, void *out, size_t length);
	/* The same of a block alone, as filter 32008 has it. NULL: of no such block. */
	int (*block)(void *state, const void *in, size_t n, void *out, size_t length);
};

/* Writes the names of all codecs, built in or not, with the numbers of their filters, for
 * sentences. */
#define SL_CODEC_LIST 256
void sl_codec_list(char text[SL_CODEC_LIST]);

/*
 * Finds a codec of the table in codec.c for a level.
 *
 * Returns 0, or with a sentence
 *   -EINVAL   there is no such name or level
 *   -ENOTSUP  it is not built in
 */
int sl_codec_find(const char *name, int level, const struct sl_codec **out);
/* The client_data() of filters with the level as their only parameter. */
unsigned sl_codec_level_data(int level, size_t element, unsigned values[SL_CODEC_VALUES]);
/* Returns the codec at index, built in or not, or NULL past the last. */
const struct sl_codec *sl_codec_at(size_t index);
/* Returns a built-in codec with this number in HDF5, or the first that is not built in; or NULL. */
const struct sl_codec *sl_codec_of(int filter);

/*
 * Returns true if a chunk, already shuffled if it will be, is worth compressing: samples shrink by
 * at least 1/32.
 *
 * The cost is 1 to 2 % of compressing if the answer is clearly true, and 20 % if it is false. Short
 * chunks always return true, as does scratch of less than bound(SL_CODEC_SAMPLE) bytes. Scratch is
 * garbage afterwards.
 */
#define SL_CODEC_SAMPLE ((size_t)64 << 10)
bool sl_codec_pays(const struct sl_codec *codec, void *state, const void *in, size_t n,
                   void *scratch, size_t room);

extern const struct sl_codec sl_codec_none, sl_codec_isal, sl_codec_libdeflate, sl_codec_zstd,
	sl_codec_lz4, sl_codec_bitshuffle;

/* ------------------------------------------------------------------------------ filters undone */

#define SL_FILTERS_MOST  16 /* of a dataset */
#define SL_FILTER_VALUES 20

/* A filter of HDF5, as a file of any program has it. */
struct sl_filter {
	int number;
	unsigned count; /* of client data values */
	unsigned values[SL_FILTER_VALUES];
	char name[32];
};
/* The filters of a dataset, in the order in which they were applied. */
struct sl_filters {
	unsigned count;
	struct sl_filter filter[SL_FILTERS_MOST];
	size_t bytes; /* in a chunk without filters, at most SL_CODEC_MOST */
};

/* Names filters as people know them. */
const char *sl_filter_name(const struct sl_filter *filter);
/* Returns 0, or -ENOTSUP with a sentence: a filter is not known or not built in, or two of them
 * compress. */
int sl_filters_check(const struct sl_filters *filters);

/* Memory for a thread that undoes filters. `filters` has to stay. -ENOMEM with a sentence. */
struct sl_unfilter;
int sl_unfilter_new(const struct sl_filters *filters, struct sl_unfilter **out);
void sl_unfilter_free(struct sl_unfilter *unfilter); /* NULL is allowed */
/* Undoes the filters of a chunk, but for those in HDF5's mask. `in` may be hostile. Returns
 * -EBADMSG with a sentence that names the filter, or -ENOMEM. */
int sl_unfilter_run(struct sl_unfilter *unfilter, uint32_t mask, const void *in, size_t n,
                    void *out);

/* Chunks of blocks, as filters 32004 and 32008 have them. */
struct sl_blocks {
	size_t element;               /* bytes of an element with shuffled bits; 0: 32004 */
	size_t most;                  /* bytes in a block, where no codec says it in the chunk */
	const struct sl_codec *codec; /* with block(), or NULL */
	void *state;                  /* the codec's */
	void *scratch;                /* with `element`: room for two blocks */
	size_t room;
};
#define SL_BITSHUFFLE_MOST 4096 /* bytes in an element */
/* Bytes in a block where a file does not say; bytes of scratch for files by any program. */
#define SL_BITSHUFFLE_BLOCK(element)   (SL_MAX(8192 / (element) / 8 * 8, (size_t)128) * (element))
#define SL_BITSHUFFLE_SCRATCH(element) (4 * SL_BITSHUFFLE_BLOCK(element) + ((size_t)1 << 20))
/* As decompress() above. */
int sl_blocks_undo(const struct sl_blocks *blocks, const void *in, size_t n, void *out,
                   size_t length);
/* For 32000, which is LZF. */
int sl_lzf_decompress(void *state, const void *in, size_t n, void *out, size_t length);
/* For 32001, which is Blosc 1, by libblosc. The first is 0, or -ENOTSUP with a sentence. */
int sl_blosc_load(void);
int sl_blosc_decompress(void *state, const void *in, size_t n, void *out, size_t length);

/* -------------------------------------------------------------------------------------- SIMD */

/* Instruction sets for shuffle and rounding, slowest first. Results are identical. */
enum sl_simd { SL_SIMD_NONE, SL_SIMD_SSE2, SL_SIMD_AVX2, SL_SIMD_WAYS };
enum sl_simd sl_simd_used(void);
/* Limits the instruction set, for tests; returns the set in use. Not while other threads use it. */
enum sl_simd sl_simd_limit(enum sl_simd most);

/* ----------------------------------------------------------------------------------- shuffle */

/* HDF5's number of the filter; its client data is the size of an element. */
#define SL_SHUFFLE_FILTER 2

/*
 * HDF5's byte shuffle: the first bytes of all elements, then the second bytes, and so on; bytes
 * after the last whole element are copied. in and out do not overlap.
 */
void sl_shuffle(const void *in, size_t n, size_t size, void *out);
void sl_unshuffle(const void *in, size_t n, size_t size, void *out);
/*
 * Shuffles a row of elements of a chunk whose elements are not contiguous: first bytes go to out,
 * second bytes to out + plane, where plane is the number of elements in the chunk.
 */
void sl_shuffle_row(const void *in, size_t elements, size_t size, void *out, size_t plane);
/* Undoes sl_shuffle_row(), reading from in, in + plane, ... */
void sl_unshuffle_row(const void *in, size_t plane, size_t elements, size_t size, void *out);
/*
 * The bit shuffle of filter 32008: the lowest bits of the first bytes of all elements, then the
 * next bits, and so on. elements is a multiple of 8; planes is scratch of the same size. None of
 * the three overlap.
 */
void sl_bit_shuffle(const void *in, size_t elements, size_t size, void *planes, void *out);
void sl_bit_unshuffle(const void *in, size_t elements, size_t size, void *planes, void *out);

/* --------------------------------------------------------------------------------- checksum */

/* HDF5's number of the filter, which is the last. */
#define SL_FLETCHER32_FILTER 3
#define SL_FLETCHER32_BYTES  4

/* Writes the checksum of n bytes behind them. */
void sl_fletcher32_put(void *bytes, size_t n);
/* Returns whether it is behind n bytes. */
bool sl_fletcher32_holds(const void *bytes, size_t n);

/* --------------------------------------------------------------------------------- precision */

enum sl_float { SL_FLOAT16, SL_FLOAT32, SL_FLOAT64 };

/* Returns the mantissa bits of the type: 10, 23 or 52. Keeping that many changes nothing. */
unsigned sl_float_mantissa(enum sl_float type);
/*
 * Rounds count numbers to that many mantissa bits, at least 1, to nearest, ties to even. Returns
 * the largest absolute error.
 *
 * NaN, infinity and signs of zero are preserved bit for bit. Finite numbers stay finite: instead of
 * infinity they become the largest number with that many bits. Subnormal numbers keep the places of
 * the smallest normal number, and may become zero. Both pointers are aligned to the type; in may
 * equal out.
 */
double sl_precision_round(enum sl_float type, const void *in, size_t count, unsigned bits,
                          void *out);

#endif
