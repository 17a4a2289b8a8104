/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice store: collections
 *
 * Publishes the tensors of files, and lists those of a collection.
 *
 * Threads: the main thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "cli_store.h"
#include "cli_tensors.h"

int cli_publish_tensors(const char *socket, const char *name, sluice_tensors *tensors,
                        const struct sluice_tensor_want *wants, size_t count, int device,
                        unsigned flags)
{
	struct sluice_collection_options options = SLUICE_COLLECTION_OPTIONS_INIT;
	sluice_collection *made = NULL;
	sluice_store *store;

	if (!name[0])
		return cli_fail(-EINVAL, "a name is empty");
	options.flags = flags;
	int rc = cli_said(sluice_store_open(socket, NULL, &store));
	if (rc)
		return rc;
	rc = cli_said(sluice_collection_publish_files(store, name, tensors, wants, count, device,
	                                              &options, NULL, &made));
	sluice_collection_release(made);
	sluice_store_close(store);
	return rc;
}

int cli_store_put_tensors(const struct cli_store_options *o)
{
	const char *const *files = (const char *const *)o->arguments.of + 1;
	unsigned flags = (o->replace ? SLUICE_BLOB_REPLACE : SLUICE_BLOB_RESERVE) |
	                 (o->cache ? SLUICE_BLOB_CACHE : 0) | (o->pin ? SLUICE_BLOB_PIN : 0);
	sluice_tensors *tensors = NULL;
	sluice_context *ctx = NULL;
	int rc = cli_context_new(NULL, 0, &ctx);

	if (!rc)
		rc = cli_said(
			sluice_tensors_open(ctx, files, o->arguments.count - 1, NULL, &tensors));
	if (!rc)
		rc = cli_publish_tensors(o->socket, o->arguments.of[0], tensors, NULL, 0, o->device,
		                         flags);
	sluice_tensors_free(tensors);
	sluice_context_close(ctx);
	return rc;
}

static void print_tensor_json(const char *collection, const struct sluice_collection_tensor *t)
{
	cli_json_string("{\"collection\": ", collection);
	cli_json_string(", \"tensor\": ", t->name);
	printf(", \"dtype\": \"%s\", \"shape\": [", sluice_type_word(t->type));
	for (unsigned i = 0; i < t->rank; i++)
		printf("%s%" PRIu64, i ? ", " : "", t->shape[i]);
	printf("], \"bytes\": %" PRIu64 "}\n", t->bytes);
}

int cli_store_ls_tensors(sluice_store *store, const char *name, uint64_t id, bool json)
{
	struct sluice_collection_tensor t = {.size = sizeof(t)};
	sluice_collection *collection;
	int rc = name[0] ? sluice_collection_attach(store, name, -1, 0, &collection)
	                 : sluice_collection_attach_id(store, id, 0, &collection);

	/* It was deleted since it was listed, or has parts that are no tensors. */
	if (rc == -ENOENT || rc == -EPROTO)
		return 0;
	if (rc) {
		CLI_OWNED char *shown = name[0] ? cli_visible(name) : cli_format("#%" PRIu64, id);

		return cli_fail(rc, "'%s': %s", shown, sluice_last_message());
	}
	for (size_t i = 0; i < sluice_collection_count(collection); i++) {
		sluice_collection_get(collection, i, &t);
		if (json)
			print_tensor_json(name, &t);
		else
			cli_print_tensor(t.name, t.type, t.rank, t.shape, t.bytes, NULL);
	}
	sluice_collection_release(collection);
	return 0;
}
