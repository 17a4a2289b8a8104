/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on several nodes: a file for each node and a virtual dataset over them, and pages that only one node writes. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h5file/hdf5_read.h"
#include "ranks/crew.h"

/* By page of the file: the descriptor that has written to it. */
enum { PAGE = 4096, PAGES = 4096 };
static struct {
	pthread_mutex_t mutex;
	bool looks;
	int by[PAGES];
	int shared; /* writes to a page of another */
} pages = {.mutex = PTHREAD_MUTEX_INITIALIZER};

ssize_t __real_pwrite64(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at);

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at)
{
	/* Those of HDF5 and of the server are duplicates of each other; ranks have one each. */
	int by = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY ? fd : -1;

	pthread_mutex_lock(&pages.mutex);
	for (off_t page = at / PAGE; pages.looks && page <= (at + (off_t)n - 1) / PAGE; page++) {
		pages.shared += pages.by[page % PAGES] && pages.by[page % PAGES] != by;
		pages.by[page % PAGES] = by;
	}
	pthread_mutex_unlock(&pages.mutex);
	return __real_pwrite64(fd, bytes, n, at);
}

/* Calls of fdatasync() by file, and the number of the last among all of them. */
static struct sync {
	ino_t file;
	int count, last;
} syncs[8];
static int sync_count;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
	struct stat st;
	size_t i = 0;

	fstat(fd, &st);
	pthread_mutex_lock(&pages.mutex);
	while (i < COUNT_OF(syncs) && syncs[i].file && syncs[i].file != st.st_ino)
		i++;
	if (i < COUNT_OF(syncs))
		syncs[i] = (struct sync){st.st_ino, syncs[i].count + 1, ++sync_count};
	pthread_mutex_unlock(&pages.mutex);
	return __real_fdatasync(fd);
}

static struct sync sync_of(const char *path)
{
	struct stat st;

	for (size_t i = 0; !stat(path, &st) && i < COUNT_OF(syncs); i++)
		if (syncs[i].file == st.st_ino)
			return syncs[i];
	return (struct sync){0};
}

static void assert_written(struct crew *crew)
{
	crew_run(crew, crew_write);
	assert_crew_ok(crew, crew->frames);
}

static struct crew nodes_of(struct fixture *f, int ranks, int on_node)
{
	struct crew crew = crew_at(f, ranks);

	crew.on_node = on_node;
	crew.o.flags |= SLUICE_WRITER_NODE_FILES;
	return crew;
}

/* -------------------------------------------------------------------------------------- stored */

FIXTURE_TEST(files_of_nodes_have_the_blocks_of_their_ranks)
{
	static const char *const cuts[] = {"rows", "columns", "odd", "some"};
	static const int nodes[][2] = {{1, 1}, {4, 2}, {5, 3}, {7, 2}};
	struct crew crew;

	for (size_t c = 0; c < COUNT_OF(cuts); c++)
		for (size_t n = 0; n < COUNT_OF(nodes); n++) {
			crew = nodes_of(f, nodes[n][0], nodes[n][1]);
			crew.cut = cuts[c];
			crew.codec = (c + n) % 2 ? "none" : "deflate";
			crew.seed = (unsigned)(1 + c * 5 + n);
			assert_written(&crew);
		}
	/* Those of the last; the others had fewer nodes. */
	assert_int_equal(directory_entries(f->dir), 1 + 4);
}

FIXTURE_TEST(a_folder_keeps_its_frames_where_it_is_moved)
{
	char from[300], to[300];
	struct crew crew = nodes_of(f, 4, 2);
	crew.path = scratch(f, "100%b.h5");
	assert_written(&crew);
	assert_int_equal(mkdir(scratch(f, "moved"), 0700), 0);
	for (int i = -1; i < 2; i++) {
		snprintf(from, sizeof(from), "%s/100%%b.h5", f->dir);
		snprintf(to, sizeof(to), "%s/moved/100%%b.h5", f->dir);
		if (i >= 0) {
			snprintf(from + strlen(from), 16, ".node-%d", i);
			snprintf(to + strlen(to), 16, ".node-%d", i);
		}
		assert_int_equal(rename(from, to), 0);
	}
	crew.path = scratch(f, "moved/100%b.h5");
	assert_int_equal(field_look(crew.path, "u", 20, 20), 0);
	/* Without the file of a node its part is missing. */
	assert_int_equal(unlink(to), 0);
	assert_int_not_equal(field_look(crew.path, "u", 20, 20), 0);
}

