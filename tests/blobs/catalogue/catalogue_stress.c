/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: store_catalogue_stress [--threads] [--plant none|look|late|scan] SECONDS
 *
 * Eight processes, or threads, as stress.h says. The process of the server is killed again and again, and another
 * one takes over; and now and then a reader's. With a planted error it succeeds when that has shown:
 *   look   a reader does not look again at the word after it wrote its reference
 *   late   the server knows the references as they were when it last scanned
 *   scan   the server does not scan
 * The steps are bent by --wrap, in this program only; there are pauses in them in any case.
 */
#include "catalogue/catalogue_stress.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct stress *stress;

void stress_fail(const char *format, ...)
{
	va_list arguments;

	if (!atomic_exchange(&stress->wrong, true)) {
		va_start(arguments, format);
		vsnprintf(stress->what, sizeof(stress->what), format, arguments);
		va_end(arguments);
	}
	atomic_store(&stress->stop, true);
}

uint64_t stress_random(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15ull;
	return pattern_mix(*state);
}

void stress_pause(void)
{
	static _Thread_local uint64_t state;
	uint64_t chance;

	if (!state)
		state = stress->seed + (uint64_t)(uintptr_t)&state + (uint64_t)getpid();
	chance = stress_random(&state);
	if (chance % 64 == 0)
		sched_yield();
	else if (chance % 8 == 0)
		for (volatile unsigned i = 0; i < chance % 1024; i++)
			;
}

/* --------------------------------------------------------------------------------- bent steps */

__typeof__(sl_references_claim) __real_sl_references_claim, __wrap_sl_references_claim;
__typeof__(sl_entry_still) __real_sl_entry_still, __wrap_sl_entry_still;
__typeof__(sl_references_window) __real_sl_references_window, __wrap_sl_references_window;
__typeof__(sl_references_at) __real_sl_references_at, __wrap_sl_references_at;

int __wrap_sl_references_claim(struct sl_references *references, uint64_t reference,
                               uint32_t *position)
{
	stress_pause();
	return __real_sl_references_claim(references, reference, position);
}

bool __wrap_sl_entry_still(const struct sl_entry *entry, uint64_t word)
{
	stress_pause();
	return stress->plant == NO_SECOND_LOOK || __real_sl_entry_still(entry, word);
}

uint32_t __wrap_sl_references_window(const struct sl_references *references)
{
	stress_pause();
	return stress->plant == NO_SCAN ? 0 : __real_sl_references_window(references);
}

uint64_t __wrap_sl_references_at(const struct sl_references *references, uint32_t position)
{
	static struct {
		const struct sl_references *references;
		uint64_t at[SL_REFERENCES_LEAST];
	} last[READERS];
	uint64_t now = __real_sl_references_at(references, position), before;
	unsigned i = 0;

	if (stress->plant != LATE_SCAN)
		return now;
	while (last[i].references && last[i].references != references)
		i++;
	last[i].references = references;
	before = last[i].at[position];
	last[i].at[position] = now;
	return before;
}

/* --------------------------------------------------------------------------------------- run */

static void make_all(void)
{
	int err = sl_segment_new(SLOTS, &stress->segment_fd);

	for (unsigned i = 0; i < READERS && !err; i++) {
		err = sl_references_new(SL_REFERENCES_LEAST, &stress->references_fds[i]);
		if (!err && stress->threads)
			err = sl_references_map(stress->references_fds[i], true,
			                        &stress->references[i]);
	}
	if (!err && stress->threads)
		err = sl_segment_map(stress->segment_fd, true, &stress->segment);
	if (err) {
		fprintf(stderr, "nothing can be made: %s\n", strerror(-err));
		exit(1);
	}
}

static void *thread_serve(void *argument)
{
	(void)argument;
	stress_serve();
	return NULL;
}

static void *thread_read(void *argument)
{
	stress_read((unsigned)(uintptr_t)argument);
	return NULL;
}

