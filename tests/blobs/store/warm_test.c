/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that nobody has touched, which create makes ready; and a kernel that will not. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/daemon.h"
#include "store/mapping.h"

#define WARM_TEST(name) DAEMON_TEST_WITH(name, setup, daemon_teardown)

#define COLLAPSE 25
#define PAGE     4096
/* Its memory is a multiple of 1 MiB, and no multiple of 2. */
#define BYTES      (8 * MIB + PAGE)
#define MEMORY     (9 * MIB)
#define HUGE_BYTES (8 * MIB)

/* What the kernel is made to say, and how often it was asked. */
static struct {
	_Atomic unsigned collapses;
	int advice, error; /* error: of that advice; 0: what is true */
	size_t part;       /* of a collapse that is done all the same */
	int delay_ms;      /* of each collapse */
	_Atomic size_t asked, longest;
} kernel;

int __real_madvise(void *at, size_t n, int advice);
int __wrap_madvise(void *at, size_t n, int advice);

int __wrap_madvise(void *at, size_t n, int advice)
{
	if (advice == COLLAPSE) {
		kernel.collapses++;
		kernel.asked += n;
		if (n > kernel.longest)
			kernel.longest = n;
	}
	if (advice == COLLAPSE && kernel.delay_ms)
		sleep_ms(kernel.delay_ms);
	if (!kernel.error || advice != kernel.advice)
		return __real_madvise(at, n, advice);
	if (kernel.part)
		assert_int_equal(__real_madvise(at, SL_MIN(kernel.part, n), advice), 0);
	errno = kernel.error;
	return -1;
}

static bool can_collapse(void)
{
	int fd = memfd_create("probe", MFD_CLOEXEC);
	char *room = mmap(NULL, 4 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at;
	bool can;

	assert_true(fd >= 0 && !ftruncate(fd, 2 * MIB) && room != MAP_FAILED);
	at = room + -(uintptr_t)room % (2 * MIB);
	assert_true(mmap(at, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at);
	at[0] = 1;
	can = !__real_madvise(at, 2 * MIB, COLLAPSE);
	if (!can)
		print_message("[  reason  ] this kernel makes no huge pages of shared memory: %s\n",
		              strerror(errno));
	munmap(room, 4 * MIB);
	close(fd);
	return can;
}

static int setup(void **state)
{
	memset(&kernel, 0, sizeof(kernel));
	return daemon_setup(state);
}

static const char *const little[] = {"--memory", "64M", NULL};
static const char *const much[] = {"--memory", "2G", NULL};

static int setup_large(void **state)
{
	daemon_options = much;
	return setup(state);
}

static int teardown_large(void **state)
{
	daemon_options = little;
	return daemon_teardown(state);
}

static size_t resident(const void *at, size_t n)
{
	unsigned char *pages = malloc(n / PAGE);
	size_t count = 0;

	assert_non_null(pages);
	assert_int_equal(mincore((void *)at, n, pages), 0);
	for (size_t i = 0; i < n / PAGE; i++)
		count += pages[i] & 1;
	free(pages);
	return count * PAGE;
}

static sluice_blob *make(sluice_store *store, unsigned flags)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *blob;

	o.flags = flags;
	assert_ok(sluice_blob_create(store, "a blob", BYTES, -1, &o, &blob));
	return blob;
}

/* Fills, seals and reads it. */
static void seal(sluice_store *store, sluice_blob *blob)
{
	unsigned char *data = sluice_blob_mutable_data(blob);
	const unsigned char *seen;
	sluice_blob *read;

	for (size_t i = 0; i < BYTES; i += 512)
		data[i] = (unsigned char)(i / 512 * 7 + 1);
	assert_ok(sluice_blob_seal(blob));
	read = got(store, "a blob");
	seen = sluice_blob_data(read);
	for (size_t i = 0; i < BYTES; i += 512)
		assert_int_equal(seen[i], (unsigned char)(i / 512 * 7 + 1));
	assert_ok(sluice_blob_release(read));
}

/* What memory takes. */
static size_t taken(int fd)
{
	struct stat st;

	assert_ok(fstat(fd, &st));
	return (size_t)st.st_blocks * 512;
}

static void give_up(sluice_store *store, sluice_blob *blob)
{
	assert_let_go(blob, store, "a blob");
	assert_idle_but(store, 1);
}

/* Of the mapping that begins there: a line of /proc/self/smaps, in bytes. */
static size_t smaps(const void *at, const char *what)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[512];
	bool inside = false;
	size_t found = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		unsigned long first, end, kib;

		if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
			inside = first == (uintptr_t)at;
		else if (inside && !strncmp(line, what, strlen(what)) &&
		         sscanf(line + strlen(what), " %lu", &kib) == 1)
			found = kib * 1024;
	}
	fclose(file);
	return found;
}

