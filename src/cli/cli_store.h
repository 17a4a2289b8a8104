/* SPDX-License-Identifier: Apache-2.0 */
/* sluice store: declarations for its two files. */
#ifndef SLUICE_CLI_STORE_H
#define SLUICE_CLI_STORE_H

#include "cli.h"
#include "sluice/store.h"

/* The command line. */
struct cli_store_options {
	struct cli_arguments arguments;
	const char *socket, *origin;
	bool json, prometheus, replace, by_id, tensors, exclusive, cache, pin;
	int device; /* of a collection; -1: the host */
	int wait_ms;
	uint64_t count; /* 0: unlimited */
};
/* Return 0 or a negative errno, printed on stderr. */
int cli_store_ls(sluice_store *store, const struct cli_store_options *o);
/* Publishes the tensors in files as a collection. */
int cli_store_put_tensors(const struct cli_store_options *o);
/* Prints the tensors of a collection, below its line or each as a JSON object. */
int cli_store_ls_tensors(sluice_store *store, const char *name, uint64_t id, bool json);
/* Calls that move bytes from and to S3, for each name. */
int cli_store_push(sluice_store *store, const struct cli_store_options *o);
int cli_store_refresh(sluice_store *store, const struct cli_store_options *o);
int cli_store_rm(sluice_store *store, const struct cli_store_options *o);
int cli_store_stat(sluice_store *store, const struct cli_store_options *o);
int cli_store_trim(sluice_store *store, const struct cli_store_options *o);
int cli_store_watch(sluice_store *store, const struct cli_store_options *o);

#endif
