/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets in HDF5 files of servers: nginx, the server of S3, and one that does wrong. */
#include <unistd.h>

#include "arrays/array_blocks.h"
#include "arrays/dataset.h"
#include "lib/servers.h"

enum { ROWS = 400, COLUMNS = 90 };

static const char *remote_uri(const char *path)
{
	return row->s3 ? s3_uri("files", path) : nginx_uri(path, false);
}

static char linked[600];

static void linked_end(void)
{
	unlink(linked);
}

/* The file as an object of the fault server, which has those of one folder. */
static const char *faulty_uri(const char *path, const char *options)
{
	const char *base = getenv("SLUICE_TEST_DIR");

	snprintf(linked, sizeof(linked), "%s/remote-%d.h5", base ? base : ".", (int)getpid());
	unlink(linked);
	assert_int_equal(link(path, linked), 0);
	return fault_uri("file=%s&%s", as_option(strrchr(linked, '/') + 1), options);
}

/* A dataset u whose header lies behind the first bytes, which come with the opening. */
static struct dataset make_late(hid_t file, unsigned level)
{
	const hsize_t shape[] = {ROWS, COLUMNS}, chunk[] = {7, 11}, large = 400000;
	hid_t space = H5Screate_simple(1, &large, NULL), set;
	char *zeros = calloc(large, 1);

	set = H5Dcreate2(file, "large", H5T_NATIVE_INT8, space, H5P_DEFAULT, H5P_DEFAULT,
	                 H5P_DEFAULT);
	H5Dwrite(set, H5T_NATIVE_INT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros);
	H5Dclose(set);
	H5Sclose(space);
	free(zeros);
	for (int i = 0; i < 40; i++) {
		char name[20];

		snprintf(name, sizeof(name), "g%d", i);
		H5Gclose(H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
	}
	return dataset_make(file, 2, shape, chunk, NULL, level, 4304);
}

static struct dataset remote_make(const char *path, bool latest, unsigned level)
{
	const hsize_t shape[] = {ROWS, COLUMNS}, chunk[] = {7, 11};
	hid_t file = file_create(path, latest);
	struct dataset d = dataset_make(file, 2, shape, chunk, NULL, level, 4301);

	H5Fclose(file);
	return d;
}

static void remote_check(const struct dataset *d, sluice_file *file, int boxes)
{
	struct rng r = rng_new(4302);

	for (int i = 0; i < boxes; i++) {
		dataset_check_bytes(d, file, &r);
		dataset_check_box(d, file, &r);
	}
	assert_ok(sluice_close(file));
}

/* Nothing of HDF5 is open any more, and it opens the next. */
static void assert_hdf5_is_well(struct fixture *f)
{
	const char *path = scratch(f, "well.h5");
	struct dataset d;

	assert_int_equal(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_FILE | H5F_OBJ_DATASET |
	                                                              H5F_OBJ_GROUP | H5F_OBJ_ATTR),
	                 0);
	d = remote_make(path, false, 1);
	remote_check(&d, dataset_open(f->ctx, remote_uri(path), "u"), 1);
	dataset_clear(&d);
}

FIXTURE_TEST(datasets_of_a_server_are_read_as_the_model_has_them)
{
	enum { ONE, IMPLICIT, FIXED, EXTENSIBLE, TREE, OLD_TREE, CONTIGUOUS, COMPACT, KINDS };

	for (int kind = 0; kind < KINDS; kind++) {
		const char *path = scratch(f, "u.h5");
		hid_t file = file_create(path, kind != OLD_TREE);
		hsize_t shape[] = {kind == COMPACT ? 50 : ROWS, COLUMNS};
		hsize_t chunk[] = {kind == ONE ? ROWS : 7, kind == ONE ? COLUMNS : 11};
		hsize_t most[] = {kind >= EXTENSIBLE ? H5S_UNLIMITED : ROWS,
		                  kind == TREE ? H5S_UNLIMITED : COLUMNS};
		struct dataset d =
			dataset_make(file, 2, shape, kind < CONTIGUOUS ? chunk : NULL,
		                     kind < CONTIGUOUS ? most : NULL,
		                     kind < CONTIGUOUS && kind != IMPLICIT, (uint64_t)kind);

		H5Fclose(file);
		remote_check(&d, dataset_open(f->ctx, remote_uri(path), "u"), rounds_of(12));
		dataset_clear(&d);
	}
}

