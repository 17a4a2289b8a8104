/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/blobs.h"
#include "lib/gpu.h"
#include "lib/servers.h"
#include "sluice/emulated.h"

extern char **environ;

#define ALL_OFF "uring,cachestat,nowait,dontcache,dioalign"
#define CONFIG  .size = sizeof(struct sluice_config)

/* Just enough pinned memory for one slot, and for one ring of two; operations wait for it. */
#define SMALL_STAGING(piece) \
	CONFIG, .staging_bytes = 264 * KIB, .tune = "slot_bytes=64K,slots=2,piece_bytes=" piece
#define LEAST_TUNE                                                       \
	"reactors=1,reactor_depth=3,piece_bytes=4096,operation_depth=2," \
	"inline_bytes=1,bounce_bytes=8192"
#define LEAST_STAGING                                                          \
	CONFIG, .workers = 2, .direct_bytes = 4096, .staging_bytes = 72 * KIB, \
		.tune = LEAST_TUNE ",slot_bytes=16K,slots=2"

/*
 * The small ones cut everything as small as the settings allow, so that files of a few hundred KiB
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
	{"auto_small", {CONFIG, .workers = 2, .direct_bytes = 4096, .tune = LEAST_TUNE}},
	{"posix_small",
         {CONFIG, .backend = "posix", .workers = 1, .direct_bytes = 4096,
          .tune = "piece_bytes=8192,operation_depth=1,inline_bytes=100,bounce_bytes=8192"}},
	{"uring_small",
         {CONFIG, .backend = "uring", .workers = 1, .direct_bytes = 4096,
          .tune = "reactors=3,reactor_depth=1,piece_bytes=4096,operation_depth=4096,"
                  "inline_bytes=1,bounce_bytes=4096"}},
	{"http_multi", {CONFIG}, "multi", false},
	{"http_easy", {CONFIG}, "easy", false},
	{"https_multi", {CONFIG}, "multi", true},
	{"https_easy", {CONFIG}, "easy", true},
	{"s3_multi", {CONFIG}, "multi", .s3 = true},
	{"s3_easy", {CONFIG}, "easy", .s3 = true},
	{"store", {CONFIG}, "store"},
	{"store_small",
         {CONFIG, .workers = 2, .tune = "piece_bytes=4096,operation_depth=2,inline_bytes=1"},
         "store"},
	{"store_device", {CONFIG}, "store", .memory = DEVICE_MEMORY},
	{"store_any",
         {SMALL_STAGING("32K")},
         "store",
         .memory = ANY_MEMORY,
         .order = ANY_ORDER,
         .delays = true},
	{"store_there", {CONFIG}, "store", .on_device = true},
	{"store_there_small",
         {SMALL_STAGING("4096,operation_depth=2")},
         "store",
         .on_device = true,
         .delays = true},
	{"store_there_any",
         {SMALL_STAGING("32K")},
         "store",
         .on_device = true,
         .memory = ANY_MEMORY,
         .delays = true},
	{"store_there_stream",
         {SMALL_STAGING("32K")},
         "store",
         .on_device = true,
         .memory = ANY_MEMORY,
         .order = ANY_ORDER,
         .delays = true},
	{"auto_device", {CONFIG}, .memory = DEVICE_MEMORY},
	{"auto_stream", {CONFIG}, .memory = DEVICE_MEMORY, .order = STREAM_ORDER},
	{"auto_direct", {CONFIG}, .order = STREAM_ORDER},
	{"auto_any", {CONFIG}, .memory = ANY_MEMORY, .order = ANY_ORDER},
	{"posix_device", {CONFIG, .backend = "posix"}, .memory = DEVICE_MEMORY},
	{"posix_stream",
         {CONFIG, .backend = "posix"},
         .memory = DEVICE_MEMORY,
         .order = STREAM_ORDER},
	{"uring_device", {CONFIG, .backend = "uring"}, .memory = DEVICE_MEMORY},
	{"uring_stream",
         {CONFIG, .backend = "uring"},
         .memory = DEVICE_MEMORY,
         .order = STREAM_ORDER},
	{"small_device", {SMALL_STAGING("64K")}, .memory = DEVICE_MEMORY, .delays = true},
	{"small_stream",
         {SMALL_STAGING("16K")},
         .memory = DEVICE_MEMORY,
         .order = STREAM_ORDER,
         .delays = true},
	{"small_any",
         {SMALL_STAGING("32K")},
         .memory = ANY_MEMORY,
         .order = ANY_ORDER,
         .delays = true},
	{"least_device", {LEAST_STAGING}, .memory = DEVICE_MEMORY, .delays = true},
	{"least_stream",
         {LEAST_STAGING},
         .memory = DEVICE_MEMORY,
         .order = STREAM_ORDER,
         .delays = true},
	{"cufile_device",
         {CONFIG, .backend = "cufile", .tune = "cufile_streams=1"},
         .memory = DEVICE_MEMORY},
	{"cufile_stream",
         {CONFIG, .backend = "cufile", .tune = "cufile_threads=1,cufile_streams=1"},
         .memory = DEVICE_MEMORY,
         .order = STREAM_ORDER},
	{"http_multi_device", {CONFIG}, "multi", .memory = DEVICE_MEMORY},
	{"http_multi_stream", {CONFIG}, "multi", .memory = DEVICE_MEMORY, .order = STREAM_ORDER},
	{"http_easy_stream", {CONFIG}, "easy", .memory = DEVICE_MEMORY, .order = STREAM_ORDER},
	{"https_multi_stream",
         {CONFIG},
         "multi",
         true,
         .memory = DEVICE_MEMORY,
         .order = STREAM_ORDER},
};

const struct row *row = &rows[0];

struct sluice_config row_config(void)
{
	return row->config;
}

/* The value of that name in `tune`, or NULL. */
static const char *tuned_text(const struct sluice_config *config, const char *name)
{
	size_t length = strlen(name);
	const char *found = NULL;

	for (const char *at = config->tune; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (!strncmp(at, name, length) && at[length] == '=')
			found = at + length + 1;
	}
	return found;
}

