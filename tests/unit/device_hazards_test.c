/* SPDX-License-Identifier: Apache-2.0 */
/* What holds up what on a device, as measured on a GPU, and what only the emulated one can do. */
#include <sys/mman.h>

#include "unit/device.h"

#define MANY         100
#define IN_A_CHANNEL 1000

static void free_streams(sluice_stream *streams, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(sluice_stream_synchronize(0, streams[i]), 0);
		assert_int_equal(sluice_stream_free(streams[i]), 0);
	}
}

static void nothing(void *argument)
{
	(void)argument;
}

/* Waits for the word that is the argument to be not 0. */
static void wait_there(void *argument)
{
	while (!atomic_load_explicit((_Atomic uint32_t *)argument, memory_order_acquire))
		usleep(1000);
}

/* ---------------------------------------------------------------------------------- channels */

static void three_blocked_copies_to_the_device_let_another_one_run_and_four_do_not(void **state)
{
	struct fixture *f = *state;
	sluice_stream streams[4], other = new_stream();

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

static void blocked_copies_from_the_device_hold_nothing_up(void **state)
{
	struct fixture *f = *state;
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

static void four_blocked_streams_let_a_kernel_run_and_eight_do_not(void **state)
{
	struct fixture *f = *state;
	sluice_stream streams[8], other = new_stream();

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

static void host_functions_run_one_at_a_time_whatever_their_streams(void **state)
{
	struct fixture *f = *state;
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

static int one_more_wait(struct fixture *f, void *argument)
{
	struct sl_command command = await_word(f, 0, 1);
	size_t taken;

	return f->device->ops->enqueue(f->device, argument, &command, 1, &taken);
}

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

static int free_memory(struct fixture *f, void *argument)
{
	(void)f;
	return sluice_device_free(argument);
}

static int copy_waiting(struct fixture *f, void *argument)
{
	(void)argument;
	return sluice_copy(f->memory + 256, f->data + 256, 64);
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

static int make_stream(struct fixture *f, void *argument)
{
	sluice_stream stream;
	int rc = sluice_stream_new(0, &stream);

	(void)f;
	(void)argument;
	return rc ? rc : sluice_stream_free(stream);
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

static int synchronize(struct fixture *f, void *argument)
{
	(void)f;
	return sluice_stream_synchronize(0, argument);
}

static void a_full_channel_holds_up_whoever_gives_it_more(void **state)
{
	struct fixture *f = *state;
	sluice_stream full = new_stream(), other = new_stream();
	struct attempt stuck, held[2];
	char *pages = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < IN_A_CHANNEL; i++)
		give(f, full, await_word(f, 0, 1));
	attempt_start(&stuck, f, "stuck", one_more_wait, full);
	assert_held_up(&stuck);
	/* All else goes on in other streams, but registration and copies that wait. */
	attempt_start(&held[0], f, "copies", copy_waiting, NULL);
	attempt_start(&held[1], f, "registers", register_pages, pages);
	assert_int_equal(runs_through(f, copy_to_device, other), 0);
	assert_int_equal(runs_through(f, call_function, other), 0);
	assert_int_equal(runs_through(f, make_stream, NULL), 0);
	assert_int_equal(runs_through(f, synchronize, other), 0);
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

static void copies_have_full_channels_too(void **state)
{
	struct fixture *f = *state;
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

static void pinning_waits_for_all_that_the_device_holds_and_stops_nobody_else(void **state)
{
	struct fixture *f = *state;
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sluice_stream blocked, other = new_stream();
	struct attempt held[4];
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
	assert_int_equal(runs_through(f, copy_waiting, NULL), 0);
	assert_int_equal(runs_through(f, record, event), 0);
	assert_int_equal(runs_through(f, make_stream, NULL), 0);
	assert_int_equal(runs_through(f, alloc_memory, &memory), 0);
	assert_int_equal(runs_through(f, call_function, other), 0);
	assert_int_equal(runs_through(f, synchronize, other), 0);
	for (int i = 0; i < 4; i++)
		assert_held_up(&held[i]);
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

static void a_free_waits_for_the_device_and_holds_up_most_calls(void **state)
{
	struct fixture *f = *state;
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
	attempt_start(&freeing, f, "frees", free_memory, victim);
	assert_held_up(&freeing);
	attempt_start(&held[0], f, "held", copy_to_device, other);
	attempt_start(&held[1], f, "held", copy_from_device, other);
	attempt_start(&held[2], f, "held", copy_waiting, NULL);
	attempt_start(&held[3], f, "held", record, event);
	attempt_start(&held[4], f, "held", make_stream, NULL);
	attempt_start(&held[5], f, "held", alloc_memory, &memory);
	attempt_start(&held[6], f, "held", call_function, other);
	for (int i = 0; i < 7; i++)
		assert_held_up(&held[i]);
	/* These go on. */
	words[0] = write_word(f, 1, 1);
	words[1] = await_word(f, 1, 1);
	assert_int_equal(f->device->ops->enqueue(f->device, other, words, 2, &taken), 0);
	assert_stream_comes_to_its_end(other);
	assert_int_equal(runs_through(f, synchronize, other), 0);
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

/* ------------------------------------------------------------------- counted, failed and lost */

static void calls_are_counted_by_kind_and_thread(void **state)
{
	struct fixture *f = *state;
	struct attempt attempt;

	sluice_emulated_reset_calls();
	attempt_start(&attempt, f, "counted-1", make_stream, NULL);
	assert_int_equal(attempt_end(&attempt), 0);
	attempt_start(&attempt, f, "counted-2", make_stream, NULL);
	assert_int_equal(attempt_end(&attempt), 0);
	give(f, NULL, write_word(f, 0, 1));
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_STREAM, "counted-1"), 2);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_STREAM, "counted"), 4);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_STREAM, NULL), 4);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_WRITE, "counted"), 0);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_WRITE, NULL), 1);
	assert_int_equal(sluice_stream_synchronize(0, NULL), 0);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_SYNCHRONIZE, NULL), 1);
	sluice_emulated_reset_calls();
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_STREAM, NULL), 0);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_KINDS, NULL), 0);
}

