/* SPDX-License-Identifier: Apache-2.0 */
/* Collections: tensors by one name in the store, on the host or at place(). */
#include <stdlib.h>
#include <unistd.h>

#include "blobs/store/device_common.h"
#include "core/dlpack.h"
#include "sluice/device.h"
#include "sluice/tensors.h"

enum { MANY = 20000 };

static const uint64_t none[] = {0, 5}, square[] = {30, 40}, line[] = {777}, large[] = {3, 1 << 20};

/* Tensors of several types, of which two are tied, one is empty and one is a scalar. */
struct set {
	struct sluice_collection_tensor v[7];
	char *bytes[7];
};

static void set_fill(struct set *set, uint64_t seed, int device)
{
	const struct sluice_collection_tensor v[] = {
		{sizeof(*v), "a \"quoted\" \xc3\xa9\n", SLUICE_UINT8, 1, line, device, NULL, 777},
		{sizeof(*v), "tied", SLUICE_FLOAT32, 2, square, device, NULL, 4800},
		{sizeof(*v), "empty", SLUICE_FLOAT16, 2, none, device, NULL, 0},
		{sizeof(*v), "", SLUICE_INT64, 0, NULL, device, NULL, 8},
		{sizeof(*v), "large", SLUICE_BFLOAT16, 2, large, device, NULL, 6 << 20},
		{sizeof(*v), "tied too", SLUICE_FLOAT32, 2, square, device, NULL, 4800},
		{sizeof(*v), "b", SLUICE_BOOL, 1, line, device, NULL, 777}};

	memcpy(set->v, v, sizeof(v));
	for (unsigned i = 0; i < COUNT_OF(set->v); i++) {
		set->bytes[i] = malloc(v[i].bytes + 1);
		pattern_fill(set->bytes[i], v[i].bytes, 0, seed * 100 + (i == 5 ? 1 : i));
		set->v[i].data = set->bytes[i == 5 ? 1 : i];
	}
}

static void set_free(struct set *set)
{
	for (unsigned i = 0; i < COUNT_OF(set->v); i++)
		free(set->bytes[i]);
}

/* The collection has these tensors, and their bytes. */
static void assert_set(const sluice_collection *c, const struct set *set)
{
	assert_int_equal(sluice_collection_count(c), COUNT_OF(set->v));
	for (unsigned i = 0; i < COUNT_OF(set->v); i++) {
		const struct sluice_collection_tensor *wanted = &set->v[i];
		struct sluice_collection_tensor t = {.size = sizeof(t)};
		char *held = malloc(wanted->bytes + 1);
		size_t index;

		assert_ok(sluice_collection_find(c, wanted->name, &index));
		assert_ok(sluice_collection_get(c, index, &t));
		assert_string_equal(t.name, wanted->name);
		assert_int_equal(t.type, wanted->type);
		assert_int_equal(t.rank, wanted->rank);
		assert_memory_equal(t.shape, wanted->shape, t.rank * sizeof(*t.shape));
		assert_int_equal(t.device, wanted->device);
		assert_int_equal(t.bytes, wanted->bytes);
		assert_int_equal((uintptr_t)t.data % 256, 0);
		assert_ok(sluice_copy(held, t.data, t.bytes));
		assert_memory_equal(held, set->bytes[i == 5 ? 1 : i], t.bytes);
		free(held);
	}
}

/* Where the bytes of one tensor are. */
static void *data_of(const sluice_collection *c, const char *name)
{
	struct sluice_collection_tensor t = {.size = sizeof(t)};
	size_t index;

	assert_ok(sluice_collection_find(c, name, &index));
	assert_ok(sluice_collection_get(c, index, &t));
	return t.data;
}

static sluice_collection *attached(sluice_store *store, const char *name)
{
	sluice_collection *c = NULL;

	assert_ok(sluice_collection_attach(store, name, -1, 0, &c));
	return c;
}

static void assert_empty(struct daemon *d)
{
	assert_idle(d->store);
	if (ON_DEVICE)
		assert_memory_is(d->store, place(), 0);
}