/* Of 400 datasets, whose headers lie among their bytes. */
FIXTURE_TEST(an_open_takes_ten_round_trips_at_most)
{
	for (int latest = 0; latest < 2; latest++) {
		const char *path = scratch(f, "many.h5"), *uri;
		hid_t file = file_create(path, latest);
		hsize_t shape = 20000;
		hid_t space = H5Screate_simple(1, &shape, NULL);
		char *bytes = calloc(shape, 1);
		struct dataset d;

		for (int i = 0; i < 400; i++) {
			char name[20];
			hid_t set;

			snprintf(name, sizeof(name), "a%d", i);
			set = H5Dcreate2(file, name, H5T_NATIVE_INT8, space, H5P_DEFAULT,
			                 H5P_DEFAULT, H5P_DEFAULT);
			H5Dwrite(set, H5T_NATIVE_INT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes);
			H5Dclose(set);
		}
		free(bytes);
		d = dataset_make(file, 2, (hsize_t[]){ROWS, COLUMNS}, (hsize_t[]){7, 11}, NULL, 1,
		                 5);
		H5Sclose(space);
		H5Fclose(file);
		uri = faulty_uri(path, "");
		sluice_file *opened = dataset_open(f->ctx, uri, "u");
		assert_in_range(asked(uri, "requests"), 1, 10);
		remote_check(&d, opened, 2);
		dataset_clear(&d);
	}
}

FIXTURE_TEST(neighbouring_chunks_come_in_one_request)
{
	const hsize_t shape[] = {4000, 300}, chunk[] = {10, 300};
	const char *path = scratch(f, "u.h5"), *uri;
	hid_t file = file_create(path, false);
	struct dataset d = dataset_make(file, 2, shape, chunk, NULL, 0, 4307);
	struct buffer b = buffer_new(d.bytes, 0);
	sluice_file *opened;
	long before;

	H5Fclose(file);
	uri = faulty_uri(path, "");
	opened = dataset_open(f->ctx, uri, "u");
	before = asked(uri, "requests");
	assert_read(opened, b.data, d.bytes, 0);
	assert_bytes(b.data, d.model, d.bytes);
	/* 400 chunks, 128 of which are looked up at a time, and in a request 1 MiB. */
	assert_in_range(asked(uri, "requests") - before, 5, 20);
	assert_ok(sluice_close(opened));
	buffer_free(&b);
	dataset_clear(&d);
}

/* Chunks of 128 KiB that are holes of the file, with the nodes of the index between them: 200 nodes of a tree one after the
 * other would take 4 s. */
