/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of devices, by raw messages: servers and processes that die, clients that offer what they should
 * not, and descriptors that are short. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/protocol_client.h"

#define PLACE  "emulated:0"
#define UNIT   (2 * MIB)
#define ON_DEV SLUICE_BLOB_ON_DEVICE

/* ------------------------------------------------------------------------- replaced servers */

DAEMON_TEST(blobs_survive_a_server)
{
	struct raw *c = raw_new(d), *other = raw_new(d);
	int32_t device = raw_device(c, PLACE).device;
	struct sl_lease kept, gone, mine, advance[2 * SL_ITEMS_MOST];
	struct sl_found_item found;
	struct sl_held_blob held;
	uint64_t session = c->session;
	int fd;

	raw_put_ok(c, device, "kept", 3 * MIB, 0, &kept);
	raw_put_ok(c, device, "gone", 3 * MIB, 0, &gone);
	close(raw_region(other, kept.range.region));
	assert_true(raw_create(c, device, ON_DEV, 100, 0, "", advance) > 0);
	raw_make(c, &advance[0]);
	raw_await(c, PLACE, 10 * MIB, 0);
	daemon_replace_server(d);
	raw_hang_up(c);
	raw_open_again(c, d, session);
	/* The other one has not come back yet, and may have mapped what is there: also what has nothing in it. */
	raw_await(c, PLACE, 10 * MIB, UNIT);
	raw_tell(c, SL_MSG_HAVE, advance[0].range.region);
	assert_true(raw_is_told(c, advance[0].range.region));
	raw_tell(c, SL_MSG_DROP, advance[0].range.region);
	raw_tell(c, SL_MSG_HAVE, 12345678);
	assert_true(raw_is_told(c, 12345678));
	raw_tell(c, SL_MSG_HAVE, kept.range.region);
	raw_tell(c, SL_MSG_HAVE, gone.range.region);

	/* What became of a seal whose answer was lost. */
	raw_begin(c, SL_MSG_LOCATE, 0);
	c->m.locate.region = kept.range.region;
	assert_int_equal(raw_ask(c), 0);
	assert_int_equal(c->m.head.type, SL_MSG_FOUND);

	assert_int_equal(raw_delete(c, "gone"), 0);
	assert_true(raw_is_told(c, gone.range.region));
	raw_tell(c, SL_MSG_DROP, gone.range.region);
	raw_await(c, PLACE, 10 * MIB, 6 * MIB);
	session = other->session;
	raw_hang_up(other);
	raw_open_again(other, d, session);
	raw_await(c, PLACE, 4 * MIB, 0);
	assert_int_equal(raw_get(other, "kept", &found), 0);
	raw_hold(other, &found, &held);
	fd = raw_region(other, kept.range.region);
	assert_true(raw_memory_is(fd, kept.range.region));
	close(fd);
	raw_release(other, &held);
	/* No range of it is used again. */
	raw_put_ok(c, device, "new", 100, 0, &mine);
	assert_int_equal(mine.make, 1);
	assert_int_equal(raw_delete(c, "kept"), 0);
	assert_true(raw_is_told(c, kept.range.region));
	assert_true(raw_is_told(other, kept.range.region));
	raw_tell(c, SL_MSG_DROP, kept.range.region);
	raw_end(other);
	raw_await(c, PLACE, UNIT, 0);
	raw_end(c);
}

/* ------------------------------------------------------------------------ memory of a process */

static void publish(struct raw *c, int32_t device, const char *name, struct sl_lease *lease)
{
	struct sl_lease leases[2 * SL_ITEMS_MOST];
	struct sl_found_item found;

	assert_int_equal(raw_create(c, device, SLUICE_BLOB_OF_PROCESS, 10000, 0, "", leases), 1);
	*lease = leases[0];
	assert_int_equal(lease->make, 1);
	assert_int_equal(lease->range.capacity, 10000);
	assert_int_equal(raw_seal(c, lease, name, 10000, 1, 0, &found), -EINVAL);
	raw_make(c, lease);
	assert_int_equal(raw_seal(c, lease, name, 10000, 1, 0, &found), -EINVAL);
	assert_int_equal(raw_seal(c, lease, name, 1000, 777, 0, &found), 0);
}

static void publish_and_wait(const struct daemon *d, int say)
{
	struct raw *c = raw_new(d);
	struct sl_lease lease;

	publish(c, raw_device(c, PLACE).device, "x", &lease);
	raw_other_says(say);
}