/* ------------------------------------------------------------------------------------------ tests */

WARM_TEST(create_makes_fresh_memory_ready_but_for_what_is_no_whole_page)
{
	sluice_blob *blob;

	if (!can_collapse())
		skip();
	blob = make(d->store, 0);
	assert_int_equal((uintptr_t)sluice_blob_data(blob) % (2 * MIB), 0);
	assert_int_equal(resident(sluice_blob_data(blob), HUGE_BYTES), HUGE_BYTES);
	assert_int_equal(resident(sluice_blob_data(blob), MEMORY), HUGE_BYTES);
	assert_int_equal(smaps(sluice_blob_data(blob), "ShmemPmdMapped:"), HUGE_BYTES);
	seal(d->store, blob);
	assert_int_equal(resident(sluice_blob_data(blob), MEMORY), HUGE_BYTES + PAGE);
	give_up(d->store, blob);
}

WARM_TEST(readers_map_it_in_huge_pages)
{
	sluice_store *other = daemon_connect(d);
	sluice_blob *blob, *read;

	if (can_collapse()) {
		blob = make(d->store, 0);
		seal(d->store, blob);
		read = got(other, "a blob");
		for (size_t i = 0; i < BYTES; i += PAGE)
			(void)((volatile const char *)sluice_blob_data(read))[i];
		assert_int_equal(smaps(sluice_blob_data(read), "ShmemPmdMapped:"), HUGE_BYTES);
		assert_ok(sluice_blob_release(read));
		give_up(d->store, blob);
	}
	assert_ok(sluice_store_close(other));
}

WARM_TEST(memory_that_was_used_is_not_made_ready_again)
{
	sluice_store *other;
	sluice_blob *blob;

	for (int i = 0; i < 2; i++) {
		blob = make(d->store, 0);
		seal(d->store, blob);
		give_up(d->store, blob);
		assert_int_equal(kernel.collapses, 1);
	}
	/* Nor what another process has used. */
	other = d->store;
	d->store = daemon_connect(d);
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
	blob = make(d->store, 0);
	seal(d->store, blob);
	give_up(d->store, blob);
	assert_int_equal(kernel.collapses, 1);
}

WARM_TEST(a_kernel_that_refuses_is_no_failure)
{
	const struct {
		int advice, error;
		size_t part, left; /* left: bytes that are there afterwards */
	} cases[] = {
		{COLLAPSE, EINVAL, 0, HUGE_BYTES / (2 * MIB) * PAGE},
		{COLLAPSE, ENOMEM, 6 * MIB, 6 * MIB + PAGE},
		{COLLAPSE, EAGAIN, 2 * MIB, 2 * MIB + 3 * PAGE},
		{MADV_POPULATE_WRITE, EINVAL, 0, 0},
		{MADV_POPULATE_WRITE, EFAULT, 0, 0},
	};
	bool can = can_collapse();

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		sluice_blob *blob;

		if (cases[i].part && !can)
			continue;
		kernel.advice = cases[i].advice;
		kernel.error = cases[i].error;
		kernel.part = cases[i].part;
		/* A new server keeps no memory: so there is fresh one each time. */
		daemon_replace_server(d);
		blob = make(d->store, 0);
		assert_int_equal(resident(sluice_blob_data(blob), MEMORY), cases[i].left);
		seal(d->store, blob);
		give_up(d->store, blob);
	}
}

