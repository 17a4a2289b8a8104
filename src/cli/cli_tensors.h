/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tensors: what its files share. */
#ifndef SLUICE_CLI_TENSORS_H
#define SLUICE_CLI_TENSORS_H

#include "cli.h"
#include "sluice/tensors.h"

struct cli_tensors_options {
	struct cli_open open;
	sluice_context *ctx;
	bool metadata;
	/* Of cp. */
	const char **patterns;
	size_t pattern_count;
	const char *target; /* the last argument */
	/* Of bench. */
	int device; /* -1: the host */
	bool stream;
	unsigned rounds;
};

/* Prints how fast all tensors are loaded. Returns 0 or a negative errno, printed on stderr. */
int cli_tensors_bench(sluice_tensors *tensors, const struct cli_tensors_options *o);
/*
 * Copies tensors into a new safetensors file, `target`. Returns as cli_tensors_bench(). After an
 * interrupt it ends the program.
 */
int cli_tensors_cp(sluice_tensors *tensors, const struct cli_tensors_options *o);

/*
 * Publishes tensors of files as a collection. As for sluice_collection_publish_files(); socket may
 * be NULL. Returns 0 or a negative errno, printed on stderr.
 */
int cli_publish_tensors(const char *socket, const char *name, sluice_tensors *tensors,
                        const struct sluice_tensor_want *wants, size_t count, int device,
                        unsigned flags);

#endif
