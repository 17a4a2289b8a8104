/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datasets that are read: HDF5 opens and describes a dataset and finds its chunks; the bytes are
 * read by others, without its lock.
 *
 * Threads: any; a reader is used by one thread at a time.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "h5file/h5file_internal.h"

#define COMPACT_MOST ((uint64_t)64 << 10) /* a message of a header is shorter */
/* A call of HDF5 that reads at so many places of a remote file does so for ever. */
#define MISSES_MOST 512

struct sl_h5_reader {
	struct sl_read_vfd vfd;
	const char *name; /* for sentences: that of the file and the dataset */
	uint64_t length;  /* of the file */
	hid_t file, dataset;
	unsigned rank;
	/* Where chunks at the edge have no filters: their shape and that of the dataset. */
	bool edges_plain;
	hsize_t shape[H5S_MAX_RANK], chunk[H5S_MAX_RANK];
};

void sl_h5_array_clear(struct sl_h5_array *array)
{
	for (size_t i = 0; i < array->segment_count; i++)
		free(array->segments[i].file);
	free(array->segments);
	for (size_t i = 0; i < array->part_count; i++) {
		free(array->parts[i].file);
		free(array->parts[i].dataset);
	}
	free(array->parts);
	free(array->name);
	free(array->type);
	free(array->filter_names);
	free(array->compact);
	free(array->fill);
	memset(array, 0, sizeof(*array));
}

/* ------------------------------------------------------------------------------------ describe */

/* A dataset that is being described. */
struct described {
	const char *name; /* for sentences */
	hid_t dataset, type, space, list;
	uint64_t length; /* of the file */
};

static int describe_fail(const struct described *x, int error)
{
	return sl_fail(error, "'%s' %s", x->name, sluice_last_message());
}

static int describe_shape(const struct described *x, struct sl_h5_array *out)
{
	hsize_t shape[H5S_MAX_RANK], dims[SL_H5_DIMENSIONS];
	int rank = H5Sget_simple_extent_dims(x->space, shape, NULL);
	int rc = sl_h5_type_describe(x->type, &out->type, &out->depth, dims);

	if (rc)
		return describe_fail(x, rc);
	if (rank < 0 || H5Sget_simple_extent_type(x->space) == H5S_NO_CLASS)
		return sl_hdf5_fail(-EBADMSG, "the shape of '%s' cannot be read", x->name);
	if (H5Sget_simple_extent_type(x->space) == H5S_NULL)
		return sl_fail(-ENOTSUP, "'%s' is empty: it has a type, and no elements", x->name);
	out->rank = (unsigned)rank + out->depth;
	if (out->rank > SL_H5_DIMENSIONS)
		return sl_fail(-ENOTSUP, "'%s' has %u dimensions, and at most %d can be read",
		               x->name, out->rank, SL_H5_DIMENSIONS);
	out->element = H5Tget_size(x->type);
	for (unsigned i = 0; i < out->rank; i++)
		out->shape[i] = i < (unsigned)rank ? shape[i] : dims[i - (unsigned)rank];
	for (unsigned i = 0; i < out->depth; i++)
		out->element /= SL_MAX(dims[i], 1);
	out->bytes = out->element;
	for (unsigned i = 0; i < out->rank; i++)
		if (__builtin_mul_overflow(out->bytes, out->shape[i], &out->bytes))
			out->bytes = UINT64_MAX;
	/* A product of 0 may come behind an overflow. */
	for (unsigned i = 0; i < out->rank; i++)
		if (!out->shape[i])
			out->bytes = 0;
	if (!out->element || out->bytes > INT64_MAX)
		return sl_fail(-EBADMSG,
		               "'%s' has more bytes than a file can have, or elements "
		               "without bytes",
		               x->name);
	return 0;
}

