/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What programs do without a store: the driver's IPC handles, passed over a Unix socket by a thread of the producer's;
 * and copies through host memory that both processes share, pinned by both beforehand.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/driver.h"
#include "store_gpu.h"

enum { CHUNK = 8 << 20 };

/* As the driver has it. */
struct ipc_handle {
	char bytes[64];
};
static struct {
	CUresult (*get)(struct ipc_handle *out, CUdeviceptr memory);
	CUresult (*open)(CUdeviceptr *out, struct ipc_handle handle, unsigned flags);
	CUresult (*close)(CUdeviceptr memory);
} ipc;
enum { IPC_LAZY_PEER_ACCESS = 1 };

/* What the consumer asks for, and what it is told. */
struct note {
	uint32_t key;
	bool there;
	struct ipc_handle handle;
};

/* Of the producer's: what is published; guarded by mutex. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct note table[KEYS];

static CUdeviceptr memory[KEYS]; /* the producer's own, or what the consumer has opened */
static uint32_t opened[KEYS];    /* the consumer's: its key */

static void must(CUresult rc, const char *call)
{
	if (rc)
		fail("%s: %s", call, driver_error(rc));
}
#define DRIVER(call) must(call, #call)

static void say(const struct note *note)
{
	if (write(peer_socket, note, sizeof(*note)) != sizeof(*note))
		fail("the other process is gone: %s", strerror(errno));
}

static bool hear(struct note *note)
{
	return read(peer_socket, note, sizeof(*note)) == sizeof(*note);
}

/* ----------------------------------------------------------------------------------- who is asked */

static void *serve(void *unused)
{
	struct note note;

	(void)unused;
	while (hear(&note)) {
		const struct note *known = &table[note.key % KEYS];
		uint32_t key = note.key;

		pthread_mutex_lock(&mutex);
		note = known->key == key ? *known : (struct note){.key = key};
		pthread_mutex_unlock(&mutex);
		say(&note);
	}
	return NULL;
}

static void start_server(void)
{
	static bool started;
	pthread_t thread;

	if (ordinal < 0)
		skip("only with CUDA's driver");
	if (consumer || started)
		return;
	started = true;
	if (pthread_create(&thread, NULL, serve, NULL))
		fail("no thread");
}

static void enter(const struct note *note)
{
	pthread_mutex_lock(&mutex);
	table[note->key % KEYS] = *note;
	pthread_mutex_unlock(&mutex);
}

static void forget_note(uint32_t key)
{
	enter(&(struct note){.key = key});
}

/* Asks for it, or waits until it is told. */
static struct note ask(uint32_t key, bool awaited)
{
	struct note note = {.key = key};

	if (!awaited)
		say(&note);
	if (!hear(&note) || note.key != key || !note.there)
		fail("the producer has no %u", key);
	return note;
}

/* ------------------------------------------------------------------------------------------- ipc */

static void open_ipc(void)
{
	void *library;

	start_server();
	library = dlopen("libcuda.so.1", RTLD_NOW);
	*(void **)&ipc.get = library ? dlsym(library, "cuIpcGetMemHandle") : NULL;
	*(void **)&ipc.open = library ? dlsym(library, "cuIpcOpenMemHandle_v2") : NULL;
	*(void **)&ipc.close = library ? dlsym(library, "cuIpcCloseMemHandle") : NULL;
	if (!ipc.get || !ipc.open || !ipc.close)
		skip("this driver has no IPC handles");
}

/* The driver cuts 4 KiB from a block of its own, as the store does. */
static void *make_allocated(uint32_t key, uint64_t bytes)
{
	DRIVER(cu.cuMemAlloc_v2(&memory[key % KEYS], bytes));
	return (void *)(uintptr_t)memory[key % KEYS];
}

static void publish_handle(uint32_t key, bool expected)
{
	struct note note = {.key = key, .there = true};

	DRIVER(ipc.get(&note.handle, memory[key % KEYS]));
	enter(&note);
	if (expected)
		say(&note);
}

