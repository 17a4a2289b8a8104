/* SPDX-License-Identifier: Apache-2.0 */
#include "http/cases.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MARK = 0x3c, WATCHED_MS = 60 };

static const struct {
	const char *variable, *value;
} quick[] = {
	{"SLUICE_HTTP_ATTEMPTS", "4"},     {"SLUICE_HTTP_RETRY_MS", "20000"},
	{"SLUICE_HTTP_BACKOFF_MS", "5"},   {"SLUICE_HTTP_BACKOFF_MAX_MS", "20"},
	{"SLUICE_HTTP_STALL_MS", "20000"}, {"SLUICE_HTTP_CONNECT_MS", "20000"},
	{"SLUICE_HTTP_HEDGE", "0"},        {"SLUICE_MAX_CONNECTIONS", "8"},
};
/* What with() has set besides. */
static const char *also_set[24];
static size_t also_count;

static struct watched {
	struct buffer buffer; /* its data is NULL: there is none */
	double until;
} watched[8];
static unsigned watched_count;

static int errors = -1; /* what standard error was */
static int silent[64];
static size_t silent_count;

static void assert_marked(const struct buffer *b)
{
	for (size_t i = 0; i < b->length; i++)
		if (b->data[i] != MARK)
			fail_msg("byte %zu was written after the operation had ended", i);
}

static void watch_end(struct watched *w)
{
	struct buffer b = w->buffer;

	if (!b.data)
		return;
	while (seconds_now() < w->until)
		sleep_ms(1);
	w->buffer.data = NULL;
	assert_marked(&b);
	buffer_free(&b);
}

int http_setup(void **state)
{
	for (size_t i = 0; i < COUNT_OF(quick); i++)
		setenv(quick[i].variable, quick[i].value, 1);
	setenv("SLUICE_CA_BUNDLE", server_ca(), 1);
	return fixture_setup(state);
}

int http_teardown(void **state)
{
	for (size_t i = 0; i < COUNT_OF(watched); i++)
		watch_end(&watched[i]);
	fail_socket_action(0);
	fail_epoll_wait(0);
	while (also_count)
		unsetenv(also_set[--also_count]);
	while (silent_count)
		close(silent[--silent_count]);
	errors_end();
	return fixture_teardown(state);
}

void with(struct fixture *f, const char *variable, const char *value)
{
	assert_true(also_count < COUNT_OF(also_set));
	also_set[also_count++] = variable;
	setenv(variable, value, 1);
	fixture_config(f, &row->config);
}

void impatient(struct fixture *f)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", STALL_MS);
	with(f, "SLUICE_HTTP_STALL_MS", text);
}

void reads_right(struct fixture *f, const char *uri, size_t n, uint64_t offset)
{
	struct buffer b = buffer_new(n, 16);
	sluice_file *file = open_read(f->ctx, uri);

	assert_moves(start_read(file, b.data, n, offset), n);
	assert_served(b.data, n, offset);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

void stays_untouched(struct buffer *b)
{
	memset(b->data, MARK, b->length);
	sleep_ms(WATCHED_MS);
	assert_marked(b);
}

/* Marks the buffer of an operation that is over, which is looked at and freed once others are, or with the test. */
static void watch(struct buffer b)
{
	struct watched *w = &watched[watched_count++ % COUNT_OF(watched)];

	watch_end(w);
	memset(b.data, MARK, b.length);
	*w = (struct watched){b, seconds_now() + WATCHED_MS / 1000.0};
}

static void fails(struct fixture *f, const char *uri, size_t n, uint64_t offset, bool again,
                  int error, const char *says)
{
	struct buffer b = buffer_new(n, 0);
	sluice_file *file = open_read(f->ctx, uri);
	sluice_op *op;
	int64_t got;

	if (again)
		assert_read(file, b.data, n, offset);
	op = start_read(file, b.data, n, offset);
	got = sluice_wait(op, PATIENCE_MS);
	if (got != -error)
		fail_msg("%s gave %lld (%s), not -%d (%s); \"%s\"", uri, (long long)got,
		         got < 0 ? strerror((int)-got) : "bytes", error, strerror(error),
		         sluice_op_message(op));
	if (!strstr(sluice_op_message(op), says))
		fail_msg("%s: \"%s\" does not mention \"%s\"", uri, sluice_op_message(op), says);
	watch(b);
	sluice_op_free(op);
	assert_ok(sluice_close(file));
}

void read_fails(struct fixture *f, const char *uri, size_t n, uint64_t offset, int error,
                const char *says)
{
	fails(f, uri, n, offset, false, error, says);
}

void read_again_fails(struct fixture *f, const char *uri, size_t n, int error, const char *says)
{
	fails(f, uri, n, 0, true, error, says);
}

void open_fails(struct fixture *f, const char *uri, int error, const char *says)
{
	sluice_file *file = NULL;
	int rc = sluice_open(f->ctx, uri, NULL, &file);

	if (rc != -error)
		fail_msg("opening %s gave %d (%s), not -%d (%s); \"%s\"", uri, rc,
		         rc < 0 ? strerror(-rc) : "", error, strerror(error),
		         rc < 0 ? sluice_last_message() : "");
	if (!strstr(sluice_last_message(), says))
		fail_msg("%s: \"%s\" does not mention \"%s\"", uri, sluice_last_message(), says);
	assert_null(file);
}

void wait_until_asked(const char *uri, const char *what, long n)
{
	double until = seconds_now() + 20;

	while (asked(uri, what) < n)
		if (seconds_now() > until)
			fail_msg("%s was asked for %ld %s, not %ld", uri, asked(uri, what), what,
			         n);
		else
			sleep_ms(2);
}

void wait_until_left(const char *uri)
{
	double until = seconds_now() + 20;

	while (asked(uri, "now") > 0)
		if (seconds_now() > until)
			fail_msg("%ld requests for %s are still there", asked(uri, "now"), uri);
		else
			sleep_ms(2);
}

void errors_begin(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	fflush(stderr);
	errors = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	dup2(fd, STDERR_FILENO);
	close(fd);
}

void errors_end(void)
{
	if (errors < 0)
		return;
	fflush(stderr);
	dup2(errors, STDERR_FILENO);
	close(errors);
	errors = -1;
}

static int bound_socket(int *port)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	socklen_t n = sizeof(to);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&to, &n), 0);
	*port = ntohs(to.sin_port);
	return fd;
}

/* Its queue is full, so that the kernel drops what else wants to connect. */
int silent_port(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	int port, fd = bound_socket(&port);

	assert_int_equal(listen(fd, 0), 0);
	silent[silent_count++] = fd;
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)port);
	for (int i = 0; i < 4; i++) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		silent[silent_count++] = fd;
		if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 && errno != EINPROGRESS)
			fail_msg("connect: %s", strerror(errno));
	}
	return port;
}

int closed_port(void)
{
	int port, fd = bound_socket(&port);

	silent[silent_count++] = fd;
	return port;
}

long connections_now(void)
{
	long n = 0;

	for (int fd = 0; fd < 256; fd++) {
		struct sockaddr_storage a = {0};
		socklen_t length = sizeof(a);

		n += getpeername(fd, (struct sockaddr *)&a, &length) == 0 && a.ss_family == AF_INET;
	}
	return n;
}