static int describe_filters(const struct described *x, struct sl_h5_array *out)
{
	struct sl_filters *filters = &out->filters;
	int rc = sl_h5_filters_get(x->list, filters);
	size_t length;
	FILE *names;

	if (rc)
		return describe_fail(x, rc);
	names = open_memstream(&out->filter_names, &length);
	for (unsigned i = 0; names && i < filters->count; i++)
		fprintf(names, "%s%s", i ? " " : "", sl_filter_name(&filters->filter[i]));
	if (!names || fclose(names))
		return sl_fail(-ENOMEM, "no memory");
	rc = sl_filters_check(filters);
	return rc ? describe_fail(x, rc) : 0;
}

static int describe_chunks(const struct described *x, struct sl_h5_array *out)
{
	unsigned rank = out->rank - out->depth;
	hsize_t chunk[H5S_MAX_RANK];
	uint64_t bytes = out->element;

	if (H5Pget_chunk(x->list, H5S_MAX_RANK, chunk) != (int)rank || !rank)
		return sl_hdf5_fail(-EBADMSG, "the chunks of '%s' cannot be read", x->name);
	for (unsigned i = 0; i < out->rank; i++) {
		out->chunk[i] = i < rank ? chunk[i] : out->shape[i];
		if (__builtin_mul_overflow(bytes, out->chunk[i], &bytes))
			bytes = UINT64_MAX;
	}
	if (!bytes || bytes > SL_CODEC_MOST)
		return sl_fail(-ENOTSUP,
		               "'%s' has chunks of %" PRIu64 " bytes, and of at most %zu "
		               "can be read",
		               x->name, bytes, SL_CODEC_MOST);
	out->filters.bytes = bytes;
	return 0;
}

static int describe_external(const struct described *x, struct sl_h5_array *out, unsigned count)
{
	out->layout = SL_H5_EXTERNAL;
	out->segments = calloc(count, sizeof(*out->segments));
	if (!out->segments)
		return sl_fail(-ENOMEM, "no memory");
	for (unsigned i = 0; i < count; i++) {
		struct sl_h5_segment *segment = &out->segments[i];
		char name[4096] = "";
		off_t offset = 0;
		hsize_t size = 0;

		if (H5Pget_external(x->list, i, sizeof(name) - 1, name, &offset, &size) < 0 ||
		    offset < 0)
			return sl_hdf5_fail(-EBADMSG, "the files of '%s' cannot be read", x->name);
		segment->file = strdup(name);
		if (!segment->file)
			return sl_fail(-ENOMEM, "no memory");
		out->segment_count++;
		segment->offset = (uint64_t)offset;
		segment->bytes = size == H5F_UNLIMITED ? INT64_MAX - segment->offset : size;
	}
	return 0;
}

static int describe_contiguous(const struct described *x, struct sl_h5_array *out)
{
	int count = H5Pget_external_count(x->list);
	H5D_space_status_t status;
	haddr_t start;

	if (count > 0)
		return describe_external(x, out, (unsigned)count);
	out->layout = SL_H5_CONTIGUOUS;
	start = H5Dget_offset(x->dataset);
	/* Of a file with a user block the offset of no space is no HADDR_UNDEF. */
	if (H5Dget_space_status(x->dataset, &status) < 0 ||
	    status == H5D_SPACE_STATUS_NOT_ALLOCATED)
		start = HADDR_UNDEF;
	out->address = start == HADDR_UNDEF ? UINT64_MAX : start;
	if (start != HADDR_UNDEF && (start > x->length || out->bytes > x->length - start))
		return sl_fail(-EBADMSG, "the bytes of '%s' lie behind the end of the file",
		               x->name);
	return 0;
}

static int describe_compact(const struct described *x, struct sl_h5_array *out)
{
	out->layout = SL_H5_COMPACT;
	if (out->bytes > COMPACT_MOST)
		return sl_fail(-EBADMSG, "'%s' has %" PRIu64 " bytes, more than a header holds",
		               x->name, out->bytes);
	/* HDF5 would copy what lies behind them. */
	if (H5Dget_storage_size(x->dataset) < out->bytes)
		return sl_fail(
			-EBADMSG,
			"'%s' is compact, with fewer bytes in its header than its shape says",
			x->name);
	out->compact = malloc(out->bytes + 1);
	if (!out->compact)
		return sl_fail(-ENOMEM, "no memory");
	if (out->bytes &&
	    H5Dread(x->dataset, x->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out->compact) < 0)
		return sl_hdf5_fail(-EBADMSG, "the bytes of '%s' cannot be read", x->name);
	return 0;
}

