/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads in parts that stop and go on later, to a server that behaves as the name of the bucket says. */
#include "http/s3_cases.h"

#include <unistd.h>

enum { PART = 64 << 10, PARTS = 9, LENGTH = PARTS * PART - 1000 };

static void small_parts(struct fixture *f)
{
	with(f, "SLUICE_S3_PART_BYTES", "64K");
	with(f, "SLUICE_S3_UPLOAD_BYTES", "2M");
}

static int open_upload(struct fixture *f, const char *uri, uint64_t length, const char *upload,
                       sluice_file **out)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;

	o.flags = SLUICE_OPEN_REPLACE;
	o.expected_size = length;
	o.upload = upload;
	return sluice_open(f->ctx, uri, &o, out);
}

static unsigned lines_of(const char *text)
{
	unsigned lines = 0;

	for (; (text = strchr(text, '\n')); text++)
		lines++;
	return lines - 1;
}

/* Sends parts 0, 1, 3 and 8 of an object, and stops. Returns the state, which the caller frees. */
static char *stop_in_the_middle(struct fixture *f, const char *uri, const struct buffer *b)
{
	static const int sent[] = {0, 1, 3, 8};
	sluice_file *file;
	char *text = NULL;
	int rc;

	assert_ok(open_upload(f, uri, LENGTH, NULL, &file));
	assert_refused(sluice_upload_state(file, &text), ENOENT, "not written in parts");
	for (size_t i = 0; i < COUNT_OF(sent); i++) {
		size_t at = (size_t)sent[i] * PART;

		assert_write(file, b->data + at, sent[i] == 8 ? PART - 1000 : PART, at);
	}
	/* Half a part is none. */
	assert_write(file, b->data + 4 * PART, PART / 2, 4 * PART);
	while ((rc = sluice_upload_state(file, &text)) || lines_of(text) < COUNT_OF(sent)) {
		assert_true(!rc || rc == -EAGAIN);
		free(text);
		text = NULL;
		sleep_ms(1);
	}
	sluice_discard(file);
	return text;
}

/* Goes on, as a program does that has nothing but the text. Returns how many parts it wrote. */
static int go_on(struct fixture *f, const char *uri, const char *upload, const struct buffer *b)
{
	bool there[PARTS] = {false};
	int written = 0;
	sluice_file *file;
	char *text;

	assert_ok(open_upload(f, uri, LENGTH, upload, &file));
	if (!sluice_upload_state(file, &text)) {
		for (char *line = strchr(text, '\n'); line[1]; line = strchr(line + 1, '\n'))
			there[strtoull(line + 1, NULL, 10) / PART] = true;
		free(text);
	}
	for (int i = 0; i < PARTS; i++)
		if (!there[i]) {
			size_t at = (size_t)i * PART;

			assert_ok(sluice_write(file, b->data + at, i == 8 ? PART - 1000 : PART, at,
			                       NULL));
			written++;
		}
	assert_ok(sluice_close(file));
	return written;
}

static void goes_on(struct fixture *f, const char *bucket, int again)
{
	const char *path = scratch(f, "object");
	struct buffer b = buffer_new(LENGTH, 16);
	long before = s3_counted(f, bucket, "PUT_partNumber_uploadId");
	char *text, *uri = strdup(s3_uri(bucket, path));

	small_parts(f);
	unlink(path);
	pattern_fill(b.data, LENGTH, 0, 11);
	text = stop_in_the_middle(f, uri, &b);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(s3_counted(f, bucket, "open"), 1);
	assert_int_equal(go_on(f, uri, text, &b), PARTS - 4 + again);
	assert_file_is(path, b.data, LENGTH);
	assert_int_equal(s3_counted(f, bucket, "open"), 0);
	assert_int_equal(s3_counted(f, bucket, "PUT_partNumber_uploadId"), before + PARTS + again);
	unlink(path);
	free(text);
	free(uri);
	buffer_free(&b);
}

S3_TEST(an_upload_that_stopped_goes_on_with_the_parts_that_are_missing)
{
	goes_on(f, "files", 0);
	if (s3_has_sums())
		goes_on(f, "checked", 0);
}

S3_TEST(parts_that_the_server_has_with_another_etag_are_sent_again)
{
	goes_on(f, "replaced", 2);
}

