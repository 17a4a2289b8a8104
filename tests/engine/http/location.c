/* SPDX-License-Identifier: Apache-2.0 */
/* Where an object was found is remembered for the file, until it is there no more. */
#include "http/cases.h"

/* Many parts. */
#define LARGE (12 * MIB + 777)

/* A hub that redirects there with a signature, of which `options` say more. */
static const char *hub(const char *to, const char *options)
{
	return fault_uri("fault=hub&on=HEAD,GET&to=%s%s", as_option(to), options);
}

static const char *target(const char *options)
{
	return fault_uri_at("other", "size=%zu&etag=same&signed=own%s", LARGE, options);
}

static const char *unsigned_target(void)
{
	return fault_uri_at("other", "size=%zu&etag=same", LARGE);
}

/* How many ranges were asked for there, each counted once. */
static long ranges_of(const char *uri)
{
	const char *from[4096], *at = asked_for(uri);
	long n = 0, i;

	while ((at = strstr(at, " range=bytes="))) {
		size_t length = strcspn(++at, " ");

		for (i = 0; i < n && strncmp(from[i], at, length + 1) != 0; i++)
			;
		if (i == n && n < (long)COUNT_OF(from))
			from[n++] = at;
	}
	return n;
}

HTTP_TEST(a_hub_is_asked_twice_for_a_file)
{
	static const char *const of_hub[] = {"", "&on=GET", ""};
	static const char *const of_target[] = {"", "", "&head=405"};

	/* More than two are refused, and not waited for. */
	with(f, "SLUICE_HTTP_RATELIMIT_MS", "1000");
	for (size_t i = 0; i < COUNT_OF(of_hub); i++) {
		char options[100];
		const char *to = target(of_target[i]), *from;
		long ranges;

		snprintf(options, sizeof(options), "&size=%zu&etag=same&quota=2:600%s", LARGE,
		         of_hub[i]);
		from = hub(to, options);
		/* A hub that answers HEAD itself is asked by a first read for where the rest is. */
		if (i == 1) {
			sluice_file *file = open_read(f->ctx, from);
			struct buffer b = buffer_new(LARGE, 0);

			assert_read(file, b.data, 1, 0);
			assert_read(file, b.data, LARGE, 0);
			assert_served(b.data, LARGE, 0);
			assert_ok(sluice_close(file));
			buffer_free(&b);
		} else {
			reads_right(f, from, LARGE, 0);
		}
		assert_int_equal(asked(from, "requests"), 2);
		ranges = ranges_of(to);
		assert_in_range(asked(to, "requests"), ranges, ranges + 5);
		assert_in_range(asked(to, "peak"), 1, CONNECTIONS);
		/* A connection to the hub may take the place of another that is kept. */
		assert_in_range(asked(to, "connections"), 1, CONNECTIONS + 2);
	}
}

HTTP_TEST(several_hops_are_taken_once)
{
	const char *to = target(""), *middle = hub(to, ""), *from = hub(middle, "");

	reads_right(f, from, LARGE, 0);
	assert_int_equal(asked(from, "requests"), 2);
	assert_int_equal(asked(middle, "requests"), 2);
	/* A target that redirects itself later is followed, and the new place is remembered. */
	to = unsigned_target();
	middle = fault_uri_at("other", "size=%zu&etag=same&fault=redirect:307&on=GET&skip=3&to=%s",
	                      LARGE, as_option(to));
	from = hub(middle, "");
	reads_right(f, from, LARGE, 0);
	assert_int_equal(asked(from, "requests"), 2);
	assert_in_range(asked(middle, "GET"), 4, 4 + 2 * CONNECTIONS);
	assert_in_range(asked(to, "GET"), 1, ranges_of(to) + 5);
}

HTTP_TEST(a_target_that_expires_is_looked_for_again)
{
	static const int statuses[] = {401, 403, 404, 410};

	for (size_t i = 0; i < COUNT_OF(statuses); i++) {
		char options[60];
		const char *to, *from;
		long least;

		snprintf(options, sizeof(options), "&lives=5&expired=%d", statuses[i]);
		to = target(options);
		from = hub(to, "");
		reads_right(f, from, LARGE, 0);
		/* A signature is good for five requests; but a single request gets another. */
		least = ranges_of(to) / 5 + 1;
		assert_in_range(asked(from, "GET"), least, least + 1);
	}
}

/* As it was when each part asked the hub. */
HTTP_TEST(a_target_that_serves_once_is_asked_for_each_part)
{
	const char *to = target("&lives=1"), *from = hub(to, "");

	reads_right(f, from, LARGE, 0);
	assert_true(asked(from, "GET") >= ranges_of(to));
}