static int describe_layout(const struct described *x, struct sl_h5_array *out)
{
	int rc = 0;

	switch (H5Pget_layout(x->list)) {
	case H5D_CHUNKED:
		out->layout = SL_H5_CHUNKED;
		rc = describe_chunks(x, out);
		break;
	case H5D_CONTIGUOUS:
		return describe_contiguous(x, out);
	case H5D_COMPACT:
		return describe_compact(x, out);
	case H5D_VIRTUAL:
		return sl_h5_parts_get(x->list, x->space, x->name, out);
	default:
		return sl_hdf5_fail(-EBADMSG, "the layout of '%s' cannot be read", x->name);
	}
	return rc ? rc : describe_filters(x, out);
}

static int describe_fill(const struct described *x, struct sl_h5_array *out)
{
	H5D_fill_value_t defined;
	size_t size = H5Tget_size(x->type);

	if (H5Pfill_value_defined(x->list, &defined) < 0 || defined != H5D_FILL_VALUE_USER_DEFINED)
		return 0;
	if (size > SL_CODEC_MOST)
		return sl_fail(-ENOTSUP, "'%s' has elements of %zu bytes", x->name, size);
	out->fill = malloc(size);
	if (!out->fill)
		return sl_fail(-ENOMEM, "no memory");
	/* As it is stored: the type is that of the dataset. */
	return H5Pget_fill_value(x->list, x->type, out->fill) < 0
	               ? sl_hdf5_fail(-EBADMSG, "the fill value of '%s' cannot be read", x->name)
	               : 0;
}

/* Describes an open dataset. The caller clears *out also after an error. */
static int array_describe(hid_t dataset, const char *name, uint64_t length, struct sl_h5_array *out)
{
	struct described x = {name,
	                      dataset,
	                      H5Dget_type(dataset),
	                      H5Dget_space(dataset),
	                      H5Dget_create_plist(dataset),
	                      length};
	int rc = x.type < 0 || x.space < 0 || x.list < 0
	                 ? sl_hdf5_fail(-EBADMSG, "the header of '%s' cannot be read", name)
	                 : 0;

	out->address = UINT64_MAX;
	if (!rc)
		rc = describe_shape(&x, out);
	if (!rc)
		rc = describe_layout(&x, out);
	if (!rc)
		rc = describe_fill(&x, out);
	if (x.list >= 0)
		H5Pclose(x.list);
	if (x.space >= 0)
		H5Sclose(x.space);
	if (x.type >= 0)
		H5Tclose(x.type);
	return rc;
}

/* ---------------------------------------------------------------------------------------- open */

/* HDF5 has opened nothing. Newer versions have formats that this does not know. */
static int open_fail(const char *name)
{
	int rc = sl_hdf5_fail(-EBADMSG, "'%s' cannot be opened by HDF5 %d.%d.%d", name,
	                      H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);

	if (!strstr(sluice_last_message(), "version number"))
		return rc;
	return sl_fail(-ENOTSUP, "%s: a newer HDF5 has made it, or it is damaged",
	               sluice_last_message());
}

/* Fetches bytes that were missing in a call of HDF5 with the result *rc. Leaves its lock meanwhile.
 * Returns true if the call is to be made again. misses: counts such calls. */
static bool source_lacked(struct sl_read_vfd *vfd, const char *name, unsigned *misses, int *rc)
{
	if (!vfd->lacks)
		return false;
	vfd->lacks = false;
	H5Eclear2(H5E_DEFAULT);
	if (++*misses > MISSES_MOST) {
		*rc = sl_fail(-EBADMSG, "'%s': HDF5 reads here and there, and comes to no end",
		              name);
		return false;
	}
	sl_hdf5_leave();
	*rc = vfd->source->fetch(vfd->source);
	sl_hdf5_enter();
	return !*rc;
}

