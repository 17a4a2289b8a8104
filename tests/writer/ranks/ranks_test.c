/* SPDX-License-Identifier: Apache-2.0 */
/* A writer that several ranks share, over a transport in memory: what it stores. */
#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include "ranks/crew.h"
#include "sluice/device.h"

static void assert_written(struct crew *crew)
{
	crew_run(crew, crew_write);
	assert_crew_ok(crew, crew->frames);
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

FIXTURE_TEST(blocks_of_any_form_become_one_dataset)
{
	static const char *const cuts[] = {"rows", "columns", "odd", "some"};
	static const int ranks[] = {1, 2, 4, 7};

	for (size_t c = 0; c < COUNT_OF(cuts); c++)
		for (size_t n = 0; n < COUNT_OF(ranks); n++) {
			struct crew crew = crew_at(f, ranks[n]);

			crew.cut = cuts[c];
			crew.codec = (c + n) % 2 ? "none" : "deflate";
			crew.seed = (unsigned)(1 + c * 7 + n);
			assert_written(&crew);
		}
}

FIXTURE_TEST(without_a_thread_of_the_transport_calls_make_progress)
{
	struct crew crew = crew_at(f, 4);

	crew.cut = "odd";
	crew.thread = 0;
	crew.seed = 5;
	assert_written(&crew);
	assert_int_equal(crew.strayed, 0);
}

FIXTURE_TEST(ranks_of_another_node_sync_what_they_write)
{
	struct crew crew = crew_at(f, 3);

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
	int rc = crew_begin(m, 0);

	for (uint64_t k = 0; !rc && k < 12; k++) {
		rc = crew_put(m, "u", k, k + 1, PATIENCE_MS);
		/* Only some of the ranks ask for it. */
		if (!rc && k % 4 == 3 && m->rank == (int)(k / 4) % m->crew->ranks) {
			rc = crew_flush(m);
			if (!rc)
				rc = sluice_series_stats(m->s, &counts);
			if (!rc && counts.visible <= k)
				rc = -EDOM;
			if (!rc)
				rc = -look_at_copy(m->crew->path, k + 1);
		}
	}
	crew_note(m, 0, rc);
	crew_end(m, 1);
}

FIXTURE_TEST(a_flush_of_one_rank_makes_frames_of_all_visible)
{
	struct crew crew = crew_at(f, 3);

	crew_run(&crew, act_flush);
	assert_crew_ok(&crew, 12);
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
	int rc = crew_begin(m, 0);

	crew_note(m, 0, rc ? rc : put_from_device(m));
	crew_end(m, 1);
}

FIXTURE_TEST(frames_come_from_memory_of_devices)
{
	struct crew crew = crew_at(f, 3);

	crew.cut = "odd";
	crew_run(&crew, act_device);
	assert_crew_ok(&crew, crew.frames);
}

static void act_memory(struct member *m)
{
	struct sluice_writer_counts counts = {.size = sizeof(counts)};
	int rc = crew_begin(m, 0);

	if (!rc)
		rc = sluice_writer_stats(m->w, &counts);
	m->number = counts.memory_bytes / KIB;
	if (!rc)
		rc = crew_put(m, "u", 0, m->crew->frames, PATIENCE_MS);
	crew_note(m, 0, rc);
	crew_end(m, 1);
}

FIXTURE_TEST(ranks_of_a_node_share_its_memory)
{
	struct crew crew = crew_at(f, 3);
	uint64_t sum = 0;

	crew.cut = "odd";
	crew.o.memory_bytes = 8 * MIB;
	crew_run(&crew, act_memory);
	assert_crew_ok(&crew, crew.frames);
	for (int r = 0; r < 3; r++)
		sum += crew.members[r].number;
	assert_in_range(sum, 64, 8 * 1024);
	/* The file has 1 MiB, and each rank a third of the rest. */
	crew.o.memory_bytes = MIB + sum * KIB / 2;
	crew_run(&crew, act_memory);
	assert_note(&crew, 0, ENOBUFS, "memory_bytes is");
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
	crew_end(m, 1);
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

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct crew crew = crew_at(f, cases[i].ranks);

		crew.frames = cases[i].rows;
		crew_run(&crew, act_chunks);
		assert_note(&crew, 0, 0, "");
		assert_note(&crew, 1, 0, "");
		assert_int_equal(chunk_rows(crew.path), cases[i].chunk);
	}
}

FIXTURE_TEST(other_ranks_in_another_number_continue_a_file)
{
	struct crew crew = crew_at(f, 2);

	assert_written(&crew);
	crew = crew_at(f, 5);
	crew.cut = "odd";
	crew.o.flags = SLUICE_WRITER_APPEND;
	crew.first = 20;
	crew.frames = 30;
	assert_written(&crew);
}

/* HDF5 has places for the chunks of frames that were given up. */
FIXTURE_TEST(frames_that_are_given_up_come_again)
{
	for (int none = 0; none < 2; none++) {
		struct crew crew = crew_at(f, 3);

		crew.codec = none ? "none" : "deflate";
		crew.content = "other";
		crew_run(&crew, crew_write);
		assert_note(&crew, 0, 0, "");
		assert_note(&crew, 1, 0, "");
		crew.content = "u";
		crew.frames = 25;
		crew.o.flags = SLUICE_WRITER_APPEND;
		crew.flags = SLUICE_SERIES_CONTINUE_AT;
		assert_written(&crew);
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
	crew_end(m, 4);
}

FIXTURE_TEST(attributes_and_coordinates_are_of_rank_0)
{
	struct crew crew = crew_at(f, 2);

	crew_run(&crew, act_rank_0_calls);
	assert_note(&crew, 0, 0, "");
	assert_note(&crew, 4, 0, "");
	for (unsigned note = 1; note < 4; note++) {
		assert_int_equal(crew.members[0].rc[note], 0);
		assert_int_equal(crew.members[1].rc[note], -EINVAL);
		assert_non_null(strstr(crew.members[1].said[note], "rank 1"));
	}
	assert_int_equal(field_look(crew.path, "u", 3, 3), 0);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	row_start_devices();
	return RUN_FILES("ranks_test", "ranks_errors");
}
