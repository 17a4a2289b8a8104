/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a process as a blob, blobs for other devices, and for other libraries; on the two emulated devices. */
#include <signal.h>
#include <unistd.h>

#include "store/device_common.h"
#include "store/dlpack.h"

/* -------------------------------------------------------------------------------------- publish */

static int publish_as_child(const struct daemon *d, const char *argument)
{
	sluice_store *store = daemon_connect(d);
	unsigned char bytes[5000];
	sluice_blob *blob;
	void *memory;

	(void)argument;
	pattern_fill(bytes, sizeof(bytes), 0, seed_of("theirs", sizeof(bytes)));
	if (sluice_device_alloc(1, 3 * MIB, &memory) ||
	    sluice_copy((char *)memory + MIB, bytes, sizeof(bytes)) ||
	    sluice_blob_publish(store, "theirs", (char *)memory + MIB, sizeof(bytes), NULL, &blob))
		return 1;
	pause();
	return 2;
}

DAEMON_TEST(device_share_memory_goes_with_its_process)
{
	pid_t child = child_start("publish", d, "");
	struct sluice_blob_info info = {.size = sizeof(info)};
	sluice_blob *blob;

	assert_ok(sluice_blob_get(d->store, "theirs", 20000, &blob));
	assert_int_equal(sluice_blob_kind(blob), SLUICE_BLOB_OF_PROCESS);
	assert_int_equal(sluice_blob_device(blob), 1);
	assert_true(blob_is(blob, "theirs", 5000));
	assert_ok(sluice_blob_stat(d->store, "theirs", &info));
	assert_int_equal(info.kind, SLUICE_BLOB_OF_PROCESS);
	assert_string_equal(info.place, "emulated:1");
	assert_int_equal(info.device, 1);
	assert_int_equal(info.process, child);
	kill(child, SIGKILL);
	child_status(child);
	for (int i = 0; i < 2000 && sluice_blob_exists(d->store, "theirs"); i++)
		sleep_ms(5);
	assert_int_equal(sluice_blob_exists(d->store, "theirs"), 0);
	assert_true(mappings_of(1) > 0);
	assert_ok(sluice_blob_release(blob));
	assert_mappings_are(1, 0);
	assert_idle(d->store);
}

DAEMON_TEST(a_process_has_its_own_memory_as_it_is)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_store *other = daemon_connect(d);
	sluice_blob *blob, *read;
	char *memory;

	assert_ok(sluice_device_alloc(0, 10000, (void **)&memory));
	o.flags = SLUICE_BLOB_RESERVE | SLUICE_BLOB_ALONE;
	assert_ok(sluice_blob_publish(d->store, "own", memory + 512, 1000, &o, &blob));
	assert_ptr_equal(sluice_blob_data(blob), memory + 512);
	read = got(d->store, "own");
	assert_ptr_equal(sluice_blob_data(read), memory + 512);
	assert_ok(sluice_blob_release(read));
	read = got(other, "own");
	assert_ptr_equal(sluice_blob_data(read), memory + 512);
	assert_ok(sluice_blob_release(read));
	assert_refused(sluice_blob_publish(d->store, "own", memory, 10, NULL, &read), EEXIST,
	               "own");
	assert_let_go(blob, d->store, "own");
	/* It is still the program's, which can publish it again. */
	assert_ok(sluice_blob_publish(d->store, "own", memory, 10, NULL, &blob));
	assert_let_go(blob, d->store, "own");
	assert_ok(sluice_device_free(memory));
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

/* ------------------------------------------------------------------------------------- get_on */

