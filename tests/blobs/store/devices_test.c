/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon and the memory of devices, by raw messages: to it any memfd is memory of a device. */
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "lib/protocol_client.h"

static int setup_plain(void **state);
static int setup_small(void **state);
#define PLAIN_TEST(name) DAEMON_TEST_WITH(name, setup_plain, daemon_teardown)
#define SMALL_TEST(name) DAEMON_TEST_WITH(name, setup_small, daemon_teardown)

#define PLACE  "emulated:0"
#define UNIT   (2 * MIB)
#define ON_DEV SLUICE_BLOB_ON_DEVICE

static const char *const plain[] = {"--memory", "64M", NULL};
static const char *const small[] = {"--memory", "64M", "--device-memory", "emulated:0=8M", NULL};

/* ------------------------------------------------------------------------------------- places */

PLAIN_TEST(a_device_has_one_number_for_all_also_after_the_server_died)
{
	struct raw *a = raw_new(d), *b = raw_new(d);
	int32_t first = raw_device(a, "0000:65:00.0").device;
	int32_t second = raw_device(b, PLACE).device;

	assert_int_not_equal(first, second);
	assert_int_equal(raw_device(b, "0000:65:00.0").device, first);
	daemon_replace_server(d);
	raw_end(a);
	raw_end(b);
	a = malloc(sizeof(*a));
	raw_open_again(a, d, 0);
	assert_int_equal(raw_device(a, PLACE).device, second);
	assert_int_equal(raw_device(a, "0000:65:00.0").device, first);
	raw_begin(a, SL_MSG_DEVICE, 0);
	a->m.device.number = second;
	assert_int_equal(raw_ask(a), 0);
	assert_string_equal(a->m.device_is.item.place, PLACE);
	raw_begin(a, SL_MSG_DEVICE, 0);
	a->m.device.number = 2;
	assert_int_equal(raw_ask(a), -ENOENT);
	raw_end(a);
}

PLAIN_TEST(so_many_places_are_made_known)
{
	struct raw *c = raw_new(d);
	unsigned known = 0;
	char place[SLUICE_BLOB_PLACE_BYTES];

	for (unsigned i = 0; i < 100; i++) {
		snprintf(place, sizeof(place), "emulated:%u", i);
		raw_begin(c, SL_MSG_DEVICE, 0);
		c->m.device.number = -1;
		strcpy(c->m.device.place, place);
		known += raw_ask(c) == 0;
		assert_true(i < known || c->m.head.error == -EDQUOT);
	}
	assert_int_equal(known, 64);
	assert_int_equal(raw_device(c, "emulated:15").device, 15);
	raw_end(c);
}

PLAIN_TEST(a_blob_is_on_a_device_that_is_known)
{
	struct raw *c = raw_new(d);
	struct sl_lease leases[2 * SL_ITEMS_MOST];

	assert_int_equal(raw_create(c, 0, ON_DEV, 100, 0, "x", leases), -ENOTSUP);
	assert_int_equal(raw_device(c, PLACE).device, 0);
	assert_int_equal(raw_create(c, 1, ON_DEV, 100, 0, "x", leases), -ENOTSUP);
	assert_int_equal(raw_create(c, 0, SLUICE_BLOB_OF_PROCESS, 100, 0, "x", leases), -EINVAL);
	raw_await(c, PLACE, 0, 0);
	raw_end(c);
}

/* ---------------------------------------------------------------------------------- lifetimes */

