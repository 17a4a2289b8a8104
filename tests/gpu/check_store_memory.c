/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver says is in use, and who has the device open. */
#include "gpu/check_store.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLAB = 2 << 20 };

/* Bytes of the device that all its processes have taken, by the driver's figure; of the emulated one, this process. */
static uint64_t in_use(void)
{
	struct sluice_device d = {.size = sizeof(d)};

	MUST(sluice_device_describe(gpu_device(0), &d));
	return d.memory_bytes - d.free_bytes;
}

/* What is let go is let go soon. */
static bool comes_down_to(uint64_t start)
{
	double begun = seconds_from(0);
	uint64_t now;

	while ((now = in_use()) > start && seconds_from(begun) < 20)
		nap(10000);
	if (now > start)
		printf("       %llu bytes are in use, %llu were before\n", (unsigned long long)now,
		       (unsigned long long)start);
	return now <= start;
}

/* And of the store's own, which counts what clients say. */
static bool account_is_empty(void)
{
	double begun = seconds_from(0);
	struct sluice_store_device_info d;

	while ((d = device_account()).memory_bytes && seconds_from(begun) < 20)
		nap(10000);
	if (d.memory_bytes)
		printf("       the store counts %llu bytes, %llu of them leaving\n",
		       (unsigned long long)d.memory_bytes, (unsigned long long)d.leaving_bytes);
	return !d.memory_bytes;
}

/* What is in use when nothing of the store's is: its daemon, too, has let go of what it held. */
static uint64_t in_use_at_rest(void)
{
	uint64_t before, now = in_use();

	if (!account_is_empty())
		broken("the store is not empty");
	do {
		before = now;
		nap(100000);
		now = in_use();
	} while (now != before);
	return now;
}

/* --------------------------------------------------------------------------------------- deletes */

static const size_t sizes[] = {1, 5000, 100000, MIB, MIB + 1, 3 * MIB, 30 * MIB + 3};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), ROUNDS = 5 };

static void put_and_delete(unsigned round)
{
	sluice_blob *blobs[SIZES];
	char name[20];

	for (unsigned i = 0; i < SIZES; i++) {
		snprintf(name, sizeof(name), "d%u", i);
		blobs[i] = put_blob(name, sizes[i], 0, seed + round + i);
	}
	/* Half of them are deleted while they are held. */
	for (unsigned i = 0; i < SIZES; i++) {
		snprintf(name, sizeof(name), "d%u", i);
		if (i % 2)
			release_blob(blobs[i]);
		MUST(sluice_blob_delete(store, name));
		if (i % 2)
			continue;
		if (!holds(blobs[i], sizes[i], seed + round + i))
			broken("what is held and deleted has changed");
		release_blob(blobs[i]);
	}
}

static _Noreturn void sleep_for_ever(void)
{
	for (;;)
		pause();
}

/* Others import, and let go when they are told to. */
static int play_reader(void)
{
	char name[20];

	store_join();
	for (unsigned i = 0; i < SIZES; i++) {
		snprintf(name, sizeof(name), "r%u", i);
		release_blob(get_blob(name, 20000));
	}
	atomic_fetch_add(&together->ready, 1);
	/* It does nothing more, and has all of it mapped. */
	sleep_for_ever();
}

static bool deletes_give_memory_back(void)
{
	bool good = true;
	uint64_t start;

	store_start();
	/* The driver, too, takes something at its first use. */
	put_and_delete(0);
	store_reopen();
	start = in_use_at_rest();
	for (unsigned i = 1; i <= ROUNDS; i++)
		put_and_delete(i);
	/* What is kept for the next small ones goes with the client. */
	store_reopen();
	good &= comes_down_to(start) && account_is_empty();
	store_stop();
	return good;
}

