/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of elements
 *
 * The table behind enum sluice_type: name, kind and size of the elements of frames and blobs. Constant.
 */
#include "core/core.h"

static const struct sl_type types[] = {
	[SLUICE_INT8] = {"int8", SL_SIGNED, 1},
	[SLUICE_UINT8] = {"uint8", SL_UNSIGNED, 1},
	[SLUICE_INT16] = {"int16", SL_SIGNED, 2},
	[SLUICE_UINT16] = {"uint16", SL_UNSIGNED, 2},
	[SLUICE_INT32] = {"int32", SL_SIGNED, 4},
	[SLUICE_UINT32] = {"uint32", SL_UNSIGNED, 4},
	[SLUICE_INT64] = {"int64", SL_SIGNED, 8},
	[SLUICE_UINT64] = {"uint64", SL_UNSIGNED, 8},
	[SLUICE_FLOAT16] = {"float16", SL_REAL, 2},
	[SLUICE_FLOAT32] = {"float32", SL_REAL, 4},
	[SLUICE_FLOAT64] = {"float64", SL_REAL, 8},
	[SLUICE_BFLOAT16] = {"bfloat16", SL_BFLOAT, 2},
	[SLUICE_COMPLEX64] = {"complex64", SL_COMPLEX, 8},
	[SLUICE_COMPLEX128] = {"complex128", SL_COMPLEX, 16},
	[SLUICE_BOOL] = {"bool", SL_BOOL, 1},
};

const struct sl_type *sl_type_find(int type)
{
	bool known = type > 0 && type < (int)(sizeof(types) / sizeof(types[0]));

	return known ? &types[type] : NULL;
}