DAEMON_TEST(what_is_published_is_there_for_others_without_a_copy)
{
	struct sluice_collection_options o = SLUICE_COLLECTION_OPTIONS_INIT;
	struct sluice_collection_file files[] = {{"config.json", "{}", 2}, {"none", NULL, 0}}, file;
	sluice_store *other = daemon_connect(d);
	sluice_collection *made, *c;
	size_t index;
	struct set set;

	set_fill(&set, 1, place());
	o.files = files;
	o.file_count = 2;
	assert_ok(sluice_collection_publish(d->store, "m", set.v, COUNT_OF(set.v), &o, &made));
	assert_set(made, &set);
	c = attached(other, "m");
	assert_set(c, &set);
	assert_ptr_equal(data_of(c, "tied"), data_of(c, "tied too"));
	assert_int_equal(sluice_blob_id(sluice_collection_blob(c)),
	                 sluice_blob_id(sluice_collection_blob(made)));
	assert_ok(sluice_collection_get_file(c, 0, &file));
	assert_string_equal(file.name, "config.json");
	assert_int_equal(file.bytes, 2);
	assert_memory_equal(file.data, "{}", 2);
	assert_ok(sluice_collection_get_file(c, 1, &file));
	assert_int_equal(file.bytes, 0);
	assert_refused(sluice_collection_get_file(c, 2, &file), ENOENT, "2 files");
	assert_refused(sluice_collection_find(c, "none", &index), ENOENT, "'none'");
	assert_ok(sluice_collection_release(made));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_set(c, &set);
	assert_ok(sluice_collection_release(c));
	assert_ok(sluice_store_close(other));
	assert_empty(d);
	set_free(&set);
}

DAEMON_TEST(a_collection_is_written_in_place_and_replaced_at_once)
{
	struct sluice_collection_options o = SLUICE_COLLECTION_OPTIONS_INIT;
	sluice_collection *made, *old = NULL, *c;
	struct set sets[2];

	o.flags = SLUICE_BLOB_REPLACE;
	for (unsigned k = 0; k < 2; k++) {
		set_fill(&sets[k], 2 + k, place());
		assert_ok(sluice_collection_new(d->store, "m", sets[k].v, COUNT_OF(sets[k].v), &o,
		                                &made));
		for (unsigned i = 0; i < COUNT_OF(sets[k].v); i++)
			assert_ok(sluice_copy(data_of(made, sets[k].v[i].name), sets[k].v[i].data,
			                      sets[k].v[i].bytes));
		if (k)
			assert_set(old, &sets[0]);
		assert_ok(sluice_blob_seal(sluice_collection_blob(made)));
		assert_set(made, &sets[k]);
		if (!k)
			old = made;
	}
	c = attached(d->store, "m");
	assert_set(c, &sets[1]);
	assert_set(old, &sets[0]);
	assert_ok(sluice_collection_release(c));
	assert_ok(sluice_collection_release(made));
	assert_ok(sluice_collection_release(old));
	/* One that is not sealed leaves nothing. */
	assert_ok(sluice_collection_new(d->store, "u", sets[0].v, COUNT_OF(sets[0].v), NULL, &c));
	assert_ok(sluice_collection_release(c));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_empty(d);
	set_free(&sets[0]);
	set_free(&sets[1]);
}

DAEMON_TEST(an_exported_tensor_keeps_the_collection)
{
	sluice_collection *made, *c;
	struct sl_dlpack_managed *tensor;
	char bytes[4800];
	struct set set;
	size_t index;

	set_fill(&set, 4, place());
	assert_ok(sluice_collection_publish(d->store, "m", set.v, COUNT_OF(set.v), NULL, &made));
	assert_ok(sluice_collection_release(made));
	c = attached(d->store, "m");
	assert_ok(sluice_collection_find(c, "tied", &index));
	assert_ok(sluice_collection_to_dlpack(c, index, 0, (void **)&tensor));
	assert_ok(sluice_collection_release(c));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_int_equal(sluice_store_close(d->store), -EBUSY);
	assert_int_equal(tensor->tensor.shape[0], 30);
	assert_int_equal(tensor->tensor.shape[1], 40);
	assert_ok(sluice_copy(bytes, tensor->tensor.data, sizeof(bytes)));
	assert_memory_equal(bytes, set.bytes[1], sizeof(bytes));
	tensor->deleter(tensor);
	assert_empty(d);
	set_free(&set);
}

