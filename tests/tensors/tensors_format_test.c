/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tensors: those that are right are listed as they are, and each that is not is refused with its reason. */
#include <inttypes.h>

#include "core/core.h"
#include "tensors/format.h"

/* Makes a file of a header with a length, and `data` bytes behind it. */
static const char *made_safetensors(struct fixture *f, const char *name, const char *json,
                                    size_t data)
{
	uint64_t length = strlen(json);
	size_t n = 8 + length + data;
	char *bytes = calloc(1, n);
	const char *uri;

	memcpy(bytes, &length, 8);
	memcpy(bytes + 8, json, length);
	uri = made(f, name, bytes, n);
	free(bytes);
	return uri;
}

/* -------------------------------------------------------------------------------- safetensors */

FIXTURE_TEST(every_type_is_listed_with_its_bytes)
{
	static const struct {
		const char *dtype;
		int type;
		unsigned bits;
	} types[] = {
		{"BOOL", SLUICE_BOOL, 8},
		{"U8", SLUICE_UINT8, 8},
		{"I8", SLUICE_INT8, 8},
		{"F8_E5M2", SLUICE_FLOAT8_E5M2, 8},
		{"F8_E4M3", SLUICE_FLOAT8_E4M3, 8},
		{"F8_E8M0", SLUICE_FLOAT8_E8M0, 8},
		{"F8_E4M3FNUZ", SLUICE_FLOAT8_E4M3FNUZ, 8},
		{"F8_E5M2FNUZ", SLUICE_FLOAT8_E5M2FNUZ, 8},
		{"F6_E2M3", SLUICE_FLOAT6_E2M3, 6},
		{"F6_E3M2", SLUICE_FLOAT6_E3M2, 6},
		{"F4", SLUICE_FLOAT4_E2M1, 4},
		{"I16", SLUICE_INT16, 16},
		{"U16", SLUICE_UINT16, 16},
		{"F16", SLUICE_FLOAT16, 16},
		{"BF16", SLUICE_BFLOAT16, 16},
		{"I32", SLUICE_INT32, 32},
		{"U32", SLUICE_UINT32, 32},
		{"F32", SLUICE_FLOAT32, 32},
		{"C64", SLUICE_COMPLEX64, 64},
		{"I64", SLUICE_INT64, 64},
		{"U64", SLUICE_UINT64, 64},
		{"F64", SLUICE_FLOAT64, 64},
	};
	char json[TEXT] = "{", text[256];
	uint64_t at = 0, begin;
	sluice_tensors *t;

	for (size_t i = 0; i < COUNT_OF(types); i++) {
		uint64_t bytes = types[i].bits * 12 / 8;

		snprintf(text, sizeof(text),
		         "%s\"t%zu\":{\"dtype\":\"%s\",\"shape\":[3,4],\"data_offsets\":[%" PRIu64
		         ",%" PRIu64 "]}",
		         i ? "," : "", i, types[i].dtype, at, at + bytes);
		strcat(json, text);
		at += bytes;
	}
	strcat(json, "}  ");
	begin = 8 + strlen(json);
	t = opened(f, made_safetensors(f, "types", json, at));
	assert_int_equal(sluice_tensors_count(t), COUNT_OF(types));
	for (size_t i = 0; i < COUNT_OF(types); i++) {
		struct sluice_tensor tensor = got(t, i);

		assert_int_equal(tensor.type, types[i].type);
		assert_int_equal(tensor.bytes, types[i].bits * 12 / 8);
		assert_int_equal(tensor.rank, 2);
		assert_int_equal(tensor.shape[0], 3);
		assert_int_equal(tensor.shape[1], 4);
		assert_int_equal(tensor.file, 0);
		assert_int_equal(tensor.offset, begin);
		begin += tensor.bytes;
	}
	sluice_tensors_free(t);
}

