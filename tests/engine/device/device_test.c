/* SPDX-License-Identifier: Apache-2.0 */
/* What devices promise to programs: on the one that every machine has, or that SLUICE_TEST_DEVICE
 * names. */
#include <dirent.h>
#include <sys/mman.h>

#include "device/device_common.h"

/* ------------------------------------------------------------------------ threads of a device */

/* Adds up a field of the status of each thread whose name begins with "sluice-emu". */
static unsigned long engine_threads(unsigned long *switches)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *entry;
	unsigned long count = 0, value;
	char path[300], line[256];

	assert_non_null(tasks);
	*switches = 0;
	while ((entry = readdir(tasks))) {
		bool engine = false;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		file = fopen(path, "r");
		while (file && fgets(line, sizeof(line), file)) {
			engine |= !strncmp(line, "Name:\tsluice-emu", 16);
			if (engine && strstr(line, "ctxt_switches:") &&
			    sscanf(strchr(line, ':') + 1, "%lu", &value) == 1)
				*switches += value;
		}
		if (file)
			fclose(file);
		count += engine;
	}
	closedir(tasks);
	return count;
}

/* Runs first. */
static void a_device_has_no_thread_before_its_first_use(void **state)
{
	struct sluice_device device = {.size = sizeof(device)};
	unsigned long switches;
	int here = 0;

	(void)state;
	assert_int_equal(sluice_device_of(&here), -1);
	assert_int_equal(sluice_device_describe(0, &device), 0);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_CLASSIFY, NULL), 0);
	assert_int_equal(engine_threads(&switches), 0);
	assert_int_equal(sluice_stream_query(0, SLUICE_STREAM_DEFAULT), 1);
	assert_int_equal(engine_threads(&switches), 2);
}

static void a_device_with_nothing_to_do_sleeps(void **state)
{
	struct fixture *f = *state;
	unsigned long before, after;
	sluice_stream stream = new_stream();

	give(f, stream, await_word(f, 0, 1));
	assert_stream_stays_busy(stream);
	store_word(f, 0, 1);
	assert_stream_comes_to_its_end(stream);
	assert_int_equal(sluice_stream_free(stream), 0);
	/* The engine may be on its way to bed. */
	for (int tries = 0; tries < 100; tries++) {
		engine_threads(&before);
		usleep(100000);
		engine_threads(&after);
		if (after == before)
			return;
	}
	fail_msg("the threads of an idle device wake up");
}

/* ---------------------------------------------------------------------------------- refusals */

static void wrong_arguments_are_refused_with_a_sentence(void **state)
{
	struct fixture *f = *state;
	sluice_stream stream, other;
	sluice_event event;
	void *memory = NULL;
	char here[8];

	assert_int_equal(sluice_device_alloc(9, 1, &memory), -ENODEV);
	assert_string_equal(sluice_last_message(), "there is no device 9");
	assert_int_equal(sluice_device_alloc(device_number, 0, &memory), -EINVAL);
	assert_int_equal(sluice_device_alloc(device_number, 1, NULL), -EINVAL);
	assert_int_equal(sluice_device_free(here), -EINVAL);
	assert_int_equal(sluice_device_free(f->memory + 256), -EINVAL);
	assert_int_equal(sluice_pinned_alloc(device_number, 0, &memory), -EINVAL);
	assert_int_equal(sluice_pinned_alloc(device_number, SIZE_MAX, &memory), -ENOMEM);
	assert_int_equal(sluice_stream_query(device_number, (sluice_stream)(void *)here), -EINVAL);
	assert_int_equal(sluice_stream_free((sluice_stream)2), -EINVAL);
	assert_int_equal(sluice_event_query((sluice_event)(void *)here), -EINVAL);
	assert_int_equal(sluice_event_query(NULL), -EINVAL);
	assert_int_equal(sluice_copy_on(here, here, 4, SLUICE_STREAM_DEFAULT), -EINVAL);
	assert_int_equal(sluice_copy_on(NULL, here, 4, SLUICE_STREAM_DEFAULT), -EINVAL);
	assert_null(memory);
	/* What belongs to the other device. */
	assert_int_equal(sluice_stream_new(device_number + 1, &other), 0);
	assert_int_equal(sluice_stream_query(device_number, other), -EINVAL);
	/* CUDA's driver copies between devices. */
	if (!device_number)
		assert_int_equal(sluice_copy_on(f->memory, here, 4, other), -EINVAL);
	assert_int_equal(sluice_event_new(device_number, &event), 0);
	assert_int_equal(sluice_event_record(event, other), -EINVAL);
	assert_int_equal(sluice_stream_free(other), 0);
	assert_int_equal(sluice_event_free(event), 0);
	/* A handle that is gone. */
	stream = new_stream();
	assert_int_equal(sluice_stream_free(stream), 0);
	assert_int_equal(sluice_stream_free(stream), -EINVAL);
	assert_int_equal(sluice_stream_free(NULL), 0);
	assert_int_equal(sluice_event_free(NULL), 0);
	assert_int_equal(sluice_device_free(NULL), 0);
	assert_int_equal(sluice_pinned_free(NULL), 0);
}

