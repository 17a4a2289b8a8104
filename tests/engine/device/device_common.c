/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "device/device_common.h"

int device_number;

void device_choose(void)
{
	const char *name = getenv("SLUICE_TEST_DEVICE");

	if (name && sluice_device_find(name, &device_number)) {
		printf("skipped: %s\n", sluice_last_message());
		exit(77);
	}
}

int device_setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct sluice_emulated_options plain = SLUICE_EMULATED_OPTIONS_INIT;
	void *memory;

	assert_non_null(f);
	f->device = sl_device_find(device_number);
	assert_int_equal(sluice_emulated_configure(0, &plain), 0);
	assert_int_equal(
		sluice_pinned_alloc(device_number, WORDS * WORD_STRIDE + DATA_BYTES, &memory), 0);
	f->pinned = memory;
	f->data = f->pinned + WORDS * WORD_STRIDE;
	assert_int_equal(sluice_device_alloc(device_number, DATA_BYTES, &memory), 0);
	f->memory = memory;
	*state = f;
	return 0;
}

int device_teardown(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(sluice_device_free(f->memory), 0);
	assert_int_equal(sluice_pinned_free(f->pinned), 0);
	free(f);
	return 0;
}

_Atomic uint32_t *word_at(struct fixture *f, unsigned index)
{
	assert_true(index < WORDS);
	return (_Atomic uint32_t *)(void *)(f->pinned + (size_t)index * WORD_STRIDE);
}

void store_word(struct fixture *f, unsigned index, uint32_t value)
{
	atomic_store_explicit(word_at(f, index), value, memory_order_release);
}

struct sl_command await_word(struct fixture *f, unsigned index, uint32_t value)
{
	return (struct sl_command){.kind = SL_AWAIT_WORD, .word = {word_at(f, index), value}};
}

struct sl_command write_word(struct fixture *f, unsigned index, uint32_t value)
{
	return (struct sl_command){.kind = SL_WRITE_WORD, .word = {word_at(f, index), value}};
}

struct sl_command copy_command(void *to, const void *from, size_t length)
{
	return (struct sl_command){.kind = SL_COPY, .copy = {to, from, length}};
}

void give(struct fixture *f, sluice_stream stream, struct sl_command command)
{
	size_t taken = 77;

	assert_int_equal(f->device->ops->enqueue(f->device, stream, &command, 1, &taken), 0);
	assert_int_equal(taken, 1);
}

sluice_stream new_stream(void)
{
	sluice_stream stream;

	assert_int_equal(sluice_stream_new(device_number, &stream), 0);
	return stream;
}

void block_streams(struct fixture *f, sluice_stream *streams, unsigned count, void *to,
                   const void *from)
{
	for (unsigned i = 0; i < count; i++) {
		streams[i] = new_stream();
		give(f, streams[i], await_word(f, 0, 1));
		if (to)
			give(f, streams[i], copy_command(to, from, 64));
	}
}

static void sleep_ms(long ms)
{
	struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&pause, NULL);
}

void assert_stays(bool (*happened)(void *), void *argument)
{
	sleep_ms(LOOK_MS);
	assert_false(happened(argument));
}

void assert_comes(bool (*happened)(void *), void *argument)
{
	int64_t deadline = sl_deadline(PATIENCE_MS);

	while (!happened(argument)) {
		assert_true(sl_now() < deadline);
		sleep_ms(1);
	}
}

bool stream_done(sluice_stream stream)
{
	int rc = sluice_stream_query(device_number, stream);

	assert_in_range(rc, 0, 1);
	return rc;
}

static bool done_at(void *argument)
{
	return stream_done(argument);
}

void assert_stream_stays_busy(sluice_stream stream)
{
	assert_stays(done_at, stream);
}

void assert_stream_comes_to_its_end(sluice_stream stream)
{
	assert_comes(done_at, stream);
}

static void *attempt_run(void *argument)
{
	struct attempt *attempt = argument;

	pthread_setname_np(pthread_self(), attempt->name);
	attempt->rc = attempt->call(attempt->fixture, attempt->argument);
	atomic_store(&attempt->done, true);
	return NULL;
}

void attempt_start(struct attempt *attempt, struct fixture *f, const char *name,
                   int (*call)(struct fixture *f, void *argument), void *argument)
{
	*attempt = (struct attempt){call, f, argument, name, 0, false, 0};
	assert_int_equal(pthread_create(&attempt->thread, NULL, attempt_run, attempt), 0);
}

static bool attempt_done(void *argument)
{
	struct attempt *attempt = argument;

	return atomic_load(&attempt->done);
}

void assert_held_up(struct attempt *attempt)
{
	assert_stays(attempt_done, attempt);
}

int attempt_end(struct attempt *attempt)
{
	assert_comes(attempt_done, attempt);
	pthread_join(attempt->thread, NULL);
	return attempt->rc;
}

int runs_through(struct fixture *f, int (*call)(struct fixture *f, void *argument), void *argument)
{
	struct attempt attempt;

	attempt_start(&attempt, f, "passes", call, argument);
	return attempt_end(&attempt);
}

void free_streams(sluice_stream *streams, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(sluice_stream_synchronize(device_number, streams[i]), 0);
		assert_int_equal(sluice_stream_free(streams[i]), 0);
	}
}

void nothing(void *argument)
{
	(void)argument;
}

void with_seed(uint64_t seed)
{
	struct sluice_emulated_options options = SLUICE_EMULATED_OPTIONS_INIT;

	options.seed = seed;
	assert_int_equal(sluice_emulated_configure(0, &options), 0);
}

int call_wait(struct fixture *f, void *argument)
{
	struct sl_command command = await_word(f, 0, 1);
	size_t taken;

	return f->device->ops->enqueue(f->device, argument, &command, 1, &taken);
}

int call_free(struct fixture *f, void *argument)
{
	(void)f;
	return sluice_device_free(argument);
}

int call_copy(struct fixture *f, void *argument)
{
	(void)argument;
	return sluice_copy(f->memory + 256, f->data + 256, 64);
}

int call_stream(struct fixture *f, void *argument)
{
	sluice_stream stream;
	int rc = sluice_stream_new(device_number, &stream);

	(void)f;
	(void)argument;
	return rc ? rc : sluice_stream_free(stream);
}

int call_synchronize(struct fixture *f, void *argument)
{
	(void)f;
	return sluice_stream_synchronize(device_number, argument);
}
