/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the device between processes: who sees what, and who may write. */
#include "gpu/check_store.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
	const char *name;
	size_t n, small;
} sizes[] = {{"little", 4096, 4096},
             {"odd", 100001, 100001},
             {"large", 3 * MIB + 5, 3 * MIB + 5},
             {"whole", 256 * MIB + 17, 5 * MIB + 17}};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static size_t size_of(int i)
{
	return small ? sizes[i].small : sizes[i].n;
}

/* -------------------------------------------------------------------------------- who comes later */

static int produce(void)
{
	store_join();
	for (int i = 0; i < SIZES; i++)
		release_blob(put_blob(sizes[i].name, size_of(i), 0, seed + (uint64_t)i));
	MUST(sluice_store_close(store));
	MUST(sluice_context_close(ctx));
	return 0;
}

/* The same, and ends as nobody wants to. */
static int produce_and_die(void)
{
	store_join();
	for (int i = 0; i < SIZES; i++)
		put_blob(sizes[i].name, size_of(i), 0, seed + (uint64_t)i);
	kill(getpid(), SIGKILL);
	return 1;
}

static bool all_are_there(void)
{
	bool good = true;

	for (int i = 0; i < SIZES; i++) {
		sluice_blob *blob = get_blob(sizes[i].name, 0);

		if (sluice_blob_kind(blob) != SLUICE_BLOB_ON_DEVICE ||
		    sluice_blob_mutable_data(blob))
			broken("%s is of kind %d", sizes[i].name, sluice_blob_kind(blob));
		good &= holds(blob, size_of(i), seed + (uint64_t)i);
		release_blob(blob);
	}
	return good;
}

static int read_all(void)
{
	bool good;

	store_join();
	good = all_are_there();
	MUST(sluice_store_close(store));
	MUST(sluice_context_close(ctx));
	return !good;
}

static void delete_all(void)
{
	for (int i = 0; i < SIZES; i++)
		MUST(sluice_blob_delete(store, sizes[i].name));
}

static bool outlives_its_maker(void)
{
	bool good;

	store_start();
	good = plays("produce") && all_are_there();
	delete_all();
	store_stop();
	return good;
}

static bool outlives_its_killed_maker(void)
{
	bool good;
	int status;

	store_start();
	status = run_self("produce_and_die", 30);
	if (status != SIGKILL)
		broken("it ended with status %#x", (unsigned)status);
	good = all_are_there();
	delete_all();
	store_stop();
	return good;
}

/* ------------------------------------------------------------------------------------ read-only */

/* What is refused here may end the process: each way to write is tried by one of its own. */
static int copy_into_it(void)
{
	unsigned char bytes[4096] = {1};
	sluice_blob *blob;
	int rc;

	store_join();
	blob = get_blob("large", 0);
	rc = sluice_copy((void *)(uintptr_t)sluice_blob_data(blob), bytes, sizeof(bytes));
	printf("       a copy into it: %d: %s\n", rc, rc < 0 ? sluice_last_message() : "done");
	fflush(stdout);
	_exit(rc >= 0);
}

static int write_by_kernel(void)
{
	sluice_stream stream = new_stream(0);
	sluice_blob *blob;
	int rc;

	store_join();
	blob = get_blob("large", 0);
	rc = gpu_scribble(0, stream, (void *)(uintptr_t)sluice_blob_data(blob), 100000, 7);
	if (!rc)
		rc = sluice_stream_synchronize(gpu_device(0), stream);
	printf("       a kernel that writes to it: %d: %s\n", rc,
	       rc < 0 ? sluice_last_message() : "done");
	fflush(stdout);
	/* Not by exit(): the context is broken, as it should be. */
	_exit(rc >= 0);
}

static bool is_refused(const char *how)
{
	int status = run_self(how, 30);

	/* On the emulated device a kernel is a function of the program's, which dies of it. */
	if (!gpu_is_real() && (status == SIGSEGV || status == SIGBUS))
		return true;
	if (status)
		printf("       %s: status %#x\n", how, (unsigned)status);
	return !status;
}

static bool readers_cannot_write(void)
{
	bool good;

	store_start();
	good = plays("produce") && is_refused("copy_into_it") && is_refused("write_by_kernel");
	good &= all_are_there();
	delete_all();
	store_stop();
	return good;
}

/* ------------------------------------------------------------------------- memory of a process */

enum { LENT_OFFSET = 12345 };

static size_t lent_bytes(void)
{
	return small ? 3 * MIB + 1 : 256 * MIB + 1;
}

static void *allocate(size_t n)
{
	CUdeviceptr memory;

	if (!gpu_is_real())
		return new_memory(0, n);
	DRIVER(cuMemAlloc_v2, &memory, n);
	return (void *)(uintptr_t)memory;
}

static void fill_now(void *memory, size_t n, uint64_t of_seed)
{
	sluice_stream stream = new_stream(0);

	GPU(gpu_fill(0, stream, memory, n, 0, of_seed));
	MUST(sluice_stream_synchronize(gpu_device(0), stream));
	MUST(sluice_stream_free(stream));
}

/* Publishes memory that the driver has allocated, and writes to it once more, which it must not. */
static sluice_blob *lend(void)
{
	size_t n = lent_bytes();
	char *memory = allocate(n + 2 * LENT_OFFSET);
	sluice_blob *blob;

	fill_now(memory + LENT_OFFSET, n, seed);
	MUST(sluice_blob_publish(store, "lent", memory + LENT_OFFSET, n, NULL, &blob));
	if (sluice_blob_data(blob) != memory + LENT_OFFSET ||
	    sluice_blob_kind(blob) != SLUICE_BLOB_OF_PROCESS)
		broken("the blob is not what was published");
	atomic_store(&together->ready, 1);
	await_word(&together->step, 1);
	fill_now(memory + LENT_OFFSET, n, seed + 1);
	atomic_store(&together->ready, 2);
	return blob;
}

