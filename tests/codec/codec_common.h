/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of codecs share: fields to compress, and memory that ends where a page does. */
#ifndef FRAMES_COMMON_H
#define FRAMES_COMMON_H

#include "lib/unit.h"

#include "codec/codec.h"

/* Ends at a page that nobody may touch; so does what assembly does beyond it become known. */
struct fenced {
	unsigned char *data;
	size_t length;
	void *base;
	size_t mapped;
};
struct fenced fenced_new(size_t n);
void fenced_free(struct fenced *f);

enum field {
	FIELD_ZEROS,
	FIELD_NOISE,
	FIELD_SMOOTH32, /* float32: waves, and noise of 2^-18 of them */
	FIELD_SMOOTH64, /* float64: the same */
	FIELD_STEPS16,  /* uint16: a random walk */
	FIELD_TEXT,     /* words that come again */
	FIELD_REPEATED, /* noise, the same again after 5,000 bytes */
	FIELDS
};
extern const char *const field_names[FIELDS];
void field_fill(enum field field, uint64_t *seed, void *out, size_t n);

/* By the library whose format it is, with none of sluice's sources. False: it is not to be read. */
bool reference_decode(const struct sl_codec *codec, const void *in, size_t n, void *out,
                      size_t length);

#endif
