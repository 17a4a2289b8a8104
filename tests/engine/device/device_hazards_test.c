/* SPDX-License-Identifier: Apache-2.0 */
/* What holds up what on a device, as measured on a GPU. */
#include <sys/mman.h>

#include "device/device_common.h"

#define MANY 100

/* Waits for the word that is the argument to be not 0. */
static void wait_there(void *argument)
{
	while (!atomic_load_explicit((_Atomic uint32_t *)argument, memory_order_acquire))
		usleep(1000);
}

/* ---------------------------------------------------------------------------------- channels */

static void hold_up_copies(struct fixture *f)
{
	sluice_stream streams[4], other = new_stream();

	store_word(f, 0, 0);
	block_streams(f, streams, 3, f->memory, f->data);
	give(f, other, copy_command(f->memory, f->data, 64));
	assert_stream_comes_to_its_end(other);
	block_streams(f, streams + 3, 1, f->memory, f->data);
	give(f, other, copy_command(f->memory, f->data, 64));
	assert_stream_stays_busy(other);
	store_word(f, 0, 1);
	assert_stream_comes_to_its_end(other);
	free_streams(streams, 4);
	assert_int_equal(sluice_stream_free(other), 0);
}

DEVICE_TEST(three_blocked_copies_to_the_device_let_another_one_run_and_four_do_not)
{
	for (uint64_t seed = 0; seed < 3; seed++) {
		with_seed(seed);
		hold_up_copies(f);
	}
}

DEVICE_TEST(blocked_copies_from_the_device_hold_nothing_up)
{
	sluice_stream streams[MANY], other = new_stream();

	block_streams(f, streams, MANY, f->data, f->memory);
	give(f, other, copy_command(f->memory + 64, f->data + 64, 64));
	give(f, other, copy_command(f->data + 128, f->memory + 64, 64));
	give(f, other, copy_command(f->memory + 128, f->memory + 64, 64));
	assert_stream_comes_to_its_end(other);
	store_word(f, 0, 1);
	free_streams(streams, MANY);
	assert_int_equal(sluice_stream_free(other), 0);
}

static void hold_up_kernels(struct fixture *f)
{
	sluice_stream streams[8], other = new_stream();

	store_word(f, 0, 0);
	block_streams(f, streams, 4, NULL, NULL);
	assert_int_equal(sluice_emulated_launch(0, other, nothing, NULL), 0);
	assert_stream_comes_to_its_end(other);
	block_streams(f, streams + 4, 4, NULL, NULL);
	assert_int_equal(sluice_emulated_launch(0, other, nothing, NULL), 0);
	assert_stream_stays_busy(other);
	store_word(f, 0, 1);
	assert_stream_comes_to_its_end(other);
	free_streams(streams, 8);
	assert_int_equal(sluice_stream_free(other), 0);
}

DEVICE_TEST(four_blocked_streams_let_a_kernel_run_and_eight_do_not)
{
	for (uint64_t seed = 0; seed < 3; seed++) {
		with_seed(seed);
		hold_up_kernels(f);
	}
}

DEVICE_TEST(host_functions_run_one_at_a_time_whatever_their_streams)
{
	sluice_stream a = new_stream(), b = new_stream();

	assert_int_equal(sluice_emulated_call(0, a, wait_there, word_at(f, 0)), 0);
	assert_int_equal(sluice_emulated_call(0, b, nothing, NULL), 0);
	assert_stream_stays_busy(b);
	assert_false(stream_done(a));
	/* Kernels go on meanwhile. */
	assert_int_equal(sluice_emulated_launch(0, NULL, nothing, NULL), 0);
	assert_stream_comes_to_its_end(NULL);
	store_word(f, 0, 1);
	assert_stream_comes_to_its_end(b);
	assert_stream_comes_to_its_end(a);
	assert_int_equal(sluice_stream_free(a), 0);
	assert_int_equal(sluice_stream_free(b), 0);
}

/* --------------------------------------------------------------------------------- the calls */

static int register_pages(struct fixture *f, void *argument)
{
	return f->device->ops->register_memory(f->device, argument, 4096);
}

static int unregister_pages(struct fixture *f, void *argument)
{
	return f->device->ops->unregister_memory(f->device, argument);
}

static int alloc_pinned(struct fixture *f, void *argument)
{
	(void)f;
	return sluice_pinned_alloc(0, 4096, argument);
}

static int free_pinned(struct fixture *f, void *argument)
{
	(void)f;
	return sluice_pinned_free(argument);
}

static int copy_to_device(struct fixture *f, void *argument)
{
	return sluice_copy_on(f->memory + 256, f->data + 256, 64, argument);
}

static int copy_from_device(struct fixture *f, void *argument)
{
	struct sl_command command = copy_command(f->data + 512, f->memory + 512, 64);
	size_t taken;

	return f->device->ops->enqueue(f->device, argument, &command, 1, &taken);
}

static int alloc_memory(struct fixture *f, void *argument)
{
	void *memory;
	int rc = sluice_device_alloc(0, 4096, &memory);

	(void)f;
	/* Not to be freed while others wait. */
	*(void **)argument = rc ? NULL : memory;
	return rc;
}

