/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: memory for blobs, its accounts, and its reuse.
 *
 * A region without blobs is kept for a while, because memory that was touched is ten times faster
 * than new memory. The client that has it mapped for writing uses it again; any other client does
 * after that client has unmapped it, or is dead. server->memory->kept has all such regions in the
 * order in which they became empty. Regions that were not used for --keep-time, or exceed --keep,
 * are given back.
 *
 * While a client makes blobs in a region, all its memory counts. In a slab of the host without a
 * writer nothing is made any more: its free ranges are given back, and only the used ranges count.
 *
 * Regions of devices share this until their last blob, and then leave; region_device.c has the
 * rest, allocate.c the room for new regions. On the server's thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sluiced/memory/devices.h"
#include "sluiced/peers/peers.h"
#include "sluiced/spill/spill.h"
#include "sluiced/waits/waits.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

bool sl_wanted_small(const struct sl_wanted *wanted)
{
	uint64_t most = wanted->device < 0 ? SL_SMALL_BYTES : SL_DEVICE_SMALL;

	return wanted->bytes <= most && wanted->kind != SLUICE_BLOB_OF_PROCESS &&
	       !(wanted->flags & SLUICE_BLOB_ALONE);
}

/* Sizes of small blobs double from the smallest on. Returns the index of the size. */
static unsigned slab_class(int32_t device, uint64_t bytes)
{
	uint64_t smallest = device < 0 ? SL_PAGE_BYTES : SL_DEVICE_SMALLEST;

	return bytes > smallest ? 64 - (unsigned)__builtin_clzll((bytes - 1) / smallest) : 0;
}

static struct sl_list *slab_list(struct sl_peer *peer, int32_t device, uint64_t range_bytes)
{
	return &peer->slabs[(device < 0 ? 0 : SL_CLASSES) + slab_class(device, range_bytes)];
}

uint64_t sl_wanted_range_bytes(const struct sl_wanted *wanted)
{
	uint64_t step = sl_page_size(), n = wanted->bytes;

	if (sl_wanted_small(wanted))
		return (wanted->device < 0 ? SL_PAGE_BYTES : SL_DEVICE_SMALLEST)
		       << slab_class(wanted->device, n);
	if (wanted->kind == SLUICE_BLOB_OF_PROCESS)
		return n;
	if (wanted->kind == SLUICE_BLOB_ON_DEVICE)
		step = SL_DEVICE_UNIT;
	/* Eight sizes for each power of two: at most an eighth is wasted, and sizes recur. */
	while (wanted->device < 0 && step * 16 <= n)
		step *= 2;
	return (n + step - 1) / step * step;
}

uint64_t sl_region_range_bytes(const struct sl_region *region)
{
	return region->range_bytes ? region->range_bytes : region->bytes;
}

uint64_t sl_region_host_bytes(const struct sl_region *region)
{
	return region->device < 0 ? sl_region_range_bytes(region) : 0;
}

struct sl_region *sl_region_find(struct sl_server *server, uint64_t id)
{
	sl_list_each_of (region, &server->memory->regions[id % SL_BUCKETS], struct sl_region,
	                 bucket)
		if (region->id == id)
			return region;
	return NULL;
}

/* ------------------------------------------------------------------------------------ accounts */

/* Returns a mask of all its ranges. */
static uint64_t region_all_ranges(const struct sl_region *region)
{
	return region->ranges == 64 ? UINT64_MAX : (UINT64_C(1) << region->ranges) - 1;
}

uint64_t sl_region_counted(const struct sl_region *region)
{
	return (unsigned)__builtin_popcountll(region->backed) * sl_region_range_bytes(region);
}

uint64_t sl_region_used_bytes(const struct sl_region *region)
{
	return (unsigned)__builtin_popcountll(region->used) * sl_region_range_bytes(region);
}

static uint64_t *region_account(struct sl_server *server, const struct sl_region *region)
{
	return region->device < 0 ? &server->counts.memory_bytes
	                          : &server->memory->devices[region->device].bytes;
}

/* The store does not limit memory that a process has allocated for itself. */
void sl_region_count(struct sl_server *server, struct sl_region *region)
{
	region->backed = region->kind == SLUICE_BLOB_OF_PROCESS ? 0 : region_all_ranges(region);
	*region_account(server, region) += sl_region_counted(region);
}

