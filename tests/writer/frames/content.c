/* SPDX-License-Identifier: Apache-2.0 */
#include "frames/content.h"

static const struct {
	const char *name;
	unsigned char bytes;
	unsigned char mantissa;
} types[] = {
	[SLUICE_INT8] = {"int8", 1, 0},        [SLUICE_UINT8] = {"uint8", 1, 0},
	[SLUICE_INT16] = {"int16", 2, 0},      [SLUICE_UINT16] = {"uint16", 2, 0},
	[SLUICE_INT32] = {"int32", 4, 0},      [SLUICE_UINT32] = {"uint32", 4, 0},
	[SLUICE_INT64] = {"int64", 8, 0},      [SLUICE_UINT64] = {"uint64", 8, 0},
	[SLUICE_FLOAT16] = {"float16", 2, 10}, [SLUICE_FLOAT32] = {"float32", 4, 23},
	[SLUICE_FLOAT64] = {"float64", 8, 52},
};

size_t content_element_bytes(int type)
{
	return types[type].bytes;
}

const char *content_type_name(int type)
{
	return types[type].name;
}

unsigned content_mantissa(int type)
{
	return types[type].mantissa;
}

static uint64_t mixed(uint64_t x)
{
	x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
	return x ^ x >> 29;
}

/* Eighths, fewer than 2^11 of them: none loses a bit. */
static uint64_t half_of(uint64_t eighths)
{
	unsigned e = 0;

	if (!eighths)
		return 0;
	while (eighths >> (e + 1))
		e++;
	return (uint64_t)(e + 12) << 10 | ((eighths << (10 - e)) & 0x3ff);
}

/* The bits of a number of eighths. */
static uint64_t bits_of(int type, uint64_t eighths)
{
	float single = (float)eighths / 8;
	double real = (double)eighths / 8;
	uint64_t bits = 0;

	switch (type) {
	case SLUICE_FLOAT16:
		return half_of(eighths);
	case SLUICE_FLOAT32:
		memcpy(&bits, &single, sizeof(single));
		return bits;
	case SLUICE_FLOAT64:
		memcpy(&bits, &real, sizeof(real));
		return bits;
	default:
		return eighths;
	}
}

/* As many bits as the mantissa has. */
static uint64_t number(int type, uint64_t noise)
{
	unsigned mantissa = types[type].mantissa;

	return bits_of(type, mantissa ? noise >> (63 - mantissa) : noise);
}

static uint64_t element(const struct content *c, uint64_t frame, uint64_t i)
{
	uint64_t smooth = (i / 5 + frame * 3 + c->seed % 1000) % 251;
	uint64_t noise = mixed(i + frame * 0x9e3779b97f4a7c15u + c->seed);

	switch (c->kind) {
	case CONTENT_SAME:
		return bits_of(c->type, (frame + c->seed % 1000) % 251);
	case CONTENT_SMOOTH:
		return bits_of(c->type, smooth);
	case CONTENT_MIXED:
		return i / 1024 % 2 ? number(c->type, noise) : bits_of(c->type, smooth);
	case CONTENT_NUMBERS:
		return number(c->type, noise);
	default:
		return noise;
	}
}

void content_fill(const struct content *c, uint64_t frame, uint64_t first, size_t count, void *to)
{
	size_t bytes = types[c->type].bytes;
	unsigned char *at = to;

	/* The low bytes of a word come first. */
	for (size_t i = 0; i < count; i++, at += bytes) {
		uint64_t bits = element(c, frame, first + i);

		memcpy(at, &bits, bytes);
	}
}

static bool differs(uint64_t found, uint64_t expected, unsigned dropped)
{
	uint64_t apart = found > expected ? found - expected : expected - found;

	if (!dropped)
		return apart;
	return found % (UINT64_C(1) << dropped) || apart > UINT64_C(1) << (dropped - 1);
}

size_t content_differs(const struct content *c, uint64_t frame, size_t count, unsigned dropped,
                       const void *found)
{
	size_t bytes = types[c->type].bytes;
	const unsigned char *at = found;

	for (size_t i = 0; i < count; i++, at += bytes) {
		uint64_t expected = element(c, frame, i), bits = 0;

		memcpy(&bits, at, bytes);
		expected &= UINT64_MAX >> (64 - 8 * bytes);
		if (differs(bits, expected, dropped))
			return i;
	}
	return count;
}

double content_scalar(const struct content *c, uint64_t frame, unsigned which)
{
	return (double)frame / 8 + which * 1000 + (double)(c->seed % 1000);
}
