/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of tensors
 *
 * The table that finds a name and refuses a second, and the memory of names and shapes. The seed of
 * the hash is drawn, so that no file can have names that share a slot. A table and an arena have a
 * single writer; any thread may look up afterwards.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tensors/header.h"

#define CHUNK ((size_t)32 << 10)

struct sl_arena_chunk {
	struct sl_arena_chunk *next;
	size_t size;
	_Alignas(8) char bytes[];
};

int sl_names_init(struct sl_names *names, size_t most)
{
	size_t slots = 8;

	while (slots < 2 * most)
		slots *= 2;
	names->slots = calloc(slots, sizeof(*names->slots));
	if (!names->slots)
		return sl_fail(-ENOMEM, "no memory for the table of %zu names", most);
	names->mask = slots - 1;
	if (getrandom(&names->seed, sizeof(names->seed), GRND_NONBLOCK) < 0)
		names->seed = (uint64_t)sl_now();
	return 0;
}

struct sl_name *sl_names_slot(const struct sl_names *names, const char *text)
{
	size_t at = XXH3_64bits_withSeed(text, strlen(text), names->seed);

	while (names->slots[at &= names->mask].text && strcmp(names->slots[at].text, text))
		at++;
	return &names->slots[at];
}

/* ------------------------------------------------------------------------------------- memory */

void *sl_arena_take(struct sl_arena *arena, size_t n)
{
	struct sl_arena_chunk *chunk = arena->chunks;
	size_t rounded = (n + 7) & ~(size_t)7;

	if (!chunk || arena->left < rounded) {
		size_t size = SL_MAX(rounded, CHUNK);

		chunk = malloc(sizeof(*chunk) + size);
		if (!chunk)
			return NULL;
		chunk->next = arena->chunks;
		chunk->size = arena->left = size;
		arena->chunks = chunk;
	}
	arena->left -= rounded;
	return chunk->bytes + chunk->size - arena->left - rounded;
}

void sl_arena_clear(struct sl_arena *arena)
{
	while (arena->chunks) {
		struct sl_arena_chunk *chunk = arena->chunks;

		arena->chunks = chunk->next;
		free(chunk);
	}
}

void *sl_array_grown(void *array, size_t count, size_t element)
{
	if (count & (count - 1))
		return array;
	return reallocarray(array, count ? 2 * count : 1, element);
}