/* Uncounts ranges after their memory was given up. */
static void region_uncount(struct sl_server *server, struct sl_region *region, uint64_t ranges)
{
	uint64_t before = sl_region_counted(region);

	region->backed &= ~ranges;
	*region_account(server, region) -= before - sl_region_counted(region);
	server->room->look = server->room->look || region->device >= 0;
	sl_spill_look(server);
}

void sl_region_trim(struct sl_server *server, struct sl_region *region)
{
	uint64_t vain = region->backed & ~region->used;

	if (region->device >= 0 || region->away || !region->range_bytes || region->writer || !vain)
		return;
	sl_async_free_memory(server, server->descriptors->held[region->row].fd, region->range_bytes,
	                     vain);
	region_uncount(server, region, vain);
}

/* -------------------------------------------------------------------------------- make, free */

int sl_region_memfd(uint64_t bytes, int *out)
{
	int rc = sl_memory_begin("sluice-blob", bytes, NULL, 0, false, out);

	return rc ? sl_fail(rc, "cannot make memory: %s", sl_error_text(rc)) : 0;
}

int sl_region_add(struct sl_server *server, const struct sl_ledger_row *saved, uint64_t id,
                  struct sl_region **out)
{
	uint64_t ranges = saved->range_bytes ? saved->bytes / saved->range_bytes : 1;
	struct sl_region *region;

	if (!saved->bytes || ranges > SL_RANGES_MOST ||
	    (saved->range_bytes && saved->bytes % saved->range_bytes))
		return sl_fail(-EBADMSG, "a descriptor is not what the ledger says");
	region = calloc(1, sizeof(*region) + ranges * sizeof(region->slots[0]));
	if (!region)
		return sl_fail(-ENOMEM, "no memory");
	memset(region->slots, 0xff, ranges * sizeof(region->slots[0]));
	region->id = id;
	region->origin = saved->origin ? saved->origin : id;
	region->bytes = saved->bytes;
	region->range_bytes = saved->range_bytes;
	region->ranges = (unsigned)ranges;
	region->device = saved->device;
	region->kind = saved->memory;
	sl_list_init(&region->imports);
	sl_list_append(&server->memory->regions[id % SL_BUCKETS], &region->bucket);
	*out = region;
	return 0;
}

bool sl_memfd_is(int fd, uint64_t least, uint64_t most)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	return !fstat(fd, &st) && (uint64_t)st.st_size >= least && (uint64_t)st.st_size <= most &&
	       seals >= 0 && (seals & SEALS) == SEALS;
}

int sl_reopen_read_only(int fd)
{
	char path[64];
	int opened;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	opened = open(path, O_RDONLY | O_CLOEXEC);
	return opened < 0 ? -errno : opened;
}

int sl_region_open(struct sl_server *server, uint32_t row, struct sl_region **out)
{
	const struct sl_ledger_row *saved = &server->descriptors->ledger->rows[row];
	int fd = server->descriptors->held[row].fd, rc;

	if (saved->device < 0 ? !sl_memfd_is(fd, saved->bytes, saved->bytes)
	                      : !sl_device_known(server, saved->device))
		return sl_fail(-EBADMSG, "a descriptor is not what the ledger says");
	rc = sl_region_add(server, saved, saved->id, out);
	if (rc)
		return rc;
	(*out)->row = row;
	(*out)->offered = 1;
	sl_region_count(server, *out);
	return 0;
}

void sl_region_set_writer(struct sl_region *region, struct sl_peer *peer)
{
	region->writer = peer;
	sl_list_append(region->kind == SLUICE_BLOB_OF_PROCESS ? &peer->published : &peer->regions,
	               &region->writer_link);
}

/* Takes it out of the lists in which free memory is found. */
static void region_unlink(struct sl_server *server, struct sl_region *region)
{
	if (sl_list_linked(&region->link))
		sl_list_remove(&region->link);
	if (region->leaving || !sl_list_linked(&region->empty_link))
		return;
	sl_list_remove(&region->empty_link);
	server->memory->kept_count--;
	server->memory->kept_bytes -= region->bytes;
}