PLAIN_TEST(memory_counts_until_everybody_has_unmapped_it)
{
	struct raw *a = raw_new(d), *b = raw_new(d);
	struct sl_lease lease;
	struct sl_found_item found;
	struct sl_held_blob held;
	int32_t device = raw_device(a, PLACE).device;
	int fd;

	raw_put_ok(a, device, "x", 3 * MIB, 0, &lease);
	assert_int_equal(lease.make, 1);
	assert_int_equal(lease.range.device, device);
	assert_int_equal(lease.range.kind, ON_DEV);
	assert_int_equal(lease.range.region_bytes, 4 * MIB);

	assert_int_equal(raw_get(b, "x", &found), 0);
	raw_hold(b, &found, &held);
	assert_int_equal(held.record.range.device, device);
	assert_int_equal(held.record.range.memory, lease.range.region);
	fd = raw_region(b, lease.range.region);
	assert_true(fd >= 0);
	assert_int_equal(b->m.memory.device, device);
	assert_int_equal(b->m.memory.kind, ON_DEV);
	assert_true(raw_memory_is(fd, lease.range.region));
	close(fd);

	assert_int_equal(raw_delete(a, "x"), 0);
	raw_await(a, PLACE, 4 * MIB, 0);
	raw_release(b, &held);
	assert_true(raw_is_told(a, lease.range.region));
	assert_true(raw_is_told(b, lease.range.region));
	raw_await(a, PLACE, 4 * MIB, 4 * MIB);
	assert_int_equal(raw_region(b, lease.range.region), -ESTALE);
	raw_tell(a, SL_MSG_DROP, lease.range.region);
	raw_await(a, PLACE, 4 * MIB, 4 * MIB);
	raw_tell(b, SL_MSG_DROP, lease.range.region);
	raw_await(b, PLACE, 0, 0);
	raw_end(a);
	raw_end(b);
}

static void make_and_wait(const struct daemon *d, int say)
{
	struct raw *c = raw_new(d);
	struct sl_lease lease, leases[2 * SL_ITEMS_MOST];
	int32_t device = raw_device(c, PLACE).device;

	raw_put_ok(c, device, "sealed", 3 * MIB, 0, &lease);
	raw_create(c, device, ON_DEV, 100, SLUICE_BLOB_RESERVE, "offered", leases);
	raw_make(c, &leases[0]);
	raw_create(c, device, ON_DEV, 5 * MIB, SLUICE_BLOB_RESERVE, "not offered", leases);
	raw_other_says(say);
}

PLAIN_TEST(memory_outlives_who_made_it_and_what_was_not_sealed_does_not)
{
	struct raw *c = raw_new(d);
	struct raw_other other = raw_other_start(d, make_and_wait);
	struct sl_found_item found;
	struct sl_held_blob held;
	int fd;

	raw_await(c, PLACE, 4 * MIB + UNIT + 6 * MIB, 0);
	assert_int_equal(sluice_blob_exists(d->store, "offered"), 0);
	raw_other_kill(&other);
	raw_await(c, PLACE, 4 * MIB, 0);
	assert_int_equal(raw_get(c, "sealed", &found), 0);
	raw_hold(c, &found, &held);
	fd = raw_region(c, held.record.range.memory);
	assert_true(raw_memory_is(fd, held.record.range.memory));
	close(fd);
	assert_int_equal(raw_delete(c, "sealed"), 0);
	raw_release(c, &held);
	assert_true(raw_is_told(c, held.record.range.memory));
	raw_end(c);
	c = raw_new(d);
	raw_await(c, PLACE, 0, 0);
	raw_end(c);
}

static void read_and_wait(const struct daemon *d, int say)
{
	struct raw *c = raw_new(d);
	struct sl_found_item found;
	struct sl_held_blob held;

	raw_device(c, PLACE);
	assert_int_equal(raw_get(c, "x", &found), 0);
	raw_hold(c, &found, &held);
	close(raw_region(c, held.record.range.memory));
	raw_other_says(say);
}

PLAIN_TEST(a_reader_that_dies_lets_go)
{
	struct raw *c = raw_new(d);
	struct sl_lease lease;
	struct raw_other other;

	raw_put_ok(c, raw_device(c, PLACE).device, "x", UNIT, SLUICE_BLOB_ALONE, &lease);
	other = raw_other_start(d, read_and_wait);
	assert_int_equal(raw_delete(c, "x"), 0);
	raw_tell(c, SL_MSG_DROP, lease.range.region);
	sleep_ms(50);
	raw_await(c, PLACE, UNIT, 0);
	raw_other_kill(&other);
	raw_await(c, PLACE, 0, 0);
	raw_end(c);
}

