/* SPDX-License-Identifier: Apache-2.0 */
/* Reads into memory of several devices: who gets which bytes, and what fails. */
#include "io/device_suite.h"
#include "lib/gate.h"

#define NO_GATE  "results of requests do not pass the gate"
#define NO_KNOB  "whether real devices reach each other is not to be chosen"
#define NOT_LOST "a real device is not to be lost on purpose"
#define BLANK    0x3c /* as device_new() fills */

enum { ALSO = 3, APART = 9, MOST = 200 };

/* Extents in memory of device 0; the same places of memories of the devices 1, 0 and 1 are further
 * ones, but for some. */
struct fan_test {
	struct sluice_extent v[MOST];
	size_t count, room;
	char *memory[1 + ALSO];
	void *also[ALSO * MOST];
	uint64_t length; /* of the file */
};

static void fan_new(struct fan_test *t, struct rng *r, size_t count, size_t most, bool some)
{
	uint64_t end = rng_below(r, 5000);

	t->count = count;
	t->room = APART;
	for (size_t i = 0; i < count; i++) {
		size_t n = rng_below(r, 20) ? 1 + rng_below(r, most) : 0;

		t->v[i] = (struct sluice_extent){NULL, n, end};
		end += n + (rng_below(r, 3) ? 0 : rng_below(r, 30000));
		t->room += n + APART;
	}
	t->length = end;
	for (int i = 0; i <= ALSO; i++)
		t->memory[i] = device_new(i % 2, t->room);
	for (size_t i = 0, at = APART; i < count; at += t->v[i++].length + APART) {
		t->v[i].data = t->memory[0] + at;
		for (int k = 0; k < ALSO; k++)
			t->also[k * count + i] =
				some && !rng_below(r, 4) ? NULL : t->memory[1 + k] + at;
	}
}

static void fan_free(struct fan_test *t)
{
	for (int i = 0; i <= ALSO; i++)
		device_free(t->memory[i]);
}

static int fan_submit(sluice_file *file, struct fan_test *t, sluice_op **out)
{
	struct sluice_request r = SLUICE_REQUEST_INIT;

	r.kind = SLUICE_READ;
	r.extents = t->v;
	r.count = t->count;
	r.also = t->also;
	r.also_count = ALSO;
	return sluice_submit(file, &r, out);
}

static sluice_op *fan_start(sluice_file *file, struct fan_test *t)
{
	sluice_op *op = NULL;

	assert_ok(fan_submit(file, t, &op));
	return op;
}

static size_t fan_bytes(const struct fan_test *t, size_t i, uint64_t file_size)
{
	const struct sluice_extent *e = &t->v[i];
	uint64_t left = e->offset < file_size ? file_size - e->offset : 0;

	return e->length < left ? e->length : left;
}

static size_t fan_all(const struct fan_test *t, uint64_t file_size)
{
	size_t sum = 0;

	for (size_t i = 0; i < t->count; i++)
		sum += fan_bytes(t, i, file_size);
	return sum;
}

/* Each memory has the bytes of the file that it wants, and is as it was elsewhere. */
static void assert_fan(const struct fan_test *t, uint64_t file_size, uint64_t seed)
{
	unsigned char *held = malloc(t->room), *expected = malloc(t->room);

	for (int k = 0; k <= ALSO; k++) {
		memset(expected, BLANK, t->room);
		for (size_t i = 0; i < t->count; i++)
			if (!k || t->also[(k - 1) * t->count + i])
				pattern_fill(expected + ((char *)t->v[i].data - t->memory[0]),
				             fan_bytes(t, i, file_size), t->v[i].offset, seed);
		device_get(held, t->memory[k], t->room);
		assert_bytes(held, expected, t->room);
	}
	free(held);
	free(expected);
}

static void fan_rounds(struct fixture *f, uint64_t stream)
{
	struct rng r = rng_new(stream);
	struct fan_test t;

	for (int round = 0; round < (row->remote ? 6 : 18); round++) {
		const char *path = scratch(f, "fan");
		size_t most = round % 3 ? 20000 : row_bytes(2 * MIB);
		sluice_file *file;
		sluice_op *op;

		fan_new(&t, &r, 1 + rng_below(&r, round % 3 ? MOST : 8), most, round % 2);
		t.length = t.length > 1 && round % 4 == 0 ? t.length - t.length / 10 : t.length + 1;
		file_make(path, t.length, (uint64_t)round);
		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		file = open_read(f->ctx, address(f, "fan"));
		op = fan_start(file, &t);
		assert_moves(op, fan_all(&t, t.length));
		assert_fan(&t, t.length, (uint64_t)round);
		assert_ok(sluice_close(file));
		fan_free(&t);
	}
}

FIXTURE_TEST(a_read_brings_its_bytes_to_all_memories_that_want_them)
{
	fan_rounds(f, 4811);
}

static void choose_peers(unsigned no_peers)
{
	struct sluice_emulated_options o = SLUICE_EMULATED_OPTIONS_INIT;

	o.no_peers = no_peers;
	for (int i = 0; i < GPU_DEVICES; i++)
		assert_ok(sluice_emulated_configure(gpu_device(i), &o));
}

