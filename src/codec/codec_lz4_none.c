/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of codec_lz4.c where the build has no liblz4. */
#include "codec/codec.h"

const struct sl_codec sl_codec_lz4 = {
	.name = "lz4",
	.encoder = "liblz4",
	.missing = "this library was built without liblz4",
	.filter = 32004,
	.least = 1,
	.most = 1,
};

const struct sl_codec sl_codec_bitshuffle = {
	.name = "bitshuffle-lz4",
	.encoder = "liblz4",
	.missing = "this library was built without liblz4",
	.filter = 32008,
	.least = 1,
	.most = 1,
	.shuffles = true,
};
