/* SPDX-License-Identifier: Apache-2.0 */
/* Files of numpy: .npy, and .npz, which are .zip files of them. */
#include "tensors/format.h"

/* Writes an .npy file of `data` bytes; returns its length. */
static size_t write_npy(char *to, unsigned version, const char *dictionary, size_t data)
{
	uint32_t length = (uint32_t)strlen(dictionary);
	size_t begin = version == 1 ? 10 : 12;

	memcpy(to, "\x93NUMPY", 6);
	to[6] = (char)version;
	to[7] = 0;
	memcpy(to + 8, &length, begin - 8);
	memcpy(to + begin, dictionary, length);
	memset(to + begin + length, 7, data);
	return begin + length + data;
}

#define NPY(descr, fortran, shape) \
	"{'descr': '" descr "', 'fortran_order': " fortran ", 'shape': " shape ", }     \n"

FIXTURE_TEST(an_npy_file_is_a_tensor_with_its_name)
{
	static const struct {
		const char *descr;
		int type;
		unsigned bytes;
	} types[] = {
		{"|b1", SLUICE_BOOL, 1},      {"|i1", SLUICE_INT8, 1},
		{"|u1", SLUICE_UINT8, 1},     {"<i2", SLUICE_INT16, 2},
		{"<u2", SLUICE_UINT16, 2},    {"<i4", SLUICE_INT32, 4},
		{"<u4", SLUICE_UINT32, 4},    {"<i8", SLUICE_INT64, 8},
		{"<u8", SLUICE_UINT64, 8},    {"<f2", SLUICE_FLOAT16, 2},
		{"<f4", SLUICE_FLOAT32, 4},   {"<f8", SLUICE_FLOAT64, 8},
		{"<c8", SLUICE_COMPLEX64, 8}, {"<c16", SLUICE_COMPLEX128, 16},
	};

	for (unsigned i = 0; i < COUNT_OF(types); i++) {
		char bytes[TEXT], dictionary[256], name[64];
		struct sluice_tensor tensor;
		sluice_tensors *t;
		size_t n;

		snprintf(dictionary, sizeof(dictionary), NPY("%s", "False", "(2, 3)"),
		         types[i].descr);
		snprintf(name, sizeof(name), "array-%u.npy", i);
		n = write_npy(bytes, 1 + i % 3, dictionary, types[i].bytes * 6);
		t = opened(f, made(f, name, bytes, n));
		assert_int_equal(sluice_tensors_count(t), 1);
		tensor = got(t, 0);
		if (!row_is_store()) {
			snprintf(name, sizeof(name), "array-%u", i);
			assert_string_equal(tensor.name, name);
		}
		assert_int_equal(tensor.type, types[i].type);
		assert_int_equal(tensor.rank, 2);
		assert_int_equal(tensor.shape[1], 3);
		assert_int_equal(tensor.bytes, types[i].bytes * 6);
		assert_int_equal(tensor.offset, n - tensor.bytes);
		sluice_tensors_free(t);
	}
}