/* As torch has them, which takes no others. */
DAEMON_TEST(elements_of_four_bits_are_exported_in_pairs)
{
	const uint64_t even[] = {3, 8}, odd[] = {2, 3};
	struct sluice_collection_tensor v[] = {
		{sizeof(*v), "even", SLUICE_FLOAT4_E2M1, 2, even, place(), NULL, 12},
		{sizeof(*v), "odd", SLUICE_FLOAT4_E2M1, 2, odd, place(), NULL, 3}};
	sluice_collection *c;
	struct sl_dlpack_managed *tensor;

	assert_ok(sluice_collection_new(d->store, "m", v, COUNT_OF(v), NULL, &c));
	for (size_t i = 0; i < COUNT_OF(v); i++) {
		assert_ok(sluice_collection_to_dlpack(c, i, 0, (void **)&tensor));
		assert_int_equal(tensor->tensor.dtype.bits, 4);
		assert_int_equal(tensor->tensor.dtype.lanes, i ? 1 : 2);
		assert_int_equal(tensor->tensor.shape[0], v[i].shape[0]);
		assert_int_equal(tensor->tensor.shape[1], i ? 3 : 4);
		assert_int_equal(tensor->tensor.strides[0], i ? 3 : 4);
		assert_int_equal(tensor->tensor.strides[1], 1);
		tensor->deleter(tensor);
	}
	assert_ok(sluice_collection_release(c));
	assert_empty(d);
}

/* ------------------------------------------------------------------------------------- as a file */

/* One whose store:// is of this daemon. */
static sluice_context *context_for(const struct daemon *d)
{
	sluice_context *ctx = NULL;

	setenv("SLUICE_STORE", d->path, 1);
	assert_ok(sluice_context_new(NULL, &ctx));
	return ctx;
}

/* Reads the whole file, which is to have the tensors of the set and no byte more. */
static void assert_file(const struct daemon *d, const struct set *set)
{
	sluice_context *ctx = context_for(d);
	const char *uri = "store://m";
	struct sluice_tensor_file file = {.size = sizeof(file)};
	struct sluice_tensor t = {.size = sizeof(t)};
	struct rng r = rng_new(5);
	sluice_tensors *tensors;
	uint64_t end = 0;
	char *whole, *some;

	assert_ok(sluice_tensors_open(ctx, &uri, 1, NULL, &tensors));
	assert_int_equal(sluice_tensors_count(tensors), COUNT_OF(set->v));
	assert_ok(sluice_tensors_file(tensors, 0, &file));
	assert_string_equal(file.format, "safetensors");
	whole = malloc(file.bytes);
	some = malloc(file.bytes);
	assert_read(file.file, whole, file.bytes, 0);
	for (unsigned i = 0; i < COUNT_OF(set->v); i++) {
		size_t index;

		assert_ok(sluice_tensors_find(tensors, set->v[i].name, &index));
		assert_ok(sluice_tensors_get(tensors, index, &t));
		assert_int_equal(t.bytes, set->v[i].bytes);
		assert_memory_equal(whole + t.offset, set->bytes[i == 5 ? 1 : i], t.bytes);
		if (t.offset + t.bytes > end)
			end = t.offset + t.bytes;
	}
	assert_int_equal(end, file.bytes);
	for (unsigned i = 0; i < 200; i++) {
		uint64_t offset = rng_below(&r, file.bytes);
		size_t n = 1 + rng_below(&r, i % 2 ? 10000 : file.bytes - offset);

		n = n < file.bytes - offset ? n : file.bytes - offset;
		assert_read(file.file, some, n, offset);
		assert_memory_equal(some, whole + offset, n);
	}
	free(whole);
	free(some);
	sluice_tensors_free(tensors);
	assert_ok(sluice_context_close(ctx));
}

