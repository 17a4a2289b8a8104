/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's two processes: the supervisor that hangs, signals, upgrades, the end; clients of another PID namespace. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/protocol_client.h"

#define WRITERS 2
#define BLOBS   150

/* ----------------------------------------------------------------------------------- programs */

static const char *real;  /* the daemon that is tested */
static char program[100]; /* where one begins: a copy, or a script */
static char next_program[110];

static void write_program(const char *text)
{
	FILE *file = fopen(next_program, "w");

	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(next_program, 0755), 0);
	assert_int_equal(rename(next_program, program), 0);
}

/* Another file each time, as an installation makes it. */
static void copy_program(void)
{
	char command[600];

	snprintf(command, sizeof(command), "cp '%s' '%s' && chmod 755 '%s' && mv '%s' '%s'", real,
	         next_program, next_program, next_program, program);
	assert_int_equal(system(command), 0);
}

static long layout(void)
{
	char command[300], text[32] = "";
	FILE *in;

	snprintf(command, sizeof(command), "'%s' --layout", real);
	in = popen(command, "r");
	assert_non_null(in);
	assert_non_null(fgets(text, sizeof(text), in));
	assert_int_equal(pclose(in), 0);
	return atol(text);
}

static ino_t file_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_ino;
}

static ino_t program_of(uint64_t pid)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return file_of(path);
}

static int begin(void **state)
{
	setenv("SLUICED", program, 1);
	return daemon_setup(state);
}

static int begin_copy(void **state)
{
	copy_program();
	return begin(state);
}

static int begin_real(void **state)
{
	setenv("SLUICED", real, 1);
	return daemon_setup(state);
}

/* One whose first process is no child of ours any more, or not the daemon's. */
static void stop(struct daemon *d)
{
	char lock[120];

	assert_ok(sluice_store_stop(d->store));
	assert_ok(sluice_store_close(d->store));
	assert_int_equal(access(d->path, F_OK), -1);
	snprintf(lock, sizeof(lock), "%s.lock", d->path);
	unlink(lock);
	unlink(program);
	free(d);
}

/* ------------------------------------------------------------------------------------- load */

static struct {
	_Atomic unsigned sealed[WRITERS], verified, wrong, over;
} * shared;

static size_t size_of(unsigned i)
{
	return 1 + i * 977 % 200000;
}

static int write_all(const struct daemon *d, const char *number)
{
	sluice_store *store = daemon_connect(d);
	int w = atoi(number);

	for (unsigned i = 0; i < BLOBS || !atomic_load(&shared->over); i++) {
		sluice_blob *blob;
		char name[40];
		int rc;

		snprintf(name, sizeof(name), "%d/%u", w, i);
		do
			rc = try_put(store, name, size_of(i), 0, &blob);
		while (rc == -ECONNRESET);
		if (rc) {
			print_message("%s: %s\n", name, sluice_last_message());
			return 1;
		}
		sluice_blob_release(blob);
		if (i >= BLOBS) {
			sluice_blob_delete(store, name);
			continue;
		}
		atomic_store(&shared->sealed[w], i + 1);
	}
	return sluice_store_close(store) ? 1 : 0;
}

static bool is_there(sluice_store *store, int w, unsigned i)
{
	sluice_blob *blob;
	char name[40];
	bool is;

	snprintf(name, sizeof(name), "%d/%u", w, i);
	if (sluice_blob_get(store, name, 0, &blob)) {
		print_message("%s: %s\n", name, sluice_last_message());
		return false;
	}
	is = blob_is(blob, name, size_of(i));
	sluice_blob_release(blob);
	return is;
}

static int read_all(const struct daemon *d, const char *number)
{
	sluice_store *store = daemon_connect(d);
	unsigned random = (unsigned)atoi(number);

	while (!atomic_load(&shared->over)) {
		int w = (int)(random % WRITERS);
		unsigned sealed = atomic_load(&shared->sealed[w]);

		random = random * 1103515245 + 12345;
		if (!sealed)
			sleep_ms(1);
		else if (is_there(store, w, random / 65536 % sealed))
			atomic_fetch_add(&shared->verified, 1);
		else
			atomic_fetch_add(&shared->wrong, 1);
	}
	return sluice_store_close(store) ? 1 : 0;
}

