/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens mutated files of tensors, and requires of those that are accepted that all tensors are in the file, apart from each
 * other, and as long as their shapes say; of the others a sentence; and of all that no memory was taken for more than the
 * file has. Arguments: seconds, and a seed to repeat a run.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/core.h"
#include "fuzz/fuzz.h"
#include "sluice/tensors.h"

#define MOST 4096

static uint64_t passed[3], refused[3]; /* files by their format */
static size_t largest;                 /* allocation of the library */
static struct subject {
	unsigned char bytes[2 * MOST];
	size_t n;
} subject;

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
	largest = SL_MAX(largest, n);
	return __real_malloc(n);
}
void *__real_calloc(size_t count, size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_calloc(size_t count, size_t n)
{
	largest = SL_MAX(largest, count * n);
	return __real_calloc(count, n);
}
void *__real_realloc(void *memory, size_t n);
void *__wrap_realloc(void *memory, size_t n);
void *__wrap_realloc(void *memory, size_t n)
{
	largest = SL_MAX(largest, n);
	return __real_realloc(memory, n);
}
void *__real_reallocarray(void *memory, size_t count, size_t n);
void *__wrap_reallocarray(void *memory, size_t count, size_t n);
void *__wrap_reallocarray(void *memory, size_t count, size_t n)
{
	largest = SL_MAX(largest, count * n);
	return __real_reallocarray(memory, count, n);
}

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s, by a file of %zu bytes:\n", what, subject.n);
	fwrite(subject.bytes, 1, subject.n, stderr);
	abort();
}

/* -------------------------------------------------------------------------------------- files */

static void put(const void *bytes, size_t n)
{
	memcpy(subject.bytes + subject.n, bytes, n);
	subject.n += n;
}

static void put_number(uint64_t number, size_t n)
{
	put(&number, n);
}

static void put_text(const char *text)
{
	put(text, strlen(text));
}

/* Replaces, inserts, removes or moves a few bytes from `begin` on. */
static void mutate(size_t begin)
{
	static const char *const words[] = {
		"\"",
		"{",
		"}",
		"[",
		"]",
		",",
		":",
		"0",
		"-1",
		"1e9",
		".5",
		"null",
		"true",
		"\\u0000",
		"\\ud800",
		"\"dtype\":\"F4\"",
		"\xc0\x80",
		" ",
		"'",
		"(3, 4)",
		"18446744073709551615",
		"4294967296",
		"\"a\":{",
		"weight_map",
	};

	for (uint64_t i = draw(4); i > 0 && subject.n > begin; i--) {
		size_t at = begin + draw(subject.n - begin), n = 1 + draw(8);
		const char *word = words[draw(sizeof(words) / sizeof(words[0]))];
		unsigned char *bytes = subject.bytes;

		n = SL_MIN(n, subject.n - at);
		switch (draw(5)) {
		case 0:
			bytes[at] = (unsigned char)draw(256);
			break;
		case 1:
			bytes[at] ^= (unsigned char)(1 << draw(8));
			break;
		case 2:
			memmove(bytes + at, bytes + at + n, subject.n - at - n);
			subject.n -= n;
			break;
		case 3:
			memmove(bytes + at, bytes + begin + draw(subject.n - begin - n + 1), n);
			break;
		default:
			memmove(bytes + at + strlen(word), bytes + at, subject.n - at);
			memcpy(bytes + at, word, strlen(word));
			subject.n += strlen(word);
		}
	}
}

static void make_safetensors(void)
{
	static const char *const types[] = {"U8", "F4", "BF16", "F64", "F6_E3M2", "C64"};
	static const unsigned bits[] = {8, 4, 16, 64, 6, 64};
	uint64_t at = 0, length, count = draw(6);
	char text[256];

	put_number(0, 8);
	put_text(draw(3) ? "{" : "{\"__metadata__\":{\"a\":\"\\u00e4\"},");
	for (uint64_t i = 0; i < count; i++) {
		unsigned type = (unsigned)draw(6);
		uint64_t columns = draw(4), bytes = 8 * columns * bits[type] / 8;

		/* Now and then they overlap, or have so many elements that their number begins again. */
		at -= draw(12) ? 0 : SL_MIN(at, draw(9));
		columns += draw(20) ? 0 : UINT64_C(1) << 58;
		snprintf(text, sizeof(text),
		         "%s\"%c\":{\"dtype\":\"%s\",\"shape\":[8,%" PRIu64
		         "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
		         i ? "," : "", (char)('a' + i), types[type], columns, at, at + bytes);
		put_text(text);
		at += bytes;
	}
	put_text(count || !draw(2) ? "}" : "\"a\":{}}");
	mutate(8);
	length = draw(20) ? subject.n - 8 : draw(2) ? draw(subject.n) : draw(UINT64_MAX);
	memcpy(subject.bytes, &length, 8);
	subject.n += draw(20) ? at : draw(100);
}

static void put_array(void)
{
	static const char *const dictionaries[] = {
		"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n",
		"{'descr': '|b1', 'fortran_order': True, 'shape': (48,), }\n",
		"{'descr': '<c16', 'fortran_order': False, 'shape': (3,), }\n",
	};
	const char *dictionary = dictionaries[draw(3)];
	unsigned version = 1 + (unsigned)draw(3);

	put("\x93NUMPY", 6);
	put_number(version, 2);
	put_number(strlen(dictionary), version == 1 ? 2 : 4);
	put_text(dictionary);
	subject.n += 48;
}