WARM_TEST(holes_in_huge_pages_are_memory_that_is_free)
{
	sluice_blob *blob = make(d->store, 0);
	char path[64];
	int fd;

	seal(d->store, blob);
	/* The memory itself, by the mapping. */
	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx",
	         (unsigned long)blob->mapping->base,
	         (unsigned long)blob->mapping->base + blob->mapping->bytes);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		print_message("[  reason  ] %s: %s\n", path, strerror(errno));
	give_up(d->store, blob);
	/* Kept for the next blob, and then given back because others need it. */
	if (fd >= 0) {
		assert_in_range(taken(fd), BYTES, MEMORY);
		blob = put(d->store, "large", 60 * MIB, 0);
		assert_int_equal(taken(fd), 0);
		assert_let_go(blob, d->store, "large");
		close(fd);
	}
	assert_idle(d->store);
}

/* The kernel does not look for signals in a call, however long it is. */
DAEMON_TEST_WITH(a_signal_waits_for_a_part_of_a_large_blob_only, setup_large, teardown_large)
{
	sluice_blob *blob;

	kernel.advice = COLLAPSE;
	kernel.error = EINVAL;
	assert_ok(sluice_blob_create(d->store, "large", 1536 * MIB, -1, NULL, &blob));
	assert_int_equal(kernel.asked, 1536 * MIB);
	assert_in_range(kernel.longest, 1, 128 * MIB);
	assert_ok(sluice_blob_release(blob));
}

struct part {
	sluice_blob *blob;
	size_t at, n;
};

static void *warm(void *argument)
{
	const struct part *part = argument;

	return (void *)(intptr_t)sluice_blob_warm(part->blob, part->at, part->n);
}

WARM_TEST(a_cold_blob_is_made_ready_in_parts_by_who_fills_it)
{
	sluice_blob *blob = make(d->store, SLUICE_BLOB_COLD);
	struct part parts[4];
	pthread_t threads[4];
	bool can = can_collapse();
	void *rc;

	assert_int_equal(kernel.collapses, 0);
	assert_int_equal(resident(sluice_blob_data(blob), MEMORY), 0);
	assert_refused(sluice_blob_warm(blob, BYTES, 1), EINVAL, "of 8392704");
	assert_refused(sluice_blob_warm(blob, 1, SIZE_MAX), EINVAL, "of 8392704");
	assert_ok(sluice_blob_warm(blob, 4 * MIB + 1, MIB));
	assert_int_equal(kernel.collapses, 0);
	for (size_t i = 0; i < 4; i++) {
		/* Borders are anywhere. */
		parts[i] = (struct part){blob, i * 2051 * KIB,
		                         i < 3 ? 2051 * KIB : BYTES - 3 * 2051 * KIB};
		pthread_create(&threads[i], NULL, warm, &parts[i]);
	}
	for (size_t i = 0; i < 4; i++) {
		pthread_join(threads[i], &rc);
		assert_null(rc);
	}
	if (can)
		assert_int_equal(resident(sluice_blob_data(blob), MEMORY), HUGE_BYTES);
	seal(d->store, blob);
	assert_refused(sluice_blob_warm(blob, 0, 1), EPERM, "sealed");
	give_up(d->store, blob);
	assert_refused(sluice_blob_warm(NULL, 0, 1), EINVAL, "NULL");
}

WARM_TEST(where_a_part_takes_long_the_rest_is_made_ready_at_once)
{
	sluice_blob *blob = make(d->store, SLUICE_BLOB_COLD);

	if (can_collapse()) {
		kernel.delay_ms = 20;
		assert_ok(sluice_blob_warm(blob, 0, 2 * MIB));
		assert_int_equal(resident(sluice_blob_data(blob), MEMORY), HUGE_BYTES);
		assert_int_equal(kernel.collapses, 2);
		assert_ok(sluice_blob_warm(blob, 2 * MIB, 2 * MIB));
		assert_int_equal(kernel.collapses, 2);
	}
	seal(d->store, blob);
	give_up(d->store, blob);
	/* What create has made ready is that. */
	daemon_replace_server(d);
	blob = make(d->store, 0);
	kernel.collapses = 0;
	assert_ok(sluice_blob_warm(blob, 0, BYTES));
	assert_int_equal(kernel.collapses, 0);
	seal(d->store, blob);
	give_up(d->store, blob);
}

int main(void)
{
	daemon_options = little;
	return RUN_TESTS(NULL, NULL);
}
