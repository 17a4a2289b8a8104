/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a dataset "u" of float32 in frames, as bench/arrays asks for it:
 *
 *     bench_arrays hdf5|decode PATTERN FILE THREADS
 *
 * hdf5: by H5Dread, on one thread. decode: THREADS threads decode all chunks by the decoder of the library, from
 * memory into memory; chunks are rows of a frame. Prints what arrays_sides.py prints.
 */
#include <err.h>
#include <fcntl.h>
#include <hdf5.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "codec/codec.h"
#include "h5file/h5file.h"

enum { RANK = 3, HEAD = 8, CHUNKS = 200, THREADS_MOST = 256 };

static double bench_seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Begins or ends what is measured. */
static double elapsed, used;

static void bench_clock(int begins)
{
	double sign = begins ? -1 : 1;

	elapsed += sign * bench_seconds(CLOCK_MONOTONIC);
	used += sign * bench_seconds(CLOCK_PROCESS_CPUTIME_ID);
}

static uint64_t sum_of(const uint32_t *words, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += words[i];
	return sum;
}

static uint32_t *touched(size_t bytes)
{
	uint32_t *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

	if (!memory)
		err(1, "memory");
	memset(memory, 1, bytes);
	return memory;
}

static void check(int64_t rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s failed", what);
}

/* ---------------------------------------------------------------------------------------- HDF5 */

struct dataset {
	hid_t file, set, space;
	hsize_t shape[RANK], chunk[RANK];
};

static void dataset_open(const char *path, struct dataset *out)
{
	hid_t access = H5Pcreate(H5P_FILE_ACCESS), made;

	H5Pset_file_locking(access, 0, 1);
	out->file = H5Fopen(path, H5F_ACC_RDONLY, access);
	out->set = H5Dopen2(out->file, "u", H5P_DEFAULT);
	check(out->set, "H5Dopen2()");
	out->space = H5Dget_space(out->set);
	if (H5Sget_simple_extent_ndims(out->space) != RANK)
		errx(1, "a dataset of %d dimensions is needed", RANK);
	H5Sget_simple_extent_dims(out->space, out->shape, NULL);
	made = H5Dget_create_plist(out->set);
	if (H5Pget_layout(made) == H5D_CHUNKED) {
		H5Pget_chunk(made, RANK, out->chunk);
	} else {
		out->chunk[0] = 1;
		out->chunk[1] = out->shape[1] / HEAD;
		out->chunk[2] = out->shape[2];
	}
}

static void box_read(const struct dataset *d, const hsize_t *start, const hsize_t *count, void *out)
{
	hid_t memory = H5Screate_simple(RANK, count, NULL);

	H5Sselect_hyperslab(d->space, H5S_SELECT_SET, start, NULL, count, NULL);
	check(H5Dread(d->set, H5T_NATIVE_FLOAT, memory, d->space, H5P_DEFAULT, out), "H5Dread()");
	H5Sclose(memory);
}

/* Returns the bytes that were decoded; *sum is of the elements that came, or SIZE_MAX. */
static uint64_t hdf5_read(const char *path, const char *pattern, uint64_t *sum)
{
	struct dataset d;
	hsize_t start[RANK] = {0}, count[RANK];
	uint64_t bytes = 0;
	uint32_t *out;

	/* Memory is touched before the clock begins. */
	dataset_open(path, &d);
	size_t frame = d.shape[1] * d.shape[2], all = d.shape[0] * frame;
	H5Fclose(d.file);
	H5Dclose(d.set);
	out = touched(4 * (strcmp(pattern, "whole") ? frame + d.shape[0] * d.shape[1] : all));
	*sum = 0;
	bench_clock(1);
	dataset_open(path, &d);
	memcpy(count, d.shape, sizeof(count));
	if (!strcmp(pattern, "whole")) {
		box_read(&d, start, count, out);
	} else if (!strcmp(pattern, "frames")) {
		for (count[0] = 1; start[0] < d.shape[0]; start[0]++) {
			box_read(&d, start, count, out);
			*sum += sum_of(out, HEAD);
		}
	} else if (!strcmp(pattern, "column")) {
		start[2] = d.shape[2] / 2;
		count[2] = 1;
		box_read(&d, start, count, out);
	} else {
		srand(1);
		for (int i = 0; i < CHUNKS; i++) {
			for (int k = 0; k < RANK; k++) {
				hsize_t chunks = (d.shape[k] + d.chunk[k] - 1) / d.chunk[k];

				start[k] = (hsize_t)rand() % chunks * d.chunk[k];
				count[k] = d.chunk[k] < d.shape[k] - start[k]
				                   ? d.chunk[k]
				                   : d.shape[k] - start[k];
			}
			box_read(&d, start, count, out);
			bytes += 4 * count[0] * count[1] * count[2];
		}
		*sum = UINT64_MAX;
	}
	bench_clock(0);
	if (!strcmp(pattern, "whole"))
		*sum = sum_of(out, all);
	else if (!strcmp(pattern, "column"))
		*sum = sum_of(out, d.shape[0] * d.shape[1]);
	return bytes ? bytes : 4 * all;
}