S3_TEST(an_upload_with_all_of_its_parts_is_completed)
{
	const char *path = scratch(f, "object");
	struct buffer b = buffer_new(LENGTH, 16);
	char *text = NULL, *uri = strdup(s3_uri("files", path));
	sluice_file *file;

	small_parts(f);
	pattern_fill(b.data, LENGTH, 0, 12);
	assert_ok(open_upload(f, uri, LENGTH, NULL, &file));
	assert_write(file, b.data, LENGTH, 0);
	while (sluice_upload_state(file, &text) || lines_of(text) < PARTS) {
		free(text);
		text = NULL;
		sleep_ms(1);
	}
	sluice_discard(file);
	assert_int_equal(go_on(f, uri, text, &b), 0);
	assert_file_is(path, b.data, LENGTH);
	free(text);
	free(uri);
	buffer_free(&b);
}

S3_TEST(an_upload_that_is_gone_does_not_go_on)
{
	struct buffer b = buffer_new(LENGTH, 16);
	char *text, *id, *uri = strdup(s3_uri("files", scratch(f, "object")));
	sluice_file *file;

	small_parts(f);
	pattern_fill(b.data, LENGTH, 0, 13);
	text = stop_in_the_middle(f, uri, &b);
	id = strndup(text, strcspn(text, "\n"));
	assert_ok(sluice_remove(f->ctx, uri, NULL, strrchr(id, ' ') + 1));
	assert_refused(open_upload(f, uri, LENGTH, text, &file), ENOENT, "NoSuchUpload");
	free(id);
	free(text);
	free(uri);
	buffer_free(&b);
}

S3_TEST(a_text_that_is_of_no_upload_is_refused)
{
	static const char *const begins[] = {
		"sluice upload 1 588824 65536 -", "sluice upload 1 588824 65536 - ",
		"sluice upload 1 588824 65536 CRC32C\n", "sluice upload 1 588824 65536 CRC32C \n",
		"sluice upload 1 588824 6000000000 - id\n"};
	struct buffer b = buffer_new(LENGTH, 16);
	char *text, *uri = strdup(s3_uri("files", scratch(f, "object")));
	struct rng r = rng_new(26);
	sluice_file *file;
	size_t n;
	int rc;

	small_parts(f);
	pattern_fill(b.data, LENGTH, 0, 14);
	text = stop_in_the_middle(f, uri, &b);
	n = strlen(text);
	assert_refused(open_upload(f, uri, LENGTH + 1, text, &file), EINVAL, "is not that of");
	assert_refused(open_upload(f, uri, LENGTH, "", &file), EINVAL, "is not that of");
	for (size_t i = 0; i < COUNT_OF(begins); i++)
		assert_refused(open_upload(f, uri, LENGTH, begins[i], &file), EINVAL,
		               "is not that of");
	assert_refused(open_upload(f, uri, 0, text, &file), EINVAL, "expected_size");
	assert_refused(open_upload(f, "/dev/null", LENGTH, text, &file), ENOTSUP, "S3");
	for (int i = 0; i < rounds_of(150); i++) {
		char *other = strdup(text);
		size_t at = rng_below(&r, n);

		other[at] = (char)rng_below(&r, 256);
		if (i % 3 == 0)
			other[rng_below(&r, n)] = '\0';
		rc = open_upload(f, uri, LENGTH, other, &file);
		if (rc)
			assert_true(rc == -EINVAL || rc == -ENOENT);
		else
			sluice_discard(file);
		free(other);
	}
	assert_int_equal(go_on(f, uri, text, &b), PARTS - 4);
	assert_int_equal(s3_counted(f, "files", "open"), 0);
	free(text);
	free(uri);
	buffer_free(&b);
}

S3_TEST(only_an_upload_of_known_length_has_a_state)
{
	static char bytes[3 * PART];
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	const char *path = scratch(f, "object");
	sluice_file *file;
	char *text;

	small_parts(f);
	o.flags = SLUICE_OPEN_REPLACE;
	assert_ok(sluice_open(f->ctx, s3_uri("files", path), &o, &file));
	assert_write(file, bytes, sizeof(bytes), 0);
	assert_refused(sluice_upload_state(file, &text), ENOTSUP, "no expected_size");
	sluice_discard(file);
	assert_ok(sluice_open(f->ctx, path, &o, &file));
	assert_refused(sluice_upload_state(file, &text), ENOTSUP, "not written in parts");
	sluice_discard(file);
	assert_refused(sluice_upload_state(NULL, &text), EINVAL, "NULL");
	assert_int_equal(s3_counted(f, "files", "open"), 0);
}
