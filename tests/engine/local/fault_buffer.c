/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When an operation is over, nothing touches its buffer again. Here one extent fails, or the
 * operation is cancelled, while others are slow, short and in flight.
 */
#include <pthread.h>
#include <sys/mman.h>

#include "local/fault.h"

enum { EXTENTS = 16, WATCHED_MS = 200 };
#define EXTENT (256 * KIB)
#define LENGTH (EXTENTS * EXTENT)
#define MARK   0x3c

/* What the threads that get the results see; set by the main thread. */
static struct {
	unsigned char *_Atomic data; /* the buffer of the operation */
	_Atomic bool over;           /* sluice_wait() has returned */
	_Atomic unsigned late;       /* results for the buffer after that */
	_Atomic unsigned seen;
	_Atomic bool failing;
} watch;

static ssize_t slow_short_and_failing(const struct sl_piece *piece, ssize_t result)
{
	unsigned char *data = atomic_load(&watch.data);
	unsigned n = atomic_fetch_add(&watch.seen, 1);

	if ((unsigned char *)piece->data < data || (unsigned char *)piece->data >= data + LENGTH)
		return result;
	if (atomic_load(&watch.over))
		atomic_fetch_add(&watch.late, 1);
	if (atomic_load(&watch.failing) && piece->offset == EXTENT)
		return -EIO;
	/* Those that were in flight with it come a little later, and still have a way to go. */
	sleep_ms((int)(n % 5));
	if (atomic_load(&watch.over))
		atomic_fetch_add(&watch.late, 1);
	return result > 8192 ? 8192 : result;
}

static void start_watch(struct buffer *b, bool failing)
{
	atomic_store(&watch.data, b->data);
	atomic_store(&watch.over, false);
	atomic_store(&watch.late, 0);
	atomic_store(&watch.seen, 0);
	atomic_store(&watch.failing, failing);
	bend(slow_short_and_failing);
}

static sluice_op *start_many(sluice_file *file, struct buffer *b)
{
	struct sluice_extent v[EXTENTS];
	sluice_op *op = NULL;
	int i;

	for (i = 0; i < EXTENTS; i++)
		v[i] = (struct sluice_extent){b->data + i * EXTENT, EXTENT, (uint64_t)i * EXTENT};
	assert_ok(submit_read(file, v, EXTENTS, &op));
	return op;
}

/* Counts the bytes that are not MARK, again and again. */
static void *watcher(void *arg)
{
	struct buffer *b = arg;
	double end = seconds_now() + WATCHED_MS / 1000.0;
	uintptr_t changed = 0;

	while (seconds_now() < end && !changed)
		for (size_t i = 0; i < b->length; i += 64)
			changed += ((volatile unsigned char *)b->data)[i] != MARK;
	return (void *)changed;
}

static void slow_threads(struct fixture *f)
{
	struct sluice_config c = row_config();

	c.workers = 4;
	config_tune(&c, "reactors", 2);
	config_tune(&c, "piece_bytes", 64 * KIB);
	config_tune(&c, "inline_bytes", 1);
	fixture_config(f, &c);
}

/* Marks the buffer as soon as the operation is over, and looks for a while that it stays so. */
static void check_marks(struct buffer *b)
{
	void *changed = NULL;
	pthread_t thread;
	size_t i;

	atomic_store(&watch.over, true);
	memset(b->data, MARK, b->length);
	assert_int_equal(pthread_create(&thread, NULL, watcher, b), 0);
	pthread_join(thread, &changed);
	assert_null(changed);
	for (i = 0; i < b->length; i++)
		if (b->data[i] != MARK)
			fail_msg("byte %zu was written after the operation had ended", i);
	assert_int_equal(atomic_load(&watch.late), 0);
	bend(NULL);
}