size_t config_tuned(const struct sluice_config *config, const char *name)
{
	const char *value = tuned_text(config, name);
	char text[32] = "0";
	uint64_t number;

	if (value)
		snprintf(text, sizeof(text), "%.*s", (int)strcspn(value, ","), value);
	assert_ok(sluice_size_parse(text, &number));
	return number;
}

void config_tune(struct sluice_config *config, const char *name, size_t value)
{
	static char texts[64][512];
	static _Atomic unsigned calls;
	char *text = texts[atomic_fetch_add(&calls, 1) % COUNT_OF(texts)];
	size_t length, used = 0, of = strlen(name);

	for (const char *at = config->tune; at && *at; at += length + (at[length] == ',')) {
		length = strcspn(at, ",");
		if (strncmp(at, name, of) != 0 || at[of] != '=')
			used += (size_t)snprintf(text + used, sizeof(texts[0]) - used, "%s%.*s",
			                         used ? "," : "", (int)length, at);
		assert_true(used < sizeof(texts[0]));
	}
	if (value)
		used += (size_t)snprintf(text + used, sizeof(texts[0]) - used, "%s%s=%zu",
		                         used ? "," : "", name, value);
	assert_true(used < sizeof(texts[0]));
	text[used] = '\0';
	config->tune = text;
}

size_t row_bytes(size_t n)
{
	size_t piece = config_tuned(&row->config, "piece_bytes");

	return piece && piece < 64 * KIB ? n / 16 : n;
}

bool row_is_store(void)
{
	return row->remote && strcmp(row->remote, "store") == 0;
}

bool row_has_uring(void)
{
	return machine_has_uring() &&
	       (!row->config.backend || strcmp(row->config.backend, "posix") != 0) &&
	       (!row->config.disable || !strstr(row->config.disable, "uring"));
}

bool machine_has_uring(void)
{
	struct io_uring_params p;
	long fd;

	memset(&p, 0, sizeof(p));
	fd = syscall(SYS_io_uring_setup, 4, &p);
	if (fd >= 0)
		close((int)fd);
	return fd >= 0;
}

static void clear_environment(void)
{
	char name[128];
	char **e = environ;

	while (*e) {
		size_t n = strcspn(*e, "=");

		if (((strncmp(*e, "SLUICE_", 7) == 0 && strncmp(*e, "SLUICE_TEST_", 12) != 0) ||
		     strncmp(*e, "AWS_", 4) == 0) &&
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
	servers_start();
	setenv("SLUICE_REMOTE_BACKEND", row->remote, 1);
	setenv("SLUICE_CA_BUNDLE", server_ca(), 1);
	if (row->s3)
		s3_environment();
}

void row_start_devices(void)
{
	struct sluice_emulated_options o = SLUICE_EMULATED_OPTIONS_INIT;
	int rc = gpu_open(NULL);

	if (rc) {
		printf("%s: %s\n", rc == -ENODEV ? "skipped" : "the devices did not start",
		       gpu_message());
		exit(rc == -ENODEV ? 77 : 1);
	}
	for (int device = 0; device < GPU_DEVICES && row->delays && !gpu_is_real(); device++) {
		o.seed = test_seed() + (uint64_t)device + 1;
		o.delay_us = 40;
		o.preempt_us = 100;
		assert_ok(sluice_emulated_configure(gpu_device(device), &o));
	}
}

/* Without the library the row cannot run; where it is there, and refuses a file, the tests fail. */
static void row_start_cufile(void)
{
	sluice_context *ctx = NULL;

	if (sluice_context_new(&row->config, &ctx) == -ENOSYS) {
		printf("skipped: %s\n", sluice_last_message());
		exit(77);
	}
	sluice_context_close(ctx);
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
	if (row->memory != HOST_MEMORY || row->order != HOST_ORDER || row->on_device)
		row_start_devices();
	if (row_is_store())
		blobs_start();
	else if (row->remote)
		row_start_remote();
	if (row->config.backend && strcmp(row->config.backend, "cufile") == 0)
		row_start_cufile();
	if (row->config.backend && strcmp(row->config.backend, "uring") == 0 &&
	    !machine_has_uring()) {
		printf("skipped: row \"%s\" needs io_uring, which this kernel does "
		       "not have\n",
		       row->name);
		exit(77);
	}
}