FIXTURE_TEST(nodes_of_an_index_are_fetched_side_by_side)
{
	enum { FRAMES = 20000, FLOATS = 32768, COUNT = 200, GAP = FRAMES / COUNT };

	for (int latest = 0; latest < 2; latest++) {
		const hsize_t shape[] = {FRAMES, FLOATS}, chunk[] = {1, FLOATS};
		const hsize_t most[] = {H5S_UNLIMITED, FLOATS};
		const char *path = scratch(f, "index.h5"), *uri;
		hid_t file = file_create(path, latest), list = H5Pcreate(H5P_DATASET_CREATE);
		hid_t space = H5Screate_simple(2, shape, most);
		struct sluice_extent extents[COUNT];
		float found[COUNT];
		sluice_file *opened;
		sluice_op *op;
		double begun;

		H5Pset_chunk(list, 2, chunk);
		H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
		H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY);
		H5Dclose(H5Dcreate2(file, "u", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, list,
		                    H5P_DEFAULT));
		H5Sclose(space);
		H5Pclose(list);
		H5Fclose(file);
		uri = faulty_uri(path, "latency=20");
		opened = dataset_open(f->ctx, uri, "u");
		for (uint64_t i = 0; i < COUNT; i++) {
			found[i] = 1;
			extents[i] = (struct sluice_extent){&found[i], sizeof(float),
			                                    i * GAP * FLOATS * sizeof(float)};
		}
		begun = seconds_now();
		assert_ok(submit_read(opened, extents, COUNT, &op));
		assert_moves(op, sizeof(found));
		assert_true(seconds_now() - begun < 3);
		for (int i = 0; i < COUNT; i++)
			assert_true(found[i] == 0);
		assert_ok(sluice_close(opened));
	}
}

/* Nodes as long as HDF5 is told, whose children are anywhere. */
FIXTURE_TEST(hints_that_lie_cost_no_more_than_their_limit)
{
	struct sl_h5_blocks *blocks = calloc(1, sizeof(*blocks));
	struct rng r = rng_new(4308);

	(void)f;
	blocks->source.rank = 2;
	blocks->source.length = 1 << 30;
	for (size_t i = 0; i < SL_H5_BLOCKS_BUCKETS; i++)
		sl_list_init(&blocks->buckets[i]);
	sl_list_init(&blocks->used);
	for (int round = 0; round < 200; round++) {
		static const char *const heads[] = {"TREE\1\1\xff\xff", "TREE\1\2\xff\xff", "EAIB",
		                                    "EASB"};
		size_t n = 1 + rng_below(&r, round % 2 ? 100 : 200000);
		char *node = malloc(n + 8);
		uint64_t each;

		for (size_t k = 0; k < n; k++)
			node[k] = (char)(rng_below(&r, 3) ? 0 : rng_next(&r));
		memcpy(node, heads[round % 4], round % 4 < 2 ? 8 : 4);
		node = realloc(node, n);
		sl_hints_take(blocks, node, rng_below(&r, 1 << 20), n);
		free(node);
		assert_in_range(blocks->hints.wanted_count, 0, SL_HINTS_MOST);
		each = blocks->hints.bytes ? blocks->hints.bytes : 32 << 10;
		assert_in_range(blocks->hints.wanted_count * each, 0, 16 << 20);
		for (size_t k = 0; k < blocks->hints.wanted_count; k++)
			assert_true(blocks->hints.wanted[k] < blocks->source.length);
		if (round % 100 == 0)
			memset(&blocks->hints, 0, sizeof(blocks->hints));
	}
	free(blocks);
}

FIXTURE_TEST(a_server_that_does_wrong_is_an_error_and_hdf5_stays_well)
{
	static const struct {
		const char *options;
		int rc;
	} wrongs[] = {
		{"fault=status:404&on=GET,HEAD", -ENOENT},
		{"fault=status:403&on=GET,HEAD", -EACCES},
		{"ranges=no", -ENOTSUP},
		{"fault=status:404&skip=1", -ENOENT},
		{"fault=range:total&skip=1", -ESTALE},
		{"fault=range:shifted&skip=1", -EPROTO},
		{"fault=reset:1000&skip=1&times=1", 0},
		{"change=2", -ESTALE},
	};
	char *path = strdup(scratch(f, "u.h5"));
	hid_t file = file_create(path, false);
	struct dataset d = make_late(file, 1);

	H5Fclose(file);
	for (size_t i = 0; i < COUNT_OF(wrongs); i++) {
		const char *uri = faulty_uri(path, wrongs[i].options);
		int rc = dataset_try(f->ctx, uri, "u");

		if (rc != wrongs[i].rc)
			fail_msg("%s: %d, '%s'\n%s", wrongs[i].options, rc, sluice_last_message(),
			         asked_for(uri));
		assert_hdf5_is_well(f);
	}
	free(path);
	dataset_clear(&d);
}

