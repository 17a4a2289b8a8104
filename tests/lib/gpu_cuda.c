/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's GPUs, by the driver: kernels are PTX, and a stream is held up by a word that it waits for. */
#include "lib/gpu_cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/gpu.h"
#include "lib/pattern.h"

enum { WORDS = 1 << 16, THREADS = 256, BLOCKS_MOST = 512 };

enum kernel { FILL, SCRIBBLE, MATCH, TAKE, SPIN, KERNELS };
static const char *const names[KERNELS] = {"sluice_fill", "sluice_scribble", "sluice_match",
                                           "sluice_take", "sluice_spin"};

struct gpu_driver gpu_driver;

static struct {
	CUcontext ctx;
	CUfunction kernels[KERNELS];
	sluice_stream stream; /* for what is done at once */
} devices[GPU_DEVICES];

/* Pinned, for all devices. Those of gpu_match() are in a stack of free ones. */
static struct {
	_Atomic uint64_t *at;
	pthread_mutex_t mutex;
	uint32_t free[WORDS]; /* guarded by mutex, as is the next */
	uint32_t count;
} words = {.mutex = PTHREAD_MUTEX_INITIALIZER};

const char *gpu_error_name(CUresult error)
{
	const char *name = NULL;

	if (gpu_driver.cuGetErrorName)
		gpu_driver.cuGetErrorName(error, &name);
	return name ? name : "unknown";
}

static int check(CUresult error, const char *function)
{
	if (!error)
		return 0;
	return gpu_failed(-EIO, "%s: %d %s", function, error, gpu_error_name(error));
}
#define CALL(function, ...) check(gpu_driver.function(__VA_ARGS__), #function)

/* One call of the driver in the context of the device. */
#define IN_CONTEXT(which, call)                                            \
	do {                                                               \
		CUcontext ctx_;                                            \
		int rc_ = CALL(cuCtxPushCurrent_v2, devices[(which)].ctx); \
		if (!rc_) {                                                \
			rc_ = (call);                                      \
			gpu_driver.cuCtxPopCurrent_v2(&ctx_);              \
		}                                                          \
		return rc_;                                                \
	} while (0)

/* -------------------------------------------------------------------------------------- words */

/* Where a stream may be long in coming to them: waits for those of others. */
static int take_words(uint32_t *out, unsigned count)
{
	struct timespec pause = {0, 1000000};

	for (int i = 0; i < 20000; i++) {
		bool enough;

		pthread_mutex_lock(&words.mutex);
		enough = words.count >= count;
		for (unsigned k = 0; enough && k < count; k++)
			out[k] = words.free[--words.count];
		pthread_mutex_unlock(&words.mutex);
		if (enough)
			return 0;
		nanosleep(&pause, NULL);
	}
	return gpu_failed(-ETIMEDOUT, "no words for kernels in 20 s");
}

static void give_words(const uint32_t *given, unsigned count)
{
	pthread_mutex_lock(&words.mutex);
	for (unsigned k = 0; k < count; k++)
		words.free[words.count++] = given[k];
	pthread_mutex_unlock(&words.mutex);
}

/* ------------------------------------------------------------------------------------ kernels */

/* Host memory that the driver does not know is no kernel's. */
static bool is_plain(const void *memory)
{
	int attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
	unsigned type = 0;
	void *value = &type;

	return gpu_driver.cuPointerGetAttributes(1, &attribute, &value, (uintptr_t)memory) || !type;
}

static int give(int which, sluice_stream stream, enum kernel kernel, size_t n, void **parameters)
{
	size_t blocks = (n + THREADS - 1) / THREADS;
	unsigned grid = blocks > BLOCKS_MOST ? BLOCKS_MOST : blocks ? (unsigned)blocks : 1;
	CUresult rc = gpu_driver.cuLaunchKernel(devices[which].kernels[kernel], grid, 1, 1, THREADS,
	                                        1, 1, 0, stream, parameters, NULL);

	if (!rc)
		return 0;
	return gpu_failed(-EIO, "cuLaunchKernel(%s): %d %s", names[kernel], rc, gpu_error_name(rc));
}

