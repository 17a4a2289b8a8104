/* SPDX-License-Identifier: Apache-2.0 */
/* The sessions of a plan: any mix of all the ways in which a frame can be handed in. */
#include <sluice/device.h>

#include "frames/plan.h"

/* What a session has beside its writer. */
struct session {
	struct plan *plan;
	unsigned number;
	sluice_writer *w;
	int device;
	sluice_stream stream;
	void *there[PLAN_SERIES]; /* memory of the device */
	void *host;               /* that the stream may still read */
	void *own;                /* a buffer of the program */
};

static void add(struct session *session, struct plan_series *s)
{
	struct sluice_series_options o = s->o;
	struct rng *r = &session->plan->r;

	if (s->there) {
		/* What is not set is as the dataset has it. */
		if (rng_below(r, 2))
			memset(o.chunk, 0, sizeof(o.chunk));
		if (rng_below(r, 2)) {
			o.codec = NULL;
			o.level = 0;
			o.shuffle = SLUICE_SHUFFLE_DEFAULT;
		}
		o.frames = rng_below(r, 2) ? o.frames : 0;
		o.depth = (unsigned)rng_below(r, 6);
	}
	assert_ok(sluice_series_add(session->w, s->name, &o, &s->series));
	assert_int_equal(sluice_series_frame_bytes(s->series), s->bytes);
	s->submitted = 0;
}

static void scalars_of(const struct plan_series *s, uint64_t frame, double *out)
{
	for (unsigned i = 0; i < s->o.scalar_count; i++)
		out[i] = content_scalar(&s->content, frame, i);
}

static uint64_t submitted(const struct plan_series *s)
{
	struct sluice_writer_counts stats = {.size = sizeof(stats)};

	assert_ok(sluice_series_stats(s->series, &stats));
	return stats.submitted;
}

static void hand_in(struct session *session, struct plan_series *s)
{
	struct rng *r = &session->plan->r;
	double scalars[PLAN_SCALARS];
	void *frame = NULL;
	int rc;

	if (!rng_below(r, 6)) {
		assert_ok(sluice_series_acquire(s->series, PATIENCE_MS, &frame));
		memset(frame, 0xee, s->bytes);
		assert_ok(sluice_series_discard(s->series, frame));
	}
	rc = sluice_series_acquire(s->series, rng_below(r, 2) ? 0 : PATIENCE_MS, &frame);
	if (rc == -EAGAIN)
		rc = sluice_series_acquire(s->series, PATIENCE_MS, &frame);
	assert_ok(rc);
	assert_int_equal((uintptr_t)frame % 4096, 0);
	content_fill(&s->content, s->frames + s->submitted, 0, s->elements, frame);
	scalars_of(s, s->frames + s->submitted, scalars);
	assert_ok(sluice_series_submit(s->series, frame, s->o.scalar_count ? scalars : NULL));
	s->submitted++;
}

static void push(struct session *session, struct plan_series *s)
{
	bool drops = s->o.flags & SLUICE_SERIES_DROP;
	double scalars[PLAN_SCALARS];

	content_fill(&s->content, s->frames + s->submitted, 0, s->elements, session->own);
	scalars_of(s, s->frames + s->submitted, scalars);
	assert_ok(sluice_series_push(s->series, session->own, scalars, drops ? 0 : PATIENCE_MS));
	memset(session->own, 0xdd, s->bytes);
	s->submitted = drops ? submitted(s) : s->submitted + 1;
}

/* The memory of the device is overwritten by the next frame as soon as the stream comes to it. */
static void submit_on(struct session *session, struct plan_series *s)
{
	void **there = &session->there[s - session->plan->series];
	double scalars[PLAN_SCALARS];

	if (!*there)
		assert_ok(sluice_device_alloc(session->device, s->bytes, there));
	assert_ok(sluice_stream_synchronize(session->device, session->stream));
	content_fill(&s->content, s->frames + s->submitted, 0, s->elements, session->host);
	scalars_of(s, s->frames + s->submitted, scalars);
	assert_ok(sluice_copy_on(*there, session->host, s->bytes, session->stream));
	assert_ok(
		sluice_series_submit_on(s->series, *there, scalars, session->stream, PATIENCE_MS));
	s->submitted++;
}

static void flush(struct session *session)
{
	struct plan *plan = session->plan;
	int timeout = rng_below(&plan->r, 2) ? -1 : (int)rng_below(&plan->r, 3);
	int rc = sluice_writer_flush(session->w, timeout);

	if (timeout >= 0 && rc == -EINPROGRESS)
		return;
	assert_ok(rc);
	for (unsigned i = 0; i < plan->count; i++) {
		struct sluice_writer_counts stats = {.size = sizeof(stats)};

		if (!plan->series[i].series)
			continue;
		assert_ok(sluice_series_stats(plan->series[i].series, &stats));
		assert_int_equal(stats.visible, plan->series[i].submitted);
	}
}

