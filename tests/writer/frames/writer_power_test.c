/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is left of a file if its writer is killed or the disk loses power, at any write: sessions are written once, on a disk
 * that keeps a log (disk.h), and HDF5 looks at what the disk would have at some moments. Frames are all as before the session,
 * or those that it keeps and its own, at least as many as were promised; and each has its numbers. The next session continues
 * what is left. A process without HDF5 and without threads makes those that write and look.
 */
#include <hdf5.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frames/content.h"
#include "frames/disk.h"
#include "h5file/hdf5_read.h"
#include "lib/unit.h"

enum { SETS = 3, SCALARS = 2, MOST = 64, SIDE = 48, ROOM = 60, SESSIONS = 4 };

/* How a series is stored, and what the file has of it. */
struct set {
	uint64_t rows, columns, room; /* room: in one piece, for so many frames */
	const char *codec;
	uint64_t gather;
	unsigned precision;
	uint64_t frames;
	uint8_t session[MOST];   /* that a frame is of */
	bool has[SCALARS][MOST]; /* a frame has that number */
	bool there[SCALARS],
		made; /* those that have as many numbers as there are frames; the dataset */
};

/* What a session does with it. */
struct stint {
	bool back; /* goes on at `from`, and otherwise behind the last frame */
	uint64_t from, put;
	unsigned scalars;
};

struct session {
	unsigned number;
	bool durable;
	unsigned every; /* frames between flushes; 0: there is none */
	struct stint stints[SETS];
};

/* Told by the writer: the series is added, and has at least so many frames. */
struct promise {
	bool added[SETS];
	uint64_t least[SETS];
};

/* Memory that all processes share. */
static struct shared {
	unsigned count;
	struct set sets[SETS], found[SETS];
	struct session session;
	size_t looked;
} * shared;

static struct disk *disk;
static char path[512];
static const char *const names[SETS] = {"u", "fields/v", "fields/w"};
static const char *const scalars[SCALARS] = {"time", "step"};

static float element(unsigned s, unsigned session, uint64_t frame, size_t i)
{
	return (float)(((session * MOST + frame) * SETS + s) * 1024 + i % 1000);
}

static double number(unsigned session, uint64_t frame, unsigned which)
{
	return (double)frame + session * 1000.0 + which * 0.5;
}

/* --------------------------------------------------------------------------------------- write */

static int add_set(sluice_writer *w, unsigned s, sluice_series **out)
{
	const struct stint *stint = &shared->session.stints[s];
	const struct set *set = &shared->sets[s];
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;

	o.type = SLUICE_FLOAT32;
	o.rank = 2;
	o.shape[0] = set->rows;
	o.shape[1] = set->columns;
	o.codec = set->codec;
	o.frames = set->room;
	o.chunk_frames = set->gather;
	o.precision = set->precision;
	o.scalars = scalars;
	o.scalar_count = stint->scalars;
	o.flags = stint->back ? SLUICE_SERIES_CONTINUE_AT : 0;
	o.continue_at = stint->from;
	return sluice_series_add(w, names[s], &o, out);
}

static int put_frame(sluice_series *series, unsigned s, uint64_t frame)
{
	const struct session *session = &shared->session;
	double numbers[] = {number(session->number, frame, 0), number(session->number, frame, 1)};
	size_t elements = shared->sets[s].rows * shared->sets[s].columns;
	void *memory;
	int rc = sluice_series_acquire(series, PATIENCE_MS, &memory);

	for (size_t i = 0; !rc && i < elements; i++)
		((float *)memory)[i] = element(s, session->number, frame, i);
	return rc ? rc : sluice_series_submit(series, memory, numbers);
}

static void promise_tell(struct promise *promise, sluice_series *const *series, bool whole)
{
	for (unsigned s = 0; s < shared->count; s++) {
		struct sluice_writer_counts counts = {.size = sizeof(counts)};

		if (whole)
			promise->least[s] =
				shared->session.stints[s].from + shared->session.stints[s].put;
		else if (series[s] && !sluice_series_stats(series[s], &counts))
			promise->least[s] = counts.frames_before + counts.visible;
		promise->added[s] |= whole || series[s];
	}
	disk_tell(disk, promise, sizeof(*promise));
}

