/* SPDX-License-Identifier: Apache-2.0 */
/* A full disk: a writer waits for room instead of failing, as long as its program allows.
 * Threads: the file thread waits, inside a call; a sink tells about another process. */
#include <inttypes.h>

#include "frames/frames_internal.h"

#define FULL_NS ((int64_t)1000000000) /* until a full disk is tried again */

/* Reads without the mutex: these fields are changed by this thread alone. */
bool sl_disk_full(void *writer, int error) SL_UNCHECKED
{
	struct sluice_writer *w = writer;
	struct sl_disk *disk = &w->disk;
	int64_t now = sl_now(), until, last;
	bool again;

	if (!disk->most_ns)
		return false;
	if (!disk->error)
		sl_log(sl_context_settings(w->ctx), SL_LOG_WAITS,
		       "'%s': %s: the writer waits for room", w->path, sl_error_text(error));
	sl_mutex_lock(&w->mutex);
	if (!disk->error) {
		disk->since = now;
		disk->waits++;
	}
	disk->error = error;
	last = disk->most_ns == SL_FOREVER ? SL_FOREVER : disk->since + disk->most_ns;
	until = SL_MIN(now + SL_MIN(FULL_NS, disk->most_ns / 10), last);
	/* Ended by the time, or by sluice_writer_discard(). */
	while (w->locked.closing != SL_DISCARDING && sl_now() < until)
		sl_cond_wait(&w->work, &w->mutex, until);
	again = now < last && w->locked.closing != SL_DISCARDING;
	sl_mutex_unlock(&w->mutex);
	return again;
}

/* As above. */
int64_t sl_disk_waited(const struct sluice_writer *w) SL_UNCHECKED
{
	int64_t waited_ns = sl_now() - w->disk.since;

	sl_log(sl_context_settings(w->ctx), SL_LOG_WAITS, "'%s': it was waited for %" PRId64 " ms",
	       w->path, waited_ns / 1000000);
	return waited_ns;
}

void sl_writer_full(struct sluice_writer *w, int error)
{
	sl_mutex_lock(&w->mutex);
	w->disk.elsewhere = error;
	sl_mutex_unlock(&w->mutex);
}
