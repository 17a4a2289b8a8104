/* SPDX-License-Identifier: Apache-2.0 */
/* A writer that several ranks share, over a transport in memory: what it stores, what it refuses, how it ends. */
#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include "ranks/crew.h"
#include "sluice/device.h"

static void assert_notes(const struct crew *crew, unsigned at, int error, const char *says)
{
	for (int r = 0; r < crew->ranks; r++) {
		const struct member *m = &crew->members[r];

		if (m->rc[at] != -error || (error && !strstr(m->said[at], says)))
			fail_msg("rank %d: %d: \"%s\", not -%d: \"%s\"", r, m->rc[at], m->said[at],
			         error, says);
	}
}

static void assert_written(struct crew *crew)
{
	crew_run(crew, crew_write);
	assert_notes(crew, 0, 0, "");
	assert_int_equal(crew->closed, crew->ranks);
	assert_int_equal(field_look(crew->path, "u", crew->frames, crew->frames), 0);
}

/* Of files that are open for writing alone, as ranks have theirs. */
static _Atomic unsigned syncs;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
	syncs += (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
	return __real_fdatasync(fd);
}

/* -------------------------------------------------------------------------------------- stored */

FIXTURE_TEST(blocks_of_any_form_become_one_dataset)
{
	static const char *const cuts[] = {"rows", "columns", "odd", "some"};
	static const int ranks[] = {1, 2, 4, 7};
	struct crew crew;

	for (size_t c = 0; c < COUNT_OF(cuts); c++)
		for (size_t n = 0; n < COUNT_OF(ranks); n++) {
			crew_init(&crew, f->ctx, scratch(f, "x.h5"), ranks[n]);
			crew.cut = cuts[c];
			crew.codec = (c + n) % 2 ? "none" : "deflate";
			crew.seed = (unsigned)(1 + c * 7 + n);
			assert_written(&crew);
		}
}

FIXTURE_TEST(without_a_thread_of_the_transport_calls_make_progress)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 4);
	crew.cut = "odd";
	crew.thread = 0;
	crew.seed = 5;
	assert_written(&crew);
	assert_int_equal(crew.strayed, 0);
}

FIXTURE_TEST(ranks_of_another_node_sync_what_they_write)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	assert_written(&crew);
	assert_int_equal(syncs, 0);
	crew.on_node = 1;
	assert_written(&crew);
	assert_int_equal(syncs, 2 * crew.frames);
}

/* This process has the file open. */
static int look_at_copy(const char *path, uint64_t least)
{
	char name[320], bytes[65536];
	int from = open(path, O_RDONLY | O_CLOEXEC), to, wrong;
	ssize_t n;

	snprintf(name, sizeof(name), "%s.copy", path);
	to = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	while ((n = read(from, bytes, sizeof(bytes))) > 0)
		if (write(to, bytes, (size_t)n) != n)
			break;
	close(from);
	close(to);
	wrong = n ? 99 : field_look(name, "u", least, 12);
	unlink(name);
	return wrong;
}