static int write_frames(sluice_writer *w, struct promise *promise, sluice_series **series)
{
	const struct session *session = &shared->session;
	uint64_t most = 0;
	int rc = 0;

	for (unsigned s = 0; !rc && s < shared->count; s++) {
		rc = add_set(w, s, &series[s]);
		/* A new file has no name yet. */
		if (!rc && shared->sets[s].made)
			promise_tell(promise, series, false);
		most = SL_MAX(most, session->stints[s].put);
	}
	for (uint64_t k = 0; !rc && k < most; k++) {
		for (unsigned s = 0; !rc && s < shared->count; s++)
			if (k < session->stints[s].put)
				rc = put_frame(series[s], s, session->stints[s].from + k);
		if (rc || !session->every || k % session->every != session->every - 1)
			continue;
		rc = sluice_writer_flush(w, PATIENCE_MS);
		if (!rc)
			promise_tell(promise, series, false);
	}
	return rc;
}

static int write_session(const void *unused)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_config config = SLUICE_CONFIG_INIT;
	struct promise promise = {{0}, {0}};
	sluice_series *series[SETS] = {NULL};
	sluice_context *ctx;
	sluice_writer *w;
	int rc;

	(void)unused;
	config.backend = "posix";
	config.workers = 1;
	o.flags = SLUICE_WRITER_APPEND | (shared->session.durable ? SLUICE_WRITER_DURABLE : 0);
	o.threads = 1;
	o.checkpoint_ms = -1;
	disk_record(disk);
	rc = sluice_context_new(&config, &ctx);
	if (!rc)
		rc = sluice_writer_open(ctx, path, &o, &w);
	if (!rc)
		rc = write_frames(w, &promise, series);
	if (!rc)
		rc = sluice_writer_close(w, PATIENCE_MS);
	if (rc)
		print_message("session %u: %s\n", shared->session.number, sluice_last_message());
	else
		promise_tell(&promise, series, true);
	return rc != 0;
}

/* ---------------------------------------------------------------------------------------- look */

/* The frames of a dataset, as they should be: those before the session, or those that it keeps and its own. */
static void expect(unsigned s, bool new, uint64_t frames, struct set *out)
{
	const struct session *session = &shared->session;
	const struct stint *stint = &session->stints[s];

	*out = shared->sets[s];
	out->frames = frames;
	out->made = true;
	for (uint64_t k = stint->from; new &&k < frames; k++) {
		out->session[k] = (uint8_t)session->number;
		for (unsigned i = 0; i < SCALARS; i++)
			out->has[i][k] = i < stint->scalars;
	}
	for (unsigned i = 0; new &&i < SCALARS; i++)
		out->there[i] = i < stint->scalars && (out->there[i] || frames > stint->from);
}

static bool numbers_are_right(hid_t file, unsigned s, unsigned i, const struct set *set)
{
	char name[64];
	hid_t id;
	uint64_t count;
	double *all;
	bool right;

	snprintf(name, sizeof(name), "%s_%s", names[s], scalars[i]);
	if (H5Lexists(file, name, H5P_DEFAULT) <= 0)
		return !set->there[i];
	id = H5Dopen2(file, name, H5P_DEFAULT);
	count = id < 0 ? 0 : hdf5_frames(id);
	all = id < 0 ? NULL : hdf5_read_all(id, H5T_NATIVE_DOUBLE);
	right = all && (!set->there[i] || count >= set->frames);
	for (uint64_t k = 0; right && set->there[i] && k < set->frames; k++)
		right = !set->has[i][k] || all[k] == number(set->session[k], k, i);
	free(all);
	H5Dclose(id);
	return right;
}

static bool set_is(hid_t file, unsigned s, const float *all, const struct set *set)
{
	size_t elements = set->rows * set->columns;

	for (uint64_t k = 0; k < set->frames; k++)
		for (size_t i = 0; i < elements; i++)
			if (all[k * elements + i] != element(s, set->session[k], k, i))
				return false;
	for (unsigned i = 0; i < SCALARS; i++)
		if (!numbers_are_right(file, s, i, set))
			return false;
	return true;
}