ROW_TEST(devices_that_do_not_reach_each_other_get_their_bytes_from_the_slot, .gpu = NO_KNOB)
{
	choose_peers(1);
	fan_rounds(f, 4812);
	choose_peers(0);
}

static bool any_piece(const struct sl_piece *piece)
{
	(void)piece;
	return true;
}

LOCAL_TEST(a_read_into_several_memories_reads_the_file_once, NO_GATE)
{
	size_t n = row_bytes(8 * MIB), pieces[2];
	struct rng r = rng_new(4813);
	struct fan_test t;
	sluice_file *file;

	do
		fan_new(&t, &r, 1, n, false);
	while (!t.v[0].length);
	file_make(scratch(f, "once"), t.length + 1, 1);
	file = open_read(f->ctx, scratch(f, "once"));
	for (int i = 0; i < 2; i++) {
		bend(NULL);
		assert_moves(
			i ? fan_start(file, &t)
			  : start_read(file, t.memory[0] + APART, t.v[0].length, t.v[0].offset),
			t.v[0].length);
		pieces[i] = gate_count();
	}
	gate_reset();
	assert_int_equal(pieces[0], pieces[1]);
	assert_fan(&t, t.length + 1, 1);
	assert_ok(sluice_close(file));
	fan_free(&t);
}

LOCAL_TEST(a_cancelled_read_into_several_memories_ends_and_the_next_is_right, NO_GATE)
{
	struct rng r = rng_new(4814);
	struct fan_test t;
	sluice_file *file;

	fan_new(&t, &r, 100, 60000, true);
	file_make(scratch(f, "stop"), t.length + 1, 3);
	file = open_read(f->ctx, scratch(f, "stop"));
	for (int round = 0; round < 4; round++) {
		sluice_op *op;

		gate_close(any_piece);
		op = fan_start(file, &t);
		assert_true(gate_holds(1));
		sluice_cancel(op);
		gate_open();
		assert_int_equal(finish(op), -ECANCELED);
		gate_reset();
	}
	assert_moves(fan_start(file, &t), fan_all(&t, t.length));
	assert_fan(&t, t.length, 3);
	assert_ok(sluice_close(file));
	fan_free(&t);
}

ROW_TEST(a_device_that_fails_ends_the_read_and_is_named, .gpu = NOT_LOST)
{
	struct rng r = rng_new(4815);
	struct fan_test t;
	sluice_file *file;

	fan_new(&t, &r, 20, 60000, false);
	file_make(scratch(f, "fail"), t.length + 1, 4);
	for (int no_peers = 0; no_peers < 2; no_peers++) {
		struct sluice_config c = row_config();
		sluice_op *op = NULL;

		choose_peers(no_peers);
		fixture_config(f, &c);
		warm_up(f, 0);
		warm_up(f, 1);
		file = open_read(f->ctx, address(f, "fail"));
		sluice_emulated_lose(gpu_device(1), 1);
		op = fan_start(file, &t);
		assert_int_equal(sluice_wait(op, PATIENCE_MS), -EIO);
		assert_non_null(strstr(sluice_op_message(op), gpu_name(1)));
		sluice_op_free(op);
		assert_ok(sluice_close(file));
		sluice_emulated_lose(gpu_device(1), 0);
	}
	choose_peers(0);
	fan_free(&t);
}

FIXTURE_TEST(further_memory_that_no_read_can_have_is_refused)
{
	sluice_stream stream = stream_new(0);
	struct sluice_request q = SLUICE_REQUEST_INIT;
	struct rng r = rng_new(4816);
	char *host = malloc(100);
	sluice_op *op = NULL;
	struct fan_test t;
	sluice_file *file;
	void *kept;

	file_make(scratch(f, "refused"), 100000, 5);
	file = open_read(f->ctx, address(f, "refused"));
	do
		fan_new(&t, &r, 5, 100, false);
	while (!t.v[0].length || !t.v[1].length);
	kept = t.also[1];
	t.also[1] = host;
	assert_refused(fan_submit(file, &t, &op), EINVAL, "extent 1");
	t.also[1] = t.memory[2];
	if (gpu_has_two())
		assert_refused(fan_submit(file, &t, &op), EINVAL, gpu_name(0));
	t.also[1] = kept;
	q.kind = SLUICE_READ;
	q.extents = t.v;
	q.count = t.count;
	q.also_count = ALSO;
	assert_refused(sluice_submit(file, &q, &op), EINVAL, "NULL");
	q.also = t.also;
	q.on = 1;
	q.stream = stream;
	assert_refused(sluice_submit(file, &q, &op), ENOTSUP, "stream order");
	q.on = 0;
	q.also_count = 1000;
	assert_refused(sluice_submit(file, &q, &op), EINVAL, "1000");
	q.also_count = 1;
	t.v[0].data = host;
	q.count = 1;
	assert_refused(sluice_submit(file, &q, &op), EINVAL, "on a device");
	assert_null(op);
	assert_ok(sluice_close(file));
	stream_free(stream);
	fan_free(&t);
	free(host);
}
