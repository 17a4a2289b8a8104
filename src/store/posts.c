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
	if (!devices)
		return;
	pthread_cond_destroy(&devices->mapped.work);
	pthread_cond_destroy(&devices->promises.changed);
	sl_mutex_destroy(&devices->mutex);
	if (devices->bell >= 0)
		close(devices->bell);
	free(devices);
}

static int devices_new(sluice_store *store, struct sl_devices **out)
{
	struct sl_devices *devices = calloc(1, sizeof(*devices));

	if (!devices)
		return sl_fail(-ENOMEM, "no memory");
	devices->store = store;
	for (unsigned i = 0; i < SL_DEVICES_MOST; i++) {
		devices->posts[i].number = -1;
		sl_list_init(&devices->posts[i].idle);
	}
	sl_list_init(&devices->mapped.leaving);
	sl_list_init(&devices->promises.list);
	pthread_cond_init(&devices->mapped.work, NULL);
	pthread_cond_init(&devices->promises.changed, NULL);
	sl_mutex_init(&devices->mutex);
	devices->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (devices->bell < 0) {
		devices_free(devices);
		return sl_fail(-errno, "cannot make an eventfd: %s", sl_error_text(-errno));
	}
	*out = devices;
	return 0;
}

/* With store->opening, which orders the threads that would be first. */
static int devices_open(sluice_store *store)
{
	struct sl_devices *devices = NULL;
	int rc = sl_devices_of(store) ? 0 : devices_new(store, &devices);

	if (rc || !devices)
		return rc;
	rc = sl_thread_start(&devices->mapper, "sluice-mapper", sl_mapper_run, devices);
	if (!rc) {
		/* The courier hears of mappings to forget, so it finds what it needs for that. */
		atomic_store_explicit(&store->devices, devices, memory_order_release);
		rc = sl_thread_start(&devices->courier, "sluice-courier", sl_courier_run, devices);
		if (rc) {
			sl_devices_end(devices);
			pthread_join(devices->mapper, NULL);
		}
	}
	if (rc) {
		atomic_store(&store->devices, NULL);
		devices_free(devices);
	}
	return rc;
}

bool sl_devices_stop(sluice_store *store)
{
	struct sl_devices *devices = sl_devices_of(store);

	if (!sl_devices_forget_exit(devices))
		return false;
	sl_devices_end(devices);
	pthread_join(devices->courier, NULL);
	pthread_join(devices->mapper, NULL);
	return true;
}

void sl_devices_free(sluice_store *store)
{
	struct sl_devices *devices = sl_devices_of(store);

	for (unsigned i = 0; devices && i < SL_DEVICES_MOST; i++)
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
	sl_mutex_lock(&store->opening);
	rc = device->ops->open ? device->ops->open(device) : 0;
	if (rc)
		rc = sl_fail(-ENOTSUP, "%s cannot be used: %s", device->name,
		             sluice_last_message());
	if (!rc)
		rc = devices_open(store);
	if (!rc) {
		devices = sl_devices_of(store);
		post = &devices->posts[device->index];
		/* Unless another thread was faster, after which it is not written any more. */
		if (!atomic_load(&post->open)) {
			post->device = device;
			sl_devices_expect_exit(devices, device);
			atomic_store_explicit(&post->open, true, memory_order_release);
		}
		*out = post;
	}
	sl_mutex_unlock(&store->opening);
	return rc;
}

int sl_post_numbered(sluice_store *store, int number, struct sl_post **out)
{
	struct sl_device *device = number < 0 ? NULL : sl_device_find((unsigned)number);
	int rc = device ? sl_post_open(store, device, out)
	                : sl_fail(-ENOTSUP, "there is no device %d", number);

	/* What can be shared is known when the driver runs. */
	if (!rc && !device->sharing)
		rc = sl_fail(-ENOTSUP, "the memory of %s cannot be shared between processes",
		             device->name);
	return rc;
}

/* Numbers are of one daemon's servers. */
static void note_number(sluice_store *store, struct sl_post *post, int32_t number, uint64_t turn)
{
	sl_mutex_lock(&store->mutex);
	if (store->turn == turn)
		post->number = number;
	sl_mutex_unlock(&store->mutex);
}

static int ask(sluice_store *store, int32_t number, const char *place, int64_t deadline,
               union sl_message *m, struct sl_reply *reply)
{
	sl_message_begin(m, SL_MSG_DEVICE, 0, 0);
	m->device.number = number;
	strcpy(m->device.place, place);
	return sl_call(store, m, SL_MSG_DEVICE_IS, deadline, reply);
}

int sl_post_of_place(sluice_store *store, int32_t number, int64_t deadline, struct sl_post **out)
{
	struct sl_devices *devices = sl_devices_of(store);
	struct sl_reply reply;
	union sl_message m;
	int rc, here;

	*out = NULL;
	sl_mutex_lock(&store->mutex);
	for (unsigned i = 0; devices && i < SL_DEVICES_MOST; i++)
		if (devices->posts[i].number == number)
			*out = &devices->posts[i];
	sl_mutex_unlock(&store->mutex);
	if (*out)
		return 0;
	rc = ask(store, number, "", deadline, &m, &reply);
	if (rc)
		return rc;
	here = sl_place_find(m.device_is.item.place);
	if (here < 0)
		return sl_fail(-ENOTSUP,
		               "the blob is on %s, a device that this process does not have",
		               m.device_is.item.place);
	rc = sl_post_numbered(store, here, out);
	if (!rc)
		note_number(store, *out, number, reply.turn);
	return rc;
}

int sl_post_number(sluice_store *store, struct sl_post *post, int32_t *out, uint64_t *turn)
{
	struct sl_reply reply;
	union sl_message m;
	int rc;

	sl_mutex_lock(&store->mutex);
	*out = post->number;
	*turn = store->turn;
	sl_mutex_unlock(&store->mutex);
	if (*out >= 0)
		return 0;
	rc = ask(store, -1, sl_device_place(post->device), SL_FOREVER, &m, &reply);
	if (rc)
		return rc;
	*out = m.device_is.item.device;
	*turn = reply.turn;
	note_number(store, post, *out, *turn);
	return 0;
}

/* --------------------------------------------------------------------------------------- tell */

int sluice_store_device(sluice_store *store, unsigned index, struct sluice_store_device_info *out)
{
	int rc = sl_store_check(store, "sluice_store_device");
	union sl_message m;

	if (!rc && (!out || out->size < sizeof(out->size)))
		rc = sl_fail(-EINVAL, "sluice_store_device: out->size is not set");
	if (!rc && index > INT32_MAX)
		rc = sl_fail(-ENOENT, "the store knows no device %u", index);
	if (!rc)
		rc = ask(store, (int32_t)index, "", SL_FOREVER, &m, NULL);
	if (rc)
		return rc;
	m.device_is.item.size = out->size;
	m.device_is.item.device = sl_place_find(m.device_is.item.place);
	memcpy(out, &m.device_is.item, SL_MIN(out->size, sizeof(*out)));
	return 0;
}
