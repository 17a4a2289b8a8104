/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers of files of tensors
 *
 * Reads bytes for the parsers of the formats, and checks their tensors. A thread for each header.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensors/header.h"

#define STOP_MS 50 /* a wait looks at *stop so often */

int sl_tensor_refuse(const struct sl_tensor_file *file, int error, const char *tensor,
                     const char *format, ...)
{
	char text[768];
	int length = tensor ? snprintf(text, sizeof(text), "tensor '%.256s': ", tensor) : 0;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + length, sizeof(text) - (size_t)length, format, arguments);
	va_end(arguments);
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	return sl_fail(error, "'%s': %s", file->name, text);
}

int sl_tensor_text(struct sl_arena *arena, const struct sl_tensor_file *file, const char *text,
                   size_t n, const char **out)
{
	if (memchr(text, 0, n) || !sl_utf8_valid(text, n))
		return sl_tensor_refuse(file, -EBADMSG, NULL,
		                        "a name or a text in it is no UTF-8, or has a zero byte");
	char *copy = sl_arena_take(arena, n + 1);
	if (!copy)
		return sl_fail(-ENOMEM, "no memory for the names in '%s'", file->name);
	memcpy(copy, text, n);
	copy[n] = '\0';
	*out = copy;
	return 0;
}

int sl_tensor_file_read(const struct sl_tensor_file *file, void *to, size_t n, uint64_t offset)
{
	struct sluice_extent extent = {to, n, offset};

	return sl_tensor_file_read_all(file, &extent, 1);
}

int sl_tensor_file_read_all(const struct sl_tensor_file *file, const struct sluice_extent *extents,
                            size_t count)
{
	int64_t missing = sl_tensor_file_read_some(file, extents, count, file->stop);

	return missing > 0 ? sl_tensor_refuse(file, -EBADMSG, NULL, "it became shorter meanwhile")
	                   : (int)missing;
}

int64_t sl_tensor_file_read_some(const struct sl_tensor_file *file,
                                 const struct sluice_extent *extents, size_t count,
                                 const _Atomic bool *stop)
{
	struct sluice_request request = SLUICE_REQUEST_INIT;
	int64_t moved, bytes = 0;
	sluice_op *op;

	request.kind = SLUICE_READ;
	request.extents = extents;
	request.count = count;
	moved = sluice_submit(file->file, &request, &op);
	if (moved)
		return moved;
	for (size_t i = 0; i < count; i++)
		bytes += (int64_t)extents[i].length;
	while ((moved = sluice_wait(op, stop ? STOP_MS : -1)) == -EINPROGRESS)
		if (atomic_load(stop))
			sluice_cancel(op);
	if (moved < 0)
		sl_fail((int)moved, "%s", sluice_op_message(op));
	sluice_op_free(op);
	return moved < 0 ? moved : bytes - moved;
}

int sl_tensor_header_need(struct sl_tensor_header *header, uint64_t n)
{
	uint64_t have = header->have;

	if (n > header->file->length)
		return sl_tensor_refuse(header->file, -EBADMSG, NULL,
		                        "it has %" PRIu64 " bytes, and its header %" PRIu64,
		                        header->file->length, n);
	if (n <= have)
		return 0;
	char *bytes = realloc(header->bytes, n);
	if (!bytes)
		return sl_fail(-ENOMEM, "no memory for a header of %" PRIu64 " bytes", n);
	header->bytes = bytes;
	header->have = n;
	return sl_tensor_file_read(header->file, bytes + have, n - have, have);
}

/* ------------------------------------------------------------------------------------ tensors */

/* Checks the bytes of a tensor against its type and shape, and the file. */
static int tensor_check(const struct sl_tensor_file *file, const struct sl_tensor *tensor)
{
	uint64_t bits = sl_type_find(tensor->type)->bits;
	bool empty = false, over = false;

	for (unsigned i = 0; i < tensor->rank; i++) {
		empty |= !tensor->shape[i];
		over |= __builtin_mul_overflow(bits, tensor->shape[i], &bits);
	}
	if (over && !empty)
		return sl_tensor_refuse(file, -EBADMSG, tensor->name,
		                        "its shape has too many elements");
	bits = empty ? 0 : bits;
	if (bits % 8 || tensor->bytes != bits / 8)
		return sl_tensor_refuse(file, -EBADMSG, tensor->name,
		                        "it has %" PRIu64 " bytes, and its type and shape %" PRIu64
		                        " bits",
		                        tensor->bytes, bits);
	if (tensor->offset > file->length || tensor->bytes > file->length - tensor->offset)
		return sl_tensor_refuse(file, -EBADMSG, tensor->name,
		                        "it has %" PRIu64 " bytes from %" PRIu64
		                        " on, and the file %" PRIu64,
		                        tensor->bytes, tensor->offset, file->length);
	return 0;
}

int sl_tensor_add(struct sl_tensor_header *header, const struct sl_tensor *tensor)
{
	struct sl_tensor *tensors;
	int rc = tensor_check(header->file, tensor);

	if (rc)
		return rc;
	tensors = sl_array_grown(header->tensors, header->count, sizeof(*tensors));
	uint64_t *shape = sl_arena_take(&header->file->arena, tensor->rank * sizeof(*shape));
	if (tensors)
		header->tensors = tensors;
	if (!tensors || !shape)
		return sl_fail(-ENOMEM, "no memory for the tensors of '%s'", header->file->name);
	memcpy(shape, tensor->shape, tensor->rank * sizeof(*shape));
	tensors += header->count++;
	*tensors = *tensor;
	tensors->shape = shape;
	return 0;
}

static int tensor_order(const void *a, const void *b)
{
	const struct sl_tensor *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

int sl_tensor_header_sort(struct sl_tensor_header *header, uint64_t begin)
{
	const struct sl_tensor *tensors = header->tensors, *tensor = tensors;
	uint64_t end = begin;

	if (header->count)
		qsort(header->tensors, header->count, sizeof(*tensors), tensor_order);
	for (; tensor < tensors + header->count; tensor++) {
		if (tensor->offset < end)
			return sl_tensor_refuse(header->file, -EBADMSG, tensor->name,
			                        "it begins before the end of '%.256s'",
			                        tensor[-1].name);
		if (begin && tensor->offset > end)
			break;
		end = tensor->offset + tensor->bytes;
	}
	if (begin && end < header->file->length)
		return sl_tensor_refuse(header->file, -EBADMSG, NULL,
		                        "the bytes from %" PRIu64 " on belong to no tensor", end);
	return 0;
}
