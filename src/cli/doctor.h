/* SPDX-License-Identifier: Apache-2.0 */
/* sluice doctor: findings about the machine. */
#ifndef SLUICE_CLI_DOCTOR_H
#define SLUICE_CLI_DOCTOR_H

#include "cli.h"

/* A finding about the machine; the strings of feature point into the finding or are constants. */
struct cli_finding {
	struct sluice_feature feature;
	char detail[256];
};
/* Returns the finding at index; false past the last. */
bool cli_machine_finding(size_t index, struct cli_finding *out);
/* Returns the cores of a NUMA node that this process may use; -1: unknown. */
int cli_cores_of_node(int node);

#endif