DAEMON_TEST(a_collection_is_a_safetensors_file)
{
	sluice_collection *made;
	struct set set;

	set_fill(&set, 6, place());
	assert_ok(sluice_collection_publish(d->store, "m", set.v, COUNT_OF(set.v), NULL, &made));
	assert_file(d, &set);
	assert_ok(sluice_collection_release(made));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_empty(d);
	set_free(&set);
}

DAEMON_TEST(files_are_published_without_a_way_round)
{
	struct sluice_collection_options o = SLUICE_COLLECTION_OPTIONS_INIT;
	struct sluice_tensor_range rows[] = {{1, 3}, {0, 1 << 20}};
	struct sluice_tensor_want want = {.ranges = rows};
	const char *metadata[] = {"format", "pt"}, *key, *value;
	const char *uri = "store://m", *again;
	sluice_context *ctx = context_for(d);
	sluice_collection *made, *copy, *slice;
	struct sluice_collection_tensor t = {.size = sizeof(t)};
	sluice_tensors *tensors;
	struct set set;

	set_fill(&set, 7, -1);
	o.metadata = metadata;
	o.metadata_count = 1;
	assert_ok(sluice_collection_publish(d->store, "m", set.v, COUNT_OF(set.v), &o, &made));
	assert_ok(sluice_tensors_open(ctx, &uri, 1, NULL, &tensors));
	assert_ok(sluice_collection_publish_files(d->store, "copy", tensors, NULL, 0, place(), NULL,
	                                          NULL, &copy));
	for (unsigned i = 0; i < COUNT_OF(set.v); i++)
		set.v[i].device = place();
	assert_set(copy, &set);
	assert_ok(sluice_tensors_find(tensors, "large", &want.tensor));
	assert_ok(sluice_collection_publish_files(d->store, "slice", tensors, &want, 1, place(),
	                                          NULL, NULL, &slice));
	assert_ok(sluice_collection_get(slice, 0, &t));
	assert_int_equal(t.shape[0], 2);
	assert_int_equal(t.bytes, 4 << 20);
	sluice_tensors_free(tensors);
	/* Metadata goes with it. */
	again = "store://copy";
	assert_ok(sluice_tensors_open(ctx, &again, 1, NULL, &tensors));
	assert_ok(sluice_tensors_metadata(tensors, 0, 0, &key, &value));
	assert_string_equal(key, "format");
	assert_string_equal(value, "pt");
	sluice_tensors_free(tensors);
	assert_ok(sluice_context_close(ctx));
	assert_ok(sluice_collection_release(made));
	assert_ok(sluice_collection_release(copy));
	assert_ok(sluice_collection_release(slice));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_ok(sluice_blob_delete(d->store, "copy"));
	assert_ok(sluice_blob_delete(d->store, "slice"));
	assert_empty(d);
	set_free(&set);
}

DAEMON_TEST(a_stream_copies_and_then_seals)
{
	struct sluice_collection_options o = SLUICE_COLLECTION_OPTIONS_INIT;
	sluice_collection *made, *c;
	struct set set;

	if (!ON_DEVICE)
		skip();
	set_fill(&set, 8, place());
	o.on = 1;
	assert_ok(sluice_stream_new(place(), &o.stream));
	assert_ok(sluice_collection_publish(d->store, "m", set.v, COUNT_OF(set.v), &o, &made));
	assert_ok(sluice_collection_attach(d->store, "m", -1, 20000, &c));
	assert_set(c, &set);
	assert_ok(sluice_blob_wait_sealed(sluice_collection_blob(made), 20000));
	assert_set(made, &set);
	assert_ok(sluice_collection_release(c));
	assert_ok(sluice_collection_release(made));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_ok(sluice_stream_free(o.stream));
	assert_empty(d);
	set_free(&set);
}

