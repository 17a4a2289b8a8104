/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/support.h"

int64_t finish(sluice_op *op)
{
	int64_t result = sluice_wait(op, PATIENCE_MS);

	if (result == -EINPROGRESS)
		fail_msg("an operation did not end within %d s", PATIENCE_MS / 1000);
	sluice_op_free(op);
	return result;
}

void finish_moving(sluice_op *op, uint64_t n, const char *file, int line)
{
	int64_t result = sluice_wait(op, PATIENCE_MS);

	if (result < 0 || (uint64_t)result != n) {
		print_error("%s:%d: the operation gave %lld (%s), not %llu; \"%s\"\n", file, line,
		            (long long)result, result < 0 ? strerror((int)-result) : "bytes",
		            (unsigned long long)n, sluice_op_message(op));
		_fail(file, line);
	}
	if (*sluice_op_message(op)) {
		print_error("%s:%d: the operation succeeded and says \"%s\"\n", file, line,
		            sluice_op_message(op));
		_fail(file, line);
	}
	sluice_op_free(op);
}

void finish_failing(sluice_op *op, int error, const char *file, int line)
{
	int64_t result = sluice_wait(op, PATIENCE_MS);

	if (result != -error) {
		print_error("%s:%d: the operation gave %lld (%s), not -%d (%s); \"%s\"\n", file,
		            line, (long long)result, result < 0 ? strerror((int)-result) : "bytes",
		            error, strerror(error), sluice_op_message(op));
		_fail(file, line);
	}
	if (!*sluice_op_message(op)) {
		print_error("%s:%d: there is no sentence behind %s\n", file, line, strerror(error));
		_fail(file, line);
	}
	sluice_op_free(op);
}

int open_flags(sluice_context *ctx, const char *path, unsigned flags, sluice_file **out)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;

	o.flags = flags;
	return sluice_open(ctx, path, &o, out);
}

sluice_file *open_read(sluice_context *ctx, const char *path)
{
	sluice_file *file = NULL;

	assert_ok(sluice_open(ctx, path, NULL, &file));
	assert_non_null(file);
	return file;
}

sluice_file *open_both(sluice_context *ctx, const char *path)
{
	sluice_file *file = NULL;

	assert_ok(open_flags(ctx, path, SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE,
	                     &file));
	assert_non_null(file);
	return file;
}

sluice_op *start_read(sluice_file *file, void *dst, size_t n, uint64_t offset)
{
	sluice_op *op = NULL;

	assert_ok(sluice_read(file, dst, n, offset, &op));
	assert_non_null(op);
	return op;
}

sluice_op *start_write(sluice_file *file, const void *src, size_t n, uint64_t offset)
{
	sluice_op *op = NULL;

	assert_ok(sluice_write(file, src, n, offset, &op));
	assert_non_null(op);
	return op;
}

sluice_op *start_move(sluice_file *file, bool write, void *data, size_t n, uint64_t offset)
{
	return write ? start_write(file, data, n, offset) : start_read(file, data, n, offset);
}

int64_t read_now(sluice_file *file, void *dst, size_t n, uint64_t offset)
{
	return finish(start_read(file, dst, n, offset));
}

int64_t write_now(sluice_file *file, const void *src, size_t n, uint64_t offset)
{
	return finish(start_write(file, src, n, offset));
}

/* ------------------------------------------------------------------------------------ extents */

static int submit_extents(sluice_file *file, int kind, const struct sluice_extent *v, size_t count,
                          bool on, sluice_stream stream, sluice_op **out)
{
	struct sluice_request r = SLUICE_REQUEST_INIT;

	r.kind = kind;
	r.extents = v;
	r.count = count;
	r.on = on;
	r.stream = stream;
	return sluice_submit(file, &r, out);
}

int submit_read(sluice_file *file, const struct sluice_extent *v, size_t count, sluice_op **out)
{
	return submit_extents(file, SLUICE_READ, v, count, false, NULL, out);
}

int submit_write(sluice_file *file, const struct sluice_extent *v, size_t count, sluice_op **out)
{
	return submit_extents(file, SLUICE_WRITE, v, count, false, NULL, out);
}

int submit_read_on(sluice_file *file, const struct sluice_extent *v, size_t count,
                   sluice_stream stream, sluice_op **out)
{
	return submit_extents(file, SLUICE_READ, v, count, true, stream, out);
}

int submit_write_on(sluice_file *file, const struct sluice_extent *v, size_t count,
                    sluice_stream stream, sluice_op **out)
{
	return submit_extents(file, SLUICE_WRITE, v, count, true, stream, out);
}
