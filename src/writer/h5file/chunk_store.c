/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks: storing them and scalars, and decoding them, as the last chunk of a continued dataset.
 * Threads: the file thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "h5file/h5file_internal.h"

/* -------------------------------------------------------------------------------------- chunks */

/* what: for the sentence, which names that frame. */
static int dataset_set_extent(struct sl_h5_dataset *dataset, uint64_t frames, const char *what,
                              uint64_t frame)
{
	dataset->extent[0] = frames;
	if (H5Dset_extent(dataset->id, dataset->extent) < 0)
		return sl_h5_fail(dataset->file, -EIO, "'%s' cannot %s frame %llu", dataset->name,
		                  what, (unsigned long long)frame);
	return 0;
}

static int dataset_grow(struct sl_h5_dataset *dataset, uint64_t frames)
{
	if (dataset->counted || dataset->extent[0] >= frames)
		return 0;
	return dataset_set_extent(dataset, frames, "grow to", frames - 1);
}

/* Returns the record of a chunk that is stored partly, or NULL if a chunk has a single frame. */
static struct sl_h5_partial_chunk *partial_of(struct sl_h5_dataset *dataset, uint64_t frame,
                                              const uint64_t *offset)
{
	size_t number = 0, bytes = dataset->partial_count * sizeof(*dataset->partial);

	if (!dataset->partial)
		return NULL;
	if (dataset->begun != frame) {
		memcpy(dataset->partial + dataset->partial_count, dataset->partial, bytes);
		memset(dataset->partial, 0, bytes);
	}
	dataset->begun = frame;
	for (unsigned i = 0; i + 1 < dataset->rank; i++) {
		uint64_t across =
			(dataset->extent[i + 1] + dataset->chunk[i] - 1) / dataset->chunk[i];

		number = number * across + offset[i] / dataset->chunk[i];
	}
	return &dataset->partial[number];
}

static int h5_write_chunk(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                          uint32_t mask, struct sl_vfd_chunk *chunk)
{
	struct sl_h5_partial_chunk *partial = partial_of(dataset, frame, offset);
	struct sl_h5_file *file = dataset->file;
	hsize_t at[SL_H5_RANK] = {frame};
	int err = dataset_grow(dataset, frame + 1);
	bool astray, done;

	/* HDF5 leaves a chunk of the same size in its place, which the last flush refers to. */
	if (!err && partial && partial->bytes == chunk->in.n && mask != dataset->mask) {
		struct sl_vfd_chunk byte = {.in = {.bytes = chunk->in.bytes, .n = 1}};

		err = h5_write_chunk(dataset, frame, offset, mask, &byte);
	}
	if (err)
		return err;
	for (unsigned i = 1; i < dataset->rank; i++)
		at[i] = offset[i - 1];
	if (partial && partial->bytes != chunk->in.n) {
		chunk->in.old_start = partial->start;
		chunk->in.old_bytes = partial->bytes;
		/* Earlier frames do not lie in the new place. */
		chunk->in.from = 0;
	}
	file->vfd.chunk = chunk;
	/* The driver tells of an error that HDF5 has kept to itself. */
	done = H5Dwrite_chunk(dataset->id, H5P_DEFAULT, mask, at, chunk->in.n, chunk->in.bytes) >=
	       0;
	file->vfd.chunk = NULL;
	astray = (chunk->in.old_bytes && !chunk->out.old_freed) ||
	         (chunk->in.granted && chunk->in.granted != chunk->out.start);
	if (!done || astray || sl_h5_settle(file))
		return sl_h5_fail(file, -EIO, "frame %llu of '%s' cannot be stored",
		                  (unsigned long long)frame, dataset->name);
	if (partial)
		*partial = (struct sl_h5_partial_chunk){chunk->out.start, chunk->in.n};
	return 0;
}

