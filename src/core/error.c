/* SPDX-License-Identifier: Apache-2.0 */
/* Errors and the log: the last sentence of each thread, and lines to stderr. Any thread. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/core.h"

static _Thread_local char last_message[1024];

int sl_fail(int error, const char *format, ...)
{
	char text[sizeof(last_message)];
	va_list arguments;

	/* Through a second buffer: the arguments may include the last message. */
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	memcpy(last_message, text, sizeof(text));
	return error;
}

int sl_fail_with(int error, const char *sentence)
{
	return error ? sl_fail(error, "%s", sentence ? sentence : sl_error_text(error)) : 0;
}

const char *sl_error_text(int error)
{
	const char *text = strerrordesc_np(-error);

	return text ? text : "unknown error";
}

const char *sluice_last_message(void)
{
	return last_message;
}

void sl_struct_give(void *out, const void *from, size_t bytes)
{
	size_t size = *(const size_t *)out;

	memcpy(out, from, SL_MIN(size, bytes));
	*(size_t *)out = size;
}

int sl_struct_take(const char *name, const void *from, void *out, size_t bytes)
{
	if (from && *(const size_t *)from < sizeof(size_t))
		return sl_fail(-EINVAL, "%s: size is not set", name);
	if (from)
		memcpy(out, from, SL_MIN(*(const size_t *)from, bytes));
	*(size_t *)out = bytes;
	return 0;
}

void sl_log(const struct sl_settings *settings, enum sl_log_level level, const char *format, ...)
{
	char line[1024];
	int64_t now;
	va_list arguments;
	int length;

	if (level > settings->log)
		return;
	now = sl_now();
	/* Errors alone are for a person at a terminal; with more lines the times matter. */
	length = settings->log == SL_LOG_ERROR
	                 ? snprintf(line, sizeof(line), "sluice: ")
	                 : snprintf(line, sizeof(line), "sluice %6d.%06d ", (int)(now / 1000000000),
	                            (int)(now % 1000000000 / 1000));
	va_start(arguments, format);
	length += vsnprintf(line + length, sizeof(line) - length, format, arguments);
	va_end(arguments);
	length = SL_MIN(length, (int)sizeof(line) - 1);
	line[length] = '\n';
	/* A single call per line, so that lines of several threads do not mix. */
	(void)!write(STDERR_FILENO, line, length + 1);
}