/* The first tensor is not on the device; the copy of the second was begun when the third is refused. */
DAEMON_TEST(memory_does_not_go_while_a_stream_copies_into_it)
{
	struct sluice_collection_options o = SLUICE_COLLECTION_OPTIONS_INIT;
	struct gate gate = GATE;
	struct set set;
	sluice_collection *c;
	pthread_t thread;
	bool waited;
	int device;

	assert_ok(sluice_device_find("emulated:0", &device));
	set_fill(&set, 12, -1);
	set.v[1].device = device;
	set.v[4].data = NULL;
	o.on = 1;
	assert_ok(sluice_stream_new(device, &o.stream));
	begin_with(d->store, device);
	assert_ok(sluice_emulated_call(device, o.stream, gate_pass, &gate));
	pthread_create(&thread, NULL, gate_open_late, &gate);
	assert_refused(sluice_collection_publish(d->store, "m", set.v, 5, &o, &c), EINVAL,
	               "its data is NULL");
	pthread_mutex_lock(&gate.mutex);
	waited = gate.open;
	pthread_mutex_unlock(&gate.mutex);
	pthread_join(thread, NULL);
	assert_true(waited);
	assert_ok(sluice_stream_free(o.stream));
	assert_empty(d);
	set_free(&set);
}

/* Each device has the default stream. */
DAEMON_TEST(a_seal_comes_behind_the_copies_of_all_devices)
{
	struct sluice_collection_options o = SLUICE_COLLECTION_OPTIONS_INIT;
	struct gate gate = GATE;
	sluice_collection *c;
	pthread_t thread;
	struct set set;
	bool waited;
	int device;

	assert_ok(sluice_device_find("emulated:0", &device));
	set_fill(&set, 13, device);
	set.v[4].device = device + 1;
	o.on = 1;
	begin_with(d->store, device);
	begin_with(d->store, device + 1);
	assert_ok(sluice_emulated_call(device + 1, NULL, gate_pass, &gate));
	pthread_create(&thread, NULL, gate_open_late, &gate);
	assert_ok(sluice_collection_publish(d->store, "m", set.v, COUNT_OF(set.v), &o, &c));
	assert_ok(sluice_blob_wait_sealed(sluice_collection_blob(c), 20000));
	pthread_mutex_lock(&gate.mutex);
	waited = gate.open;
	pthread_mutex_unlock(&gate.mutex);
	pthread_join(thread, NULL);
	assert_true(waited);
	assert_set(c, &set);
	assert_ok(sluice_collection_release(c));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_idle(d->store);
	set_free(&set);
}

DAEMON_TEST(a_device_reads_what_is_on_the_host)
{
	sluice_store *other = daemon_connect(d);
	sluice_collection *made, *c;
	struct set set;
	char *memory;
	int device;

	assert_ok(sluice_device_find("emulated:0", &device));
	set_fill(&set, 11, -1);
	assert_ok(sluice_collection_publish(d->store, "m", set.v, COUNT_OF(set.v), NULL, &made));
	assert_ok(sluice_collection_attach(other, "m", device, 0, &c));
	assert_set(c, &set);
	assert_ok(sluice_device_alloc(device, 4800, (void **)&memory));
	assert_ok(sluice_copy(memory, data_of(c, "tied"), 4800));
	assert_ok(sluice_device_free(memory));
	assert_ok(sluice_collection_release(c));
	assert_ok(sluice_store_close(other));
	assert_ok(sluice_collection_release(made));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_empty(d);
	set_free(&set);
}

/* ------------------------------------------------------------------------------------ many, refused */

/* Its memory is that of others, as soon as they delete it. */
DAEMON_TEST(a_collection_that_is_not_held_gives_no_addresses)
{
	struct sluice_collection_options o = SLUICE_COLLECTION_OPTIONS_INIT;
	struct sluice_collection_file file = {"config.json", "{}", 2};
	struct sluice_collection_tensor t = {sizeof(t), "w", SLUICE_UINT8, 1, line, place(), 0, 0};
	sluice_blob **held = calloc(SLUICE_STORE_HOLDS_MOST, sizeof(*held)), *blob;
	sluice_collection *c;
	void *exported;

	o.files = &file;
	o.file_count = 1;
	blob = put(d->store, "x", 10, 0);
	for (unsigned i = 1; i < SLUICE_STORE_HOLDS_MOST; i++)
		held[i] = got(d->store, "x");
	assert_ok(sluice_collection_new(d->store, "m", &t, 1, &o, &c));
	assert_int_equal(sluice_blob_seal(sluice_collection_blob(c)), -ENOBUFS);
	assert_refused(sluice_collection_get(c, 0, &t), ESTALE, "not held");
	assert_refused(sluice_collection_get_file(c, 0, &file), ESTALE, "not held");
	assert_refused(sluice_collection_to_dlpack(c, 0, 1, &exported), ESTALE, "not held");
	assert_ok(sluice_collection_release(c));
	for (unsigned i = 1; i < SLUICE_STORE_HOLDS_MOST; i++)
		assert_ok(sluice_blob_release(held[i]));
	free(held);
	assert_ok(sluice_collection_attach(d->store, "m", -1, 0, &c));
	assert_ok(sluice_collection_get_file(c, 0, &file));
	assert_memory_equal(file.data, "{}", 2);
	assert_ok(sluice_collection_release(c));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_let_go(blob, d->store, "x");
	assert_idle(d->store);
}

