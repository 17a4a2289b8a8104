/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of S3 that are written in parts, to a server that behaves as the name of the bucket says. */
#include "http/s3_cases.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEAST(a, b) ((a) < (b) ? (a) : (b))

enum { PART = 64 << 10, LONG_PART = 512 << 10 };

/* Writes in steps without waiting for them, and closes. */
static int put(struct fixture *f, const char *uri, unsigned flags, uint64_t expected,
               const struct buffer *b, size_t step)
{
	sluice_file *file = s3_open_put(f, uri, flags, expected);

	for (size_t at = 0; at < b->length; at += step)
		sluice_write(file, b->data + at, LEAST(step, b->length - at), at, NULL);
	return sluice_close(file);
}

/* So long that a thread copies no more than one. */
static void long_parts(struct fixture *f)
{
	with(f, "SLUICE_S3_PART_BYTES", "512K");
	with(f, "SLUICE_S3_UPLOAD_BYTES", "4M");
}

/* An object of several parts arrives in that bucket, whatever goes wrong there. */
static void arrives(struct fixture *f, const char *bucket, size_t n, bool known, size_t step)
{
	const char *path = scratch(f, "object");
	struct buffer b = buffer_new(n, 16);

	pattern_fill(b.data, n, 0, n);
	unlink(path);
	assert_ok(put(f, s3_uri(bucket, path), 0, known ? n : 0, &b, step));
	assert_file_is(path, b.data, n);
	assert_int_equal(s3_counted(f, bucket, "open"), 0);
	unlink(path);
	buffer_free(&b);
}

S3_TEST(an_object_of_any_length_arrives_in_parts)
{
	static const size_t lengths[] = {0,        1,        PART - 1,      PART,
	                                 PART + 1, 2 * PART, 3 * PART + 11, 40 * PART + 7};
	static const size_t steps[] = {1 << 30, 9973, 3 * PART};

	s3_small_parts(f);
	for (size_t i = 0; i < COUNT_OF(lengths); i++)
		for (size_t j = 0; j < COUNT_OF(steps); j++)
			arrives(f, "files", lengths[i], (i + j) % 2, steps[j]);
}

/* What was sent, of which the server counts each request. */
S3_TEST(a_short_object_is_a_single_request_and_a_long_one_three_and_its_parts)
{
	long puts, parts;

	s3_small_parts(f);
	puts = s3_counted(f, "once", "PUT");
	parts = s3_counted(f, "once", "PUT_partNumber_uploadId");
	arrives(f, "once", PART, false, 1000);
	arrives(f, "once", PART, true, 1000);
	assert_int_equal(s3_counted(f, "once", "PUT"), puts + 2);
	assert_int_equal(s3_counted(f, "once", "PUT_partNumber_uploadId"), parts);
	arrives(f, "once", 9 * PART + 1, false, 1 << 30);
	arrives(f, "once", 9 * PART + 1, true, 1 << 30);
	assert_int_equal(s3_counted(f, "once", "PUT"), puts + 2);
	assert_int_equal(s3_counted(f, "once", "PUT_partNumber_uploadId"), parts + 20);
}

/* Each write is waited for, those of a window in an order that leaves its first part half filled until the end. */
S3_TEST(writes_within_a_window_come_in_any_order)
{
	enum { WINDOW = 4, PIECES = 16, PIECE = PART / PIECES, ROUNDS = 6 };
	const char *path = scratch(f, "object");
	struct buffer b = buffer_new((size_t)ROUNDS * WINDOW * PART, 0);
	struct rng r = rng_new(26);
	sluice_file *file;

	s3_small_parts(f);
	pattern_fill(b.data, b.length, 0, 3);
	file = s3_open_put(f, s3_uri("files", path), 0, 0);
	for (int round = 0; round < ROUNDS; round++) {
		int order[WINDOW * PIECES];

		for (int i = 0; i < WINDOW * PIECES; i++) {
			int j = (int)rng_below(&r, i + 1);

			order[i] = order[j];
			order[j] = i;
		}
		/* The first piece comes last, so nothing moves the window before. */
		for (int i = 0; i < WINDOW * PIECES; i++)
			if (!order[i]) {
				order[i] = order[WINDOW * PIECES - 1];
				order[WINDOW * PIECES - 1] = 0;
			}
		for (int i = 0; i < WINDOW * PIECES; i++) {
			size_t at = (size_t)round * WINDOW * PART + (size_t)order[i] * PIECE;

			assert_write(file, b.data + at, PIECE, at);
		}
	}
	assert_int_not_equal(access(path, F_OK), 0);
	assert_ok(sluice_close(file));
	assert_file_is(path, b.data, b.length);
	buffer_free(&b);
}

