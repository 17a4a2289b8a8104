/* SPDX-License-Identifier: Apache-2.0 */
/* What compressors need for chunks of one kind. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frames/pipeline.h"

/* Outputs, and scratch for each compressor, which may change places. */
static size_t rooms_of(const struct sl_tools *tools)
{
	return tools->bare ? 0 : (size_t)tools->count * (SL_OUTPUTS + 1);
}

static size_t room_of(const struct sl_tools *tools)
{
	return (tools->chunk_bytes + 4095) / 4096 * 4096;
}

void sl_tools_free(struct sl_tools *tools)
{
	if (!tools)
		return;
	for (unsigned i = 0; tools->states && i < tools->count; i++)
		tools->codec->state_free(tools->states[i]);
	sl_area_release(&tools->area);
	free(tools->states);
	free(tools->scratch);
	free(tools->outputs);
	free(tools);
}

int sl_tools_new(const struct sl_tools *kind, struct sl_tools **out)
{
	struct sl_tools *tools = calloc(1, sizeof(*tools));
	size_t outputs = (size_t)kind->count * SL_OUTPUTS;
	int rc;

	if (!tools)
		return sl_fail(-ENOMEM, "no memory");
	*tools = *kind;
	sl_list_init(&tools->locked.free);
	tools->states = calloc(kind->count, sizeof(*tools->states));
	tools->scratch = calloc(kind->count, sizeof(*tools->scratch));
	tools->outputs = calloc(outputs, sizeof(*tools->outputs));
	if (!tools->states || !tools->scratch || !tools->outputs)
		rc = sl_fail(-ENOMEM, "no memory");
	else
		rc = kind->codec->state_new(kind->level, kind->element, kind->chunk_bytes,
		                            &tools->states[0]);
	if (rc) {
		sl_tools_free(tools);
		return rc;
	}
	tools->bytes = (uint64_t)rooms_of(tools) * room_of(tools) +
	               (uint64_t)kind->codec->state_bytes(tools->states[0]) * kind->count +
	               outputs * sizeof(struct sl_output);
	*out = tools;
	return 0;
}

int sl_tools_fill(struct sl_tools *tools)
{
	size_t outputs = (size_t)tools->count * SL_OUTPUTS;
	int rc = sl_area_take(&tools->area, rooms_of(tools) * room_of(tools));
	char *room = tools->area.memory;

	for (unsigned i = 1; !rc && i < tools->count; i++)
		rc = tools->codec->state_new(tools->level, tools->element, tools->chunk_bytes,
		                             &tools->states[i]);
	if (rc)
		return rc;
	for (size_t i = 0; i < outputs; i++) {
		if (!tools->bare)
			tools->outputs[i].room = room + i * room_of(tools);
		sl_list_append(&tools->locked.free, &tools->outputs[i].link);
	}
	for (unsigned i = 0; i < tools->count && !tools->bare; i++)
		tools->scratch[i] = room + (outputs + i) * room_of(tools);
	return 0;
}
