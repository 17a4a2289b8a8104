/* SPDX-License-Identifier: Apache-2.0 */
/* Names of objects and their addresses; signatures: the published cases; XML and ETags of answers. */
#include "s3/s3_internal.h"
#include "s3/sign.h"

#include "lib/unit.h"

#include <errno.h>

#include "s3/vectors.h"

TEST(published_requests_are_signed_as_published)
{
	unsigned normalised = 0;

	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		const struct vector *v = &vectors[i];
		struct sl_sign_request request = {
			.method = v->method,
			.query = v->query,
			.lines = v->lines,
			.payload = v->payload,
			.date = v->date,
			.region = v->region,
			.service = v->service,
			.id = v->id,
			.secret = v->secret,
		};
		char *path, *target, *said, expected[1024];
		struct sl_sign_key key = {.day = "20000101"};

		target = strndup(v->target, strcspn(v->target, "?"));
		path = sl_uri_escape(target, true);
		if (strcmp(path, v->path) != 0)
			assert_true(v->normalised);
		normalised += strcmp(path, v->path) != 0;
		request.path = v->path;
		assert_int_equal(sl_sign(&request, &said), 0);
		snprintf(expected, sizeof(expected),
		         "AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/%s/aws4_request, "
		         "SignedHeaders=%s, Signature=%s",
		         v->id, v->date, v->region, v->service, v->names, v->signature);
		if (strcmp(said, expected) != 0)
			fail_msg("%s: %s, not %s", v->name, said, expected);
		free(said);
		/* The key of another day is derived anew, and then serves again. */
		request.key = &key;
		for (int again = 0; again < 2; again++) {
			assert_int_equal(sl_sign(&request, &said), 0);
			assert_string_equal(said, expected);
			assert_memory_equal(key.day, v->date, 8);
			free(said);
		}
		free(target);
		free(path);
	}
	/* The paths that only another service than S3 would change. */
	assert_int_equal(normalised, 6);
}

/* The example of "Authenticating Requests: Using Query Parameters" in the reference of S3's API. */
TEST(the_published_url_is_signed_as_published)
{
	const char *lines[] = {"host: examplebucket.s3.amazonaws.com", NULL};
	struct sl_sign_request request = {
		.method = "GET",
		.path = "/test.txt",
		.query = "",
		.lines = lines,
		.payload = "UNSIGNED-PAYLOAD",
		.date = "20130524T000000Z",
		.region = "us-east-1",
		.service = "s3",
		.id = "AKIAIOSFODNN7EXAMPLE",
		.secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		.seconds = 86400,
	};
	char *query;

	assert_int_equal(sl_sign(&request, &query), 0);
	assert_string_equal(
		query,
		"X-Amz-Algorithm=AWS4-HMAC-SHA256"
		"&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
		"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
		"&X-Amz-Signature="
		"aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
	free(query);
}

TEST(a_key_is_the_bytes_behind_the_bucket)
{
	static const char *const keys[] = {"",      "a",     "/",      "a//b",    "../x",
	                                   "a?b#c", "a%20b", "sp ace", "a#/b",    "tail/",
	                                   "a\nb",  "a+b=c", "./.",    "\303\274"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		struct sl_s3_name name;
		char uri[64];

		snprintf(uri, sizeof(uri), "s3://bucket/%s", keys[i]);
		assert_int_equal(sl_s3_name_parse(uri, &name), 0);
		assert_string_equal(name.bucket, "bucket");
		assert_string_equal(name.key, keys[i]);
		sl_s3_name_clear(&name);
	}
}

TEST(names_that_no_bucket_has_are_refused)
{
	static const char *const uris[] = {"s3:///key", "s3://b c/key", "s3://user@b/key",
	                                   "s3://arn:aws:s3:eu-west-1:1:accesspoint/a/key",
	                                   "s3://b?x/key"};
	struct sl_s3_name name;

	for (size_t i = 0; i < sizeof(uris) / sizeof(uris[0]); i++)
		assert_int_equal(sl_s3_name_parse(uris[i], &name), -EINVAL);
}

TEST(an_object_has_the_url_of_its_bucket_and_key)
{
	static const struct {
		const char *uri, *endpoint, *addressing, *region, *query, *url, *host, *path;
	} rows[] = {
		{"s3://b/k", NULL, NULL, "eu-west-1", NULL,
	         "https://b.s3.eu-west-1.amazonaws.com/k", "b.s3.eu-west-1.amazonaws.com", "/k"},
		{"s3://b/k", NULL, "path", "cn-north-1", NULL,
	         "https://s3.cn-north-1.amazonaws.com.cn/b/k", "s3.cn-north-1.amazonaws.com.cn",
	         "/b/k"},
		{"s3://b.c/k", NULL, NULL, "us-east-1", NULL,
	         "https://s3.us-east-1.amazonaws.com/b.c/k", "s3.us-east-1.amazonaws.com",
	         "/b.c/k"},
		{"s3://Old_One/k", NULL, NULL, "us-east-1", NULL,
	         "https://s3.us-east-1.amazonaws.com/Old_One/k", "s3.us-east-1.amazonaws.com",
	         "/Old_One/k"},
		{"s3://b//a/../b c+d=%41?#/", "http://Host:80/", NULL, "r", NULL,
	         "http://host/b//a/../b%20c%2Bd%3D%2541%3F%23/", "host",
	         "/b//a/../b%20c%2Bd%3D%2541%3F%23/"},
		{"s3://b/\303\274\n", "https://[::1]:443/in/side//", NULL, "r", "versionId=x%3D",
	         "https://[::1]/in/side/b/%C3%BC%0A?versionId=x%3D", "[::1]",
	         "/in/side/b/%C3%BC%0A"},
		{"s3://b/k", "http://localhost:8080", "virtual", "r", NULL,
	         "http://b.localhost:8080/k", "b.localhost:8080", "/k"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct sl_s3_name name;
		struct sl_s3_address address;

		assert_int_equal(sl_s3_name_parse(rows[i].uri, &name), 0);
		assert_int_equal(sl_s3_address_find(&name, rows[i].endpoint, rows[i].addressing,
		                                    rows[i].region, rows[i].query, &address),
		                 0);
		assert_string_equal(address.url, rows[i].url);
		assert_string_equal(address.host, rows[i].host);
		assert_string_equal(address.path, rows[i].path);
		sl_s3_address_clear(&address);
		sl_s3_name_clear(&name);
	}
}

TEST(endpoints_that_are_no_urls_are_refused)
{
	static const char *const endpoints[] = {"host:80",    "ftp://host",      "http://",
	                                        "https:///x", "http://u:p@host", "http://host/?a",
	                                        "http://a b"};
	struct sl_s3_name name = {(char *)"b", (char *)"k"};
	struct sl_s3_address address;

	for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++)
		assert_int_equal(sl_s3_address_find(&name, endpoints[i], NULL, "r", NULL, &address),
		                 -EINVAL);
	assert_int_equal(sl_s3_address_find(&name, NULL, "other", "r", NULL, &address), -EINVAL);
	assert_int_equal(sl_s3_address_find(&name, NULL, NULL, "evil.example/", NULL, &address),
	                 -EINVAL);
}

TEST(an_answer_is_whole_if_it_has_its_root_and_ends_with_it)
{
	static const struct {
		const char *xml;
		bool whole;
	} rows[] = {
		{"<R><ETag>x</ETag></R>", true},
		{"<?xml version=\"1.0\"?>\n<!-- <Q> --><R xmlns=\"u\"><ETag>x</ETag></R >\n", true},
		{" <s3:R\txmlns:s3=\"u\"><s3:ETag>x</s3:ETag></s3:R>", true},
		{"", false},
		{" \n", false},
		{"R", false},
		{"<R", false},
		{"</R>", false},
		{"<R/>", false},
		{"<R><ETag>x</ETag></R", false},
		{"<R><ETag>x</ETag>", false},
		{"<R><ETag>x</ETag></R><", false},
		{"<R><ETag>x</ETag></R>x", false},
		{"<RS><ETag>x</ETag></RS>", false},
		{"<Q><R><ETag>x</ETag></R></Q>", false},
		{"<Q><R><ETag>x</ETag></R>", false},
		{"<!-- <R><ETag>x</ETag></R>", false},
		{"<?<R><ETag>x</ETag></R>", false},
		{"<!DOCTYPE html><html><body>R</body></html>", false},
	};
	char text[SL_SERVICE_TEXT];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (sl_xml_is_whole(rows[i].xml, "R") != rows[i].whole)
			fail_msg("%s", rows[i].xml);
		sl_xml_element(rows[i].xml, "ETag", text, sizeof(text));
		if (rows[i].whole)
			assert_string_equal(text, "x");
	}
	/* All that is cut is not whole. */
	for (size_t i = 0; i < 3; i++)
		for (size_t n = 0; n < strlen(rows[i].xml) - 1; n++) {
			char *part = strndup(rows[i].xml, n);

			assert_false(sl_xml_is_whole(part, "R"));
			free(part);
		}
}

