/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays
 *
 * Opens a dataset as a file: the backend of the URI's scheme opens the HDF5 file, HDF5 describes
 * the dataset and finds its chunks, and tiles.c moves the bytes.
 *
 * Threads: any; opening, looking chunks up and refreshing may wait for storage.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrays/arrays_internal.h"
#include "io/io.h"
#include "local/local.h"

/* Bytes side by side that are a tile where there are no chunks. */
#define ROWS_BYTES ((uint64_t)1 << 20)
/* Pieces of an operation in flight, each an extent: tiles have another bound. */
#define DEPTH 16

static struct sl_array *array_of(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct sl_array, base);
}

/* ---------------------------------------------------------------------------------------- open */

static void array_close(struct sl_backend *backend) SL_UNCHECKED
{
	struct sl_array *array = array_of(backend);

	if (array->dimensions)
		sl_tiles_free(array);
	sl_h5_reader_close(array->h5.reader);
	for (size_t i = 0; array->segments && i < array->h5.of.segment_count; i++)
		if (array->segments[i] >= 0)
			close(array->segments[i]);
	free(array->segments);
	for (size_t i = array->sources ? array->h5.of.part_count : 0; i--;)
		if (array->sources[i] && sl_virtual_first(array, i))
			array_close(&array->sources[i]->base);
	free(array->sources);
	sl_h5_array_clear(&array->h5.of);
	sl_mutex_destroy(&array->h5.mutex);
	sl_h5_blocks_free(array->blocks);
	if (array->inner)
		array->inner->ops->close(array->inner);
	if (array->fd >= 0)
		close(array->fd);
	free(array->path);
	free(array);
}

/* Returns the length of a virtual dataset's tile in a dimension: the sources', if all parts begin
 * with a tile there. */
static uint64_t virtual_tile(const struct sl_array *array, unsigned i)
{
	const struct sl_h5_array *of = &array->h5.of;
	uint64_t tile = 0;

	for (size_t k = 0; k < of->part_count; k++) {
		const struct sl_h5_part *part = &of->parts[k];
		uint64_t its = array->sources[k] ? 1 : tile, from = part->start[i];

		for (unsigned d = 0; array->sources[k] && d < part->rank; d++)
			if (part->dimension[d] == i) {
				its = array->sources[k]->tile[d];
				from = part->from[d];
			}
		if (its && ((tile && its != tile) || part->start[i] % its != from % its))
			return i ? SL_MAX(of->shape[i], 1) : 1;
		tile = its;
	}
	return SL_MAX(tile, 1);
}

/* Chooses tiles: the chunks, or as many rows as are side by side, and not too long. */
static void array_choose_tiles(struct sl_array *array)
{
	const struct sl_h5_array *of = &array->h5.of;
	uint64_t bytes = of->element;

	array->dimensions = of->rank + 1;
	array->tile[of->rank] = of->element;
	array->plain = of->layout != SL_H5_CHUNKED || !of->filters.count;
	array->in_line =
		of->layout == SL_H5_CONTIGUOUS && of->address != UINT64_MAX && !array->blocks;
	for (unsigned i = of->rank; i--;) {
		uint64_t rows = SL_MAX(of->shape[i], 1);

		array->tile[i] = of->layout == SL_H5_CHUNKED   ? of->chunk[i]
		                 : of->layout == SL_H5_VIRTUAL ? virtual_tile(array, i)
		                 : of->layout == SL_H5_COMPACT
		                         ? rows
		                         : SL_MIN(rows, SL_MAX(ROWS_BYTES / bytes, 1));
		/* Above rows that are not whole a tile has length 1. */
		if (of->layout != SL_H5_CHUNKED && array->tile[i] < rows)
			bytes = SL_MAX(bytes * array->tile[i], ROWS_BYTES + 1);
		else
			bytes *= array->tile[i];
	}
	array->tile_bytes = of->element;
	for (unsigned i = 0; i < of->rank; i++)
		array->tile_bytes *= array->tile[i];
	atomic_init(&array->length, of->rank ? of->shape[0] : 1);
	atomic_init(&array->bytes, of->bytes);
}

