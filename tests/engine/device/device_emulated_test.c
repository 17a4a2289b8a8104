/* SPDX-License-Identifier: Apache-2.0 */
/* What only the emulated device can do: count, fail, be lost, report, and choose by a seed. */
#include "device/device_common.h"

/* ------------------------------------------------------------------- counted, failed and lost */

DEVICE_TEST(calls_are_counted_by_kind_and_thread)
{
	struct attempt attempt;

	sluice_emulated_reset_calls();
	attempt_start(&attempt, f, "counted-1", call_stream, NULL);
	assert_int_equal(attempt_end(&attempt), 0);
	attempt_start(&attempt, f, "counted-2", call_stream, NULL);
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

DEVICE_TEST(the_nth_call_fails_and_no_other)
{
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

DEVICE_TEST(a_lost_device_ends_every_call_and_comes_back_empty)
{
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
	attempt_start(&held[0], f, "stuck", call_wait, full);
	attempt_start(&held[1], f, "waits", call_synchronize, full);
	attempt_start(&held[2], f, "frees", call_free, victim);
	attempt_start(&held[3], f, "copies", call_copy, NULL);
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
	assert_int_equal(call_wait(f, full), -EIO);
	assert_int_equal(f->device->ops->status(f->device), -EIO);
	assert_int_equal(f->device->ops->stream_check(f->device, full), -EIO);
	store_word(f, 0, 1);
	assert_int_equal(sluice_stream_synchronize(0, full), -EIO);
	assert_int_equal(atomic_load(word_at(f, 1)), 0);
	sluice_emulated_lose(0, 0);
	assert_int_equal(sluice_stream_free(freed), -EINVAL);
	assert_int_equal(call_wait(f, full), 0);
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

/* Gives the other device a copy, alone or with another. Returns the result of the call. */
static int give_far(struct sl_device *device, void *to, const void *from, size_t count)
{
	struct sl_command commands[] = {copy_command(to, from, 5000),
	                                copy_command((char *)to + 5000, (char *)from + 5000, 77)};
	sluice_stream stream;
	size_t taken;
	int rc;

	assert_int_equal(device->ops->stream_new(device, &stream), 0);
	rc = device->ops->enqueue(device, stream, commands, count, &taken);
	assert_int_equal(taken, rc ? 0 : count);
	assert_int_equal(device->ops->stream_synchronize(device, stream), 0);
	assert_int_equal(device->ops->stream_free(device, stream), 0);
	return rc;
}

DEVICE_TEST(a_device_takes_copies_of_memory_that_it_reaches_or_that_another_has_registered)
{
	struct sluice_emulated_options o = SLUICE_EMULATED_OPTIONS_INIT;
	struct sl_device *other = sl_device_find(1);
	char *held = malloc(5077), *there;
	int here = 0;

	assert_int_equal(sluice_device_alloc(1, DATA_BYTES, (void **)&there), 0);
	memset(f->data, 0x5a, DATA_BYTES);
	assert_int_equal(sluice_copy(f->memory, f->data, DATA_BYTES), 0);
	for (o.no_peers = 0; o.no_peers < 2; o.no_peers++) {
		assert_int_equal(sluice_emulated_configure(1, &o), 0);
		assert_int_equal(sl_device_reach(other, f->device), !o.no_peers);
		assert_true(sl_device_reach(f->device, f->device));
		for (size_t count = 1; count <= 2; count++) {
			const void *sources[] = {f->memory, f->data};

			for (int i = 0; i < 2; i++) {
				bool refused = !i && o.no_peers;
				size_t n = count == 2 ? 5077 : 5000;

				memset(held, 0, 5077);
				assert_int_equal(sluice_copy(there, held, 5077), 0);
				assert_int_equal(give_far(other, there, sources[i], count),
				                 refused ? -EINVAL : 0);
				assert_int_equal(sluice_copy(held, there, 5077), 0);
				assert_int_equal(held[0], refused ? 0 : 0x5a);
				assert_int_equal(held[n - 1], refused ? 0 : 0x5a);
			}
		}
		/* A copy by itself needs no peers; memory that no device knows is refused. */
		assert_int_equal(sluice_copy(there, f->memory, DATA_BYTES), 0);
		assert_int_equal(give_far(other, there, &here, 1), -EINVAL);
	}
	o.no_peers = 0;
	assert_int_equal(sluice_emulated_configure(1, &o), 0);
	assert_int_equal(sluice_device_free(there), 0);
	free(held);
}

DEVICE_TEST(a_report_says_what_everything_waits_for)
{
	struct attempt freeing;
	struct text text = {""};
	sluice_stream blocked;
	char expected[100];
	void *victim;

	assert_int_equal(sluice_device_alloc(0, 4096, &victim), 0);
	store_word(f, 0, UINT32_MAX);
	block_streams(f, &blocked, 1, NULL, NULL);
	attempt_start(&freeing, f, "frees", call_free, victim);
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

DEVICE_TEST(whatever_the_schedule_bytes_arrive_in_order)
{
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

DEVICE_TEST(a_seed_changes_the_order_in_which_streams_go_on)
{
	sluice_stream streams[4];
	unsigned orders = 0;

	/* Which of four writes last, over many schedules, is not always the same. */
	with_seed(3);
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
	return RUN_TESTS(NULL, NULL);
}
