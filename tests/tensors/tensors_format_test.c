/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tensors: those that are right are listed as they are, and each that is not is refused with its reason. */
#include <inttypes.h>

#include "core/core.h"
#include "lib/support.h"
#include "sluice/tensors.h"

#define TEXT 4096

/* Makes a file of n bytes and returns its address in the row. */
static const char *made(struct fixture *f, const char *name, const void *bytes, size_t n)
{
	file_make(scratch(f, name), 0, 0);
	file_write(scratch(f, name), bytes, n, 0);
	return address(f, name);
}

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

static sluice_tensors *opened(struct fixture *f, const char *uri)
{
	sluice_tensors *t;

	assert_ok(sluice_tensors_open(f->ctx, &uri, 1, NULL, &t));
	return t;
}

static struct sluice_tensor got(const sluice_tensors *t, size_t index)
{
	struct sluice_tensor tensor = {.size = sizeof(tensor)};

	assert_ok(sluice_tensors_get(t, index, &tensor));
	return tensor;
}

static struct sluice_tensor found(const sluice_tensors *t, const char *name)
{
	struct sluice_tensor tensor;
	size_t index;

	assert_ok(sluice_tensors_find(t, name, &index));
	tensor = got(t, index);
	assert_string_equal(tensor.name, name);
	return tensor;
}

static void assert_open_refused(struct fixture *f, const char *uri, int error, const char *says)
{
	sluice_tensors *t = NULL;
	int rc = sluice_tensors_open(f->ctx, &uri, 1, NULL, &t);

	if (rc != -error || !strstr(sluice_last_message(), says))
		fail_msg("%d (%s), not -%d (%s): \"%s\"", rc, strerror(-rc), error, says,
		         rc ? sluice_last_message() : "");
	assert_null(t);
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
	sluice_tensors_close(t);
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
	sluice_tensors_close(t);
}

FIXTURE_TEST(tensors_are_in_the_order_of_their_bytes_and_found_by_any_name)
{
	const char *uri = made_safetensors(
		f, "order",
		"{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]},"
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
	sluice_tensors_close(t);
	t = opened(f, made_safetensors(f, "none", "{}", 0));
	assert_int_equal(sluice_tensors_count(t), 0);
	sluice_tensors_close(t);
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
			sluice_tensors_close(t);
	}
	print_message("opened in %.1f ms\n", best * 1e3);
	for (size_t i = 0; i < MANY; i += 7) {
		snprintf(name, sizeof(name), "model.layers.%zu.mlp.experts.%zu.down_proj.weight",
		         i / 128, i % 128);
		assert_int_equal(found(t, name).offset, 8 + strlen(json) + 4 * i);
	}
	sluice_tensors_close(t);
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
		{T(U8(0, 4) ",\"dtype\":\"U8\""), 4, EBADMSG, "it has a \"dtype\" twice"},
		{T(U8(0, 4) ",\"shape\":[4]"), 4, EBADMSG, "it has a \"shape\" twice"},
		{T(U8(0, 4) ",\"data_offsets\":[0,4]"), 4, EBADMSG,
	         "it has a \"data_offsets\" twice"},
		{T(U8(0, 4) ",\"more\":1"), 4, EBADMSG, "it has a \"more\" that is not known"},
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
	sluice_tensors_close(t);
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
	sluice_tensors_close(t);
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
	sluice_tensors_close(t);
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

/* ---------------------------------------------------------------------------------- npy and npz */

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
		sluice_tensors_close(t);
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
			sluice_tensors_close(opened(f, made(f, name, bytes, n)));
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
			sluice_tensors_close(t);
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

int main(int argc, char **argv)
{
	row_start(argc, argv);
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return RUN_TESTS(NULL, NULL);
}
