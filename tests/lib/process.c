/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <poll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "lib/support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

/* Functions that the sanitizers ask. A child of a fork may start threads, though not all races are found there. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
static bool leaks_forgotten;

const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

int __lsan_is_turned_off(void)
{
	return leaks_forgotten;
}

void forget_leaks(void)
{
	leaks_forgotten = true;
}

bool under_sanitizer(void)
{
	return sanitized;
}

bool under_stress(void)
{
	return getenv("STRESS") != NULL;
}

int rounds_of(int whole)
{
	return under_stress() ? whole : (whole + 2) / 3;
}

static void descriptor_name(const char *descriptor, char *name, size_t size)
{
	char path[320];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%s", descriptor);
	n = readlink(path, name, size - 1);
	name[n > 0 ? n : 0] = '\0';
}

/* The driver of a GPU opens its devices when it needs them, and keeps them; and cuFile its log. */
static bool is_drivers(const char *descriptor)
{
	char name[320];

	descriptor_name(descriptor, name, sizeof(name));
	return strncmp(name, "/dev/nvidia", 11) == 0 || strstr(name, "/cufile.log");
}

size_t count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	size_t n = 0;

	assert_non_null(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.' && !is_drivers(e->d_name);
	closedir(d);
	/* opendir() holds one itself, each time. */
	return n;
}

static void thread_name(const char *tid, char *name, size_t size)
{
	char path[320];
	FILE *f;

	name[0] = '\0';
	snprintf(path, sizeof(path), "/proc/self/task/%s/comm", tid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (!fgets(name, (int)size, f))
		name[0] = '\0';
	fclose(f);
}

/*
 * Those whose name begins so, or, of all others, those that are the process's own. All of sluice's have names;
 * those without one, which have the program's, are of libraries.
 */
size_t count_threads_named(const char *prefix)
{
	DIR *d = opendir("/proc/self/task");
	char self[32], own[32];
	struct dirent *e;
	size_t n = 0;

	assert_non_null(d);
	snprintf(self, sizeof(self), "%d", (int)getpid());
	thread_name(self, own, sizeof(own));
	while ((e = readdir(d))) {
		bool is_main = strcmp(e->d_name, self) == 0;
		char name[32];

		if (e->d_name[0] == '.')
			continue;
		thread_name(e->d_name, name, sizeof(name));
		n += prefix ? strncmp(name, prefix, strlen(prefix)) == 0
		            : strncmp(name, "iou-", 4) != 0 && strncmp(name, "cuda", 4) != 0 &&
		                      (is_main || strcmp(name, own) != 0);
	}
	closedir(d);
	return n;
}

size_t count_threads(void)
{
	return count_threads_named(NULL);
}

static void print_each(const char *directory, const char *what,
                       void (*name_of)(const char *entry, char *name, size_t size))
{
	DIR *d = opendir(directory);
	struct dirent *e;

	assert_non_null(d);
	while ((e = readdir(d))) {
		char name[320] = "";

		if (e->d_name[0] == '.')
			continue;
		name_of(e->d_name, name, sizeof(name));
		print_error("%s %s: %.*s\n", what, e->d_name, (int)strcspn(name, "\n"), name);
	}
	closedir(d);
}

void print_belongings(void)
{
	print_each("/proc/self/fd", "descriptor", descriptor_name);
	print_each("/proc/self/task", "thread", thread_name);
}

double driver_seconds(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned long long nanoseconds = 0;
	struct dirent *e;

	assert_non_null(d);
	while ((e = readdir(d))) {
		unsigned long long used = 0;
		char path[320], name[32];
		FILE *f;

		thread_name(e->d_name, name, sizeof(name));
		if (strncmp(name, "cuda", 4) != 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
		f = fopen(path, "re");
		if (f && fscanf(f, "%llu", &used) == 1)
			nanoseconds += used;
		if (f)
			fclose(f);
	}
	closedir(d);
	return (double)nanoseconds * 1e-9;
}

size_t resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	assert_non_null(f);
	if (fscanf(f, "%*u %lu", &pages) != 1)
		fail_msg("/proc/self/statm cannot be read");
	fclose(f);
	return pages * 4096;
}

double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

void sleep_ms(int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

bool readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN);
}