HTTP_TEST(a_target_that_is_away_is_looked_for_again)
{
	struct buffer b = buffer_new(LARGE, 0);
	char options[4000];
	const char *from;
	sluice_file *file;

	snprintf(options, sizeof(options), "&fresh=1&then=%s", as_option(target("")));
	from = hub(target("&lives=1&expired=refuse"), options);
	file = open_read(f->ctx, from);
	assert_read(file, b.data, 1000, 0);
	assert_read(file, b.data, LARGE, 0);
	assert_served(b.data, LARGE, 0);
	assert_int_equal(asked(from, "GET"), 2);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* It fails in other ways than an end of its signature: after two attempts the hub may know another. */
HTTP_TEST(a_target_that_keeps_failing_is_looked_for_again)
{
	struct buffer b = buffer_new(LARGE, 0);
	const char *to = target("&fault=status:500&skip=1"), *good = target(""), *from;
	char options[4000];
	sluice_file *file;

	snprintf(options, sizeof(options), "&then=%s", as_option(good));
	from = hub(to, options);
	file = open_read(f->ctx, from);
	assert_read(file, b.data, 1000, 0);
	assert_read(file, b.data, LARGE, 0);
	assert_served(b.data, LARGE, 0);
	assert_true(asked(good, "GET") > 0);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(another_version_at_the_next_target_is_no_part_of_the_file)
{
	struct buffer b = buffer_new(LARGE, 0);
	char options[4000];
	sluice_file *file;

	snprintf(options, sizeof(options), "&then=%s", as_option(target("&version=1")));
	file = open_read(f->ctx, hub(target("&lives=1"), options));
	assert_read(file, b.data, 1000, 0);
	assert_fails(start_read(file, b.data, LARGE, 0), ESTALE);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* Opens a file whose target is gone after the first bytes. */
static sluice_file *open_gone(struct fixture *f, const char *from)
{
	sluice_file *file = open_read(f->ctx, from);
	char bytes[1000];

	assert_read(file, bytes, 1000, 0);
	assert_served(bytes, 1000, 0);
	return file;
}

enum { READS = 20 };

static void start_reads(sluice_file *file, struct buffer *b, sluice_op **ops)
{
	for (int i = 0; i < READS; i++)
		ops[i] = start_read(file, b->data + i * 1000, 1000, (uint64_t)i * 1000);
}

HTTP_TEST(a_hub_that_refuses_fails_all_that_wait_for_it)
{
	struct buffer b = buffer_new(READS * 1000, 0);
	const char *from = hub(target("&lives=1"), "&late_ms=100&then=403");
	sluice_file *file = open_gone(f, from);
	sluice_op *ops[READS];

	start_reads(file, &b, ops);
	for (int i = 0; i < READS; i++)
		assert_fails(ops[i], EACCES);
	assert_int_equal(asked(from, "GET"), 2);
	stays_untouched(&b);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(a_wait_for_the_hub_is_cancelled)
{
	struct buffer b = buffer_new(READS * 1000, 0);
	const char *from;
	sluice_op *ops[READS];
	sluice_file *file;
	double begun;

	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	from = hub(target("&lives=1"), "&late_ms=60000");
	file = open_gone(f, from);
	start_reads(file, &b, ops);
	wait_until_asked(from, "GET", 2);
	sleep_ms(50);
	begun = seconds_now();
	/* All but those that ask cost nothing. */
	assert_int_equal(asked(from, "GET"), 2);
	for (int i = READS; i-- > 0;) {
		assert_int_equal(sluice_cancel(ops[i]), 0);
		assert_int_equal(finish(ops[i]), -ECANCELED);
	}
	assert_soon(begun);
	stays_untouched(&b);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(the_next_asks_when_the_first_is_cancelled)
{
	struct buffer b = buffer_new(READS * 1000, 0);
	char options[4000];
	sluice_op *ops[READS];
	sluice_file *file;
	const char *from;
	int i = 0;

	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	snprintf(options, sizeof(options), "&late_ms=20000&then=%s", as_option(target("")));
	from = hub(target("&lives=1"), options);
	file = open_gone(f, from);
	start_reads(file, &b, ops);
	wait_until_asked(from, "GET", 2);
	for (; i < READS && asked(from, "GET") < 3; i++) {
		assert_int_equal(sluice_cancel(ops[i]), 0);
		assert_int_equal(finish(ops[i]), -ECANCELED);
		sleep_ms(5);
	}
	for (; i < READS; i++) {
		assert_moves(ops[i], 1000);
		assert_served(b.data + i * 1000, 1000, (uint64_t)i * 1000);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(stat_tells_where_the_object_was_found)
{
	struct sluice_file_info info = {.size = sizeof(info)};
	const char *to = target(""), *direct = unsigned_target();
	sluice_file *file = open_read(f->ctx, hub(to, ""));
	char name[200];

	assert_ok(sluice_stat(file, &info));
	assert_true(sluice_uri_name(to, name, sizeof(name)) > 0);
	assert_string_equal(info.final_uri, name);
	assert_null(strstr(info.final_uri, "signature"));
	assert_ok(sluice_close(file));
	file = open_read(f->ctx, direct);
	assert_ok(sluice_stat(file, &info));
	assert_null(info.final_uri);
	assert_int_equal(info.limited_ms, 0);
	assert_ok(sluice_close(file));
}
