/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service unlike S3, as sluice.c would have it: parts are blocks with ids of http's own, no request begins or drops an
 * upload, the signature covers the range and the length of the body, a conflict comes with 409, and lists are no XML.
 * tests/engine/service/blocks_test.py serves it, checks each signature, and runs this program.
 */
#define sl_s3_service blocks_service
#include "../../src/sluice.c"

#include "lib/unit.h"

#include <curl/curl.h>
#include <errno.h>

struct blocks_signer {
	struct sl_signer base;
	char url[512];
};

static struct sl_habits habits;

static int blocks_start(const struct sl_settings *settings, struct sl_keyring **out)
{
	static struct sl_keyring keyring = {&blocks_service};

	(void)settings;
	*out = &keyring;
	return 0;
}

static void blocks_stop(struct sl_keyring *keyring)
{
	(void)keyring;
}

static int blocks_open(struct sl_keyring *keyring, struct sl_pool *waiting, const char *uri,
                       const struct sluice_open_options *options, const char *query,
                       struct sl_signer **out)
{
	struct blocks_signer *signer = calloc(1, sizeof(*signer));
	int bucket = (int)strcspn(uri + 5, "/");

	(void)keyring, (void)waiting, (void)options;
	snprintf(signer->url, sizeof(signer->url), "%s/%.*s%s%s", getenv("BLOCKS_URL"),
	         query ? bucket : 400, uri + 5, query ? "?" : "", query ? query : "");
	signer->base = (struct sl_signer){&blocks_service, signer->url, NULL, &habits};
	*out = &signer->base;
	return 0;
}

static void blocks_close(struct sl_signer *signer)
{
	free(SL_CONTAINER(signer, struct blocks_signer, base));
}

static int blocks_query(struct sl_signer *signer, enum sl_service_call call, const char *upload,
                        unsigned part, char **out)
{
	(void)signer;
	*out = call == SL_CALL_PART       ? sl_format("comp=block&blockid=%s-%05u", upload, part)
	       : call == SL_CALL_COMPLETE ? strdup("comp=blocklist")
	                                  : NULL;
	return 0;
}

static void blocks_digest(const struct sl_signer *signer, const void *body, size_t bytes,
                          const uint32_t *crc, struct sl_service_digest *out)
{
	(void)signer, (void)body, (void)crc;
	strcpy(out->payload, "-");
	snprintf(out->line, sizeof(out->line), "x-blocks-bytes: %zu", bytes);
}

static const char *value_of(const struct curl_slist *lines, const char *name)
{
	size_t length = strlen(name);

	for (; lines; lines = lines->next)
		if (!strncasecmp(lines->data, name, length) && lines->data[length] == ':')
			return lines->data + length + 2;
	return "";
}

static int blocks_sign(struct sl_signer *signer, const struct sl_service_request *request,
                       struct curl_slist **lines, struct sl_service_signed *out)
{
	(void)signer, (void)out;
	if (request->seconds)
		return sl_line_put(lines, "signed=%s&life=%u", request->method, request->seconds);
	return sl_line_put(lines, "Authorization: Blocks %s|%llu|%s|%s|%s|%s", request->method,
	                   (unsigned long long)request->body_length, value_of(*lines, "Range"),
	                   value_of(*lines, "If-None-Match"), value_of(*lines, "x-blocks-bytes"),
	                   value_of(*lines, "x-meta-color"));
}

static void blocks_error(const char *body, struct sl_service_error *out)
{
	*out = (struct sl_service_error){0};
	snprintf(out->code, sizeof(out->code), "%s", body);
	out->whole = body[0];
	out->means = SL_MEANS_UNDONE | (strcmp(body, "Busy") ? 0 : SL_MEANS_PASSING);
	out->error = strcmp(body, "Exists") ? 0 : -EEXIST;
}

static enum sl_service_remedy blocks_judge(struct sl_signer *signer, unsigned version, long status,
                                           const struct sl_service_error *error, int64_t date)
{
	(void)signer, (void)version, (void)status, (void)error, (void)date;
	return SL_REMEDY_NONE;
}

static enum sl_service_answer blocks_answers(enum sl_service_call call, const char *body, char *out,
                                             size_t size)
{
	(void)body, (void)size;
	out[0] = '\0';
	return call == SL_CALL_PUT || call == SL_CALL_COMPLETE ? SL_ANSWER_ETAG : SL_ANSWER_ANY;
}

