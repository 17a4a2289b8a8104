/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcufile.so.0 for tests, over whatever libcuda.so.1 there is. It works as the real one does in its
 * compatibility mode: on the calling thread pread() and a copy; on a stream a host function that reads, and a
 * copy behind it. What the real one leaves open it refuses: see cuFileRead() and check_async().
 *
 * FAKE_CUFILE_NVFS=2.17     GPUDirect is there, by that version of nvidia-fs
 * FAKE_CUFILE_CLOSES=0      opening the driver closes that descriptor, as the real one does where it finds no device
 * FAKE_CUFILE_DELAY_US=N    transfers take that long
 * FAKE_CUFILE_<CALL>=N:V    the Nth call from when it was set answers V. OPEN, HANDLE, BUFFER, ENQUEUE: an
 *                           error; TRANSFER, PASSED: what it is said to have moved
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "local/cufile_api.h"

#define API   __attribute__((visibility("default")))
#define BLOCK 4096
#define POOL  32
#define CHUNK ((size_t)1 << 20) /* what a bounce buffer holds, with a block before and behind */

#define DECLARE(type, name, arguments) API type name arguments;
SL_CUFILE_FUNCTIONS(DECLARE)
#undef DECLARE
/* Calls of a function so far that succeeded; for tests. */
API unsigned cuFileFakeCalls(const char *function);

/* ------------------------------------------------------------------------------------- driver */

#define CUDA_FUNCTIONS(X)                                                               \
	X(cuDevicePrimaryCtxRetain, (void **ctx, int device))                           \
	X(cuCtxPushCurrent_v2, (void *ctx))                                             \
	X(cuCtxPopCurrent_v2, (void **ctx))                                             \
	X(cuCtxGetCurrent, (void **ctx))                                                \
	X(cuPointerGetAttribute, (void *value, int attribute, uint64_t pointer))        \
	X(cuMemHostAlloc, (void **memory, size_t length, unsigned flags))               \
	X(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t length, void *)) \
	X(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t length, void *))       \
	X(cuStreamCreate, (void **stream, unsigned flags))                              \
	X(cuStreamSynchronize, (void *stream))                                          \
	X(cuStreamDestroy_v2, (void *stream))                                           \
	X(cuLaunchHostFunc, (void *stream, void (*function)(void *), void *argument))

static struct {
#define FIELD(name, arguments) int(*name) arguments;
	CUDA_FUNCTIONS(FIELD)
#undef FIELD
} cuda;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool usable;

static void find_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	usable = library;
#define FIND(name, arguments) usable = usable && (*(void **)&cuda.name = dlsym(library, #name));
	CUDA_FUNCTIONS(FIND)
#undef FIND
}

/* -------------------------------------------------------------------------------------- faults */

enum call { OPEN, HANDLE, BUFFER, TRANSFER, ENQUEUE, PASSED, REGISTERED, CALLS };
static const char *const names[CALLS] = {"OPEN",    "HANDLE", "BUFFER",    "TRANSFER",
                                         "ENQUEUE", "PASSED", "REGISTERED"};

static struct {
	pthread_mutex_t mutex;
	char text[CALLS][32]; /* of the variables, when they were last looked at */
	unsigned seen[CALLS]; /* calls since then */
	unsigned calls[CALLS];
} faults = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Whether this call is the one that answers *value. */
static bool fails(enum call call, long *value)
{
	char name[32];
	const char *text;
	unsigned nth;
	bool failed;
	long parsed;

	snprintf(name, sizeof(name), "FAKE_CUFILE_%s", names[call]);
	pthread_mutex_lock(&faults.mutex);
	text = getenv(name);
	text = text ? text : "";
	if (strcmp(text, faults.text[call]) != 0) {
		snprintf(faults.text[call], sizeof(faults.text[call]), "%s", text);
		faults.seen[call] = 0;
	}
	faults.seen[call]++;
	failed = sscanf(text, "%u:%ld", &nth, &parsed) == 2 && nth == faults.seen[call];
	*value = failed ? parsed : *value;
	faults.calls[call] += !failed;
	pthread_mutex_unlock(&faults.mutex);
	return failed;
}

unsigned cuFileFakeCalls(const char *function)
{
	unsigned calls = 0;

	pthread_mutex_lock(&faults.mutex);
	for (int i = 0; i < CALLS; i++)
		if (!strcmp(names[i], function))
			calls = faults.calls[i];
	pthread_mutex_unlock(&faults.mutex);
	return calls;
}

static CUfileError_t answer(enum call call, int error)
{
	long value = error;

	if (!error)
		fails(call, &value);
	return (CUfileError_t){(int)value, 0};
}

static CUfileError_t error_of(int error)
{
	return (CUfileError_t){error, 0};
}