static int source_length(const struct sl_h5_bytes *source, const char *path, uint64_t *out)
{
	struct stat status;

	*out = source->length;
	if (source->fd < 0)
		return 0;
	if (fstat(source->fd, &status))
		return sl_fail(-errno, "cannot look at '%s': %s", path, sl_error_text(-errno));
	*out = (uint64_t)status.st_size;
	return 0;
}

/* Opens the file. In HDF5's lock. */
static int file_open_read(struct sl_read_vfd *vfd, const char *path, hid_t *out)
{
	hid_t access = H5Pcreate(H5P_FILE_ACCESS);
	int rc;

	rc = access < 0 ? -ENOMEM : sl_read_vfd_set(access, vfd);
	if (!rc) {
		*out = H5Fopen(path, H5F_ACC_RDONLY, access);
		if (*out < 0)
			rc = open_fail(path);
		else if (vfd->lacks) {
			H5Fclose(*out);
			*out = H5I_INVALID_HID;
			rc = -EAGAIN;
		}
	}
	if (access >= 0)
		H5Pclose(access);
	return rc;
}

/* Whether the path leads to an object: also each group on the way has to be there. */
static bool object_exists(hid_t file, const char *path)
{
	char *part = strdup(path);
	bool there = part;

	for (char *slash = part ? part + 1 : NULL; there && slash && *slash; slash++) {
		slash = strchrnul(slash, '/');
		if (!*slash)
			break;
		*slash = '\0';
		there = H5Lexists(file, part, H5P_DEFAULT) > 0;
		*slash = '/';
	}
	there = there && (!strcmp(path, "/") || H5Lexists(file, path, H5P_DEFAULT) > 0);
	free(part);
	return there && H5Oexists_by_name(file, path, H5P_DEFAULT) > 0;
}

static int dataset_open(struct sl_h5_reader *reader, const char *path, struct sl_h5_array *array)
{
	H5I_type_t kind;
	hid_t object;

	if (!object_exists(reader->file, array->name))
		return sl_hdf5_fail(-ENOENT, "'%s' has no '%s' that can be reached in it", path,
		                    array->name);
	object = H5Oopen(reader->file, array->name, H5P_DEFAULT);
	kind = object < 0 ? H5I_BADID : H5Iget_type(object);
	if (object >= 0)
		H5Oclose(object);
	if (object < 0)
		return open_fail(reader->name);
	if (kind == H5I_GROUP)
		return sl_fail(-EISDIR, "'%s' is a group", reader->name);
	if (kind != H5I_DATASET)
		return sl_fail(-ENOTSUP, "'%s' is no dataset", reader->name);
	reader->dataset = sl_h5_dataset_open(reader->file, array->name);
	return reader->dataset < 0 ? open_fail(reader->name) : 0;
}

/* Notes whether chunks at the edge are stored without filters. The dataset is described. */
static int reader_note_edges(struct sl_h5_reader *reader)
{
	hid_t list = H5Dget_create_plist(reader->dataset), space = H5Dget_space(reader->dataset);
	unsigned options = 0;
	int rc = 0;

	if (list < 0 || space < 0 || H5Pget_chunk_opts(list, &options) < 0 ||
	    H5Pget_chunk(list, H5S_MAX_RANK, reader->chunk) < 0 ||
	    H5Sget_simple_extent_dims(space, reader->shape, NULL) < 0)
		rc = sl_hdf5_fail(-EBADMSG, "the chunks of '%s' cannot be read", reader->name);
	reader->edges_plain = options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS;
	if (space >= 0)
		H5Sclose(space);
	if (list >= 0)
		H5Pclose(list);
	return rc;
}

static void reader_close_locked(struct sl_h5_reader *reader)
{
	if (reader->dataset >= 0)
		H5Dclose(reader->dataset);
	if (reader->file >= 0)
		H5Fclose(reader->file);
	reader->file = reader->dataset = H5I_INVALID_HID;
	H5Eclear2(H5E_DEFAULT);
}

