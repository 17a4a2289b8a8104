/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice tensors cp
 *
 * Saves tensors of files again: as a safetensors file, as a folder with an index, or in the store
 * as a collection.
 *
 * Threads: the main thread.
 */
#include <err.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "cli_tensors.h"
#include "sluice/store.h"

#define STORE "store://"

/* Tensors to copy, and the metadata of their first file. */
struct tensors_choice {
	size_t *indices, count;
	const char **metadata; /* pairs */
	size_t pairs;
};

static bool is_chosen(const struct cli_tensors_options *o, const char *name)
{
	for (size_t i = 0; i < o->pattern_count; i++)
		if (!fnmatch(o->patterns[i], name, 0))
			return true;
	return !o->pattern_count;
}

static int choose(const sluice_tensors *tensors, const struct cli_tensors_options *o,
                  struct tensors_choice *choice)
{
	struct sluice_tensor tensor = {.size = sizeof(tensor)};
	struct sluice_tensor_file file = {.size = sizeof(file)};

	sluice_tensors_file(tensors, 0, &file);
	choice->indices = calloc(sluice_tensors_count(tensors) + 1, sizeof(*choice->indices));
	choice->metadata = calloc(2 * file.metadata + 1, sizeof(*choice->metadata));
	if (!choice->indices || !choice->metadata)
		err(CLI_FAILED, "names of tensors");
	for (size_t i = 0; !sluice_tensors_get(tensors, i, &tensor); i++)
		if (is_chosen(o, tensor.name))
			choice->indices[choice->count++] = i;
	for (size_t i = 0; i < file.metadata; i++, choice->pairs++)
		sluice_tensors_metadata(tensors, 0, i, &choice->metadata[2 * i],
		                        &choice->metadata[2 * i + 1]);
	return choice->count || !o->pattern_count ? 0
	                                          : cli_fail(-ENOENT, "no tensor has such a name");
}

/* Waits for a save, which an interrupt cancels: at once where a server is written to, which may not
 * answer. A second interrupt ends the program. */
static int save_finish(sluice_tensor_save *save, const char *target)
{
	struct cli_progress progress;
	uint64_t written, all;
	int64_t n;

	sluice_tensor_save_progress(save, &written, &all);
	cli_progress_start(&progress, target, all, true);
	while ((n = sluice_tensor_save_wait(save, 100)) == -EINPROGRESS) {
		sluice_tensor_save_progress(save, &written, &all);
		cli_progress_update(&progress, written);
		if (cli_interrupted() && strstr(target, "://"))
			cli_interrupt_leave();
		if (cli_interrupted()) {
			sluice_tensor_save_cancel(save);
			cli_interrupt_release();
		}
	}
	cli_progress_end(&progress);
	if (n < 0 && n != -ECANCELED)
		cli_fail((int)n, "%s", sluice_tensor_save_message(save));
	sluice_tensor_save_free(save);
	return n < 0 ? (int)n : 0;
}

static int publish(sluice_tensors *tensors, const struct cli_tensors_options *o,
                   const struct tensors_choice *choice)
{
	CLI_OWNED struct sluice_tensor_want *wants = calloc(choice->count + 1, sizeof(*wants));

	if (!wants)
		err(CLI_FAILED, "names of tensors");
	for (size_t i = 0; i < choice->count; i++)
		wants[i].tensor = choice->indices[i];
	return cli_publish_tensors(NULL, o->target + strlen(STORE), tensors, wants, choice->count,
	                           -1, SLUICE_BLOB_REPLACE);
}

int cli_tensors_cp(sluice_tensors *tensors, const struct cli_tensors_options *o)
{
	struct sluice_tensor_save_options options = SLUICE_TENSOR_SAVE_OPTIONS_INIT;
	struct sluice_open_options open_options = cli_open_options(&o->open);
	struct tensors_choice choice = {0};
	sluice_tensor_save *save;
	int rc = choose(tensors, o, &choice);

	options.metadata = choice.metadata;
	options.metadata_count = choice.pairs;
	options.not_durable = 1;
	options.open_options = &open_options;
	cli_interrupt_catch();
	if (!strstr(o->target, "://"))
		cli_interrupt_file(true);
	if (!rc && !strncmp(o->target, STORE, strlen(STORE)))
		rc = publish(tensors, o, &choice);
	else if (!rc) {
		rc = cli_said(sluice_tensors_save_files(o->target, tensors, choice.indices,
		                                        choice.count, &options, &save));
		if (!rc)
			rc = save_finish(save, o->target);
	}
	free(choice.indices);
	free(choice.metadata);
	if (cli_interrupted())
		cli_interrupt_obey();
	return rc;
}
