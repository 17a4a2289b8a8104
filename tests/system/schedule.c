/* SPDX-License-Identifier: Apache-2.0 */
#include "system/schedule.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { STEPS = 300, IN_FLIGHT = 24 };

/* How the threads of a round learn that an operation is over. */
enum way { WAIT, POLL, DESCRIPTOR, QUEUE, WAYS };

struct pending {
	struct step *step;
	sluice_op *op;
	unsigned char *data, *base;
	_Atomic bool over; /* QUEUE: the taker has seen it */
};

struct actor {
	pthread_t thread;
	unsigned index;
	enum way way;
	sluice_file **files;
	struct rng rng;
	struct history history;
	struct pending pending[IN_FLIGHT];
	uint32_t writes;
	const char *complaint; /* for the main thread to fail with */
};

static void choose(struct actor *a, struct step *s)
{
	s->write = rng_below(&a->rng, 2);
	s->count = (uint32_t)(rng_below(&a->rng, 4) ? 1 + rng_below(&a->rng, 6)
	                                            : 1 + rng_below(&a->rng, MOST_BLOCKS));
	s->first = (uint32_t)rng_below(&a->rng, BLOCKS - s->count + 1);
	if (s->write)
		s->sequence = a->writes++;
	else
		s->seen = calloc(s->count, sizeof(*s->seen));
}

static void submit(struct actor *a, struct pending *p, struct step *s)
{
	sluice_file *file = a->files[rng_below(&a->rng, HANDLES)];
	struct sluice_extent v = {NULL, (size_t)s->count * BLOCK, (uint64_t)s->first * BLOCK};
	struct sluice_request q = SLUICE_REQUEST_INIT;
	size_t skew = rng_below(&a->rng, 2) * 16;

	p->step = s;
	p->base = aligned_alloc(BLOCK, v.length + BLOCK);
	p->data = p->base + skew;
	atomic_store(&p->over, false);
	for (uint32_t i = 0; s->write && i < s->count; i++)
		block_write(p->data + (size_t)i * BLOCK, s->first + i,
		            (struct stamp){a->index, s->sequence});
	v.data = p->data;
	q.kind = s->write ? SLUICE_WRITE : SLUICE_READ;
	q.extents = &v;
	q.count = 1;
	q.user = p;
	if (sluice_submit(file, &q, &p->op) != 0) {
		a->complaint = "an operation was refused";
		p->step = NULL;
		free(p->base);
		return;
	}
	if (!s->write && rng_below(&a->rng, 8) == 0)
		sluice_cancel(p->op);
}

static void await(struct actor *a, struct pending *p)
{
	double deadline = seconds_now() + PATIENCE_MS / 1000;

	if (a->way == DESCRIPTOR && !readable(sluice_op_fd(p->op), PATIENCE_MS))
		a->complaint = "a descriptor did not become readable";
	while (a->way == POLL && !sluice_poll(p->op) && seconds_now() < deadline)
		sched_yield();
	while (a->way == QUEUE && !atomic_load(&p->over) && seconds_now() < deadline)
		sleep_ms(1);
}

static void finish_one(struct actor *a, struct pending *p)
{
	struct step *s = p->step;

	if (!s)
		return;
	await(a, p);
	s->result = sluice_wait(p->op, PATIENCE_MS);
	s->cancelled = !s->write && s->result == -ECANCELED;
	if (!s->cancelled && s->result != (int64_t)s->count * BLOCK)
		a->complaint = "an operation failed";
	for (uint32_t i = 0; !s->write && !s->cancelled && i < s->count; i++)
		if (!block_read(p->data + (size_t)i * BLOCK, s->first + i, &s->seen[i]))
			a->complaint = "a read saw a torn block";
	sluice_op_free(p->op);
	free(p->base);
	p->step = NULL;
}

