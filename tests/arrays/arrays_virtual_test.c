/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual datasets over a file of each node, beside what HDF5 reads of them: whole, by bytes and by boxes. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arrays/dataset.h"
#include "core/core.h"
#include "h5file/h5file_internal.h"
#include "h5file/hdf5_read.h"
#include "ranks/crew.h"

static struct crew nodes_at(sluice_context *ctx, const char *path, int ranks, int on_node)
{
	struct crew crew = crew_of(ctx, path, ranks);

	crew.on_node = on_node;
	crew.o.flags |= SLUICE_WRITER_NODE_FILES;
	return crew;
}

static void write_nodes(struct crew *crew)
{
	crew_run(crew, crew_write);
	assert_note(crew, 0, 0, "");
}

/* Compares the dataset with what HDF5 reads. Returns the frames that both find. */
static uint64_t check_as_hdf5(struct fixture *f, const char *path, const char *name, struct rng *r)
{
	hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT),
	      set = H5Dopen2(file, name, H5P_DEFAULT);
	hid_t space = H5Dget_space(set);
	struct dataset d = {
		.name = name, .type = H5Dget_type(set), .list = H5Dget_create_plist(set)};
	struct sluice_array_info info = {.size = sizeof(info)};
	sluice_file *opened = dataset_open(f->ctx, path, name);

	d.rank = (unsigned)H5Sget_simple_extent_dims(space, d.shape, NULL);
	d.element = H5Tget_size(d.type);
	d.bytes = (size_t)H5Sget_simple_extent_npoints(space) * d.element;
	d.model = malloc(d.bytes + 1);
	assert_true(H5Dread(set, d.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, d.model) >= 0);
	assert_ok(sluice_array_stat(opened, &info));
	assert_int_equal(info.rank, d.rank);
	for (unsigned i = 0; i < d.rank; i++)
		assert_int_equal(info.shape[i], d.shape[i]);
	assert_int_equal(info.bytes, d.bytes);
	for (int i = 0; i < 6; i++) {
		dataset_check_bytes(&d, opened, r);
		dataset_check_box(&d, opened, r);
	}
	assert_ok(sluice_close(opened));
	dataset_clear(&d);
	H5Sclose(space);
	H5Dclose(set);
	H5Fclose(file);
	return info.shape[0];
}

static void copy_file(const char *from, const char *to)
{
	char command[700];

	snprintf(command, sizeof(command), "cp '%s' '%s'", from, to);
	assert_int_equal(system(command), 0);
}

/* ------------------------------------------------------------------------------- beside H5Dread */

FIXTURE_TEST(blocks_of_nodes_are_read_as_HDF5_reads_them)
{
	static const char *const cuts[] = {"rows", "columns", "odd", "some"};
	static const int nodes[][2] = {{1, 1}, {4, 2}, {5, 3}, {7, 1}};
	struct rng r = rng_new(4211);

	for (size_t c = 0; c < COUNT_OF(cuts); c++)
		for (size_t n = 0; n < COUNT_OF(nodes); n++) {
			struct crew crew =
				nodes_at(f->ctx, scratch(f, "x.h5"), nodes[n][0], nodes[n][1]);

			crew.cut = cuts[c];
			crew.codec = (c + n) % 2 ? "none" : "deflate";
			write_nodes(&crew);
			assert_int_equal(check_as_hdf5(f, crew.path, "/u", &r), crew.frames);
		}
}

/* A file that links lead to has its nodes beside it, and one that is moved without them has none. */
FIXTURE_TEST(files_of_nodes_are_found_where_HDF5_finds_them)
{
	struct rng r = rng_new(4212);
	struct crew crew = nodes_at(f->ctx, scratch(f, "100%b.h5"), 4, 2);

	write_nodes(&crew);
	assert_int_equal(mkdir(scratch(f, "links"), 0700), 0);
	assert_int_equal(symlink("../100%b.h5", scratch(f, "links/l.h5")), 0);
	assert_int_equal(check_as_hdf5(f, scratch(f, "links/l.h5"), "/u", &r), crew.frames);
	copy_file(crew.path, scratch(f, "links/copy.h5"));
	assert_int_equal(check_as_hdf5(f, scratch(f, "links/copy.h5"), "/u", &r), 0);
}

static void act_continue(struct member *m)
{
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	crew_note(m, 0, rc ? rc : crew_put(m, "u", 10, 25, PATIENCE_MS));
	crew_end(m, 1);
}

