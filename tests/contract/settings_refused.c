/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that are wrong, each for itself or together: refused by the name of the variable. */
#include <ctype.h>

#include "contract/settings.h"

static char *tune_of(const char *variable, const char *value)
{
	static char text[128];
	size_t i = strlen("SLUICE_"), n = 0;

	for (; variable[i]; i++)
		text[n++] = (char)tolower((unsigned char)variable[i]);
	snprintf(text + n, sizeof(text) - n, "=%s", value);
	return text;
}

static void set_number(struct sluice_config *c, const struct numeric *n, uint64_t value)
{
	char *name = tune_of(n->variable, "");

	if (n->offset != TUNE) {
		*(size_t *)((char *)c + n->offset) = (size_t)value;
		return;
	}
	name[strlen(name) - 1] = '\0';
	config_tune(c, name, (size_t)value);
}

static void set_word(struct sluice_config *c, const struct word *w, const char *value)
{
	if (w->offset != TUNE)
		memcpy((char *)c + w->offset, &value, sizeof(value));
	else
		c->tune = tune_of(w->variable, value);
}

SETTINGS_TEST(the_edges_of_each_range_are_accepted_and_beyond_them_refused)
{
	size_t i;

	for (i = 0; i < NUMERICS; i++) {
		const struct numeric *n = &numerics[i];
		const uint64_t bad[] = {n->least - 1, n->most + 1, SIZE_MAX};
		sluice_context *ctx = NULL;
		struct sluice_config c;
		char text[32];
		size_t j;

		for (j = 0; j < COUNT_OF(bad); j++) {
			c = (struct sluice_config)SLUICE_CONFIG_INIT;
			c.backend = "posix";
			set_number(&c, n, bad[j]);
			if (bad[j])
				assert_refused(sluice_context_new(&c, &ctx), EINVAL, n->variable);
			c = (struct sluice_config)SLUICE_CONFIG_INIT;
			c.backend = "posix";
			snprintf(text, sizeof(text), "%llu", (unsigned long long)bad[j]);
			setenv(n->variable, text, 1);
			assert_refused(sluice_context_new(&c, &ctx), EINVAL, n->variable);
			unsetenv(n->variable);
			assert_null(ctx);
		}
		for (j = 0; j < 2; j++) {
			uint64_t value = j ? n->most : n->least;

			c = (struct sluice_config)SLUICE_CONFIG_INIT;
			c.backend = "posix";
			/* Each alone is right; together with the others it has to be as well. */
			config_tune(&c, "piece_bytes",
			            strcmp(n->variable, "SLUICE_INLINE_BYTES") ? 4096 : 16 * MIB);
			config_tune(&c, "inline_bytes", 1);
			c.http_backoff_ms = 1;
			config_tune(&c, "http_backoff_max_ms", 3600000);
			if (strcmp(n->variable, "SLUICE_BOUNCE_BYTES") == 0 && j)
				config_tune(&c, "piece_bytes", MIB);
			set_number(&c, n, value);
			ctx = make(&c);
			check_setting(ctx, n->variable, value, "config");
			assert_ok(sluice_context_close(ctx));
			ctx = NULL;
		}
	}
}

SETTINGS_TEST(setting_without_a_number_is_refused_by_its_variable)
{
	static const char *const garbage[] = {"12x",
	                                      "-1",
	                                      "x",
	                                      " 4",
	                                      "4 ",
	                                      "0x10",
	                                      "1.5",
	                                      "+4",
	                                      "1e3",
	                                      "K",
	                                      "1KK",
	                                      "--4",
	                                      "4,5",
	                                      "99999999999999999999",
	                                      "18446744073709551617",
	                                      "0"};
	sluice_context *ctx = NULL;
	size_t i, j;

	for (i = 0; i < NUMERICS; i++) {
		for (j = 0; j < COUNT_OF(garbage); j++) {
			int rc;

			setenv(numerics[i].variable, garbage[j], 1);
			rc = sluice_context_new(NULL, &ctx);
			if (rc != -EINVAL)
				fail_msg("%s=%s: %d, not -EINVAL", numerics[i].variable, garbage[j],
				         rc);
			if (!strstr(sluice_last_message(), numerics[i].variable))
				fail_msg("%s=%s: \"%s\" does not name it", numerics[i].variable,
				         garbage[j], sluice_last_message());
		}
		/* Nothing but counts of bytes have units. */
		if (!numerics[i].bytes) {
			setenv(numerics[i].variable, "4K", 1);
			assert_refused(sluice_context_new(NULL, &ctx), EINVAL,
			               numerics[i].variable);
		}
		unsetenv(numerics[i].variable);
	}
	assert_null(ctx);
}

