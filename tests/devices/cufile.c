/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuFile: that it is used where it is asked for or is worth it, what comes of its errors, and the order of
 * what it does on streams. "cufile_device" as the row; with "gpudirect" behind it the fake cuFile
 * has GPUDirect. With a real cuFile what needs a fake one is skipped.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "devices/devices.h"

/* More extents than cuFile is given in one step. */
enum { MANY = 65 };

static bool gpudirect;

/* Where sluice looks for the kernel's module. */
int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
	if (gpudirect && strcmp(path, "/proc/driver/nvidia-fs") == 0)
		return 0;
	return __real_access(path, mode);
}

/* ------------------------------------------------------------------------------------- the fakes */

static void *control(const char *library, const char *name)
{
	void *loaded = dlopen(library, RTLD_NOW);

	return loaded ? dlsym(loaded, name) : NULL;
}

static bool has_fake(void)
{
	return control("libcufile.so.0", "cuFileFakeCalls");
}

#define NEEDS_FAKE                                             \
	do {                                                   \
		if (!has_fake())                               \
			SKIP("this needs the fake libcufile"); \
	} while (0)

static unsigned calls(const char *what)
{
	unsigned (*get)(const char *) = NULL;

	*(void **)&get = control("libcufile.so.0", "cuFileFakeCalls");
	return get ? get(what) : 0;
}

static void cuda_fail(const char *function, uint64_t nth, int error)
{
	int (*set)(const char *, uint64_t, int) = NULL;

	*(void **)&set = control("libcuda.so.1", "cuFakeFail");
	assert_non_null(set);
	assert_int_equal(set(function, nth, error), 0);
}

static uint64_t cuda_calls(const char *function, const char *prefix)
{
	int (*get)(const char *, const char *, uint64_t *) = NULL;
	uint64_t count = 0;

	*(void **)&get = control("libcuda.so.1", "cuFakeCalls");
	assert_non_null(get);
	get(function, prefix, &count);
	return count;
}

static int no_faults(void **state)
{
	unsetenv("FAKE_CUFILE_OPEN");
	unsetenv("FAKE_CUFILE_HANDLE");
	unsetenv("FAKE_CUFILE_BUFFER");
	unsetenv("FAKE_CUFILE_TRANSFER");
	unsetenv("FAKE_CUFILE_ENQUEUE");
	unsetenv("FAKE_CUFILE_PASSED");
	unsetenv("FAKE_CUFILE_DELAY_US");
	if (fixture_setup(state))
		return -1;
	/* A hang of the real one is not to take minutes. */
	if (!under_sanitizer())
		alarm(20);
	return 0;
}
#define cufile_test(name) cmocka_unit_test_setup_teardown(name, no_faults, fixture_teardown)

/* A context that has not been told to use cuFile. */
static void use_auto(struct fixture *f)
{
	struct sluice_config c = SLUICE_CONFIG_INIT;

	fixture_config(f, &c);
}

/* The operation failed, with that error and a sentence that has says in it. */
static void assert_failed(sluice_op *op, int error, const char *says)
{
	int64_t result = sluice_wait(op, PATIENCE_MS);

	if (result != -error || !strstr(sluice_op_message(op), says))
		fail_msg("the operation gave %lld \"%s\", not -%d with \"%s\"", (long long)result,
		         sluice_op_message(op), error, says);
	sluice_op_free(op);
}

/* --------------------------------------------------------------------------------------- its use */

static void bytes_go_by_cufile_and_files_and_streams_are_registered_once(void **state)
{
	struct fixture *f = *state;
	const size_t n = 20 * MIB + 4096;
	const char *path = scratch(f, "once");
	char *memory = device_new(0, n);
	sluice_stream stream = stream_new(0);
	sluice_file *file = open_both(f->ctx, path);
	unsigned handles = calls("HANDLE"), streams = calls("STREAM");
	unsigned enqueued = calls("ENQUEUE"), moved = calls("TRANSFER");
	struct sluice_stat st = {.size = sizeof(st)};

	assert_ok(sluice_stat(file, &st));
	assert_string_equal(st.backend, "cufile");
	for (int i = 0; i < 3; i++) {
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
		assert_int_equal(calls("HANDLE") - handles, 1);
		assert_int_equal(calls("STREAM") - streams, 1);
		assert_int_equal(calls("ENQUEUE") - enqueued, 6);
		/* Pieces of 8 MiB. */
		assert_int_equal(calls("TRANSFER") - moved, 6 * 3);
	}
	stream_free(stream);
	device_free(memory);
}