S3_TEST(an_upload_has_more_memory_when_others_are_over)
{
	static const int order[] = {0, 2, 1, 5, 6, 4, 3};
	struct buffer b = buffer_new(COUNT_OF(order) * PART, 0);
	const char *path;
	sluice_file *others[2], *file;

	s3_small_parts(f);
	pattern_fill(b.data, b.length, 0, 3);
	for (int i = 0; i < 2; i++)
		others[i] = s3_open_put(f, s3_uri("files", scratch(f, "other")), 0, 0);
	path = scratch(f, "object");
	file = s3_open_put(f, s3_uri("files", path), 0, 0);
	for (int i = 0; i < 2; i++)
		sluice_discard(others[i]);
	/* The window was a part, and doubles with each that is full. */
	for (size_t i = 0; i < COUNT_OF(order); i++)
		assert_write(file, b.data + order[i] * PART, PART, order[i] * PART);
	assert_ok(sluice_close(file));
	assert_file_is(path, b.data, b.length);
	buffer_free(&b);
}

/* Each begins with its second part, of which a file with memory for one could not say when it gets a buffer. */
S3_TEST(uploads_that_begin_together_have_as_much_memory_each)
{
	enum { FILES = 8 };
	struct buffer b = buffer_new(2 * PART + 1, 0);
	sluice_file *files[FILES];
	char name[24];

	with(f, "SLUICE_S3_PART_BYTES", "64K");
	with(f, "SLUICE_S3_UPLOAD_BYTES", "1M");
	pattern_fill(b.data, b.length, 0, 3);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "object%d", i);
		files[i] = s3_open_put(f, s3_uri("files", scratch(f, name)), 0, 0);
	}
	for (int i = FILES - 1; i >= 0; i--)
		assert_write(files[i], b.data + PART, PART, PART);
	for (int i = 0; i < FILES; i++) {
		assert_write(files[i], b.data, PART, 0);
		assert_write(files[i], b.data + 2 * PART, 1, 2 * PART);
		assert_ok(sluice_close(files[i]));
		snprintf(name, sizeof(name), "object%d", i);
		assert_file_is(scratch(f, name), b.data, b.length);
	}
	buffer_free(&b);
}

static void refuses(struct fixture *f, uint64_t first, uint64_t second, int error, const char *says)
{
	static char bytes[2 * PART];
	const char *path = scratch(f, "object");
	sluice_file *file = s3_open_put(f, s3_uri("files", path), 0, 0);
	sluice_op *op;

	assert_write(file, bytes, sizeof(bytes), first);
	op = start_write(file, bytes, sizeof(bytes), second);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -error);
	assert_non_null(strstr(sluice_op_message(op), says));
	sluice_op_free(op);
	assert_refused(sluice_close(file), error, says);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(s3_counted(f, "files", "open"), 0);
}

S3_TEST(a_write_that_overlaps_or_is_too_far_ahead_is_refused)
{
	s3_small_parts(f);
	for (uint64_t at = 0; at < 2 * PART; at += PART / 2 + 1)
		refuses(f, 0, at, ESPIPE, "already");
	refuses(f, PART, 1, ESPIPE, "already");
	refuses(f, 2 * PART, 3 * PART + 5, ESPIPE, "already");
	refuses(f, 0, 9 * PART, ESPIPE, "too far ahead");
	refuses(f, 2 * PART, 4 * PART, ESPIPE, "too far ahead");
}

