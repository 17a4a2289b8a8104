/* SPDX-License-Identifier: Apache-2.0 */
/* A writer that several ranks share: what it refuses, and how it ends when ranks wait for each other or fail. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ranks/crew.h"
#include "ranks/ranks_internal.h"

/* ------------------------------------------------------------------------------------- refused */

/* The arguments of a rank, unlike those of the others or wrong, and how all are told. */
struct wrong {
	int rank;
	const char *says;
	int start, count, shape; /* more than right */
	const char *name, *codec, *scalar;
	unsigned type, flags, chunk_frames, depth;
	bool no_options, no_block;
	int error; /* 0: EINVAL */
};

static void make_wrong(const struct wrong *wrong, struct sluice_block *block,
                       struct sluice_series_options *o)
{
	block->start[0] += (uint64_t)wrong->start;
	block->count[0] += (uint64_t)wrong->count;
	o->shape[0] += (uint64_t)wrong->shape;
	o->flags |= wrong->flags;
	if (wrong->codec)
		o->codec = wrong->codec;
	if (wrong->scalar)
		o->scalars = &wrong->scalar;
	if (wrong->type)
		o->type = wrong->type;
	if (wrong->chunk_frames)
		o->chunk_frames = wrong->chunk_frames;
	if (wrong->depth)
		o->depth = wrong->depth;
}

static void act_refused(struct member *m)
{
	static const struct wrong right;
	const struct wrong *given = m->crew->given;
	const struct wrong *wrong = m->rank == given->rank ? given : &right;
	struct sluice_series_options o = field_options("deflate", 0);

	crew_note(m, 0, crew_open(m));
	make_wrong(wrong, &m->block, &o);
	crew_note(m, 1,
	          sluice_series_add_block(m->w, wrong->name ? wrong->name : "u",
	                                  wrong->no_options ? NULL : &o,
	                                  wrong->no_block ? NULL : &m->block, PATIENCE_MS, &m->s));
	/* It goes on. */
	m->block = crew_block(m->crew, m->rank);
	crew_note(m, 2, crew_add(m, "u"));
	crew_note(m, 3, crew_put(m, "u", 0, 5, PATIENCE_MS));
	crew_end(m, 4);
}

static void assert_refused_to_all(struct fixture *f, const struct wrong *wrong, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct crew crew = crew_at(f, 3);

		crew.o.memory_bytes = 64 * MIB;
		crew.given = &wrong[i];
		crew_run(&crew, act_refused);
		assert_crew(&crew, 1, wrong[i].error ? wrong[i].error : EINVAL, wrong[i].says, 5);
	}
}

FIXTURE_TEST(blocks_that_are_not_the_array_are_refused)
{
	static const struct wrong cases[] = {
		{1, "rank 0 and rank 1 overlap", .start = -1},
		{1, "in no block", .count = -1},
		{2, "the block of rank 2", .count = 1},
		{2, "the block of rank 2", .start = -4 - 2 * FIELD_ROWS / 3}, /* UINT64_MAX - 3 */
		{1, "rank 1: sluice_series_add_block: the block is NULL", .no_block = true},
	};

	assert_refused_to_all(f, cases, COUNT_OF(cases));
}

FIXTURE_TEST(options_that_differ_or_are_wrong_are_refused_on_all_ranks)
{
	static const struct wrong cases[] = {
		{2, "rank 0 and rank 2 differ in shape", .shape = 1},
		{2, "rank 0 and rank 2 differ in codec", .codec = "none"},
		{2, "rank 0 and rank 2 differ in the name", .scalar = "tome"},
		{1, "rank 0 and rank 1 differ in the name", .name = "uu"},
		{1, "rank 1: sluice_series_add_block: the dataset has no name", .name = ""},
		{1, "rank 1: series options: missing", .no_options = true},
		{1, "rank 1: series options: 99 is no type", .type = 99},
		{2, "rank 0 and rank 2 differ in type: 10 and 3", .type = SLUICE_INT16},
		{1, "DROP", .flags = SLUICE_SERIES_DROP},
		{1, "chunk_frames is 4", .chunk_frames = 4},
		/* When rank 0 has looked at the dataset. */
		{1, "rank 1: 'u' needs", .depth = 100000, .error = ENOBUFS},
		{1, "the rank's part of memory_bytes is", .depth = 100000, .error = ENOBUFS},
	};

	assert_refused_to_all(f, cases, COUNT_OF(cases));
}

