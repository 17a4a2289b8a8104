/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of codec_libdeflate.c where the build has no libdeflate. */
#include "codec/codec.h"

const struct sl_codec sl_codec_libdeflate = {
	.name = "deflate",
	.encoder = "libdeflate",
	.missing = "this library was built without libdeflate",
	.filter = 1,
	.least = 1,
	.most = 9,
};