static void region_give_memory(struct sl_server *server, struct sl_region *region)
{
	region_unlink(server, region);
	if (region->writer)
		sl_list_remove(&region->writer_link);
	region->writer = NULL;
	/* Punching takes the memory from processes that still map it. All ranges: a client of an
	 * earlier server may have written to any. */
	if (region->device < 0)
		sl_async_free_memory(server, server->descriptors->held[region->row].fd,
		                     sl_region_range_bytes(region), region_all_ranges(region));
	region_uncount(server, region, region->backed);
	if (region->offered == 1)
		sl_descriptors_drop(server->descriptors, region->row);
}

void sl_region_free(struct sl_server *server, struct sl_region *region)
{
	sl_spill_forget(server, region);
	if (region->leaving) {
		sl_list_remove(&region->empty_link);
		server->memory->devices[region->device].leaving -= sl_region_counted(region);
	}
	if (!region->away)
		region_give_memory(server, region);
	server->memory->memfd_bytes -= region->memfd_bytes;
	sl_list_remove(&region->bucket);
	free(region);
}

void sl_region_spilled(struct sl_server *server, struct sl_region *region)
{
	region_give_memory(server, region);
	server->counts.blob_bytes -= sl_region_used_bytes(region);
	region->away = true;
}

int sl_region_restore(struct sl_server *server, struct sl_region *region, int fd)
{
	struct sl_ledger_row saved = {.kind = SL_KIND_REGION,
	                              .bytes = region->bytes,
	                              .range_bytes = region->range_bytes,
	                              .device = -1,
	                              .memory = SLUICE_BLOB_ON_HOST,
	                              .origin = region->origin};
	uint32_t row;
	int rc = sl_descriptors_put(server->descriptors, &saved, fd, &row);

	if (rc)
		return rc;
	sl_list_remove(&region->bucket);
	region->id = server->descriptors->ledger->rows[row].id;
	sl_list_append(&server->memory->regions[region->id % SL_BUCKETS], &region->bucket);
	region->row = row;
	region->offered = 1;
	sl_region_count(server, region);
	server->counts.blob_bytes += sl_region_used_bytes(region);
	region->away = region->frozen = false;
	sl_region_trim(server, region);
	return 0;
}

/* -------------------------------------------------------------------------------------- leave */

/* Uses server->event, because an answer in server->out may be under way. */
static void region_send_forget(struct sl_server *server, struct sl_peer *peer,
                               const struct sl_region *region)
{
	union sl_message *m = &server->event;

	sl_message_begin(m, SL_MSG_FORGET, 0, 1);
	m->ids.items[0].id = region->id;
	sl_peer_send(server, peer, m, -1);
}

static bool region_is_mapped(const struct sl_server *server, const struct sl_region *region)
{
	return region->writer || !sl_list_empty(&region->imports) ||
	       (region->frozen && server->memory->awaited);
}

void sl_device_free_unmapped(struct sl_server *server, struct sl_region *region)
{
	if (!region->leaving || region->used || region_is_mapped(server, region))
		return;
	sl_region_free(server, region);
	sl_store_step("server: memory of a device gone");
}

void sl_device_begin_leaving(struct sl_server *server, struct sl_region *region)
{
	if (region->leaving)
		return;
	region->leaving = true;
	sl_list_append(&server->memory->leaving, &region->empty_link);
	server->memory->devices[region->device].leaving += sl_region_counted(region);
	if (region->writer)
		region_send_forget(server, region->writer, region);
	sl_list_each_of (import, &region->imports, struct sl_import, link)
		region_send_forget(server, import->peer, region);
	sl_store_step("server: forget");
}

void sl_import_free(struct sl_import *import)
{
	sl_list_remove(&import->link);
	sl_list_remove(&import->peer_link);
	import->peer->import_count--;
	free(import);
}

/* Lets a region of a device without blobs and leases leave: now, or when nobody has it mapped. */
static void region_leave(struct sl_server *server, struct sl_region *region)
{
	/* Before the offer nobody has a mapping. */
	if (!region->offered) {
		sl_list_each_of (import, &region->imports, struct sl_import, link)
			sl_import_free(import);
		sl_region_free(server, region);
		return;
	}
	sl_device_begin_leaving(server, region);
	sl_device_free_unmapped(server, region);
}

