/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes and rates
 *
 * Formats sizes and rates for users.
 *
 * Threads: any.
 */

#include "cli.h"

const char *cli_size_format(uint64_t bytes, char text[CLI_TEXT])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	size_t i = 0;

	if (bytes < 1024) {
		snprintf(text, CLI_TEXT, "%u B", (unsigned)bytes);
		return text;
	}
	/* 1024.0 would belong to the next unit. */
	for (; value >= 1023.95; i++)
		value /= 1024;
	snprintf(text, CLI_TEXT, "%.1f %s", value, units[i]);
	return text;
}

const char *cli_rate_format(double bytes_per_second, char text[CLI_TEXT])
{
	if (bytes_per_second >= 999.5e6)
		snprintf(text, CLI_TEXT, "%.2f GB/s", bytes_per_second / 1e9);
	else if (bytes_per_second >= 999.5e3)
		snprintf(text, CLI_TEXT, "%.0f MB/s", bytes_per_second / 1e6);
	else
		snprintf(text, CLI_TEXT, "%.0f kB/s", bytes_per_second / 1e3);
	return text;
}