static int blocks_complete(const char *upload, const struct sl_service_part *parts, unsigned count,
                           char **out, char etag[SL_SERVICE_TEXT])
{
	char *text = calloc(count + 1, 64), *at = text;

	(void)parts;
	for (unsigned i = 0; i < count; i++)
		at += sprintf(at, "%s-%05u\n", upload, i + 1);
	*out = text;
	etag[0] = '\0';
	return 0;
}

static void blocks_etag(const void *data, size_t bytes, char out[SL_SERVICE_TEXT])
{
	(void)data, (void)bytes;
	out[0] = '\0';
}

static unsigned blocks_line(const char *line)
{
	return strncasecmp(line, "x-meta-", 7) ? SL_LINE_EACH : SL_LINE_METADATA;
}

static int blocks_list(const char *uri, unsigned flags, const char *token, char **out)
{
	if (flags & SLUICE_LIST_UPLOADS)
		return sl_fail(-ENOTSUP, "'%s': blocks are forgotten, not listed", uri);
	*out = sl_format("comp=list&marker=%s", token);
	return 0;
}

/* A page is a line for each name, with its length, and perhaps "next TOKEN". */
static int blocks_page(const char *uri, unsigned flags, char *body, struct sl_service_page *out,
                       char **token)
{
	char *next = strstr(body, "next ");

	(void)flags;
	*out = (struct sl_service_page){.uri = uri, .at = body};
	*token = next ? strdup(next + 5) : NULL;
	if (next)
		*next = '\0';
	return 0;
}

static int blocks_next(struct sl_service_page *page, struct sl_service_entry *out)
{
	int taken;
	unsigned long long length;

	if (sscanf(page->at, "%4095s %llu\n%n", out->name, &length, &taken) != 2)
		return 0;
	page->at += taken;
	out->length = length;
	out->modified = -1;
	return 1;
}

static const struct sl_service_signing blocks_signing = {
	.start = blocks_start,
	.stop = blocks_stop,
	.open = blocks_open,
	.close = blocks_close,
	.digest = blocks_digest,
	.sign = blocks_sign,
	.judge = blocks_judge,
};

static const struct sl_service_texts blocks_texts = {
	.query = blocks_query,
	.error = blocks_error,
	.answers = blocks_answers,
	.complete = blocks_complete,
	.etag = blocks_etag,
	.line = blocks_line,
};

static const struct sl_service_lists blocks_lists = {
	.query = blocks_list, .page = blocks_page, .next = blocks_next};

const struct sl_service blocks_service = {
	.scheme = "s3", /* as the row of sluice.c has it */
	.verbs = {[SL_CALL_PUT] = "PUT",
                  [SL_CALL_PART] = "PUT",
                  [SL_CALL_COMPLETE] = "PUT",
                  [SL_CALL_REMOVE] = "DELETE"},
	.limits = {.parts = 50000,
                   .part_most = UINT64_C(4000) << 20,
                   .copy_most = 1,
                   .group = 5000,
                   .grown = 8 << 20,
                   .too_far = "too far",
                   .too_long = "too long",
                   .too_large = "too large",
                   .left_behind = ""},
	.signing = &blocks_signing,
	.texts = &blocks_texts,
	.lists = &blocks_lists,
};

/* -------------------------------------------------------------------------------------- tests */

#define BYTES ((size_t)200 << 10)

static sluice_context *ctx;
static char bytes[BYTES];

static int setup(void **state)
{
	struct sluice_config config = SLUICE_CONFIG_INIT;

	(void)state;
	config.s3_part_bytes = 64 << 10;
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (char)(i * 7 + i / 251);
	return sluice_context_new(&config, &ctx);
}

static int teardown(void **state)
{
	(void)state;
	return sluice_context_close(ctx);
}

/* Returns the result of closing the file, or of opening it. */
static int put(const char *uri, size_t length, uint64_t expected, unsigned flags)
{
	static const char *const lines[] = {"x-meta-color: red", NULL};
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	sluice_op *op;
	sluice_file *file;
	int rc;

	options.flags = SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE | flags;
	options.expected_size = expected;
	options.headers = lines;
	rc = sluice_open(ctx, uri, &options, &file);
	if (rc)
		return rc;
	assert_int_equal(sluice_write(file, bytes, length, 0, &op), 0);
	assert_int_equal(sluice_wait(op, -1), length);
	sluice_op_free(op);
	return sluice_close(file);
}

