/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments: shared memory with the catalogue
 *
 * Makes, checks and maps segments, and reads their entries. Used by the server and by clients; any
 * thread.
 */
#include "catalogue/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* The size is fixed, and no seal can be added that would keep the next server from writing. */
#define SEALS  (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define NOEXEC 0x0008u /* MFD_NOEXEC_SEAL */

int sl_memory_begin(const char *name, uint64_t bytes, const void *head, size_t n, bool fixed,
                    int *out)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | NOEXEC), err;
	int seals = SEALS | (fixed ? F_SEAL_WRITE : 0);

	/* Linux before 6.3 does not know MFD_NOEXEC_SEAL. */
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	errno = EIO; /* for a short write */
	/* Without this mode another user with the descriptor for reading could open it to write. */
	if (fchmod(fd, 0600) || ftruncate(fd, (off_t)bytes) ||
	    (n && pwrite(fd, head, n, 0) != (ssize_t)n) || fcntl(fd, F_ADD_SEALS, seals)) {
		err = -errno;
		close(fd);
		return err;
	}
	*out = fd;
	return 0;
}

int sl_memory_map(int fd, bool writable, uint64_t most, uint64_t *bytes, void **out)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs system;
	struct stat stat;
	void *memory;

	/* A file of huge pages may have no memory when it is touched. */
	if (seals < 0 || (seals & SEALS) != SEALS || (seals & F_SEAL_WRITE) ||
	    fstatfs(fd, &system) || system.f_type != TMPFS_MAGIC || fstat(fd, &stat))
		return -EBADMSG;
	if (stat.st_size < SL_PAGE || stat.st_size % SL_PAGE || (uint64_t)stat.st_size > most)
		return -EBADMSG;
	memory = mmap(NULL, (size_t)stat.st_size, writable ? PROT_READ | PROT_WRITE : PROT_READ,
	              MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	*bytes = (uint64_t)stat.st_size;
	*out = memory;
	return 0;
}

/* ------------------------------------------------------------------------------------- layout */

static uint64_t segment_whole_pages(uint64_t bytes)
{
	return (bytes + SL_PAGE - 1) / SL_PAGE * SL_PAGE;
}

/* The number of slots determines all of the layout: header, index, entries, pages. */
static void segment_lay_out(struct sl_segment *segment, uint32_t slots)
{
	char *base = (char *)segment->header;
	uint64_t at = SL_PAGE;

	segment->slots = slots;
	segment->lines = slots / 2; /* four words for each slot */
	segment->pages = slots / SL_SLOTS_FOR_PAGE;
	segment->index = (struct sl_index_line *)(base + at);
	at += segment_whole_pages((uint64_t)segment->lines * sizeof(struct sl_index_line));
	segment->entries = (struct sl_entry *)(base + at);
	at += segment_whole_pages((uint64_t)slots * sizeof(struct sl_entry));
	segment->metadata = (uint8_t(*)[SL_PAGE])(base + at);
	segment->bytes = at + (uint64_t)segment->pages * SL_PAGE;
}

static bool segment_slots_are_valid(uint32_t slots)
{
	return slots >= SL_SLOTS_LEAST && slots <= SL_SLOTS_MOST && !(slots & (slots - 1));
}

int sl_segment_new(uint32_t slots, int *out)
{
	struct sl_segment_header header = {.version = SL_SEGMENT_VERSION,
	                                   .entry_bytes = sizeof(struct sl_entry),
	                                   .slots = slots,
	                                   .magic = SL_SEGMENT_MAGIC,
	                                   .tick = 1};
	struct sl_segment segment = {0};

	if (!segment_slots_are_valid(slots))
		return -EINVAL;
	/* The seed is random, so that no client can make names that all hash to the same lines. */
	if (getrandom(&header.seed, sizeof(header.seed), 0) != sizeof(header.seed))
		return -EIO;
	segment_lay_out(&segment, slots);
	header.bytes = segment.bytes;
	return sl_memory_begin("sluice-catalogue", segment.bytes, &header, sizeof(header), false,
	                       out);
}

