/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals and releases in stream order. The stream is given one command, the write of a word in host memory that its device
 * has registered; the courier sees the word, and seals or releases as everybody does. From the moment the command is given nothing
 * but the device has to do with it: neither thread of the store keeps a stream from going on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "store/devices.h"

#define WORDS     4096
#define WORD_STEP 4 /* so that a line of the cache has few of them */
#define OLD_NS    INT64_C(500000000)

/* --------------------------------------------------------------------------------------- words */

/* Words that the device writes, each to the value after its last. */
struct sl_words {
	_Atomic uint32_t memory[WORDS * WORD_STEP]; /* whole pages, registered */
	uint16_t unused[WORDS];                     /* guarded by devices->mutex, as is the count */
	unsigned count;
};

static int words_new(struct sl_device *device, struct sl_words **out)
{
	struct sluice_device description = {.size = sizeof(description)};
	struct sl_words *words;
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

int sl_words_open(sluice_store *store, struct sl_post *post)
{
	struct sl_words *words;
	int rc = 0;

	if (atomic_load_explicit(&post->words, memory_order_acquire))
		return 0;
	sl_mutex_lock(&store->opening);
	if (!atomic_load(&post->words)) {
		rc = words_new(post->device, &words);
		if (!rc)
			atomic_store_explicit(&post->words, words, memory_order_release);
	}
	sl_mutex_unlock(&store->opening);
	return rc;
}

void sl_words_free(struct sl_post *post)
{
	struct sl_words *words = atomic_load(&post->words);
	struct sl_device *device = post->device;
	int rc;

	if (!words)
		return;
	rc = device->ops->unregister_memory(device, words->memory);
	/* Memory that the device may still write to must stay. */
	if (!rc || !device->ops->registered(device, words->memory, sizeof(words->memory)))
		munmap(words, sizeof(*words));
}

/* With devices->mutex. */
static bool take_word(struct sl_promise *promise)
{
	struct sl_words *words = atomic_load(&promise->post->words);

	if (!words->count)
		return false;
	promise->word = words->memory + (size_t)words->unused[--words->count] * WORD_STEP;
	promise->value = atomic_load(promise->word) + 1;
	return true;
}

/* With devices->mutex. One that the device may yet write to is not used again. */
static void give_word(const struct sl_promise *promise)
{
	struct sl_words *words = atomic_load(&promise->post->words);

	words->unused[words->count++] =
		(uint16_t)((size_t)(promise->word - words->memory) / WORD_STEP);
}

static bool has_come(const struct sl_promise *promise)
{
	return atomic_load_explicit(promise->word, memory_order_acquire) == promise->value;
}

/* ------------------------------------------------------------------------------------ the end */

/* One that no thread has taken: whose word has come, or, of that post, which is old; if take is set it is the caller's
 * then. NULL: there is none. */
static struct sl_promise *find(struct sl_devices *devices, const struct sl_post *old_of, bool take)
{
	struct sl_promise *found = NULL;

	sl_mutex_lock(&devices->mutex);
	sl_list_each (link, &devices->promises.list) {
		struct sl_promise *promise = SL_CONTAINER(link, struct sl_promise, link);

		if (promise->taken || has_come(promise) == !!old_of ||
		    (old_of && (promise->post != old_of || sl_now() - promise->begun < OLD_NS)))
			continue;
		promise->taken = take;
		found = promise;
		break;
	}
	sl_mutex_unlock(&devices->mutex);
	return found;
}

/* False, and nothing happens: it is the last one. */
static bool drop_a_reference(sluice_blob *blob)
{
	unsigned references = atomic_load(&blob->references);

	while (references > 1)
		if (atomic_compare_exchange_weak(&blob->references, &references, references - 1))
			return true;
	return false;
}

/* With the mutex. A blob whose handle was not given up has no reference of the promise's from here on. */
static void tell_of_seal(struct sl_promise *promise, int rc)
{
	for (unsigned i = 0; i < promise->count; i++) {
		sluice_blob *blob = promise->blobs[i];

		free(blob->promise.text);
		blob->promise.waits = false;
		blob->promise.rc = rc;
		blob->promise.text = rc ? strdup(sluice_last_message()) : NULL;
		if (drop_a_reference(blob))
			promise->blobs[i] = NULL;
	}
}

/* It is over, for who waits; then its blobs are let go; then it is gone, for who closes the store. */
static void conclude(struct sl_devices *devices, struct sl_promise *promise, int rc)
{
	bool come = has_come(promise);

	sl_mutex_lock(&devices->mutex);
	if (!promise->releases)
		tell_of_seal(promise, rc);
	if (come)
		give_word(promise);
	atomic_fetch_sub(&devices->promised, 1);
	pthread_cond_broadcast(&devices->promises.changed);
	sl_mutex_unlock(&devices->mutex);
	for (unsigned i = 0; i < promise->count; i++)
		if (promise->blobs[i])
			sl_blob_unref(promise->blobs[i]);
	sl_mutex_lock(&devices->mutex);
	sl_list_remove(&promise->link);
	pthread_cond_broadcast(&devices->promises.changed);
	sl_mutex_unlock(&devices->mutex);
	free(promise);
}

bool sl_promise_keep(struct sl_devices *devices)
{
	struct sl_promise *promise =
		atomic_load(&devices->promised) ? find(devices, NULL, true) : NULL;
	int rc = 0;

	if (!promise)
		return false;
	sl_store_step("client: due");
	if (!promise->releases)
		rc = sl_blobs_seal(devices->store, promise->blobs, promise->count);
	conclude(devices, promise, rc);
	return true;
}

void sl_promises_doubt(struct sl_devices *devices)
{
	for (unsigned i = 0; i < SL_DEVICES_MOST; i++) {
		struct sl_post *post = &devices->posts[i];
		struct sl_promise *promise;
		struct sl_device *device;

		if (!atomic_load_explicit(&post->open, memory_order_acquire) ||
		    !find(devices, post, false))
			continue;
		device = post->device;
		/* A call that failed once for another reason says nothing. */
		if (!device->ops->status(device) || !device->ops->status(device))
			continue;
		while ((promise = find(devices, post, true)))
			conclude(devices, promise,
			         sl_fail(-EIO, "%s has failed: the blob was not sealed",
			                 device->name));
	}
}

void sl_promises_wait(struct sl_devices *devices)
{
	sl_mutex_lock(&devices->mutex);
	/* Ended by the courier, or, if the device is gone, by the mapper; or because the process ends, and both with it. */
	while (!sl_list_empty(&devices->promises.list) && !atomic_load(&devices->stop))
		sl_cond_wait(&devices->promises.changed, &devices->mutex, SL_FOREVER);
	sl_mutex_unlock(&devices->mutex);
}

/* ----------------------------------------------------------------------------- seal_on, release_on */

/* The stream's device. A stream that all devices have is that of the first blob's device, which it was got for or is on, or of
 * the thread's. */
static struct sl_device *device_of(sluice_blob *const *v, size_t count, sluice_stream stream)
{
	const struct sl_device *device = NULL;

	for (size_t i = 0; !device && i < count; i++) {
		const struct sl_mapping *mapping = v[i]->mapping;

		if (mapping && mapping->far && mapping->by)
			device = mapping->by;
		else if (v[i]->post)
			device = v[i]->post->device;
	}
	return sl_device_of_stream(stream,
	                           device ? (struct sl_device *)device : sl_device_current());
}

/* Its first n blobs are not to be sealed by it. With devices->mutex. */
static void take_back(struct sl_promise *promise, unsigned n)
{
	while (!promise->releases && n--) {
		promise->blobs[n]->promise.waits = promise->blobs[n]->promise.asked = false;
		atomic_fetch_sub(&promise->blobs[n]->references, 1);
	}
}

/* All of the blobs are to be sealed by this, and by nothing else; or the handle's reference to one is the promise's, once
 * the stream knows of it. */
static int promise_all(struct sl_devices *devices, struct sl_promise *promise,
                       sluice_blob *const *v)
{
	unsigned n = 0;
	int rc = 0;

	sl_mutex_lock(&devices->mutex);
	for (; n < promise->count && (promise->releases || !v[n]->promise.waits); n++) {
		promise->blobs[n] = v[n];
		if (promise->releases)
			continue;
		free(v[n]->promise.text);
		v[n]->promise.text = NULL;
		v[n]->promise.asked = v[n]->promise.waits = true;
		atomic_fetch_add(&v[n]->references, 1);
	}
	if (n < promise->count)
		rc = sl_fail(-EPERM, "the blob is to be sealed already, or is there twice");
	else if (!take_word(promise))
		rc = sl_fail(-ENOMEM, "%d seals and releases are under way on %s", WORDS,
		             promise->post->device->name);
	if (rc)
		take_back(promise, n);
	sl_mutex_unlock(&devices->mutex);
	return rc;
}

/* From here on the word may come, and the threads see it. */
static void publish(struct sl_devices *devices, struct sl_promise *promise)
{
	/* Who closes the store waits for the promise instead. */
	if (promise->releases)
		atomic_fetch_sub(&devices->store->handles, 1);
	sl_mutex_lock(&devices->mutex);
	promise->begun = sl_now();
	sl_list_append(&devices->promises.list, &promise->link);
	atomic_fetch_add(&devices->promised, 1);
	sl_mutex_unlock(&devices->mutex);
	sl_devices_wake(devices);
}

static int give(sluice_store *store, struct sl_post *post, sluice_blob *const *v, size_t count,
                sluice_stream stream, bool releases)
{
	struct sl_devices *devices = sl_devices_of(store);
	struct sl_device *device = post->device;
	struct sl_promise *promise = calloc(1, sizeof(*promise) + count * sizeof(*v));
	struct sl_command command = {.kind = SL_WRITE_WORD};
	size_t taken = 0;
	int rc;

	if (!promise)
		return sl_fail(-ENOMEM, "no memory");
	promise->post = post;
	promise->count = (unsigned)count;
	promise->releases = releases;
	rc = promise_all(devices, promise, v);
	if (rc) {
		free(promise);
		return rc;
	}
	command.word.at = promise->word;
	command.word.value = promise->value;
	rc = device->ops->enqueue(device, stream, &command, 1, &taken);
	/* What the stream has taken it will do, or the device is lost, which the mapper finds out. */
	if (taken) {
		sl_store_step("client: promised");
		publish(devices, promise);
		return 0;
	}
	sl_mutex_lock(&devices->mutex);
	/* The stream does not know of it. */
	give_word(promise);
	take_back(promise, promise->count);
	sl_mutex_unlock(&devices->mutex);
	free(promise);
	return sl_fail(rc, "%s: cannot %s in stream order: %s", device->name,
	               releases ? "release" : "seal", sl_error_text(rc));
}

static int promise_on(sluice_blob *const *v, size_t count, sluice_stream stream, bool releases)
{
	struct sl_device *device = device_of(v, count, stream);
	struct sl_post *post;
	int rc;

	if (!device)
		return sl_fail(-EINVAL, "sluice_blob_%s_on: no device has this stream",
		               releases ? "release" : "seal");
	rc = sl_post_open(v[0]->store, device, &post);
	if (!rc)
		rc = device->ops->stream_check(device, stream);
	if (!rc)
		rc = sl_words_open(v[0]->store, post);
	return rc ? rc : give(v[0]->store, post, v, count, stream, releases);
}

int sluice_blob_seal_many_on(sluice_blob *const *v, size_t count, sluice_stream stream)
{
	int rc = sl_blobs_check("sluice_blob_seal_on", v, count);

	return rc ? rc : promise_on(v, count, stream, false);
}

int sluice_blob_seal_on(sluice_blob *blob, sluice_stream stream)
{
	return sluice_blob_seal_many_on(&blob, 1, stream);
}

int sluice_blob_release_on(sluice_blob *blob, sluice_stream stream)
{
	int rc;

	if (!blob)
		return 0;
	rc = sl_store_check(blob->store, "sluice_blob_release_on");
	return rc ? rc : promise_on(&blob, 1, stream, true);
}

/* ------------------------------------------------------------------------------------- asking */

int sl_promised(sluice_blob *blob)
{
	struct sl_devices *devices = sl_devices_of(blob->store);
	bool waits = false;

	if (devices) {
		sl_mutex_lock(&devices->mutex);
		waits = blob->promise.waits;
		sl_mutex_unlock(&devices->mutex);
	}
	return waits ? sl_fail(-EPERM, "the blob is to be sealed already") : 0;
}

int sluice_blob_wait_sealed(sluice_blob *blob, int timeout_ms)
{
	int64_t deadline = sl_deadline(timeout_ms);
	struct sl_devices *devices;
	int rc;

	if (!blob)
		return sl_fail(-EINVAL, "sluice_blob_wait_sealed: the blob is NULL");
	rc = sl_store_check(blob->store, "sluice_blob_wait_sealed");
	if (rc)
		return rc;
	if (blob->state != SLUICE_BLOB_IS_CREATED)
		return 0;
	if (!blob->promise.asked)
		return sl_fail(-EINVAL,
		               "nobody has asked for the blob to be sealed in stream order");
	devices = sl_devices_of(blob->store);
	sl_mutex_lock(&devices->mutex);
	/* Ended by the courier, by the mapper, by the time, or by the end of the process. */
	while (blob->promise.waits && !rc && !atomic_load(&devices->stop))
		rc = sl_cond_wait(&devices->promises.changed, &devices->mutex, deadline);
	rc = blob->promise.waits ? sl_fail(-ETIMEDOUT, "the stream has not come to the seal yet")
	                         : blob->promise.rc;
	if (!blob->promise.waits && rc)
		sl_fail(rc, "%s", blob->promise.text ? blob->promise.text : "no memory");
	sl_mutex_unlock(&devices->mutex);
	return rc;
}
