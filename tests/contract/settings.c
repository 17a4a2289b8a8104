/* SPDX-License-Identifier: Apache-2.0 */
/* A context's settings: struct over environment over default. */
#include "contract/settings.h"

sluice_context *make(const struct sluice_config *config)
{
	sluice_context *ctx = NULL;

	assert_ok(sluice_context_new(config, &ctx));
	assert_non_null(ctx);
	return ctx;
}

struct sluice_setting setting_of(const sluice_context *ctx, const char *variable)
{
	struct sluice_setting s = {.size = sizeof(s)};
	size_t i;

	for (i = 0; sluice_context_setting(ctx, i, &s) == 0; i++)
		if (strcmp(s.variable, variable) == 0)
			return s;
	fail_msg("%s is not listed", variable);
	return s;
}

/* A number as a setting shows it, with or without a unit. */
static uint64_t number_of(const char *value)
{
	uint64_t n = 0;

	assert_ok(sluice_size_parse(value, &n));
	return n;
}

void check_setting(const sluice_context *ctx, const char *variable, uint64_t value,
                   const char *source)
{
	struct sluice_setting s = setting_of(ctx, variable);

	if (number_of(s.value) != value || strcmp(s.source, source) != 0)
		fail_msg("%s is %s (%s), not %llu (%s)", variable, s.value, s.source,
		         (unsigned long long)value, source);
}

const struct numeric numerics[NUMERICS] = {
#define FIELD(f) offsetof(struct sluice_config, f)
	{"SLUICE_WORKERS", FIELD(workers), 1, 256, 0, false},
	{"SLUICE_REACTORS", TUNE, 1, 64, 0, false},
	{"SLUICE_REACTOR_DEPTH", TUNE, 1, 4096, 128, false},
	{"SLUICE_PIECE_BYTES", TUNE, 4096, 1 << 30, 1 << 20, true},
	{"SLUICE_OPERATION_DEPTH", TUNE, 1, 4096, 128, false},
	{"SLUICE_DIRECT_BYTES", FIELD(direct_bytes), 4096, 1ull << 40, 256 << 10, true},
	{"SLUICE_INLINE_BYTES", TUNE, 1, 16 << 20, 64 << 10, true},
	{"SLUICE_BOUNCE_BYTES", TUNE, 4096, 1ull << 40, 64 << 20, true},
	{"SLUICE_MAX_OPERATIONS", FIELD(max_operations), 1, 16777216, 262144, false},
	{"SLUICE_STAGING_BYTES", FIELD(staging_bytes), 64 << 10, 1ull << 40, 256 << 20, true},
	{"SLUICE_CUFILE_THREADS", TUNE, 1, 64, 8, false},
	{"SLUICE_MAX_CONNECTIONS", FIELD(max_connections), 1, 4096, 256, false},
	{"SLUICE_HTTP_REACTORS", TUNE, 1, 64, 0, false},
	{"SLUICE_HTTP_GAP_BYTES", TUNE, 1, 1 << 30, 256 << 10, true},
	{"SLUICE_HTTP_ATTEMPTS", FIELD(http_attempts), 1, 1000, 6, false},
	{"SLUICE_HTTP_RETRY_MS", FIELD(http_retry_ms), 1, 86400000, 60000, false},
	{"SLUICE_HTTP_BACKOFF_MS", FIELD(http_backoff_ms), 1, 3600000, 200, false},
	{"SLUICE_HTTP_BACKOFF_MAX_MS", TUNE, 1, 3600000, 20000, false},
	{"SLUICE_HTTP_CONNECT_MS", FIELD(http_connect_ms), 1, 3600000, 10000, false},
	{"SLUICE_HTTP_STALL_MS", FIELD(http_stall_ms), 1, 3600000, 30000, false},
	{"SLUICE_HTTP_RATELIMIT_MS", FIELD(http_ratelimit_ms), 1, 86400000, 600000, false},
	{"SLUICE_S3_PART_BYTES", FIELD(s3_part_bytes), 64 << 10, 5ull << 30, 8 << 20, true},
	{"SLUICE_S3_UPLOAD_BYTES", FIELD(s3_upload_bytes), 64 << 10, 1ull << 40, 256 << 20, true},
	{"SLUICE_S3_COPY_BYTES", TUNE, 64 << 10, 5ull << 30, 5ull << 30, true},
#undef FIELD
};