/* Of the header, which the opening wants, and of chunks: the model's bytes come, or an error. */
FIXTURE_TEST(no_wrong_answer_is_taken_for_bytes)
{
	enum { RIGHT = 5 };
	static const char *const faults[] = {"short:3",       "extra:9",      "reset:1000",
	                                     "interim",       "lower", /* mended: RIGHT */
	                                     "cut:5",         "long:7",       "endless",
	                                     "whole",         "partial",      "range:total",
	                                     "range:shifted", "busy",         "reset:head",
	                                     "gzip",          "gzip:quiet",   "gzip:stored",
	                                     "garbage",       "headers:line", "redirect:302"};
	static const int places[] = {410000, 540000};
	const char *path = scratch(f, "u.h5");
	hid_t file = file_create(path, false);
	struct dataset d = make_late(file, 0);
	struct buffer b = buffer_new(d.bytes, 0);
	unsigned right = 0;
	sluice_context *ctx;

	H5Fclose(file);
	/* Bytes that came before an error are no reason to try for a minute. */
	setenv("SLUICE_HTTP_RETRY_MS", "200", 1);
	setenv("SLUICE_HTTP_STALL_MS", "300", 1);
	assert_ok(sluice_context_new(NULL, &ctx));
	unsetenv("SLUICE_HTTP_RETRY_MS");
	unsetenv("SLUICE_HTTP_STALL_MS");
	for (size_t i = 0; i < COUNT_OF(faults) * COUNT_OF(places); i++) {
		struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
		char options[80];
		sluice_file *opened;
		sluice_op *op;
		int64_t moved;

		snprintf(options, sizeof(options), "fault=%s&at=%d", faults[i / COUNT_OF(places)],
		         places[i % COUNT_OF(places)]);
		o.dataset = "u";
		moved = sluice_open(ctx, faulty_uri(path, options), &o, &opened);
		if (!moved) {
			assert_ok(sluice_read(opened, b.data, d.bytes, 0, &op));
			moved = sluice_wait(op, -1);
			if (moved >= 0 && memcmp(b.data, d.model, d.bytes))
				fail_msg("%s: other bytes", options);
			assert_true(moved >= 0 || *sluice_op_message(op));
			sluice_op_free(op);
			sluice_close(opened);
		}
		right += moved >= 0;
		if (moved >= 0 && i / COUNT_OF(places) >= RIGHT)
			fail_msg("%s: is taken", options);
	}
	sluice_context_close(ctx);
	assert_in_range(right, 2, RIGHT * COUNT_OF(places));
	assert_hdf5_is_well(f);
	buffer_free(&b);
	dataset_clear(&d);
}

FIXTURE_TEST(an_object_that_is_replaced_is_stale)
{
	const char *path = scratch(f, "u.h5"), *uri;
	const hsize_t shape[] = {4000, 300}, chunk[] = {100, 300};
	hid_t file = file_create(path, false);
	struct dataset d = dataset_make(file, 2, shape, chunk, NULL, 0, 4305);
	struct buffer b = buffer_new(d.bytes, 0);
	sluice_file *opened;
	sluice_op *op;

	H5Fclose(file);
	uri = faulty_uri(path, "change=3");
	opened = dataset_open(f->ctx, uri, "u");
	assert_ok(sluice_read(opened, b.data, d.bytes, 0, &op));
	assert_int_equal(sluice_wait(op, -1), -ESTALE);
	assert_non_null(strstr(sluice_op_message(op), "object"));
	sluice_op_free(op);
	sluice_close(opened);
	buffer_free(&b);
	dataset_clear(&d);
}

