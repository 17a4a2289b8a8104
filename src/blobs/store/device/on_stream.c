/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals and releases in stream order
 *
 * The stream gets a single command: the write of a word in host memory registered with the device.
 * The client thread polls the word, and then seals or releases as any thread does. Once the command
 * is enqueued, it depends on the device alone: no thread of the store can block the stream.
 *
 * devices->mutex guards the words and all operations.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "store/device/store_devices.h"

#define WORDS     4096
#define WORD_STEP 4 /* so that few words share a cache line */
#define OLD_NS    INT64_C(500000000)

/* -------------------------------------------------------------------------------------- words */

/* Words that streams of a device write to. Each operation sets its word to the next value. */
struct sl_stream_words {
	_Atomic uint32_t memory[WORDS * WORD_STEP]; /* whole pages, registered */
	uint16_t unused[WORDS];                     /* guarded by devices->mutex, and so is count */
	unsigned count;
};

static int stream_words_new(struct sl_device *device, struct sl_stream_words **out)
{
	struct sluice_device description = {.size = sizeof(description)};
	struct sl_stream_words *words;
	int rc = device->ops->describe(device, &description);

	if (!rc && !description.stream_order)
		return sl_fail(-ENOTSUP, "%s has no stream order: %s", device->name,
		               description.stream_order_detail);
	if (rc)
		return sl_fail(rc, "%s: cannot describe it: %s", device->name, sl_error_text(rc));
	words = mmap(NULL, sizeof(*words), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
	             0);
	if (words == MAP_FAILED)
		return sl_fail(-ENOMEM, "no memory");
	madvise(words, sizeof(*words), MADV_DONTFORK);
	rc = device->ops->register_memory(device, words->memory, sizeof(words->memory));
	if (rc) {
		munmap(words, sizeof(*words));
		return sl_fail(rc, "%s: cannot pin memory: %s", device->name, sl_error_text(rc));
	}
	for (unsigned i = 0; i < WORDS; i++)
		words->unused[words->count++] = (uint16_t)(WORDS - 1 - i);
	*out = words;
	return 0;
}

int sl_stream_words_open(sluice_store *store, struct sl_store_device *sdev)
{
	struct sl_stream_words *words;
	int rc = 0;

	if (atomic_load_explicit(&sdev->words, memory_order_acquire))
		return 0;
	sl_mutex_lock(&store->opening);
	if (!atomic_load(&sdev->words)) {
		rc = stream_words_new(sdev->device, &words);
		if (!rc)
			atomic_store_explicit(&sdev->words, words, memory_order_release);
	}
	sl_mutex_unlock(&store->opening);
	return rc;
}

void sl_stream_words_free(struct sl_devices *devices)
{
	for (unsigned i = 0; i < SL_DEVICES_MOST; i++) {
		struct sl_stream_words *words = atomic_load(&devices->by_index[i].words);
		struct sl_device *device = devices->by_index[i].device;

		/* The device may still write to memory that it keeps, so this must stay. */
		if (words &&
		    (!device->ops->unregister_memory(device, words->memory) ||
		     !device->ops->registered(device, words->memory, sizeof(words->memory))))
			munmap(words, sizeof(*words));
	}
}

/* Takes a word for an operation. Caller holds devices->mutex. */
static bool stream_word_take_locked(struct sl_stream_op *op)
{
	struct sl_stream_words *words = atomic_load(&op->sdev->words);

	if (!words->count)
		return false;
	op->word = words->memory + (size_t)words->unused[--words->count] * WORD_STEP;
	op->value = atomic_load(op->word) + 1;
	return true;
}

/* Gives a word back that the device will not write to any more. Caller holds devices->mutex. */
static void stream_word_give_locked(const struct sl_stream_op *op)
{
	struct sl_stream_words *words = atomic_load(&op->sdev->words);

	words->unused[words->count++] = (uint16_t)((size_t)(op->word - words->memory) / WORD_STEP);
}

static bool stream_word_has_come(const struct sl_stream_op *op)
{
	return atomic_load_explicit(op->word, memory_order_acquire) == op->value;
}

