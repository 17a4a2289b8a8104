/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies from the buffers of a load
 *
 * Each thread of a crew has buffers, and a stream for each device. A buffer is used again when the
 * events of all streams have come.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tensors/crew.h"
#include "tensors/digest.h"

int sl_lanes_open(struct sl_lanes *lanes, int device, unsigned buffers, size_t buffer_bytes)
{
	lanes->buffers = buffers;
	lanes->bytes = buffers * buffer_bytes;
	lanes->pinned = device >= 0;
	if (lanes->pinned)
		return sluice_pinned_alloc(device, lanes->bytes, (void **)&lanes->memory);
	lanes->memory = sl_private_map(lanes->bytes);
	return lanes->memory ? 0 : sl_fail(-ENOMEM, "no memory for the buffers of a load");
}

void sl_lanes_close(struct sl_lanes *lanes)
{
	for (int i = 0; i < SL_DEVICES_MOST; i++) {
		struct sl_lane *lane = &lanes->of[i];

		if (!lane->stream)
			continue;
		sluice_stream_synchronize(i, lane->stream);
		for (unsigned j = 0; j < lanes->buffers; j++)
			if (lane->ends[j])
				sluice_event_free(lane->ends[j]);
		sluice_stream_free(lane->stream);
	}
	if (lanes->memory && lanes->pinned)
		sluice_pinned_free(lanes->memory);
	else if (lanes->memory)
		munmap(lanes->memory, lanes->bytes);
}

static int lane_make(struct sl_lane *lane, int device, unsigned buffers)
{
	int rc = sluice_stream_new(device, &lane->stream);

	for (unsigned i = 0; !rc && i < buffers; i++)
		rc = sluice_event_new(device, &lane->ends[i]);
	return rc;
}

int sl_lanes_copy(struct sl_lanes *lanes, unsigned buffer, int device, char *to, const char *from,
                  struct sl_rows rows)
{
	int rc = 0;

	if (device < 0) {
		for (size_t i = 0; i < rows.count; i++)
			memcpy(to + i * rows.to_pitch, from + i * rows.from_pitch, rows.length);
		return 0;
	}
	struct sl_lane *lane = &lanes->of[device];
	if (!lane->stream)
		rc = lane_make(lane, device, lanes->buffers);
	lane->copying |= UINT32_C(1) << buffer;
	if (rc)
		return rc;
	if (rows.count == 1)
		return sluice_copy_on(to, from, rows.length, lane->stream);
	return sl_device_copy_rows(device, to, from, rows.length, rows.count, rows.to_pitch,
	                           rows.from_pitch, lane->stream);
}

int sl_lanes_record(struct sl_lanes *lanes, unsigned buffer)
{
	int rc = 0;

	for (int i = 0; !rc && i < SL_DEVICES_MOST; i++)
		if (lanes->of[i].copying & UINT32_C(1) << buffer)
			rc = sluice_event_record(lanes->of[i].ends[buffer], lanes->of[i].stream);
	return rc;
}

int sl_lanes_release(struct sl_lanes *lanes, unsigned buffer)
{
	int rc = 0;

	for (int i = 0; !rc && i < SL_DEVICES_MOST; i++) {
		struct sl_lane *lane = &lanes->of[i];

		if (!(lane->copying & UINT32_C(1) << buffer))
			continue;
		rc = sluice_event_synchronize(lane->ends[buffer]);
		lane->copying &= ~(UINT32_C(1) << buffer);
	}
	return rc;
}
