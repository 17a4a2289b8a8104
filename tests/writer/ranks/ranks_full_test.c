/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share a writer whose disk becomes full: for all of them, or for a rank alone, whose writes are refused. */
#include <fcntl.h>
#include <unistd.h>

#include "frames/small_disk.h"
#include "ranks/crew.h"

enum { FRAMES = 40 };

/* Writes of chunks to pass, and then so many to refuse. Only ranks open the file for nothing but writing. */
static _Atomic int passing, refusing;
/* The first memory behind a refused write is refused, too: that of the message which tells of it. */
static bool starving;
static _Thread_local bool starved;

ssize_t __real_pwrite64(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at);

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at)
{
	if (refusing > 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY && --passing < 0 &&
	    --refusing >= 0) {
		starved = starving;
		errno = ENOSPC;
		return -1;
	}
	return __real_pwrite64(fd, bytes, n, at);
}

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);

void *__wrap_malloc(size_t n)
{
	bool refused = starved;

	starved = false;
	return refused ? NULL : __real_malloc(n);
}

/* The number: frames that were visible. */
static void act_fill(struct member *m)
{
	struct sluice_writer_counts counts = {.size = sizeof(counts)};
	int rc = crew_begin(m, 0);

	for (uint64_t k = 0; !rc && k < FRAMES; k++) {
		rc = crew_put(m, "u", k, k + 1, PATIENCE_MS);
		if (!rc && k % 6 == 5)
			rc = crew_flush(m);
	}
	crew_note(m, 0, rc);
	if (m->s && !sluice_series_stats(m->s, &counts))
		m->number = counts.visible;
	if (m->w)
		crew_end(m, 1);
}

static void assert_frames(const struct crew *crew)
{
	const struct member *m = &crew->members[0];
	int wrong = field_look(crew->path, "u", m->rc[1] ? m->number : FRAMES, FRAMES);

	if (wrong)
		fail_msg("not right (%d): \"%s\"", wrong, m->said[1]);
}

/* Files of two nodes. */
static void crew_has_nodes(struct crew *crew)
{
	crew->on_node = 2;
	crew->o.flags |= SLUICE_WRITER_NODE_FILES;
}

FIXTURE_TEST(a_full_disk_of_a_rank_is_the_error_of_all)
{
	for (int pass = 3; pass < 100; pass += 24) {
		struct crew crew = crew_at(f, 3);

		if (pass % 48 == 3)
			crew_has_nodes(&crew);
		passing = pass;
		refusing = 1000000;
		crew_run(&crew, act_fill);
		assert_note(&crew, 0, ENOSPC, "");
		assert_note(&crew, 1, ENOSPC, "cannot write");
		refusing = 0;
		assert_frames(&crew);
	}
}

FIXTURE_TEST(a_rank_without_memory_for_its_error_ends_all_the_same)
{
	struct crew crew = crew_at(f, 3);
	int full = 0;

	starving = true;
	passing = 20;
	refusing = 1;
	crew_run(&crew, act_fill);
	starving = false;
	for (int r = 0; r < 3; r++) {
		full += crew.members[r].rc[1] == -ENOSPC;
		assert_int_not_equal(crew.members[r].rc[1], 0);
	}
	assert_int_equal(full, 1);
	assert_frames(&crew);
}

FIXTURE_TEST(a_rank_waits_for_room_and_loses_nothing)
{
	struct crew crew = crew_at(f, 3);

	crew.o.full_disk_ms = PATIENCE_MS;
	passing = 20;
	refusing = 2;
	crew_run(&crew, act_fill);
	assert_true(refusing <= 0);
	assert_crew_ok(&crew, FRAMES);
}

static void assert_disk_becomes_full(struct fixture *f, bool nodes)
{
	unsigned errors = 0, fine = 0;
	char of_node[320];

	for (unsigned kib = 8; kib < 900; kib += 44) {
		struct crew crew = crew_of(f->ctx, disk_file(kib), 3);
		int error;

		if (nodes)
			crew_has_nodes(&crew);
		crew_run(&crew, act_fill);
		error = crew.members[0].rc[0] ? crew.members[0].rc[0] : crew.members[0].rc[1];
		if (error && error != -ENOSPC)
			fail_msg("%u KiB: %d: \"%s\"", kib, error, crew.members[0].said[0]);
		for (int r = 1; r < 3; r++)
			assert_int_equal(crew.members[r].rc[1], crew.members[0].rc[1]);
		errors += error != 0;
		fine += !error;
		if (!access(crew.path, F_OK))
			assert_frames(&crew);
		assert_disk_has(access(crew.path, F_OK) ? 0 : nodes ? 3 : 1);
		for (int i = 0; i < 2; i++) {
			snprintf(of_node, sizeof(of_node), "%s.node-%d", crew.path, i);
			unlink(of_node);
		}
	}
	assert_true(errors > 3 && fine > 1);
}

FIXTURE_TEST(the_disk_of_all_ranks_becomes_full)
{
	assert_disk_becomes_full(f, false);
}

FIXTURE_TEST(the_disk_of_the_files_of_nodes_becomes_full)
{
	assert_disk_becomes_full(f, true);
}

/* Room comes when ranks have been told that there is none. The number: how often they were. */
static void act_wait(struct member *m)
{
	int rc = crew_begin(m, 0);

	for (uint64_t k = 0; !rc && k < FRAMES; k++)
		do {
			rc = crew_put(m, "u", k, k + 1, 20);
			if (rc == -ENOSPC && ++m->number == 20)
				disk_leave_all();
		} while (rc == -EAGAIN || rc == -ENOSPC);
	crew_note(m, 0, rc);
	crew_end(m, 1);
}

FIXTURE_TEST(room_that_comes_later_lets_all_ranks_go_on)
{
	struct crew crew = crew_of(f->ctx, disk_file(120), 3);

	crew.o.full_disk_ms = PATIENCE_MS;
	crew_run(&crew, act_wait);
	assert_true(crew.members[0].number || crew.members[1].number || crew.members[2].number);
	assert_crew_ok(&crew, FRAMES);
}

static void act_open(struct member *m)
{
	crew_note(m, 0, crew_open(m));
}

FIXTURE_TEST(a_disk_without_any_room_is_the_error_of_opening_on_all_ranks)
{
	static const char page[4096];
	const char *path = disk_file(0);
	struct crew crew = crew_of(f->ctx, path, 2);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	while (write(fd, page, sizeof(page)) > 0)
		;
	close(fd);
	crew.o.flags = SLUICE_WRITER_REPLACE;
	crew_run(&crew, act_open);
	assert_note(&crew, 0, ENOSPC, "No space left");
	assert_disk_has(1);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	return disk_run(__FILE__);
}