static int chunk_store(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                       uint32_t mask, struct sl_vfd_chunk *chunk, bool waits)
{
	int err = sl_h5_error(dataset->file);

	if (err)
		return err;
	err = waits ? sl_h5_room(dataset->file, chunk->in.granted ? 0 : chunk->in.n)
	            : sl_ordered_vfd_room(&dataset->file->vfd, chunk->in.n);
	if (err)
		return sl_fail(err, "'%s': no room for frame %llu of '%s': %s",
		               dataset->file->own.path, (unsigned long long)frame, dataset->name,
		               sl_error_text(err));
	sl_hdf5_enter();
	err = h5_write_chunk(dataset, frame, offset, mask, chunk);
	sl_hdf5_leave();
	return err;
}

int sl_h5_chunk_store(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                      uint32_t mask, const void *bytes, size_t n)
{
	struct sl_vfd_chunk chunk = {.in = {.bytes = bytes, .n = n}};

	return chunk_store(dataset, frame, offset, mask, &chunk, true);
}

int sl_h5_chunk_store_last(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                           const void *bytes, size_t n, bool there)
{
	struct sl_vfd_chunk chunk = {.in = {.bytes = bytes, .n = n, .last = true}};
	int err = chunk_store(dataset, frame, offset, 0, &chunk, !there);

	return there && sl_is_full(err) ? 0 : err;
}

bool sl_h5_chunk_is_raw(const struct sl_h5_dataset *dataset, uint64_t frame)
{
	return dataset->partial && dataset->begun == frame &&
	       dataset->partial[0].bytes == dataset->partial_bytes;
}

int sl_h5_chunk_store_frames(struct sl_h5_dataset *dataset, uint64_t frame, uint64_t from,
                             uint64_t to, const uint64_t *offset, const void *bytes, size_t n)
{
	size_t row = n / dataset->gather;
	struct sl_vfd_chunk chunk = {.in = {bytes, n, .from = from * row, .to = to * row}};

	return chunk_store(dataset, frame, offset, dataset->mask, &chunk, true);
}

int sl_h5_chunk_enter(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                      uint32_t mask, uint64_t start, size_t n)
{
	/* HDF5 hands the bytes to the driver, which does not look at them. */
	struct sl_vfd_chunk chunk = {.in = {.bytes = dataset, .n = n, .granted = start}};

	return chunk_store(dataset, frame, offset, mask, &chunk, true);
}

int sl_h5_partial_chunks_init(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout)
{
	uint64_t whole = dataset->frames % layout->gather;
	hsize_t at[SL_H5_RANK] = {0}, base = dataset->file->base;
	int err = 0;

	dataset->gather = layout->gather;
	dataset->begun = dataset->frames - whole;
	dataset->partial_count = 1;
	dataset->partial_bytes = layout->gather * layout->element;
	for (unsigned i = 0; i < layout->rank; i++) {
		dataset->chunk[i] = layout->chunk[i];
		dataset->partial_count *=
			(layout->shape[i] + layout->chunk[i] - 1) / layout->chunk[i];
		dataset->partial_bytes *= layout->chunk[i];
	}
	dataset->partial = calloc(dataset->partial_count, 2 * sizeof(*dataset->partial));
	if (!dataset->partial)
		return sl_fail(-ENOMEM, "no memory");
	at[0] = dataset->begun;
	for (size_t number = 0; !err && whole && number < dataset->partial_count; number++) {
		struct sl_h5_partial_chunk *partial = &dataset->partial[number];
		unsigned mask = 0;
		haddr_t start;
		hsize_t size = 0;

		if (H5Dget_chunk_info_by_coord(dataset->id, at, &mask, &start, &size) < 0)
			err = sl_hdf5_fail(-EIO, "the last chunk of '%s' is not found",
			                   dataset->name);
		/* Whether this offset includes the user block differs between versions of HDF5.
		 * A chunk of the full size would be overwritten in place. */
		else if (base || (size == dataset->partial_bytes && mask != dataset->mask))
			err = sl_fail(-ENOTSUP, "the last chunk of '%s' cannot be continued: %s",
			              dataset->name,
			              base ? "the file has a user's block"
			                   : "it has the size of one without filters");
		else if (size)
			*partial = (struct sl_h5_partial_chunk){start, size};
		for (unsigned i = layout->rank; i--;) {
			at[i + 1] += layout->chunk[i];
			if (at[i + 1] < layout->shape[i])
				break;
			at[i + 1] = 0;
		}
	}
	return err;
}

