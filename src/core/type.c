/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of elements
 *
 * The table behind enum sluice_type: names, kind, size and DLPack's code of the elements of frames,
 * blobs and tensors. Constant.
 */
#include "core/core.h"

#include <inttypes.h>

static const struct sl_type types[] = {
	[SLUICE_INT8] = {"int8", "I8", SL_SIGNED, 8, 0},
	[SLUICE_UINT8] = {"uint8", "U8", SL_UNSIGNED, 8, 1},
	[SLUICE_INT16] = {"int16", "I16", SL_SIGNED, 16, 0},
	[SLUICE_UINT16] = {"uint16", "U16", SL_UNSIGNED, 16, 1},
	[SLUICE_INT32] = {"int32", "I32", SL_SIGNED, 32, 0},
	[SLUICE_UINT32] = {"uint32", "U32", SL_UNSIGNED, 32, 1},
	[SLUICE_INT64] = {"int64", "I64", SL_SIGNED, 64, 0},
	[SLUICE_UINT64] = {"uint64", "U64", SL_UNSIGNED, 64, 1},
	[SLUICE_FLOAT16] = {"float16", "F16", SL_REAL, 16, 2},
	[SLUICE_FLOAT32] = {"float32", "F32", SL_REAL, 32, 2},
	[SLUICE_FLOAT64] = {"float64", "F64", SL_REAL, 64, 2},
	[SLUICE_BFLOAT16] = {"bfloat16", "BF16", SL_BFLOAT, 16, 4},
	[SLUICE_COMPLEX64] = {"complex64", "C64", SL_COMPLEX, 64, 5},
	[SLUICE_COMPLEX128] = {"complex128", NULL, SL_COMPLEX, 128, 5},
	[SLUICE_BOOL] = {"bool", "BOOL", SL_BOOL, 8, 6},
	[SLUICE_FLOAT8_E4M3] = {"float8_e4m3", "F8_E4M3", SL_SMALL, 8, 10},
	[SLUICE_FLOAT8_E5M2] = {"float8_e5m2", "F8_E5M2", SL_SMALL, 8, 12},
	[SLUICE_FLOAT8_E8M0] = {"float8_e8m0", "F8_E8M0", SL_SMALL, 8, 14},
	[SLUICE_FLOAT6_E2M3] = {"float6_e2m3", "F6_E2M3", SL_SMALL, 6, 15},
	[SLUICE_FLOAT6_E3M2] = {"float6_e3m2", "F6_E3M2", SL_SMALL, 6, 16},
	[SLUICE_FLOAT4_E2M1] = {"float4_e2m1", "F4", SL_SMALL, 4, 17},
	[SLUICE_FLOAT8_E4M3FNUZ] = {"float8_e4m3fnuz", "F8_E4M3FNUZ", SL_SMALL, 8, 11},
	[SLUICE_FLOAT8_E5M2FNUZ] = {"float8_e5m2fnuz", "F8_E5M2FNUZ", SL_SMALL, 8, 13},
	[SLUICE_STRING] = {"string", NULL, SL_STRING, 0, 0},
};

const struct sl_type *sl_type_find(int type)
{
	bool known = type > 0 && type < (int)(sizeof(types) / sizeof(types[0]));

	return known ? &types[type] : NULL;
}

int64_t sl_tensor_bytes(const struct sl_type *type, unsigned rank, const uint64_t *shape)
{
	uint64_t bits = type->bits;
	bool empty = false, over = false;

	for (unsigned i = 0; i < rank; i++) {
		empty |= !shape[i];
		over |= __builtin_mul_overflow(bits, shape[i], &bits);
	}
	if (empty)
		return 0;
	return over || bits % 8 || bits / 8 > INT64_MAX / 16 ? -1 : (int64_t)(bits / 8);
}

void sl_tensor_put(FILE *to, const char *name, const struct sl_type *type, unsigned rank,
                   const uint64_t *shape, uint64_t begin, uint64_t bytes)
{
	sl_json_put(to, name);
	fprintf(to, ":{\"dtype\":\"%s\",\"shape\":[", type->word);
	for (unsigned i = 0; i < rank; i++)
		fprintf(to, "%s%" PRIu64, i ? "," : "", shape[i]);
	fprintf(to, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, begin + bytes);
}
