/* SPDX-License-Identifier: Apache-2.0 */
#include "frames/disk.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "h5file/points.h"
#include "lib/unit.h"

enum { PAGE = 4096, FILE_BYTES = 4 << 20, LOG_BYTES = 24 << 20, EVENTS = 30000 };

struct disk_event {
	enum { EVENT_WRITE, EVENT_LENGTH, EVENT_SYNC, EVENT_NAME, EVENT_TELL } kind;
	size_t at, size; /* in the file; a write is in one page */
	size_t bytes;    /* in the log */
};

struct disk {
	bool named;                            /* when it began */
	size_t count, used, base_length, most; /* most: the longest that the file has been */
	struct disk_event events[EVENTS];
	unsigned char log[LOG_BYTES], base[FILE_BYTES];
};

struct disk *disk_new(void)
{
	struct disk *disk = mmap(NULL, sizeof(*disk), PROT_READ | PROT_WRITE,
	                         MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return disk == MAP_FAILED ? NULL : disk;
}

void disk_begin(struct disk *disk, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, disk->base, FILE_BYTES);

	if (fd >= 0)
		close(fd);
	if (n < 0 || n == FILE_BYTES)
		abort();
	disk->named = fd >= 0;
	disk->base_length = disk->most = (size_t)n;
	disk->count = disk->used = 0;
}

/* -------------------------------------------------------------------------------------- record */

static struct disk *recorded;
static pthread_mutex_t recording = PTHREAD_MUTEX_INITIALIZER;

static void event_add(int kind, size_t at, const void *bytes, size_t size)
{
	struct disk *disk = recorded;

	if (disk->count == EVENTS || disk->used + size > LOG_BYTES || at + size > FILE_BYTES)
		abort();
	disk->events[disk->count++] =
		(struct disk_event){.kind = kind, .at = at, .size = size, .bytes = disk->used};
	disk->most = SL_MAX(disk->most, at + size);
	if (bytes)
		memcpy(disk->log + disk->used, bytes, size);
	/* What is told is a struct. */
	disk->used += bytes ? (size + 7) / 8 * 8 : 0;
}

static void record_write(int64_t offset, const void *bytes, size_t size)
{
	size_t done = 0;

	pthread_mutex_lock(&recording);
	if (!bytes)
		event_add(EVENT_LENGTH, (size_t)offset, NULL, 0);
	while (done < size) {
		size_t at = (size_t)offset + done, n = SL_MIN(PAGE - at % PAGE, size - done);

		event_add(EVENT_WRITE, at, (const char *)bytes + done, n);
		done += n;
	}
	pthread_mutex_unlock(&recording);
}

static void record_sync(void)
{
	pthread_mutex_lock(&recording);
	event_add(EVENT_SYNC, 0, NULL, 0);
	pthread_mutex_unlock(&recording);
}

static void record_name(void)
{
	pthread_mutex_lock(&recording);
	event_add(EVENT_NAME, 0, NULL, 0);
	pthread_mutex_unlock(&recording);
}

void disk_record(struct disk *disk)
{
	recorded = disk;
	points_written = record_write;
	points_barrier = record_sync;
	points_named = record_name;
}

void disk_tell(struct disk *disk, const void *bytes, size_t n)
{
	(void)disk;
	pthread_mutex_lock(&recording);
	event_add(EVENT_TELL, 0, bytes, n);
	pthread_mutex_unlock(&recording);
}

/* ---------------------------------------------------------------------------------------- lose */

size_t disk_events(const struct disk *disk)
{
	return disk->count;
}

const void *disk_told(const struct disk *disk, size_t moment)
{
	while (moment--)
		if (disk->events[moment].kind == EVENT_TELL)
			return disk->log + disk->events[moment].bytes;
	return NULL;
}

static size_t last_sync(const struct disk *disk, size_t moment)
{
	while (moment && disk->events[moment - 1].kind != EVENT_SYNC)
		moment--;
	return moment;
}

/* Of each page, how many of its writes between the sync and the moment are there. */
static void keep_some(const struct disk *disk, size_t sync, size_t moment, enum disk_mode mode,
                      uint64_t *seed, unsigned *keep)
{
	size_t all = disk->most / PAGE + 1;
	unsigned pages = 0, one;

	memset(keep, 0, all * sizeof(*keep));
	for (size_t i = sync; i < moment; i++)
		if (disk->events[i].kind == EVENT_WRITE)
			pages += !keep[disk->events[i].at / PAGE]++;
	one = pages ? (unsigned)(unit_random(seed) % pages) : 0;
	for (size_t page = 0; page < all; page++) {
		if (!keep[page])
			continue;
		if (mode == DISK_ANY)
			keep[page] = (unsigned)(unit_random(seed) % (keep[page] + 1));
		else if (mode == DISK_ALL_OR_NONE)
			keep[page] *= unit_random(seed) % 2;
		else if (mode == DISK_BUT_ONE && !one--)
			keep[page] = 0;
	}
}

static void write_image(const char *path, const unsigned char *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || close(fd))
		abort();
}

void disk_lose(const struct disk *disk, size_t moment, enum disk_mode mode, uint64_t *seed,
               const char *path)
{
	static unsigned char image[FILE_BYTES];
	static unsigned keep[FILE_BYTES / PAGE + 1];
	size_t sync = mode == DISK_KILLED ? moment : last_sync(disk, moment), length;
	bool named = disk->named;

	keep_some(disk, sync, moment, mode, seed, keep);
	memset(image, 0, disk->most);
	memcpy(image, disk->base, disk->base_length);
	length = disk->base_length;
	for (size_t i = 0; i < moment; i++) {
		const struct disk_event *event = &disk->events[i];
		bool sure = i < sync;

		named |= event->kind == EVENT_NAME;
		/* The length may come without the bytes, and without the length no bytes. */
		if (event->kind == EVENT_LENGTH && (sure || unit_random(seed) % 2))
			length = event->at ? SL_MAX(length, event->at) : 0;
		if (event->kind != EVENT_WRITE || (!sure && !keep[event->at / PAGE]))
			continue;
		keep[event->at / PAGE] -= !sure;
		memcpy(image + event->at, disk->log + event->bytes, event->size);
		length = SL_MAX(length, event->at + event->size);
	}
	unlink(path);
	if (named)
		write_image(path, image, length);
}