S3_TEST(an_object_with_a_gap_or_of_another_length_is_none)
{
	static char bytes[5 * PART];
	const char *path = scratch(f, "object"), *uri = s3_uri("files", path);
	sluice_file *file;

	s3_small_parts(f);
	file = s3_open_put(f, uri, 0, 0);
	assert_write(file, bytes, PART, 0);
	assert_write(file, bytes, PART, PART + 1);
	assert_refused(sluice_close(file), EINVAL, "nothing was written at byte 65536");
	file = s3_open_put(f, uri, 0, sizeof(bytes));
	assert_write(file, bytes, sizeof(bytes) - 1, 0);
	assert_refused(sluice_close(file), EINVAL, "expected_size was 327680");
	file = s3_open_put(f, uri, 0, 3 * PART);
	assert_int_equal(write_now(file, bytes, 3 * PART + 1, 0), -EFBIG);
	assert_true(sluice_close(file) < 0);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(s3_counted(f, "files", "open"), 0);
}

/* The long write is copied by a thread of the pool meanwhile, and fails with the other. */
S3_TEST(all_writes_of_an_object_that_gets_too_long_say_why)
{
	static char bytes[8 * PART];
	int failed = 0;

	s3_small_parts(f);
	for (int i = 0; i < 200 && failed < 8; i++) {
		sluice_file *file = s3_open_put(f, "s3://sink/long", 0, sizeof(bytes));
		sluice_op *op = start_write(file, bytes, sizeof(bytes), 0);

		assert_int_equal(write_now(file, bytes, 1, sizeof(bytes)), -EFBIG);
		if (sluice_wait(op, PATIENCE_MS) < 0) {
			failed++;
			assert_non_null(strstr(sluice_op_message(op), "expected_size"));
		}
		sluice_op_free(op);
		sluice_discard(file);
	}
	assert_int_equal(s3_counted(f, "sink", "open"), 0);
}

/* The answer that begins an upload has the key, of which each '&' is five characters. */
S3_TEST(an_upload_of_a_long_name_has_its_id)
{
	static unsigned char bytes[3 * PART];
	struct buffer b = {.data = bytes, .length = sizeof(bytes)};
	char uri[1100] = "s3://sink/";

	s3_small_parts(f);
	memset(uri + strlen(uri), '&', 1024);
	for (size_t i = 100; i < 1024; i += 100)
		uri[i] = '/';
	assert_ok(put(f, uri, 0, 0, &b, PART));
	assert_int_equal(s3_counted(f, "sink", "open"), 0);
}

S3_TEST(a_part_that_fails_is_sent_again)
{
	s3_small_parts(f);
	arrives(f, "hurried", 5 * PART + 7, false, 1 << 30);
	arrives(f, "cut", 5 * PART + 7, true, 1 << 30);
	assert_int_equal(s3_counted(f, "hurried", "PUT_partNumber_uploadId"), 12);
}

S3_TEST(a_part_without_an_answer_is_sent_again)
{
	s3_small_parts(f);
	with(f, "SLUICE_HTTP_STALL_MS", "500");
	arrives(f, "still", 5 * PART + 7, false, 1 << 30);
}

S3_TEST(an_object_is_there_although_the_last_answer_was_lost)
{
	s3_small_parts(f);
	arrives(f, "lost-hashed", 5 * PART + 7, false, 1 << 30);
	arrives(f, "unsure", 5 * PART + 7, true, 1 << 30);
}

