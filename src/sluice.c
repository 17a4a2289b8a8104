/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables
 *
 * The only file that knows every room: the backend of each URI scheme, and the kinds of devices.
 */
#include "backend/backend.h"
#include "device/device.h"
#include "http/http.h"
#include "local/local.h"
#include "store/store.h"

const struct sl_scheme sl_schemes[] = {
	{"file", &sl_local_ops}, {"http", &sl_http_ops},  {"https", &sl_http_ops},
	{"s3", &sl_http_ops},    {"store", &sl_blob_ops}, {NULL, NULL},
};

const struct sl_device_kind *const sl_device_kinds[] = {
	&sl_emulated,
	&sl_cuda,
	NULL,
};

const char *sluice_version(void)
{
	return SLUICE_VERSION;
}