/* --------------------------------------------------------------------------------------- types */

enum { TYPED_FRAMES = 6, TYPED_LENGTH = 13 };

static const struct {
	const char *name;
	enum sluice_type type;
	size_t bytes, elements;
	unsigned rank;
	uint64_t shape[2];
} typed[] = {
	{"number", SLUICE_FLOAT32, 4, 1, 0, {0}},
	{"flags", SLUICE_BOOL, 1, TYPED_LENGTH, 1, {TYPED_LENGTH}},
	{"z", SLUICE_COMPLEX128, 16, TYPED_LENGTH * 3, 2, {TYPED_LENGTH, 3}},
	{"names", SLUICE_STRING, 5, TYPED_LENGTH, 1, {TYPED_LENGTH}},
};

static unsigned char typed_byte(size_t kind, uint64_t frame, size_t element)
{
	return (unsigned char)((frame * 3 + element) % (typed[kind].type == SLUICE_BOOL ? 2 : 61));
}

static int put_typed(struct member *m, size_t kind)
{
	uint64_t ranks = (uint64_t)m->crew->ranks, rank = (uint64_t)m->rank, from, to;
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
	struct sluice_block block = {.count = {0, 3}};
	sluice_series *s;
	int rc;

	o.type = typed[kind].type;
	o.string_bytes = o.type == SLUICE_STRING ? typed[kind].bytes : 0;
	o.rank = typed[kind].rank;
	memcpy(o.shape, typed[kind].shape, sizeof(typed[kind].shape));
	o.chunk[0] = o.rank == 1 ? 4 : 0;
	o.flags = SLUICE_SERIES_FLETCHER32;
	from = o.rank ? TYPED_LENGTH * rank / ranks : 0;
	to = o.rank ? TYPED_LENGTH * (rank + 1) / ranks : rank == 1;
	block.start[0] = from;
	block.count[0] = to - from;
	rc = sluice_series_add_block(m->w, typed[kind].name, &o, &block, PATIENCE_MS, &s);
	for (uint64_t k = 0; !rc && s && k < TYPED_FRAMES; k++) {
		size_t width = typed[kind].elements / (o.rank ? TYPED_LENGTH : 1);
		unsigned char *frame;

		rc = sluice_series_acquire(s, PATIENCE_MS, (void **)&frame);
		for (size_t i = from * width; !rc && i < to * width;
		     i++, frame += typed[kind].bytes)
			memset(frame, typed_byte(kind, k, i), typed[kind].bytes);
		if (!rc)
			rc = sluice_series_submit(
				s, frame - (to - from) * width * typed[kind].bytes, NULL);
	}
	return rc;
}

static void act_types(struct member *m)
{
	int rc = crew_open(m);

	for (size_t i = 0; !rc && i < COUNT_OF(typed); i++)
		rc = put_typed(m, i);
	crew_note(m, 0, rc);
	crew_end(m, 1);
}

static void look_at_typed(hid_t file, size_t kind)
{
	hid_t set = H5Dopen2(file, typed[kind].name, H5P_DEFAULT), type = H5Dget_type(set);
	size_t elements = typed[kind].elements, bytes = typed[kind].bytes;
	unsigned char *found = hdf5_read_all(set, type);

	assert_int_equal(H5Tget_size(type), bytes);
	assert_int_equal(hdf5_frames(set), TYPED_FRAMES);
	assert_non_null(found);
	for (size_t i = 0; i < TYPED_FRAMES * elements * bytes; i++)
		assert_int_equal(found[i],
		                 typed_byte(kind, i / bytes / elements, i / bytes % elements));
	free(found);
	H5Tclose(type);
	H5Dclose(set);
}

FIXTURE_TEST(blocks_have_every_type_and_a_rank_has_a_number)
{
	for (int nodes = 0; nodes < 2; nodes++) {
		struct crew crew = nodes ? nodes_of(f, 4, 2) : crew_at(f, 3);
		hid_t file;

		crew_run(&crew, act_types);
		assert_note(&crew, 0, 0, "");
		assert_note(&crew, 1, 0, "");
		file = H5Fopen(crew.path, H5F_ACC_RDONLY, H5P_DEFAULT);
		for (size_t i = 0; i < COUNT_OF(typed); i++)
			look_at_typed(file, i);
		H5Fclose(file);
	}
}

/* --------------------------------------------------------------------------------------- pages */

