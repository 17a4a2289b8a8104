/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of objects, and notes
 *
 * Finds the object for a name, and describes the source of a blob: its metadata has a note of texts
 * with NUL at their ends: MAGIC, the URI, the ETag, the length, and "sluice.version" from the
 * metadata of the tensors. Any thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "origin/origin.h"

#define MAGIC      "sluice.origin"
#define SCHEME     "s3://"
#define HIDDEN     ".sluice/"
#define VARIABLE   "SLUICE_STORE_ORIGIN"
#define MISSING_MS 1000

static bool uri_is_good(const char *uri)
{
	return !strncasecmp(uri, SCHEME, sizeof(SCHEME) - 1) && uri[sizeof(SCHEME) - 1] &&
	       uri[sizeof(SCHEME) - 1] != '/';
}

int sl_origin_find(const char *call, sluice_store *store, const struct sluice_origin *origin,
                   const char *name, struct sl_origin *out)
{
	struct sl_origin o = {store, SLUICE_ORIGIN_INIT, SLUICE_OPEN_OPTIONS_INIT, name, NULL};

	if (!store || !name || !origin || origin->size < sizeof(origin->size))
		return sl_fail(-EINVAL, "%s: NULL, or size is not set", call);
	memcpy(&o.given, origin, SL_MIN(origin->size, sizeof(o.given)));
	if (o.given.open) {
		o.open.headers = o.given.open->headers;
		o.open.s3 = o.given.open->s3;
	}
	*out = o;
	return 0;
}

int sl_origin_name(const char *call, struct sl_origin *o)
{
	const char *uri = o->given.uri ? o->given.uri : getenv(VARIABLE);
	size_t n;

	if (!uri || !*uri || !strncmp(o->name, HIDDEN, sizeof(HIDDEN) - 1))
		return 0;
	if (!uri_is_good(uri))
		return sl_fail(-EINVAL, "'%s'%s is no origin: s3://BUCKET/PREFIX", uri,
		               o->given.uri ? "" : " (" VARIABLE ")");
	if (!o->given.ctx)
		return sl_fail(-EINVAL, "%s: an origin needs a context", call);
	for (n = strlen(uri); uri[n - 1] == '/';)
		n--;
	o->uri = sl_format("%.*s/%s", (int)n, uri, o->name);
	return o->uri ? 0 : sl_fail(-ENOMEM, "no memory");
}

bool sl_origin_is_index(const char *name)
{
	static const char suffix[] = ".index.json";
	size_t length = strlen(name), n = sizeof(suffix) - 1;

	return length >= n && !strcmp(name + length - n, suffix);
}

/* -------------------------------------------------------------------------- missing objects */

/* Each has 32 bits of a URI's hash, and the time in milliseconds up to which it is missing. */
static _Atomic uint64_t missing_until[64];

static _Atomic uint64_t *missing_slot(const char *uri, uint32_t *hash)
{
	uint64_t h = XXH3_64bits(uri, strlen(uri));

	*hash = (uint32_t)(h >> 32);
	return &missing_until[h % (sizeof(missing_until) / sizeof(*missing_until))];
}

bool sl_origin_is_missing(const char *uri)
{
	uint32_t hash;
	uint64_t word = atomic_load(missing_slot(uri, &hash));
	uint32_t left = (uint32_t)word - (uint32_t)(sl_now() / 1000000);

	return word >> 32 == hash && left - 1 < MISSING_MS;
}

void sl_origin_set_missing(const char *uri, bool missing)
{
	uint32_t hash, until = (uint32_t)(sl_now() / 1000000) + MISSING_MS;
	_Atomic uint64_t *slot = missing_slot(uri, &hash);

	atomic_store(slot, missing ? (uint64_t)hash << 32 | until : 0);
}

/* ----------------------------------------------------------------------------------- versions */

int sl_origin_version_of(sluice_file *file, struct sl_origin_version *out)
{
	struct sluice_file_info info = {.size = sizeof(info)};
	int rc = sluice_stat(file, &info);

	if (rc)
		return rc;
	size_t n = strlen(info.full_etag ? info.full_etag : "");
	if (!n || n >= sizeof(out->etag) || info.flags & SLUICE_STAT_SIZE_UNKNOWN)
		return sl_fail(-EPROTO, "an object of an origin needs an ETag and a length");
	memcpy(out->etag, info.full_etag, n + 1);
	out->length = info.length;
	return 0;
}

int sl_origin_ask(const struct sl_origin *o, struct sl_origin_version *out)
{
	sluice_file *file;
	int rc = sluice_open(o->given.ctx, o->uri, &o->open, &file);

	if (rc)
		return rc;
	rc = sl_origin_version_of(file, out);
	sluice_discard(file);
	return rc;
}

/* -------------------------------------------------------------------------------------- notes */

int sl_origin_note(const struct sl_origin *o, sluice_blob *blob,
                   const struct sl_origin_version *version, const char *told)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	int n, rc = sluice_blob_get_metadata(blob, &m);
	char note[SLUICE_BLOB_NOTE_MOST];

	if (rc)
		return rc;
	n = snprintf(note, sizeof(note), MAGIC "%c%s%c%s%c%" PRIu64 "%c%s", 0, o->uri, 0,
	             version->etag, 0, version->length, 0, told ? told : "");
	if (n < 0 || (size_t)n >= sizeof(note))
		return sl_fail(-ENAMETOOLONG,
		               "the name, the ETag and the sluice.version of '%.256s' have more "
		               "than %d bytes together",
		               o->uri, SLUICE_BLOB_NOTE_MOST);
	m.note = note;
	m.note_bytes = (size_t)n + 1;
	return sluice_blob_set_metadata(blob, &m);
}

int sluice_blob_origin(const sluice_blob *blob, struct sluice_blob_source *out)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	struct sluice_blob_source source = {0};
	const char *texts[5] = {""}, *at;
	unsigned count = 0;
	char *end = NULL;

	if (!out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_blob_origin: NULL, or size is not set");
	int rc = sluice_blob_get_metadata(blob, &m);
	if (rc)
		return rc;
	/* Another process may have written it. */
	at = m.note;
	for (const char *stop = at ? at + m.note_bytes : NULL; at < stop && count < 5; count++) {
		const char *nul = memchr(at, 0, (size_t)(stop - at));

		if (!nul)
			break;
		texts[count] = at;
		at = nul + 1;
	}
	if (count == 5 && !strcmp(texts[0], MAGIC) && uri_is_good(texts[1]))
		source.length = strtoull(texts[3], &end, 10);
	if (!end || end == texts[3] || *end)
		return sl_fail(-ENOENT, "the blob was not fetched from an origin");
	source.uri = texts[1];
	source.etag = texts[2];
	source.version = texts[4];
	sl_struct_give(out, &source, sizeof(source));
	return 0;
}