/* Where ETags are no MD5s an object that is younger than the upload is ours, by the clock of the server. */
S3_TEST(an_object_that_may_be_there_is_said_so)
{
	const char *path = scratch(f, "object");
	static char bytes[3 * PART];
	sluice_file *file;

	s3_small_parts(f);
	for (int skewed = 0; skewed < 2; skewed++) {
		file = s3_open_put(f, s3_uri(skewed ? "lost-skewed" : "lost", path), 0, 0);
		assert_write(file, bytes, sizeof(bytes), 0);
		while (!skewed && !s3_counted(f, "lost", "PUT_partNumber_uploadId"))
			sleep_ms(5);
		/* The times are of whole seconds. The skewed server says that the upload began an hour later. */
		sleep_ms(skewed ? 0 : 1100);
		if (skewed)
			assert_refused(sluice_close(file), ENOENT, "may be there");
		else
			assert_ok(sluice_close(file));
		assert_int_equal(file_length(path), sizeof(bytes));
		unlink(path);
	}
}

S3_TEST(an_upload_that_the_server_refuses_leaves_nothing)
{
	const char *path = scratch(f, "object");
	struct buffer b = buffer_new(30 * PART, 0);

	s3_small_parts(f);
	file_make(path, 100, 1);
	assert_refused(put(f, s3_uri("denied", path), 0, 0, &b, PART), EACCES, "AccessDenied");
	assert_int_equal(s3_counted(f, "denied", "open"), 0);
	assert_true(s3_counted(f, "denied", "DELETE_uploadId") > 0);
	assert_int_equal(file_length(path), 100);
	/* The sentence says why the upload failed, whatever comes of dropping it. */
	assert_refused(put(f, s3_uri("denied-stuck", path), 0, 0, &b, PART), EACCES,
	               "AccessDenied");
	/* Before it begins. */
	setenv("AWS_SECRET_ACCESS_KEY", "wrong", 1);
	assert_refused(put(f, s3_uri("files", path), 0, 0, &b, PART), EACCES,
	               "SignatureDoesNotMatch");
	buffer_free(&b);
}

S3_TEST(keys_that_expire_in_the_middle_are_renewed)
{
	char config[2048], runs[512];

	s3_small_parts(f);
	snprintf(runs, sizeof(runs), "%s", scratch(f, "runs"));
	snprintf(
		config, sizeof(config),
		"[default]\ncredential_process = echo run >> %s; test $(wc -l < %s) = 1 && t=token "
		"|| t=token-2; printf '{\"Version\": 1, \"AccessKeyId\": \"ASIATEST\", "
		"\"SecretAccessKey\": \"another/secret\", \"SessionToken\": \"%%s\"}' $t\n",
		runs, runs);
	file_write(scratch(f, "config"), config, strlen(config), 0);
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_SECRET_ACCESS_KEY");
	setenv("AWS_CONFIG_FILE", scratch(f, "config"), 1);
	{
		const char *path = scratch(f, "object");
		struct buffer b = buffer_new(9 * PART, 0);

		pattern_fill(b.data, b.length, 0, 9);
		assert_ok(put(f, s3_uri("expiring", path), 0, 0, &b, PART));
		assert_file_is(path, b.data, b.length);
		buffer_free(&b);
	}
	assert_int_equal(file_length(runs), 8);
}

S3_TEST(an_object_that_exists_is_not_overwritten)
{
	const char *path = scratch(f, "object");
	struct buffer b = buffer_new(5 * PART, 0);
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file, *other;

	s3_small_parts(f);
	o.flags = SLUICE_OPEN_REPLACE | SLUICE_OPEN_EXCLUSIVE;
	for (size_t n = PART; n <= b.length; n += b.length - PART) {
		/* Two that begin while there is none. */
		unlink(path);
		file = s3_open_put(f, s3_uri("files", path), SLUICE_OPEN_EXCLUSIVE, 0);
		other = s3_open_put(f, s3_uri("files", path), SLUICE_OPEN_EXCLUSIVE, 0);
		assert_write(file, b.data, n, 0);
		assert_write(other, b.data, n, 0);
		assert_ok(sluice_close(file));
		assert_refused(sluice_close(other), EEXIST, "exists");
		assert_refused(sluice_open(f->ctx, s3_uri("files", path), &o, &file), EEXIST,
		               "exists");
	}
	assert_int_equal(s3_counted(f, "files", "open"), 0);
	buffer_free(&b);
}