/* Its socket is closed, and what it has mapped is not. */
static void hang_up_and_wait(const struct daemon *d, int say)
{
	struct raw *c = raw_new(d);
	struct sl_lease lease;

	raw_put_ok(c, raw_device(c, PLACE).device, "x", 4 * MIB, SLUICE_BLOB_ALONE, &lease);
	raw_hang_up(c);
	raw_other_says(say);
}

/* Nobody waits for what will not come. */
static void assert_refused_at_once(struct raw *c, uint64_t bytes)
{
	struct sl_lease leases[2 * SL_ITEMS_MOST];
	double begun = seconds_now();

	assert_int_equal(raw_create(c, 0, ON_DEV, bytes, 0, "y", leases), -ENOSPC);
	assert_true(seconds_now() - begun < 2);
}

/* The same of one who has it mapped for reading, and holds no blob in it. */
static void read_and_hang_up(const struct daemon *d, int say)
{
	struct raw *c = raw_new(d);
	struct sl_found_item found;
	struct sl_held_blob held;

	raw_device(c, PLACE);
	assert_int_equal(raw_get(c, "x", &found), 0);
	raw_hold(c, &found, &held);
	close(raw_region(c, held.record.range.memory));
	raw_release(c, &held);
	raw_hang_up(c);
	raw_other_says(say);
}

SMALL_TEST(a_reader_that_hangs_up_and_lives_counts_until_it_is_dead)
{
	struct raw *c = raw_new(d);
	struct sl_lease lease;
	struct raw_other other;

	raw_put_ok(c, raw_device(c, PLACE).device, "x", 4 * MIB, SLUICE_BLOB_ALONE, &lease);
	other = raw_other_start(d, read_and_hang_up);
	assert_int_equal(raw_delete(c, "x"), 0);
	raw_tell(c, SL_MSG_DROP, lease.range.region);
	sleep_ms(50);
	raw_await(c, PLACE, 4 * MIB, 4 * MIB);
	assert_refused_at_once(c, 5 * MIB);
	raw_other_kill(&other);
	raw_await(c, PLACE, 0, 0);
	raw_end(c);
}

SMALL_TEST(living_client_that_hangs_up_is_named_until_its_death)
{
	struct raw *c = raw_new(d);
	struct raw_other other = raw_other_start(d, hang_up_and_wait);
	char text[100];

	assert_int_equal(raw_delete(c, "x"), 0);
	raw_await(c, PLACE, 4 * MIB, 4 * MIB);
	assert_refused_at_once(c, 5 * MIB);
	snprintf(text, sizeof(text),
	         "4194304 are in use, 4194304 of them deleted and still mapped, by process %d",
	         (int)other.pid);
	if (!strstr(c->m.refusal.text, text))
		fail_msg("%s", c->m.refusal.text);
	raw_other_kill(&other);
	raw_await(c, PLACE, 0, 0);
	raw_end(c);
}

/* -------------------------------------------------------------------------------------- slabs */