/* ------------------------------------------------------------------------------------ memory */

static void memory_of_a_device_faults_when_the_processor_touches_it(void **state)
{
	struct fixture *f = *state;
	int ends[2];
	char byte = 0;

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], f->memory, 1), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(write(ends[1], &byte, 1), 1);
	assert_int_equal(read(ends[0], f->memory, 1), -1);
	assert_int_equal(errno, EFAULT);
	close(ends[0]);
	close(ends[1]);
}

static void a_pointer_leads_to_its_device(void **state)
{
	struct fixture *f = *state;
	void *second;

	assert_int_equal(sluice_device_alloc(device_number + 1, 100, &second), 0);
	assert_int_equal((uintptr_t)second % 256, 0);
	assert_int_equal(sluice_device_of(f->memory), device_number);
	assert_int_equal(sluice_device_of(f->memory + DATA_BYTES - 1), device_number);
	assert_int_equal(sluice_device_of(f->memory + DATA_BYTES), -1);
	assert_int_equal(sluice_device_of(second), device_number + 1);
	assert_int_equal(sluice_device_of((char *)second + 100), -1);
	assert_int_equal(sluice_device_of(f->pinned), -1);
	assert_int_equal(sluice_device_free(second), 0);
	assert_int_equal(sluice_device_of(second), -1);
	assert_int_equal(sluice_device_of(NULL), -1);
}

static uint64_t free_bytes(void)
{
	struct sluice_device device = {.size = sizeof(device)};

	assert_int_equal(sluice_device_describe(device_number, &device), 0);
	return device.free_bytes;
}

static void a_device_has_as_much_memory_as_it_says(void **state)
{
	uint64_t before = free_bytes();
	void *all, *more;

	(void)state;
	assert_int_equal(sluice_device_alloc(device_number, before + 1, &all), -ENOMEM);
	assert_int_equal(sluice_device_alloc(device_number, before, &all), 0);
	assert_int_equal(free_bytes(), 0);
	assert_int_equal(sluice_device_alloc(device_number, 1, &more), -ENOMEM);
	assert_int_equal(sluice_device_free(all), 0);
	assert_int_equal(free_bytes(), before);
	/* Often enough to go through all addresses. */
	for (int i = 0; i < 20; i++) {
		assert_int_equal(sluice_device_alloc(device_number, before / 2, &all), 0);
		assert_int_equal(sluice_device_alloc(device_number, before / 4, &more), 0);
		assert_int_equal(sluice_device_free(all), 0);
		assert_int_equal(sluice_device_free(more), 0);
	}
}