S3_TEST(a_discarded_upload_leaves_nothing)
{
	const char *path = scratch(f, "object");
	struct buffer b = buffer_new(6 * PART, 0);
	sluice_file *file;

	s3_small_parts(f);
	for (size_t n = 0; n <= b.length; n += PART / 2 * 3) {
		file = s3_open_put(f, s3_uri("files", path), 0, n % 2 ? b.length : 0);
		if (n)
			assert_write(file, b.data, n, 0);
		sluice_discard(file);
	}
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(s3_counted(f, "files", "open"), 0);
	buffer_free(&b);
}

/* The server holds the parts, so most of the bytes wait for buffers. Several threads copy those of longer parts. */
S3_TEST(a_write_that_waits_for_a_buffer_is_cancelled)
{
	const char *path = scratch(f, "object");

	for (size_t part = PART; part; part = part == PART ? LONG_PART : 0) {
		struct buffer b = buffer_new(20 * part, 0);
		double begun;
		sluice_file *file;
		sluice_op *op;

		if (part == PART)
			s3_small_parts(f);
		else
			long_parts(f);
		file = s3_open_put(f, s3_uri("held", path), 0, 0);
		op = start_write(file, b.data, b.length, 0);
		while (!s3_counted(f, "held", "PUT_partNumber_uploadId"))
			sleep_ms(5);
		assert_int_equal(sluice_poll(op), 0);
		begun = seconds_now();
		assert_int_equal(sluice_cancel(op), 0);
		assert_int_equal(sluice_wait(op, PATIENCE_MS), -ECANCELED);
		sluice_op_free(op);
		/* The memory is the caller's again. */
		buffer_free(&b);
		assert_int_equal(sluice_close(file), -ECANCELED);
		assert_soon(begun);
		assert_int_equal(s3_counted(f, "held", "open"), 0);
	}
	s3_counted(f, "go", "open");
	assert_int_not_equal(access(path, F_OK), 0);
}

/* Several threads copy the parts of a long write, and some servers get them again. */
S3_TEST(parts_of_a_long_write_are_copied_side_by_side)
{
	const char *buckets[] = {"files", "hurried", "cut", "checked"};

	long_parts(f);
	for (size_t i = 0; i < COUNT_OF(buckets); i++) {
		arrives(f, buckets[i], 14 * LONG_PART + 7, i % 2, 1 << 30);
		arrives(f, buckets[i], 13 * LONG_PART, i % 2, 5 * LONG_PART + LONG_PART / 2);
	}
}

/* Between fork and the end of the child, which has a context of its own. */
static void child_leaves_in_the_middle(const char *uri)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	static char bytes[5 * PART];
	sluice_context *ctx;
	sluice_file *file;

	o.flags = SLUICE_OPEN_REPLACE;
	if (sluice_context_new(NULL, &ctx) || sluice_open(ctx, uri, &o, &file) ||
	    sluice_write(file, bytes, sizeof(bytes), 0, NULL) || sluice_sync(file))
		_exit(1);
	exit(0);
}

S3_TEST(a_process_that_ends_in_the_middle_leaves_nothing)
{
	const char *path = scratch(f, "object"), *uri = s3_uri("exits", path);
	sluice_file *file;
	static char bytes[2 * PART];
	int status;
	pid_t child;

	s3_small_parts(f);
	/* An upload of the parent is none of the child's. */
	file = s3_open_put(f, uri, 0, 0);
	assert_write(file, bytes, sizeof(bytes), 0);
	child = fork();
	if (!child) {
		forget_leaks();
		child_leaves_in_the_middle(uri);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_ok(sluice_close(file));
	assert_int_equal(file_length(path), sizeof(bytes));
	assert_int_equal(s3_counted(f, "exits", "POST_uploads"), 2);
	assert_int_equal(s3_counted(f, "exits", "open"), 0);
}

S3_TEST(several_files_are_written_side_by_side)
{
	enum { FILES = 5 };
	struct buffer b = buffer_new(10 * PART + 3, 0);
	sluice_file *files[FILES];
	char name[20];

	s3_small_parts(f);
	pattern_fill(b.data, b.length, 0, 4);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "object%d", i);
		files[i] = s3_open_put(f, s3_uri("files", scratch(f, name)), 0, 0);
	}
	for (size_t at = 0; at < b.length; at += PART - 5)
		for (int i = 0; i < FILES; i++)
			assert_ok(sluice_write(files[i], b.data + at,
			                       LEAST((size_t)PART - 5, b.length - at), at, NULL));
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "object%d", i);
		assert_ok(sluice_close(files[i]));
		assert_file_is(scratch(f, name), b.data, b.length);
	}
	buffer_free(&b);
}

