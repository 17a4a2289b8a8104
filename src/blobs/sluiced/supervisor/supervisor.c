/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor: starts the server, receives its descriptors, starts it again after its death, and
 * upgrades the daemon.
 *
 * Each process of the daemon has functions here: the server starts a new supervisor with
 * sl_supervisor_replace(). The supervisor has a single thread, which waits in poll() for messages
 * of the server, for signals, and for the time at which a server that stops is killed.
 */
#include "sluiced/supervisor/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

/* The supervisor stops after this many servers in a row that died before they were ready. */
#define TRIES 10
/* The time that a server has to stop, and a program to print its layout. */
#define STOP_NS   INT64_C(5000000000)
#define ANSWER_NS INT64_C(5000000000)
/* The time that the server waits for the death of a supervisor that it has killed. */
#define DYING_MS 100

struct supervisor {
	struct sl_descriptors *descriptors;
	int signals;
	int64_t kill_at; /* SL_FOREVER: it was not told to stop */
};

/* The arguments of main(). */
static char **command_line;

int sl_stop_signals(void)
{
	struct sigaction interrupt;
	sigset_t stop;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	if (sigaction(SIGINT, NULL, &interrupt) || interrupt.sa_handler != SIG_IGN)
		sigaddset(&stop, SIGINT);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	return signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int supervisor_poll_ms(int64_t when)
{
	int64_t rest = when - sl_now();

	return when == SL_FOREVER ? -1 : rest <= 0 ? 0 : (int)(rest / 1000000) + 1;
}

/* ---------------------------------------------------------------------------- the other process */

/*
 * Starts the other process, which inherits our descriptors and an end of a new pair of sockets. The
 * child calls only functions that need no lock, because other threads of the parent do not run in
 * it.
 */
static int process_start_other(struct sl_descriptors *descriptors, enum sl_begin begin)
{
	struct sl_descriptors its = *descriptors;
	int pair[2], error;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return sl_fail(-errno, "cannot make a pair of sockets: %s", sl_error_text(-errno));
	its.peer = pair[1];
	its.other = getpid();
	its.other_fd = (int)syscall(SYS_pidfd_open, its.other, 0);
	sl_descriptors_copy(descriptors, begin);
	child = fork();
	if (!child) {
		prctl(PR_SET_NAME, "sluiced-begins");
		sl_descriptors_exec(&its, begin, "/proc/self/exe", command_line);
		_exit(127);
	}
	error = child < 0 ? -errno : 0;
	close(pair[1]);
	if (its.other_fd >= 0)
		close(its.other_fd);
	if (error) {
		close(pair[0]);
		return sl_fail(error, "cannot make a process: %s", sl_error_text(error));
	}
	descriptors->peer = pair[0];
	descriptors->other = child;
	descriptors->other_fd = (int)syscall(SYS_pidfd_open, child, 0);
	return 0;
}

/*
 * Takes the last messages of a dead process. Returns true if its status is known: it may be a child
 * of another process.
 */
static bool process_bury(struct sl_descriptors *descriptors, int *status)
{
	bool known;

	while (sl_descriptors_take(descriptors))
		poll(&(struct pollfd){.fd = descriptors->peer, .events = POLLIN}, 1, -1);
	close(descriptors->peer);
	descriptors->peer = -1;
	known = waitpid(descriptors->other, status, 0) == descriptors->other;
	if (descriptors->other_fd >= 0)
		close(descriptors->other_fd);
	descriptors->other_fd = -1;
	return known;
}

int sl_supervisor_replace(struct sl_descriptors *descriptors)
{
	int rc;

	/* The old supervisor may live, and has to release the lock. */
	sl_descriptors_signal(descriptors, SIGKILL);
	if (descriptors->peer >= 0)
		close(descriptors->peer);
	/* It writes into its column until it is dead, unless it hangs in the kernel. */
	if (descriptors->other_fd >= 0) {
		poll(&(struct pollfd){.fd = descriptors->other_fd, .events = POLLIN}, 1, DYING_MS);
		close(descriptors->other_fd);
	}
	descriptors->peer = descriptors->other_fd = -1;
	/* Reaps earlier supervisors that were children of this process. */
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	descriptors->other = 0;
	rc = process_start_other(descriptors, SL_BEGIN_SUPERVISOR);
	descriptors->patient_until = sl_now() + 10 * INT64_C(1000000000);
	if (rc)
		sl_report(LOG_ERR, "there is no supervisor: %s", sluice_last_message());
	else
		sl_report(LOG_WARNING, "the supervisor has died, and process %d takes its place",
		          (int)descriptors->other);
	return rc;
}

/* ------------------------------------------------------------------------------------- upgrade */

/* Executes the program in a child. Failures are written to where its answer is read. */
_Noreturn static void upgrade_say_layout(int program, int answer)
{
	char path[40];
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	/* An interpreter opens a script by this descriptor. */
	fcntl(program, F_SETFD, 0);
	dup2(answer, STDOUT_FILENO);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", program);
	execl(path, path, "--layout", NULL);
	dprintf(STDOUT_FILENO, "%s", strerror(errno));
	_exit(127);
}

/* Reads the program's answer to its end or time, and takes the server's descriptors meanwhile. */
static void upgrade_read_layout(struct sl_descriptors *descriptors, int answer, char *text,
                                size_t size)
{
	int64_t until = sl_now() + ANSWER_NS;
	size_t length = 0;
	ssize_t n = -1;

	while (n && length + 1 < size && sl_now() < until && sl_descriptors_take(descriptors)) {
		struct pollfd fds[] = {{.fd = descriptors->peer, .events = POLLIN},
		                       {.fd = answer, .events = POLLIN}};

		poll(fds, 2, supervisor_poll_ms(until));
		n = read(answer, text + length, size - 1 - length);
		length += n > 0 ? (size_t)n : 0;
	}
	text[length] = '\0';
}

/* Checks that the opened program can take over. Returns 0 or an error with a sentence. */
static int upgrade_check_layout(struct sl_descriptors *descriptors, const char *path, int program)
{
	unsigned long layout;
	char text[32], *end;
	int fds[2];
	pid_t child;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return sl_fail(-errno, "cannot make a pipe: %s", sl_error_text(-errno));
	child = fork();
	if (!child)
		upgrade_say_layout(program, fds[1]);
	close(fds[1]);
	upgrade_read_layout(descriptors, fds[0], text, sizeof(text));
	close(fds[0]);
	if (child < 0)
		return sl_fail(-EAGAIN, "cannot make a process");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	layout = strtoul(text, &end, 10);
	if (end == text || strcmp(end, "\n") != 0)
		return sl_fail(-ENOEXEC,
		               "'%s --layout' says '%s' and no number: it cannot take over", path,
		               text);
	if (layout != SL_LAYOUT)
		return sl_fail(-ENOTSUP,
		               "'%s' has layout %lu and the daemon that runs has %d: it has to be "
		               "stopped, with all blobs, before that one can begin",
		               path, layout, SL_LAYOUT);
	return 0;
}

/* Executes the program of the settings, which ends the server; or returns, and tells it why. */
static void supervisor_upgrade(const struct supervisor *s)
{
	const char *path = s->descriptors->ledger->settings.program;
	int program = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
	struct sl_no_upgrade no = {0};
	char name[40];

	s->descriptors->upgrade = false;
	if (program < 0 || access(path, X_OK))
		rc = sl_fail(-errno, "cannot run '%s': %s", path, sl_error_text(-errno));
	if (!rc)
		rc = upgrade_check_layout(s->descriptors, path, program);
	if (!rc && s->descriptors->over)
		rc = sl_fail(-EAGAIN, "the daemon stops");
	if (!rc) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", program);
		sl_descriptors_exec(s->descriptors, SL_BEGIN_UPGRADE, name, command_line);
		rc = sl_fail(-EIO, "cannot run '%s': %s", path, sl_error_text(-errno));
	}
	if (program >= 0)
		close(program);
	no.error = rc;
	snprintf(no.text, sizeof(no.text), "%s", sluice_last_message());
	sl_report(LOG_WARNING, "no upgrade: %s", no.text);
	send(s->descriptors->peer, &no, sizeof(no), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ------------------------------------------------------------------------------- the supervisor */

static void supervisor_stop_asked(struct supervisor *s)
{
	struct signalfd_siginfo signal;

	if (read(s->signals, &signal, sizeof(signal)) != sizeof(signal))
		return;
	sl_report(LOG_INFO, "stops, because of signal %u of process %u", signal.ssi_signo,
	          signal.ssi_pid);
	s->kill_at = sl_now() + STOP_NS;
	sl_descriptors_signal(s->descriptors, SIGTERM);
}

/* Serves a server until its end of the socket is closed. */
static void supervisor_serve(struct supervisor *s)
{
	struct sl_descriptors *descriptors = s->descriptors;

	for (;;) {
		struct pollfd fds[] = {{.fd = descriptors->peer, .events = POLLIN},
		                       {.fd = s->signals, .events = POLLIN}};

		poll(fds, 2, supervisor_poll_ms(s->kill_at));
		if (!sl_descriptors_take(descriptors))
			return;
		if (fds[1].revents)
			supervisor_stop_asked(s);
		/* Not after a request to stop, of which the new program would not know. */
		if (descriptors->upgrade && s->kill_at == SL_FOREVER)
			supervisor_upgrade(s);
		/* The server is stopped, or hangs. */
		if (sl_now() >= s->kill_at)
			sl_descriptors_signal(descriptors, SIGKILL);
	}
}

/*
 * Looks after a server until it is dead: the current server, or a new server. Returns 0, or an
 * error if none could be started.
 */
static int supervisor_keep_one(struct supervisor *s)
{
	struct sl_descriptors *descriptors = s->descriptors;
	int status, signal = 0, rc;
	pid_t server;

	if (descriptors->peer < 0) {
		descriptors->ready = false;
		rc = process_start_other(descriptors, SL_BEGIN_SERVER);
		if (rc)
			return rc;
		sl_report(LOG_INFO, "process %d is the server", (int)descriptors->other);
	}
	server = descriptors->other;
	supervisor_serve(s);
	/* A server that has closed its end of the socket is to be gone. */
	sl_descriptors_signal(descriptors, SIGKILL);
	if (process_bury(descriptors, &status) && WIFSIGNALED(status))
		signal = WTERMSIG(status);
	if (!descriptors->over && !descriptors->replaced && s->kill_at == SL_FOREVER)
		sl_report(LOG_WARNING, "the server (process %d) has died%s%s", (int)server,
		          signal ? " by a signal: " : "", signal ? strsignal(signal) : "");
	descriptors->replaced = false;
	return 0;
}

static int supervisor_keep(struct supervisor *s)
{
	unsigned in_vain = 0;
	int rc;

	do {
		rc = supervisor_keep_one(s);
		in_vain = !rc && s->descriptors->ready ? 0 : in_vain + 1;
		if (in_vain)
			usleep(1000 << in_vain);
	} while (!s->descriptors->over && s->kill_at == SL_FOREVER && in_vain < TRIES);
	if (in_vain == TRIES && !rc)
		rc = sl_fail(-EIO, "%d servers in a row have died before they had begun", TRIES);
	return rc;
}

/* Runs this process as the supervisor. Returns its exit status. */
static int supervisor_main(struct sl_descriptors *descriptors)
{
	struct supervisor s = {.descriptors = descriptors, .kill_at = SL_FOREVER};
	int lock = descriptors->ledger->lock;
	int rc = 0;

	prctl(PR_SET_NAME, "sluiced");
	signal(SIGHUP, SIG_IGN);
	s.signals = sl_stop_signals();
	if (s.signals < 0)
		rc = sl_fail(-errno, "cannot wait for signals: %s", sl_error_text(-errno));
	if (lock >= 0 && !ftruncate(lock, 0)) {
		char text[16];
		int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

		(void)!pwrite(lock, text, (size_t)n, 0);
	}
	if (!rc)
		rc = supervisor_keep(&s);
	if (rc)
		sl_report(LOG_ERR, "%s", sluice_last_message());
	else
		sl_report(LOG_INFO, "has stopped, and all blobs are gone");
	sl_listen_notify("STOPPING=1");
	unlink(descriptors->ledger->settings.path);
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

int sl_supervisor_run(struct sl_descriptors *descriptors, char **arguments)
{
	const struct sl_server_settings *settings = &descriptors->ledger->settings;
	char more[PATH_MAX + 20] = "";

	command_line = arguments;
	if (settings->spill[0])
		snprintf(more, sizeof(more), ", spills to %s", settings->spill);
	sl_report(LOG_INFO, "%s begins at %s: process %d, %llu MiB, %u blobs, %u connections%s",
	          SLUICE_VERSION, settings->path[0] ? settings->path : "the socket of its unit",
	          (int)getpid(), (unsigned long long)settings->memory_bytes >> 20, settings->blobs,
	          settings->clients, more);
	return supervisor_main(descriptors);
}

int sl_supervisor_resume(char **arguments, int (*serve)(struct sl_descriptors *))
{
	static struct sl_descriptors descriptors;
	enum sl_begin begin = SL_BEGIN_SERVER;
	int rc = sl_descriptors_open(&descriptors, &begin);

	command_line = arguments;
	if (!rc && begin == SL_BEGIN_SERVER)
		rc = serve(&descriptors);
	if (rc)
		sl_report(LOG_ERR, "%s", sluice_last_message());
	if (rc || begin == SL_BEGIN_SERVER)
		return rc ? EXIT_FAILURE : EXIT_SUCCESS;
	descriptors.ready = true;
	if (begin == SL_BEGIN_UPGRADE) {
		sl_report(LOG_NOTICE, "upgrades to %s", SLUICE_VERSION);
		atomic_fetch_add(&descriptors.ledger->upgrades, 1);
		descriptors.replaced = true;
		sl_descriptors_signal(&descriptors, SIGKILL);
	}
	return supervisor_main(&descriptors);
}
