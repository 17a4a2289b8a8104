/* SPDX-License-Identifier: Apache-2.0 */
/* Types of elements of any program's files, described as numpy does (see <sluice/arrays.h>), and
 * filters of chunks. Threads: any, with HDF5's lock. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h5file/h5file_internal.h"

#define NESTED_MOST 16 /* compounds in each other */
#define WORD        64

/* Returns '<', '>' or '|', or 0: another order. */
static char type_order(hid_t type)
{
	H5T_order_t order = H5Tget_order(type);

	if (H5Tget_size(type) == 1)
		return '|';
	return order == H5T_ORDER_LE ? '<' : order == H5T_ORDER_BE ? '>' : 0;
}

static int type_refuse(const char *what)
{
	return sl_fail(-ENOTSUP, "has %s, which cannot be read as bytes of a fixed type", what);
}

static int describe_integer(hid_t type, char word[WORD])
{
	size_t size = H5Tget_size(type);
	char order = type_order(type);

	if (!order || size > 8 || size & (size - 1) || H5Tget_precision(type) != 8 * size)
		return type_refuse("integers of an unusual length or order");
	snprintf(word, WORD, "%c%c%zu", order,
	         H5Tget_class(type) == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2 ? 'i' : 'u',
	         size);
	return 0;
}

/* IEEE 754 by the places of its parts, bfloat16, and the extended numbers of this machine. */
static int describe_float(hid_t type, char word[WORD])
{
	size_t size = H5Tget_size(type), sign, exponent, exponent_bits, mantissa, bits;
	size_t wanted = size == 2 ? 5 : size == 4 ? 8 : 11;
	char order = type_order(type);
	bool placed =
		H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &bits) >= 0 &&
		H5Tget_precision(type) == 8 * size && !mantissa && exponent == bits &&
		sign == 8 * size - 1 && exponent + exponent_bits == sign &&
		H5Tget_ebias(type) == (1u << (exponent_bits - 1)) - 1 &&
		H5Tget_norm(type) == H5T_NORM_IMPLIED;

	if (placed && order && (size == 2 || size == 4 || size == 8) && exponent_bits == wanted)
		snprintf(word, WORD, "%cf%zu", order, size);
	else if (placed && order && size == 2 && exponent_bits == 8)
		snprintf(word, WORD, "bfloat16%s", order == '>' ? " big-endian" : "");
	else if (H5Tequal(type, H5T_NATIVE_LDOUBLE) > 0)
		snprintf(word, WORD, "<f%zu", size);
	else
		return type_refuse("floating-point numbers of an unusual format");
	return 0;
}

/* h5py's bool: an enumeration of FALSE and TRUE. */
static bool enum_is_bool(hid_t type)
{
	signed char no = -1, yes = -1;

	return H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2 &&
	       H5Tenum_valueof(type, "FALSE", &no) >= 0 &&
	       H5Tenum_valueof(type, "TRUE", &yes) >= 0 && no == 0 && yes == 1;
}

static int describe_enum(hid_t type, char word[WORD])
{
	hid_t base;
	int rc;

	if (enum_is_bool(type)) {
		snprintf(word, WORD, "|b1");
		return 0;
	}
	base = H5Tget_super(type);
	rc = describe_integer(base, word);
	H5Tclose(base);
	return rc;
}

/* An opaque type may say what it is, as h5py has it for times: "NUMPY:<M8[ns]". */
static void describe_opaque(hid_t type, char word[WORD])
{
	char *tag = H5Tget_tag(type);

	snprintf(word, WORD, "|V%zu", H5Tget_size(type));
	if (tag && !strncmp(tag, "NUMPY:", 6) && strlen(tag + 6) < WORD && tag[6] &&
	    strchr("<>", tag[6]) && strchr("Mm", tag[7]) &&
	    strspn(tag + 6, "<>Mm[]abcdefghijklmnopqrstuvwxyzDYW0123456789") == strlen(tag + 6))
		snprintf(word, WORD, "%s", tag + 6);
	H5free_memory(tag);
}