static void take_delay(void)
{
	const char *delay = getenv("FAKE_CUFILE_DELAY_US");

	if (delay)
		usleep((useconds_t)strtoul(delay, NULL, 10));
}

/* ------------------------------------------------------------------------------ driver, handles */

static _Atomic bool closed;

static void close_driver(void)
{
	atomic_store(&closed, true);
}

/* Where the process ends, and the real one is gone. */
static void check_open(void)
{
	if (atomic_load(&closed))
		abort();
}

CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *properties)
{
	const char *version = getenv("FAKE_CUFILE_NVFS");

	memset(properties, 0, sizeof(*properties));
	if (version)
		sscanf(version, "%u.%u", &properties->nvfs.major_version,
		       &properties->nvfs.minor_version);
	return error_of(0);
}

struct handle {
	int fd;
	bool direct; /* it goes around the page cache */
};

CUfileError_t cuFileHandleRegister(CUfileHandle_t *handle, CUfileDescr_t *what)
{
	struct handle *made;
	struct stat stat;
	struct statfs fs;
	CUfileError_t rc;
	bool memory;
	void *ctx = NULL;

	if (!usable || cuda.cuCtxGetCurrent(&ctx) || !ctx)
		return error_of(CU_FILE_CUDA_CONTEXT_MISMATCH);
	if (what->type != CU_FILE_HANDLE_TYPE_OPAQUE_FD || fstat(what->handle.fd, &stat) ||
	    fstatfs(what->handle.fd, &fs))
		return error_of(CU_FILE_INVALID_VALUE);
	memory = S_ISREG(stat.st_mode) && fs.f_type == TMPFS_MAGIC;
	rc = answer(HANDLE, memory ? CU_FILE_IO_NOT_SUPPORTED : 0);
	if (rc.err)
		return rc;
	made = malloc(sizeof(*made));
	made->fd = what->handle.fd;
	made->direct = fcntl(made->fd, F_GETFL) & O_DIRECT;
	*handle = made;
	return rc;
}

void cuFileHandleDeregister(CUfileHandle_t handle)
{
	check_open();
	free(handle);
}

/* ------------------------------------------------------------------------------------- buffers */

static struct {
	pthread_mutex_t mutex;
	const char *memory[64];
	size_t length[64];
} buffers = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool is_device(const void *memory)
{
	unsigned type = 0;

	return !cuda.cuPointerGetAttribute(&type, 2, (uintptr_t)memory) && type == 2;
}

CUfileError_t cuFileBufRegister(const void *memory, size_t length, int flags)
{
	int free = -1, error = 0;

	check_open();
	if (!is_device(memory) || flags)
		return error_of(CU_FILE_CUDA_POINTER_INVALID);
	pthread_mutex_lock(&buffers.mutex);
	for (int i = 0; i < 64; i++) {
		if (!buffers.memory[i])
			free = i;
		else if ((const char *)memory < buffers.memory[i] + buffers.length[i] &&
		         buffers.memory[i] < (const char *)memory + length)
			error = CU_FILE_MEMORY_ALREADY_REGISTERED;
	}
	if (!error && free < 0)
		error = CU_FILE_INTERNAL_ERROR;
	error = answer(BUFFER, error).err;
	if (!error) {
		buffers.memory[free] = memory;
		buffers.length[free] = length;
	}
	pthread_mutex_unlock(&buffers.mutex);
	return error_of(error);
}

CUfileError_t cuFileBufDeregister(const void *memory)
{
	int error = CU_FILE_MEMORY_NOT_REGISTERED;

	check_open();
	pthread_mutex_lock(&buffers.mutex);
	for (int i = 0; i < 64; i++) {
		if (buffers.memory[i] != memory)
			continue;
		buffers.memory[i] = NULL;
		error = 0;
	}
	pthread_mutex_unlock(&buffers.mutex);
	return error_of(error);
}

/* Counts transfers whose memory is registered, and given as it was registered. */
static void count_registered(const char *base, off_t offset, size_t length)
{
	long ignored = 0;
	bool found = false;

	pthread_mutex_lock(&buffers.mutex);
	for (int i = 0; i < 64; i++)
		found |= base && buffers.memory[i] == base &&
		         (size_t)offset + length <= buffers.length[i];
	pthread_mutex_unlock(&buffers.mutex);
	if (found)
		fails(REGISTERED, &ignored);
}

/* -------------------------------------------------------------------------------------- bounce */

/* Pinned memory: some of it made at first, and more when that is in use, which waits for all the device has. */
struct bounce {
	struct bounce *next;
	char *memory;
	_Atomic bool busy;
};
static struct {
	pthread_mutex_t mutex;
	struct bounce *all;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct bounce *take_bounce(void)
{
	struct bounce *bounce;
	void *memory;