/* Opens and describes the dataset with array->name. If that fails, or bytes are missing,
 * all is closed again: HDF5 keeps nothing of a call that failed half way. */
static int reader_try(struct sl_h5_reader *reader, const char *path, struct sl_h5_array *array)
{
	int rc = file_open_read(&reader->vfd, path, &reader->file);

	if (!rc)
		rc = dataset_open(reader, path, array);
	if (!rc)
		rc = array_describe(reader->dataset, reader->name, reader->length, array);
	reader->rank = array->rank - array->depth;
	if (!rc && array->layout == SL_H5_CHUNKED)
		rc = reader_note_edges(reader);
	if (rc || reader->vfd.lacks) {
		char *name = array->name;

		reader_close_locked(reader);
		array->name = NULL;
		sl_h5_array_clear(array);
		array->name = name;
	}
	return rc;
}

static void reader_free(struct sl_h5_reader *reader)
{
	free((char *)reader->name);
	free(reader);
}

int sl_h5_reader_open(struct sl_h5_bytes *source, const char *path, const char *dataset,
                      struct sl_h5_reader **out, struct sl_h5_array *array)
{
	struct sl_h5_reader *reader;
	int rc = sl_hdf5_start(true);
	unsigned misses = 0;
	uint64_t length;

	memset(array, 0, sizeof(*array));
	if (!rc)
		rc = source_length(source, path, &length);
	if (rc)
		return rc;
	reader = calloc(1, sizeof(*reader));
	array->name = sl_format("%s%s", *dataset == '/' ? "" : "/", dataset);
	if (reader && array->name)
		reader->name = sl_format("%s#%s", path, array->name);
	if (!reader || !reader->name) {
		sl_h5_array_clear(array);
		free(reader);
		return sl_fail(-ENOMEM, "no memory");
	}
	reader->file = reader->dataset = H5I_INVALID_HID;
	reader->vfd.source = source;
	reader->length = length;
	sl_hdf5_enter();
	do {
		rc = reader_try(reader, path, array);
	} while (source_lacked(&reader->vfd, reader->name, &misses, &rc));
	sl_hdf5_leave();
	source->rank = reader->rank;
	if (rc) {
		reader_free(reader);
		sl_h5_array_clear(array);
		return rc;
	}
	*out = reader;
	return 0;
}

void sl_h5_reader_close(struct sl_h5_reader *reader)
{
	if (!reader)
		return;
	sl_hdf5_enter();
	reader_close_locked(reader);
	sl_hdf5_leave();
	reader_free(reader);
}

/* ---------------------------------------------------------------------------------------- find */

static herr_t error_innermost(unsigned n, const H5E_error2_t *error, void *argument)
{
	if (n == 0)
		*(bool *)argument =
			error->maj_num == H5E_DATASET &&
			(error->min_num == H5E_CANTGET || error->min_num == H5E_CANTINIT);
	return 0;
}

/* HDF5 looks the chunk up, and the driver notes what it would read. */
static int chunk_find(struct sl_h5_reader *reader, struct sl_h5_place *place)
{
	hsize_t at[H5S_MAX_RANK];
	bool missing = false;
	char none[8];

	for (unsigned i = 0; i < reader->rank; i++)
		at[i] = place->at[i];
	place->address = place->length = 0;
	reader->vfd.length = 0;
	if (H5Dread_chunk(reader->dataset, H5P_DEFAULT, at, &place->mask, none) >= 0) {
		place->address = reader->vfd.address;
		place->length = reader->vfd.length;
		for (unsigned i = 0; reader->edges_plain && i < reader->rank; i++)
			if (at[i] + reader->chunk[i] > reader->shape[i])
				place->mask = UINT32_MAX;
		return 0;
	}
	/* Of a chunk that is not there the dataset says so; of a damaged index, its parts. */
	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, error_innermost, &missing);
	if (!missing)
		return sl_hdf5_fail(-EBADMSG,
		                    "the chunk at %" PRIu64 " of '%s' is not found in its index",
		                    place->at[0], reader->name);
	H5Eclear2(H5E_DEFAULT);
	return 0;
}

