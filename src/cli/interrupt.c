/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interrupts
 *
 * Catches the signals that ask the program to end, so that it can clean up first.
 *
 * Threads: handlers run on any thread; hold() and unhold() are called by any thread.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/time.h>

#include "cli.h"

static atomic_int interrupted;
static atomic_uint held, commits;
static atomic_bool caught;
static atomic_bool waits; /* see cli_interrupt_wait() */

static void remember_signal(int number)
{
	interrupted = number;
	if (waits && !held) {
		signal(number, SIG_DFL);
		raise(number);
	}
}

static void handle_tick(int signal)
{
	(void)signal;
}

/* Without SA_RESTART, so that a blocking read() or write() returns. */
static void handle_signal(int signal, void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler};

	sigemptyset(&action.sa_mask);
	sigaction(signal, &action, NULL);
}

static void handle_signals(void (*handler)(int))
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		struct sigaction before;

		/* nohup, and shells for background jobs, ignore some signals on purpose. */
		if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN)
			continue;
		handle_signal(signals[i], handler);
	}
}

void cli_interrupt_catch(void)
{
	if (!atomic_exchange(&caught, true))
		handle_signals(remember_signal);
}

void cli_interrupt_release(void)
{
	handle_signals(SIG_DFL);
	caught = false;
}

int cli_interrupted(void)
{
	return interrupted;
}

bool cli_interrupt_hold(void)
{
	atomic_fetch_add(&held, 1);
	return !interrupted;
}

void cli_interrupt_unhold(void)
{
	if (atomic_fetch_sub(&held, 1) == 1 && waits && interrupted)
		cli_interrupt_obey();
}

void cli_interrupt_wait(bool begins)
{
	waits = begins;
	if (begins && interrupted && !held)
		cli_interrupt_obey();
}

void cli_interrupt_commit(bool begins)
{
	atomic_fetch_add(&commits, begins ? 1 : -1u);
}

bool cli_interrupt_commits(void)
{
	return commits;
}

bool cli_interrupt_held(void)
{
	return held;
}

void cli_interrupt_tick(void)
{
	static const struct itimerval interval = {{0, 100000}, {0, 100000}};

	handle_signal(SIGALRM, handle_tick);
	setitimer(ITIMER_REAL, &interval, NULL);
}

_Noreturn void cli_interrupt_obey(void)
{
	sigset_t set;

	fflush(NULL);
	signal(interrupted, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, interrupted);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(interrupted);
	_Exit(CLI_FAILED);
}

static atomic_bool leaving;

_Noreturn void cli_interrupt_leave(void)
{
	/* exit() is called once. */
	if (!atomic_exchange(&leaving, true))
		exit(CLI_FAILED);
	for (;;)
		pause();
}

bool cli_interrupt_leaves(void)
{
	return leaving;
}
