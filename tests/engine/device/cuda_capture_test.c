/* SPDX-License-Identifier: Apache-2.0 */
/* Captures of streams, and what sluice does meanwhile: over the fake driver. */
#include <pthread.h>

#include "device/cuda_common.h"

#define CAPTURE_TEST(name) TEST_OF(struct capture *c, name, setup, teardown, NULL)

enum { GLOBAL, THREAD_LOCAL, RELAXED };

struct capture {
	struct cuda_file f;
	sluice_stream captured, other;
	void *memory;
	CUgraph graph;
};

static int setup(void **state)
{
	struct capture *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	cuda_file_open(&c->f);
	assert_int_equal(sluice_stream_new(cuda_number, &c->captured), 0);
	assert_int_equal(sluice_stream_new(cuda_number, &c->other), 0);
	assert_int_equal(sluice_device_alloc(cuda_number, CUDA_FILE_BYTES, &c->memory), 0);
	assert_int_equal(cu.cuCtxPushCurrent_v2(cuda_primaries[0]), 0);
	*state = c;
	return 0;
}

static int teardown(void **state)
{
	struct capture *c = *state;

	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	assert_int_equal(sluice_device_free(c->memory), 0);
	assert_int_equal(sluice_stream_free(c->captured), 0);
	assert_int_equal(sluice_stream_free(c->other), 0);
	cuda_file_close(&c->f);
	free(c);
	return 0;
}

static void begin(struct capture *c, int mode)
{
	assert_int_equal(cu.cuStreamBeginCapture_v2(c->captured, mode), 0);
}

/* The capture has not suffered. */
static void end(struct capture *c)
{
	assert_int_equal(cu.cuStreamEndCapture(c->captured, &c->graph), 0);
	assert_non_null(c->graph);
	assert_int_equal(cu.cuGraphDestroy(c->graph), 0);
}

static void refused(struct capture *c, sluice_stream stream)
{
	sluice_op *op;

	assert_int_equal(sluice_read_on(c->f.file, c->memory, 64, 0, stream, &op), -EINVAL);
	assert_non_null(strstr(sluice_last_message(), "captured"));
	assert_int_equal(sluice_write_on(c->f.file, c->memory, 64, 0, stream, &op), -EINVAL);
	assert_non_null(strstr(sluice_last_message(), "captured"));
}

static void read_both_ways(struct capture *c)
{
	sluice_op *ops[2];

	assert_int_equal(
		sluice_read_on(c->f.file, c->memory, CUDA_FILE_BYTES, 0, c->other, &ops[0]), 0);
	cuda_moved(ops[0], CUDA_FILE_BYTES);
	assert_int_equal(sluice_read(c->f.file, c->memory, CUDA_FILE_BYTES, 0, &ops[1]), 0);
	cuda_moved(ops[1], CUDA_FILE_BYTES);
}

CAPTURE_TEST(a_stream_that_is_captured_is_refused)
{
	for (int mode = GLOBAL; mode <= RELAXED; mode++) {
		begin(c, mode);
		refused(c, c->captured);
		end(c);
	}
}

/* The legacy stream would come behind the captured one. */
CAPTURE_TEST(so_is_the_default_stream_while_a_blocking_one_is_captured)
{
	sluice_op *op;

	assert_int_equal(sluice_stream_free(c->captured), 0);
	assert_int_equal(cu.cuStreamCreate((CUstream *)&c->captured, 0), 0);
	begin(c, RELAXED);
	refused(c, NULL);
	refused(c, (sluice_stream)1);
	end(c);
	assert_int_equal(sluice_read_on(c->f.file, c->memory, 64, 0, NULL, &op), 0);
	cuda_moved(op, 64);
}

/* What a thread of its own does with the driver; its result. */
static void *query(void *event)
{
	return (void *)(intptr_t)cu.cuEventQuery(event);
}

static void *query_relaxed(void *event)
{
	int mode = RELAXED;

	return cu.cuThreadExchangeStreamCaptureMode(&mode) || mode != GLOBAL ? (void *)-1
	                                                                     : query(event);
}

static CUresult on_a_thread(void *(*run)(void *), void *argument)
{
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, run, argument), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	return (CUresult)(intptr_t)result;
}

/* Without this the tests below would not show anything. */
CAPTURE_TEST(the_driver_refuses_what_might_harm_a_capture)
{
	sluice_event event;

	assert_int_equal(sluice_event_new(cuda_number, &event), 0);
	begin(c, GLOBAL);
	assert_int_equal(on_a_thread(query_relaxed, event), 0);
	end(c);
	begin(c, THREAD_LOCAL);
	assert_int_equal(on_a_thread(query, event), 0);
	end(c);
	begin(c, GLOBAL);
	assert_int_equal(on_a_thread(query, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(cu.cuStreamEndCapture(c->captured, &c->graph),
	                 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	begin(c, THREAD_LOCAL);
	assert_int_equal(cu.cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(cu.cuStreamEndCapture(c->captured, &c->graph),
	                 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	begin(c, RELAXED);
	assert_int_equal(cu.cuStreamQuery(c->captured), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(cu.cuStreamEndCapture(c->captured, &c->graph),
	                 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_int_equal(sluice_event_free(event), 0);
}

CAPTURE_TEST(the_copier_goes_on_while_a_stream_is_captured)
{
	/* Its memory and its thread are there. */
	read_both_ways(c);
	for (int mode = GLOBAL; mode <= RELAXED; mode++) {
		begin(c, mode);
		read_both_ways(c);
		end(c);
	}
}

/* It registers memory and makes streams then. */
CAPTURE_TEST(the_first_use_of_a_device_harms_no_capture)
{
	begin(c, GLOBAL);
	read_both_ways(c);
	end(c);
}

static void *use_the_device(void *unused)
{
	void *memory, *pinned;
	sluice_stream stream;
	int rc = 0;
	char here[4] = "";

	(void)unused;
	rc |= sluice_device_alloc(cuda_number, 64, &memory);
	rc |= sluice_pinned_alloc(cuda_number, 64, &pinned);
	rc |= sluice_stream_new(cuda_number, &stream);
	if (rc)
		return (void *)(intptr_t)rc;
	rc |= sluice_copy(memory, here, 4);
	rc |= sluice_copy_on(pinned, memory, 4, stream);
	rc |= sluice_stream_synchronize(cuda_number, stream);
	rc |= sluice_stream_query(cuda_number, stream) != 1;
	rc |= sluice_stream_free(stream);
	rc |= sluice_pinned_free(pinned);
	rc |= sluice_device_free(memory);
	return (void *)(intptr_t)rc;
}

CAPTURE_TEST(calls_of_devices_harm_no_capture)
{
	int mode;

	begin(c, GLOBAL);
	assert_int_equal(on_a_thread(use_the_device, NULL), 0);
	assert_null(use_the_device(NULL));
	end(c);
	/* And what the thread minds is as it was. */
	mode = THREAD_LOCAL;
	assert_int_equal(cu.cuThreadExchangeStreamCaptureMode(&mode), 0);
	assert_int_equal(mode, GLOBAL);
	assert_null(use_the_device(NULL));
	assert_int_equal(cu.cuThreadExchangeStreamCaptureMode(&mode), 0);
	assert_int_equal(mode, THREAD_LOCAL);
}

int main(void)
{
	return RUN_TESTS(cuda_setup, NULL);
}