DAEMON_TEST(twenty_thousand_tensors)
{
	struct sluice_collection_tensor *v = calloc(MANY, sizeof(*v));
	char(*names)[24] = calloc(MANY, sizeof(*names));
	const uint64_t shape[] = {3, 5};
	sluice_collection *made, *c;
	float values[15];
	double begun;

	for (unsigned i = 0; i < 15; i++)
		values[i] = (float)i;
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(names[i], sizeof(names[i]), "layer.%u.weight", i);
		v[i] = (struct sluice_collection_tensor){sizeof(*v), names[i], SLUICE_FLOAT32, 2,
		                                         shape,      place(),  NULL,           0};
	}
	assert_ok(sluice_collection_new(d->store, "m", v, MANY, NULL, &made));
	for (unsigned i = 0; i < MANY; i += 1999)
		assert_ok(sluice_copy(data_of(made, names[i]), values, sizeof(values)));
	assert_ok(sluice_blob_seal(sluice_collection_blob(made)));
	begun = seconds_now();
	c = attached(d->store, "m");
	print_message("attached in %.1f ms\n", (seconds_now() - begun) * 1e3);
	for (unsigned i = 0; i < MANY; i += 1999) {
		float held[15];

		assert_ok(sluice_copy(held, data_of(c, names[i]), sizeof(held)));
		assert_memory_equal(held, values, sizeof(held));
	}
	assert_ok(sluice_collection_release(c));
	assert_ok(sluice_collection_release(made));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_empty(d);
	free(v);
	free(names);
}

DAEMON_TEST(what_cannot_be_a_collection_is_refused)
{
	const uint64_t huge[] = {1 << 30, 1 << 30, 1 << 30}, odd[] = {3};
	struct sluice_collection_tensor v[2] = {
		{sizeof(*v), "a", SLUICE_FLOAT32, 1, line, -1, NULL, 0},
		{sizeof(*v), "a", SLUICE_FLOAT32, 1, line, -1, NULL, 0}};
	struct sluice_collection_options o = SLUICE_COLLECTION_OPTIONS_INIT;
	sluice_collection *c;
	sluice_blob *blob;

	assert_refused(sluice_collection_new(d->store, "m", v, 2, NULL, &c), EINVAL, "name 'a'");
	assert_refused(sluice_collection_publish(d->store, "m", v, 1, NULL, &c), EINVAL, "NULL");
	v[1].name = "__metadata__";
	assert_refused(sluice_collection_new(d->store, "m", v, 2, NULL, &c), EINVAL, "metadata");
	v[1].name = "\xff";
	assert_refused(sluice_collection_new(d->store, "m", v, 2, NULL, &c), EINVAL, "UTF-8");
	v[1].name = "b";
	v[1].type = SLUICE_COMPLEX128;
	assert_refused(sluice_collection_new(d->store, "m", v, 2, NULL, &c), ENOTSUP, "complex128");
	v[1].type = SLUICE_FLOAT4_E2M1;
	v[1].shape = odd;
	assert_refused(sluice_collection_new(d->store, "m", v, 2, NULL, &c), EINVAL, "a byte");
	v[1].rank = 3;
	v[1].shape = huge;
	assert_refused(sluice_collection_new(d->store, "m", v, 2, NULL, &c), EINVAL, "too large");
	/* More than there is: both numbers are said. */
	v[1].type = SLUICE_UINT8;
	v[1].rank = 1;
	v[1].device = place();
	o.flags = SLUICE_BLOB_REPLACE;
	assert_refused(sluice_collection_new(d->store, "m", v, 2, &o, &c), ENOSPC,
	               "needs 1073745152 bytes, beside what it replaces");
	assert_non_null(strstr(sluice_last_message(), "134217728"));
	blob = put_on(d->store, "blob", 100, -1, 0);
	assert_refused(sluice_collection_attach(d->store, "blob", -1, 0, &c), EPROTO,
	               "no collection");
	assert_refused(sluice_collection_attach(d->store, "none", -1, 0, &c), ENOENT, "not there");
	assert_let_go(blob, d->store, "blob");
	/* None at all is a collection, too. */
	assert_ok(sluice_collection_publish(d->store, "m", NULL, 0, NULL, &c));
	assert_ok(sluice_collection_release(c));
	c = attached(d->store, "m");
	assert_int_equal(sluice_collection_count(c), 0);
	assert_ok(sluice_collection_release(c));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_empty(d);
}

