/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writers that die, for kill_test.py.
 *   kill WAY PATH                        how many points there are: writes to files
 *   kill WAY PATH FIRST STEP             dies at each of these points, with a file of its own, PATH.POINT
 *   kill WAY PATH random COUNT SEED US   dies at any moment of that many microseconds
 *   kill WAY PATH finish N N N N N       goes on where another has died: so many frames are there
 * After each of them one line: the point, and for each series the frames that were visible and those that
 * were submitted. A process without HDF5 and without threads makes those that die.
 */
#include <inttypes.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frames/content.h"
#include "h5file/points.h"

enum { SERIES = 5, FRAMES = 120, ROOM = 130 };

/* Memory that a writer shares with whoever waits for its death. */
static struct told {
	volatile unsigned visible[SERIES], submitted[SERIES];
	volatile unsigned points;
	unsigned at; /* 0: at none */
} * told;

static const char *const scalars[] = {"time", "step"};

/* How they end, so that the way there is another: by calls, by checkpoints, in a file that is continued. */
static const struct way {
	const char *name;
	unsigned every;      /* so many frames a flush */
	unsigned checkpoint; /* so many frames a checkpoint */
	unsigned base;       /* so many frames are there */
	const char *backend;
	unsigned gather; /* frames of a chunk */
} ways[] = {
	{"flushed", 5, 0, 0, "posix"},      {"checkpoints", 0, 3, 0, "posix"},
	{"continued", 6, 0, 60, "posix"},   {"any", 4, 0, 0, "auto"},
	{"gathered", 5, 0, 60, "posix", 7},
};

/* ------------------------------------------------------------------------------------- writing */

struct run {
	const struct way *way;
	const char *path;
	sluice_context *ctx;
	sluice_writer *w;
	sluice_series *series[SERIES];
};

static void good(int rc)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "%d: %s\n", rc, sluice_last_message());
	_exit(1);
}

static bool has(const char *codec)
{
	struct sluice_codec told_of = {.size = sizeof(told_of)};

	for (size_t i = 0; !sluice_codec_describe(i, &told_of); i++)
		if (!strcmp(told_of.name, codec) && !told_of.missing)
			return true;
	return false;
}

static struct content content_of(unsigned s)
{
	return (struct content){SLUICE_FLOAT32, CONTENT_SMOOTH, 1000 + s};
}

static void add(struct run *run, unsigned s)
{
	static const char *const names[SERIES] = {"fields/u", "fields/v", "w", "p", "deep/er/q"};
	static const char *const codecs[SERIES] = {"deflate", "zstd", "lz4", "none", "none"};
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;

	o.type = SLUICE_FLOAT32;
	o.rank = 2;
	o.shape[0] = 9;
	o.shape[1] = 10;
	o.chunk[0] = s ? 9 : 5;
	o.chunk[1] = 10;
	o.chunk_frames = s == 3 ? 0 : run->way->gather;
	o.codec = has(codecs[s]) ? codecs[s] : "none";
	o.frames = s == 3 ? ROOM : 0;
	o.depth = 3;
	o.scalars = scalars;
	o.scalar_count = s < 2 ? 2 - s : 0;
	good(sluice_series_add(run->w, names[s], &o, &run->series[s]));
}

static void begin(struct run *run, bool first)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;

	o.threads = 2;
	o.flags = first ? 0 : SLUICE_WRITER_APPEND;
	o.checkpoint_frames = run->way->checkpoint;
	o.checkpoint_ms = -1;
	good(sluice_writer_open(run->ctx, run->path, &o, &run->w));
}

static void look(struct run *run, unsigned before)
{
	struct sluice_writer_counts stats = {.size = sizeof(stats)};

	for (unsigned s = 0; s < SERIES; s++) {
		good(sluice_series_stats(run->series[s], &stats));
		told->visible[s] = before + (unsigned)stats.visible;
	}
}

static void put(struct run *run, unsigned s, uint64_t frame)
{
	double values[] = {content_scalar(&(struct content){.seed = 1000 + s}, frame, 0),
	                   content_scalar(&(struct content){.seed = 1000 + s}, frame, 1)};
	struct content content = content_of(s);
	void *memory;

	good(sluice_series_acquire(run->series[s], 60000, &memory));
	content_fill(&content, frame, 0, 90, memory);
	told->submitted[s] = (unsigned)frame + 1;
	good(sluice_series_submit(run->series[s], memory, values));
}

