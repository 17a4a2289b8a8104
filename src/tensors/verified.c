/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads that check their files by digests
 *
 * Reads each file once and as a whole into buffers of the load's own, from where its bytes are
 * hashed and copied to their destinations. A buffer is used again when both are done, so hashing
 * holds no memory that other operations of the context need.
 *
 * Threads: a few, each of which reads a file at a time, copies its bytes and hashes them. The
 * thread that calls sl_tensor_read_verified() waits for them.
 */
#include <errno.h>

#include "tensors/crew.h"
#include "tensors/digest.h"
#include "tensors/tensors.h"

#define LOAD_BYTES   ((size_t)128 << 20) /* of all buffers */
#define BUFFER_BYTES ((size_t)4 << 20)
#define AT_ONCE      8 /* files */

struct verified_load {
	const struct sluice_tensors *tensors;
	const struct sl_tensor_stretch *stretches;
	size_t count;
	const struct sluice_digest *digests;
	_Atomic uint64_t *moved;
	_Atomic bool *stop;
	unsigned threads;
	int device; /* for which buffers are pinned; -1: none */

	_Atomic size_t next; /* stretch that no thread has taken */
};

/* A thread of a load. */
struct verified_reader {
	struct verified_load *load;
	const struct sl_tensor_stretch *stretch;
	size_t extent; /* the first that may have bytes that have not arrived */
	struct sl_lanes lanes;
};

/* --------------------------------------------------------------------------------------- copies */

/* Copies the spans of the stretch that have arrived. */
static int reader_arrived(void *argument, unsigned buffer, const char *data, size_t n,
                          uint64_t offset)
{
	struct verified_reader *reader = argument;
	const struct sl_tensor_stretch *stretch = reader->stretch;
	int rc = 0;

	while (reader->extent < stretch->count &&
	       stretch->extents[reader->extent].offset + stretch->extents[reader->extent].length <=
	               offset)
		reader->extent++;
	for (size_t i = reader->extent; !rc && i < stretch->count; i++) {
		const struct sluice_extent *extent = &stretch->extents[i];
		uint64_t from = SL_MAX(extent->offset, offset);
		uint64_t to = SL_MIN(extent->offset + extent->length, offset + n);

		if (extent->offset >= offset + n)
			break;
		if (from < to)
			rc = sl_lanes_copy(&reader->lanes, buffer, sluice_device_of(extent->data),
			                   (char *)extent->data + (from - extent->offset),
			                   data + (from - offset),
			                   (struct sl_rows){1, to - from, 0, 0});
	}
	return rc ? rc : sl_lanes_record(&reader->lanes, buffer);
}

static int reader_release(void *argument, unsigned buffer)
{
	struct verified_reader *reader = argument;

	return sl_lanes_release(&reader->lanes, buffer);
}

/* -------------------------------------------------------------------------------------- threads */

/* Allocates the buffers of a thread. */
static int reader_allocate(struct verified_reader *reader)
{
	const struct verified_load *load = reader->load;
	uint64_t most = 1;

	for (size_t i = 0; i < load->count; i++)
		most = SL_MAX(most, load->tensors->files[load->stretches[i].file].length);
	return sl_lanes_open(
		&reader->lanes, load->device,
		SL_MIN((most - 1) / BUFFER_BYTES + 1, LOAD_BYTES / BUFFER_BYTES / load->threads),
		BUFFER_BYTES);
}

static int reader_read(struct verified_reader *reader, const struct sl_tensor_stretch *stretch)
{
	struct verified_load *load = reader->load;
	const struct sl_tensor_file *file = &load->tensors->files[stretch->file];
	const struct sluice_digest *wanted = &load->digests[stretch->file];
	struct sl_digest_read read = {
		.file = file->file,
		/* A file without a digest is read in the same way. */
		.kind = wanted->kind ? wanted->kind : SLUICE_XXH3_128,
		.length = file->length,
		.memory = reader->lanes.memory,
		.buffer_bytes = BUFFER_BYTES,
		.buffers = reader->lanes.buffers,
		.arrived = reader_arrived,
		.release = reader_release,
		.argument = reader,
		.moved = load->moved,
		.stop = load->stop,
	};
	char is[SL_DIGEST_TEXT], should[SL_DIGEST_TEXT];
	struct sluice_digest digest;

	reader->stretch = stretch;
	reader->extent = 0;
	int rc = sl_digest_compute(&read, &digest);
	if (!rc && wanted->kind && !sl_digest_equal(&digest, wanted))
		rc = sl_fail(-EBADMSG, "'%s' has the %s %s, and not %s", file->name,
		             wanted->kind == SLUICE_SHA256 ? "SHA-256" : "XXH3-128",
		             sl_digest_format(&digest, is), sl_digest_format(wanted, should));
	return rc;
}

static int verified_work(void *argument)
{
	struct verified_load *load = argument;
	struct verified_reader reader = {.load = load};
	int rc = reader_allocate(&reader);
	size_t i;

	while (!rc && (i = atomic_fetch_add(&load->next, 1)) < load->count)
		rc = reader_read(&reader, &load->stretches[i]);
	sl_lanes_close(&reader.lanes);
	return rc;
}

/* Returns the device of the first destination. */
static int verified_device(const struct sl_tensor_stretch *stretches, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (stretches[i].count)
			return sluice_device_of(stretches[i].extents[0].data);
	return -1;
}

int sl_tensor_read_verified(const struct sluice_tensors *tensors,
                            const struct sl_tensor_stretch *stretches, size_t count,
                            const struct sluice_digest *digests, _Atomic uint64_t *moved,
                            _Atomic bool *stop)
{
	struct verified_load load = {
		.tensors = tensors,
		.stretches = stretches,
		.count = count,
		.digests = digests,
		.moved = moved,
		.stop = stop,
		.threads = SL_MAX(SL_MIN(count, AT_ONCE), 1),
		.device = verified_device(stretches, count),
	};

	return sl_crew_run("sluice-verify", load.threads, verified_work, &load, stop);
}
