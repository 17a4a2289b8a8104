/* SPDX-License-Identifier: Apache-2.0 */
#include <hdf5.h>
#include <stdio.h>
#include <string.h>

#include "hdf5_error.h"

struct found {
	char *text;
	size_t size;
};

/* The innermost entry comes first, and says most. */
static herr_t take_first(unsigned n, const H5E_error2_t *error, void *argument)
{
	struct found *found = argument;
	const char *reason;

	if (n > 0)
		return 0;
	/* The reason of the system, behind which come HDF5's own numbers. */
	reason = strstr(error->desc, "error message = '");
	if (reason) {
		reason += strlen("error message = '");
		snprintf(found->text, found->size, "%.*s", (int)strcspn(reason, "'"), reason);
	} else {
		snprintf(found->text, found->size, "%s", error->desc);
	}
	return 0;
}

void hdf5_errors_quiet(void)
{
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void hdf5_error(char *text, size_t size)
{
	struct found found = {text, size};

	snprintf(text, size, "HDF5 does not say why");
	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &found);
	/* The errors of a thread that has ended keep HDF5 from closing at exit. */
	H5Eclear2(H5E_DEFAULT);
}