const struct word words[WORDS] = {
#define FIELD(f) offsetof(struct sluice_config, f)
	{"SLUICE_CUFILE_STREAMS", TUNE, "0", "1", {"yes", "2", "01"}},
	{"SLUICE_REMOTE_BACKEND",
         FIELD(remote_backend),
         "multi",
         "easy",
         {"auto", "MULTI", "easy "}},
	{"SLUICE_HTTP_HEDGE", FIELD(http_hedge), "1", "0", {"yes", "2", "01"}},
	{"SLUICE_HTTP_ETAG", FIELD(http_etag), "1", "0", {"yes", "2", "01"}},
	{"SLUICE_TLS_INSECURE", FIELD(tls_insecure), "0", "1", {"yes", "2", "01"}},
	{"SLUICE_LOG", FIELD(log), "waits", "error", {"loud", "Debug", "1"}},
#undef FIELD
};

SETTINGS_TEST(without_anything_the_defaults_are_in_force)
{
	sluice_context *ctx = make(NULL);
	size_t i;

	for (i = 0; i < NUMERICS; i++) {
		struct sluice_setting s = setting_of(ctx, numerics[i].variable);
		uint64_t value = number_of(s.value);

		assert_string_equal(s.source, "default");
		assert_in_range(value, numerics[i].least, numerics[i].most);
		if (numerics[i].fallback)
			assert_int_equal(value, numerics[i].fallback);
	}
	assert_string_equal(setting_of(ctx, "SLUICE_BACKEND").value, "auto");
	assert_string_equal(setting_of(ctx, "SLUICE_DISABLE").source, "default");
	assert_ok(sluice_context_close(ctx));
}

SETTINGS_TEST(each_setting_is_described)
{
	struct sluice_setting s = {.size = sizeof(s)}, bare = {.size = sizeof(bare)};
	sluice_context *ctx = make(NULL);
	size_t i;

	for (i = 0; sluice_context_setting(ctx, i, &s) == 0; i++) {
		assert_int_equal(s.size, sizeof(s));
		assert_int_equal(strncmp(s.variable, "SLUICE_", 7), 0);
		assert_true(*s.value && *s.fallback && *s.range && *s.meaning);
		assert_ok(sluice_context_setting(NULL, i, &bare));
		assert_string_equal(bare.variable, s.variable);
		assert_string_equal(bare.range, s.range);
		assert_null(bare.value);
		assert_null(bare.source);
	}
	/* And SLUICE_BACKEND, SLUICE_DISABLE, SLUICE_CA_BUNDLE, the six of identity, and the two that may be 0. */
	assert_int_equal(i, NUMERICS + WORDS + 11);
	assert_int_equal(sluice_context_setting(ctx, i, &s), -ENOENT);
	assert_int_equal(sluice_context_setting(ctx, SIZE_MAX, &s), -ENOENT);
	assert_int_equal(sluice_context_setting(NULL, i, &bare), -ENOENT);
	s.size = 0;
	assert_refused(sluice_context_setting(ctx, 0, &s), EINVAL, "size");
	assert_ok(sluice_context_close(ctx));
}

SETTINGS_TEST(the_struct_comes_before_the_environment_before_the_default)
{
	struct sluice_config c = SLUICE_CONFIG_INIT;
	sluice_context *ctx;

	setenv("SLUICE_WORKERS", "3", 1);
	setenv("SLUICE_OPERATION_DEPTH", "7", 1);
	setenv("SLUICE_BACKEND", "posix", 1);
	c.workers = 5;
	ctx = make(&c);
	check_setting(ctx, "SLUICE_WORKERS", 5, "config");
	check_setting(ctx, "SLUICE_OPERATION_DEPTH", 7, "environment");
	check_setting(ctx, "SLUICE_REACTOR_DEPTH", 128, "default");
	assert_string_equal(setting_of(ctx, "SLUICE_BACKEND").value, "posix");
	assert_string_equal(setting_of(ctx, "SLUICE_BACKEND").source, "environment");
	/* They are fixed now. */
	setenv("SLUICE_OPERATION_DEPTH", "9", 1);
	c.workers = 6;
	check_setting(ctx, "SLUICE_WORKERS", 5, "config");
	check_setting(ctx, "SLUICE_OPERATION_DEPTH", 7, "environment");
	assert_ok(sluice_context_close(ctx));

	c.backend = "auto";
	ctx = make(&c);
	assert_string_equal(setting_of(ctx, "SLUICE_BACKEND").value, "auto");
	assert_string_equal(setting_of(ctx, "SLUICE_BACKEND").source, "config");
	assert_ok(sluice_context_close(ctx));
}

