/* SPDX-License-Identifier: Apache-2.0 */
/* Mutexes and conditions, with the attributes by which clang checks locking. */
#ifndef SL_MUTEX_H
#define SL_MUTEX_H

#include <pthread.h>
#include <stdint.h>

/*
 * clang's thread-safety attributes, which scripts/check clang checks (-Wthread-safety).
 * SL_GUARDED_BY(&mutex) stands behind a field of the struct that contains the mutex, the others
 * behind the declaration of a function. gcc and clang before 19 see empty macros.
 */
#if defined(__clang_major__) && __clang_major__ >= 19
#define SL_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define SL_THREAD_SAFETY(attribute)
#endif
#define SL_GUARDED_BY(mutex) SL_THREAD_SAFETY(guarded_by(mutex))
/* The caller holds the mutex. */
#define SL_REQUIRES(...) SL_THREAD_SAFETY(requires_capability(__VA_ARGS__))
/* Returns with the mutex held. */
#define SL_ACQUIRES(...) SL_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
/* The caller holds the mutex, and the function releases it. */
#define SL_RELEASES(...) SL_THREAD_SAFETY(release_capability(__VA_ARGS__))
/* clang does not look into this function; a comment says why. */
#define SL_UNCHECKED SL_THREAD_SAFETY(no_thread_safety_analysis)

struct SL_THREAD_SAFETY(capability("mutex")) sl_mutex {
	pthread_mutex_t pthread;
};
#define SL_MUTEX_INIT                     \
	{                                 \
		PTHREAD_MUTEX_INITIALIZER \
	}

static inline void sl_mutex_init(struct sl_mutex *mutex)
{
	pthread_mutex_init(&mutex->pthread, NULL);
}
static inline void sl_mutex_destroy(struct sl_mutex *mutex)
{
	pthread_mutex_destroy(&mutex->pthread);
}
static inline void sl_mutex_lock(struct sl_mutex *mutex) SL_ACQUIRES(mutex) SL_UNCHECKED
{
	pthread_mutex_lock(&mutex->pthread);
}
static inline void sl_mutex_unlock(struct sl_mutex *mutex) SL_RELEASES(mutex) SL_UNCHECKED
{
	pthread_mutex_unlock(&mutex->pthread);
}
/* Waits for the condition until a time of sl_now() or SL_FOREVER. 0 or -ETIMEDOUT, locked again. */
int sl_cond_wait(pthread_cond_t *condition, struct sl_mutex *mutex, int64_t deadline)
	SL_REQUIRES(mutex);

#endif
