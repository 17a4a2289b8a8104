/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of a device that stay when their memory goes, and have other memory later. */
#include <pthread.h>
#include <unistd.h>

#include "device/device.h"
#include "lib/gpu.h"
#include "lib/support.h"
#include "sluice/emulated.h"

static struct sl_device *device;
static const struct sl_device_sharing *sharing;
static size_t whole;
static void *kept; /* where a mapping says that it is */

/* Memory of a pattern, mapped for writing too. */
struct made {
	void *memory;
	int fd;
};

static struct made make(uint64_t seed)
{
	struct made made = {NULL, -1};
	char *bytes = malloc(whole);

	assert_int_equal(sharing->make(device, whole, &made.memory, &made.fd), 0);
	pattern_fill(bytes, whole, 0, seed);
	assert_int_equal(sluice_copy(made.memory, bytes, whole), 0);
	free(bytes);
	return made;
}

static void drop(struct made *made)
{
	close(made->fd);
	assert_int_equal(sharing->unmap(device, made->memory, whole), 0);
}

static void assert_filled(const void *memory, uint64_t seed)
{
	char *bytes = malloc(whole), *wanted = malloc(whole);

	pattern_fill(wanted, whole, 0, seed);
	assert_int_equal(sluice_copy(bytes, memory, whole), 0);
	assert_memory_equal(bytes, wanted, whole);
	free(bytes);
	free(wanted);
}

/* Addresses where nothing is. */
static void *vacant(int fd)
{
	void *at = NULL;

	assert_int_equal(sharing->map(device, fd, whole, device, NULL, &at), 0);
	assert_int_equal(sharing->vacate(device, at, whole), 0);
	return at;
}

TEST(other_memory_comes_to_the_same_addresses)
{
	struct made first = make(1), second = make(2);
	void *at = NULL, *elsewhere = NULL;

	assert_int_equal(sharing->map(device, first.fd, whole, device, NULL, &at), 0);
	assert_filled(at, 1);
	for (uint64_t i = 0; i < 6; i++) {
		assert_int_equal(sharing->vacate(device, at, whole), 0);
		assert_int_equal(sharing->map(device, first.fd, whole, device, NULL, &elsewhere),
		                 0);
		assert_ptr_not_equal(elsewhere, at);
		assert_int_equal(sharing->unmap(device, elsewhere, whole), 0);
		assert_int_equal(sharing->map(device, i % 2 ? first.fd : second.fd, whole, device,
		                              at, &kept),
		                 0);
		assert_filled(at, i % 2 ? 1 : 2);
	}
	assert_int_equal(sharing->unmap(device, at, whole), 0);
	assert_int_not_equal(sharing->unmap(device, at, whole), 0);
	drop(&first);
	drop(&second);
}

TEST(vacant_addresses_hold_no_memory_and_no_bytes)
{
	struct sluice_device before = {.size = sizeof(before)}, now = before;
	struct made made = make(3);
	char byte;
	void *at;

	if (gpu_is_real())
		SKIP("other processes use the device, and a fault ends it");
	at = vacant(made.fd);
	assert_true(sluice_copy(&byte, at, 1) < 0);
	sluice_emulated_lose(gpu_device(0), 0);
	drop(&made);
	assert_int_equal(sluice_device_describe(gpu_device(0), &before), 0);
	assert_int_equal(sharing->abandon(device, at, whole), 0);
	assert_int_not_equal(sharing->abandon(device, at, whole), 0);
	assert_int_equal(sluice_device_describe(gpu_device(0), &now), 0);
	assert_int_equal(now.free_bytes, before.free_bytes);
}

