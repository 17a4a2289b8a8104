/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making collections
 *
 * Gives each tensor a place in a part, makes the parts and the owner by one call, before a byte is
 * moved, and fills them: from memory of the program, or by a read of files. On the caller's thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/device.h>

#include "collection/collection.h"

#define PART_BYTES (UINT64_C(2) << 30) /* of the host, unless a tensor is larger */

struct set_maker {
	struct sl_table_entry *entries;
	size_t count;
	/* Of the parts. */
	uint64_t bytes[SLUICE_BLOB_PARTS_MOST];
	int device[SLUICE_BLOB_PARTS_MOST];
	unsigned parts;
	uint64_t most; /* bytes of a part of the host */
};

/* The structs may come from another version, with another size. */
static const struct sluice_collection_tensor *
set_tensor(const struct sluice_collection_tensor *tensors, size_t i)
{
	return (const void *)((const char *)tensors + i * tensors->size);
}

static int set_copy_options(const struct sluice_collection_options *from,
                            struct sluice_collection_options *to)
{
	*to = (struct sluice_collection_options)SLUICE_COLLECTION_OPTIONS_INIT;
	int rc = sl_struct_take("options of a collection", from, to, sizeof(*to));
	if (rc)
		return rc;
	if ((to->file_count && !to->files) || (to->metadata_count && !to->metadata))
		return sl_fail(-EINVAL, "options of a collection: files or metadata are NULL");
	for (size_t i = 0; i < to->file_count; i++)
		if (to->files[i].bytes && !to->files[i].data)
			return sl_fail(-EINVAL, "options of a collection: a file is NULL");
	return 0;
}

/* --------------------------------------------------------------------------------------- layout */