/* A frame of any series that wants one; false: none does. */
static bool step(struct session *session)
{
	struct plan *plan = session->plan;
	struct plan_series *s = NULL;
	uint64_t left[PLAN_SERIES], all = 0, one;

	for (unsigned i = 0; i < plan->count; i++) {
		left[i] = plan->series[i].series ? plan->series[i].wanted[session->number] : 0;
		all += left[i];
	}
	if (!all)
		return false;
	one = rng_below(&plan->r, all);
	for (unsigned i = 0; !s; one -= left[i++])
		if (one < left[i])
			s = &plan->series[i];
	s->wanted[session->number]--;
	if (s->devices && session->device >= 0 && rng_below(&plan->r, 2))
		submit_on(session, s);
	else if (rng_below(&plan->r, 2))
		push(session, s);
	else
		hand_in(session, s);
	if (!rng_below(&plan->r, 6))
		flush(session);
	return true;
}

static void open_writer(struct session *session, sluice_context *ctx, const char *path)
{
	static const int64_t run = 12;
	static const struct sluice_attribute attributes[] = {
		{.name = "title", .text = "a file"},
		{.name = "run", .integers = &run, .count = 1},
	};
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	struct rng *r = &session->plan->r;

	o.flags = session->number ? SLUICE_WRITER_APPEND : SLUICE_WRITER_REPLACE;
	o.flags |= rng_below(r, 8) ? 0 : SLUICE_WRITER_DURABLE;
	o.threads = rng_below(r, 5);
	/* With a thread for each core a series may need more. */
	o.memory_bytes = rng_below(r, 3) || !o.threads ? 0 : 256 * MIB;
	o.checkpoint_frames = rng_below(r, 3) ? 0 : 1 + rng_below(r, 5);
	o.checkpoint_ms = rng_below(r, 3) ? -1 : (int)rng_below(r, 4);
	o.attributes = attributes;
	o.attribute_count = COUNT_OF(attributes);
	assert_ok(sluice_writer_open(ctx, path, &o, &session->w));
}

static size_t most_bytes(const struct plan *plan)
{
	size_t most = 1;

	for (unsigned i = 0; i < plan->count; i++)
		most = plan->series[i].bytes > most ? plan->series[i].bytes : most;
	return most;
}

/* What was flushed is there in any case; what was submitted, unless it is discarded. */
static void end(struct session *session, uint64_t *most)
{
	struct plan *plan = session->plan;
	bool discards = session->number + 1 < plan->sessions && !rng_below(&plan->r, 4);

	for (unsigned i = 0; i < plan->count; i++) {
		struct plan_series *s = &plan->series[i];
		struct sluice_writer_counts stats = {.size = sizeof(stats)};

		most[i] = s->frames;
		if (!s->series)
			continue;
		assert_ok(sluice_series_stats(s->series, &stats));
		assert_int_equal(stats.submitted, s->submitted);
		most[i] += s->submitted;
		s->frames += discards ? stats.visible : s->submitted;
		s->series = NULL;
	}
	if (discards)
		sluice_writer_discard(session->w);
	else
		assert_ok(sluice_writer_close(session->w, PATIENCE_MS));
}

static void run(struct session *session, sluice_context *ctx, const char *path, uint64_t *most)
{
	struct plan *plan = session->plan;
	unsigned added = 0;

	session->own = malloc(most_bytes(plan));
	session->host = malloc(most_bytes(plan));
	if (session->device >= 0)
		assert_ok(sluice_stream_new(session->device, &session->stream));
	open_writer(session, ctx, path);
	/* Some come later, when others have frames. */
	for (unsigned i = 0; i < plan->count; i++) {
		if (plan->series[i].born > session->number)
			continue;
		for (size_t k = added++ ? rng_below(&plan->r, 4) : 0; k; k--)
			step(session);
		add(session, &plan->series[i]);
	}
	while (step(session))
		;
	end(session, most);
	for (unsigned i = 0; i < plan->count; i++)
		sluice_device_free(session->there[i]);
	if (session->device >= 0)
		sluice_stream_free(session->stream);
	free(session->host);
	free(session->own);
}

void plan_write(struct plan *plan, sluice_context *ctx, const char *path, int device)
{
	uint64_t most[PLAN_SERIES];

	plan->ctx = ctx;
	for (unsigned i = 0; i < plan->sessions; i++) {
		struct session session = {.plan = plan, .number = i, .device = device};

		run(&session, ctx, path, most);
		plan_read(plan, path, most);
	}
}