static void no_worker_calls_the_driver(void **state)
{
	struct fixture *f = *state;
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

/* Neither is a stream of its own: cuFile is not told of it. */
static void default_streams_go_without_it(void **state)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "default");
	char *memory = device_new(0, 4 * MIB);
	unsigned before = calls("ENQUEUE");
	sluice_file *file;

	file_make(path, 4 * MIB, 4);
	file = open_read(f->ctx, path);
	for (uintptr_t i = 0; i < 3; i += 2) {
		assert_moves(start_read_on(file, memory, 4 * MIB, 0, (sluice_stream)i), 4 * MIB);
		assert_device(memory, 4 * MIB, 0, 4);
	}
	assert_int_equal(calls("ENQUEUE"), before);
	assert_ok(sluice_close(file));
	device_free(memory);
}

static void many_extents_on_a_stream_go_without_it(void **state)
{
	struct fixture *f = *state;
	enum { N = 4096 };
	const char *path = scratch(f, "many");
	char *memory = device_new(0, MANY * N);
	sluice_stream stream = stream_new(0);
	struct sluice_extent v[MANY];
	unsigned before = calls("ENQUEUE");
	sluice_file *file;
	sluice_op *op = NULL;

	file_make(path, MANY * N, 5);
	file = open_read(f->ctx, path);
	for (size_t i = 0; i < MANY; i++)
		v[i] = (struct sluice_extent){memory + i * N, N, i * N};
	assert_ok(sluice_readv_on(file, v, MANY, stream, &op));
	assert_moves(op, MANY * N);
	assert_int_equal(calls("ENQUEUE"), before);
	assert_ok(sluice_readv_on(file, v, MANY - 1, stream, &op));
	assert_moves(op, (MANY - 1) * N);
	if (has_fake())
		assert_int_equal(calls("ENQUEUE") - before, MANY - 1);
	assert_device(memory, MANY * N, 0, 5);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

static void memory_of_other_devices_goes_without_it(void **state)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "other");
	unsigned before = calls("HANDLE");
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
	assert_int_equal(calls("HANDLE"), before);
	assert_ok(sluice_close(file));
	device_free(memory);
}

static void without_gpudirect_it_is_used_by_name_only(void **state)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "name");
	char *memory = device_new(0, 4 * MIB);
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	unsigned before = calls("HANDLE");
	sluice_file *file = NULL;

	NEEDS_FAKE;
	use_auto(f);
	file_make(path, 4 * MIB, 7);
	file = open_read(f->ctx, path);
	assert_read(file, memory, 4 * MIB, 0);
	assert_device(memory, 4 * MIB, 0, 7);
	assert_ok(sluice_close(file));
	assert_int_equal(calls("HANDLE"), before);
	o.backend = "cufile";
	assert_ok(sluice_open(f->ctx, path, &o, &file));
	assert_read(file, memory, 4 * MIB, 0);
	assert_device(memory, 4 * MIB, 0, 7);
	assert_ok(sluice_close(file));
	assert_int_equal(calls("HANDLE"), before + 1);
	device_free(memory);
}

static void the_features_tell_of_it(void **state)
{
	struct fixture *f = *state;
	struct sluice_feature feature = {.size = sizeof(feature)};
	const char *expected = gpudirect ? "yes: GPUDirect by nvidia-fs 2.17"
	                                 : "by name only: compatibility mode (no nvidia-fs)";
	size_t i = 0;

	while (sluice_context_feature(f->ctx, i, &feature) == 0 && strcmp(feature.name, "cufile"))
		i++;
	assert_string_equal(feature.name, "cufile");
	print_message("cufile: %s\n", feature.detail);
	NEEDS_FAKE;
	assert_string_equal(feature.detail, expected);
	assert_int_equal(feature.usable, gpudirect);
}

/* ---------------------------------------------------------------------------------------- errors */