static void the_nth_call_fails_and_no_other(void **state)
{
	struct fixture *f = *state;
	struct sl_command commands[4];
	size_t taken;
	void *memory;

	for (int i = 0; i < 4; i++)
		commands[i] = write_word(f, i, 1);
	sluice_emulated_fail(SLUICE_EMULATED_WRITE, 3, -ENOMEM);
	assert_int_equal(f->device->ops->enqueue(f->device, NULL, commands, 4, &taken), -ENOMEM);
	assert_int_equal(taken, 2);
	assert_int_equal(f->device->ops->enqueue(f->device, NULL, commands + 2, 2, &taken), 0);
	assert_int_equal(taken, 2);
	sluice_emulated_fail(SLUICE_EMULATED_ALLOC, 1, -ENODEV);
	assert_int_equal(sluice_device_alloc(0, 1, &memory), -ENODEV);
	assert_non_null(strstr(sluice_last_message(), "emulated:0: cannot allocate memory"));
	assert_int_equal(sluice_device_alloc(0, 1, &memory), 0);
	sluice_emulated_fail(SLUICE_EMULATED_FREE, 1, -EIO);
	assert_int_equal(sluice_device_free(memory), -EIO);
	assert_int_equal(sluice_device_free(memory), 0);
	/* Taken back. */
	sluice_emulated_fail(SLUICE_EMULATED_ALLOC, 1, -ENODEV);
	sluice_emulated_fail(SLUICE_EMULATED_ALLOC, 0, 0);
	assert_int_equal(sluice_device_alloc(0, 1, &memory), 0);
	assert_int_equal(sluice_device_free(memory), 0);
}