static void pinned_memory_is_registered_and_other_memory_is_not(void **state)
{
	struct fixture *f = *state;
	const struct sl_device_ops *ops = f->device->ops;
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_int_equal((uintptr_t)f->pinned % 4096, 0);
	assert_true(ops->registered(f->device, f->pinned, WORDS * WORD_STRIDE + DATA_BYTES));
	assert_false(ops->registered(f->device, f->data, DATA_BYTES + 1));
	assert_false(ops->registered(f->device, pages, 1));
	assert_int_equal(ops->register_memory(f->device, pages, 4096), 0);
	assert_true(ops->registered(f->device, pages + 100, 3996));
	assert_false(ops->registered(f->device, pages + 100, 3997));
	assert_int_equal(ops->register_memory(f->device, pages, 8192), -EEXIST);
	assert_true(ops->register_memory(f->device, pages + 1, 4096) < 0);
	assert_int_equal(ops->unregister_memory(f->device, pages + 4096), -EINVAL);
	assert_int_equal(ops->unregister_memory(f->device, pages), 0);
	assert_int_equal(ops->unregister_memory(f->device, pages), -EINVAL);
	assert_false(ops->registered(f->device, pages, 1));
	munmap(pages, 8192);
}

/* ------------------------------------------------------------------------------------ copies */

static void fill(char *to, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (char)unit_random(&seed);
}

static void bytes_come_back_from_a_device_as_they_went(void **state)
{
	struct fixture *f = *state;
	sluice_stream stream = new_stream();
	char *from = malloc(DATA_BYTES), *back = calloc(1, DATA_BYTES);
	size_t half = DATA_BYTES / 2;

	fill(from, DATA_BYTES, 1);
	/* Ordinary memory, calls that wait. */
	assert_int_equal(sluice_copy(f->memory, from, DATA_BYTES), 0);
	assert_int_equal(sluice_copy(back, f->memory, DATA_BYTES), 0);
	assert_memory_equal(from, back, DATA_BYTES);
	/* Within the device and through pinned memory, in a stream. */
	memcpy(f->data, from, half);
	assert_int_equal(sluice_copy_on(f->memory + half, f->data, half, stream), 0);
	assert_int_equal(sluice_copy_on(f->memory + 1, f->memory + half, half - 1, stream), 0);
	assert_int_equal(sluice_copy_on(f->data + half, f->memory, half, stream), 0);
	assert_int_equal(sluice_stream_synchronize(device_number, stream), 0);
	assert_memory_equal(f->data + half, from, 1);
	assert_memory_equal(f->data + half + 1, from, half - 1);
	/* Host to host. */
	memset(back, 0, DATA_BYTES);
	assert_int_equal(sluice_copy(back, from, DATA_BYTES), 0);
	assert_memory_equal(from, back, DATA_BYTES);
	assert_int_equal(sluice_copy(NULL, NULL, 0), 0);
	assert_int_equal(sluice_stream_free(stream), 0);
	free(from);
	free(back);
}

static void ordinary_memory_is_copied_from_before_the_call_returns(void **state)
{
	struct fixture *f = *state;
	sluice_stream stream = new_stream();
	char here[64], back[64];

	give(f, stream, await_word(f, 0, 1));
	memset(here, 7, sizeof(here));
	assert_int_equal(sluice_copy_on(f->memory, here, sizeof(here), stream), 0);
	memset(here, 8, sizeof(here));
	assert_int_equal(sluice_stream_query(device_number, stream), 0);
	store_word(f, 0, 1);
	assert_int_equal(sluice_stream_synchronize(device_number, stream), 0);
	assert_int_equal(sluice_copy(back, f->memory, sizeof(back)), 0);
	memset(here, 7, sizeof(here));
	assert_memory_equal(here, back, sizeof(here));
	assert_int_equal(sluice_stream_free(stream), 0);
}

struct fetch {
	char back[64];
	sluice_stream stream;
};

static int fetch(struct fixture *f, void *argument)
{
	struct fetch *to = argument;

	return sluice_copy_on(to->back, f->memory, sizeof(to->back), to->stream);
}

static void a_copy_to_ordinary_memory_waits_for_it(void **state)
{
	struct fixture *f = *state;
	struct fetch to = {.stream = new_stream()};
	struct attempt attempt;

	memset(f->data, 9, sizeof(to.back));
	assert_int_equal(sluice_copy(f->memory, f->data, sizeof(to.back)), 0);
	give(f, to.stream, await_word(f, 0, 1));
	sluice_emulated_reset_calls();
	attempt_start(&attempt, f, "fetches", fetch, &to);
	assert_held_up(&attempt);
	store_word(f, 0, 1);
	assert_int_equal(attempt_end(&attempt), 0);
	assert_memory_equal(to.back, f->data, sizeof(to.back));
	/* The driver's call, not one behind it. */
	if (!device_number) {
		assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_SYNCHRONIZE, "fetches"), 1);
		assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_COPY, NULL), 0);
	}
	assert_int_equal(sluice_stream_free(to.stream), 0);
}

