/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of writers and series, errors of writers, and the list of codecs.
 * Threads: the program's. */
#include <errno.h>

#include "frames/frames_internal.h"

static void stats_add_stage(struct sluice_stage *sum, const struct sluice_stage *one)
{
	sum->bytes += one->bytes;
	sum->busy_ns += one->busy_ns;
}

static void stats_add_series_locked(struct sluice_writer_counts *out, const struct sluice_series *s)
{
	const struct sluice_writer_counts *c = &s->locked.counts;
	uint64_t way = c->submitted - c->stored, queued = s->bundles ? way : s->locked.queued;

	out->submitted += c->submitted;
	out->stored += c->stored;
	out->visible += c->visible;
	out->durable += c->durable;
	out->dropped += c->dropped;
	out->held += s->locked.held;
	out->queued += queued;
	out->in_flight += way - queued;
	out->queued_most = SL_MAX(out->queued_most, c->queued_most);
	out->raw_bytes += c->raw_bytes;
	out->stored_bytes += c->stored_bytes;
	out->chunks += c->chunks;
	out->raw_chunks += c->raw_chunks;
	out->waited_ns += c->waited_ns;
	out->waited_most_ns = SL_MAX(out->waited_most_ns, c->waited_most_ns);
	stats_add_stage(&out->copy, &c->copy);
	stats_add_stage(&out->compress, &c->compress);
	stats_add_stage(&out->store, &c->store);
	stats_add_stage(&out->flush, &c->flush);
	out->flushes = c->flushes;
	out->frames_before += s->first;
	out->max_error = SL_MAX(out->max_error, c->max_error);
	out->memory_bytes += s->bytes + (s->packer ? s->packer->bytes : 0);
}

static int stats_check(const struct sluice_writer *w, const size_t *size, const char *what)
{
	if (!w)
		return sl_fail(-EINVAL, "%s: the handle is NULL", what);
	if (!size || *size < sizeof(*size))
		return sl_fail(-EINVAL, "%s: out->size is not set", what);
	return sl_context_check(w->ctx);
}

int sluice_series_stats(const sluice_series *s, struct sluice_writer_counts *out)
{
	struct sluice_writer_counts stats = {0};
	int rc = stats_check(s ? s->writer : NULL, out ? &out->size : NULL, "sluice_series_stats");

	if (rc)
		return rc;
	sl_mutex_lock(&s->writer->mutex);
	stats_add_series_locked(&stats, s);
	sl_mutex_unlock(&s->writer->mutex);
	sl_struct_give(out, &stats, sizeof(stats));
	return 0;
}

int sluice_writer_stats(const sluice_writer *writer, struct sluice_writer_counts *out)
{
	struct sluice_writer *w = (struct sluice_writer *)(uintptr_t)writer;
	struct sluice_writer_counts stats = {0};
	int rc = stats_check(w, out ? &out->size : NULL, "sluice_writer_stats");

	if (rc)
		return rc;
	sl_mutex_lock(&w->mutex);
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link)
		stats_add_series_locked(&stats, s);
	/* The writer's own: for all series at once, and for common memory. */
	stats.flush = w->flush.stage;
	stats.flushes = w->flush.count;
	stats.memory_bytes = w->locked.bytes + (w->memory_bytes ? 0 : w->locked.held);
	stats.full_ns = w->disk.waited_ns;
	if (w->disk.error)
		stats.full_ns += (uint64_t)(sl_now() - w->disk.since);
	stats.full_waits = w->disk.waits;
	stats.full_now = w->disk.error ? w->disk.error : w->disk.elsewhere;
	sl_mutex_unlock(&w->mutex);
	sl_struct_give(out, &stats, sizeof(stats));
	return 0;
}

int sluice_writer_error(const sluice_writer *writer, struct sluice_writer_failure *out)
{
	struct sluice_writer *w = (struct sluice_writer *)(uintptr_t)writer;
	struct sluice_writer_failure error = {0};
	int rc = stats_check(w, out ? &out->size : NULL, "sluice_writer_error");

	if (rc)
		return rc;
	sl_mutex_lock(&w->mutex);
	error.error = w->failure.error;
	error.dataset = w->failure.series ? w->failure.series->name : NULL;
	error.frame = w->failure.frame;
	error.stage = w->failure.stage;
	error.message = w->failure.message;
	sl_mutex_unlock(&w->mutex);
	if (!error.error)
		return 0;
	sl_struct_give(out, &error, sizeof(error));
	return 1;
}

int sluice_codec_describe(size_t index, struct sluice_codec *out)
{
	const struct sl_codec *codec = sl_codec_at(index);
	struct sluice_codec told = {0};

	if (!out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_codec_describe: out->size is not set");
	if (!codec)
		return sl_fail(-ENOENT, "there is no codec %zu", index);
	told.name = codec->name;
	told.encoder = codec->encoder;
	told.missing = codec->missing;
	told.filter = codec->filter;
	told.least = codec->least;
	told.most = codec->most;
	told.plugin = codec->plugin;
	sl_struct_give(out, &told, sizeof(told));
	return 0;
}