/* Opens the files of an external dataset, beside the HDF5 file as HDF5 has it: relative names are
 * below HDF5_EXTFILE_PREFIX, or below the folder of the program. */
static int array_open_segments(struct sl_array *array)
{
	const struct sl_h5_array *of = &array->h5.of;
	const char *prefix = getenv("HDF5_EXTFILE_PREFIX"), *slash = strrchr(array->path, '/');
	char *folder = strndup(array->path, slash ? (size_t)(slash - array->path) : 0);
	char *base = prefix && !strncmp(prefix, "${ORIGIN}", 9)
	                     ? sl_format("%s%s", slash ? folder : ".", prefix + 9)
	                     : strdup(prefix ? prefix : ".");
	int rc = 0;

	array->segments = calloc(SL_MAX(of->segment_count, 1), sizeof(*array->segments));
	for (size_t i = 0; array->segments && i < of->segment_count; i++)
		array->segments[i] = -1;
	if (!array->segments || !base || !folder)
		rc = sl_fail(-ENOMEM, "no memory");
	for (size_t i = 0; !rc && i < of->segment_count; i++) {
		const char *name = of->segments[i].file;
		char *path = *name == '/' ? strdup(name) : sl_format("%s/%s", base, name);

		array->segments[i] =
			path ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;
		if (array->segments[i] < 0)
			rc = sl_fail(path ? -errno : -ENOMEM, "'%s#%s' has bytes in '%s': %s",
			             array->path, of->name, path ? path : name,
			             sl_error_text(path ? -errno : -ENOMEM));
		free(path);
	}
	free(folder);
	free(base);
	return rc;
}

/* Returns whether both ways of opening it have come to the same file. */
static bool array_is_one_file(struct sl_array *array)
{
	char *identity = array->inner->ops->identity(array->inner), *ours = NULL;
	struct stat status;

	if (!fstat(array->fd, &status))
		ours = sl_format("inode %" PRIu64 ":%" PRIu64, (uint64_t)status.st_dev,
		                 (uint64_t)status.st_ino);
	bool one = identity && ours && !strcmp(identity, ours);
	free(identity);
	free(ours);
	return one;
}