FIXTURE_TEST(a_truncated_file_is_an_error)
{
	const char *path = scratch(f, "u.h5");
	struct dataset d = remote_make(path, true, 1);
	off_t length = (off_t)file_length(path);

	for (int i = 1; i < 8; i++) {
		struct dataset again = remote_make(path, true, 1);
		int rc;

		assert_int_equal(truncate(path, length * i / 8), 0);
		rc = dataset_try(f->ctx, remote_uri(path), "u");
		assert_true(rc < 0);
		assert_non_null(strstr(sluice_last_message(), "u.h5"));
		dataset_clear(&again);
	}
	file_make(path, 100000, 7);
	assert_refused(dataset_try(f->ctx, remote_uri(path), "u"), EBADMSG, "HDF5");
	assert_hdf5_is_well(f);
	dataset_clear(&d);
}

FIXTURE_TEST(external_files_of_a_remote_file_are_refused_by_name)
{
	const char *path = scratch(f, "u.h5");
	hid_t file = file_create(path, false), list = H5Pcreate(H5P_DATASET_CREATE);
	hsize_t shape = 1000;
	hid_t space = H5Screate_simple(1, &shape, NULL);

	H5Pset_external(list, "beside.raw", 0, 1000);
	H5Dclose(H5Dcreate2(file, "u", H5T_NATIVE_INT8, space, H5P_DEFAULT, list, H5P_DEFAULT));
	H5Sclose(space);
	H5Pclose(list);
	H5Fclose(file);
	assert_refused(dataset_try(f->ctx, remote_uri(path), "u"), ENOTSUP, "beside.raw");
}

FIXTURE_TEST(a_cancel_ends_a_look_at_the_index)
{
	const hsize_t shape[] = {20000, 2}, chunk[] = {1, 2};
	const char *path = scratch(f, "tree.h5"), *uri;
	hid_t file = file_create(path, false);
	struct dataset d = dataset_make(file, 2, shape, chunk, NULL, 0, 4306);
	struct buffer b = buffer_new(d.bytes, 0);
	sluice_file *opened;
	sluice_op *op;
	double begun = seconds_now();

	H5Fclose(file);
	uri = faulty_uri(path, "fault=stall:0&skip=2");
	opened = dataset_open(f->ctx, uri, "u");
	assert_ok(sluice_read(opened, b.data, d.bytes, 0, &op));
	sleep_ms(200);
	assert_ok(sluice_cancel(op));
	assert_int_equal(sluice_wait(op, -1), -ECANCELED);
	assert_true(seconds_now() - begun < 15);
	sluice_op_free(op);
	sluice_close(opened);
	buffer_free(&b);
	dataset_clear(&d);
}

/* Of the file itself, and of HDF5's own bytes in it. */
FIXTURE_TEST(a_cancel_ends_an_open)
{
	const char *path = scratch(f, "u.h5");
	hid_t file = file_create(path, false);
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	struct dataset d = make_late(file, 1);

	H5Fclose(file);
	o.dataset = "u";
	for (int skip = 0; skip < 3; skip++) {
		char stall[60];
		const char *uri;
		double begun;
		sluice_op *op;

		snprintf(stall, sizeof(stall), "fault=stall:0&skip=%d", skip);
		uri = faulty_uri(path, skip < 2 ? stall : "");
		assert_ok(sluice_open_start(f->ctx, uri, &o, NULL, NULL, &op));
		sleep_ms(200);
		begun = seconds_now();
		if (skip < 2) {
			assert_ok(sluice_cancel(op));
			assert_int_equal(sluice_wait(op, -1), -ECANCELED);
			assert_true(seconds_now() - begun < 5);
			assert_int_equal(asked(uri, "requests"), skip + 1);
		} else {
			sluice_file *opened;

			assert_ok(sluice_wait(op, -1));
			assert_ok(sluice_op_file(op, &opened));
			remote_check(&d, opened, 1);
		}
		sluice_op_free(op);
	}
	assert_hdf5_is_well(f);
	dataset_clear(&d);
}