FIXTURE_TEST(each_rank_from_0_to_16_keeps_its_shape)
{
	char json[TEXT] = "{", text[256];
	unsigned at = 0;
	sluice_tensors *t;

	for (unsigned rank = 0; rank <= 16; rank++) {
		snprintf(text, sizeof(text), "%s\"%u\":{\"shape\":[", rank ? "," : "", rank);
		strcat(json, text);
		for (unsigned i = 0; i < rank; i++)
			strcat(json, i == 0 ? "7" : i == 1 ? ",2" : ",1");
		snprintf(text, sizeof(text), "],\"data_offsets\":[%u,%u],\"dtype\":\"U8\"}", at,
		         at + (rank == 0   ? 1
		               : rank == 1 ? 7
		                           : 14));
		strcat(json, text);
		at += rank == 0 ? 1 : rank == 1 ? 7 : 14;
	}
	strcat(json, "}");
	t = opened(f, made_safetensors(f, "ranks", json, at));
	for (unsigned rank = 0; rank <= 16; rank++) {
		struct sluice_tensor tensor = got(t, rank);

		assert_int_equal(tensor.rank, rank);
		for (unsigned i = 0; i < rank; i++)
			assert_int_equal(tensor.shape[i], i == 0 ? 7 : i == 1 ? 2 : 1);
	}
	sluice_tensors_free(t);
}

FIXTURE_TEST(tensors_are_in_the_order_of_their_bytes_and_found_by_any_name)
{
	const char *uri = made_safetensors(
		f, "order",
		"{\"b\":{\"more\":[{\"a\":[1,null]},\"x\",{}],\"dtype\":\"U8\",\"shape\":[4],"
		"\"more\":true,"
		"\"data_offsets\":[3,7]},"
		"\"__metadata__\":{\"format\":\"pt\",\"\":\"\xc3\xa4\"},"
		"\"empty\":{\"dtype\":\"F64\",\"shape\":[18446744073709551615,0,4],\"data_"
		"offsets\":[7,7]},"
		"\"\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[7,8]},"
		"\"first\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
		"\"a\\u00e4\\n\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
		8);
	struct sluice_tensor_file file = {.size = sizeof(file)};
	struct sluice_tensor tensor = {.size = sizeof(tensor)};
	const char *key, *value, *const names[] = {"first", "a\xc3\xa4\n", "b", "empty", ""};
	sluice_tensors *t = opened(f, uri);
	size_t index;

	assert_int_equal(sluice_tensors_count(t), 5);
	for (size_t i = 0; i < 5; i++) {
		assert_string_equal(got(t, i).name, names[i]);
		assert_string_equal(found(t, names[i]).name, names[i]);
	}
	assert_int_equal(found(t, "empty").bytes, 0);
	assert_int_equal(found(t, "empty").rank, 3);
	assert_refused(sluice_tensors_find(t, "c", &index), ENOENT, "'c'");
	assert_refused(sluice_tensors_get(t, 5, &tensor), ENOENT, "5");
	assert_ok(sluice_tensors_file(t, 0, &file));
	assert_string_equal(file.format, "safetensors");
	assert_non_null(strstr(file.name, "order"));
	assert_int_equal(file.bytes, found(t, "").offset + 1);
	assert_int_equal(file.metadata, 2);
	assert_ok(sluice_tensors_metadata(t, 0, 0, &key, &value));
	assert_string_equal(key, "format");
	assert_string_equal(value, "pt");
	assert_ok(sluice_tensors_metadata(t, 0, 1, &key, &value));
	assert_string_equal(value, "\xc3\xa4");
	assert_refused(sluice_tensors_metadata(t, 0, 2, &key, &value), ENOENT, "2");
	assert_refused(sluice_tensors_file(t, 1, &file), ENOENT, "1");
	sluice_tensors_free(t);
	t = opened(f, made_safetensors(f, "none", "{\"__metadata__\":null}", 0));
	assert_int_equal(sluice_tensors_count(t), 0);
	sluice_tensors_free(t);
}

/* Names of the length and the kind of those of a model. */
#define MANY 20000
static char *many_json(size_t first, size_t count)
{
	char *json = malloc(count * 160 + 64), *end = json + sprintf(json, "{");

	for (size_t i = first; i < first + count; i++)
		end += sprintf(end,
		               "%s\"model.layers.%zu.mlp.experts.%zu.down_proj.weight\":{\"dtype\":"
		               "\"BF16\","
		               "\"shape\":[2,%zu],\"data_offsets\":[%zu,%zu]}",
		               i > first ? "," : "", i / 128, i % 128, (size_t)1, 4 * (i - first),
		               4 * (i - first + 1));
	strcpy(end, "}");
	return json;
}

