/* SPDX-License-Identifier: Apache-2.0 */
/* The settings as the documentation has them, and how tests look at those of a context. */
#ifndef TESTS_CONFORMANCE_SETTINGS_H
#define TESTS_CONFORMANCE_SETTINGS_H

#include "lib/support.h"

enum { NUMERICS = 24, WORDS = 6 };

#define TUNE 0 /* the setting has no field and is named in `tune` */

struct numeric {
	const char *variable;
	size_t offset; /* in struct sluice_config, or TUNE */
	uint64_t least, most;
	uint64_t fallback; /* 0: depends on the machine */
	bool bytes;
};
extern const struct numeric numerics[NUMERICS];

/* Settings that are words. */
struct word {
	const char *variable;
	size_t offset;
	const char *fallback, *other; /* other: another value that is right */
	const char *wrong[4];
};
extern const struct word words[WORDS];

/* Makes a context, which must work; the caller frees it. */
sluice_context *make(const struct sluice_config *config);
/* The setting of that name; fails the test if it is not listed. */
struct sluice_setting setting_of(const sluice_context *ctx, const char *variable);
void check_setting(const sluice_context *ctx, const char *variable, uint64_t value,
                   const char *source);

/* Before and after each test: no variable is set. */
int settings_clear(void **state);
#define SETTINGS_TEST(name) TEST_WITH(name, settings_clear, settings_clear)

#endif