/* HDF5 writes something small in each frame. */
static void act_attributes(struct member *m)
{
	char name[16];
	double number = 1;
	struct sluice_attribute attribute = {.name = name, .numbers = &number, .count = 1};
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	for (uint64_t k = 0; !rc && k < 20; k++) {
		snprintf(name, sizeof(name), "%d", (int)k);
		rc = crew_put(m, "u", k, k + 1, PATIENCE_MS);
		if (!rc && !m->rank)
			rc = sluice_series_attributes(m->s, &attribute, 1);
	}
	crew_note(m, 0, rc);
	crew_end(m, 1);
}

FIXTURE_TEST(no_page_is_written_on_two_nodes)
{
	struct crew crew = nodes_of(f, 3, 1);
	crew.cut = "odd";
	crew.o.flags = SLUICE_WRITER_REPLACE;
	pages.looks = true;
	crew_run(&crew, act_attributes);
	pages.looks = false;
	assert_note(&crew, 0, 0, "");
	assert_note(&crew, 1, 0, "");
	assert_int_equal(pages.shared, 0);
	assert_int_equal(field_look(crew.path, "u", 20, 20), 0);
}

/* ------------------------------------------------------------------------------ disk and memory */

static struct sync flushed[3];

/* Rank 0 looks at the files after a flush. */
static void act_flush(struct member *m)
{
	int rc = crew_begin(m, m->crew->frames);

	if (!rc && !m->rank)
		rc = crew_flush(m);
	if (!rc && !m->rank) {
		char path[300];

		pthread_mutex_lock(&pages.mutex);
		for (int i = 0; i < 3; i++) {
			snprintf(path, sizeof(path), i ? "%s.node-%d" : "%s", m->path, i - 1);
			flushed[i] = sync_of(path);
		}
		pthread_mutex_unlock(&pages.mutex);
	}
	crew_note(m, 0, rc);
	crew_meet(m);
	crew_end(m, 1);
}

FIXTURE_TEST(durable_files_of_nodes_are_synced_before_the_first)
{
	for (int durable = 0; durable < 2; durable++) {
		struct crew crew = nodes_of(f, 4, 2);

		memset(syncs, 0, sizeof(syncs));
		crew.o.flags |= durable ? SLUICE_WRITER_DURABLE : 0;
		crew_run(&crew, act_flush);
		assert_crew_ok(&crew, crew.frames);
		if (!durable) {
			assert_int_equal(flushed[0].count + flushed[1].count, 0);
			/* Its ranks are not on the node of rank 0, and sync each of their frames. */
			assert_int_equal(flushed[2].count, 2 * crew.frames);
			continue;
		}
		assert_true(flushed[0].count > 0 && flushed[1].count > 0);
		assert_true(flushed[2].count > 2 * (int)crew.frames);
		assert_true(flushed[0].last > flushed[1].last);
		assert_true(flushed[0].last > flushed[2].last);
	}
}

static void act_memory(struct member *m)
{
	struct sluice_writer_counts counts = {.size = sizeof(counts)};
	int rc = crew_begin(m, m->crew->frames);

	if (!rc)
		rc = sluice_writer_stats(m->w, &counts);
	m->number = counts.memory_bytes / KIB;
	crew_note(m, 0, rc);
	crew_end(m, 1);
}

/* 28 KiB for a series and its scalar. */
FIXTURE_TEST(rank_0_alone_has_memory_for_the_metadata_of_all_files)
{
	uint64_t without[4], held = 3 * 28;

	for (int limited = 0; limited < 2; limited++) {
		struct crew crew = nodes_of(f, 4, 2);

		crew.o.memory_bytes = limited ? 4 * MIB : 0;
		crew_run(&crew, act_memory);
		assert_crew_ok(&crew, crew.frames);
		for (int r = 0; r < 4; r++)
			if (limited)
				assert_int_equal(crew.members[r].number,
				                 without[r] + (r ? 0 : held));
			else
				without[r] = crew.members[r].number;
	}
}

/* ----------------------------------------------------------------------------------- continued */

static void act_continue(struct member *m)
{
	struct sluice_writer_counts counts = {.size = sizeof(counts)};
	int rc = crew_open(m);

	if (rc) {
		crew_note(m, 0, rc);
		return;
	}
	rc = crew_add(m, "u");
	if (!rc)
		rc = sluice_series_stats(m->s, &counts);
	if (!rc)
		rc = crew_put(m, "u", counts.frames_before, 30, PATIENCE_MS);
	crew_note(m, 0, rc);
	crew_end(m, 1);
}

