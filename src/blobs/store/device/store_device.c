/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device of a store
 *
 * Starts a device's driver for a store, and translates between three names of a device: its index
 * in this process, the server's number, and its machine-wide name (place). Any thread;
 * store->opening orders threads that open.
 */
#include <errno.h>
#include <string.h>

#include "store/device/store_devices.h"

int sl_place_find(const char *place)
{
	struct sl_device *device;

	for (unsigned i = 0; (device = sl_device_find(i)); i++)
		if (!strcmp(sl_device_place(device), place))
			return (int)i;
	return -2;
}

int sl_store_device_open(sluice_store *store, struct sl_device *device,
                         struct sl_store_device **out)
{
	struct sl_devices *devices = sl_devices_of(store);
	struct sl_store_device *sdev = devices ? &devices->by_index[device->index] : NULL;

	if (sdev && atomic_load_explicit(&sdev->open, memory_order_acquire)) {
		*out = sdev;
		return 0;
	}
	sl_mutex_lock(&store->opening);
	int rc = device->ops->open ? device->ops->open(device) : 0;
	if (rc)
		rc = sl_fail(-ENOTSUP, "%s cannot be used: %s", device->name,
		             sluice_last_message());
	if (!rc)
		rc = sl_devices_open(store);
	if (!rc) {
		devices = sl_devices_of(store);
		sdev = &devices->by_index[device->index];
		/* Another thread may have opened it meanwhile; it is never written again. */
		if (!atomic_load(&sdev->open)) {
			sdev->device = device;
			sl_devices_expect_exit(devices, device);
			atomic_store_explicit(&sdev->open, true, memory_order_release);
		}
		*out = sdev;
	}
	sl_mutex_unlock(&store->opening);
	return rc;
}

int sl_store_device_by_index(sluice_store *store, int number, struct sl_store_device **out)
{
	struct sl_device *device = number < 0 ? NULL : sl_device_find((unsigned)number);
	int rc = device ? sl_store_device_open(store, device, out)
	                : sl_fail(-ENOTSUP, "there is no device %d", number);

	/* Whether memory can be shared is known when the driver runs. */
	if (!rc && !device->sharing)
		rc = sl_fail(-ENOTSUP, "the memory of %s cannot be shared between processes",
		             device->name);
	return rc;
}

/* Keeps the number, unless the server belongs to another daemon by now. */
static void store_device_note_number(sluice_store *store, struct sl_store_device *sdev,
                                     int32_t number, uint64_t epoch)
{
	sl_mutex_lock(&store->mutex);
	if (store->epoch == epoch)
		sdev->number = number;
	sl_mutex_unlock(&store->mutex);
}

static int store_device_ask(sluice_store *store, int32_t number, const char *place,
                            int64_t deadline, union sl_message *m, struct sl_reply *reply)
{
	sl_message_begin(m, SL_MSG_DEVICE, 0, 0);
	m->device.number = number;
	strcpy(m->device.place, place);
	return sl_call(store, m, SL_MSG_DEVICE_IS, deadline, reply);
}

int sl_store_device_by_number(sluice_store *store, int32_t number, int64_t deadline,
                              struct sl_store_device **out)
{
	struct sl_devices *devices = sl_devices_of(store);
	struct sl_reply reply;
	union sl_message m;
	int rc, here;

	*out = NULL;
	sl_mutex_lock(&store->mutex);
	for (unsigned i = 0; devices && i < SL_DEVICES_MOST; i++)
		if (devices->by_index[i].number == number)
			*out = &devices->by_index[i];
	sl_mutex_unlock(&store->mutex);
	if (*out)
		return 0;
	rc = store_device_ask(store, number, "", deadline, &m, &reply);
	if (rc)
		return rc;
	here = sl_place_find(m.device_is.item.place);
	if (here < 0)
		return sl_fail(-ENOTSUP,
		               "the blob is on %s, a device that this process does not have",
		               m.device_is.item.place);
	rc = sl_store_device_by_index(store, here, out);
	if (!rc)
		store_device_note_number(store, *out, number, reply.epoch);
	return rc;
}

int sl_store_device_number(sluice_store *store, struct sl_store_device *sdev, int32_t *out,
                           uint64_t *epoch)
{
	struct sl_reply reply;
	union sl_message m;

	sl_mutex_lock(&store->mutex);
	*out = sdev->number;
	*epoch = store->epoch;
	sl_mutex_unlock(&store->mutex);
	if (*out >= 0)
		return 0;
	int rc = store_device_ask(store, -1, sl_device_place(sdev->device), SL_FOREVER, &m, &reply);
	if (rc)
		return rc;
	*out = m.device_is.item.device;
	*epoch = reply.epoch;
	store_device_note_number(store, sdev, *out, *epoch);
	return 0;
}

int sluice_store_device(sluice_store *store, unsigned index, struct sluice_store_device_info *out)
{
	int rc = sl_store_check(store, "sluice_store_device");
	union sl_message m;

	if (!rc && (!out || out->size < sizeof(out->size)))
		rc = sl_fail(-EINVAL, "sluice_store_device: out->size is not set");
	if (!rc && index > INT32_MAX)
		rc = sl_fail(-ENOENT, "the store knows no device %u", index);
	if (!rc)
		rc = store_device_ask(store, (int32_t)index, "", SL_FOREVER, &m, NULL);
	if (rc)
		return rc;
	m.device_is.item.device = sl_place_find(m.device_is.item.place);
	sl_struct_give(out, &m.device_is.item, sizeof(*out));
	return 0;
}
