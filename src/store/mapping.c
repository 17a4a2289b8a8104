/* SPDX-License-Identifier: Apache-2.0 */
/* Regions in our address space, each at most once for reading and once for writing. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/devices.h"

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

void sl_mapping_use(struct sl_mapping *mapping, size_t *idle_bytes)
{
	if (mapping->users++ || !sl_list_linked(&mapping->idle))
		return;
	sl_list_remove(&mapping->idle);
	*idle_bytes -= mapping->bytes;
}

static void mapping_free(struct sl_mapping *mapping)
{
	munmap(mapping->base, mapping->bytes);
	free(mapping);
}

/* The server may give memory to others for writing that we do not have mapped so any more. */
static void free_told(sluice_store *store, struct sl_mapping *mapping, uint64_t turn)
{
	uint64_t region = mapping->region;
	bool tell = mapping->writable && turn;

	mapping_free(mapping);
	if (tell)
		sl_tell_id(store, SL_DROP, region, turn);
}

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
		sl_message_begin(m, SL_REGION, 0, 0);
		m->region.region = region;
		m->region.writable = writable;
		rc = sl_call(store, m, SL_MEMORY, deadline, out);
		/* -EAGAIN: many threads have asked at once; this thread has read their answers meanwhile. */
	} while (rc == -EAGAIN);
	return rc;
}

static int map(sluice_store *store, uint64_t region, bool writable, int64_t deadline,
               struct sl_mapping **out)
{
	struct sl_mapping *mapping = calloc(1, sizeof(*mapping));
	struct sl_reply reply;
	union sl_message m;
	int fd, rc;

	if (!mapping)
		return sl_fail(-ENOMEM, "no memory");
	rc = sl_region_ask(store, region, writable, deadline, &m, &reply);
	if (rc) {
		free(mapping);
		return rc;
	}
	fd = reply.fd;
	mapping->base =
		map_aligned(fd, m.memory.bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ);
	if (mapping->base == MAP_FAILED) {
		rc = sl_fail(-errno, "cannot map %llu bytes: %s",
		             (unsigned long long)m.memory.bytes, sl_error_text(-errno));
		free(mapping);
		close(fd);
		return rc;
	}
	/* A child that outlives us shall not write into what is others' by then. */
	if (writable)
		madvise(mapping->base, m.memory.bytes, MADV_DONTFORK);
	mapping->fresh = writable && m.memory.bytes >= SL_HUGE_PAGE && is_untouched(fd);
	close(fd);
	mapping->region = region;
	mapping->bytes = m.memory.bytes;
	mapping->writable = writable;
	mapping->users = 1;
	*out = mapping;
	return 0;
}

int sl_mapping_acquire(sluice_store *store, uint64_t region, uint64_t turn, bool writable,
                       int64_t deadline, struct sl_mapping **out)
{
	struct sl_mapping *found = NULL, *made = NULL;
	int rc = 0;

	while (!rc && !found) {
		pthread_mutex_lock(&store->mutex);
		if (!sl_is_current(store, turn, writable)) {
			rc = sl_fail(-ESTALE, "there is no such memory any more");
		} else if ((found = sl_mapping_find(store, region, writable, NULL))) {
			sl_mapping_use(found, &store->idle_bytes);
		} else if (made) {
			sl_list_append(sl_mapping_bucket(store, region), &made->bucket);
			found = made;
		}
		pthread_mutex_unlock(&store->mutex);
		if (!rc && !found)
			rc = map(store, region, writable, deadline, &made);
	}
	/* Another thread may have been faster, or another server. */
	if (made && made != found)
		mapping_free(made);
	*out = found;
	return rc;
}

/* Nobody uses it. What is to be unmapped, linked by `idle`, goes to `victims`. With the mutex. */
static void retire(sluice_store *store, struct sl_mapping *mapping, struct sl_list *victims)
{
	if (mapping->stale) {
		sl_list_append(victims, &mapping->idle);
		return;
	}
	sl_list_append(&store->idle, &mapping->idle);
	store->idle_bytes += mapping->bytes;
	while (store->idle_bytes > store->cache_bytes) {
		struct sl_mapping *victim = SL_CONTAINER(store->idle.next, struct sl_mapping, idle);

		sl_list_remove(&victim->idle);
		sl_list_remove(&victim->bucket);
		store->idle_bytes -= victim->bytes;
		sl_list_append(victims, &victim->idle);
	}
}

void sl_mapping_release(sluice_store *store, struct sl_mapping *mapping)
{
	struct sl_list victims, *link;
	uint64_t turn;

	if (mapping->far) {
		sl_far_release(store, mapping);
		return;
	}
	sl_list_init(&victims);
	pthread_mutex_lock(&store->mutex);
	turn = mapping->stale ? 0 : store->turn;
	if (!--mapping->users)
		retire(store, mapping, &victims);
	pthread_mutex_unlock(&store->mutex);
	while ((link = sl_list_take(&victims)))
		free_told(store, SL_CONTAINER(link, struct sl_mapping, idle), turn);
}

void sl_mappings_forget(sluice_store *store, bool all)
{
	for (unsigned i = 0; i < SL_MAPPING_BUCKETS; i++)
		for (struct sl_list *link = store->mappings[i].next, *next;
		     link != &store->mappings[i]; link = next) {
			struct sl_mapping *mapping = SL_CONTAINER(link, struct sl_mapping, bucket);

			next = link->next;
			if (mapping->far)
				sl_far_lapse(store, mapping, all);
			if (mapping->far || (!all && !mapping->writable))
				continue;
			sl_list_remove(&mapping->bucket);
			mapping->stale = true;
			if (mapping->users)
				continue;
			sl_list_remove(&mapping->idle);
			store->idle_bytes -= mapping->bytes;
			mapping_free(mapping);
		}
}

void sl_mappings_free(sluice_store *store)
{
	pthread_mutex_lock(&store->mutex);
	sl_mappings_forget(store, true);
	pthread_mutex_unlock(&store->mutex);
	sl_far_free(store);
}
