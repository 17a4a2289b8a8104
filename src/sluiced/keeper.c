/* SPDX-License-Identifier: Apache-2.0 */
#include "sluiced/keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* After so many servers in a row that have not got anywhere there is no use in another one. */
#define TRIES 10

static void stop_signals(sigset_t *out)
{
	sigemptyset(out);
	sigaddset(out, SIGTERM);
	sigaddset(out, SIGINT);
	sigaddset(out, SIGHUP);
}

static void send_signal(int pidfd, int number)
{
	syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0);
}

_Noreturn static void be_server(struct sl_vault *vault, const struct sl_server_settings *settings)
{
	int rc = sl_server_run(vault, settings);

	if (rc)
		fprintf(stderr, "sluiced: %s\n", sluice_last_message());
	exit(rc ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* Forks a server, with the other end of a new pair of sockets. */
static int start_server(struct sl_vault *vault, const struct sl_server_settings *settings)
{
	pid_t keeper = getpid(), child;
	int pair[2], rc = sl_vault_pair(pair);

	if (rc)
		return rc;
	child = fork();
	if (child < 0) {
		rc = sl_fail(-errno, "cannot make a server: %s", sl_error_text(-errno));
		close(pair[0]);
		close(pair[1]);
		return rc;
	}
	if (!child) {
		vault->peer = pair[1];
		vault->other = keeper;
		vault->other_fd = -1;
		sl_vault_only(vault);
		be_server(vault, settings);
	}
	close(pair[1]);
	vault->peer = pair[0];
	vault->other = child;
	vault->other_fd = (int)syscall(SYS_pidfd_open, child, 0);
	return 0;
}

/* What the server has sent until it died. */
static void bury(struct sl_vault *vault)
{
	while (sl_vault_take(vault))
		poll(&(struct pollfd){.fd = vault->peer, .events = POLLIN}, 1, -1);
	close(vault->peer);
	vault->peer = -1;
	/* Somebody else's child, if we came later than it. */
	waitpid(vault->other, NULL, 0);
	if (vault->other_fd >= 0)
		close(vault->other_fd);
	vault->other_fd = -1;
}

/* Until the server's end of the socket is closed. True: we were told to stop. */
static bool serve(struct sl_vault *vault, int signals)
{
	struct pollfd fds[] = {{.fd = vault->peer, .events = POLLIN},
	                       {.fd = signals, .events = POLLIN}};
	struct signalfd_siginfo signal;
	bool stopped = false;

	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return stopped;
		if (fds[0].revents && !sl_vault_take(vault))
			return stopped;
		if (!fds[1].revents || read(signals, &signal, sizeof(signal)) != sizeof(signal))
			continue;
		stopped = true;
		send_signal(vault->other_fd, SIGTERM);
	}
}

static int keep(struct sl_vault *vault, const struct sl_server_settings *settings, bool first)
{
	unsigned in_vain = 0;
	sigset_t stop;
	int signals, rc = 0;
	bool over = false;

	stop_signals(&stop);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	signals = signalfd(-1, &stop, SFD_CLOEXEC);
	if (signals < 0)
		return sl_fail(-errno, "cannot wait for signals: %s", sl_error_text(-errno));
	while (!over && !rc) {
		vault->ready = !first;
		if (first)
			rc = start_server(vault, settings);
		first = true;
		if (rc)
			break;
		over = serve(vault, signals);
		bury(vault);
		over = over || vault->over;
		in_vain = vault->ready ? 0 : in_vain + 1;
		if (in_vain == TRIES)
			rc = sl_fail(-EIO, "%d servers in a row have died before they had begun",
			             TRIES);
		else if (in_vain)
			usleep(1000 << in_vain);
	}
	close(signals);
	return rc;
}

int sl_keeper_run(struct sl_vault *vault, const struct sl_server_settings *settings)
{
	prctl(PR_SET_NAME, "sluiced-keeper");
	return keep(vault, settings, true);
}

/* The new keeper: no child of the server, so that it does not go with it. */
_Noreturn static void be_keeper(struct sl_vault *vault, const struct sl_server_settings *settings)
{
	int rc;

	prctl(PR_SET_NAME, "sluiced-keeper");
	sl_vault_only(vault);
	rc = keep(vault, settings, false);
	if (!rc)
		unlink(settings->path);
	_exit(rc ? EXIT_FAILURE : EXIT_SUCCESS);
}

int sl_keeper_replace(struct sl_vault *vault, const struct sl_server_settings *settings)
{
	pid_t server = getpid(), child;
	int pair[2], rc;

	close(vault->peer);
	vault->peer = -1;
	rc = sl_vault_pair(pair);
	if (rc)
		return rc;
	child = fork();
	if (!child) {
		vault->peer = pair[0];
		vault->other = server;
		vault->other_fd = (int)syscall(SYS_pidfd_open, server, 0);
		/* Its parent is gone at once, so that nobody has to wait for it. */
		if (vault->other_fd >= 0 && !fork())
			be_keeper(vault, settings);
		_exit(0);
	}
	close(pair[0]);
	if (child < 0) {
		close(pair[1]);
		return sl_fail(-errno, "cannot make a keeper: %s", sl_error_text(-errno));
	}
	waitpid(child, NULL, 0);
	vault->peer = pair[1];
	return 0;
}