static void session(struct run *run, unsigned from, unsigned to)
{
	begin(run, from == 0);
	for (unsigned s = 0; s < SERIES; s++)
		add(run, s);
	for (unsigned frame = from; frame < to; frame++) {
		for (unsigned s = 0; s < SERIES; s++)
			put(run, s, frame);
		if (run->way->every && frame % run->way->every == 0)
			good(sluice_writer_flush(run->w, 60000));
		look(run, from);
	}
	good(sluice_writer_close(run->w, 60000));
	for (unsigned s = 0; s < SERIES; s++)
		told->visible[s] = to;
}

static void go_on(const struct way *way, const char *path, char **counts)
{
	struct run run = {.way = way, .path = path};

	good(sluice_context_new(NULL, &run.ctx));
	begin(&run, false);
	for (unsigned s = 0; s < SERIES; s++)
		add(&run, s);
	for (unsigned s = 0; s < SERIES; s++)
		for (unsigned frame = (unsigned)atoi(counts[s]); frame < FRAMES; frame++)
			put(&run, s, frame);
	good(sluice_writer_close(run.w, 60000));
	good(sluice_context_close(run.ctx));
}

static int die(unsigned point)
{
	told->points = point;
	if (point == told->at)
		kill(getpid(), SIGKILL);
	return 0;
}

static void write_file(const struct way *way, const char *path)
{
	struct sluice_config config = SLUICE_CONFIG_INIT;
	struct run run = {.way = way, .path = path};

	alarm(120);
	config.backend = way->backend;
	config.workers = 2;
	good(sluice_context_new(&config, &run.ctx));
	if (way->base)
		session(&run, 0, way->base);
	points_hook = die;
	session(&run, way->base, FRAMES);
	points_hook = NULL;
	_exit(0);
}

/* --------------------------------------------------------------------------------------- deaths */

static pid_t start(const struct way *way, const char *path, unsigned at)
{
	pid_t process;

	unlink(path);
	memset((void *)told, 0, sizeof(*told));
	told->at = at;
	process = fork();
	if (!process)
		write_file(way, path);
	return process;
}

/* True: it was killed. */
static bool end(pid_t process)
{
	int status;

	if (process < 0 || waitpid(process, &status, 0) != process)
		exit(3);
	if (WIFSIGNALED(status) ? WTERMSIG(status) != SIGKILL : WEXITSTATUS(status))
		exit(4);
	return WIFSIGNALED(status);
}

static void tell(const char *path, bool died)
{
	printf("%s %d %u", path, died, told->points);
	for (unsigned s = 0; s < SERIES; s++)
		printf(" %u %u", told->visible[s], told->submitted[s]);
	printf("\n");
	fflush(stdout);
}

static void kill_at_points(const struct way *way, const char *path, unsigned first, unsigned step)
{
	bool died = true;

	for (unsigned at = first; died; at += step) {
		char name[600];

		snprintf(name, sizeof(name), "%.500s.%u", path, at);
		died = end(start(way, name, at));
		tell(name, died);
	}
}

static void kill_at_moments(const struct way *way, const char *path, unsigned count, uint64_t seed,
                            unsigned most_us)
{
	for (unsigned i = 0; i < count; i++) {
		char name[600];
		pid_t process;

		snprintf(name, sizeof(name), "%.500s.%u", path, i);
		process = start(way, name, 0);
		usleep((useconds_t)(pattern_mix(seed + i) % most_us));
		kill(process, SIGKILL);
		tell(name, end(process));
	}
}

int main(int argc, char **argv)
{
	const struct way *way = NULL;

	for (size_t i = 0; i < COUNT_OF(ways); i++)
		if (argc > 2 && !strcmp(argv[1], ways[i].name))
			way = &ways[i];
	if (!way)
		return 2;
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		return 1;
	if (argc == 3)
		tell(argv[2], end(start(way, argv[2], 0)));
	else if (argc == 5)
		kill_at_points(way, argv[2], (unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]));
	else if (argc == 4 + SERIES)
		go_on(way, argv[2], argv + 4);
	else if (argc == 7)
		kill_at_moments(way, argv[2], (unsigned)atoi(argv[4]), strtoull(argv[5], NULL, 0),
		                (unsigned)atoi(argv[6]));
	else
		return 2;
	return 0;
}