static bool sleepers_give_memory_back(void)
{
	enum { READERS = 3 };
	pid_t readers[READERS];
	uint64_t start, full;
	char name[20];
	size_t total = 0;
	bool good = true;

	store_start();
	for (unsigned i = 0; i < SIZES; i++) {
		snprintf(name, sizeof(name), "r%u", i);
		release_blob(put_blob(name, sizes[i], SLUICE_BLOB_ALONE, seed + i));
		total += (sizes[i] + SLAB - 1) / SLAB * SLAB;
	}
	for (int i = 0; i < READERS; i++)
		readers[i] = start_self("reader");
	await_word(&together->ready, READERS);
	if (device_account().memory_bytes < total)
		broken("the store counts %llu bytes of %zu",
		       (unsigned long long)device_account().memory_bytes, total);
	full = in_use();
	for (unsigned i = 0; i < SIZES; i++) {
		snprintf(name, sizeof(name), "r%u", i);
		MUST(sluice_blob_delete(store, name));
	}
	store_reopen();
	good &= account_is_empty();
	/* The readers live, but nothing of it does. */
	start = full - total;
	good &= comes_down_to(start);
	for (int i = 0; i < READERS; i++) {
		kill(readers[i], SIGKILL);
		wait_for(readers[i], 10);
	}
	store_stop();
	return good;
}

/* ----------------------------------------------------------------------------------------- deaths */

/* Makes, gets and deletes until it is killed. */
static _Noreturn void play_busy(void)
{
	char name[40];

	store_join();
	for (unsigned i = 0;; i++) {
		size_t n = sizes[i % SIZES];
		sluice_blob *made, *got;

		snprintf(name, sizeof(name), "%d/%u", (int)getpid(), i);
		made = put_blob(name, n, 0, seed + i);
		got = get_blob(name, 0);
		release_blob(made);
		if (!holds(got, n, seed + i))
			atomic_fetch_add(&together->wrong, 1);
		release_blob(got);
		if (i % 3)
			MUST(sluice_blob_delete(store, name));
		if (i == 1)
			atomic_fetch_add(&together->ready, 1);
	}
}

/* Has a seal in a stream that does not come to it. */
static int play_held(void)
{
	static struct gpu_hold hold;
	sluice_stream stream = new_stream(0);
	sluice_blob *little, *large;

	store_join();
	MUST(sluice_blob_create(store, "never", 5000, gpu_device(0), NULL, &little));
	MUST(sluice_blob_create(store, "", 5 * MIB, gpu_device(0), NULL, &large));
	GPU(gpu_hold(0, stream, &hold));
	GPU(gpu_fill(0, stream, sluice_blob_mutable_data(little), 5000, 0, seed));
	MUST(sluice_blob_seal_on(little, stream));
	MUST(sluice_blob_seal_on(large, stream));
	if (sluice_blob_wait_sealed(little, 20) != -EINPROGRESS)
		broken("it was sealed before its stream had come to it");
	/* One that was released is sealed all the same, if the stream comes to it. */
	release_blob(large);
	atomic_fetch_add(&together->ready, 1);
	sleep_for_ever();
}

static void kill_some(unsigned count, unsigned number)
{
	enum { MOST = 16 };
	pid_t pids[MOST];

	for (unsigned i = 0; i < count; i++)
		pids[i] = start_self(i % 4 ? "busy" : "held");
	await_word(&together->ready, (number + 1) * count);
	for (unsigned i = 0; i < count; i++) {
		int status;

		nap((unsigned)((seed >> (i + number) % 32) % 3000));
		kill(pids[i], SIGKILL);
		status = wait_for(pids[i], 10);
		if (status != SIGKILL)
			broken("a client ended with status %#x", (unsigned)status);
	}
	if (sluice_blob_exists(store, "never"))
		broken("what was never sealed is there");
}

