/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays
 *
 * Opens a dataset as a file: the backend of local files opens the HDF5 file, HDF5 describes the
 * dataset and finds its chunks, and tiles.c moves the bytes.
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

static struct sl_array *array_of(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct sl_array, base);
}

/* ---------------------------------------------------------------------------------------- look */

/* Whether a dataset can be the same at another time: but for its length nothing is another. */
static bool array_is_same(const struct sl_h5_array *a, const struct sl_h5_array *b)
{
	bool same = a->rank == b->rank && a->depth == b->depth && a->element == b->element &&
	            a->layout == b->layout && !strcmp(a->type, b->type) &&
	            a->filters.count == b->filters.count && !a->fill == !b->fill &&
	            (!a->fill || !memcmp(a->fill, b->fill, a->element));

	for (unsigned i = 0; same && i < a->rank; i++)
		same = a->chunk[i] == b->chunk[i] && (!i || a->shape[i] == b->shape[i]);
	for (unsigned i = 0; same && i < a->filters.count; i++)
		same = a->filters.filter[i].number == b->filters.filter[i].number &&
		       !memcmp(a->filters.filter[i].values, b->filters.filter[i].values,
		               sizeof(a->filters.filter[i].values));
	return same;
}

/* Opens the dataset in one state of the file. With a sentence. */
static int array_look(struct sl_array *array, const char *dataset, struct sl_h5_reader **reader,
                      struct sl_h5_array *found, struct sl_h5_state *state)
{
	int64_t deadline = sl_now() + SL_ARRAY_PATIENCE_NS;

	for (;;) {
		int rc = sl_h5_state_take(array->fd, deadline, state), holds;

		if (rc)
			return sl_fail(rc, "cannot look at '%s': %s", array->path,
			               rc == -EAGAIN ? "a flush of its writer does not end"
			                             : sl_error_text(rc));
		rc = sl_h5_reader_open(array->fd, array->path, dataset, reader, found);
		holds = sl_h5_state_holds(array->fd, state);
		/* A file that another program writes is as it was found. */
		if (holds == 1 || (holds < 0 && rc))
			return rc;
		if (!rc) {
			sl_h5_reader_close(*reader);
			sl_h5_array_clear(found);
			*reader = NULL;
		}
		if (holds < 0 || sl_now() > deadline)
			return sl_fail(holds < 0 ? holds : -EAGAIN,
			               "'%s' changes while it is opened", array->path);
	}
}

/* Opens the dataset again, as it is now. */
static int array_look_again_locked(struct sl_array *array, uint64_t *length)
	SL_REQUIRES(&array->h5.mutex)
{
	struct sl_h5_reader *reader = NULL;
	struct sl_h5_state state;
	struct sl_h5_array found;
	int rc = array_look(array, array->h5.of.name, &reader, &found, &state);

	if (rc)
		return rc;
	if (!array_is_same(&array->h5.of, &found) ||
	    (found.rank && found.shape[0] < atomic_load(&array->length))) {
		sl_h5_reader_close(reader);
		sl_h5_array_clear(&found);
		return sl_fail(-ESTALE, "'%s#%s' is shorter than it was, or another dataset",
		               array->path, array->h5.of.name);
	}
	sl_h5_reader_close(array->h5.reader);
	array->h5.reader = reader;
	array->h5.state = state;
	array->h5.of.address = found.address;
	*length = found.rank ? found.shape[0] : 0;
	sl_h5_array_clear(&found);
	sl_tiles_forget(array);
	return 0;
}

/* Where bytes lie that are not in chunks. */
static void array_place(const struct sl_array *array, struct sl_tile *tile)
{
	uint64_t offset = sl_walk_offset(array, tile->first);
	const struct sl_h5_array *of = &array->h5.of;

	tile->place.address = offset + (of->layout == SL_H5_CONTIGUOUS ? of->address : 0);
	tile->place.length = SL_MIN(array->tile_bytes, atomic_load(&array->bytes) - offset);
	if (of->layout == SL_H5_CONTIGUOUS && of->address == UINT64_MAX)
		tile->place.length = 0;
}

static int array_find_locked(struct sl_array *array, struct sl_tile **tiles, size_t count)
	SL_REQUIRES(&array->h5.mutex)
{
	struct sl_h5_place *places;
	int rc;

	if (array->h5.of.layout != SL_H5_CHUNKED) {
		for (size_t i = 0; i < count; i++)
			array_place(array, tiles[i]);
		return 0;
	}
	places = calloc(count, sizeof(*places));
	if (!places)
		return sl_fail(-ENOMEM, "no memory");
	for (size_t i = 0; i < count; i++)
		places[i].at = tiles[i]->first;
	rc = sl_h5_reader_find(array->h5.reader, count, places);
	for (size_t i = 0; !rc && i < count; i++)
		tiles[i]->place = places[i];
	free(places);
	return rc;
}