TEST(what_does_not_fit_leaves_the_addresses_vacant)
{
	struct made made = make(4);
	void *at = vacant(made.fd), *mapped = NULL;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	assert_true(sharing->map(device, fds[0], whole, device, at, &kept) < 0);
	assert_true(sharing->map(device, -1, whole, device, at, &kept) < 0);
	assert_true(sharing->map(device, made.fd, 2 * whole, device, at, &kept) < 0);
	assert_int_equal(sharing->map(device, made.fd, whole - 1, device, at, &kept), -EINVAL);
	assert_int_equal(sharing->map(device, made.fd, whole, device, NULL, &mapped), 0);
	assert_true(sharing->map(device, made.fd, whole, device, mapped, &kept) < 0);
	assert_true(sharing->abandon(device, mapped, whole) < 0);
	assert_filled(mapped, 4);
	assert_int_equal(sharing->unmap(device, mapped, whole), 0);
	assert_int_equal(sharing->map(device, made.fd, whole, device, at, &kept), 0);
	assert_filled(at, 4);
	assert_int_equal(sharing->unmap(device, at, whole), 0);
	close(fds[0]);
	close(fds[1]);
	drop(&made);
}

TEST(failed_calls_change_nothing)
{
	struct made made = make(5);
	void *at = NULL;

	if (gpu_is_real())
		SKIP("a driver's calls do not fail on demand");
	assert_int_equal(sharing->map(device, made.fd, whole, device, NULL, &at), 0);
	sluice_emulated_fail(SLUICE_EMULATED_UNMAP, 1, -EIO);
	assert_int_equal(sharing->vacate(device, at, whole), -EIO);
	assert_filled(at, 5);
	assert_int_equal(sharing->vacate(device, at, whole), 0);
	sluice_emulated_fail(SLUICE_EMULATED_SHARE, 1, -ENOMEM);
	assert_int_equal(sharing->map(device, made.fd, whole, device, at, &kept), -ENOMEM);
	sluice_emulated_fail(SLUICE_EMULATED_UNMAP, 1, -EIO);
	assert_int_equal(sharing->abandon(device, at, whole), -EIO);
	assert_int_equal(sharing->map(device, made.fd, whole, device, at, &kept), 0);
	assert_filled(at, 5);
	assert_int_equal(sharing->unmap(device, at, whole), 0);
	drop(&made);
}

struct vacating {
	void *at;
	int rc;
	_Atomic bool done;
};

static void *run_vacate(void *argument)
{
	struct vacating *vacating = argument;

	vacating->rc = sharing->vacate(device, vacating->at, whole);
	atomic_store(&vacating->done, true);
	return NULL;
}

TEST(memory_goes_behind_the_commands_that_use_it)
{
	struct vacating vacating = {0};
	struct made made = make(6);
	sluice_stream stream;
	struct gpu_hold hold;
	pthread_t thread;
	void *there;

	if (gpu_is_real())
		SKIP("what a driver waits for is measured by probe_sharing");
	assert_int_equal(sharing->map(device, made.fd, whole, device, NULL, &vacating.at), 0);
	assert_int_equal(sluice_device_alloc(gpu_device(0), whole, &there), 0);
	assert_int_equal(sluice_stream_new(gpu_device(0), &stream), 0);
	assert_int_equal(gpu_hold(0, stream, &hold), 0);
	assert_int_equal(sluice_copy_on(there, vacating.at, whole, stream), 0);
	assert_int_equal(pthread_create(&thread, NULL, run_vacate, &vacating), 0);
	sleep_ms(50);
	assert_false(atomic_load(&vacating.done));
	gpu_let_go(&hold);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(vacating.rc, 0);
	assert_filled(there, 6);
	assert_int_equal(sharing->abandon(device, vacating.at, whole), 0);
	assert_int_equal(sluice_stream_free(stream), 0);
	assert_int_equal(sluice_device_free(there), 0);
	drop(&made);
}

int main(void)
{
	if (gpu_open(NULL)) {
		printf("skipped: %s\n", gpu_message());
		return 77;
	}
	device = sl_device_find((unsigned)gpu_device(0));
	sharing = device->sharing;
	if (!sharing) {
		printf("skipped: the device's memory cannot be shared\n");
		return 77;
	}
	whole = sharing->granularity;
	return RUN_TESTS(NULL, NULL);
}