SETTINGS_TEST(a_wrong_text_of_tune_is_refused_by_what_is_wrong_in_it)
{
	static const struct {
		const char *tune, *says;
	} cases[] = {
		{"colour=1", "SLUICE_COLOUR"},
		{"slots=2,=1", "no setting SLUICE_"},
		{"slots=2,workers=1", "SLUICE_WORKERS has a field"},
		{"tune=1", "SLUICE_TUNE"},
		{"slots", "'slots' has no '='"},
		{"slots=", "SLUICE_SLOTS: ''"},
		{"slots=65", "SLUICE_SLOTS: 65"},
		{"slots=2 ", "SLUICE_SLOTS: '2 '"},
		{"piece_bytes=5000", "SLUICE_PIECE_BYTES: 5000"},
		{"cufile_streams=yes", "SLUICE_CUFILE_STREAMS: 'yes'"},
	};
	struct sluice_config c = SLUICE_CONFIG_INIT;
	sluice_context *ctx = NULL;
	char lengthy[5000];

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		c.tune = cases[i].tune;
		assert_refused(sluice_context_new(&c, &ctx), EINVAL, cases[i].says);
	}
	memset(lengthy, ',', sizeof(lengthy) - 1);
	lengthy[sizeof(lengthy) - 1] = '\0';
	c.tune = lengthy;
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "tune: longer");
	assert_null(ctx);
}

SETTINGS_TEST(slots_are_checked_against_pieces_and_the_budget)
{
	struct sluice_config c = SLUICE_CONFIG_INIT;
	sluice_context *ctx = NULL;

	setenv("SLUICE_SLOTS", "0", 1);
	setenv("SLUICE_SLOT_BYTES", "0", 1);
	ctx = make(NULL);
	check_setting(ctx, "SLUICE_SLOTS", 0, "environment");
	assert_ok(sluice_context_close(ctx));
	ctx = NULL;
	setenv("SLUICE_SLOTS", "65", 1);
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_SLOTS");
	unsetenv("SLUICE_SLOTS");
	setenv("SLUICE_SLOT_BYTES", "1000", 1);
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_SLOT_BYTES");
	unsetenv("SLUICE_SLOT_BYTES");
	config_tune(&c, "slot_bytes", 512 * KIB);
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_PIECE_BYTES");
	config_tune(&c, "piece_bytes", 64 * KIB);
	config_tune(&c, "slot_bytes", 64 * KIB);
	config_tune(&c, "slots", 8);
	/* Half of it has to hold 512 KiB. */
	c.staging_bytes = 1016 * KIB;
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_STAGING_BYTES");
	c.staging_bytes = MIB;
	ctx = make(&c);
	assert_ok(sluice_context_close(ctx));
	config_tune(&c, "slots", 1);
	c.staging_bytes = 124 * KIB; /* the half for stream order has 60 KiB */
	ctx = NULL;
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_STAGING_BYTES");
	assert_null(ctx);
}

SETTINGS_TEST(settings_are_checked_against_each_other)
{
	struct sluice_config c = SLUICE_CONFIG_INIT;
	sluice_context *ctx = NULL;

	config_tune(&c, "piece_bytes", 4096 + 512);
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_PIECE_BYTES");
	setenv("SLUICE_PIECE_BYTES", "5000", 1);
	assert_refused(sluice_context_new(NULL, &ctx), EINVAL, "SLUICE_PIECE_BYTES");
	unsetenv("SLUICE_PIECE_BYTES");
	c = (struct sluice_config)SLUICE_CONFIG_INIT;
	config_tune(&c, "piece_bytes", 4 * MIB);
	config_tune(&c, "bounce_bytes", 2 * MIB);
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_BOUNCE_BYTES");
	config_tune(&c, "bounce_bytes", 0);
	config_tune(&c, "inline_bytes", 5 * MIB);
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_INLINE_BYTES");
	c = (struct sluice_config)SLUICE_CONFIG_INIT;
	c.http_backoff_ms = 5000;
	config_tune(&c, "http_backoff_max_ms", 4999);
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_HTTP_BACKOFF_MS");
	c = (struct sluice_config)SLUICE_CONFIG_INIT;
	c.backend = "uring";
	c.disable = "uring";
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_DISABLE");
	setenv("SLUICE_DISABLE", "nowait,uring", 1);
	c.disable = NULL;
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_DISABLE");
	assert_null(ctx);
}