/* By address, device and bytes; 0: the data is the same. */
static int set_compare_data(const struct sl_table_entry *a, const struct sl_table_entry *b)
{
	if (a->tensor->data != b->tensor->data)
		return a->tensor->data < b->tensor->data ? -1 : 1;
	if (a->tensor->device != b->tensor->device)
		return a->tensor->device < b->tensor->device ? -1 : 1;
	return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static int set_data_order(const void *a, const void *b)
{
	const struct sl_table_entry *x = *(struct sl_table_entry *const *)a,
				    *y = *(struct sl_table_entry *const *)b;
	int order = set_compare_data(x, y);

	return order ? order : x < y ? -1 : x > y;
}

/* Finds the tensors that have their memory together. */
static int set_find_same(struct set_maker *m)
{
	struct sl_table_entry **sorted = calloc(m->count + 1, sizeof(*sorted));

	if (!sorted)
		return sl_fail(-ENOMEM, "no memory for %zu tensors", m->count);
	for (size_t i = 0; i < m->count; i++)
		sorted[i] = &m->entries[i];
	qsort(sorted, m->count, sizeof(*sorted), set_data_order);
	for (size_t i = 0; i < m->count; i++) {
		bool same = i && sorted[i]->bytes && sorted[i]->tensor->data &&
		            !set_compare_data(sorted[i - 1], sorted[i]);

		sorted[i]->same = same ? sorted[i - 1]->same : sorted[i];
	}
	free(sorted);
	return 0;
}

/* Returns the part for a tensor, a new part if need be, or -E2BIG. */
static int set_part_for(struct set_maker *m, int device, uint64_t bytes)
{
	for (unsigned i = m->parts; i-- > 0;)
		if (m->device[i] == device) {
			if (device >= 0 || m->bytes[i] + bytes <= m->most || !m->bytes[i])
				return (int)i;
			break;
		}
	if (m->parts == SLUICE_BLOB_PARTS_MOST)
		return sl_fail(-E2BIG, "a collection has at most %d parts", SLUICE_BLOB_PARTS_MOST);
	m->device[m->parts] = device;
	return (int)m->parts++;
}

static int set_lay_out(struct set_maker *m)
{
	uint64_t host = 0;
	/* An owner has a part at least. */
	int part = m->count ? 0 : set_part_for(m, -1, 0);

	for (size_t i = 0; i < m->count; i++)
		if (m->entries[i].tensor->device < 0)
			host += m->entries[i].bytes + SL_TABLE_ALIGN;
	/* Two parts in a row have more than the most of one: the host has at most half of all. */
	m->most = SL_MAX(PART_BYTES, host / (SLUICE_BLOB_PARTS_MOST / 4) + SL_TABLE_ALIGN);
	for (size_t i = 0; part >= 0 && i < m->count; i++) {
		struct sl_table_entry *entry = &m->entries[i];

		if (entry->same != entry) {
			entry->part = entry->same->part;
			entry->offset = entry->same->offset;
			continue;
		}
		part = set_part_for(m, entry->tensor->device, entry->bytes);
		if (part < 0)
			break;
		entry->part = (uint32_t)part;
		entry->offset = m->bytes[part];
		m->bytes[part] +=
			(entry->bytes + SL_TABLE_ALIGN - 1) / SL_TABLE_ALIGN * SL_TABLE_ALIGN;
	}
	return SL_MIN(part, 0);
}

static int set_check_tensors(struct set_maker *m, const struct sluice_collection_tensor *tensors)
{
	uint64_t all = 0;

	m->entries = calloc(m->count + 1, sizeof(*m->entries));
	if (!m->entries)
		return sl_fail(-ENOMEM, "no memory for %zu tensors", m->count);
	for (size_t i = 0; i < m->count; i++) {
		const struct sluice_collection_tensor *t = set_tensor(tensors, i);

		if (!t->name || !sl_type_find(t->type) || t->rank > SLUICE_TENSOR_RANK_MOST ||
		    (t->rank && !t->shape) || t->device < -1)
			return sl_fail(-EINVAL,
			               "tensor %zu of a collection: no name, an unknown "
			               "type or device, or no shape",
			               i);
		int64_t bytes = sl_tensor_bytes(sl_type_find(t->type), t->rank, t->shape);
		if (bytes < 0 || __builtin_add_overflow(all, (uint64_t)bytes, &all) ||
		    all > INT64_MAX / 16)
			return sl_fail(-EINVAL,
			               "tensor '%.256s': its shape is too large, or does "
			               "not end at a byte",
			               t->name);
		m->entries[i] = (struct sl_table_entry){.tensor = t, .bytes = (uint64_t)bytes};
	}
	return 0;
}

/* ------------------------------------------------------------------------------------------ new */

/* Makes the blobs of a collection, and writes the owner. */
static int set_make_blobs(const struct set_maker *m, sluice_store *s, const char *name,
                          const struct sluice_collection_options *o, const void *bytes, size_t n,
                          sluice_blob **owner)
{
	struct sluice_blob_options of_part = SLUICE_BLOB_OPTIONS_INIT, of_owner = of_part;
	struct sluice_blob_request requests[SLUICE_BLOB_BATCH];
	sluice_blob *blobs[SLUICE_BLOB_BATCH];
	uint64_t all = 0;

	of_part.flags = SLUICE_BLOB_ALONE;
	of_owner.flags = o->flags | SLUICE_BLOB_ALONE;
	of_owner.replaces = o->replaces;
	for (unsigned i = 0; i < m->parts; i++) {
		requests[i] = (struct sluice_blob_request){NULL, SL_MAX(m->bytes[i], 1),
		                                           m->device[i], &of_part};
		all += m->bytes[i];
	}
	requests[m->parts] = (struct sluice_blob_request){name, n, -1, &of_owner};
	int rc = sluice_blob_create_many(s, requests, m->parts + 1, blobs);
	if (rc == -ENOSPC)
		return sl_fail(rc, "'%s' needs %" PRIu64 " bytes%s: %s", name ? name : "", all,
		               o->flags & SLUICE_BLOB_REPLACE || o->replaces
		                       ? ", beside what it replaces"
		                       : "",
		               sluice_last_message());
	if (rc)
		return rc;
	memcpy(sluice_blob_mutable_data(blobs[m->parts]), bytes, n);
	rc = sluice_blob_adopt(blobs[m->parts], blobs, m->parts);
	if (rc)
		sluice_blob_release_many(blobs, m->parts + 1);
	else
		*owner = blobs[m->parts];
	return rc;
}

int sluice_collection_new(sluice_store *s, const char *name,
                          const struct sluice_collection_tensor *tensors, size_t count,
                          const struct sluice_collection_options *options, sluice_collection **out)
{
	struct set_maker m = {.count = count};
	struct sluice_collection_options o;
	sluice_blob *owner = NULL;
	char *bytes = NULL;
	size_t n;

	if (!out || (count && (!tensors || tensors->size < sizeof(tensors->size))))
		return sl_fail(-EINVAL, "sluice_collection_new: NULL, or size is not set");
	int rc = set_copy_options(options, &o);
	if (!rc)
		rc = set_check_tensors(&m, tensors);
	if (!rc)
		rc = set_find_same(&m);
	if (!rc)
		rc = set_lay_out(&m);
	if (!rc)
		rc = sl_table_make(m.entries, count, m.parts, &o, &bytes, &n);
	if (!rc)
		rc = set_make_blobs(&m, s, name, &o, bytes, n, &owner);
	if (!rc)
		rc = sl_collection_wrap(owner, bytes, n, out);
	if (rc && owner)
		sluice_blob_release(owner);
	free(bytes);
	free(m.entries);
	return rc;
}

/* ------------------------------------------------------------------- from the program's memory */

/* Describes a tensor by name. */
static int set_get(const sluice_collection *c, const char *name,
                   struct sluice_collection_tensor *out)
{
	size_t index;
	int rc = sluice_collection_find(c, name, &index);

	out->size = sizeof(*out);
	return rc ? rc : sluice_collection_get(c, index, out);
}

static int set_copy(const sluice_collection *c, const struct sluice_collection_tensor *from,
                    const struct sluice_collection_options *o)
{
	struct sluice_collection_tensor to;
	int rc = set_get(c, from->name, &to);

	if (rc || !to.bytes)
		return rc;
	if (!from->data)
		return sl_fail(-EINVAL, "tensor '%.256s': its data is NULL", from->name);
	if (o->on && (to.device >= 0 || sluice_device_of(from->data) >= 0))
		return sluice_copy_on(to.data, from->data, to.bytes, o->stream);
	return sluice_copy(to.data, from->data, to.bytes);
}

/* Returns the device to copy a tensor, or -1. */
static int set_copier(const struct sluice_collection_tensor *t)
{
	return t->device >= 0 ? t->device : sluice_device_of(t->data);
}

/* Waits for the copies on all devices. Returns rc with its message, or an error. */
static int set_wait(const struct sluice_collection_tensor *tensors, size_t count,
                    sluice_stream stream, int rc)
{
	char *message = rc ? strdup(sluice_last_message()) : NULL;
	int waited = 0;

	for (size_t i = 0; i < count; i++) {
		int device = set_copier(set_tensor(tensors, i));
		int one = device < 0 ? 0 : sluice_stream_synchronize(device, stream);

		waited = waited ? waited : one;
	}
	if (rc)
		sl_fail_with(rc, message);
	free(message);
	return rc ? rc : waited;
}

int sluice_collection_publish(sluice_store *s, const char *name,
                              const struct sluice_collection_tensor *tensors, size_t count,
                              const struct sluice_collection_options *options,
                              sluice_collection **out)
{
	struct sluice_collection_options o;
	sluice_collection *c;
	bool several = false;
	int first = -1, rc = out ? set_copy_options(options, &o)
	                         : sl_fail(-EINVAL, "sluice_collection_publish: out is NULL");

	if (!rc)
		rc = sluice_collection_new(s, name, tensors, count, options, &c);
	if (rc)
		return rc;
	for (size_t i = 0; !rc && i < count; i++) {
		int device = set_copier(set_tensor(tensors, i));

		rc = set_copy(c, set_tensor(tensors, i), &o);
		several |= device >= 0 && first >= 0 && device != first;
		first = SL_MAX(first, device);
	}
	/* The seal comes behind a single device's stream. */
	if (!rc && o.on && several)
		rc = set_wait(tensors, count, o.stream, 0);
	if (!rc)
		rc = o.on ? sluice_blob_seal_on(sluice_collection_blob(c), o.stream)
		          : sluice_blob_seal(sluice_collection_blob(c));
	/* Copies in flight use memory that goes now. */
	if (rc && o.on)
		rc = set_wait(tensors, count, o.stream, rc);
	if (rc)
		sluice_collection_release(c);
	else
		*out = c;
	return rc;
}

/* ----------------------------------------------------------------------------------- from files */

/* Makes a list of the metadata of the first file. The caller frees *out. */
static int set_metadata(sluice_tensors *tensors, const char ***out, size_t *count)
{
	struct sluice_tensor_file file = {.size = sizeof(file)};
	int rc = sluice_tensors_file(tensors, 0, &file);

	if (rc)
		return rc;
	*out = calloc(2 * file.metadata + 1, sizeof(char *));
	if (!*out)
		return sl_fail(-ENOMEM, "no memory for the metadata of the files");
	for (size_t i = 0; i < file.metadata; i++)
		sluice_tensors_metadata(tensors, 0, i, &(*out)[2 * i], &(*out)[2 * i + 1]);
	*count = file.metadata;
	return 0;
}

/* Describes the tensors of a plan, which are to be on that device. */
static int set_describe(sluice_tensors *tensors, const sluice_tensor_plan *plan, size_t count,
                        int device, struct sluice_collection_tensor *out)
{
	struct sluice_tensor_item item = {.size = sizeof(item)};
	struct sluice_tensor tensor = {.size = sizeof(tensor)};
	int rc = 0;

	for (size_t i = 0; !rc && i < count; i++) {
		rc = sluice_tensor_plan_item(plan, i, &item);
		if (!rc)
			rc = sluice_tensors_get(tensors, item.tensor, &tensor);
		out[i] = (struct sluice_collection_tensor){
			sizeof(*out), tensor.name, item.type, item.rank,
			item.shape,   device,      NULL,      0};
	}
	return rc;
}

/* Reads the tensors into a collection. `wants` are its own copy. */
static int set_read(sluice_tensors *tensors, struct sluice_tensor_want *wants, size_t count,
                    const struct sluice_collection_tensor *described, const sluice_collection *c,
                    const struct sluice_tensor_read_options *read)
{
	struct sluice_collection_tensor to;
	sluice_tensor_load *load = NULL;
	sluice_tensor_plan *plan = NULL;
	int rc = 0;

	for (size_t i = 0; !rc && i < count; i++) {
		rc = set_get(c, described[i].name, &to);
		wants[i].to = rc ? NULL : to.data;
	}
	if (!rc)
		rc = sluice_tensor_plan_new(tensors, wants, count, &plan);
	if (!rc)
		rc = sluice_tensor_plan_read(plan, NULL, read, &load);
	if (!rc) {
		int64_t moved = sluice_tensor_load_wait(load, -1);

		if (moved < 0)
			rc = sl_fail((int)moved, "%s", sluice_tensor_load_message(load));
		sluice_tensor_load_free(load);
	}
	sluice_tensor_plan_free(plan);
	return rc;
}

int sl_collection_read(sluice_store *s, const char *name, sluice_tensors *tensors,
                       const struct sluice_tensor_want *wants, size_t count, int device,
                       const struct sluice_collection_options *options,
                       const struct sluice_tensor_read_options *read, sluice_collection **out)
{
	struct sluice_collection_tensor *described = NULL;
	struct sluice_tensor_want *own = NULL;
	struct sluice_collection_options o;
	sluice_tensor_plan *plan = NULL;
	sluice_collection *c = NULL;
	const char **pairs = NULL;
	int rc = set_copy_options(options, &o);

	count = wants ? count : sluice_tensors_count(tensors);
	own = calloc(count + 1, sizeof(*own));
	described = calloc(count + 1, sizeof(*described));
	if (!rc && (!own || !described))
		rc = sl_fail(-ENOMEM, "no memory for %zu tensors", count);
	for (size_t i = 0; !rc && i < count; i++) {
		own[i] = wants ? wants[i] : (struct sluice_tensor_want){.tensor = i};
		own[i].to = NULL;
	}
	if (!rc)
		rc = sluice_tensor_plan_new(tensors, own, count, &plan);
	if (!rc)
		rc = set_describe(tensors, plan, count, device, described);
	if (!rc && !o.metadata_count) {
		rc = set_metadata(tensors, &pairs, &o.metadata_count);
		o.metadata = pairs;
	}
	if (!rc)
		rc = sluice_collection_new(s, name, described, count, &o, &c);
	if (!rc)
		rc = set_read(tensors, own, count, described, c, read);
	if (rc)
		sluice_collection_release(c);
	else
		*out = c;
	sluice_tensor_plan_free(plan);
	free(pairs);
	free(described);
	free(own);
	return rc;
}

int sluice_collection_publish_files(sluice_store *s, const char *name, sluice_tensors *tensors,
                                    const struct sluice_tensor_want *wants, size_t count,
                                    int device, const struct sluice_collection_options *options,
                                    const struct sluice_tensor_read_options *read,
                                    sluice_collection **out)
{
	sluice_collection *c = NULL;
	int rc = out ? sl_collection_read(s, name, tensors, wants, count, device, options, read, &c)
	             : sl_fail(-EINVAL, "sluice_collection_publish_files: out is NULL");

	if (!rc)
		rc = sluice_blob_seal(sluice_collection_blob(c));
	if (rc)
		sluice_collection_release(c);
	else
		*out = c;
	return rc;
}
