/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA devices: their structure, and the functions that the cuda*.c files offer each other. */
#ifndef SL_CUDA_H
#define SL_CUDA_H

#include "device/cuda_api.h"
#include "device/cuda_describe.h"
#include "device/device.h"

struct cuda {
	struct sl_device base;
	CUdevice ordinal;
	/* the device uses the host's address of registered memory, as stream order needs */
	bool words;
	struct sl_cuda_text text;
	struct sl_device_sharing sharing; /* base.sharing points here if memory can be shared */
	size_t memory_bytes;
	/* bits of devices whose memory this one was asked to reach, and those that it reaches */
	_Atomic uint32_t asked, reached;
	bool direct; /* shared memory is also made for access by other devices on the bus */

	/* Set by the first call that works on the device, and constant afterwards. */
	struct sl_mutex opening;
	_Atomic bool is_open;
	CUcontext primary; /* retained for good */
	/* always empty; cuStreamQuery() on this stream reports sticky errors */
	CUstream probe;
};

static inline struct cuda *sl_cuda_of(struct sl_device *device)
{
	return SL_CONTAINER(device, struct cuda, base);
}

/* -------------------------------------------------------------------------------- cuda.c */

int sl_cuda_error(CUresult rc);
/* Returns 1 if the query says done, 0 if not yet, or a negative errno. */
static inline int sl_cuda_answer(CUresult rc)
{
	return rc == CUDA_ERROR_NOT_READY ? 0 : rc ? sl_cuda_error(rc) : 1;
}
void sl_cuda_relax(void);
void sl_cuda_unrelax(void);
/*
 * Makes a context current until sl_cuda_leave(): the context of the stream; for a default stream,
 * which every context has, the caller's context if it belongs to this device, else the primary
 * context.
 */
int sl_cuda_enter(struct cuda *cuda, sluice_stream stream);
void sl_cuda_leave(void);

/* Makes a single driver call inside a context of the device and returns its error. */
#define IN_CONTEXT(device, stream, call) ENTERED(device, stream, sl_cuda_error(call))
/* The same for an expression with 0 or a negative errno. */
#define ENTERED(device, stream, result)                              \
	do {                                                         \
		int rc_ = sl_cuda_enter(sl_cuda_of(device), stream); \
		if (!rc_) {                                          \
			rc_ = result;                                \
			sl_cuda_leave();                             \
		}                                                    \
		return rc_;                                          \
	} while (0)

/* ------------------------------------------------------------------------- cuda_stream.c */

bool sl_cuda_reach(struct sl_device *device, struct sl_device *other);
int sl_cuda_stream_new(struct sl_device *device, sluice_stream *out);
int sl_cuda_stream_free(struct sl_device *device, sluice_stream stream);
int sl_cuda_stream_query(struct sl_device *device, sluice_stream stream);
int sl_cuda_stream_synchronize(struct sl_device *device, sluice_stream stream);
int sl_cuda_stream_check(struct sl_device *device, sluice_stream stream);
bool sl_cuda_joins(struct sl_device *device, sluice_stream stream);
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

/* Fills and returns cuda->sharing; NULL: it cannot share. Once, when devices are numbered. */
const struct sl_device_sharing *sl_cuda_sharing(const struct sl_cuda_api *api, struct cuda *cuda);

#endif
