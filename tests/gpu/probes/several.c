/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What copies through slots of pinned memory reach when processes read into all GPUs at the same time: each
 * process has a file in the page cache, a GPU, and a ring of slots that its threads fill while the GPU empties it.
 *
 * usage: several FOLDER [MIB MILLISECONDS [WORKERS [SLOT]]]: files of MIB (default: 2,048), times of MILLISECONDS
 * (default: 100) for each measurement; only so many workers together, and slots of SLOT MiB.
 *
 * Prints the limits; then GB/s together, for each number of workers, way to fill a slot, size of a slot and
 * size of the rings together; then the best once more for four times as long, together and for one GPU alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <emmintrin.h>
#endif

#include "device/device.h"
#include "probe.h"

enum { GPUS_MOST = 16, WORKERS_MOST = 64, SLOTS_MOST = 256, RINGS = 5, SLOTS = 5, BEST = 10 };
#define MIB     ((size_t)1 << 20)
#define PIECE   MIB         /* a thread's part of a slot */
#define SMALL   (128 << 10) /* a buffer that stays in a core's cache */
#define THERE   (64 * MIB)  /* memory of the GPU */
#define LARGEST (128 * MIB) /* ring of a process */

enum way {
	PLAIN,   /* pread into the slot */
	HOME,    /* the same, and each part of the ring belongs to one thread */
	DEMOTED, /* pread, then cldemote */
	AROUND,  /* pread into a small buffer, from there to the slot around the caches */
	MAPPED,  /* from the mapped file to the slot around the caches */
	WAYS,
	PINNED = WAYS, /* copies from pinned memory alone */
	READING,       /* threads read the mapped file, and nothing else */
	OWN,           /* pread into 1 MiB of each thread, and no copy to a GPU */
};
static const char *const ways[WAYS] = {"pread", "pread, own parts", "pread, cldemote",
                                       "pread, around the caches", "mapped, around the caches"};

struct cell {
	enum way way;
	size_t slot;
	unsigned slots, workers; /* of a process */
	double seconds;
	unsigned gpus; /* the first ones */
};

/* Shared by the processes. The parent writes the cell, then the round; each child answers. */
static struct control {
	_Atomic uint32_t round, ready, done;
	_Atomic bool over;
	struct cell cell;
	unsigned gpus;
	size_t ring; /* the most of a process */
	struct {
		double rate, cpu; /* GB/s and CPU s/GB */
		char place[64];
	} results[GPUS_MOST];
} * control;

/* ------------------------------------------------------------------------------------ a process */

static struct {
	unsigned index;
	int file;
	const char *map;
	size_t length;
	char *ring;
	_Atomic uint32_t *cpu, *gpu; /* words of the slots, 16 apart */
	CUdeviceptr there;
	CUstream stream;
	struct cell cell;
	_Atomic uint64_t next, limit,
		bytes; /* pieces; chunks that are enqueued; moved without a GPU */
	_Atomic uint32_t filled[SLOTS_MOST];
	_Atomic bool stop;
	pthread_barrier_t begin, end;
} own;

static void doze(unsigned *looks)
{
	struct timespec t = {0, 5000};

	if (++*looks % 256 == 0)
		nanosleep(&t, NULL);
#ifdef __x86_64__
	_mm_pause();
#endif
}

static bool reached(const _Atomic uint32_t *word, uint32_t number)
{
	return atomic_load_explicit(word, memory_order_acquire) >= number;
}

static void fill_around(char *to, const char *from, size_t length)
{
#ifdef __x86_64__
	for (size_t i = 0; i < length; i += 64)
		for (size_t j = i; j < i + 64; j += 16)
			_mm_stream_si128(
				(__m128i *)(void *)(to + j),
				_mm_loadu_si128((const __m128i *)(const void *)(from + j)));
	_mm_sfence();
#else
	memcpy(to, from, length);
#endif
}