static void commands_take_registered_host_memory_only(void **state)
{
	struct fixture *f = *state;
	_Atomic uint32_t word = 0;
	char here[64];
	struct sl_command commands[] = {
		write_word(f, 0, 1),
		copy_command(f->memory, here, sizeof(here)),
		write_word(f, 1, 1),
	};
	size_t taken = 77;

	assert_int_equal(f->device->ops->enqueue(f->device, NULL, commands, 3, &taken), -EINVAL);
	assert_int_equal(taken, 1);
	commands[1] = copy_command(here, f->memory, sizeof(here));
	assert_int_equal(f->device->ops->enqueue(f->device, NULL, commands, 3, &taken), -EINVAL);
	commands[1] = copy_command(f->data, f->data + 64, 64);
	assert_int_equal(f->device->ops->enqueue(f->device, NULL, commands, 3, &taken), -EINVAL);
	commands[1].kind = SL_AWAIT_WORD;
	commands[1].word.at = &word;
	assert_int_equal(f->device->ops->enqueue(f->device, NULL, commands, 3, &taken), -EINVAL);
	assert_int_equal(taken, 1);
	assert_int_equal(sluice_stream_synchronize(0, SLUICE_STREAM_DEFAULT), 0);
	assert_int_equal(atomic_load(word_at(f, 0)), 1);
	assert_int_equal(atomic_load(word_at(f, 1)), 0);
	assert_int_equal(f->device->ops->status(f->device), 0);
}

static void assert_device_failed(struct fixture *f, int error)
{
	sluice_stream stream;

	assert_int_equal(sluice_stream_synchronize(0, SLUICE_STREAM_DEFAULT), error);
	assert_int_equal(f->device->ops->status(f->device), error);
	assert_int_equal(sluice_stream_new(0, &stream), error);
	assert_int_equal(sluice_stream_query(0, SLUICE_STREAM_DEFAULT), error);
	assert_int_equal(sluice_copy(f->memory, f->data, 1), error);
}

static void an_illegal_address_stops_a_device_for_good(void **state)
{
	struct fixture *f = *state;
	void *gone;

	assert_int_equal(sluice_device_alloc(0, 4096, &gone), 0);
	assert_int_equal(sluice_device_free(gone), 0);
	give(f, NULL, await_word(f, 0, 1));
	give(f, NULL, copy_command(gone, f->data, 64));
	give(f, NULL, write_word(f, 1, 1));
	store_word(f, 0, 1);
	assert_device_failed(f, -EFAULT);
	assert_int_equal(atomic_load(word_at(f, 1)), 0);
	sluice_emulated_lose(0, 0);
	assert_int_equal(f->device->ops->status(f->device), 0);
	assert_int_equal(sluice_stream_query(0, SLUICE_STREAM_DEFAULT), 1);
	/* A copy that runs out of its memory. */
	give(f, NULL, copy_command(f->memory + DATA_BYTES - 63, f->data, 64));
	assert_device_failed(f, -EFAULT);
	sluice_emulated_lose(0, 0);
	assert_int_equal(sluice_copy(f->memory, f->data, 64), 0);
}

/* ----------------------------------------------------------------------------------- streams */

static void a_word_is_waited_for_cyclically(void **state)
{
	struct fixture *f = *state;
	sluice_stream stream = new_stream();

	store_word(f, 0, UINT32_MAX - 1);
	give(f, stream, await_word(f, 0, UINT32_MAX - 1));
	give(f, stream, await_word(f, 0, UINT32_MAX - 5));
	assert_int_equal(sluice_stream_synchronize(device_number, stream), 0);
	give(f, stream, await_word(f, 0, 2));
	assert_stream_stays_busy(stream);
	store_word(f, 0, 1);
	assert_stream_stays_busy(stream);
	store_word(f, 0, 3);
	assert_stream_comes_to_its_end(stream);
	assert_int_equal(sluice_stream_free(stream), 0);
}