/* Any bytes in an owner are an error or a collection, and nothing worse. */
DAEMON_TEST(a_damaged_collection_is_refused)
{
	struct sluice_blob_options alone = SLUICE_BLOB_OPTIONS_INIT;
	struct rng r = rng_new(9);
	sluice_collection *made, *c;
	unsigned refused = 0;
	sluice_blob *owner;
	char *bytes, *held;
	struct set set;
	size_t n;

	alone.flags = SLUICE_BLOB_ALONE | SLUICE_BLOB_REPLACE;
	set_fill(&set, 10, -1);
	assert_ok(sluice_collection_publish(d->store, "m", set.v, COUNT_OF(set.v), NULL, &made));
	owner = sluice_collection_blob(made);
	n = sluice_blob_size(owner);
	bytes = malloc(n);
	held = malloc(8 << 20);
	memcpy(bytes, sluice_blob_data(owner), n);
	assert_ok(sluice_collection_release(made));
	for (unsigned round = 0; round < (under_stress() ? 20000 : 1000); round++) {
		size_t size = rng_below(&r, 4) ? n : 1 + rng_below(&r, n);
		sluice_blob *blobs[2];
		int rc;

		assert_ok(sluice_blob_create(d->store, "x", size, -1, &alone, &blobs[1]));
		assert_ok(sluice_blob_create(
			d->store, NULL, 7 << 20, -1,
			&(struct sluice_blob_options){sizeof(alone),
		                                      SLUICE_BLOB_ALONE | SLUICE_BLOB_COLD, NULL},
			&blobs[0]));
		memcpy(sluice_blob_mutable_data(blobs[1]), bytes, size);
		for (unsigned i = 1 + (unsigned)rng_below(&r, 3); size == n && i-- > 0;) {
			char *at = (char *)sluice_blob_mutable_data(blobs[1]) + rng_below(&r, n);

			*at = rng_below(&r, 2) ? (char)(*at ^ 1 << rng_below(&r, 8))
			                       : (char)rng_below(&r, 256);
		}
		assert_ok(sluice_blob_adopt(blobs[1], blobs, 1));
		assert_ok(sluice_blob_seal(blobs[1]));
		rc = sluice_collection_attach(d->store, "x", -1, 0, &c);
		assert_true(rc == 0 || rc == -EPROTO || rc == -EBADMSG);
		refused += rc != 0;
		for (size_t i = 0; !rc && i < sluice_collection_count(c); i++) {
			struct sluice_collection_tensor t = {.size = sizeof(t)};
			size_t index;

			assert_ok(sluice_collection_get(c, i, &t));
			assert_true(t.bytes <= 7 << 20);
			memcpy(held, t.data, t.bytes);
			sluice_collection_find(c, t.name, &index);
		}
		if (!rc)
			assert_ok(sluice_collection_release(c));
		assert_ok(sluice_blob_release(blobs[1]));
	}
	print_message("%u were refused\n", refused);
	assert_true(refused > 100);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_empty(d);
	free(bytes);
	free(held);
	set_free(&set);
}

DAEMON_MAIN("128M", {NULL, NULL})