static void make_npz(void)
{
	size_t at[4], length[4], count = draw(5), begin;

	for (size_t i = 0; i < count; i++) {
		at[i] = subject.n;
		put("PK\3\4", 4);
		subject.n += 22;
		put_number(5, 4);
		put_text("a.npy");
		put_array();
		length[i] = subject.n - at[i] - 35;
		subject.bytes[at[i] + 30] = (unsigned char)('a' + i);
	}
	begin = subject.n;
	for (size_t i = 0; i < count; i++) {
		bool zip64 = draw(2);

		put("PK\1\2", 4);
		subject.n += 16;
		put_number(zip64 ? UINT32_MAX : length[i], 4);
		put_number(zip64 ? UINT32_MAX : length[i], 4);
		put_number(5, 2);
		put_number(zip64 ? 28 : 0, 2);
		subject.n += 10;
		put_number(zip64 ? UINT32_MAX : at[i], 4);
		put_text((const char[]){(char)('a' + i), '.', 'n', 'p', 'y', 0});
		if (!zip64)
			continue;
		put_number(1 | 24 << 16, 4);
		put_number(length[i], 8);
		put_number(length[i], 8);
		put_number(at[i], 8);
	}
	put("PK\5\6", 4);
	subject.n += 8;
	put_number(subject.n - begin - 12, 4);
	put_number(begin, 4);
	put_number(0, 2);
}

static void make(void)
{
	memset(&subject, 0, sizeof(subject));
	switch (draw(5)) {
	case 0:
	case 1:
		make_safetensors();
		return;
	case 2:
		put_text("{\"metadata\":{\"total_size\":[1,{}]},\"weight_map\":{\"a\":\"0\",\"b\":"
		         "\"missing\"}}");
		break;
	case 3:
		put_array();
		break;
	default:
		make_npz();
	}
	mutate(0);
}

/* ------------------------------------------------------------------------------------- checks */

static void check_tensor(const sluice_tensors *t, size_t index, uint64_t *end)
{
	struct sluice_tensor tensor = {.size = sizeof(tensor)};
	unsigned __int128 bits;
	size_t found;

	require(!sluice_tensors_get(t, index, &tensor), "a tensor is missing");
	require(!sluice_tensors_find(t, tensor.name, &found) && found == index,
	        "a name is not found");
	require(sl_utf8_valid(tensor.name, strlen(tensor.name)), "a name is no UTF-8");
	require(tensor.rank <= SLUICE_TENSOR_RANK_MOST && sl_type_find(tensor.type),
	        "an unknown type");
	require(tensor.offset >= *end, "tensors overlap");
	require(tensor.offset <= subject.n && tensor.bytes <= subject.n - tensor.offset,
	        "a tensor ends behind the file");
	*end = tensor.offset + tensor.bytes;
	bits = sl_type_find(tensor.type)->bits;
	for (unsigned i = 0; i < tensor.rank; i++)
		bits = tensor.shape[i] ? SL_MIN(bits, UINT64_MAX) * tensor.shape[i] : 0;
	for (unsigned i = 0; i < tensor.rank; i++)
		bits = tensor.shape[i] ? bits : 0;
	require(bits == (unsigned __int128)tensor.bytes * 8, "a shape is larger than its bytes");
}

static void check(sluice_context *ctx, int fd)
{
	struct sluice_tensor_file file = {.size = sizeof(file)};
	char name[64];
	const char *uri = name;
	sluice_tensors *t = NULL;
	uint64_t end = 0;
	unsigned format;
	int rc;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	require(!ftruncate(fd, 0) && pwrite(fd, subject.bytes, subject.n, 0) == (ssize_t)subject.n,
	        "a file");
	largest = 0;
	rc = sluice_tensors_open(ctx, &uri, 1, NULL, &t);
	require(largest <= 64 * subject.n + ((size_t)1 << 19), "memory was taken for a lie");
	format = subject.bytes[0] == 'P' ? 2 : subject.bytes[0] == 0x93;
	if (rc) {
		refused[format]++;
		require(rc < 0 && !t && *sluice_last_message(), "no reason is told");
		return;
	}
	passed[format]++;
	for (size_t i = 0; i < sluice_tensors_count(t); i++)
		check_tensor(t, i, &end);
	if (!sluice_tensors_file(t, 0, &file) && !strcmp(file.format, "safetensors"))
		require(!sluice_tensors_count(t) || end == subject.n, "bytes belong to no tensor");
	sluice_tensors_free(t);
}

static sluice_context *ctx;
static int fd;

static void check_some(void)
{
	for (int i = 0; i < 100; i++) {
		make();
		check(ctx, fd);
	}
}

int main(int argc, char **argv)
{
	fd = memfd_create("tensors", 0);
	require(fd >= 0 && !sluice_context_new(NULL, &ctx), "a context");
	fuzz(argc, argv, check_some);
	for (unsigned i = 0; i < 3; i++) {
		printf("%s: %" PRIu64 " accepted, %" PRIu64 " refused\n",
		       i == 0   ? "JSON"
		       : i == 1 ? "npy"
		                : "npz",
		       passed[i], refused[i]);
		require(passed[i] && refused[i], "all are judged alike");
	}
	sluice_context_close(ctx);
	return 0;
}