static const struct {
	const char *dictionary;
	size_t data;
	int error; /* 0: none */
	const char *says;
} npys[] = {
	{NPY("<f4", "False", "()"), 4, 0, ""},
	{NPY("<f4", "True", "(2,)"), 8, 0, ""},
	{"{'shape':(2,),'fortran_order':False,'descr':'<f4'}", 8, 0, ""},
	{NPY("<f4", "True", "(2, 1)"), 8, ENOTSUP, "Fortran"},
	{NPY(">f4", "False", "(2,)"), 8, ENOTSUP, "'>f4' is not known: it is big endian"},
	{NPY("|V2", "False", "(2,)"), 4, ENOTSUP, "'|V2'"},
	{NPY("|O", "False", "(2,)"), 4, ENOTSUP, "'|O'"},
	{NPY("<U3", "False", "(2,)"), 4, ENOTSUP, "'<U3'"},
	{NPY("|f4", "False", "(2,)"), 8, ENOTSUP, "'|f4'"},
	{"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4, ENOTSUP,
         "structs"},
	{NPY("<f4", "False", "(2,)"), 7, EBADMSG, "it has 7 bytes, and its type and shape 64 bits"},
	{NPY("<f4", "False", "(2,)"), 9, EBADMSG, "it has 9 bytes"},
	{NPY("<f4", "False", "(-2,)"), 8, EBADMSG, "no dictionary"},
	{NPY("<f4", "False", "(2.0,)"), 8, EBADMSG, "no dictionary"},
	{NPY("<f4", "False", "(18446744073709551616,)"), 8, EBADMSG, "no dictionary"},
	{NPY("<f4", "False", "(9223372036854775807, 4)"), 8, EBADMSG, "too many elements"},
	{NPY("<f4", "False", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2)"), 8, EBADMSG, "16 dimensions"},
	{NPY("<f4", "False", "(2,"), 8, EBADMSG, "no dictionary"},
	{NPY("<f4", "false", "(2,)"), 8, EBADMSG, "no dictionary"},
	{"{'descr': '<f4', 'shape': (2,), }", 8, EBADMSG, "no dictionary"},
	{"{'descr': '<f4', 'fortran_order': False, 'shape': (2", 8, EBADMSG, "no dictionary"},
	{"{'descr': '<f4", 8, EBADMSG, "no dictionary"},
	{"", 8, EBADMSG, "no dictionary"},
};

FIXTURE_TEST(an_npy_file_that_is_wrong_is_refused)
{
	char bytes[TEXT], name[64];

	for (size_t i = 0; i < COUNT_OF(npys); i++) {
		size_t n = write_npy(bytes, 1, npys[i].dictionary, npys[i].data);

		snprintf(name, sizeof(name), "npy-%zu", i);
		print_message("%s\n", npys[i].dictionary);
		if (npys[i].error)
			assert_open_refused(f, made(f, name, bytes, n), npys[i].error,
			                    npys[i].says);
		else
			sluice_tensors_free(opened(f, made(f, name, bytes, n)));
	}
	write_npy(bytes, 1, npys[0].dictionary, 4);
	bytes[6] = 4;
	assert_open_refused(f, made(f, "version", bytes, 100), ENOTSUP, "version 4.0");
	bytes[6] = 2;
	assert_open_refused(f, made(f, "length", bytes, 100), EBADMSG, "ends behind its bytes");
	assert_open_refused(f, made(f, "cut", bytes, 11), EBADMSG, "no .npy file");
}

struct zip {
	char bytes[1 << 17], directory[1 << 14];
	size_t n, directory_bytes, entries;
};

static void put(char *to, uint64_t number, unsigned n)
{
	memcpy(to, &number, n);
}

/* Adds a member with an extra field of 20 bytes, as numpy.savez() does. */
static void zip_add(struct zip *zip, const char *name, const char *bytes, size_t n, bool zip64)
{
	size_t length = strlen(name), extra = zip64 ? 28 : 0;
	char *member = zip->bytes + zip->n, *entry = zip->directory + zip->directory_bytes;

	memcpy(member, "PK\3\4", 4);
	put(member + 26, length, 2);
	put(member + 28, 20, 2);
	memcpy(member + 30, name, length);
	memcpy(member + 30 + length + 20, bytes, n);
	memcpy(entry, "PK\1\2", 4);
	put(entry + 20, zip64 ? UINT32_MAX : n, 4);
	put(entry + 24, zip64 ? UINT32_MAX : n, 4);
	put(entry + 28, length, 2);
	put(entry + 30, extra, 2);
	put(entry + 42, zip64 ? UINT32_MAX : zip->n, 4);
	memcpy(entry + 46, name, length);
	if (zip64) {
		put(entry + 46 + length, 1, 2);
		put(entry + 46 + length + 2, 24, 2);
		put(entry + 46 + length + 4, n, 8);
		put(entry + 46 + length + 12, n, 8);
		put(entry + 46 + length + 20, zip->n, 8);
	}
	zip->n += 30 + length + 20 + n;
	zip->directory_bytes += 46 + length + extra;
	zip->entries++;
}

static void zip_end(struct zip *zip, bool zip64)
{
	size_t begin = zip->n;
	char *end;

	memcpy(zip->bytes + zip->n, zip->directory, zip->directory_bytes);
	zip->n += zip->directory_bytes;
	end = zip->bytes + zip->n;
	if (zip64) {
		memcpy(end, "PK\6\6", 4);
		put(end + 40, zip->directory_bytes, 8);
		put(end + 48, begin, 8);
		memcpy(end + 56, "PK\6\7", 4);
		put(end + 56 + 8, zip->n, 8);
		zip->n += 76;
		end += 76;
	}
	memcpy(end, "PK\5\6", 4);
	put(end + 12, zip64 ? UINT32_MAX : zip->directory_bytes, 4);
	put(end + 16, zip64 ? UINT32_MAX : begin, 4);
	put(end + 20, 3, 2);
	memcpy(end + 22, "...", 3);
	zip->n += 25;
}

/* Makes an archive of `count` arrays of 2 floats. */
static struct zip *zip_new(size_t count, bool zip64)
{
	struct zip *zip = calloc(1, sizeof(*zip));
	char bytes[TEXT], name[64];

	for (size_t i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "array %zu.npy", i);
		zip_add(zip, name, bytes, write_npy(bytes, 1, NPY("<f4", "False", "(2,)"), 8),
		        zip64);
	}
	return zip;
}

