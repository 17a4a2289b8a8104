/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of an emulated device
 *
 * Device addresses are reserved and never accessible; the bytes are in a second mapping. As in real
 * drivers, calls that free memory wait for all earlier work of the device.
 *
 * Threads: any; the mutex guards the sets of ranges, and is released while a call waits.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/emulated/emulated.h"

#define PAGE       ((size_t)4096)
#define HUGE_BYTES ((size_t)4 << 20) /* Ranges of at least this size ask for huge pages. */

static struct range *find_range(const struct sl_intervals *set, const void *memory)
{
	struct sl_interval *found = sl_emulated_lookup(set, memory);

	return found ? SL_CONTAINER(found, struct range, at) : NULL;
}

static bool in_arena(struct emulated *device, const void *memory)
{
	return sl_emulated_started(device) &&
	       (uintptr_t)memory - (uintptr_t)device->arena < EMULATED_ARENA_BYTES;
}

bool sl_emulated_holds(struct emulated *device, const void *memory)
{
	return in_arena(device, memory) && find_range(&device->allocations, memory);
}

/* Returns true if [memory, memory + length) lies in the range; length may be 0. */
static bool range_covers(const struct range *range, const void *memory, size_t length)
{
	return range && !range->leaving && length <= range->at.end - (uintptr_t)memory;
}

static bool is_elsewhere(struct emulated *device, const void *memory)
{
	struct emulated *other;

	for (unsigned i = 0; (other = sl_emulated_each(i)); i++)
		if (other != device && sl_emulated_started(other) && in_arena(other, memory))
			return true;
	return false;
}

enum memory_kind sl_emulated_memory_kind(struct emulated *device, const void *memory, size_t length,
                                         char **bytes)
{
	struct range *range = find_range(&device->allocations, memory);

	*bytes = (char *)memory;
	if (range || in_arena(device, memory)) {
		if (!range_covers(range, memory, length))
			return MEMORY_WRONG;
		*bytes = range->bytes + ((uintptr_t)memory - range->at.start);
		return range->read_only ? MEMORY_READ_ONLY : MEMORY_DEVICE;
	}
	if (is_elsewhere(device, memory))
		return MEMORY_FOREIGN;
	range = find_range(&device->registrations, memory);
	return range_covers(range, memory, length) ? MEMORY_REGISTERED : MEMORY_HOST;
}

char *sl_emulated_peer(struct emulated *device, const void *memory, size_t length, bool reaches)
{
	struct emulated *other;
	enum memory_kind kind;
	char *bytes;

	for (unsigned i = 0; (other = sl_emulated_each(i)); i++) {
		if (other == device || !sl_emulated_started(other))
			continue;
		sl_mutex_lock(&other->mutex);
		kind = sl_emulated_memory_kind(other, memory, length, &bytes);
		sl_mutex_unlock(&other->mutex);
		if (kind == MEMORY_REGISTERED ||
		    (reaches && (kind == MEMORY_DEVICE || kind == MEMORY_READ_ONLY)))
			return bytes;
	}
	return NULL;
}

bool sl_emulated_reach(struct sl_device *base, struct sl_device *other)
{
	struct emulated *device = sl_emulated_of(base);

	(void)other;
	sl_mutex_lock(&device->mutex);
	bool can = !device->options.no_peers;
	sl_mutex_unlock(&device->mutex);
	return can;
}

/* ----------------------------------------------------------------------------- allocating */

struct gap {
	uint64_t end;
};

static void address_after(struct sl_interval *interval, void *argument)
{
	struct gap *gap = argument;

	gap->end = SL_MAX(gap->end, interval->end);
}

