/* SPDX-License-Identifier: Apache-2.0 */
/* Segments and references with anything in them: nobody but who made it so may suffer. */
#include "catalogue/catalogue_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define HOSTILE_TEST(name) TEST_CASE(name, setup, shop_teardown, &shop, NULL)

static struct shop shop;
static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};

static int setup(void **state)
{
	(void)state;
	shop_open(&shop, SL_SLOTS_LEAST);
	for (unsigned n = 0; n < COUNT_OF(names); n++)
		shop_put(&shop, names[n], n, n % 4 != 3);
	return 0;
}

static void put_owner(void)
{
	struct sl_blob_record part = {.size = 9, .flags = SL_FLAG_PART};
	struct sl_blob_record owner = record_of("owner", 29);
	uint32_t slot;

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(
			sl_catalogue_insert(shop.catalogue, &part, SL_INSERT_SEALED, &slot), 0);
		part.next = slot + 1;
	}
	owner.next = part.next;
	assert_int_equal(sl_catalogue_insert(shop.catalogue, &owner, SL_INSERT_SEALED, &slot), 0);
}

/* A few bytes from there on get any value, or one that is nearly right. */
static void scribble(struct rng *rng, size_t from, size_t changes)
{
	uint8_t *bytes = (uint8_t *)shop.segment->header;
	size_t index = (size_t)((uint8_t *)shop.segment->entries - bytes);

	while (changes--) {
		/* The index, the fields of an entry in use, any byte. */
		size_t at[] = {SL_PAGE + rng_below(rng, index - SL_PAGE),
		               index + rng_below(rng, COUNT_OF(names)) * sizeof(struct sl_entry) +
		                       rng_below(rng, 120),
		               from + rng_below(rng, shop.segment->bytes - from)};
		volatile uint8_t *byte = &bytes[at[rng_below(rng, COUNT_OF(at))]];

		if (rng_below(rng, 2))
			*byte = (uint8_t)rng_next(rng);
		else
			*byte ^= (uint8_t)(1 << rng_below(rng, 8));
	}
}

static void assert_inside(const struct sl_held_blob *held)
{
	const char *from = (const char *)shop.read->header, *to = from + shop.read->bytes;
	const struct sl_blob_record *record = &held->record;

	assert_true(held->slot < SL_SLOTS_LEAST);
	assert_true(record->key.length <= SL_NAME_MOST);
	assert_true(record->key.name >= from && record->key.name + record->key.length <= to);
	assert_true(record->metadata_size <= SL_METADATA_MOST);
	assert_true((const char *)record->metadata >= from &&
	            (const char *)record->metadata + record->metadata_size <= to);
	assert_true(record->range.offset + record->size >= record->size);
}

/* A chain of parts may go anywhere, and in a circle. */
static void read_parts(const struct sl_held_blob *held)
{
	struct sl_held_blob part = *held;

	for (unsigned i = 0; i < SL_SLOTS_LEAST; i++) {
		if (sl_reader_part(&shop.reader, &part.record, &part.record))
			return;
		assert_inside(&part);
	}
}

static unsigned read_everything(void)
{
	unsigned got = 0;

	for (unsigned n = 0; n < COUNT_OF(names); n++) {
		struct sl_blob_key id = {.id = n + 1};
		struct sl_held_blob held;

		if (shop_get(&shop, "owner", &held) == 0) {
			assert_inside(&held);
			read_parts(&held);
			sl_reader_release(&shop.reader, &held);
		}
		if (shop_get(&shop, names[n], &held) == 0) {
			assert_inside(&held);
			read_parts(&held);
			sl_reader_release(&shop.reader, &held);
			got++;
		}
		if (sl_reader_get(&shop.reader, &id, &held) == 0) {
			assert_inside(&held);
			sl_reader_release(&shop.reader, &held);
		}
		if (sl_reader_take(&shop.reader, n * 7, n % 3, &held) == 0) {
			assert_inside(&held);
			sl_reader_release(&shop.reader, &held);
		}
	}
	return got;
}

HOSTILE_TEST(a_reader_survives_any_segment)
{
	struct rng rng = rng_new(1);
	unsigned got = 0, rounds = 0;

	for (; rounds < 3000; rounds++) {
		if (rounds % 50 == 0) {
			shop_close(&shop);
			setup(NULL);
			put_owner();
		}
		scribble(&rng, 64, 1 + rng_below(&rng, 40));
		got += read_everything();
	}
	print_message("%u of %zu were still got\n", got, rounds * COUNT_OF(names));
	assert_in_range(got, rounds, rounds * (COUNT_OF(names) - 3) - 1);
}

static _Atomic bool enough;

