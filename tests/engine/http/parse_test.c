/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http_internal.h"
#include "lib/unit.h"

TEST(a_range_is_read)
{
	struct sl_http_range range;

	assert_true(sl_http_parse_range("bytes 100-199/1000", &range));
	assert_true(range.satisfied);
	assert_int_equal(range.first, 100);
	assert_int_equal(range.last, 199);
	assert_int_equal(range.total, 1000);
	assert_true(sl_http_parse_range("Bytes 0-0/*", &range));
	assert_int_equal(range.total, -1);
	assert_true(sl_http_parse_range("bytes */47", &range));
	assert_false(range.satisfied);
	assert_int_equal(range.total, 47);
}

TEST(malformed_range_is_refused)
{
	static const char *const texts[] = {
		"",
		"bytes",
		"bytes ",
		"bytes 1-2",
		"bytes 2-1/10",
		"bytes 1-10/10",
		"bytes 1-2/",
		"bytes 1-2/x",
		"bytes 1-2/10 ",
		"bytes -2/10",
		"bytes 1-/10",
		"bytes */*",
		"bytes *-2/10",
		"items 1-2/10",
		"bytes=1-2/10",
		"bytes 0x1-2/10",
		"bytes +1-2/10",
		"bytes 1-99999999999999999999/*",
		"bytes 1-2/99999999999999999999",
	};
	struct sl_http_range range = {.first = 7};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (sl_http_parse_range(texts[i], &range))
			fail_msg("'%s' is taken for a range", texts[i]);
		assert_int_equal(range.first, 7);
	}
}

TEST(a_length_is_all_digits)
{
	uint64_t length = 7;

	assert_true(sl_http_parse_length("9223372036854775807", &length));
	assert_true(length == INT64_MAX);
	assert_false(sl_http_parse_length("9223372036854775808", &length));
	assert_false(sl_http_parse_length("", &length));
	assert_false(sl_http_parse_length("-1", &length));
	assert_false(sl_http_parse_length("1,1", &length));
	assert_true(length == INT64_MAX);
}

TEST(retry_after_is_seconds_or_a_date)
{
	const int64_t now = 946684799; /* 1999-12-31 23:59:59 UTC */

	assert_int_equal(sl_http_parse_retry_after("120", now), 120000);
	assert_int_equal(sl_http_parse_retry_after("0", now), 0);
	assert_int_equal(sl_http_parse_retry_after("Sat, 01 Jan 2000 00:00:09 GMT", now), 10000);
	assert_int_equal(sl_http_parse_retry_after("Fri, 31 Dec 1999 23:00:00 GMT", now), 0);
	assert_int_equal(sl_http_parse_retry_after("soon", now), -1);
	assert_int_equal(sl_http_parse_retry_after("1.5", now), -1);
	/* A year is long enough. */
	assert_int_equal(sl_http_parse_retry_after("9999999999", now), INT64_C(31536000000));
}

TEST(a_limit_has_a_time_to_its_reset)
{
	const int64_t now = 946684799;

	assert_int_equal(sl_http_parse_ratelimit("\"default\";r=0;t=30"), 30000);
	assert_int_equal(sl_http_parse_ratelimit("limit=100, remaining=0, reset=5"), 5000);
	/* That which is used up, and of several the longest. */
	assert_int_equal(sl_http_parse_ratelimit("\"a\";r=1;t=900, \"b\";r=0;t=30"), 30000);
	assert_int_equal(sl_http_parse_ratelimit("\"a\";r=0;t=40, \"b=1\";r=0;t=30"), 40000);
	assert_int_equal(sl_http_parse_ratelimit("\"a\";t=7"), 7000);
	assert_int_equal(sl_http_parse_ratelimit("\"a\";r=3;t=7"), -1);
	assert_int_equal(sl_http_parse_ratelimit("t=x;=;reset=;"), -1);
	assert_int_equal(sl_http_parse_ratelimit(""), -1);
	assert_int_equal(sl_http_parse_ratelimit_reset("41", now), 41000);
	assert_int_equal(sl_http_parse_ratelimit_reset("946684840", now), 41000);
	assert_int_equal(sl_http_parse_ratelimit_reset("946684000", now), 0);
	assert_int_equal(sl_http_parse_ratelimit_reset("soon", now), -1);
}

TEST(only_strong_etags_are_strong)
{
	assert_true(sl_strong_etag("\"a-1\""));
	assert_true(sl_strong_etag("\"\""));
	assert_false(sl_strong_etag("W/\"a\""));
	assert_false(sl_strong_etag("a"));
	assert_false(sl_strong_etag("\""));
	assert_false(sl_strong_etag("\"a\r\nX: y\""));
	assert_false(sl_strong_etag("\"a\"b\""));
}

TEST(a_field_is_cut_in_two)
{
	char line[] = "ETag: \t \"x y\" \r\n", none[] = "no field\r\n", nameless[] = ": x\r\n";
	char *name, *value;

	assert_true(sl_http_parse_field(line, &name, &value));
	assert_string_equal(name, "ETag");
	assert_string_equal(value, "\"x y\"");
	assert_false(sl_http_parse_field(none, &name, &value));
	assert_false(sl_http_parse_field(nameless, &name, &value));
}

TEST(names_of_uris_tell_no_secrets)
{
	static const char *const pairs[][2] = {
		{"http://user:secret@host:80/a?b=c#d", "http://host:80/a?..."},
		{"https://user@host", "https://host"},
		{"http://a@b@c/@x", "http://c/@x"},
		{"http://host/a@b", "http://host/a@b"},
		{"https://host/a#b", "https://host/a"},
		{"/plain/a@b?c", "/plain/a@b?c"},
		{"file:///a?b", "file:///a?b"},
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		char *name = sl_uri_name(pairs[i][0]);

		assert_string_equal(name, pairs[i][1]);
		free(name);
	}
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