static void a_file_that_it_refuses_is_refused_by_name(void **state)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "refused");
	char *memory = device_new(0, 4096);
	sluice_stream stream = stream_new(0);
	unsigned char host[4096];
	sluice_op *op = NULL;
	sluice_file *file;

	NEEDS_FAKE;
	file_make(path, 4096, 8);
	file = open_read(f->ctx, path);
	setenv("FAKE_CUFILE_HANDLE", "1:5027", 1);
	assert_refused(sluice_read(file, memory, 4096, 0, &op), ENOTSUP, "5027");
	assert_null(op);
	setenv("FAKE_CUFILE_HANDLE", "1:5008", 1);
	assert_refused(sluice_read_on(file, memory, 4096, 0, stream, &op), ENOTSUP, path);
	assert_null(op);
	/* Host memory needs none of it, and what was wrong may be put right. */
	assert_read(file, host, 4096, 0);
	assert_read(file, memory, 4096, 0);
	assert_device(memory, 4096, 0, 8);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

static void a_failed_transfer_is_told_in_a_sentence(void **state)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "failed");
	char *memory = device_new(0, 20 * MIB);
	sluice_file *file;

	NEEDS_FAKE;
	file_make(path, 20 * MIB, 9);
	file = open_both(f->ctx, path);
	setenv("FAKE_CUFILE_TRANSFER", "2:-5030", 1);
	assert_failed(start_read(file, memory, 20 * MIB, 0), EIO, "5030");
	setenv("FAKE_CUFILE_TRANSFER", "1:-1", 1);
	assert_failed(start_write(file, memory, 4096, 8192), EIO, "byte 8192");
	setenv("FAKE_CUFILE_TRANSFER", "1:0", 1);
	assert_failed(start_read(file, memory, 4096, 0), EIO, "cut short");
	unsetenv("FAKE_CUFILE_TRANSFER");
	assert_read(file, memory, 4096, 0);
	setenv("FAKE_CUFILE_TRANSFER", "1:0", 1);
	assert_failed(start_write(file, memory, 4096, 0), EIO, "write");
	unsetenv("FAKE_CUFILE_TRANSFER");
	assert_read(file, memory, 20 * MIB, 0);
	assert_ok(sluice_close(file));
	device_free(memory);
}

static void a_short_transfer_is_continued(void **state)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "short");
	char *memory = device_new(0, 8192);
	sluice_file *file;

	NEEDS_FAKE;
	file_make(path, 8192, 10);
	file = open_read(f->ctx, path);
	device_fill(memory, 8192, 0, 10);
	setenv("FAKE_CUFILE_TRANSFER", "1:100", 1);
	assert_read(file, memory, 8192, 0);
	assert_device(memory, 8192, 0, 10);
	assert_ok(sluice_close(file));
	device_free(memory);
}

/* Whatever happens to the transfer: the stream goes on, and the operation says what it was. */
static void a_transfer_that_fails_on_a_stream_lets_it_go_on(void **state)
{
	static const struct {
		const char *variable, *value, *says;
	} faults[] = {
		{"FAKE_CUFILE_PASSED", "1:-5030", "5030"},
		{"FAKE_CUFILE_PASSED", "1:-1", "byte 4096"},
		{"FAKE_CUFILE_PASSED", "1:100", "100 of"},
		{"FAKE_CUFILE_PASSED", "2:0", "0 of"},
		{"FAKE_CUFILE_ENQUEUE", "1:5011", "5011"},
		{"FAKE_CUFILE_ENQUEUE", "2:5030", "5030"},
		{"FAKE_CUFILE_ENQUEUE", "3:5022", "5022"},
	};
	struct fixture *f = *state;
	const char *path = scratch(f, "goes-on");
	char *memory = device_new(0, 4 * MIB);
	sluice_stream stream = stream_new(0);
	void *host = NULL;
	sluice_file *file;

	NEEDS_FAKE;
	assert_ok(sluice_pinned_alloc(gpu_device(0), 4096, &host));
	file_make(path, 5 * MIB, 11);
	file = open_both(f->ctx, path);
	for (size_t i = 0; i < 2 * COUNT_OF(faults); i++) {
		const struct sluice_extent v[] = {{memory, 3 * MIB, 4096},
		                                  {memory + 3 * MIB, 4096, 4 * MIB},
		                                  {memory + 3 * MIB + 4096, 4096, 0}};
		sluice_op *op = NULL;

		setenv(faults[i / 2].variable, faults[i / 2].value, 1);
		if (i % 2)
			assert_ok(sluice_writev_on(file, v, 3, stream, &op));
		else
			assert_ok(sluice_readv_on(file, v, 3, stream, &op));
		launch_fill(0, stream, memory, 4096, 0, 12);
		launch_take(0, stream, memory, 4096, host);
		stream_pass(0, stream);
		assert_pattern(host, 4096, 0, 12);
		assert_failed(op, EIO, faults[i / 2].says);
		/* A transfer without a fault begins the count again. */
		unsetenv(faults[i / 2].variable);
		assert_moves(start_read_on(file, memory, 4096, 0, stream), 4096);
	}
	assert_moves(start_read_on(file, memory, 4 * MIB, 0, stream), 4 * MIB);
	assert_ok(sluice_close(file));
	assert_ok(sluice_pinned_free(host));
	stream_free(stream);
	device_free(memory);
}