TEST(an_element_has_any_prefix_and_attributes)
{
	static const char xml[] =
		"<a:Error Code='no'><CodeX>1</CodeX><x:Code y='&lt;'>A&amp;B</x:Code>"
		"<Message/><Region >r</Region><RequestId>i";
	struct sl_service_error said;

	sl_s3_error_parse(xml, &said);
	assert_string_equal(said.code, "A&B");
	assert_string_equal(said.message, "");
	assert_string_equal(said.region, "r");
	assert_string_equal(said.request_id, "i");
	assert_true(sl_s3_error_is(&said, " C A&B "));
	assert_false(sl_s3_error_is(&said, " A&BC "));
	said.code[0] = '\0';
	assert_false(sl_s3_error_is(&said, " C  D "));
}

TEST(etags_are_those_of_s3_where_parts_have_md5s)
{
	static const char *const none[] = {"\"47bce5c74f589f4867dbd57e9ca9f80\"",
	                                   "\"opaque\"",
	                                   "",
	                                   "47bce5c74f589f4867dbd57e9ca9f808",
	                                   "\"47bce5c74f589f4867dbd57e9ca9f808-2\"",
	                                   "\"47bce5c74f589f4867dbd57e9ca9f808"};
	struct sl_service_part parts[2] = {
		{.etag = (char *)"\"47bce5c74f589f4867dbd57e9ca9f808\""},
		{.etag = (char *)"\"5360af35bde9ebd8f01f492dc059593c\""},
	};
	char etag[SL_SERVICE_TEXT];

	sl_s3_etag("aaa", 3, etag);
	assert_string_equal(etag, parts[0].etag);
	sl_s3_upload_etag(parts, 2, etag);
	assert_string_equal(etag, "\"dd0df09ae7dfe60f34e94f8e0ab0f5f9-2\"");
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		parts[i % 2].etag = (char *)none[i];
		sl_s3_upload_etag(parts, 2, etag);
		assert_string_equal(etag, "");
	}
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
