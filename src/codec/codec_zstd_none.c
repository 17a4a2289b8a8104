/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of codec_zstd.c where the build has no libzstd. */
#include "codec/codec.h"

const struct sl_codec sl_codec_zstd = {
	.name = "zstd",
	.encoder = "libzstd",
	.missing = "this library was built without libzstd",
	.filter = 32015,
	.least = 1,
	.most = 19,
};
