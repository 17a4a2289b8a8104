/* SPDX-License-Identifier: Apache-2.0 */
/* A profile in the files for AWS's programs: ~/.aws/credentials and ~/.aws/config. */
#ifndef SL_S3_PROFILE_H
#define SL_S3_PROFILE_H

#include <stdlib.h>
#include <string.h>

#include "core/core.h"

/* The values in use, or naming a source beyond sluice's reach. */
enum sl_s3_value {
	SL_S3_KEY_ID,
	SL_S3_SECRET,
	SL_S3_TOKEN,
	SL_S3_PROCESS,
	SL_S3_REGION,
	SL_S3_ENDPOINT,
	SL_S3_SERVICES,
	SL_S3_ENDPOINT_S3, /* in the section named by `services`, as the next */
	SL_S3_ENDPOINT_STS,
	SL_S3_IGNORE_ENDPOINTS,
	SL_S3_CA_BUNDLE,
	SL_S3_ADDRESSING,
	SL_S3_ROLE,
	SL_S3_SOURCE_PROFILE,
	SL_S3_CREDENTIAL_SOURCE,
	SL_S3_SESSION_NAME,
	SL_S3_EXTERNAL_ID,
	SL_S3_DURATION,
	SL_S3_MFA,
	SL_S3_WEB_IDENTITY,
	SL_S3_SSO,
	SL_S3_SSO_URL,
	SL_S3_VALUES
};
struct sl_s3_profile {
	const char *name;           /* from the caller or the environment */
	bool found;                 /* a file has it */
	char *credentials, *config; /* paths, whether the files exist or not */
	char *of[SL_S3_VALUES];     /* NULL: not set */
	bool shared[SL_S3_VALUES];  /* the value is from the credentials file */
};
/* Reads a profile; name NULL: AWS_PROFILE, or "default". Missing files are empty. May wait for
 * storage. Returns 0, or -errno with a sentence: a file named by the environment cannot be read, or
 * no file has the named profile. sl_s3_profile_clear() frees the result. */
int sl_s3_profile_load(const char *name, struct sl_s3_profile *out);
void sl_s3_profile_clear(struct sl_s3_profile *profile);
/* Wipes and frees a text; NULL is allowed. */
static inline void sl_s3_text_clear(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}
/* Returns a variable's value if it is set and not empty; or NULL. */
const char *sl_s3_variable(const char *name);
/* Returns the region by option, environment or profile; else the default in AWS's programs. */
const char *sl_s3_region(const char *option, const struct sl_s3_profile *profile);
/* Returns the endpoint for a service from the environment or the profile; or NULL. */
const char *sl_s3_endpoint(const struct sl_s3_profile *profile, enum sl_s3_value service);

#endif
