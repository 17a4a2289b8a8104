/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/codecs.c: what the codecs make of one kind of frame, and how fast; not built by default:
 *   ninja -C BUILD bench/bench_codecs && BUILD/bench/bench_codecs [THREADS [NOISE [SECONDS]]]
 *
 * Frames are float32, 1080 x 1920: waves that move, with noise of a uniform distribution added that
 * is NOISE (default 2^-18) of them. Chunks of 512 KiB of these, each shuffled and then compressed, the
 * next one by whichever thread is free. The last figures are of zlib after a shuffle in plain C, which
 * is what HDF5 has. MB/s are of bytes before; the median of five rounds.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "codec/codec.h"

enum { ROWS = 1080, COLUMNS = 1920, FRAMES = 8, ROUNDS = 5 };
#define CHUNK  ((size_t)512 << 10)
#define BYTES  ((size_t)ROWS * COLUMNS * 4 * FRAMES / CHUNK * CHUNK)
#define CHUNKS (BYTES / CHUNK)

struct way {
	const struct sl_codec *codec; /* NULL: zlib and plain C */
	int level;
	bool shuffle, ask; /* ask: whether it pays */
};

struct job {
	const struct way *way;
	const unsigned char *in;
	_Atomic size_t next, packed;
};

static double now(void)
{
	return (double)sl_now() * 1e-9;
}