/* Returns the next free addresses, followed by an unowned page, or 0 if there are none. */
static uint64_t find_addresses(struct emulated *device, size_t taken)
{
	uint64_t arena = (uintptr_t)device->arena;

	for (int turns = 0; turns < 2;) {
		struct gap gap = {0};
		uint64_t start = arena + device->next;

		if (device->next + taken + PAGE > EMULATED_ARENA_BYTES) {
			device->next = 0;
			turns++;
			continue;
		}
		sl_intervals_overlapping(&device->allocations, start, start + taken + PAGE,
		                         address_after, &gap);
		if (!gap.end) {
			device->next += taken + PAGE;
			return start;
		}
		device->next = (gap.end - arena + PAGE - 1) / PAGE * PAGE + PAGE;
	}
	return 0;
}

struct range *sl_emulated_range_new(size_t length, int protection, int flags, int fd)
{
	struct range *range = calloc(1, sizeof(*range));

	if (!range)
		return NULL;
	range->lent = -1;
	range->length = (length + PAGE - 1) / PAGE * PAGE;
	range->bytes = mmap(NULL, range->length, protection, flags, fd, 0);
	if (range->bytes != MAP_FAILED)
		return range;
	free(range);
	return NULL;
}

void sl_emulated_range_free(struct range *range)
{
	if (range->length)
		munmap(range->bytes, range->length);
	if (range->lent >= 0)
		close(range->lent);
	free(range);
}

int sl_emulated_range_add(struct emulated *device, enum sluice_emulated_kind kind, const char *call,
                          size_t length, struct range *range)
{
	int rc = sl_emulated_enter(device, kind);

	if (rc)
		return rc;
	rc = sl_emulated_pass(device, call);
	if (!rc && range->taken > EMULATED_MEMORY_BYTES - device->used)
		rc = -ENOMEM;
	if (!rc) {
		range->at.start = find_addresses(device, range->length);
		rc = range->at.start ? 0 : -ENOMEM;
	}
	if (!rc) {
		range->at.end = range->at.start + length;
		device->used += range->taken;
		sl_intervals_insert(&device->allocations, &range->at);
	}
	sl_emulated_leave(device);
	return rc;
}

int sl_emulated_alloc(struct sl_device *base, size_t length, void **out)
{
	if (!length)
		return -EINVAL;
	if (length > EMULATED_MEMORY_BYTES)
		return -ENOMEM;
	struct range *range = sl_emulated_range_new(
		length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	if (!range)
		return -ENOMEM;
	range->taken = range->length;
	if (range->length >= HUGE_BYTES)
		(void)madvise(range->bytes, range->length, MADV_HUGEPAGE);
	int rc = sl_emulated_range_add(sl_emulated_of(base), SLUICE_EMULATED_ALLOC, "alloc", length,
	                               range);
	if (rc)
		sl_emulated_range_free(range);
	else
		*out = (void *)(uintptr_t)range->at.start;
	return rc;
}

/* ------------------------------------------------------------------------------- draining */

static bool drain_until(struct emulated *device, uint64_t sequence)
{
	return sl_list_empty(&device->commands) ||
	       SL_CONTAINER(device->commands.next, struct command, in_device)->sequence > sequence;
}

int sl_emulated_drain(struct emulated *device, const char *call, bool in_free)
{
	uint64_t last = device->sequence;

	device->frees += in_free;
	while (!device->error && !drain_until(device, last))
		sl_emulated_sleep(device, &device->progress, call,
		                  "what the device holds is not done");
	device->frees -= in_free;
	if (in_free)
		pthread_cond_broadcast(&device->progress);
	/* After an error no command starts, but a running command may still access the memory. */
	while (device->error && device->executing)
		sl_emulated_sleep(device, &device->progress, call, "something still runs");
	return device->error;
}

/*
 * Removes a range from a set: new commands cannot use it, and pending commands that do are waited
 * for. On a failed device the range is removed at once, and the device's error is returned.
 */
static int withdraw_range(struct emulated *device, struct sl_intervals *set, const char *call,
                          struct range *range) SL_REQUIRES(&device->mutex)
{
	range->leaving = true;
	int rc = sl_emulated_drain(device, call, set == &device->allocations);
	sl_intervals_remove(set, &range->at);
	return rc;
}

/* Returns the range that begins there and is not being removed, or NULL. */
static struct range *range_starting_at(const struct sl_intervals *set, const void *memory)
{
	struct range *range = find_range(set, memory);

	return range && !range->leaving && range->at.start == (uintptr_t)memory ? range : NULL;
}

struct range *sl_emulated_range_at(struct emulated *device, const void *memory)
{
	return find_range(&device->allocations, memory);
}

int sl_emulated_range_remove(struct emulated *device, const char *call, struct range *range)
{
	int rc = withdraw_range(device, &device->allocations, call, range);

	device->used -= range->taken;
	return rc;
}

int sl_emulated_free(struct sl_device *base, void *memory)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter_to_release(device, SLUICE_EMULATED_FREE);

	if (rc)
		return rc;
	struct range *range = range_starting_at(&device->allocations, memory);
	if (range && range->kind != RANGE_ALLOCATED)
		range = NULL;
	rc = range ? sl_emulated_range_remove(device, "free", range) : -EINVAL;
	sl_emulated_leave(device);
	if (range)
		sl_emulated_range_free(range);
	return rc;
}