enum { TURNS = 300, SLOT = 4096 };

static int fill_slot(struct fixture *f, void *argument)
{
	(void)argument;
	for (unsigned turn = 1; turn <= TURNS; turn++) {
		while (atomic_load_explicit(word_at(f, 1), memory_order_acquire) != turn - 1)
			sched_yield();
		memset(f->data, turn & 0xff, SLOT);
		store_word(f, 0, turn);
	}
	return 0;
}

/* The words alone carry the slot from thread to device and back. */
static void a_slot_goes_from_a_thread_to_the_device_and_back_by_its_words(void **state)
{
	struct fixture *f = *state;
	sluice_stream stream = new_stream();
	struct attempt filler;
	char expected[SLOT];

	attempt_start(&filler, f, "fills", fill_slot, NULL);
	for (unsigned turn = 1; turn <= TURNS; turn++) {
		unsigned place = turn % 32 * SLOT;

		give(f, stream, await_word(f, 0, turn));
		give(f, stream, copy_command(f->memory + place, f->data, SLOT));
		give(f, stream, write_word(f, 1, turn));
	}
	assert_int_equal(attempt_end(&filler), 0);
	assert_int_equal(sluice_stream_synchronize(device_number, stream), 0);
	assert_int_equal(sluice_copy(f->data, f->memory, 32 * SLOT), 0);
	for (unsigned turn = TURNS - 31; turn <= TURNS; turn++) {
		memset(expected, turn & 0xff, SLOT);
		assert_memory_equal(f->data + turn % 32 * SLOT, expected, SLOT);
	}
	assert_int_equal(sluice_stream_free(stream), 0);
}

static void the_default_stream_is_ordered_with_blocking_streams_only(void **state)
{
	struct fixture *f = *state;
	sluice_stream blocking = (sluice_stream)2, free_one = new_stream();

	give(f, blocking, await_word(f, 0, 1));
	give(f, NULL, write_word(f, 1, 1));
	give(f, blocking, write_word(f, 2, 1));
	give(f, free_one, write_word(f, 3, 1));
	assert_stream_comes_to_its_end(free_one);
	assert_int_equal(atomic_load(word_at(f, 3)), 1);
	assert_stream_stays_busy(NULL);
	assert_int_equal(atomic_load(word_at(f, 1)), 0);
	store_word(f, 0, 1);
	assert_stream_comes_to_its_end(blocking);
	assert_int_equal(atomic_load(word_at(f, 1)), 1);
	/* And what comes later in a blocking stream waits for the default one. */
	give(f, NULL, await_word(f, 0, 2));
	give(f, blocking, write_word(f, 2, 2));
	assert_stream_stays_busy(blocking);
	give(f, free_one, write_word(f, 3, 2));
	assert_stream_comes_to_its_end(free_one);
	store_word(f, 0, 2);
	assert_stream_comes_to_its_end(blocking);
	assert_int_equal(sluice_stream_free(free_one), 0);
}

static void an_event_stands_for_what_its_stream_held(void **state)
{
	struct fixture *f = *state;
	sluice_stream a = new_stream(), b = new_stream();
	sluice_event event;

	assert_int_equal(sluice_event_new(device_number, &event), 0);
	assert_int_equal(sluice_event_query(event), 1);
	assert_int_equal(sluice_event_synchronize(event), 0);
	give(f, a, await_word(f, 0, 1));
	assert_int_equal(sluice_event_record(event, a), 0);
	give(f, a, await_word(f, 0, 2));
	assert_int_equal(sluice_event_await(event, b), 0);
	give(f, b, write_word(f, 1, 1));
	assert_stream_stays_busy(b);
	assert_int_equal(sluice_event_query(event), 0);
	/* Recorded again in another stream: b still waits for the first record. */
	assert_int_equal(sluice_event_record(event, NULL), 0);
	assert_int_equal(sluice_event_synchronize(event), 0);
	assert_int_equal(sluice_event_query(event), 1);
	assert_stream_stays_busy(b);
	assert_int_equal(sluice_event_free(event), 0);
	store_word(f, 0, 1);
	assert_stream_comes_to_its_end(b);
	assert_int_equal(atomic_load(word_at(f, 1)), 1);
	assert_false(stream_done(a));
	store_word(f, 0, 2);
	assert_stream_comes_to_its_end(a);
	assert_int_equal(sluice_stream_free(a), 0);
	assert_int_equal(sluice_stream_free(b), 0);
}