/* Fills memory as HDF5 reads a chunk that was never written. */
static void chunk_fill(hid_t dataset, char *out, size_t n)
{
	hid_t list = H5Dget_create_plist(dataset), type = H5Dget_type(dataset);
	size_t element = H5Tget_size(type);

	memset(out, 0, element);
	H5Pget_fill_value(list, type, out);
	for (size_t i = element; i + element <= n; i += element)
		memcpy(out + i, out, element);
	H5Tclose(type);
	H5Pclose(list);
}

void sl_h5_fill(const struct sl_h5_dataset *dataset, void *out, size_t n)
{
	sl_hdf5_enter();
	chunk_fill(dataset->id, out, n);
	sl_hdf5_leave();
}

/* Undoes the filters by our own codecs: HDF5 may lack zstd and lz4. */
static int chunk_decode(const struct sl_h5_dataset *dataset, uint64_t frame, uint32_t mask,
                        const void *packed, size_t length, void *out, size_t n)
{
	hid_t list = H5Dget_create_plist(dataset->id);
	struct sl_filters filters = {.bytes = n};
	struct sl_unfilter *unfilter = NULL;
	int err = sl_h5_filters_get(list, &filters);

	H5Pclose(list);
	if (!err)
		err = sl_unfilter_new(&filters, &unfilter);
	if (!err)
		err = sl_unfilter_run(unfilter, mask, packed, length, out);
	sl_unfilter_free(unfilter);
	if (!err)
		return 0;
	return sl_fail(err, "the chunk at %llu of '%s' cannot be decoded: %s",
	               (unsigned long long)frame, dataset->name, sluice_last_message());
}

int sl_h5_chunk_read(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                     void *out, size_t n)
{
	struct sl_h5_partial_chunk *partial = partial_of(dataset, frame, offset);
	int err = sl_h5_error(dataset->file);
	hsize_t at[SL_H5_RANK] = {frame};
	void *packed;
	uint32_t mask = 0;

	if (err)
		return err;
	for (unsigned i = 1; i < dataset->rank; i++)
		at[i] = offset[i - 1];
	packed = malloc(partial->bytes + 1);
	sl_hdf5_enter();
	if (!packed)
		err = sl_fail(-ENOMEM, "no memory");
	else if (!partial->bytes)
		chunk_fill(dataset->id, out, n);
	else if (sl_hdf5_noted(H5Dread_chunk(dataset->id, H5P_DEFAULT, at, &mask, packed)) < 0)
		err = sl_hdf5_fail(-EIO, "the chunk at %llu of '%s' cannot be read",
		                   (unsigned long long)at[0], dataset->name);
	else
		err = chunk_decode(dataset, at[0], mask, packed, partial->bytes, out, n);
	sl_hdf5_leave();
	free(packed);
	return err;
}

int sl_h5_dataset_offset(struct sl_h5_dataset *dataset, uint64_t *offset, int *fd)
{
	int err = sl_h5_error(dataset->file);

	if (err)
		return err;
	if (!dataset->contiguous)
		return sl_fail(-EINVAL, "'%s' does not lie in one piece", dataset->name);
	*offset = dataset->start;
	*fd = dataset->file->own.fd;
	return 0;
}

/* -------------------------------------------------------------------------------------- frames */