static void run_threads(double seconds)
{
	double end = seconds_now() + seconds;
	pthread_t server, readers[READERS];

	pthread_create(&server, NULL, thread_serve, NULL);
	for (uintptr_t i = 0; i < READERS; i++)
		pthread_create(&readers[i], NULL, thread_read, (void *)i);
	while (seconds_now() < end && !atomic_load(&stress->stop))
		sleep_ms(20);
	atomic_store(&stress->stop, true);
	pthread_join(server, NULL);
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(readers[i], NULL);
	for (unsigned i = 0; i < READERS; i++)
		sl_references_unmap(stress->references[i]);
	sl_segment_unmap(stress->segment);
}

static pid_t start(int reader)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (reader < 0)
		stress_serve();
	else
		stress_read((unsigned)reader);
	_exit(0);
}

static void end(pid_t pid)
{
	int status;

	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
		stress_fail("a process died of signal %d", WTERMSIG(status));
}

/* As if its references were gone with it, and another client had come with memory of its own. */
static void forget(unsigned reader)
{
	struct sl_references *references;

	if (sl_references_map(stress->references_fds[reader], true, &references)) {
		stress_fail("references cannot be mapped");
		return;
	}
	for (unsigned i = 0; i < references->count; i++)
		atomic_store(&references->page->at[i], 0);
	atomic_store(&references->page->window, 0);
	sl_references_unmap(references);
}

static void run_processes(double seconds)
{
	double finish = seconds_now() + seconds;
	uint64_t random = stress->seed;
	pid_t server = start(-1), readers[READERS];
	unsigned reader;

	for (int i = 0; i < READERS; i++)
		readers[i] = start(i);
	while (seconds_now() < finish && !atomic_load(&stress->stop)) {
		struct timespec pause = {0, (long)(stress_random(&random) % 20000000)};

		nanosleep(&pause, NULL);
		kill(server, SIGKILL);
		end(server);
		server = start(-1);
		reader = stress_random(&random) % READERS;
		if (stress_random(&random) % 4)
			continue;
		kill(readers[reader], SIGKILL);
		end(readers[reader]);
		forget(reader);
		readers[reader] = start((int)reader);
	}
	atomic_store(&stress->stop, true);
	end(server);
	for (int i = 0; i < READERS; i++)
		end(readers[i]);
}

static int usage(void)
{
	fprintf(stderr, "usage: store_catalogue_stress [--threads] [--plant none|look|late|scan] "
	                "SECONDS\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const char *const plants[] = {"none", "look", "late", "scan"};
	double seconds, begun = seconds_now();
	int at = 1;

	stress = mmap(NULL, sizeof(*stress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	if (stress == MAP_FAILED)
		return 1;
	if (at < argc && strcmp(argv[at], "--threads") == 0) {
		stress->threads = true;
		at++;
	}
	if (at + 1 < argc && strcmp(argv[at], "--plant") == 0) {
		while (stress->plant < NO_SCAN && strcmp(plants[stress->plant], argv[at + 1]) != 0)
			stress->plant++;
		at += 2;
	}
	if (at + 1 != argc || (seconds = strtod(argv[at], NULL)) <= 0)
		return usage();
	stress->seed = test_seed();
	make_all();
	if (stress->threads)
		run_threads(seconds);
	else
		run_processes(seconds);
	printf("%.1f s: %llu gets, %llu asked the server; %llu made, %llu gone, %llu moved, %llu "
	       "stayed; "
	       "%llu servers\n",
	       seconds_now() - begun, (unsigned long long)stress->gets,
	       (unsigned long long)stress->asked, (unsigned long long)stress->made,
	       (unsigned long long)stress->gone, (unsigned long long)stress->moved,
	       (unsigned long long)stress->stayed, (unsigned long long)stress->servers);
	if (stress->wrong)
		printf("wrong: %s\n", stress->what);
	else if (!stress->gets || !stress->gone || !stress->moved || !stress->stayed)
		return printf("not everything has happened\n"), 1;
	if (stress->plant != RIGHT && !stress->wrong)
		printf("the planted error \"%s\" was not found\n", plants[stress->plant]);
	return stress->wrong == (stress->plant != RIGHT) ? 0 : 1;
}
