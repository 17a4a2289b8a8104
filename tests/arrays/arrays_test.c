/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of HDF5's making, read by sluice: every layout, index and type, whole, by bytes and by boxes. */
#include <sys/stat.h>
#include <unistd.h>

#include "arrays/dataset.h"
#include "core/core.h"

/* ------------------------------------------------------------------------------ by a model */

/* Draws the shape, the type, the layout and the filters. */
static void draw(struct dataset *d, struct rng *r)
{
	hid_t types[] = {H5T_NATIVE_FLOAT, H5T_STD_I16BE, H5T_NATIVE_INT8, H5T_NATIVE_DOUBLE};
	hsize_t chunk[RANK_MOST];

	d->rank = (unsigned)rng_below(r, RANK_MOST);
	d->type = H5Tcopy(types[rng_below(r, COUNT_OF(types))]);
	d->list = H5Pcreate(H5P_DATASET_CREATE);
	for (unsigned i = 0; i < d->rank; i++) {
		d->shape[i] = 1 + rng_below(r, d->rank > 2 ? 12 : 90);
		chunk[i] = 1 + rng_below(r, d->shape[i]);
	}
	switch (d->rank ? rng_below(r, 5) : rng_below(r, 2)) {
	case 0:
		H5Pset_layout(d->list, H5D_CONTIGUOUS);
		return;
	case 1:
		if (d->rank < 2)
			H5Pset_layout(d->list, H5D_COMPACT);
		return;
	}
	H5Pset_chunk(d->list, (int)d->rank, chunk);
	/* In any order; each once or more, but for deflate. */
	for (size_t left = rng_below(r, 5), deflates = 1; left; left--) {
		switch (rng_below(r, 3)) {
		case 0:
			H5Pset_shuffle(d->list);
			break;
		case 1:
			if (deflates--)
				H5Pset_deflate(d->list, 1 + (unsigned)rng_below(r, 9));
			else
				deflates = 0;
			break;
		default:
			H5Pset_fletcher32(d->list);
		}
	}
	if (!rng_below(r, 3))
		H5Pset_chunk_opts(d->list, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
}

FIXTURE_TEST(datasets_by_chance_are_read_as_the_model_has_them)
{
	struct rng r = rng_new(4201);

	for (int round = 0; round < rounds_of(120); round++) {
		const char *path = scratch(f, "a.h5");
		hid_t file = file_create(path, round % 2);
		struct dataset d = {.name = "u"};
		sluice_file *opened;

		draw(&d, &r);
		dataset_fill(&d, &r);
		dataset_write(&d, file);
		H5Fclose(file);
		if (round % 3 == 0)
			file_set_residency(path, COLD);
		opened = dataset_open(f->ctx, path, "/u");
		for (int i = 0; i < 4; i++) {
			dataset_check_bytes(&d, opened, &r);
			if (d.rank)
				dataset_check_box(&d, opened, &r);
		}
		assert_ok(sluice_close(opened));
		dataset_clear(&d);
	}
}

/* Each index of chunks of the newest format: one chunk, implicit, fixed and extensible array, and both trees. */
FIXTURE_TEST(every_index_of_chunks_is_followed)
{
	enum { ONE, IMPLICIT, FIXED, EXTENSIBLE, TREE, OLD_TREE, KINDS };
	struct rng r = rng_new(4202);

	for (int kind = 0; kind < KINDS; kind++) {
		const char *path = scratch(f, "i.h5");
		hid_t file = file_create(path, kind != OLD_TREE), space, set;
		struct dataset d = {.name = "u", .rank = 2, .shape = {200, 90}};
		hsize_t chunk[] = {kind == ONE ? 200 : 7, kind == ONE ? 90 : 11};
		hsize_t most[] = {kind >= EXTENSIBLE ? H5S_UNLIMITED : 200,
		                  kind == TREE ? H5S_UNLIMITED : 90};
		sluice_file *opened;

		d.type = H5Tcopy(H5T_NATIVE_INT);
		d.list = H5Pcreate(H5P_DATASET_CREATE);
		dataset_fill(&d, &r);
		H5Pset_chunk(d.list, 2, chunk);
		if (kind == IMPLICIT)
			H5Pset_alloc_time(d.list, H5D_ALLOC_TIME_EARLY);
		else
			H5Pset_deflate(d.list, 1);
		space = H5Screate_simple(2, d.shape, most);
		set = H5Dcreate2(file, "u", d.type, space, H5P_DEFAULT, d.list, H5P_DEFAULT);
		assert_true(H5Dwrite(set, d.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, d.model) >= 0);
		H5Dclose(set);
		H5Sclose(space);
		H5Fclose(file);
		opened = dataset_open(f->ctx, path, "u");
		dataset_check_bytes(&d, opened, &r);
		for (int i = 0; i < 10; i++)
			dataset_check_box(&d, opened, &r);
		assert_ok(sluice_close(opened));
		dataset_clear(&d);
	}
}

FIXTURE_TEST(elements_that_are_not_there_have_the_fill_value)
{
	const char *path = scratch(f, "f.h5");
	hid_t file = file_create(path, false);
	struct dataset d = {.name = "u", .rank = 2, .shape = {50, 60}};
	hsize_t chunk[] = {8, 7}, from[] = {10, 20}, count[] = {13, 9};
	const int fill = -77;
	int part[13 * 9];
	struct rng r = rng_new(4203);

	for (int layout = 0; layout < 2; layout++) {
		hid_t space = H5Screate_simple(2, d.shape, NULL),
		      memory = H5Screate_simple(2, count, NULL), set;
		sluice_file *opened;

		d.name = layout ? "chunks" : "rows";
		d.type = H5Tcopy(H5T_NATIVE_INT);
		d.list = H5Pcreate(H5P_DATASET_CREATE);
		H5Pset_fill_value(d.list, d.type, &fill);
		if (layout)
			H5Pset_chunk(d.list, 2, chunk);
		if (layout)
			H5Pset_deflate(d.list, 6);
		dataset_fill(&d, &r);
		for (size_t i = 0; i < d.bytes / 4; i++)
			((int *)d.model)[i] = fill;
		set = H5Dcreate2(file, d.name, d.type, space, H5P_DEFAULT, d.list, H5P_DEFAULT);
		for (int i = 0; i < 13 * 9; i++)
			part[i] = i;
		if (layout) {
			H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, count, NULL);
			assert_true(H5Dwrite(set, d.type, memory, space, H5P_DEFAULT, part) >= 0);
			for (size_t i = 0; i < 13; i++)
				memcpy(d.model + ((10 + i) * 60 + 20) * 4, part + i * 9, 36);
		}
		H5Dclose(set);
		H5Sclose(memory);
		H5Sclose(space);
		H5Fflush(file, H5F_SCOPE_GLOBAL);
		opened = dataset_open(f->ctx, path, d.name);
		dataset_check_bytes(&d, opened, &r);
		for (int i = 0; i < 20; i++)
			dataset_check_box(&d, opened, &r);
		assert_ok(sluice_close(opened));
		dataset_clear(&d);
	}
	H5Fclose(file);
}

