/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files with a history: writers continue a file, give up frames of it, append, and close, discard or die at
 * any write, again and again. After each of them the file is compared with a model, which knows the run that
 * every frame is of. Each writer has a process of its own, as has each look at its file.
 */
#include <fcntl.h>
#include <hdf5.h>
#include <signal.h>
#include <sluice/writer.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codec/codec.h"
#include "h5file/hdf5_read.h"
#include "h5file/points.h"
#include "lib/support.h"
#include "lib/unit.h"

enum { SERIES = 3, MOST = 400, ELEMENTS = 12000, SCALARS = 2, CHUNKS = 4096 };

/* Of a series: the run that each of its frames is of. */
struct model {
	unsigned frames;
	uint16_t run[MOST];
};

static struct series {
	char name[16];
	struct sluice_series_options o;
	size_t elements;
	struct model model;
	unsigned kept;    /* frames, in the run that comes */
	unsigned pushes;  /* frames of that run, at most */
	bool continue_at; /* gives up the others */
} series[SERIES];
static unsigned series_count, run_number;

/* How a run goes. */
static struct plan {
	uint64_t seed;
	unsigned flush_in; /* one of so many frames is flushed; 0: none */
	enum { CLOSES, DISCARDS, ENDS } end;
	bool durable;
} plan;

/* Memory that a run and a look share with the test. */
static struct told {
	unsigned points, at, before_close;
	struct {
		bool added;
		unsigned pushed, flushed;
		struct model seen;
	} of[SERIES];
	bool closed;
	uint64_t stored; /* bytes of visible chunks */
	char wrong[200];
} * told;
static char path[512], spare[600];

static float element(unsigned s, unsigned frame, unsigned run, size_t i)
{
	/* Frames of the runs compress to lengths of their own; no element is 0. */
	return 1 + (frame * 8191 + i * (run % 5 + 1) * 7 + run * 131 + s) %
	                   (run % 3 ? 251 : 65521u * (run % 2 + 1));
}

static double scalar(unsigned frame, unsigned run, size_t i)
{
	return frame * 0.5 + run * 1000 + i + 1;
}

/* --------------------------------------------------------------------------------------- write */

static int push(sluice_series *u, unsigned s, unsigned frame)
{
	static float values[ELEMENTS];
	double scalars[SCALARS];

	for (size_t i = 0; i < series[s].elements; i++)
		values[i] = element(s, frame, run_number, i);
	for (size_t i = 0; i < SCALARS; i++)
		scalars[i] = scalar(frame, run_number, i);
	told->of[s].pushed++;
	return sluice_series_push(u, values, series[s].o.scalar_count ? scalars : NULL, -1);
}

static int write_run(void)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	sluice_series *u[SERIES];
	sluice_context *ctx;
	sluice_writer *w;
	uint64_t seed = plan.seed;
	bool more = true;
	int rc;

	o.flags = SLUICE_WRITER_APPEND | (plan.durable ? SLUICE_WRITER_DURABLE : 0);
	o.checkpoint_ms = -1;
	o.full_disk_ms = 100;
	rc = sluice_context_new(NULL, &ctx);
	if (!rc)
		rc = sluice_writer_open(ctx, path, &o, &w);
	for (unsigned s = 0; !rc && s < series_count; s++) {
		struct sluice_series_options options = series[s].o;

		options.flags |= series[s].continue_at ? SLUICE_SERIES_CONTINUE_AT : 0;
		options.continue_at = series[s].kept;
		rc = sluice_series_add(w, series[s].name, &options, &u[s]);
		told->of[s].added = !rc;
	}
	for (unsigned i = 0; !rc && more; i++) {
		more = false;
		for (unsigned s = 0; !rc && s < series_count; s++)
			if (i < series[s].pushes) {
				rc = push(u[s], s, series[s].kept + i);
				more = true;
			}
		if (rc || !more || !plan.flush_in || unit_random(&seed) % plan.flush_in)
			continue;
		rc = sluice_writer_flush(w, -1);
		for (unsigned s = 0; !rc && s < series_count; s++)
			told->of[s].flushed = series[s].kept + told->of[s].pushed;
	}
	told->before_close = told->points;
	if (rc || plan.end == ENDS)
		return rc;
	if (plan.end == DISCARDS)
		sluice_writer_discard(w);
	else
		rc = sluice_writer_close(w, -1);
	told->closed = !rc && plan.end == CLOSES;
	return rc;
}

