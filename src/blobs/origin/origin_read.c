/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading objects
 *
 * Reads an object into a blob as it is, or its tensors into a collection. All requests ask for the
 * version that came first. The caller's thread waits.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "collection/collection.h"
#include "origin/origin.h"

/* Small objects, and headers of .safetensors files, come with the opening, in a request. */
#define FIRST_BYTES (256 << 10)

static struct sluice_open_options origin_options(const struct sl_origin *o)
{
	struct sluice_open_options open = o->open;

	open.first_bytes = FIRST_BYTES;
	return open;
}

static int object_read(sluice_file *file, sluice_blob *blob, uint64_t length)
{
	sluice_op *op;
	int rc = sluice_read(file, sluice_blob_mutable_data(blob), length, 0, &op);

	if (rc)
		return rc;
	int64_t moved = sluice_wait(op, -1);
	if (moved < 0)
		rc = sl_fail((int)moved, "%s", sluice_op_message(op));
	else if ((uint64_t)moved != length)
		rc = sl_fail(-EIO, "the object has %" PRIu64 " bytes, and %" PRId64 " came", length,
		             moved);
	sluice_op_free(op);
	return rc;
}

int sl_origin_read_blob(const struct sl_origin *o, uint64_t replaces, sluice_blob **out)
{
	/* A blob has a byte or more: an empty object is an array without elements. */
	static const struct sluice_blob_metadata empty = {
		.size = sizeof(empty), .type = SLUICE_UINT8, .rank = 1};
	struct sluice_blob_options options = SLUICE_BLOB_OPTIONS_INIT;
	struct sl_origin_version version;
	sluice_blob *blob = NULL;
	sluice_file *file;
	struct sluice_open_options open = origin_options(o);
	int rc = sluice_open(o->given.ctx, o->uri, &open, &file);

	if (rc)
		return rc;
	rc = sl_origin_version_of(file, &version);
	if (!rc) {
		options.flags = SLUICE_BLOB_CACHE;
		options.replaces = replaces;
		options.metadata = version.length ? NULL : &empty;
		rc = sluice_blob_create(o->store, o->name, SL_MAX(version.length, 1),
		                        o->given.device, &options, &blob);
		if (rc == -ENOSPC)
			rc = sl_fail(rc, "'%s' needs %" PRIu64 " bytes: %s", o->name,
			             version.length, sluice_last_message());
	}
	if (!rc && version.length)
		rc = object_read(file, blob, version.length);
	if (!rc)
		rc = sl_origin_note(o, blob, &version, NULL);
	sluice_discard(file);
	if (rc && blob)
		sluice_blob_release(blob);
	else if (!rc)
		*out = blob;
	return rc;
}

/* Finds the version of open files, and "sluice.version" in their metadata. */
static int object_describe(const struct sl_origin *o, sluice_tensors *tensors,
                           struct sl_origin_version *version, const char **told)
{
	struct sluice_tensor_file file = {.size = sizeof(file)};
	const char *key, *value;
	int rc = sluice_tensors_file(tensors, 0, &file);

	*told = NULL;
	for (size_t i = 0; !rc && i < file.metadata; i++) {
		rc = sluice_tensors_metadata(tensors, 0, i, &key, &value);
		if (!rc && !strcmp(key, "sluice.version"))
			*told = value;
	}
	if (rc || sl_origin_is_index(o->name))
		return rc;
	if (strcmp(file.name, o->uri))
		return sl_fail(-EPROTO,
		               "'%s' is an index of files, and its name has to end in .index.json",
		               o->uri);
	return sl_origin_version_of(file.file, version);
}

int sl_origin_read_collection(const struct sl_origin *o, uint64_t replaces, sluice_collection **out)
{
	struct sluice_collection_options options = SLUICE_COLLECTION_OPTIONS_INIT;
	bool index = sl_origin_is_index(o->name);
	struct sl_origin_version version, after;
	const char *uri = o->uri, *told;
	sluice_collection *c = NULL;
	struct sluice_open_options open = origin_options(o);
	sluice_tensors *tensors;
	int rc = index ? sl_origin_ask(o, &version) : 0;

	if (!rc)
		rc = sluice_tensors_open(o->given.ctx, &uri, 1, &open, &tensors);
	if (rc)
		return rc;
	rc = object_describe(o, tensors, &version, &told);
	options.flags = SLUICE_BLOB_CACHE;
	options.replaces = replaces;
	if (!rc)
		rc = sl_collection_read(o->store, o->name, tensors, NULL, 0, o->given.device,
		                        &options, NULL, &c);
	if (!rc && index)
		rc = sl_origin_ask(o, &after);
	if (!rc && index && (version.length != after.length || strcmp(version.etag, after.etag)))
		rc = sl_fail(-ESTALE, "'%s' was changed while its files were read", uri);
	if (!rc)
		rc = sl_origin_note(o, sluice_collection_blob(c), &version, told);
	sluice_tensors_free(tensors);
	if (rc)
		sluice_collection_release(c);
	else
		*out = c;
	return rc;
}