DAEMON_TEST(a_blob_is_used_by_another_device)
{
	sluice_blob *blob = put_on(d->store, "x", 3 * MIB, 0, 0), *read, *again, *plain;
	void *there;

	assert_ok(sluice_device_alloc(1, 3 * MIB, &there));
	assert_ok(sluice_blob_get_on(d->store, "x", 1, 0, &read));
	assert_int_equal(sluice_blob_device(read), 0);
	assert_ok(sluice_copy(there, sluice_blob_data(read), 3 * MIB));
	assert_true(blob_is(read, "x", 3 * MIB));
	assert_ok(sluice_blob_get_on(d->store, "x", 1, 0, &again));
	assert_ptr_equal(sluice_blob_data(again), sluice_blob_data(read));
	assert_ok(sluice_blob_release(again));
	/* By its own device it is got as always. */
	plain = got(d->store, "x");
	assert_ok(sluice_blob_get_on(d->store, "x", 0, 0, &again));
	assert_ptr_equal(sluice_blob_data(again), sluice_blob_data(plain));
	assert_ok(sluice_blob_release(again));
	assert_ok(sluice_blob_release(plain));
	assert_ok(sluice_blob_release(read));
	assert_let_go(blob, d->store, "x");
	assert_ok(sluice_device_free(there));
	assert_memory_is(d->store, 0, 0);
	assert_idle(d->store);
}

DAEMON_TEST(a_blob_on_the_host_is_registered_with_a_device)
{
	sluice_blob *blob = put(d->store, "x", 200000, 0), *read, *again;
	sluice_stream stream;
	uint64_t calls = sluice_emulated_calls(SLUICE_EMULATED_REGISTER, NULL);
	void *there, *back = malloc(200000);

	assert_ok(sluice_blob_get_on(d->store, "x", 1, 0, &read));
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_REGISTER, NULL), calls + 1);
	assert_int_equal(sluice_blob_device(read), -1);
	assert_int_equal(sluice_blob_kind(read), SLUICE_BLOB_ON_HOST);
	assert_blob(read, "x", 200000);
	assert_ok(sluice_device_alloc(1, 200000, &there));
	assert_ok(sluice_stream_new(1, &stream));
	assert_ok(sluice_copy_on(there, sluice_blob_data(read), 200000, stream));
	assert_ok(sluice_stream_synchronize(1, stream));
	assert_ok(sluice_copy(back, there, 200000));
	assert_bytes(back, sluice_blob_data(read), 200000);
	calls = sluice_emulated_calls(SLUICE_EMULATED_REGISTER, NULL);
	assert_ok(sluice_blob_get_on(d->store, "x", 1, 0, &again));
	assert_ok(sluice_blob_release(again));
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_REGISTER, NULL), calls);
	assert_ok(sluice_blob_release(read));
	assert_let_go(blob, d->store, "x");
	assert_ok(sluice_stream_free(stream));
	assert_ok(sluice_device_free(there));
	free(back);
	assert_idle(d->store);
}

/* --------------------------------------------------------------------------------------- tensors */

DAEMON_TEST(a_blob_on_a_device_is_a_tensor_there)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	struct managed *tensor;
	sluice_blob *blob;
	void *memory, *out;

	m.type = SLUICE_FLOAT32;
	m.rank = 1;
	m.shape[0] = 25;
	o.metadata = &m;
	for (int device = 0; device < 2; device++) {
		assert_ok(sluice_blob_create(d->store, "t", 100, device, &o, &blob));
		assert_ok(sluice_blob_seal(blob));
		assert_ok(sluice_blob_release(blob));
		blob = got(d->store, "t");
		assert_ok(sluice_blob_to_dlpack(blob, 0, &out));
		tensor = out;
		assert_int_equal(tensor->t.device_type, 12);
		assert_int_equal(tensor->t.device_id, device);
		assert_ptr_equal(tensor->t.data, sluice_blob_data(blob));
		assert_ok(sluice_blob_release(blob));
		tensor->deleter(tensor);
		assert_ok(sluice_blob_delete(d->store, "t"));
	}
	assert_ok(sluice_device_alloc(1, 100, &memory));
	assert_ok(sluice_blob_publish(d->store, "t", memory, 100, &o, &blob));
	assert_ok(sluice_blob_to_dlpack(blob, 0, &out));
	tensor = out;
	assert_int_equal(tensor->t.device_type, 12);
	assert_int_equal(tensor->t.device_id, 1);
	assert_ptr_equal(tensor->t.data, memory);
	tensor->deleter(tensor);
	assert_let_go(blob, d->store, "t");
	assert_ok(sluice_device_free(memory));
	assert_idle(d->store);
}

DAEMON_MAIN("256M", {"publish", publish_as_child})
