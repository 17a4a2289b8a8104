/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Touch
 *
 * Has the kernel make the pages of new memory, on several threads at once, before a driver pins the
 * memory: the driver would make them on one thread. The calling thread and workers of a pool take
 * slices in turn. The calling thread waits for slices that were taken, not for idle workers.
 *
 * The pages, and the workers that fill them, are on the NUMA node of the device: bytes that cross
 * to another node cross the link between the nodes twice.
 */
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "staging/staging_internal.h"

#define SLICE        ((size_t)4 << 20) /* of whole huge pages */
#define HELPERS_MOST 7
#define NODES_MOST   1024
#define WORD         (8 * sizeof(unsigned long))

bool sl_staging_near(const char *root, int node, char *memory, size_t length, struct sl_pool *pool)
{
	unsigned long nodes[NODES_MOST / WORD] = {0};

	if (node < 0 || node >= NODES_MOST || sl_machine_nodes(root) < 2)
		return false;
	if (pool)
		sl_pool_stay(pool, root, node);
	nodes[(unsigned)node / WORD] = 1ul << (unsigned)node % WORD;
	/* The kernel may refuse, and takes pages elsewhere if the node has none left. */
	return !syscall(SYS_mbind, memory, length, MPOL_PREFERRED, nodes, NODES_MOST + 1, 0);
}

struct touch {
	char *memory;
	size_t length;
	bool placed;
	unsigned node;          /* of the calling thread */
	_Atomic size_t taken;   /* slices, or more */
	_Atomic uint32_t left;  /* slices not touched yet; the calling thread waits for 0 */
	_Atomic unsigned users; /* threads that may look at this; the last frees it */
	struct touch_helper {
		struct sl_task task;
		struct touch *touch;
	} helpers[HELPERS_MOST];
};

static unsigned touch_this_node(void)
{
	unsigned cpu, node = 0;

	return getcpu(&cpu, &node) ? 0 : node;
}

/*
 * Touches slices until none is left. The kernel puts a page on the node of the touching thread,
 * unless the memory is placed: it has to be the calling thread's.
 */
static void touch_slices(struct touch *touch, bool helps)
{
	size_t at;

	while (!helps || touch->placed || touch_this_node() == touch->node) {
		at = atomic_fetch_add(&touch->taken, 1) * SLICE;
		if (at >= touch->length)
			break;
		/* Without memory the driver fails next, and says so. */
		(void)sl_private_touch(touch->memory + at, SL_MIN(SLICE, touch->length - at));
		if (atomic_fetch_sub(&touch->left, 1) == 1 && helps)
			sl_word_wake(&touch->left, 1);
	}
}

static void touch_leave(struct touch *touch)
{
	if (atomic_fetch_sub(&touch->users, 1) == 1)
		free(touch);
}

static void touch_help(struct sl_task *task)
{
	struct touch *touch = SL_CONTAINER(task, struct touch_helper, task)->touch;

	touch_slices(touch, true);
	touch_leave(touch);
}

void sl_staging_touch(char *memory, size_t length, bool placed, struct sl_pool *pool,
                      unsigned workers)
{
	size_t slices = (length + SLICE - 1) / SLICE;
	unsigned helpers = (unsigned)SL_MIN(SL_MIN(SL_MAX(workers, 1), slices) - 1, HELPERS_MOST);
	struct touch *touch = calloc(1, sizeof(*touch));
	uint32_t left;

	if (!touch)
		return;
	touch->memory = memory;
	touch->length = length;
	touch->placed = placed;
	touch->node = touch_this_node();
	atomic_init(&touch->left, (uint32_t)slices);
	atomic_init(&touch->users, 1 + helpers);
	for (unsigned i = 0; i < helpers; i++) {
		touch->helpers[i].touch = touch;
		touch->helpers[i].task.home = i;
		touch->helpers[i].task.run = touch_help;
		sl_pool_submit(pool, &touch->helpers[i].task);
	}
	touch_slices(touch, false);
	/* Ended by the helpers that have taken the last slices. */
	while ((left = atomic_load(&touch->left)))
		sl_word_wait(&touch->left, left, SL_FOREVER);
	touch_leave(touch);
}
