/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/core.h"

static _Thread_local char last_message[1024];

int sl_fail(int error, const char *format, ...)
{
	char text[sizeof(last_message)];
	va_list arguments;

	/* By way of a second buffer: the arguments may include the last message. */
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	memcpy(last_message, text, sizeof(text));
	return error;
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
