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

/* A codec as the tests know it. It is decoded by the library whose format it is, with none of sluice's sources. */
struct reference {
	const char *name;
	int filter;
	bool shuffles; /* its bits itself, so that a byte shuffle is not the default */
	/* False: it is not to be read, or its library is not there. */
	bool (*decode)(const unsigned char *in, size_t n, size_t element, unsigned char *out,
	               size_t length);
};
extern const struct reference references[]; /* the last has no name */
/* Returns NULL if no test has such a filter. */
const struct reference *reference_of(int filter);

#endif