/* ---------------------------------------------------------------------------------- upgrades */

static void refuse_upgrade(struct daemon *d, int error, const char *says)
{
	pid_t server = daemon_server(d, 0);

	assert_refused(sluice_store_upgrade(d->store), error, says);
	assert_int_equal(stats_of(d->store).server, server);
}

DAEMON_TEST_WITH(a_daemon_goes_on_as_another_program_under_load, begin_copy, NULL)
{
	char text[200], number[24];
	uint64_t supervisor = stats_of(d->store).supervisor;
	pid_t children[2 * WRITERS];
	ino_t file;

	for (int w = 0; w < WRITERS; w++) {
		snprintf(number, sizeof(number), "%d", w);
		children[w] = child_start("write", d, number);
		children[WRITERS + w] = child_start("read", d, number);
	}
	for (unsigned i = 0; i < 4; i++) {
		unsigned verified = atomic_load(&shared->verified);

		copy_program();
		assert_ok(sluice_store_upgrade(d->store));
		assert_int_equal(stats_of(d->store).upgrades, i + 1);
		assert_int_equal(stats_of(d->store).supervisor, supervisor);
		assert_int_equal(program_of(supervisor), file_of(program));
		assert_int_equal(program_of(stats_of(d->store).server), file_of(program));
		while (atomic_load(&shared->verified) < verified + 20)
			sleep_ms(1);
	}
	file = file_of(program);
	snprintf(number, sizeof(number), "%ld", layout());
	write_program("#!/bin/sh\necho 7\n");
	refuse_upgrade(d, ENOTSUP, " 7 ");
	refuse_upgrade(d, ENOTSUP, number);
	write_program("#!/bin/sh\nexit 0\n");
	refuse_upgrade(d, ENOEXEC, "--layout");
	write_program("no program\n");
	refuse_upgrade(d, ENOEXEC, "--layout");
	assert_int_equal(chmod(program, 0600), 0);
	if (geteuid())
		refuse_upgrade(d, EACCES, program);
	unlink(program);
	refuse_upgrade(d, ENOENT, program);
	/* A server that dies comes from the program that ran. */
	daemon_replace_server(d);
	assert_int_equal(program_of(stats_of(d->store).server), file);
	/* One that ends at once takes nothing along, either. */
	snprintf(text, sizeof(text), "#!/bin/sh\n[ \"$1\" != --layout ] || echo %s\n", number);
	write_program(text);
	refuse_upgrade(d, EAGAIN, "supervisor");
	child_status(d->supervisor);
	daemon_replace_server(d);
	while (atomic_load(&shared->sealed[0]) < BLOBS || atomic_load(&shared->sealed[1]) < BLOBS)
		sleep_ms(1);
	atomic_store(&shared->over, 1);
	for (int i = 0; i < 2 * WRITERS; i++)
		assert_int_equal(child_status(children[i]), 0);
	assert_int_equal(atomic_load(&shared->wrong), 0);
	for (int w = 0; w < WRITERS; w++)
		for (unsigned i = 0; i < BLOBS; i++)
			assert_true(is_there(d->store, w, i));
	print_message("%u gets verified\n", atomic_load(&shared->verified));
	stop(d);
}

DAEMON_TEST_WITH(unsealed_blob_fails_after_an_upgrade, begin_copy, NULL)
{
	sluice_blob *held = put(d->store, "held", 100000, 0), *blob;

	assert_ok(sluice_blob_create(d->store, "x", 100000, place(), NULL, &blob));
	assert_ok(sluice_store_upgrade(d->store));
	assert_refused(sluice_blob_seal(blob), ECONNRESET, "server");
	assert_ok(sluice_blob_release(blob));
	assert_blob(held, "held", 100000);
	assert_ok(sluice_blob_delete(d->store, "held"));
	assert_blob(held, "held", 100000);
	assert_int_equal(stats_of(d->store).dying, 1);
	assert_ok(sluice_blob_release(held));
	assert_idle(d->store);
	stop(d);
}

/* ------------------------------------------------------------------------------- the processes */