static void act_twice(struct member *m)
{
	crew_note(m, 0, crew_begin(m, 0));
	crew_note(m, 1, crew_add(m, "u"));
	crew_note(m, 2, crew_put(m, "u", 0, 3, PATIENCE_MS));
	crew_end(m, 3);
}

FIXTURE_TEST(a_name_is_given_once)
{
	struct crew crew = crew_at(f, 2);

	crew_run(&crew, act_twice);
	assert_crew(&crew, 1, EEXIST, "'/u'", 3);
}

static void act_open_refused(struct member *m)
{
	int rc;

	if (m->rank == 1 && m->crew->given)
		m->path = m->crew->given;
	rc = crew_open(m);
	crew_note(m, 0, rc);
	if (!rc)
		sluice_writer_close(m->w, PATIENCE_MS);
}

/* other: of rank 1; NULL: the same. */
static void assert_open_refused(struct fixture *f, const char *path, const char *other,
                                unsigned flags, int error, const char *says)
{
	struct crew crew = crew_of(f->ctx, path, 3);

	crew.given = other;
	crew.o.flags = flags;
	crew_run(&crew, act_open_refused);
	assert_note(&crew, 0, error, says);
}

FIXTURE_TEST(a_file_that_cannot_be_opened_is_an_error_of_all_ranks)
{
	const char *path = scratch(f, "x.h5");
	unsigned replace = SLUICE_WRITER_REPLACE;

	assert_open_refused(f, scratch(f, "none/x.h5"), NULL, replace, ENOENT, "none/x.h5");
	assert_open_refused(f, path, scratch(f, "y.h5"), replace, EINVAL,
	                    "rank 0 and rank 1 differ in the path");
	assert_open_refused(f, path, "http://x/y", replace, EINVAL,
	                    "rank 1: 'http://x/y' is no local path");
	assert_open_refused(f, path, NULL, replace | SLUICE_WRITER_APPEND, EINVAL,
	                    "rank 0: writer options: both REPLACE and APPEND");
	assert_int_equal(directory_entries(f->dir), 0);
}

FIXTURE_TEST(a_transport_that_lacks_something_is_refused)
{
	struct sluice_transport t = {.size = sizeof(t), .ranks = 1, .node_ranks = 1};
	sluice_writer *w;

	assert_refused(sluice_writer_open_ranks(f->ctx, NULL, "x", NULL, &w), EINVAL, "NULL");
	assert_refused(sluice_writer_open_ranks(f->ctx, &t, "x", NULL, &w), EINVAL, "function");
	t.error = -EIO;
	t.message = "nobody is there";
	assert_refused(sluice_writer_open_ranks(f->ctx, &t, "x", NULL, &w), EIO, "nobody");
	assert_refused(sluice_writer_progress(NULL), EINVAL, "NULL");
	assert_ok(field_open(f->ctx, scratch(f, "x.h5"), 0, &w));
	assert_refused(sluice_writer_progress(w), EINVAL, "no ranks");
	assert_refused(sluice_series_add_block(w, "u", NULL, NULL, 0, NULL), EINVAL, "no ranks");
	assert_ok(sluice_writer_close(w, -1));
}

static bool exists(struct fixture *f, const char *name)
{
	return !access(scratch(f, name), F_OK);
}

static void write_frames(struct crew *crew)
{
	crew_run(crew, crew_write);
	assert_crew_ok(crew, crew->frames);
}

/* A file of frames with a temporary name, that changed so many seconds ago. */
static void leave_behind(struct fixture *f, struct crew *crew, const char *name, int age)
{
	const struct timespec then = {time(NULL) - age, 0}, times[] = {then, then};

	write_frames(crew);
	assert_int_equal(rename(crew->path, scratch(f, name)), 0);
	assert_int_equal(utimensat(AT_FDCWD, scratch(f, name), times, 0), 0);
}

