/* SPDX-License-Identifier: Apache-2.0 */
/* What a seed means. */
#include "system/torture/torture.h"

struct rng seeded(uint64_t seed, uint64_t stream)
{
	struct rng rng = {seed * 0x9e3779b97f4a7c15ull ^ stream * 0xd1b54a32d192ed03ull};

	rng_next(&rng);
	return rng;
}

#define PICK(rng, ...)                                                                        \
	((const size_t[]){__VA_ARGS__}[rng_below(rng, sizeof((const size_t[]){__VA_ARGS__}) / \
	                                                      sizeof(size_t))])

static bool one_in(struct rng *rng, size_t n)
{
	return !rng_below(rng, n);
}

/* Half is for operations that are awaited on the host, and the words; a ring must fit into the rest. */
static size_t least_staging(size_t slot, size_t slots)
{
	size_t power = 4096;

	while (power < slot)
		power *= 2;
	return (2 * power * slots + power / 8 + 4 * 4096) / 4096 * 4096;
}

static size_t slot_of(const struct sluice_config *c)
{
	size_t slot = config_tuned(c, "slot_bytes");

	return slot ? slot : config_tuned(c, "piece_bytes");
}

static void draw_config(struct rng *rng, struct schedule *s)
{
	static const char *const backends[] = {"auto", "posix", "uring"};
	struct sluice_config *c = &s->config;
	size_t slots;

	*c = (struct sluice_config)SLUICE_CONFIG_INIT;
	c->backend = backends[rng_below(rng, machine_has_uring() ? 3 : 2)];
	c->workers = PICK(rng, 1, 1, 2, 4);
	config_tune(c, "reactors", PICK(rng, 1, 1, 2));
	config_tune(c, "piece_bytes", PICK(rng, 4096, 4096, 8192, 16384, 65536));
	config_tune(c, "operation_depth", PICK(rng, 1, 2, 4, 64));
	c->direct_bytes = one_in(rng, 6) ? 4096 : 64 * MIB;
	config_tune(c, "bounce_bytes", 2 * 65536);
	if (!one_in(rng, 5))
		config_tune(c, "slot_bytes",
		            config_tuned(c, "piece_bytes") * PICK(rng, 1, 1, 2, 3));
	config_tune(c, "slots", PICK(rng, 0, 1, 2, 2, 3, 5));
	slots = SL_MAX(config_tuned(c, "slots"), 1);
	c->staging_bytes = least_staging(slot_of(c), slots);
	c->staging_bytes = c->staging_bytes * PICK(rng, 2, 2, 3, 4, 16, 64) / 2 / 4096 * 4096;
	if (c->staging_bytes < 64 * KIB)
		c->staging_bytes = 64 * KIB;
	if (one_in(rng, 6))
		c->max_operations = PICK(rng, 1, 2, 5, 20);
	c->remote_backend = one_in(rng, 2) ? "easy" : "multi";
	c->max_connections = PICK(rng, 1, 2, 6, 16);
	config_tune(c, "http_reactors", PICK(rng, 1, 2));
	c->http_backoff_ms = 2;
	config_tune(c, "http_backoff_max_ms", 10);
	s->own_staging = one_in(rng, 8);
}

static void draw_size(struct rng *rng, struct schedule *s)
{
	size_t most;

	/* Few streams with long operations, or many with short ones. */
	s->lanes = (unsigned)PICK(rng, 1, 2, 3, 4, 5, 6, 8, 8, 12, 16, 24, 40, 64, 256);
	s->threads = (unsigned)PICK(rng, 1, 2, 3, 4, 4, 8);
	if (s->threads > s->lanes)
		s->threads = s->lanes;
	most = MIB / s->lanes;
	if (s->lanes <= 2 && one_in(rng, 6))
		most = 3 * MIB;
	if (most > 192 * KIB && !one_in(rng, 3) && s->lanes > 2)
		most = 192 * KIB;
	s->region = (most < 8192 ? 8192 : most) / GRAIN * GRAIN;
	s->part = s->region;
	s->steps = (unsigned)PICK(rng, 16, 24, 32, 48, 64);
	if (s->steps < s->lanes)
		s->steps = s->lanes + (unsigned)rng_below(rng, s->lanes / 4 + 1);
	s->sparse = one_in(rng, 3);
}

