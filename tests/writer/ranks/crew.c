/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks/crew.h"

#include <stdlib.h>
#include <string.h>

#define SMALL 512 /* bytes of a message that is sent at once */

struct mail {
	struct mail *next;
	int from;
	void *bytes;
	size_t n;
	struct sending *sending; /* NULL: it was sent at once */
};

struct sending {
	_Atomic bool taken;
};

struct mailbox {
	pthread_mutex_t mutex;
	struct mail *first, **last;
};

static unsigned chance(struct member *m, unsigned of)
{
	m->state = m->state * 1103515245 + 12345;
	return (m->state >> 16) % of;
}

/* ----------------------------------------------------------------------------------- transport */

static void crew_check_thread(struct member *m)
{
	if (!m->crew->thread && !pthread_equal(m->own, pthread_self()))
		m->crew->strayed++;
}

static int crew_send(void *handle, int to, const void *bytes, size_t n, void **request)
{
	struct member *m = handle;
	struct mailbox *box = &m->crew->boxes[to];
	struct mail *mail;

	crew_check_thread(m);
	if (m->crew->break_after && atomic_fetch_sub(&m->crew->break_after, 1) == 1)
		m->crew->broken = true;
	if (m->crew->broken)
		return -ECONNRESET;
	mail = calloc(1, sizeof(*mail));
	mail->from = m->rank;
	mail->n = n;
	mail->bytes = malloc(n);
	memcpy(mail->bytes, bytes, n);
	if (m->crew->spoil)
		mail->n = n = m->crew->spoil(m, mail->bytes, n);
	if (n > SMALL)
		mail->sending = calloc(1, sizeof(*mail->sending));
	*request = mail->sending;
	pthread_mutex_lock(&box->mutex);
	*box->last = mail;
	box->last = &mail->next;
	pthread_mutex_unlock(&box->mutex);
	return 0;
}

static int crew_sent(void *handle, void *request)
{
	struct sending *sending = request;

	(void)handle;
	if (sending && !sending->taken)
		return 0;
	free(sending);
	return 1;
}

static int crew_receive(void *handle, int *from, void **bytes, size_t *n)
{
	struct member *m = handle;
	struct mailbox *box = &m->crew->boxes[m->rank];
	bool passed[CREW_MOST] = {false};
	struct mail *mail = NULL;

	crew_check_thread(m);
	if (m->crew->broken)
		return -ECONNRESET;
	pthread_mutex_lock(&box->mutex);
	for (struct mail **at = &box->first; *at; at = &(*at)->next) {
		/* A rank whose message is passed over has to wait. */
		passed[(*at)->from] |= m->crew->seed && chance(m, 3) == 0;
		if (passed[(*at)->from])
			continue;
		mail = *at;
		*at = mail->next;
		if (!*at)
			box->last = at;
		break;
	}
	pthread_mutex_unlock(&box->mutex);
	if (!mail)
		return 0;
	*from = mail->from;
	*bytes = mail->bytes;
	*n = mail->n;
	if (mail->sending)
		mail->sending->taken = true;
	free(mail);
	return 1;
}

static void crew_close(void *handle, int clean)
{
	struct member *m = handle;

	(void)clean;
	m->crew->closed++;
}

static struct sluice_transport crew_transport(struct member *m)
{
	return (struct sluice_transport){
		.size = sizeof(struct sluice_transport),
		.handle = m,
		.rank = m->rank,
		.ranks = m->crew->ranks,
		.node_ranks = m->crew->on_node ? m->crew->on_node : m->crew->ranks,
		.node = m->crew->on_node > 0 ? m->rank - m->rank % m->crew->on_node : 0,
		.thread = m->crew->thread,
		.send = crew_send,
		.sent = crew_sent,
		.receive = crew_receive,
		.close = crew_close,
	};
}

/* ---------------------------------------------------------------------------------------- crew */

struct crew crew_of(sluice_context *ctx, const char *path, int ranks)
{
	struct crew crew = {.ranks = ranks,
	                    .thread = 1,
	                    .ctx = ctx,
	                    .path = path,
	                    .o = SLUICE_WRITER_OPTIONS_INIT,
	                    .frames = 20,
	                    .content = "u",
	                    .codec = "deflate"};

	crew.o.checkpoint_ms = -1;
	crew.o.full_disk_ms = 0;
	crew.o.threads = 2;
	crew.o.flags = SLUICE_WRITER_REPLACE;
	return crew;
}

struct crew crew_at(struct fixture *f, int ranks)
{
	return crew_of(f->ctx, scratch(f, "x.h5"), ranks);
}

struct acting {
	struct member *m;
	void (*act)(struct member *m);
};

static void *acting_run(void *argument)
{
	struct acting *acting = argument;

	acting->m->own = pthread_self();
	acting->act(acting->m);
	return NULL;
}

void crew_run(struct crew *crew, void (*act)(struct member *m))
{
	struct acting acting[CREW_MOST];

	crew->closed = crew->strayed = 0;
	crew->boxes = calloc((size_t)crew->ranks, sizeof(*crew->boxes));
	pthread_barrier_init(&crew->barrier, NULL, (unsigned)crew->ranks);
	for (int r = 0; r < crew->ranks; r++) {
		pthread_mutex_init(&crew->boxes[r].mutex, NULL);
		crew->boxes[r].last = &crew->boxes[r].first;
		crew->members[r] = (struct member){.crew = crew,
		                                   .rank = r,
		                                   .path = crew->path,
		                                   .state = crew->seed * 31 + (unsigned)r,
		                                   .block = crew_block(crew, r)};
		acting[r] = (struct acting){&crew->members[r], act};
	}
	for (int r = 0; r < crew->ranks; r++)
		pthread_create(&crew->members[r].thread, NULL, acting_run, &acting[r]);
	for (int r = 0; r < crew->ranks; r++)
		pthread_join(crew->members[r].thread, NULL);
	for (int r = 0; r < crew->ranks; r++) {
		struct mail *mail;

		/* After an error. */
		while ((mail = crew->boxes[r].first)) {
			crew->boxes[r].first = mail->next;
			free(mail->bytes);
			free(mail->sending);
			free(mail);
		}
		pthread_mutex_destroy(&crew->boxes[r].mutex);
	}
	free(crew->boxes);
	pthread_barrier_destroy(&crew->barrier);
}

