/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "publish.h"

static int note(struct publish *p, int rc)
{
	if (rc < 0 && !p->failed) {
		p->failed = rc;
		snprintf(p->message, sizeof p->message, "%s", sluice_last_message());
	}
	return rc;
}

/* A list is no snapshot: the one blob of a simulation that is not sealed may be another one, ahead of the cursor,
 * whenever this looks. So it looks some times before it deletes anything. */
#define LOOKS 8

/* A blob that is not sealed is a simulation that goes on. */
static int clear(struct publish *p, bool delete)
{
	struct sluice_blob_info infos[SLUICE_BLOB_BATCH];
	char prefix[SLUICE_BLOB_NAME_MOST + 1];
	uint64_t cursor = 0;
	int count;

	infos[0].size = sizeof infos[0];
	snprintf(prefix, sizeof prefix, "%s/", p->options.name);
	while ((count = sluice_blob_list(p->store, prefix, &cursor, infos, SLUICE_BLOB_BATCH)) > 0)
		for (int i = 0; i < count; i++) {
			if (infos[i].state == SLUICE_BLOB_IS_CREATED) {
				snprintf(p->message, sizeof p->message,
				         "process %d publishes under '%s' already",
				         infos[i].process, p->options.name);
				return p->failed = -EBUSY;
			}
			if (delete)
				sluice_blob_delete(p->store, infos[i].name);
		}
	return note(p, count);
}

static int reserve(struct publish *p, unsigned number, sluice_blob **out)
{
	const struct publish_options *o = &p->options;
	struct sluice_blob_metadata metadata = SLUICE_BLOB_METADATA_INIT;
	struct sluice_blob_options options = SLUICE_BLOB_OPTIONS_INIT;
	char name[SLUICE_BLOB_NAME_MOST + 2], text[96];

	/* One that is cut is too long for the store, too. */
	snprintf(name, sizeof name, "%s/%06u", o->name, number);
	metadata.type = SLUICE_FLOAT32;
	metadata.rank = 2;
	metadata.shape[0] = (int64_t)o->rows;
	metadata.shape[1] = (int64_t)o->columns;
	metadata.note = text;
	metadata.note_bytes = (size_t)snprintf(text, sizeof text, "{\"image\": %u, \"step\": %llu}",
	                                       number, (number + 1ULL) * o->steps);
	/* Where memory is short the oldest ones go. */
	options.flags = SLUICE_BLOB_RESERVE | SLUICE_BLOB_CACHE;
	options.metadata = &metadata;
	return note(p, sluice_blob_create(p->store, name, o->rows * o->columns * sizeof(float), -1,
	                                  &options, out));
}

int publish_open(struct publish *p, const struct publish_options *options)
{
	/* Nobody wants to wait for a daemon that is gone while he could compute. */
	struct sluice_store_options store = {.size = sizeof store, .patience_ms = 500};

	*p = (struct publish){.options = *options};
	if (!note(p, sluice_store_open(NULL, &store, &p->store))) {
		for (int look = 0; !p->failed && look <= LOOKS; look++)
			clear(p, look == LOOKS);
		if (!p->failed)
			reserve(p, 0, &p->next);
	}
	if (p->failed)
		publish_close(p);
	return p->failed;
}

/* False: this was the last one. */
static bool next_number(const struct publish *p, unsigned *number)
{
	unsigned last = p->options.images - 1;

	if (*number == last)
		return false;
	*number = p->options.every < last - *number ? *number + p->options.every : last;
	return true;
}

void publish_image(struct publish *p, unsigned number, const struct reaction *reaction)
{
	sluice_blob *following = NULL;
	int rc = 0;

	if (!p->next || number != p->number)
		return;
	reaction_copy_v(reaction, sluice_blob_mutable_data(p->next));
	if (next_number(p, &number))
		rc = reserve(p, number, &following);
	if (!rc) {
		rc = sluice_blob_seal(p->next);
		/* The daemon was replaced meanwhile: this one is missing, and the next ones are not. */
		if (rc == -ECONNRESET)
			rc = 0;
		else if (!note(p, rc))
			p->count++;
	}
	sluice_blob_release(p->next);
	p->next = following;
	p->number = number;
	if (rc)
		publish_close(p);
}

void publish_close(struct publish *p)
{
	sluice_blob_release(p->next);
	sluice_store_close(p->store);
	p->next = NULL;
	p->store = NULL;
}