/* ---------------------------------------------------------------------------------------- look */

static const struct sl_codec *lent; /* to HDF5, which may not have its filter */
static size_t lent_bytes;

static size_t decode(unsigned flags, size_t count, const unsigned values[], size_t length,
                     size_t *room, void **bytes)
{
	void *decoded = H5allocate_memory(lent_bytes, false), *state;
	bool good = flags & H5Z_FLAG_REVERSE && !lent->state_new(1, 4, lent_bytes, &state);

	(void)count, (void)values;
	if (good) {
		good = !lent->decompress(state, *bytes, length, decoded, lent_bytes);
		lent->state_free(state);
	}
	H5free_memory(good ? *bytes : decoded);
	if (!good)
		return 0;
	*bytes = decoded;
	*room = lent_bytes;
	return lent_bytes;
}

static void lend(const struct series *of, hid_t list)
{
	H5Z_class2_t class = {H5Z_CLASS_T_VERS, 0, 1, 1, "lent", NULL, NULL, decode};
	hsize_t chunk[SLUICE_FRAME_RANK_MOST + 1];
	int rank = H5Pget_chunk(list, SLUICE_FRAME_RANK_MOST + 1, chunk);

	if (sl_codec_find(of->o.codec, 1, &lent))
		return;
	lent_bytes = sizeof(float);
	for (int i = 0; i < rank; i++)
		lent_bytes *= chunk[i];
	class.id = lent->filter;
	if (class.id > H5Z_FILTER_RESERVED)
		H5Zregister(&class);
}

static int wrong(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(told->wrong, sizeof(told->wrong), format, arguments);
	va_end(arguments);
	return 1;
}

static struct place {
	haddr_t start;
	hsize_t size, offset[SLUICE_FRAME_RANK_MOST + 1];
	char name[80];
} places[CHUNKS];
static size_t place_count;

