/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .safetensors
 *
 * The header is a length of 8 bytes, little endian, and so many bytes of JSON: an object with an
 * object for each tensor, {"dtype": text, "shape": [lengths], "data_offsets": [begin, end]}, and
 * perhaps "__metadata__", an object of texts, or null. Other fields of a tensor are skipped. The
 * state of the parser says what part may follow. Runs on the thread that reads the header.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tensors/header.h"

/* Of a header, of a tensor in it, and of "__metadata__". */
enum st_state {
	START,
	TOP,
	END,
	TENSOR,
	FIELDS,
	TYPE,
	SHAPE,
	LENGTHS,
	RANGE,
	OFFSETS,
	SKIPPED,
	METADATA,
	PAIRS,
	VALUE
};

/* Why a part is wrong in a state. */
static const char *const expected[] = {
	[START] = "its header is no object",
	[TENSOR] = "its value is no object",
	[TYPE] = "its \"dtype\" is no text",
	[SHAPE] = "its \"shape\" is no array",
	[LENGTHS] = "its \"shape\" is no array of numbers",
	[RANGE] = "its \"data_offsets\" are no array",
	[OFFSETS] = "its \"data_offsets\" are not two numbers",
	[METADATA] = "its \"__metadata__\" is no object",
	[VALUE] = "its \"__metadata__\" is no object of texts",
};

struct st_parser {
	struct sl_tensor_header *header;
	enum st_state state;
	uint64_t begin; /* of the data in the file */
	struct sl_tensor tensor;
	unsigned seen, ends; /* fields of the tensor, numbers of its "data_offsets" */
	bool metadata;       /* was seen */
	uint64_t shape[SLUICE_TENSOR_RANK_MOST], range[2];
	size_t depth;    /* of objects and arrays in a value that is skipped */
	const char *key; /* of a pair of "__metadata__" */
};

static bool st_is(const char *name, const char *text, size_t n)
{
	return strlen(name) == n && !memcmp(name, text, n);
}

static int st_refuse(const struct st_parser *p, const char *why)
{
	return sl_tensor_refuse(p->header->file, -EBADMSG,
	                        p->state >= TENSOR && p->state < METADATA ? p->tensor.name : NULL,
	                        "%s", why);
}

/* ------------------------------------------------------------------------------------ tensors */

static int st_begin_tensor(struct st_parser *p, const char *name, size_t n)
{
	struct sl_tensor_file *file = p->header->file;

	if (st_is("__metadata__", name, n)) {
		if (p->metadata)
			return st_refuse(p, "its \"__metadata__\" is there twice");
		p->metadata = true;
		p->state = METADATA;
		return 0;
	}
	p->tensor = (struct sl_tensor){.shape = p->shape};
	p->seen = p->ends = 0;
	p->state = TENSOR;
	return sl_tensor_text(&file->arena, file, name, n, &p->tensor.name);
}

static int st_begin_field(struct st_parser *p, const char *name, size_t n)
{
	enum st_state state = st_is("dtype", name, n)          ? TYPE
	                      : st_is("shape", name, n)        ? SHAPE
	                      : st_is("data_offsets", name, n) ? RANGE
	                                                       : SKIPPED;

	if (state != SKIPPED && p->seen & 1u << state)
		return sl_tensor_refuse(p->header->file, -EBADMSG, p->tensor.name,
		                        "it has a \"%.*s\" twice", (int)SL_MIN(n, 64), name);
	p->seen |= 1u << state;
	p->state = state;
	return 0;
}

static int st_type(struct st_parser *p, const char *name, size_t n)
{
	const struct sl_type *type;

	p->state = FIELDS;
	for (int i = 1; (type = sl_type_find(i)); i++)
		if (type->word && st_is(type->word, name, n)) {
			p->tensor.type = (uint16_t)i;
			return 0;
		}
	return sl_tensor_refuse(p->header->file, -ENOTSUP, p->tensor.name,
	                        "its type '%.*s' is not known", (int)SL_MIN(n, 64), name);
}

static int st_number(struct st_parser *p, const char *text, size_t n)
{
	uint64_t number = 0;

	for (size_t i = 0; i < n; i++)
		if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, text[i] - '0', &number))
			return sl_tensor_refuse(p->header->file, -EBADMSG, p->tensor.name,
			                        "%.*s is no length or offset", (int)SL_MIN(n, 64),
			                        text);
	if (p->state == LENGTHS && p->tensor.rank == SLUICE_TENSOR_RANK_MOST)
		return st_refuse(p, "it has more than 16 dimensions");
	if (p->state == OFFSETS && p->ends == 2)
		return st_refuse(p, expected[OFFSETS]);
	if (p->state == LENGTHS)
		p->shape[p->tensor.rank++] = number;
	else
		p->range[p->ends++] = number;
	return 0;
}