/* The word behind the transfers: without it the end of the stream is waited for. */
static void a_word_that_the_driver_refuses_ends_with_the_stream(void **state)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "word");
	char *memory = device_new(0, 4 * MIB);
	sluice_stream stream = stream_new(0);
	unsigned char host[4096];
	struct gpu_hold hold;
	sluice_file *file;
	sluice_op *op, *write;

	NEEDS_FAKE;
	file_make(path, 4 * MIB, 13);
	pattern_fill(host, 4096, 0, 13);
	file = open_both(f->ctx, path);
	assert_moves(start_read_on(file, memory, 4096, 0, stream), 4096);
	hold_begin(&hold, 0, stream);
	cuda_fail("cuStreamWriteValue32_v2", 1, 999);
	op = start_read_on(file, memory, 4 * MIB, 0, stream);
	/* The transfer is still to come: what overlaps it waits for that. */
	write = start_write(file, host, 4096, 0);
	assert_int_equal(sluice_wait(op, 50), -EINPROGRESS);
	assert_int_equal(sluice_wait(write, 0), -EINPROGRESS);
	hold_end(&hold);
	assert_failed(op, EIO, "did not take");
	assert_moves(write, 4096);
	assert_moves(start_read_on(file, memory, 4 * MIB, 0, stream), 4 * MIB);
	assert_device(memory, 4 * MIB, 0, 13);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

static void a_file_that_ends_early_fails_on_a_stream(void **state)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "ends");
	char *memory = device_new(0, 8192);
	sluice_stream stream = stream_new(0);
	struct gpu_hold hold;
	unsigned enqueued;
	sluice_file *file;
	sluice_op *op;

	file_make(path, 8192, 14);
	file = open_read(f->ctx, path);
	enqueued = calls("ENQUEUE");
	assert_failed(start_read_on(file, memory, 8192, 4096, stream), EIO, "ends at byte 8192");
	assert_int_equal(calls("ENQUEUE"), enqueued);
	/* What is there when it is submitted may be missing when the stream comes to it. */
	assert_moves(start_read_on(file, memory, 100, 0, stream), 100);
	hold_begin(&hold, 0, stream);
	op = start_read_on(file, memory, 8192, 0, stream);
	file_truncate(path, 5000);
	hold_end(&hold);
	assert_failed(op, EIO, has_fake() ? "5000 of 8192" : "cuFile");
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

static void a_cancel_takes_nothing_off_the_stream(void **state)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "cancel");
	char *memory = device_new(0, MIB);
	sluice_stream stream = stream_new(0);
	struct gpu_hold hold;
	sluice_file *file = open_both(f->ctx, path);
	unsigned char *expected = malloc(MIB);
	sluice_op *op;

	assert_moves(start_write_on(file, memory, MIB, 0, stream), MIB);
	device_fill(memory, MIB, 0, 15);
	hold_begin(&hold, 0, stream);
	op = start_write_on(file, memory, MIB, 0, stream);
	assert_ok(sluice_cancel(op));
	assert_int_equal(sluice_wait(op, 50), -EINPROGRESS);
	hold_end(&hold);
	assert_int_equal(finish(op), -ECANCELED);
	stream_pass(0, stream);
	pattern_fill(expected, MIB, 0, 15);
	assert_file_is(path, expected, MIB);
	assert_ok(sluice_close(file));
	free(expected);
	stream_free(stream);
	device_free(memory);
}

