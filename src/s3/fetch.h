/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of services that have credentials. */
#ifndef SL_S3_FETCH_H
#define SL_S3_FETCH_H

#include "core/core.h"

struct sl_s3_call {
	const char *what; /* it asks for, in words: the path of its URL may be a secret */
	const char *method;
	const char *url;
	const char *const *lines; /* of its header, then NULL; or NULL */
	const char *body;         /* of a POST; or NULL */
	bool near; /* the service is of this machine: there is no proxy, and it answers at once or never */
};
/*
 * Makes a call, and waits for the answer, some seconds at most. Redirects are not followed. Returns 0 with the body, which
 * sl_s3_text_clear() frees; or -EACCES, -ENOMEM with a sentence, also if the status is not 200.
 */
int sl_s3_fetch(const struct sl_settings *settings, const struct sl_s3_call *call, char **out);
/* Returns whether a token may be sent to that URL: by TLS, or to this machine or a service of ECS or EKS. */
bool sl_s3_fetch_is_safe(const char *url);

#endif
