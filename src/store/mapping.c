/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions in our address space: each at most once for reading, by the processor or by a device, and once for writing.
 *
 *   EXPECTED  the server has leased a place in it, and it is to be made by us; or somebody begins to map it
 *   COMING    a thread is in the kernel or in the driver, or asks the server. Others who want it wait for that thread
 *   MAPPED    there
 *
 * A mapping without users is kept for a while (store->idle, post->idle), but for those that are of no more use: those that
 * are doomed, and those for writing of a device's region for one blob. Who drops the last use of one of ours unmaps it;
 * those of drivers go to the mapper.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/devices.h"

/* ----------------------------------------------------------------------------------- the table */

struct sl_mapping *sl_mapping_find(sluice_store *store, uint64_t region, bool writable,
                                   const struct sl_device *by)
{
	sl_list_each (link, sl_mapping_bucket(store, region)) {
		struct sl_mapping *mapping = SL_CONTAINER(link, struct sl_mapping, bucket);

		if (!mapping->doomed && mapping->region == region &&
		    mapping->writable == writable && mapping->by == by)
			return mapping;
	}
	return NULL;
}

struct sl_mapping *sl_mapping_add(sluice_store *store, uint64_t region, bool far,
                                  enum sl_mapping_state state)
{
	struct sl_mapping *mapping = calloc(1, sizeof(*mapping));

	if (!mapping)
		return NULL;
	mapping->far = far;
	mapping->region = region;
	mapping->state = state;
	mapping->kind = SLUICE_BLOB_ON_DEVICE;
	sl_list_append(sl_mapping_bucket(store, region), &mapping->bucket);
	return mapping;
}

void sl_mapping_leave(sluice_store *store, struct sl_mapping *mapping, struct sl_list *gone)
{
	struct sl_devices *devices = sl_devices_of(store);

	mapping->doomed = true;
	if (mapping->far) {
		sl_list_append(&devices->mapped.leaving, &mapping->idle);
		pthread_cond_signal(&devices->mapped.work);
		return;
	}
	if (sl_list_linked(&mapping->bucket))
		sl_list_remove(&mapping->bucket);
	sl_list_append(gone, &mapping->idle);
}

static size_t *idle_bytes(sluice_store *store, const struct sl_mapping *mapping)
{
	return mapping->far ? &mapping->post->idle_bytes : &store->idle_bytes;
}

static void take_from_idle(sluice_store *store, struct sl_mapping *mapping)
{
	if (!sl_list_linked(&mapping->idle))
		return;
	sl_list_remove(&mapping->idle);
	*idle_bytes(store, mapping) -= mapping->bytes;
}

void sl_mapping_doom(sluice_store *store, struct sl_mapping *mapping, struct sl_list *gone)
{
	if (mapping->doomed)
		return;
	mapping->doomed = true;
	if (mapping->users)
		return;
	take_from_idle(store, mapping);
	sl_mapping_leave(store, mapping, gone);
}

/* The server may give memory to others for writing that we do not have mapped so any more. turn: of the server that is to
 * hear that, or 0. */
static void free_gone(sluice_store *store, struct sl_list *gone, uint64_t turn)
{
	struct sl_list *link;

	while ((link = sl_list_take(gone))) {
		struct sl_mapping *mapping = SL_CONTAINER(link, struct sl_mapping, idle);

		if (mapping->base)
			munmap(mapping->base, mapping->bytes);
		if (mapping->base && mapping->writable && turn)
			sl_tell_id(store, SL_MSG_DROP, mapping->region, turn);
		free(mapping);
	}
}

/* ----------------------------------------------------------------------------------------- map */

