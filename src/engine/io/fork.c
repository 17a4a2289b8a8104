/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fork
 *
 * Tells the handles of this process from those that a child of fork() has inherited: the child has
 * the memory of its parent but none of its threads. Each process has a number, which contexts,
 * stores and queues carry. It is in a page that the kernel wipes in each child, whichever call made
 * the child, and the child draws a new number when it makes its first handle. Where the kernel or a
 * sandbox refuses such a page, each look at the number compares the id of the process. Any thread.
 */
#include <errno.h>
#include <sys/mman.h>

#include "io/io_internal.h"

#define HELD_MOST 8

_Atomic(_Atomic uint64_t *) sl_process_page;

/* The numbers that this process and those before it have drawn; a child inherits the count. */
static _Atomic uint32_t drawn;

/* Mutexes of the whole process that no thread may have locked while another forks. */
static struct {
	struct sl_mutex mutex;
	struct sl_mutex *held[HELD_MOST];
	unsigned count;
} forking = {.mutex = SL_MUTEX_INIT};

int sl_context_check(const struct sluice_context *ctx)
{
	if (ctx && sl_process_is(ctx->process))
		return 0;
	return ctx ? sl_process_refuse() : sl_fail(-EINVAL, "the context is NULL");
}

int sl_process_refuse(void)
{
	return sl_fail(-ECHILD, "this process was forked: the handle belongs to its parent");
}

static int process_make_page(void)
{
	size_t size = sysconf(_SC_PAGESIZE);
	_Atomic uint64_t *none = NULL, *made;

	made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (made == MAP_FAILED)
		return sl_fail(-ENOMEM, "no memory");
	/* In a page that is not wiped the second word says so. */
	made[1] = madvise(made, size, MADV_WIPEONFORK) != 0;
	if (!atomic_compare_exchange_strong(&sl_process_page, &none, made))
		munmap(made, size);
	return 0;
}

int sl_process_enter(uint32_t *out)
{
	_Atomic uint64_t *page;
	uint64_t own, word;
	int rc = atomic_load(&sl_process_page) ? 0 : process_make_page();

	if (rc)
		return rc;
	page = atomic_load(&sl_process_page);
	word = atomic_load(page);
	own = page[1] ? (uint64_t)getpid() << 32 : 0;
	/* Another thread may be the first to draw. */
	while (!word || word >> 32 != own >> 32)
		if (atomic_compare_exchange_strong(page, &word,
		                                   own | (1 + atomic_fetch_add(&drawn, 1))))
			word = atomic_load(page);
	*out = (uint32_t)word;
	return 0;
}

/* The mutexes are of lists, and no thread waits with two of them. */
static void forking_lock(void) SL_UNCHECKED
{
	sl_mutex_lock(&forking.mutex);
	for (unsigned i = 0; i < forking.count; i++)
		sl_mutex_lock(forking.held[i]);
}

static void forking_unlock(void) SL_UNCHECKED
{
	for (unsigned i = forking.count; i-- > 0;)
		sl_mutex_unlock(forking.held[i]);
	sl_mutex_unlock(&forking.mutex);
}

void sl_fork_hold(struct sl_mutex *mutex)
{
	unsigned i = 0;

	sl_mutex_lock(&forking.mutex);
	while (i < forking.count && forking.held[i] != mutex)
		i++;
	if (!forking.count)
		pthread_atfork(forking_lock, forking_unlock, forking_unlock);
	if (i == forking.count && i < HELD_MOST)
		forking.held[forking.count++] = mutex;
	sl_mutex_unlock(&forking.mutex);
}
