/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the probes share. Each holds streams up and looks at what still goes on; all that waits, waits for
 * one gate, which opens by itself after five seconds, and the program ends after thirty.
 */
#ifndef TESTS_GPU_PROBES_PROBE_H
#define TESTS_GPU_PROBES_PROBE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "gpu/driver.h"

enum { PROBE_PAGE = 4096, STREAMS_MOST = 256 };

/* Loads the driver and the kernels, or ends the program with the exit status 77 and a line. */
void probe_start(void);
/* As in "unset" or "32": CUDA_DEVICE_MAX_CONNECTIONS of this process. */
const char *probe_connections(void);

/* What waits for the gate goes on once it is open. It may be closed when nothing waits any more. */
void gate_close(void);
void gate_open(void);
bool gate_is_open(void);
CUdeviceptr gate_word(void);    /* a word for waits for 1 or more */
CUresult gate_wait(CUstream s); /* by value */
void gate_stand(void *unused);  /* as a host function */

/* Pinned memory and memory of the device, a megabyte of each, for copies. */
extern char *host;
extern CUdeviceptr memory;

/* Whether the stream has done all within the time; the driver is only asked for the stream's state. */
bool stream_is_done(CUstream s, double seconds);
void stream_finish(CUstream s); /* waits for it, and frees it */

void sleep_ms(unsigned ms);
/* A line of output, at once. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
