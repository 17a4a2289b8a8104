/* SPDX-License-Identifier: Apache-2.0 */
/* Types of elements of series (<sluice/writer.h>), blobs (store.h) and tensors (tensors.h). */
#ifndef SLUICE_TYPE_H
#define SLUICE_TYPE_H

/* Elements are in the byte order of the machine. 0 is not a type. */
enum sluice_type {
	SLUICE_INT8 = 1,
	SLUICE_UINT8,
	SLUICE_INT16,
	SLUICE_UINT16,
	SLUICE_INT32,
	SLUICE_UINT32,
	SLUICE_INT64,
	SLUICE_UINT64,
	SLUICE_FLOAT16, /* IEEE 754 binary16 */
	SLUICE_FLOAT32,
	SLUICE_FLOAT64,
	SLUICE_BFLOAT16,   /* the upper half of a FLOAT32 */
	SLUICE_COMPLEX64,  /* two FLOAT32: the real part, then the imaginary part */
	SLUICE_COMPLEX128, /* two FLOAT64 */
	SLUICE_BOOL,       /* a byte, 0 or 1 */
	/*
	 * Small floating-point numbers of 1 sign bit, EeMm having e bits of exponent and m of
	 * mantissa; series of frames cannot have them. Those of 6 and 4 bits are packed without
	 * gaps, which tensors can have but not blobs.
	 */
	SLUICE_FLOAT8_E4M3, /* 8 bits; without infinities: OCP's E4M3, also known as E4M3FN */
	SLUICE_FLOAT8_E5M2, /* 8 bits */
	SLUICE_FLOAT8_E8M0, /* 8 bits, a power of 2: the scale of a block in OCP's MX formats */
	SLUICE_FLOAT6_E2M3, /* 6 bits */
	SLUICE_FLOAT6_E3M2, /* 6 bits */
	SLUICE_FLOAT4_E2M1, /* 4 bits */
	/* 8 bits; without infinities, and the bits of -0 are the only NaN: types of AMD's GPUs */
	SLUICE_FLOAT8_E4M3FNUZ,
	SLUICE_FLOAT8_E5M2FNUZ,
	/* Bytes of a fixed length, as numpy's S8, padded with null bytes; only series of frames can
	 * have them. */
	SLUICE_STRING,
};

#endif