FIXTURE_TEST(tensors_of_20000_are_found_in_a_few_milliseconds)
{
	char *json = many_json(0, MANY), name[128];
	const char *uri = made_safetensors(f, "many", json, 4 * MANY);
	double begun = seconds_now(), best = 1;
	sluice_tensors *t;

	for (int i = 0; i < 3; i++) {
		begun = seconds_now();
		t = opened(f, uri);
		best = SL_MIN(best, seconds_now() - begun);
		assert_int_equal(sluice_tensors_count(t), MANY);
		if (i < 2)
			sluice_tensors_free(t);
	}
	print_message("opened in %.1f ms\n", best * 1e3);
	for (size_t i = 0; i < MANY; i += 7) {
		snprintf(name, sizeof(name), "model.layers.%zu.mlp.experts.%zu.down_proj.weight",
		         i / 128, i % 128);
		assert_int_equal(found(t, name).offset, 8 + strlen(json) + 4 * i);
	}
	sluice_tensors_free(t);
	free(json);
}

#define T(fields)   "{\"a\":{" fields "}}"
#define U8(b, e)    "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #b "," #e "]"
#define SHAPE(text) T("\"dtype\":\"U8\",\"data_offsets\":[0,4],\"shape\":" text)
#define RANGE(text) T("\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" text)