PLAIN_TEST(small_blobs_lie_side_by_side)
{
	struct raw *c = raw_new(d);
	int32_t device = raw_device(c, PLACE).device;
	struct sl_lease lease, leases[2 * SL_ITEMS_MOST];

	for (unsigned i = 0; i < 1000; i++) {
		raw_put_ok(c, device, named("%u", i), 4096, 0, &lease);
		assert_int_equal(lease.range.capacity, 32768);
		assert_int_equal(lease.range.region_bytes, UNIT);
		assert_int_equal(lease.make, i % 64 == 0);
		assert_int_equal(lease.range.offset, i % 64 * 32768);
	}
	raw_await(c, PLACE, 16 * UNIT, 0);
	raw_put_ok(c, device, "larger", MIB, 0, &lease);
	assert_int_equal(lease.range.capacity, MIB);
	raw_put_ok(c, device, "as large", MIB - 1, 0, &lease);
	assert_int_equal(lease.make, 0);
	assert_int_equal(lease.range.offset, MIB);
	raw_put_ok(c, device, "alone", 10, SLUICE_BLOB_ALONE, &lease);
	assert_int_equal(lease.range.capacity, UNIT);
	raw_put_ok(c, raw_device(c, "emulated:1").device, "elsewhere", 10, 0, &lease);
	assert_int_equal(lease.make, 1);
	assert_int_equal(raw_create(c, device, ON_DEV, MIB + 1, 0, "", leases), 1);
	assert_int_equal(leases[0].range.capacity, UNIT);
	raw_end(c);
}

PLAIN_TEST(leases_in_advance_are_of_memory_that_is_made_once)
{
	struct raw *c = raw_new(d);
	int32_t device = raw_device(c, PLACE).device;
	struct sl_lease leases[2 * SL_ITEMS_MOST], again[2 * SL_ITEMS_MOST];
	struct sl_found_item found;
	int count = raw_create(c, device, ON_DEV, 50000, 0, "", leases);

	assert_int_equal(count, 16);
	for (int i = 0; i < count; i++) {
		assert_int_equal(leases[i].make, i == 0);
		assert_int_equal(leases[i].range.region, leases[0].range.region);
	}
	assert_int_equal(raw_seal(c, &leases[1], "x", 50000, 0, 0, &found), -EINVAL);
	/* Who was to make it has given up, and the next one is to. */
	raw_tell(c, SL_MSG_ABORT, leases[0].id);
	assert_true(raw_create(c, device, ON_DEV, 50000, 0, "", again) > 0);
	assert_int_equal(again[0].range.region, leases[0].range.region);
	assert_int_equal(again[0].make, 1);
	raw_make(c, &again[0]);
	assert_int_equal(raw_seal(c, &leases[1], "x", 50000, 0, 0, &found), 0);
	/* And one more comes with the seal. */
	assert_int_equal(found.lease.range.region, leases[0].range.region);
	assert_int_equal(found.lease.make, 0);
	raw_end(c);
	c = raw_new(d);
	raw_await(c, PLACE, UNIT, 0);
	raw_end(c);
}

static void begin_create(struct raw *c, int32_t device, uint64_t bytes)
{
	raw_begin(c, SL_MSG_CREATE, 1);
	c->m.create.items[0].bytes = bytes;
	c->m.create.items[0].device = device;
	c->m.create.items[0].kind = ON_DEV;
	assert_true(raw_send(c->fd, &c->m, c->m.head.bytes));
}

TEST(a_device_that_is_short_holds_up_none_but_its_own)
{
	static const char *const options[] = {"--device-memory", "emulated:0=8M", "--device-memory",
	                                      "emulated:1=8M", NULL};
	const char *const *before = daemon_options;
	struct raw *a, *waits[2];
	struct sl_lease leases[2];
	struct daemon *d;
	int32_t devices[2];

	daemon_options = options;
	daemon_setup((void **)&d);
	a = raw_new(d);
	for (int i = 0; i < 2; i++) {
		char name[2] = {(char)('x' + i), 0};

		devices[i] = raw_device(a, i ? "emulated:1" : PLACE).device;
		raw_put_ok(a, devices[i], name, 6 * MIB, SLUICE_BLOB_ALONE, &leases[i]);
		assert_int_equal(raw_delete(a, name), 0);
	}
	/* Both wait until it has unmapped the memory, which it does of the second device. */
	for (int i = 0; i < 2; i++) {
		waits[i] = raw_new(d);
		begin_create(waits[i], devices[i], 6 * MIB);
		raw_await(a, i ? "emulated:1" : PLACE, 6 * MIB, 6 * MIB);
	}
	raw_tell(a, SL_MSG_DROP, leases[1].range.region);
	assert_int_equal(poll(&(struct pollfd){.fd = waits[1]->fd, .events = POLLIN}, 1, 2500), 1);
	assert_int_equal(poll(&(struct pollfd){.fd = waits[0]->fd, .events = POLLIN}, 1, 0), 0);
	raw_tell(a, SL_MSG_DROP, leases[0].range.region);
	assert_int_equal(poll(&(struct pollfd){.fd = waits[0]->fd, .events = POLLIN}, 1, 20000), 1);
	for (int i = 0; i < 2; i++)
		raw_end(waits[i]);
	raw_end(a);
	daemon_teardown((void **)&d);
	daemon_options = before;
}

