/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes share an array without a copy:
 *
 *   sluiced &
 *   share_buffer consume squares &
 *   share_buffer produce squares 1000
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/store.h>

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, sluice_last_message());
	return EXIT_FAILURE;
}

static int produce(sluice_store *store, const char *name, size_t count)
{
	struct sluice_blob_metadata metadata = SLUICE_BLOB_METADATA_INIT;
	struct sluice_blob_options options = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *blob;
	double *numbers;

	metadata.type = SLUICE_FLOAT64;
	metadata.rank = 1;
	metadata.shape[0] = (int64_t)count;
	options.metadata = &metadata;
	if (sluice_blob_create(store, name, count * sizeof(double), -1, &options, &blob))
		return failed("create");
	numbers = sluice_blob_mutable_data(blob);
	for (size_t i = 0; i < count; i++)
		numbers[i] = (double)i * (double)i;
	if (sluice_blob_seal(blob)) {
		sluice_blob_release(blob);
		return failed("seal");
	}
	sluice_blob_release(blob);
	return EXIT_SUCCESS;
}

static int consume(sluice_store *store, const char *name)
{
	struct sluice_blob_metadata metadata = SLUICE_BLOB_METADATA_INIT;
	sluice_blob *blob;
	const double *numbers;
	double sum = 0;

	/* Waits for the producer. */
	if (sluice_blob_get(store, name, 60000, &blob))
		return failed("get");
	sluice_blob_get_metadata(blob, &metadata);
	numbers = sluice_blob_data(blob);
	for (int64_t i = 0; numbers && i < metadata.shape[0]; i++)
		sum += numbers[i];
	printf("%.0f\n", sum);
	sluice_blob_release(blob);
	return sluice_blob_delete(store, name) ? failed("delete") : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	sluice_store *store;
	int status = EXIT_FAILURE;

	if (argc < 3) {
		fprintf(stderr, "usage: share_buffer produce NAME COUNT | consume NAME\n");
		return EXIT_FAILURE;
	}
	if (sluice_store_open(NULL, NULL, &store))
		return failed("open");
	if (!strcmp(argv[1], "produce") && argc == 4)
		status = produce(store, argv[2], strtoul(argv[3], NULL, 10));
	else if (!strcmp(argv[1], "consume"))
		status = consume(store, argv[2]);
	sluice_store_close(store);
	return status;
}