FIXTURE_TEST(a_dataset_without_elements_has_no_bytes)
{
	const char *path = scratch(f, "n.h5");
	hsize_t shapes[][2] = {{0, 5}, {5, 0}, {0, 0}}, most[] = {H5S_UNLIMITED, H5S_UNLIMITED},
		chunk[] = {3, 4};
	uint64_t start[] = {0, 0}, count[] = {0, 0};

	for (size_t i = 0; i < 2 * COUNT_OF(shapes); i++) {
		hid_t file = file_create(path, false), list = H5Pcreate(H5P_DATASET_CREATE);
		hid_t space = H5Screate_simple(2, shapes[i / 2], i % 2 ? most : NULL);
		struct sluice_array_info info = {sizeof(info)};
		sluice_file *opened;
		sluice_op *op;
		char to;

		if (i % 2)
			H5Pset_chunk(list, 2, chunk);
		H5Dclose(H5Dcreate2(file, "u", H5T_NATIVE_INT, space, H5P_DEFAULT, list,
		                    H5P_DEFAULT));
		H5Sclose(space);
		H5Pclose(list);
		H5Fclose(file);
		opened = dataset_open(f->ctx, path, "u");
		assert_ok(sluice_array_stat(opened, &info));
		assert_int_equal(info.bytes, 0);
		assert_int_equal(info.shape[1], shapes[i / 2][1]);
		assert_int_equal(read_now(opened, &to, 1, 0), 0);
		assert_ok(box_submit(opened, 2, start, count, &to, 0, &op));
		assert_moves(op, 0);
		assert_ok(sluice_close(opened));
	}
}