static void *act(void *arg)
{
	struct actor *a = arg;

	for (size_t i = 0; i < STEPS && !a->complaint; i++) {
		struct pending *p = &a->pending[rng_below(&a->rng, IN_FLIGHT)];
		struct step *s = &a->history.steps[i];

		finish_one(a, p);
		choose(a, s);
		a->history.count = i + 1;
		submit(a, p, s);
	}
	for (size_t i = 0; i < IN_FLIGHT; i++)
		finish_one(a, &a->pending[i]);
	return NULL;
}

struct taker {
	pthread_t thread;
	sluice_context *ctx;
	_Atomic bool stop;
};

static void *take(void *arg)
{
	struct taker *t = arg;
	sluice_op *op;

	while (!atomic_load(&t->stop)) {
		struct pending *p;

		if (sluice_queue_next(sluice_context_queue(t->ctx), 5, &op) != 0)
			continue;
		p = sluice_op_user(op);
		atomic_store(&p->over, true);
	}
	return NULL;
}

static void start_file(const char *path)
{
	unsigned char *all = malloc((size_t)BLOCKS * BLOCK);

	for (uint32_t b = 0; b < BLOCKS; b++)
		block_write(all + (size_t)b * BLOCK, b, (struct stamp){NOBODY, 0});
	file_make(path, 0, 0);
	file_write(path, all, (size_t)BLOCKS * BLOCK, 0);
	free(all);
}

static void read_file(const char *path, struct stamp *out)
{
	unsigned char *all = malloc((size_t)BLOCKS * BLOCK);

	assert_int_equal(file_length(path), BLOCKS * BLOCK);
	file_read(path, all, (size_t)BLOCKS * BLOCK, 0);
	for (uint32_t b = 0; b < BLOCKS; b++)
		if (!block_read(all + (size_t)b * BLOCK, b, &out[b]))
			fail_msg("block %u of the file is torn", b);
	free(all);
}

static void play(struct fixture *f, int round)
{
	const char *path = scratch(f, "schedule");
	sluice_file *files[HANDLES];
	struct actor *actors = calloc(THREADS, sizeof(*actors));
	struct history histories[THREADS];
	struct stamp final[BLOCKS];
	struct taker taker = {.ctx = f->ctx};
	enum way way = (enum way)(round % WAYS);
	const char *complaint = NULL;
	unsigned t;

	start_file(path);
	file_set_residency(path, (enum residency)(round % RESIDENCIES));
	for (t = 0; t < HANDLES; t++)
		files[t] = open_both(f->ctx, path);
	if (way == QUEUE)
		assert_int_equal(pthread_create(&taker.thread, NULL, take, &taker), 0);
	for (t = 0; t < THREADS; t++) {
		actors[t].index = t;
		actors[t].way = way;
		actors[t].files = files;
		actors[t].rng = rng_new(800 + (uint64_t)round * THREADS + t);
		actors[t].history.steps = calloc(STEPS, sizeof(struct step));
		assert_int_equal(pthread_create(&actors[t].thread, NULL, act, &actors[t]), 0);
	}
	for (t = 0; t < THREADS; t++) {
		pthread_join(actors[t].thread, NULL);
		complaint = complaint ? complaint : actors[t].complaint;
		histories[t] = actors[t].history;
	}
	atomic_store(&taker.stop, true);
	if (way == QUEUE)
		pthread_join(taker.thread, NULL);
	if (complaint)
		fail_msg("round %d: %s", round, complaint);
	for (t = 0; t < HANDLES; t++)
		assert_ok(sluice_close(files[t]));
	read_file(path, final);
	check_histories(histories, final);
	for (t = 0; t < THREADS; t++) {
		for (size_t i = 0; i < STEPS; i++)
			free(actors[t].history.steps[i].seen);
		free(actors[t].history.steps);
	}
	free(actors);
	unlink(path);
}

FIXTURE_TEST(random_schedules_keep_the_order_of_submission)
{
	/* Rows with tiny pieces take the longest for each. */
	int rounds =
		(under_stress() ? 120 : 8) / (config_tuned(&row->config, "piece_bytes") ? 4 : 1);

	for (int round = 0; round < rounds; round++)
		play(f, round);
}

