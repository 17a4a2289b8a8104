/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/gpu.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gpu_numbers[GPU_DEVICES];

static const struct gpu_kind *const kinds[] = {&gpu_emulated, &gpu_cuda};
static const struct gpu_kind *kind = &gpu_emulated;
static _Thread_local char said[300];

int gpu_failed(int rc, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(said, sizeof(said), format, arguments);
	va_end(arguments);
	return rc;
}

const char *gpu_message(void)
{
	return said;
}

/* The threads of an emulated device start at its first use and stay: before anybody counts. */
static int start_other(void)
{
	void *memory;
	int rc = sluice_device_alloc(gpu_other(), 1, &memory);

	if (!rc)
		rc = sluice_device_free(memory);
	return rc ? gpu_failed(rc, "%s", sluice_last_message()) : 0;
}

int gpu_open(const char *name)
{
	static const struct gpu_kind *opened;
	const char *wanted = name ? name : getenv("SLUICE_TEST_DEVICE");
	int rc;

	if (opened)
		return 0;
	if (!wanted || !*wanted)
		wanted = gpu_emulated.name;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strlen(kinds[i]->name) != strcspn(wanted, ":") ||
		    strncmp(kinds[i]->name, wanted, strcspn(wanted, ":")))
			continue;
		kind = kinds[i];
		rc = kind->open(wanted);
		if (!rc)
			rc = start_other();
		if (!rc)
			opened = kind;
		return rc;
	}
	return gpu_failed(-EINVAL, "SLUICE_TEST_DEVICE is \"%s\", not \"emulated\" or \"cuda\"",
	                  wanted);
}

bool gpu_is_real(void)
{
	return kind != &gpu_emulated;
}

int gpu_device(int which)
{
	return gpu_numbers[which];
}

int gpu_which(int device)
{
	return device != gpu_numbers[0];
}

const char *gpu_name(int which)
{
	struct sluice_device device = {.size = sizeof(device)};

	return sluice_device_describe(gpu_numbers[which], &device) ? "" : device.name;
}

bool gpu_has_two(void)
{
	return gpu_numbers[0] != gpu_numbers[1];
}

int gpu_other(void)
{
	int emulated = 0;

	sluice_device_find("emulated:0", &emulated);
	return gpu_has_two() ? gpu_numbers[1] : emulated;
}

void gpu_use(int which)
{
	kind->use(which);
}

int gpu_fill(int which, sluice_stream stream, void *memory, size_t n, uint64_t offset,
             uint64_t seed)
{
	return kind->fill(which, stream, memory, n, offset, seed);
}

int gpu_scribble(int which, sluice_stream stream, void *memory, size_t n, unsigned byte)
{
	return kind->scribble(which, stream, memory, n, byte);
}

int gpu_take(int which, sluice_stream stream, void *out, const void *memory, size_t n)
{
	return kind->take(which, stream, out, memory, n);
}

int gpu_spin(int which, sluice_stream stream, uint64_t nanoseconds)
{
	return kind->spin(which, stream, nanoseconds);
}

int gpu_host(int which, sluice_stream stream, void (*function)(void *), void *argument)
{
	return kind->host(which, stream, function, argument);
}

int gpu_call(int which, sluice_stream stream, void (*function)(void *), void *argument)
{
	return kind->call(which, stream, function, argument);
}

int gpu_match(int which, sluice_stream stream, struct gpu_match *list, unsigned count,
              void (*done)(void *), void *argument)
{
	return kind->match(which, stream, list, count, done, argument);
}

int gpu_hold(int which, sluice_stream stream, struct gpu_hold *hold)
{
	return kind->hold(which, stream, hold);
}

void gpu_let_go(struct gpu_hold *hold)
{
	atomic_store(hold->word, 1);
}

int gpu_get(void *out, const void *memory, size_t n)
{
	return kind->get(out, memory, n);
}

int gpu_put(void *memory, const void *bytes, size_t n)
{
	return kind->put(memory, bytes, n);
}

int gpu_in_use(int which, uint64_t *bytes)
{
	return kind->in_use(which, bytes);
}
