/* SPDX-License-Identifier: Apache-2.0 */
/* Servers that limit requests (429) are waited for, as long as a setting allows. */
#include "http/cases.h"

HTTP_TEST(a_limit_is_waited_for_by_all_its_spellings)
{
	static const char *const says[] = {"retry", "ratelimit", "reset", "xreset"};

	/* It is no silence. */
	with(f, "SLUICE_HTTP_RETRY_MS", "500");
	for (size_t i = 0; i < COUNT_OF(says); i++) {
		char bytes[1000];
		double begun, took;
		const char *uri;
		int tries = 0;

		/* On a loaded machine the second may be over before the third request comes. */
		do {
			sluice_file *file;

			uri = fault_uri("size=5000&quota=2:1&says=%s", says[i]);
			file = open_read(f->ctx, uri);
			begun = seconds_now();
			assert_read(file, bytes, 1000, 0);
			assert_read(file, bytes, 1000, 1000);
			assert_served(bytes, 1000, 1000);
			took = seconds_now() - begun;
			assert_ok(sluice_close(file));
		} while (!asked(uri, "status_429") && ++tries < 5);
		if (took < 0.5 || took > 15)
			fail_msg("%s: %.3f s", says[i], took);
		assert_int_equal(asked(uri, "status_429"), 1);
	}
}

HTTP_TEST(a_longer_limit_fails_at_once)
{
	double begun = seconds_now();

	with(f, "SLUICE_HTTP_RATELIMIT_MS", "30000");
	read_fails(f, fault_uri("size=5000&fault=status:429&retry_after=31"), 1000, 10, EIO,
	           "31 s (it limits requests), which is longer than SLUICE_HTTP_RATELIMIT_MS");
	open_fails(f, fault_uri("size=5000&fault=status:429&retry_after=31&on=HEAD,GET"), EIO,
	           "SLUICE_HTTP_RATELIMIT_MS");
	assert_soon(begun);
	/* So does a limit that is said again and again. */
	with(f, "SLUICE_HTTP_RATELIMIT_MS", "1500");
	begun = seconds_now();
	read_fails(f, fault_uri("size=5000&fault=status:429&retry_after=1"), 1000, 10, EIO,
	           "SLUICE_HTTP_RATELIMIT_MS");
	assert_soon(begun);
}

/* Waits until the file has heard of a limit; returns how long it lasts. */
static uint64_t await_limit(sluice_file *file)
{
	struct sluice_file_info info = {.size = sizeof(info)};
	double begun = seconds_now();

	do {
		assert_ok(sluice_stat(file, &info));
		assert_soon(begun);
	} while (!info.limited_ms);
	return info.limited_ms;
}

/* Those that a limit meets under way are refused, and no more. */
HTTP_TEST(no_request_is_sent_while_a_limit_lasts)
{
	enum { READS = 50 };
	struct buffer b = buffer_new(READS * 1000, 0);
	struct sluice_file_info info = {.size = sizeof(info)};
	const char *uri = fault_uri("size=50000&quota=30:3"), *log = scratch(f, "log");
	sluice_op *ops[READS];
	sluice_file *file;
	char held[5000] = "";

	with(f, "SLUICE_LOG", "error");
	errors_begin(log);
	file = open_read(f->ctx, uri);
	for (int i = 0; i < READS; i++)
		ops[i] = start_read(file, b.data + i * 1000, 1000, (uint64_t)i * 1000);
	assert_in_range(await_limit(file), 1, 4000);
	for (int i = 0; i < READS; i++)
		assert_moves(ops[i], 1000);
	assert_served(b.data, READS * 1000, 0);
	assert_in_range(asked(uri, "status_429"), 1, 2 * CONNECTIONS);
	assert_ok(sluice_stat(file, &info));
	assert_int_equal(info.limited_ms, 0);
	assert_ok(sluice_close(file));
	errors_end();
	assert_true(file_length(log) < sizeof(held));
	file_read(log, held, file_length(log), 0);
	assert_non_null(strstr(held, "the server limits requests (HTTP 429): waiting for "));
	buffer_free(&b);
}

/* A hub that gives no signature for now holds up nobody for good. */
HTTP_TEST(a_quota_of_the_hub_that_ends_in_the_middle_is_waited_for)
{
	const char *from;
	int tries = 0;

	do {
		const char *to =
			fault_uri_at("other", "size=%zu&etag=same&signed=own&lives=4", LONG);

		from = fault_uri("fault=hub&on=HEAD,GET&quota=2:1&to=%s", as_option(to));
		reads_right(f, from, LONG, 0);
	} while (!asked(from, "status_429") && ++tries < 5);
	assert_true(asked(from, "status_429") > 0);
	assert_in_range(asked(from, "requests"), 3, 60);
}

HTTP_TEST(a_wait_for_a_limit_is_cancelled)
{
	const char *uri = fault_uri("size=5000&fault=status:429&retry_after=60");
	sluice_file *file = open_read(f->ctx, uri);
	char bytes[1000];
	sluice_op *op = start_read(file, bytes, 1000, 0), *other;
	double begun;

	await_limit(file);
	other = start_read(file, bytes, 1000, 1000);
	sleep_ms(20);
	begun = seconds_now();
	assert_int_equal(sluice_cancel(op), 0);
	assert_int_equal(finish(op), -ECANCELED);
	assert_int_equal(sluice_cancel(other), 0);
	assert_int_equal(finish(other), -ECANCELED);
	assert_soon(begun);
	assert_int_equal(asked(uri, "GET"), 1);
	assert_ok(sluice_close(file));
}
