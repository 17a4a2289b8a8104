/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong: pinned memory is made when an operation gets its slots and let go when it gives them back, by
 * whichever thread does that.
 */
#include "system/torture/torture.h"

#include <sys/mman.h>

#include "staging/staging.h"

__typeof__(sl_slots_give) __real_sl_slots_give, __wrap_sl_slots_give;
__typeof__(sl_slots_take) __real_sl_slots_take, __wrap_sl_slots_take;

const char *const wrong = "pinned memory made on demand";

/* The memory of slots that are in use, or asked for. */
struct pin {
	struct sl_list link;
	struct sl_slot *slots;
	char *memory;
	size_t each, length;
	char *slot_data[64]; /* what the slots had */
	unsigned count;
	void (*granted)(struct sl_slot_waiter *);
};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sl_list pins = {&pins, &pins}; /* guarded by mutex */

static struct pin *pin_of(const struct sl_slot *slots, bool remove)
{
	struct pin *found = NULL;

	pthread_mutex_lock(&mutex);
	sl_list_each (link, &pins) {
		struct pin *pin = SL_CONTAINER(link, struct pin, link);

		if (pin->slots == slots)
			found = pin;
	}
	if (found && remove)
		sl_list_remove(&found->link);
	pthread_mutex_unlock(&mutex);
	return found;
}

static struct pin *pin_new(struct sl_staging *staging, const struct sl_slot_waiter *ask)
{
	struct pin *pin = calloc(1, sizeof(*pin));

	pin->slots = ask->slots;
	pin->each = (ask->length + 4095) / 4096 * 4096;
	pin->length = pin->each * ask->count;
	pin->count = ask->count;
	if (pin->length) {
		pin->memory = mmap(NULL, pin->length, PROT_READ | PROT_WRITE,
		                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (sl_staging_device(staging)->ops->register_memory(sl_staging_device(staging),
		                                                     pin->memory, pin->length)) {
			munmap(pin->memory, pin->length);
			pin->length = 0;
		}
	}
	pthread_mutex_lock(&mutex);
	sl_list_append(&pins, &pin->link);
	pthread_mutex_unlock(&mutex);
	return pin;
}

static void pin_free(struct sl_staging *staging, struct pin *pin)
{
	if (pin->length) {
		sl_staging_device(staging)->ops->unregister_memory(sl_staging_device(staging),
		                                                   pin->memory);
		munmap(pin->memory, pin->length);
	}
	free(pin);
}

static void use_pin(struct pin *pin)
{
	for (unsigned i = 0; i < pin->count && pin->length; i++) {
		pin->slot_data[i] = pin->slots[i].data;
		if (pin->slots[i].data)
			pin->slots[i].data = pin->memory + i * pin->each;
	}
}

static void granted(struct sl_slot_waiter *ask)
{
	struct pin *pin = pin_of(ask->slots, false);

	use_pin(pin);
	pin->granted(ask);
}

bool __wrap_sl_slots_take(struct sl_staging *staging, struct sl_slot_waiter *ask, bool wait)
{
	struct pin *pin = pin_new(staging, ask);

	pin->granted = ask->granted;
	if (wait)
		ask->granted = granted;
	if (__real_sl_slots_take(staging, ask, wait)) {
		use_pin(pin);
		return true;
	}
	if (!wait)
		pin_free(staging, pin_of(ask->slots, true));
	return false;
}

void __wrap_sl_slots_give(struct sl_staging *staging, enum sl_half part, struct sl_slot *slots,
                          unsigned count)
{
	struct pin *pin = pin_of(slots, true);

	for (unsigned i = 0; pin && pin->length && i < count; i++)
		if (pin->slot_data[i])
			slots[i].data = pin->slot_data[i];
	if (pin)
		pin_free(staging, pin);
	__real_sl_slots_give(staging, part, slots, count);
}

void wrong_start(void)
{
}