	pthread_mutex_lock(&pool.mutex);
	for (bounce = pool.all; bounce && atomic_load(&bounce->busy);)
		bounce = bounce->next;
	if (bounce)
		atomic_store(&bounce->busy, true);
	pthread_mutex_unlock(&pool.mutex);
	if (bounce)
		return bounce;
	if (cuda.cuMemHostAlloc(&memory, CHUNK + 2 * BLOCK, 0))
		return NULL;
	bounce = calloc(1, sizeof(*bounce));
	bounce->memory = memory;
	atomic_store(&bounce->busy, true);
	pthread_mutex_lock(&pool.mutex);
	bounce->next = pool.all;
	pool.all = bounce;
	pthread_mutex_unlock(&pool.mutex);
	return bounce;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Whole blocks, as a descriptor for direct I/O wants them; where the bytes are then. */
static char *place_of(const struct bounce *bounce, off_t offset)
{
	return bounce->memory + offset % BLOCK;
}

static ssize_t read_bounce(const struct handle *handle, struct bounce *bounce, size_t length,
                           off_t offset)
{
	size_t head = (size_t)(offset % BLOCK);
	size_t whole = (head + length + BLOCK - 1) / BLOCK * BLOCK;
	ssize_t rc = pread(handle->fd, bounce->memory, whole, offset - (off_t)head);

	if (rc < 0)
		return -1;
	return (size_t)rc <= head ? 0 : (ssize_t)least((size_t)rc - head, length);
}

static ssize_t write_bounce(const struct handle *handle, struct bounce *bounce, size_t length,
                            off_t offset)
{
	/* The real one would write back what it has read of the rest of the block. */
	if (handle->direct && (length % BLOCK || offset % BLOCK))
		return -CU_FILE_INVALID_VALUE;
	return pwrite(handle->fd, place_of(bounce, offset), length, offset);
}

CUfileError_t cuFileDriverOpen(void)
{
	struct bounce *taken[POOL];
	void *ctx;

	const char *closes = getenv("FAKE_CUFILE_CLOSES");

	if (closes)
		close(atoi(closes));
	pthread_once(&once, find_cuda);
	atexit(close_driver);
	if (!usable || cuda.cuDevicePrimaryCtxRetain(&ctx, 0) || cuda.cuCtxPushCurrent_v2(ctx))
		return error_of(CU_FILE_CUDA_DRIVER_ERROR);
	for (int i = 0; i < POOL; i++)
		taken[i] = take_bounce();
	for (int i = 0; i < POOL; i++)
		if (taken[i])
			atomic_store(&taken[i]->busy, false);
	cuda.cuCtxPopCurrent_v2(&ctx);
	return answer(OPEN, 0);
}

/* ---------------------------------------------------------------------------- on this thread */

static ssize_t one_chunk(struct handle *handle, bool write, char *memory, size_t length,
                         off_t offset, void *stream)
{
	struct bounce *bounce = take_bounce();
	ssize_t rc = -CU_FILE_CUDA_DRIVER_ERROR;

	if (!bounce)
		return rc;
	if (write &&
	    !cuda.cuMemcpyDtoHAsync_v2(place_of(bounce, offset), (uintptr_t)memory, length,
	                               stream) &&
	    !cuda.cuStreamSynchronize(stream))
		rc = write_bounce(handle, bounce, length, offset);
	if (!write) {
		rc = read_bounce(handle, bounce, length, offset);
		if (rc > 0 &&
		    (cuda.cuMemcpyHtoDAsync_v2((uintptr_t)memory, place_of(bounce, offset),
		                               (size_t)rc, stream) ||
		     cuda.cuStreamSynchronize(stream)))
			rc = -CU_FILE_CUDA_DRIVER_ERROR;
	}
	atomic_store(&bounce->busy, false);
	return rc;
}

static ssize_t transfer(struct handle *handle, bool write, char *base, size_t length, off_t offset,
                        off_t base_offset)
{
	void *ctx = NULL, *stream;
	size_t moved = 0;
	ssize_t rc = 0;
	long value = 0;

	if (!handle || cuda.cuCtxGetCurrent(&ctx) || !ctx)
		return -CU_FILE_CUDA_CONTEXT_MISMATCH;
	if (!is_device(base))
		return -CU_FILE_CUDA_POINTER_INVALID;
	check_open();
	if (fails(TRANSFER, &value)) {
		errno = EIO;
		return value;
	}
	count_registered(base, base_offset, length);
	take_delay();
	if (cuda.cuStreamCreate(&stream, 1))
		return -CU_FILE_CUDA_DRIVER_ERROR;
	while (moved < length) {
		size_t chunk = least(length - moved, CHUNK);

		rc = one_chunk(handle, write, base + base_offset + moved, chunk,
		               offset + (off_t)moved, stream);
		if (rc <= 0)
			break;
		moved += (size_t)rc;
	}
	cuda.cuStreamDestroy_v2(stream);
	check_open();
	return moved ? (ssize_t)moved : rc;
}

ssize_t cuFileRead(CUfileHandle_t handle, void *base, size_t length, off_t offset,
                   off_t base_offset)
{
	return transfer(handle, false, base, length, offset, base_offset);
}

ssize_t cuFileWrite(CUfileHandle_t handle, const void *base, size_t length, off_t offset,
                    off_t base_offset)
{
	return transfer(handle, true, (char *)(uintptr_t)base, length, offset, base_offset);
}

/* ------------------------------------------------------------------------------- on a stream */

/* One chunk of a transfer. What the caller points to must still be there, and be the same. */
struct step {
	struct handle *handle;
	struct bounce *bounce;
	bool write, first, last;
	size_t at, length, all;
	off_t offset;
	size_t *length_p;
	off_t *offset_p, *base_offset_p;
	ssize_t *moved;
	off_t base_offset;
};

static void move(void *argument)
{
	struct step *step = argument;
	ssize_t rc;
	long value = 0;

	if (step->first) {
		take_delay();
		*step->moved = 0;
	}
	if (*step->length_p != step->all || *step->offset_p + (off_t)step->at != step->offset ||
	    *step->base_offset_p != step->base_offset)
		*step->moved = -CU_FILE_INVALID_VALUE;
	if (*step->moved == (ssize_t)step->at) {
		rc = step->write
		             ? write_bounce(step->handle, step->bounce, step->length, step->offset)
		             : read_bounce(step->handle, step->bounce, step->length, step->offset);
		*step->moved = rc < 0 ? rc : *step->moved + rc;
	}
	if (step->last && fails(PASSED, &value))
		*step->moved = value;
}

static void let_go(void *argument)
{
	struct step *step = argument;

	atomic_store(&step->bounce->busy, false);
	free(step);
}

/* The host functions and the copy of one chunk. */
static int enqueue_step(struct step *step, char *memory, void *stream)
{
	char *place = place_of(step->bounce, step->offset);
	int rc;

	if (step->write) {
		rc = cuda.cuMemcpyDtoHAsync_v2(place, (uintptr_t)memory, step->length, stream);
		rc = rc ? rc : cuda.cuLaunchHostFunc(stream, move, step);
	} else {
		rc = cuda.cuLaunchHostFunc(stream, move, step);
		rc = rc ? rc
		        : cuda.cuMemcpyHtoDAsync_v2((uintptr_t)memory, place, step->length, stream);
	}
	return rc ? rc : cuda.cuLaunchHostFunc(stream, let_go, step);
}

static int check_async(struct handle *handle, const char *base, sluice_stream stream)
{
	void *ctx = NULL;

	/* The real one takes NULL for "wait for it". */
	if (!handle || (uintptr_t)stream <= 2)
		return CU_FILE_INVALID_VALUE;
	if (cuda.cuCtxGetCurrent(&ctx) || !ctx)
		return CU_FILE_CUDA_CONTEXT_MISMATCH;
	return is_device(base) ? 0 : CU_FILE_CUDA_POINTER_INVALID;
}

static CUfileError_t enqueue(struct handle *handle, bool write, char *base, size_t *length,
                             off_t *offset, off_t *base_offset, ssize_t *moved,
                             sluice_stream stream)
{
	CUfileError_t rc = answer(ENQUEUE, check_async(handle, base, stream));

	if (rc.err)
		return rc;
	count_registered(base, *base_offset, *length);
	for (size_t at = 0; at < *length; at += CHUNK) {
		struct step *step = calloc(1, sizeof(*step));

		*step = (struct step){
			.handle = handle,
			.bounce = take_bounce(),
			.write = write,
			.first = !at,
			.last = at + CHUNK >= *length,
			.at = at,
			.length = least(*length - at, CHUNK),
			.all = *length,
			.offset = *offset + (off_t)at,
			.length_p = length,
			.offset_p = offset,
			.base_offset_p = base_offset,
			.base_offset = *base_offset,
			.moved = moved,
		};
		/* What was enqueued of it before runs: nothing is freed. */
		if (!step->bounce || enqueue_step(step, base + *base_offset + at, stream))
			return error_of(CU_FILE_CUDA_DRIVER_ERROR);
	}
	return rc;
}

CUfileError_t cuFileReadAsync(CUfileHandle_t handle, void *base, size_t *length, off_t *offset,
                              off_t *base_offset, ssize_t *moved, sluice_stream stream)
{
	return enqueue(handle, false, base, length, offset, base_offset, moved, stream);
}

CUfileError_t cuFileWriteAsync(CUfileHandle_t handle, void *base, size_t *length, off_t *offset,
                               off_t *base_offset, ssize_t *moved, sluice_stream stream)
{
	return enqueue(handle, true, base, length, offset, base_offset, moved, stream);
}