static void make_slab_and_wait(const struct daemon *d, int say)
{
	struct raw *c = raw_new(d);
	int32_t device = raw_device(c, PLACE).device;
	struct sl_lease first, second, third;

	raw_put_ok(c, device, "first", 100, 0, &first);
	raw_put_ok(c, device, "second", 100, 0, &second);
	assert_int_equal(raw_delete(c, "first"), 0);
	sleep_ms(50);
	raw_put_ok(c, device, "third", 100, 0, &third);
	assert_int_equal(third.range.region, first.range.region);
	assert_int_equal(third.range.offset, first.range.offset);
	raw_other_says(say);
}

PLAIN_TEST(a_range_is_used_again_by_its_owner_only)
{
	struct raw *c = raw_new(d);
	struct sl_lease lease;
	struct raw_other other = raw_other_start(d, make_slab_and_wait);

	raw_put_ok(c, 0, "mine", 100, 0, &lease);
	assert_int_equal(lease.make, 1);
	raw_await(c, PLACE, 2 * UNIT, 0);
	assert_int_equal(raw_delete(c, "third"), 0);
	raw_other_kill(&other);
	raw_await(c, PLACE, 2 * UNIT, 0);
	/* Its slab has free ranges, and nobody who may have them; it goes with its last blob. */
	for (int i = 0; i < 63; i++)
		raw_put_ok(c, 0, (const char[]){(char)('0' + i), 0}, 100, 0, &lease);
	raw_await(c, PLACE, 2 * UNIT, 0);
	assert_int_equal(raw_delete(c, "second"), 0);
	raw_await(c, PLACE, UNIT, 0);
	raw_end(c);
}

/* -------------------------------------------------------------------------------------- limits */

SMALL_TEST(a_device_has_a_budget)
{
	struct raw *c = raw_new(d);
	int32_t device = raw_device(c, PLACE).device, other = raw_device(c, "emulated:1").device;
	struct sl_lease lease, leases[2 * SL_ITEMS_MOST];
	struct sl_found_item found;

	assert_int_equal(raw_device(c, PLACE).memory_limit, 8 * MIB);
	assert_true(raw_device(c, "emulated:1").memory_limit == UINT64_MAX);
	raw_put_ok(c, device, "x", 6 * MIB, 0, &lease);
	assert_int_equal(raw_put(c, device, "y", 3 * MIB, 0, &lease, &found), -ENOSPC);
	assert_non_null(strstr(c->m.refusal.text, "4194304 bytes of emulated:0 are needed, of "
	                                          "8388608 (--device-memory) 6291456 are in use"));
	raw_put_ok(c, device, "y", 2 * MIB, 0, &lease);
	/* What a process has allocated itself is not limited. */
	assert_true(raw_create(c, device, SLUICE_BLOB_OF_PROCESS, 100 * MIB, 0, "", leases) > 0);
	assert_int_equal(raw_device(c, PLACE).memory_bytes, 8 * MIB);
	raw_put_ok(c, other, "z", 16 * MIB, 0, &lease);
	raw_end(c);
}