static void read_all(char *to, size_t at, size_t length)
{
	ssize_t n = pread(own.file, to, length, (off_t)at);

	if (n != (ssize_t)length) {
		say("FAILED pread: %zd of %zu bytes", n, length);
		_exit(1);
	}
}

static void fill(char *to, size_t at, size_t length, char *small)
{
	switch (own.cell.way) {
	case AROUND:
		for (size_t i = 0; i < length; i += SMALL) {
			read_all(small, at + i, SMALL);
			fill_around(to + i, small, SMALL);
		}
		return;
	case MAPPED:
		fill_around(to, own.map + at, length);
		return;
	default:
		read_all(to, at, length);
	}
#ifdef __x86_64__
	for (size_t i = 0; own.cell.way == DEMOTED && i < length; i += 64)
		__asm__ volatile("cldemote %0" ::"m"(to[i]));
#endif
}

/* Fills a piece of a slot once the GPU has copied what was there. Returns false after the last. */
static bool fill_piece(uint64_t number, char *small)
{
	uint64_t pieces = own.cell.slot / PIECE, chunk = number / pieces;
	unsigned slot = (unsigned)(chunk % own.cell.slots), looks = 0;
	uint32_t use = (uint32_t)(chunk / own.cell.slots);
	size_t part = number % pieces * PIECE;

	while (!reached(&own.gpu[16 * slot], use)) {
		if (chunk >= atomic_load(&own.limit))
			return false;
		doze(&looks);
	}
	if (chunk >= atomic_load(&own.limit))
		return false;
	fill(own.ring + slot * own.cell.slot + part, (chunk * own.cell.slot + part) % own.length,
	     PIECE, small);
	if (atomic_fetch_add(&own.filled[slot], 1) + 1 == pieces) {
		atomic_store(&own.filled[slot], 0);
		atomic_store_explicit(&own.cpu[16 * slot], use + 1, memory_order_release);
	}
	return true;
}

/* Until the time is over, without a GPU. */
static void read_only(char *buffer, unsigned index)
{
	size_t at = own.length / WORKERS_MOST * index / PIECE * PIECE;
	uint64_t sum = 0;

	while (!atomic_load(&own.stop)) {
		if (own.cell.way == OWN)
			read_all(buffer, at, PIECE);
		else
			for (size_t i = 0; i < PIECE; i += 64)
				sum += *(const volatile uint64_t *)(const void *)(own.map + at + i);
		at = (at + PIECE) % own.length;
		atomic_fetch_add(&own.bytes, PIECE);
	}
	(void)sum;
}

static void *work(void *argument)
{
	unsigned index = (unsigned)(uintptr_t)argument;
	char *buffer = aligned_alloc(4096, PIECE);

	prctl(PR_SET_TIMERSLACK, 1);
	memset(buffer, 1, PIECE);
	for (;;) {
		pthread_barrier_wait(&own.begin);
		if (index < own.cell.workers && own.cell.way > PINNED)
			read_only(buffer, index);
		else if (index < own.cell.workers && own.cell.way == HOME)
			for (uint64_t i = index; fill_piece(i, buffer); i += own.cell.workers)
				;
		else if (index < own.cell.workers && own.cell.way < PINNED)
			while (fill_piece(atomic_fetch_add(&own.next, 1), buffer))
				;
		pthread_barrier_wait(&own.end);
	}
	return NULL;
}

static void enqueue(uint64_t chunk)
{
	unsigned slot = (unsigned)(chunk % own.cell.slots);
	uint32_t use = (uint32_t)(chunk / own.cell.slots) + 1;
	CUdeviceptr to = own.there + chunk * own.cell.slot % THERE;

	if (own.cell.way != PINNED)
		MUST(cuStreamWaitValue32_v2(own.stream, (uintptr_t)&own.cpu[16 * slot], use,
		                            CU_STREAM_WAIT_VALUE_GEQ));
	MUST(cuMemcpyHtoDAsync_v2(to, own.ring + slot * own.cell.slot, own.cell.slot, own.stream));
	MUST(cuStreamWriteValue32_v2(own.stream, (uintptr_t)&own.gpu[16 * slot], use, 0));
}

