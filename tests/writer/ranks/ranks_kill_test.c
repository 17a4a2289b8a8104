/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks on two nodes that die together at each point where a file is written or gets its name. The first file has every
 * frame that was visible, none that is wrong, and can be continued. The processes that write and read are made by one without
 * HDF5 and without threads.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/core.h"
#include "h5file/hdf5_read.h"
#include "h5file/points.h"
#include "ranks/crew.h"

enum { FRAMES = 6, BEFORE = 4 };

static char folder[256], path[300];
/* With those processes. */
static struct shared {
	unsigned at; /* the point; 0: none */
	_Atomic unsigned points;
	_Atomic uint64_t visible;
} * shared;

static int die_here(unsigned point)
{
	shared->points = point;
	if (point == shared->at)
		kill(getpid(), SIGKILL);
	return 0;
}

static const char *series;
static uint64_t until;

static void act_write(struct member *m)
{
	struct sluice_writer_counts counts = {.size = sizeof(counts)};
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, series);
	if (!rc)
		rc = sluice_series_stats(m->s, &counts);
	for (uint64_t k = counts.frames_before; !rc && k < until; k++) {
		rc = crew_put(m, series, k, k + 1, PATIENCE_MS);
		if (!rc && k % 2)
			rc = sluice_writer_flush(m->w, PATIENCE_MS);
		if (!rc && k % 2 && !m->rank)
			shared->visible = k + 1;
	}
	if (!rc)
		rc = sluice_writer_close(m->w, PATIENCE_MS);
	crew_note(m, 0, rc);
}

/* Writes in a process of its own; its status as hdf5_look_apart() has it. */
struct writing {
	unsigned flags;
	const char *series;
	uint64_t until;
	uint64_t back; /* goes on there; 0: behind the last frame */
};

static int write_and_end(const void *argument)
{
	const struct writing *w = argument;
	sluice_context *ctx;
	struct crew crew;

	points_hook = die_here;
	series = w->series;
	until = w->until;
	if (sluice_context_new(NULL, &ctx))
		return 2;
	crew = crew_of(ctx, path, 4);
	crew.on_node = 2;
	crew.cut = "odd";
	crew.o.flags = w->flags | SLUICE_WRITER_NODE_FILES;
	crew.flags = w->back ? SLUICE_SERIES_CONTINUE_AT : 0;
	crew.at = w->back;
	crew_run(&crew, act_write);
	for (int r = 0; r < crew.ranks; r++)
		if (crew.members[r].rc[0]) {
			fprintf(stderr, "rank %d: %s\n", r, crew.members[r].said[0]);
			return 1;
		}
	sluice_context_close(ctx);
	return 0;
}

static int write_apart(unsigned flags, const char *name, uint64_t frames, unsigned at)
{
	struct writing w = {flags, name, frames, 0};

	shared->at = at;
	return hdf5_look_apart(write_and_end, &w);
}

static int go_back_apart(uint64_t back, unsigned at)
{
	struct writing w = {SLUICE_WRITER_APPEND, "u", FRAMES, back};

	shared->at = at;
	return hdf5_look_apart(write_and_end, &w);
}

static void assert_died(int status, unsigned at)
{
	if (status != 128 + SIGKILL && (status || shared->points >= at))
		fail_msg("at point %u: status %d", at, status);
}

/* Every so many points are tried. */
static unsigned step_of(unsigned points)
{
	return under_stress() ? 1 : SL_MAX(points / 20, 1);
}

TEST(frames_survive_a_death_at_any_write)
{
	unsigned end, found = 0;

	assert_int_equal(write_apart(SLUICE_WRITER_REPLACE, "u", FRAMES, 0), 0);
	end = shared->points;
	assert_int_equal(field_look_apart(path, "u", FRAMES, FRAMES), 0);
	for (unsigned at = 1; at <= end; at += step_of(end)) {
		unlink(path);
		shared->visible = 0;
		assert_died(write_apart(SLUICE_WRITER_REPLACE, "u", FRAMES, at), at);
		if (field_look_apart(path, "u", shared->visible, FRAMES))
			fail_msg("at point %u of %u: %llu frames were visible", at, end,
			         (unsigned long long)shared->visible);
		if (access(path, F_OK))
			continue;
		found++;
		assert_int_equal(write_apart(SLUICE_WRITER_APPEND, "u", FRAMES, 0), 0);
		if (field_look_apart(path, "u", FRAMES, FRAMES))
			fail_msg("continued after point %u of %u", at, end);
	}
	assert_in_range(found, 10, end);
}

/* The first file has their numbers, and counts them; the files of nodes have them. */
TEST(frames_that_are_given_up_go_before_their_numbers)
{
	unsigned end = 1;

	for (unsigned at = 0; at <= end; at += at ? 2 * step_of(end) : 1) {
		assert_int_equal(write_apart(SLUICE_WRITER_REPLACE, "u", FRAMES, 0), 0);
		shared->visible = 0;
		if (at)
			assert_died(go_back_apart(BEFORE, at), at);
		else
			assert_int_equal(go_back_apart(BEFORE, 0), 0);
		end = at ? end : shared->points;
		if (field_look_apart(path, "u", SL_MAX(shared->visible, BEFORE), FRAMES))
			fail_msg("at point %u of %u", at, end);
		assert_int_equal(write_apart(SLUICE_WRITER_APPEND, "u", FRAMES + 2, 0), 0);
		if (field_look_apart(path, "u", FRAMES + 2, FRAMES + 2))
			fail_msg("continued after point %u of %u", at, end);
	}
}

/* A file that is replaced must not show frames of new files: it is as it was, or gone, or new. */
TEST(a_death_while_files_are_replaced_mixes_no_frames)
{
	unsigned end = 0, old = 0, gone = 0, new = 0;

	for (unsigned at = 1; !new || at <= end; at += step_of(end)) {
		assert_int_equal(write_apart(SLUICE_WRITER_REPLACE, "old", BEFORE, 0), 0);
		shared->visible = 0;
		assert_died(write_apart(SLUICE_WRITER_REPLACE, "u", 2, at), at);
		end = SL_MAX(end, shared->points);
		if (access(path, F_OK))
			gone++;
		else if (!field_look_apart(path, "old", BEFORE, BEFORE))
			old++;
		else if (!field_look_apart(path, "u", SL_MAX(shared->visible, 1), 2))
			new ++;
		else
			fail_msg("at point %u of %u", at, end);
	}
	assert_true(old && gone && new);
}

int main(int argc, char **argv)
{
	const char *base = getenv("SLUICE_TEST_DIR");
	char command[320];
	int failed;

	(void)argc, (void)argv;
	snprintf(folder, sizeof(folder), "%.200s/kill-XXXXXX", base ? base : ".");
	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof(path), "%s/x.h5", folder);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	if (shared == MAP_FAILED)
		return 1;
	failed = RUN_TESTS(NULL, NULL);
	snprintf(command, sizeof(command), "rm -r '%s'", folder);
	return system(command) || failed;
}