static bool segment_header_is_valid(struct sl_segment *segment, uint64_t bytes)
{
	struct sl_segment_header *header = segment->header;

	if (atomic_load_explicit(&header->magic, memory_order_acquire) != SL_SEGMENT_MAGIC ||
	    header->version != SL_SEGMENT_VERSION ||
	    header->entry_bytes != sizeof(struct sl_entry) || header->bytes != bytes)
		return false;
	uint32_t slots = header->slots;
	atomic_signal_fence(memory_order_seq_cst); /* the copy is checked and used */
	if (!segment_slots_are_valid(slots))
		return false;
	segment_lay_out(segment, slots);
	segment->seed = header->seed;
	return segment->bytes == bytes;
}

int sl_segment_map(int fd, bool writable, struct sl_segment **out)
{
	struct sl_segment *segment = calloc(1, sizeof(*segment));
	uint64_t bytes;
	void *memory;

	if (!segment)
		return -ENOMEM;
	int err = sl_memory_map(fd, writable, UINT64_MAX, &bytes, &memory);
	if (err) {
		free(segment);
		return err;
	}
	segment->header = memory;
	segment->writable = writable;
	if (!segment_header_is_valid(segment, bytes)) {
		munmap(memory, bytes);
		free(segment);
		return -EBADMSG;
	}
	*out = segment;
	return 0;
}

void sl_segment_unmap(struct sl_segment *segment)
{
	if (!segment)
		return;
	munmap(segment->header, segment->bytes);
	free(segment);
}

uint32_t sl_segment_slots(const struct sl_segment *segment)
{
	return segment->slots;
}

/* -------------------------------------------------------------------------- index and entries */

uint64_t sl_key_hash(const struct sl_segment *segment, const struct sl_blob_key *key)
{
	if (key->length)
		return XXH3_64bits_withSeed(key->name, key->length, segment->seed);
	return XXH3_64bits_withSeed(&key->id, sizeof(key->id), segment->seed);
}

void sl_index_lines(const struct sl_segment *segment, uint64_t hash, struct sl_index_line *lines[2])
{
	uint32_t mask = segment->lines - 1, first = hash & mask, second = hash >> 20 & mask;

	lines[0] = &segment->index[first];
	lines[1] = &segment->index[second == first ? first ^ 1 : second];
}

bool sl_entry_read(const struct sl_segment *segment, const struct sl_entry *entry, uint64_t word,
                   struct sl_blob_record *out)
{
	struct sl_blob_record record = {
		.key = {.name = entry->name, .length = entry->name_length, .id = entry->id},
		.size = entry->size,
		.range = entry->ranges[sl_word_range(word)],
		.creator = entry->creator,
		.uid = entry->uid,
		.flags = atomic_load_explicit(&entry->flags, memory_order_relaxed),
		.next = entry->next,
		.metadata = entry->metadata,
		.metadata_size = entry->metadata_size,
	};
	uint32_t page = entry->page;

	atomic_signal_fence(memory_order_seq_cst); /* the copy is checked and used */
	if (record.key.length > SL_NAME_MOST || record.key.id == 0 ||
	    record.metadata_size > SL_METADATA_MOST ||
	    record.range.offset > UINT64_MAX - record.size)
		return false;
	if (record.metadata_size > SL_METADATA_INLINE) {
		if (page == 0 || page > segment->pages)
			return false;
		record.metadata = segment->metadata[page - 1];
	}
	*out = record;
	return true;
}

bool sl_record_is(const struct sl_blob_record *record, const struct sl_blob_key *key)
{
	if (!key->length)
		return record->key.id == key->id && !record->key.length;
	return record->key.length == key->length &&
	       memcmp(record->key.name, key->name, key->length) == 0;
}

bool sl_entry_still(const struct sl_entry *entry, uint64_t word)
{
	return atomic_load_explicit(&entry->word, memory_order_seq_cst) == word;
}