int sl_array_find(struct sl_array *array, struct sl_tile **tiles, size_t count)
{
	int64_t deadline = sl_now() + SL_ARRAY_PATIENCE_NS;
	uint64_t length;
	int rc, holds;

	sl_mutex_lock(&array->h5.mutex);
	/* Ended by a look in one state of the file, or at the deadline. */
	for (;;) {
		rc = array_find_locked(array, tiles, count);
		holds = sl_h5_state_holds(array->fd, &array->h5.state);
		if (holds)
			break;
		rc = sl_now() < deadline
		             ? array_look_again_locked(array, &length)
		             : sl_fail(-EAGAIN, "'%s' changes all the time", array->path);
		if (rc)
			break;
	}
	if (holds < 0)
		rc = sl_fail(holds, "'%s' has changed since it was opened: %s", array->path,
		             sl_error_text(holds));
	for (size_t i = 0; !rc && i < count; i++) {
		tiles[i]->state = array->h5.state;
		tiles[i]->generation = sl_tiles_generation(array);
	}
	sl_mutex_unlock(&array->h5.mutex);
	return rc;
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
	sl_h5_array_clear(&array->h5.of);
	sl_mutex_destroy(&array->h5.mutex);
	if (array->inner)
		array->inner->ops->close(array->inner);
	if (array->fd >= 0)
		close(array->fd);
	free(array->path);
	free(array);
}