int sl_h5_frames_stored(struct sl_h5_dataset *dataset, uint64_t frame, uint64_t count,
                        const double *scalars, double max_error)
{
	int err = sl_h5_error(dataset->file);

	if (err)
		return err;
	/* Contiguous frames have their space, scalars do not. */
	err = dataset->counted && dataset->scalar_count ? sl_h5_room(dataset->file, 0) : 0;
	if (err)
		return sl_fail(err, "'%s': no room for the scalars of '%s': %s",
		               dataset->file->own.path, dataset->name, sl_error_text(err));
	sl_hdf5_enter();
	/* Not before: HDF5 would overwrite a chunk in place behind a smaller extent. */
	err = dataset_grow(dataset, frame + count);
	for (uint64_t i = 0; !err && i < count && dataset->scalar_count; i++)
		err = sl_h5_scalars_add(dataset, scalars + i * dataset->scalar_count);
	sl_hdf5_leave();
	if (err)
		return err;
	dataset->frames = frame + count;
	dataset->max_error = SL_MAX(dataset->max_error, max_error);
	return 0;
}

/* --------------------------------------------------------------------------------------- flush */

/* Attributes of a fixed size are written in their place in the header of the dataset. */
static int flush_attributes(struct sl_h5_dataset *dataset)
{
	bool bad = false;

	if (dataset->frames_attribute >= 0 && dataset->frames_written != dataset->frames)
		bad |= H5Awrite(dataset->frames_attribute, H5T_NATIVE_UINT64, &dataset->frames) < 0;
	if (dataset->error_attribute >= 0 && dataset->error_written != dataset->max_error)
		bad |= H5Awrite(dataset->error_attribute, H5T_NATIVE_DOUBLE, &dataset->max_error) <
		       0;
	if (bad)
		return sl_h5_fail(dataset->file, -EIO, "the attributes of '%s' cannot be written",
		                  dataset->name);
	dataset->frames_written = dataset->frames;
	dataset->error_written = dataset->max_error;
	return 0;
}

/* Fills the unseen rest of a chunk without filters, n bytes long: frames may have been there. An
 * element begins at `from`. Not by H5Dset_extent(), which wants the codec, and writes under HDF5's
 * lock. */
static int chunk_clear(struct sl_h5_file *file, hid_t dataset, uint64_t start, uint64_t from,
                       uint64_t n)
{
	hid_t type = H5Dget_type(dataset);
	size_t element = H5Tget_size(type), skip;
	ssize_t done = 1;
	char fill[4096];
	int err;

	H5Tclose(type);
	chunk_fill(dataset, fill, sizeof(fill));
	sl_hdf5_pause();
	for (; from < n && done > 0; from += done > 0 ? done : 0) {
		skip = from % element;
		done = pwrite(file->own.fd, fill + skip,
		              SL_MIN(n - from, sizeof(fill) / element * element - skip),
		              (off_t)(start + from));
	}
	err = done > 0 ? 0 : done ? -errno : -EIO;
	sl_hdf5_resume();
	/* On a full disk it has no space, and so nothing was there. */
	return !err || (sl_is_full(err) && err != -EFBIG)
	               ? 0
	               : sl_h5_fail(file, err, "the end of a chunk cannot be written");
}

static int scalar_clear(struct sl_h5_file *file, const struct sl_h5_scalar *scalar)
{
	hsize_t chunk = 1, at, size = 0, bytes = sizeof(double);
	hid_t list = H5Dget_create_plist(scalar->id);
	unsigned mask;
	haddr_t start;

	H5Pget_chunk(list, 1, &chunk);
	H5Pclose(list);
	at = scalar->extent / chunk * chunk;
	/* For the base, see sl_h5_partial_chunks_init(). */
	if (at == scalar->extent || file->base ||
	    H5Dget_chunk_info_by_coord(scalar->id, &at, &mask, &start, &size) < 0 || !size)
		return 0;
	return chunk_clear(file, scalar->id, start, (scalar->extent - at) * bytes, size);
}

/* At the end: partly stored frames are not seen, and a longer extent would show nothing. HDF5 takes
 * chunks out of the index. At the end nothing uses the freed space. */