/* -------------------------------------------------------------------------------------- decode */

struct packed {
	struct sl_h5_array array;
	struct sl_h5_place *places;
	char **stored, *out;
	size_t count;
	_Atomic size_t next;
};

static void *decode_run(void *argument)
{
	struct packed *p = argument;
	struct sl_unfilter *unfilter;
	size_t n = p->array.filters.bytes;

	if (sl_unfilter_new(&p->array.filters, &unfilter))
		errx(1, "no memory to decode");
	for (size_t i; (i = atomic_fetch_add(&p->next, 1)) < p->count;)
		if (sl_unfilter_run(unfilter, p->places[i].mask, p->stored[i], p->places[i].length,
		                    p->out + i * n))
			errx(1, "chunk %zu: %s", i, sluice_last_message());
	sl_unfilter_free(unfilter);
	return NULL;
}

static uint64_t decode(const char *path, int threads, uint64_t *sum)
{
	struct packed p = {0};
	struct sl_h5_reader *reader;
	struct sl_h5_bytes source = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
	pthread_t ids[THREADS_MOST];

	if (source.fd < 0 || sl_h5_reader_open(&source, path, "u", &reader, &p.array))
		errx(1, "%s: %s", path, sluice_last_message());
	const uint64_t *shape = p.array.shape, *chunk = p.array.chunk;
	if (p.array.rank != RANK || chunk[0] != 1 || shape[1] % chunk[1] || chunk[2] != shape[2])
		errx(1, "chunks are not rows of a frame");
	size_t each = shape[1] / chunk[1];
	p.count = shape[0] * each;
	p.places = calloc(p.count, sizeof(*p.places));
	p.stored = calloc(p.count, sizeof(*p.stored));
	uint64_t(*at)[RANK] = calloc(p.count, sizeof(*at));
	if (!p.places || !p.stored || !at)
		err(1, "memory");
	for (size_t i = 0; i < p.count; i++) {
		at[i][0] = i / each;
		at[i][1] = i % each * chunk[1];
		p.places[i].at = at[i];
	}
	if (sl_h5_reader_find(reader, p.count, p.places))
		errx(1, "%s: %s", path, sluice_last_message());
	for (size_t i = 0; i < p.count; i++) {
		p.stored[i] = malloc(p.places[i].length);
		if (pread(source.fd, p.stored[i], p.places[i].length, (off_t)p.places[i].address) !=
		    (ssize_t)p.places[i].length)
			err(1, "chunk %zu", i);
	}
	p.out = (char *)touched(p.array.bytes);
	bench_clock(1);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, decode_run, &p))
			errx(1, "no thread");
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	bench_clock(0);
	*sum = sum_of((uint32_t *)p.out, p.array.bytes / 4);
	return p.array.bytes;
}

int main(int argc, char **argv)
{
	int threads = argc == 5 ? atoi(argv[4]) : 0;
	uint64_t bytes, sum;

	if (threads < 1 || threads > THREADS_MOST || !strstr(" hdf5 decode ", argv[1]))
		errx(2, "usage: bench_arrays hdf5|decode PATTERN FILE THREADS");
	bytes = !strcmp(argv[1], "hdf5") ? hdf5_read(argv[3], argv[2], &sum)
	                                 : decode(argv[3], threads, &sum);
	printf("{\"bytes\": %" PRIu64 ", \"seconds\": %.9f, \"cpu_seconds\": %.9f, \"sum\": ",
	       bytes, elapsed, used);
	if (sum == UINT64_MAX)
		printf("null}\n");
	else
		printf("%" PRIu64 "}\n", sum);
	return 0;
}