/* ---------------------------------------------------------------------------------------- end */

/*
 * Finds an operation that no thread has taken: with a word that was written or, if old_of is set,
 * an old operation of that device with a word that was not. take: takes it for the caller.
 */
static struct sl_stream_op *stream_op_find(struct sl_devices *devices,
                                           const struct sl_store_device *old_of, bool take)
{
	struct sl_stream_op *found = NULL;

	sl_mutex_lock(&devices->mutex);
	sl_list_each_of (op, &devices->stream_ops.list, struct sl_stream_op, link) {
		if (op->taken || stream_word_has_come(op) == !!old_of ||
		    (old_of && (op->sdev != old_of || sl_now() - op->begun < OLD_NS)))
			continue;
		op->taken = take;
		found = op;
		break;
	}
	sl_mutex_unlock(&devices->mutex);
	return found;
}

/* Drops a reference; returns false, and drops nothing, if it is the last. */
static bool blob_drop_reference(sluice_blob *blob)
{
	unsigned references = atomic_load(&blob->references);

	while (references > 1)
		if (atomic_compare_exchange_weak(&blob->references, &references, references - 1))
			return true;
	return false;
}

/* Tells the blobs that a seal ended; drops its references. Caller holds devices->mutex. */
static void stream_op_report_locked(struct sl_stream_op *op, int rc)
{
	for (unsigned i = 0; i < op->count; i++) {
		sluice_blob *blob = op->blobs[i];

		free(blob->stream_seal.message);
		blob->stream_seal.pending = false;
		blob->stream_seal.rc = rc;
		blob->stream_seal.message = rc ? strdup(sluice_last_message()) : NULL;
		blob->stream_seal.rival = sluice_last_rival();
		if (blob_drop_reference(blob))
			op->blobs[i] = NULL;
	}
}

/* Wakes waiters, releases blobs, and then removes the operation, for which a close waits. */
static void stream_op_end(struct sl_devices *devices, struct sl_stream_op *op, int rc)
{
	bool come = stream_word_has_come(op);

	sl_mutex_lock(&devices->mutex);
	if (!op->releases)
		stream_op_report_locked(op, rc);
	if (come)
		stream_word_give_locked(op);
	atomic_fetch_sub(&devices->stream_op_count, 1);
	pthread_cond_broadcast(&devices->stream_ops.changed);
	sl_mutex_unlock(&devices->mutex);
	for (unsigned i = 0; i < op->count; i++)
		if (op->blobs[i])
			sl_blob_unref(op->blobs[i]);
	sl_mutex_lock(&devices->mutex);
	sl_list_remove(&op->link);
	pthread_cond_broadcast(&devices->stream_ops.changed);
	sl_mutex_unlock(&devices->mutex);
	free(op);
}

bool sl_stream_op_run_next(struct sl_devices *devices)
{
	struct sl_stream_op *op =
		atomic_load(&devices->stream_op_count) ? stream_op_find(devices, NULL, true) : NULL;
	int rc = 0;

	if (!op)
		return false;
	sl_store_step("client: due");
	if (!op->releases)
		rc = sl_blobs_seal(devices->store, op->blobs, op->count);
	stream_op_end(devices, op, rc);
	return true;
}

void sl_stream_ops_check_devices(struct sl_devices *devices)
{
	for (unsigned i = 0; i < SL_DEVICES_MOST; i++) {
		struct sl_store_device *sdev = &devices->by_index[i];
		struct sl_stream_op *op;

		if (!atomic_load_explicit(&sdev->open, memory_order_acquire) ||
		    !stream_op_find(devices, sdev, false))
			continue;
		struct sl_device *device = sdev->device;
		/* A single failure may have another reason. */
		if (!device->ops->status(device) || !device->ops->status(device))
			continue;
		while ((op = stream_op_find(devices, sdev, true)))
			stream_op_end(devices, op,
			              sl_fail(-EIO, "%s has failed: the blob was not sealed",
			                      device->name));
	}
}

