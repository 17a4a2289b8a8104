/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public functions of devices
 *
 * Implements include/sluice/device.h: finds the device that a number, name, pointer, stream or
 * event refers to, calls its driver and adds a sentence to errors.
 *
 * Threads: any. The table of devices is made once, under pthread_once(), and then constant.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device.h"

/* A driver that has no command for rows is slow in any case. */
#define ROWS_AT_ONCE 512

/* The name that stands for any hardware device. */
#define REAL        "device"
#define PINNED_MARK UINT64_C(0x736c756963652d70)

/* ------------------------------------------------------------------------ which device it is */

/* All devices of all kinds in the order of sl_device_kinds; constant once made. */
static struct {
	pthread_once_t once;
	struct sl_device *devices[SL_DEVICES_MOST];
	unsigned count;
	pid_t process;         /* that numbered them: their threads and drivers are not a child's */
	_Atomic bool numbered; /* set last */
} all = {.once = PTHREAD_ONCE_INIT};

static void number_devices(void)
{
	struct sl_device *device;

	for (const struct sl_device_kind *const *kind = sl_device_kinds; *kind; kind++)
		for (unsigned i = 0; all.count < SL_DEVICES_MOST && (device = (*kind)->find(i));
		     i++) {
			device->kind = *kind;
			device->index = all.count;
			all.devices[all.count++] = device;
		}
	all.process = getpid();
	atomic_store(&all.numbered, true);
}

int sl_device_check_process(void)
{
	pthread_once(&all.once, number_devices);
	return all.process == getpid()
	               ? 0
	               : sl_fail(-ECHILD, "this process was forked after its parent had used "
	                                  "devices: they are the parent's");
}

bool sl_device_any_known(void)
{
	return atomic_load_explicit(&all.numbered, memory_order_acquire);
}

/* Returns 0, or -ECHILD as sl_device_check_process(), but loads no driver. */
static int device_check_fork(void)
{
	return sl_device_any_known() ? sl_device_check_process() : 0;
}

struct sl_device *sl_device_find(unsigned index)
{
	pthread_once(&all.once, number_devices);
	return index < all.count ? all.devices[index] : NULL;
}

/* Makes sure that a device found by pointer, stream or event has its public number. */
static struct sl_device *device_with_number(struct sl_device *device)
{
	if (device)
		pthread_once(&all.once, number_devices);
	return device;
}

struct sl_device *sl_device_of_memory(const void *memory)
{
	struct sl_device *device = NULL;

	for (const struct sl_device_kind *const *kind = sl_device_kinds; *kind && !device; kind++)
		device = (*kind)->of_memory(memory);
	return device_with_number(device);
}

struct sl_device *sl_device_of_allocation(const void *memory, struct sl_allocation *out)
{
	struct sl_device *device = sl_device_of_memory(memory);

	if (!device || device->ops->allocation(device, memory, out))
		*out = (struct sl_allocation){0, 0};
	return device;
}

struct sl_device *sl_device_of_stream(sluice_stream stream, struct sl_device *fallback)
{
	struct sl_device *device = NULL;

	if ((uintptr_t)stream <= SL_COMMON_STREAMS)
		return fallback;
	for (const struct sl_device_kind *const *kind = sl_device_kinds; *kind && !device; kind++)
		device = (*kind)->of_stream(stream);
	return device_with_number(device);
}

struct sl_device *sl_device_current(void)
{
	struct sl_device *device = NULL;

	for (const struct sl_device_kind *const *kind = sl_device_kinds; *kind && !device; kind++)
		if ((*kind)->current)
			device = (*kind)->current();
	return device ? device_with_number(device) : sl_device_find(0);
}

static struct sl_device *device_of_event(sluice_event event, struct sl_device *wanted)
{
	struct sl_device *device = NULL;

	for (const struct sl_device_kind *const *kind = sl_device_kinds; *kind && !device; kind++)
		device = (*kind)->of_event(event, wanted);
	return device;
}

static int device_open(struct sl_device *device)
{
	return device->ops->open ? device->ops->open(device) : 0;
}

/* Finds and opens the device with that number. 0, or with a sentence -ENODEV or -ECHILD. */
static int device_numbered(int number, struct sl_device **out)
{
	int rc = sl_device_check_process();

	*out = rc || number < 0 ? NULL : sl_device_find(number);
	if (!rc && !*out)
		rc = sl_fail(-ENODEV, "there is no device %d", number);
	return !rc && device_open(*out) ? -ENODEV : rc;
}

/* Adds a sentence to an error; passes results >= 0 through. */
static int device_said(const struct sl_device *device, int rc, const char *what)
{
	if (rc >= 0)
		return rc;
	return sl_fail(rc, "%s: cannot %s: %s", device->name, what, sl_error_text(rc));
}

