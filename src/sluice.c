/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables
 *
 * The only file that knows every room: the schemes of URIs, the services, and the kinds of devices.
 */
#include "arrays/arrays.h"
#include "backend/backend.h"
#include "device/device.h"
#include "http/http.h"
#include "io/io.h"
#include "local/local.h"
#include "s3/s3.h"
#include "store/store.h"

const struct sl_scheme sl_schemes[] = {
	{"file", &sl_local_ops, &sl_local_names, "local files", "folders"},
	{"http", &sl_http_ops, NULL, NULL, NULL},
	{"https", &sl_http_ops, NULL, NULL, NULL},
	{"s3", &sl_http_ops, &sl_http_names, "objects of S3", "s3:// URIs"},
	{"store", &sl_blob_ops, NULL, NULL, NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

const struct sl_backend_ops *const sl_dataset_ops = &sl_array_ops;

const struct sl_service *const sl_services[] = {&sl_s3_service, NULL};
_Static_assert(sizeof(sl_services) / sizeof(sl_services[0]) <= SL_SERVICES_MOST,
               "the engine of remote files keeps a keyring for each service");

const struct sl_device_kind *const sl_device_kinds[] = {
	&sl_emulated,
	&sl_cuda,
	NULL,
};

int sluice_s3_check(const sluice_context *ctx, const struct sluice_s3_options *options)
{
	return sl_context_check_keys(ctx, sl_s3_service.scheme, options);
}

const char *sluice_version(void)
{
	return SLUICE_VERSION;
}
