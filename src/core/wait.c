/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/core.h"

#define SPIN_NS      100000
#define MOST_IN_VAIN 6 /* then one sleep in 64 is preceded by a look */

int64_t sl_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t sl_deadline(int timeout_ms)
{
	return timeout_ms < 0 ? SL_FOREVER : sl_now() + timeout_ms * INT64_C(1000000);
}

int sl_word_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline)
{
	struct timespec until = {deadline / 1000000000, deadline % 1000000000};
	long rc;

	/* The bitset form takes an absolute time of CLOCK_MONOTONIC. */
	rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
	             deadline == SL_FOREVER ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
	return rc < 0 && errno == ETIMEDOUT ? -ETIMEDOUT : 0;
}

void sl_word_wake(_Atomic uint32_t *word, int count)
{
	syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count, NULL, NULL, 0);
}

int sl_cond_wait(pthread_cond_t *condition, struct sl_mutex *mutex, int64_t deadline)
{
	struct timespec until = {deadline / 1000000000, deadline % 1000000000};

	if (deadline == SL_FOREVER)
		return -pthread_cond_wait(condition, &mutex->pthread);
	return -pthread_cond_clockwait(condition, &mutex->pthread, CLOCK_MONOTONIC, &until);
}

bool sl_spin(struct sl_spin *spin, bool (*found)(void *), void *argument)
{
	int64_t until;

	if (found(argument))
		return true;
	if (spin->left_out) {
		spin->left_out--;
		return false;
	}
	until = sl_now() + SPIN_NS;
	while (sl_now() < until) {
		if (found(argument)) {
			spin->in_vain = 0;
			return true;
		}
	}
	spin->in_vain = SL_MIN(spin->in_vain + 1, MOST_IN_VAIN);
	spin->left_out = (1u << spin->in_vain) - 1;
	return false;
}