static int place_compare(const void *left, const void *right)
{
	const struct place *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

/* Takes down the places of its visible chunks; after a close there are no others, and those that end
 * behind the frames that were there before have all filters. */
static int look_at_chunks(hid_t set, const char *name, hsize_t extent, unsigned before)
{
	hsize_t count = 0, wanted = 1, offset[SLUICE_FRAME_RANK_MOST + 1],
		chunk[SLUICE_FRAME_RANK_MOST + 1], extents[SLUICE_FRAME_RANK_MOST + 1];
	hid_t space = H5Dget_space(set), list = H5Dget_create_plist(set);
	int rank = H5Sget_simple_extent_dims(space, extents, NULL);
	unsigned mask;

	if (H5Pget_layout(list) == H5D_CHUNKED) {
		H5Pget_chunk(list, rank, chunk);
		H5Dget_num_chunks(set, space, &count);
	}
	for (int i = 0; i < rank && count; i++)
		wanted *= (extents[i] + chunk[i] - 1) / chunk[i];
	if (told->closed && count && count != wanted)
		return wrong("%s has %d chunks, and not %d", name, (int)count, (int)wanted);
	for (hsize_t i = 0; i < count && place_count < CHUNKS; i++) {
		struct place *place = &places[place_count];

		if (H5Dget_chunk_info(set, space, i, offset, &mask, &place->start, &place->size) <
		    0)
			return wrong("%s has no chunk %d", name, (int)i);
		if (told->closed && mask && offset[0] + chunk[0] > before)
			return wrong("%s has the mask %u at %d", name, mask, (int)offset[0]);
		snprintf(place->name, sizeof(place->name), "%s", name);
		memcpy(place->offset, offset, rank * sizeof(offset[0]));
		place_count += offset[0] < extent;
		told->stored += offset[0] < extent ? place->size : 0;
	}
	H5Pclose(list);
	H5Sclose(space);
	return 0;
}

static int look_at_scalars(hid_t file, unsigned s, const struct model *seen)
{
	for (size_t i = 0; i < series[s].o.scalar_count; i++) {
		char name[80];
		hid_t set;
		double *values;

		snprintf(name, sizeof(name), "%.8s_%.60s", series[s].name, series[s].o.scalars[i]);
		set = H5Dopen2(file, name, H5P_DEFAULT);
		if (set < 0 || hdf5_frames(set) < seen->frames)
			return wrong("%s has too few numbers", name);
		values = hdf5_read_all(set, H5T_NATIVE_DOUBLE);
		for (unsigned frame = 0; values && frame < seen->frames; frame++)
			if (values[frame] != scalar(frame, seen->run[frame], i))
				return wrong("%s has a wrong number at %u", name, frame);
		if (!values || look_at_chunks(set, name, hdf5_frames(set), 0))
			return values ? 1 : wrong("%s cannot be read", name);
		free(values);
		H5Dclose(set);
	}
	return 0;
}

/* All old frames while the series was being added; else those that it keeps, and new ones. */
static int look_at_series(hid_t file, unsigned s)
{
	struct series *of = &series[s];
	struct model *seen = &told->of[s].seen;
	unsigned least = SL_MAX(of->kept, told->of[s].flushed),
		 most = of->kept + told->of[s].pushed;
	hid_t set = H5Dopen2(file, of->name, H5P_DEFAULT);
	bool old = !told->of[s].added && of->model.frames;
	hid_t list = H5Dget_create_plist(set);
	float *all;

	if (set < 0)
		return told->of[s].added || old ? wrong("%s is not there", of->name) : 0;
	seen->frames = hdf5_frames(set);
	old &= seen->frames == of->model.frames;
	if (!old && (seen->frames < (told->closed ? most : least) || seen->frames > most))
		return wrong("%s has %u frames, and not %u to %u", of->name, seen->frames, least,
		             most);
	for (unsigned frame = 0; frame < seen->frames; frame++)
		seen->run[frame] = old || frame < of->kept ? of->model.run[frame] : run_number;
	lend(of, list);
	all = hdf5_read_all(set, H5T_NATIVE_FLOAT);
	for (size_t i = 0; all && i < seen->frames * of->elements; i++) {
		unsigned frame = i / of->elements;

		if (all[i] != element(s, frame, seen->run[frame], i % of->elements))
			return wrong("frame %u of %s is wrong", frame, of->name);
	}
	if (!all || look_at_chunks(set, of->name, seen->frames, of->kept) ||
	    look_at_scalars(file, s, seen))
		return all ? 1 : wrong("%s cannot be read", of->name);
	if (lent && lent->filter > H5Z_FILTER_RESERVED)
		H5Zunregister(lent->filter);
	free(all);
	H5Pclose(list);
	H5Dclose(set);
	return 0;
}

/* Whoever makes a dataset longer finds nothing behind its end. */
static int look_behind(hid_t file, const char *name, unsigned s)
{
	hid_t set = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(set),
	      list = H5Dget_create_plist(set);
	hsize_t extent[SLUICE_FRAME_RANK_MOST + 1], most[SLUICE_FRAME_RANK_MOST + 1], before,
		elements = 1;
	int rank = H5Sget_simple_extent_dims(space, extent, most);
	float *all;

	before = extent[0];
	extent[0] = SL_MIN(before + 1100, most[0]);
	for (int i = 0; i < rank; i++)
		elements *= extent[i];
	if (H5Pget_layout(list) != H5D_CHUNKED || elements > 1 << 24)
		return 0;
	lend(&series[s], list);
	/* HDF5 does not touch memory for chunks that are not there. */
	all = calloc(elements, sizeof(float));
	if (H5Dset_extent(set, extent) < 0 ||
	    H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) < 0)
		return wrong("%s does not get longer", name);
	for (hsize_t i = elements / extent[0] * before; i < elements; i++)
		if (all[i] != 0)
			return wrong("%s has something in frame %d, behind its %d", name,
			             (int)(i / (elements / extent[0])), (int)before);
	if (lent && lent->filter > H5Z_FILTER_RESERVED)
		H5Zunregister(lent->filter);
	free(all);
	H5Pclose(list);
	H5Sclose(space);
	H5Dclose(set);
	return 0;
}