FIXTURE_TEST(bytes_in_other_files_are_read_there)
{
	const char *path = scratch(f, "e.h5"), *first = scratch(f, "e1.raw"),
		   *second = scratch(f, "e2.raw");
	struct dataset d = {.name = "u", .rank = 2, .shape = {300, 70}};
	struct rng r = rng_new(4206);
	hid_t file = file_create(path, false);
	sluice_file *opened;

	d.type = H5Tcopy(H5T_NATIVE_INT);
	d.list = H5Pcreate(H5P_DATASET_CREATE);
	H5Pset_external(d.list, first, 24, 50000);
	H5Pset_external(d.list, second, 0, H5F_UNLIMITED);
	dataset_fill(&d, &r);
	dataset_write(&d, file);
	H5Fclose(file);
	opened = dataset_open(f->ctx, path, "u");
	for (int i = 0; i < 5; i++) {
		dataset_check_bytes(&d, opened, &r);
		dataset_check_box(&d, opened, &r);
	}
	assert_ok(sluice_close(opened));
	unlink(second);
	assert_refused(dataset_try(f->ctx, path, "u"), ENOENT, "e2.raw");
	dataset_clear(&d);
}

/* ------------------------------------------------------------------------------ types and names */

static void make_of_type(hid_t file, const char *name, hid_t type)
{
	hsize_t shape = 3;
	hid_t space = H5Screate_simple(1, &shape, NULL);
	hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

	assert_true(set >= 0);
	H5Dclose(set);
	H5Sclose(space);
	H5Tclose(type);
}

