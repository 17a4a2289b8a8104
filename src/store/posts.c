/* SPDX-License-Identifier: Apache-2.0 */
/* Devices as a store knows them: by a number of the server's, which stands for a place that all processes know. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "store/devices.h"

/* -------------------------------------------------------------------------------------- place */

int sl_place_find(const char *place)
{
	struct sl_device *device;

	for (unsigned i = 0; (device = sl_device_find(i)); i++)
		if (!strcmp(sl_device_place(device), place))
			return (int)i;
	return -2;
}

/* ----------------------------------------------------------------------------------- the whole */

static void devices_free(struct sl_devices *devices)
{
	pthread_cond_destroy(&devices->mapped.work);
	pthread_cond_destroy(&devices->mapped.changed);
	pthread_cond_destroy(&devices->promises.changed);
	pthread_mutex_destroy(&devices->mutex);
	if (devices->bell >= 0)
		close(devices->bell);
	free(devices);
}

static int devices_new(sluice_store *store, struct sl_devices **out)
{
	struct sl_devices *devices = calloc(1, sizeof(*devices));
	pthread_condattr_t monotonic;

	if (!devices)
		return sl_fail(-ENOMEM, "no memory");
	devices->store = store;
	for (unsigned i = 0; i < SL_DEVICES_MOST; i++) {
		devices->posts[i].number = -1;
		sl_list_init(&devices->posts[i].idle);
	}
	sl_list_init(&devices->mapped.leaving);
	sl_list_init(&devices->promises.list);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&devices->mapped.work, &monotonic);
	pthread_cond_init(&devices->promises.changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_cond_init(&devices->mapped.changed, NULL);
	pthread_mutex_init(&devices->mutex, NULL);
	devices->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (devices->bell < 0) {
		devices_free(devices);
		return sl_fail(-errno, "cannot make an eventfd: %s", sl_error_text(-errno));
	}
	*out = devices;
	return 0;
}

/* With store->opening, which orders those who would be first. */
static int devices_open(sluice_store *store, struct sl_devices **out)
{
	struct sl_devices *devices = sl_devices_of(store);
	int rc;

	if (devices) {
		*out = devices;
		return 0;
	}
	rc = devices_new(store, &devices);
	if (rc)
		return rc;
	rc = sl_mapper_start(devices);
	if (rc) {
		devices_free(devices);
		return rc;
	}
	/* The courier hears of mappings to forget, so it finds what it needs for that. */
	atomic_store_explicit(&store->devices, devices, memory_order_release);
	rc = sl_courier_start(devices);
	if (rc) {
		atomic_store(&store->devices, NULL);
		sl_mapper_stop(devices);
		devices_free(devices);
		return rc;
	}
	*out = devices;
	return 0;
}

bool sl_devices_stop(sluice_store *store)
{
	struct sl_devices *devices = sl_devices_of(store);

	if (!devices)
		return true;
	if (!sl_devices_forget_exit(devices))
		return false;
	sl_courier_stop(devices);
	sl_mapper_stop(devices);
	return true;
}

void sl_devices_free(sluice_store *store)
{
	struct sl_devices *devices = sl_devices_of(store);

	if (!devices)
		return;
	for (unsigned i = 0; i < SL_DEVICES_MOST; i++)
		sl_words_free(&devices->posts[i]);
	atomic_store(&store->devices, NULL);
	devices_free(devices);
}

/* --------------------------------------------------------------------------------------- post */

int sl_post_open(sluice_store *store, struct sl_device *device, struct sl_post **out)
{
	struct sl_devices *devices = sl_devices_of(store);
	struct sl_post *post = devices ? &devices->posts[device->index] : NULL;
	int rc;

	if (post && atomic_load_explicit(&post->open, memory_order_acquire)) {
		*out = post;
		return 0;
	}
	pthread_mutex_lock(&store->opening);
	rc = device->ops->open ? device->ops->open(device) : 0;
	if (rc)
		rc = sl_fail(-ENOTSUP, "%s cannot be used: %s", device->name,
		             sluice_last_message());
	if (!rc)
		rc = devices_open(store, &devices);
	if (!rc) {
		post = &devices->posts[device->index];
		/* Unless another thread was faster, after which it is not written any more. */
		if (!atomic_load(&post->open)) {
			post->device = device;
			sl_devices_expect_exit(devices, device);
			atomic_store_explicit(&post->open, true, memory_order_release);
		}
		*out = post;
	}
	pthread_mutex_unlock(&store->opening);
	return rc;
}

