/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of sluice's that fail when a test says so; the program is linked with --wrap for each. */
#include <pthread.h>

#include "local/fault.h"

static _Atomic int fsync_error;
static _Atomic unsigned fsyncs;
static _Atomic unsigned allocations_left, threads_left;
static _Atomic bool failed;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
char *__real_strdup(const char *s);
char *__wrap_strdup(const char *s);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*run)(void *),
                          void *arg);

/* True for the call that brings the count from 1 to 0. */
static bool is_due(_Atomic unsigned *left)
{
	unsigned n = atomic_load(left);

	while (n && !atomic_compare_exchange_weak(left, &n, n - 1))
		;
	if (n == 1)
		atomic_store(&failed, true);
	return n == 1;
}

int __wrap_fsync(int fd)
{
	int error = atomic_exchange(&fsync_error, 0);

	atomic_fetch_add(&fsyncs, 1);
	if (!error)
		return __real_fsync(fd);
	errno = error;
	return -1;
}

void *__wrap_malloc(size_t n)
{
	if (!is_due(&allocations_left))
		return __real_malloc(n);
	errno = ENOMEM;
	return NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
	if (!is_due(&allocations_left))
		return __real_calloc(n, size);
	errno = ENOMEM;
	return NULL;
}

char *__wrap_strdup(const char *s)
{
	if (!is_due(&allocations_left))
		return __real_strdup(s);
	errno = ENOMEM;
	return NULL;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*run)(void *),
                          void *arg)
{
	return is_due(&threads_left) ? EAGAIN : __real_pthread_create(thread, a, run, arg);
}

void fail_fsync(int error)
{
	atomic_store(&fsyncs, 0);
	atomic_store(&fsync_error, error);
}

unsigned fsync_count(void)
{
	return atomic_load(&fsyncs);
}

void fail_allocation(unsigned n)
{
	atomic_store(&failed, false);
	atomic_store(&allocations_left, n);
}

bool allocation_failed(void)
{
	return atomic_load(&failed);
}

void fail_thread(unsigned n)
{
	atomic_store(&failed, false);
	atomic_store(&threads_left, n);
}
