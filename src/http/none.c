/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of the other http files where the build has no libcurl. */
#include <errno.h>

#include "http/http.h"

static int none_open(struct sl_core *core, const struct sl_uri *uri,
                     const struct sluice_open_options *options, struct sl_backend **out)
{
	(void)core;
	(void)uri;
	(void)options;
	(void)out;
	return sl_fail(-EPROTONOSUPPORT,
	               "this library was built without libcurl: no http, no https, no s3");
}

/* Nothing opens, so nothing else is called. */
const struct sl_backend_ops sl_http_ops = {.open = none_open};

int sl_http_open_list(struct sl_core *core, const struct sl_uri *uri,
                      const struct sluice_open_options *options, const char *query,
                      struct sl_backend **out)
{
	(void)query;
	return none_open(core, uri, options, out);
}

int sl_http_remove(struct sl_core *core, const char *uri, const struct sluice_open_options *options,
                   const char *upload)
{
	(void)uri;
	(void)upload;
	return none_open(core, NULL, options, NULL);
}

int sl_http_remove_many(struct sl_core *core, const char *const *uris, size_t count,
                        const struct sluice_open_options *options, int *errors, char **messages)
{
	(void)uris, (void)count, (void)errors, (void)messages;
	return none_open(core, NULL, options, NULL);
}

int sl_http_copy(struct sl_core *core, const struct sl_uri *from, const struct sl_uri *to,
                 const struct sluice_open_options *options)
{
	(void)to;
	return none_open(core, from, options, NULL);
}

int sl_http_new(struct sl_core *core, struct sl_http_engine **out)
{
	(void)core;
	(void)out;
	return 0;
}

void sl_http_stop(struct sl_http_engine *engine)
{
	(void)engine;
}

void sl_http_free(struct sl_http_engine *engine)
{
	(void)engine;
}

int sl_http_feature(const struct sl_core *core, size_t index, struct sluice_feature *out)
{
	(void)core;
	if (index)
		return -ENOENT;
	out->name = "http, https";
	out->detail = "this library was built without libcurl";
	out->effect = "remote files cannot be opened";
	out->remedy = "install libcurl4-openssl-dev and build again";
	return 0;
}

int sl_http_s3_check(const struct sl_core *core, const struct sluice_s3_options *options)
{
	(void)core, (void)options;
	return sl_fail(-EPROTONOSUPPORT, "this library was built without libcurl");
}

int sl_http_presign(struct sl_core *core, const struct sl_uri *uri,
                    const struct sluice_open_options *options, const char *method, unsigned seconds,
                    char **url, int64_t *end_ns)
{
	(void)method, (void)seconds, (void)url, (void)end_ns;
	return none_open(core, uri, options, NULL);
}
