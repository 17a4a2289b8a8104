/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of devices share: a device with some memory, and calls on threads of their own. */
#ifndef TESTS_UNIT_DEVICE_H
#define TESTS_UNIT_DEVICE_H

#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

#include <sluice/emulated.h>

#include "device/device.h"
#include "lib/unit.h"

#define WORDS        512
#define WORD_STRIDE  64
#define DATA_BYTES   ((size_t)256 << 10)
#define IN_A_CHANNEL 1000  /* commands, then whoever gives one more waits */
#define LOOK_MS      50    /* what is held up has not happened after this */
#define PATIENCE_MS  60000 /* what is to happen has happened before this */

struct fixture {
	struct sl_device *device;
	char *pinned; /* WORDS words, then DATA_BYTES */
	char *data;
	char *memory; /* DATA_BYTES of the device */
};

/* The first device of a kind; 0, the first emulated one, unless the environment names another. */
extern int device_number;
/* As SLUICE_TEST_DEVICE says; ends the program if there is no such device. */
void device_choose(void);
int device_setup(void **state);
int device_teardown(void **state);
#define device_test(name) cmocka_unit_test_setup_teardown(name, device_setup, device_teardown)
#define DEVICE_TEST(name) TEST_OF(struct fixture *f, name, device_setup, device_teardown, NULL)

_Atomic uint32_t *word_at(struct fixture *f, unsigned index);
void store_word(struct fixture *f, unsigned index, uint32_t value);
struct sl_command await_word(struct fixture *f, unsigned index, uint32_t value);
struct sl_command write_word(struct fixture *f, unsigned index, uint32_t value);
struct sl_command copy_command(void *to, const void *from, size_t length);
/* They assert that the device takes all. */
void give(struct fixture *f, sluice_stream stream, struct sl_command command);
sluice_stream new_stream(void);
/* Streams that wait for word 0 to be 1, each with a copy behind the wait if to is not NULL. */
void block_streams(struct fixture *f, sluice_stream *streams, unsigned count, void *to,
                   const void *from);
/* When they are done. */
void free_streams(sluice_stream *streams, unsigned count);

/* A kernel. */
void nothing(void *argument);
void with_seed(uint64_t seed);

bool stream_done(sluice_stream stream);
/* It has not happened after a while; it happens. */
void assert_stays(bool (*happened)(void *), void *argument);
void assert_comes(bool (*happened)(void *), void *argument);
void assert_stream_stays_busy(sluice_stream stream);
void assert_stream_comes_to_its_end(sluice_stream stream);

/* A call on a thread of its own. */
struct attempt {
	int (*call)(struct fixture *f, void *argument);
	struct fixture *fixture;
	void *argument;
	const char *name;
	pthread_t thread;
	_Atomic bool done;
	int rc;
};
void attempt_start(struct attempt *attempt, struct fixture *f, const char *name,
                   int (*call)(struct fixture *f, void *argument), void *argument);
void assert_held_up(struct attempt *attempt);
/* Joins it; its result. */
int attempt_end(struct attempt *attempt);
/* The same for a call that is not held up. */
int runs_through(struct fixture *f, int (*call)(struct fixture *f, void *argument), void *argument);

/* Calls for attempts: argument is a stream, or the memory to free, or nothing. */
int call_wait(struct fixture *f, void *argument); /* for word 0 to be 1 */
int call_free(struct fixture *f, void *argument);
int call_copy(struct fixture *f, void *argument);   /* one that waits */
int call_stream(struct fixture *f, void *argument); /* made and freed */
int call_synchronize(struct fixture *f, void *argument);

#endif