/* Complex numbers, as h5py has them: members r and i of the same type. Of halves numpy has none. */
static bool describe_complex(hid_t type, char word[WORD])
{
	char *names[2] = {NULL, NULL};
	hid_t parts[2];
	bool is;

	if (H5Tget_nmembers(type) != 2)
		return false;
	for (unsigned i = 0; i < 2; i++) {
		names[i] = H5Tget_member_name(type, i);
		parts[i] = H5Tget_member_type(type, i);
	}
	is = names[0] && names[1] && !strcmp(names[0], "r") && !strcmp(names[1], "i") &&
	     H5Tequal(parts[0], parts[1]) > 0 && H5Tget_class(parts[0]) == H5T_FLOAT &&
	     H5Tget_size(parts[0]) > 2 && !H5Tget_member_offset(type, 0) &&
	     H5Tget_member_offset(type, 1) == H5Tget_size(parts[0]) &&
	     H5Tget_size(type) == 2 * H5Tget_size(parts[0]) && !describe_float(parts[0], word) &&
	     strchr("<>", word[0]);
	if (is)
		snprintf(word + 1, WORD - 1, "c%zu", H5Tget_size(type));
	for (unsigned i = 0; i < 2; i++) {
		H5free_memory(names[i]);
		H5Tclose(parts[i]);
	}
	return is;
}

static int describe_simple(hid_t type, char word[WORD])
{
	switch (H5Tget_class(type)) {
	case H5T_INTEGER:
	case H5T_BITFIELD:
		return describe_integer(type, word);
	case H5T_FLOAT:
		return describe_float(type, word);
	case H5T_ENUM:
		return describe_enum(type, word);
	case H5T_OPAQUE:
		describe_opaque(type, word);
		return 0;
	case H5T_STRING:
		if (H5Tis_variable_str(type) != 0)
			return type_refuse("texts of variable length");
		snprintf(word, WORD, "|S%zu", H5Tget_size(type));
		return 0;
	case H5T_VLEN:
		return type_refuse("lists of variable length");
	case H5T_REFERENCE:
		return type_refuse("references");
	case H5T_TIME:
		return type_refuse("times of HDF5");
	default:
		return type_refuse("elements of an unknown kind");
	}
}

/* Takes the array types off: *base is closed by the caller. */
static int type_strip(hid_t type, hid_t *base, unsigned *rank, hsize_t dims[SL_H5_DIMENSIONS])
{
	*base = H5Tcopy(type);
	*rank = 0;
	while (H5Tget_class(*base) == H5T_ARRAY) {
		int more = H5Tget_array_ndims(*base);
		hid_t super;

		if (more < 0 || *rank + (unsigned)more > SL_H5_DIMENSIONS ||
		    H5Tget_array_dims2(*base, dims + *rank) < 0)
			return type_refuse("arrays of too many dimensions");
		*rank += (unsigned)more;
		super = H5Tget_super(*base);
		H5Tclose(*base);
		*base = super;
	}
	return 0;
}

/* A text of Python. */
static void put_name(FILE *out, const char *name)
{
	bool valid = sl_utf8_valid(name, strlen(name));

	fputc('\'', out);
	for (; *name; name++) {
		unsigned char c = (unsigned char)*name;

		if (c == '\'' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < ' ' || c == 127 || (c > 127 && !valid))
			fprintf(out, "\\x%02x", c);
		else
			fputc(c, out);
	}
	fputc('\'', out);
}

static int describe_compound(FILE *out, hid_t type, unsigned nested);

static int describe_any(FILE *out, hid_t type, bool quoted, unsigned nested)
{
	char word[WORD] = "";
	int rc;

	if (H5Tget_class(type) == H5T_COMPOUND && !describe_complex(type, word))
		return describe_compound(out, type, nested);
	rc = word[0] ? 0 : describe_simple(type, word);
	fprintf(out, quoted ? "'%s'" : "%s", word);
	return rc;
}

struct member {
	unsigned index;
	size_t offset;
};

