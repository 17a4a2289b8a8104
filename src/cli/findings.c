/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice doctor: lists
 *
 * Prints findings under headings, for users or as JSON.
 *
 * Threads: the main thread.
 */
#include "doctor.h"

void cli_feature_begin(bool json, const struct sluice_feature *f, bool first)
{
	if (!json) {
		printf("%c %-16s %s\n", f->usable ? '+' : '-', f->name, f->detail);
		if (f->effect)
			printf("  %-16s %s\n", "", f->effect);
		if (f->remedy)
			printf("  %-16s remedy: %s\n", "", f->remedy);
		return;
	}
	cli_json_string(first ? "\n    {\"name\": " : ",\n    {\"name\": ", f->name);
	printf(", \"usable\": %s", f->usable ? "true" : "false");
	cli_json_string(", \"detail\": ", f->detail);
	cli_json_string(", \"effect\": ", f->effect);
	cli_json_string(", \"remedy\": ", f->remedy);
}

void cli_feature_print(bool json, const struct sluice_feature *f, bool first)
{
	cli_feature_begin(json, f, first);
	if (json)
		putchar('}');
}

void cli_heading_print(bool json, const char *title, const char *key)
{
	if (json)
		printf(",\n  \"%s\": [", key);
	else
		printf("\n%s\n", title);
}

void cli_list_end(bool json)
{
	if (json)
		printf("\n  ]");
}
