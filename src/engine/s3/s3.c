/* SPDX-License-Identifier: Apache-2.0 */
/* S3, as a service: the verbs, the names and the limits of its protocol. */
#include "s3/s3_internal.h"

#define WRITES \
	"an upload is written front to back, and this is too far ahead of bytes that are missing"

const struct sl_service sl_s3_service = {
	.scheme = "s3",
	.verbs = {[SL_CALL_PUT] = "PUT",
                  [SL_CALL_BEGIN] = "POST",
                  [SL_CALL_PART] = "PUT",
                  [SL_CALL_COMPLETE] = "POST",
                  [SL_CALL_DROP] = "DELETE",
                  [SL_CALL_COPY] = "PUT",
                  [SL_CALL_COPY_PART] = "PUT",
                  [SL_CALL_REMOVE] = "DELETE",
                  [SL_CALL_REMOVE_MANY] = "POST"},
	.fields = {[SL_SERVICE_FIELD_REGION] = "x-amz-bucket-region",
                   [SL_SERVICE_FIELD_REQUEST_ID] = "x-amz-request-id",
                   [SL_SERVICE_FIELD_CRC32C] = "x-amz-checksum-crc32c",
                   [SL_SERVICE_FIELD_CHECKSUM_TYPE] = "x-amz-checksum-type",
                   [SL_SERVICE_FIELD_CHECKSUM_ALGORITHM] = "x-amz-checksum-algorithm"},
	.sum_line = "x-amz-checksum-algorithm: CRC32C",
	.range_line = "x-amz-copy-source-range: ",
	.limits = {.parts = 10000,
                   .part_most = UINT64_C(5) << 30,
                   .copy_most = UINT64_C(5) << 30,
                   .group = 1000,
                   .grown = UINT64_C(8) << 20,
                   .removals = 1000,
                   .too_far = WRITES " (SLUICE_S3_UPLOAD_BYTES)",
                   .too_long = "an object of unknown length is longer than 10,000 parts "
                               "(SLUICE_S3_PART_BYTES)",
                   .too_large = "S3 takes 10,000 parts of 5 GiB at most",
                   .left_behind = "sluice s3 abandoned"},
	.signing = &sl_s3_signing,
	.texts = &sl_s3_texts,
	.lists = &sl_s3_lists,
	.copies = &sl_s3_copies,
	.removals = &sl_s3_removals,
};