static void a_lost_device_ends_every_call_and_comes_back_empty(void **state)
{
	struct fixture *f = *state;
	sluice_stream full = new_stream(), freed = new_stream();
	struct attempt held[4];
	sluice_event event;
	void *victim;

	assert_int_equal(sluice_event_new(0, &event), 0);
	assert_int_equal(sluice_device_alloc(0, 4096, &victim), 0);
	for (int i = 0; i < IN_A_CHANNEL; i++)
		give(f, full, await_word(f, 0, 1));
	give(f, freed, await_word(f, 0, 1));
	give(f, freed, write_word(f, 1, 1));
	assert_int_equal(sluice_event_record(event, freed), 0);
	assert_int_equal(sluice_event_await(event, full == freed ? NULL : (sluice_stream)2), 0);
	attempt_start(&held[0], f, "stuck", one_more_wait, full);
	attempt_start(&held[1], f, "waits", synchronize, full);
	attempt_start(&held[2], f, "frees", free_memory, victim);
	attempt_start(&held[3], f, "copies", copy_waiting, NULL);
	for (int i = 0; i < 4; i++)
		assert_held_up(&held[i]);
	assert_int_equal(sluice_stream_query(0, freed), 0);
	sluice_emulated_lose(0, 1);
	sluice_emulated_lose(0, 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(attempt_end(&held[i]), -EIO);
	assert_int_equal(sluice_stream_query(0, full), 1);
	assert_int_equal(sluice_event_query(event), 1);
	/* What was freed on the way is gone. */
	assert_int_equal(sluice_device_of(victim), -1);
	sluice_emulated_lose(0, 1);
	assert_int_equal(sluice_stream_free(freed), -EIO);
	assert_int_equal(sluice_event_free(event), -EIO);
	assert_int_equal(one_more_wait(f, full), -EIO);
	assert_int_equal(f->device->ops->status(f->device), -EIO);
	assert_int_equal(f->device->ops->stream_check(f->device, full), -EIO);
	store_word(f, 0, 1);
	assert_int_equal(sluice_stream_synchronize(0, full), -EIO);
	assert_int_equal(atomic_load(word_at(f, 1)), 0);
	sluice_emulated_lose(0, 0);
	assert_int_equal(sluice_stream_free(freed), -EINVAL);
	assert_int_equal(one_more_wait(f, full), 0);
	assert_int_equal(sluice_stream_synchronize(0, full), 0);
	assert_int_equal(atomic_load(word_at(f, 1)), 0);
	assert_int_equal(sluice_stream_free(full), 0);
}

struct text {
	char all[4096];
};

static void add_line(void *to, const char *line)
{
	struct text *text = to;

	strncat(text->all, line, sizeof(text->all) - strlen(text->all) - 1);
	strncat(text->all, "\n", sizeof(text->all) - strlen(text->all) - 1);
}

static void a_report_says_what_everything_waits_for(void **state)
{
	struct fixture *f = *state;
	struct attempt freeing;
	struct text text = {""};
	sluice_stream blocked;
	char expected[100];
	void *victim;

	assert_int_equal(sluice_device_alloc(0, 4096, &victim), 0);
	store_word(f, 0, UINT32_MAX);
	block_streams(f, &blocked, 1, NULL, NULL);
	attempt_start(&freeing, f, "frees", free_memory, victim);
	assert_held_up(&freeing);
	sluice_emulated_report(0, add_line, &text);
	snprintf(expected, sizeof(expected), "word %p is %u and is to be 1", (void *)word_at(f, 0),
	         UINT32_MAX);
	if (!strstr(text.all, expected) || !strstr(text.all, "thread frees is held up in free: ") ||
	    !strstr(text.all, "default stream: idle\n"))
		fail_msg("expected \"%s\" in:\n%s", expected, text.all);
	store_word(f, 0, 1);
	assert_int_equal(attempt_end(&freeing), 0);
	free_streams(&blocked, 1);
}

/* ------------------------------------------------------------------------------------- seeds */

enum { USERS = 4, ROUNDS = 30, BLOCK = 4096 };

struct user {
	struct attempt attempt;
	unsigned index;
	uint64_t seed;
	_Atomic uint32_t asked; /* the round whose word the filler is to store */
};

struct filler {
	struct attempt attempt;
	struct user *users;
	_Atomic bool stop;
};

/* Ends the waits. It does not call the device, so nothing that users do there holds it up. */
static int fill_words(struct fixture *f, void *argument)
{
	struct filler *filler = argument;

	while (!atomic_load(&filler->stop)) {
		for (unsigned i = 0; i < USERS; i++)
			store_word(f, 2 * i, atomic_load(&filler->users[i].asked));
		usleep(50);
	}
	return 0;
}

/*
 * One of several users of the device, each with a stream: bytes go up, a kernel changes them, they come
 * back, and the words show the order. Every call may be interrupted.
 */
static int use(struct fixture *f, void *argument)
{
	struct user *user = argument;
	char *up = f->data + user->index * 2 * BLOCK, *down = up + BLOCK;
	sluice_stream stream;
	sluice_event event;
	void *memory;
	int rc = sluice_stream_new(0, &stream);

	if (!rc)
		rc = sluice_event_new(0, &event);
	for (unsigned round = 1; !rc && round <= ROUNDS; round++) {
		struct sl_command commands[] = {
			await_word(f, 2 * user->index, round),
			copy_command(NULL, up, BLOCK),
			copy_command(down, NULL, BLOCK),
			write_word(f, 2 * user->index + 1, round),
		};
		size_t taken;

		rc = sluice_device_alloc(0, BLOCK, &memory);
		if (rc)
			break;
		commands[1].copy.to = memory;
		commands[2].copy.from = memory;
		memset(up, round, BLOCK);
		/* Before the commands are given: another user's free may hold them up. */
		atomic_store(&user->asked, round);
		rc = f->device->ops->enqueue(f->device, stream, commands, 4, &taken);
		if (!rc)
			rc = sluice_event_record(event, stream);
		if (!rc && unit_random(&user->seed) % 2)
			rc = sluice_event_synchronize(event);
		while (!rc && !(rc = sluice_stream_query(0, stream)))
			sched_yield();
		rc = SL_MIN(rc, 0);
		if (!rc && (memcmp(up, down, BLOCK) ||
		            atomic_load(word_at(f, 2 * user->index + 1)) != round))
			rc = -EBADMSG;
		if (!rc)
			rc = sluice_device_free(memory);
	}
	if (!rc)
		rc = sluice_event_free(event);
	return rc ? rc : sluice_stream_free(stream);
}

static void whatever_the_schedule_bytes_arrive_in_order(void **state)
{
	struct fixture *f = *state;
	uint64_t seed = unit_seed();
	struct user users[USERS];
	struct filler filler = {.users = users};

	for (int schedule = 0; schedule < 8; schedule++) {
		struct sluice_emulated_options options = SLUICE_EMULATED_OPTIONS_INIT;

		options.seed = schedule ? unit_random(&seed) : 0;
		options.delay_us = schedule % 2 ? 300 : 0;
		options.preempt_us = schedule & 2 ? 300 : 0;
		assert_int_equal(sluice_emulated_configure(0, &options), 0);
		for (unsigned i = 0; i < 2 * USERS; i++)
			store_word(f, i, 0);
		for (unsigned i = 0; i < USERS; i++) {
			users[i].index = i;
			users[i].seed = unit_random(&seed);
			atomic_init(&users[i].asked, 0);
		}
		attempt_start(&filler.attempt, f, "fills", fill_words, &filler);
		for (unsigned i = 0; i < USERS; i++) {
			attempt_start(&users[i].attempt, f, "uses", use, &users[i]);
		}
		for (unsigned i = 0; i < USERS; i++)
			assert_int_equal(attempt_end(&users[i].attempt), 0);
		atomic_store(&filler.stop, true);
		assert_int_equal(attempt_end(&filler.attempt), 0);
		atomic_store(&filler.stop, false);
	}
}

static void a_seed_changes_the_order_in_which_streams_go_on(void **state)
{
	struct fixture *f = *state;
	struct sluice_emulated_options options = SLUICE_EMULATED_OPTIONS_INIT;
	sluice_stream streams[4];
	unsigned orders = 0;

	/* The first of four to write its value last, over many schedules, is not always the same. */
	options.seed = 3;
	assert_int_equal(sluice_emulated_configure(0, &options), 0);
	for (unsigned round = 0; round < 100; round++) {
		store_word(f, 0, 0);
		for (unsigned i = 0; i < 4; i++) {
			streams[i] = new_stream();
			give(f, streams[i], await_word(f, 0, 1));
			give(f, streams[i], write_word(f, 1, i));
		}
		store_word(f, 0, 1);
		free_streams(streams, 4);
		orders |= 1u << atomic_load(word_at(f, 1));
	}
	assert_true(orders & (orders - 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		device_test(three_blocked_copies_to_the_device_let_another_one_run_and_four_do_not),
		device_test(blocked_copies_from_the_device_hold_nothing_up),
		device_test(four_blocked_streams_let_a_kernel_run_and_eight_do_not),
		device_test(host_functions_run_one_at_a_time_whatever_their_streams),
		device_test(a_full_channel_holds_up_whoever_gives_it_more),
		device_test(copies_have_full_channels_too),
		device_test(pinning_waits_for_all_that_the_device_holds_and_stops_nobody_else),
		device_test(a_free_waits_for_the_device_and_holds_up_most_calls),
		device_test(calls_are_counted_by_kind_and_thread),
		device_test(the_nth_call_fails_and_no_other),
		device_test(a_lost_device_ends_every_call_and_comes_back_empty),
		device_test(a_report_says_what_everything_waits_for),
		device_test(whatever_the_schedule_bytes_arrive_in_order),
		device_test(a_seed_changes_the_order_in_which_streams_go_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
