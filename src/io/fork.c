/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fork
 *
 * Recognises a child of fork(), which has the memory of its parent but none of its threads: the
 * kernel wipes a page in each child, whichever call made it. The page belongs to the process and is
 * kept; a child starts afresh if its parent had freed all contexts. Any thread.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/io_internal.h"

struct sl_fork sl_fork;

int sl_context_refuse(void)
{
	if (sl_forked())
		return sl_fail(-ECHILD, "this process was forked: sluice belongs to its parent");
	return sl_fail(-EINVAL, "the context is NULL");
}

static int fork_make_page(void)
{
	size_t size = sysconf(_SC_PAGESIZE);
	_Atomic unsigned char *none = NULL;
	void *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (made == MAP_FAILED)
		return sl_fail(-ENOMEM, "no memory");
	if (madvise(made, size, MADV_WIPEONFORK)) {
		munmap(made, size);
		return sl_fail(-ENOSYS, "this kernel has no MADV_WIPEONFORK (Linux 4.14)");
	}
	if (!atomic_compare_exchange_strong(&sl_fork.page, &none, made))
		munmap(made, size);
	return 0;
}

int sl_fork_enter(void)
{
	int rc;

	if (sl_forked())
		return sl_context_refuse();
	if (!atomic_load(&sl_fork.page)) {
		rc = fork_make_page();
		if (rc)
			return rc;
	}
	atomic_store(atomic_load(&sl_fork.page), 1);
	atomic_fetch_add(&sl_fork.contexts, 1);
	return 0;
}

void sl_fork_leave(void)
{
	atomic_fetch_sub(&sl_fork.contexts, 1);
}