DAEMON_TEST_WITH(a_stopped_supervisor_is_replaced, begin_real, NULL)
{
	pid_t before = d->supervisor, server = daemon_server(d, 0);
	unsigned count = 0;

	kill(before, SIGSTOP);
	/* It is noticed when no more fits into the socket to it. */
	for (; waitpid(before, NULL, WNOHANG) == 0; count++) {
		assert_true(count < 5000);
		assert_ok(sluice_blob_release(put(d->store, named("%u", count), 70000, 0)));
	}
	assert_true(daemon_supervisor(d, before) != before);
	assert_int_equal(daemon_server(d, 0), server);
	daemon_replace_server(d);
	for (unsigned i = 0; i < count; i++)
		assert_there(d->store, named("%u", i), 70000);
	stop(d);
}

DAEMON_TEST_WITH(a_supervisor_without_room_for_a_descriptor_is_replaced, begin_real, NULL)
{
	pid_t before = d->supervisor;
	sluice_blob *blob;

	assert_int_equal(prlimit(before, RLIMIT_NOFILE, &(struct rlimit){4, 4}, NULL), 0);
	blob = put(d->store, "x", 100000, 0);
	child_status(before);
	assert_true(daemon_supervisor(d, before) != before);
	daemon_replace_server(d);
	assert_blob(blob, "x", 100000);
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_release(got(d->store, "x")));
	stop(d);
}

TEST(signals_that_were_ignored_and_hangups_end_nothing)
{
	void (*before)(int) = signal(SIGINT, SIG_IGN);
	uint64_t processes[2];
	struct daemon *d;

	assert_int_equal(begin_real(state), 0);
	d = *state;
	signal(SIGINT, before);
	assert_ok(sluice_blob_release(put(d->store, "x", 10, 0)));
	daemon_replace_server(d);
	processes[0] = stats_of(d->store).supervisor;
	processes[1] = stats_of(d->store).server;
	for (int i = 0; i < 2; i++) {
		kill((pid_t)processes[i], SIGHUP);
		kill((pid_t)processes[i], SIGINT);
	}
	for (int i = 0; i < 20; i++) {
		assert_int_equal(stats_of(d->store).supervisor, processes[0]);
		assert_int_equal(stats_of(d->store).server, processes[1]);
		sleep_ms(5);
	}
	assert_int_equal(sluice_blob_exists(d->store, "x"), 1);
	daemon_teardown(state);
}

DAEMON_TEST_WITH(a_stop_is_waited_for, begin_real, NULL)
{
	pid_t supervisor = d->supervisor;

	stop(d);
	assert_int_equal(child_status(supervisor), 0);
}

static unsigned long resident(uint64_t pid)
{
	char path[40];
	unsigned long pages = 0;
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	in = fopen(path, "r");
	assert_non_null(in);
	assert_int_equal(fscanf(in, "%*u %lu", &pages), 1);
	fclose(in);
	return pages * 4096;
}

DAEMON_TEST_WITH(processes_do_not_grow_with_those_before_them, begin_real, NULL)
{
	unsigned long first[2] = {0}, last[2] = {0};
	pid_t supervisor = d->supervisor;

	for (int i = 0; i < 8; i++) {
		kill(supervisor, SIGKILL);
		if (i == 0)
			child_status(supervisor);
		supervisor = daemon_supervisor(d, supervisor);
		assert_ok(sluice_blob_release(put(d->store, "x", 10, SLUICE_BLOB_REPLACE)));
		daemon_replace_server(d);
		last[0] = resident(stats_of(d->store).server);
		last[1] = resident((uint64_t)supervisor);
		for (int k = 0; i == 1 && k < 2; k++)
			first[k] = last[k];
	}
	print_message("server %lu to %lu KiB, supervisor %lu to %lu KiB\n", first[0] / 1024,
	              last[0] / 1024, first[1] / 1024, last[1] / 1024);
	for (int k = 0; k < 2; k++)
		assert_true(last[k] < first[k] + 2 * MIB);
	stop(d);
}

static void *open_many(void *argument)
{
	const struct daemon *d = argument;

	while (!atomic_load(&shared->over)) {
		sluice_store *store;

		if (sluice_store_open(d->path, NULL, &store)) {
			print_message("%s\n", sluice_last_message());
			return argument;
		}
		sluice_store_close(store);
	}
	return NULL;
}