static void drop_handle(uint32_t key)
{
	forget_note(key);
	DRIVER(cu.cuMemFree_v2(memory[key % KEYS]));
}

/*
 * A second time it only asks whether it is still there, which is the least it must do, because nobody tells it
 * when it goes.
 */
static const void *get_opened(uint32_t key, uint64_t bytes, bool awaited)
{
	struct note note = ask(key, awaited);

	(void)bytes;
	if (opened[key % KEYS] != key)
		DRIVER(ipc.open(&memory[key % KEYS], note.handle, IPC_LAZY_PEER_ACCESS));
	opened[key % KEYS] = key;
	return (const void *)(uintptr_t)memory[key % KEYS];
}

static void keep(uint32_t key)
{
	(void)key;
}

static void close_handle(uint32_t key)
{
	if (opened[key % KEYS] == key)
		DRIVER(ipc.close(memory[key % KEYS]));
	opened[key % KEYS] = 0;
}

/* ------------------------------------------------------------------------------------------ copy */

static CUstream stream;
static CUevent events[2];
static CUdeviceptr whole; /* most_bytes, of either process */

static char *host_bytes(void)
{
	return (char *)shared + PAGE_BYTES;
}

static void open_copy(void)
{
	start_server();
	DRIVER(cu.cuMemHostRegister_v2(shared, PAGE_BYTES + most_bytes,
	                               CU_MEMHOSTREGISTER_PORTABLE));
	whole = driver_memory(most_bytes);
	stream = driver_stream();
	for (int i = 0; i < 2; i++)
		DRIVER(cu.cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
}

static uint64_t copy_bytes; /* of what the producer has made */

/* The memory is there for good. */
static void *make_in_place(uint32_t key, uint64_t bytes)
{
	(void)key;
	copy_bytes = bytes;
	return (void *)(uintptr_t)whole;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Chunk by chunk, two in flight, so that the consumer's copies run beside these. */
static void copy_out(void)
{
	uint64_t given = 0;

	for (unsigned i = 0; given < copy_bytes; i++) {
		uint64_t n = least(CHUNK, copy_bytes - given);

		DRIVER(cu.cuMemcpyDtoHAsync_v2(host_bytes() + given, whole + given, n, stream));
		DRIVER(cu.cuEventRecord(events[i % 2], stream));
		given += n;
		if (!i)
			continue;
		DRIVER(cu.cuEventSynchronize(events[(i + 1) % 2]));
		atomic_store(&shared->copied, given - n);
	}
	DRIVER(cu.cuStreamSynchronize(stream));
	atomic_store(&shared->copied, copy_bytes);
}

static void publish_copy(uint32_t key, bool expected)
{
	struct note note = {.key = key, .there = true};

	atomic_store(&shared->copied, 0);
	atomic_store(&shared->key, key);
	enter(&note);
	if (expected)
		say(&note);
	copy_out();
}

static const void *get_copied(uint32_t key, uint64_t bytes, bool awaited)
{
	ask(key, awaited);
	if (atomic_load(&shared->key) != key)
		fail("the shared memory has another one");
	for (uint64_t given = 0; given < bytes;) {
		uint64_t there;

		while ((there = atomic_load(&shared->copied)) == given)
			sched_yield();
		DRIVER(cu.cuMemcpyHtoDAsync_v2(whole + given, host_bytes() + given, there - given,
		                               stream));
		given = there;
	}
	DRIVER(cu.cuStreamSynchronize(stream));
	return (const void *)(uintptr_t)whole;
}

const struct way way_ipc = {.name = "ipc",
                            .open = open_ipc,
                            .make = make_allocated,
                            .publish = publish_handle,
                            .drop = drop_handle,
                            .get = get_opened,
                            .release = keep,
                            .forget = close_handle};
const struct way way_copy = {.name = "copy",
                             .open = open_copy,
                             .make = make_in_place,
                             .publish = publish_copy,
                             .drop = forget_note,
                             .get = get_copied,
                             .release = keep};