FIXTURE_TEST(elements_that_a_node_lacks_have_the_fill_value)
{
	struct rng r = rng_new(4213);

	for (int columns = 0; columns < 2; columns++) {
		struct crew crew = nodes_at(f->ctx, scratch(f, "x.h5"), 4, 2);

		crew.cut = columns ? "columns" : "rows";
		crew.frames = 10;
		write_nodes(&crew);
		copy_file(scratch(f, "x.h5.node-1"), scratch(f, "old"));
		crew.o.flags = SLUICE_WRITER_APPEND | SLUICE_WRITER_NODE_FILES;
		crew_run(&crew, act_continue);
		assert_note(&crew, 0, 0, "");
		copy_file(scratch(f, "old"), scratch(f, "x.h5.node-1"));
		assert_int_equal(check_as_hdf5(f, scratch(f, "x.h5"), "/u", &r), 25);
		assert_int_equal(unlink(scratch(f, "x.h5.node-0")), 0);
		assert_int_equal(check_as_hdf5(f, scratch(f, "x.h5"), "/u", &r), 10);
		assert_int_equal(unlink(scratch(f, "x.h5.node-1")), 0);
		assert_int_equal(check_as_hdf5(f, scratch(f, "x.h5"), "/u", &r), 0);
	}
}

/* ------------------------------------------------------------------------------------ growth */

enum { STEPS = 6 };

/* Rank 0 reads between flushes. */
static void act_read_along(struct member *m)
{
	struct fixture *f = (struct fixture *)m->crew->given;
	sluice_file *file = NULL;
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	for (uint64_t k = 0; k < STEPS; k++) {
		struct sluice_array_info info = {.size = sizeof(info)};
		float found[FIELD_ELEMENTS], wanted[FIELD_ELEMENTS];
		uint64_t start[] = {3 * k + 2, 0, 0}, count[] = {1, FIELD_ROWS, FIELD_COLUMNS};
		sluice_op *op = NULL;

		if (!rc)
			rc = crew_put(m, "u", 3 * k, 3 * k + 3, PATIENCE_MS);
		if (!rc)
			rc = crew_flush(m);
		crew_meet(m);
		if (rc || m->rank) {
			crew_meet(m);
			continue;
		}
		if (!file)
			file = dataset_open(f->ctx, m->path, "/u");
		rc = sluice_array_refresh(file);
		if (!rc)
			rc = sluice_array_stat(file, &info);
		if (!rc && info.shape[0] != 3 * k + 3)
			rc = -ERANGE;
		if (!rc)
			rc = box_submit(file, 3, start, count, found, sizeof(found), &op);
		if (!rc)
			rc = (int)SL_MIN(sluice_wait(op, -1), 0);
		sluice_op_free(op);
		field_fill("u", 3 * k + 2, wanted);
		if (!rc && memcmp(found, wanted, sizeof(found)))
			rc = -EILSEQ;
		crew_meet(m);
	}
	if (file)
		sluice_close(file);
	crew_note(m, 0, rc);
	crew_end(m, 1);
}

FIXTURE_TEST(a_refresh_finds_the_frames_of_each_flush)
{
	struct crew crew = nodes_at(f->ctx, scratch(f, "x.h5"), 4, 2);

	crew.given = f;
	crew_run(&crew, act_read_along);
	assert_note(&crew, 0, 0, "");
	assert_note(&crew, 1, 0, "");
}

static void act_write_on(struct member *m)
{
	int rc = crew_begin(m, 0);

	for (uint64_t k = 0; !rc && k < 100000; k += 4) {
		rc = crew_put(m, "u", k, k + 4, PATIENCE_MS);
		if (!rc)
			rc = crew_flush(m);
	}
	_exit(1);
}

/* Each row of a frame is right, or was not there. */
static void check_rows(sluice_file *file, uint64_t frame)
{
	static float found[FIELD_ELEMENTS], wanted[FIELD_ELEMENTS];

	assert_int_equal(read_now(file, found, sizeof(found), frame * sizeof(found)),
	                 sizeof(found));
	field_fill("u", frame, wanted);
	for (size_t y = 0; y < FIELD_ROWS; y++) {
		const float *line = found + y * FIELD_COLUMNS;

		if (line[0] == line[0])
			assert_bytes(line, wanted + y * FIELD_COLUMNS,
			             FIELD_COLUMNS * sizeof(float));
	}
}

