/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that write frames into one file, for the tests of this folder:
 *   mpirun -n RANKS ranks_write PATH [OPTION...]
 * Element i of frame k of series s is computed from these numbers, so that the file of one rank has to be that of
 * several. Options:
 *   frames=N       frames of each series (10)
 *   cut=HOW        blocks: slabs, columns, odd (of different sizes, across chunks), some (a rank has none)
 *   codec=NAME     for all series
 *   thread=LEVEL   multiple, serialized, funneled or single
 *   every=N        so many frames a flush (0: at the end)
 *   checkpoint=N   so many frames a checkpoint (0: none)
 *   append=N       continues a file that has N frames
 *   slow=RANK      which sleeps a millisecond before each frame
 *   lazy=RANK      which submits nothing in the second half, and closes
 *   seed=N         of pauses; 0: none
 *   precision=N    of the first series
 *   die=RANK       which is killed while it writes, after us=N microseconds or before frame after=N
 *   told=PATH      a file for the frames that are visible, as 3 numbers of 8 bytes
 *   nodes=1        a file for each node
 *   leave=1        MPI_Finalize() comes before the writer is closed
 *   desert=RANK    which calls MPI_Finalize() after half of the frames, with the writer open
 *   only=1         SLUICE_WRITER_ONLY_HDF5
 *   absent=RANK    which does not open the writer; the others wait 100 ms for it
 * Rank 0 prints a line for each flush: the frames that are visible then. An error of a call ends the frames; each rank closes
 * the writer in any case, and prints the error of that.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sluice/mpi.h>

enum { SERIES = 3 };

static struct setup {
	unsigned frames, every, checkpoint, append, seed, precision, us, after, leave, nodes, only;
	int slow, lazy, die, absent, desert, rank, ranks;
	const char *cut, *codec, *thread, *path, *told;
} setup = {.frames = 10,
           .slow = -1,
           .lazy = -1,
           .die = -1,
           .absent = -1,
           .desert = -1,
           .cut = "slabs",
           .codec = "deflate",
           .thread = "multiple"};