FIXTURE_TEST(the_file_that_a_killed_job_has_left_is_removed)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 128, .l_len = 16};
	char path[512];
	struct crew crew;
	int fd;

	snprintf(path, sizeof(path), "%s", scratch(f, "x.h5"));
	crew = crew_of(f->ctx, path, 2);
	leave_behind(f, &crew, ".x.h5.0123456789abcde0.sluice", 1000);
	leave_behind(f, &crew, ".x.h5.0123456789abcde1.sluice", 0);
	leave_behind(f, &crew, ".x.h5.0123456789abcde2.sluicer", 1000);
	leave_behind(f, &crew, ".x.h5.0123456789abcde3.sluice", 1000);
	/* Somebody writes it. */
	fd = open(scratch(f, ".x.h5.0123456789abcde3.sluice"), O_RDWR | O_CLOEXEC);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
	write_frames(&crew);
	close(fd);
	assert_false(exists(f, ".x.h5.0123456789abcde0.sluice"));
	for (char c = '1'; c <= '3'; c++) {
		char name[] = ".x.h5.0123456789abcde?.sluicer";

		name[21] = c;
		name[29] = c == '2' ? 'r' : 0;
		assert_true(exists(f, name));
		unlink(scratch(f, name));
	}
}

/* --------------------------------------------------------------------------------- other ranks */

static void act_ahead(struct member *m)
{
	bool first = m->rank == (strcmp(m->crew->cut, "odd") ? 0 : 1);
	int rc = crew_begin(m, 0);

	crew_note(m, 0, rc);
	/* All others wait until it has given all that it can, and has heard why. */
	if (first) {
		for (int i = 0; i < PATIENCE_MS / 20 && m->number < 100; i++) {
			rc = crew_put(m, "u", m->number, m->number + 1, 20);
			m->number += !rc;
			if (rc && (rc != -EAGAIN || strstr(sluice_last_message(), "wait for rank")))
				break;
		}
		crew_note(m, 1, rc);
	}
	crew_meet(m);
	crew_note(m, 2, crew_put(m, "u", m->number, 40, PATIENCE_MS));
	crew_end(m, 3);
}

FIXTURE_TEST(a_rank_that_is_ahead_waits_and_loses_nothing)
{
	for (int odd = 0; odd < 2; odd++) {
		struct crew crew = crew_at(f, 3);
		struct member *first = &crew.members[odd];

		/* Then it needs fragments of another, and is not ahead. */
		crew.cut = odd ? "odd" : "rows";
		crew_run(&crew, act_ahead);
		assert_int_equal(first->rc[1], -EAGAIN);
		assert_non_null(
			strstr(first->said[1], odd ? "wait for rank 0" : "wait for ranks 1, 2"));
		assert_in_range(first->number, odd ? 1 : SLUICE_RANKS_AHEAD,
		                SLUICE_RANKS_AHEAD + 4);
		first->rc[1] = 0;
		assert_crew_ok(&crew, 40);
	}
}

static void act_fewer(struct member *m)
{
	int rc = crew_begin(m, m->rank == 1 ? 5 : 10);

	/* Others may be in the middle of it when rank 1 closes. */
	crew_note(m, 0, rc == -ENODATA ? 0 : rc);
	crew_end(m, 1);
}

FIXTURE_TEST(ranks_that_close_after_fewer_frames_are_named_to_all)
{
	for (int cut = 0; cut < 2; cut++) {
		struct crew crew = crew_at(f, 3);

		crew.cut = cut ? "odd" : "rows";
		crew_run(&crew, act_fewer);
		assert_crew(&crew, 1, ENODATA, "rank 1 has closed the writer after 5 frames of 'u'",
		            5);
	}
}

/* The others hear of it before they have more frames. */
static void act_fewer_later(struct member *m)
{
	int rc = crew_begin(m, 5);

	crew_note(m, 0, rc ? rc : crew_flush(m));
	if (m->rank == 1)
		m->number = (uint64_t)-sluice_writer_close(m->w, 50);
	crew_meet(m);
	if (m->rank != 1)
		m->number = (uint64_t)-crew_put(m, "u", 5, 10, PATIENCE_MS);
	crew_end(m, 1);
}

