/* SPDX-License-Identifier: Apache-2.0 */
/* A catalogue with its server's side and one reader in one process, each with mappings of its own. */
#ifndef TESTS_STORE_SHOP_H
#define TESTS_STORE_SHOP_H

#include <unistd.h>

#include "catalogue/notes.h"
#include "lib/support.h"

static inline uint32_t free_slots(const struct sl_catalogue *catalogue)
{
	return catalogue->free_slots.count;
}

struct shop {
	int fd, references_fd;
	struct sl_segment *segment; /* the server's mapping */
	struct sl_catalogue *catalogue;
	struct sl_references *seen; /* the server's mapping */
	struct sl_segment *read;
	struct sl_reader reader;
};

void shop_open(struct shop *shop, uint32_t slots);
void shop_close(struct shop *shop);
/* A test of which *state is a shop, here the file's own, which has the least of slots. */
int shop_setup(void **state);
int shop_teardown(void **state);
#define SHOP_TEST(name) TEST_CASE(name, shop_setup, shop_teardown, &shop, NULL)
/* Another server takes the segment over; its result for `broken`. */
unsigned shop_replace_server(struct shop *shop);

/* "name/N"; good for three calls more. */
const char *name_of(unsigned n);
struct sl_blob_key key_of(const char *name);
/* A record with that name in which every number follows from n. */
struct sl_blob_record record_of(const char *name, uint64_t n);
/* They must succeed; the slot. */
uint32_t shop_put(struct shop *shop, const char *name, uint64_t n, bool sealed);
void shop_delete(struct shop *shop, const char *name);

int shop_get(const struct shop *shop, const char *name, struct sl_held_blob *out);
/* The name is got, has what record_of(name, n) says, and is released. */
void assert_there(const struct shop *shop, const char *name, uint64_t n);
void assert_record(const struct sl_blob_record *record, const char *name, uint64_t n);

/* What a sweep said. */
struct swept {
	unsigned held, gone, away, stays;
	uint32_t last; /* slot */
};
struct swept shop_sweep(struct shop *shop);

#endif
