/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/check_store.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct together *together;
sluice_store *store;

static pid_t daemon_;
static const char *const socket_path = "store";

/* ------------------------------------------------------------------------------------- together */

double seconds_from(double begun)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec - begun;
}

void nap(unsigned us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000L};

	nanosleep(&t, NULL);
}

void await_word(const _Atomic uint32_t *word, uint32_t value)
{
	double begun = seconds_from(0);

	while (atomic_load(word) < value) {
		if (seconds_from(begun) > 20)
			broken("a process that was waited for did not come to it");
		nap(20);
	}
}

/* The descriptor is inherited, and its number is in the environment. */
static void join_together(void)
{
	const char *text = getenv("GPU_CHECK_TOGETHER");
	int fd = text ? atoi(text) : memfd_create("together", 0);
	char number[20];
	void *memory;

	if (fd < 0 || (!text && ftruncate(fd, sizeof(*together))))
		broken("no memory to share: %s", strerror(errno));
	snprintf(number, sizeof(number), "%d", fd);
	setenv("GPU_CHECK_TOGETHER", number, 1);
	memory = mmap(NULL, sizeof(*together), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		broken("no memory to share: %s", strerror(errno));
	together = memory;
}

/* --------------------------------------------------------------------------------------- daemon */

/* Beside this program, if the environment does not say. */
static const char *daemon_path(void)
{
	static char path[4200];
	const char *text = getenv("SLUICED");
	ssize_t n;

	if (text)
		return text;
	n = readlink("/proc/self/exe", path, sizeof(path) - 20);
	if (n <= 0)
		broken("/proc/self/exe: %s", strerror(errno));
	path[n] = '\0';
	strcpy(strrchr(path, '/') + 1, "sluiced");
	return path;
}

static void unlink_socket(void)
{
	unlink(socket_path);
	unlink("store.lock");
}

void store_start(void)
{
	const char *path = daemon_path();
	pid_t parent = getpid();

	join_together();
	unlink_socket();
	setenv("SLUICE_STORE", socket_path, 1);
	fflush(stdout);
	daemon_ = fork();
	if (!daemon_) {
		/* It ends with the check, however that ends. */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() == parent)
			execl(path, path, "--socket", socket_path, "--memory", "64M", NULL);
		_exit(127);
	}
	store_reopen();
}

pid_t daemon_pid(void)
{
	return daemon_;
}

/* As often as it takes until the daemon listens. */
void store_reopen(void)
{
	double begun = seconds_from(0);
	int rc;

	MUST(sluice_store_close(store));
	store = NULL;
	while ((rc = sluice_store_open(NULL, NULL, &store))) {
		if (seconds_from(begun) > 20)
			broken("sluice_store_open: %s", sluice_last_message());
		nap(2000);
	}
}

void store_join(void)
{
	join_together();
	store_reopen();
}

void store_stop(void)
{
	int status = -1;

	MUST(sluice_store_close(store));
	store = NULL;
	kill(daemon_, SIGTERM);
	waitpid(daemon_, &status, 0);
	if (status)
		broken("the daemon ended with status %#x", (unsigned)status);
	unlink_socket();
}

/* ---------------------------------------------------------------------------------------- blobs */

sluice_blob *put_blob(const char *name, size_t n, unsigned flags, uint64_t of_seed)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_stream stream = new_stream(0);
	sluice_blob *blob = NULL;

	o.flags = flags;
	MUST(sluice_blob_create(store, name, n, gpu_device(0), &o, &blob));
	GPU(gpu_fill(0, stream, sluice_blob_mutable_data(blob), n, 0, of_seed));
	MUST(sluice_blob_seal_on(blob, stream));
	MUST(sluice_blob_wait_sealed(blob, 20000));
	MUST(sluice_stream_free(stream));
	return blob;
}

sluice_blob *get_blob(const char *name, int timeout_ms)
{
	sluice_blob *blob = NULL;

	MUST(sluice_blob_get(store, name, timeout_ms, &blob));
	return blob;
}

bool holds(const sluice_blob *blob, size_t n, uint64_t of_seed)
{
	sluice_stream stream = new_stream(0);
	struct gpu_match match;
	bool good;

	if (sluice_blob_size(blob) != n || sluice_blob_device(blob) != gpu_device(0)) {
		printf("       %s: %zu bytes on device %d\n", sluice_blob_name(blob),
		       sluice_blob_size(blob), sluice_blob_device(blob));
		return false;
	}
	look_for(0, stream, &match, sluice_blob_data(blob), n, 0, of_seed);
	good = right(0, stream, &match, sluice_blob_name(blob));
	MUST(sluice_stream_free(stream));
	return good;
}

void release_blob(sluice_blob *blob)
{
	MUST(sluice_blob_release(blob));
}

bool plays(const char *how)
{
	int status = run_self(how, 30);

	if (status)
		printf("       %s: status %#x\n", how, (unsigned)status);
	return !status;
}

struct sluice_store_device_info device_account(void)
{
	struct sluice_store_device_info d = {.size = sizeof(d)};

	for (unsigned i = 0; !sluice_store_device(store, i, &d); i++)
		if (d.device == gpu_device(0))
			return d;
	return (struct sluice_store_device_info){.size = sizeof(d)};
}
