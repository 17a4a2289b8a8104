/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "core/core.h"

int sl_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument)
{
	sigset_t all, before;
	int rc;

	/* The caller's handlers must run on the caller's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return sl_fail(-rc, "cannot start thread %s: %s", name, sl_error_text(-rc));
	pthread_setname_np(*thread, name);
	return 0;
}

unsigned sl_cores(void)
{
	cpu_set_t set;
	int count;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	count = CPU_COUNT(&set);
	return count > 0 ? count : 1;
}

size_t sl_page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}