int sl_h5_reader_find(struct sl_h5_reader *reader, size_t count, struct sl_h5_place *places)
{
	unsigned misses;
	int rc = 0;

	sl_hdf5_enter();
	reader->vfd.notes = true;
	for (size_t i = 0; !rc && i < count; i++) {
		misses = 0;
		do {
			rc = chunk_find(reader, &places[i]);
		} while (source_lacked(&reader->vfd, reader->name, &misses, &rc));
	}
	reader->vfd.notes = false;
	sl_hdf5_leave();
	return rc;
}

/* ---------------------------------------------------------------------------------------- list */

struct listed {
	const char *below;
	uint64_t length; /* of the file */
	sl_h5_found *found;
	void *user;
	int result;
	struct sl_read_vfd vfd;
	/* Numbers of objects: told, and in the visit, which begins anew after missing bytes. */
	size_t told, seen;
	unsigned misses; /* since the last was told */
};

static herr_t object_listed(hid_t group, const char *name, const H5O_info_t *info, void *argument)
{
	struct listed *all = argument;
	const char *below = strcmp(all->below, "/") ? all->below : "";
	struct sl_h5_array array = {0};
	const char *refused = NULL;
	char *full;
	hid_t dataset;

	if (all->seen++ < all->told ||
	    (info->type != H5O_TYPE_DATASET && info->type != H5O_TYPE_GROUP))
		return 0;
	full = strcmp(name, ".") ? sl_format("%s/%s", below, name) : strdup(all->below);
	if (!full) {
		all->result = sl_fail(-ENOMEM, "no memory");
		return -1;
	}
	if (info->type == H5O_TYPE_GROUP) {
		all->result = all->found(all->user, full, NULL, NULL);
		all->told = all->seen;
		all->misses = 0;
		free(full);
		return all->result ? -1 : 0;
	}
	dataset = H5Dopen2(group, name, H5P_DEFAULT);
	if (dataset < 0 ? open_fail(full) : array_describe(dataset, full, all->length, &array))
		refused = sluice_last_message();
	if (!all->vfd.lacks)
		all->result = all->found(all->user, full, &array, refused);
	if (dataset >= 0)
		H5Dclose(dataset);
	sl_h5_array_clear(&array);
	free(full);
	H5Eclear2(H5E_DEFAULT);
	if (all->vfd.lacks)
		return -1;
	all->told = all->seen;
	all->misses = 0;
	return all->result ? -1 : 0;
}

static int list_visit(hid_t file, const char *path, struct listed *all)
{
	all->seen = 0;
	if (!object_exists(file, all->below))
		return sl_fail(-ENOENT, "'%s' has no '%s'", path, all->below);
	if (H5Ovisit_by_name(file, all->below, H5_INDEX_NAME, H5_ITER_INC, object_listed, all,
	                     H5P_DEFAULT) >= 0)
		return 0;
	return all->result ? all->result
	                   : sl_hdf5_fail(-EBADMSG, "the objects of '%s' cannot be read", path);
}

int sl_h5_list(struct sl_h5_bytes *source, const char *path, const char *below, sl_h5_found *found,
               void *user)
{
	struct listed all = {.below = below, .found = found, .user = user, .vfd.source = source};
	hid_t file = H5I_INVALID_HID;
	int rc = sl_hdf5_start(true);

	if (!rc)
		rc = source_length(source, path, &all.length);
	if (rc)
		return rc;
	sl_hdf5_enter();
	do {
		rc = file_open_read(&all.vfd, path, &file);
	} while (source_lacked(&all.vfd, path, &all.misses, &rc));
	/* The file stays open, so HDF5 keeps headers. */
	if (!rc)
		do {
			rc = list_visit(file, path, &all);
		} while (source_lacked(&all.vfd, path, &all.misses, &rc));
	if (file >= 0)
		H5Fclose(file);
	H5Eclear2(H5E_DEFAULT);
	sl_hdf5_leave();
	return rc;
}
