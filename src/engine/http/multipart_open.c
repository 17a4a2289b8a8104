/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Begins of uploads in parts
 *
 * Opens an upload: its plan, its share of memory, and the lines of its headers.
 *
 * Threads: those of the program. No other thread has an upload that is being opened.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "http/multipart_internal.h"

static int multipart_set_fields(struct sl_http_multipart *multipart)
{
	struct sl_http *http = multipart->http;
	int rc = sl_http_fields_begin(&multipart->whole, http);

	if (!rc && !sl_http_identity_has(http, "Content-Type"))
		rc = sl_http_fields_add(&multipart->whole,
		                        "Content-Type: application/octet-stream");
	for (struct curl_slist *line = http->headers; !rc && line; line = line->next)
		if (http->signer->service->texts->line(line->data) & SL_LINE_EACH)
			rc = sl_line_add(&multipart->each.home, "%s", line->data);
	return rc;
}

/* No other thread has the upload yet. */
int sl_http_multipart_new(struct sl_http *http, const struct sluice_open_options *options,
                          struct sl_http_multipart **out) SL_UNCHECKED
{
	const struct sl_service_limits *limits = &http->signer->service->limits;
	uint64_t part = http->core->settings.part_bytes, total = options->expected_size;
	unsigned most = total && total <= part ? 1 : limits->parts;
	struct sl_http_multipart *multipart =
		calloc(1, sizeof(*multipart) + most * sizeof(struct sl_service_part));
	uint32_t crc = UINT32_MAX;
	int rc;

	if (!multipart)
		return sl_fail(-ENOMEM, "no memory");
	multipart->locked.known = (struct sl_service_part *)(multipart + 1);
	multipart->http = http;
	multipart->most = most;
	multipart->process = getpid();
	atomic_store(&multipart->plain, !sl_crc32c_add(&crc, NULL, 0));
	sl_http_plan_make(limits, total, part, &multipart->plan);
	sl_mutex_init(&multipart->mutex);
	pthread_cond_init(&multipart->idle, NULL);
	sl_list_init(&multipart->locked.parts);
	sl_list_init(&multipart->locked.pieces);
	sl_list_init(&multipart->locked.coming);
	sl_list_init(&multipart->locked.spare);
	sl_http_multipart_take_share(multipart);
	multipart->locked.low = 1;
	sl_http_multipart_move_locked(multipart);
	sl_http_multipart_register(multipart);
	rc = multipart_set_fields(multipart);
	if (!rc && multipart->plan.bytes > limits->part_most)
		rc = sl_fail(-EFBIG, "'%s': %s", http->name, limits->too_large);
	if (rc)
		sl_http_multipart_free(multipart);
	else
		*out = multipart;
	return rc;
}
