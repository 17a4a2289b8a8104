/* SPDX-License-Identifier: Apache-2.0 */
#include "arrays/dataset.h"

#include "core/core.h"

void dataset_fill(struct dataset *d, struct rng *r)
{
	d->element = H5Tget_size(d->type);
	d->bytes = d->element;
	for (unsigned i = 0; i < d->rank; i++)
		d->bytes *= d->shape[i];
	d->model = malloc(d->bytes + 1);
	for (size_t i = 0; i < d->bytes; i++)
		d->model[i] = (unsigned char)(i / 7 + (rng_below(r, 9) ? 0 : rng_next(r)));
}

void dataset_write(const struct dataset *d, hid_t file)
{
	hid_t space =
		d->rank ? H5Screate_simple((int)d->rank, d->shape, d->most) : H5Screate(H5S_SCALAR);
	hid_t set = H5Dcreate2(file, d->name, d->type, space, H5P_DEFAULT, d->list, H5P_DEFAULT);

	assert_true(set >= 0);
	assert_true(H5Dwrite(set, d->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, d->model) >= 0);
	H5Dclose(set);
	H5Sclose(space);
}

void dataset_clear(struct dataset *d)
{
	H5Tclose(d->type);
	H5Pclose(d->list);
	free(d->model);
}

struct dataset dataset_make(hid_t file, unsigned rank, const hsize_t *shape, const hsize_t *chunk,
                            const hsize_t *most, unsigned level, uint64_t seed)
{
	struct dataset d = {.name = "u", .rank = rank, .most = most};
	struct rng r = rng_new(seed);

	memcpy(d.shape, shape, rank * sizeof(*shape));
	d.type = H5Tcopy(H5T_NATIVE_INT);
	d.list = H5Pcreate(H5P_DATASET_CREATE);
	if (chunk)
		H5Pset_chunk(d.list, (int)rank, chunk);
	if (level)
		H5Pset_deflate(d.list, level);
	dataset_fill(&d, &r);
	dataset_write(&d, file);
	d.most = NULL;
	return d;
}

hid_t file_create(const char *path, bool latest)
{
	hid_t access = H5Pcreate(H5P_FILE_ACCESS), file;

	if (latest)
		H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
	file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
	H5Pclose(access);
	assert_true(file >= 0);
	return file;
}

sluice_file *dataset_open(sluice_context *ctx, const char *path, const char *name)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	o.dataset = name;
	o.backend = row->config.backend;
	assert_ok(sluice_open(ctx, path, &o, &file));
	return file;
}

int dataset_try(sluice_context *ctx, const char *path, const char *name)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;
	int rc;

	o.dataset = name;
	rc = sluice_open(ctx, path, &o, &file);
	if (!rc)
		sluice_close(file);
	return rc;
}

int box_submit(sluice_file *file, unsigned rank, const uint64_t *start, const uint64_t *count,
               void *to, size_t n, sluice_op **out)
{
	struct sluice_extent extent = {to, n, 0};
	struct sluice_request r = SLUICE_REQUEST_INIT;

	r.kind = SLUICE_READ;
	r.extents = &extent;
	r.count = 1;
	r.box_start = start;
	r.box_count = count;
	r.rank = rank;
	return sluice_submit(file, &r, out);
}

void dataset_check_box(const struct dataset *d, sluice_file *file, struct rng *r)
{
	uint64_t start[RANK_MOST], count[RANK_MOST], index[RANK_MOST] = {0};
	size_t n = d->element, at = 0;
	struct buffer b;
	sluice_op *op;

	for (unsigned i = 0; i < d->rank; i++) {
		start[i] = rng_below(r, d->shape[i] + 1);
		count[i] = rng_below(r, d->shape[i] - start[i] + 1);
		/* Now and then all, or a single one. */
		if (!rng_below(r, 4))
			start[i] = 0, count[i] = d->shape[i];
		else if (!rng_below(r, 4) && start[i] < d->shape[i])
			count[i] = 1;
		n *= count[i];
	}
	b = buffer_new(n, rng_below(r, 9));
	assert_ok(box_submit(file, d->rank, start, count, b.data, n, &op));
	assert_moves(op, n);
	while (at < n) {
		size_t from = 0;

		for (unsigned i = 0; i < d->rank; i++)
			from = from * d->shape[i] + start[i] + index[i];
		if (memcmp(b.data + at, d->model + from * d->element, d->element))
			fail_msg("'%s': the element of the box at byte %zu is wrong", d->name, at);
		at += d->element;
		for (unsigned i = d->rank; i-- && ++index[i] == count[i];)
			index[i] = 0;
	}
	buffer_free(&b);
}

void dataset_check_bytes(const struct dataset *d, sluice_file *file, struct rng *r)
{
	enum { MOST = 5 };
	size_t count = 1 + rng_below(r, MOST), sum = 0;
	struct sluice_extent extents[MOST];
	struct buffer all, parts[MOST];
	sluice_op *op;

	for (size_t i = 0; i < count; i++) {
		uint64_t offset = rng_below(r, d->bytes + 1);
		size_t n = rng_below(r, d->bytes - offset + 1);

		if (rng_below(r, 2))
			n = SL_MIN(n, 100);
		parts[i] = buffer_new(n, rng_below(r, 9));
		extents[i] = (struct sluice_extent){parts[i].data, n, offset};
		sum += n;
	}
	assert_ok(submit_read(file, extents, count, &op));
	assert_moves(op, sum);
	for (size_t i = 0; i < count; i++) {
		assert_bytes(parts[i].data, d->model + extents[i].offset, extents[i].length);
		buffer_free(&parts[i]);
	}
	all = buffer_new(d->bytes, 0);
	assert_read(file, all.data, d->bytes, 0);
	assert_bytes(all.data, d->model, d->bytes);
	/* Behind the end there is nothing. */
	assert_int_equal(read_now(file, all.data, 1, d->bytes), 0);
	buffer_free(&all);
}