SMALL_TEST(cached_blobs_of_that_device_make_room)
{
	struct raw *c = raw_new(d);
	int32_t device = raw_device(c, PLACE).device, other = raw_device(c, "emulated:1").device;
	struct sl_lease leases[4], lease;
	struct sl_found_item found;
	struct sl_held_blob held;
	sluice_blob *host;

	raw_put_ok(c, device, "held", UNIT, SLUICE_BLOB_CACHE, &leases[0]);
	raw_put_ok(c, device, "cached", UNIT, SLUICE_BLOB_CACHE, &leases[1]);
	raw_put_ok(c, device, "kept", UNIT, 0, &leases[2]);
	raw_put_ok(c, other, "elsewhere", UNIT, SLUICE_BLOB_CACHE, &leases[3]);
	host = put(d->store, "host", 100, SLUICE_BLOB_CACHE);
	assert_ok(sluice_blob_release(host));
	assert_int_equal(raw_get(c, "held", &found), 0);
	raw_hold(c, &found, &held);
	for (int i = 0; i < 4; i++)
		raw_tell(c, SL_MSG_DROP, leases[i].range.region);
	raw_put_ok(c, device, "new", 4 * MIB, 0, &lease);
	assert_int_equal(sluice_blob_exists(d->store, "cached"), 0);
	assert_int_equal(sluice_blob_exists(d->store, "held"), 1);
	assert_int_equal(sluice_blob_exists(d->store, "kept"), 1);
	assert_int_equal(sluice_blob_exists(d->store, "elsewhere"), 1);
	assert_int_equal(sluice_blob_exists(d->store, "host"), 1);
	assert_int_equal(raw_put(c, device, "more", UNIT, 0, &lease, &found), -ENOSPC);
	raw_release(c, &held);
	raw_put_ok(c, device, "more", UNIT, 0, &lease);
	assert_int_equal(sluice_blob_exists(d->store, "held"), 0);
	assert_int_equal(stats_of(d->store).dropped, 2);
	raw_end(c);
}

/* Asks for more than there is; whether an answer comes within 50 ms. */
static bool is_answered(struct raw *c, int32_t device, uint64_t bytes)
{
	raw_begin(c, SL_MSG_CREATE, 1);
	c->m.create.items[0].bytes = bytes;
	c->m.create.items[0].device = device;
	c->m.create.items[0].kind = ON_DEV;
	strcpy(c->m.create.items[0].name, "new");
	c->m.create.items[0].flags = SLUICE_BLOB_RESERVE;
	raw_send(c->fd, &c->m, c->m.head.bytes);
	return poll(&(struct pollfd){.fd = c->fd, .events = POLLIN}, 1, 50) > 0;
}

SMALL_TEST(create_waits_for_what_is_being_unmapped)
{
	struct raw *c = raw_new(d), *reader = raw_new(d), *maker = raw_new(d);
	int32_t device = raw_device(c, PLACE).device;
	struct sl_lease lease;
	double begun;
	int fd;

	for (int end = 0; end < 2; end++) {
		raw_put_ok(maker, device, "x", 6 * MIB, SLUICE_BLOB_CACHE, &lease);
		fd = raw_region(reader, lease.range.region);
		assert_true(fd >= 0);
		close(fd);
		raw_device(maker, PLACE);
		assert_false(is_answered(c, device, 3 * MIB));
		/* It made way; and what waits is not seen. */
		assert_int_equal(sluice_blob_exists(d->store, "x"), 0);
		assert_int_equal(raw_device(reader, PLACE).leaving_bytes, 6 * MIB);
		begun = seconds_now();
		raw_tell(maker, SL_MSG_DROP, lease.range.region);
		assert_true(poll(&(struct pollfd){.fd = c->fd, .events = POLLIN}, 1, 50) == 0);
		if (end == 0)
			raw_tell(reader, SL_MSG_DROP, lease.range.region);
		assert_true(raw_receive(c->fd, &c->m, NULL) > 0);
		assert_int_equal(c->m.head.type, end == 0 ? SL_MSG_LEASES : SL_MSG_REFUSAL);
		if (end == 0) {
			raw_tell(c, SL_MSG_ABORT, c->m.leases.items[0].id);
			continue;
		}
		/* Nobody waits for ever for somebody who does not answer. */
		assert_int_equal(c->m.head.error, -ENOSPC);
		assert_true(seconds_now() - begun > 2);
		assert_non_null(strstr(c->m.refusal.text, "deleted and still mapped, by process"));
		/* And not at all for more than that would give. */
		assert_true(is_answered(c, device, 9 * MIB));
		assert_true(raw_receive(c->fd, &c->m, NULL) > 0);
		/* Who waits and hangs up is forgotten. */
		assert_false(is_answered(c, device, 3 * MIB));
		raw_bye(c);
		raw_tell(reader, SL_MSG_DROP, lease.range.region);
		raw_await(reader, PLACE, 0, 0);
	}
	free(c);
	raw_end(reader);
	raw_end(maker);
}