static unsigned delete_what_is_sealed(void)
{
	struct sluice_blob_info infos[16] = {{.size = sizeof(infos[0])}};
	unsigned deleted = 0;
	uint64_t cursor = 0;
	int n;

	while ((n = sluice_blob_list(store, "", &cursor, infos, 16)) > 0)
		for (int i = 0; i < n; i++)
			if (infos[i].state == SLUICE_BLOB_IS_SEALED)
				deleted += !sluice_blob_delete(store, infos[i].name);
	MUST(n);
	return deleted;
}

static bool deaths_give_memory_back(void)
{
	unsigned count = small ? 4 : 10, times = small ? 2 : 10, deleted;
	uint64_t start;
	bool good;

	store_start();
	put_and_delete(0);
	store_reopen();
	start = in_use_at_rest();
	for (unsigned i = 0; i < times; i++)
		kill_some(count, i);
	/* What they had sealed stays until somebody deletes it. */
	deleted = delete_what_is_sealed();
	printf("       %u clients were killed, %u blobs of theirs deleted\n", count * times,
	       deleted);
	if (atomic_load(&together->wrong))
		broken("%u blobs had wrong bytes", atomic_load(&together->wrong));
	good = deleted > 0 && comes_down_to(start) && account_is_empty();
	store_stop();
	return good;
}

/* ------------------------------------------------------------------------------------------ slabs */

enum { LITTLE = 4096, RANGE = 32 << 10 };

static int play_count(void)
{
	char name[20];

	store_join();
	for (unsigned i = 0; i < together->rounds; i++) {
		sluice_blob *blob;

		snprintf(name, sizeof(name), "s%u", i);
		blob = get_blob(name, 0);
		if (!holds(blob, LITTLE, seed + i))
			return 1;
		release_blob(blob);
	}
	MUST(sluice_store_close(store));
	return 0;
}

static bool little_ones_share_slabs(void)
{
	enum { COUNT = 1000 };
	/* One slab more, for leases in advance. */
	uint64_t most = (COUNT / (SLAB / RANGE) + 2) * (uint64_t)SLAB;
	static sluice_blob *blobs[COUNT];
	struct sluice_store_device_info d;
	uint64_t start, grown;
	char name[20];
	bool good;

	store_start();
	together->rounds = COUNT;
	put_and_delete(0);
	store_reopen();
	start = in_use_at_rest();
	for (unsigned i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		blobs[i] = put_blob(name, LITTLE, 0, seed + i);
	}
	d = device_account();
	grown = in_use() - start;
	printf("       %u blobs took %llu bytes by the driver, %llu by the store; alone they would "
	       "take %llu\n",
	       COUNT, (unsigned long long)grown, (unsigned long long)d.memory_bytes,
	       (unsigned long long)COUNT * SLAB);
	/* What maps it takes a little, too. */
	good = grown <= d.memory_bytes + 2 * SLAB && d.memory_bytes <= most;
	for (unsigned i = 0; i < COUNT; i++)
		good &= holds(blobs[i], LITTLE, seed + i);
	good &= plays("count");
	for (unsigned i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		release_blob(blobs[i]);
		MUST(sluice_blob_delete(store, name));
	}
	store_reopen();
	good &= comes_down_to(start) && account_is_empty();
	store_stop();
	return good;
}

/* ------------------------------------------------------------------------------------ the daemon */

/* Whether a line of the file has that in it. */
static bool mentions(pid_t pid, const char *file, const char *text)
{
	char path[64], line[512];
	bool found = false;
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	in = fopen(path, "re");
	if (!in)
		broken("%s: %s", path, strerror(errno));
	while (!found && fgets(line, sizeof(line), in))
		found = strstr(line, text);
	fclose(in);
	return found;
}

/*
 * Descriptors by which a process uses a GPU, and not only holds its memory: /dev/nvidia0 and its like, and
 * /dev/nvidia-uvm. What the driver exports is a descriptor of /dev/nvidiactl.
 */