static int member_compare(const void *a, const void *b)
{
	const struct member *first = a, *second = b;

	return (first->offset > second->offset) - (first->offset < second->offset);
}

static int describe_member(FILE *out, hid_t type, unsigned index, unsigned nested)
{
	hid_t member = H5Tget_member_type(type, index), base = H5I_INVALID_HID;
	char *name = H5Tget_member_name(type, index);
	hsize_t dims[SL_H5_DIMENSIONS];
	unsigned rank = 0;
	int rc = type_strip(member, &base, &rank, dims);

	fputc('(', out);
	put_name(out, name && name[0] ? name : "_");
	fputs(", ", out);
	if (!rc)
		rc = describe_any(out, base, true, nested);
	for (unsigned i = 0; i < rank; i++)
		fprintf(out, "%s%llu%s", i ? " " : ", (", (unsigned long long)dims[i],
		        i + 1 < rank || rank == 1 ? "," : "");
	fputs(rank ? "))" : ")", out);
	H5free_memory(name);
	H5Tclose(base);
	H5Tclose(member);
	return rc;
}

/* Bytes between members are fields without a name. */
static int describe_compound(FILE *out, hid_t type, unsigned nested)
{
	int count = H5Tget_nmembers(type), rc = 0;
	struct member *members = count > 0 ? calloc((size_t)count, sizeof(*members)) : NULL;
	size_t end = 0, size = H5Tget_size(type);

	if (!members || nested >= NESTED_MOST) {
		free(members);
		return type_refuse("a compound type without members, or nested too deep");
	}
	for (unsigned i = 0; i < (unsigned)count; i++)
		members[i] = (struct member){i, H5Tget_member_offset(type, i)};
	qsort(members, (size_t)count, sizeof(*members), member_compare);
	fputc('[', out);
	for (int i = 0; !rc && i < count; i++) {
		hid_t member = H5Tget_member_type(type, members[i].index);

		if (members[i].offset < end)
			rc = type_refuse("a compound type whose members overlap");
		else if (members[i].offset > end)
			fprintf(out, "('', '|V%zu'), ", members[i].offset - end);
		end = members[i].offset + H5Tget_size(member);
		H5Tclose(member);
		if (!rc)
			rc = describe_member(out, type, members[i].index, nested + 1);
		fputs(i + 1 < count ? ", " : "", out);
	}
	if (size > end)
		fprintf(out, ", ('', '|V%zu')", size - end);
	fputc(']', out);
	free(members);
	return !rc && end > size ? type_refuse("a compound type shorter than its members") : rc;
}

int sl_h5_type_describe(hid_t type, char **out, unsigned *rank, hsize_t dims[SL_H5_DIMENSIONS])
{
	size_t length;
	hid_t base = H5I_INVALID_HID;
	FILE *text = open_memstream(out, &length);
	int rc = text ? type_strip(type, &base, rank, dims) : sl_fail(-ENOMEM, "has no memory");

	if (!rc)
		rc = describe_any(text, base, false, 0);
	if (base >= 0)
		H5Tclose(base);
	if (text && fclose(text) && !rc)
		rc = sl_fail(-ENOMEM, "has no memory");
	if (rc && text) {
		free(*out);
		*out = NULL;
	}
	return rc;
}

int sl_h5_filters_get(hid_t list, struct sl_filters *out)
{
	int count = H5Pget_nfilters(list);

	out->count = 0;
	if (count < 0 || count > SL_FILTERS_MOST)
		return sl_hdf5_fail(-EBADMSG, "has filters that cannot be read");
	for (; (int)out->count < count; out->count++) {
		struct sl_filter *filter = &out->filter[out->count];
		size_t values = SL_FILTER_VALUES;
		unsigned flags;

		*filter = (struct sl_filter){0};
		filter->number =
			(int)H5Pget_filter2(list, out->count, &flags, &values, filter->values,
		                            sizeof(filter->name), filter->name, NULL);
		filter->count = (unsigned)SL_MIN(values, SL_FILTER_VALUES);
	}
	return 0;
}