static int launch(int which, sluice_stream stream, enum kernel kernel, size_t n, void **parameters)
{
	IN_CONTEXT(which, give(which, stream, kernel, n, parameters));
}

static int call(int which, sluice_stream stream, void (*function)(void *), void *argument)
{
	IN_CONTEXT(which, CALL(cuLaunchHostFunc, stream, function, argument));
}

/* What a kernel does not reach is written by a host function. */
struct written {
	void *memory;
	size_t n;
	uint64_t offset, seed;
	bool scribble;
};

static void write_plain(void *argument)
{
	struct written *w = argument;

	if (w->scribble)
		memset(w->memory, (int)w->seed, w->n);
	else
		pattern_fill(w->memory, w->n, w->offset, w->seed);
	free(w);
}

static int call_write(int which, sluice_stream stream, const struct written *what)
{
	struct written *w = malloc(sizeof(*w));
	int rc;

	*w = *what;
	rc = call(which, stream, write_plain, w);
	if (rc)
		free(w);
	return rc;
}

static int fill(int which, sluice_stream stream, void *memory, size_t n, uint64_t offset,
                uint64_t seed)
{
	uint64_t bytes = (uintptr_t)memory, length = n;
	void *parameters[] = {&bytes, &length, &offset, &seed};

	if (is_plain(memory))
		return call_write(which, stream, &(struct written){memory, n, offset, seed, false});
	return launch(which, stream, FILL, n, parameters);
}

static int scribble(int which, sluice_stream stream, void *memory, size_t n, unsigned byte)
{
	uint64_t bytes = (uintptr_t)memory, length = n;
	uint32_t what = byte & 0xff;
	void *parameters[] = {&bytes, &length, &what};

	if (is_plain(memory))
		return call_write(which, stream, &(struct written){memory, n, 0, what, true});
	return launch(which, stream, SCRIBBLE, n, parameters);
}

static int take(int which, sluice_stream stream, void *out, const void *memory, size_t n)
{
	uint64_t bytes = (uintptr_t)memory, to = (uintptr_t)out, length = n;
	void *parameters[] = {&bytes, &to, &length};

	return launch(which, stream, TAKE, n, parameters);
}

static int spin(int which, sluice_stream stream, uint64_t nanoseconds)
{
	void *parameters[] = {&nanoseconds};

	return launch(which, stream, SPIN, 1, parameters);
}

/* --------------------------------------------------------------------------------- looking at */

#define HERE UINT32_MAX /* instead of a word: the host function looks itself */

struct job {
	struct gpu_match *list;
	unsigned count;
	void (*done)(void *);
	void *argument;
	uint32_t words[];
};

static void looked(void *argument)
{
	struct job *job = argument;
	unsigned i;

	for (i = 0; i < job->count; i++) {
		struct gpu_match *m = &job->list[i];

		if (job->words[i] != HERE) {
			m->wrong = atomic_load(&words.at[job->words[i]]);
			give_words(&job->words[i], 1);
			continue;
		}
		m->wrong = pattern_differ(m->memory, m->n, m->offset, m->seed);
	}
	job->done(job->argument);
	free(job);
}

static int launch_match(int which, sluice_stream stream, const struct gpu_match *m, uint32_t word)
{
	uint64_t bytes = (uintptr_t)m->memory, n = m->n, offset = m->offset, seed = m->seed;
	uint64_t wrong = (uintptr_t)&words.at[word];
	void *parameters[] = {&bytes, &n, &offset, &seed, &wrong};

	atomic_store(&words.at[word], 0);
	return launch(which, stream, MATCH, m->n, parameters);
}