static bool word_2_is_1(void *argument)
{
	return atomic_load(word_at(argument, 2)) == 1;
}

static void a_freed_stream_finishes_what_it_holds(void **state)
{
	struct fixture *f = *state;
	sluice_stream stream = new_stream();
	sluice_event event;

	assert_int_equal(sluice_event_new(device_number, &event), 0);
	give(f, stream, await_word(f, 0, 1));
	give(f, stream, write_word(f, 2, 1));
	assert_int_equal(sluice_event_record(event, stream), 0);
	assert_int_equal(sluice_stream_free(stream), 0);
	assert_int_equal(sluice_event_free(event), 0);
	assert_int_equal(sluice_stream_query(device_number, stream), -EINVAL);
	store_word(f, 0, 1);
	assert_comes(word_2_is_1, f);
}

static void add_one(void *argument)
{
	unsigned char *bytes = sluice_emulated_memory(argument);

	for (int i = 0; i < 64; i++)
		bytes[i]++;
}

static void kernels_and_host_functions_run_in_stream_order(void **state)
{
	struct fixture *f = *state;
	sluice_stream stream = new_stream();
	char expected[64];

	memset(f->data, 1, 64);
	assert_int_equal(sluice_copy_on(f->memory, f->data, 64, stream), 0);
	assert_int_equal(sluice_emulated_launch(0, stream, add_one, f->memory), 0);
	assert_int_equal(sluice_emulated_call(0, stream, add_one, f->memory), 0);
	assert_int_equal(sluice_emulated_launch(0, stream, add_one, f->memory), 0);
	assert_int_equal(sluice_copy_on(f->data, f->memory, 64, stream), 0);
	assert_int_equal(sluice_stream_synchronize(0, stream), 0);
	memset(expected, 4, 64);
	assert_memory_equal(f->data, expected, 64);
	assert_null(sluice_emulated_memory(f->data));
	assert_null(sluice_emulated_memory(f->memory + DATA_BYTES));
	assert_int_equal(sluice_emulated_launch(0, stream, NULL, NULL), -EINVAL);
	assert_int_equal(sluice_emulated_launch(7, stream, add_one, NULL), -ENODEV);
	assert_int_equal(sluice_stream_free(stream), 0);
}

int main(void)
{
	const struct CMUnitTest of_all[] = {
		device_test(wrong_arguments_are_refused_with_a_sentence),
		device_test(memory_of_a_device_faults_when_the_processor_touches_it),
		device_test(a_pointer_leads_to_its_device),
		device_test(a_device_has_as_much_memory_as_it_says),
		device_test(pinned_memory_is_registered_and_other_memory_is_not),
		device_test(bytes_come_back_from_a_device_as_they_went),
		device_test(ordinary_memory_is_copied_from_before_the_call_returns),
		device_test(a_copy_to_ordinary_memory_waits_for_it),
		device_test(a_word_is_waited_for_cyclically),
		device_test(a_slot_goes_from_a_thread_to_the_device_and_back_by_its_words),
		device_test(the_default_stream_is_ordered_with_blocking_streams_only),
		device_test(an_event_stands_for_what_its_stream_held),
		device_test(a_freed_stream_finishes_what_it_holds),
	};
	const struct CMUnitTest of_emulated[] = {
		cmocka_unit_test(a_device_has_no_thread_before_its_first_use),
		device_test(a_device_with_nothing_to_do_sleeps),
		device_test(commands_take_registered_host_memory_only),
		device_test(an_illegal_address_stops_a_device_for_good),
		device_test(kernels_and_host_functions_run_in_stream_order),
	};

	device_choose();
	if (!device_number && cmocka_run_group_tests(of_emulated, NULL, NULL))
		return 1;
	return cmocka_run_group_tests(of_all, NULL, NULL);
}