FIXTURE_TEST(frames_are_right_beside_a_writer_of_nodes_until_it_dies)
{
	struct rng r = rng_new(4214);

	/* The thread sanitizer ends a child that starts threads, and the allocator of the other may stay locked. */
	if (under_sanitizer())
		skip();
	for (int round = 0; round < rounds_of(6); round++) {
		char *path = strdup(scratch(f, "x.h5"));
		struct sluice_array_info info = {.size = sizeof(info)};
		uint64_t before = 0;
		sluice_file *file;
		int status;
		pid_t child;

		unlink(path);
		child = fork();
		if (!child) {
			sluice_context *own;
			struct crew crew;

			if (sluice_context_new(NULL, &own))
				_exit(2);
			crew = nodes_at(own, path, 4, 2);
			crew_run(&crew, act_write_on);
			_exit(3);
		}
		while (access(path, F_OK) && !waitpid(child, &status, WNOHANG))
			usleep(1000);
		file = dataset_open(f->ctx, path, "/u");
		for (int i = 0; i < 20; i++) {
			assert_ok(sluice_array_refresh(file));
			assert_ok(sluice_array_stat(file, &info));
			assert_true(info.shape[0] >= before);
			before = info.shape[0];
			if (before)
				check_rows(file, before - 1 - rng_below(&r, before));
		}
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status));
		assert_ok(sluice_close(file));
		assert_true(check_as_hdf5(f, path, "/u", &r) >= before);
		free(path);
	}
}

FIXTURE_TEST(files_of_nodes_that_others_change_are_stale_until_a_refresh)
{
	static const char *const names[] = {"x.h5", "x.h5.node-0"};

	for (size_t i = 0; i < COUNT_OF(names); i++) {
		struct crew crew = nodes_at(f->ctx, scratch(f, "x.h5"), 4, 2);
		sluice_file *file;
		float element;
		int fd;

		write_nodes(&crew);
		file = dataset_open(f->ctx, scratch(f, "x.h5"), "/u");
		assert_read(file, &element, sizeof(element), 0);
		fd = open(scratch(f, names[i]), O_WRONLY | O_APPEND | O_CLOEXEC);
		assert_int_equal(write(fd, "x", 1), 1);
		close(fd);
		assert_int_equal(read_now(file, &element, sizeof(element), 0), -ESTALE);
		assert_ok(sluice_array_refresh(file));
		assert_read(file, &element, sizeof(element), 0);
		assert_ok(sluice_close(file));
	}
}

/* ------------------------------------------------------------------------------- made by others */

/* Makes /NAME of int32, frames of 6 x 4. */
static void put_source(hid_t file, const char *name, hid_t type, hsize_t columns)
{
	hsize_t shape[] = {5, 6, columns}, most[] = {H5S_UNLIMITED, 6, columns},
		chunk[] = {1, 6, 2};
	hid_t space = H5Screate_simple(3, shape, most), list = H5Pcreate(H5P_DATASET_CREATE), set;
	int numbers[5 * 6 * 8];

	for (int i = 0; i < (int)COUNT_OF(numbers); i++)
		numbers[i] = i;
	H5Pset_chunk(list, 3, chunk);
	set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
	assert_true(H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers) >= 0);
	H5Dclose(set);
	H5Pclose(list);
	H5Sclose(space);
}

struct part {
	const char *file, *dataset;
	hsize_t row, rows, there; /* of the source: its first row there */
	hsize_t frames;           /* 0: all */
};

static void put_virtual(hid_t file, const char *name, const struct part *parts, size_t count)
{
	hsize_t shape[] = {5, 6, 4}, most[] = {H5S_UNLIMITED, 6, 4};
	hid_t space = H5Screate_simple(3, shape, most), source = H5Scopy(space);
	hid_t list = H5Pcreate(H5P_DATASET_CREATE), set;

	for (size_t i = 0; i < count; i++) {
		const struct part *p = &parts[i];
		hsize_t start[] = {0, p->row, 0}, there[] = {0, p->there, 0};
		hsize_t many[] = {p->frames ? p->frames : H5S_UNLIMITED, 1, 1},
			block[] = {1, p->rows, 4};

		H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, many, block);
		H5Sselect_hyperslab(source, H5S_SELECT_SET, there, NULL, many, block);
		assert_true(H5Pset_virtual(list, space, p->file, p->dataset, source) >= 0);
	}
	set = H5Dcreate2(file, name, H5T_STD_I32LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
	assert_true(set >= 0);
	H5Dclose(set);
	H5Pclose(list);
	H5Sclose(source);
	H5Sclose(space);
}

