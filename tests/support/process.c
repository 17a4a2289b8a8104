/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <poll.h>
#include <sys/resource.h>
#include <time.h>

#include "support/support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

bool under_sanitizer(void)
{
	return sanitized;
}

size_t count_descriptors(void)
{
	/* opendir() holds one itself, each time. */
	return directory_entries("/proc/self/fd");
}

static bool is_kernel_thread(const char *tid)
{
	char path[320], name[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%s/comm", tid);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(name, sizeof(name), f))
		name[0] = '\0';
	fclose(f);
	return strncmp(name, "iou-", 4) == 0;
}

static size_t count_tasks(bool kernel)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	size_t n = 0;

	assert_non_null(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.' && is_kernel_thread(e->d_name) == kernel;
	closedir(d);
	return n;
}

size_t count_threads(void)
{
	return count_tasks(false);
}

size_t count_kernel_threads(void)
{
	return count_tasks(true);
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
