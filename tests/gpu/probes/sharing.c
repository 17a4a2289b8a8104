/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which calls of memory that several processes have are held up, and how long they take.
 *
 * usage: sharing idle|pending|free same|other: while nothing is given to the device; while a stream waits; while
 * another thread is in cuMemFree() as well. The calls are made by the thread that made the stream wait, or each
 * by one of its own. What has not returned after two seconds was held up; then the wait ends.
 *        sharing idle|... same|other BYTES: the same with memory of this size, a multiple of the granularity, which
 * is the size otherwise.
 *        sharing used unmap|close: while a stream waits, with a copy from that very memory behind it: whether the
 * call waits for the copy, and what becomes of it. The device may not survive it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "probe.h"

enum { PATIENCE_MS = 2000 };

static CUdevice device;
static CUstream waiting;
static size_t whole; /* granularity */

/* ------------------------------------------------------------------------------ what calls use */

enum level { NOTHING, CREATED, RESERVED, MAPPED, READY, ALLOCATED, LENT, BORROWED, EXPORTED };

/* What there is of it now; the calls change it. */
static struct {
	bool created, reserved, mapped, imported, allocated, borrowed;
	CUmemGenericAllocationHandle handle, import;
	CUdeviceptr address, allocation, loan;
	int fd; /* -1: none */
} have = {.fd = -1};
static CUipcMemHandle lent; /* of the other process */

static CUresult create(void)
{
	struct CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
	};
	CUresult rc = cu.cuMemCreate(&have.handle, whole, &prop, 0);

	have.created = !rc;
	return rc;
}

static CUresult reserve(void)
{
	CUresult rc = cu.cuMemAddressReserve(&have.address, whole, 0, 0, 0);

	have.reserved = !rc;
	return rc;
}

static CUresult map(void)
{
	CUresult rc = cu.cuMemMap(have.address, whole, 0, have.handle, 0);

	have.mapped = !rc;
	return rc;
}

static CUresult give_access(int flags)
{
	struct CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};

	return cu.cuMemSetAccess(have.address, whole, &access, 1);
}

