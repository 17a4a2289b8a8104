/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads that check their files by digests
 *
 * Reads each file once and as a whole into buffers of the load's own, from where its bytes are hashed and copied to
 * their destinations. A buffer is used again when both are done, so the hashing threads hold no memory that other
 * operations of the context need.
 *
 * Threads: a few, each of which reads a file at a time and copies its bytes, and for each of these the
 * hashing threads of digest.c. The thread that calls sl_tensor_read_verified() waits for them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/device.h"
#include "tensors/digest.h"
#include "tensors/tensors.h"

#define LOAD_BYTES   ((size_t)128 << 20) /* of all buffers */
#define BUFFER_BYTES ((size_t)4 << 20)
#define AT_ONCE      8 /* files */

struct verified_load {
	const struct sluice_tensors *tensors;
	const struct sl_tensor_part *parts;
	size_t count;
	const struct sluice_digest *digests;
	_Atomic uint64_t *moved;
	_Atomic bool *stop;
	unsigned threads;
	int device; /* for which buffers are pinned; -1: none */

	_Atomic size_t next; /* part that no thread has taken */
	struct sl_mutex mutex;
	int error SL_GUARDED_BY(&mutex);     /* the first */
	char *message SL_GUARDED_BY(&mutex); /* its sentence, or NULL */
};

/* A stream of a device, and for each buffer the end of the copies from it. */
struct verified_lane {
	sluice_stream stream; /* NULL: not made yet */
	sluice_event ends[SL_DIGEST_BUFFERS];
	uint32_t copying; /* bits of buffers that the stream copies from */
};

/* A thread of a load. */
struct verified_reader {
	struct verified_load *load;
	const struct sl_tensor_part *part;
	size_t extent; /* the first that may have bytes that have not arrived */
	char *memory;
	unsigned buffers;
	struct verified_lane lanes[SL_DEVICES_MOST];
};

/* ---------------------------------------------------------------------------------------- copies */

static int lane_make(struct verified_lane *lane, int device, unsigned buffers)
{
	int rc = sluice_stream_new(device, &lane->stream);

	for (unsigned i = 0; !rc && i < buffers; i++)
		rc = sluice_event_new(device, &lane->ends[i]);
	return rc;
}

static int reader_copy(struct verified_reader *reader, unsigned buffer, void *to, const char *from,
                       size_t n)
{
	int device = sluice_device_of(to);
	struct verified_lane *lane;
	int rc = 0;

	if (device < 0) {
		memcpy(to, from, n);
		return 0;
	}
	lane = &reader->lanes[device];
	if (!lane->stream)
		rc = lane_make(lane, device, reader->buffers);
	lane->copying |= UINT32_C(1) << buffer;
	return rc ? rc : sluice_copy_on(to, from, n, lane->stream);
}

/* Copies the spans of the part that have arrived. */
static int reader_arrived(void *argument, unsigned buffer, const char *data, size_t n,
                          uint64_t offset)
{
	struct verified_reader *reader = argument;
	const struct sl_tensor_part *part = reader->part;
	int rc = 0;

	while (reader->extent < part->count &&
	       part->extents[reader->extent].offset + part->extents[reader->extent].length <=
	               offset)
		reader->extent++;
	for (size_t i = reader->extent; !rc && i < part->count; i++) {
		const struct sluice_extent *extent = &part->extents[i];
		uint64_t from = SL_MAX(extent->offset, offset);
		uint64_t to = SL_MIN(extent->offset + extent->length, offset + n);

		if (extent->offset >= offset + n)
			break;
		if (from < to)
			rc = reader_copy(reader, buffer,
			                 (char *)extent->data + (from - extent->offset),
			                 data + (from - offset), to - from);
	}
	for (int i = 0; !rc && i < SL_DEVICES_MOST; i++)
		if (reader->lanes[i].copying & UINT32_C(1) << buffer)
			rc = sluice_event_record(reader->lanes[i].ends[buffer],
			                         reader->lanes[i].stream);
	return rc;
}

/* Waits for the copies from a buffer, which wait for nothing but the device. */
static int reader_release(void *argument, unsigned buffer)
{
	struct verified_reader *reader = argument;
	int rc = 0;

	for (int i = 0; !rc && i < SL_DEVICES_MOST; i++) {
		struct verified_lane *lane = &reader->lanes[i];

		if (!(lane->copying & UINT32_C(1) << buffer))
			continue;
		rc = sluice_event_synchronize(lane->ends[buffer]);
		lane->copying &= ~(UINT32_C(1) << buffer);
	}
	return rc;
}

/* --------------------------------------------------------------------------------------- threads */