/* As device_numbered(), for a function that gives the caller something of the device. */
static int device_giving(int number, const void *out, const char *function,
                         struct sl_device **found)
{
	int rc = device_numbered(number, found);

	return rc || out ? rc : sl_fail(-EINVAL, "%s: out is NULL", function);
}

int sluice_device_describe(int device, struct sluice_device *out)
{
	int rc = sl_device_check_process();
	struct sl_device *found = rc || device < 0 ? NULL : sl_device_find(device);
	struct sluice_device description = {0};

	if (!out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_device_describe: out->size is not set");
	if (!found)
		return rc ? rc : sl_fail(-ENOENT, "there is no device %d", device);
	rc = device_open(found);
	if (rc)
		return rc;
	rc = found->ops->describe(found, &description);
	if (rc)
		return device_said(found, rc, "describe it");
	description.name = found->name;
	description.real = found->kind->missing != NULL;
	sl_struct_give(out, &description, sizeof(description));
	return 0;
}

/* Splits "emulated:1"; "emulated" means number 0. Returns false if the number is malformed. */
static bool split_name(const char *name, size_t *length, unsigned long *number)
{
	const char *colon = strchrnul(name, ':');
	char *end;

	*length = colon - name;
	*number = 0;
	if (!*colon)
		return true;
	*number = strtoul(colon + 1, &end, 10);
	return isdigit((unsigned char)colon[1]) && !*end;
}

int sluice_device_feature(int index, struct sluice_feature *out)
{
	struct sluice_feature feature = {0};

	if (!out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_device_feature: out->size is not set");
	for (const struct sl_device_kind *const *kind = sl_device_kinds; index >= 0 && *kind;
	     kind++) {
		for (unsigned i = 0; (*kind)->feature && !(*kind)->feature(i, &feature); i++) {
			if (index--)
				continue;
			sl_struct_give(out, &feature, sizeof(feature));
			return 0;
		}
	}
	return sl_fail(-ENOENT, "there is no such feature");
}

static bool is_word(const char *name, size_t length, const char *word)
{
	return length == strlen(word) && !strncmp(name, word, length);
}

/* Returns true if the word before the colon names that kind, or is REAL for hardware. */
static bool name_means(const char *name, size_t length, const struct sl_device_kind *kind)
{
	return is_word(name, length, REAL) ? kind->missing != NULL
	                                   : is_word(name, length, kind->name);
}

/* Fails with a sentence that lists the devices that exist and the reason why others are missing. */
static int name_not_found(const char *name, size_t length)
{
	const char *missing = "";
	struct sl_device *device;
	char there[256] = "";
	size_t used = 0;

	for (const struct sl_device_kind *const *kind = sl_device_kinds; *kind; kind++)
		if (name_means(name, length, *kind) && (*kind)->missing)
			missing = (*kind)->missing();
	for (unsigned i = 0; (device = sl_device_find(i)); i++)
		if (name_means(name, length, device->kind) && used < sizeof(there))
			used += snprintf(there + used, sizeof(there) - used, "%s%s",
			                 used ? ", " : "", device->name);
	if (used)
		return sl_fail(-ENODEV, "there is no device \"%s\", but %s%s%s", name, there,
		               *missing ? "; " : "", missing);
	if (is_word(name, length, REAL))
		return sl_fail(-ENODEV,
		               "there is no device: %s; \"emulated\" is one made of threads",
		               missing);
	return sl_fail(-ENODEV, "there is no device \"%s\": %s", name,
	               *missing ? missing : "a name is as in \"device:1\" or \"emulated\"");
}

int sluice_device_find(const char *name, int *device)
{
	char full[sizeof(((struct sl_device *)NULL)->name)];
	unsigned long number;
	struct sl_device *found;
	size_t length;

	if (!device)
		return sl_fail(-EINVAL, "sluice_device_find: out is NULL");
	if (!name || !*name)
		return sl_fail(-EINVAL, "the name of the device is empty");
	if (!split_name(name, &length, &number))
		return sl_fail(-EINVAL,
		               "\"%s\" is no name of a device: behind the colon comes a number",
		               name);
	int rc = sl_device_check_process();
	if (rc)
		return rc;
	bool real = is_word(name, length, REAL);
	snprintf(full, sizeof(full), strchr(name, ':') ? "%s" : "%s:0", name);
	for (unsigned i = 0; (found = sl_device_find(i)); i++) {
		if (real ? found->kind->missing && !number-- : !strcmp(found->name, full)) {
			if (device_open(found))
				return -ENODEV;
			*device = i;
			return 0;
		}
	}
	return name_not_found(name, length);
}

int sluice_device_of(const void *memory)
{
	struct sl_device *device = sl_device_of_memory(memory);

	return device ? device->index : -1;
}

/* --------------------------------------------------------------------------------- memory */

int sluice_device_alloc(int device, size_t n, void **out)
{
	struct sl_device *found;
	int rc = device_giving(device, out, "sluice_device_alloc", &found);

	if (rc)
		return rc;
	if (!n)
		return sl_fail(-EINVAL, "%s: cannot allocate 0 bytes", found->name);
	return device_said(found, found->ops->alloc(found, n, out), "allocate memory");
}

int sluice_device_free(void *memory)
{
	int rc = memory ? device_check_fork() : 0;

	if (!memory || rc)
		return rc;
	struct sl_device *device = sl_device_of_memory(memory);
	if (!device)
		return sl_fail(-EINVAL, "sluice_device_free: %p is no memory of a device", memory);
	return device_said(device, device->ops->free(device, memory), "free memory");
}

/* Header in the page before the memory. */
struct pinned {
	uint64_t mark;
	struct sl_device *device;
	size_t length; /* bytes of memory, whole pages */
};

int sluice_pinned_alloc(int device, size_t n, void **out)
{
	size_t page = sl_page_size(), length = sl_whole_pages(n);
	struct sl_device *found;
	int rc = device_giving(device, out, "sluice_pinned_alloc", &found);

	if (rc)
		return rc;
	if (!n)
		return sl_fail(-EINVAL, "%s: cannot pin 0 bytes", found->name);
	struct pinned *pinned = length < n ? MAP_FAILED
	                                   : mmap(NULL, page + length, PROT_READ | PROT_WRITE,
	                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pinned == MAP_FAILED)
		return sl_fail(-ENOMEM, "no memory for %zu bytes to pin", n);
	*pinned = (struct pinned){PINNED_MARK, found, length};
	rc = found->ops->register_memory(found, (char *)pinned + page, length);
	if (rc) {
		munmap(pinned, page + length);
		return device_said(found, rc, "pin memory");
	}
	*out = (char *)pinned + page;
	return 0;
}

int sluice_pinned_free(void *memory)
{
	size_t page = sl_page_size();
	int rc = memory ? device_check_fork() : 0;

	if (!memory || rc)
		return rc;
	struct pinned *pinned = (struct pinned *)((char *)memory - page);
	if ((uintptr_t)memory % page || pinned->mark != PINNED_MARK)
		return sl_fail(-EINVAL, "sluice_pinned_free: %p is no pinned memory", memory);
	struct sl_device *device = pinned->device;
	rc = device->ops->unregister_memory(device, memory);
	/* Keep memory mapped as long as the device may use it. */
	if (!rc || !device->ops->registered(device, memory, pinned->length))
		munmap(pinned, page + pinned->length);
	return device_said(device, rc, "let pinned memory go");
}

/* -------------------------------------------------------------------------------- streams */

int sluice_stream_new(int device, sluice_stream *out)
{
	struct sl_device *found;
	int rc = device_giving(device, out, "sluice_stream_new", &found);

	return rc ? rc : device_said(found, found->ops->stream_new(found, out), "make a stream");
}

static int no_stream(const struct sl_device *device, sluice_stream stream)
{
	if (device)
		return sl_fail(-EINVAL, "%s has no stream %p", device->name, (void *)stream);
	return sl_fail(-EINVAL, "%p is no stream of a device", (void *)stream);
}

int sluice_stream_free(sluice_stream stream)
{
	int rc = stream ? device_check_fork() : 0;

	if (!stream || rc)
		return rc;
	struct sl_device *device = sl_device_of_stream(stream, NULL);
	return device ? device_said(device, device->ops->stream_free(device, stream),
	                            "free a stream")
	              : no_stream(NULL, stream);
}

/* Finds and opens the device with that number, which has the stream. */
static int device_with_stream(int number, sluice_stream stream, struct sl_device **out)
{
	int rc = device_numbered(number, out);

	return rc || sl_device_of_stream(stream, *out) == *out ? rc : no_stream(*out, stream);
}

int sluice_stream_query(int device, sluice_stream stream)
{
	struct sl_device *found;
	int rc = device_with_stream(device, stream, &found);

	return rc ? rc
	          : device_said(found, found->ops->stream_query(found, stream), "ask a stream");
}

int sluice_stream_synchronize(int device, sluice_stream stream)
{
	struct sl_device *found;
	int rc = device_with_stream(device, stream, &found);

	return rc ? rc
	          : device_said(found, found->ops->stream_synchronize(found, stream),
	                        "wait for a stream");
}

/* --------------------------------------------------------------------------------- copies */

/* Returns the device of dst, else that of src, or NULL. */
static struct sl_device *device_of_either(const void *dst, const void *src)
{
	struct sl_device *device = sl_device_of_memory(dst);

	return device ? device : sl_device_of_memory(src);
}

int sluice_copy_on(void *dst, const void *src, size_t n, sluice_stream stream)
{
	bool common = (uintptr_t)stream <= SL_COMMON_STREAMS;
	struct sl_device *device;

	if (!n)
		return 0;
	if (!dst || !src)
		return sl_fail(-EINVAL, "sluice_copy_on: there is no memory");
	int rc = device_check_fork();
	if (rc)
		return rc;
	device = common ? device_of_either(dst, src) : sl_device_of_stream(stream, NULL);
	if (!device)
		return common ? sl_fail(-EINVAL, "sluice_copy_on: neither memory is a device's")
		              : no_stream(NULL, stream);
	return device_said(device, device->ops->copy(device, stream, dst, src, n, false), "copy");
}

bool sl_device_reach(struct sl_device *device, struct sl_device *other)
{
	return device == other || (device->ops == other->ops && device->ops->reach &&
	                           device->ops->reach(device, other));
}

int sl_device_copy_rows(int device, void *to, const void *from, size_t length, size_t count,
                        size_t to_pitch, size_t from_pitch, sluice_stream stream)
{
	struct sl_command commands[ROWS_AT_ONCE];
	size_t taken, reach = count ? (count - 1) * from_pitch + length : 0;
	struct sl_device *found;
	int rc = device_numbered(device, &found);

	if (!rc && !found->ops->registered(found, from, reach)) {
		for (size_t i = 0; !rc && i < count; i++)
			rc = found->ops->copy(found, stream, (char *)to + i * to_pitch,
			                      (const char *)from + i * from_pitch, length, false);
		return device_said(found, rc, "copy");
	}
	for (size_t row = 0; !rc && row < count; row += ROWS_AT_ONCE) {
		size_t n = SL_MIN(count - row, ROWS_AT_ONCE);

		for (size_t i = 0; i < n; i++)
			commands[i] = (struct sl_command){
				SL_COPY,
				.copy = {(char *)to + (row + i) * to_pitch,
			                 (const char *)from + (row + i) * from_pitch, length}};
		rc = device_said(found, found->ops->enqueue(found, stream, commands, n, &taken),
		                 "copy");
	}
	return rc;
}

int sluice_copy(void *dst, const void *src, size_t n)
{
	if (!n)
		return 0;
	if (!dst || !src)
		return sl_fail(-EINVAL, "sluice_copy: there is no memory");
	struct sl_device *device = device_of_either(dst, src);
	if (!device) {
		memcpy(dst, src, n);
		return 0;
	}
	int rc = device_check_fork();
	if (rc)
		return rc;
	return device_said(device,
	                   device->ops->copy(device, SLUICE_STREAM_DEFAULT, dst, src, n, true),
	                   "copy");
}

/* --------------------------------------------------------------------------------- events */

int sluice_event_new(int device, sluice_event *out)
{
	struct sl_device *found;
	int rc = device_giving(device, out, "sluice_event_new", &found);

	return rc ? rc : device_said(found, found->ops->event_new(found, out), "make an event");
}

static int device_with_event(sluice_event event, struct sl_device *wanted, struct sl_device **out)
{
	int rc = device_check_fork();

	*out = event && !rc ? device_of_event(event, wanted) : NULL;
	return rc || *out ? rc : sl_fail(-EINVAL, "%p is no event of a device", (void *)event);
}

/* The device that both are of. */
static int device_with_both(sluice_event event, sluice_stream stream, struct sl_device **out)
{
	struct sl_device *wanted = sl_device_of_stream(stream, sl_device_current());
	int rc = device_with_event(event, wanted, out);

	return rc || sl_device_of_stream(stream, *out) == *out ? rc : no_stream(*out, stream);
}

int sluice_event_free(sluice_event event)
{
	struct sl_device *device;
	int rc = event ? device_with_event(event, NULL, &device) : 0;

	if (rc || !event)
		return rc;
	return device_said(device, device->ops->event_free(device, event), "free an event");
}

int sluice_event_record(sluice_event event, sluice_stream stream)
{
	struct sl_device *device;
	int rc = device_with_both(event, stream, &device);

	return rc ? rc
	          : device_said(device, device->ops->event_record(device, event, stream),
	                        "record an event");
}

int sluice_event_await(sluice_event event, sluice_stream stream)
{
	struct sl_device *device;
	int rc = device_with_both(event, stream, &device);

	return rc ? rc
	          : device_said(device, device->ops->event_await(device, event, stream),
	                        "await an event");
}

int sluice_event_query(sluice_event event)
{
	struct sl_device *device;
	int rc = device_with_event(event, NULL, &device);

	return rc ? rc
	          : device_said(device, device->ops->event_query(device, event), "ask an event");
}

int sluice_event_synchronize(sluice_event event)
{
	struct sl_device *device;
	int rc = device_with_event(event, NULL, &device);

	return rc ? rc
	          : device_said(device, device->ops->event_synchronize(device, event),
	                        "wait for an event");
}
