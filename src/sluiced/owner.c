/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sluiced/server.h"

struct sl_owner *sl_owner_find(struct sl_server *server, uid_t uid)
{
	sl_list_each (link, &server->owners) {
		struct sl_owner *owner = SL_CONTAINER(link, struct sl_owner, link);

		if (owner->uid == uid)
			return owner;
	}
	return NULL;
}

int sl_owner_open(struct sl_server *server, uint32_t row, struct sl_owner **out)
{
	struct sl_owner *owner = calloc(1, sizeof(*owner));
	unsigned broken = 0;
	int rc;

	if (!owner)
		return sl_fail(-ENOMEM, "no memory");
	owner->row = row;
	sl_list_init(&owner->warm);
	sl_list_init(&owner->caches);
	rc = sl_segment_map(sl_vault_fd(server->vault, row), true, &owner->segment);
	if (!rc)
		rc = sl_catalogue_open(owner->segment, &broken, &owner->catalogue);
	if (!rc) {
		owner->uid = sl_segment_uid(owner->segment);
		owner->blobs = calloc(sl_segment_slots(owner->segment), sizeof(*owner->blobs));
		owner->by_id = malloc(sl_segment_slots(owner->segment) * sizeof(*owner->by_id));
		if (!owner->blobs || !owner->by_id)
			rc = -ENOMEM;
	}
	if (rc) {
		sl_owner_free(owner);
		return sl_fail(rc, "cannot open a catalogue: %s", sl_error_text(rc));
	}
	memset(owner->by_id, 0xff, sl_segment_slots(owner->segment) * sizeof(*owner->by_id));
	sl_list_append(&server->owners, &owner->link);
	*out = owner;
	return 0;
}

/* After a failure; otherwise it stays as long as the server. */
void sl_owner_free(struct sl_owner *owner)
{
	sl_catalogue_close(owner->catalogue);
	sl_segment_unmap(owner->segment);
	free(owner->blobs);
	free(owner->by_id);
	free(owner);
}

static uint32_t *first_of(const struct sl_owner *owner, uint64_t id)
{
	return &owner->by_id[id % sl_segment_slots(owner->segment)];
}

void sl_owner_add(struct sl_owner *owner, uint32_t slot, uint64_t id)
{
	uint32_t *first = first_of(owner, id);

	owner->blobs[slot].id = id;
	owner->blobs[slot].next = *first;
	*first = slot;
}

void sl_owner_remove(struct sl_owner *owner, uint32_t slot)
{
	uint32_t *at = first_of(owner, owner->blobs[slot].id);

	while (*at != slot)
		at = &owner->blobs[*at].next;
	*at = owner->blobs[slot].next;
	owner->blobs[slot] = (struct sl_blob){0};
}

uint32_t sl_owner_by_id(const struct sl_owner *owner, uint64_t id)
{
	uint32_t slot = *first_of(owner, id);

	while (slot != SL_NO_SLOT && owner->blobs[slot].id != id)
		slot = owner->blobs[slot].next;
	return slot;
}

void sl_owner_unmark(struct sl_owner *owner, uint32_t slot)
{
	struct sl_list *link = &owner->blobs[slot].cache;

	if (!sl_list_linked(link))
		return;
	sl_list_remove(link);
	owner->cache_count--;
}

void sl_owner_mark(struct sl_owner *owner, uint32_t slot)
{
	struct sl_blob_record record;

	sl_owner_unmark(owner, slot);
	sl_catalogue_record(owner->catalogue, slot, &record);
	if (!(record.flags & SLUICE_BLOB_CACHE) || record.flags & SLUICE_BLOB_PIN ||
	    record.place.kind == SLUICE_BLOB_OF_PROCESS)
		return;
	sl_list_append(&owner->caches, &owner->blobs[slot].cache);
	owner->cache_count++;
}

int sl_owner_get(struct sl_server *server, uid_t uid, struct sl_owner **out)
{
	struct sl_owner *owner = sl_owner_find(server, uid);
	struct sl_kept kept = {.kind = SL_KIND_CATALOGUE, .uid = uid};
	uint32_t row;
	int fd, rc;

	if (owner) {
		*out = owner;
		return 0;
	}
	rc = sl_segment_new(server->settings->user_blobs, uid, &fd);
	if (rc)
		return sl_fail(rc, "cannot make a catalogue: %s", sl_error_text(rc));
	rc = sl_vault_put(server->vault, &kept, fd, &row);
	if (rc) {
		close(fd);
		return rc;
	}
	rc = sl_owner_open(server, row, out);
	if (rc)
		sl_vault_drop(server->vault, row);
	return rc;
}
