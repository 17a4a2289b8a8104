/* SPDX-License-Identifier: Apache-2.0 */
#include "catalogue/catalogue_stress.h"

#define HELD 12

struct holding {
	struct sl_held_blob blob;
	unsigned name;
	bool is;
};

static void check(const struct holding *h)
{
	const struct sl_blob_record *record = &h->blob.record;
	uint64_t stamp = record->range.memory;
	const uint8_t *metadata = record->metadata;
	char name[16];
	size_t length = (size_t)snprintf(name, sizeof(name), "n%u", h->name);

	if (record->key.length != length || memcmp(record->key.name, name, length) != 0)
		stress_fail("it is called %.*s, not %s", (int)record->key.length, record->key.name,
		            name);
	if (record->size != stamp * 3 || record->creator != stamp + 1 ||
	    record->metadata_size != stress_metadata_size(stamp) ||
	    record->range.offset >= REGIONS) {
		stress_fail("the record of %s is not one", name);
		return;
	}
	for (size_t i = 0; i < record->metadata_size; i++)
		if (metadata[i] != (stamp & 0xff))
			stress_fail("metadata of %s: byte %zu", name, i);
	for (unsigned i = 0; i < WORDS; i++)
		if (stress->memory[record->range.offset][i] != stress_word(stamp, i))
			stress_fail("%s, stamp %llu: word %u is of another blob", name,
			            (unsigned long long)stamp, i);
}

static void get(const struct sl_reader *reader, struct holding *h, unsigned which)
{
	char name[16];
	struct sl_blob_key key = {.name = name,
	                          .length = (size_t)snprintf(name, sizeof(name), "n%u", which)};
	int err = sl_reader_get(reader, &key, &h->blob);

	if (err) {
		if (err != -ENOENT && err != -EAGAIN)
			stress_fail("%s: %s", name, strerror(-err));
		atomic_fetch_add_explicit(&stress->asked, 1, memory_order_relaxed);
		return;
	}
	h->is = true;
	h->name = which;
	atomic_fetch_add_explicit(&stress->gets, 1, memory_order_relaxed);
	check(h);
}

static void let_go(const struct sl_reader *reader, struct holding *h)
{
	check(h);
	sl_reader_release(reader, &h->blob);
	h->is = false;
}

void stress_read(unsigned index)
{
	struct holding holdings[HELD] = {0};
	struct sl_segment *segment = stress->segment;
	struct sl_references *references = stress->references[index];
	uint64_t random = stress->seed ^ (uint64_t)(index + 1) << 32;
	struct sl_reader reader;

	if (!stress->threads &&
	    (sl_segment_map(stress->segment_fd, false, &segment) ||
	     sl_references_map(stress->references_fds[index], true, &references)))
		stress_fail("a reader cannot map what it needs");
	reader = (struct sl_reader){.segment = segment, .references = references};
	while (!atomic_load(&stress->stop)) {
		uint64_t chance = stress_random(&random);
		struct holding *h = &holdings[chance % HELD];

		if (h->is)
			let_go(&reader, h);
		else
			get(&reader, h, (chance >> 8) % NAMES);
		if (chance >> 32 & 1)
			stress_pause();
	}
	for (unsigned i = 0; i < HELD; i++)
		if (holdings[i].is)
			let_go(&reader, &holdings[i]);
}