void sl_stream_ops_wait(struct sl_devices *devices)
{
	sl_mutex_lock(&devices->mutex);
	/*
	 * Ended by the client thread or, if the device has failed, by the unmap thread; or by the
	 * end of the process, which ends both threads.
	 */
	while (!sl_list_empty(&devices->stream_ops.list) && !atomic_load(&devices->stop))
		sl_cond_wait(&devices->stream_ops.changed, &devices->mutex, SL_FOREVER);
	sl_mutex_unlock(&devices->mutex);
}

/* ------------------------------------------------------------------------ seal_on, release_on */

/*
 * Returns the stream's device. A default stream is taken to be that of the first blob's device (the
 * device that it was got for, or that it is on), or else of the thread's current device.
 */
static struct sl_device *stream_op_device(sluice_blob *const *v, size_t count, sluice_stream stream)
{
	const struct sl_device *device = NULL;

	for (size_t i = 0; !device && i < count; i++) {
		const struct sl_mapping *mapping = v[i]->mapping;

		if (mapping && mapping->by_driver && mapping->for_device)
			device = mapping->for_device;
		else if (v[i]->sdev)
			device = v[i]->sdev->device;
		for (unsigned k = 0; !device && k < v[i]->part_count; k++) {
			const sluice_blob *part = atomic_load(&v[i]->parts[k]);

			device = part && part->sdev ? part->sdev->device : NULL;
		}
	}
	return sl_device_of_stream(stream,
	                           device ? (struct sl_device *)device : sl_device_current());
}

/* Undoes stream_op_set() for the first n blobs. Caller holds devices->mutex. */
static void stream_op_take_back_locked(struct sl_stream_op *op, unsigned n)
{
	while (!op->releases && n--) {
		op->blobs[n]->stream_seal.pending = op->blobs[n]->stream_seal.requested = false;
		atomic_fetch_sub(&op->blobs[n]->references, 1);
	}
}

/*
 * Fills in the blobs and the word. For a seal each blob gets a reference, and no other seal is
 * possible meanwhile; for a release the operation takes over the handle's reference.
 */
static int stream_op_set(struct sl_devices *devices, struct sl_stream_op *op, sluice_blob *const *v)
{
	unsigned n = 0;
	int rc = 0;

	sl_mutex_lock(&devices->mutex);
	for (; n < op->count && (op->releases || !v[n]->stream_seal.pending); n++) {
		op->blobs[n] = v[n];
		if (op->releases)
			continue;
		free(v[n]->stream_seal.message);
		v[n]->stream_seal.message = NULL;
		v[n]->stream_seal.requested = v[n]->stream_seal.pending = true;
		atomic_fetch_add(&v[n]->references, 1);
	}
	if (n < op->count)
		rc = sl_fail(-EPERM, "the blob is to be sealed already, or is there twice");
	else if (!stream_word_take_locked(op))
		rc = sl_fail(-ENOMEM, "%d seals and releases are under way on %s", WORDS,
		             op->sdev->device->name);
	if (rc)
		stream_op_take_back_locked(op, n);
	sl_mutex_unlock(&devices->mutex);
	return rc;
}

/* Publishes an operation: from here on both threads see it. */
static void stream_op_publish(struct sl_devices *devices, struct sl_stream_op *op)
{
	/* A thread that closes the store waits for the operation instead of the handle. */
	if (op->releases)
		atomic_fetch_sub(&devices->store->handles, 1);
	sl_mutex_lock(&devices->mutex);
	op->begun = sl_now();
	sl_list_append(&devices->stream_ops.list, &op->link);
	atomic_fetch_add(&devices->stream_op_count, 1);
	sl_mutex_unlock(&devices->mutex);
	sl_devices_wake(devices);
}