/* Chooses tiles: the chunks, or as many rows as are side by side, and not too long. */
static void array_choose_tiles(struct sl_array *array)
{
	const struct sl_h5_array *of = &array->h5.of;
	uint64_t bytes = of->element;

	array->dimensions = of->rank + 1;
	array->tile[of->rank] = of->element;
	array->plain = of->layout != SL_H5_CHUNKED || !of->filters.count;
	for (unsigned i = of->rank; i--;) {
		array->tile[i] = of->layout == SL_H5_CHUNKED ? of->chunk[i]
		                 : of->layout == SL_H5_COMPACT
		                         ? of->shape[i]
		                         : SL_MIN(of->shape[i], SL_MAX(ROWS_BYTES / bytes, 1));
		/* Of rows that are not whole there is one. */
		if (of->layout != SL_H5_CHUNKED && array->tile[i] < of->shape[i])
			bytes = SL_MAX(bytes * array->tile[i], ROWS_BYTES + 1);
		else
			bytes *= array->tile[i];
		array->tile[i] = SL_MAX(array->tile[i], 1);
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
	bool one;

	if (!fstat(array->fd, &status))
		ours = sl_format("inode %" PRIu64 ":%" PRIu64, (uint64_t)status.st_dev,
		                 (uint64_t)status.st_ino);
	one = identity && ours && !strcmp(identity, ours);
	free(identity);
	free(ours);
	return one;
}

static int array_open_file(struct sl_array *array, const struct sl_uri *uri,
                           const struct sluice_open_options *options)
{
	struct sluice_open_options plain = *options;
	struct stat status;
	int rc;

	plain.dataset = NULL;
	rc = sl_local_ops.open(array->core, uri, &plain, &array->inner);
	if (rc)
		return rc;
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

/* No other thread knows the array yet. */
static int array_open(struct sl_core *core, const struct sl_uri *uri,
                      const struct sluice_open_options *options,
                      struct sl_backend **out) SL_UNCHECKED
{
	struct sl_array *array = calloc(1, sizeof(*array));
	int rc;

	if (!array)
		return sl_fail(-ENOMEM, "no memory");
	array->base.ops = &sl_array_ops;
	array->core = core;
	array->fd = -1;
	sl_mutex_init(&array->h5.mutex);
	array->path = strdup(uri->path);
	rc = array->path ? array_open_file(array, uri, options) : sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = array_look(array, options->dataset, &array->h5.reader, &array->h5.of,
		                &array->h5.state);
	if (!rc) {
		array_choose_tiles(array);
		sl_tiles_init(array);
	}
	if (!rc && array->h5.of.layout == SL_H5_EXTERNAL)
		rc = array_open_segments(array);
	if (rc) {
		array_close(&array->base);
		return rc;
	}
	array->pool = array->inner_limits.size_waits || array->h5.of.layout == SL_H5_EXTERNAL
	                      ? core->waiting
	                      : core->pool;
	*out = &array->base;
	return 0;
}

static void array_limits(struct sl_backend *backend, struct sl_limits *out)
{
	struct sl_array *array = array_of(backend);

	out->piece_bytes = array->core->settings.piece_bytes;
	out->depth = array->core->settings.operation_depth;
	out->piece_size = sizeof(struct sl_job);
	out->uncut = true;
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

static int array_commit(struct sl_backend *backend)
{
	(void)backend;
	return 0;
}

const struct sl_backend_ops sl_array_ops = {
	.open = array_open,
	.limits = array_limits,
	.identity = array_identity,
	.size = array_size,
	.box_bytes = array_box_bytes,
	.stat = array_file_stat,
	.submit = sl_array_submit,
	.cancel = sl_array_cancel,
	.commit = array_commit,
	.close = array_close,
};

/* -------------------------------------------------------------------------------- public calls */

/* Returns the array of a file, or NULL with a sentence. */
static struct sl_array *array_of_file(sluice_file *file, int *rc)
{
	struct sl_backend *backend = file ? sl_file_backend(file) : NULL;

	*rc = file ? sl_context_check(sl_file_context(file)) : sl_fail(-EINVAL, "file is NULL");
	if (!*rc && backend->ops != &sl_array_ops)
		*rc = sl_fail(-EINVAL, "'%s' is no dataset", sl_file_name(file));
	return *rc ? NULL : array_of(backend);
}

static void array_describe_to(const struct sl_h5_array *of, struct sluice_array_info *out)
{
	out->name = of->name;
	out->rank = of->rank;
	memcpy(out->shape, of->shape, sizeof(out->shape));
	memcpy(out->chunk, of->chunk, sizeof(out->chunk));
	out->element = of->element;
	out->bytes = of->bytes;
	out->type = of->type;
	out->filters = of->filter_names ? of->filter_names : "";
}

int sluice_array_stat(sluice_file *file, struct sluice_array_info *out)
{
	struct sluice_array_info info = {0};
	int rc;
	struct sl_array *array = array_of_file(file, &rc);

	if (rc)
		return rc;
	if (!out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_array_stat: out->size is not set");
	array_describe_to(&array->h5.of, &info);
	if (info.rank)
		info.shape[0] = atomic_load(&array->length);
	info.bytes = atomic_load(&array->bytes);
	sl_struct_give(out, &info, sizeof(info));
	return 0;
}

int sluice_array_refresh(sluice_file *file)
{
	uint64_t length = 0, bytes;
	int rc;
	struct sl_array *array = array_of_file(file, &rc);

	if (rc)
		return rc;
	sl_mutex_lock(&array->h5.mutex);
	rc = array_look_again_locked(array, &length);
	if (!rc && array->h5.of.rank) {
		bytes = array->h5.of.element;
		for (unsigned i = 0; i < array->h5.of.rank; i++)
			if (__builtin_mul_overflow(bytes, i ? array->h5.of.shape[i] : length,
			                           &bytes))
				rc = sl_fail(-EBADMSG, "'%s' has more bytes than a file can have",
				             array->path);
	}
	if (!rc && array->h5.of.rank) {
		atomic_store(&array->bytes, bytes);
		atomic_store(&array->length, length);
	}
	sl_mutex_unlock(&array->h5.mutex);
	return rc;
}

struct listing {
	sluice_array_found found;
	void *user;
};

static int array_listed(void *user, const char *name, const struct sl_h5_array *array,
                        const char *refused)
{
	const struct listing *listing = user;
	struct sluice_array_info info = {.size = sizeof(info)};

	if (array)
		array_describe_to(array, &info);
	info.name = name;
	info.is_group = !array;
	info.refused = refused;
	return listing->found(listing->user, &info);
}

int sluice_array_list(const char *file, const char *path, sluice_array_found found, void *user)
{
	struct listing listing = {found, user};
	char *below;
	int rc, fd;

	if (!file || !path || !found)
		return sl_fail(-EINVAL, "sluice_array_list: an argument is NULL");
	below = sl_format("%s%s", *path == '/' ? "" : "/", path);
	if (!below)
		return sl_fail(-ENOMEM, "no memory");
	for (size_t n = strlen(below); n > 1 && below[n - 1] == '/'; n--)
		below[n - 1] = '\0';
	fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	rc = fd < 0 ? sl_fail(-errno, "cannot open '%s': %s", file, sl_error_text(-errno))
	            : sl_h5_list(fd, file, below, array_listed, &listing);
	if (fd >= 0)
		close(fd);
	free(below);
	return rc;
}

size_t sluice_array_split(const char *name)
{
	const char *found = NULL;
	struct stat status;
	struct sl_uri uri;
	bool whole = true;

	for (const char *at = name; at && (at = strstr(at, "#/")); at++)
		found = at;
	if (!found || found == name)
		return 0;
	if (!sl_uri_parse(name, &uri)) {
		whole = strcmp(uri.scheme, "file") || !stat(uri.path, &status);
		sl_uri_clear(&uri);
	}
	return whole ? 0 : (size_t)(found - name);
}
