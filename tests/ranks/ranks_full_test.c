/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share a writer whose disk becomes full: for all of them, on a small tmpfs of a mount namespace of its own; or for
 * a rank alone, whose writes are refused. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "ranks/crew.h"

enum { DISK_KIB = 3072, FRAMES = 40 };

static char disk[256]; /* empty: nothing can be mounted */

/* Writes of chunks to pass, and then so many to refuse. Only ranks open the file for nothing but writing. */
static _Atomic int passing, refusing;

ssize_t __real_pwrite64(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at);

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at)
{
	if (refusing > 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY && --passing < 0 &&
	    --refusing >= 0) {
		errno = ENOSPC;
		return -1;
	}
	return __real_pwrite64(fd, bytes, n, at);
}

static void leave_room(unsigned kib)
{
	char ballast[300];
	int fd;

	snprintf(ballast, sizeof(ballast), "%s/ballast", disk);
	unlink(ballast);
	fd = open(ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(posix_fallocate(fd, 0, (off_t)(DISK_KIB - kib) * 1024), 0);
	close(fd);
}

/* Notes: 0 the first error, 1 that of close, 2 the frames that were visible. */
static void act_fill(struct member *m)
{
	struct sluice_writer_counts counts = {.size = sizeof(counts)};
	int rc = crew_open(m);

	crew_note(m, 0, rc);
	if (rc)
		return;
	rc = crew_add(m, "u");
	for (uint64_t k = 0; !rc && k < m->crew->frames; k++) {
		rc = crew_put(m, "u", k, k + 1, PATIENCE_MS);
		if (!rc && k % 6 == 5)
			rc = sluice_writer_flush(m->w, PATIENCE_MS);
	}
	crew_note(m, 0, rc);
	if (m->s && !sluice_series_stats(m->s, &counts))
		m->rc[2] = (int)counts.visible;
	crew_note(m, 1, sluice_writer_close(m->w, PATIENCE_MS));
}

static void assert_frames(const struct crew *crew)
{
	bool full = crew->members[0].rc[1];
	uint64_t least = full ? (uint64_t)crew->members[0].rc[2] : crew->frames;
	int wrong = field_look(crew->path, "u", least, crew->frames);

	if (wrong)
		fail_msg("not right (%d): \"%s\"", wrong, crew->members[0].said[1]);
}

/* One file, or files of two nodes. */
static void ranks_init(struct crew *crew, sluice_context *ctx, const char *path, bool nodes)
{
	crew_init(crew, ctx, path, 3);
	crew->frames = FRAMES;
	crew->on_node = nodes ? 2 : 0;
	crew->o.flags |= nodes ? SLUICE_WRITER_NODE_FILES : 0;
}

FIXTURE_TEST(a_full_disk_of_a_rank_is_the_error_of_all)
{
	struct crew crew;

	for (int pass = 3; pass < 100; pass += 24) {
		ranks_init(&crew, f->ctx, scratch(f, "x.h5"), pass % 48 == 3);
		passing = pass;
		refusing = 1000000;
		crew_run(&crew, act_fill);
		for (int r = 0; r < 3; r++) {
			const struct member *m = &crew.members[r];

			if (m->rc[0] != -ENOSPC || m->rc[1] != -ENOSPC ||
			    !strstr(m->said[1], "cannot write"))
				fail_msg("rank %d: %d: \"%s\", %d: \"%s\"", r, m->rc[0], m->said[0],
				         m->rc[1], m->said[1]);
		}
		refusing = 0;
		assert_frames(&crew);
	}
}

FIXTURE_TEST(a_rank_waits_for_room_and_loses_nothing)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	crew.frames = FRAMES;
	crew.o.full_disk_ms = PATIENCE_MS;
	passing = 20;
	refusing = 2;
	crew_run(&crew, act_fill);
	for (int r = 0; r < 3; r++)
		if (crew.members[r].rc[0] || crew.members[r].rc[1])
			fail_msg("rank %d: \"%s\"", r, crew.members[r].said[0]);
	assert_true(refusing <= 0);
	assert_frames(&crew);
}