/* Each end of an open meets a cancel, and the handle goes without a wait. No file stays open. */
FIXTURE_TEST(cancelled_opens_are_freed_at_any_time)
{
	enum { OPENS = 12 };
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	const char *path = scratch(f, "freed.h5");
	hid_t file = file_create(path, false);
	struct dataset d = make_late(file, 1);
	const char *uri = remote_uri(path); /* the opens read it until they are over */
	double begun = seconds_now();
	sluice_op *op[OPENS];
	int rc;

	H5Fclose(file);
	o.dataset = "u";
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < OPENS; i++)
			assert_ok(sluice_open_start(f->ctx, uri, &o, NULL, NULL, &op[i]));
		sleep_ms(round % 20);
		for (int i = 0; i < OPENS; i++) {
			if ((i + round) % 4)
				sluice_cancel(op[i]);
			sluice_op_free(op[i]);
		}
	}
	while ((rc = sluice_context_close(f->ctx)) == -EBUSY && seconds_now() - begun < 60)
		sleep_ms(10);
	assert_ok(rc);
	f->ctx = NULL;
	dataset_clear(&d);
}

/* Keys for requests come by the threads that wait for storage. */
FIXTURE_TEST(looks_at_servers_take_no_thread_from_keys)
{
	enum { FILES = 4 };
	const hsize_t shape[] = {20000, 2}, chunk[] = {1, 2};
	const char *path = scratch(f, "tree.h5");
	hid_t file = file_create(path, false);
	struct dataset d = dataset_make(file, 2, shape, chunk, NULL, 0, 4310);
	struct buffer b = buffer_new(FILES * d.bytes, 0);
	sluice_file *opened[FILES];
	sluice_op *op[FILES];

	H5Fclose(file);
	for (size_t i = 0; i < FILES; i++) {
		opened[i] = dataset_open(f->ctx, faulty_uri(path, "fault=stall:0&skip=2"), "u");
		assert_ok(sluice_read(opened[i], b.data + i * d.bytes, d.bytes, 0, &op[i]));
	}
	sleep_ms(200);
	/* One that has just ended another look may not be idle when the next begins. */
	assert_in_range(count_threads_named("sluice-look"), FILES, 2 * FILES);
	assert_int_equal(count_threads_named("sluice-wait"), 1);
	for (size_t i = 0; i < FILES; i++) {
		assert_ok(sluice_cancel(op[i]));
		assert_int_equal(sluice_wait(op[i], -1), -ECANCELED);
		sluice_op_free(op[i]);
		sluice_close(opened[i]);
	}
	buffer_free(&b);
	dataset_clear(&d);
}

/* More than there are threads for opens. */
FIXTURE_TEST(opens_that_stall_hold_up_no_look)
{
	enum { OPENS = 80 };
	const char *path = scratch(f, "u.h5");
	struct dataset d = remote_make(path, false, 1), tree;
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	hid_t file = file_create(scratch(f, "tree.h5"), false);
	sluice_file *opened = dataset_open(f->ctx, remote_uri(path), "u");
	const char *uri;
	sluice_op *op[OPENS];
	double begun;

	tree = make_late(file, 1);
	H5Fclose(file);
	o.dataset = "u";
	uri = faulty_uri(scratch(f, "tree.h5"), "fault=stall:0&at=410000");
	for (int i = 0; i < OPENS; i++)
		assert_ok(sluice_open_start(f->ctx, uri, &o, NULL, NULL, &op[i]));
	sleep_ms(500);
	begun = seconds_now();
	remote_check(&d, opened, 2);
	assert_true(seconds_now() - begun < 5);
	for (int i = 0; i < OPENS; i++) {
		assert_ok(sluice_cancel(op[i]));
		assert_int_equal(sluice_wait(op[i], -1), -ECANCELED);
		sluice_op_free(op[i]);
	}
	dataset_clear(&tree);
	dataset_clear(&d);
}