static int stream_op_enqueue(sluice_store *store, struct sl_store_device *sdev,
                             sluice_blob *const *v, size_t count, sluice_stream stream,
                             bool releases)
{
	struct sl_devices *devices = sl_devices_of(store);
	struct sl_device *device = sdev->device;
	struct sl_stream_op *op = calloc(1, sizeof(*op) + count * sizeof(*v));
	struct sl_command command = {.kind = SL_WRITE_WORD};
	size_t taken = 0;

	if (!op)
		return sl_fail(-ENOMEM, "no memory");
	op->sdev = sdev;
	op->count = (unsigned)count;
	op->releases = releases;
	int rc = stream_op_set(devices, op, v);
	if (rc) {
		free(op);
		return rc;
	}
	command.word.at = op->word;
	command.word.value = op->value;
	rc = device->ops->enqueue(device, stream, &command, 1, &taken);
	/* The stream executes it unless the device fails, which the unmap thread sees. */
	if (taken) {
		sl_store_step("client: promised");
		stream_op_publish(devices, op);
		return 0;
	}
	sl_mutex_lock(&devices->mutex);
	/* The stream does not know the word. */
	stream_word_give_locked(op);
	stream_op_take_back_locked(op, op->count);
	sl_mutex_unlock(&devices->mutex);
	free(op);
	return sl_fail(rc, "%s: cannot %s in stream order: %s", device->name,
	               releases ? "release" : "seal", sl_error_text(rc));
}

static int stream_op_begin(sluice_blob *const *v, size_t count, sluice_stream stream, bool releases)
{
	struct sl_device *device = stream_op_device(v, count, stream);
	struct sl_store_device *sdev;

	if (!device)
		return sl_fail(-EINVAL, "sluice_blob_%s_on: no device has this stream",
		               releases ? "release" : "seal");
	int rc = sl_store_device_open(v[0]->store, device, &sdev);
	if (!rc)
		rc = device->ops->stream_check(device, stream);
	if (!rc)
		rc = sl_stream_words_open(v[0]->store, sdev);
	return rc ? rc : stream_op_enqueue(v[0]->store, sdev, v, count, stream, releases);
}

int sluice_blob_seal_many_on(sluice_blob *const *v, size_t count, sluice_stream stream)
{
	int rc = sl_blobs_check("sluice_blob_seal_on", v, count);

	return rc ? rc : stream_op_begin(v, count, stream, false);
}

int sluice_blob_seal_on(sluice_blob *blob, sluice_stream stream)
{
	return sluice_blob_seal_many_on(&blob, 1, stream);
}

int sluice_blob_release_on(sluice_blob *blob, sluice_stream stream)
{
	if (!blob)
		return 0;
	int rc = sl_store_check(blob->store, "sluice_blob_release_on");
	if (!rc)
		rc = sl_blob_check_no_part(blob, "sluice_blob_release_on");
	return rc ? rc : stream_op_begin(&blob, 1, stream, true);
}

/* ---------------------------------------------------------------------------------- questions */

int sluice_blob_wait_sealed(sluice_blob *blob, int timeout_ms)
{
	int64_t deadline = sl_deadline(timeout_ms);

	if (!blob)
		return sl_fail(-EINVAL, "sluice_blob_wait_sealed: the blob is NULL");
	int rc = sl_store_check(blob->store, "sluice_blob_wait_sealed");
	if (rc)
		return rc;
	if (blob->state != SLUICE_BLOB_IS_CREATED)
		return 0;
	if (!blob->stream_seal.requested)
		return sl_fail(-EINVAL,
		               "nobody has asked for the blob to be sealed in stream order");
	struct sl_devices *devices = sl_devices_of(blob->store);
	sl_mutex_lock(&devices->mutex);
	/* Ended by the client thread, the unmap thread, the deadline or the process's end. */
	while (blob->stream_seal.pending && !rc && !atomic_load(&devices->stop))
		rc = sl_cond_wait(&devices->stream_ops.changed, &devices->mutex, deadline);
	rc = blob->stream_seal.pending
	             ? sl_fail(-EINPROGRESS, "the stream has not come to the seal yet")
	             : blob->stream_seal.rc;
	if (!blob->stream_seal.pending && rc)
		sl_fail(rc, "%s",
		        blob->stream_seal.message ? blob->stream_seal.message : "no memory");
	if (rc == -ESTALE)
		sl_set_last_rival(blob->stream_seal.rival);
	sl_mutex_unlock(&devices->mutex);
	return rc;
}