/* One thread writes the same blocks over and over; the others read them, resident as they are. */
struct repeater {
	pthread_t thread;
	sluice_file *file;
	_Atomic bool *stop;
	unsigned torn, mixed, backward, failed, reads;
};

enum { REPEATED = 16 };

static void *repeat_writes(void *arg)
{
	struct repeater *r = arg;
	unsigned char *data = malloc((size_t)REPEATED * BLOCK);
	sluice_op *op;

	for (uint32_t n = 1; !atomic_load(r->stop); n++) {
		for (uint32_t b = 0; b < REPEATED; b++)
			block_write(data + (size_t)b * BLOCK, b, (struct stamp){0, n});
		if (sluice_write(r->file, data, (size_t)REPEATED * BLOCK, 0, &op) != 0 ||
		    sluice_wait(op, PATIENCE_MS) != REPEATED * BLOCK) {
			r->failed++;
			break;
		}
		sluice_op_free(op);
	}
	free(data);
	return NULL;
}

static void *repeat_reads(void *arg)
{
	struct repeater *r = arg;
	unsigned char *data = malloc((size_t)REPEATED * BLOCK);
	uint32_t last = 0;
	sluice_op *op;

	while (!atomic_load(r->stop)) {
		struct stamp first = {0}, next;

		if (sluice_read(r->file, data, (size_t)REPEATED * BLOCK, 0, &op) != 0 ||
		    sluice_wait(op, PATIENCE_MS) != REPEATED * BLOCK) {
			r->failed++;
			break;
		}
		sluice_op_free(op);
		r->reads++;
		for (uint32_t b = 0; b < REPEATED; b++) {
			r->torn += !block_read(data + (size_t)b * BLOCK, b, &next);
			if (b == 0)
				first = next;
			r->mixed += next.sequence != first.sequence;
		}
		r->backward += first.sequence < last;
		last = first.sequence;
	}
	free(data);
	return NULL;
}

FIXTURE_TEST(a_read_sees_all_of_a_write_or_nothing)
{
	struct repeater r[THREADS];
	_Atomic bool stop = false;
	unsigned t, reads = 0;

	start_file(scratch(f, "repeated"));
	for (t = 0; t < THREADS; t++) {
		r[t] = (struct repeater){.file = open_both(f->ctx, scratch(f, "repeated")),
		                         .stop = &stop};
		assert_int_equal(
			pthread_create(&r[t].thread, NULL, t ? repeat_reads : repeat_writes, &r[t]),
			0);
	}
	sleep_ms(under_stress() ? 20000 : 500);
	atomic_store(&stop, true);
	for (t = 0; t < THREADS; t++) {
		pthread_join(r[t].thread, NULL);
		assert_ok(sluice_close(r[t].file));
	}
	for (t = 0; t < THREADS; t++) {
		reads += r[t].reads;
		if (r[t].torn || r[t].mixed || r[t].backward || r[t].failed)
			fail_msg("of %u reads: %u blocks torn, %u of another write, %u older than "
			         "before, %u failed",
			         r[t].reads, r[t].torn, r[t].mixed, r[t].backward, r[t].failed);
	}
	print_message("%u reads\n", reads);
}

/* With nothing in flight nobody has anything to do, also not after there was much. */
FIXTURE_TEST(an_idle_context_uses_no_processor)
{
	struct buffer b = buffer_new(4 * MIB, 0);
	sluice_file *file = open_both(f->ctx, scratch(f, "idle"));
	double before, used;

	assert_write(file, b.data, b.length, 0);
	assert_read(file, b.data, b.length, 0);
	assert_read(file, b.data, 4096, 0);
	sleep_ms(200);
	before = cpu_seconds();
	sleep_ms(2000);
	used = cpu_seconds() - before;
	print_message("2 s of idling took %.1f ms of processor time\n", used * 1000);
	if (!under_sanitizer())
		assert_true(used < 0.020);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	printf("row %s\n", row->name);
	return RUN_TESTS(NULL, NULL);
}
