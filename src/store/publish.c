/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a device that the program has allocated with whatever it likes, as a blob: others open the allocation by what
 * its driver tells of it, which travels in a sealed memfd, as if that were the memory.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "store/devices.h"

/* The device, and what it tells of the memory. */
static int ask_device(sluice_store *store, const void *memory, size_t n, struct sl_post **post,
                      struct sl_lent_memory *lent)
{
	struct sl_device *device = sl_device_of_memory(memory);
	uint64_t before;
	int rc;

	if (!device)
		return sl_fail(-EINVAL, "%p is no memory of a device", memory);
	rc = sl_post_numbered(store, device->index, post);
	if (rc)
		return rc;
	if (!device->sharing->lend)
		return sl_fail(-ENOTSUP, "%s cannot share what others have allocated",
		               device->name);
	rc = device->sharing->lend(device, memory, lent);
	if (rc)
		return sl_fail(rc, "%s cannot share this memory: %s", device->name,
		               sl_error_text(rc));
	before = (uint64_t)((uintptr_t)memory - (uintptr_t)lent->start);
	if (before > lent->length || n > lent->length - before)
		return sl_fail(-EINVAL, "%zu bytes from %p on are not all in one allocation", n,
		               memory);
	return 0;
}

/* The lease of a region that is there already; what is offered for it is the letter. */
static int offer(sluice_blob *blob, const struct sl_lent_memory *lent, int letter)
{
	struct sl_far far = {.kind = SLUICE_BLOB_OF_PROCESS, .post = blob->post};
	size_t bytes = blob->bytes;
	union sl_message m;
	int rc;

	/* The region is the whole allocation. */
	blob->bytes = lent->length;
	rc = sl_blobs_lease(blob->store, &blob, 1);
	blob->bytes = bytes;
	if (rc)
		return rc;
	if (blob->lease.place.kind != SLUICE_BLOB_OF_PROCESS || !blob->lease.make)
		return sl_fail(-EPROTO, "the store gives what it was not asked for");
	far.region = blob->lease.place.region;
	far.turn = blob->turn;
	rc = sl_far_add_own(blob->store, &far, (void *)(uintptr_t)lent->start, lent->length,
	                    &blob->mapping);
	if (rc)
		return rc;
	sl_message_begin(&m, SL_MSG_OFFER, 0, 0);
	m.offer.region = far.region;
	rc = sl_tell(blob->store, &m, blob->turn, letter);
	sl_store_step("client: lent");
	return rc;
}

int sluice_blob_publish(sluice_store *store, const char *name, const void *memory, size_t n,
                        const struct sluice_blob_options *o, sluice_blob **out)
{
	struct sluice_blob_request request = {name, n, -1, o};
	int rc = sl_store_check(store, "sluice_blob_publish");
	struct sl_lent_memory lent;
	struct sl_post *post;
	sluice_blob *blob;
	int letter = -1;

	if (!rc && !out)
		rc = sl_fail(-EINVAL, "sluice_blob_publish: out is NULL");
	if (!rc)
		rc = sl_blob_prepare(store, &request, &blob);
	if (rc)
		return rc;
	rc = ask_device(store, memory, n, &post, &lent);
	if (!rc) {
		blob->flags &= ~(unsigned)(SLUICE_BLOB_RESERVE | SLUICE_BLOB_ALONE);
		blob->post = post;
		blob->device = post->device->index;
		blob->kind = SLUICE_BLOB_OF_PROCESS;
		atomic_init(&blob->data, (char *)(uintptr_t)memory);
		blob->start = (uint64_t)((uintptr_t)memory - (uintptr_t)lent.start);
		rc = sl_memory_begin("sluice-lent", sizeof(lent), &lent, sizeof(lent), true,
		                     &letter);
		if (rc)
			sl_fail(rc, "cannot make a memfd: %s", sl_error_text(rc));
	}
	if (!rc) {
		rc = offer(blob, &lent, letter);
		close(letter);
		if (rc == -ESTALE)
			rc = sl_fail(-ECONNRESET, "the server was replaced");
	}
	if (!rc)
		rc = sl_blobs_seal(store, &blob, 1);
	if (rc)
		sl_blobs_give_up(&blob, 1, rc);
	else
		*out = blob;
	return rc;
}