/* Returns the bytes that were copied. */
static uint64_t enqueue_until(double end)
{
	unsigned ahead = 2 * own.cell.slots + 8, looks = 0;
	uint64_t chunk = 0;

	do {
		uint64_t back = chunk - SL_MIN(chunk, ahead);

		if (chunk < ahead || reached(&own.gpu[16 * (back % own.cell.slots)],
		                             (uint32_t)(back / own.cell.slots) + 1))
			enqueue(chunk++);
		else
			doze(&looks);
	} while (driver_now() < end || chunk < own.cell.slots);
	atomic_store(&own.limit, chunk);
	MUST(cuStreamSynchronize(own.stream));
	return chunk * own.cell.slot;
}

/* The end of what the GPU has is what the file has there. */
static void compare_last(uint64_t bytes)
{
	char got[4096], want[4096];
	uint64_t at = bytes - sizeof(got);

	MUST(cuMemcpyDtoH_v2(got, own.there + at % THERE, sizeof(got)));
	read_all(want, at % own.length, sizeof(want));
	if (!memcmp(got, want, sizeof(got)))
		return;
	say("FAILED other bytes at %llu", (unsigned long long)at);
	_exit(1);
}

static double cpu_seconds(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
	       1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static void run_cell(void)
{
	unsigned looks = 0;
	double start, cpu, took;
	uint64_t bytes;

	for (unsigned i = 0; i < SLOTS_MOST; i++)
		own.cpu[16 * i] = own.gpu[16 * i] = own.filled[i] = 0;
	own.next = own.bytes = 0;
	own.limit = UINT64_MAX;
	own.stop = false;
	atomic_fetch_add(&control->ready, 1);
	while (atomic_load(&control->ready) < own.cell.gpus)
		doze(&looks);
	cpu = cpu_seconds();
	start = driver_now();
	pthread_barrier_wait(&own.begin);
	if (own.cell.way <= PINNED) {
		bytes = enqueue_until(start + own.cell.seconds);
	} else {
		sleep_ms((unsigned)(own.cell.seconds * 1000));
		bytes = own.bytes;
		own.stop = true;
	}
	took = driver_now() - start;
	pthread_barrier_wait(&own.end);
	control->results[own.index].rate = (double)bytes / took / 1e9;
	control->results[own.index].cpu = (cpu_seconds() - cpu) * 1e9 / (double)SL_MAX(bytes, 1);
	if (own.cell.way < PINNED)
		compare_last(bytes);
	if (own.cell.way <= PINNED && !bytes)
		_exit(1);
}

static void write_file(const char *folder, size_t length)
{
	uint64_t *block = aligned_alloc(4096, MIB), number = own.index * 1000003u + 1;
	char path[4096];

	snprintf(path, sizeof(path), "%s/several.%d", folder, (int)getpid());
	own.file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (own.file < 0 || unlink(path)) {
		say("FAILED %s: %s", path, strerror(errno));
		_exit(1);
	}
	for (size_t at = 0; at < length; at += MIB) {
		for (size_t i = 0; i < MIB / 8; i++)
			block[i] = number = number * 6364136223846793005u + 1442695040888963407u;
		if (pwrite(own.file, block, MIB, (off_t)at) != (ssize_t)MIB) {
			say("FAILED %s has no %zu bytes: %s", folder, length, strerror(errno));
			_exit(1);
		}
	}
	free(block);
	own.length = length;
	own.map = mmap(NULL, length, PROT_READ, MAP_SHARED | MAP_POPULATE, own.file, 0);
}

static void child(unsigned index, const char *folder, size_t length)
{
	const char *missing = driver_open((int)index);
	unsigned looks, workers = WORKERS_MOST / control->gpus;
	char *words, *place = control->results[index].place;
	uint32_t seen = 0;
	pthread_t thread;
	CUdevice device;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (missing) {
		say("skipped: %s", missing);
		_exit(77);
	}
	MUST(cuCtxGetDevice(&device));
	MUST(cuDeviceGetPCIBusId(place, 40, device));
	for (char *c = place; *c; c++)
		*c = *c >= 'A' && *c <= 'F' ? (char)(*c + 'a' - 'A') : *c;
	snprintf(place + strlen(place), 20, ", node %d", sl_pci_node(place));
	own.index = index;
	write_file(folder, length);
	own.ring = driver_pinned(control->ring);
	words = driver_pinned((size_t)2 * SLOTS_MOST * 64);
	own.cpu = (_Atomic uint32_t *)(void *)words;
	own.gpu = own.cpu + 16 * SLOTS_MOST;
	own.there = driver_memory(THERE);
	own.stream = driver_stream();
	prctl(PR_SET_TIMERSLACK, 1);
	pthread_barrier_init(&own.begin, NULL, workers + 1);
	pthread_barrier_init(&own.end, NULL, workers + 1);
	for (uintptr_t i = 0; i < workers; i++)
		pthread_create(&thread, NULL, work, (void *)i);
	atomic_fetch_add(&control->done, 1);
	for (;;) {
		for (looks = 0;
		     atomic_load(&control->round) == seen && !atomic_load(&control->over);)
			doze(&looks);
		if (atomic_load(&control->over))
			_exit(0);
		seen = atomic_load(&control->round);
		own.cell = control->cell;
		if (index < own.cell.gpus)
			run_cell();
		atomic_fetch_add(&control->done, 1);
	}
}

/* ----------------------------------------------------------------------------------- the parent */

static pid_t children[GPUS_MOST];

static void await_children(void)
{
	while (atomic_load(&control->done) < control->gpus) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid > 0)
			exit(WIFEXITED(status) && WEXITSTATUS(status) == 77 ? 77 : 1);
		usleep(50);
	}
	atomic_store(&control->done, 0);
}