static void assert_disk_becomes_full(struct fixture *f, bool nodes)
{
	unsigned errors = 0, fine = 0;
	char path[300], of_nodes[2][320];

	if (!disk[0])
		SKIP("no file system can be mounted here");
	snprintf(path, sizeof(path), "%s/x.h5", disk);
	for (int i = 0; i < 2; i++)
		snprintf(of_nodes[i], sizeof(of_nodes[i]), "%s.node-%d", path, i);
	for (unsigned kib = 8; kib < 900; kib += 44) {
		struct crew crew;
		bool there;
		int error;

		ranks_init(&crew, f->ctx, path, nodes);
		unlink(path);
		unlink(of_nodes[0]);
		unlink(of_nodes[1]);
		leave_room(kib);
		crew_run(&crew, act_fill);
		error = crew.members[0].rc[0] ? crew.members[0].rc[0] : crew.members[0].rc[1];
		if (error && error != -ENOSPC)
			fail_msg("%u KiB: %d: \"%s\"", kib, error, crew.members[0].said[0]);
		for (int r = 1; r < 3; r++)
			assert_int_equal(crew.members[r].rc[1], crew.members[0].rc[1]);
		errors += error != 0;
		fine += !error;
		there = !access(path, F_OK);
		if (there)
			assert_frames(&crew);
		assert_int_equal(directory_entries(disk), 1 + there * (nodes ? 3 : 1));
	}
	assert_true(errors > 3 && fine > 1);
	unlink(of_nodes[0]);
	unlink(of_nodes[1]);
}

FIXTURE_TEST(the_disk_of_all_ranks_becomes_full)
{
	assert_disk_becomes_full(f, false);
}

FIXTURE_TEST(the_disk_of_the_files_of_nodes_becomes_full)
{
	assert_disk_becomes_full(f, true);
}

/* Room comes when ranks have been told that there is none. */
static void act_wait(struct member *m)
{
	int rc = crew_open(m), refused = 0;

	if (!rc)
		rc = crew_add(m, "u");
	for (uint64_t k = 0; !rc && k < m->crew->frames; k++) {
		do
			rc = crew_put(m, "u", k, k + 1, 20);
		while (rc == -EAGAIN || (rc == -ENOSPC && ++refused < 20));
		if (refused >= 20) {
			char ballast[300];

			snprintf(ballast, sizeof(ballast), "%s/ballast", disk);
			unlink(ballast);
			refused = -1000000;
			k--;
			rc = 0;
		}
	}
	crew_note(m, 0, rc);
	m->rc[2] = refused;
	crew_note(m, 1, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(room_that_comes_later_lets_all_ranks_go_on)
{
	struct crew crew;
	char path[300];

	if (!disk[0])
		SKIP("no file system can be mounted here");
	snprintf(path, sizeof(path), "%s/x.h5", disk);
	crew_init(&crew, f->ctx, path, 3);
	crew.frames = FRAMES;
	crew.o.full_disk_ms = PATIENCE_MS;
	unlink(path);
	leave_room(240);
	crew_run(&crew, act_wait);
	for (int r = 0; r < 3; r++)
		if (crew.members[r].rc[0] || crew.members[r].rc[1])
			fail_msg("rank %d: \"%s\", \"%s\"", r, crew.members[r].said[0],
			         crew.members[r].said[1]);
	assert_true(crew.members[0].rc[2] || crew.members[1].rc[2] || crew.members[2].rc[2]);
	assert_frames(&crew);
}

int main(int argc, char **argv)
{
	int failed;

	row_start(argc, argv);
	if (getenv("SLUICE_TEST_DIR")) {
		snprintf(disk, sizeof(disk), "%s/full-XXXXXX", getenv("SLUICE_TEST_DIR"));
		if (!mkdtemp(disk) || unshare(CLONE_NEWNS) ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("none", disk, "tmpfs", 0, "size=3072k")) {
			rmdir(disk);
			disk[0] = '\0';
		}
	}
	failed = RUN_TESTS(NULL, NULL);
	if (disk[0]) {
		umount(disk);
		rmdir(disk);
	}
	return failed;
}
