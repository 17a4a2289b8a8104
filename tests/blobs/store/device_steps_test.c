/* SPDX-License-Identifier: Apache-2.0 */
/* The server killed at each of its steps with memory of devices: SLUICED is the daemon with steps.c. */
#include <sys/wait.h>
#include <unistd.h>

#include "lib/kill_matrix.h"
#include "lib/protocol_client.h"

#define PLACE "emulated:0"

/* A client that comes back as the library does: with its session, and what it has mapped. */
struct client {
	const struct daemon *d;
	struct raw raw;
	uint64_t mapped[8];
	unsigned count;
};

static void come(struct client *c, uint64_t session)
{
	raw_open_again(&c->raw, c->d, session);
	for (unsigned i = 0; i < c->count; i++)
		raw_tell(&c->raw, SL_MSG_HAVE, c->mapped[i]);
}

static void come_again(struct client *c)
{
	raw_hang_up(&c->raw);
	come(c, c->raw.session);
}

/* What the server wants to be unmapped is. */
static void obey(struct client *c)
{
	for (unsigned i = 0; i < c->raw.forgotten_count; i++)
		for (unsigned j = 0; j < c->count; j++)
			if (c->mapped[j] == c->raw.forgotten[i])
				c->mapped[j] = c->mapped[--c->count];
	for (unsigned i = 0; i < c->raw.forgotten_count; i++)
		raw_tell(&c->raw, SL_MSG_DROP, c->raw.forgotten[i]);
	c->raw.forgotten_count = 0;
}

static int32_t number_of(struct client *c)
{
	for (;;) {
		raw_begin(&c->raw, SL_MSG_DEVICE, 0);
		c->raw.m.device.number = -1;
		strcpy(c->raw.m.device.place, PLACE);
		if (!raw_ask(&c->raw))
			return c->raw.m.device_is.item.device;
		assert_int_not_equal(c->raw.m.head.error, -EDQUOT);
		come_again(c);
	}
}

static int try_put_one(struct client *c, int32_t device, const char *name, uint64_t bytes,
                       struct sl_found_item *out)
{
	struct sl_lease lease;
	int rc = raw_put(&c->raw, device, name, bytes, 0, &lease, out);

	if (!rc && lease.make)
		c->mapped[c->count++] = lease.range.region;
	return rc;
}

/* As often as that takes; it is there as a whole, or there is nothing of it. */
static void put_one(struct client *c, int32_t device, const char *name, uint64_t bytes)
{
	struct sl_found_item found;
	int rc;

	while ((rc = try_put_one(c, device, name, bytes, &found))) {
		if (c->raw.m.head.type == SL_MSG_REFUSAL)
			fail_msg("%s: %d: %s", name, rc, c->raw.m.refusal.text);
		assert_int_equal(rc, -ECONNRESET);
		come_again(c);
		/* The answer may be what was lost. */
		rc = raw_get(&c->raw, name, &found);
		if (!rc)
			break;
		if (rc == -ECONNRESET)
			come_again(c);
		kill_matrix_lost++;
	}
}

/* What comes in advance. */
static void give_back(struct client *c, const struct sl_lease *lease)
{
	if (lease->id)
		raw_tell(&c->raw, SL_MSG_ABORT, lease->id);
}

/* Host and device, at once. */
static void put_two(struct client *c, int32_t device)
{
	struct sl_lease leases[2];
	struct sl_found_item found;
	int rc, host, there;

	do {
		raw_begin(&c->raw, SL_MSG_CREATE, 2);
		c->raw.m.create.items[0].bytes = c->raw.m.create.items[1].bytes = 100;
		c->raw.m.create.items[0].device = -1;
		c->raw.m.create.items[0].kind = SLUICE_BLOB_ON_HOST;
		c->raw.m.create.items[1].device = device;
		c->raw.m.create.items[1].kind = SLUICE_BLOB_ON_DEVICE;
		rc = raw_ask(&c->raw);
		if (!rc) {
			memcpy(leases, c->raw.m.leases.items, sizeof(leases));
			if (leases[1].make)
				raw_make(&c->raw, &leases[1]);
			raw_begin(&c->raw, SL_MSG_SEAL, 2);
			for (int i = 0; i < 2; i++) {
				c->raw.m.seal.items[i].lease = leases[i].id;
				c->raw.m.seal.items[i].bytes = 100;
				strcpy(c->raw.m.seal.items[i].name, i ? "two/d" : "two/h");
			}
			rc = raw_ask(&c->raw);
			if (!rc && leases[1].make)
				c->mapped[c->count++] = leases[1].range.region;
			if (!rc)
				give_back(c, &c->raw.m.found.items[1].lease);
		}
		if (rc) {
			assert_int_equal(rc, -ECONNRESET);
			come_again(c);
		}
		while ((host = raw_get(&c->raw, "two/h", &found)) == -ECONNRESET)
			come_again(c);
		while ((there = raw_get(&c->raw, "two/d", &found)) == -ECONNRESET)
			come_again(c);
		assert_int_equal(host, there);
	} while (there);
}