FIXTURE_TEST(virtual_datasets_of_others_are_read_if_they_are_as_simple)
{
	const struct part parts[] = {{"a.h5", "s", 0, 2, 0, 0},
	                             {".", "t", 2, 1, 2, 0},
	                             {"a.h5", "s", 4, 2, 4, 0},
	                             {"none.h5", "s", 3, 1, 3, 0}};
	const struct part others[] = {{"a.h5", "wide", 0, 2, 3, 0},
	                              {"./..below../b..h5", "s", 2, 1, 0, 0}};
	const struct part fixed[] = {{"a.h5", "s", 0, 2, 3, 4}, {"a.h5", "wide", 3, 2, 0, 5}};
	struct rng r = rng_new(4215);
	hid_t file = H5Fcreate(scratch(f, "a.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

	put_source(file, "s", H5T_STD_I32LE, 4);
	put_source(file, "wide", H5T_STD_I32LE, 8);
	H5Fclose(file);
	assert_ok(mkdir(scratch(f, "..below.."), 0700));
	file = H5Fcreate(scratch(f, "..below../b..h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
	put_source(file, "s", H5T_STD_I32LE, 4);
	H5Fclose(file);
	file = H5Fcreate(scratch(f, "v.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
	put_source(file, "t", H5T_STD_I32LE, 4);
	put_virtual(file, "v", parts, COUNT_OF(parts));
	put_virtual(file, "others", others, COUNT_OF(others));
	put_virtual(file, "fixed", fixed, COUNT_OF(fixed));
	H5Fclose(file);
	assert_int_equal(check_as_hdf5(f, scratch(f, "v.h5"), "/v", &r), 5);
	assert_int_equal(check_as_hdf5(f, scratch(f, "v.h5"), "/others", &r), 5);
	assert_int_equal(check_as_hdf5(f, scratch(f, "v.h5"), "/fixed", &r), 5);
}

FIXTURE_TEST(virtual_datasets_that_are_not_are_refused_by_name)
{
	static const struct {
		struct part parts[2];
		int error;
		const char *says;
	} cases[] = {
		{{{"v.h5", "v0", 0, 6, 0, 0}}, ENOTSUP, "v0' is virtual"},
		{{{"w.h5", "v", 0, 6, 0, 0}}, ENOTSUP, "v' is virtual"},
		{{{"../a.h5", "s", 0, 6, 0, 0}}, ENOTSUP, "is not in its folder"},
		{{{"a..b/../..", "s", 0, 6, 0, 0}}, ENOTSUP, "is not in its folder"},
		{{{"/tmp/a.h5", "s", 0, 6, 0, 0}}, ENOTSUP, "is not in its folder"},
		{{{"a.h5", "s", 0, 3, 0, 0}, {"a.h5", "t", 2, 3, 2, 0}},
	         ENOTSUP,
	         "two parts have an element"},
		{{{"a.h5", "s", 0, 3, 0, 0}, {"a.h5", "t", 3, 3, 3, 5}},
	         ENOTSUP,
	         "and some have none"},
		{{{"a.h5", "big", 0, 6, 0, 0}},
	         ENOTSUP,
	         "big' is virtual, or its elements have another type"},
		{{{"bad.h5", "s", 0, 6, 0, 0}}, EBADMSG, "bad.h5"},
	};
	hid_t file = H5Fcreate(scratch(f, "a.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
	char name[8];

	put_source(file, "s", H5T_STD_I32LE, 4);
	put_source(file, "t", H5T_STD_I32LE, 4);
	put_source(file, "big", H5T_STD_I32BE, 4);
	put_source(file, "wide", H5T_STD_I32LE, 8);
	H5Fclose(file);
	copy_file("/dev/null", scratch(f, "bad.h5"));
	file = H5Fcreate(scratch(f, "w.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
	put_virtual(file, "v", &(struct part){"v.h5", "v1", 0, 6, 0, 0}, 1);
	H5Fclose(file);
	file = H5Fcreate(scratch(f, "v.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		snprintf(name, sizeof(name), "v%zu", i);
		put_virtual(file, name, cases[i].parts, 1 + !!cases[i].parts[1].file);
	}
	H5Fclose(file);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		snprintf(name, sizeof(name), "v%zu", i);
		assert_refused(dataset_try(f->ctx, scratch(f, "v.h5"), name), cases[i].error,
		               cases[i].says);
	}
}

/* Damaged files can have it: HDF5 lets its end wrap, and with it the number of its elements. */
FIXTURE_TEST(a_block_as_long_as_the_number_for_no_end_is_refused)
{
	hsize_t shape[] = {10, 4}, start[] = {2, 0}, there[] = {1000, 0};
	hsize_t block[] = {3, 4}, count[] = {UINT64_MAX / 3, 1};
	hid_t space = H5Screate_simple(2, shape, NULL), source = H5Scopy(space);
	hid_t list = H5Pcreate(H5P_DATASET_CREATE);
	struct sl_h5_array array = {.rank = 2, .shape = {10, 4}};

	H5Sselect_hyperslab(space, H5S_SELECT_SET, start, block, count, block);
	H5Sselect_hyperslab(source, H5S_SELECT_SET, there, block, count, block);
	assert_true(H5Pset_virtual(list, space, ".", "s", source) >= 0);
	assert_refused(sl_h5_parts_get(list, space, "v", &array), ENOTSUP, "is no block");
	sl_h5_array_clear(&array);
	H5Pclose(list);
	H5Sclose(source);
	H5Sclose(space);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	H5dont_atexit();
	return RUN_TESTS(NULL, NULL);
}