static int st_end_tensor(struct st_parser *p)
{
	if ((p->seen & ~(1u << SKIPPED)) != (1u << TYPE | 1u << SHAPE | 1u << RANGE))
		return st_refuse(p, "its \"dtype\", \"shape\" or \"data_offsets\" is missing");
	if (p->range[0] > p->range[1] ||
	    __builtin_add_overflow(p->begin, p->range[0], &p->tensor.offset))
		return st_refuse(p, "its \"data_offsets\" are not in order, or too large");
	p->tensor.bytes = p->range[1] - p->range[0];
	p->state = TOP;
	return sl_tensor_add(p->header, &p->tensor);
}

static int st_add_pair(struct st_parser *p, const char *text, size_t n)
{
	struct sl_tensor_file *file = p->header->file;
	struct sl_tensor_pair *pairs =
		sl_array_grown(file->metadata, file->metadata_count, sizeof(*pairs));

	if (!pairs)
		return sl_fail(-ENOMEM, "no memory for the metadata of '%s'", file->name);
	file->metadata = pairs;
	pairs += file->metadata_count++;
	pairs->key = p->key;
	p->state = PAIRS;
	return sl_tensor_text(&file->arena, file, text, n, &pairs->value);
}

/* ------------------------------------------------------------------------------------- header */

static int st_event(void *context, char part, const char *text, size_t n)
{
	struct st_parser *p = context;
	struct sl_tensor_file *file = p->header->file;

	if (p->state == SKIPPED) {
		p->depth += part == '{' || part == '[';
		p->depth -= part == '}' || part == ']';
		p->state = p->depth ? SKIPPED : FIELDS;
		return 0;
	}
	switch (p->state << 8 | part) {
	case TOP << 8 | 'k':
		return st_begin_tensor(p, text, n);
	case FIELDS << 8 | 'k':
		return st_begin_field(p, text, n);
	case TYPE << 8 | 's':
		return st_type(p, text, n);
	case LENGTHS << 8 | 'n':
	case OFFSETS << 8 | 'n':
		return st_number(p, text, n);
	case FIELDS << 8 | '}':
		return st_end_tensor(p);
	case PAIRS << 8 | 'k':
		p->state = VALUE;
		return sl_tensor_text(&file->arena, file, text, n, &p->key);
	case VALUE << 8 | 's':
		return st_add_pair(p, text, n);
	case START << 8 | '{':
	case TOP << 8 | '}':
	case TENSOR << 8 | '{':
	case SHAPE << 8 | '[':
	case RANGE << 8 | '[':
	case METADATA << 8 | '{':
		p->state++;
		return 0;
	case METADATA << 8 | 'x':
		if (!st_is("null", text, n))
			break;
		/* fall through */
	case PAIRS << 8 | '}':
		p->state = TOP;
		return 0;
	case OFFSETS << 8 | ']':
	case LENGTHS << 8 | ']':
		if (p->state == OFFSETS && p->ends != 2)
			break;
		p->state = FIELDS;
		return 0;
	}
	return st_refuse(p, expected[p->state]);
}

static int st_check_metadata(const struct sl_tensor_file *file)
{
	struct sl_names keys = {0};
	int rc = sl_names_init(&keys, file->metadata_count);

	for (size_t i = 0; !rc && i < file->metadata_count; i++) {
		struct sl_name *slot = sl_names_slot(&keys, file->metadata[i].key);

		if (slot->text)
			rc = sl_tensor_refuse(file, -EBADMSG, NULL,
			                      "'%.256s' is in its \"__metadata__\" twice",
			                      slot->text);
		slot->text = file->metadata[i].key;
	}
	free(keys.slots);
	return rc;
}

int sl_safetensors_read(struct sl_tensor_header *header)
{
	struct st_parser p = {.header = header};
	uint64_t length;
	int rc = sl_tensor_header_need(header, sizeof(length));

	header->file->format = "safetensors";
	if (rc)
		return rc;
	memcpy(&length, header->bytes, sizeof(length));
	length = le64toh(length);
	if (length > SL_TENSOR_HEADER_MOST)
		return sl_tensor_refuse(header->file, -EFBIG, NULL,
		                        "its header has %" PRIu64 " bytes, and may have 100 MB",
		                        length);
	p.begin = sizeof(length) + length;
	rc = sl_tensor_header_need(header, p.begin);
	if (!rc && (!length || header->bytes[sizeof(length)] != '{'))
		rc = st_refuse(&p, expected[START]);
	if (!rc)
		rc = sl_json_parse(header->file->name, header->bytes + sizeof(length), length,
		                   st_event, &p);
	if (!rc)
		rc = st_check_metadata(header->file);
	return rc ? rc : sl_tensor_header_sort(header, p.begin);
}
