/* SPDX-License-Identifier: Apache-2.0 */
/* A profile of the files that programs of AWS share: ~/.aws/credentials and ~/.aws/config. */
#ifndef SL_S3_PROFILE_H
#define SL_S3_PROFILE_H

#include "core/core.h"

/* The values that are used, or that name a source which sluice cannot ask. */
enum sl_s3_value {
	SL_S3_KEY_ID,
	SL_S3_SECRET,
	SL_S3_TOKEN,
	SL_S3_PROCESS,
	SL_S3_REGION,
	SL_S3_ENDPOINT,
	SL_S3_SERVICES,
	SL_S3_ENDPOINT_S3, /* of the section that `services` names, as the next */
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
	const char *name;           /* that of the caller, or of the environment */
	bool found;                 /* a file has it */
	char *credentials, *config; /* the paths of the files, that exist or not */
	char *of[SL_S3_VALUES];     /* NULL: not set */
	bool shared[SL_S3_VALUES];  /* the value is of the credentials file */
};
/*
 * Reads the profile of that name; NULL: that of AWS_PROFILE, or "default". Files that are missing are empty. May wait for
 * storage. Returns 0, or -errno with a sentence: a file that the environment names cannot be read, or a profile that
 * is named is in neither file. sl_s3_profile_clear() frees the result.
 */
int sl_s3_profile_load(const char *name, struct sl_s3_profile *out);
void sl_s3_profile_clear(struct sl_s3_profile *profile);
/* Wipes and frees a text; NULL is allowed. */
void sl_s3_text_clear(char *text);
/* Returns the value of a variable that is set and not empty; or NULL. */
const char *sl_s3_variable(const char *name);
/* Returns the region of the option, the environment or the profile; else that which AWS's programs have. */
const char *sl_s3_region(const char *option, const struct sl_s3_profile *profile);
/* Returns the endpoint that the environment or the profile has for a service, by that value of it; or NULL. */
const char *sl_s3_endpoint(const struct sl_s3_profile *profile, enum sl_s3_value service);

#endif
