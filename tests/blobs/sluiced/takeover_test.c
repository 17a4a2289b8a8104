/* SPDX-License-Identifier: Apache-2.0 */
/* What a new server makes of what a server before has left, where a client has done what the library does not. */
#include <dirent.h>
#include <fcntl.h>
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
	assert_int_equal(next[0].range.region, leases[0].range.region);
	assert_int_equal(next[0].range.offset, leases[0].range.offset);
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

/* ------------------------------------------------------------------------------ a damaged catalogue */

static char report[220]; /* the file with what the daemon reports */

static int begin_with_report(void **state)
{
	int usual = dup(STDERR_FILENO), fd;

	snprintf(report, sizeof(report), "%s/store-report-%d", getenv("SLUICE_TEST_DIR"),
	         (int)getpid());
	fd = open(report, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && usual >= 0);
	dup2(fd, STDERR_FILENO);
	close(fd);
	daemon_setup(state);
	dup2(usual, STDERR_FILENO);
	return close(usual);
}

static int end_with_report(void **state)
{
	unlink(report);
	return daemon_teardown(state);
}

static void assert_reported(const char *format, ...)
{
	static char all[65536];
	int fd = open(report, O_RDONLY | O_CLOEXEC);
	char wanted[400];
	va_list arguments;
	ssize_t n;

	va_start(arguments, format);
	vsnprintf(wanted, sizeof(wanted), format, arguments);
	va_end(arguments);
	n = read(fd, all, sizeof(all) - 1);
	close(fd);
	assert_true(n > 0);
	all[n] = '\0';
	if (!strstr(all, wanted))
		fail_msg("the daemon has not reported \"%s\" but\n%s", wanted, all);
}

/* As a process of the daemon's user may. */
static struct sl_segment *map_for_writing(const struct daemon *d)
{
	char folder[40], path[300], target[100];
	struct sl_segment *segment = NULL;
	struct dirent *entry;
	DIR *fds;

	snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)daemon_server(d, 0));
	fds = opendir(folder);
	assert_non_null(fds);
	while (!segment && (entry = readdir(fds))) {
		ssize_t n;
		int fd;

		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		if (!strstr(target, "sluice-catalogue"))
			continue;
		fd = open(path, O_RDWR | O_CLOEXEC);
		assert_true(fd >= 0);
		assert_int_equal(sl_segment_map(fd, true, &segment), 0);
		close(fd);
	}
	closedir(fds);
	assert_non_null(segment);
	return segment;
}

static struct sl_entry *entry_named(struct sl_segment *segment, const char *name)
{
	for (uint32_t slot = 0; slot < sl_segment_slots(segment); slot++)
		if (!strcmp(segment->entries[slot].name, name) &&
		    sl_word_state(segment->entries[slot].word) == SL_ENTRY_SEALED)
			return &segment->entries[slot];
	fail_msg("there is no '%s'", name);
	return NULL;
}

DAEMON_TEST_WITH(each_damaged_entry_is_reported_and_dropped, begin_with_report, end_with_report)
{
	static const char *const names[] = {"name", "length", "place", "state", "good"};
	unsigned long long ids[COUNT_OF(names)];
	struct sl_segment *segment = map_for_writing(d);
	struct sluice_blob_info info = {.size = sizeof(info)};

	for (size_t i = 0; i < COUNT_OF(names); i++) {
		assert_ok(sluice_blob_release(put(d->store, names[i], 5000, 0)));
		assert_ok(sluice_blob_stat(d->store, names[i], &info));
		ids[i] = info.id;
	}
	memcpy(entry_named(segment, "name")->name, "\033[2J", 4);
	entry_named(segment, "length")->name_length = 1000;
	entry_named(segment, "place")->ranges[0].memory = 12345;
	entry_named(segment, "state")->word |= SL_STATE_BITS;
	sl_segment_unmap(segment);
	daemon_replace_server(d);
	assert_there(d->store, "good", 5000);
	for (size_t i = 0; i + 1 < COUNT_OF(names); i++)
		assert_int_equal(sluice_blob_exists(d->store, names[i]), 0);
	assert_reported("the blob '?[2J' (id %llu, entry ", ids[0]);
	assert_reported("is dropped: its record is one that no server writes\n");
	assert_reported("the blob 'place' (id %llu, entry ", ids[2]);
	assert_reported("is dropped: its memory is gone, or is that of another blob\n");
	assert_reported("the blob 'state' (id %llu, entry ", ids[3]);
	assert_ok(sluice_blob_delete(d->store, "good"));
}

/* All is lost, and said; those who knew the old catalogue get on with the new one. */
DAEMON_TEST_WITH(damaged_header_is_reported, begin_with_report, end_with_report)
{
	struct sl_segment *segment = map_for_writing(d);
	sluice_store *other = daemon_connect(d);
	sluice_blob *held, *none;

	held = put(d->store, "old", 5000, 0);
	segment->header->magic++;
	sl_segment_unmap(segment);
	daemon_replace_server(d);
	/* A client that has heard of the server a moment ago does not know yet. */
	while (sluice_blob_exists(d->store, "old") != 0)
		sleep_ms(1);
	assert_reported("all blobs are dropped: cannot open the catalogue: ");
	assert_int_equal(sluice_blob_get(d->store, "old", 0, &none), -ENOENT);
	assert_ok(sluice_blob_release(put(other, "new", 5000, 0)));
	assert_there(d->store, "new", 5000);
	assert_blob(held, "old", 5000);
	assert_ok(sluice_blob_release(held));
	assert_ok(sluice_blob_delete(other, "new"));
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
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
	fd = raw_region(c, held.record.range.memory);
	assert_true(fd >= 0);
	bytes = mmap(NULL, 200000, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(bytes != MAP_FAILED);
	assert_ok(sluice_blob_release(blob));
	replace_server_late(d, c);
	assert_ok(sluice_blob_stat(d->store, "held", &info));
	assert_int_equal(info.holders, 1);
	delete_and_overwrite(d, "held", 200000);
	assert_int_equal(pattern_match(bytes, 200000, 0, seed_of("held", 200000)), 200000);
	/* The other goes with the next sweep. */
	while (stats_of(d->store).dying != 1)
		sleep_ms(1);
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
	while (stats_of(d->store).dying != (rc == 0))
		sleep_ms(1);
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