static void copy(const char *from, const char *to)
{
	int in = open(from, O_RDONLY | O_CLOEXEC), out;
	struct stat status;

	out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (!fstat(in, &status))
		for (off_t left = status.st_size; left > 0;) {
			ssize_t n = copy_file_range(in, NULL, out, NULL, left, 0);

			if (n <= 0)
				break;
			left -= n;
		}
	close(in);
	close(out);
}

static int look(const void *unused)
{
	hid_t file;
	int bad = 0;

	(void)unused;
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	if (access(path, F_OK))
		return told->closed ? wrong("there is no file") : 0;
	file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	if (file < 0)
		return wrong("it cannot be opened");
	for (unsigned s = 0; !bad && s < series_count; s++)
		bad = look_at_series(file, s);
	qsort(places, place_count, sizeof(*places), place_compare);
	for (size_t i = 1; !bad && i < place_count; i++) {
		const struct place *a = &places[i - 1], *b = &places[i];
		/* A death may come between the writes of two nodes that share entries. */
		bool same = !told->closed && !strcmp(a->name, b->name) &&
		            !memcmp(a->offset, b->offset, sizeof(a->offset));

		if (a->start + a->size > b->start && !same)
			bad = wrong("%.60s, %d, and %.60s, %d, have the same place", a->name,
			            (int)a->offset[0], b->name, (int)b->offset[0]);
	}
	H5Fclose(file);
	if (bad || !told->closed)
		return bad;
	copy(path, spare);
	file = H5Fopen(spare, H5F_ACC_RDWR, H5P_DEFAULT);
	for (unsigned s = 0; !bad && s < series_count; s++) {
		bad = look_behind(file, series[s].name, s);
		for (size_t i = 0; !bad && i < series[s].o.scalar_count; i++) {
			char name[80];

			snprintf(name, sizeof(name), "%.8s_%.60s", series[s].name,
			         series[s].o.scalars[i]);
			bad = look_behind(file, name, s);
		}
	}
	H5Fclose(file);
	return bad;
}

/* ---------------------------------------------------------------------------------------- draw */

static uint64_t below(uint64_t *seed, uint64_t bound)
{
	return unit_random(seed) % bound;
}

static const char *const codecs[] = {"deflate", "none", "zstd", "lz4", "bitshuffle-lz4"};

static void draw_series(uint64_t *seed, unsigned s)
{
	static const char *const names[SCALARS] = {"time", "step"};
	static const uint64_t rows[] = {1, 3, 10, 100, 1000, 2048, 8192, ELEMENTS};
	struct series *of = &series[s];
	const struct sl_codec *codec;

	*of = (struct series){.o = SLUICE_SERIES_OPTIONS_INIT};
	snprintf(of->name, sizeof(of->name), "u%u", s);
	of->o.type = SLUICE_FLOAT32;
	of->o.rank = 1 + below(seed, 2);
	of->o.shape[0] = of->elements = rows[below(seed, COUNT_OF(rows))];
	if (of->o.rank == 2) {
		of->o.shape[1] = of->elements > 100 ? 10 : 1;
		of->o.shape[0] = of->elements / of->o.shape[1];
		of->elements = of->o.shape[0] * of->o.shape[1];
		of->o.chunk[0] = below(seed, 2) ? (of->o.shape[0] + 2) / 3 : 0;
		of->o.chunk[1] = of->o.chunk[0] ? of->o.shape[1] : 0;
	}
	do
		of->o.codec = codecs[below(seed, COUNT_OF(codecs))];
	while (sl_codec_find(of->o.codec, 1, &codec));
	of->o.shuffle = codec->filter && !codec->shuffles ? (int)below(seed, 3) : 0;
	of->o.flags = below(seed, 3) ? 0 : SLUICE_SERIES_FLETCHER32;
	of->o.chunk_frames = below(seed, 3) ? below(seed, 2) ? 2 + below(seed, 20) : 0 : 1;
	of->o.frames = below(seed, 6) ? 0 : MOST;
	of->o.scalars = names;
	of->o.scalar_count = below(seed, SCALARS + 1);
	/* Memory for its chunks. */
	if (of->o.chunk_frames > 1 && of->elements > 2048)
		of->o.chunk_frames = 2 + below(seed, 4);
}

