/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of version 0.1, for programs that are compiled with 0.2 and `-include sluice/compat.h`.
 * No other header includes this one, and 0.3 will not have it. docs/changes.md has the line for
 * each.
 *
 * Threads: as the functions that these call.
 */
#ifndef SLUICE_COMPAT_H
#define SLUICE_COMPAT_H

#include <sluice/frames.h>
#include <sluice/sluice.h>
#include <sluice/store.h>
#include <sluice/tensors.h>
#include <sluice/writer.h>

#define SLUICE_RANK_MOST   SLUICE_FRAME_RANK_MOST
#define SLUICE_TENSOR_RANK SLUICE_TENSOR_RANK_MOST

static inline int sluice_context_free(sluice_context *ctx)
{
	return sluice_context_close(ctx);
}

static inline void sluice_list_close(sluice_list *list)
{
	sluice_list_free(list);
}

static inline void sluice_tensors_close(sluice_tensors *tensors)
{
	sluice_tensors_free(tensors);
}

static inline void sluice_watch_close(sluice_watch *watch)
{
	sluice_watch_free(watch);
}

static inline void sluice_frames_close(sluice_frames *frames)
{
	sluice_frames_free(frames);
}

static inline int sluice_next_done(sluice_context *ctx, int timeout_ms, sluice_op **out)
{
	return sluice_queue_next(sluice_context_queue(ctx), timeout_ms, out);
}

static inline int sluice_done_fd(sluice_context *ctx)
{
	return sluice_queue_fd(sluice_context_queue(ctx));
}

static inline int sluice_compat_submit(sluice_file *file, int kind, const struct sluice_extent *v,
                                       size_t count, int on, sluice_stream stream, sluice_op **out)
{
	struct sluice_request r = SLUICE_REQUEST_INIT;

	r.kind = kind;
	r.extents = v;
	r.count = count;
	r.on = on;
	r.stream = stream;
	return sluice_submit(file, &r, out);
}

static inline int sluice_readv(sluice_file *file, const struct sluice_extent *v, size_t count,
                               sluice_op **out)
{
	return sluice_compat_submit(file, SLUICE_READ, v, count, 0, NULL, out);
}

static inline int sluice_writev(sluice_file *file, const struct sluice_extent *v, size_t count,
                                sluice_op **out)
{
	return sluice_compat_submit(file, SLUICE_WRITE, v, count, 0, NULL, out);
}

static inline int sluice_readv_on(sluice_file *file, const struct sluice_extent *v, size_t count,
                                  sluice_stream stream, sluice_op **out)
{
	return sluice_compat_submit(file, SLUICE_READ, v, count, 1, stream, out);
}

static inline int sluice_writev_on(sluice_file *file, const struct sluice_extent *v, size_t count,
                                   sluice_stream stream, sluice_op **out)
{
	return sluice_compat_submit(file, SLUICE_WRITE, v, count, 1, stream, out);
}

#endif
