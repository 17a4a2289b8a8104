/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory of an emulated device
 *
 * Shared memory is a memfd, sealed against resizing. Its name contains the device and the session
 * of the process that made it (getsid()), "sluice:emulated:0:SESSION", so that tests can count all
 * memory of a device through /proc. A mapping has addresses of the device that holds the memory,
 * whichever device uses it.
 *
 * Threads: any; the mutex of the device guards its ranges.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/emulated/emulated.h"

#define GRANULARITY ((size_t)2 << 20) /* as on an H100 */
#define SEALS       (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define NOEXEC      0x8u /* MFD_NOEXEC_SEAL of Linux 6.3 */

/* Content of handle in struct sl_lent_memory: where borrowers open the memory. */
struct handle {
	uint64_t device, inode; /* of the memfd */
	int32_t process;
	int32_t fd; /* descriptor in the lender */
};
_Static_assert(sizeof(struct handle) <= sizeof(((struct sl_lent_memory *)NULL)->handle), "");

static bool emulated_is_whole(size_t length)
{
	return length && length % GRANULARITY == 0;
}

/* ----------------------------------------------------------------------------------- memfds */

/* The number of the session follows. */
static void memory_name(const struct emulated *device, char name[48])
{
	snprintf(name, 48, "sluice:%s:", device->base.name);
}

int sl_emulated_memory_new(const struct emulated *device, size_t length, int *out)
{
	char start[48], name[64];
	int fd, rc = 0;

	memory_name(device, start);
	snprintf(name, sizeof(name), "%s%d", start, (int)getsid(0));
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | NOEXEC);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)length) || fcntl(fd, F_ADD_SEALS, SEALS)) {
		rc = -errno;
		close(fd);
		return rc;
	}
	*out = fd;
	return 0;
}

/* Returns true if the descriptor, as /proc names it, is memory of the device. Opens nothing. */
static bool is_device_memory(const struct emulated *device, const char *path)
{
	char start[48], wanted[64], link[64];
	ssize_t n = readlink(path, link, sizeof(link));

	memory_name(device, start);
	size_t length = snprintf(wanted, sizeof(wanted), "/memfd:%s", start);
	return n >= (ssize_t)length && !memcmp(link, wanted, length);
}

/* The name can be forged, the seal against resizing cannot. */
int sl_emulated_memory_check(const struct emulated *device, int fd, size_t length)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!is_device_memory(device, path) || seals < 0 || (seals & SEALS) != SEALS ||
	    fstat(fd, &st) || st.st_size < 0 || length > (uint64_t)st.st_size)
		return -EBADMSG;
	return 0;
}

/* ------------------------------------------------------------------------------ make and map */

/* Adds a mapping to the device. Only new memory counts as used, not other processes'. */
static int add_mapping(struct emulated *device, enum range_kind kind, int fd, size_t length,
                       bool read_only, struct range **out)
{
	int protection = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	struct range *range = sl_emulated_range_new(length, protection, MAP_SHARED, fd);

	if (!range)
		return -ENOMEM;
	range->kind = kind;
	range->taken = kind == RANGE_MADE ? range->length : 0;
	range->read_only = read_only;
	int rc = sl_emulated_range_add(device, SLUICE_EMULATED_SHARE, "map", length, range);
	if (rc)
		sl_emulated_range_free(range);
	else
		*out = range;
	return rc;
}

static void *emulated_address(const struct range *range)
{
	return (void *)(uintptr_t)range->at.start;
}

static int emulated_make(struct sl_device *base, size_t length, void **out, int *out_fd)
{
	struct emulated *device = sl_emulated_of(base);
	struct range *range;
	int fd, rc;

	if (!emulated_is_whole(length))
		return -EINVAL;
	if (length > EMULATED_MEMORY_BYTES)
		return -ENOMEM;
	rc = sl_emulated_memory_new(device, length, &fd);
	if (rc)
		return rc;
	rc = add_mapping(device, RANGE_MADE, fd, length, false, &range);
	if (rc) {
		close(fd);
		return rc;
	}
	*out = emulated_address(range);
	*out_fd = fd;
	return 0;
}

/* Waits for commands that use the range and removes it from the allocations. */
static int end_range(struct emulated *device, struct range *range) SL_REQUIRES(&device->mutex)
{
	struct emulated *there = range->there;
	int rc = 0, own;

	range->leaving = true;
	if (there) {
		sl_mutex_unlock(&device->mutex);
		sl_mutex_lock(&there->mutex);
		rc = sl_emulated_range_remove(there, "unmap", range->also);
		sl_mutex_unlock(&there->mutex);
		sl_mutex_lock(&device->mutex);
	}
	own = sl_emulated_range_remove(device, "unmap", range);
	return rc ? rc : own;
}

