/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and addresses of objects
 *
 * Takes an s3 URI apart, and makes the URL of the object: the bucket is in the host (virtual) or in
 * the path.
 *
 * Threads: any.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "s3/s3_internal.h"

#define LONGEST_BUCKET 255
#define LONGEST_LABEL  63

/* -------------------------------------------------------------------------------------- name */

bool sl_s3_is_service(const char *uri)
{
	return !strstr(uri, "://")[3];
}

int sl_s3_name_parse(const char *uri, struct sl_s3_name *out)
{
	const char *rest = strstr(uri, "://") + 3;
	size_t length = strcspn(rest, "/");
	struct sl_s3_name name;

	if (!strncmp(rest, "arn:", 4))
		return sl_fail(-EINVAL, "'%s': a bucket has no ARN here; give its name or alias",
		               uri);
	if (!length || length > LONGEST_BUCKET)
		return sl_fail(-EINVAL, "'%s': the name of a bucket has 1 to %d characters", uri,
		               LONGEST_BUCKET);
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)rest[i]) && !strchr("-._", rest[i]))
			return sl_fail(-EINVAL,
			               "'%s': the name of a bucket has letters, digits, '-', '.' "
			               "and '_' only",
			               uri);
	name.bucket = strndup(rest, length);
	name.key = strdup(rest + length + (rest[length] == '/'));
	if (!name.bucket || !name.key) {
		sl_s3_name_clear(&name);
		return sl_fail(-ENOMEM, "no memory");
	}
	*out = name;
	return 0;
}

void sl_s3_name_clear(struct sl_s3_name *name)
{
	free(name->bucket);
	free(name->key);
}

/* ------------------------------------------------------------------------------------- address */

/* Whether the bucket can be a label in a host's name, and the server's certificate still fits. */
static bool bucket_is_label(const char *bucket)
{
	for (const char *c = bucket; *c; c++)
		if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '-')
			return false;
	return strlen(bucket) <= LONGEST_LABEL;
}

/* Takes an endpoint apart: its scheme with "://", its host in lower case without the scheme's port,
 * and the path behind it. Returns 0, or -errno with a sentence. */
static int endpoint_parse(const char *endpoint, const char **scheme, char **host, const char **path)
{
	bool plain = !strncasecmp(endpoint, "http://", 7);
	const char *rest = endpoint + (plain ? 7 : 8), *usual = plain ? ":80" : ":443";
	size_t length, port = strlen(usual);

	if (!plain && strncasecmp(endpoint, "https://", 8))
		return sl_fail(-EINVAL, "the endpoint '%s' is no http or https URL", endpoint);
	length = strcspn(rest, "/");
	for (const char *c = rest; *c; c++)
		if ((unsigned char)*c <= ' ' || *c == 0x7f || strchr("@?#", *c))
			return sl_fail(-EINVAL, "the endpoint has a '%c' in it",
			               isgraph((unsigned char)*c) ? *c : ' ');
	*path = rest + length;
	if (length > port && !strncmp(rest + length - port, usual, port))
		length -= port;
	if (!length)
		return sl_fail(-EINVAL, "the endpoint '%s' has no host", endpoint);
	char *name = strndup(rest, length);
	if (!name)
		return sl_fail(-ENOMEM, "no memory");
	for (char *c = name; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	*scheme = plain ? "http://" : "https://";
	*host = name;
	return 0;
}

static int address_make(const struct sl_s3_name *name, bool virtual, const char *endpoint,
                        const char *query, struct sl_s3_address *address)
{
	char *host = NULL, *key;
	const char *scheme = "", *before = "", *inside = virtual ? "" : name->bucket;
	int length, rc = endpoint_parse(endpoint, &scheme, &host, &before);

	if (rc)
		return rc;
	length = (int)strlen(before);
	while (length && before[length - 1] == '/')
		length--;
	key = sl_uri_escape(name->key, true);
	address->host = sl_format("%s%s%s", virtual ? name->bucket : "", virtual ? "." : "", host);
	if (key)
		address->path =
			sl_format("%.*s%s%s/%s", length, before, *inside ? "/" : "", inside, key);
	address->query = strdup(query);
	if (address->host && address->path)
		address->url = sl_format("%s%s%s%s%s", scheme, address->host, address->path,
		                         *query ? "?" : "", query);
	free(host);
	free(key);
	return address->query && address->url ? 0 : sl_fail(-ENOMEM, "no memory");
}

int sl_s3_address_find(const struct sl_s3_name *name, const char *endpoint, const char *addressing,
                       const char *region, const char *query, struct sl_s3_address *out)
{
	bool virtual = !name->bucket[0] ? false
	               : addressing     ? !strcmp(addressing, "virtual")
	                                : !endpoint && bucket_is_label(name->bucket);
	struct sl_s3_address address = {0};
	char *aws = NULL;
	int rc;

	if (addressing && strcmp(addressing, "virtual") && strcmp(addressing, "path"))
		return sl_fail(-EINVAL, "'%s' is no addressing style: 'path', 'virtual'",
		               addressing);
	for (const char *c = region; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '-')
			return sl_fail(-EINVAL,
			               "the region '%s' has a character that is none of "
			               "letters, digits and '-'",
			               region);
	if (!endpoint && asprintf(&aws, "https://s3.%s.amazonaws.com%s", region,
	                          strncmp(region, "cn-", 3) ? "" : ".cn") < 0)
		return sl_fail(-ENOMEM, "no memory");
	rc = address_make(name, virtual, endpoint ? endpoint : aws, query ? query : "", &address);
	free(aws);
	if (rc)
		sl_s3_address_clear(&address);
	else
		*out = address;
	return rc;
}

void sl_s3_address_clear(struct sl_s3_address *address)
{
	free(address->url);
	free(address->host);
	free(address->path);
	free(address->query);
}