static void act_flush(struct member *m)
{
	struct sluice_writer_counts counts = {.size = sizeof(counts)};
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	for (uint64_t k = 0; !rc && k < 12; k++) {
		rc = crew_put(m, "u", k, k + 1, PATIENCE_MS);
		/* Only some of the ranks ask for it. */
		if (!rc && k % 4 == 3 && m->rank == (int)(k / 4) % m->crew->ranks) {
			rc = sluice_writer_flush(m->w, PATIENCE_MS);
			if (!rc)
				rc = sluice_series_stats(m->s, &counts);
			if (!rc && counts.visible <= k)
				rc = -EDOM;
			if (!rc)
				rc = -look_at_copy(m->crew->path, k + 1);
		}
	}
	crew_note(m, 0, rc);
	crew_note(m, 1, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(a_flush_of_one_rank_makes_frames_of_all_visible)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	crew_run(&crew, act_flush);
	assert_notes(&crew, 0, 0, "");
	assert_notes(&crew, 1, 0, "");
}

/* From memory of a device, in the order of a stream, which goes on at once. */
static int put_from_device(struct member *m)
{
	float block[FIELD_ELEMENTS];
	sluice_stream stream;
	void *memory = NULL;
	int device, rc = sluice_device_find("emulated", &device);

	if (!rc)
		rc = sluice_device_alloc(device, sizeof(block), &memory);
	if (!rc)
		rc = sluice_stream_new(device, &stream);
	for (uint64_t k = 0; !rc && k < m->crew->frames; k++) {
		double time = field_time("u", k);
		size_t n = crew_fill(m, "u", k, block);

		rc = sluice_stream_synchronize(device, stream);
		if (!rc)
			rc = sluice_copy(memory, block, n);
		if (!rc)
			rc = sluice_series_submit_on(m->s, memory, &time, stream, PATIENCE_MS);
	}
	if (memory) {
		sluice_stream_free(stream);
		sluice_device_free(memory);
	}
	return rc;
}

static void act_device(struct member *m)
{
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	crew_note(m, 0, rc ? rc : put_from_device(m));
	crew_note(m, 1, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(frames_come_from_memory_of_devices)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	crew.cut = "odd";
	crew_run(&crew, act_device);
	assert_notes(&crew, 0, 0, "");
	assert_notes(&crew, 1, 0, "");
	assert_int_equal(field_look(crew.path, "u", crew.frames, crew.frames), 0);
}

static void act_memory(struct member *m)
{
	struct sluice_writer_counts counts = {.size = sizeof(counts)};
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	if (!rc)
		rc = sluice_writer_stats(m->w, &counts);
	m->rc[1] = (int)(counts.memory_bytes / KIB);
	if (!rc)
		rc = crew_put(m, "u", 0, m->crew->frames, PATIENCE_MS);
	crew_note(m, 0, rc);
	crew_note(m, 2, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(ranks_of_a_node_share_its_memory)
{
	struct crew crew;
	int sum = 0;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	crew.cut = "odd";
	crew.o.memory_bytes = 8 * MIB;
	crew_run(&crew, act_memory);
	assert_notes(&crew, 0, 0, "");
	assert_notes(&crew, 2, 0, "");
	for (int r = 0; r < 3; r++)
		sum += crew.members[r].rc[1];
	assert_in_range(sum, 64, 8 * 1024);
	/* Each has a third of it. */
	crew.o.memory_bytes = (uint64_t)sum * KIB / 2;
	crew_run(&crew, act_memory);
	assert_notes(&crew, 0, ENOBUFS, "memory_bytes is");
}

/* Chunks that are not chosen by the program. */
static void act_chunks(struct member *m)
{
	struct sluice_series_options o = field_options("none", 0);
	struct sluice_block block = {{0}, {0, 512}};
	uint64_t rows = m->crew->frames, ranks = (uint64_t)m->crew->ranks, r = (uint64_t)m->rank;
	int rc = crew_open(m);

	o.shape[0] = rows;
	o.shape[1] = 512;
	o.chunk[0] = o.chunk[1] = 0;
	o.scalar_count = 0;
	block.start[0] = rows * r / ranks;
	block.count[0] = rows * (r + 1) / ranks - block.start[0];
	if (!rc)
		rc = sluice_series_add_block(m->w, "u", &o, &block, PATIENCE_MS, &m->s);
	crew_note(m, 0, rc);
	crew_note(m, 1, sluice_writer_close(m->w, PATIENCE_MS));
}

static uint64_t chunk_rows(const char *path)
{
	hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	hid_t set = H5Dopen2(file, "u", H5P_DEFAULT), list = H5Dget_create_plist(set);
	hsize_t chunk[3] = {0};

	H5Pget_chunk(list, 3, chunk);
	H5Pclose(list);
	H5Dclose(set);
	H5Fclose(file);
	return chunk[1];
}

FIXTURE_TEST(chunks_divide_the_blocks_or_waste_little)
{
	static const struct {
		int ranks;
		uint64_t rows, chunk;
	} cases[] = {{4, 1024, 128}, {3, 768, 128}, {3, 256, 86}, {2, 300, 75}};
	struct crew crew;

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		crew_init(&crew, f->ctx, scratch(f, "x.h5"), cases[i].ranks);
		crew.frames = cases[i].rows;
		crew_run(&crew, act_chunks);
		assert_notes(&crew, 0, 0, "");
		assert_notes(&crew, 1, 0, "");
		assert_int_equal(chunk_rows(crew.path), cases[i].chunk);
	}
}

static void act_continue(struct member *m)
{
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	if (!rc)
		rc = crew_put(m, "u", 20, 30, PATIENCE_MS);
	crew_note(m, 0, rc);
	crew_note(m, 1, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(other_ranks_in_another_number_continue_a_file)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 2);
	assert_written(&crew);
	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 5);
	crew.cut = "odd";
	crew.o.flags = SLUICE_WRITER_APPEND;
	crew_run(&crew, act_continue);
	assert_notes(&crew, 0, 0, "");
	assert_notes(&crew, 1, 0, "");
	assert_int_equal(field_look(scratch(f, "x.h5"), "u", 30, 30), 0);
}

static void act_go_back(struct member *m)
{
	struct sluice_series_options o = field_options(m->crew->codec, 0);
	int rc = crew_open(m);

	o.flags = SLUICE_SERIES_CONTINUE_AT;
	if (!rc)
		rc = sluice_series_add_block(m->w, "u", &o, &m->block, PATIENCE_MS, &m->s);
	if (!rc)
		rc = crew_put(m, "u", 0, 25, PATIENCE_MS);
	crew_note(m, 0, rc);
	crew_note(m, 1, sluice_writer_close(m->w, PATIENCE_MS));
}

static void act_write_other(struct member *m)
{
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	if (!rc)
		rc = crew_put(m, "other", 0, 20, PATIENCE_MS);
	crew_note(m, 0, rc);
	crew_note(m, 1, sluice_writer_close(m->w, PATIENCE_MS));
}

/* HDF5 has places for the chunks of frames that were given up. */
FIXTURE_TEST(frames_that_are_given_up_come_again)
{
	struct crew crew;

	for (int none = 0; none < 2; none++) {
		crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
		crew.codec = none ? "none" : "deflate";
		crew_run(&crew, act_write_other);
		assert_notes(&crew, 1, 0, "");
		crew.o.flags = SLUICE_WRITER_APPEND;
		crew_run(&crew, act_go_back);
		assert_notes(&crew, 0, 0, "");
		assert_notes(&crew, 1, 0, "");
		assert_int_equal(field_look(crew.path, "u", 25, 25), 0);
	}
}

static void act_rank_0_calls(struct member *m)
{
	struct sluice_attribute attribute = {.name = "by", .text = "rank 0"};
	struct sluice_writer_counts counts = {.size = sizeof(counts)};
	double values[3] = {1, 2, 3};
	int rc = crew_open(m);

	crew_note(m, 0, rc);
	crew_note(m, 1, sluice_writer_attributes(m->w, &attribute, 1));
	crew_note(m, 2,
	          sluice_writer_add_coordinate(m->w, "x", SLUICE_FLOAT64, 3, values, NULL, 0));
	rc = crew_add(m, "u");
	/* When rank 1 has a place for its chunks, the metadata of the dataset must not grow there. */
	if (m->rank && !rc)
		rc = crew_put(m, "u", 0, 1, PATIENCE_MS);
	while (m->rank && !rc && !counts.chunks)
		rc = sluice_series_stats(m->s, &counts);
	crew_meet(m);
	crew_note(m, 3, rc ? rc : sluice_series_attributes(m->s, &attribute, 1));
	crew_put(m, "u", m->rank ? 1 : 0, 3, PATIENCE_MS);
	crew_note(m, 4, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(attributes_and_coordinates_are_of_rank_0)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 2);
	crew_run(&crew, act_rank_0_calls);
	assert_notes(&crew, 0, 0, "");
	assert_notes(&crew, 4, 0, "");
	for (unsigned note = 1; note < 4; note++) {
		assert_int_equal(crew.members[0].rc[note], 0);
		assert_int_equal(crew.members[1].rc[note], -EINVAL);
		assert_non_null(strstr(crew.members[1].said[note], "rank 1"));
	}
	assert_int_equal(field_look(crew.path, "u", 3, 3), 0);
}

/* ------------------------------------------------------------------------------------- refused */

/* What rank 1 gives that others do not; or all. */
static struct {
	void (*change)(struct member *m, struct sluice_series_options *o);
	const char *name;
	bool no_options, no_block;
} given;

static void act_refused(struct member *m)
{
	struct sluice_series_options o = field_options("deflate", 0);
	const char *name = m->rank == 1 && given.name ? given.name : "u";

	crew_note(m, 0, crew_open(m));
	if (given.change)
		given.change(m, &o);
	crew_note(m, 1,
	          sluice_series_add_block(m->w, name, m->rank == 1 && given.no_options ? NULL : &o,
	                                  m->rank == 1 && given.no_block ? NULL : &m->block,
	                                  PATIENCE_MS, &m->s));
	/* It goes on. */
	m->block = crew_block(m->crew, m->rank);
	crew_note(m, 2, crew_add(m, "u"));
	crew_note(m, 3, crew_put(m, "u", 0, 5, PATIENCE_MS));
	crew_note(m, 4, sluice_writer_close(m->w, PATIENCE_MS));
}

static void assert_add_refused(struct fixture *f, int error, const char *says)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	crew.o.memory_bytes = 64 * MIB;
	crew_run(&crew, act_refused);
	assert_notes(&crew, 1, error, says);
	for (unsigned note = 0; note < 5; note++)
		if (note != 1)
			assert_notes(&crew, note, 0, "");
	assert_int_equal(field_look(crew.path, "u", 5, 5), 0);
	memset(&given, 0, sizeof(given));
}

static void overlap(struct member *m, struct sluice_series_options *o)
{
	(void)o;
	if (m->rank == 1)
		m->block.start[0]--;
}

static void leave_hole(struct member *m, struct sluice_series_options *o)
{
	(void)o;
	if (m->rank == 1)
		m->block.count[0]--;
}

static void pass_end(struct member *m, struct sluice_series_options *o)
{
	(void)o;
	if (m->rank == 2)
		m->block.count[0]++;
}

static void wrap_around(struct member *m, struct sluice_series_options *o)
{
	(void)o;
	if (m->rank == 2)
		m->block.start[0] = UINT64_MAX - 3;
}

FIXTURE_TEST(blocks_that_are_not_the_array_are_refused)
{
	given.change = overlap;
	assert_add_refused(f, EINVAL, "rank 0 and rank 1 overlap");
	given.change = leave_hole;
	assert_add_refused(f, EINVAL, "in no block");
	given.change = pass_end;
	assert_add_refused(f, EINVAL, "the block of rank 2");
	given.change = wrap_around;
	assert_add_refused(f, EINVAL, "the block of rank 2");
	given.no_block = true;
	assert_add_refused(f, EINVAL, "rank 1: sluice_series_add_block: the block is NULL");
}

static void other_shape(struct member *m, struct sluice_series_options *o)
{
	o->shape[0] += m->rank == 2;
}

static void other_codec(struct member *m, struct sluice_series_options *o)
{
	o->codec = m->rank == 2 ? "none" : o->codec;
}

static void other_scalar(struct member *m, struct sluice_series_options *o)
{
	static const char *const names[] = {"tome"};

	o->scalars = m->rank == 2 ? names : o->scalars;
}

static void no_type(struct member *m, struct sluice_series_options *o)
{
	o->type = m->rank == 1 ? 99 : o->type;
}

static void drop(struct member *m, struct sluice_series_options *o)
{
	o->flags |= m->rank == 1 ? SLUICE_SERIES_DROP : 0;
}

static void gather(struct member *m, struct sluice_series_options *o)
{
	o->chunk_frames = m->rank == 1 ? 4 : 0;
}

static void much_memory(struct member *m, struct sluice_series_options *o)
{
	o->depth = m->rank == 1 ? 100000 : 2;
}

FIXTURE_TEST(options_that_differ_or_are_wrong_are_refused_on_all_ranks)
{
	given.change = other_shape;
	assert_add_refused(f, EINVAL, "rank 0 and rank 2 gave a different shape");
	given.change = other_codec;
	assert_add_refused(f, EINVAL, "rank 0 and rank 2 gave a different codec");
	given.change = other_scalar;
	assert_add_refused(f, EINVAL, "rank 0 and rank 2 gave a different name");
	given.name = "uu";
	assert_add_refused(f, EINVAL, "rank 0 and rank 1 gave a different name");
	given.name = "";
	assert_add_refused(f, EINVAL, "rank 1: sluice_series_add_block: the dataset has no name");
	given.no_options = true;
	assert_add_refused(f, EINVAL, "rank 1: series options: missing");
	given.change = no_type;
	assert_add_refused(f, EINVAL, "rank 1: series options: 99 is no type");
	given.change = drop;
	assert_add_refused(f, EINVAL, "DROP");
	given.change = gather;
	assert_add_refused(f, EINVAL, "chunk_frames is 4");
	/* Rank 1 has the dataset already when it has no memory. */
	given.change = much_memory;
	assert_add_refused(f, ENOBUFS, "rank 1: 'u' needs");
}

static void act_twice(struct member *m)
{
	crew_note(m, 0, crew_open(m));
	crew_note(m, 1, crew_add(m, "u"));
	crew_note(m, 2, crew_add(m, "u"));
	crew_note(m, 3, crew_put(m, "u", 0, 3, PATIENCE_MS));
	crew_note(m, 4, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(a_name_is_given_once)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 2);
	crew_run(&crew, act_twice);
	assert_notes(&crew, 1, 0, "");
	assert_notes(&crew, 2, EEXIST, "'/u'");
	assert_notes(&crew, 3, 0, "");
	assert_notes(&crew, 4, 0, "");
}

static const char *other_path;

static void act_open_refused(struct member *m)
{
	int rc;

	if (m->rank == 1 && other_path)
		m->path = other_path;
	rc = crew_open(m);
	crew_note(m, 0, rc);
	if (!rc)
		sluice_writer_close(m->w, PATIENCE_MS);
}

static void assert_open_refused(struct crew *crew, int error, const char *says)
{
	crew_run(crew, act_open_refused);
	assert_notes(crew, 0, error, says);
	other_path = NULL;
}

FIXTURE_TEST(a_file_that_cannot_be_opened_is_an_error_of_all_ranks)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "none/x.h5"), 3);
	assert_open_refused(&crew, ENOENT, "none/x.h5");
	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	other_path = scratch(f, "y.h5");
	assert_open_refused(&crew, EINVAL, "rank 0 and rank 1 gave a different path");
	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	other_path = "http://x/y";
	assert_open_refused(&crew, EINVAL, "rank 1: 'http://x/y' is no local path");
	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 2);
	crew.o.flags = SLUICE_WRITER_REPLACE | SLUICE_WRITER_APPEND;
	assert_open_refused(&crew, EINVAL, "rank 0: writer options: both REPLACE and APPEND");
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

