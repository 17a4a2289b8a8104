/* SPDX-License-Identifier: Apache-2.0 */
/* The frame writer without HDF5: frames, chunks, order, errors; over a file in memory that looks on. */
#include "frames/pipeline_test.h"

int main(int argc, char **argv)
{
	const char *device = getenv("SLUICE_TEST_DEVICE");
	const struct sl_codec *codec;

	row_start(argc, argv);
	row_start_devices();
	/* What a real device, or a driver, makes different. */
	if (device)
		return RUN_FILES("pipeline_devices");
	if (sl_codec_find("deflate", 1, &codec)) {
		printf("skipped: %s\n", sluice_last_message());
		return 77;
	}
	return RUN_FILES("pipeline_order", "pipeline_chunks", "pipeline_flush", "pipeline_failures",
	                 "pipeline_devices", "pipeline_stress");
}
