/* SPDX-License-Identifier: Apache-2.0 */
/* Before their first frame ranks change no file: a new one does not take the name of another, and one that is there stays as
 * it is if an opening or a series is refused. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ranks/crew.h"

/* What the opening of a rank's file does in this thread. */
static _Thread_local int open_takes_ms, open_fails;

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
	errno = open_fails;
	return is_file && open_fails ? -1 : __real_open64(path, flags, mode);
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

/* ------------------------------------------------------------------------------------- refused */

struct sight {
	char bytes[MIB];
	size_t n;
	struct timespec changed;
};
static struct sight sights[2][3];

static void see(struct fixture *f, struct sight *out, bool nodes)
{
	static const char *const names[] = {"x.h5", "x.h5.node-0", "x.h5.node-1"};

	for (size_t i = 0; i < (nodes ? 3 : 1); i++) {
		struct stat status;

		assert_int_equal(stat(scratch(f, names[i]), &status), 0);
		assert_in_range(status.st_size, 1, sizeof(out[i].bytes));
		out[i].n = (size_t)status.st_size;
		out[i].changed = status.st_mtim;
		file_read(scratch(f, names[i]), out[i].bytes, out[i].n, 0);
	}
}

/* Rank -1: all of them. */
struct refusal {
	int rank, error;
	const char *says;
	uint64_t chunk, at, shape;
	const char *codec;
	unsigned precision, depth, type;
	bool open; /* the rank cannot open its file */
};

static void act_refused(struct member *m)
{
	const struct refusal *r = m->crew->given;
	bool mine = r->rank < 0 || r->rank == m->rank;
	struct sluice_series_options o = field_options("deflate", 0);
	int rc;

	open_fails = r->open && mine ? EACCES : 0;
	rc = crew_open(m);
	open_fails = 0;
	if (!rc) {
		o.flags = SLUICE_SERIES_CONTINUE_AT;
		o.continue_at = 2;
		if (mine) {
			o.chunk[0] = r->chunk ? r->chunk : o.chunk[0];
			o.continue_at = r->at ? r->at : o.continue_at;
			o.shape[0] += r->shape;
			o.codec = r->codec ? r->codec : o.codec;
			o.precision = r->precision;
			o.depth = r->depth;
			o.type = r->type ? (int)r->type : o.type;
		}
		m->block.count[0] += r->shape && r->rank < 0 && m->rank == 3 ? r->shape : 0;
		rc = sluice_series_add_block(m->w, "u", &o, &m->block, PATIENCE_MS, &m->s);
		crew_end(m, 1);
	}
	crew_note(m, 0, rc);
}

FIXTURE_TEST(what_ranks_refuse_leaves_all_files_as_they_are)
{
	static const struct sluice_attribute attribute = {.name = "new", .text = "of the file"};
	static const struct refusal refusals[] = {
		{-1, EEXIST, .says = "asked for none", .codec = "none"},
		{-1, EEXIST, .says = "asked for 10 x 50", .chunk = 10},
		{-1, EEXIST, .says = "asked for int16", .type = SLUICE_INT16},
		{-1, EEXIST, .says = "asked for 62 x 50", .shape = 1},
		{-1, EEXIST, .says = "asked for 7", .precision = 7},
		{-1, EINVAL, .says = "has 5 frames", .at = 6},
		{2, EINVAL, .says = "rank 0 and rank 2 differ in continue_at", .at = 4},
		{2, EINVAL, .says = "rank 2: series options: 99 is no type", .type = 99},
		{1, ENOBUFS, .says = "rank 1: 'u' needs", .depth = 100000},
		{3, EACCES, .says = "rank 3: cannot open", .open = true},
	};

	for (int nodes = 0; nodes < 2; nodes++) {
		struct crew crew = crew_begins(f, nodes, SLUICE_WRITER_REPLACE);

		crew_run(&crew, crew_write);
		assert_crew_ok(&crew, 5);
		see(f, sights[0], nodes);
		for (size_t i = 0; i < COUNT_OF(refusals); i++) {
			crew = crew_begins(f, nodes, SLUICE_WRITER_APPEND);
			crew.o.memory_bytes = 64 * MIB;
			crew.given = &refusals[i];
			crew.o.attributes = &attribute;
			crew.o.attribute_count = refusals[i].open;
			crew_run(&crew, act_refused);
			assert_note(&crew, 0, refusals[i].error, refusals[i].says);
			assert_note(&crew, 1, 0, "");
			see(f, sights[1], nodes);
			for (int file = 0; file < (nodes ? 3 : 1); file++) {
				struct sight *was = &sights[0][file], *is = &sights[1][file];

				if (was->n != is->n || memcmp(was->bytes, is->bytes, is->n) ||
				    memcmp(&was->changed, &is->changed, sizeof(is->changed)))
					fail_msg("'%s' has changed file %d of %d", refusals[i].says,
					         file, nodes ? 3 : 1);
			}
		}
		assert_int_equal(field_look(crew.path, "u", 5, 5), 0);
	}
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	return RUN_TESTS(NULL, NULL);
}