static void *scribble_on(void *argument)
{
	struct rng rng = rng_new(2);

	(void)argument;
	while (!atomic_load(&enough))
		scribble(&rng, 64, 1);
	return NULL;
}

HOSTILE_TEST(a_reader_survives_a_segment_that_changes)
{
	pthread_t thread;

	atomic_store(&enough, false);
	assert_int_equal(pthread_create(&thread, NULL, scribble_on, NULL), 0);
	for (unsigned i = 0; i < 20000; i++)
		read_everything();
	atomic_store(&enough, true);
	pthread_join(thread, NULL);
}

/* What holds of any catalogue that a server has taken over. */
static void assert_sound(void)
{
	struct sl_blob_record record;
	unsigned used = 0, pages = 0, live = 0, known = 0;
	uint32_t end = sl_catalogue_end(shop.catalogue), found;

	for (uint32_t slot = 0; slot < end; slot++) {
		enum sl_entry_state state = sl_catalogue_state(shop.catalogue, slot);

		used += state != SL_ENTRY_FREE;
		if (state == SL_ENTRY_FREE || state == SL_ENTRY_DYING)
			continue;
		sl_catalogue_record(shop.catalogue, slot, &record);
		pages += record.metadata_size > SL_METADATA_INLINE;
		if (record.flags & SL_FLAG_PART)
			continue;
		assert_int_equal(sl_catalogue_find(shop.catalogue, &record.key, &found), 0);
		assert_int_equal(found, slot);
		live++;
	}
	for (uint32_t i = 0; i < shop.segment->lines * SL_LINE_WORDS; i++)
		known += shop.segment->index[i / SL_LINE_WORDS].words[i % SL_LINE_WORDS] != 0;
	assert_int_equal(known, live);
	assert_int_equal(free_slots(shop.catalogue) + used, SL_SLOTS_LEAST);
	assert_in_range(shop.catalogue->free_pages.count + pages, 0,
	                SL_SLOTS_LEAST / SL_SLOTS_FOR_PAGE);
	shop_sweep(&shop);
	for (uint32_t slot = 0; slot < end; slot++)
		assert_int_not_equal(sl_catalogue_state(shop.catalogue, slot), SL_ENTRY_DYING);
	assert_int_equal(shop.catalogue->free_pages.count + pages,
	                 SL_SLOTS_LEAST / SL_SLOTS_FOR_PAGE);
}

HOSTILE_TEST(a_new_server_survives_any_segment)
{
	struct rng rng = rng_new(3);
	unsigned broken = 0;

	for (unsigned round = 0; round < 2000; round++) {
		if (round % 10 == 0) {
			shop_close(&shop);
			setup(NULL);
			put_owner();
		}
		scribble(&rng, SL_PAGE, 1 + rng_below(&rng, 20));
		broken += shop_replace_server(&shop);
		assert_sound();
		assert_int_equal(shop_replace_server(&shop), 0);
	}
	print_message("%u records were broken\n", broken);
	assert_in_range(broken, 300, 100000);
}

HOSTILE_TEST(name_put_twice_is_there_once)
{
	struct sl_entry *entries = shop.segment->entries;

	/* As if slot 1 had been given the name of slot 0. */
	entries[1].hash = entries[0].hash;
	memcpy(entries[1].name, entries[0].name, sizeof(entries[0].name));
	assert_int_equal(shop_replace_server(&shop), 1);
	assert_there(&shop, "a", 0);
	assert_int_equal(sl_catalogue_state(shop.catalogue, 1), SL_ENTRY_DYING);
	assert_sound();
}

HOSTILE_TEST(metadata_page_belongs_to_a_single_blob)
{
	assert_int_not_equal(shop.segment->entries[9].page, 0);
	shop.segment->entries[9].page = shop.segment->entries[4].page;
	assert_int_equal(shop_replace_server(&shop), 1);
	assert_there(&shop, "e", 4);
	assert_int_equal(sl_catalogue_state(shop.catalogue, 9), SL_ENTRY_DYING);
	assert_sound();
}

HOSTILE_TEST(an_id_that_was_not_given_is_none)
{
	struct sl_blob_key key = {.id = COUNT_OF(names) + 1};

	shop.segment->entries[0].id = key.id;
	assert_int_equal(shop_replace_server(&shop), 1);
	assert_sound();
}

HOSTILE_TEST(a_name_is_in_the_index_once)
{
	struct sl_entry *entry = &shop.segment->entries[0];
	struct sl_index_line *lines[2];

	sl_index_lines(shop.segment, entry->hash, lines);
	for (unsigned i = 0; i < SL_LINE_WORDS; i++)
		if (!lines[i % 2]->words[i])
			lines[i % 2]->words[i] = sl_index_word(entry->hash, 0);
	assert_int_equal(shop_replace_server(&shop), 0);
	assert_there(&shop, "a", 0);
	assert_sound();
}

