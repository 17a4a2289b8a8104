/* SPDX-License-Identifier: Apache-2.0 */
/* When cuFile is used, and what it is told of files, streams and buffers. */
#include <unistd.h>

#include "lib/gpu_cuda.h"
#include "local/cufile_api.h"
#include "local/cufile_suite.h"

/* A stream on which cuFile is used; where nvidia-fs is missing, the default stream, which goes without it. */
static sluice_stream cufile_stream_new(void)
{
	return sl_cufile_has_module() ? stream_new(0) : SLUICE_STREAM_DEFAULT;
}

/* --------------------------------------------------------------------------------------- its use */

CUFILE_TEST(bytes_go_by_cufile_and_a_file_is_registered_once)
{
	const size_t n = 20 * MIB + 4096;
	const char *path = scratch(f, "once");
	char *memory = device_new(0, n);
	sluice_stream stream = cufile_stream_new();
	sluice_file *file = open_both(f->ctx, path);
	unsigned handles = fake_calls("HANDLE");
	unsigned enqueued = fake_calls("ENQUEUE"), moved = fake_calls("TRANSFER");
	struct sluice_file_info st = {.size = sizeof(st)};

	assert_ok(sluice_stat(file, &st));
	assert_string_equal(st.backend, "cufile");
	for (int i = 0; i < 2; i++) {
		device_fill(memory, n, 0, 40 + i);
		assert_write(file, memory, n, 0);
		device_fill(memory, n, 0, 1);
		assert_moves(start_read_on(file, memory, n, 0, stream), n);
		assert_device(memory, n, 0, 40 + i);
		device_fill(memory, n, 0, 50 + i);
		assert_moves(start_write_on(file, memory, n, 0, stream), n);
		device_fill(memory, n, 0, 1);
		assert_read(file, memory, n, 0);
		assert_device(memory, n, 0, 50 + i);
	}
	assert_ok(sluice_close(file));
	if (has_fake()) {
		assert_int_equal(fake_calls("HANDLE") - handles, 1);
		assert_int_equal(fake_calls("ENQUEUE") - enqueued, stream ? 4 : 0);
		/* Pieces of 8 MiB. */
		assert_int_equal(fake_calls("TRANSFER") - moved, 4 * 3);
	}
	stream_free(stream);
	device_free(memory);
}

CUFILE_TEST(the_programs_input_stays_open)
{
	const char *path = scratch(f, "input");
	char *memory = device_new(0, 4096);
	sluice_file *file;
	struct stat now;

	file_make(path, 4096, 3);
	file = open_read(f->ctx, path);
	assert_read(file, memory, 4096, 0);
	assert_int_equal(fstat(STDIN_FILENO, &now), 0);
	assert_int_equal(now.st_ino, input.st_ino);
	assert_int_equal(now.st_dev, input.st_dev);
	assert_ok(sluice_close(file));
	device_free(memory);
}

CUFILE_TEST(no_worker_calls_the_driver)
{
	const char *path = scratch(f, "workers");
	char *memory = device_new(0, 4 * MIB);
	sluice_file *file;
	uint64_t before, ours;

	NEEDS_FAKE;
	file_make(path, 4 * MIB, 3);
	file = open_read(f->ctx, path);
	before = cuda_calls("cuCtxPushCurrent_v2", "sluice-work");
	ours = cuda_calls("cuCtxPushCurrent_v2", "sluice-cuf");
	assert_read(file, memory, 4 * MIB, 0);
	assert_device(memory, 4 * MIB, 0, 3);
	assert_int_equal(cuda_calls("cuCtxPushCurrent_v2", "sluice-work"), before);
	assert_true(cuda_calls("cuCtxPushCurrent_v2", "sluice-cuf") > ours);
	assert_ok(sluice_close(file));
	device_free(memory);
}

