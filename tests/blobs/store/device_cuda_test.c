/* SPDX-License-Identifier: Apache-2.0 */
/* What only CUDA has of blobs on devices: addresses on a bus, captured streams, its numbers in tensors. Over the fake driver. */
#include "device/cuda_common.h"
#include "lib/daemon.h"
#include "store/dlpack.h"

enum { THREAD_LOCAL = 1 };

DAEMON_TEST(a_stream_that_is_captured_does_not_seal)
{
	sluice_stream stream;
	sluice_blob *blob;
	CUgraph graph;

	assert_ok(sluice_stream_new(cuda_number, &stream));
	assert_ok(sluice_blob_create(d->store, "x", 100, cuda_number, NULL, &blob));
	assert_int_equal(cu.cuCtxPushCurrent_v2(cuda_primaries[0]), 0);
	assert_int_equal(cu.cuStreamBeginCapture_v2(stream, THREAD_LOCAL), 0);
	assert_refused(sluice_blob_seal_on(blob, stream), EINVAL, "captur");
	assert_refused(sluice_blob_wait_sealed(blob, 0), EINVAL, "nobody");
	/* The capture has not suffered. */
	assert_int_equal(cu.cuStreamEndCapture(stream, &graph), 0);
	assert_non_null(graph);
	assert_int_equal(cu.cuGraphDestroy(graph), 0);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	assert_ok(sluice_blob_seal_on(blob, stream));
	assert_ok(sluice_blob_wait_sealed(blob, 20000));
	assert_let_go(blob, d->store, "x");
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

DAEMON_TEST(a_default_stream_is_that_of_the_blob_s_device)
{
	sluice_blob *blob;

	for (int device = cuda_number; device < cuda_number + 2; device++) {
		assert_ok(sluice_blob_create(d->store, "x", 100, device, NULL, &blob));
		assert_ok(sluice_blob_seal_on(blob, SLUICE_STREAM_DEFAULT));
		assert_ok(sluice_blob_wait_sealed(blob, 20000));
		assert_let_go(blob, d->store, "x");
	}
	assert_idle(d->store);
}

DAEMON_TEST(a_tensor_has_the_number_that_cuda_has_for_its_device)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	struct managed *tensor;
	sluice_blob *blob;
	void *out;

	m.type = SLUICE_UINT8;
	m.rank = 1;
	m.shape[0] = 100;
	o.metadata = &m;
	for (int i = 0; i < 2; i++) {
		assert_ok(sluice_blob_create(d->store, "t", 100, cuda_number + i, &o, &blob));
		assert_ok(sluice_blob_seal(blob));
		assert_ok(sluice_blob_to_dlpack(blob, 0, &out));
		tensor = out;
		assert_int_equal(tensor->t.device_type, 2);
		assert_int_equal(tensor->t.device_id, i);
		assert_ptr_equal(tensor->t.data, sluice_blob_data(blob));
		tensor->deleter(tensor);
		assert_let_go(blob, d->store, "t");
	}
	assert_idle(d->store);
}

DAEMON_TEST(a_place_is_an_address_on_the_bus)
{
	struct sluice_blob_info info = {.size = sizeof(info)};
	struct sluice_device description = {.size = sizeof(description)};
	sluice_blob *blob;

	for (int device = cuda_number; device < cuda_number + 2; device++) {
		assert_ok(sluice_device_describe(device, &description));
		assert_ok(sluice_blob_create(d->store, "x", 100, device, NULL, &blob));
		assert_ok(sluice_blob_seal(blob));
		assert_ok(sluice_blob_stat(d->store, "x", &info));
		assert_non_null(description.pci);
		assert_string_equal(info.place, description.pci);
		assert_int_equal(info.device, device);
		assert_let_go(blob, d->store, "x");
	}
	assert_idle(d->store);
}

/* The driver registers memory that is mapped read-only only if it is told that it is. */
DAEMON_TEST(a_blob_on_the_host_is_read_by_a_gpu)
{
	sluice_blob *blob = put(d->store, "x", 200000, 0), *read;
	char *back = malloc(200000);
	sluice_stream stream;
	void *there;

	assert_ok(sluice_blob_get_on(d->store, "x", cuda_number, 0, &read));
	assert_true(cuda_device->ops->registered(cuda_device, sluice_blob_data(read), 200000));
	assert_ok(sluice_device_alloc(cuda_number, 200000, &there));
	assert_ok(sluice_stream_new(cuda_number, &stream));
	assert_ok(sluice_copy_on(there, sluice_blob_data(read), 200000, stream));
	assert_ok(sluice_stream_synchronize(cuda_number, stream));
	assert_ok(sluice_copy(back, there, 200000));
	assert_bytes(back, sluice_blob_data(blob), 200000);
	free(back);
	assert_ok(sluice_stream_free(stream));
	assert_ok(sluice_device_free(there));
	assert_ok(sluice_blob_release(read));
	assert_let_go(blob, d->store, "x");
	assert_idle(d->store);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "64M", NULL};

	row_start(1, argv);
	(void)argc;
	daemon_options = options;
	return RUN_TESTS(cuda_setup, NULL);
}
