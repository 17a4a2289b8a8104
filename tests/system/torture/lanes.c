/* SPDX-License-Identifier: Apache-2.0 */
/* What a schedule runs on: files, streams, memory, and what is known of the file. */
#include "system/torture/torture.h"

#include <fcntl.h>
#include <unistd.h>

#define PAGE 4096

/* ------------------------------------------------------------------------------------- the file */

uint64_t writer_seed(const struct run *run, uint32_t writer)
{
	return writer ? run->actions[writer - 1].seed : run->schedule->seed ^ 0x5eed;
}

static size_t grain_of(const struct lane *lane, uint64_t offset)
{
	return (size_t)((offset - lane->base) / GRAIN);
}

bool lane_known(const struct run *run, const struct lane *lane, uint64_t offset, size_t length)
{
	for (size_t at = 0; run->schedule->sparse && at < length; at += GRAIN)
		if (!lane->writers[grain_of(lane, offset + at)])
			return false;
	return true;
}

void lane_written(const struct run *run, struct lane *lane, uint64_t offset, size_t length,
                  uint32_t writer)
{
	(void)run;
	for (size_t at = 0; at < length; at += GRAIN)
		lane->writers[grain_of(lane, offset + at)] = writer;
}

unsigned lane_stretches(const struct run *run, const struct lane *lane, uint64_t offset,
                        size_t length, const unsigned char *bytes, struct stretch *out,
                        unsigned most)
{
	unsigned count = 0;

	for (size_t at = 0; at < length; at += GRAIN) {
		uint32_t writer = lane->writers[grain_of(lane, offset + at)];
		struct stretch *last = count ? &out[count - 1] : NULL;

		if (last && last->writer == writer) {
			last->length += GRAIN;
			continue;
		}
		if (count == most)
			break;
		out[count++] = (struct stretch){
			.bytes = bytes + at,
			.length = GRAIN,
			.offset = offset + at,
			.seed = writer_seed(run, writer),
			.origin = ORIGIN_PATTERN,
			.writer = writer,
		};
	}
	return count;
}

static size_t file_bytes(const struct run *run)
{
	return (size_t)(run->first_bytes + run->stride * run->schedule->lanes);
}

