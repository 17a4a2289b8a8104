/* SPDX-License-Identifier: Apache-2.0 */
/* A reactor that meets an internal error fails what it has, begins anew, and the context lives. */
#include "http/cases.h"

static void need_reactors(void)
{
	if (strcmp(row->remote, "multi") != 0)
		SKIP("only http_multi has reactors");
}

static void break_while_reading(struct fixture *f, void (*fail_next)(unsigned))
{
	enum { READS = 12 };
	const char *uri = fault_uri("size=%zu&latency=30&pace=50000:3", LONG);
	sluice_file *file = open_read(f->ctx, uri);
	struct buffer b[READS];
	sluice_op *ops[READS];
	int round, i, failed = 0;

	/* On a loaded machine the reads of a round may be over before. */
	for (round = 0; round < 6 || (!failed && round < 60); round++) {
		for (i = 0; i < READS; i++) {
			b[i] = buffer_new(200000, 0);
			ops[i] = start_read(file, b[i].data, b[i].length, (uint64_t)i * 1000);
		}
		sleep_ms(10 + round % 6 * 7);
		fail_next(1 + (unsigned)round % 2);
		for (i = 0; i < READS; i++) {
			int64_t got = sluice_wait(ops[i], PATIENCE_MS);

			if (got == -EIO) {
				assert_true(*sluice_op_message(ops[i]));
				failed++;
			} else {
				assert_int_equal(got, b[i].length);
				assert_served(b[i].data, b[i].length, (uint64_t)i * 1000);
			}
			sluice_op_free(ops[i]);
		}
		/* One that met the error was over by then. */
		stays_untouched(&b[0]);
		for (i = 0; i < READS; i++)
			buffer_free(&b[i]);
		fail_next(0);
		reads_right(f, fault_uri("size=%zu", LONG), LONG, 0);
	}
	print_message("%d of %d reads met an error\n", failed, round * READS);
	assert_true(failed > 0);
	assert_ok(sluice_close(file));
}

HTTP_TEST(an_error_of_libcurl_fails_its_transfers_and_the_context_lives)
{
	need_reactors();
	break_while_reading(f, fail_socket_action);
}

HTTP_TEST(an_error_of_epoll_fails_its_transfers_and_the_context_lives)
{
	need_reactors();
	break_while_reading(f, fail_epoll_wait);
}

/* Errors that do not stop: each read fails, none hangs, and the end of it is the end of it. */
HTTP_TEST(errors_without_end_are_no_hang)
{
	sluice_file *file;
	double begun;
	char byte[100];
	int i;

	need_reactors();
	file = open_read(f->ctx, fault_uri("size=50000"));
	begun = cpu_seconds();
	fail_socket_action(100000000);
	for (i = 0; i < 3; i++)
		assert_int_equal(read_now(file, byte, 100, 0), -EIO);
	sleep_ms(200);
	/* Nor does it burn the processor while nothing is asked of it. */
	assert_true(cpu_seconds() - begun < (under_sanitizer() ? 2.5 : 0.5));
	fail_socket_action(0);
	assert_read(file, byte, 100, 0);
	assert_served(byte, 100, 0);
	assert_ok(sluice_close(file));
}