/* Registers the range with a second device that uses it. */
static int add_on_other(struct emulated *there, struct range *range)
{
	struct range *also = calloc(1, sizeof(*also));
	int rc = also ? sl_emulated_start(there) : -ENOMEM;

	if (rc) {
		free(also);
		return rc;
	}
	/* Copy only the bounds: the rest of range->at belongs to the interval tree. */
	also->at.start = range->at.start;
	also->at.end = range->at.end;
	also->bytes = range->bytes;
	also->kind = range->kind;
	also->read_only = range->read_only;
	also->lent = -1;
	sl_mutex_lock(&there->mutex);
	rc = sl_emulated_pass(there, "map");
	if (!rc)
		sl_intervals_insert(&there->allocations, &also->at);
	sl_mutex_unlock(&there->mutex);
	if (rc) {
		free(also);
		return rc;
	}
	range->also = also;
	range->there = there;
	return 0;
}

static void range_free_unlisted(struct range *range)
{
	free(range->also);
	sl_emulated_range_free(range);
}

/* The memory has to have just this length. */
static int emulated_check_length(const struct emulated *device, int fd, size_t length)
{
	struct stat st;
	int rc = emulated_is_whole(length) ? sl_emulated_memory_check(device, fd, length) : -EINVAL;

	return rc || (!fstat(fd, &st) && (uint64_t)st.st_size == length) ? rc : -EBADMSG;
}

/* Finds the range at an address, so long (0: any) and in `kinds`, that is not being removed. */
static struct range *find_shared(struct emulated *device, const void *memory, size_t length,
                                 unsigned kinds) SL_REQUIRES(&device->mutex)
{
	struct range *range = sl_emulated_range_at(device, memory);

	if (!range || (range->leaving && range->kind != RANGE_VACANT) ||
	    range->at.start != (uintptr_t)memory || !(kinds & 1u << range->kind) ||
	    (length && length != range->at.end - range->at.start))
		return NULL;
	return range;
}

static int fill_vacant(struct emulated *device, int fd, size_t length, const void *at,
                       struct range **out)
{
	char *bytes = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
	struct range *range = NULL;

	if (bytes == MAP_FAILED)
		return -ENOMEM;
	int rc = sl_emulated_enter(device, SLUICE_EMULATED_SHARE);
	if (!rc) {
		rc = sl_emulated_pass(device, "map");
		range = rc ? NULL : find_shared(device, at, length, 1u << RANGE_VACANT);
		if (range) {
			range->bytes = bytes;
			range->length = length;
			range->kind = RANGE_MAPPED;
			range->leaving = false;
			*out = range;
		}
		sl_emulated_leave(device);
	}
	if (!range)
		munmap(bytes, length);
	return rc || range ? rc : -EINVAL;
}

static int emulated_map(struct sl_device *base, int fd, size_t length, struct sl_device *by,
                        void *at, void **out)
{
	struct emulated *device = sl_emulated_of(base);
	struct range *range;
	int rc = by->ops == base->ops ? emulated_check_length(device, fd, length) : -ENOTSUP;

	if (!rc)
		rc = at ? fill_vacant(device, fd, length, at, &range)
		        : add_mapping(device, RANGE_MAPPED, fd, length, true, &range);
	if (rc)
		return rc;
	rc = by == base ? 0 : add_on_other(sl_emulated_of(by), range);
	if (rc) {
		sl_mutex_lock(&device->mutex);
		(void)end_range(device, range);
		sl_mutex_unlock(&device->mutex);
		range_free_unlisted(range);
		return rc;
	}
	*out = emulated_address(range);
	return 0;
}

static int drop_mapping(struct emulated *device, const void *memory, size_t length, unsigned kinds)
{
	int rc = sl_emulated_enter_to_release(device, SLUICE_EMULATED_UNMAP);

	if (rc)
		return rc;
	struct range *range = find_shared(device, memory, length, kinds);
	rc = range ? end_range(device, range) : -EINVAL;
	sl_emulated_leave(device);
	if (range)
		range_free_unlisted(range);
	return rc;
}

static int emulated_unmap(struct sl_device *base, void *memory, size_t length)
{
	return length ? drop_mapping(sl_emulated_of(base), memory, length,
	                             1u << RANGE_MADE | 1u << RANGE_MAPPED)
	              : -EINVAL;
}

/* ------------------------------------------------------------------------------------ vacant */

static int emulated_vacate(struct sl_device *base, void *memory, size_t length)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter(device, SLUICE_EMULATED_UNMAP);

	if (rc)
		return rc;
	struct range *range = find_shared(device, memory, length, 1u << RANGE_MAPPED);
	rc = range && !range->there ? 0 : -EINVAL;
	if (!rc) {
		range->leaving = true;
		rc = sl_emulated_drain(device, "unmap", true);
		range->leaving = !rc;
	}
	if (!rc) {
		munmap(range->bytes, range->length);
		range->length = 0;
		range->kind = RANGE_VACANT;
	}
	sl_emulated_leave(device);
	return rc;
}