/* Allocates the buffers of a thread. */
static int reader_allocate(struct verified_reader *reader)
{
	const struct verified_load *load = reader->load;
	uint64_t most = 1;
	size_t bytes;

	for (size_t i = 0; i < load->count; i++)
		most = SL_MAX(most, load->tensors->files[load->parts[i].file].length);
	reader->buffers =
		SL_MIN((most - 1) / BUFFER_BYTES + 1, LOAD_BYTES / BUFFER_BYTES / load->threads);
	bytes = reader->buffers * BUFFER_BYTES;
	if (load->device >= 0)
		return sluice_pinned_alloc(load->device, bytes, (void **)&reader->memory);
	reader->memory = sl_digest_map(bytes);
	return reader->memory ? 0 : sl_fail(-ENOMEM, "no memory to check digests");
}

/* Waits for all copies, and frees what the thread has. */
static void reader_close(struct verified_reader *reader)
{
	for (int i = 0; i < SL_DEVICES_MOST; i++) {
		struct verified_lane *lane = &reader->lanes[i];

		if (!lane->stream)
			continue;
		sluice_stream_synchronize(i, lane->stream);
		for (unsigned j = 0; j < reader->buffers; j++)
			if (lane->ends[j])
				sluice_event_free(lane->ends[j]);
		sluice_stream_free(lane->stream);
	}
	if (reader->memory && reader->load->device >= 0)
		sluice_pinned_free(reader->memory);
	else if (reader->memory)
		munmap(reader->memory, reader->buffers * BUFFER_BYTES);
}

static int reader_read(struct verified_reader *reader, const struct sl_tensor_part *part)
{
	struct verified_load *load = reader->load;
	const struct sl_tensor_file *file = &load->tensors->files[part->file];
	const struct sluice_digest *wanted = &load->digests[part->file];
	struct sl_digest_read read = {
		.file = file->file,
		/* A file without a digest is read in the same way. */
		.kind = wanted->kind ? wanted->kind : SLUICE_XXH3_TREE,
		.workers = SL_MAX(sl_cores() / load->threads, 1),
		.length = file->length,
		.memory = reader->memory,
		.buffer_bytes = BUFFER_BYTES,
		.buffers = reader->buffers,
		.arrived = reader_arrived,
		.release = reader_release,
		.argument = reader,
		.moved = load->moved,
		.stop = load->stop,
	};
	char is[SL_DIGEST_TEXT], should[SL_DIGEST_TEXT];
	struct sluice_digest digest;
	int rc;

	reader->part = part;
	reader->extent = 0;
	rc = sl_digest_compute(&read, &digest);
	if (!rc && wanted->kind && !sl_digest_equal(&digest, wanted))
		rc = sl_fail(-EBADMSG, "'%s' has the %s %s, and not %s", file->name,
		             wanted->kind == SLUICE_SHA256 ? "SHA-256" : "XXH3 tree",
		             sl_digest_format(&digest, is), sl_digest_format(wanted, should));
	return rc;
}

static void *verified_run(void *argument)
{
	struct verified_load *load = argument;
	struct verified_reader reader = {.load = load};
	int rc = reader_allocate(&reader);
	size_t i;

	while (!rc && (i = atomic_fetch_add(&load->next, 1)) < load->count)
		rc = reader_read(&reader, &load->parts[i]);
	if (rc) {
		sl_mutex_lock(&load->mutex);
		if (!load->error)
			load->message = strdup(sluice_last_message());
		load->error = load->error ? load->error : rc;
		sl_mutex_unlock(&load->mutex);
		atomic_store(load->stop, true);
	}
	reader_close(&reader);
	return NULL;
}

/* Returns the device of the first destination. */
static int verified_device(const struct sl_tensor_part *parts, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (parts[i].count)
			return sluice_device_of(parts[i].extents[0].data);
	return -1;
}

/* Its threads have been joined. */
static int verified_end(struct verified_load *load) SL_UNCHECKED
{
	int rc = load->error;

	if (rc)
		sl_fail(rc, "%s", load->message ? load->message : sl_error_text(rc));
	free(load->message);
	sl_mutex_destroy(&load->mutex);
	return rc;
}

int sl_tensor_read_verified(const struct sluice_tensors *tensors,
                            const struct sl_tensor_part *parts, size_t count,
                            const struct sluice_digest *digests, _Atomic uint64_t *moved,
                            _Atomic bool *stop)
{
	struct verified_load load = {
		.tensors = tensors,
		.parts = parts,
		.count = count,
		.digests = digests,
		.moved = moved,
		.stop = stop,
		.threads = SL_MAX(SL_MIN(count, AT_ONCE), 1),
		.device = verified_device(parts, count),
	};
	pthread_t threads[AT_ONCE];
	unsigned started = 0;

	sl_mutex_init(&load.mutex);
	/* The calling thread is a reader, too. */
	while (started + 1 < load.threads &&
	       !sl_thread_start(&threads[started], "sluice-verify", verified_run, &load))
		started++;
	verified_run(&load);
	while (started)
		pthread_join(threads[--started], NULL);
	return verified_end(&load);
}
