/* SPDX-License-Identifier: Apache-2.0 */
/* S3, as a service. */
#ifndef SL_S3_H
#define SL_S3_H

#include "service/service.h"

extern const struct sl_service sl_s3_service;

#endif
