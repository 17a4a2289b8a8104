/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "number.h"

unsigned long number_whole(const struct argp_state *state, const char *option, const char *argument,
                           unsigned long least, unsigned long most)
{
	char *end = NULL;
	unsigned long value = 0;

	errno = 0;
	/* strtoul() would take "-1". */
	if (isdigit((unsigned char)argument[0]))
		value = strtoul(argument, &end, 10);
	if (!end || *end || errno || value < least || value > most)
		argp_error(state, "--%s is a whole number from %lu to %lu, not '%s'", option, least,
		           most, argument);
	return value;
}

double number_real(const struct argp_state *state, const char *option, const char *argument,
                   double least, double most)
{
	char *end;
	double value = strtod(argument, &end);

	/* So written that NaN is refused. */
	if (end == argument || *end || !(value >= least && value <= most))
		argp_error(state, "--%s is a number from %g to %g, not '%s'", option, least, most,
		           argument);
	return value;
}
