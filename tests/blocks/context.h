/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a piece of a program in a document stands in: the variables that it has not made itself, a device that is made of
 * threads, and kernels that are functions. blocks.py puts the piece into block(), and defines the document's name.
 */
#include <sluice/arrays.h>
#include <sluice/device.h>
#include <sluice/frames.h>
#include <sluice/sluice.h>
#include <sluice/store.h>
#include <sluice/tensors.h>
#include <sluice/writer.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"

enum { N = 65536, BATCHES = 4 };

static sluice_context *ctx;
static sluice_op *op, *op2, *ops[BATCHES];
static sluice_stream stream, copies, compute, other;
static size_t n = N, batches = BATCHES;
static uint64_t offset;
static int number; /* of the emulated device */

static void must(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, sluice_last_message());
	exit(1);
}

static int fail(const char *message)
{
	fprintf(stderr, "%s\n", message);
	exit(1);
}

static sluice_stream stream_new(void)
{
	sluice_stream made;

	must(sluice_stream_new(number, &made), "a stream");
	return made;
}

static void *memory_new(size_t bytes)
{
	void *made;

	must(sluice_device_alloc(number, bytes, &made), "memory of the device");
	return made;
}

static int cudaStreamSynchronize(sluice_stream s)
{
	return sluice_stream_synchronize(number, s);
}

/* In these pieces the bytes of a file reach a kernel, which changes nothing. */
#define kernel(...)  ((void)0)
#define kernel2(...) ((void)0)
#define step(...)    ((void)0)
#define use(...)     ((void)0)

static int cudaStreamWaitEvent(sluice_stream s, sluice_event event, int flags)
{
	return flags ? -EINVAL : sluice_event_await(event, s);
}

static int cudaEventRecord(sluice_event event, sluice_stream s)
{
	return sluice_event_record(event, s);
}

#if defined(IN_store)
static sluice_store *store;
static sluice_blob *blob;
static size_t bytes = N;
static int device = 0;
static void fill(void *memory, size_t length)
{
	memset(memory, 1, length);
}
#elif defined(IN_writer)
static sluice_writer *w;
static sluice_series *u;
static sluice_frames *f;
static struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
static int rc, failed, steps = 3;
static double x[1920];
#define compute(frame) memset(frame, 0, 1080 * 1920 * sizeof(float))
static int read_with_hdf5(const char *path)
{
	return !path;
}
#else
static sluice_file *file, *out;
static char buffer[N];
static void *data = buffer, *device_memory;
#if defined(IN_tensors)
static int device;
#else
static void *device;
#endif
#if TWO_BUFFERS
static void *batch[2];
static sluice_event used[2], full[2];
#else
static void *batch;
#endif
static const char *uri = "model.safetensors";
static sluice_tensors *tensors;
static sluice_tensor_plan *plan;
static sluice_tensor_memory *memory;
static sluice_tensor_load *load;
#endif

static int block(void);

int main(void)
{
	must(sluice_context_new(NULL, &ctx), "a context");
	must(sluice_device_find("emulated", &number), "the emulated device");
	stream = stream_new(), copies = stream_new(), compute = stream_new(), other = stream_new();
#if defined(IN_writer)
	if (CONTINUES) {
		must(sluice_writer_open(ctx, "other.h5", NULL, &w), "a writer");
		o.type = SLUICE_FLOAT64, o.rank = 2, o.shape[0] = 2, o.shape[1] = 1920;
	}
#elif defined(IN_store)
	must(sluice_store_open(NULL, NULL, &store), "the store");
#else
	device_memory = memory_new(N);
#if defined(IN_tensors)
	device = number;
#else
	device = device_memory;
#endif
#if TWO_BUFFERS
	for (int i = 0; i < 2; i++) {
		batch[i] = memory_new(N);
		must(sluice_event_new(number, &used[i]), "an event");
		must(sluice_event_new(number, &full[i]), "an event");
	}
#else
	batch = memory_new(N);
#endif
	must(sluice_open(ctx, "weights.bin", NULL, &file), "weights.bin");
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	o.flags = SLUICE_OPEN_WRITE | SLUICE_OPEN_REPLACE;
	must(sluice_open(ctx, "out.bin", &o, &out), "out.bin");
#endif
	must(block(), "the block");
	/* No call of the piece has failed: each that fails leaves a sentence. */
	if (*sluice_last_message())
		return fail(sluice_last_message());
	return 0;
}