static int check_sharing(const struct sl_device *device)
{
	return device->sharing
	               ? 0
	               : sl_fail(-ENOTSUP, "the memory of %s cannot be shared between processes",
	                         device->name);
}

int sl_post_numbered(sluice_store *store, int number, struct sl_post **out)
{
	struct sl_device *device = number < 0 ? NULL : sl_device_find((unsigned)number);
	struct sl_post *post;
	int rc;

	if (!device)
		return sl_fail(-ENOTSUP, "there is no device %d", number);
	/* What can be shared is known when the driver runs. */
	rc = sl_post_open(store, device, &post);
	if (!rc)
		rc = check_sharing(device);
	if (!rc)
		*out = post;
	return rc;
}

static struct sl_post *post_known(sluice_store *store, int32_t number)
{
	struct sl_devices *devices = sl_devices_of(store);
	struct sl_post *post = NULL;

	pthread_mutex_lock(&store->mutex);
	for (unsigned i = 0; devices && !post && i < SL_DEVICES_MOST; i++)
		if (devices->posts[i].number == number)
			post = &devices->posts[i];
	pthread_mutex_unlock(&store->mutex);
	return post;
}

/* Numbers are of one keeper's servers. */
static void note_number(sluice_store *store, struct sl_post *post, int32_t number, uint64_t turn)
{
	pthread_mutex_lock(&store->mutex);
	if (store->turn == turn)
		post->number = number;
	pthread_mutex_unlock(&store->mutex);
}

static int ask(sluice_store *store, int32_t number, const char *place, union sl_message *m,
               uint64_t *turn)
{
	struct sl_call call;
	int rc;

	do {
		sl_message_begin(m, SL_DEVICE, 0, 0);
		m->device.number = number;
		strcpy(m->device.place, place);
		rc = sl_call_begin(store, m, SL_DEVICE_IS, &call);
	} while (rc == -ECONNRESET);
	if (rc)
		return rc;
	*turn = call.turn;
	sl_call_end(store, &call);
	return 0;
}

int sl_post_of_place(sluice_store *store, int32_t number, struct sl_post **out)
{
	struct sl_post *post = post_known(store, number);
	union sl_message m;
	uint64_t turn;
	int rc, here;

	if (post) {
		*out = post;
		return 0;
	}
	rc = ask(store, number, "", &m, &turn);
	if (rc)
		return rc;
	here = sl_place_find(m.device_is.place);
	if (here < 0)
		return sl_fail(-ENOTSUP,
		               "the blob is on %s, a device that this process does not have",
		               m.device_is.place);
	rc = sl_post_numbered(store, here, &post);
	if (rc)
		return rc;
	note_number(store, post, number, turn);
	*out = post;
	return 0;
}

int sl_post_number(sluice_store *store, struct sl_post *post, int32_t *out, uint64_t *turn)
{
	union sl_message m;
	int32_t number;
	int rc;

	pthread_mutex_lock(&store->mutex);
	number = post->number;
	*turn = store->turn;
	pthread_mutex_unlock(&store->mutex);
	if (number < 0) {
		rc = ask(store, -1, sl_device_place(post->device), &m, turn);
		if (rc)
			return rc;
		number = m.device_is.number;
		note_number(store, post, number, *turn);
	}
	*out = number;
	return 0;
}

/* --------------------------------------------------------------------------------------- tell */

int sluice_store_device(sluice_store *store, unsigned index, struct sluice_store_device_info *out)
{
	int rc = sl_store_check(store, "sluice_store_device");
	struct sluice_store_device_info device;
	union sl_message m;
	uint64_t turn;

	if (!rc && (!out || out->size < sizeof(out->size)))
		rc = sl_fail(-EINVAL, "sluice_store_device: out->size is not set");
	if (!rc && index > INT32_MAX)
		rc = sl_fail(-ENOENT, "the store knows no device %u", index);
	if (!rc)
		rc = ask(store, (int32_t)index, "", &m, &turn);
	if (rc)
		return rc;
	device = (struct sluice_store_device_info){.size = out->size,
	                                           .device = sl_place_find(m.device_is.place),
	                                           .memory_limit = m.device_is.memory_limit,
	                                           .memory_bytes = m.device_is.memory_bytes,
	                                           .leaving_bytes = m.device_is.leaving_bytes};
	memcpy(device.place, m.device_is.place, sizeof(device.place));
	memcpy(out, &device, SL_MIN(out->size, sizeof(device)));
	return 0;
}