static void assert_holds(const char *uri, size_t length)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	static char read[BYTES];
	sluice_op *op;
	sluice_file *file;

	options.flags = SLUICE_OPEN_READ;
	assert_int_equal(sluice_open(ctx, uri, &options, &file), 0);
	assert_int_equal(sluice_read(file, read, BYTES, 0, &op), 0);
	assert_int_equal(sluice_wait(op, -1), length);
	assert_memory_equal(read, bytes, length);
	sluice_op_free(op);
	assert_int_equal(sluice_close(file), 0);
}

TEST(an_object_is_a_put_or_a_list_of_blocks)
{
	assert_int_equal(put("s3://c/short", 1000, 1000, SLUICE_OPEN_REPLACE), 0);
	assert_holds("s3://c/short", 1000);
	assert_int_equal(put("s3://c/long", BYTES, BYTES, SLUICE_OPEN_REPLACE), 0);
	assert_holds("s3://c/long", BYTES);
	assert_int_equal(put("s3://c/unknown", BYTES - 1, 0, SLUICE_OPEN_REPLACE), 0);
	assert_holds("s3://c/unknown", BYTES - 1);
}

TEST(a_passing_error_is_told_by_its_code)
{
	/* The first PUT of each block below "busy" is refused by 409 and the word. */
	assert_int_equal(put("s3://c/busy", BYTES, BYTES, SLUICE_OPEN_REPLACE), 0);
	assert_holds("s3://c/busy", BYTES);
}

TEST(a_conflict_has_the_errno_of_its_code)
{
	/* "hidden" denies to HEAD that it exists. */
	assert_int_equal(put("s3://c/hidden", 1000, 1000, SLUICE_OPEN_REPLACE), 0);
	assert_int_equal(put("s3://c/hidden", 1000, 1000, SLUICE_OPEN_EXCLUSIVE), -EEXIST);
	assert_int_equal(put("s3://c/hidden", BYTES, BYTES, SLUICE_OPEN_EXCLUSIVE), -EEXIST);
}

TEST(a_discarded_upload_is_left_to_the_server)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	sluice_op *op;
	sluice_file *file;

	options.flags = SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE | SLUICE_OPEN_REPLACE;
	assert_int_equal(sluice_open(ctx, "s3://c/dropped", &options, &file), 0);
	assert_int_equal(sluice_write(file, bytes, BYTES, 0, &op), 0);
	assert_int_equal(sluice_wait(op, -1), BYTES);
	sluice_op_free(op);
	sluice_discard(file);
	options.flags = SLUICE_OPEN_READ;
	assert_int_equal(sluice_open(ctx, "s3://c/dropped", &options, &file), -ENOENT);
}

TEST(names_are_listed_over_an_empty_page_and_removed)
{
	static const char *const both[] = {"s3://l/a", "s3://l/b"};
	struct sluice_entry entry = {.size = sizeof(entry)};
	sluice_list *list;
	unsigned count = 0;
	int errors[2];

	for (int i = 0; i < 2; i++)
		assert_int_equal(put(both[i], 1000, 1000, SLUICE_OPEN_REPLACE), 0);
	assert_int_equal(sluice_list_open(ctx, "s3://l/", NULL, 0, &list), 0);
	for (; sluice_list_next(list, &entry) == 1; count++)
		assert_int_equal(entry.length, 1000);
	assert_int_equal(count, 2);
	sluice_list_free(list);
	assert_int_equal(sluice_remove_many(ctx, both, 2, NULL, errors, NULL), 0);
	assert_int_equal(sluice_remove(ctx, both[0], NULL, NULL), -ENOENT);
}

TEST(a_service_refuses_its_missing_requests)
{
	char *url;

	assert_int_equal(sluice_copy_object(ctx, "s3://c/short", "s3://c/copy", NULL), -ENOTSUP);
	assert_int_equal(sluice_remove(ctx, "s3://c/short", NULL, "upload"), -ENOTSUP);
	assert_non_null(strstr(sluice_last_message(), "no such request"));
	assert_int_equal(
		sluice_list_open(ctx, "s3://c/", NULL, SLUICE_LIST_UPLOADS, &(sluice_list *){NULL}),
		-ENOTSUP);
	assert_int_equal(sluice_presign(ctx, "GET", "s3://c/short", NULL, 60, &url, NULL), 0);
	assert_non_null(strstr(url, "/c/short?signed=GET&life=60"));
	free(url);
}

int main(void)
{
	return RUN_TESTS(setup, teardown);
}