FIXTURE_TEST(a_header_that_is_wrong_is_refused_with_the_reason)
{
	static const struct {
		const char *json;
		size_t data;
		int error;
		const char *says;
	} cases[] = {
		{T(U8(0, 4)), 3, EBADMSG, "tensor 'a': it has 4 bytes from"},
		{T(U8(0, 4)), 5, EBADMSG, "belong to no tensor"},
		{T(U8(1, 5)), 5, EBADMSG, "on belong to no tensor"},
		{T(U8(4, 0)), 4, EBADMSG, "are not in order"},
		{T(U8(0, 5)), 5, EBADMSG,
	         "tensor 'a': it has 5 bytes, and its type and shape 32 bits"},
		{T(U8(18446744073709551612, 18446744073709551615)), 4, EBADMSG, "a"},
		{"{\"a\":{" U8(0, 4) "},\"b\":{" U8(3, 7) "}}", 7, EBADMSG,
	         "tensor 'b': it begins before the end of 'a'"},
		{"{\"a\":{" U8(0, 4) "},\"b\":{" U8(0, 4) "}}", 4, EBADMSG,
	         "before the end of 'a'"},
		{"{\"a\":{" U8(0, 4) "},\"b\":{" U8(8, 12) "}}", 12, EBADMSG,
	         "on belong to no tensor"},
		{"{\"a\":{" U8(0, 4) "},\"a\":{" U8(4, 8) "}}", 8, EBADMSG,
	         "tensor 'a': this name is in"},
		{"{\"a\":{" U8(0, 4) "},\"\\u0061\":{" U8(4, 8) "}}", 8, EBADMSG,
	         "tensor 'a': this name"},
		{"{\"__metadata__\":{},\"__metadata__\":{}}", 0, EBADMSG, "is there twice"},
		{"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, EBADMSG, "'k' is in its"},
		{"{\"__metadata__\":{\"k\":1}}", 0, EBADMSG, "no object of texts"},
		{"{\"__metadata__\":{\"k\":{}}}", 0, EBADMSG, "no object of texts"},
		{"{\"__metadata__\":\"k\"}", 0, EBADMSG, "is no object"},
		{"{\"__metadata__\":false}", 0, EBADMSG, "is no object"},
		{"{\"__metadata__\":null,\"__metadata__\":null}", 0, EBADMSG, "is there twice"},
		{"{\"\\ud800\":{" U8(0, 4) "}}", 4, EBADMSG, "half of a surrogate pair at byte 2"},
		{"{\"\\\\\\udc00\":{" U8(0, 4) "}}", 4, EBADMSG,
	         "half of a surrogate pair at byte 4"},
		{"{\"\\ud83dx\\ude00\":{" U8(0, 4) "}}", 4, EBADMSG, "half of a surrogate pair"},
		{"{\"\\ud83d\\ud83d\":{" U8(0, 4) "}}", 4, EBADMSG, "half of a surrogate pair"},
		{"{\"__metadata__\":{\"k\":\"\\udfff\"}}", 0, EBADMSG, "half of a surrogate pair"},
		{T(U8(0, 4) ",\"dtype\":\"U8\""), 4, EBADMSG, "it has a \"dtype\" twice"},
		{T(U8(0, 4) ",\"shape\":[4]"), 4, EBADMSG, "it has a \"shape\" twice"},
		{T(U8(0, 4) ",\"data_offsets\":[0,4]"), 4, EBADMSG,
	         "it has a \"data_offsets\" twice"},
		{T(U8(0, 4) ",\"more\":[{\"a\":[}]"), 4, EBADMSG, "no valid JSON"},
		{T("\"more\":{}"), 4, EBADMSG, "is missing"},
		{T("\"dtype\":\"U8\",\"shape\":[4]"), 4, EBADMSG, "is missing"},
		{T("\"dtype\":\"U9\",\"shape\":[4],\"data_offsets\":[0,4]"), 4, ENOTSUP,
	         "type 'U9'"},
		{T("\"dtype\":\"\",\"shape\":[4],\"data_offsets\":[0,4]"), 4, ENOTSUP, "type ''"},
		{T("\"dtype\":8,\"shape\":[4],\"data_offsets\":[0,4]"), 4, EBADMSG,
	         "\"dtype\" is no text"},
		{SHAPE("[-4]"), 4, EBADMSG, "-4 is no length"},
		{SHAPE("[4.0]"), 4, EBADMSG, "4.0 is no length"},
		{SHAPE("[4e0]"), 4, EBADMSG, "4e0 is no length"},
		{SHAPE("[36893488147419103236]"), 4, EBADMSG, "36893488147419103236 is no length"},
		{SHAPE("[\"4\"]"), 4, EBADMSG, "\"shape\" is no array of numbers"},
		{SHAPE("[[4]]"), 4, EBADMSG, "\"shape\" is no array of numbers"},
		{SHAPE("[null]"), 4, EBADMSG, "\"shape\" is no array of numbers"},
		{SHAPE("[true]"), 4, EBADMSG, "\"shape\" is no array of numbers"},
		{SHAPE("{}"), 4, EBADMSG, "\"shape\" is no array"},
		{SHAPE("4"), 4, EBADMSG, "\"shape\" is no array"},
		{SHAPE("[4,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"), 4, EBADMSG,
	         "more than 16 dimensions"},
		{SHAPE("[4294967296,4294967296,1]"), 4, EBADMSG, "too many elements"},
		{SHAPE("[4611686018427387905,4]"), 4, EBADMSG, "too many elements"},
		{SHAPE("[2305843009213693952]"), 4, EBADMSG, "too many elements"},
		{T("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), 2, EBADMSG, "12 bits"},
		{T("\"dtype\":\"F6_E2M3\",\"shape\":[5],\"data_offsets\":[0,4]"), 4, EBADMSG,
	         "30 bits"},
		{RANGE("[0]"), 4, EBADMSG, "not two numbers"},
		{RANGE("[0,4,4]"), 4, EBADMSG, "not two numbers"},
		{RANGE("[]"), 4, EBADMSG, "not two numbers"},
		{RANGE("[0,-4]"), 4, EBADMSG, "-4 is no length or offset"},
		{RANGE("[0.5,4]"), 4, EBADMSG, "0.5 is no length or offset"},
		{RANGE("4"), 4, EBADMSG, "\"data_offsets\" are no array"},
		{"{\"a\":[]}", 0, EBADMSG, "tensor 'a': its value is no object"},
		{"{\"a\":null}", 0, EBADMSG, "tensor 'a': its value is no object"},
		{"[]", 0, EBADMSG, "its header is no object"},
		{" {}", 0, EBADMSG, "its header is no object"},
		{"", 0, EBADMSG, "its header is no object"},
		{"{", 0, EBADMSG, "no valid JSON"},
		{"{}{}", 0, EBADMSG, "no valid JSON"},
		{"{} x", 0, EBADMSG, "no valid JSON"},
		{"{/**/}", 0, EBADMSG, "no valid JSON"},
		{"{\"a\xff\":{" U8(0, 4) "}}", 4, EBADMSG, "no valid JSON"},
		{"{\"a\xc0\x80\":{" U8(0, 4) "}}", 4, EBADMSG, "no UTF-8"},
		{"{\"a\xed\xa0\x80\":{" U8(0, 4) "}}", 4, EBADMSG, "no UTF-8"},
		{"{\"a\\u0000\":{" U8(0, 4) "}}", 4, EBADMSG, "a zero byte"},
		{"{\"__metadata__\":{\"k\":\"\xc0\x80\"}}", 0, EBADMSG, "no UTF-8"},
		{"{\"a\n\":{" U8(0, 4) "}}", 4, EBADMSG, "no valid JSON"},
		{"{\"a\\n\":{" U8(0, 3) "}}", 3, EBADMSG, "tensor 'a?'"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char name[64];

		snprintf(name, sizeof(name), "wrong-%zu.safetensors", i);
		print_message("%s\n", cases[i].json);
		assert_open_refused(f, made_safetensors(f, name, cases[i].json, cases[i].data),
		                    cases[i].error, cases[i].says);
		assert_non_null(strstr(sluice_last_message(), name));
	}
}

FIXTURE_TEST(a_length_that_lies_is_refused_before_memory_is_taken_for_it)
{
	static const struct {
		uint64_t length;
		int error;
		const char *says;
	} cases[] = {
		{3, EBADMSG, "and its header 11"},
		{99999999, EBADMSG, "and its header 100000007"},
		{100000001, EFBIG, "may have 100 MB"},
		{UINT64_MAX, EFBIG, "may have 100 MB"},
		{UINT64_MAX - 7, EFBIG, "may have 100 MB"},
	};
	unsigned char bytes[10] = "........{}";
	size_t resident = resident_bytes();

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char name[64];

		snprintf(name, sizeof(name), "length-%zu", i);
		memcpy(bytes, &cases[i].length, 8);
		assert_open_refused(f, made(f, name, bytes, sizeof(bytes)), cases[i].error,
		                    cases[i].says);
	}
	assert_open_refused(f, made(f, "short.safetensors", "\2\0\0", 3), EBADMSG, "its header 8");
	if (!under_sanitizer())
		assert_true(resident_bytes() < resident + 16 * MIB);
}

FIXTURE_TEST(a_format_that_is_not_known_is_refused)
{
	static const char *const bytes[] = {"",         "x",         "GGUF\3\0\0\0........",
	                                    "\x93NUMP", "{\"a\":1}", "{}"};

	for (size_t i = row_is_store(); i < COUNT_OF(bytes); i++) {
		char name[64];

		snprintf(name, sizeof(name), "unknown-%zu", i);
		assert_open_refused(f, made(f, name, bytes[i], i == 2 ? 16 : strlen(bytes[i])),
		                    EPROTO, name);
	}
}

/* -------------------------------------------------------------------------------- several files */

FIXTURE_TEST(a_name_is_unique_among_files)
{
	const char *uris[3];
	sluice_tensors *t = NULL;
	char *json;

	json = many_json(0, 10);
	uris[0] = strdup(made_safetensors(f, "one", json, 40));
	uris[2] = strdup(made_safetensors(f, "three", json, 40));
	free(json);
	json = many_json(10, 10);
	uris[1] = strdup(made_safetensors(f, "two", json, 40));
	free(json);
	assert_ok(sluice_tensors_open(f->ctx, uris, 2, NULL, &t));
	assert_int_equal(sluice_tensors_count(t), 20);
	for (size_t i = 0; i < 20; i++)
		assert_int_equal(got(t, i).file, i / 10);
	sluice_tensors_free(t);
	t = NULL;
	assert_refused(sluice_tensors_open(f->ctx, uris, 3, NULL, &t), EBADMSG, "one', too");
	assert_null(t);
	assert_refused(sluice_tensors_open(f->ctx, uris, 0, NULL, &t), EINVAL, "no files");
	for (size_t i = 0; i < 3; i++)
		free((void *)uris[i]);
}

FIXTURE_TEST(the_error_of_a_file_among_many_is_told)
{
	enum { FILES = 40 };
	const char *uris[FILES];
	sluice_tensors *t = NULL;

	for (size_t i = 0; i < FILES; i++) {
		char name[64], *json = many_json(3 * i, 3);

		snprintf(name, sizeof(name), "file-%zu", i);
		uris[i] = strdup(made_safetensors(f, name, json, 12));
		free(json);
	}
	assert_ok(sluice_tensors_open(f->ctx, uris, FILES, NULL, &t));
	assert_int_equal(sluice_tensors_count(t), 3 * FILES);
	sluice_tensors_free(t);
	t = NULL;
	made_safetensors(f, "bad", "{", 12);
	free((void *)uris[17]);
	uris[17] = strdup(address(f, "bad"));
	assert_refused(sluice_tensors_open(f->ctx, uris, FILES, NULL, &t), EBADMSG, "bad");
	assert_null(t);
	for (size_t i = 0; i < FILES; i++)
		free((void *)uris[i]);
}

FIXTURE_TEST(an_index_opens_the_files_beside_it)
{
	static const char index[] =
		" {\"metadata\":{\"total_size\":8,\"deep\":[{\"weight_map\":[1]}]},\"weight_map\":"
		"{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}";
	struct sluice_tensor_file file = {.size = sizeof(file)};
	sluice_tensors *t;

	if (row_is_store())
		SKIP("blobs get their names from the test");
	made_safetensors(f, "1.safetensors", "{\"b\":{" U8(0, 4) "},\"more\":{" U8(4, 8) "}}", 8);
	made_safetensors(f, "2.safetensors", "{\"a\":{" U8(0, 4) "},\"c\":{" U8(4, 8) "}}", 8);
	t = opened(f, made(f, "model.safetensors.index.json", index, strlen(index)));
	assert_int_equal(sluice_tensors_count(t), 4);
	assert_int_equal(found(t, "a").file, 1);
	assert_int_equal(found(t, "b").file, 0);
	assert_int_equal(found(t, "more").file, 0);
	assert_ok(sluice_tensors_file(t, 1, &file));
	assert_non_null(strstr(file.name, "/2.safetensors"));
	assert_string_equal(file.format, "safetensors");
	assert_refused(sluice_tensors_file(t, 2, &file), ENOENT, "2");
	sluice_tensors_free(t);
}

FIXTURE_TEST(an_index_that_is_wrong_is_refused)
{
	static const struct {
		const char *map;
		int error;
		const char *says;
	} cases[] = {
		{"{\"a\":\"../1.safetensors\"}", EBADMSG,
	         "tensor 'a': '../1.safetensors' is no name"},
		{"{\"a\":\"x/1.safetensors\"}", EBADMSG, "is no name"},
		{"{\"a\":\"/etc/passwd\"}", EBADMSG, "is no name"},
		{"{\"a\":\"http://h/1.safetensors\"}", EBADMSG, "is no name"},
		{"{\"a\":\"..\"}", EBADMSG, "is no name"},
		{"{\"a\":\".\"}", EBADMSG, "is no name"},
		{"{\"a\":\"\"}", EBADMSG, "is no name"},
		{"{\"a\":\"%2e%2e\"}", EBADMSG, "is no name"},
		{"{\"a\":\"1.safetensors?x\"}", EBADMSG, "is no name"},
		{"{\"a\":\"1.safetensors\\n\"}", EBADMSG, "is no name"},
		{"{\"a\":\"1.safetensors\\u0000\"}", EBADMSG, "zero byte"},
		{"{\"c\":\"1.safetensors\"}", EBADMSG, "tensor 'c': it is not in '1.safetensors'"},
		{"{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}", EBADMSG,
	         "it is not in '2.safetensors'"},
		{"{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}", EBADMSG,
	         "tensor 'a': it is not in"},
		{"{\"a\":\"index-0\"}", EINVAL, "opened alone"},
		{"{\"a\":\"missing.safetensors\"}", ENOENT, "missing.safetensors"},
		{"{\"a\":1}", EBADMSG, "no object of texts"},
		{"{\"a\":[\"1.safetensors\"]}", EBADMSG, "no object of texts"},
		{"{\"a\":{\"a\":\"1.safetensors\"}}", EBADMSG, "no object of texts"},
		{"\"1.safetensors\"", EBADMSG, "no object of texts"},
		{"[\"1.safetensors\"]", EBADMSG, "no object of texts"},
		{"{\"a\":\"1.safetensors\"},\"weight_map\":{}", EBADMSG, "there twice"},
		{"{\"a\":\"1.safetensors\"", EBADMSG, "no valid JSON"},
		{"{\"a\":\"1.safetensors\"}}", EBADMSG, "no valid JSON"},
	};

	if (row_is_store())
		SKIP("blobs get their names from the test");
	made_safetensors(f, "1.safetensors", T(U8(0, 4)), 4);
	made_safetensors(f, "2.safetensors", "{\"b\":{" U8(0, 4) "}}", 4);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char json[256], name[64];

		snprintf(json, sizeof(json), "{\"weight_map\":%s}", cases[i].map);
		snprintf(name, sizeof(name), "index-%zu", i);
		print_message("%s\n", json);
		assert_open_refused(f, made(f, name, json, strlen(json)), cases[i].error,
		                    cases[i].says);
	}
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return RUN_FILES("tensors_format_test", "format_npy");
}