/* ------------------------------------------------------------------------------ several, told */

PLAIN_TEST(host_and_device_parts_are_sealed_together)
{
	struct raw *c = raw_new(d);
	int32_t device = raw_device(c, PLACE).device;
	struct sl_lease leases[2];
	int rc;

	raw_begin(c, SL_MSG_CREATE, 2);
	c->m.create.items[0].bytes = c->m.create.items[1].bytes = 100;
	c->m.create.items[0].device = -1;
	c->m.create.items[0].kind = SLUICE_BLOB_ON_HOST;
	c->m.create.items[1].device = device;
	c->m.create.items[1].kind = ON_DEV;
	assert_int_equal(raw_ask(c), 0);
	memcpy(leases, c->m.leases.items, sizeof(leases));
	assert_int_equal(leases[0].range.device, -1);
	assert_int_equal(leases[0].make, 0);
	assert_int_equal(leases[1].range.device, device);
	for (int offered = 0; offered < 2; offered++) {
		if (offered)
			raw_make(c, &leases[1]);
		raw_begin(c, SL_MSG_SEAL, 2);
		for (int i = 0; i < 2; i++) {
			c->m.seal.items[i].lease = leases[i].id;
			c->m.seal.items[i].bytes = 100;
			strcpy(c->m.seal.items[i].name, i ? "device" : "host");
		}
		rc = raw_ask(c);
		assert_int_equal(rc, offered ? 0 : -EINVAL);
		assert_int_equal(sluice_blob_exists(d->store, "host"), offered);
		assert_int_equal(sluice_blob_exists(d->store, "device"), offered);
	}
	raw_end(c);
}

PLAIN_TEST(stat_and_list_tell_the_place)
{
	struct raw *c = raw_new(d);
	int32_t device = raw_device(c, PLACE).device;
	struct sl_lease lease;
	struct sluice_blob_info item;

	raw_put_ok(c, device, "x", 3 * MIB, 0, &lease);
	for (int list = 0; list < 2; list++) {
		raw_begin(c, list ? SL_MSG_LIST : SL_MSG_STAT, 0);
		if (list)
			c->m.list.most = 10;
		else
			strcpy(c->m.one.key.name, "x");
		assert_int_equal(raw_ask(c), 0);
		assert_int_equal(c->m.head.count, 1);
		item = c->m.info.items[0];
		assert_int_equal(item.bytes, 3 * MIB);
		assert_int_equal(item.memory, 4 * MIB);
		assert_int_equal(item.device, device);
		assert_int_equal(item.kind, ON_DEV);
		assert_string_equal(item.place, PLACE);
	}
	raw_end(c);
}

static int setup_small(void **state)
{
	daemon_options = small;
	return daemon_setup(state);
}

static int setup_plain(void **state)
{
	daemon_options = plain;
	return daemon_setup(state);
}

int main(int argc, char **argv)
{
	(void)argc;
	row_start(1, argv);
	return RUN_TESTS(NULL, NULL);
}
