/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Near
 *
 * Puts the slots of a device, and the workers that fill them, on the NUMA node of the device: bytes
 * that cross to another node cross the link between the nodes twice. The thread of a public call.
 */
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "staging/staging_internal.h"

#define NODES_MOST 1024
#define WORD       (8 * sizeof(unsigned long))

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
