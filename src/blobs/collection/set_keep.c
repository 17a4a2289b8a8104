/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of collections that outlive their memory
 *
 * A collection is kept: its parts are unmapped, the owner is released, and the addresses stay.
 * Later another version with the same table is mapped there. On the caller's thread, which calls
 * the driver.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collection/collection.h"
#include "io/io.h"

#define TRIES 8 /* as for an attach */

int sluice_collection_keep(sluice_collection *c)
{
	int rc = sl_collection_check(c, "sluice_collection_keep");
	unsigned parts, done = 0;
	sluice_blob *part;
	bool whole = true;

	if (rc)
		return rc;
	parts = sluice_blob_parts(c->owner);
	struct sluice_addresses *kept = calloc(parts, sizeof(*kept));
	if (!kept)
		return sl_fail(-ENOMEM, "no memory");
	sl_collection_settle(c);
	while (!rc && done < parts) {
		rc = sluice_blob_part_vacate(c->owner, done, &kept[done]);
		done += !rc;
	}
	if (!rc) {
		sluice_blob_release(c->owner);
		c->owner = NULL;
		c->kept = kept;
		return 0;
	}
	/* The owner still has the bytes: the parts go back to where they were. */
	char *message = strdup(sluice_last_message());
	while (done--)
		if (sluice_blob_part_at(c->owner, done, &kept[done], &part)) {
			sluice_addresses_free(&kept[done]);
			whole = false;
		}
	if (!whole) {
		sluice_blob_release(c->owner);
		c->owner = NULL;
	}
	sl_fail_with(rc, message);
	free(message);
	free(kept);
	return rc;
}

/* Compares two tables, but for the small files. Returns the name of a row that differs, or NULL. */
static const char *keep_difference(const struct sl_table *a, const struct sl_table *b)
{
	if (a->head.count != b->head.count || a->head.parts != b->head.parts)
		return "(their number)";
	for (size_t i = 0; i < a->head.count; i++) {
		const struct sl_table_row *x = &a->rows[i], *y = &b->rows[i];
		const char *name = a->text + x->name;

		if (strcmp(name, b->text + y->name) || x->bytes != y->bytes ||
		    x->offset != y->offset || x->part != y->part || x->type != y->type ||
		    x->rank != y->rank ||
		    memcmp(a->shapes + x->shape, b->shapes + y->shape,
		           x->rank * sizeof(*a->shapes)))
			return name;
	}
	return NULL;
}

/* Takes the owner over, unless it fails. */
static int keep_take(sluice_collection *c, sluice_blob *owner)
{
	struct sl_table table;
	int rc = sl_table_read(sluice_blob_data(owner), sluice_blob_size(owner),
	                       sluice_blob_parts(owner), &table);

	if (rc)
		return rc;
	const char *difference = keep_difference(&c->table, &table);
	if (difference)
		rc = sl_fail(-EINVAL,
		             "the collection has other tensors than the kept one, or at other "
		             "places: '%.256s'",
		             difference);
	else
		rc = sl_collection_map(c, owner, &table, c->kept);
	if (rc) {
		free(table.memory);
		return rc;
	}
	free(c->table.memory);
	free(c->kept);
	c->table = table;
	c->kept = NULL;
	c->owner = owner;
	return 0;
}

int sluice_collection_attach_at(sluice_store *s, const char *name, int timeout_ms,
                                sluice_collection *c)
{
	sluice_blob *owner;
	int rc = -ESTALE;

	if (!c || !name)
		return sl_fail(-EINVAL, "sluice_collection_attach_at: NULL");
	if (!sl_process_is(c->process))
		return sl_process_refuse();
	if (!c->kept)
		return sl_fail(-EINVAL, "sluice_collection_attach_at: the collection is not kept");
	for (unsigned i = 0; rc == -ESTALE && i < TRIES; i++) {
		rc = sluice_blob_get(s, name, timeout_ms, &owner);
		if (rc)
			return rc;
		rc = keep_take(c, owner);
		if (rc)
			sluice_blob_release(owner);
	}
	return rc;
}