SETTINGS_TEST(an_empty_variable_is_as_good_as_none)
{
	sluice_context *ctx;
	size_t i;

	for (i = 0; i < NUMERICS; i++)
		setenv(numerics[i].variable, "", 1);
	setenv("SLUICE_BACKEND", "", 1);
	setenv("SLUICE_DISABLE", "", 1);
	ctx = make(NULL);
	check_setting(ctx, "SLUICE_MAX_OPERATIONS", 262144, "default");
	assert_string_equal(setting_of(ctx, "SLUICE_BACKEND").source, "default");
	assert_ok(sluice_context_close(ctx));
}

SETTINGS_TEST(sizes_may_have_a_unit)
{
	static const struct {
		const char *text;
		uint64_t value;
	} cases[] = {{"65536", 65536}, {"64K", 65536},  {"64k", 65536},
	             {"1M", 1 << 20},  {"2m", 2 << 20}, {"64KiB", 65536},
	             {"1G", 1 << 30},  {"4096", 4096},  {"2MiB", 2 << 20}};
	size_t i;

	setenv("SLUICE_INLINE_BYTES", "1", 1);
	for (i = 0; i < COUNT_OF(cases); i++) {
		sluice_context *ctx;

		setenv("SLUICE_PIECE_BYTES", cases[i].text, 1);
		setenv("SLUICE_DIRECT_BYTES", cases[i].text, 1);
		ctx = make(NULL);
		check_setting(ctx, "SLUICE_PIECE_BYTES", cases[i].value, "environment");
		check_setting(ctx, "SLUICE_DIRECT_BYTES", cases[i].value, "environment");
		assert_ok(sluice_context_close(ctx));
	}
}

/* A program that was built with an older header has fewer fields; what lies behind is not read. */
SETTINGS_TEST(a_shorter_struct_has_only_its_own_fields)
{
	struct sluice_config c = SLUICE_CONFIG_INIT;
	sluice_context *ctx;

	c.size = offsetof(struct sluice_config, direct_bytes);
	c.workers = 2;
	c.direct_bytes = 17;
	c.tune = NOWHERE;
	ctx = make(&c);
	check_setting(ctx, "SLUICE_WORKERS", 2, "config");
	check_setting(ctx, "SLUICE_DIRECT_BYTES", 256 << 10, "default");
	assert_ok(sluice_context_close(ctx));
	c.size = offsetof(struct sluice_config, tune);
	c.direct_bytes = 8192;
	ctx = make(&c);
	check_setting(ctx, "SLUICE_DIRECT_BYTES", 8192, "config");
	assert_ok(sluice_context_close(ctx));
}

SETTINGS_TEST(tune_comes_before_the_environment_and_its_last_value_counts)
{
	struct sluice_config c = SLUICE_CONFIG_INIT;
	sluice_context *ctx;

	setenv("SLUICE_PIECE_BYTES", "128K", 1);
	setenv("SLUICE_OPERATION_DEPTH", "7", 1);
	c.tune = "piece_bytes=32K,slots=3,,piece_bytes=64 KiB,cufile_streams=1,";
	ctx = make(&c);
	check_setting(ctx, "SLUICE_PIECE_BYTES", 64 << 10, "config");
	check_setting(ctx, "SLUICE_SLOTS", 3, "config");
	check_setting(ctx, "SLUICE_CUFILE_STREAMS", 1, "config");
	check_setting(ctx, "SLUICE_OPERATION_DEPTH", 7, "environment");
	check_setting(ctx, "SLUICE_REACTOR_DEPTH", 128, "default");
	assert_ok(sluice_context_close(ctx));
	c.tune = "";
	ctx = make(&c);
	check_setting(ctx, "SLUICE_PIECE_BYTES", 128 << 10, "environment");
	assert_ok(sluice_context_close(ctx));
}