struct rates {
	double together, cpu, least;
};

static struct rates measure(struct cell cell)
{
	struct rates sum = {0, 0, 1e9};

	control->cell = cell;
	atomic_store(&control->ready, 0);
	atomic_fetch_add(&control->round, 1);
	await_children();
	for (unsigned i = 0; i < cell.gpus; i++) {
		double rate = control->results[i].rate;

		sum.together += rate;
		sum.cpu += control->results[i].cpu * rate;
		sum.least = SL_MIN(sum.least, rate);
	}
	sum.cpu /= sum.together;
	return sum;
}

static void limits(double seconds)
{
	size_t pinned = SL_MIN(16 * MIB, control->ring / 2);

	for (unsigned n = 1; n <= control->gpus; n = n < control->gpus ? control->gpus : n + 1)
		say("| pinned memory to %u GPUs at once | | | | %.1f |", n,
		    measure((struct cell){PINNED, pinned, 2, 0, seconds, n}).together);
	for (unsigned workers = 16; workers <= WORKERS_MOST; workers *= 2) {
		struct cell cell = {READING, MIB,          1, workers / control->gpus,
		                    seconds, control->gpus};
		double reading = measure(cell).together;

		cell.way = OWN;
		say("| %u threads read memory; copy it into 1 MiB of their own | | | | %.1f; %.1f "
		    "|",
		    workers, reading, measure(cell).together);
	}
}

static struct {
	struct cell cell;
	double rate;
} best[BEST];

static void note_best(struct cell cell, double rate)
{
	int at = BEST;

	while (at > 0 && best[at - 1].rate < rate)
		at--;
	if (at == BEST)
		return;
	memmove(&best[at + 1], &best[at], (size_t)(BEST - 1 - at) * sizeof(best[0]));
	best[at].cell = cell;
	best[at].rate = rate;
}

