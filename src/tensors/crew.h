/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of a load that reads through its own buffers, and the copies from these. */
#ifndef SL_CREW_H
#define SL_CREW_H

#include "core/core.h"
#include "device/device.h"

/*
 * Has `threads` threads do the same work, the calling thread among them; fewer if no more can be
 * started. The first error sets *stop. Waits for all. Returns 0, or that error with its sentence.
 */
int sl_crew_run(const char *name, unsigned threads, int (*work)(void *argument), void *argument,
                _Atomic bool *stop);

/* ------------------------------------------------------------------------------------- buffers */

#define SL_LANE_BUFFERS 32

/* The buffers of a thread, and of each device that bytes are copied to from there a stream. */
struct sl_lanes {
	char *memory; /* of all buffers, aligned to a page */
	size_t bytes;
	bool pinned;
	unsigned buffers;
	struct sl_lane {
		sluice_stream stream;               /* NULL: not made yet */
		sluice_event ends[SL_LANE_BUFFERS]; /* of the copies from each buffer */
		uint32_t copying; /* bits of buffers that the stream copies from */
	} of[SL_DEVICES_MOST];
};
/*
 * Allocates buffers, pinned for a device, or with -1 not. sl_lanes_close() frees them, also after
 * an error, when all copies are over. Returns 0, or an error with a sentence.
 */
int sl_lanes_open(struct sl_lanes *lanes, int device, unsigned buffers, size_t buffer_bytes);
void sl_lanes_close(struct sl_lanes *lanes);

/* Rows of bytes, at equal distances where they are and where they belong. */
struct sl_rows {
	size_t count, length, from_pitch, to_pitch;
};
/* Copies rows from a buffer to the host (-1), at once, or to a device, in its stream's order. */
int sl_lanes_copy(struct sl_lanes *lanes, unsigned buffer, int device, char *to, const char *from,
                  struct sl_rows rows);
/* Marks the end of the copies from a buffer. */
int sl_lanes_record(struct sl_lanes *lanes, unsigned buffer);
/* Waits for the copies from a buffer, which wait for nothing but the device. */
int sl_lanes_release(struct sl_lanes *lanes, unsigned buffer);

#endif
