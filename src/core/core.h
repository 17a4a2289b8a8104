/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Core: the base of every room. This header is the only one that other rooms include; it brings errors and the log,
 * types of elements, and the headers below.
 */
#ifndef SL_CORE_H
#define SL_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <sluice/sluice.h>
#include <sluice/type.h>

#include "core/fdpass.h"
#include "core/interval.h"
#include "core/list.h"
#include "core/mutex.h"
#include "core/settings.h"
#include "core/temp_file.h"
#include "core/threads.h"
#include "core/uri.h"

#define SL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SL_MAX(a, b) ((a) > (b) ? (a) : (b))

/* ----------------------------------------------------------------------------- error and log */

/* Sets the sentence that sluice_last_message() returns on this thread, and returns error. */
__attribute__((format(printf, 2, 3))) int sl_fail(int error, const char *format, ...);
/* Returns the text of a negative errno, for sentences. */
const char *sl_error_text(int error);

enum sl_log_level { SL_LOG_OFF, SL_LOG_ERROR, SL_LOG_INFO, SL_LOG_DEBUG };
/* Writes a line to standard error if SLUICE_LOG asks for that level. */
__attribute__((format(printf, 3, 4))) void sl_log(const struct sl_settings *settings,
                                                  enum sl_log_level level, const char *format, ...);

/* ------------------------------------------------------------------------------------- types */

enum sl_number { SL_SIGNED, SL_UNSIGNED, SL_REAL, SL_BFLOAT, SL_COMPLEX, SL_BOOL };
struct sl_type {
	const char *name;
	enum sl_number number;
	size_t bytes; /* of an element */
};
/* Returns the description of a value of enum sluice_type, or NULL if there is no such type. */
const struct sl_type *sl_type_find(int type);

#endif