/* What a reader of it sees; and that it goes with its process, however that ends. */
static void check_published(const struct daemon *d, struct raw *c, void (*end)(void *), void *by)
{
	struct sl_found_item found;
	struct sl_held_blob held;
	uint64_t region;
	int fd;

	assert_int_equal(raw_get(c, "x", &found), 0);
	raw_hold(c, &found, &held);
	region = held.record.range.memory;
	assert_int_equal(held.record.size, 1000);
	assert_int_equal(held.record.range.offset, 777);
	assert_int_equal(held.record.range.kind, SLUICE_BLOB_OF_PROCESS);
	fd = raw_region(c, region);
	assert_true(raw_memory_is(fd, region));
	close(fd);
	end(by);
	assert_true(raw_is_told(c, region));
	assert_int_equal(raw_get(c, "x", &found), -ENOENT);
	assert_int_equal(raw_region(c, region), -ESTALE);
	raw_release(c, &held);
	raw_tell(c, SL_MSG_DROP, region);
	assert_int_equal(sluice_blob_exists(d->store, "x"), 0);
}

static void end_by_bye(void *c)
{
	raw_end(c);
}

static void end_by_hanging_up(void *c)
{
	raw_hang_up(c);
	free(c);
}

static void end_by_kill(void *other)
{
	raw_other_kill(other);
}

DAEMON_TEST(memory_of_a_process_vanishes_with_it)
{
	struct raw *c = raw_new(d), *a;
	struct sl_lease lease;
	struct raw_other other;

	a = raw_new(d);
	publish(a, raw_device(a, PLACE).device, "x", &lease);
	check_published(d, c, end_by_bye, a);
	a = raw_new(d);
	publish(a, raw_device(a, PLACE).device, "x", &lease);
	check_published(d, c, end_by_hanging_up, a);
	other = raw_other_start(d, publish_and_wait);
	check_published(d, c, end_by_kill, &other);
	a = raw_new(d);
	publish(a, raw_device(a, PLACE).device, "x", &lease);
	assert_int_equal(raw_delete(a, "x"), 0);
	assert_true(raw_is_told(a, lease.range.region));
	raw_tell(a, SL_MSG_DROP, lease.range.region);
	assert_int_equal(raw_device(a, PLACE).memory_bytes, 0);
	raw_end(a);
	raw_end(c);
}

DAEMON_TEST(memory_of_a_process_outlives_servers_but_not_the_process)
{
	struct raw *a = raw_new(d), *c = raw_new(d);
	struct sl_lease lease;
	struct raw_other other;
	uint64_t session = a->session;

	publish(a, raw_device(a, PLACE).device, "x", &lease);
	daemon_replace_server(d);
	raw_hang_up(a);
	raw_open_again(a, d, session);
	raw_hang_up(c);
	raw_open_again(c, d, 0);
	check_published(d, c, end_by_bye, a);

	/* It dies while there is a server that it has not come back to. */
	other = raw_other_start(d, publish_and_wait);
	daemon_replace_server(d);
	raw_hang_up(c);
	raw_open_again(c, d, 0);
	check_published(d, c, end_by_kill, &other);

	/* It is dead before the new one comes. */
	other = raw_other_start(d, publish_and_wait);
	kill(daemon_server(d, 0), SIGSTOP);
	raw_other_kill(&other);
	daemon_replace_server(d);
	raw_hang_up(c);
	raw_open_again(c, d, 0);
	assert_int_equal(sluice_blob_exists(d->store, "x"), 0);
	raw_end(c);
}

/* -------------------------------------------------------------------------------- what breaks */

static void offer_for_others(struct raw *c, const struct sl_lease *mine, uint64_t other)
{
	int memory = memfd_create("other", MFD_CLOEXEC);

	(void)mine;
	raw_offer(c, other, memory);
	close(memory);
}

static void offer_twice(struct raw *c, const struct sl_lease *mine, uint64_t other)
{
	(void)other;
	raw_make(c, mine);
	raw_make(c, mine);
}

static void offer_nothing(struct raw *c, const struct sl_lease *mine, uint64_t other)
{
	(void)other;
	raw_begin(c, SL_MSG_OFFER, 0);
	c->m.head.serial = 0;
	c->m.offer.region = mine->range.region;
	raw_send(c->fd, &c->m, c->m.head.bytes);
}

static void offer_no_memory(struct raw *c, const struct sl_lease *mine, uint64_t other)
{
	(void)other;
	raw_offer(c, mine->range.region, c->fd);
}

static void offer_memory(struct raw *c, const struct sl_lease *mine, uint64_t bytes, bool sealed)
{
	int memory = raw_memory(bytes, sealed);

	raw_offer(c, mine->range.region, memory);
	close(memory);
}

static void offer_more(struct raw *c, const struct sl_lease *mine, uint64_t other)
{
	(void)other;
	offer_memory(c, mine, 100 * MIB, true);
}

static void offer_less(struct raw *c, const struct sl_lease *mine, uint64_t other)
{
	(void)other;
	offer_memory(c, mine, 2 * MIB, true);
}

static void offer_what_shrinks(struct raw *c, const struct sl_lease *mine, uint64_t other)
{
	(void)other;
	offer_memory(c, mine, 4 * MIB, false);
}

static void offer_a_long_letter(struct raw *c, const struct sl_lease *mine, uint64_t other)
{
	struct sl_lease leases[2 * SL_ITEMS_MOST];

	(void)other;
	assert_int_equal(
		raw_create(c, mine->range.device, SLUICE_BLOB_OF_PROCESS, 3 * MIB, 0, "", leases),
		1);
	offer_memory(c, leases, 8192, true);
}

