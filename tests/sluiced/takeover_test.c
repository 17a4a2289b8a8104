/* SPDX-License-Identifier: Apache-2.0 */
/* What a new server makes of what a server before has left, where a client has done what the library does not. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "catalogue/layout.h"
#include "lib/protocol_client.h"

#define ON_HOST SLUICE_BLOB_ON_HOST

/* The slot of the entry that is being made, as there is one. */
static uint32_t open_slot(const struct raw *c)
{
	const struct sl_segment *segment = c->reader.segment;

	for (uint32_t slot = 0; slot < sl_segment_slots(segment); slot++)
		if (sl_word_state(segment->entries[slot].word) == SL_ENTRY_OPEN)
			return slot;
	fail_msg("nothing is being made");
	return 0;
}

/* As a get does, though there is nothing to be had. */
static void hold_what_is_open(struct raw *c)
{
	uint32_t slot = open_slot(c), position;
	uint64_t generation = sl_word_generation(c->reader.segment->entries[slot].word);

	assert_int_equal(sl_references_claim(c->reader.references, sl_reference(generation, slot),
	                                     &position),
	                 0);
}

DAEMON_TEST(abandoned_request_takes_no_place_from_later_requests)
{
	struct raw *c = raw_new(d);
	struct sl_lease leases[2 * SL_ITEMS_MOST], next[2 * SL_ITEMS_MOST];
	struct sl_found_item found;
	struct sluice_store_counts stats;

	assert_true(raw_create(c, -1, ON_HOST, 100, SLUICE_BLOB_RESERVE, "reserved", leases) > 1);
	/* So its entry stays for a while after it. */
	hold_what_is_open(c);
	raw_tell(c, SL_MSG_ABORT, leases[0].id);
	assert_true(raw_create(c, -1, ON_HOST, 100, 0, "", next) > 0);
	assert_int_equal(next[0].place.region, leases[0].place.region);
	assert_int_equal(next[0].place.offset, leases[0].place.offset);
	assert_int_equal(raw_seal(c, &next[0], "sealed", 100, 0, 0, &found), 0);
	daemon_replace_server(d);
	assert_int_equal(sluice_blob_exists(d->store, "sealed"), 1);
	stats = stats_of(d->store);
	assert_int_equal(stats.sealed, 1);
	assert_int_equal(stats.blob_bytes, 4096);
	assert_ok(sluice_blob_delete(d->store, "sealed"));
	raw_hang_up(c);
	free(c);
}

/* ------------------------------------------------------------------------ whose references stay */

/* Says hello as a client that comes back does, and gives it up before the server has read it. */
static void say_hello_in_vain(const struct daemon *d, uint64_t session)
{
	union sl_message m;
	int fd = raw_connect(d);

	sl_message_begin(&m, SL_MSG_HELLO, 1, 0);
	m.hello.role = SL_ROLE_CLIENT;
	m.hello.session = session;
	assert_true(raw_send(fd, &m, m.head.bytes));
	close(fd);
}

/* The next server comes late, as on a busy machine: it finds hellos that nobody waits for. */
static void replace_server_late(const struct daemon *d, const struct raw *c)
{
	pid_t server = daemon_server(d, 0);

	kill(d->supervisor, SIGSTOP);
	kill(server, SIGKILL);
	say_hello_in_vain(d, c->session);
	say_hello_in_vain(d, c->session);
	kill(d->supervisor, SIGCONT);
	daemon_server(d, server);
}

/* The other blob takes the memory of one that is deleted, if nobody holds that. */
static void delete_and_overwrite(const struct daemon *d, const char *name, size_t n)
{
	assert_ok(sluice_blob_delete(d->store, name));
	assert_let_go(put(d->store, "other", n, 0), d->store, "other");
}

DAEMON_TEST(hello_that_comes_late_drops_nothing_that_its_process_holds)
{
	struct raw *c = raw_new(d), again;
	struct sl_found_item found;
	struct sl_held_blob held;
	struct sluice_blob_info info = {.size = sizeof(info)};
	sluice_blob *blob = put(d->store, "held", 200000, SLUICE_BLOB_TRANSIENT);
	char *bytes;
	int fd;

	assert_int_equal(raw_get(c, "held", &found), 0);
	raw_hold(c, &found, &held);
	fd = raw_region(c, held.record.place.memory);
	assert_true(fd >= 0);
	bytes = mmap(NULL, 200000, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(bytes != MAP_FAILED);
	assert_ok(sluice_blob_release(blob));
	replace_server_late(d, c);
	assert_ok(sluice_blob_stat(d->store, "held", &info));
	assert_int_equal(info.holders, 1);
	delete_and_overwrite(d, "held", 200000);
	assert_int_equal(pattern_match(bytes, 200000, 0, seed_of("held", 200000)), 200000);
	assert_int_equal(stats_of(d->store).dying, 1);
	/* It comes back to what it has. */
	raw_open_again(&again, d, c->session);
	assert_int_equal(again.session, c->session);
	assert_int_equal(stats_of(d->store).clients, 2);
	raw_release(&again, &held);
	munmap(bytes, 200000);
	close(fd);
	raw_bye(&again);
	raw_hang_up(c);
	free(c);
	assert_idle(d->store);
}

/* A get of a client reads the catalogue, whether there is a connection or not. */
static void get_without_connection(struct daemon *d, struct raw *c)
{
	struct sl_blob_key key = {.name = "held", .length = 4};
	struct sl_held_blob held;
	uint64_t bytes;
	int rc;

	assert_ok(sluice_blob_release(put(d->store, "held", 100000, 0)));
	rc = sl_reader_get(&c->reader, &key, &held);
	assert_ok(sluice_blob_delete(d->store, "held"));
	/* Either it holds nothing, or a sweep finds that it does. */
	assert_ok(sluice_store_trim(d->store, &bytes));
	assert_int_equal(stats_of(d->store).dying, rc == 0);
	if (!rc)
		sl_reader_release(&c->reader, &held);
}

DAEMON_TEST(references_that_the_server_does_not_scan_are_not_taken)
{
	struct raw *c = raw_new(d);

	shutdown(c->fd, SHUT_RDWR);
	assert_idle(d->store);
	get_without_connection(d, c);
	raw_hang_up(c);
	raw_open_again(c, d, 0);
	replace_server_late(d, c);
	get_without_connection(d, c);
	raw_hang_up(c);
	free(c);
}

DAEMON_MAIN("64M")