/* ---------------------------------------------------------------------------- registering */

static int insert_registration(struct emulated *device, struct range *range)
{
	struct gap gap = {0};
	int rc = sl_emulated_enter(device, SLUICE_EMULATED_REGISTER);

	if (rc)
		return rc;
	while (!rc && device->stuck) {
		sl_emulated_sleep(device, &device->progress, "register",
		                  "another thread is in a full channel");
		rc = device->error;
	}
	if (!rc)
		rc = sl_emulated_drain(device, "register", false);
	sl_intervals_overlapping(&device->registrations, range->at.start, range->at.end,
	                         address_after, &gap);
	if (!rc && gap.end)
		rc = -EEXIST;
	if (!rc)
		sl_intervals_insert(&device->registrations, &range->at);
	sl_emulated_leave(device);
	return rc;
}

int sl_emulated_register(struct sl_device *base, void *memory, size_t length)
{
	struct emulated *device = sl_emulated_of(base);

	if (!memory || !length || (uintptr_t)memory % PAGE || length % PAGE ||
	    in_arena(device, memory) || is_elsewhere(device, memory))
		return -EINVAL;
	struct range *range = calloc(1, sizeof(*range));
	if (!range)
		return -ENOMEM;
	range->bytes = memory;
	range->at.start = (uintptr_t)memory;
	range->at.end = range->at.start + length;
	int rc = insert_registration(device, range);
	if (rc)
		free(range);
	return rc;
}

int sl_emulated_unregister(struct sl_device *base, void *memory)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter_to_release(device, SLUICE_EMULATED_REGISTER);

	if (rc)
		return rc;
	struct range *range = range_starting_at(&device->registrations, memory);
	rc = range ? withdraw_range(device, &device->registrations, "unregister", range) : -EINVAL;
	sl_emulated_leave(device);
	free(range);
	return rc;
}

bool sl_emulated_registered(struct sl_device *base, const void *memory, size_t length)
{
	struct emulated *device = sl_emulated_of(base);

	if (sl_emulated_count(SLUICE_EMULATED_CLASSIFY) || !sl_emulated_started(device))
		return false;
	sl_mutex_lock(&device->mutex);
	bool found = range_covers(find_range(&device->registrations, memory), memory, length);
	sl_mutex_unlock(&device->mutex);
	return found;
}

int sl_emulated_allocation(struct sl_device *base, const void *memory, struct sl_allocation *out)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_count(SLUICE_EMULATED_CLASSIFY);

	if (rc)
		return rc;
	sl_mutex_lock(&device->mutex);
	struct range *range = find_range(&device->allocations, memory);
	if (range)
		*out = (struct sl_allocation){range->at.start, range->at.end - range->at.start};
	sl_mutex_unlock(&device->mutex);
	return range ? 0 : -EINVAL;
}