/* -------------------------------------------------------------------------------- references */

HOSTILE_TEST(a_client_that_writes_anything_holds_nothing_of_others)
{
	struct rng rng = rng_new(4);
	static const uint32_t windows[] = {UINT32_MAX, 0, 1, 77, 1024};
	struct sl_references *bad, *bad_seen;
	struct sl_held_blob held;
	int fd;

	assert_int_equal(sl_references_new(1024, &fd), 0);
	assert_int_equal(sl_references_map(fd, true, &bad), 0);
	assert_int_equal(sl_references_map(fd, true, &bad_seen), 0);
	assert_int_equal(sl_catalogue_join(shop.catalogue, bad_seen), 0);
	assert_int_equal(shop_get(&shop, "a", &held), 0);
	shop_delete(&shop, "a");
	for (unsigned round = 0; round < 300; round++) {
		struct sl_held_blob none;
		uint32_t slot;

		for (size_t i = 0; i < bad->bytes / 8; i++)
			((uint64_t *)bad->page)[i] = rng_next(&rng) >> rng_below(&rng, 64);
		atomic_store(&bad->page->window, windows[round % COUNT_OF(windows)]);
		slot = shop_put(&shop, "more", 5, true);
		assert_there(&shop, "more", 5);
		/* The word that no reference can be mistaken for: a generation that is not small. */
		shop_delete(&shop, "more");
		shop_sweep(&shop);
		assert_int_equal(sl_catalogue_state(shop.catalogue, held.slot), SL_ENTRY_DYING);
		assert_record(&held.record, "a", 0);
		assert_int_equal(shop_get(&shop, "more", &none), -ENOENT);
		sl_catalogue_references(shop.catalogue, slot, bad_seen);
	}
	/* The one thing that he can do is to hold what he could hold. */
	sl_catalogue_part(shop.catalogue, bad_seen);
	shop_sweep(&shop);
	assert_int_equal(free_slots(shop.catalogue), SL_SLOTS_LEAST - COUNT_OF(names));
	sl_reader_release(&shop.reader, &held);
	assert_int_equal(shop_sweep(&shop).gone, 1);
	sl_references_unmap(bad);
	sl_references_unmap(bad_seen);
	close(fd);
}

HOSTILE_TEST(a_client_that_claims_all_holds_it_until_it_is_gone)
{
	struct sl_references_page *page = shop.reader.references->page;
	struct swept swept;

	atomic_store(&page->window, SL_REFERENCES_LEAST);
	for (uint32_t slot = 0; slot < SL_SLOTS_LEAST; slot++)
		atomic_store(&page->at[slot], sl_reference(1, slot));
	for (unsigned n = 0; n < COUNT_OF(names); n++)
		shop_delete(&shop, names[n]);
	swept = shop_sweep(&shop);
	assert_int_equal(swept.held, COUNT_OF(names));
	sl_catalogue_part(shop.catalogue, shop.seen);
	assert_int_equal(shop_sweep(&shop).gone, COUNT_OF(names));
}

HOSTILE_TEST(a_client_survives_its_own_garbage)
{
	struct rng rng = rng_new(5);
	struct sl_references_page *page = shop.reader.references->page;

	for (unsigned round = 0; round < 2000; round++) {
		for (unsigned i = 0; i < SL_REFERENCES_LEAST; i++)
			atomic_store(&page->at[i], rng_next(&rng) << (round % 2 ? 8 : 0));
		atomic_store(&page->window, (uint32_t)rng_next(&rng) >> round % 30);
		read_everything();
	}
}

/* -------------------------------------------------------------------------------------- maps */

static int refuses(int fd)
{
	struct sl_references *references;
	struct sl_segment *segment;

	assert_int_equal(sl_references_map(fd, false, &references), -EBADMSG);
	assert_int_equal(sl_references_map(fd, true, &references), -EBADMSG);
	assert_int_equal(sl_segment_map(fd, false, &segment), -EBADMSG);
	assert_int_equal(sl_segment_map(fd, true, &segment), -EBADMSG);
	return close(fd);
}

static int memory(uint64_t bytes, unsigned flags, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | flags);
	uint64_t magic = SL_REFERENCES_MAGIC;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	if (!(flags & MFD_HUGETLB))
		assert_int_equal(pwrite(fd, &magic, bytes < 8 ? bytes : 8, 0),
		                 bytes < 8 ? bytes : 8);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

