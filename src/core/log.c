/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "core/core.h"

void sl_log(const struct sl_settings *settings, enum sl_log_level level, const char *format, ...)
{
	char line[1024];
	int64_t now;
	va_list arguments;
	int length;

	if (level > settings->log)
		return;
	now = sl_now();
	length = snprintf(line, sizeof(line), "sluice %6d.%06d ", (int)(now / 1000000000),
	                  (int)(now % 1000000000 / 1000));
	va_start(arguments, format);
	length += vsnprintf(line + length, sizeof(line) - length, format, arguments);
	va_end(arguments);
	length = SL_MIN(length, (int)sizeof(line) - 1);
	line[length] = '\n';
	/* One call, so that the lines of several threads stay whole. */
	(void)!write(STDERR_FILENO, line, length + 1);
}