static void read_one(struct client *c, const char *name, struct sl_held_blob *held)
{
	struct sl_found_item found;
	int fd, rc;

	while ((rc = raw_get(&c->raw, name, &found)) == -ECONNRESET)
		come_again(c);
	assert_int_equal(rc, 0);
	raw_hold(&c->raw, &found, held);
	while ((fd = raw_region(&c->raw, held->record.range.memory)) == -ECONNRESET)
		come_again(c);
	if (fd < 0)
		fail_msg("%s: %d: %s", name, fd, c->raw.m.refusal.text);
	assert_true(raw_memory_is(fd, held->record.range.memory));
	close(fd);
}

static void delete_one(struct client *c, const char *name)
{
	int rc;

	while ((rc = raw_delete(&c->raw, name)) == -ECONNRESET)
		come_again(c);
	assert_true(rc == 0 || rc == -ENOENT);
}

/* Until nothing is in use any more. */
static void wait_until_free(struct client *a, struct client *b)
{
	double until = seconds_now() + 20;

	for (;;) {
		number_of(a);
		obey(a);
		number_of(b);
		obey(b);
		if (a->raw.m.head.type == SL_MSG_DEVICE_IS && !a->raw.m.device_is.item.memory_bytes)
			return;
		if (seconds_now() > until)
			fail_msg("%llu bytes are in use, %llu of them leave",
			         (unsigned long long)a->raw.m.device_is.item.memory_bytes,
			         (unsigned long long)a->raw.m.device_is.item.leaving_bytes);
		sleep_ms(1);
	}
}

static void live(struct daemon *d)
{
	static const char *const names[] = {"small", "more", "large", "two/d"};
	struct client a = {.d = d}, b = {.d = d};
	struct sl_held_blob held[COUNT_OF(names)];
	int32_t device;

	come(&a, 0);
	come(&b, 0);
	device = number_of(&a);
	put_one(&a, device, "small", 100);
	put_one(&a, device, "more", 200);
	put_one(&a, device, "large", 3 * MIB);
	put_two(&a, device);
	assert_int_equal(number_of(&b), device);
	for (size_t i = 0; i < COUNT_OF(names); i++)
		read_one(&b, names[i], &held[i]);
	for (size_t i = 0; i < COUNT_OF(names); i++)
		delete_one(&a, names[i]);
	delete_one(&a, "two/h");
	for (size_t i = 0; i < COUNT_OF(names); i++)
		raw_release(&b.raw, &held[i]);
	wait_until_free(&a, &b);
	raw_bye(&a.raw);
	raw_bye(&b.raw);
}

TEST(memory_of_devices_is_right_wherever_the_server_dies)
{
	static const char *const steps[] = {"server: place of a device",
	                                    "server: device",
	                                    "server: created",
	                                    "server: offered",
	                                    "server: prepared",
	                                    "server: sealed",
	                                    "server: memory",
	                                    "server: deleted",
	                                    "server: forget",
	                                    "server: memory of a device gone",
	                                    NULL};

	kill_matrix_run(&(struct kill_matrix){steps, 6, .each = true, .live = live});
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "64M", NULL};

	row_start(1, argv);
	(void)argc;
	kill_matrix_begin("device-step");
	daemon_options = options;
	return RUN_TESTS(NULL, NULL);
}