/* ------------------------------------------------------------------------ removal, what is left */

/* Starts uploads that nobody completes: children that are killed. */
static void leave_uploads(struct fixture *f, int count)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	char name[32];

	o.flags = SLUICE_OPEN_REPLACE;
	for (int i = 0; i < count; i++) {
		const char *uri;
		pid_t child;

		snprintf(name, sizeof(name), "left %d+%%", i);
		uri = s3_uri("left", scratch(f, name));
		child = fork();
		if (!child) {
			static char bytes[3 * PART];
			sluice_context *ctx;
			sluice_file *file;

			if (sluice_context_new(NULL, &ctx) || sluice_open(ctx, uri, &o, &file) ||
			    write_now(file, bytes, sizeof(bytes), 0) < 0)
				_exit(1);
			pause();
		}
		while (s3_counted(f, "left", "open") < i + 1)
			sleep_ms(5);
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, NULL, 0), child);
	}
}

S3_TEST(uploads_that_were_left_are_listed_and_removed)
{
	enum { LEFT = 5 };
	struct sluice_entry e = {.size = sizeof(e)};
	char uris[LEFT][512], ids[LEFT][200];
	sluice_list *list;
	int count = 0, rc;

	s3_small_parts(f);
	leave_uploads(f, LEFT);
	assert_int_equal(s3_counted(f, "left", "open"), LEFT);
	assert_ok(sluice_list_open(f->ctx, "s3://left", NULL, SLUICE_LIST_UPLOADS, &list));
	while ((rc = sluice_list_next(list, &e)) > 0) {
		assert_true(count < LEFT);
		assert_int_equal(e.modified_ns, INT64_C(1440938160) * 1000000000);
		snprintf(uris[count], sizeof(uris[count]), "s3://left/%s", e.name);
		snprintf(ids[count++], sizeof(ids[0]), "%s", e.upload);
	}
	assert_ok(rc);
	sluice_list_free(list);
	assert_int_equal(count, LEFT);
	for (int i = 0; i < LEFT; i++) {
		assert_non_null(strstr(uris[i], "+%"));
		assert_ok(sluice_remove(f->ctx, uris[i], NULL, ids[i]));
		assert_refused(sluice_remove(f->ctx, uris[i], NULL, ids[i]), ENOENT,
		               "NoSuchUpload");
	}
	assert_int_equal(s3_counted(f, "left", "open"), 0);
}

S3_TEST(an_object_is_removed)
{
	const char *path = scratch(f, "object");

	file_make(path, 100, 1);
	assert_ok(sluice_remove(f->ctx, s3_uri("north", path), NULL, NULL));
	assert_int_not_equal(access(path, F_OK), 0);
	assert_ok(sluice_remove(f->ctx, s3_uri("north", path), NULL, NULL));
	assert_refused(sluice_remove(f->ctx, "s3://none/x", NULL, NULL), ENOENT, "NoSuchBucket");
	assert_refused(sluice_remove(f->ctx, "s3://files/", NULL, NULL), EISDIR, "is a bucket");
	assert_refused(sluice_remove(f->ctx, "store://x", NULL, NULL), ENOTSUP, "S3");
	assert_refused(sluice_remove(f->ctx, NULL, NULL, NULL), EINVAL, "NULL");
}

