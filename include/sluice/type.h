/* SPDX-License-Identifier: Apache-2.0 */
/* Types of the elements of series of frames (<sluice/writer.h>) and of blobs (<sluice/store.h>). */
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
};

#endif