static int call_function(struct fixture *f, void *argument)
{
	(void)f;
	return sluice_emulated_call(0, argument, nothing, NULL);
}

static int record(struct fixture *f, void *argument)
{
	(void)f;
	return sluice_event_record(argument, NULL);
}

DEVICE_TEST(a_full_channel_holds_up_whoever_gives_it_more)
{
	sluice_stream full = new_stream(), other = new_stream();
	struct attempt stuck, held[2];
	char *pages = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < IN_A_CHANNEL; i++)
		give(f, full, await_word(f, 0, 1));
	attempt_start(&stuck, f, "stuck", call_wait, full);
	assert_held_up(&stuck);
	/* All else goes on in other streams, but registration and copies that wait. */
	attempt_start(&held[0], f, "copies", call_copy, NULL);
	attempt_start(&held[1], f, "registers", register_pages, pages);
	assert_int_equal(runs_through(f, copy_to_device, other), 0);
	assert_int_equal(runs_through(f, call_function, other), 0);
	assert_int_equal(runs_through(f, call_stream, NULL), 0);
	assert_int_equal(runs_through(f, call_synchronize, other), 0);
	assert_held_up(&held[0]);
	assert_held_up(&held[1]);
	assert_held_up(&stuck);
	store_word(f, 0, 1);
	assert_int_equal(attempt_end(&stuck), 0);
	assert_int_equal(attempt_end(&held[0]), 0);
	assert_int_equal(attempt_end(&held[1]), 0);
	assert_int_equal(unregister_pages(f, pages), 0);
	munmap(pages, 4096);
	free_streams((sluice_stream[]){full, other}, 2);
}

DEVICE_TEST(copies_have_full_channels_too)
{
	sluice_stream full = new_stream();
	struct attempt stuck;

	give(f, full, await_word(f, 0, 1));
	for (int i = 0; i < IN_A_CHANNEL; i++)
		give(f, full, copy_command(f->memory, f->data, 64));
	/* From the device needs no channel. */
	for (int i = 0; i < IN_A_CHANNEL; i++)
		assert_int_equal(copy_from_device(f, full), 0);
	attempt_start(&stuck, f, "stuck", copy_to_device, full);
	assert_held_up(&stuck);
	store_word(f, 0, 1);
	assert_int_equal(attempt_end(&stuck), 0);
	free_streams(&full, 1);
}

DEVICE_TEST(pinning_waits_for_all_that_the_device_holds_and_stops_nobody_else)
{
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sluice_stream blocked, other = new_stream();
	struct attempt held[4];
	struct sl_command command;
	size_t taken;
	void *made = NULL, *old, *memory;
	sluice_event event;

	assert_int_equal(register_pages(f, pages + 4096), 0);
	assert_int_equal(sluice_pinned_alloc(0, 4096, &old), 0);
	assert_int_equal(sluice_event_new(0, &event), 0);
	block_streams(f, &blocked, 1, NULL, NULL);
	attempt_start(&held[0], f, "registers", register_pages, pages);
	attempt_start(&held[1], f, "unregisters", unregister_pages, pages + 4096);
	attempt_start(&held[2], f, "pins", alloc_pinned, &made);
	attempt_start(&held[3], f, "unpins", free_pinned, old);
	assert_held_up(&held[0]);
	assert_int_equal(runs_through(f, copy_to_device, other), 0);
	assert_int_equal(runs_through(f, copy_from_device, other), 0);
	assert_int_equal(runs_through(f, call_copy, NULL), 0);
	assert_int_equal(runs_through(f, record, event), 0);
	assert_int_equal(runs_through(f, call_stream, NULL), 0);
	assert_int_equal(runs_through(f, alloc_memory, &memory), 0);
	assert_int_equal(runs_through(f, call_function, other), 0);
	assert_int_equal(runs_through(f, call_synchronize, other), 0);
	for (int i = 0; i < 4; i++)
		assert_held_up(&held[i]);
	/* What is on its way out is not to be had any more. */
	command = copy_command(f->memory, pages + 4096, 64);
	assert_int_equal(f->device->ops->enqueue(f->device, other, &command, 1, &taken), -EINVAL);
	assert_int_equal(unregister_pages(f, pages + 4096), -EINVAL);
	store_word(f, 0, 1);
	for (int i = 0; i < 4; i++)
		assert_int_equal(attempt_end(&held[i]), 0);
	assert_true(f->device->ops->registered(f->device, pages, 4096));
	assert_false(f->device->ops->registered(f->device, pages + 4096, 4096));
	assert_int_equal(unregister_pages(f, pages), 0);
	munmap(pages, 8192);
	assert_int_equal(sluice_pinned_free(made), 0);
	assert_int_equal(sluice_device_free(memory), 0);
	assert_int_equal(sluice_event_free(event), 0);
	free_streams((sluice_stream[]){blocked, other}, 2);
}

