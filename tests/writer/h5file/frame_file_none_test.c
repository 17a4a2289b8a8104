/* SPDX-License-Identifier: Apache-2.0 */
/* The file of frames in a build without HDF5. */
#include <errno.h>

#include "h5file/h5file.h"
#include "lib/unit.h"

TEST(without_hdf5_there_is_a_sentence)
{
	struct sl_h5_file_options o = {0};
	struct sl_h5_file *file = NULL;

	assert_int_equal(sl_h5_usable(SLUICE_WRITER_ONLY_HDF5), -ENOTSUP);
	assert_non_null(strstr(sluice_last_message(), "built without HDF5"));
	(void)sl_fail(-EIO, "another one");
	assert_int_equal(sl_h5_file_open("file.h5", &o, &file), -ENOTSUP);
	assert_non_null(strstr(sluice_last_message(), "built without HDF5"));
	assert_null(file);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