static unsigned devices_open(pid_t pid)
{
	unsigned count = 0;
	struct dirent *e;
	char path[64];
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	fds = opendir(path);
	if (!fds)
		broken("%s: %s", path, strerror(errno));
	while ((e = readdir(fds))) {
		char link[400], target[256];
		ssize_t n;

		snprintf(link, sizeof(link), "%s/%s", path, e->d_name);
		n = readlink(link, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		count += !strncmp(target, "/dev/nvidia-uvm", 15) ||
		         (!strncmp(target, "/dev/nvidia", 11) && target[11] >= '0' &&
		          target[11] <= '9');
	}
	closedir(fds);
	return count;
}

static pid_t child_of(pid_t parent)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	pid_t found = 0;

	while (!found && proc && (e = readdir(proc))) {
		char path[300], text[512];
		FILE *in;
		size_t n;
		int ppid;

		if (atoi(e->d_name) <= 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		in = fopen(path, "re");
		n = in ? fread(text, 1, sizeof(text) - 1, in) : 0;
		text[n] = '\0';
		if (in)
			fclose(in);
		if (n && strrchr(text, ')') && sscanf(strrchr(text, ')'), ") %*c %d", &ppid) == 1 &&
		    ppid == parent)
			found = atoi(e->d_name);
	}
	if (proc)
		closedir(proc);
	return found;
}

/* 1: the list of processes has it; 0: not; -1: there is no list, or not even this process is in it. */
static int listed(pid_t pid)
{
	FILE *in = popen("nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null",
	                 "re");
	bool self = false, found = false;
	char line[80];

	if (!in)
		return -1;
	while (fgets(line, sizeof(line), in)) {
		self |= atoi(line) == getpid();
		found |= atoi(line) == pid;
	}
	return pclose(in) || !self ? -1 : found;
}

static bool daemon_is_no_client_of_the_driver(void)
{
	sluice_blob *little, *large;
	pid_t pids[2];
	bool good = true;

	need_cuda();
	store_start();
	pids[0] = daemon_pid();
	pids[1] = child_of(pids[0]);
	if (!pids[1])
		broken("the keeper has no server");
	little = put_blob("little", 4096, 0, seed);
	large = put_blob("large", 5 * MIB, 0, seed);
	if (!mentions(getpid(), "maps", "libcuda.so"))
		broken("this process has no libcuda either: nothing can be seen");
	if (!devices_open(getpid()))
		printf("       this process has no /dev/nvidia* open: the driver is a fake one\n");
	if (listed(getpid()) != 1)
		printf("       nvidia-smi has no list with this process in it\n");
	for (int i = 0; i < 2; i++) {
		bool bad = mentions(pids[i], "maps", "libcuda") || devices_open(pids[i]) ||
		           listed(pids[i]) == 1;

		if (bad)
			printf("       %s: libcuda is %smapped, %u devices are open\n",
			       i ? "server" : "keeper",
			       mentions(pids[i], "maps", "libcuda") ? "" : "not ",
			       devices_open(pids[i]));
		good &= !bad;
	}
	release_blob(little);
	release_blob(large);
	MUST(sluice_blob_delete(store, "little"));
	MUST(sluice_blob_delete(store, "large"));
	store_stop();
	return good;
}

int play_memory(const char *how)
{
	if (!strcmp(how, "reader"))
		return play_reader();
	if (!strcmp(how, "busy"))
		play_busy();
	if (!strcmp(how, "held"))
		return play_held();
	return strcmp(how, "count") ? 2 : play_count();
}

const struct check store_memory_checks[] = {
	{"deletes", "memory in use returns to the start after deletes", deletes_give_memory_back,
         60, false},
	{"sleepers", "also when those who have it mapped do nothing", sleepers_give_memory_back, 60,
         false},
	{"deaths", "and after clients were killed", deaths_give_memory_back, 100, false},
	{"slabs", "small blobs share slabs", little_ones_share_slabs, 60, false},
	{"daemon", "the daemon is no process of the GPU's", daemon_is_no_client_of_the_driver, 60,
         false},
	{NULL, NULL, NULL, 0, false},
};