static int match(int which, sluice_stream stream, struct gpu_match *list, unsigned count,
                 void (*done)(void *), void *argument)
{
	struct job *job = malloc(sizeof(*job) + count * sizeof(job->words[0]));
	int rc = 0;

	*job = (struct job){list, count, done, argument};
	for (unsigned i = 0; i < count && !rc; i++) {
		job->words[i] = HERE;
		if (list[i].differ)
			rc = gpu_failed(-ENOTSUP, "a kernel knows the pattern only");
		else if (!is_plain(list[i].memory))
			rc = take_words(&job->words[i], 1);
		if (!rc && job->words[i] != HERE)
			rc = launch_match(which, stream, &list[i], job->words[i]);
	}
	if (!rc)
		rc = call(which, stream, looked, job);
	/* If not, the stream is broken: the words stay what the kernels may yet write. */
	if (rc)
		free(job);
	return rc;
}

/* --------------------------------------------------------------------------------------- rest */

static void use(int which)
{
	gpu_driver.cuCtxSetCurrent(devices[which].ctx);
}

/* Its word is none of the stack: held for as long as the test wants. */
static int hold(int which, sluice_stream stream, struct gpu_hold *out)
{
	static _Atomic unsigned next;
	_Atomic uint64_t *word = &words.at[WORDS + atomic_fetch_add(&next, 1) % WORDS];

	atomic_store(word, 0);
	out->word = (_Atomic uint32_t *)word;
	IN_CONTEXT(which, CALL(cuStreamWaitValue32_v2, stream, (uintptr_t)word, 1,
	                       CU_STREAM_WAIT_VALUE_GEQ));
}

static int move(void *to, const void *from, size_t n)
{
	int which =
		sluice_device_of(to) == gpu_numbers[1] || sluice_device_of(from) == gpu_numbers[1];
	int rc = sluice_copy_on(to, from, n, devices[which].stream);

	if (!rc)
		rc = sluice_stream_synchronize(gpu_numbers[which], devices[which].stream);
	return rc ? gpu_failed(rc, "copying %zu bytes: %s", n, sluice_last_message()) : 0;
}

static int get(void *out, const void *memory, size_t n)
{
	if (sluice_device_of(memory) >= 0)
		return move(out, memory, n);
	memcpy(out, memory, n);
	return 0;
}

static int put(void *memory, const void *bytes, size_t n)
{
	if (sluice_device_of(memory) >= 0)
		return move(memory, bytes, n);
	memcpy(memory, bytes, n);
	return 0;
}

/* -------------------------------------------------------------------------------------- start */

static int find_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult rc;

	if (!library)
		return gpu_failed(-ENODEV, "libcuda.so.1 cannot be loaded");
#define FIND(name, arguments) *(void **)&gpu_driver.name = dlsym(library, #name);
	SL_CUDA_FUNCTIONS(FIND)
	TEST_CUDA_FUNCTIONS(FIND)
#undef FIND
	if (!gpu_driver.cuInit || !gpu_driver.cuLaunchKernel)
		return gpu_failed(-ENODEV, "libcuda.so.1 is no driver");
	rc = gpu_driver.cuInit(0);
	return rc ? gpu_failed(-ENODEV, "cuInit: %d %s", rc, gpu_error_name(rc)) : 0;
}

static int load_kernels(int which)
{
	CUmodule module;
	int rc = CALL(cuModuleLoadData, &module, gpu_kernels);

	for (int i = 0; i < KERNELS && !rc; i++)
		rc = CALL(cuModuleGetFunction, &devices[which].kernels[i], module, names[i]);
	return rc;
}

static int open_device(int which, const char *name)
{
	CUdevice ordinal;
	int rc = sluice_device_find(name, &gpu_numbers[which]);

	if (rc)
		return gpu_failed(rc, "%s", sluice_last_message());
	rc = CALL(cuDeviceGet, &ordinal, atoi(name + strlen("cuda:")));
	if (!rc)
		rc = CALL(cuDevicePrimaryCtxRetain, &devices[which].ctx, ordinal);
	if (!rc)
		rc = CALL(cuCtxSetCurrent, devices[which].ctx);
	if (!rc)
		rc = load_kernels(which);
	if (!rc && sluice_stream_new(gpu_numbers[which], &devices[which].stream))
		rc = gpu_failed(-EIO, "%s", sluice_last_message());
	return rc;
}