/* ------------------------------------------------------------------------------------- members */

void crew_note(struct member *m, unsigned at, int rc)
{
	m->rc[at] = rc;
	snprintf(m->said[at], sizeof(m->said[at]), "%s", rc < 0 ? sluice_last_message() : "");
}

void crew_meet(struct member *m)
{
	pthread_barrier_wait(&m->crew->barrier);
}

int crew_open(struct member *m)
{
	struct sluice_transport t = crew_transport(m);

	return sluice_writer_open_ranks(m->crew->ctx, &t, m->path, &m->crew->o, &m->w);
}

static uint64_t crew_start(const struct crew *crew, uint64_t length, int rank, int ranks)
{
	uint64_t start = length * (uint64_t)rank / (uint64_t)ranks;

	if (rank == ranks)
		return length;
	return crew->cut && !strcmp(crew->cut, "odd") && rank ? start + 1 + (uint64_t)(rank % 3) * 2
	                                                      : start;
}

struct sluice_block crew_block(const struct crew *crew, int rank)
{
	struct sluice_block block = {{0}, {FIELD_ROWS, FIELD_COLUMNS}};
	bool columns = crew->cut && !strcmp(crew->cut, "columns");
	bool some = crew->cut && !strcmp(crew->cut, "some") && crew->ranks > 1;
	uint64_t length = columns ? FIELD_COLUMNS : FIELD_ROWS;
	int ranks = crew->ranks - some;

	if (rank == ranks) {
		block.count[0] = 0;
		return block;
	}
	block.start[columns] = crew_start(crew, length, rank, ranks);
	block.count[columns] = crew_start(crew, length, rank + 1, ranks) - block.start[columns];
	return block;
}

int crew_add(struct member *m, const char *name)
{
	struct sluice_series_options o = field_options(m->crew->codec, 0);

	o.flags = m->crew->flags;
	o.continue_at = m->crew->at;
	return sluice_series_add_block(m->w, name, &o, &m->block, PATIENCE_MS, &m->s);
}

size_t crew_fill(struct member *m, const char *name, uint64_t k, void *to)
{
	float whole[FIELD_ELEMENTS], *frame = to;
	const uint64_t *start = m->block.start, *count = m->block.count;

	field_fill(name, k, whole);
	for (uint64_t y = 0; y < count[0]; y++)
		memcpy(frame + y * count[1], whole + (start[0] + y) * FIELD_COLUMNS + start[1],
		       count[1] * sizeof(float));
	return count[0] * count[1] * sizeof(float);
}

int crew_put(struct member *m, const char *name, uint64_t from, uint64_t to, int timeout_ms)
{
	int rc = 0;

	for (uint64_t k = from; m->s && !rc && k < to; k++) {
		/* Those of rank 0 count. */
		double time = field_time(name, k) + m->rank;
		void *frame;

		rc = sluice_series_acquire(m->s, timeout_ms, &frame);
		if (rc)
			break;
		crew_fill(m, name, k, frame);
		rc = sluice_series_submit(m->s, frame, &time);
	}
	return rc;
}

int crew_begin(struct member *m, uint64_t frames)
{
	int rc = crew_open(m);

	if (!rc)
		rc = crew_add(m, "u");
	return rc ? rc : crew_put(m, "u", 0, frames, PATIENCE_MS);
}

int crew_flush(struct member *m)
{
	return sluice_writer_flush(m->w, PATIENCE_MS);
}

void crew_end(struct member *m, unsigned at)
{
	crew_note(m, at, sluice_writer_close(m->w, PATIENCE_MS));
}

void crew_write(struct member *m)
{
	const struct crew *crew = m->crew;
	int rc = crew_begin(m, 0);

	if (!rc)
		rc = crew_put(m, crew->content, crew->first, crew->frames, PATIENCE_MS);
	crew_note(m, 0, rc);
	crew_end(m, 1);
	if (!rc)
		crew_note(m, 0, m->rc[1]);
}

/* ------------------------------------------------------------------------------- the main thread */

void assert_note(const struct crew *crew, unsigned at, int error, const char *says)
{
	for (int r = 0; r < crew->ranks; r++) {
		const struct member *m = &crew->members[r];

		if (m->rc[at] != -error || (error && !strstr(m->said[at], says)))
			fail_msg("rank %d, note %u: %d: \"%s\", not -%d: \"%s\"", r, at, m->rc[at],
			         m->said[at], error, says);
	}
}

void assert_crew(const struct crew *crew, unsigned at, int error, const char *says, uint64_t frames)
{
	for (unsigned note = 0; note < CREW_NOTES; note++)
		assert_note(crew, note, note == at ? error : 0, says);
	assert_int_equal(crew->closed, crew->ranks);
	assert_int_equal(field_look(crew->path, "u", frames, frames), 0);
}

void assert_crew_ok(const struct crew *crew, uint64_t frames)
{
	assert_crew(crew, 0, 0, "", frames);
}