/* Large ones at multiples of a huge page, or none of these can be mapped as one. */
static void *map_aligned(int fd, size_t bytes, int protection)
{
	size_t whole = sl_whole_pages(bytes), room = whole + SL_HUGE_PAGE, before;
	char *at;

	if (bytes < SL_HUGE_PAGE)
		return mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return MAP_FAILED;
	before = -(uintptr_t)at % SL_HUGE_PAGE;
	if (mmap(at + before, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int error = errno;

		munmap(at, room);
		errno = error;
		return MAP_FAILED;
	}
	if (before)
		munmap(at, before);
	if (before < SL_HUGE_PAGE)
		munmap(at + before + whole, SL_HUGE_PAGE - before);
	return at + before;
}

static bool is_untouched(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && !st.st_blocks;
}

int sl_region_ask(sluice_store *store, uint64_t region, bool writable, int64_t deadline,
                  union sl_message *m, struct sl_reply *out)
{
	int rc;

	do {
		sl_message_begin(m, SL_MSG_REGION, 0, 0);
		m->region.region = region;
		m->region.writable = writable;
		rc = sl_call(store, m, SL_MSG_MEMORY, deadline, out);
		/* -EAGAIN: many threads have asked at once; this thread has read their answers meanwhile. */
	} while (rc == -EAGAIN);
	return rc;
}

int sl_mapping_map(struct sl_mapping *mapping, int fd)
{
	void *base = map_aligned(fd, mapping->bytes,
	                         mapping->writable ? PROT_READ | PROT_WRITE : PROT_READ);

	if (base == MAP_FAILED)
		return sl_fail(-errno, "cannot map %zu bytes: %s", mapping->bytes,
		               sl_error_text(-errno));
	/* A child that outlives us shall not write into what is others' by then. */
	if (mapping->writable)
		madvise(base, mapping->bytes, MADV_DONTFORK);
	mapping->fresh = mapping->writable && mapping->bytes >= SL_HUGE_PAGE && is_untouched(fd);
	mapping->base = base;
	return 0;
}

/* With the mutex: one that is there, or that is now the caller's to bring about (COMING); NULL with an error. */
static struct sl_mapping *claim(sluice_store *store, const struct sl_far *far, int64_t deadline,
                                int *rc)
{
	struct sl_devices *devices = sl_devices_of(store);
	int64_t until = deadline == SL_FOREVER ? SL_FOREVER : deadline + 2 * SL_GRACE_NS;
	struct sl_mapping *mapping;

	for (;;) {
		mapping = sl_mapping_find(store, far->region, far->writable, far->by);
		if (!sl_is_current(store, far->turn, far->writable) ||
		    (!mapping && far->writable && far->post)) {
			*rc = sl_fail(-ESTALE, "there is no such memory any more");
			return NULL;
		}
		if (mapping && mapping->state == SL_MAPPED) {
			if (!mapping->users++)
				take_from_idle(store, mapping);
			return mapping;
		}
		if (!mapping && (!far->post || devices->mapped.telling != far->region))
			mapping = sl_mapping_add(store, far->region, far->post, SL_EXPECTED);
		else if (!mapping || mapping->state == SL_COMING) {
			/* Ended by the thread that brings it, or has told of the region; or by the time. */
			*rc = sl_cond_wait(&store->mapped, &store->mutex, until);
			if (!*rc)
				continue;
			*rc = sl_fail(-ETIMEDOUT, "the server did not answer in time");
			return NULL;
		}
		if (!mapping) {
			*rc = sl_fail(-ENOMEM, "no memory");
			return NULL;
		}
		mapping->writable = far->writable;
		mapping->post = far->post;
		mapping->by = far->by;
		mapping->kind = far->kind;
		mapping->state = SL_COMING;
		mapping->users = 1;
		return mapping;
	}
}

int sl_mapping_acquire(sluice_store *store, const struct sl_far *far, int64_t deadline,
                       struct sl_mapping **out)
{
	struct sl_mapping *mapping;
	struct sl_list gone;
	int rc = 0;

	sl_list_init(&gone);
	sl_mutex_lock(&store->mutex);
	*out = mapping = claim(store, far, deadline, &rc);
	sl_mutex_unlock(&store->mutex);
	if (!mapping || mapping->state == SL_MAPPED)
		return rc;
	rc = sl_far_bring(store, mapping, far->turn, deadline);
	sl_mutex_lock(&store->mutex);
	mapping->state = SL_MAPPED;
	/* What was made for a server that is gone is of no use; what another daemon's calls so is something else. */
	if (!rc && (mapping->stale || (far->writable && mapping->doomed)))
		rc = sl_fail(-ESTALE, "there is no such memory any more");
	if (rc) {
		*out = NULL;
		mapping->users = 0;
		/* Else there was no memory to make it of; another time, perhaps. */
		if (rc == -ESTALE || !far->writable || !far->post || mapping->doomed)
			sl_mapping_leave(store, mapping, &gone);
		else
			mapping->state = SL_EXPECTED;
	}
	pthread_cond_broadcast(&store->mapped);
	sl_mutex_unlock(&store->mutex);
	free_gone(store, &gone, 0);
	return rc;
}

/* ------------------------------------------------------------------------------------- release */

/* For the next get, as far as the limit goes. With the mutex. */
static void keep(sluice_store *store, struct sl_mapping *mapping, struct sl_list *gone)
{
	struct sl_list *idle = mapping->far ? &mapping->post->idle : &store->idle;
	size_t *bytes = idle_bytes(store, mapping);
	size_t most = mapping->far ? store->device_cache_bytes : store->cache_bytes;

	sl_list_append(idle, &mapping->idle);
	*bytes += mapping->bytes;
	while (*bytes > most)
		sl_mapping_doom(store, SL_CONTAINER(idle->next, struct sl_mapping, idle), gone);
}

void sl_mapping_release(sluice_store *store, struct sl_mapping *mapping)
{
	struct sl_list gone;
	uint64_t turn;

	sl_list_init(&gone);
	sl_mutex_lock(&store->mutex);
	turn = mapping->stale ? 0 : store->turn;
	if (!--mapping->users) {
		if (mapping->doomed || (mapping->far && mapping->writable && mapping->alone))
			sl_mapping_leave(store, mapping, &gone);
		else if (!mapping->far || (!mapping->writable && !mapping->own))
			keep(store, mapping, &gone);
	}
	sl_mutex_unlock(&store->mutex);
	free_gone(store, &gone, turn);
}

void sl_mappings_forget(sluice_store *store, bool all)
{
	struct sl_list gone;

	sl_list_init(&gone);
	for (unsigned i = 0; i < SL_MAPPING_BUCKETS; i++)
		for (struct sl_list *link = store->mappings[i].next, *next;
		     link != &store->mappings[i]; link = next) {
			struct sl_mapping *mapping = SL_CONTAINER(link, struct sl_mapping, bucket);

			next = link->next;
			/* No server leases us a place in what an earlier server had us make or map. */
			if (!all && !mapping->writable)
				continue;
			if (all || !mapping->far) {
				sl_list_remove(&mapping->bucket);
				mapping->stale = true;
			}
			sl_mapping_doom(store, mapping, &gone);
		}
	free_gone(store, &gone, 0);
}

void sl_mappings_free(sluice_store *store)
{
	sl_mutex_lock(&store->mutex);
	sl_mappings_forget(store, true);
	sl_mutex_unlock(&store->mutex);
	sl_far_free(store);
}