static int open_devices(const char *name)
{
	bool one = strchr(name, ':');
	int second, rc = open_device(0, one ? name : "cuda:0");

	if (rc)
		return rc;
	if (!one && !sluice_device_find("cuda:1", &second))
		return open_device(1, "cuda:1");
	devices[1] = devices[0];
	gpu_numbers[1] = gpu_numbers[0];
	return 0;
}

static void note(void *flag)
{
	*(_Atomic bool *)flag = true;
}

/*
 * Each kernel once, so that the driver has loaded it before streams wait; and they tell good from bad. They
 * count in host memory, where a GPU may miss some of what others of its processors count, but not all.
 */
static int try_kernels(int which)
{
	enum { N = 1000, OFFSET = 13, SEED = 7 };
	sluice_stream stream = devices[which].stream;
	unsigned char expected[N], held[N];
	struct gpu_match matches[3];
	_Atomic bool done = false;
	void *memory = NULL, *pinned = NULL;
	int rc = sluice_device_alloc(gpu_numbers[which], N, &memory);

	if (!rc)
		rc = sluice_pinned_alloc(gpu_numbers[which], N, &pinned);
	if (rc)
		return gpu_failed(rc, "%s", sluice_last_message());
	for (int i = 0; i < 3; i++)
		matches[i] = (struct gpu_match){memory, N, OFFSET, SEED, NULL, N + 1};
	matches[1].seed++;
	matches[2].offset++;
	pattern_fill(expected, N, OFFSET, SEED);
	rc = scribble(which, stream, memory, N, 3);
	if (!rc)
		rc = spin(which, stream, 1000);
	if (!rc)
		rc = fill(which, stream, memory, N, OFFSET, SEED);
	if (!rc)
		rc = take(which, stream, pinned, memory, N);
	if (!rc)
		rc = match(which, stream, matches, 3, note, &done);
	if (!rc)
		rc = get(held, memory, N);
	if (!rc && (!done || memcmp(held, expected, N) || memcmp(pinned, expected, N) ||
	            matches[0].wrong || !matches[1].wrong || !matches[2].wrong))
		rc = gpu_failed(-EIO, "the kernels do not work: %zu, %zu and %zu bytes are wrong",
		                matches[0].wrong, matches[1].wrong, matches[2].wrong);
	sluice_pinned_free(pinned);
	sluice_device_free(memory);
	return rc;
}

static int make_words(void)
{
	void *memory;
	int rc = sluice_pinned_alloc(gpu_numbers[0], 2 * WORDS * sizeof(*words.at), &memory);

	if (rc)
		return gpu_failed(rc, "%s", sluice_last_message());
	words.at = memory;
	for (words.count = 0; words.count < WORDS; words.count++)
		words.free[words.count] = words.count;
	return 0;
}

static int open_cuda(const char *name)
{
	int rc;

	/* What is loaded when it is first used waits for the device, and with it for streams that wait. */
	setenv("CUDA_MODULE_LOADING", "EAGER", 0);
	rc = find_driver();
	if (!rc)
		rc = open_devices(name);
	if (!rc)
		rc = make_words();
	for (int i = 0; i < GPU_DEVICES && !rc; i++)
		rc = try_kernels(i);
	if (!rc)
		use(0);
	return rc;
}

static int in_use(int which, uint64_t *bytes)
{
	struct sluice_device device = {.size = sizeof(device)};
	int rc = sluice_device_describe(gpu_numbers[which], &device);

	if (rc)
		return gpu_failed(rc, "%s", sluice_last_message());
	*bytes = device.memory_bytes - device.free_bytes;
	return 0;
}

const struct gpu_kind gpu_cuda = {
	.name = "cuda",
	.open = open_cuda,
	.use = use,
	.fill = fill,
	.scribble = scribble,
	.take = take,
	.spin = spin,
	.host = call,
	.call = call,
	.match = match,
	.hold = hold,
	.get = get,
	.put = put,
	.in_use = in_use,
};
