/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's GPUs, for their own files only. */
#ifndef SL_CUDA_H
#define SL_CUDA_H

#include "device/cuda_api.h"
#include "device/cuda_words.h"
#include "device/device.h"

struct cuda {
	struct sl_device base;
	CUdevice ordinal;
	bool words; /* registered memory has the same address there, as words need */
	struct sl_cuda_words in_words;
	struct sl_device_sharing sharing; /* base points to it, if it can share */
	size_t memory_bytes;
	bool direct; /* memory that is shared may be reached by others on the bus, too */

	/* Made at the first call that works on the device, never changed after that. */
	struct sl_mutex opening;
	_Atomic bool is_open;
	CUcontext primary;   /* retained for good */
	sluice_stream probe; /* never given anything: its query tells of errors that stay */
};

static inline struct cuda *sl_cuda_of(struct sl_device *device)
{
	return SL_CONTAINER(device, struct cuda, base);
}

/* -------------------------------------------------------------------------------- cuda.c */

int sl_cuda_error(CUresult rc);
/* 1: done, 0: not yet. */
static inline int sl_cuda_answer(CUresult rc)
{
	return rc == CUDA_ERROR_NOT_READY ? 0 : rc ? sl_cuda_error(rc) : 1;
}
void sl_cuda_relax(void);
void sl_cuda_unrelax(void);
/*
 * Makes a context current, until leave(): the stream's own; for a stream that every context has, the
 * caller's if it is of this device; else the primary one.
 */
int sl_cuda_enter(struct cuda *cuda, sluice_stream stream);
void sl_cuda_leave(void);

/* One call of the driver in a context of the device, for functions that only need that. */
#define IN_CONTEXT(device, stream, call)                             \
	do {                                                         \
		int rc_ = sl_cuda_enter(sl_cuda_of(device), stream); \
		if (!rc_) {                                          \
			rc_ = sl_cuda_error(call);                   \
			sl_cuda_leave();                             \
		}                                                    \
		return rc_;                                          \
	} while (0)

/* ------------------------------------------------------------------------- cuda_stream.c */

int sl_cuda_stream_new(struct sl_device *device, sluice_stream *out);
int sl_cuda_stream_free(struct sl_device *device, sluice_stream stream);
int sl_cuda_stream_query(struct sl_device *device, sluice_stream stream);
int sl_cuda_stream_synchronize(struct sl_device *device, sluice_stream stream);
int sl_cuda_stream_check(struct sl_device *device, sluice_stream stream);
int sl_cuda_enqueue(struct sl_device *device, sluice_stream stream,
                    const struct sl_command *commands, size_t count, size_t *taken);
int sl_cuda_copy(struct sl_device *device, sluice_stream stream, void *to, const void *from,
                 size_t length, bool wait);
int sl_cuda_event_new(struct sl_device *device, sluice_event *out);
int sl_cuda_event_free(struct sl_device *device, sluice_event event);
int sl_cuda_event_record(struct sl_device *device, sluice_event event, sluice_stream stream);
int sl_cuda_event_await(struct sl_device *device, sluice_event event, sluice_stream stream);
int sl_cuda_event_query(struct sl_device *device, sluice_event event);
int sl_cuda_event_synchronize(struct sl_device *device, sluice_event event);

/* ------------------------------------------------------------------------ cuda_sharing.c */

/* What the device can share; NULL, if it cannot. From the first look at it. */
const struct sl_device_sharing *sl_cuda_sharing(const struct sl_cuda_api *api, struct cuda *cuda);

#endif