static CUresult write_access(void)
{
	return give_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static CUresult read_access(void)
{
	return give_access(CU_MEM_ACCESS_FLAGS_PROT_READ);
}

static CUresult unmap(void)
{
	CUresult rc = cu.cuMemUnmap(have.address, whole);

	have.mapped &= rc != 0;
	return rc;
}

static CUresult free_address(void)
{
	CUresult rc = cu.cuMemAddressFree(have.address, whole);

	have.reserved &= rc != 0;
	return rc;
}

static CUresult release(void)
{
	CUresult rc = cu.cuMemRelease(have.handle);

	have.created &= rc != 0;
	return rc;
}

static CUresult export_it(void)
{
	return cu.cuMemExportToShareableHandle(&have.fd, have.handle,
	                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult import(void)
{
	CUresult rc = cu.cuMemImportFromShareableHandle(&have.import, (void *)(intptr_t)have.fd,
	                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	have.imported = !rc;
	return rc;
}

static CUresult describe(void)
{
	struct CUmemAllocationProp prop;

	return cu.cuMemGetAllocationPropertiesFromHandle(&prop, have.handle);
}

static CUresult find_range(void)
{
	CUdeviceptr start;
	size_t length;

	return cu.cuMemGetAddressRange_v2(&start, &length, have.allocation + 100);
}

static CUresult lend(void)
{
	CUipcMemHandle handle;

	return cu.cuIpcGetMemHandle(&handle, have.allocation);
}

static CUresult borrow(void)
{
	CUresult rc =
		cu.cuIpcOpenMemHandle_v2(&have.loan, lent, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

	have.borrowed = !rc;
	return rc;
}

static CUresult give_back(void)
{
	CUresult rc = cu.cuIpcCloseMemHandle(have.loan);

	have.borrowed &= rc != 0;
	return rc;
}

static void prepare(enum level level)
{
	if (level == ALLOCATED) {
		have.allocation = driver_memory(whole);
		have.allocated = true;
		return;
	}
	if (level == BORROWED)
		driver_must(borrow(), "cuIpcOpenMemHandle");
	if (level == LENT || level == BORROWED || level == NOTHING)
		return;
	driver_must(create(), "cuMemCreate");
	if (level == EXPORTED)
		driver_must(export_it(), "cuMemExportToShareableHandle");
	if (level == EXPORTED || level == CREATED)
		return;
	driver_must(reserve(), "cuMemAddressReserve");
	if (level >= MAPPED)
		driver_must(map(), "cuMemMap");
	if (level >= READY)
		driver_must(write_access(), "cuMemSetAccess");
}

/* Whatever the call has left. */
static void clean(void)
{
	if (have.mapped)
		driver_must(unmap(), "cuMemUnmap");
	if (have.reserved)
		driver_must(free_address(), "cuMemAddressFree");
	if (have.imported)
		MUST(cuMemRelease(have.import));
	if (have.created)
		driver_must(release(), "cuMemRelease");
	if (have.allocated)
		MUST(cuMemFree_v2(have.allocation));
	if (have.borrowed)
		driver_must(give_back(), "cuIpcCloseMemHandle");
	if (have.fd >= 0)
		close(have.fd);
	have.imported = have.allocated = false;
	have.fd = -1;
}

/* Of memory that only its mapping keeps, as is all that is shared. */
static CUresult unmap_last(void)
{
	return unmap();
}

static const struct call {
	const char *name;
	enum level level;
	CUresult (*run)(void);
} calls[] = {
	{"cuMemCreate", NOTHING, create},
	{"cuMemExportToShareableHandle", CREATED, export_it},
	{"cuMemImportFromShareableHandle", EXPORTED, import},
	{"cuMemGetAllocationPropertiesFromHandle", CREATED, describe},
	{"cuMemAddressReserve", NOTHING, reserve},
	{"cuMemMap", RESERVED, map},
	{"cuMemSetAccess, read and write", MAPPED, write_access},
	{"cuMemSetAccess, read", MAPPED, read_access},
	{"cuMemRelease, of what is mapped", READY, release},
	{"cuMemRelease, the last", CREATED, release},
	{"cuMemUnmap", READY, unmap},
	{"cuMemUnmap, the last", READY, unmap_last},
	{"cuMemAddressFree", RESERVED, free_address},
	{"cuMemGetAddressRange", ALLOCATED, find_range},
	{"cuIpcGetMemHandle", ALLOCATED, lend},
	{"cuIpcOpenMemHandle", LENT, borrow},
	{"cuIpcCloseMemHandle", BORROWED, give_back},
};

/* --------------------------------------------------------------------------- the other process */

static int lender; /* the socket to it; it ends when that is closed */

/* Lends some memory, and keeps it until nobody is there any more. */
static int run_lender(int socket)
{
	CUipcMemHandle handle;
	CUdeviceptr memory_lent;
	char byte;

	if (driver_open(0))
		return 1;
	memory_lent = driver_memory(2 << 20);
	MUST(cuIpcGetMemHandle(&handle, memory_lent));
	if (write(socket, &handle, sizeof(handle)) != sizeof(handle))
		return 1;
	return read(socket, &byte, 1) != 0;
}

/* Before this process has a driver, which would not survive a fork. */
static void start_lender(void)
{
	int sockets[2];
	char number[16];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		exit(1);
	if (!fork()) {
		close(sockets[0]);
		snprintf(number, sizeof(number), "%d", sockets[1]);
		execl("/proc/self/exe", "sharing", "lend", number, NULL);
		_exit(126);
	}
	close(sockets[1]);
	lender = sockets[0];
}

static bool hear_lender(void)
{
	return read(lender, &lent, sizeof(lent)) == sizeof(lent);
}

/* ---------------------------------------------------------------------- what stands in the way */

static pthread_t freer;
static bool freer_runs;
static CUdeviceptr doomed;

static void *free_doomed(void *unused)
{
	driver_enter();
	MUST(cuMemFree_v2(doomed));
	return unused;
}

static void obstruct(const char *state)
{
	if (!strcmp(state, "free"))
		doomed = driver_memory(whole);
	if (!strcmp(state, "idle"))
		return;
	gate_close();
	driver_must(gate_wait(waiting), "cuStreamWaitValue32");
	if (strcmp(state, "free"))
		return;
	if (pthread_create(&freer, NULL, free_doomed, NULL))
		exit(1);
	freer_runs = true;
	sleep_ms(30);
}

static void clear(void)
{
	gate_open();
	if (freer_runs)
		pthread_join(freer, NULL);
	freer_runs = false;
}

/* --------------------------------------------------------------------------------------- a try */

struct attempt {
	const struct call *call;
	bool enters; /* on a thread of its own */
	CUresult rc;
	double seconds;
	_Atomic bool over, held;
};

static void *make_call(void *argument)
{
	struct attempt *a = argument;
	double start;

	if (a->enters)
		driver_enter();
	start = driver_now();
	a->rc = a->call->run();
	a->seconds = driver_now() - start;
	atomic_store(&a->over, true);
	return NULL;
}

/* Lets go of what is held up. */
static void *watch(void *argument)
{
	struct attempt *a = argument;

	for (int ms = 0; ms < PATIENCE_MS && !atomic_load(&a->over); ms++)
		sleep_ms(1);
	if (!atomic_load(&a->over)) {
		atomic_store(&a->held, true);
		gate_open();
	}
	return NULL;
}

static void attempt(struct attempt *a, bool other)
{
	pthread_t watcher, thread;

	a->enters = other;
	if (pthread_create(&watcher, NULL, watch, a))
		exit(1);
	if (!other)
		make_call(a);
	else if (pthread_create(&thread, NULL, make_call, a) || pthread_join(thread, NULL))
		exit(1);
	pthread_join(watcher, NULL);
}

static void try_call(const struct call *call, const char *state, const char *whose)
{
	struct attempt a = {.call = call};
	char detail[100];

	prepare(call->level);
	if (call->run == unmap_last)
		driver_must(release(), "cuMemRelease");
	obstruct(state);
	attempt(&a, !strcmp(whose, "other"));
	clear();
	MUST(cuStreamSynchronize(waiting));
	clean();
	if (a.rc)
		snprintf(detail, sizeof(detail), "answers %s", driver_error(a.rc));
	else
		snprintf(detail, sizeof(detail), "%.0f us", a.seconds * 1e6);
	say("| %s | %s | %s | %s | %s |", state, whose, call->name,
	    atomic_load(&a.held) ? "held up" : "runs", detail);
}

/* ------------------------------------------------------------------------------ what is in use */

static void use(const char *how)
{
	const bool closes = !strcmp(how, "close");
	const struct call call = {closes ? "cuIpcCloseMemHandle" : "cuMemUnmap", NOTHING,
	                          closes ? give_back : unmap};
	struct attempt a = {.call = &call};
	CUresult rc;

	prepare(closes ? BORROWED : READY);
	obstruct("pending");
	MUST(cuMemcpyDtoHAsync_v2(host, closes ? have.loan : have.address, 4096, waiting));
	attempt(&a, true);
	clear();
	rc = cu.cuStreamSynchronize(waiting);
	say("| used | other | %s | %s | answers %s; then the copy %s |", call.name,
	    atomic_load(&a.held) ? "held up" : "runs", a.rc ? driver_error(a.rc) : "0",
	    rc ? driver_error(rc) : "is done");
}

int main(int argc, char **argv)
{
	struct CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};

	if (argc != 3 && argc != 4)
		return 2;
	if (!strcmp(argv[1], "lend"))
		return run_lender(atoi(argv[2]));
	start_lender();
	probe_start();
	alarm(50);
	MUST(cuCtxGetDevice(&device));
	prop.location.id = device;
	MUST(cuMemGetAllocationGranularity(&whole, &prop, 0));
	if (argc == 4)
		whole = strtoull(argv[3], NULL, 10);
	if (!hear_lender()) {
		say("the other process has nothing to lend");
		return 1;
	}
	waiting = driver_stream();
	if (!strcmp(argv[1], "used")) {
		use(argv[2]);
		return 0;
	}
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		try_call(&calls[i], argv[1], argv[2]);
	return 0;
}
