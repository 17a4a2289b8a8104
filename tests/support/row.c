/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/io_uring.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/servers.h"

extern char **environ;

#define ALL_OFF "uring,cachestat,nowait,dontcache,dioalign"
#define CONFIG  .size = sizeof(struct sluice_config)

/*
 * The last three cut everything as small as the settings allow, so that files of a few hundred KiB
 * meet every edge: pieces, depth, direct I/O beside buffered, copies that wait for a place.
 */
static const struct row rows[] = {
	{"auto", {CONFIG}},
	{"posix", {CONFIG, .backend = "posix"}},
	{"uring", {CONFIG, .backend = "uring"}},
	{"no_uring", {CONFIG, .backend = "auto", .disable = "uring"}},
	{"no_cachestat", {CONFIG, .disable = "cachestat"}},
	{"no_nowait", {CONFIG, .disable = "nowait"}},
	{"no_dontcache", {CONFIG, .disable = "dontcache"}},
	{"no_dioalign", {CONFIG, .disable = "dioalign"}},
	{"linux_6_1", {CONFIG, .disable = "cachestat,dontcache"}},
	{"all_off", {CONFIG, .disable = ALL_OFF}},
	{"uring_rest_off",
         {CONFIG, .backend = "uring", .disable = "cachestat,nowait,dontcache,dioalign"}},
	{"auto_small",
         {CONFIG, .workers = 2, .reactors = 1, .reactor_depth = 3, .piece_bytes = 4096,
          .operation_depth = 2, .direct_bytes = 4096, .inline_bytes = 1, .bounce_bytes = 8192}},
	{"posix_small",
         {CONFIG, .backend = "posix", .workers = 1, .piece_bytes = 8192, .operation_depth = 1,
          .direct_bytes = 4096, .inline_bytes = 100, .bounce_bytes = 8192}},
	{"uring_small",
         {CONFIG, .backend = "uring", .workers = 1, .reactors = 3, .reactor_depth = 1,
          .piece_bytes = 4096, .operation_depth = 4096, .direct_bytes = 4096, .inline_bytes = 1,
          .bounce_bytes = 4096}},
	{"http_multi", {CONFIG}, "multi", false},
	{"http_easy", {CONFIG}, "easy", false},
	{"https_multi", {CONFIG}, "multi", true},
	{"https_easy", {CONFIG}, "easy", true},
};

const struct row *row = &rows[0];

struct sluice_config row_config(void)
{
	return row->config;
}

size_t row_bytes(size_t n)
{
	return row->config.piece_bytes && row->config.piece_bytes < 64 * KIB ? n / 16 : n;
}

bool row_has_uring(void)
{
	return machine_has_uring() &&
	       (!row->config.backend || strcmp(row->config.backend, "posix") != 0) &&
	       (!row->config.disable || !strstr(row->config.disable, "uring"));
}

bool machine_has_uring(void)
{
#ifdef BUILT_WITH_URING
	struct io_uring_params p;
	long fd;

	memset(&p, 0, sizeof(p));
	fd = syscall(SYS_io_uring_setup, 4, &p);
	if (fd >= 0)
		close((int)fd);
	return fd >= 0;
#else
	return false;
#endif
}

bool built_with_curl(void)
{
#ifdef BUILT_WITH_CURL
	return true;
#else
	return false;
#endif
}

static void clear_environment(void)
{
	char name[128];
	char **e = environ;

	while (*e) {
		size_t n = strcspn(*e, "=");

		if (strncmp(*e, "SLUICE_", 7) == 0 && strncmp(*e, "SLUICE_TEST_", 12) != 0 &&
		    n < sizeof(name)) {
			memcpy(name, *e, n);
			name[n] = '\0';
			unsetenv(name);
			e = environ;
		} else {
			e++;
		}
	}
}

/* A proxy is nothing for servers on this machine, and libcurl asks the environment for one. */
static void clear_proxies(void)
{
	static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
	                                    "ALL_PROXY",  "no_proxy",    "NO_PROXY"};

	for (size_t i = 0; i < COUNT_OF(names); i++)
		unsetenv(names[i]);
}

static void row_start_remote(void)
{
	if (!built_with_curl()) {
		printf("skipped: row \"%s\" needs libcurl, which this build does not have\n",
		       row->name);
		exit(77);
	}
	servers_start();
	setenv("SLUICE_REMOTE_BACKEND", row->remote, 1);
	setenv("SLUICE_CA_BUNDLE", server_ca(), 1);
}

static void *do_nothing(void *arg)
{
	return arg;
}

void row_start(int argc, char **argv)
{
	pthread_t thread;
	size_t i;

	/* One stream, so that what cmocka says of a failure stands beside the test's name. */
	dup2(STDOUT_FILENO, STDERR_FILENO);
	setvbuf(stdout, NULL, _IOLBF, 0);
	clear_environment();
	clear_proxies();
	/* A sanitizer may start a thread of its own with the first one; it is not to be counted. */
	if (pthread_create(&thread, NULL, do_nothing, NULL) == 0)
		pthread_join(thread, NULL);
	/* It leaves /proc a moment later, and every count of threads starts from here. */
	sleep_ms(50);
	if (argc > 1) {
		for (i = 0; i < COUNT_OF(rows) && strcmp(rows[i].name, argv[1]) != 0; i++)
			;
		if (i == COUNT_OF(rows)) {
			fprintf(stderr, "%s: there is no row \"%s\"; rows are:", argv[0], argv[1]);
			for (i = 0; i < COUNT_OF(rows); i++)
				fprintf(stderr, " %s", rows[i].name);
			fprintf(stderr, "\n");
			exit(2);
		}
		row = &rows[i];
	}
	if (row->remote)
		row_start_remote();
	if (row->config.backend && strcmp(row->config.backend, "uring") == 0 &&
	    !machine_has_uring()) {
		printf("skipped: row \"%s\" needs io_uring, which this build or this kernel does "
		       "not have\n",
		       row->name);
		exit(77);
	}
}