DAEMON_TEST_WITH(client_that_connects_during_an_upgrade_is_let_in, begin_real, NULL)
{
	pthread_t threads[3];
	unsigned failed = 0;
	void *result;

	atomic_store(&shared->over, 0);
	for (unsigned i = 0; i < COUNT_OF(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, open_many, d), 0);
	for (unsigned i = 0; i < 20; i++)
		assert_ok(sluice_store_upgrade(d->store));
	atomic_store(&shared->over, 1);
	for (unsigned i = 0; i < COUNT_OF(threads); i++) {
		pthread_join(threads[i], &result);
		failed += result != NULL;
	}
	assert_int_equal(failed, 0);
	stop(d);
}

/* ----------------------------------------------------------------- descriptors in flight, namespaces */

/* A process of that user that does not receive what it was sent. */
static pid_t hog_start(unsigned user, unsigned count)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		int pair[2], fds[100];

		/* In this order: another user clears the signal. */
		if (setuid(user) || prctl(PR_SET_PDEATHSIG, SIGKILL) ||
		    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
			_exit(1);
		for (int i = 0; i < 100; i++)
			fds[i] = ready[0];
		for (unsigned i = 0; i < count; i += 100)
			if (!raw_send_with(pair[0], &byte, 1, fds, 100))
				_exit(1);
		(void)!write(ready[1], "", 1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

TEST(a_descriptor_that_cannot_be_handed_over_is_told_at_once)
{
	struct daemon *d;
	sluice_store *store;
	sluice_blob *blob;
	unsigned user = user_apart();
	char number[20];
	pid_t hog;

	if (geteuid()) {
		print_message("skipped: only root can run a daemon of another user\n");
		skip();
	}
	copy_program();
	daemon_files = 300;
	snprintf(number, sizeof(number), "%u", user);
	setenv("SLUICE_STORE_OWNER", number, 1);
	daemon_user = user;
	assert_int_equal(begin(state), 0);
	daemon_user = 0;
	daemon_files = 0;
	d = *state;
	hog = hog_start(user, 600);
	assert_refused(sluice_blob_create(d->store, "precious", 3 * MIB, -1, NULL, &blob), EAGAIN,
	               "in flight");
	assert_refused(sluice_store_open(d->path, NULL, &store), EAGAIN, "in flight");
	kill(hog, SIGKILL);
	child_status(hog);
	assert_ok(sluice_blob_release(put(d->store, "precious", 3 * MIB, 0)));
	daemon_replace_server(d);
	assert_there(d->store, "precious", 3 * MIB);
	unsetenv("SLUICE_STORE_OWNER");
	stop(d);
}

TEST(reference_from_another_pid_namespace_outlives_the_server)
{
	struct daemon *d;
	sluice_store *other;
	sluice_blob *blob;
	char text[300];

	if (system("unshare --pid --fork --mount-proc true 2>/dev/null") != 0) {
		print_message("skipped: no PID namespace can be made here\n");
		skip();
	}
	snprintf(text, sizeof(text),
	         "#!/bin/sh\nexec unshare --pid --fork --mount-proc '%s' \"$@\"\n", real);
	write_program(text);
	assert_int_equal(begin(state), 0);
	d = *state;
	other = daemon_connect(d);
	assert_ok(sluice_blob_release(put(other, "held", 1 * MIB, 0)));
	blob = got(d->store, "held");
	daemon_replace_server(d);
	assert_ok(sluice_blob_delete(other, "held"));
	assert_int_equal(stats_of(other).dying, 1);
	for (int i = 0; i < 10; i++) {
		assert_ok(sluice_blob_release(put(other, "more", 1 * MIB, SLUICE_BLOB_REPLACE)));
		assert_blob(blob, "held", 1 * MIB);
	}
	assert_let_go(blob, other, "more");
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
	stop(d);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "512M", NULL};
	static const struct child_role roles[] = {
		{"write", write_all}, {"read", read_all}, {NULL, NULL}};

	shared = shared_memory(sizeof(*shared));
	child_run(argc, argv, roles);
	row_start(1, argv);
	daemon_options = options;
	real = getenv("SLUICED");
	assert_non_null(real);
	/* In a folder that other users may look into. */
	snprintf(program, sizeof(program), "/tmp/sluiced-test-%d", (int)getpid());
	snprintf(next_program, sizeof(next_program), "%s.next", program);
	return RUN_TESTS(NULL, NULL);
}