static int chunk_trim(struct sl_h5_dataset *dataset)
{
	uint64_t last = dataset->partial ? dataset->frames - dataset->begun : 0;
	uint64_t n = last < dataset->gather ? dataset->partial_bytes : 0;
	int err = 0;

	if (!dataset->counted && dataset->extent[0] > dataset->frames)
		err = dataset_set_extent(dataset, dataset->frames, "be cut behind",
		                         dataset->frames);
	for (size_t i = 0; !err && i < dataset->scalar_count; i++)
		err = scalar_clear(dataset->file, &dataset->scalars[i]);
	for (size_t i = 0; !err && last && i < dataset->partial_count; i++)
		if (dataset->partial[i].bytes == n)
			err = chunk_clear(dataset->file, dataset->id, dataset->partial[i].start,
			                  n / dataset->gather * last, n);
	return err;
}

int sl_h5_dataset_flush(struct sl_h5_dataset *dataset)
{
	int err = dataset->scalar_count ? sl_h5_scalars_flush(dataset) : 0;

	return err ? err : flush_attributes(dataset);
}

int sl_h5_datasets_flush(struct sl_h5_file *file, bool last)
{
	int err = sl_h5_error(file);

	if (err)
		return err;
	sl_hdf5_enter();
	sl_list_each_of (dataset, &file->datasets, struct sl_h5_dataset, link) {
		if (!err)
			err = sl_h5_dataset_flush(dataset);
		if (!err && !file->own.named)
			err = sl_h5_scales_refer(file, dataset);
		if (!err && last)
			err = chunk_trim(dataset);
	}
	if (!err)
		err = sl_h5_flush(file);
	sl_hdf5_leave();
	return err;
}

int sl_h5_file_flush(struct sl_h5_file *file)
{
	return sl_h5_datasets_flush(file, false);
}

/* Moves a chunk forward, if it has all filters. Returns 1 if it was moved. */
static int chunk_pack(struct sl_h5_dataset *dataset, const struct sl_h5_partial_chunk *partial,
                      const uint64_t *offset)
{
	hsize_t at[SL_H5_RANK] = {dataset->begun};
	size_t n = partial->bytes;
	uint32_t mask = 0;
	void *bytes;
	bool good;
	int err = 0;

	if (!n || n == dataset->partial_bytes ||
	    !sl_ordered_vfd_fits(&dataset->file->vfd, n, partial->start))
		return 0;
	for (unsigned i = 1; i < dataset->rank; i++)
		at[i] = offset[i - 1];
	bytes = malloc(n);
	sl_hdf5_enter();
	good = bytes && H5Dread_chunk(dataset->id, H5P_DEFAULT, at, &mask, bytes) >= 0 && !mask;
	sl_hdf5_leave();
	if (good)
		err = sl_h5_chunk_store_last(dataset, dataset->begun, offset, bytes, n, true);
	free(bytes);
	return err ? err : good;
}

/* Moves the chunks of the last bundles to the space of their rows, which the file no longer refers
 * to: the driver cuts off what is behind them. The rows of a full bundle were before it, and those
 * of the next in their space. Returns 1 if some were moved. */
static int dataset_pack(struct sl_h5_dataset *dataset)
{
	size_t count = dataset->file->base ? 0 : dataset->partial_count;
	uint64_t offset[SL_H5_RANK] = {0};
	int done = 0, moved = 0;

	for (size_t i = 0; done >= 0 && i < 2 * count; i++) {
		if (i == count) {
			memcpy(dataset->partial, dataset->partial + count,
			       count * sizeof(*dataset->partial));
			dataset->begun -= dataset->gather;
		}
		done = chunk_pack(dataset, &dataset->partial[i % count], offset);
		moved |= done;
		for (unsigned k = dataset->rank - 1; k--; offset[k] = 0) {
			offset[k] += dataset->chunk[k];
			if (offset[k] < dataset->extent[k + 1])
				break;
		}
	}
	return done < 0 ? done : moved;
}

int sl_h5_file_pack(struct sl_h5_file *file)
{
	int moved = 0;

	sl_list_each_of (dataset, &file->datasets, struct sl_h5_dataset, link) {
		int done = moved < 0 ? 0 : dataset_pack(dataset);

		moved = done ? done : moved;
	}
	return moved > 0 ? sl_h5_file_flush(file) : moved;
}
