/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <sys/mman.h>

#include "codec/codec_common.h"

#define PAGE   ((size_t)4096)
#define PERIOD 5000

const char *const field_names[FIELDS] = {
	"zeros", "noise", "smooth float32", "smooth float64", "steps", "text", "repeated noise",
};

struct fenced fenced_new(size_t n)
{
	struct fenced f = {.length = n, .mapped = (n + PAGE - 1) / PAGE * PAGE + PAGE};

	f.base = mmap(NULL, f.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(f.base != MAP_FAILED);
	assert_int_equal(mprotect((char *)f.base + f.mapped - PAGE, PAGE, PROT_NONE), 0);
	f.data = (unsigned char *)f.base + f.mapped - PAGE - n;
	return f;
}

void fenced_free(struct fenced *f)
{
	munmap(f->base, f->mapped);
	*f = (struct fenced){0};
}

static double wave(size_t i, uint64_t *seed)
{
	double x = (double)(i % 1080), y = (double)i / 1080;
	double noise = (double)(unit_random(seed) >> 11) * 0x1p-53;

	return 2 + sin(x * 0.011) * cos(y * 0.017) + 0.3 * sin(0.05 * (x + y)) + noise * 0x1p-17;
}

static void fill_words(uint64_t *seed, unsigned char *out, size_t n)
{
	static const char *const words[] = {"frame ", "series ", "chunk ", "writer\n", "0.054 "};
	size_t i = 0;

	while (i < n)
		for (const char *w = words[unit_random(seed) % 5]; *w && i < n; w++)
			out[i++] = *w;
}

void field_fill(enum field field, uint64_t *seed, void *out, size_t n)
{
	unsigned char *bytes = out;
	uint16_t step = 1000;
	double value64;
	float value32;

	memset(out, 0, n);
	switch (field) {
	case FIELD_NOISE:
		for (size_t i = 0; i < n; i++)
			bytes[i] = unit_random(seed);
		break;
	case FIELD_SMOOTH32:
		for (size_t i = 0; i + sizeof(value32) <= n; i += sizeof(value32)) {
			value32 = wave(i / sizeof(value32), seed);
			memcpy(bytes + i, &value32, sizeof(value32));
		}
		break;
	case FIELD_SMOOTH64:
		for (size_t i = 0; i + sizeof(value64) <= n; i += sizeof(value64)) {
			value64 = wave(i / sizeof(value64), seed);
			memcpy(bytes + i, &value64, sizeof(value64));
		}
		break;
	case FIELD_STEPS16:
		for (size_t i = 0; i + sizeof(step) <= n; i += sizeof(step)) {
			step += unit_random(seed) % 7 - 3;
			memcpy(bytes + i, &step, sizeof(step));
		}
		break;
	case FIELD_TEXT:
		fill_words(seed, bytes, n);
		break;
	case FIELD_REPEATED:
		for (size_t i = 0; i < n; i++)
			bytes[i] = i < PERIOD ? unit_random(seed) : bytes[i - PERIOD];
		break;
	case FIELD_ZEROS:
	case FIELDS:
		break;
	}
}