HOSTILE_TEST(foreign_memory_is_not_mapped)
{
	const int right = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct sl_references *references;
	int fd;

	refuses(memory(8192, MFD_ALLOW_SEALING, F_SEAL_GROW | F_SEAL_SEAL)); /* can shrink */
	refuses(memory(8192, MFD_ALLOW_SEALING, F_SEAL_SHRINK | F_SEAL_SEAL));
	refuses(memory(8192, MFD_ALLOW_SEALING, F_SEAL_SHRINK | F_SEAL_GROW));
	refuses(memory(8192, MFD_ALLOW_SEALING, right | F_SEAL_WRITE));
	refuses(memory(0, MFD_ALLOW_SEALING, right));
	refuses(memory(100, MFD_ALLOW_SEALING, right));
	refuses(memory(8193, MFD_ALLOW_SEALING, right));
	refuses(memory((uint64_t)1 << 40, MFD_ALLOW_SEALING, right));
	refuses(open("/dev/zero", O_RDWR | O_CLOEXEC));
	refuses(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
	refuses(dup(STDOUT_FILENO));
	fd = memory(8192, MFD_ALLOW_SEALING, right);
	assert_int_equal(sl_references_map(fd, false, &references), 0);
	sl_references_unmap(references);
	close(fd);
}

HOSTILE_TEST(huge_pages_are_no_such_memory)
{
	const int right = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_HUGETLB | MFD_ALLOW_SEALING);

	if (fd < 0)
		SKIP("this kernel has no huge pages: %s", strerror(errno));
	close(fd);
	refuses(memory(2 * MIB, MFD_ALLOW_SEALING | MFD_HUGETLB, right));
}

HOSTILE_TEST(a_segment_with_another_header_is_not_mapped)
{
	static const size_t bytes[] = {offsetof(struct sl_segment_header, version),
	                               offsetof(struct sl_segment_header, entry_bytes),
	                               offsetof(struct sl_segment_header, slots),
	                               offsetof(struct sl_segment_header, bytes),
	                               offsetof(struct sl_segment_header, magic)};
	uint8_t *header = (uint8_t *)shop.segment->header;
	struct sl_segment *segment;

	for (size_t i = 0; i < COUNT_OF(bytes); i++)
		for (unsigned bit = 0; bit < 32; bit++) {
			header[bytes[i] + bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_int_equal(sl_segment_map(shop.fd, false, &segment), -EBADMSG);
			header[bytes[i] + bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	assert_int_equal(sl_segment_map(shop.fd, false, &segment), 0);
	sl_segment_unmap(segment);
}

HOSTILE_TEST(catalogue_cannot_be_shrunk_or_locked_by_a_client)
{
	assert_int_equal(ftruncate(shop.fd, SL_PAGE), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(shop.references_fd, 0), -1);
	assert_int_equal(fcntl(shop.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(errno, EPERM);
}

/* By a process of the server's user, which can open the memory for writing. */
HOSTILE_TEST(a_server_goes_by_what_it_wrote_itself)
{
	struct rng rng = rng_new(7);
	static char note[SL_METADATA_MOST];

	for (unsigned round = 0; round < 300; round++) {
		unsigned free;

		if (round % 10 == 0) {
			shop_close(&shop);
			setup(NULL);
		}
		free = free_slots(shop.catalogue);
		for (unsigned i = 0; i < 8; i++) {
			struct sl_blob_record record = record_of("", i);
			uint32_t slot;

			record.metadata = note;
			record.metadata_size = sizeof(note);
			if (sl_catalogue_insert(shop.catalogue, &record, SL_INSERT_SEALED, &slot))
				break;
			shop.segment->entries[slot].page = (uint32_t)rng_next(&rng);
			scribble(&rng, 64, 20);
			sl_catalogue_record(shop.catalogue, slot, &record);
			assert_int_equal(sl_catalogue_delete(shop.catalogue, slot), 0);
			/* Not once more, whatever its word says. */
			shop.segment->entries[slot].word = sl_word(
				sl_catalogue_generation(shop.catalogue, slot), 0, SL_ENTRY_SEALED);
			assert_int_equal(sl_catalogue_delete(shop.catalogue, slot), -EINVAL);
		}
		shop_sweep(&shop);
		assert_int_equal(free_slots(shop.catalogue), free);
	}
}

HOSTILE_TEST(reader_may_not_open_for_writing)
{
	struct stat st;

	assert_int_equal(fstat(shop.fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(fstat(shop.references_fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

HOSTILE_TEST(a_reading_mapping_makes_no_server)
{
	struct sl_catalogue *catalogue;

	assert_int_equal(sl_catalogue_open(shop.read, NULL, &catalogue), -EINVAL);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
