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
#include <unistd.h>

#include "cli.h"

#define TICK_US   100000  /* see cli_interrupt_tick() */
#define CLEAN_US  2000000 /* from an interrupt to the end: servers have dropped uploads by then, */
#define SECOND_US 300000  /* and from a second one: local files are removed */

static atomic_int interrupted;
static atomic_uint held, commits, files;
static atomic_bool caught;
static atomic_bool leaving;
static atomic_bool waits; /* see cli_interrupt_wait() */
/* Of the clean-up. again: there was a second interrupt, which ends that of local files, too. */
static _Atomic int64_t deadline;
static atomic_bool again;

/* Ends the program by the caught signal. In a handler. */
static void interrupt_end(void)
{
	sigset_t set;

	signal(interrupted, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, interrupted);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	raise(interrupted);
}

static void remember_signal(int number)
{
	/* Each write to a pipe without a reader brings one. A third does not put off the end. */
	if (interrupted && (again || number == SIGPIPE))
		return;
	again = interrupted;
	deadline = sl_now() + (again ? SECOND_US : CLEAN_US) * INT64_C(1000);
	interrupted = number;
	if (waits && !held)
		interrupt_end();
	cli_interrupt_tick();
}

static void handle_tick(int signal)
{
	static const char left[] = "sluice: the end was not waited for; uploads that were left are "
				   "listed by 'sluice s3 abandoned'\n";

	(void)signal;
	if (!interrupted || sl_now() < deadline || (files && !again))
		return;
	if (held || leaving)
		(void)!write(STDERR_FILENO, left, sizeof(left) - 1);
	interrupt_end();
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

void cli_interrupt_file(bool begins)
{
	atomic_fetch_add(&files, begins ? 1 : -1u);
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
	static const struct itimerval interval = {{0, TICK_US}, {0, TICK_US}};

	handle_signal(SIGALRM, handle_tick);
	setitimer(ITIMER_REAL, &interval, NULL);
}

_Noreturn void cli_interrupt_obey(void)
{
	fflush(NULL);
	interrupt_end();
	_Exit(CLI_FAILED);
}

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