/* Chunks on their way for a read that is cancelled, which the next read wants. */
FIXTURE_TEST(a_cancel_ends_no_other_read)
{
	enum { CHUNKS = 40, DEEP = 100, WIDE = 300 };
	const hsize_t shape[] = {CHUNKS * DEEP, WIDE}, chunk[] = {DEEP, WIDE};
	const size_t bytes = DEEP * WIDE * sizeof(int);
	const char *path = scratch(f, "u.h5");
	hid_t file = file_create(path, false);
	struct dataset d = dataset_make(file, 2, shape, chunk, NULL, 1, 4309);
	struct buffer b = buffer_new(d.bytes, 0);
	sluice_file *opened;
	sluice_op *first, *second;
	unsigned cancelled = 0;

	H5Fclose(file);
	opened = dataset_open(f->ctx, faulty_uri(path, "latency=40"), "u");
	assert_read(opened, b.data, d.bytes, 0);
	for (size_t i = CHUNKS / 4; i < CHUNKS; i++) {
		assert_ok(sluice_read(opened, b.data, bytes / 2, i * bytes, &first));
		sleep_ms(10);
		/* On a busy machine some are over by then. */
		int rc = sluice_cancel(first);
		assert_true(!rc || rc == -EALREADY);
		cancelled += !rc;
		assert_ok(sluice_read(opened, b.data + bytes, bytes, i * bytes, &second));
		assert_moves(second, bytes);
		assert_bytes(b.data + bytes, d.model + i * bytes, bytes);
		sluice_wait(first, -1);
		sluice_op_free(first);
	}
	assert_true(cancelled);
	assert_ok(sluice_close(opened));
	buffer_free(&b);
	dataset_clear(&d);
}

static int count_found(void *user, const struct sluice_array_info *info)
{
	char *listed = user;

	strcat(strcat(listed, info->name), info->refused ? "! " : " ");
	return 0;
}

FIXTURE_TEST(a_list_of_a_remote_file_has_each_object_once)
{
	const char *path = scratch(f, "l.h5");
	hid_t file = file_create(path, false);
	hsize_t shape = 300000;
	hid_t space = H5Screate_simple(1, &shape, NULL);
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	char listed[200] = "", *zeros = calloc(shape, 1);
	sluice_file *opened;

	H5Gclose(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
	for (int i = 0; i < 6; i++) {
		char name[20];
		hid_t set;

		snprintf(name, sizeof(name), "g/a%d", i);
		set = H5Dcreate2(file, name, H5T_NATIVE_INT8, space, H5P_DEFAULT, H5P_DEFAULT,
		                 H5P_DEFAULT);
		H5Dwrite(set, H5T_NATIVE_INT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros);
		H5Dclose(set);
	}
	free(zeros);
	H5Sclose(space);
	H5Fclose(file);
	assert_ok(sluice_open(f->ctx, remote_uri(path), &o, &opened));
	assert_ok(sluice_array_list_file(opened, "/", count_found, listed));
	assert_string_equal(listed, "/ /g /g/a0 /g/a1 /g/a2 /g/a3 /g/a4 /g/a5 ");
	assert_refused(sluice_array_list_file(opened, "/none", count_found, listed), ENOENT,
	               "none");
	assert_ok(sluice_close(opened));
	assert_ok(sluice_open(f->ctx, path, &o, &opened));
	assert_refused(sluice_array_list_file(opened, "/", count_found, listed), ENOTSUP, "l.h5");
	assert_ok(sluice_close(opened));
	assert_hdf5_is_well(f);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	H5dont_atexit();
	atexit(linked_end);
	setenv("SLUICE_HTTP_ATTEMPTS", "3", 1);
	setenv("SLUICE_HTTP_BACKOFF_MS", "5", 1);
	setenv("SLUICE_HTTP_BACKOFF_MAX_MS", "20", 1);
	setenv("SLUICE_HTTP_HEDGE", "0", 1);
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return RUN_TESTS(NULL, NULL);
}
