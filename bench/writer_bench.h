/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program that bench/writer drives: it stores frames in one way, measures that, and prints one JSON
 * object. Anything that goes wrong ends it.
 */
#ifndef BENCH_WRITER_BENCH_H
#define BENCH_WRITER_BENCH_H

#include <sluice/writer.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define DATASET "v"

/* What all ways of storing are told. Frames are float32. */
struct sink_options {
	const char *path;
	const char *codec; /* "none", "deflate", "zstd", "lz4" */
	int level;
	size_t rows, columns;
	/* The rows are a block of the frames, which have `whole`: from row `first`. */
	size_t first, whole;
	const struct shared_writer *shared; /* how sluice opens it; NULL: it is not shared */
	int collective;                     /* parallel HDF5 writes so */
	size_t chunk_rows, chunk_columns;   /* 0: what sluice would choose, or contiguous */
	size_t chunk_frames; /* frames of a chunk; 0: one, or what sluice would choose */
	size_t cache;        /* bytes of HDF5's chunk cache; 0: as it is */
	uint64_t frames;     /* how many there will be */
	int grows;           /* sluice is not told so */
	size_t threads;
	unsigned depth;
	int stats; /* sluice tells of its stages at the end */
};

/* A writer of all ranks of MPI; both return as the calls of sluice. */
struct shared_writer {
	int (*open)(sluice_context *context, const char *path,
	            const struct sluice_writer_options *options, sluice_writer **out);
	int (*add)(sluice_writer *writer, const struct sink_options *o,
	           const struct sluice_series_options *options, sluice_series **out);
};

/*
 * A way of storing. The caller fills what acquire returned, submits it, and so on; push takes what stays
 * the caller's. After close all is in the file.
 */
struct sink_ops {
	const char *name;
	void *(*open)(const struct sink_options *options);
	float *(*acquire)(void *sink);
	void (*submit)(void *sink, float *frame);
	void (*push)(void *sink, const float *frame);
	void (*close)(void *sink);
};

extern const struct sink_ops sink_hdf5;   /* H5Dwrite, when it is called */
extern const struct sink_ops sink_course; /* the same on a thread behind a channel */
extern const struct sink_ops sink_sluice;
extern const struct sink_ops sink_nothing; /* forgets the frames */

const char *hdf5_version(void);
/* Quoted names, with commas between them. */
void sluice_print_codecs(void);

/* What the program is asked for; writer_main.c says what each is. */
extern struct bench_options {
	struct sink_options sink;
	const char *kind, *from, *state;
	unsigned steps, cores;
	int sync, fill, ready, apart, lock;
	double compute, pause;
} options;

/* What a run found, in seconds. */
extern struct bench_found {
	double start, cpu, seconds;
	double calls;                  /* in acquire, submit, push */
	double longest;                /* one of them */
	double filling;                /* in between */
	double busy;                   /* processor time of the whole machine */
	double lock_longest, lock_p99; /* of the calls of writer_lock.c */
} found;

double seconds_of(clockid_t id);
/* Sets those of an option by its name; ends the program if there is none. */
void options_set(const char *argument);
/* Begins, so that nothing is left to do but to store. Returns the sink for bench_run(). */
void *bench_begin(const struct sink_ops *ops);
void bench_run(const struct sink_ops *ops, void *sink);
/* A JSON object of what was found; stored: bytes of the file. */
void bench_print(double stored);

/* Another thread that calls HDF5 meanwhile. */
void lock_start(void);
void lock_stop(void); /* writes what it found */

size_t frame_cells(void);
/* Before a run; for source_at() only a file. */
void source_open(void);
size_t source_count(void); /* of different frames */
/* All of them in turn, or as many as are wanted, evenly. */
const float *source_at(uint64_t i);
/* The next one, by a copy or the simulation, and as long as a caller shall compute. */
void source_fill(float *frame, uint64_t i);

/* Memory whose pages are there. */
void *touched(size_t bytes);

#endif