FIXTURE_TEST(frames_that_come_after_a_rank_has_closed_are_an_error)
{
	struct crew crew = crew_at(f, 3);

	crew_run(&crew, act_fewer_later);
	assert_crew(&crew, 1, ENODATA, "rank 1 has closed the writer after 5 frames of 'u'", 5);
	for (int r = 0; r < 3; r++)
		assert_int_equal(crew.members[r].number, r == 1 ? EINPROGRESS : ENODATA);
}

static void act_missing(struct member *m)
{
	crew_note(m, 0, crew_begin(m, m->rank == 1 ? 0 : 3));
	if (m->rank != 1) {
		crew_note(m, 1, sluice_writer_flush(m->w, 50) == -EINPROGRESS ? 0 : -EDOM);
		m->number = sluice_writer_close(m->w, 50) == -EINPROGRESS &&
		            strstr(sluice_last_message(), "waits for rank 1");
	}
	crew_meet(m);
	if (m->rank == 1)
		crew_note(m, 3, crew_put(m, "u", 0, 3, PATIENCE_MS));
	crew_end(m, 4);
}

FIXTURE_TEST(a_rank_that_submits_nothing_lets_others_wait_no_longer_than_they_want)
{
	struct crew crew = crew_at(f, 3);

	crew_run(&crew, act_missing);
	assert_crew_ok(&crew, 3);
	for (int r = 0; r < 3; r++)
		assert_int_equal(crew.members[r].number, r != 1);
}

static void act_absent(struct member *m)
{
	struct sluice_series_options o = field_options("deflate", 0);

	crew_note(m, 0, crew_open(m));
	if (m->rank != 1)
		crew_note(m, 1, sluice_series_add_block(m->w, "u", &o, &m->block, 50, &m->s));
	crew_meet(m);
	if (m->rank == 1)
		crew_note(m, 1, crew_add(m, "u"));
	crew_end(m, 2);
}

FIXTURE_TEST(a_rank_that_does_not_add_is_no_hang)
{
	struct crew crew = crew_at(f, 3);

	crew_run(&crew, act_absent);
	assert_note(&crew, 0, 0, "");
	assert_note(&crew, 1, ETIMEDOUT, "rank 1 did not add the series in time");
	assert_note(&crew, 2, ETIMEDOUT, "rank 1 did not add the series in time");
}

/* frames: a bit for each rank that comes when the others have given up. */
static void act_open_late(struct member *m)
{
	bool late = m->crew->frames >> m->rank & 1;

	if (late)
		crew_meet(m);
	crew_note(m, 0, crew_open(m));
	if (!late)
		crew_meet(m);
}

FIXTURE_TEST(ranks_that_do_not_open_are_named)
{
	for (int threads = 0; threads < 2; threads++) {
		struct crew crew = crew_at(f, 3);

		crew.o.open_ms = 20;
		crew.thread = threads;
		crew.frames = 6;
		crew_run(&crew, act_open_late);
		assert_note(&crew, 0, ETIMEDOUT, "ranks 1, 2 did not open the writer in time");
		crew.frames = 1;
		crew_run(&crew, act_open_late);
		crew.members[0] = crew.members[1];
		assert_note(&crew, 0, ETIMEDOUT, "rank 0 does not answer");
	}
}

static void act_close_or_add(struct member *m)
{
	crew_note(m, 0, crew_open(m));
	if (m->rank != 1)
		crew_note(m, 1, crew_add(m, "u"));
	crew_end(m, 2);
}

FIXTURE_TEST(ranks_that_make_different_calls_are_told)
{
	struct crew crew = crew_at(f, 3);

	crew_run(&crew, act_close_or_add);
	assert_note(&crew, 0, 0, "");
	assert_int_equal(crew.members[0].rc[1], -EINVAL);
	assert_int_equal(crew.members[2].rc[1], -EINVAL);
	assert_note(&crew, 2, EINVAL, "closed the writer");
}