/* The runs before a death have most of the frames. */
static void draw_run(uint64_t *seed)
{
	unsigned at = below(seed, MOST / 2), back = below(seed, 5);

	plan = (struct plan){.seed = unit_random(seed),
	                     .flush_in = below(seed, 4) ? 1 + below(seed, 8) : 0,
	                     .end = below(seed, 4)   ? CLOSES
	                            : below(seed, 2) ? DISCARDS
	                                             : ENDS,
	                     .durable = !below(seed, 10)};
	for (unsigned s = 0; s < series_count; s++) {
		struct series *of = &series[s];

		of->continue_at = back < 3 && (back || below(seed, 2));
		of->kept = of->model.frames;
		if (of->continue_at)
			of->kept = SL_MIN(of->kept, below(seed, 8) ? at : below(seed, MOST));
		of->pushes =
			SL_MIN(below(seed, 4) ? below(seed, 60) : below(seed, 3), MOST - of->kept);
	}
}

/* ----------------------------------------------------------------------------------- processes */

static bool fills; /* instead of a death the disk is full for a moment */

static int die(unsigned point)
{
	told->points = point;
	if (point == told->at && fills)
		return ENOSPC;
	if (point == told->at)
		kill(getpid(), SIGKILL);
	return 0;
}

/* A writer dies at a point; 0: at none. Returns the number of points. */
static unsigned run_writer(unsigned at)
{
	pid_t process;
	int status, bad;

	*told = (struct told){.at = at};
	run_number++;
	process = fork();
	if (!process) {
		alarm(60);
		points_hook = die;
		status = write_run();
		points_hook = NULL;
		if (status)
			print_message("%s\n", sluice_last_message());
		_exit(status != 0);
	}
	assert_true(process > 0);
	while (waitpid(process, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	if (WIFSIGNALED(status) && at)
		assert_int_equal(WTERMSIG(status), SIGKILL);
	else
		assert_int_equal(status, 0);
	bad = hdf5_look_apart(look, NULL);
	for (unsigned s = 0; bad && s < series_count; s++)
		print_message("%s: %s, flags %d, %d elements, %d in a chunk, most %d, %d kept, "
		              "%d more\n",
		              series[s].name, series[s].o.codec, (int)series[s].o.flags,
		              (int)series[s].elements, (int)series[s].o.chunk_frames,
		              (int)series[s].o.frames, (int)series[s].kept, (int)series[s].pushes);
	if (bad)
		fail_msg("run %u, killed at %u: %d, %s", run_number, at, bad, told->wrong);
	for (unsigned s = 0; s < series_count; s++)
		series[s].model = told->of[s].seen;
	return told->points;
}

static void set_out(uint64_t *seed, unsigned count)
{
	unlink(path);
	run_number = 0;
	series_count = count;
	for (unsigned s = 0; s < count; s++)
		draw_series(seed, s);
}

/* --------------------------------------------------------------------------------------- cases */

static int history(uint64_t seed, int *deaths)
{
	uint64_t own = seed;
	unsigned phases = 2 + below(&own, 5);

	set_out(&own, 1 + below(&own, SERIES));
	print_message("history %llu\n", (unsigned long long)seed);
	for (unsigned phase = 0; phase <= phases; phase++) {
		bool dies = phase && phase < phases && below(&own, 2);

		draw_run(&own);
		if (phase == phases)
			plan.end = CLOSES;
		run_writer(dies ? 1 + below(&own, below(&own, 2) ? 30 : 300) : 0);
		*deaths += dies;
	}
	return phases + 1;
}

TEST(a_file_has_what_its_history_says)
{
	uint64_t seed = unit_seed();
	int rounds = under_stress() ? 400 : 8, deaths = 0, runs = 0;

	for (int round = 0; round < rounds; round++)
		runs += history(seed + (uint64_t)round, &deaths);
	/* A death between the writes of a split has left a key behind a node's entries that is later
	 * than the key above it, and frames are given up. Most times it comes to that. */
	for (int i = 0; i < 4; i++)
		runs += history(20240359, &deaths);
	print_message("%d runs, %d that were to die\n", runs, deaths);
}

static void set_series(unsigned s, const char *codec, size_t elements, unsigned chunk_frames)
{
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;

	o.type = SLUICE_FLOAT32;
	o.rank = 1;
	o.shape[0] = series[s].elements = elements;
	o.codec = codec;
	o.chunk_frames = chunk_frames;
	series[s].o = o;
}

/* Both series share chunks; phases 1 and 3 give frames up. */
static unsigned run_phase(unsigned phase, unsigned at, uint64_t seed)
{
	plan = (struct plan){.seed = seed + phase, .flush_in = 4};
	for (unsigned s = 0; s < series_count; s++) {
		struct series *of = &series[s];

		of->continue_at = phase % 2;
		of->kept = phase == 1 ? 13 : phase == 3 ? of->model.frames / 3 : of->model.frames;
		of->pushes = phase ? 17 : 40;
	}
	return run_writer(at);
}

static void die_everywhere(const char *codec)
{
	static const char *const names[] = {"time"};
	uint64_t seed = unit_seed();
	struct series before[SERIES];
	unsigned points, step;
	char base[600];

	snprintf(base, sizeof(base), "%s.base", path);
	set_out(&seed, 2);
	for (unsigned s = 0; s < series_count; s++)
		set_series(s, codec, s ? 500 : 2000, s ? 5 : 0);
	series[1].o.scalars = names;
	series[1].o.scalar_count = 1;
	run_phase(0, 0, seed);
	copy(path, base);
	memcpy(before, series, sizeof(before));
	points = run_phase(1, 0, seed);
	step = under_stress() ? 1 : SL_MAX(points / (under_sanitizer() ? 1 : 2), 1);
	for (unsigned at = 1 + unit_random(&seed) % step; at <= points; at += step) {
		copy(base, path);
		memcpy(series, before, sizeof(before));
		run_number = 1;
		for (unsigned phase = 1; phase < 4; phase++)
			run_phase(phase, phase == 1 ? at : 0, seed);
	}
	print_message("%s: %u points\n", codec, points);
	unlink(base);
}

TEST(frames_are_given_up_before_and_after_a_death_at_any_write)
{
	const struct sl_codec *codec;

	for (size_t i = 0; i < COUNT_OF(codecs); i++)
		if (!sl_codec_find(codecs[i], 1, &codec))
			die_everywhere(codecs[i]);
}

/* How runs of the close begin and end. */
static const struct close_way {
	bool old;              /* the file has frames */
	unsigned back, pushes; /* frames that it gives up, and its own */
} close_ways[] = {{false, 0, 13}, {true, 0, 7}, {true, 2, 6}};

static unsigned run_close(const struct close_way *way, unsigned flush_in, unsigned at)
{
	plan = (struct plan){.flush_in = flush_in};
	for (unsigned s = 0; s < series_count; s++) {
		series[s].kept = series[s].model.frames - way->back;
		series[s].pushes = way->pushes;
		series[s].continue_at = way->back;
	}
	return run_writer(at);
}

/* A writer dies at a write of its close, and the next writer has the frames that are left, and more. */
static unsigned die_in_close(const struct close_way *way, const char *codec, unsigned flags,
                             unsigned flush_in, uint64_t *seed)
{
	static const struct close_way first = {.pushes = 13}, after = {.pushes = 2};
	static const char *const names[] = {"time"};
	struct series before[SERIES];
	unsigned points, begun, step, deaths = 0;
	char base[600];

	snprintf(base, sizeof(base), "%s.base", path);
	set_out(seed, 2);
	for (unsigned s = 0; s < series_count; s++) {
		set_series(s, codec, s ? 500 : 2000, s ? 8 : 5);
		series[s].o.flags = flags;
	}
	series[1].o.scalars = names;
	series[1].o.scalar_count = 1;
	if (way->old) {
		run_close(&first, 1, 0);
		copy(path, base);
	}
	memcpy(before, series, sizeof(before));
	points = run_close(way, flush_in, 0);
	begun = told->before_close;
	assert_in_range(begun, 1, points - 1);
	step = under_stress() ? 1 : points - begun;
	for (unsigned at = begun + 1 + below(seed, step); at <= points; at += step, deaths++) {
		unlink(path);
		if (way->old)
			copy(base, path);
		memcpy(series, before, sizeof(before));
		run_number = 1;
		run_close(way, flush_in, at);
		assert_true(told->closed || !fills);
		run_close(&after, 0, 0);
	}
	unlink(base);
	return deaths;
}

static void die_in_closes(void)
{
	const struct sl_codec *codec;
	uint64_t seed = unit_seed();
	unsigned deaths = 0;

	for (size_t i = 0; i < COUNT_OF(codecs) * COUNT_OF(close_ways) * 4; i++) {
		const struct close_way *way = &close_ways[i / 4 % COUNT_OF(close_ways)];
		const char *name = codecs[i / 4 / COUNT_OF(close_ways)];
		unsigned flush_in = i % 2, flags = i & 2 ? SLUICE_SERIES_FLETCHER32 : 0;

		/* A check has a third of these closes. */
		if (!sl_codec_find(name, 1, &codec) && (under_stress() || !below(&seed, 3)))
			deaths += die_in_close(way, name, flags, flush_in, &seed);
	}
	print_message("%u deaths\n", deaths);
}

TEST(nothing_is_lost_by_a_death_in_a_close)
{
	die_in_closes();
}

TEST(nothing_is_lost_by_a_close_on_a_disk_that_is_full_for_a_moment)
{
	fills = true;
	die_in_closes();
	fills = false;
}

/* A run that begins again and again from the same frame does not let the file grow. */
TEST(space_of_frames_that_are_given_up_is_used_again)
{
	for (int shared = 0; shared < 2; shared++) {
		uint64_t seed = unit_seed();
		struct stat first, last;

		set_out(&seed, SERIES);
		for (unsigned s = 0; s < series_count; s++)
			set_series(s, "deflate", 1500 << s, shared ? 4 : 1);
		for (unsigned phase = 0; phase < 5; phase++) {
			plan = (struct plan){.seed = seed, .flush_in = shared ? 0 : 10};
			for (unsigned s = 0; s < series_count; s++) {
				series[s].kept = phase ? 8 : 0;
				series[s].continue_at = phase;
				series[s].pushes = phase ? 52 : 60;
			}
			/* Its frames are as long as those of the runs before. */
			run_number = 2 + phase * 30;
			run_writer(0);
			assert_int_equal(stat(path, phase ? &last : &first), 0);
		}
		print_message("%d bytes became %d\n", (int)first.st_size, (int)last.st_size);
		assert_in_range(last.st_size, 1, first.st_size * 3 / 2);
	}
}

/* Rows of each of them took 96000 bytes. A bundle is full at the end of some, and in the middle of others. */
TEST(writers_that_continue_a_file_leave_no_space_of_rows_behind)
{
	static const unsigned pushes[] = {5, 16, 24};

	for (unsigned way = 0; way < COUNT_OF(pushes); way++) {
		uint64_t seed = unit_seed();
		struct stat status;

		set_out(&seed, 1);
		set_series(0, "deflate", 1500, 16);
		for (unsigned i = 0; i < 8; i++)
			run_close(&(struct close_way){.pushes = pushes[way]}, 1, 0);
		assert_int_equal(stat(path, &status), 0);
		print_message("%d bytes, %d of chunks\n", (int)status.st_size, (int)told->stored);
		assert_in_range(status.st_size, told->stored, told->stored + 96000);
	}
}

int main(int argc, char **argv)
{
	const char *folder = getenv("SLUICE_TEST_DIR");
	int failed;

	snprintf(path, sizeof(path), "%.400s/history-%d.h5", folder ? folder : ".", (int)getpid());
	snprintf(spare, sizeof(spare), "%.500s.spare", path);
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(told != MAP_FAILED);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	failed = RUN_TESTS(NULL, NULL);
	unlink(path);
	unlink(spare);
	return failed;
}
