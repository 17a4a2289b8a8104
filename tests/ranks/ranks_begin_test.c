/* SPDX-License-Identifier: Apache-2.0 */
/* Before their first frame ranks change no file: a new one does not take the name of another. */
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ranks/crew.h"

/* What the opening of a rank's file does in this thread. */
static _Thread_local int open_takes_ms;

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);

int __wrap_open64(const char *path, int flags, ...)
{
	bool is_file = (flags & O_ACCMODE) == O_WRONLY && strstr(path, "x.h5");
	va_list more;
	mode_t mode;

	va_start(more, flags);
	mode = va_arg(more, mode_t);
	va_end(more);
	if (is_file && open_takes_ms)
		sleep_ms(open_takes_ms);
	return __real_open64(path, flags, mode);
}

/* One file, or one for each of two nodes. */
static struct crew crew_begins(struct fixture *f, bool nodes, unsigned flags)
{
	struct crew crew = crew_at(f, 4);

	crew.on_node = nodes ? 2 : 0;
	crew.o.flags = flags | (nodes ? SLUICE_WRITER_NODE_FILES : 0);
	crew.frames = 5;
	return crew;
}

/* ---------------------------------------------------------------------------------------- name */

enum { OLD = 5000, SOON_MS = 20, LATE_MS = 150 };

/* In the end: files of nodes get their names when it is removed. */
static bool is_old(const struct member *m)
{
	struct stat status;

	return !stat(m->path, &status) && status.st_size == OLD;
}

/* The others wait for rank 1 again and again. */
static void act_late(struct member *m)
{
	int rc;

	open_takes_ms = m->rank == 1 ? LATE_MS : 0;
	rc = crew_open(m);
	if (!rc)
		rc = crew_add(m, "u");
	m->number = is_old(m);
	if (!rc && m->rank != 1)
		rc = crew_put(m, "u", 0, 1, PATIENCE_MS);
	sleep_ms(LATE_MS);
	m->number += is_old(m);
	crew_meet(m);
	if (!rc)
		rc = crew_put(m, "u", m->rank != 1, 5, PATIENCE_MS);
	for (int i = 0; !rc && is_old(m) && i < PATIENCE_MS; i++)
		sleep_ms(1);
	m->number += is_old(m);
	crew_note(m, 0, rc);
	crew_end(m, 1);
}

FIXTURE_TEST(a_checkpoint_replaces_no_file_before_all_ranks_have_a_frame)
{
	for (int nodes = 0; nodes < 2; nodes++) {
		struct crew crew = crew_begins(f, nodes, SLUICE_WRITER_REPLACE);

		unlink(crew.path);
		file_make(crew.path, OLD, 1);
		crew.o.checkpoint_ms = SOON_MS;
		crew.o.checkpoint_frames = 1;
		crew_run(&crew, act_late);
		assert_crew_ok(&crew, 5);
		for (int r = 0; r < crew.ranks; r++)
			assert_int_equal(crew.members[r].number, 2);
	}
}

static void act_no_frames(struct member *m)
{
	const char *how = m->crew->given;
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	crew_meet(m);
	m->number = is_old(m);
	crew_meet(m);
	if (!rc && *how == 'f' && m->rank == 1)
		rc = crew_flush(m);
	crew_meet(m);
	if (*how == 'f')
		m->number += is_old(m);
	crew_note(m, 0, rc);
	if (*how == 'd')
		sluice_writer_discard(m->w);
	else
		crew_end(m, 1);
}

FIXTURE_TEST(a_flush_of_a_rank_and_the_end_give_the_name_without_a_frame)
{
	static const char *const ways[] = {"flush", "close", "discard"};

	for (size_t i = 0; i < COUNT_OF(ways); i++)
		for (int nodes = 0; nodes < 2; nodes++) {
			struct crew crew = crew_begins(f, nodes, SLUICE_WRITER_REPLACE);

			crew.given = ways[i];
			unlink(crew.path);
			file_make(crew.path, OLD, 1);
			crew_run(&crew, act_no_frames);
			assert_note(&crew, 0, 0, "");
			assert_note(&crew, 1, 0, "");
			assert_int_equal(crew.members[2].number, 1);
			assert_int_equal(file_length(crew.path) == OLD, *ways[i] == 'd');
			if (*ways[i] != 'd')
				assert_int_equal(field_look(crew.path, "u", 0, 0), 0);
		}
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	return RUN_TESTS(NULL, NULL);
}