/* given: the rank. */
static void act_discard(struct member *m)
{
	int rc = crew_begin(m, 6);

	crew_note(m, 0, rc ? rc : crew_flush(m));
	crew_meet(m);
	if (m->rank == *(const int *)m->crew->given) {
		sluice_writer_discard(m->w);
		return;
	}
	do
		rc = crew_put(m, "u", 6, 7, PATIENCE_MS);
	while (!rc);
	crew_note(m, 1, rc);
	crew_end(m, 2);
}

FIXTURE_TEST(a_rank_that_discards_ends_the_writer_of_all)
{
	for (int rank = 0; rank < 2; rank++) {
		struct crew crew = crew_at(f, 3);

		crew.given = &rank;
		crew_run(&crew, act_discard);
		assert_note(&crew, 0, 0, "");
		for (int r = 0; r < 3; r++) {
			struct member *m = &crew.members[r];

			if (r == rank)
				continue;
			assert_int_equal(m->rc[1], -ECANCELED);
			assert_int_equal(m->rc[2], -ECANCELED);
			assert_non_null(strstr(m->said[2], rank ? "rank 1 has discarded"
			                                        : "rank 0 has discarded"));
		}
		assert_int_equal(crew.closed, 3);
		assert_int_equal(field_look(crew.path, "u", 6, 6), 0);
	}
}

FIXTURE_TEST(a_transport_that_breaks_ends_all_calls)
{
	for (long after = 2; after < 150; after += 7) {
		struct crew crew = crew_at(f, 3);

		crew.break_after = after;
		crew.thread = after % 2;
		crew_run(&crew, crew_write);
		assert_note(&crew, 0, ECONNRESET, "");
		assert_int_equal(crew.closed, 3);
	}
}

/* ------------------------------------------------------------------------------ wrong messages */

struct spoiled {
	enum sl_message_kind kind; /* from rank 1, but for messages that rank 0 alone sends */
	int from, shorter;         /* by so many bytes */
	uint64_t field;            /* of the message; 0: as it is */
	int error;
	int node; /* of SL_STEP_OPEN */
};

static size_t spoil_message(const struct member *m, void *bytes, size_t n)
{
	const struct spoiled *given = m->crew->given;
	struct sl_rank_message *message = bytes;

	if (m->rank != given->from || message->kind != given->kind)
		return n;
	if (given->kind == SL_MESSAGE_WANT)
		message->want.least = message->want.bytes + given->field;
	if (given->kind == SL_MESSAGE_FRAGMENT && given->field)
		message->fragment.chunk = given->field;
	if (given->kind == SL_MESSAGE_LEFT)
		message->left.rank = given->field;
	if (given->node)
		((struct sl_open_body *)(message + 1))->node = given->node;
	return n - (size_t)given->shorter;
}

FIXTURE_TEST(messages_that_are_wrong_are_the_error_of_all)
{
	static const struct spoiled cases[] = {
		{SL_STEP_OPEN, 1, 40, 0, EINVAL},
		{SL_STEP_OPEN, 1, 0, 0, EPROTO, .node = 100000000},
		{SL_STEP_ADD, 1, 200, 0, EINVAL},
		{SL_MESSAGE_WANT, 1, 0, 1 << 20, EPROTO},
		{SL_MESSAGE_FRAME, 1, 8, 0, EPROTO},
		{SL_MESSAGE_FRAGMENT, 1, 8, 0, EPROTO},
		{SL_MESSAGE_FRAGMENT, 1, 0, 1000000, EPROTO},
		{SL_MESSAGE_STATE, 0, 8, 0, EPROTO},
		{SL_MESSAGE_LEFT, 0, 0, 1000000, EPROTO},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct crew crew = crew_at(f, 2);

		crew.cut = "odd";
		crew.given = &cases[i];
		crew.spoil = spoil_message;
		crew_run(&crew, crew_write);
		for (int r = 0; r < 2; r++)
			if (crew.members[r].rc[0] != -cases[i].error &&
			    crew.members[r].rc[1] != -cases[i].error)
				fail_msg("case %zu, rank %d: %d %d: %s", i, r,
				         crew.members[r].rc[0], crew.members[r].rc[1],
				         crew.members[r].said[0]);
	}
}