static int emulated_abandon(struct sl_device *base, void *at, size_t length)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter_to_release(device, SLUICE_EMULATED_UNMAP);

	if (rc)
		return rc;
	struct range *range = find_shared(device, at, length, 1u << RANGE_VACANT);
	if (range)
		sl_intervals_remove(&device->allocations, &range->at);
	sl_emulated_leave(device);
	free(range);
	return range ? 0 : -EINVAL;
}

/* ----------------------------------------------------------------------------- lend and borrow */

static int write_bytes(int fd, const char *bytes, size_t length)
{
	for (size_t at = 0; at < length;) {
		ssize_t n = pwrite(fd, bytes + at, length - at, (off_t)at);

		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? n : 0;
	}
	return 0;
}

/*
 * Moves the bytes of a range into a memfd, in place, on its first lending; most memory is never
 * lent and needs no descriptor. The mutex is held throughout, so that no write is lost.
 */
static int make_lendable(struct emulated *device, struct range *range)
{
	int fd, rc = sl_emulated_memory_new(device, range->length, &fd);

	if (rc)
		return rc;
	rc = write_bytes(fd, range->bytes, range->length);
	if (!rc && mmap(range->bytes, range->length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
	                fd, 0) == MAP_FAILED)
		rc = -errno;
	if (rc)
		close(fd);
	else
		range->lent = fd;
	return rc;
}

/* Waits until no command runs. The engine starts nothing until `lending` falls. */
static int hold_engine_still(struct emulated *device, const void *memory, struct range **out)
	SL_REQUIRES(&device->mutex)
{
	int rc = 0;

	device->lending++;
	while (!device->error && device->executing)
		sl_emulated_sleep(device, &device->progress, "lend", "something runs");
	struct range *range = sl_emulated_range_at(device, memory);
	if (device->error)
		rc = device->error;
	else if (!range || range->leaving || range->kind != RANGE_ALLOCATED)
		rc = -ENOTSUP;
	else if (range->lent < 0)
		rc = make_lendable(device, range);
	device->lending--;
	pthread_cond_signal(&device->work);
	*out = range;
	return rc;
}

static int emulated_lend(struct sl_device *base, const void *memory, struct sl_lent_memory *out)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter(device, SLUICE_EMULATED_SHARE);
	struct handle handle = {0};
	struct range *range;
	struct stat st;

	if (rc)
		return rc;
	rc = hold_engine_still(device, memory, &range);
	if (!rc && fstat(range->lent, &st))
		rc = -errno;
	if (!rc) {
		handle = (struct handle){st.st_dev, st.st_ino, getpid(), range->lent};
		*out = (struct sl_lent_memory){.start = emulated_address(range),
		                               .length = range->at.end - range->at.start};
		memcpy(out->handle, &handle, sizeof(handle));
	}
	sl_emulated_leave(device);
	return rc;
}

/* Opens lent memory; fails once the lender has ended or has freed it. */
static int open_lent(const struct emulated *device, const struct handle *handle, int *out)
{
	struct stat st;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->process, handle->fd);
	errno = 0;
	if (!is_device_memory(device, path))
		return errno == EACCES || errno == EPERM ? -EACCES : -ENOENT;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES || errno == EPERM ? -EACCES : -ENOENT;
	/* A process ID or descriptor number may have been reused. */
	if (fstat(fd, &st) || st.st_dev != handle->device || st.st_ino != handle->inode) {
		close(fd);
		return -ENOENT;
	}
	*out = fd;
	return 0;
}

static int emulated_borrow(struct sl_device *base, const struct sl_lent_memory *memory, void **out)
{
	struct emulated *device = sl_emulated_of(base);
	struct handle handle;
	struct range *range;
	int fd, rc;

	memcpy(&handle, memory->handle, sizeof(handle));
	if (handle.process == getpid())
		return -EINVAL;
	if (!memory->length)
		return -EBADMSG;
	rc = open_lent(device, &handle, &fd);
	if (rc)
		return rc;
	rc = sl_emulated_memory_check(device, fd, memory->length);
	if (!rc)
		rc = add_mapping(device, RANGE_BORROWED, fd, memory->length, false, &range);
	close(fd);
	if (!rc)
		*out = emulated_address(range);
	return rc;
}

static int emulated_give_back(struct sl_device *base, void *start)
{
	return drop_mapping(sl_emulated_of(base), start, 0, 1u << RANGE_BORROWED);
}

const struct sl_device_sharing sl_emulated_sharing = {
	.granularity = GRANULARITY,
	.make = emulated_make,
	.map = emulated_map,
	.unmap = emulated_unmap,
	.vacate = emulated_vacate,
	.abandon = emulated_abandon,
	.lend = emulated_lend,
	.borrow = emulated_borrow,
	.give_back = emulated_give_back,
};
