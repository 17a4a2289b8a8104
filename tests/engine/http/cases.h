/* SPDX-License-Identifier: Apache-2.0 */
/* The http suite is one program: what servers do, and what remote files make of it. */
#ifndef TESTS_HTTP_H
#define TESTS_HTTP_H

#include "lib/servers.h"
#include "lib/support.h"

/* Four attempts a few milliseconds apart, no time-out that a loaded machine could meet, eight connections, no hedges. */
int http_setup(void **state);
int http_teardown(void **state);
#define HTTP_TEST(name) FIXTURE_TEST_WITH(name, http_setup, http_teardown)

enum { ATTEMPTS = 4, STALL_MS = 1000, CONNECT_MS = 1000, CONNECTIONS = 8 };
/* Larger than several pieces, and odd. */
#define LONG (6 * MIB + 777)

/* Replaces the fixture's context by one for which that variable has that value. */
void with(struct fixture *f, const char *variable, const char *value);

/* A request is given up after STALL_MS of silence. Loaded machines are silent for as long, too. */
void impatient(struct fixture *f);

/* Opens and reads the n bytes at offset, which must come, and be right; nothing beside them. */
void reads_right(struct fixture *f, const char *uri, size_t n, uint64_t offset);
/*
 * Opens, which must work, and reads the n bytes at offset, which must fail with -error and a
 * sentence that has `says` in it. From then on nothing may write to the buffer.
 */
void read_fails(struct fixture *f, const char *uri, size_t n, uint64_t offset, int error,
                const char *says);
/* The same of a second read, of all n bytes as the first, which must work. */
void read_again_fails(struct fixture *f, const char *uri, size_t n, int error, const char *says);
void open_fails(struct fixture *f, const char *uri, int error, const char *says);

/* Marks the buffer of an operation that is over, and looks for a moment that nothing changes. */
void stays_untouched(struct buffer *b);

/* Waits until the fault server counts at least n of that; fails the test after a while. */
void wait_until_asked(const char *uri, const char *what, long n);
/* Waits until the fault server is asked nothing more for that. */
void wait_until_left(const char *uri);

/* From now on standard error is that file, until errors_end() or the end of the test. */
void errors_begin(const char *path);
void errors_end(void);

/*
 * Not much time has passed since then, on a loaded machine either. A call that waits for an event that it must not wait
 * for takes 20 s at least.
 */
#define assert_soon(begun)                                 \
	do {                                               \
		double took_ = seconds_now() - (begun);    \
		if (took_ > 15)                            \
			fail_msg("it took %.3f s", took_); \
	} while (0)

/* A port of this machine where connecting neither succeeds nor fails. */
int silent_port(void);
/* A port where nobody listens. */
int closed_port(void);

/* The next n calls of that function of libcurl's, or epoll_wait(), from sluice fail. */
void fail_socket_action(unsigned n);
void fail_epoll_wait(unsigned n);
unsigned failures_left(void);

/* A name that is looked up for as long as that is to be, and not found. Returns when no thread looks for it any more, or
 * may begin to. */
#define SLOW_NAME "slow.invalid"
void slow_name_waits(bool waits);

/* TCP connections of this process; a descriptor that is closed meanwhile is none. */
long connections_now(void);

#endif
