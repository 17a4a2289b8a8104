/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <unistd.h>

#include "lib/blobs.h"
#include "lib/gpu.h"
#include "lib/servers.h"

/* One test may take this long, all its operations together, before it counts as hung. */
enum { TEST_SECONDS = 150, STRESS_SECONDS = 900 };

static void on_alarm(int signo)
{
	static const char text[] = "the test above did not end in time\n";

	(void)signo;
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(3);
	abort();
}

int fixture_setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const char *base = getenv("SLUICE_TEST_DIR");

	signal(SIGALRM, on_alarm);
	alarm(under_stress() ? STRESS_SECONDS : TEST_SECONDS);
	if (!f)
		return -1;
	snprintf(f->dir, sizeof(f->dir), "%s/scratch-XXXXXX", base ? base : ".");
	if (!mkdtemp(f->dir)) {
		print_error("%s: %s\n", f->dir, strerror(errno));
		free(f);
		return -1;
	}
	f->begun = seconds_now();
	f->descriptors = count_descriptors();
	f->threads = count_threads();
	assert_ok(sluice_context_new(&row->config, &f->ctx));
	*state = f;
	return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

int fixture_teardown(void **state)
{
	struct fixture *f = *state;
	size_t descriptors, threads;
	int rc = f->ctx ? sluice_context_close(f->ctx) : 0;

	nftw(f->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	descriptors = count_descriptors();
	threads = count_threads();
	/* A joined thread leaves /proc a moment after pthread_join() returned; so there may also be
	 * fewer than before. */
	for (int i = 0; i < 200 && threads > f->threads; i++) {
		sleep_ms(5);
		threads = count_threads();
	}
	alarm(0);
	if (seconds_now() - f->begun > 0.5)
		print_message("[  %6.2f s]\n", seconds_now() - f->begun);
	if (rc < 0)
		print_error("sluice_context_close(): %s: %s\n", strerror(-rc),
		            sluice_last_message());
	if (rc == 0 && descriptors != f->descriptors)
		print_error("%zu descriptors before, %zu after\n", f->descriptors, descriptors);
	if (rc == 0 && threads > f->threads)
		print_error("%zu threads before, %zu after\n", f->threads, threads);
	if (rc == 0 && (descriptors != f->descriptors || threads > f->threads))
		print_belongings();
	rc = rc < 0 || descriptors != f->descriptors || threads > f->threads;
	free(f);
	return rc ? -1 : 0;
}

void fixture_config(struct fixture *f, const struct sluice_config *config)
{
	assert_ok(sluice_context_close(f->ctx));
	f->ctx = NULL;
	assert_ok(sluice_context_new(config, &f->ctx));
}

const char *scratch(const struct fixture *f, const char *name)
{
	static char names[8][512];
	static unsigned next;
	char *out = names[next++ % COUNT_OF(names)];

	snprintf(out, sizeof(names[0]), "%s/%s", f->dir, name);
	return out;
}

const char *address(const struct fixture *f, const char *name)
{
	if (row_is_store())
		return blob_address(scratch(f, name));
	if (row->s3)
		return s3_uri("files", scratch(f, name));
	return row->remote ? nginx_uri(scratch(f, name), row->tls) : scratch(f, name);
}

enum { ANY_BYTES = 64 };

sluice_file *open_any(struct fixture *f, const char *name)
{
	if (!row->remote)
		return open_both(f->ctx, scratch(f, name));
	file_make(scratch(f, name), ANY_BYTES, 1);
	return open_read(f->ctx, address(f, name));
}

sluice_op *start_any(sluice_file *file, size_t n, uint64_t offset)
{
	static char bytes[ANY_BYTES];

	assert_in_range(offset + n, 0, ANY_BYTES);
	return row->remote ? start_read(file, bytes + offset, n, offset)
	                   : start_write(file, bytes + offset, n, offset);
}

/* NULL: it runs. */
static const char *why_not(const struct skipped *skipped)
{
	if (!skipped)
		return NULL;
	if (row->remote && skipped->remote)
		return skipped->remote;
	if (gpu_is_real() && skipped->gpu)
		return skipped->gpu;
	if (skipped->device &&
	    (row->on_device || row->memory != HOST_MEMORY || row->order != HOST_ORDER))
		return skipped->device;
	if (row->memory != HOST_MEMORY && skipped->memory)
		return skipped->memory;
	return row->order != HOST_ORDER ? skipped->order : NULL;
}

static void say_why(void **state)
{
	SKIP("%s", (const char *)*state);
}

/* All of the program's, the newest first. */
static struct test_case *test_cases;

void test_enter(struct test_case *added)
{
	added->next = test_cases;
	test_cases = added;
}

/* Compares the name of a file of tests with a path. */
static bool is_named(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');
	size_t n = strlen(name);

	path = slash ? slash + 1 : path;
	return strncmp(path, name, n) == 0 && strcmp(path + n, ".c") == 0;
}

int run_tests_of(const char *file, CMFixtureFunction setup, CMFixtureFunction teardown)
{
	static struct CMUnitTest run[64];
	int lines[COUNT_OF(run)];
	size_t count = 0, at;

	for (const struct test_case *t = test_cases; t; t = t->next) {
		const char *why = why_not(t->skipped);

		if (strcmp(t->file, file) != 0)
			continue;
		assert_in_range(count, 0, COUNT_OF(run) - 1);
		for (at = count++; at && lines[at - 1] > t->line; at--) {
			run[at] = run[at - 1];
			lines[at] = lines[at - 1];
		}
		lines[at] = t->line;
		run[at] = t->test;
		if (why)
			run[at] = (struct CMUnitTest){t->test.name, say_why, NULL, NULL,
			                              (void *)(uintptr_t)why};
	}
	assert_in_range(count, 1, COUNT_OF(run));
	return _cmocka_run_group_tests(strrchr(file, '/') + 1, run, count, setup, teardown);
}

int run_files(const char *const *names)
{
	int failed = 0;

	for (; *names; names++) {
		const struct test_case *t = test_cases;

		while (t && !is_named(t->file, *names))
			t = t->next;
		assert_non_null(t);
		failed += run_tests_of(t->file, NULL, NULL);
	}
	return failed != 0;
}

bool scratch_takes_direct(const struct fixture *f)
{
	int fd = open(scratch(f, "direct-probe"), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
	unlink(scratch(f, "direct-probe"));
	return fd >= 0;
}