DEVICE_TEST(a_free_waits_for_the_device_and_holds_up_most_calls)
{
	sluice_stream blocked, other = new_stream();
	struct attempt freeing, held[7];
	sluice_event event, recorded;
	void *victim, *memory = NULL;
	struct sl_command words[2];
	size_t taken;

	assert_int_equal(sluice_event_new(0, &event), 0);
	assert_int_equal(sluice_event_new(0, &recorded), 0);
	assert_int_equal(sluice_event_record(recorded, other), 0);
	assert_int_equal(sluice_device_alloc(0, 4096, &victim), 0);
	block_streams(f, &blocked, 1, NULL, NULL);
	attempt_start(&freeing, f, "frees", call_free, victim);
	assert_held_up(&freeing);
	attempt_start(&held[0], f, "held", copy_to_device, other);
	attempt_start(&held[1], f, "held", copy_from_device, other);
	attempt_start(&held[2], f, "held", call_copy, NULL);
	attempt_start(&held[3], f, "held", record, event);
	attempt_start(&held[4], f, "held", call_stream, NULL);
	attempt_start(&held[5], f, "held", alloc_memory, &memory);
	attempt_start(&held[6], f, "held", call_function, other);
	for (int i = 0; i < 7; i++)
		assert_held_up(&held[i]);
	/* These go on. */
	words[0] = write_word(f, 1, 1);
	words[1] = await_word(f, 1, 1);
	assert_int_equal(f->device->ops->enqueue(f->device, other, words, 2, &taken), 0);
	assert_stream_comes_to_its_end(other);
	assert_int_equal(runs_through(f, call_synchronize, other), 0);
	assert_int_equal(sluice_event_query(recorded), 1);
	assert_int_equal(sluice_event_synchronize(recorded), 0);
	assert_int_equal(sluice_device_of(f->memory), 0);
	for (int i = 0; i < 7; i++)
		assert_held_up(&held[i]);
	assert_held_up(&freeing);
	store_word(f, 0, 1);
	assert_int_equal(attempt_end(&freeing), 0);
	for (int i = 0; i < 7; i++)
		assert_int_equal(attempt_end(&held[i]), 0);
	assert_int_equal(sluice_device_of(victim), -1);
	assert_int_equal(sluice_device_free(memory), 0);
	assert_int_equal(sluice_event_free(event), 0);
	assert_int_equal(sluice_event_free(recorded), 0);
	free_streams((sluice_stream[]){blocked, other}, 2);
}

/* ------------------------------------------------------------------------ what does work */

enum { LANES = 64, LAPS = 4 };

struct lanes {
	_Atomic uint32_t asked[LANES];
	_Atomic bool stop;
};

/* Stores each lane's next word once the device has seen the last one. */
static int fill_lanes(struct fixture *f, void *argument)
{
	struct lanes *lanes = argument;

	while (!atomic_load(&lanes->stop)) {
		for (unsigned i = 0; i < LANES; i++) {
			uint32_t now = atomic_load(word_at(f, 2 * i));

			if (now < atomic_load(&lanes->asked[i]) &&
			    atomic_load(word_at(f, 2 * i + 1)) == now)
				store_word(f, 2 * i, now + 1);
		}
		usleep(20);
	}
	return 0;
}

static int alloc_and_free(struct fixture *f, void *argument)
{
	struct lanes *lanes = argument;
	void *memory;
	int rc = 0;

	(void)f;
	while (!rc && !atomic_load(&lanes->stop)) {
		rc = sluice_device_alloc(0, 4096, &memory);
		if (!rc)
			rc = sluice_device_free(memory);
	}
	return rc;
}

/* What the library does on a caller's stream, with what the caller does there besides. */
static void run_lap(struct fixture *f, sluice_stream stream, unsigned lane, uint32_t lap)
{
	char *to = f->memory + (size_t)lane * 64, *from = f->data + (size_t)lane * 64;

	give(f, stream, await_word(f, 2 * lane, lap));
	give(f, stream, copy_command(to, from, 64));
	give(f, stream, write_word(f, 2 * lane + 1, lap));
	assert_int_equal(sluice_emulated_launch(0, stream, nothing, NULL), 0);
	give(f, stream, copy_command(to, from, 64));
}

DEVICE_TEST(submitted_spill_completes_when_memory_is_freed_elsewhere)
{
	struct lanes lanes = {0};
	struct attempt filling, freeing;
	sluice_stream streams[LANES];

	for (unsigned i = 0; i < LANES; i++)
		streams[i] = new_stream();
	attempt_start(&filling, f, "fills", fill_lanes, &lanes);
	attempt_start(&freeing, f, "frees", alloc_and_free, &lanes);
	for (uint32_t lap = 1; lap <= LAPS; lap++) {
		for (unsigned i = 0; i < LANES; i++) {
			/* The word comes without this thread, which the free may hold up. */
			atomic_store(&lanes.asked[i], lap);
			run_lap(f, streams[i], i, lap);
		}
	}
	free_streams(streams, LANES);
	atomic_store(&lanes.stop, true);
	assert_int_equal(attempt_end(&freeing), 0);
	assert_int_equal(attempt_end(&filling), 0);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
