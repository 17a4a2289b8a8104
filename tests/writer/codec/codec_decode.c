/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tests' decoders of codecs, for programs in Python.
 *
 * Without arguments: a line for each codec, with its name, its filter and 1 if it shuffles bits itself.
 * With "FILTER ELEMENT LENGTH": decodes chunks that become LENGTH bytes each. The standard input has the length of each,
 * a uint64_t, before it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "codec/codec_common.h"

static int decode_all(const struct reference *known, size_t element, size_t length)
{
	unsigned char *in = NULL, *out = malloc(length + 1);
	uint64_t n;
	bool good = out;

	while (good && fread(&n, sizeof(n), 1, stdin) == 1) {
		free(in);
		in = malloc(n + 1);
		good = in && fread(in, 1, n, stdin) == n &&
		       known->decode(in, n, element, out, length) &&
		       fwrite(out, 1, length, stdout) == length;
	}
	free(in);
	free(out);
	if (!good)
		fprintf(stderr, "a chunk is not to be read by the decoder of %s\n", known->name);
	return !good;
}

int main(int argc, char **argv)
{
	const struct reference *known = argc > 3 ? reference_of(atoi(argv[1])) : NULL;

	for (const struct reference *r = references; argc == 1 && r->name; r++)
		printf("%s %d %d\n", r->name, r->filter, r->shuffles);
	if (known)
		return decode_all(known, strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
	if (argc > 1)
		fprintf(stderr, "tests/writer/codec/codec_reference.c has no filter %s\n", argv[1]);
	return argc > 1;
}
