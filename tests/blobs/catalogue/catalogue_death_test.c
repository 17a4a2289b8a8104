/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server is killed at every instruction. It runs one instruction at a time (the processor's trap flag); each
 * time the segment has changed its bytes are kept, as what a server that is killed there leaves behind.
 * Then each of them is given to readers, and to a new server. x86-64.
 */
#include "catalogue/catalogue_fixture.h"

#include <signal.h>
#include <sys/mman.h>

static int setup(void **state);
#define DEATH_TEST(name) TEST_CASE(name, setup, shop_teardown, &shop, NULL)

#define SNAPSHOTS_MOST 4096

static struct shop shop; /* of the server that is killed */
static struct {
	uint8_t *bytes; /* of all snapshots; the first is from before */
	size_t each;
	unsigned count;
	unsigned long instructions;
} snapshots;

static uint8_t *snapshot(unsigned i)
{
	return snapshots.bytes + i * snapshots.each;
}

static void keep(void)
{
	if (snapshots.count < SNAPSHOTS_MOST)
		memcpy(snapshot(snapshots.count), shop.segment->header, snapshots.each);
	snapshots.count++;
}

static void on_trap(int signal)
{
	(void)signal;
	snapshots.instructions++;
	if (snapshots.count > SNAPSHOTS_MOST ||
	    memcmp(snapshot(snapshots.count - 1), shop.segment->header, snapshots.each) != 0)
		keep();
}

/* Below the red zone, which belongs to the compiler. */
#define TRAP_FLAG(change)                                                \
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\t" change   \
	                 " (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp" :: \
	                         : "memory", "cc")

static void step_through(void (*act)(void))
{
	snapshots.each = shop.segment->bytes;
	snapshots.count = 0;
	snapshots.instructions = 0;
	keep();
	TRAP_FLAG("orq $0x100,");
	act();
	TRAP_FLAG("andq $~0x100,");
	keep();
	assert_in_range(snapshots.instructions, 20, 10000000);
	assert_in_range(snapshots.count, 3, SNAPSHOTS_MOST);
}

/* ------------------------------------------------------------------------------- what is there */

/* Blobs that nothing is done to, whatever happens. */
static struct sl_held_blob held, dying;
static uint32_t open_slot;

static void fill_the_shop(void)
{
	shop_open(&shop, SL_SLOTS_LEAST);
	for (unsigned n = 0; n < 5; n++)
		shop_put(&shop, (const char *[]){"a", "b", "c", "d", "e"}[n], n, true);
	open_slot = shop_put(&shop, "open", 14, false);
	shop_put(&shop, "dying", 24, true);
	assert_int_equal(shop_get(&shop, "c", &held), 0);
	assert_int_equal(shop_get(&shop, "dying", &dying), 0);
	shop_delete(&shop, "dying");
	assert_int_equal(shop_sweep(&shop).held, 1);
}

/* What a reader sees in any case, with or without a server. */
static void assert_readable(const struct shop *left)
{
	struct sl_held_blob none;

	for (unsigned n = 0; n < 5; n++)
		assert_there(left, (const char *[]){"a", "b", "c", "d", "e"}[n], n);
	assert_int_equal(shop_get(left, "open", &none), -EAGAIN);
	assert_int_equal(shop_get(left, "dying", &none), -ENOENT);
}

/* Every slot and every page of metadata is in use, once, or can be had. */
static void assert_nothing_is_lost(struct shop *left)
{
	struct sl_blob_record record = record_of("", 4);
	unsigned slots = 0, pages = 0, more = 0;
	uint32_t slot;

	for (slot = 0; slot < SL_SLOTS_LEAST; slot++) {
		struct sl_blob_record found;

		if (sl_catalogue_state(left->catalogue, slot) == SL_ENTRY_FREE)
			continue;
		sl_catalogue_record(left->catalogue, slot, &found);
		slots++;
		pages += found.metadata_size > SL_METADATA_INLINE;
	}
	while (sl_catalogue_insert(left->catalogue, &record, true, &slot) == 0)
		more++;
	assert_int_equal(pages + more, SL_SLOTS_LEAST / SL_SLOTS_FOR_PAGE);
	record.metadata_size = 0;
	while (sl_catalogue_insert(left->catalogue, &record, true, &slot) == 0)
		more++;
	assert_int_equal(slots + more, SL_SLOTS_LEAST);
	assert_int_equal(free_slots(left->catalogue), 0);
}

/* ------------------------------------------------------------------------------- what is left */

/* A segment with these bytes; what the client holds is as it was. */
static void leave(const uint8_t *bytes, struct shop *left)
{
	*left = shop;
	left->catalogue = NULL;
	assert_int_equal(sl_memory_begin("left", snapshots.each, NULL, 0, false, &left->fd), 0);
	assert_int_equal(pwrite(left->fd, bytes, snapshots.each, 0), snapshots.each);
	assert_int_equal(sl_segment_map(left->fd, true, &left->segment), 0);
	assert_int_equal(sl_segment_map(left->fd, false, &left->read), 0);
	left->reader.segment = left->read;
}

static void take_over(struct shop *left)
{
	unsigned broken = 1;

	assert_int_equal(sl_catalogue_open(left->segment, &broken, &left->catalogue), 0);
	assert_int_equal(broken, 0);
	assert_int_equal(sl_catalogue_join(left->catalogue, left->seen), 0);
}

static void throw_away(struct shop *left)
{
	sl_catalogue_close(left->catalogue);
	sl_segment_unmap(left->segment);
	sl_segment_unmap(left->read);
	close(left->fd);
}

/* Dies at every instruction of act. `outcome` says, of a segment with a new server, 0: as if act had not begun;
 * 1: as if it was done; and asserts that it is one of them. */
static void kill_everywhere(void (*act)(void), void (*without_server)(const struct shop *left),
                            int (*outcome)(struct shop *left))
{
	int done = 0, first = 0;

	step_through(act);
	for (unsigned i = 0; i < snapshots.count; i++) {
		struct shop left;
		int now;

		leave(snapshot(i), &left);
		assert_readable(&left);
		if (without_server)
			without_server(&left);
		take_over(&left);
		now = outcome(&left);
		assert_in_range(now, done, 1); /* what is done is not undone later */
		done = now;
		if (i == 0)
			first = now;
		shop_sweep(&left);
		assert_readable(&left);
		assert_record(&held.record, "c", 2);
		assert_int_equal(sl_catalogue_state(left.catalogue, dying.slot), SL_ENTRY_DYING);
		assert_int_equal(sl_catalogue_generation(left.catalogue, dying.slot),
		                 dying.generation);
		assert_nothing_is_lost(&left);
		throw_away(&left);
	}
	print_message("%lu instructions, %u deaths\n", snapshots.instructions, snapshots.count);
	assert_int_equal(first, 0);
	assert_int_equal(done, 1);
}

/* --------------------------------------------------------------------------------------- cases */

static enum sl_entry_state state_of(const struct shop *left, const char *name)
{
	struct sl_blob_key key = key_of(name);
	uint32_t slot;

	if (sl_catalogue_find(left->catalogue, &key, &slot))
		return SL_ENTRY_FREE;
	return sl_catalogue_state(left->catalogue, slot);
}

static void insert_sealed(void)
{
	struct sl_blob_record record = record_of("new", 29);
	uint32_t slot;

	sl_catalogue_insert(shop.catalogue, &record, true, &slot);
}

static void new_is_whole_or_not_there(const struct shop *left)
{
	struct sl_held_blob got;
	int err = shop_get(left, "new", &got);

	if (err) {
		assert_int_equal(err, -ENOENT);
		return;
	}
	assert_record(&got.record, "new", 29);
	sl_reader_release(&left->reader, &got);
}

static int new_is_there(struct shop *left)
{
	new_is_whole_or_not_there(left);
	return state_of(left, "new") == SL_ENTRY_SEALED;
}

DEATH_TEST(making_a_sealed_one)
{
	kill_everywhere(insert_sealed, new_is_whole_or_not_there, new_is_there);
}

/* An owner with two parts. */
static void insert_owner(void)
{
	struct sl_blob_record part = {.size = 9, .flags = SL_FLAG_PART};
	struct sl_blob_record owner = record_of("new", 29);
	uint32_t slot;

	sl_catalogue_insert(shop.catalogue, &part, SL_INSERT_SEALED, &slot);
	part.next = slot + 1;
	sl_catalogue_insert(shop.catalogue, &part, SL_INSERT_SEALED, &slot);
	owner.next = slot + 1;
	sl_catalogue_insert(shop.catalogue, &owner, SL_INSERT_SEALED, &slot);
}

static void owner_has_its_parts_or_is_not_there(const struct shop *left)
{
	struct sl_blob_record part;
	struct sl_held_blob got;
	unsigned count = 0;
	int err = shop_get(left, "new", &got);

	if (err) {
		assert_int_equal(err, -ENOENT);
		return;
	}
	assert_record(&got.record, "new", 29);
	part = got.record;
	while (!(err = sl_reader_part(&left->reader, &part, &part))) {
		struct sl_blob_key key = {.id = part.key.id};
		struct sl_held_blob none;

		assert_int_equal(part.size, 9);
		assert_int_equal(sl_reader_get(&left->reader, &key, &none), -ENOENT);
		count++;
	}
	assert_int_equal(err, -ENOENT);
	assert_int_equal(count, 2);
	sl_reader_release(&left->reader, &got);
}

static int owner_is_there(struct shop *left)
{
	owner_has_its_parts_or_is_not_there(left);
	return state_of(left, "new") == SL_ENTRY_SEALED;
}

DEATH_TEST(making_an_owner_with_parts)
{
	kill_everywhere(insert_owner, owner_has_its_parts_or_is_not_there, owner_is_there);
}

static void insert_open(void)
{
	struct sl_blob_record record = record_of("new", 28);
	uint32_t slot;

	sl_catalogue_insert(shop.catalogue, &record, false, &slot);
}

static int new_is_open(struct shop *left)
{
	struct sl_held_blob got;

	assert_int_equal(shop_get(left, "new", &got),
	                 state_of(left, "new") == SL_ENTRY_OPEN ? -EAGAIN : -ENOENT);
	return state_of(left, "new") == SL_ENTRY_OPEN;
}

DEATH_TEST(making_an_open_one)
{
	kill_everywhere(insert_open, NULL, new_is_open);
}

static size_t new_size;

static void describe(void)
{
	uint8_t bytes[500];

	memset(bytes, 77, sizeof(bytes));
	sl_catalogue_describe(shop.catalogue, open_slot, bytes, new_size);
}

/* Before, in between, after. */
static int open_has_old_metadata_or_none_or_new(struct shop *left)
{
	struct sl_blob_record record, before = record_of("open", 14);

	sl_catalogue_record(left->catalogue, open_slot, &record);
	if (record.metadata_size == before.metadata_size) {
		assert_memory_equal(record.metadata, before.metadata, before.metadata_size);
		return 0;
	}
	if (record.metadata_size == 0)
		return 0;
	assert_int_equal(record.metadata_size, new_size);
	for (unsigned i = 0; i < new_size; i++)
		assert_int_equal(((const uint8_t *)record.metadata)[i], 77);
	return 1;
}

DEATH_TEST(describing_an_open_one)
{
	new_size = 500;
	kill_everywhere(describe, NULL, open_has_old_metadata_or_none_or_new);
}

DEATH_TEST(describing_one_with_less)
{
	new_size = 20;
	kill_everywhere(describe, NULL, open_has_old_metadata_or_none_or_new);
}

static uint32_t three[3];

static void prepare_three(void)
{
	three[0] = shop_put(&shop, "x", 5, false);
	three[1] = shop_put(&shop, "y", 6, false);
	three[2] = shop_put(&shop, "z", 7, false);
}

static void seal_one(void)
{
	sl_catalogue_seal(shop.catalogue, three, 1);
}

static int one_is_sealed(struct shop *left)
{
	assert_int_equal(state_of(left, "y"), SL_ENTRY_OPEN);
	if (state_of(left, "x") == SL_ENTRY_OPEN)
		return 0;
	assert_there(left, "x", 5);
	return 1;
}

DEATH_TEST(sealing_one)
{
	prepare_three();
	kill_everywhere(seal_one, NULL, one_is_sealed);
}

static void seal_three(void)
{
	sl_catalogue_seal(shop.catalogue, three, 3);
}

static void all_or_none_is_got(const struct shop *left)
{
	struct sl_held_blob got[3];
	int errors[3];

	for (unsigned i = 0; i < 3; i++)
		errors[i] = shop_get(left, (const char *[]){"x", "y", "z"}[i], &got[i]);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(errors[i], errors[0]);
		if (errors[i])
			assert_int_equal(errors[i], -EAGAIN);
		else
			sl_reader_release(&left->reader, &got[i]);
	}
}

static int all_are_sealed(struct shop *left)
{
	enum sl_entry_state first = state_of(left, "x");

	assert_int_equal(state_of(left, "y"), first);
	assert_int_equal(state_of(left, "z"), first);
	all_or_none_is_got(left);
	if (first == SL_ENTRY_OPEN)
		return 0;
	assert_there(left, "x", 5);
	assert_there(left, "y", 6);
	assert_there(left, "z", 7);
	return 1;
}

DEATH_TEST(sealing_several)
{
	prepare_three();
	kill_everywhere(seal_three, all_or_none_is_got, all_are_sealed);
}

static uint32_t subject;

static void delete_subject(void)
{
	sl_catalogue_delete(shop.catalogue, subject);
}

static int subject_is_gone(struct shop *left)
{
	struct sl_held_blob got;

	if (state_of(left, "new") == SL_ENTRY_SEALED) {
		assert_there(left, "new", 29);
		return 0;
	}
	assert_int_equal(shop_get(left, "new", &got), -ENOENT);
	assert_int_equal(shop_sweep(left).gone, 1);
	return 1;
}

DEATH_TEST(deleting)
{
	subject = shop_put(&shop, "new", 29, true);
	kill_everywhere(delete_subject, NULL, subject_is_gone);
}

static void sweep(void)
{
	shop_sweep(&shop);
}

/* It is gone before and after, but as a DYING or as a FREE one. */
static int subject_is_free(struct shop *left)
{
	bool free = sl_catalogue_state(left->catalogue, subject) == SL_ENTRY_FREE;

	assert_int_equal(shop_sweep(left).gone, !free);
	return free;
}

DEATH_TEST(freeing)
{
	subject = shop_put(&shop, "new", 29, true);
	delete_subject();
	kill_everywhere(sweep, NULL, subject_is_free);
}

static void withdraw(void)
{
	sl_catalogue_withdraw(shop.catalogue, subject);
	shop_sweep(&shop);
}

static int subject_is_away(struct shop *left)
{
	if (state_of(left, "new") == SL_ENTRY_AWAY)
		return 1;
	assert_there(left, "new", 29);
	return 0;
}

DEATH_TEST(sending_away)
{
	subject = shop_put(&shop, "new", 29, true);
	kill_everywhere(withdraw, NULL, subject_is_away);
}

static void bring_back(void)
{
	struct sl_blob_range place = record_of("", 29).range;

	sl_catalogue_move(shop.catalogue, subject, &place, true);
}

static int subject_is_back(struct shop *left)
{
	struct sl_blob_record record;

	if (state_of(left, "new") == SL_ENTRY_SEALED) {
		assert_there(left, "new", 29);
		return 1;
	}
	assert_int_equal(state_of(left, "new"), SL_ENTRY_AWAY);
	sl_catalogue_record(left->catalogue, subject, &record);
	assert_int_equal(record.range.memory, 1);
	assert_int_equal(record.range.offset, 2);
	return 0;
}

DEATH_TEST(bringing_back)
{
	struct sl_blob_range disk = {.memory = 1, .offset = 2};

	subject = shop_put(&shop, "new", 29, true);
	withdraw();
	assert_int_equal(sl_catalogue_move(shop.catalogue, subject, &disk, false), 0);
	kill_everywhere(bring_back, NULL, subject_is_back);
}

/* Everything that a server can have been at, at once. */
static void leave_a_mess(void)
{
	struct sl_segment *segment = shop.segment;
	struct sl_index_line *line = segment->index;

	prepare_three();
	subject = shop_put(&shop, "new", 29, true);
	sl_catalogue_withdraw(shop.catalogue, subject);
	shop_put(&shop, "unheld", 34, true);
	shop_delete(&shop, "unheld");
	/* A batch with one sealed of three. */
	for (unsigned i = 0; i < 3; i++)
		segment->entries[three[i]].batch = 1;
	atomic_store(&segment->header->last_batch, 1);
	atomic_store(&segment->header->publishing, 1);
	sl_catalogue_seal(shop.catalogue, &three[1], 1);
	/* A name that is written and not committed. */
	while (atomic_load(&line->words[0]))
		line++;
	atomic_store(&line->words[0], SL_SLOTS_LEAST);
	/* One that is committed and not in the index. */
	atomic_store(sl_index_find(shop.catalogue, segment->entries[open_slot].hash, open_slot), 0);
}

static void become_the_server(void)
{
	sl_catalogue_open(shop.segment, NULL, &shop.catalogue);
}

static int mess_is_cleaned(struct shop *left)
{
	assert_int_equal(all_are_sealed(left), 1);
	assert_there(left, "new", 29);
	assert_int_equal(state_of(left, "unheld"), SL_ENTRY_FREE);
	assert_int_equal(shop_sweep(left).gone, 1);
	return left->segment->header->publishing == 0;
}

DEATH_TEST(taking_over)
{
	struct shop left;
	int done = 0;

	leave_a_mess();
	sl_catalogue_close(shop.catalogue);
	step_through(become_the_server);
	for (unsigned i = 0; i < snapshots.count; i++) {
		leave(snapshot(i), &left);
		for (unsigned n = 0; n < 5; n++)
			assert_there(&left, (const char *[]){"a", "b", "c", "d", "e"}[n], n);
		take_over(&left);
		assert_int_equal(mess_is_cleaned(&left), 1);
		done++;
		assert_readable(&left);
		assert_nothing_is_lost(&left);
		throw_away(&left);
	}
	print_message("%lu instructions, %d deaths\n", snapshots.instructions, done);
}

/* -------------------------------------------------------------------------------------- main */

static int setup(void **state)
{
	(void)state;
	fill_the_shop();
	return 0;
}

int main(void)
{
	struct sigaction action = {.sa_handler = on_trap};

	sigaction(SIGTRAP, &action, NULL);
	/* 4096 snapshots of a small segment; those that are made take memory. */
	snapshots.bytes = mmap(NULL, (size_t)1 << 30, PROT_READ | PROT_WRITE,
	                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (snapshots.bytes == MAP_FAILED) {
		printf("skipped: there are no addresses for the snapshots\n");
		return 77;
	}
	return RUN_TESTS(NULL, NULL);
}
