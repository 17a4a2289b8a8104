/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each call that takes a time-out, with one of 0: -EINPROGRESS if what it waits for goes on, -EAGAIN if there is nothing, or no
 * room, and nothing was begun. Calls of ranks are in ranks_errors.c.
 */
#include <fcntl.h>
#include <unistd.h>

#include "sluice/emulated.h"
#include "system/doors.h"

/* Memory is pinned now, which would wait for what a gate holds. Nothing that comes later goes on before the gate opens. */
static void stand(struct gate *gate)
{
	assert_ok(sluice_context_staging(h.ctx, 0, NULL, 0));
	assert_ok(sluice_series_submit_on(h.series, h.device, NULL, h.stream, 0));
	assert_ok(sluice_writer_flush(h.writer, PATIENCE_MS));
	assert_ok(sluice_emulated_call(0, h.stream, gate_pass, gate));
}

DOORS_TEST(a_time_out_of_0_says_whether_it_goes_on)
{
	struct sluice_tensor_read_options o = SLUICE_TENSOR_READ_OPTIONS_INIT;
	struct sluice_watch_event event = {.size = sizeof(event)};
	struct gate gate = GATE;
	sluice_tensor_memory *memory;
	sluice_tensor_load *load;
	sluice_blob *blob;
	sluice_file *file;
	sluice_op *op, *next;
	void *frame;

	assert_ok(sluice_tensor_memory_new(0, BYTES, &memory));
	assert_ok(sluice_event_record(h.event, h.stream));
	judge_begin();
	GIVES(sluice_queue_next(h.queue, 0, &next), -EAGAIN);
	GIVES(sluice_blob_get(h.store, "absent", 0, &blob), -ENOENT);
	GIVES(sluice_blob_get_id(h.store, UINT32_MAX, 0, &blob), -ENOENT);
	while (!sluice_watch_next(h.watch, 0, &event))
		continue;
	GIVES(sluice_watch_next(h.watch, 0, &event), -EAGAIN);

	/* What comes behind the gate in the stream is under way until the gate opens. */
	stand(&gate);
	assert_ok(sluice_read_on(h.file, h.device, 4, 0, h.stream, &op));
	GIVES(sluice_wait(op, 0), -EINPROGRESS);
	GIVES(sluice_op_file(op, &file), -EINVAL);
	o.on = 1;
	o.stream = h.stream;
	assert_ok(sluice_tensor_plan_read(h.plan, memory, &o, &load));
	GIVES(sluice_tensor_load_wait(load, 0), -EINPROGRESS);
	assert_ok(sluice_blob_seal_on(h.made, h.stream));
	GIVES(sluice_blob_wait_sealed(h.made, 0), -EINPROGRESS);
	assert_ok(sluice_series_submit_on(h.series, h.device, NULL, h.stream, 0));
	/* One of the two frames is the program's. */
	GIVES(sluice_series_acquire(h.series, 0, &frame), -EAGAIN);
	GIVES(sluice_series_push(h.series, h.bytes, NULL, 0), -EAGAIN);
	GIVES(sluice_series_submit_on(h.series, h.device, NULL, h.stream, 0), -EAGAIN);
	GIVES(sluice_writer_flush(h.writer, 0), -EINPROGRESS);
	gate_open(&gate);

	/* Each is called again, and has its result. */
	GIVES(sluice_wait(op, PATIENCE_MS), 4);
	GIVES(sluice_tensor_load_wait(load, PATIENCE_MS), 4);
	GIVES(sluice_blob_wait_sealed(h.made, PATIENCE_MS), 0);
	GIVES(sluice_writer_flush(h.writer, PATIENCE_MS), 0);
	/* It was given up, and nothing is running. */
	GIVES(sluice_blob_get(h.store, "absent", 20, &blob), -ETIMEDOUT);
	assert_int_equal(judge_end(), 0);
	sluice_op_free(op);
	sluice_tensor_load_free(load);
	sluice_tensor_memory_free(memory);
	assert_ok(sluice_blob_delete(h.store, "made"));
}

DOORS_TEST(a_writer_that_is_closing_goes_on)
{
	struct gate gate = GATE;

	stand(&gate);
	assert_ok(sluice_series_submit_on(h.series, h.device, NULL, h.stream, 0));
	judge_begin();
	GIVES(sluice_writer_close(h.writer, 0), -EINPROGRESS);
	GIVES(sluice_writer_close(h.writer, 0), -EINPROGRESS);
	gate_open(&gate);
	GIVES(sluice_writer_close(h.writer, PATIENCE_MS), 0);
	assert_int_equal(judge_end(), 0);
	h.writer = NULL;
}

DOORS_TEST(a_file_in_the_middle_of_a_flush_is_read_again)
{
	const char begin[] = "\x89sluice\n\1\0\0\0\0\0\0";
	struct flock its = {.l_type = F_WRLCK, .l_start = 128, .l_len = 16};
	const char *path = named("%s.flushed", h.d->path);
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	sluice_frames *frames;

	assert_int_equal(pwrite(fd, begin, 16, 128), 16);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &its), 0);
	assert_ok(sluice_frames_open(path, &frames));
	judge_begin();
	GIVES(sluice_frames_begin(frames, 0), -EAGAIN);
	assert_int_equal(pwrite(fd, "\2", 1, 136), 1);
	GIVES(sluice_frames_begin(frames, 0), 0);
	assert_int_equal(pwrite(fd, "\4", 1, 136), 1);
	GIVES(sluice_frames_check(frames), -EAGAIN);
	assert_int_equal(judge_end(), 0);
	sluice_frames_free(frames);
	close(fd);
	unlink(path);
}