static double random_unit(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static void make_frames(float *out, double noise)
{
	uint64_t seed = 1;

	for (int frame = 0; frame < FRAMES; frame++)
		for (int y = 0; y < ROWS; y++)
			for (int x = 0; x < COLUMNS; x++)
				*out++ = 2 + sin(x * 0.011 + frame * 0.1) * cos(y * 0.017) +
				         0.3 * sin(0.05 * (x + y) - frame * 0.2) +
				         2 * noise * random_unit(&seed);
}

static void plain_shuffle(const unsigned char *in, size_t n, unsigned char *out)
{
	for (size_t byte = 0; byte < 4; byte++)
		for (size_t i = 0; i < n / 4; i++)
			*out++ = in[4 * i + byte];
}

static size_t pack(const struct way *way, void *state, const unsigned char *in,
                   unsigned char *shuffled, unsigned char *out, size_t room)
{
	uLongf length = room;

	if (!way->codec) {
		plain_shuffle(in, CHUNK, shuffled);
		return compress2(out, &length, shuffled, CHUNK, way->level) == Z_OK ? length
		                                                                    : CHUNK;
	}
	if (way->shuffle) {
		sl_shuffle(in, CHUNK, 4, shuffled);
		in = shuffled;
	}
	if (way->ask && !sl_codec_pays(way->codec, state, in, CHUNK, out, room))
		return CHUNK;
	length = way->codec->compress(state, in, CHUNK, out, CHUNK);
	return length ? length : CHUNK;
}

static void *work(void *argument)
{
	struct job *job = argument;
	const struct sl_codec *codec = job->way->codec;
	size_t room = 2 * CHUNK, i;
	unsigned char *shuffled = malloc(CHUNK), *out = malloc(room);
	void *state = NULL;

	if (!shuffled || !out || (codec && codec->state_new(job->way->level, 1, CHUNK, &state)))
		exit(1);
	while ((i = job->next++) < CHUNKS)
		job->packed += pack(job->way, state, job->in + i * CHUNK, shuffled, out, room);
	if (codec)
		codec->state_free(state);
	free(shuffled);
	free(out);
	return NULL;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(const char *name, const struct way *way, const void *in, unsigned threads,
                    double seconds)
{
	double times[ROUNDS];
	struct job job = {.way = way, .in = in};
	pthread_t thread[64];

	for (int round = 0; round < ROUNDS; round++) {
		double start = now();
		unsigned passes = 0;

		do {
			job.next = job.packed = 0;
			for (unsigned i = 0; i < threads; i++)
				if (sl_thread_start(&thread[i], "bench", work, &job))
					exit(1);
			for (unsigned i = 0; i < threads; i++)
				pthread_join(thread[i], NULL);
			passes++;
		} while (now() - start < seconds / ROUNDS);
		times[round] = (now() - start) / passes;
	}
	qsort(times, ROUNDS, sizeof(times[0]), compare);
	printf("%-34s %2u threads %8.0f MB/s  ratio %.3f\n", name, threads,
	       BYTES / times[ROUNDS / 2] / 1e6, (double)BYTES / job.packed);
	fflush(stdout);
}

/* One thread, out of and into memory that is in the cache. */
static void measure_shuffle(const unsigned char *in, double seconds)
{
	static const char *const names[] = {"plain C", "SSE2", "AVX2"};
	unsigned char *out = malloc(CHUNK);

	for (enum sl_simd way = 0; way < SL_SIMD_WAYS; way++)
		for (size_t size = 2; size <= 8 && sl_simd_limit(way) == way; size *= 2) {
			double start = now(), end;
			size_t bytes = 0;

			do {
				for (int i = 0; i < 20; i++, bytes += CHUNK)
					sl_shuffle(in, CHUNK, size, out);
			} while ((end = now()) - start < seconds / ROUNDS);
			printf("shuffle of %zu bytes, %-12s %22.0f MB/s\n", size, names[way],
			       bytes / (end - start) / 1e6);
		}
	free(out);
}

static void measure_precision(const unsigned char *in, double seconds)
{
	static const char *const names[] = {"plain C", NULL, "AVX2"};
	unsigned char *out = malloc(CHUNK);

	for (enum sl_simd way = 0; way < SL_SIMD_WAYS; way++)
		for (enum sl_float type = 0; type <= SL_FLOAT64 && sl_simd_limit(way) == way;
		     type++) {
			double start = now(), end, error = 0;
			size_t bytes = 0;

			if (!names[way])
				continue;
			do {
				for (int i = 0; i < 20; i++, bytes += CHUNK)
					error = sl_precision_round(type, in, CHUNK / (2 << type), 7,
					                           out);
			} while ((end = now()) - start < seconds / ROUNDS);
			printf("float%d to 7 bits, %-8s (error %.3g) %12.0f MB/s\n", 16 << type,
			       names[way], error, bytes / (end - start) / 1e6);
		}
	free(out);
}

int main(int argc, char **argv)
{
	unsigned threads = argc > 1 ? atoi(argv[1]) : 1;
	double noise = argc > 2 ? atof(argv[2]) : 0x1p-18, seconds = argc > 3 ? atof(argv[3]) : 2;
	float *frames = malloc((size_t)ROWS * COLUMNS * 4 * FRAMES);
	char name[64];

	if (!frames || threads < 1 || threads > 64)
		return 2;
	make_frames(frames, noise);
	for (size_t i = 0; sl_codec_at(i); i++) {
		const struct sl_codec *codec = sl_codec_at(i);

		if (codec->missing)
			printf("%s: %s\n", codec->name, codec->missing);
		for (int level = codec->least; !codec->missing && level <= SL_MIN(codec->most, 6);
		     level++) {
			struct way way = {codec, level, true, codec->filter != 0};

			snprintf(name, sizeof(name), "%s %d (%s), shuffle", codec->name, level,
			         codec->encoder);
			measure(name, &way, frames, threads, seconds);
			if (level > 1 || !codec->filter)
				continue;
			way.ask = false;
			snprintf(name, sizeof(name), "  it did not ask whether it pays");
			measure(name, &way, frames, threads, seconds);
			way.shuffle = false;
			snprintf(name, sizeof(name), "  nor shuffled");
			measure(name, &way, frames, threads, seconds);
		}
	}
	measure("zlib 1, shuffle in plain C", &(struct way){NULL, 1, true, false}, frames, threads,
	        seconds);
	measure("zlib 6, shuffle in plain C", &(struct way){NULL, 6, true, false}, frames, threads,
	        seconds);
	if (threads == 1) {
		measure_shuffle((unsigned char *)frames, seconds);
		measure_precision((unsigned char *)frames, seconds);
	}
	free(frames);
	return 0;
}
