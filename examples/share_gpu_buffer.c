/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes share an array in the memory of a GPU without a copy. The first one ends before the second one
 * begins:
 *
 *   sluiced &
 *   share_gpu_buffer cuda produce squares 1000
 *   share_gpu_buffer cuda consume squares
 *
 * "emulated" instead of "cuda" works without a GPU.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/device.h>
#include <sluice/store.h>

static int check(int rc)
{
	if (rc < 0) {
		fprintf(stderr, "share_gpu_buffer: %s\n", sluice_last_message());
		exit(1);
	}
	return rc;
}

static void *pinned(int device, size_t n)
{
	void *memory;

	check(sluice_pinned_alloc(device, n, &memory));
	return memory;
}

static void produce(sluice_store *store, int device, const char *name, size_t count)
{
	struct sluice_blob_metadata metadata = SLUICE_BLOB_METADATA_INIT;
	struct sluice_blob_options options = SLUICE_BLOB_OPTIONS_INIT;
	double *numbers = pinned(device, count * sizeof(double));
	sluice_stream stream;
	sluice_blob *blob;

	for (size_t i = 0; i < count; i++)
		numbers[i] = (double)i * (double)i;
	metadata.type = SLUICE_FLOAT64;
	metadata.rank = 1;
	metadata.shape[0] = (int64_t)count;
	options.metadata = &metadata;
	check(sluice_stream_new(device, &stream));
	check(sluice_blob_create(store, name, count * sizeof(double), device, &options, &blob));

	/* The stream fills it, here by a copy, as well by a kernel; behind that it is sealed. Nothing here waits. */
	check(sluice_copy_on(sluice_blob_mutable_data(blob), numbers, count * sizeof(double),
	                     stream));
	check(sluice_blob_seal_on(blob, stream));

	/* Whether it was sealed has to be asked before the handle is given up. */
	check(sluice_blob_wait_sealed(blob, -1));
	sluice_blob_release(blob);
	check(sluice_stream_free(stream));
	check(sluice_pinned_free(numbers));
}

static void consume(sluice_store *store, int device, const char *name)
{
	struct sluice_blob_metadata metadata = SLUICE_BLOB_METADATA_INIT;
	double *numbers, sum = 0;
	sluice_stream stream;
	sluice_blob *blob;
	void *own;
	size_t n;

	/* Waits for the producer. */
	check(sluice_blob_get_on(store, name, device, 60000, &blob));
	check(sluice_blob_get_metadata(blob, &metadata));
	n = sluice_blob_size(blob);
	check(sluice_stream_new(device, &stream));
	check(sluice_device_alloc(device, n, &own));
	numbers = pinned(device, n);

	/* The bytes are the device's, and read-only: a kernel can read them where they are. */
	check(sluice_copy_on(own, sluice_blob_data(blob), n, stream));
	/* Behind that the blob is held no more. Nothing here waits, and nobody takes the bytes from under the stream. */
	check(sluice_blob_release_on(blob, stream));
	check(sluice_blob_delete(store, name));
	check(sluice_copy_on(numbers, own, n, stream));
	check(sluice_stream_synchronize(device, stream));
	for (int64_t i = 0; i < metadata.shape[0]; i++)
		sum += numbers[i];
	printf("%.0f\n", sum);

	check(sluice_pinned_free(numbers));
	check(sluice_device_free(own));
	check(sluice_stream_free(stream));
}

int main(int argc, char **argv)
{
	sluice_store *store;
	int device;

	if (argc < 4) {
		fprintf(stderr, "usage: share_gpu_buffer DEVICE produce NAME COUNT | DEVICE "
		                "consume NAME\n");
		return 1;
	}
	check(sluice_device_find(argv[1], &device));
	check(sluice_store_open(NULL, NULL, &store));
	if (!strcmp(argv[2], "produce") && argc == 5)
		produce(store, device, argv[3], strtoul(argv[4], NULL, 10));
	else if (!strcmp(argv[2], "consume"))
		consume(store, device, argv[3]);
	return check(sluice_store_close(store));
}