static void make_file(struct run *run)
{
	const struct schedule *s = run->schedule;
	size_t n = file_bytes(run);
	unsigned char *bytes;
	int fd = open(run->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (fd < 0)
		caught("environment", "%s: %s", run->path, strerror(errno));
	if (!s->sparse) {
		bytes = malloc(n);
		pattern_fill(bytes, n, 0, writer_seed(run, 0));
		if (pwrite(fd, bytes, n, 0) != (ssize_t)n)
			caught("environment", "%s: %s", run->path, strerror(errno));
		free(bytes);
	}
	close(fd);
}

static void open_files(struct run *run)
{
	const struct schedule *s = run->schedule;
	const char *reading = s->http ? fault_uri("%s", s->remote) : read_path;

	make_file(run);
	for (unsigned i = 0; i < HANDLES; i++) {
		unsigned flags = i == HANDLES - 1 && s->nonblock ? SLUICE_OPEN_NONBLOCK : 0;
		int rc = open_flags(run->ctx, run->path,
		                    SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | flags, &run->shared[i]);

		if (!rc)
			rc = open_flags(run->ctx, reading, SLUICE_OPEN_READ | flags,
			                &run->reading[i]);
		if (rc)
			caught("wrong result", "opening: %s", sluice_last_message());
	}
}

/* ------------------------------------------------------------------------------------- the lanes */

static struct part next_part(unsigned char **memory, size_t length)
{
	struct part part = {*memory, length};

	*memory += length + GUARD;
	set_now(part.memory + length, GUARD_BYTE, GUARD);
	return part;
}

static void check_guard(const struct part *part, const struct lane *lane, const char *name)
{
	unsigned char held[GUARD];

	if (gpu_get(held, part->memory + part->length, GUARD))
		caught("environment", "%s", gpu_message());
	for (unsigned i = 0; i < GUARD; i++)
		if (held[i] != GUARD_BYTE)
			caught("wrong byte", "byte %u behind the %s memory of stream %u is %02x", i,
			       name, lane->index, held[i]);
}

static void check_guards(struct run *run)
{
	for (unsigned i = 0; i < run->schedule->lanes; i++) {
		struct lane *lane = &run->lanes[i];

		check_guard(&lane->stream_part, lane, "stream's");
		check_guard(&lane->awaited_part, lane, "awaited");
		check_guard(&lane->also_part, lane, "further");
		check_guard(&lane->scratch, lane, "caller's");
		check_guard(&lane->plain, lane, "host");
		check_guard(&lane->host, lane, "awaited host");
	}
}

static void must(int rc, const char *what)
{
	if (rc)
		caught("environment", "%s: %s", what, sluice_last_message());
}

/* The default streams are of the first lanes, if the seed wants them. */
static void make_stream(struct lane *lane, struct rng *rng)
{
	lane->own = lane->index > 2 || rng_below(rng, 4);
	if (lane->own)
		must(sluice_stream_new(gpu_device(lane->device), &lane->stream), "a stream");
	else
		lane->stream = (sluice_stream)(uintptr_t)(lane->index / DEVICES * 2);
	must(sluice_event_new(gpu_device(lane->device), &lane->event), "an event");
}

static void make_lanes(struct run *run)
{
	const struct schedule *s = run->schedule;
	struct rng rng = seeded(s->seed, 2);
	size_t each = s->part + GUARD;
	unsigned char *memory[DEVICES], *pinned[DEVICES], *host;

	run->host_bytes = 2 * each * s->lanes;
	run->host = host = malloc(run->host_bytes);
	for (unsigned i = 0; i < s->devices; i++) {
		must(sluice_device_alloc(gpu_device((int)i), 4 * each * s->lanes, &run->memory[i]),
		     "memory");
		memory[i] = run->memory[i];
		pinned[i] = pinned_memory[i] + PINNED_PATTERN;
	}
	for (unsigned i = 0; i < s->lanes; i++) {
		struct lane *lane = &run->lanes[i];
		unsigned d = i % s->devices;

		lane->index = i;
		lane->device = (int)d;
		lane->stream_part = next_part(&memory[d], s->part);
		lane->awaited_part = next_part(&memory[d], s->part);
		lane->also_part = next_part(&memory[(d + 1) % s->devices], s->part);
		lane->scratch = next_part(&memory[d], s->part);
		lane->plain = next_part(&host, s->part);
		lane->host = next_part(&host, s->part);
		lane->pinned = (struct part){pinned[d], s->part};
		pinned[d] += s->part;
		lane->base = run->first_bytes + i * run->stride +
		             (rng_below(&rng, 2) ? rng_below(&rng, 4000) : 0);
		lane->writers = calloc(s->region / GRAIN, sizeof(*lane->writers));
		make_stream(lane, &rng);
	}
}

static void free_lanes(struct run *run)
{
	for (unsigned i = 0; i < run->schedule->lanes; i++) {
		struct lane *lane = &run->lanes[i];

		must(sluice_event_free(lane->event), "freeing an event");
		if (lane->own)
			must(sluice_stream_free(lane->stream), "freeing a stream");
		free(lane->writers);
	}
	for (unsigned i = 0; i < run->schedule->devices; i++)
		must(sluice_device_free(run->memory[i]), "freeing memory");
	free(run->host);
}

/* ------------------------------------------------------------------------------------- the run */

static void *own_staging[DEVICES];

static void make_context(const struct schedule *s, struct run *run)
{
	struct sluice_config config = s->config;
	int rc;

	/* A budget that is too little by some blocks is not what is looked for. */
	while ((rc = sluice_context_new(&config, &run->ctx)) == -EINVAL &&
	       strstr(sluice_last_message(), "STAGING"))
		config.staging_bytes = config.staging_bytes * 5 / 4 / PAGE * PAGE + PAGE;
	must(rc, "a context");
	for (unsigned i = 0; i < s->devices && s->own_staging; i++) {
		if (i && !gpu_has_two())
			break;
		must(sluice_pinned_alloc(gpu_device((int)i), config.staging_bytes, &own_staging[i]),
		     "memory");
		must(sluice_context_staging(run->ctx, gpu_device((int)i), own_staging[i],
		                            config.staging_bytes),
		     "staging");
	}
}

void run_open(const struct schedule *s, struct run *run)
{
	run->schedule = s;
	run->first_bytes = PAGE;
	run->stride = (s->region + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
	run->actions = calloc(OPS_MOST, sizeof(*run->actions));
	for (unsigned i = 0; i < s->devices && !gpu_is_real(); i++)
		must(sluice_emulated_configure(gpu_device((int)i), &s->device[i]), "configuring");
	make_context(s, run);
	open_files(run);
	make_lanes(run);
}

static void close_files(struct run *run)
{
	for (unsigned i = 0; i < HANDLES; i++) {
		int rc = sluice_close(run->shared[i]);

		if (!rc)
			rc = sluice_close(run->reading[i]);
		else
			sluice_close(run->reading[i]);
		if (rc)
			caught("wrong result", "closing a file: %s", sluice_last_message());
	}
}

void run_close(struct run *run)
{
	int rc;

	doing("closing the files");
	close_files(run);
	verify_file(run);
	check_guards(run);
	doing("freeing the context");
	rc = sluice_context_close(run->ctx);
	if (rc)
		caught("wrong result", "freeing the context: %s", sluice_last_message());
	if (run->schedule->lose)
		sluice_emulated_lose(gpu_device(0), 0);
	doing("freeing streams and memory");
	for (unsigned i = 0; i < DEVICES; i++) {
		must(sluice_pinned_free(own_staging[i]), "freeing pinned memory");
		own_staging[i] = NULL;
	}
	free_lanes(run);
	free(run->actions);
}
