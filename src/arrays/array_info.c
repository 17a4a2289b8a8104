/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of <sluice/arrays.h>. Threads: any. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrays/arrays_internal.h"
#include "io/io.h"

/* Returns the array of a file, or NULL with a sentence. */
static struct sl_array *array_of_file(sluice_file *file, int *rc)
{
	struct sl_backend *backend = file ? sl_file_backend(file) : NULL;

	*rc = file ? sl_context_check(sl_file_context(file)) : sl_fail(-EINVAL, "file is NULL");
	if (!*rc && backend->ops != &sl_array_ops)
		*rc = sl_fail(-EINVAL, "'%s' is no dataset", sl_file_name(file));
	return *rc ? NULL : SL_CONTAINER(backend, struct sl_array, base);
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

static int array_refresh(struct sl_array *array)
{
	uint64_t length = 0, bytes;
	int rc = 0;

	for (size_t i = 0; !rc && array->sources && i < array->h5.of.part_count; i++)
		if (array->sources[i] && sl_virtual_first(array, i))
			rc = array_refresh(array->sources[i]);
	/* An object on a server does not grow: a later object with the name is another. */
	if (rc || array->blocks)
		return rc;
	sl_mutex_lock(&array->h5.mutex);
	rc = sl_array_look_again_locked(array, &length);
	if (!rc)
		rc = sl_array_measure(array, length, &bytes);
	if (!rc && array->h5.of.rank) {
		atomic_store(&array->bytes, bytes);
		atomic_store(&array->length, length);
	}
	sl_mutex_unlock(&array->h5.mutex);
	return rc;
}

int sluice_array_refresh(sluice_file *file)
{
	int rc;
	struct sl_array *array = array_of_file(file, &rc);

	return rc ? rc : array_refresh(array);
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

static int array_list_of(struct sl_h5_bytes *source, const char *name, const char *path,
                         struct listing *listing)
{
	char *below = sl_format("%s%s", *path == '/' ? "" : "/", path);

	if (!below)
		return sl_fail(-ENOMEM, "no memory");
	for (size_t n = strlen(below); n > 1 && below[n - 1] == '/'; n--)
		below[n - 1] = '\0';
	int rc = sl_h5_list(source, name, below, array_listed, listing);
	free(below);
	return rc;
}

int sluice_array_list(const char *file, const char *path, sluice_array_found found, void *user)
{
	struct listing listing = {found, user};
	struct sl_h5_bytes source = {0};

	if (!file || !path || !found)
		return sl_fail(-EINVAL, "sluice_array_list: an argument is NULL");
	source.fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (source.fd < 0)
		return sl_fail(-errno, "cannot open '%s': %s", file, sl_error_text(-errno));
	int rc = array_list_of(&source, file, path, &listing);
	close(source.fd);
	return rc;
}

int sluice_array_list_file(sluice_file *file, const char *path, sluice_array_found found,
                           void *user)
{
	struct listing listing = {found, user};
	struct sl_h5_blocks *blocks;

	if (!file || !path || !found)
		return sl_fail(-EINVAL, "sluice_array_list_file: an argument is NULL");
	int rc = sl_context_check(sl_file_context(file));
	if (!rc)
		rc = sl_h5_blocks_new(sl_file_backend(file), sl_file_name(file), &blocks);
	if (rc)
		return rc;
	rc = array_list_of(&blocks->source, blocks->name, path, &listing);
	sl_h5_blocks_free(blocks);
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
		whole = strcmp(uri.scheme, "file") ? !strcmp(uri.scheme, "store")
		                                   : !stat(uri.path, &status);
		sl_uri_clear(&uri);
	}
	return whole ? 0 : (size_t)(found - name);
}
