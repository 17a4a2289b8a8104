/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .npy
 *
 * "\x93NUMPY", two bytes of version, the length of the header, little endian in 2 bytes (version 1)
 * or 4 (2 and 3), and the header: a dictionary in Python's notation with 'descr', 'fortran_order'
 * and 'shape'. The elements follow. On the thread that reads the header.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensors/header.h"

#define HEADER_MOST 4096 /* bytes; NumPy writes 118 for an array of few dimensions */

static const struct {
	const char *name;
	enum sluice_type type;
} descrs[] = {
	{"|b1", SLUICE_BOOL},      {"|i1", SLUICE_INT8},        {"|u1", SLUICE_UINT8},
	{"<i2", SLUICE_INT16},     {"<u2", SLUICE_UINT16},      {"<i4", SLUICE_INT32},
	{"<u4", SLUICE_UINT32},    {"<i8", SLUICE_INT64},       {"<u8", SLUICE_UINT64},
	{"<f2", SLUICE_FLOAT16},   {"<f4", SLUICE_FLOAT32},     {"<f8", SLUICE_FLOAT64},
	{"<c8", SLUICE_COMPLEX64}, {"<c16", SLUICE_COMPLEX128},
};

/* Returns the value of a key in a dictionary, or "". */
static const char *npy_value(const char *dictionary, const char *key)
{
	const char *at = strstr(dictionary, key);

	at = at ? at + strlen(key) : "";
	return at + strspn(at, " ");
}

static int npy_shape(const char *text, uint64_t shape[SLUICE_TENSOR_RANK_MOST], uint16_t *rank)
{
	if (*text++ != '(')
		return -EBADMSG;
	for (*rank = 0;; text += strspn(text, ", ")) {
		char *end;

		if (*text == ')')
			return 0;
		if (*text < '0' || *text > '9' || *rank == SLUICE_TENSOR_RANK_MOST)
			return -EBADMSG;
		errno = 0;
		shape[(*rank)++] = strtoull(text, &end, 10);
		if (errno || !strchr(",)", *end) || !*end)
			return -EBADMSG;
		text = end;
	}
}

/* Sets type and shape of the tensor by the dictionary. */
static int npy_parse(const struct sl_tensor_file *file, const char *dictionary,
                     struct sl_tensor *tensor, uint64_t shape[SLUICE_TENSOR_RANK_MOST])
{
	const char *order = npy_value(dictionary, "'fortran_order':");
	bool fortran = !strncmp(order, "True", 4);
	char descr[32];

	if (*npy_value(dictionary, "'descr':") == '[')
		return sl_tensor_refuse(file, -ENOTSUP, tensor->name, "its elements are structs");
	if ((!fortran && strncmp(order, "False", 5)) ||
	    sscanf(npy_value(dictionary, "'descr':"), "'%31[^']'", descr) != 1 ||
	    npy_shape(npy_value(dictionary, "'shape':"), shape, &tensor->rank))
		return sl_tensor_refuse(
			file, -EBADMSG, tensor->name,
			"its header is no dictionary of NumPy, with 16 dimensions at most");
	if (fortran && tensor->rank > 1)
		return sl_tensor_refuse(file, -ENOTSUP, tensor->name, "it is in Fortran order");
	for (size_t i = 0; i < sizeof(descrs) / sizeof(descrs[0]); i++)
		if (!strcmp(descrs[i].name, descr)) {
			tensor->type = descrs[i].type;
			return 0;
		}
	return sl_tensor_refuse(file, -ENOTSUP, tensor->name, "its type '%s' is not known%s", descr,
	                        descr[0] == '>' ? ": it is big endian" : "");
}

int sl_npy_add(struct sl_tensor_header *header, const char *name, const char *bytes, size_t n,
               uint64_t offset, uint64_t length)
{
	uint64_t shape[SLUICE_TENSOR_RANK_MOST], begin;
	struct sl_tensor tensor = {.name = name, .shape = shape};
	char text[HEADER_MOST + 1];
	uint16_t length_16;
	uint32_t length_32;

	if (n < 12 || memcmp(bytes, "\x93NUMPY", 6))
		return sl_tensor_refuse(header->file, -EBADMSG, name, "it is no .npy file");
	if (bytes[6] < 1 || bytes[6] > 3 || bytes[7])
		return sl_tensor_refuse(header->file, -ENOTSUP, name,
		                        "its .npy has the version %d.%d", bytes[6], bytes[7]);
	memcpy(&length_16, bytes + 8, 2);
	memcpy(&length_32, bytes + 8, 4);
	begin = bytes[6] == 1 ? 10 + (uint64_t)le16toh(length_16)
	                      : 12 + (uint64_t)le32toh(length_32);
	if (begin > length)
		return sl_tensor_refuse(header->file, -EBADMSG, name,
		                        "its header ends behind its bytes");
	if (begin > SL_MIN(n, HEADER_MOST))
		return sl_tensor_refuse(header->file, -EFBIG, name,
		                        "its header has more than 4000 bytes");
	memcpy(text, bytes, begin);
	text[begin] = '\0';
	int rc = npy_parse(header->file, text + (bytes[6] == 1 ? 10 : 12), &tensor, shape);
	if (rc)
		return rc;
	tensor.offset = offset + begin;
	tensor.bytes = length - begin;
	return sl_tensor_add(header, &tensor);
}

int sl_npy_read(struct sl_tensor_header *header)
{
	struct sl_tensor_file *file = header->file;
	const char *slash = strrchr(file->name, '/'), *base = slash ? slash + 1 : file->name;
	size_t length = strcspn(base, "?");
	const char *name;

	file->format = "npy";
	if (length > 4 && !memcmp(base + length - 4, ".npy", 4))
		length -= 4;
	int rc = sl_tensor_text(&file->arena, file, base, sl_utf8_valid(base, length) ? length : 0,
	                        &name);
	return rc ? rc : sl_npy_add(header, name, header->bytes, header->have, 0, file->length);
}