/* ----------------------------------------------------------------------------------------- order */

/* What is behind a slow write, however it is awaited and wherever it goes, sees it. */
static void what_overlaps_a_write_on_a_stream_comes_after_it(void **state)
{
	struct fixture *f = *state;
	const size_t n = 2 * MIB;
	const char *path = scratch(f, "order");
	char *src = device_new(0, n), *dst = device_new(0, n);
	sluice_stream stream = stream_new(0), other = stream_new(0);
	unsigned char *host = malloc(n);
	sluice_file *file = open_both(f->ctx, path);

	setenv("FAKE_CUFILE_DELAY_US", "20000", 1);
	assert_moves(start_write_on(file, src, n, 0, stream), n);
	for (int i = 0; i < 8; i++) {
		sluice_op *write, *read;

		device_fill(src, n, 0, 20 + i);
		write = start_write_on(file, src, n, 0, stream);
		switch (i % 4) {
		case 0:
			read = start_read(file, host, n, 0);
			break;
		case 1:
			read = start_read(file, dst, n, 0);
			break;
		case 2:
			read = start_read_on(file, dst, n, 0, i == 2 ? stream : other);
			break;
		default:
			/* The usual way in stream order. */
			read = start_read_on(file, dst, n, 0, SLUICE_STREAM_DEFAULT);
		}
		assert_moves(read, n);
		if (i % 4)
			assert_device(dst, n, 0, 20 + i);
		else
			assert_pattern(host, n, 0, 20 + i);
		assert_moves(write, n);
	}
	assert_ok(sluice_close(file));
	free(host);
	stream_free(stream);
	stream_free(other);
	device_free(src);
	device_free(dst);
}

static void on_one_stream_nothing_waits(void **state)
{
	struct fixture *f = *state;
	const size_t n = 2 * MIB;
	char *src = device_new(0, n), *dst = device_new(0, n);
	sluice_stream stream = stream_new(0);
	sluice_file *file = open_both(f->ctx, scratch(f, "one"));
	sluice_op *write, *read;
	struct gpu_hold hold;

	assert_moves(start_write_on(file, src, n, 0, stream), n);
	device_fill(src, n, 0, 30);
	hold_begin(&hold, 0, stream);
	write = start_write_on(file, src, n, 0, stream);
	read = start_read_on(file, dst, n, 0, stream);
	assert_int_equal(sluice_poll(write) + sluice_poll(read), 0);
	hold_end(&hold);
	assert_moves(read, n);
	assert_moves(write, n);
	assert_device(dst, n, 0, 30);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(src);
	device_free(dst);
}

static void what_would_have_to_wait_is_not_enqueued(void **state)
{
	struct fixture *f = *state;
	const size_t n = 64 * KIB;
	char *memory = device_new(0, n);
	sluice_stream stream = stream_new(0), other = stream_new(0);
	unsigned char *host = calloc(1, n);
	struct sluice_extent v[MANY];
	sluice_op *op = NULL, *write;
	struct gpu_hold hold;
	sluice_file *file = NULL;

	warm_up(f, 0);
	assert_ok(open_flags(f->ctx, scratch(f, "wait"),
	                     SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE |
	                             SLUICE_OPEN_NONBLOCK,
	                     &file));
	assert_moves(start_write_on(file, memory, n, 0, stream), n);
	hold_begin(&hold, 0, stream);
	write = start_write_on(file, memory, n, 0, stream);
	assert_refused(sluice_read_on(file, memory, n, 0, other, &op), EAGAIN, "same bytes");
	assert_refused(sluice_write_on(file, memory, 4096, n - 4096, other, &op), EAGAIN, "bytes");
	assert_refused(sluice_read_on(file, memory, n, 0, SLUICE_STREAM_DEFAULT, &op), EAGAIN,
	               "same bytes");
	assert_null(op);
	/* Beside it anything goes, and so does what is awaited on the host. */
	assert_moves(start_write_on(file, memory, n, n, other), n);
	op = start_write(file, host, 4096, 0);
	assert_int_equal(sluice_wait(op, 20), -EINPROGRESS);
	hold_end(&hold);
	assert_moves(op, 4096);
	assert_moves(write, n);
	/* The other way round: nothing is enqueued behind what is awaited on the host. */
	hold_begin(&hold, 0, stream);
	write = start_write_on(file, memory, n, 0, stream);
	op = start_write(file, host, 4096, 0);
	assert_refused(sluice_read_on(file, memory, n, 0, stream, NULL), EAGAIN, "same bytes");
	hold_end(&hold);
	assert_moves(write, n);
	assert_moves(op, 4096);
	/* Nor behind what sluice does in stream order by itself. */
	for (size_t i = 0; i < COUNT_OF(v); i++)
		v[i] = (struct sluice_extent){memory + 8 * i, 8, 8 * i};
	hold_begin(&hold, 0, other);
	assert_ok(sluice_writev_on(file, v, COUNT_OF(v), other, &op));
	assert_refused(sluice_read_on(file, memory, 4096, 0, stream, NULL), EAGAIN, "same bytes");
	assert_refused(sluice_read_on(file, memory, 4096, 0, other, NULL), EAGAIN, "same bytes");
	hold_end(&hold);
	assert_moves(op, 8 * COUNT_OF(v));
	assert_ok(sluice_close(file));
	free(host);
	stream_free(stream);
	stream_free(other);
	device_free(memory);
}