FIXTURE_TEST(other_ranks_on_as_many_nodes_continue_the_files)
{
	struct crew crew = nodes_of(f, 4, 2);
	assert_written(&crew);
	crew = nodes_of(f, 6, 3);
	crew.o.flags = SLUICE_WRITER_APPEND | SLUICE_WRITER_NODE_FILES;
	crew_run(&crew, act_continue);
	assert_note(&crew, 0, 0, "");
	assert_note(&crew, 1, 0, "");
	assert_int_equal(field_look(crew.path, "u", 30, 30), 0);
}

static void copy_file(const char *from, const char *to)
{
	char bytes[65536];
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t n;

	while ((n = read(in, bytes, sizeof(bytes))) > 0)
		assert_int_equal(write(out, bytes, (size_t)n), n);
	close(in);
	close(out);
}

/* As after a death in a flush, between the files of nodes and the first. */
FIXTURE_TEST(frames_that_the_first_file_does_not_count_are_given_up)
{
	struct crew crew = nodes_of(f, 4, 2);
	crew.frames = 10;
	assert_written(&crew);
	copy_file(crew.path, scratch(f, "copy"));
	crew.o.flags = SLUICE_WRITER_APPEND | SLUICE_WRITER_NODE_FILES;
	crew_run(&crew, act_continue);
	assert_note(&crew, 1, 0, "");
	copy_file(scratch(f, "copy"), scratch(f, "x.h5"));
	assert_int_equal(field_look(scratch(f, "x.h5"), "u", 10, 10), 0);
	crew = nodes_of(f, 4, 2);
	crew.o.flags = SLUICE_WRITER_APPEND | SLUICE_WRITER_NODE_FILES;
	crew_run(&crew, act_continue);
	assert_note(&crew, 0, 0, "");
	assert_note(&crew, 1, 0, "");
	assert_int_equal(field_look(crew.path, "u", 30, 30), 0);
}

/* ------------------------------------------------------------------------------------- refused */

static void assert_not_continued(struct fixture *f, int ranks, int on_node, unsigned flags,
                                 int error, const char *says)
{
	struct crew crew = nodes_of(f, ranks, on_node);
	crew.o.flags = SLUICE_WRITER_APPEND | flags;
	crew_run(&crew, act_continue);
	assert_note(&crew, 0, error, says);
}

FIXTURE_TEST(files_of_other_nodes_are_not_continued)
{
	struct crew crew = nodes_of(f, 4, 2);
	assert_written(&crew);
	assert_not_continued(f, 4, 1, SLUICE_WRITER_NODE_FILES, EEXIST, "has 2 parts");
	assert_not_continued(f, 5, 3, SLUICE_WRITER_NODE_FILES, EEXIST, "part 0, of 'x.h5.node-0'");
	assert_not_continued(f, 4, 2, 0, EEXIST, "its frames in other files");
	assert_int_equal(field_look(crew.path, "u", 20, 20), 0);
	unlink(scratch(f, "x.h5.node-1"));
	assert_not_continued(f, 4, 2, SLUICE_WRITER_NODE_FILES, EINVAL,
	                     "x.h5.node-1': there is no");
	/* One file. */
	crew = nodes_of(f, 4, 2);
	crew.o.flags = SLUICE_WRITER_REPLACE;
	assert_written(&crew);
	assert_not_continued(f, 4, 2, SLUICE_WRITER_NODE_FILES, EEXIST, "its frames in this file");
	assert_int_equal(field_look(scratch(f, "x.h5"), "u", 20, 20), 0);
}

static void act_open(struct member *m)
{
	int rc;

	if (m->rank == 1 && m->crew->seed)
		m->crew->o.flags = SLUICE_WRITER_REPLACE;
	rc = crew_open(m);
	crew_note(m, 0, rc);
	if (!rc)
		sluice_writer_close(m->w, PATIENCE_MS);
}

FIXTURE_TEST(a_file_of_a_node_that_is_there_is_an_error)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	sluice_writer *w;
	struct crew crew = nodes_of(f, 4, 2);
	crew.o.flags = SLUICE_WRITER_NODE_FILES;
	copy_file("/dev/null", scratch(f, "x.h5.node-1"));
	crew_run(&crew, act_open);
	assert_note(&crew, 0, EEXIST, "x.h5.node-1");
	assert_int_equal(directory_entries(f->dir), 1);
	o.flags = SLUICE_WRITER_NODE_FILES;
	assert_refused(sluice_writer_open(f->ctx, crew.path, &o, &w), EINVAL, "no ranks");
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	return RUN_TESTS(NULL, NULL);
}