static void draw_device(struct rng *rng, struct schedule *s)
{
	s->devices = one_in(rng, 4) ? 2 : 1;
	for (unsigned i = 0; i < DEVICES; i++) {
		s->device[i] = (struct sluice_emulated_options)SLUICE_EMULATED_OPTIONS_INIT;
		if (one_in(rng, 8))
			continue;
		s->device[i].seed = 1 + rng_next(rng) / 2;
		s->device[i].delay_us = (unsigned)PICK(rng, 0, 0, 5, 20, 100, 400);
		s->device[i].preempt_us = (unsigned)PICK(rng, 0, 0, 10, 50, 200, 1000);
		s->device[i].no_peers = one_in(rng, 3);
		if (s->lanes > 60 && s->device[i].preempt_us > 50)
			s->device[i].preempt_us = 50;
	}
}

/* So that a schedule takes some 20 ms: fewer steps, or less memory, where each of them takes long. */
static void limit_work(struct schedule *s)
{
	const struct sluice_config *c = &s->config;
	size_t slot = slot_of(c), delay = 0, preempt = 0;
	unsigned least = s->lanes < 6 ? 6 : s->lanes, together = s->lanes < 8 ? s->lanes : 8;

	for (unsigned i = 0; i < s->devices; i++) {
		delay = SL_MAX(delay, s->device[i].delay_us);
		preempt = SL_MAX(preempt, s->device[i].preempt_us);
	}
	for (;;) {
		size_t chunks = s->region / (2 * slot) + 2;
		size_t us = chunks * (12 + delay / together + preempt / s->threads / 5);

		if (us * s->steps <= 30000)
			return;
		if (s->steps > least)
			s->steps = (unsigned)SL_MAX(least, 30000 / us);
		else if (s->region > 8 * slot && s->region > 8192 && us * s->steps > 60000)
			s->region = s->part = s->region / 2 / GRAIN * GRAIN;
		else
			return;
	}
}

/* Kinds that a running operation uses; making and freeing is for other tests. */
static const unsigned failing[] = {
	SLUICE_EMULATED_COPY,
	SLUICE_EMULATED_COPY,
	SLUICE_EMULATED_WAIT,
	SLUICE_EMULATED_WRITE,
	SLUICE_EMULATED_WRITE,
	SLUICE_EMULATED_RECORD,
	SLUICE_EMULATED_LAUNCH,
	SLUICE_EMULATED_QUERY,
	SLUICE_EMULATED_SYNCHRONIZE,
	SLUICE_EMULATED_ALLOC,
	SLUICE_EMULATED_EVENT,
	SLUICE_EMULATED_STREAM,
	FAIL_EVENT,
	FAIL_EVENT,
	FAIL_EVENT,
	FAIL_ENQUEUE,
	FAIL_ENQUEUE,
	FAIL_ENQUEUE,
	FAIL_ENQUEUE,
	FAIL_ENQUEUE,
};

static void draw_trouble(struct rng *rng, struct schedule *s)
{
	s->freers = (unsigned)PICK(rng, 0, 1, 1, 2);
	s->pins = one_in(rng, 4);
	s->nonblock = one_in(rng, 4);
	s->pauses = one_in(rng, 3);
	s->forbidden = UINT64_MAX;
	if (one_in(rng, 3)) {
		s->carefree = true;
		return;
	}
	s->lose = one_in(rng, 70);
	s->lose_us = (unsigned)rng_below(rng, 8000);
	if (one_in(rng, 2))
		s->cancels = (unsigned)PICK(rng, 5, 20, 60);
	if (one_in(rng, 3))
		s->errors = (unsigned)PICK(rng, 2, 20, 100, 300);
	if (one_in(rng, 3))
		s->shorts = (unsigned)PICK(rng, 20, 100, 500);
	if (one_in(rng, 2))
		s->failures = 1 + (unsigned)rng_below(rng, COUNT_OF(s->failure));
	for (unsigned i = 0; i < s->failures; i++) {
		s->failure[i].kind = failing[rng_below(rng, COUNT_OF(failing))];
		s->failure[i].nth = 1 + (unsigned)rng_below(rng, PICK(rng, 5, 30, 200, 600));
		/* One call of these is a lot of commands. */
		if (s->failure[i].kind == FAIL_ENQUEUE)
			s->failure[i].nth = s->failure[i].nth % 25;
		s->failure[i].row = 1 + (unsigned)rng_below(rng, 4);
		s->failure[i].period = (unsigned)PICK(rng, 1000000, 10, 30, 100);
	}
}