static void *let_go_soon(void *hold)
{
	sleep_ms(50);
	gpu_let_go(hold);
	return NULL;
}

static void submission_waits_for_what_it_overlaps(void **state)
{
	struct fixture *f = *state;
	char *src = device_new(0, 8 * MANY), *dst = device_new(0, 8 * MANY);
	sluice_stream stream = stream_new(0), other = stream_new(0);
	sluice_file *file = open_both(f->ctx, scratch(f, "waits"));
	struct sluice_extent v[MANY];
	sluice_op *op = NULL, *read;
	struct gpu_hold hold;
	pthread_t thread;

	/* Too many for cuFile, and so nothing that calls the driver later. */
	for (size_t i = 0; i < MANY; i++)
		v[i] = (struct sluice_extent){src + 8 * i, 8, 8 * i};
	assert_ok(sluice_writev_on(file, v, MANY, other, &op));
	assert_moves(op, 8 * MANY);
	assert_moves(start_read_on(file, dst, 8 * MANY, 0, stream), 8 * MANY);
	device_fill(src, 8 * MANY, 0, 60);
	hold_begin(&hold, 0, other);
	assert_ok(sluice_writev_on(file, v, MANY, other, &op));
	assert_int_equal(pthread_create(&thread, NULL, let_go_soon, &hold), 0);
	read = start_read_on(file, dst, 8 * MANY, 0, stream);
	assert_moves(read, 8 * MANY);
	assert_moves(op, 8 * MANY);
	assert_device(dst, 8 * MANY, 0, 60);
	pthread_join(thread, NULL);
	assert_ok(sluice_close(file));
	stream_free(stream);
	stream_free(other);
	device_free(src);
	device_free(dst);
}

/* --------------------------------------------------------------------------------------- buffers */

static void a_registered_buffer_is_given_as_such(void **state)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "buffer");
	char *memory = device_new(0, 4 * MIB);
	sluice_stream stream = stream_new(0);
	unsigned before = calls("REGISTERED");
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
		assert_int_equal(calls("REGISTERED") - before, 2);
	/* What is not all of it in the buffer is not. */
	assert_read(file, memory + MIB, 2 * MIB, MIB);
	assert_ok(sluice_unregister_buffer(f->ctx, memory));
	assert_read(file, memory, MIB, 0);
	if (has_fake())
		assert_int_equal(calls("REGISTERED") - before, 2);
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