SETTINGS_TEST(names_are_checked)
{
	static const char *const backends[] = {"foo", "POSIX", "posix,uring", " uring", "auto "};
	static const char *const features[] = {
		"foo", "uring,foo", "uring;nowait", "URING", "uring,,nowait", ",", "nowait "};
	struct sluice_config c;
	sluice_context *ctx = NULL;
	size_t i;

	for (i = 0; i < COUNT_OF(backends); i++) {
		c = (struct sluice_config)SLUICE_CONFIG_INIT;
		c.backend = backends[i];
		assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_BACKEND");
		assert_non_null(strstr(sluice_last_message(), backends[i]));
		setenv("SLUICE_BACKEND", backends[i], 1);
		assert_refused(sluice_context_new(NULL, &ctx), EINVAL, "SLUICE_BACKEND");
		unsetenv("SLUICE_BACKEND");
	}
	for (i = 0; i < COUNT_OF(features); i++) {
		c = (struct sluice_config)SLUICE_CONFIG_INIT;
		c.disable = features[i];
		assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_DISABLE");
		setenv("SLUICE_DISABLE", features[i], 1);
		assert_refused(sluice_context_new(NULL, &ctx), EINVAL, "SLUICE_DISABLE");
		unsetenv("SLUICE_DISABLE");
	}
	assert_null(ctx);
}

SETTINGS_TEST(words_of_remote_files_are_checked)
{
	struct sluice_config c;
	sluice_context *ctx = NULL;
	char lengthy[5000];
	size_t i, j;

	for (i = 0; i < WORDS; i++) {
		const struct word *w = &words[i];

		ctx = make(NULL);
		assert_string_equal(setting_of(ctx, w->variable).value, w->fallback);
		assert_ok(sluice_context_close(ctx));
		setenv(w->variable, w->other, 1);
		ctx = make(NULL);
		assert_string_equal(setting_of(ctx, w->variable).value, w->other);
		assert_string_equal(setting_of(ctx, w->variable).source, "environment");
		assert_ok(sluice_context_close(ctx));
		c = (struct sluice_config)SLUICE_CONFIG_INIT;
		set_word(&c, w, w->fallback);
		ctx = make(&c);
		assert_string_equal(setting_of(ctx, w->variable).value, w->fallback);
		assert_string_equal(setting_of(ctx, w->variable).source, "config");
		assert_ok(sluice_context_close(ctx));
		ctx = NULL;
		for (j = 0; j < COUNT_OF(w->wrong) && w->wrong[j]; j++) {
			setenv(w->variable, w->wrong[j], 1);
			assert_refused(sluice_context_new(NULL, &ctx), EINVAL, w->variable);
			assert_non_null(strstr(sluice_last_message(), w->wrong[j]));
			unsetenv(w->variable);
			c = (struct sluice_config)SLUICE_CONFIG_INIT;
			set_word(&c, w, w->wrong[j]);
			assert_refused(sluice_context_new(&c, &ctx), EINVAL, w->variable);
		}
	}
	setenv("SLUICE_CA_BUNDLE", "/dev/null", 1);
	ctx = make(NULL);
	assert_string_equal(setting_of(ctx, "SLUICE_CA_BUNDLE").value, "/dev/null");
	assert_ok(sluice_context_close(ctx));
	ctx = NULL;
	memset(lengthy, 'x', sizeof(lengthy) - 1);
	lengthy[sizeof(lengthy) - 1] = '\0';
	setenv("SLUICE_CA_BUNDLE", lengthy, 1);
	assert_refused(sluice_context_new(NULL, &ctx), EINVAL, "SLUICE_CA_BUNDLE");
	unsetenv("SLUICE_CA_BUNDLE");
	assert_null(ctx);
}

SETTINGS_TEST(a_struct_of_no_size_is_refused)
{
	struct sluice_config c = SLUICE_CONFIG_INIT;
	sluice_context *ctx = NULL;

	c.size = 0;
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "size");
	assert_refused(sluice_context_new(NULL, NULL), EINVAL, "");
	assert_null(ctx);
}