/* 0, or a number that says what is wrong. */
static int look_at_set(hid_t file, unsigned s, const struct promise *promise)
{
	const struct stint *stint = &shared->session.stints[s];
	uint64_t frames, least = promise->added[s] ? promise->least[s] : stint->from;
	struct set *found = &shared->found[s];
	hid_t id;
	float *all;
	bool right;

	*found = shared->sets[s];
	if (file < 0 || (s && H5Lexists(file, "fields", H5P_DEFAULT) <= 0) ||
	    H5Lexists(file, names[s], H5P_DEFAULT) <= 0)
		return found->made || promise->least[s] ? 1 : 0;
	id = H5Dopen2(file, names[s], H5P_DEFAULT);
	frames = id < 0 ? UINT64_MAX : hdf5_frames(id);
	if (frames > SL_MAX(stint->from + stint->put, found->frames))
		return 2;
	all = hdf5_read_all(id, H5T_NATIVE_FLOAT);
	H5Dclose(id);
	right = false;
	if (all && frames >= least && frames <= stint->from + stint->put) {
		expect(s, true, frames, found);
		right = set_is(file, s, all, found);
	}
	if (all && !right && !promise->added[s] && frames == shared->sets[s].frames) {
		expect(s, false, frames, found);
		right = set_is(file, s, all, found);
	}
	free(all);
	return right ? 0 : frames < least ? 3 : 4;
}

struct look {
	size_t moment;
	enum disk_mode mode;
	uint64_t seed;
};

static int look_once(const struct look *at)
{
	const struct promise *told = disk_told(disk, at->moment), none = {{0}, {0}};
	hid_t file = H5I_INVALID_HID;
	uint64_t seed = at->seed;
	int wrong = 0;

	disk_lose(disk, at->moment, at->mode, &seed, path);
	if (!access(path, F_OK)) {
		file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
		if (file < 0)
			return 100;
	}
	for (unsigned s = 0; !wrong && s < shared->count; s++) {
		wrong = look_at_set(file, s, told ? told : &none);
		wrong = wrong ? 10 * wrong + (int)s : 0;
	}
	if (file >= 0)
		H5Fclose(file);
	return wrong;
}

/* As long as they are right. */
struct looks {
	const struct look *list;
	size_t count;
};

static int look_on(const void *argument)
{
	const struct looks *looks = argument;
	int wrong = 0;

	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	for (shared->looked = 0; !wrong && shared->looked < looks->count; shared->looked++)
		wrong = look_once(&looks->list[shared->looked]);
	return wrong;
}

enum { TOGETHER = 100 };
static unsigned looks_made;

/* Returns how many are wrong. */
static unsigned look(const struct look *list, size_t count)
{
	static const char *const modes[] = {"killed", "any", "all or none", "but one"};
	unsigned bad = 0;

	for (size_t done = 0; done < count; done += shared->looked) {
		struct looks looks = {list + done, SL_MIN(count - done, TOGETHER)};
		int wrong = hdf5_look_apart(look_on, &looks);
		const struct look *last = &looks.list[shared->looked - (wrong < 128)];

		looks_made += (unsigned)shared->looked;
		if (!wrong)
			continue;
		bad++;
		shared->looked += wrong >= 128;
		print_message("session %u, moment %zu of %zu, %s, seed %llu: %d\n",
		              shared->session.number, last->moment, disk_events(disk),
		              modes[last->mode], (unsigned long long)last->seed, wrong);
	}
	return bad;
}

/* -------------------------------------------------------------------------------------- session */

static void run_session(void)
{
	disk_begin(disk, path);
	assert_int_equal(hdf5_look_apart(write_session, NULL), 0);
}

/* The next session goes on there. */
static void lose_at(struct look at)
{
	assert_int_equal(look(&at, 1), 0);
	memcpy(shared->sets, shared->found, sizeof(shared->sets));
}

/* Looks at so many moments, by chance. */
static void lose_anywhere(unsigned count, uint64_t *seed)
{
	struct look *list = calloc(count, sizeof(*list));

	for (unsigned i = 0; i < count; i++)
		list[i] = (struct look){unit_random(seed) % (disk_events(disk) + 1),
		                        shared->session.durable ? unit_random(seed) % DISK_MODES
		                                                : DISK_KILLED,
		                        unit_random(seed)};
	assert_int_equal(look(list, count), 0);
	free(list);
}

static void new_plan(unsigned count)
{
	unlink(path);
	memset(shared, 0, sizeof(*shared));
	shared->count = count;
}

static void next_session(bool durable, unsigned every)
{
	unsigned number = shared->session.number + 1;

	shared->session = (struct session){.number = number, .durable = durable, .every = every};
	for (unsigned s = 0; s < shared->count; s++)
		shared->session.stints[s].from = shared->sets[s].frames;
}

/* --------------------------------------------------------------------------------------- cases */

