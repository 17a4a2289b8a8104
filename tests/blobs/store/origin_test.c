/* SPDX-License-Identifier: Apache-2.0 */
/* An origin of S3 behind the store, used by threads: tests/python/test_origin.py has its cases. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/daemon.h"
#include "lib/servers.h"
#include "sluice/tensors.h"

enum { THREADS = 4, BYTES = 6 << 20 };

static const uint64_t length[] = {BYTES};

static char folder[512];
/* The folder that the server of S3 has, as an origin. */
static struct sluice_origin origin_of(sluice_context *ctx)
{
	static char uri[4096];
	struct sluice_origin origin = SLUICE_ORIGIN_INIT;
	char file[600];

	snprintf(folder, sizeof(folder), "%s/origin.%d", getenv("SLUICE_TEST_DIR"), (int)getpid());
	mkdir(folder, 0777);
	snprintf(file, sizeof(file), "%s/x", folder);
	snprintf(uri, sizeof(uri), "%s", s3_uri("models", file));
	*strrchr(uri, '/') = '\0';
	origin.ctx = ctx;
	origin.uri = uri;
	return origin;
}

/* Publishes bytes of that seed, and pushes them. */
static void put_model(sluice_store *store, const struct sluice_origin *origin, uint64_t seed)
{
	struct sluice_collection_options o = SLUICE_COLLECTION_OPTIONS_INIT;
	struct sluice_collection_tensor t = {.size = sizeof(t),
	                                     .name = "t",
	                                     .type = SLUICE_UINT8,
	                                     .rank = 1,
	                                     .shape = length,
	                                     .device = -1};
	sluice_collection *made;
	char *bytes = malloc(BYTES);

	pattern_fill(bytes, BYTES, 0, seed);
	t.data = bytes;
	o.flags = SLUICE_BLOB_REPLACE;
	assert_ok(sluice_collection_publish(store, "m", &t, 1, &o, &made));
	assert_ok(sluice_collection_release(made));
	assert_ok(sluice_blob_push(store, origin, "m", 0));
	free(bytes);
}

struct fetcher {
	pthread_t thread;
	sluice_store *store;
	const struct sluice_origin *origin;
	bool refresh;
	uint64_t id;
	int rc;
	size_t same; /* bytes */
	uint64_t seed;
};

static void *fetcher_run(void *fetcher)
{
	struct fetcher *f = fetcher;
	struct sluice_collection_tensor t = {.size = sizeof(t)};
	sluice_collection *c;

	f->rc = f->refresh ? sluice_blob_refresh(f->store, f->origin, "m", &f->id) : 0;
	if (!f->rc)
		f->rc = sluice_collection_fetch(f->store, f->origin, "m", 60000, &c);
	if (f->rc)
		return NULL;
	f->rc = sluice_collection_get(c, 0, &t);
	f->same = f->rc ? 0 : pattern_match(t.data, BYTES, 0, f->seed);
	f->id = sluice_blob_id(sluice_collection_blob(c));
	sluice_collection_release(c);
	return NULL;
}

/* All threads have the same collection, of that seed. Returns its id. */
static uint64_t assert_fetched(sluice_store *store, const struct sluice_origin *origin,
                               bool refresh, uint64_t seed)
{
	struct fetcher f[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		f[i] = (struct fetcher){.store = store, .origin = origin, .refresh = refresh};
		f[i].seed = seed;
		assert_int_equal(pthread_create(&f[i].thread, NULL, fetcher_run, &f[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(f[i].thread, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(f[i].rc, 0);
		assert_int_equal(f[i].same, BYTES);
		assert_int_equal(f[i].id, f[0].id);
	}
	return f[0].id;
}

DAEMON_TEST(threads_of_a_node_fetch_and_refresh_a_model_once)
{
	struct sluice_blob_source source = {.size = sizeof(source)};
	struct daemon other;
	struct sluice_origin origin;
	sluice_context *ctx;
	sluice_store *store;
	sluice_blob *blob;
	uint64_t first;

	assert_ok(sluice_context_new(NULL, &ctx));
	origin = origin_of(ctx);
	daemon_start(&other, daemon_options);
	store = daemon_connect(&other);
	put_model(store, &origin, 1);
	first = assert_fetched(d->store, &origin, false, 1);
	assert_int_equal(assert_fetched(d->store, &origin, true, 1), first);
	put_model(store, &origin, 2);
	assert_true(assert_fetched(d->store, &origin, true, 2) != first);
	/* Two owners, each with a part. */
	assert_int_equal(stats_of(d->store).seals, 4);
	assert_ok(sluice_blob_get(d->store, "m", 0, &blob));
	assert_ok(sluice_blob_origin(blob, &source));
	assert_non_null(strstr(source.uri, "/m"));
	assert_string_equal(source.version, "");
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_get(store, "m", 0, &blob));
	assert_refused(sluice_blob_origin(blob, &source), ENOENT, "not fetched");
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete_from(d->store, &origin, "m"));
	assert_refused(sluice_blob_fetch(d->store, &origin, "m", 1000, &blob), ENOENT, "m");
	assert_int_equal(rmdir(folder), 0);
	assert_ok(sluice_store_close(store));
	daemon_stop(&other);
	assert_ok(sluice_context_close(ctx));
	assert_idle(d->store);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "64M", NULL};
	int rc;

	row_start(argc, argv);
	servers_start();
	s3_environment();
	daemon_options = options;
	rc = RUN_TESTS(NULL, NULL);
	return rc;
}