static int lend_and_end(void)
{
	sluice_blob *blob;

	store_join();
	blob = lend();
	await_word(&together->step, 2);
	release_blob(blob);
	MUST(sluice_store_close(store));
	return 0;
}

static int lend_and_die(void)
{
	store_join();
	lend();
	await_word(&together->step, 2);
	kill(getpid(), SIGKILL);
	return 1;
}

static uint64_t free_bytes(void)
{
	struct sluice_device d = {.size = sizeof(d)};

	MUST(sluice_device_describe(gpu_device(0), &d));
	return d.free_bytes;
}

static bool is_lent(const char *how, int expected)
{
	size_t n = lent_bytes();
	uint64_t before;
	sluice_blob *blob;
	double begun;
	pid_t pid;
	bool good;
	int status;

	store_start();
	pid = start_self(how);
	await_word(&together->ready, 1);
	before = free_bytes();
	blob = get_blob("lent", 0);
	if (sluice_blob_kind(blob) != SLUICE_BLOB_OF_PROCESS)
		broken("it is of kind %d", sluice_blob_kind(blob));
	good = holds(blob, n, seed);
	if (before > free_bytes() + n / 2)
		broken("getting it took %llu bytes", (unsigned long long)(before - free_bytes()));
	/* What its owner writes is seen here: it is the same memory. */
	atomic_store(&together->step, 1);
	await_word(&together->ready, 2);
	good &= holds(blob, n, seed + 1);
	atomic_store(&together->step, 2);
	/* One that ends waits for nobody; its memory must not be used any more. */
	status = wait_for(pid, 30);
	if (status != expected)
		broken("its owner ended with status %#x", (unsigned)status);
	begun = seconds_from(0);
	while (sluice_blob_exists(store, "lent")) {
		if (seconds_from(begun) > 20)
			broken("it outlives its owner");
		nap(1000);
	}
	release_blob(blob);
	store_stop();
	return good;
}

static bool lends_without_a_copy(void)
{
	return is_lent("lend_and_end", 0);
}

/* Says what it sees: the bytes, or -ENOTSUP; anything else is a failure. */
static int read_lent(void)
{
	sluice_blob *blob = NULL;
	bool good = true;
	int rc;

	store_join();
	rc = sluice_blob_get(store, "lent", 0, &blob);
	printf("       memory of the driver's from there: %s\n",
	       rc ? sluice_last_message() : "the same memory");
	if (rc)
		good = rc == -ENOTSUP;
	else
		good = holds(blob, lent_bytes(), seed);
	if (blob)
		release_blob(blob);
	fflush(stdout);
	MUST(sluice_store_close(store));
	return !good;
}

static bool is_shared_with(const char *all, const char *lent)
{
	int status;
	bool good;
	pid_t pid;

	if (getuid())
		skip("only root can become another user, or enter new namespaces");
	store_start_for(OTHER_USER);
	good = plays("produce");
	status = run_self(all, 30);
	delete_all();
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
		store_stop();
		skip("%s said why", all);
	}
	good &= !status;
	pid = start_self("lend_and_end");
	await_word(&together->ready, 1);
	good &= plays(lent);
	atomic_store(&together->step, 2);
	if (wait_for(pid, 30))
		broken("the owner of the memory did not end well");
	store_stop();
	return good;
}

static bool another_user_shares(void)
{
	return is_shared_with("user_read_all", "user_read_lent");
}

static bool another_container_shares(void)
{
	return is_shared_with("namespaces_read_all", "namespaces_read_lent");
}

static bool lends_until_it_is_killed(void)
{
	return is_lent("lend_and_die", SIGKILL);
}

int play(const char *how)
{
	static const struct {
		const char *how;
		int (*run)(void);
	} roles[] = {{"produce", produce},           {"produce_and_die", produce_and_die},
	             {"copy_into_it", copy_into_it}, {"write_by_kernel", write_by_kernel},
	             {"lend_and_end", lend_and_end}, {"lend_and_die", lend_and_die},
	             {"user_read_all", read_all},    {"namespaces_read_all", read_all},
	             {"user_read_lent", read_lent},  {"namespaces_read_lent", read_lent}};

	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		if (!strcmp(how, roles[i].how))
			return roles[i].run();
	return !strncmp(how, "order_", 6) ? play_order(how) : play_memory(how);
}

const struct check store_checks[] = {
	{"outlives", "what a process has sealed, another one reads after its end",
         outlives_its_maker, 60, false},
	{"outlives_killed", "and after it was killed", outlives_its_killed_maker, 60, false},
	{"read_only", "the driver refuses to write through a reader's mapping",
         readers_cannot_write, 90, false},
	{"lent", "memory of the driver's is read by another process without a copy",
         lends_without_a_copy, 60, false},
	{"lent_killed", "and the blob is gone with its process", lends_until_it_is_killed, 60,
         false},
	{"other_user", "the members of a group share blobs of the device", another_user_shares, 90,
         false},
	{"container", "processes with namespaces of their own share blobs of the device",
         another_container_shares, 90, false},
	{NULL, NULL, NULL, 0, false},
};

const struct check *const check_tables[] = {store_checks, store_memory_checks, store_order_checks,
                                            NULL};