static struct sluice_feature feature_of(const sluice_context *ctx, const char *name)
{
	struct sluice_feature s = {.size = sizeof(s)};
	size_t i;

	for (i = 0; sluice_context_feature(ctx, i, &s) == 0; i++)
		if (strcmp(s.name, name) == 0)
			return s;
	fail_msg("%s is not listed", name);
	return s;
}

SETTINGS_TEST(each_feature_is_described)
{
	struct sluice_feature s = {.size = sizeof(s)};
	sluice_context *ctx = make(NULL);
	size_t i;

	for (i = 0; sluice_context_feature(ctx, i, &s) == 0; i++) {
		assert_int_equal(s.size, sizeof(s));
		assert_true(*s.name && *s.detail && *s.effect);
		assert_true(s.usable == 0 || s.usable == 1);
	}
	assert_true(i >= 5);
	assert_int_equal(sluice_context_feature(ctx, i, &s), -ENOENT);
	s.size = 0;
	assert_refused(sluice_context_feature(ctx, 0, &s), EINVAL, "size");
	assert_refused(sluice_context_feature(NULL, 0, &s), EINVAL, "");
	assert_int_equal(feature_of(ctx, "io_uring").usable, machine_has_uring());
	assert_ok(sluice_context_close(ctx));
}

SETTINGS_TEST(disabled_feature_is_not_usable)
{
	struct sluice_config c = SLUICE_CONFIG_INIT;
	struct sluice_feature s = {.size = sizeof(s)};
	sluice_context *ctx;
	size_t i;

	c.disable = "uring,cachestat,nowait,dontcache,dioalign";
	ctx = make(&c);
	assert_string_equal(setting_of(ctx, "SLUICE_DISABLE").value, c.disable);
	for (i = 0; sluice_context_feature(ctx, i, &s) == 0; i++)
		if (strstr(s.name, "uring") || strstr(s.name, "cachestat") ||
		    strstr(s.name, "NOWAIT") || strstr(s.name, "DONTCACHE") ||
		    strstr(s.name, "DIOALIGN"))
			assert_int_equal(s.usable, 0);
	assert_ok(sluice_context_close(ctx));
}

SETTINGS_TEST(the_number_of_threads_is_what_was_set)
{
	static const struct {
		size_t workers, reactors;
	} cases[] = {{1, 1}, {7, 1}, {3, 4}};
	size_t i, before;

	/* For those to leave /proc that were joined just now. */
	for (int j = 0; j < 400 && count_threads() > 1; j++)
		sleep_ms(5);
	before = count_threads();
	for (i = 0; i < COUNT_OF(cases); i++) {
		struct sluice_config c = SLUICE_CONFIG_INIT;
		sluice_context *ctx;
		size_t now;

		c.workers = cases[i].workers;
		config_tune(&c, "reactors", cases[i].reactors);
		ctx = make(&c);
		now = count_threads();
		assert_ok(sluice_context_close(ctx));
		/* And the first of those that wait for storage. */
		assert_int_equal(now - before,
		                 1 + cases[i].workers +
		                         (machine_has_uring() ? cases[i].reactors : 0));
		for (int j = 0; j < 200 && count_threads() > before; j++)
			sleep_ms(5);
		assert_int_equal(count_threads(), before);
	}
}

SETTINGS_TEST(the_version_is_three_numbers_as_in_the_headers)
{
	unsigned a, b, c;
	char rest;

	assert_int_equal(sscanf(sluice_version(), "%u.%u.%u%c", &a, &b, &c, &rest), 3);
	assert_int_equal(a, SLUICE_VERSION_MAJOR);
	assert_int_equal(b, SLUICE_VERSION_MINOR);
	assert_int_equal(c, SLUICE_VERSION_PATCH);
}

int settings_clear(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < NUMERICS; i++)
		unsetenv(numerics[i].variable);
	for (i = 0; i < WORDS; i++)
		unsetenv(words[i].variable);
	unsetenv("SLUICE_CA_BUNDLE");
	unsetenv("SLUICE_BACKEND");
	unsetenv("SLUICE_DISABLE");
	return 0;
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	return RUN_FILES("settings", "settings_refused");
}
