/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of services that have credentials. */
#ifndef SL_S3_FETCH_H
#define SL_S3_FETCH_H

#include "core/core.h"

#define SL_S3_ANSWER 65536 /* bytes of an answer that are enough */

struct sl_s3_call {
	const char *method;
	const char *url;
	const char *const *lines; /* of its header, then NULL; or NULL */
	const char *body;         /* of a POST; or NULL */
	bool near; /* the service is of this machine: there is no proxy, and it answers at once or never */
};
/*
 * Makes a call, and waits for the answer, some seconds at most. Redirects are not followed. Returns the status of HTTP
 * and the first bytes of the body, which the caller wipes; or -errno with a sentence.
 */
int sl_s3_fetch(const struct sl_settings *settings, const struct sl_s3_call *call, char *text,
                size_t size);
/* Returns the host of a URL, for the caller to free, in *out; and whether it is an http or https URL. */
bool sl_s3_fetch_host(const char *url, bool *is_plain, char **out);

#endif