static const struct set sets[] = {
	{.rows = 30, .columns = 40, .room = ROOM, .codec = "none"},
	{.rows = 7, .columns = 11, .codec = "deflate", .gather = 1, .precision = 20},
	{.rows = 16, .columns = 16, .codec = "none", .gather = 1},
	{.rows = 16, .columns = 16, .codec = "deflate", .gather = 5},
};

/* At each moment, or some of them; power is lost there in some ways. */
static void lose_at_each(void)
{
	size_t ways = shared->session.durable ? DISK_MODES : 1, count = 0;
	size_t step = under_stress() ? 1 : under_sanitizer() ? 11 : ways == 1 ? 1 : 5;
	struct look *list = calloc((disk_events(disk) + 1) * ways, sizeof(*list));

	for (size_t i = 0; i < (disk_events(disk) + 1) * ways; i += step)
		list[count++] = (struct look){i / ways, i % ways, i};
	assert_int_equal(look(list, count), 0);
	free(list);
}

/* Three series with numbers, or which get them in the second session; then frames are given up. */
static void give_up(unsigned first, unsigned second, uint64_t from, bool durable)
{
	new_plan(3);
	for (unsigned s = 0; s < 3; s++)
		shared->sets[s] = sets[s];
	next_session(false, 0);
	for (unsigned s = 0; s < 3; s++)
		shared->session.stints[s] = (struct stint){.put = 20, .scalars = first};
	run_session();
	lose_at((struct look){disk_events(disk), DISK_KILLED, 0});
	next_session(durable, 3);
	for (unsigned s = 0; s < 3; s++)
		shared->session.stints[s] = (struct stint){true, from, 7, second};
	run_session();
	lose_at_each();
}

TEST(frames_that_are_given_up_go_before_their_numbers)
{
	give_up(2, 2, 8, false);
	give_up(1, 1, 0, true);
}

TEST(frames_come_after_numbers_that_are_new_to_the_file)
{
	give_up(0, 2, 20, true);
	give_up(0, 1, 13, false);
}

/* ---------------------------------------------------------------------------------------- random */

static void draw_stint(uint64_t *seed, const struct set *set, struct stint *out)
{
	uint64_t room = set->room ? set->room : MOST;

	out->scalars = (unsigned)(unit_random(seed) % (SCALARS + 1));
	out->back = set->made && unit_random(seed) % 2;
	if (out->back)
		out->from = unit_random(seed) % (set->frames + 1);
	out->put = SL_MIN(unit_random(seed) % 14, room - out->from);
}

static void any_plan(uint64_t *seed)
{
	unsigned sessions = 2 + (unsigned)(unit_random(seed) % (SESSIONS - 1));

	new_plan(1 + (unsigned)(unit_random(seed) % SETS));
	for (unsigned s = 0; s < shared->count; s++)
		shared->sets[s] = sets[unit_random(seed) % COUNT_OF(sets)];
	for (unsigned i = 0; i < sessions; i++) {
		struct look at = {.seed = unit_random(seed)};

		next_session(unit_random(seed) % 2, (unsigned)(unit_random(seed) % 5));
		for (unsigned s = 0; s < shared->count; s++)
			draw_stint(seed, &shared->sets[s], &shared->session.stints[s]);
		run_session();
		lose_anywhere(12, seed);
		at.moment = disk_events(disk);
		if (unit_random(seed) % 2) {
			at.moment = unit_random(seed) % (at.moment + 1);
			at.mode = shared->session.durable ? unit_random(seed) % DISK_MODES
			                                  : DISK_KILLED;
		}
		lose_at(at);
	}
}

TEST(sessions_that_follow_deaths_keep_what_was_promised)
{
	int rounds = under_stress() ? 600 : under_sanitizer() ? 4 : 10;
	uint64_t seed = unit_seed();

	for (int i = 0; i < rounds; i++) {
		uint64_t its = seed + (uint64_t)i;

		print_message("SLUICE_TEST_SEED=%llu\n", (unsigned long long)its);
		any_plan(&its);
	}
}

int main(void)
{
	const char *folder = getenv("SLUICE_TEST_DIR");
	int failed;

	snprintf(path, sizeof(path), "%.400s/power-%d.h5", folder ? folder : ".", (int)getpid());
	disk = disk_new();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	if (!disk || shared == MAP_FAILED)
		return 1;
	failed = RUN_TESTS(NULL, NULL);
	print_message("%u looks\n", looks_made);
	unlink(path);
	return failed;
}