static void check_untouched(struct fixture *f, bool cancelled)
{
	const char *path = scratch(f, "ended");
	sluice_file *file;
	sluice_op *op;
	int round;

	slow_threads(f);
	file_make(path, LENGTH, 1);
	file = open_read(f->ctx, path);
	for (round = 0; round < 2 * RESIDENCIES; round++) {
		/* Aligned, and as malloc() gives it, which takes another way. */
		struct buffer b = buffer_new(LENGTH, round % 2 ? 16 : 0);

		file_set_residency(path, (enum residency)(round / 2));
		start_watch(&b, !cancelled);
		op = start_many(file, &b);
		while (cancelled && atomic_load(&watch.seen) < 5)
			sleep_ms(1);
		if (cancelled)
			assert_int_equal(sluice_cancel(op), 0);
		assert_int_equal(sluice_wait(op, PATIENCE_MS), cancelled ? -ECANCELED : -EIO);
		check_marks(&b);
		sluice_op_free(op);
		buffer_free(&b);
	}
	assert_ok(sluice_close(file));
}

FAULT_TEST(buffer_is_untouched_after_the_operation_failed)
{
	check_untouched(f, false);
}

FAULT_TEST(buffer_is_untouched_after_the_operation_was_cancelled)
{
	check_untouched(f, true);
}

FAULT_TEST(buffer_is_untouched_after_poll_and_the_descriptor_told_the_end)
{
	const char *path = scratch(f, "told");
	struct buffer b = buffer_new(LENGTH, 0);
	sluice_op *op, *done = NULL;
	sluice_file *file;
	int way;

	slow_threads(f);
	file_make(path, LENGTH, 1);
	file = open_read(f->ctx, path);
	for (way = 0; way < 3; way++) {
		file_set_residency(path, COLD);
		start_watch(&b, true);
		op = start_many(file, &b);
		if (way == 0)
			while (!sluice_poll(op))
				;
		else if (way == 1)
			assert_true(readable(sluice_op_fd(op), PATIENCE_MS));
		else
			assert_ok(sluice_queue_next(sluice_context_queue(f->ctx), PATIENCE_MS,
			                            &done));
		check_marks(&b);
		assert_int_equal(sluice_wait(op, 0), -EIO);
		sluice_op_free(op);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* The strictest look: any access from this process would be a fault, any from the kernel EFAULT. */
FAULT_TEST(buffer_may_vanish_after_the_operation_ended)
{
	const char *path = scratch(f, "vanish");
	sluice_file *file;
	int round;

	slow_threads(f);
	file_make(path, LENGTH, 1);
	file = open_read(f->ctx, path);
	for (round = 0; round < 6; round++) {
		struct buffer b = {.length = LENGTH};
		sluice_op *op;
		int64_t got;

		b.data = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		              0);
		assert_true(b.data != MAP_FAILED);
		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		start_watch(&b, round < 3);
		op = start_many(file, &b);
		if (round >= 3) {
			sleep_ms(5);
			sluice_cancel(op);
		}
		got = sluice_wait(op, PATIENCE_MS);
		assert_int_equal(mprotect(b.data, LENGTH, PROT_NONE), 0);
		atomic_store(&watch.over, true);
		assert_true(got == -EIO || (round >= 3 && got == -ECANCELED));
		sleep_ms(50);
		munmap(b.data, LENGTH);
		assert_int_equal(atomic_load(&watch.late), 0);
		bend(NULL);
		sluice_op_free(op);
	}
	assert_ok(sluice_close(file));
}

/* A source may be reused at once, even while other pieces of the failed write were in flight. */
FAULT_TEST(source_is_not_read_after_the_operation_ended)
{
	const char *path = scratch(f, "source");
	struct buffer b = buffer_new(LENGTH, 0);
	unsigned char *held = malloc(LENGTH);
	sluice_file *file;
	sluice_op *op;
	size_t i;

	slow_threads(f);
	file_make(path, LENGTH, 1);
	file = open_both(f->ctx, path);
	pattern_fill(b.data, LENGTH, 0, 2);
	start_watch(&b, true);
	op = start_write(file, b.data, LENGTH, 0);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -EIO);
	memset(b.data, MARK, LENGTH);
	atomic_store(&watch.over, true);
	sleep_ms(WATCHED_MS);
	assert_int_equal(atomic_load(&watch.late), 0);
	bend(NULL);
	file_read(path, held, LENGTH, 0);
	for (i = 0; i < LENGTH; i += 4096)
		if (pattern_match(held + i, 4096, i, 1) != 4096 &&
		    pattern_match(held + i, 4096, i, 2) != 4096)
			fail_msg("the block at %zu is from after the end", i);
	sluice_op_free(op);
	assert_ok(sluice_close(file));
	free(held);
	buffer_free(&b);
}