/* --------------------------------------------------------------------------------- other ranks */

static void act_ahead(struct member *m)
{
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	crew_note(m, 0, rc);
	/* All but rank 0 wait until it has given all that it can. */
	if (!m->rank) {
		struct sluice_writer_counts counts = {.size = sizeof(counts)};
		uint64_t k = 0;

		/* Until its own work is done, and there is no place all the same. */
		while (k < 100 && (!rc || (rc == -EAGAIN && counts.stored < SLUICE_RANKS_AHEAD))) {
			sluice_series_stats(m->s, &counts);
			k += !(rc = crew_put(m, "u", k, k + 1, 20));
		}
		crew_note(m, 1, rc);
		m->rc[2] = (int)k;
	}
	crew_meet(m);
	rc = m->rank ? crew_put(m, "u", 0, 40, PATIENCE_MS)
	             : crew_put(m, "u", (uint64_t)m->rc[2], 40, PATIENCE_MS);
	crew_note(m, 3, rc);
	crew_note(m, 4, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(a_rank_that_is_ahead_waits_and_loses_nothing)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	crew_run(&crew, act_ahead);
	assert_notes(&crew, 0, 0, "");
	assert_int_equal(crew.members[0].rc[1], -EAGAIN);
	assert_in_range(crew.members[0].rc[2], SLUICE_RANKS_AHEAD, SLUICE_RANKS_AHEAD + 4);
	assert_notes(&crew, 3, 0, "");
	assert_notes(&crew, 4, 0, "");
	assert_int_equal(field_look(crew.path, "u", 40, 40), 0);
}

static void act_fewer(struct member *m)
{
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	if (!rc)
		rc = crew_put(m, "u", 0, m->rank == 1 ? 5 : 10, PATIENCE_MS);
	/* Others may be in the middle of it when rank 1 closes. */
	crew_note(m, 0, rc == -ENODATA ? 0 : rc);
	crew_note(m, 1, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(ranks_that_close_after_fewer_frames_are_named_to_all)
{
	struct crew crew;

	for (int cut = 0; cut < 2; cut++) {
		crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
		crew.cut = cut ? "odd" : "rows";
		crew_run(&crew, act_fewer);
		assert_notes(&crew, 0, 0, "");
		assert_notes(&crew, 1, ENODATA,
		             "rank 1 has closed the writer after 5 frames of 'u'");
		assert_int_equal(field_look(crew.path, "u", 5, 5), 0);
	}
}

/* The others hear of it before they have more frames. */
static void act_fewer_later(struct member *m)
{
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	if (!rc)
		rc = crew_put(m, "u", 0, 5, PATIENCE_MS);
	if (!rc)
		rc = sluice_writer_flush(m->w, PATIENCE_MS);
	crew_note(m, 0, rc);
	if (m->rank == 1)
		crew_note(m, 2, sluice_writer_close(m->w, 50));
	crew_meet(m);
	if (m->rank != 1)
		crew_note(m, 2, crew_put(m, "u", 5, 10, PATIENCE_MS));
	crew_note(m, 1, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(frames_that_come_after_a_rank_has_closed_are_an_error)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	crew_run(&crew, act_fewer_later);
	assert_notes(&crew, 0, 0, "");
	assert_int_equal(crew.members[1].rc[2], -EINPROGRESS);
	assert_int_equal(crew.members[0].rc[2], -ENODATA);
	assert_int_equal(crew.members[2].rc[2], -ENODATA);
	assert_notes(&crew, 1, ENODATA, "rank 1 has closed the writer after 5 frames of 'u'");
	assert_int_equal(field_look(crew.path, "u", 5, 5), 0);
}

static void act_missing(struct member *m)
{
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	if (!rc && m->rank != 1)
		rc = crew_put(m, "u", 0, 3, PATIENCE_MS);
	crew_note(m, 0, rc);
	if (m->rank != 1) {
		crew_note(m, 1, sluice_writer_flush(m->w, 50));
		crew_note(m, 2, sluice_writer_close(m->w, 50));
	}
	crew_meet(m);
	if (m->rank == 1)
		crew_note(m, 3, crew_put(m, "u", 0, 3, PATIENCE_MS));
	crew_note(m, 4, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(a_rank_that_submits_nothing_lets_others_wait_no_longer_than_they_want)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	crew_run(&crew, act_missing);
	assert_notes(&crew, 0, 0, "");
	for (int r = 0; r < 3; r += 2) {
		assert_int_equal(crew.members[r].rc[1], -EINPROGRESS);
		assert_int_equal(crew.members[r].rc[2], -EINPROGRESS);
	}
	assert_notes(&crew, 3, 0, "");
	assert_notes(&crew, 4, 0, "");
	assert_int_equal(field_look(crew.path, "u", 3, 3), 0);
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
	crew_note(m, 2, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(a_rank_that_does_not_add_is_no_hang)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	crew_run(&crew, act_absent);
	assert_notes(&crew, 0, 0, "");
	assert_notes(&crew, 1, ETIMEDOUT, "not all ranks");
	assert_notes(&crew, 2, ETIMEDOUT, "not all ranks");
}

static void act_close_or_add(struct member *m)
{
	crew_note(m, 0, crew_open(m));
	if (m->rank != 1)
		crew_note(m, 1, crew_add(m, "u"));
	crew_note(m, 2, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(ranks_that_make_different_calls_are_told)
{
	struct crew crew;

	crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
	crew_run(&crew, act_close_or_add);
	assert_notes(&crew, 0, 0, "");
	assert_int_equal(crew.members[0].rc[1], -EINVAL);
	assert_int_equal(crew.members[2].rc[1], -EINVAL);
	assert_notes(&crew, 2, EINVAL, "closed the writer");
}

static void act_discard(struct member *m)
{
	int rc = crew_open(m), last = m->crew->frames % 2 ? 0 : 1;

	if (!rc)
		rc = crew_add(m, "u");
	if (!rc)
		rc = crew_put(m, "u", 0, 6, PATIENCE_MS);
	if (!rc)
		rc = sluice_writer_flush(m->w, PATIENCE_MS);
	crew_note(m, 0, rc);
	crew_meet(m);
	if (m->rank == last) {
		sluice_writer_discard(m->w);
		return;
	}
	do
		rc = crew_put(m, "u", 6, 7, PATIENCE_MS);
	while (!rc);
	crew_note(m, 1, rc);
	crew_note(m, 2, sluice_writer_close(m->w, PATIENCE_MS));
}

FIXTURE_TEST(a_rank_that_discards_ends_the_writer_of_all)
{
	struct crew crew;

	for (int last = 0; last < 2; last++) {
		crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
		crew.frames = (uint64_t)last;
		crew_run(&crew, act_discard);
		assert_notes(&crew, 0, 0, "");
		for (int r = 0; r < 3; r++) {
			struct member *m = &crew.members[r];

			if (r == !last)
				continue;
			assert_int_equal(m->rc[1], -ECANCELED);
			assert_int_equal(m->rc[2], -ECANCELED);
			assert_non_null(strstr(m->said[2], last ? "rank 0 has discarded"
			                                        : "rank 1 has discarded"));
		}
		assert_int_equal(crew.closed, 3);
		assert_int_equal(field_look(crew.path, "u", 6, 6), 0);
	}
}

FIXTURE_TEST(a_transport_that_breaks_ends_all_calls)
{
	struct crew crew;

	for (long after = 2; after < 150; after += 7) {
		crew_init(&crew, f->ctx, scratch(f, "x.h5"), 3);
		crew.break_after = after;
		crew.thread = after % 2;
		crew_run(&crew, crew_write);
		for (int r = 0; r < 3; r++)
			if (crew.members[r].rc[0] != -ECONNRESET)
				fail_msg("after %ld messages rank %d: %d: %s", after, r,
				         crew.members[r].rc[0], crew.members[r].said[0]);
		assert_int_equal(crew.closed, 3);
	}
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	row_start_devices();
	return RUN_TESTS(NULL, NULL);
}