static void draw_remote(struct rng *rng, struct schedule *s)
{
	static const char *const manners[] = {
		"",
		"",
		"&latency=2",
		"&fault=status:503&times=2&skip=2",
		"&fault=short:100&times=3",
		"&pace=20000:1",
	};

	s->remote_bytes = MIB + rng_below(rng, MIB);
	s->steps = 8 + (unsigned)rng_below(rng, 12);
	if (s->lanes > s->steps)
		s->lanes = s->steps;
	if (s->threads > s->lanes)
		s->threads = s->lanes;
	if (!s->carefree && one_in(rng, 4)) {
		s->forbidden = rng_below(rng, s->remote_bytes);
		snprintf(s->remote, sizeof(s->remote), "size=%zu&fault=status:403&at=%llu",
		         s->remote_bytes, (unsigned long long)s->forbidden);
		return;
	}
	snprintf(s->remote, sizeof(s->remote), "size=%zu%s", s->remote_bytes,
	         manners[rng_below(rng, COUNT_OF(manners))]);
}

/* On a real device: it is not told what to do, and in its place storage takes its time. */
static void draw_real(struct schedule *s)
{
	struct rng rng = seeded(s->seed, 3);

	s->failures = 0;
	s->lose = false;
	s->slow_us = (unsigned)PICK(&rng, 0, 0, 100, 1000, 5000);
}

void schedule_draw(uint64_t seed, bool http, struct schedule *out)
{
	struct rng rng = seeded(seed, 1);

	*out = (struct schedule){.seed = seed, .http = http};
	draw_config(&rng, out);
	draw_size(&rng, out);
	draw_device(&rng, out);
	/* More commands than a device's queue takes at once, and nothing that makes that slow. */
	if (out->region > MIB) {
		out->steps = 3;
		for (unsigned i = 0; i < DEVICES; i++)
			out->device[i].delay_us = out->device[i].preempt_us = 0;
	} else {
		limit_work(out);
	}
	draw_trouble(&rng, out);
	if (gpu_is_real())
		draw_real(out);
	if (http)
		draw_remote(&rng, out);
}

void schedule_print(const struct schedule *s)
{
	const struct sluice_config *c = &s->config;

	printf("schedule: %u threads, %u streams on %u devices, %u steps, %zu bytes for each%s\n",
	       s->threads, s->lanes, s->devices, s->steps, s->region,
	       s->sparse ? ", in a file that grows" : "");
	printf("settings: %s, workers %zu, direct %zu, %s, staging %zu%s, operations %zu\n",
	       c->backend, c->workers, c->direct_bytes, c->tune, c->staging_bytes,
	       s->own_staging ? " (the test's own)" : "", c->max_operations);
	for (unsigned i = 0; i < s->devices && !gpu_is_real(); i++)
		printf("device %u: seed %llu, delay %u us, preempt %u us%s\n", i,
		       (unsigned long long)s->device[i].seed, s->device[i].delay_us,
		       s->device[i].preempt_us, s->device[i].no_peers ? ", no peers" : "");
	printf("trouble: %u freers%s, %u%% cancelled, %u/1000 errors, %u/1000 short%s%s%s\n",
	       s->freers, s->pins ? " that pin" : "", s->cancels, s->errors, s->shorts,
	       s->carefree ? ", nothing fails" : "",
	       s->nonblock ? ", one handle does not block" : "",
	       s->pauses ? ", threads pause" : "");
	for (unsigned i = 0; i < s->failures; i++)
		printf("the device fails call %u of kind %u%s\n", s->failure[i].nth,
		       s->failure[i].kind,
		       s->failure[i].kind < SLUICE_EMULATED_KINDS ? "" : ", and more");
	if (s->slow_us)
		printf("storage is late, by up to %u us\n", s->slow_us);
	if (s->lose)
		printf("a device is lost after %u us\n", s->lose_us);
	if (s->http)
		printf("remote by %s, %zu connections: %s\n", c->remote_backend, c->max_connections,
		       s->remote);
}
