/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An origin behind the store, for sanitizers: threads of a process fetch, refresh, publish and delete the same names, and
 * objects are hostile. Nodes of many processes are in tests/python/test_origin_nodes.py.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/daemon.h"
#include "lib/servers.h"
#include "sluice/tensors.h"

enum { THREADS = 6, NAMES = 3, TENSORS = 5, EACH = 60000 };

static char folder[200];

static const char *path_of(const char *name)
{
	static char paths[4][400];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

/* The origin is the folder, in a bucket of that behaviour. */
static struct sluice_origin origin_in(sluice_context *ctx, const char *bucket)
{
	static char uris[8][400];
	static unsigned next;
	struct sluice_origin origin = SLUICE_ORIGIN_INIT;
	char *uri = uris[next++ % 8];

	snprintf(uri, sizeof(uris[0]), "%s", s3_uri(bucket, folder));
	origin.ctx = ctx;
	origin.uri = uri;
	return origin;
}

/* Makes an object, another of that name at once: tensors whose bytes all are the tag. */
static void object_put(const char *name, int tag)
{
	size_t n = (size_t)TENSORS * EACH;
	char *bytes = malloc(1000 + n), other[500];
	int at = 8;

	for (unsigned i = 0; i < TENSORS; i++)
		at += sprintf(
			bytes + at,
			"%c\"t%u\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%d,%d]}",
			i ? ',' : '{', i, EACH, i * EACH, (i + 1) * EACH);
	at += sprintf(bytes + at, "}%*s", 7 - (at + 8) % 8, "");
	memcpy(bytes, &(uint64_t){(uint64_t)at - 8}, 8);
	memset(bytes + at, tag, n);
	snprintf(other, sizeof(other), "%s.new", path_of(name));
	unlink(other);
	file_write(other, bytes, at + n, 0);
	assert_int_equal(rename(other, path_of(name)), 0);
	free(bytes);
}

/* Returns the tag of a collection that is whole, or -1. */
static int tag_of(const sluice_collection *c)
{
	struct sluice_collection_tensor t = {.size = sizeof(t)};
	int tag = -1;

	for (size_t i = 0; i < sluice_collection_count(c); i++) {
		const unsigned char *bytes;

		if (sluice_collection_get(c, i, &t) || !t.bytes)
			return -1;
		bytes = t.data;
		tag = i ? tag : bytes[0];
		for (size_t k = 0; k < t.bytes; k++)
			if (bytes[k] != tag)
				return -1;
	}
	return tag;
}

/* ------------------------------------------------------------------------------------------- threads */

struct actor {
	sluice_store *store;
	struct sluice_origin origin;
	struct rng r;
	unsigned rounds, fetched;
	char wrong[300];
};

static void publish(const struct actor *a, const char *name)
{
	static unsigned char bytes[EACH];
	struct sluice_collection_tensor t = {sizeof(t),           "t", SLUICE_UINT8, 1,
	                                     (uint64_t[1]){EACH}, -1,  bytes,        EACH};
	struct sluice_collection_options o = SLUICE_COLLECTION_OPTIONS_INIT;
	sluice_collection *c;

	o.flags = SLUICE_BLOB_REPLACE;
	if (!sluice_collection_publish(a->store, name, &t, 1, &o, &c))
		sluice_collection_release(c);
}

static int act(struct actor *a)
{
	const char *name = named("m%u", (unsigned)rng_below(&a->r, NAMES));
	sluice_collection *c;
	int rc;

	switch (rng_below(&a->r, 8)) {
	case 0:
		publish(a, name);
		return 0;
	case 1:
		rc = sluice_blob_delete(a->store, name);
		return rc == -ENOENT ? 0 : rc;
	case 2:
		rc = sluice_blob_refresh(a->store, &a->origin, name, NULL);
		return rc == -ENOENT ? 0 : rc;
	default:
		rc = sluice_collection_fetch(a->store, &a->origin, name, 20000, &c);
		if (rc)
			return rc;
		rc = tag_of(c) < 0 ? -EBADMSG : 0;
		a->fetched++;
		sluice_collection_release(c);
		return rc;
	}
}

static void *live(void *argument)
{
	struct actor *a = argument;

	for (unsigned i = 0; i < a->rounds && !a->wrong[0]; i++) {
		int rc = act(a);

		/* On a slow machine an object may have changed in each of four reads. */
		if (rc && rc != -ESTALE)
			snprintf(a->wrong, sizeof(a->wrong), "%d: %s", rc, sluice_last_message());
	}
	return NULL;
}

DAEMON_TEST(threads_that_fetch_refresh_publish_and_delete_find_whole_collections)
{
	struct actor actors[THREADS];
	pthread_t threads[THREADS];
	sluice_context *ctx;

	assert_ok(sluice_context_new(NULL, &ctx));
	for (unsigned i = 0; i < NAMES; i++)
		object_put(named("m%u", i), 1);
	for (unsigned i = 0; i < THREADS; i++) {
		/* Half of them share a store. */
		actors[i] = (struct actor){.store = i % 2 ? d->store : daemon_connect(d),
		                           .origin = origin_in(ctx, "files"),
		                           .r = rng_new(i),
		                           .rounds = under_stress() ? 400 : 25};
		pthread_create(&threads[i], NULL, live, &actors[i]);
	}
	for (int tag = 2; tag < 10; tag++) {
		sleep_ms(20);
		for (unsigned i = 0; i < NAMES; i++)
			object_put(named("m%u", i), tag);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		if (actors[i].wrong[0])
			fail_msg("%s", actors[i].wrong);
		assert_true(actors[i].fetched);
		if (actors[i].store != d->store)
			assert_ok(sluice_store_close(actors[i].store));
	}
	for (unsigned i = 0; i < NAMES; i++)
		sluice_blob_delete(d->store, named("m%u", i));
	assert_ok(sluice_context_close(ctx));
	assert_idle(d->store);
}

/* ------------------------------------------------------------------------------------------- objects */

DAEMON_TEST(objects_that_lie_leave_nothing)
{
#define LIE(text)                      \
	{                              \
		text, sizeof(text) - 1 \
	}
	static const struct {
		const char *text;
		size_t n;
	} lies[] = {
		LIE(""),
		LIE("{"),
		LIE("\xff\xff\xff\xff\xff\xff\xff\xff"),
		LIE("\xff\xff\xff\xff\xff\xff\xff\x7f{}"),
		/* That is a collection without tensors. */
		LIE("\x08\0\0\0\0\0\0\0{}      "),
		LIE("\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[9],"
	            "\"data_offsets\":[0,9]}}           12"),
		LIE("{\"weight_map\": {\"a\": \"../../../etc/passwd\"}}"),
		LIE("{\"weight_map\": {\"a\": \"none.safetensors\"}}"),
	};
	sluice_collection *c;
	sluice_context *ctx;
	sluice_blob *blob;

	assert_ok(sluice_context_new(NULL, &ctx));
	for (size_t i = 0; i < COUNT_OF(lies); i++)
		for (unsigned index = 0; index < 2; index++) {
			const char *name = named("lie%zu%s", i, index ? ".index.json" : "");
			struct sluice_origin origin = origin_in(ctx, "files");
			int rc;

			file_write(path_of(name), lies[i].text, lies[i].n, 0);
			rc = sluice_collection_fetch(d->store, &origin, name, 20000, &c);
			if (rc == 0)
				sluice_collection_release(c);
			if ((rc == 0) != (i == 4) && !(index && i == 4))
				fail_msg("%s: %d: %s", name, rc, sluice_last_message());
			sluice_blob_delete(d->store, name);
			assert_idle(d->store);
			/* A file of the index that is missing is remembered, too. */
			if (rc == -ENOENT)
				sleep_ms(1100);
			/* As bytes it is what it is. */
			assert_ok(sluice_blob_fetch(d->store, &origin, name, 20000, &blob));
			if (lies[i].n)
				assert_memory_equal(sluice_blob_data(blob), lies[i].text,
				                    lies[i].n);
			assert_let_go(blob, d->store, name);
		}
	assert_ok(sluice_context_close(ctx));
	assert_idle(d->store);
}

/* Notes that another program has written, of which none says where a blob comes from. */
DAEMON_TEST(notes_that_lie_are_no_origin)
{
	static const struct {
		const char *text;
		size_t n;
	} notes[] = {{"", 0},
	             {"sluice.origin", 13},
	             {"sluice.origin\0s3://b/k\0etag\0"
	              "12",
	              30},
	             {"sluice.origin\0s3://b/k\0etag\0"
	              "12\0v",
	              32},
	             {"sluice.origin\0http://b/k\0etag\0"
	              "12\0",
	              34},
	             {"sluice.origin\0s3://b/k\0etag\0x\0", 31},
	             {"sluice.origin\0s3://b/k\0etag\0\0", 30},
	             {"\0\0\0\0\0", 5}};
	struct sluice_blob_source source = {.size = sizeof(source)};
	struct sluice_origin origin;
	sluice_context *ctx;
	uint64_t id;

	assert_ok(sluice_context_new(NULL, &ctx));
	origin = origin_in(ctx, "files");
	for (size_t i = 0; i < COUNT_OF(notes); i++) {
		struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
		struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
		sluice_blob *blob;

		m.note = notes[i].text;
		m.note_bytes = notes[i].n;
		o.metadata = &m;
		assert_ok(sluice_blob_create(d->store, "x", 10, -1, &o, &blob));
		assert_ok(sluice_blob_seal(blob));
		assert_refused(sluice_blob_origin(blob, &source), ENOENT, "not fetched");
		assert_ok(sluice_blob_refresh(d->store, &origin, "x", &id));
		assert_int_equal(id, sluice_blob_id(blob));
		assert_let_go(blob, d->store, "x");
	}
	assert_ok(sluice_context_close(ctx));
	assert_idle(d->store);
}

/* Servers that fail at first, and those that refuse. */
DAEMON_TEST(servers_that_fail_and_refuse)
{
	static const struct {
		const char *bucket;
		int rc;
	} rows[] = {{"files", 0}, {"busy", 0}, {"halves", 0}, {"none", -ENOENT}, {"public", -EIO}};
	sluice_collection *c;
	sluice_context *ctx;

	assert_ok(sluice_context_new(NULL, &ctx));
	object_put("k", 7);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct sluice_origin origin = origin_in(ctx, rows[i].bucket);
		int rc = sluice_collection_fetch(d->store, &origin, "k", 20000, &c);

		if (rc != rows[i].rc)
			fail_msg("%s: %d: %s", rows[i].bucket, rc, sluice_last_message());
		if (!rc) {
			assert_int_equal(tag_of(c), 7);
			assert_ok(sluice_collection_release(c));
			assert_ok(sluice_blob_delete(d->store, "k"));
		}
		assert_idle(d->store);
	}
	assert_ok(sluice_context_close(ctx));
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "64M", NULL};
	char command[300];
	int failed;

	(void)argc;
	servers_start();
	row_start(1, argv);
	s3_environment();
	setenv("SLUICE_HTTP_BACKOFF_MS", "1", 1);
	setenv("SLUICE_HTTP_ATTEMPTS", "3", 1);
	snprintf(folder, sizeof(folder), "%s/origin-%d", getenv("SLUICE_TEST_DIR"), (int)getpid());
	if (mkdir(folder, 0700))
		return 1;
	daemon_options = options;
	failed = RUN_TESTS(NULL, NULL);
	snprintf(command, sizeof(command), "rm -r '%s'", folder);
	return system(command) ? 1 : failed;
}