/* A line of the table: rings of 16 to 256 MiB together. */
static void measure_rings(struct cell cell)
{
	char line[200] = "";
	size_t n = 0;

	for (unsigned i = 0; i < RINGS; i++) {
		size_t ring = (16 * MIB << i) / cell.gpus;

		cell.slots = (unsigned)(ring / cell.slot);
		if (cell.slots < 2 || cell.slots > SLOTS_MOST || ring > control->ring) {
			n += (size_t)snprintf(line + n, sizeof(line) - n, " |");
			continue;
		}
		struct rates rates = measure(cell);

		note_best(cell, rates.together);
		n += (size_t)snprintf(line + n, sizeof(line) - n, " %.1f at %.2f |", rates.together,
		                      rates.cpu);
	}
	say("| %u | %s | %zu MiB |%s", cell.workers * cell.gpus, ways[cell.way], cell.slot / MIB,
	    line);
}

int main(int argc, char **argv)
{
	size_t length = (size_t)(argc > 2 ? atoi(argv[2]) : 2048) * MIB;
	double seconds = 0.001 * (argc > 3 ? atoi(argv[3]) : 100);
	unsigned only = argc > 4 ? (unsigned)atoi(argv[4]) : 0;
	unsigned most = only ? SL_MIN(only, WORKERS_MOST) : WORKERS_MOST;
	size_t one = argc > 5 ? (size_t)atoi(argv[5]) * MIB : 0;
	int status, count;
	pid_t pid;

	if (argc < 2)
		return 2;
	alarm(150);
	control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
	               -1, 0);
	control->ring = SL_MIN(LARGEST, 8 * length);
	/* The driver does not survive a fork: a child asks it. */
	pid = fork();
	if (!pid) {
		const char *missing = driver_open(0);

		if (missing) {
			say("skipped: %s", missing);
			_exit(77);
		}
		MUST(cuDeviceGetCount(&count));
		control->gpus = SL_MIN((unsigned)count, GPUS_MOST);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (status)
		return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	for (unsigned i = 0; i < control->gpus; i++) {
		children[i] = fork();
		if (!children[i])
			child(i, argv[1], length);
	}
	await_children();
	for (unsigned i = 0; i < control->gpus; i++)
		say("GPU %u: %s, %ld cores", i, control->results[i].place,
		    sysconf(_SC_NPROCESSORS_ONLN));

	say("\n| limit | | | | GB/s |\n|---|---|---|---|---|");
	limits(seconds);
	say("\nRings together, GB/s together at CPU s/GB:\n");
	say("| workers | filled by | slot | 16 MiB | 32 MiB | 64 MiB | 128 MiB | 256 MiB |");
	say("|---|---|---|---|---|---|---|---|");
	for (unsigned workers = only ? only : 16; workers <= most; workers *= 2)
		for (int way = 0; way < WAYS; way++)
			for (size_t slot = one ? one : MIB; slot <= (one ? one : 16 * MIB);
			     slot *= 2)
				measure_rings((struct cell){(enum way)way, slot, 0,
				                            workers / control->gpus, seconds,
				                            control->gpus});

	say("\n| the best: workers | filled by | slot | ring of each | together | CPU s/GB | "
	    "the slowest | one alone | CPU s/GB |\n|---|---|---|---|---|---|---|---|---|");
	for (int i = 0; i < BEST && best[i].rate > 0; i++) {
		struct cell cell = best[i].cell;
		struct rates all, alone;

		cell.seconds = 4 * seconds;
		all = measure(cell);
		cell.gpus = 1;
		alone = measure(cell);
		say("| %u | %s | %zu MiB | %zu MiB | %.1f | %.2f | %.1f | %.1f | %.2f |",
		    cell.workers * control->gpus, ways[cell.way], cell.slot / MIB,
		    cell.slot * cell.slots / MIB, all.together, all.cpu, all.least, alone.together,
		    alone.cpu);
	}
	atomic_store(&control->over, true);
	for (unsigned i = 0; i < control->gpus; i++)
		waitpid(children[i], &status, 0);
	return 0;
}
