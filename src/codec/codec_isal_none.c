/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of codec_isal.c where the build has no ISA-L (libisal). */
#include "codec/codec.h"

const struct sl_codec sl_codec_isal = {
	.name = "deflate",
	.encoder = "ISA-L",
	.missing = "this library was built without ISA-L (libisal)",
	.filter = 1,
	.least = 1,
	.most = 1,
};