static int array_open_file(struct sl_array *array, const struct sl_uri *uri,
                           const struct sluice_open_options *options)
{
	struct sluice_open_options plain = *options;
	struct stat status;

	plain.dataset = NULL;
	int rc = sl_local_ops.open(array->core, uri, &plain, &array->inner);
	if (rc)
		return rc;
	array->path = strdup(uri->path);
	if (!array->path)
		return sl_fail(-ENOMEM, "no memory");
	array->inner->ops->limits(array->inner, &array->inner_limits);
	array->fd = open(array->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (array->fd < 0 || fstat(array->fd, &status))
		return sl_fail(-errno, "cannot open '%s': %s", array->path, sl_error_text(-errno));
	if (!S_ISREG(status.st_mode))
		return sl_fail(-ENOTSUP, "'%s' is no regular file", array->path);
	return array_is_one_file(array)
	               ? 0
	               : sl_fail(-ESTALE, "'%s' was replaced while it was opened", array->path);
}

/* Returns the backend for a remote file with datasets, and its options. */
static const struct sl_backend_ops *array_inner_ops(const struct sl_uri *uri,
                                                    const struct sluice_open_options *options,
                                                    struct sluice_open_options *plain)
{
	const struct sl_scheme *scheme = sl_schemes;

	while (strcmp(scheme->scheme, uri->scheme))
		scheme++;
	*plain = *options;
	plain->dataset = NULL;
	plain->first_bytes = SL_MAX(plain->first_bytes, SL_H5_BLOCKS_FIRST);
	return scheme->ops;
}

static int array_open_remote(struct sl_array *array, const struct sl_uri *uri,
                             const struct sluice_open_options *options)
{
	struct sluice_open_options plain;
	const struct sl_backend_ops *ops = array_inner_ops(uri, options, &plain);
	int rc = 0;

	if (!array->inner)
		rc = ops->open(array->core, uri, &plain, &array->inner);
	if (!rc)
		rc = sl_h5_blocks_new(array->inner, uri->path, &array->blocks);
	if (rc)
		return rc;
	rc = sl_context_get_pool(sl_context_of(array->core), true, &array->looks);
	if (rc)
		return rc;
	array->inner_limits = array->blocks->limits;
	array->path = strdup(array->blocks->name);
	return array->path ? 0 : sl_fail(-ENOMEM, "no memory");
}

static int array_open_part(struct sl_core *core, const struct sl_uri *uri,
                           const struct sluice_open_options *options, const struct sl_array *whole,
                           struct sl_opening *opening, struct sl_array **out);

/* Opens the source of a part in a folder. Returns 0, also if it is missing, or -errno with a
 * sentence. */
static int source_open_in(struct sl_array *array, const struct sluice_open_options *options,
                          const char *folder, size_t folder_bytes, size_t i)
{
	const struct sl_h5_part *part = &array->h5.of.parts[i];
	struct sl_uri uri = {.scheme = "file"};
	struct sluice_open_options its = *options;
	char sentence[512];
	int rc;

	its.dataset = part->dataset;
	uri.path = strcmp(part->file, ".")
	                   ? sl_format("%.*s%s", (int)folder_bytes, folder, part->file)
	                   : strdup(array->path);
	rc = uri.path ? array_open_part(array->core, &uri, &its, array, NULL, &array->sources[i])
	              : sl_fail(-ENOMEM, "no memory");
	free(uri.path);
	if (!rc || rc == -ENOENT)
		return 0;
	snprintf(sentence, sizeof(sentence), "%s", sluice_last_message());
	return sl_fail(rc, "'%s#%s' has a part in another file: %s", array->path, array->h5.of.name,
	               sentence);
}

/* Returns 0, or -ENOTSUP with a sentence: the array is no source for that virtual dataset, or has
 * not that part of it. part: NULL: any. */
static int source_check(const struct sl_array *array, const struct sl_array *whole,
                        struct sl_h5_part *part)
{
	const struct sl_h5_array *of = &array->h5.of, *its = &whole->h5.of;
	bool same =
		of->layout != SL_H5_VIRTUAL && of->element == its->element &&
		!strcmp(of->type, its->type) &&
		(!part || !part->whole || sl_h5_part_match(part, its->rank, of->rank, of->shape)) &&
		(!part || of->rank == part->rank);

	for (unsigned i = 0; part && same && i < of->rank; i++) {
		unsigned dimension = part->dimension[i];
		uint64_t count = dimension == SL_H5_DIMENSIONS ? 1 : part->count[dimension];

		same = (!i && count == UINT64_MAX) ||
		       (part->from[i] <= of->shape[i] && count <= of->shape[i] - part->from[i]);
	}
	return same ? 0
	            : sl_fail(-ENOTSUP,
	                      "'%s#%s' is virtual, or its elements have another type, or a part "
	                      "of '%s' does not lie in its shape",
	                      array->path, of->name, its->name);
}

/* Opens the sources of a virtual dataset, in the folder of the file or, as HDF5 does, in the folder
 * behind links. Returns 0, or -errno with a sentence. */
static int array_open_sources(struct sl_array *array, const struct sluice_open_options *options)
{
	struct sl_h5_array *of = &array->h5.of;
	char *real = realpath(array->path, NULL);
	const char *paths[] = {array->path, real};
	int rc = 0;

	array->sources = calloc(SL_MAX(of->part_count, 1), sizeof(*array->sources));
	if (!array->sources)
		rc = sl_fail(-ENOMEM, "no memory");
	for (size_t i = 0; !rc && i < of->part_count; i++) {
		struct sl_h5_part *part = &of->parts[i];

		for (size_t k = 0; !array->sources[i] && k < i; k++)
			if (!strcmp(part->file, of->parts[k].file) &&
			    !strcmp(part->dataset, of->parts[k].dataset))
				array->sources[i] = array->sources[k];
		for (size_t k = 0; !rc && !array->sources[i] && k < 2 && paths[k]; k++) {
			const char *slash = strrchr(paths[k], '/');

			rc = source_open_in(array, options, paths[k],
			                    slash ? (size_t)(slash + 1 - paths[k]) : 0, i);
		}
		if (!rc && array->sources[i])
			rc = source_check(array->sources[i], array, part);
	}
	free(real);
	of->shape[0] = rc ? 0 : sl_virtual_length(array, of);
	return rc ? rc : sl_array_measure(array, of->shape[0], &of->bytes);
}

/* whole: NULL, or the virtual dataset above this source. opening: NULL, or has opened the file. No
 * other thread knows the array. */
static int array_open_part(struct sl_core *core, const struct sl_uri *uri,
                           const struct sluice_open_options *options, const struct sl_array *whole,
                           struct sl_opening *opening, struct sl_array **out) SL_UNCHECKED
{
	struct sl_array *array = calloc(1, sizeof(*array));

	if (!array)
		return sl_fail(-ENOMEM, "no memory");
	if (opening) {
		array->inner = opening->backend;
		opening->backend = NULL;
	}
	array->base.ops = &sl_array_ops;
	array->core = core;
	array->step.run = sl_array_step;
	array->fd = -1;
	array->looks = core->waiting;
	sl_mutex_init(&array->h5.mutex);
	int rc = strcmp(uri->scheme, "file") ? array_open_remote(array, uri, options)
	                                     : array_open_file(array, uri, options);
	if (!rc && opening)
		array->blocks->too = &opening->cancelled;
	if (!rc)
		rc = sl_array_look(array, options->dataset, &array->h5.reader, &array->h5.of,
		                   &array->h5.state);
	if (array->blocks)
		array->blocks->too = NULL;
	if (!rc && whole)
		rc = source_check(array, whole, NULL);
	if (!rc && array->h5.of.layout == SL_H5_VIRTUAL)
		rc = array->blocks ? sl_fail(-ENOTSUP,
		                             "'%s#%s' is virtual, with parts in '%s', which is not "
		                             "looked for beside a remote file",
		                             array->path, array->h5.of.name,
		                             array->h5.of.part_count ? array->h5.of.parts[0].file
		                                                     : "no file")
		                   : array_open_sources(array, options);
	if (!rc) {
		array_choose_tiles(array);
		sl_tiles_init(array, whole ? whole->h5.of.part_count : 1);
	}
	if (!rc && array->h5.of.layout == SL_H5_EXTERNAL)
		rc = array->blocks ? sl_fail(-ENOTSUP,
		                             "'%s#%s' has its bytes in '%s', which is not looked "
		                             "for beside a remote file",
		                             array->path, array->h5.of.name,
		                             array->h5.of.segments[0].file)
		                   : array_open_segments(array);
	if (rc) {
		array_close(&array->base);
		return rc;
	}
	array->pool = array->inner_limits.size_waits || array->h5.of.layout == SL_H5_EXTERNAL
	                      ? core->waiting
	                      : core->pool;
	*out = array;
	return 0;
}

static int array_open_in(struct sl_core *core, const struct sl_uri *uri,
                         const struct sluice_open_options *options, struct sl_opening *opening,
                         struct sl_backend **out)
{
	struct sl_array *array;
	int rc = array_open_part(core, uri, options, NULL, opening, &array);

	if (!rc)
		*out = &array->base;
	return rc;
}

static int array_open(struct sl_core *core, const struct sl_uri *uri,
                      const struct sluice_open_options *options, struct sl_backend **out)
{
	return array_open_in(core, uri, options, NULL, out);
}

/* Begins to open the file of a dataset; open_in() goes on. */
static int array_open_start(struct sl_core *core, const struct sl_uri *uri,
                            const struct sluice_open_options *options, struct sl_opening *opening)
{
	struct sluice_open_options plain;

	opening->ops = array_inner_ops(uri, options, &plain);
	return opening->ops->open_start ? opening->ops->open_start(core, uri, &plain, opening)
	                                : -EAGAIN;
}

static void array_limits(struct sl_backend *backend, struct sl_limits *out)
{
	struct sl_array *array = array_of(backend);

	*out = array->inner_limits;
	out->piece_size = sizeof(struct sl_job);
	out->uncut = !array->in_line;
	out->depth = SL_MAX(out->depth, DEPTH);
	out->size_waits = false;
	out->tile = array->in_line ? NULL : array->tile;
	if (!array->in_line || array->h5.of.address % SL_MAX(out->alignment, 1))
		out->alignment = 0;
}

static char *array_identity(struct sl_backend *backend)
{
	struct sl_array *array = array_of(backend);
	char *file = array->inner->ops->identity(array->inner);
	char *out = file ? sl_format("dataset %s%s", file, array->h5.of.name) : NULL;

	free(file);
	return out;
}

static int64_t array_size(struct sl_backend *backend)
{
	return (int64_t)atomic_load(&array_of(backend)->bytes);
}

static uint64_t array_file_state(struct sl_backend *backend)
{
	return sl_array_changes(array_of(backend));
}

static int array_file_stat(struct sl_backend *backend, struct sluice_file_info *out)
{
	struct sl_array *array = array_of(backend);
	int rc = array->inner->ops->stat(array->inner, out);

	out->length = atomic_load(&array->bytes);
	out->direct_offset = out->direct_memory = 0;
	return rc;
}

static int64_t array_box_bytes(struct sl_backend *backend, const struct sl_box *box)
{
	const struct sl_array *array = array_of(backend);
	const struct sl_h5_array *of = &array->h5.of;
	uint64_t bytes = of->element;

	if (box->rank != of->rank)
		return sl_fail(-EINVAL, "'%s#%s' has %u dimensions, and the box %u", array->path,
		               of->name, of->rank, box->rank);
	for (unsigned i = 0; i < of->rank; i++) {
		uint64_t length = i ? of->shape[i] : atomic_load(&array->length);

		if (box->start[i] > length || box->count[i] > length - box->start[i])
			return sl_fail(-EINVAL,
			               "'%s#%s' has %" PRIu64 " elements in dimension %u, and the "
			               "box %" PRIu64 " from %" PRIu64 " on",
			               array->path, of->name, length, i, box->count[i],
			               box->start[i]);
		/* No box is longer than the dataset, but where that has no elements. */
		if (__builtin_mul_overflow(bytes, box->count[i], &bytes) || bytes > INT64_MAX)
			bytes = INT64_MAX;
	}
	return (int64_t)bytes;
}

static bool array_box_of(struct sl_backend *backend, uint64_t offset, uint64_t length,
                         struct sl_box *out)
{
	const struct sl_array *array = array_of(backend);
	const struct sl_h5_array *of = &array->h5.of;
	uint64_t row = of->element, bytes = atomic_load(&array->bytes);

	for (unsigned i = 1; i < of->rank; i++)
		row *= of->shape[i];
	if (!of->rank || !row || offset % row || length % row || length > bytes ||
	    offset > bytes - length)
		return false;
	out->rank = of->rank;
	memcpy(out->count, of->shape, of->rank * sizeof(out->count[0]));
	out->start[0] = offset / row;
	out->count[0] = length / row;
	return true;
}

static int array_commit(struct sl_backend *backend)
{
	(void)backend;
	return 0;
}

const struct sl_backend_ops sl_array_ops = {
	.open = array_open,
	.open_start = array_open_start,
	.open_in = array_open_in,
	.limits = array_limits,
	.identity = array_identity,
	.size = array_size,
	.file_state = array_file_state,
	.box_bytes = array_box_bytes,
	.box_of = array_box_of,
	.stat = array_file_stat,
	.submit = sl_array_submit,
	.cancel = sl_array_cancel,
	.commit = array_commit,
	.close = array_close,
};