static void what_cannot_be_registered_is_refused(void **state)
{
	struct fixture *f = *state;
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

/* ------------------------------------------------------------------------------------- gpudirect */

static void gpudirect_is_used_without_being_named(void **state)
{
	struct fixture *f = *state;
	const size_t n = 9 * MIB;
	const char *path = scratch(f, "direct");
	char *memory = device_new(0, n + 1);
	sluice_stream stream = stream_new(0);
	unsigned moved = calls("TRANSFER"), enqueued = calls("ENQUEUE");
	sluice_file *file;

	use_auto(f);
	if (!scratch_takes_direct(f))
		SKIP("files here cannot be opened for direct I/O");
	file = open_both(f->ctx, path);
	device_fill(memory, n, 0, 50);
	assert_write(file, memory, n, 0);
	device_fill(memory, n, 0, 1);
	assert_moves(start_read_on(file, memory, n - 333, 333, stream), n - 333);
	assert_device(memory, n - 333, 333, 50);
	assert_int_equal(calls("TRANSFER") - moved, 2);
	assert_int_equal(calls("ENQUEUE") - enqueued, 1);
	/* What is not whole blocks goes the usual way. */
	device_fill(memory, n, 0, 51);
	assert_write(file, memory, 5000, 4096);
	assert_moves(start_write_on(file, memory, 4096, 100, stream), 4096);
	assert_int_equal(calls("TRANSFER") - moved, 2);
	assert_int_equal(calls("ENQUEUE") - enqueued, 1);
	assert_read(file, memory, 4096, 100);
	assert_device(memory, 4096, 0, 51);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

static void a_file_that_it_refuses_goes_without_it(void **state)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "refused");
	char *memory = device_new(0, 4096);
	sluice_stream stream = stream_new(0);
	unsigned handles = calls("HANDLE");
	sluice_file *file;

	use_auto(f);
	file_make(path, 4096, 52);
	file = open_read(f->ctx, path);
	setenv("FAKE_CUFILE_HANDLE", "1:5027", 1);
	assert_read(file, memory, 4096, 0);
	assert_moves(start_read_on(file, memory, 4096, 0, stream), 4096);
	assert_device(memory, 4096, 0, 52);
	assert_int_equal(calls("HANDLE"), handles);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest compatible[] = {
		cufile_test(bytes_go_by_cufile_and_files_and_streams_are_registered_once),
		cufile_test(no_worker_calls_the_driver),
		cufile_test(default_streams_go_without_it),
		cufile_test(many_extents_on_a_stream_go_without_it),
		cufile_test(memory_of_other_devices_goes_without_it),
		cufile_test(without_gpudirect_it_is_used_by_name_only),
		cufile_test(the_features_tell_of_it),
		cufile_test(a_file_that_it_refuses_is_refused_by_name),
		cufile_test(a_failed_transfer_is_told_in_a_sentence),
		cufile_test(a_short_transfer_is_continued),
		cufile_test(a_transfer_that_fails_on_a_stream_lets_it_go_on),
		cufile_test(what_overlaps_a_write_on_a_stream_comes_after_it),
		cufile_test(a_registered_buffer_is_given_as_such),
		cufile_test(what_cannot_be_registered_is_refused),
		/* Those that hold streams up. */
		cufile_test(a_word_that_the_driver_refuses_ends_with_the_stream),
		cufile_test(a_file_that_ends_early_fails_on_a_stream),
		cufile_test(a_cancel_takes_nothing_off_the_stream),
		cufile_test(on_one_stream_nothing_waits),
		cufile_test(what_would_have_to_wait_is_not_enqueued),
		cufile_test(submission_waits_for_what_it_overlaps),
	};
	static const struct CMUnitTest direct[] = {
		cufile_test(the_features_tell_of_it),
		cufile_test(gpudirect_is_used_without_being_named),
		cufile_test(a_file_that_it_refuses_goes_without_it),
	};

	void *memory = NULL;
	int emulated;

	row_start(argc, argv);
	/* Its threads are there before anybody counts. */
	assert_ok(sluice_device_find("emulated", &emulated));
	assert_ok(sluice_device_alloc(emulated, 1, &memory));
	assert_ok(sluice_device_free(memory));
	gpudirect = argc > 2 && strcmp(argv[2], "gpudirect") == 0;
	if (argc > 2 && !gpudirect)
		cmocka_set_test_filter(argv[2]);
	if (gpudirect && !has_fake()) {
		printf("skipped: this needs the fake libcufile\n");
		return 77;
	}
	setenv("FAKE_CUFILE_NVFS", "2.17", gpudirect);
	if (!gpudirect)
		unsetenv("FAKE_CUFILE_NVFS");
	return gpudirect ? cmocka_run_group_tests_name("gpudirect", direct, NULL, NULL)
	                 : cmocka_run_group_tests_name("cufile", compatible, NULL, NULL);
}