static void good(int rc)
{
	if (!rc)
		return;
	fprintf(stderr, "rank %d: %d: %s\n", setup.rank, rc, sluice_last_message());
	fflush(NULL);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* -------------------------------------------------------------------------------------- shapes */

static const struct kind {
	const char *name;
	int type;
	unsigned rank;
	uint64_t shape[4], chunk[4];
} kinds[SERIES] = {
	{"fields/u", SLUICE_FLOAT32, 2, {60, 50}, {10, 25}},
	{"v", SLUICE_FLOAT64, 3, {21, 14, 9}, {4, 5, 9}},
	{"deep/er/w", SLUICE_INT16, 1, {2803}, {700}},
};

/* Where the part of rank r of n begins, of a length. */
static uint64_t part_start(uint64_t length, int r, int n)
{
	bool odd = !strcmp(setup.cut, "odd");

	if (r == n)
		return length;
	if (!odd)
		return length * (uint64_t)r / (uint64_t)n;
	/* Of different sizes, and across chunks. */
	return (length * (uint64_t)r / (uint64_t)n + (r ? (uint64_t)(r % 2) * 2 + 1 : 0)) %
	       (length + 1);
}

static struct sluice_block block_of(const struct kind *kind)
{
	struct sluice_block block = {{0}, {0}};
	int ranks = setup.ranks, rank = setup.rank;
	unsigned along = !strcmp(setup.cut, "columns") ? kind->rank - 1 : 0;

	for (unsigned i = 0; i < kind->rank; i++)
		block.count[i] = kind->shape[i];
	if (!strcmp(setup.cut, "some")) {
		ranks = ranks > 1 ? ranks - 1 : 1;
		if (rank == ranks) {
			block.count[0] = 0;
			return block;
		}
	}
	block.start[along] = part_start(kind->shape[along], rank, ranks);
	block.count[along] = part_start(kind->shape[along], rank + 1, ranks) - block.start[along];
	return block;
}

/* -------------------------------------------------------------------------------------- frames */

static double value(unsigned s, unsigned k, uint64_t i)
{
	return (double)((i / 3 + k * 7 + s * 13) % 251) + (double)((i * 2654435761u + k) % 16) / 16;
}

static void element_set(const struct kind *kind, void *frame, uint64_t at, double v)
{
	if (kind->type == SLUICE_FLOAT32)
		((float *)frame)[at] = (float)v;
	else if (kind->type == SLUICE_FLOAT64)
		((double *)frame)[at] = v;
	else
		((int16_t *)frame)[at] = (int16_t)(v * 16);
}

static void fill(unsigned s, unsigned k, const struct sluice_block *block, void *frame)
{
	const struct kind *kind = &kinds[s];
	uint64_t count = 1;

	for (unsigned i = 0; i < kind->rank; i++)
		count *= block->count[i];
	for (uint64_t at = 0; at < count; at++) {
		uint64_t left = at, whole = 0, scale = 1;

		for (unsigned i = kind->rank; i--;) {
			whole += (block->start[i] + left % block->count[i]) * scale;
			left /= block->count[i];
			scale *= kind->shape[i];
		}
		element_set(kind, frame, at, value(s, k, whole));
	}
}

static void doze(unsigned us)
{
	struct timespec time = {0, (long)us * 1000};

	nanosleep(&time, NULL);
}

static void pause_maybe(unsigned *state)
{
	if (!setup.seed)
		return;
	*state = *state * 1103515245 + 12345;
	if (*state >> 16 & 1)
		doze(*state >> 18 & 1023);
}

static int write_frame(sluice_series *series, unsigned s, unsigned k,
                       const struct sluice_block *block)
{
	double scalars[] = {k * 0.5, s + 100.0 * k};
	void *frame;
	int rc = sluice_series_acquire(series, -1, &frame);

	if (rc)
		return rc;
	fill(s, k, block, frame);
	return sluice_series_submit(series, frame, s == 0 ? scalars : NULL);
}

static void *die_later(void *argument)
{
	doze(setup.us);
	kill(getpid(), SIGKILL);
	return argument;
}

/* ---------------------------------------------------------------------------------------- main */

static void option(const char *text)
{
	const char *is = strchr(text, '=');
	const struct {
		const char *name;
		unsigned *number;
		int *of_rank;
		const char **word;
	} options[] = {
		{"frames", &setup.frames, NULL, NULL},
		{"every", &setup.every, NULL, NULL},
		{"checkpoint", &setup.checkpoint, NULL, NULL},
		{"append", &setup.append, NULL, NULL},
		{"seed", &setup.seed, NULL, NULL},
		{"precision", &setup.precision, NULL, NULL},
		{"us", &setup.us, NULL, NULL},
		{"after", &setup.after, NULL, NULL},
		{"leave", &setup.leave, NULL, NULL},
		{"nodes", &setup.nodes, NULL, NULL},
		{"only", &setup.only, NULL, NULL},
		{"slow", NULL, &setup.slow, NULL},
		{"die", NULL, &setup.die, NULL},
		{"absent", NULL, &setup.absent, NULL},
		{"desert", NULL, &setup.desert, NULL},
		{"told", NULL, NULL, &setup.told},
		{"lazy", NULL, &setup.lazy, NULL},
		{"cut", NULL, NULL, &setup.cut},
		{"codec", NULL, NULL, &setup.codec},
		{"thread", NULL, NULL, &setup.thread},
	};

	for (size_t i = 0; is && i < sizeof(options) / sizeof(options[0]); i++) {
		if (strncmp(text, options[i].name, (size_t)(is - text)) ||
		    options[i].name[is - text])
			continue;
		if (options[i].number)
			*options[i].number = (unsigned)atoi(is + 1);
		else if (options[i].of_rank)
			*options[i].of_rank = atoi(is + 1);
		else
			*options[i].word = is + 1;
		return;
	}
	fprintf(stderr, "no option: %s\n", text);
	exit(2);
}

static sluice_writer *open_writer(sluice_context *ctx)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_attribute attribute = {.name = "title", .text = "ranks"};
	sluice_writer *w;

	o.flags = setup.append ? SLUICE_WRITER_APPEND : SLUICE_WRITER_REPLACE;
	o.flags |= setup.nodes ? SLUICE_WRITER_NODE_FILES : 0;
	o.flags |= setup.only ? SLUICE_WRITER_ONLY_HDF5 : 0;
	o.checkpoint_frames = setup.checkpoint;
	o.checkpoint_ms = setup.checkpoint ? 0 : -1;
	o.threads = 2;
	o.open_ms = setup.absent < 0 ? 0 : 100;
	if (!setup.append) {
		o.attributes = &attribute;
		o.attribute_count = 1;
	}
	good(sluice_writer_open_mpi(ctx, MPI_COMM_WORLD, setup.path, &o, &w));
	return w;
}