CUFILE_TEST(streams_go_without_it_unless_that_is_asked_for)
{
	const char *path = scratch(f, "unasked");
	char *memory = device_new(0, 4 * MIB);
	sluice_stream stream = stream_new(0);
	struct sluice_config c = row_config();
	unsigned before = fake_calls("ENQUEUE");
	sluice_file *file;

	config_tune(&c, "cufile_streams", 0);
	fixture_config(f, &c);
	file_make(path, 4 * MIB, 4);
	file = open_read(f->ctx, path);
	assert_moves(start_read_on(file, memory, 4 * MIB, 0, stream), 4 * MIB);
	assert_device(memory, 4 * MIB, 0, 4);
	assert_int_equal(fake_calls("ENQUEUE"), before);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

/* Neither is one stream. */
CUFILE_TEST(default_streams_go_without_it)
{
	const char *path = scratch(f, "default");
	char *memory = device_new(0, 4 * MIB);
	unsigned before = fake_calls("ENQUEUE");
	sluice_file *file;

	file_make(path, 4 * MIB, 4);
	file = open_read(f->ctx, path);
	for (uintptr_t i = 0; i < 3; i += 2) {
		assert_moves(start_read_on(file, memory, 4 * MIB, 0, (sluice_stream)i), 4 * MIB);
		assert_device(memory, 4 * MIB, 0, 4);
	}
	assert_int_equal(fake_calls("ENQUEUE"), before);
	assert_ok(sluice_close(file));
	device_free(memory);
}

CUFILE_TEST(many_extents_on_a_stream_go_without_it)
{
	enum { N = 4096 };
	const char *path = scratch(f, "many");
	char *memory = device_new(0, MANY * N);
	sluice_stream stream = cufile_stream_new();
	struct sluice_extent v[MANY];
	unsigned before = fake_calls("ENQUEUE");
	sluice_file *file;
	sluice_op *op = NULL;

	file_make(path, MANY * N, 5);
	file = open_read(f->ctx, path);
	for (size_t i = 0; i < MANY; i++)
		v[i] = (struct sluice_extent){memory + i * N, N, i * N};
	assert_ok(submit_read_on(file, v, MANY, stream, &op));
	assert_moves(op, MANY * N);
	assert_int_equal(fake_calls("ENQUEUE"), before);
	assert_ok(submit_read_on(file, v, MANY - 1, stream, &op));
	assert_moves(op, (MANY - 1) * N);
	if (has_fake())
		assert_int_equal(fake_calls("ENQUEUE") - before, stream ? MANY - 1 : 0);
	assert_device(memory, MANY * N, 0, 5);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

CUFILE_TEST(managed_memory_goes_without_it)
{
	const size_t n = 4 * MIB;
	const char *path = scratch(f, "managed");
	unsigned moved = fake_calls("TRANSFER"), enqueued = fake_calls("ENQUEUE");
	char *device = device_new(0, n);
	sluice_stream stream = stream_new(0);
	struct sluice_extent both[2];
	sluice_op *op = NULL;
	sluice_file *file;
	CUdeviceptr at;
	char *memory;

	assert_int_equal(gpu_driver.cuMemAllocManaged(&at, n, 1), 0);
	memory = (char *)(uintptr_t)at;
	file_make(path, n, 6);
	file = open_both(f->ctx, path);
	assert_read(file, memory, n, 0);
	assert_pattern(memory, n, 0, 6);
	assert_moves(start_read_on(file, memory, n, 0, stream), n);
	pattern_fill(memory, n, 0, 7);
	assert_write(file, memory, n, 0);
	/* Also where only one of many extents is such. */
	both[0] = (struct sluice_extent){device, n / 2, 0};
	both[1] = (struct sluice_extent){memory + n / 2, n / 2, n / 2};
	assert_ok(submit_read(file, both, 2, &op));
	assert_moves(op, n);
	assert_device(device, n / 2, 0, 7);
	assert_pattern(memory, n, 0, 7);
	assert_int_equal(fake_calls("TRANSFER"), moved);
	assert_int_equal(fake_calls("ENQUEUE"), enqueued);
	assert_refused(sluice_register_buffer(f->ctx, memory, n), ENOTSUP, "managed");
	assert_ok(sluice_close(file));
	stream_free(stream);
	assert_ok(sluice_device_free(memory));
	device_free(device);
}

CUFILE_TEST(memory_of_other_devices_goes_without_it)
{
	const char *path = scratch(f, "other");
	unsigned before = fake_calls("HANDLE");
	unsigned char host[4096];
	void *memory = NULL;
	sluice_file *file;
	int emulated;

	assert_ok(sluice_device_find("emulated", &emulated));
	assert_ok(sluice_device_alloc(emulated, 4096, &memory));
	file_make(path, 4096, 6);
	file = open_read(f->ctx, path);
	assert_read(file, host, 4096, 0);
	assert_pattern(host, 4096, 0, 6);
	assert_read(file, memory, 4096, 0);
	assert_device(memory, 4096, 0, 6);
	assert_int_equal(fake_calls("HANDLE"), before);
	assert_ok(sluice_close(file));
	device_free(memory);
}

CUFILE_TEST(without_gpudirect_it_is_used_by_name_only)
{
	const char *path = scratch(f, "name");
	char *memory = device_new(0, 4 * MIB);
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	unsigned before = fake_calls("HANDLE");
	sluice_file *file = NULL;

	NEEDS_FAKE;
	setenv("FAKE_CUFILE_NO_NODE", "1", 1);
	use_auto(f);
	file_make(path, 4 * MIB, 7);
	file = open_read(f->ctx, path);
	assert_read(file, memory, 4 * MIB, 0);
	assert_device(memory, 4 * MIB, 0, 7);
	assert_ok(sluice_close(file));
	assert_int_equal(fake_calls("HANDLE"), before);
	o.backend = "cufile";
	assert_ok(sluice_open(f->ctx, path, &o, &file));
	assert_read(file, memory, 4 * MIB, 0);
	assert_device(memory, 4 * MIB, 0, 7);
	assert_ok(sluice_close(file));
	assert_int_equal(fake_calls("HANDLE"), before + 1);
	device_free(memory);
}

CUFILE_TEST(without_gpudirect_streams_are_refused_by_name)
{
	const char *path = scratch(f, "compatible");
	char *memory = device_new(0, MIB);
	sluice_stream stream = stream_new(0);
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	unsigned before = fake_calls("ENQUEUE");
	sluice_file *file = NULL, *named = NULL;
	sluice_op *op = NULL;

	setenv("FAKE_CUFILE_NO_NODE", "1", 1);
	use_auto(f);
	file = open_both(f->ctx, path);
	o.backend = "cufile";
	o.flags = SLUICE_OPEN_READ | SLUICE_OPEN_WRITE;
	assert_ok(sluice_open(f->ctx, path, &o, &named));
	assert_refused(sluice_write_on(named, memory, MIB, 0, stream, &op), ENOTSUP, "nvidia-fs");
	assert_refused(sluice_read_on(named, memory, MIB, 0, stream, &op), ENOTSUP, path);
	assert_null(op);
	device_fill(memory, MIB, 0, 8);
	assert_moves(start_write_on(file, memory, MIB, 0, stream), MIB);
	device_fill(memory, MIB, 0, 9);
	assert_moves(start_read_on(file, memory, MIB, 0, stream), MIB);
	assert_device(memory, MIB, 0, 8);
	assert_int_equal(fake_calls("ENQUEUE"), before);
	assert_ok(sluice_close(named));
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

CUFILE_TEST(the_features_tell_of_it)
{
	struct sluice_feature feature = {.size = sizeof(feature)};
	bool direct = getenv("FAKE_CUFILE_NVFS");
	const char *expected = direct ? "yes: GPUDirect by nvidia-fs 2.17"
	                              : "by name only: compatibility mode (no nvidia-fs)";
	size_t i = 0;

	while (sluice_context_feature(f->ctx, i, &feature) == 0 && strcmp(feature.name, "cufile"))
		i++;
	assert_string_equal(feature.name, "cufile");
	print_message("cufile: %s\n", feature.detail);
	NEEDS_FAKE;
	assert_string_equal(feature.detail, expected);
	/* Compatible it is used because the row names it. */
	assert_int_equal(feature.usable, 1);
}

/* --------------------------------------------------------------------------------------- buffers */

CUFILE_TEST(a_registered_buffer_is_given_as_such)
{
	const char *path = scratch(f, "buffer");
	char *memory = device_new(0, 4 * MIB);
	sluice_stream stream = cufile_stream_new();
	unsigned before = fake_calls("REGISTERED");
	sluice_file *file;

	file_make(path, 4 * MIB, 40);
	file = open_read(f->ctx, path);
	if (has_fake()) {
		assert_ok(sluice_register_buffer(f->ctx, memory, 2 * MIB));
		assert_refused(sluice_register_buffer(f->ctx, memory + MIB, MIB), EEXIST, "5023");
	} else if (sluice_register_buffer(f->ctx, memory, 2 * MIB)) {
		print_message("cufile: \"%s\"\n", sluice_last_message());
		fail();
	}
	assert_read(file, memory + 4096, MIB, 4096);
	assert_moves(start_read_on(file, memory + MIB + 4096, MIB - 4096, MIB + 4096, stream),
	             MIB - 4096);
	assert_device(memory + 4096, 2 * MIB - 4096, 4096, 40);
	if (has_fake())
		assert_int_equal(fake_calls("REGISTERED") - before, stream ? 2 : 1);
	/* What is not all of it in the buffer is not. */
	assert_read(file, memory + MIB, 2 * MIB, MIB);
	assert_ok(sluice_unregister_buffer(f->ctx, memory));
	assert_read(file, memory, MIB, 0);
	if (has_fake())
		assert_int_equal(fake_calls("REGISTERED") - before, stream ? 2 : 1);
	assert_refused(sluice_unregister_buffer(f->ctx, memory), EINVAL, "registered");
	/* The context lets go of what it still has. */
	assert_ok(sluice_register_buffer(f->ctx, memory, 2 * MIB));
	assert_ok(sluice_close(file));
	use_auto(f);
	assert_ok(sluice_register_buffer(f->ctx, memory, 2 * MIB));
	assert_ok(sluice_unregister_buffer(f->ctx, memory));
	stream_free(stream);
	device_free(memory);
}

CUFILE_TEST(unregistrable_memory_is_refused)
{
	static char host[4096];
	void *memory = NULL, *device = device_new(0, 4096);
	int emulated;

	assert_refused(sluice_register_buffer(f->ctx, NULL, 1), EINVAL, "NULL");
	assert_refused(sluice_register_buffer(f->ctx, device, 0), EINVAL, "length");
	assert_refused(sluice_register_buffer(f->ctx, host, 4096), EINVAL,
	               "not memory of a device");
	assert_refused(sluice_register_buffer(NULL, host, 4096), EINVAL, "context");
	assert_ok(sluice_device_find("emulated", &emulated));
	assert_ok(sluice_device_alloc(emulated, 4096, &memory));
	assert_refused(sluice_register_buffer(f->ctx, memory, 4096), ENOTSUP, "emulated");
	if (has_fake()) {
		setenv("FAKE_CUFILE_BUFFER", "1:5030", 1);
		assert_refused(sluice_register_buffer(f->ctx, device, 4096), EIO, "5030");
	}
	device_free(memory);
	device_free(device);
}