static void assert_type(sluice_context *ctx, const char *path, const char *name, const char *type)
{
	struct sluice_array_info info = {sizeof(info)};
	sluice_file *file = dataset_open(ctx, path, name);

	assert_ok(sluice_array_stat(file, &info));
	assert_string_equal(info.type, type);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(types_are_described_as_numpy_does)
{
	const char *path = scratch(f, "types.h5");
	hid_t file = file_create(path, false), type, inner;
	hsize_t dims[] = {2, 3};
	signed char no = 0, yes = 1;

	make_of_type(file, "i", H5Tcopy(H5T_STD_I32BE));
	make_of_type(file, "u", H5Tcopy(H5T_STD_U8LE));
	make_of_type(file, "f", H5Tcopy(H5T_IEEE_F64LE));
	type = H5Tcopy(H5T_IEEE_F32LE);
	H5Tset_fields(type, 15, 10, 5, 0, 10);
	H5Tset_size(type, 2);
	H5Tset_ebias(type, 15);
	inner = H5Tcreate(H5T_COMPOUND, 4);
	H5Tinsert(inner, "r", 0, type);
	H5Tinsert(inner, "i", 2, type);
	make_of_type(file, "half", type);
	make_of_type(file, "halves", inner);
	type = H5Tcopy(H5T_IEEE_F32LE);
	H5Tset_fields(type, 15, 7, 8, 0, 7);
	H5Tset_size(type, 2);
	make_of_type(file, "bf", type);
	type = H5Tenum_create(H5T_NATIVE_INT8);
	H5Tenum_insert(type, "FALSE", &no);
	H5Tenum_insert(type, "TRUE", &yes);
	make_of_type(file, "b", type);
	type = H5Tcopy(H5T_C_S1);
	H5Tset_size(type, 9);
	make_of_type(file, "s", type);
	make_of_type(file, "o", H5Tcreate(H5T_OPAQUE, 5));
	type = H5Tcreate(H5T_COMPOUND, 8);
	H5Tinsert(type, "r", 0, H5T_IEEE_F32LE);
	H5Tinsert(type, "i", 4, H5T_IEEE_F32LE);
	make_of_type(file, "c", H5Tcopy(type));
	inner = H5Tarray_create2(H5T_STD_I16LE, 2, dims);
	H5Tclose(type);
	type = H5Tcreate(H5T_COMPOUND, 32);
	H5Tinsert(type, "v", 12, inner);
	H5Tinsert(type, "it's", 0, H5T_IEEE_F64LE);
	make_of_type(file, "pad", type);
	make_of_type(file, "array", inner);
	make_of_type(file, "list", H5Tvlen_create(H5T_NATIVE_INT));
	type = H5Tcopy(H5T_C_S1);
	H5Tset_size(type, H5T_VARIABLE);
	make_of_type(file, "text", type);
	make_of_type(file, "ref", H5Tcopy(H5T_STD_REF_OBJ));
	H5Fclose(file);
	assert_type(f->ctx, path, "i", ">i4");
	assert_type(f->ctx, path, "u", "|u1");
	assert_type(f->ctx, path, "f", "<f8");
	assert_type(f->ctx, path, "half", "<f2");
	assert_type(f->ctx, path, "halves", "[('r', '<f2'), ('i', '<f2')]");
	assert_type(f->ctx, path, "bf", "bfloat16");
	assert_type(f->ctx, path, "b", "|b1");
	assert_type(f->ctx, path, "s", "|S9");
	assert_type(f->ctx, path, "o", "|V5");
	assert_type(f->ctx, path, "c", "<c8");
	assert_type(f->ctx, path, "array", "<i2");
	assert_type(f->ctx, path, "pad",
	            "[('it\\'s', '<f8'), ('', '|V4'), ('v', '<i2', (2, 3)), ('', '|V8')]");
	assert_refused(dataset_try(f->ctx, path, "list"), ENOTSUP, "variable length");
	assert_refused(dataset_try(f->ctx, path, "text"), ENOTSUP, "variable length");
	assert_refused(dataset_try(f->ctx, path, "ref"), ENOTSUP, "references");
}

static int found_name(void *user, const struct sluice_array_info *info)
{
	char *text = user;

	snprintf(text + strlen(text), 400 - strlen(text), "%s%s%s ", info->name,
	         info->is_group ? "/" : "", info->refused ? "!" : "");
	return 0;
}

static int found_stop(void *user, const struct sluice_array_info *info)
{
	(void)user, (void)info;
	return 7;
}

FIXTURE_TEST(names_lead_through_groups_and_links_and_are_listed)
{
	const char *path = scratch(f, "names.h5");
	hid_t file = file_create(path, false),
	      group = H5Gcreate2(file, "b", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
	char listed[400] = "";
	hsize_t shape = 3;
	hid_t space, list;

	make_of_type(group, "u", H5Tcopy(H5T_STD_I8LE));
	make_of_type(file, "a", H5Tcopy(H5T_STD_I8LE));
	make_of_type(file, "text", H5Tvlen_create(H5T_NATIVE_INT));
	H5Lcreate_soft("/b/u", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
	H5Lcreate_soft("/nowhere", file, "dead", H5P_DEFAULT, H5P_DEFAULT);
	H5Lcreate_external("other.h5", "/u", file, "away", H5P_DEFAULT, H5P_DEFAULT);
	H5Gclose(group);
	space = H5Screate_simple(1, &shape, NULL);
	list = H5Pcreate(H5P_DATASET_CREATE);
	H5Pset_virtual(list, space, "../other.h5", "/u", space);
	H5Dclose(H5Dcreate2(file, "virtual", H5T_STD_I8LE, space, H5P_DEFAULT, list, H5P_DEFAULT));
	H5Pclose(list);
	H5Sclose(space);
	H5Fclose(file);
	assert_refused(dataset_try(f->ctx, path, "virtual"), ENOTSUP, "virtual");
	assert_type(f->ctx, path, "/b/u", "|i1");
	assert_type(f->ctx, path, "soft", "|i1");
	assert_refused(dataset_try(f->ctx, path, "/b"), EISDIR, "group");
	assert_refused(dataset_try(f->ctx, path, "/"), EISDIR, "group");
	assert_refused(dataset_try(f->ctx, path, "/b/v"), ENOENT, "/b/v");
	assert_refused(dataset_try(f->ctx, path, "/c/v"), ENOENT, "/c/v");
	assert_refused(dataset_try(f->ctx, path, "dead"), ENOENT, "dead");
	assert_refused(dataset_try(f->ctx, path, "away"), ENOENT, "away");
	assert_ok(sluice_array_list(path, "/", found_name, listed));
	assert_string_equal(listed, "// /a /b/ /b/u /text! /virtual! ");
	listed[0] = '\0';
	assert_ok(sluice_array_list(path, "b/", found_name, listed));
	assert_string_equal(listed, "/b/ /b/u ");
	assert_int_equal(sluice_array_list(path, "/", found_stop, NULL), 7);
	assert_refused(sluice_array_list(path, "/none", found_name, listed), ENOENT, "/none");
	assert_refused(sluice_array_list(scratch(f, "none.h5"), "/", found_name, listed), ENOENT,
	               "none.h5");
}

FIXTURE_TEST(a_name_is_split_at_its_last_mark_unless_a_file_has_it)
{
	char name[400];

	assert_int_equal(sluice_array_split("run.h5#/fields/u"), 6);
	assert_int_equal(sluice_array_split("a#/b.h5#/u"), 7);
	assert_int_equal(sluice_array_split("file:///tmp/run.h5#/u"), 18);
	assert_int_equal(sluice_array_split("s3://bucket/run?a#1#/b#/u"), 22);
	assert_int_equal(sluice_array_split("https://host/run.h5?sig=a%2F#/u"), 28);
	assert_int_equal(sluice_array_split("store://blob#/u"), 0);
	assert_int_equal(sluice_array_split("run.h5"), 0);
	assert_int_equal(sluice_array_split("#/u"), 0);
	assert_int_equal(sluice_array_split(NULL), 0);
	snprintf(name, sizeof(name), "%s#", scratch(f, "x"));
	assert_int_equal(mkdir(name, 0700), 0);
	strcat(name, "/u");
	assert_int_equal(sluice_array_split(name), strlen(name) - 3);
	file_make(name, 10, 1);
	assert_int_equal(sluice_array_split(name), 0);
	unlink(name);
	name[strlen(name) - 2] = '\0';
	rmdir(name);
}

/* ----------------------------------------------------------------------------------- refusals */

FIXTURE_TEST(what_cannot_be_opened_or_read_is_refused_with_a_sentence)
{
	const char *path = scratch(f, "r.h5"), *other = scratch(f, "plain");
	uint64_t start[] = {0, 0, 0}, count[] = {1, 1, 1};
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	struct sluice_array_info info = {sizeof(info)};
	struct rng r = rng_new(4205);
	struct dataset d = {.name = "u", .rank = 2, .shape = {5, 6}};
	hid_t file = file_create(path, false);
	sluice_file *opened, *plain;
	char to[400];
	sluice_op *op;

	d.type = H5Tcopy(H5T_NATIVE_INT);
	d.list = H5Pcreate(H5P_DATASET_CREATE);
	dataset_fill(&d, &r);
	dataset_write(&d, file);
	H5Fclose(file);
	file_make(other, 1000, 1);
	assert_refused(dataset_try(f->ctx, other, "/u"), EBADMSG, "plain");
	assert_refused(dataset_try(f->ctx, scratch(f, "none"), "/u"), ENOENT, "none");
	o.dataset = "/u";
	o.flags = SLUICE_OPEN_READ | SLUICE_OPEN_WRITE;
	assert_refused(sluice_open(f->ctx, path, &o, &opened), EINVAL, "only read");
	opened = dataset_open(f->ctx, path, "u");
	assert_refused(box_submit(opened, 3, start, count, to, 4, &op), EINVAL, "2 dimensions");
	start[1] = 6;
	assert_refused(box_submit(opened, 2, start, count, to, 4, &op), EINVAL, "dimension 1");
	start[1] = 1, count[1] = UINT64_MAX;
	assert_refused(box_submit(opened, 2, start, count, to, 4, &op), EINVAL, "dimension 1");
	count[1] = 3;
	assert_refused(box_submit(opened, 2, start, count, to, 4, &op), EINVAL, "12 bytes");
	assert_refused(box_submit(opened, 2, NULL, count, to, 4, &op), EINVAL, "start");
	assert_refused(sluice_write(opened, to, 4, 0, &op), EBADF, "writing");
	assert_refused(sluice_array_stat(opened, &(struct sluice_array_info){0}), EINVAL, "size");
	plain = open_read(f->ctx, path);
	assert_refused(box_submit(plain, 2, start, count, to, 12, &op), EINVAL, "no dataset");
	assert_refused(sluice_array_stat(plain, &info), EINVAL, "no dataset");
	assert_refused(sluice_array_refresh(plain), EINVAL, "no dataset");
	assert_ok(sluice_close(plain));
	assert_ok(sluice_close(opened));
	/* The version of the superblock. */
	file_write(path, "\x09", 1, 8);
	assert_refused(dataset_try(f->ctx, path, "u"), ENOTSUP, "newer HDF5");
	dataset_clear(&d);
}

FIXTURE_TEST(a_compact_dataset_has_all_its_bytes)
{
	enum { BYTES = 64 };
	const char *path = scratch(f, "compact.h5");
	hid_t file = file_create(path, false);
	struct dataset d = {.name = "u", .rank = 1, .shape = {BYTES}};
	struct rng r = rng_new(4207);
	unsigned char head[] = {3, 0, BYTES, 0}, *bytes, *found;
	size_t n = 0;
	FILE *out;

	d.type = H5Tcopy(H5T_NATIVE_UINT8);
	d.list = H5Pcreate(H5P_DATASET_CREATE);
	H5Pset_layout(d.list, H5D_COMPACT);
	dataset_fill(&d, &r);
	dataset_write(&d, file);
	H5Fclose(file);
	assert_int_equal(dataset_try(f->ctx, path, "u"), 0);
	n = file_length(path);
	bytes = malloc(n);
	out = fopen(path, "r+");
	assert_int_equal(fread(bytes, 1, n, out), n);
	found = memmem(bytes, n, d.model, BYTES);
	/* The message of the layout: its version, that it is compact, and the number of its bytes. */
	assert_true(found && !memcmp(found - sizeof(head), head, sizeof(head)));
	found[-2] = BYTES / 2;
	rewind(out);
	assert_int_equal(fwrite(bytes, 1, n, out), n);
	fclose(out);
	/* HDF5 1.14 says so itself. */
	assert_refused(dataset_try(f->ctx, path, "u"), EBADMSG, "compact");
	free(bytes);
	dataset_clear(&d);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	H5dont_atexit();
	return RUN_FILES("arrays_test", "arrays_filters");
}