static sluice_series *add_series(sluice_writer *w, unsigned s, struct sluice_block *block)
{
	static const char *const scalars[] = {"time", "step"};
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
	sluice_series *series;

	o.type = kinds[s].type;
	o.rank = kinds[s].rank;
	memcpy(o.shape, kinds[s].shape, sizeof(o.shape));
	memcpy(o.chunk, kinds[s].chunk, sizeof(o.chunk));
	o.codec = setup.codec;
	if (s == 0) {
		o.scalars = scalars;
		o.scalar_count = 2;
		o.precision = setup.precision;
	}
	*block = block_of(&kinds[s]);
	good(sluice_series_add_block(w, kinds[s].name, &o, block, -1, &series));
	return series;
}

static void tell_visible(sluice_series *const *series, int told, bool print)
{
	struct sluice_writer_counts counts = {.size = sizeof(counts)};
	uint64_t visible[SERIES];

	if (setup.rank)
		return;
	for (unsigned s = 0; s < SERIES; s++) {
		good(sluice_series_stats(series[s], &counts));
		visible[s] = counts.visible + counts.frames_before;
		if (print)
			printf("%" PRIu64 "%c", visible[s], s + 1 < SERIES ? ' ' : '\n');
	}
	if (told >= 0 && pwrite(told, visible, sizeof(visible), 0) != sizeof(visible))
		exit(3);
	fflush(stdout);
}

/* Frame k of all series; the first error. */
static int write_frames(sluice_series *const *series, const struct sluice_block *blocks, unsigned k,
                        unsigned *state)
{
	int rc = 0;

	if (setup.slow == setup.rank)
		doze(1000);
	if (setup.die == setup.rank && setup.after && k == setup.after)
		kill(getpid(), SIGKILL);
	for (unsigned s = 0; !rc && s < SERIES; s++) {
		pause_maybe(state);
		if (series[s])
			rc = write_frame(series[s], s, k, &blocks[s]);
	}
	return rc;
}

static int run(sluice_context *ctx)
{
	sluice_writer *w = open_writer(ctx);
	struct sluice_block blocks[SERIES];
	sluice_series *series[SERIES];
	unsigned state = setup.seed * 7919 + (unsigned)setup.rank,
		 end = setup.append + setup.frames;
	int rc = 0, told = -1;
	pthread_t killer;

	for (unsigned s = 0; s < SERIES; s++)
		series[s] = add_series(w, s, &blocks[s]);
	if (setup.told && !setup.rank)
		told = open(setup.told, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (setup.die == setup.rank && !setup.after)
		pthread_create(&killer, NULL, die_later, NULL);
	if (setup.lazy == setup.rank || setup.desert == setup.rank)
		end -= setup.frames / 2;
	for (unsigned k = setup.append; !rc && k < end; k++) {
		rc = write_frames(series, blocks, k, &state);
		if (!rc && setup.every && (k + 1) % setup.every == 0)
			rc = sluice_writer_flush(w, -1);
		if (!rc)
			tell_visible(series, told, setup.every && (k + 1) % setup.every == 0);
	}
	if (setup.desert == setup.rank) {
		MPI_Finalize();
	} else if (setup.leave) {
		/* No rank is in a call of the writer that needs another. */
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Finalize();
		rc = sluice_writer_flush(w, 10000);
	}
	if (rc)
		fprintf(stderr, "rank %d: %d: %s\n", setup.rank, rc, sluice_last_message());
	rc = sluice_writer_close(w, setup.desert < 0 ? 60000 : -1);
	if (rc)
		fprintf(stderr, "rank %d: close: %d: %s\n", setup.rank, rc, sluice_last_message());
	return rc;
}

int main(int argc, char **argv)
{
	static const char *const levels[] = {"single", "funneled", "serialized", "multiple"};
	static const int values[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
	                             MPI_THREAD_MULTIPLE};
	int level = MPI_THREAD_MULTIPLE, given, rc;
	sluice_context *ctx;

	if (argc < 2)
		return 2;
	setup.path = argv[1];
	for (int i = 2; i < argc; i++)
		option(argv[i]);
	for (int i = 0; i < 4; i++)
		level = strcmp(setup.thread, levels[i]) ? level : values[i];
	MPI_Init_thread(&argc, &argv, level, &given);
	if (given < level) {
		fprintf(stderr, "this MPI has no such level of threads\n");
		MPI_Finalize();
		return 77;
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &setup.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &setup.ranks);
	good(sluice_context_new(NULL, &ctx));
	/* Until another ends the job. */
	while (setup.absent == setup.rank)
		doze(1000);
	rc = run(ctx);
	sluice_context_close(ctx);
	if (!setup.leave && setup.desert != setup.rank)
		MPI_Finalize();
	return rc ? 1 : 0;
}
