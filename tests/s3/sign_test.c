/* SPDX-License-Identifier: Apache-2.0 */
/* Names of objects and their places, and signatures: the published cases. */
#include "s3/place.h"
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
		path = sl_s3_encode(target, true);
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
		struct sl_s3_place place;

		assert_int_equal(sl_s3_name_parse(rows[i].uri, &name), 0);
		assert_int_equal(sl_s3_place_find(&name, rows[i].endpoint, rows[i].addressing,
		                                  rows[i].region, rows[i].query, &place),
		                 0);
		assert_string_equal(place.url, rows[i].url);
		assert_string_equal(place.host, rows[i].host);
		assert_string_equal(place.path, rows[i].path);
		sl_s3_place_clear(&place);
		sl_s3_name_clear(&name);
	}
}

TEST(endpoints_that_are_no_urls_are_refused)
{
	static const char *const endpoints[] = {"host:80",    "ftp://host",      "http://",
	                                        "https:///x", "http://u:p@host", "http://host/?a",
	                                        "http://a b"};
	struct sl_s3_name name = {(char *)"b", (char *)"k"};
	struct sl_s3_place place;

	for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++)
		assert_int_equal(sl_s3_place_find(&name, endpoints[i], NULL, "r", NULL, &place),
		                 -EINVAL);
	assert_int_equal(sl_s3_place_find(&name, NULL, "other", "r", NULL, &place), -EINVAL);
	assert_int_equal(sl_s3_place_find(&name, NULL, NULL, "evil.example/", NULL, &place),
	                 -EINVAL);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