/* Writes an object of that length with these options; returns 0 or the error. */
static int put_with(struct fixture *f, const char *uri, const struct sluice_s3_options *s3,
                    size_t n)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	struct buffer b = buffer_new(n + 1, 0);
	sluice_file *file;

	pattern_fill(b.data, n, 0, 9);
	o.flags = SLUICE_OPEN_REPLACE;
	o.s3 = s3;
	assert_ok(sluice_open(f->ctx, uri, &o, &file));
	if (n)
		assert_moves(start_write(file, b.data, n, 0), n);
	buffer_free(&b);
	return sluice_close(file);
}

S3_TEST(a_signature_covers_the_body_if_that_is_asked_for)
{
	static const size_t lengths[] = {0, 1000, 5 * PART + 7};
	struct sluice_s3_options s3 = SLUICE_S3_OPTIONS_INIT;
	struct buffer b = buffer_new(5 * PART + 7, 0);
	const char *path = scratch(f, "sealed");

	s3_small_parts(f);
	s3.sign_payload = 1;
	pattern_fill(b.data, b.length, 0, 9);
	for (size_t i = 0; i < COUNT_OF(lengths); i++) {
		assert_ok(put_with(f, s3_uri("sealed", path), &s3, lengths[i]));
		assert_file_is(path, b.data, lengths[i]);
	}
	reads_with(f, "sealed", &s3);
	assert_refused(put_with(f, s3_uri("sealed", path), NULL, 10), EIO,
	               "XAmzContentSHA256Mismatch");
	assert_refused(put_with(f, s3_uri("files", path), &s3, 10), EIO,
	               "XAmzContentSHA256Mismatch");
	buffer_free(&b);
}

/* ---------------------------------------------------------------------------------- checksums */

S3_TEST(parts_and_objects_have_the_checksums_that_the_server_checks)
{
	if (!s3_has_sums())
		SKIP("this build has no ISA-L");
	s3_small_parts(f);
	arrives(f, "checked", 0, false, 1);
	arrives(f, "checked", PART, true, 1000);
	arrives(f, "checked", 5 * PART + 7, false, 1 << 30);
	arrives(f, "checked-hurried", 3 * PART, true, 9973);
}

S3_TEST(checksums_of_long_copies_are_those_of_their_parts)
{
	static const size_t steps[] = {LONG_PART / 4, LONG_PART / 5 + 1, LONG_PART + LONG_PART / 3};

	if (!s3_has_sums())
		SKIP("this build has no ISA-L");
	long_parts(f);
	for (size_t i = 0; i < 2 * COUNT_OF(steps); i++) {
		arrives(f, "checked", 3 * LONG_PART + LONG_PART / 2, i % 2, steps[i / 2]);
		/* A single request, of a part whose end was not known while it was copied. */
		arrives(f, "checked", LONG_PART / 2, i % 2, steps[i / 2]);
	}
}

S3_TEST(another_checksum_in_the_answer_is_an_error_that_names_the_part)
{
	const char *path = scratch(f, "object");
	struct buffer b = buffer_new(3 * PART, 16), small = buffer_new(PART, 16);

	if (!s3_has_sums())
		SKIP("this build has no ISA-L");
	s3_small_parts(f);
	pattern_fill(b.data, b.length, 0, 5);
	assert_refused(put(f, s3_uri("checked-wrong", path), 0, 0, &b, b.length), EIO,
	               " was sent with the CRC-32C ");
	assert_non_null(strstr(sluice_last_message(), "part "));
	assert_int_equal(s3_counted(f, "checked-wrong", "open"), 0);
	assert_refused(put(f, s3_uri("checked-wrong", path), 0, 0, &small, PART), EIO,
	               "the object was sent");
	buffer_free(&b);
	buffer_free(&small);
}

S3_TEST(a_server_that_refuses_checksums_gets_none)
{
	s3_small_parts(f);
	arrives(f, "unaware", PART, true, 1000);
	arrives(f, "unaware", 5 * PART + 7, false, 1 << 30);
}
