/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation fails once: an error or none, but no crash, no leak, no wrong byte. */
#include "local/fault.h"

#define LENGTH (2 * MIB + 77)

struct work {
	struct fixture *f;
	const char *path, *out;
	struct buffer *b;
	bool told; /* something answered with an error */
};

static bool is_memory(int64_t result)
{
	return result == -ENOMEM || result == -EAGAIN;
}

/* Whatever a program does, from a context to its end. False: it could not be told right. */
static bool do_work(struct work *w)
{
	struct sluice_config c = row_config();
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	struct sluice_extent v[20];
	sluice_context *ctx = NULL;
	sluice_file *in = NULL, *out = NULL;
	sluice_op *op;
	bool right = true;
	int rc, i;

	c.workers = 2;
	config_tune(&c, "piece_bytes", 256 * KIB);
	rc = sluice_context_new(&c, &ctx);
	if (rc) {
		w->told = true;
		return is_memory(rc) || rc == -ENOSYS;
	}
	rc = sluice_open(ctx, w->path, NULL, &in);
	w->told |= rc != 0;
	right = right && (rc == 0 || is_memory(rc));
	o.flags = SLUICE_OPEN_REPLACE | SLUICE_OPEN_DURABLE;
	rc = sluice_open(ctx, w->out, &o, &out);
	w->told |= rc != 0;
	right = right && (rc == 0 || is_memory(rc));
	for (i = 0; i < 20; i++)
		v[i] = (struct sluice_extent){w->b->data + i * 100000, 100000,
		                              (uint64_t)i * 100000};
	op = NULL;
	rc = in ? submit_read(in, v, 20, &op) : 0;
	w->told |= rc != 0;
	right = right && (rc == 0 || is_memory(rc));
	if (op) {
		int64_t got = sluice_wait(op, PATIENCE_MS);

		w->told |= got < 0;
		right = right &&
		        (is_memory(got) ||
		         (got == 2000000 && pattern_match(w->b->data, 2000000, 0, 1) == 2000000));
		(void)sluice_op_message(op);
		sluice_op_free(op);
	}
	op = NULL;
	rc = in ? sluice_read(in, w->b->data, LENGTH, 0, &op) : 0;
	w->told |= rc != 0;
	if (op) {
		int64_t got = sluice_wait(op, PATIENCE_MS);

		w->told |= got < 0;
		right = right &&
		        (is_memory(got) ||
		         (got == LENGTH && pattern_match(w->b->data, LENGTH, 0, 1) == LENGTH));
		sluice_op_free(op);
	}
	pattern_fill(w->b->data, LENGTH, 0, 1);
	rc = out ? sluice_write(out, w->b->data, LENGTH, 0, NULL) : 0;
	if (rc) {
		w->told = true;
		sluice_discard(out);
		out = NULL;
	}
	rc = out ? sluice_close(out) : 0;
	w->told |= rc != 0;
	right = right && (rc == 0 || is_memory(rc));
	rc = in ? sluice_close(in) : 0;
	w->told |= rc != 0;
	right = right && sluice_context_close(ctx) == 0;
	return right;
}

FAULT_TEST(memory_that_runs_out_is_an_error)
{
	struct buffer b = buffer_new(LENGTH, 0);
	struct work w = {.f = f, .b = &b};
	unsigned n, told = 0;

	w.path = scratch(f, "in");
	w.out = scratch(f, "out");
	file_make(w.path, LENGTH, 1);
	for (n = 1; n < 500; n++) {
		bool right, hit;

		if (n % 2)
			file_set_residency(w.path, COLD);
		w.told = false;
		fail_allocation(n);
		right = do_work(&w);
		hit = allocation_failed();
		fail_allocation(0);
		if (!right)
			fail_msg("allocation %u failed, and not as an error", n);
		if (directory_entries(f->dir) > 2)
			fail_msg("allocation %u failed, and left a file behind", n);
		told += w.told;
		if (!hit)
			break;
		if (!w.told && file_length(w.out) != LENGTH)
			fail_msg("allocation %u failed, and nobody told", n);
	}
	print_message("%u allocations failed, %u were told\n", n - 1, told);
	assert_in_range(n, 10, 499);
	buffer_free(&b);
}