static void offer_two(struct raw *c, const struct sl_lease *mine, uint64_t other)
{
	int memory = memfd_create("two", MFD_CLOEXEC);

	(void)other;
	raw_begin(c, SL_MSG_OFFER, 0);
	c->m.head.serial = 0;
	c->m.offer.region = mine->range.region;
	raw_send_with(c->fd, &c->m, c->m.head.bytes, (const int[]){memory, memory}, 2);
}

static void offer_with_a_get(struct raw *c, const struct sl_lease *mine, uint64_t other)
{
	(void)mine, (void)other;
	raw_begin(c, SL_MSG_STATS, 0);
	raw_send_with(c->fd, &c->m, c->m.head.bytes, &c->fd, 1);
}

static void offer_without_a_message(struct raw *c, const struct sl_lease *mine, uint64_t other)
{
	(void)mine, (void)other;
	raw_send_with(c->fd, &c->m, 0, &c->fd, 1);
}

DAEMON_TEST(an_offer_that_is_none_breaks_the_connection)
{
	static void (*const offers[])(struct raw *, const struct sl_lease *, uint64_t) = {
		offer_for_others, offer_twice,        offer_nothing,           offer_no_memory,
		offer_two,        offer_with_a_get,   offer_without_a_message, offer_more,
		offer_less,       offer_what_shrinks, offer_a_long_letter,
	};
	struct raw *victim = raw_new(d);
	int32_t device = raw_device(victim, PLACE).device;
	struct sl_lease theirs[2 * SL_ITEMS_MOST], mine[2 * SL_ITEMS_MOST];
	struct sl_found_item found;

	assert_int_equal(raw_create(victim, device, ON_DEV, 3 * MIB, 0, "", theirs), 1);
	for (size_t i = 0; i < COUNT_OF(offers); i++) {
		pid_t pid = fork();

		/* In a process of its own, which takes with it what it has. */
		if (!pid) {
			struct raw *c = raw_new(d);

			assert_int_equal(raw_create(c, device, ON_DEV, 3 * MIB, 0, "", mine), 1);
			offers[i](c, &mine[0], theirs[0].range.region);
			_exit(is_hung_up(c->fd) ? 0 : 1);
		}
		if (child_status(pid))
			fail_msg("offer %zu is taken", i);
	}
	raw_await(victim, PLACE, 4 * MIB, 0);
	raw_make(victim, &theirs[0]);
	assert_int_equal(raw_seal(victim, &theirs[0], "x", 3 * MIB, 0, 0, &found), 0);
	raw_end(victim);
}

/* Memory of an emulated device is memory of the host. */
DAEMON_TEST(memfds_of_devices_are_not_more_than_memory)
{
	struct raw *c = raw_new(d);
	int32_t device = raw_device(c, PLACE).device;
	struct sl_lease lease;
	struct sl_found_item found;

	raw_put_ok(c, device, "x", 40 * MIB, 0, &lease);
	assert_int_equal(raw_put(c, device, "y", 40 * MIB, 0, &lease, &found), -ENOSPC);
	assert_non_null(strstr(c->m.refusal.text, "--memory"));
	daemon_replace_server(d);
	raw_hang_up(c);
	raw_open_again(c, d, 0);
	assert_int_equal(raw_put(c, device, "y", 40 * MIB, 0, &lease, &found), -ENOSPC);
	raw_put_ok(c, device, "z", 20 * MIB, 0, &lease);
	raw_end(c);
}

DAEMON_TEST(mapping_counts_when_its_memory_cannot_be_had_again)
{
	struct raw *a = raw_new(d), *b = raw_new(d);
	int32_t device = raw_device(a, PLACE).device;
	pid_t server = daemon_server(d, 0);
	struct rlimit before, few = {3, 0};
	struct sl_lease lease;
	int fd;

	raw_put_ok(a, device, "x", 3 * MIB, 0, &lease);
	fd = raw_region(b, lease.range.region);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(prlimit(server, RLIMIT_NOFILE, NULL, &before), 0);
	few.rlim_max = before.rlim_max;
	assert_int_equal(prlimit(server, RLIMIT_NOFILE, &few, NULL), 0);
	assert_int_equal(raw_region(b, lease.range.region), -EMFILE);
	assert_int_equal(prlimit(server, RLIMIT_NOFILE, &before, NULL), 0);
	raw_tell(a, SL_MSG_DROP, lease.range.region);
	assert_int_equal(raw_delete(a, "x"), 0);
	assert_true(raw_is_told(b, lease.range.region));
	raw_await(a, PLACE, 4 * MIB, 4 * MIB);
	raw_tell(b, SL_MSG_DROP, lease.range.region);
	raw_await(b, PLACE, 0, 0);
	raw_end(a);
	raw_end(b);
}

DAEMON_MAIN("64M")
