/* SPDX-License-Identifier: Apache-2.0 */
#include "io/device_suite.h"

void *device_new(int device, size_t n)
{
	void *memory = NULL;
	unsigned char *junk = malloc(n);

	assert_ok(sluice_device_alloc(gpu_device(device), n, &memory));
	memset(junk, 0x3c, n);
	assert_ok(sluice_copy(memory, junk, n));
	free(junk);
	return memory;
}

void device_free(void *memory)
{
	assert_ok(sluice_device_free(memory));
}

void device_fill(void *memory, size_t n, uint64_t offset, uint64_t seed)
{
	unsigned char *image = malloc(n);

	pattern_fill(image, n, offset, seed);
	assert_ok(sluice_copy(memory, image, n));
	free(image);
}

void device_get(void *dst, const void *memory, size_t n)
{
	assert_ok(sluice_copy(dst, memory, n));
}

sluice_stream stream_new(int device)
{
	sluice_stream stream = NULL;

	assert_ok(sluice_stream_new(gpu_device(device), &stream));
	return stream;
}

void stream_free(sluice_stream stream)
{
	assert_ok(sluice_stream_free(stream));
}

void stream_pass(int device, sluice_stream stream)
{
	double deadline = seconds_now() + PATIENCE_MS / 1000;
	int rc;

	/* Asked again and again, so that a stream that hangs is a failure with a name. */
	while ((rc = sluice_stream_query(gpu_device(device), stream)) == 0 &&
	       seconds_now() < deadline)
		sleep_ms(0);
	assert_int_equal(rc, 1);
}

#define assert_gpu(call)                                          \
	do {                                                      \
		if (call)                                         \
			fail_msg("%s: %s", #call, gpu_message()); \
	} while (0)

void launch_fill(int device, sluice_stream stream, void *memory, size_t n, uint64_t offset,
                 uint64_t seed)
{
	assert_gpu(gpu_fill(device, stream, memory, n, offset, seed));
}

void launch_take(int device, sluice_stream stream, const void *memory, size_t n, void *host)
{
	assert_gpu(gpu_take(device, stream, host, memory, n));
}

void hold_begin(struct gpu_hold *h, int device, sluice_stream stream)
{
	assert_gpu(gpu_hold(device, stream, h));
}

void hold_end(struct gpu_hold *h)
{
	gpu_let_go(h);
}

void warm_up(struct fixture *f, int device)
{
	assert_ok(sluice_context_staging(f->ctx, gpu_device(device), NULL, 0));
}

void make_room(struct fixture *f)
{
	struct sluice_config c = row_config();

	if (c.staging_bytes) {
		c.staging_bytes = 16 * MIB;
		fixture_config(f, &c);
	}
	warm_up(f, 0);
	warm_up(f, 1);
}

sluice_op *start_read_on(sluice_file *file, void *dst, size_t n, uint64_t offset,
                         sluice_stream stream)
{
	sluice_op *op = NULL;

	assert_ok(sluice_read_on(file, dst, n, offset, stream, &op));
	assert_non_null(op);
	return op;
}

sluice_op *start_write_on(sluice_file *file, const void *src, size_t n, uint64_t offset,
                          sluice_stream stream)
{
	sluice_op *op = NULL;

	assert_ok(sluice_write_on(file, src, n, offset, stream, &op));
	assert_non_null(op);
	return op;
}
