/* SPDX-License-Identifier: Apache-2.0 */
/* sluice doctor: findings about the machine and its devices, and how they are printed. */
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
int cli_nodes(void); /* number of NUMA nodes; 0: unknown */
/* Returns the cores of a NUMA node that this process may use; -1: unknown. */
int cli_cores_of_node(int node);

/* Print a list of findings: a line or two each for users, or a JSON array of objects. */
void cli_heading_print(bool json, const char *title, const char *key);
void cli_feature_print(bool json, const struct sluice_feature *f, bool first);
/* Prints a feature and leaves its JSON object open for more fields. */
void cli_feature_begin(bool json, const struct sluice_feature *f, bool first);
void cli_list_end(bool json);
void cli_devices_print(bool json);

#endif
