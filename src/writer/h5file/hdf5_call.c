/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of HDF5: a writer's lock around them, and HDF5's messages for errors.
 * Threads: file threads, and any thread that forks. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "h5file/h5file_internal.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static hbool_t has_lock;    /* written once */
static unsigned answers[3]; /* the version of the library that answers; written once */
/* Held from enter to leave: HDF5 may have no lock, and a child of fork() would find it locked. */
static struct sl_mutex lock = SL_MUTEX_INIT;
/* fork() waits so long: a thread that forks inside HDF5 holds HDF5's lock, and the owner of this
 * lock waits for that. */
#define FORK_SECONDS 1

struct words {
	char outer[160], inner[240]; /* of the call, and of the failure inside it */
};
static _Thread_local struct words noted;
static _Thread_local bool forking; /* with the lock */
/* How the program has HDF5 print errors, from enter to leave. */
static _Thread_local struct {
	H5E_auto2_t print;
	H5E_auto1_t print_old;
	void *data;
	unsigned current; /* the interface of the setting: print, or print_old */
} setting;

static void before_fork(void)
{
	struct timespec until;

	/* The thread sanitizer does not know a lock by another clock. */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += FORK_SECONDS;
	forking = !pthread_mutex_timedlock(&lock.pthread, &until);
}

static void after_fork(void) SL_UNCHECKED
{
	if (forking)
		sl_mutex_unlock(&lock);
	forking = false;
}

/* At the end of the program HDF5 would take things down while a writer's thread uses them; and
 * does, if the program has used it before: see flush_blocked in ordered_vfd.h. */
static void hdf5_start(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
	/* First of all calls, since each of the others has HDF5 clean up at exit(). */
	H5dont_atexit();
	H5get_libversion(&answers[0], &answers[1], &answers[2]);
	if (H5open() < 0 || H5is_library_threadsafe(&has_lock) < 0)
		has_lock = false;
}

int sl_hdf5_start(bool alone)
{
	pthread_once(&once, hdf5_start);
	/* Otherwise HDF5 ends the process when it is used. */
	if ((answers[0] != H5_VERS_MAJOR || answers[1] != H5_VERS_MINOR ||
	     answers[2] != H5_VERS_RELEASE) &&
	    !getenv("HDF5_DISABLE_VERSION_CHECK"))
		return sl_fail(-ENOTSUP,
		               "another HDF5 library answers, of version %u.%u.%u, and sluice was "
		               "built with %d.%d.%d: the program has both (load one of them with "
		               "RTLD_LOCAL)",
		               answers[0], answers[1], answers[2], H5_VERS_MAJOR, H5_VERS_MINOR,
		               H5_VERS_RELEASE);
	if (has_lock || alone)
		return 0;
	return sl_fail(-ENOTSUP,
	               "this HDF5 library was built without its lock (it is not threadsafe, as "
	               "parallel HDF5 is not): a writer needs SLUICE_WRITER_ONLY_HDF5, and "
	               "nothing else may use HDF5");
}

/* Where HDF5 has a lock, the setting is the thread's, and the process's otherwise. */
void sl_hdf5_enter(void) SL_UNCHECKED
{
	sl_mutex_lock(&lock);
	noted = (struct words){"", ""};
	setting.current = 0;
	H5Eauto_is_v2(H5E_DEFAULT, &setting.current);
	if (setting.current) {
		H5Eget_auto2(H5E_DEFAULT, &setting.print, &setting.data);
		H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	} else {
		H5Eget_auto1(&setting.print_old, &setting.data);
		H5Eset_auto1(NULL, NULL);
	}
}

void sl_hdf5_leave(void) SL_UNCHECKED
{
	if (setting.current)
		H5Eset_auto2(H5E_DEFAULT, setting.print, setting.data);
	else
		H5Eset_auto1(setting.print_old, setting.data);
	sl_mutex_unlock(&lock);
}

void sl_hdf5_pause(void) SL_UNCHECKED
{
	if (has_lock)
		sl_mutex_unlock(&lock);
}

void sl_hdf5_resume(void) SL_UNCHECKED
{
	if (has_lock)
		sl_mutex_lock(&lock);
}

/* -------------------------------------------------------------------------------------- words */

static herr_t words_take(unsigned n, const H5E_error2_t *error, void *argument)
{
	struct words *words = argument;

	if (n == 0)
		snprintf(words->inner, sizeof(words->inner), "%s", error->desc ? error->desc : "");
	snprintf(words->outer, sizeof(words->outer), "%s", error->desc ? error->desc : "");
	return 0;
}

int64_t sl_hdf5_noted(int64_t result)
{
	if (result < 0 && !noted.inner[0])
		H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, words_take, &noted);
	return result;
}

int sl_hdf5_fail(int error, const char *format, ...)
{
	char sentence[512];
	struct words words;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(sentence, sizeof(sentence), format, arguments);
	va_end(arguments);
	sl_hdf5_noted(-1);
	words = noted;
	noted = (struct words){"", ""};
	H5Eclear2(H5E_DEFAULT);
	if (!words.inner[0])
		return sl_fail(error, "%s", sentence);
	if (!strcmp(words.inner, words.outer))
		return sl_fail(error, "%s (HDF5: %s)", sentence, words.inner);
	return sl_fail(error, "%s (HDF5: %s: %s)", sentence, words.outer, words.inner);
}