FIXTURE_TEST(members_of_an_npz_file_are_tensors)
{
	for (int zip64 = 0; zip64 < 2; zip64++)
		for (size_t count = 0; count < 140; count = 3 * count + 1) {
			struct zip *zip = zip_new(count, zip64);
			char name[64];
			sluice_tensors *t;

			zip_end(zip, zip64);
			snprintf(name, sizeof(name), "%d-%zu.npz", zip64, count);
			t = opened(f, made(f, name, zip->bytes, zip->n));
			assert_int_equal(sluice_tensors_count(t), count);
			for (size_t i = 0; i < count; i++) {
				snprintf(name, sizeof(name), "array %zu", i);
				assert_string_equal(got(t, i).name, name);
				assert_int_equal(zip->bytes[got(t, i).offset - 1], '\n');
				assert_int_equal(zip->bytes[got(t, i).offset], 7);
				assert_int_equal(got(t, i).bytes, 8);
			}
			sluice_tensors_free(t);
			free(zip);
		}
}

enum { ENTRY_0, MEMBER_0, END_0 };

FIXTURE_TEST(an_npz_file_that_is_wrong_is_refused)
{
	static const struct {
		int of, at;
		unsigned bytes;
		uint64_t number;
		int error;
		const char *says;
	} cases[] = {
		{ENTRY_0, 10, 2, 8, ENOTSUP, "tensor 'array 0': it is compressed"},
		{ENTRY_0, 8, 2, 1, ENOTSUP, "it is compressed or encrypted"},
		{ENTRY_0, 0, 1, 'p', EBADMSG, "something else"},
		{ENTRY_0, 28, 2, 60000, EBADMSG, "ends in an entry"},
		{ENTRY_0, 20, 4, 5, EBADMSG, "ends behind the directory"},
		{ENTRY_0, 24, 4, 1 << 30, EBADMSG, "ends behind the directory"},
		{ENTRY_0, 42, 4, 1 << 30, EBADMSG, "ends behind the directory"},
		{ENTRY_0, 42, 4, 1, EBADMSG, "not where the directory says"},
		{ENTRY_0, 46, 1, 0xff, EBADMSG, "no UTF-8"},
		{ENTRY_0, 46, 1, 0, EBADMSG, "a zero byte"},
		{MEMBER_0, 3, 1, 5, EBADMSG, "not where the directory says"},
		{MEMBER_0, 26, 2, 3, EBADMSG, "not where the directory says"},
		{MEMBER_0, 28, 2, 60000, EBADMSG, "ends behind the directory"},
		{MEMBER_0, 28, 2, 21, EBADMSG, "no .npy file"},
		{END_0, 0, 1, 'p', EBADMSG, "it has no end"},
		{END_0, 20, 2, 9, EBADMSG, "it has no end"},
		{END_0, 12, 4, 1 << 30, EBADMSG, "directory lies elsewhere"},
		{END_0, 16, 4, 1 << 30, EBADMSG, "directory lies elsewhere"},
	};
	struct zip *zip;

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char name[64];
		size_t directory;

		zip = zip_new(2, false);
		directory = zip->n;
		zip_end(zip, false);
		put(zip->bytes +
		            (cases[i].of == ENTRY_0    ? directory
		             : cases[i].of == MEMBER_0 ? 0
		                                       : zip->n - 25) +
		            cases[i].at,
		    cases[i].number, cases[i].bytes);
		snprintf(name, sizeof(name), "wrong-%zu.npz", i);
		print_message("%s: %s\n", name, cases[i].says);
		assert_open_refused(f, made(f, name, zip->bytes, zip->n), cases[i].error,
		                    cases[i].says);
		free(zip);
	}
	zip = zip_new(2, false);
	memcpy(zip->directory + 46 + 11, zip->directory, 46);
	zip_end(zip, false);
	assert_open_refused(f, made(f, "overlap", zip->bytes, zip->n), EBADMSG,
	                    "before the end of");
	free(zip);
	zip = zip_new(0, false);
	zip_add(zip, "text", "a text of some bytes", 20, false);
	zip_end(zip, false);
	assert_open_refused(f, made(f, "text.npz", zip->bytes, zip->n), EBADMSG,
	                    "tensor 'text': it is no .npy");
	free(zip);
}
