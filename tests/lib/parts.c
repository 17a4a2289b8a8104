/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/parts.h"

#include <stdlib.h>

#include "sluice/device.h"

unsigned parts_of(uint64_t value)
{
	return 1 + (unsigned)(pattern_mix(value) % PARTS_MOST);
}

size_t part_bytes(uint64_t value, unsigned part)
{
	static const size_t sizes[] = {70000, 1, 5000, 300000, 1200000};

	return sizes[pattern_mix(value + part) % COUNT_OF(sizes)];
}

static void part_fill(sluice_blob *blob, uint64_t value, unsigned part)
{
	size_t n = sluice_blob_size(blob);
	char *bytes = malloc(n);

	pattern_fill(bytes, n, 0, value * PARTS_MOST + part);
	sluice_copy(sluice_blob_mutable_data(blob), bytes, n);
	free(bytes);
}

static bool part_is(sluice_blob *blob, uint64_t value, unsigned part)
{
	size_t n = part_bytes(value, part);
	char *bytes = malloc(n);
	bool is = sluice_blob_size(blob) == n && sluice_blob_data(blob) &&
	          !sluice_copy(bytes, sluice_blob_data(blob), n) &&
	          pattern_match(bytes, n, 0, value * PARTS_MOST + part) == n;

	free(bytes);
	return is;
}

static int parts_make_as(sluice_store *store, const char *name, uint64_t value,
                         const struct sluice_blob_options *of_owner, sluice_blob **out)
{
	struct sluice_blob_options o = *of_owner, alone = SLUICE_BLOB_OPTIONS_INIT;
	struct sluice_blob_request requests[1 + PARTS_MOST];
	sluice_blob *blobs[1 + PARTS_MOST];
	unsigned count = parts_of(value);
	int rc;

	o.flags |= SLUICE_BLOB_ALONE;
	alone.flags = SLUICE_BLOB_ALONE;
	for (unsigned i = 0; i < count; i++)
		requests[i] = (struct sluice_blob_request){NULL, part_bytes(value, i),
		                                           i ? -1 : place(), &alone};
	requests[count] = (struct sluice_blob_request){name, sizeof(value), -1, &o};
	rc = sluice_blob_create_many(store, requests, count + 1, blobs);
	if (rc)
		return rc;
	for (unsigned i = 0; i < count; i++)
		part_fill(blobs[i], value, i);
	memcpy(sluice_blob_mutable_data(blobs[count]), &value, sizeof(value));
	rc = sluice_blob_adopt(blobs[count], blobs, count);
	if (rc)
		sluice_blob_release_many(blobs, count + 1);
	else
		*out = blobs[count];
	return rc;
}

int parts_make(sluice_store *store, const char *name, uint64_t value, unsigned flags,
               sluice_blob **out)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;

	o.flags = flags;
	return parts_make_as(store, name, value, &o, out);
}

int parts_make_over(sluice_store *store, const char *name, uint64_t value, uint64_t replaces,
                    sluice_blob **out)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;

	o.replaces = replaces;
	return parts_make_as(store, name, value, &o, out);
}

int parts_put(sluice_store *store, const char *name, uint64_t value, unsigned flags,
              sluice_blob **out)
{
	int rc = parts_make(store, name, value, flags, out);

	if (rc)
		return rc;
	rc = sluice_blob_seal(*out);
	if (rc)
		sluice_blob_release(*out);
	return rc;
}

sluice_blob *parts_put_at_last(sluice_store *store, const char *name, uint64_t value,
                               unsigned flags)
{
	sluice_blob *blob = NULL;
	int rc;

	while ((rc = parts_put(store, name, value, flags, &blob)) == -ECONNRESET)
		;
	assert_ok(rc);
	return blob;
}

uint64_t parts_value(sluice_blob *owner)
{
	uint64_t value;
	sluice_blob *part;

	if (sluice_blob_size(owner) != sizeof(value) || !sluice_blob_data(owner))
		return 0;
	memcpy(&value, sluice_blob_data(owner), sizeof(value));
	if (sluice_blob_parts(owner) != parts_of(value))
		return 0;
	for (unsigned i = 0; i < parts_of(value); i++)
		if (sluice_blob_part(owner, i, &part) || !part_is(part, value, i))
			return 0;
	return value;
}

void assert_parts(sluice_store *store, const char *name, uint64_t value)
{
	sluice_blob *owner = got(store, name);

	assert_int_equal(parts_value(owner), value);
	assert_ok(sluice_blob_release(owner));
}