/* ----------------------------------------------------------------------------------- use, keep */

static struct sl_region *kept_first(struct sl_server *server)
{
	return SL_CONTAINER(server->memory->kept.next, struct sl_region, empty_link);
}

/* Keeps an empty region for the next blobs. May free it at once, or older regions. */
static void kept_add(struct sl_server *server, struct sl_region *region)
{
	region->empty_since = server->now;
	sl_list_append(&server->memory->kept, &region->empty_link);
	server->memory->kept_count++;
	server->memory->kept_bytes += region->bytes;
	sl_server_at(server, server->now + server->settings->keep_ns);
	while (server->memory->kept_count > SL_KEPT_MOST ||
	       server->memory->kept_bytes > server->settings->keep_bytes)
		sl_region_free(server, kept_first(server));
}

void sl_regions_expire(struct sl_server *server, int64_t now)
{
	int64_t keep_ns = server->settings->keep_ns;

	while (!sl_list_empty(&server->memory->kept) &&
	       kept_first(server)->empty_since <= now - keep_ns)
		sl_region_free(server, kept_first(server));
	if (!sl_list_empty(&server->memory->kept))
		sl_server_at(server, kept_first(server)->empty_since + keep_ns);
}

void sl_region_relist(struct sl_server *server, struct sl_region *region)
{
	struct sl_peer *writer = region->writer;

	sl_spill_look(server);
	region_unlink(server, region);
	if (region->device >= 0 && !region->used) {
		region_leave(server, region);
		return;
	}
	if (!region->used && !region->away)
		sl_spill_forget(server, region);
	/* A copy would lack the blobs that were made in it afterwards. */
	if (region->frozen || (region->range_bytes && !writer) || region->away || region->copy) {
		if (!region->used)
			sl_region_free(server, region);
		else
			sl_region_trim(server, region);
	} else {
		if (region->range_bytes && region->used != region_all_ranges(region))
			sl_list_append(slab_list(writer, region->device, region->range_bytes),
			               &region->link);
		if (!region->used)
			kept_add(server, region);
	}
}

void sl_range_free(struct sl_server *server, struct sl_region *region, unsigned range)
{
	struct sl_list *slabs;
	struct sl_region *other;

	region->used &= ~(UINT64_C(1) << range);
	region->slots[range] = SL_NO_SLOT;
	if (region->away)
		server->counts.spilled--;
	if (region->used || !region->range_bytes || !region->writer || region->device >= 0) {
		sl_region_relist(server, region);
		return;
	}
	/* A client keeps a single empty slab of a size. */
	slabs = slab_list(region->writer, -1, region->range_bytes);
	sl_region_relist(server, region);
	if (sl_list_empty(slabs))
		return;
	other = SL_CONTAINER(slabs->next, struct sl_region, link);
	if (other != region && !other->used)
		sl_region_free(server, other);
}

void sl_region_writer_gone(struct sl_server *server, struct sl_region *region)
{
	sl_list_remove(&region->writer_link);
	region_unlink(server, region);
	region->writer = NULL;
	sl_region_relist(server, region);
}

uint64_t sl_regions_reclaim(struct sl_server *server, uint64_t bytes)
{
	uint64_t freed = 0;

	while (!sl_list_empty(&server->memory->kept) && freed < bytes) {
		freed += kept_first(server)->bytes;
		sl_region_free(server, kept_first(server));
	}
	return freed;
}

struct sl_region *sl_region_find_free(struct sl_server *server, struct sl_peer *peer,
                                      const struct sl_wanted *wanted)
{
	uint64_t bytes = sl_wanted_range_bytes(wanted);
	struct sl_region *other = NULL;

	if (sl_wanted_small(wanted)) {
		sl_list_each_of (region, slab_list(peer, wanted->device, bytes), struct sl_region,
		                 link) {
			if (region->device == wanted->device)
				return region;
		}
		return NULL;
	}
	sl_list_each_of (region, &server->memory->kept, struct sl_region, empty_link) {
		if (wanted->device >= 0 || region->bytes != bytes || region->range_bytes ||
		    (region->writer && region->writer != peer))
			continue;
		if (region->writer == peer)
			return region;
		other = region;
	}
	return other;
}
