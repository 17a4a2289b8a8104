/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that do not keep to the protocol. Each is at it from a thread of its own while a well-behaved client
 * measures how long it waits for its blobs; and the server's memory and descriptors are counted.
 */
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/daemon.h"
#include "sluice/device.h"
#include "sluiced/intruder.h"

#define CYCLES 100
#define MORE   8
/* Descriptors of memory that the good client may have more of by then, on a busy machine. */
#define MEMORY 64
#define ROUNDS 5

/* -------------------------------------------------------------------------- who suffers of it */

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The median time of a good client for a blob from the beginning to its end. */
static double good_cycle(sluice_store *store)
{
	double times[CYCLES];

	for (int k = 0; k < CYCLES; k++) {
		double begun = seconds_now();
		sluice_blob *blob = put(store, "mine", 3000, 0), *read = got(store, "mine");

		assert_ok(sluice_blob_release(read));
		assert_let_go(blob, store, "mine");
		times[k] = seconds_now() - begun;
	}
	qsort(times, CYCLES, sizeof(times[0]), by_size);
	return times[CYCLES / 2];
}

static double good_rounds(sluice_store *store)
{
	double medians[ROUNDS];

	for (int k = 0; k < ROUNDS; k++)
		medians[k] = good_cycle(store);
	qsort(medians, ROUNDS, sizeof(medians[0]), by_size);
	return medians[ROUNDS / 2];
}

/* Those of memory of blobs, or all others. */
static size_t descriptors_of(pid_t pid, bool of_blobs)
{
	char path[64], link[256];
	struct dirent *e;
	size_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((e = readdir(dir))) {
		ssize_t length = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

		link[length > 0 ? length : 0] = '\0';
		n += (strstr(link, "sluice-blob") != NULL) == of_blobs;
	}
	closedir(dir);
	return n;
}

/* Waits until the server has no more of them. */
static void await_descriptors(pid_t server, bool of_blobs, size_t most, const char *name)
{
	double until = seconds_now() + 20;

	while (descriptors_of(server, of_blobs) > most)
		if (seconds_now() > until)
			fail_msg("%s: the server has %zu descriptors%s, not %zu", name,
			         descriptors_of(server, of_blobs), of_blobs ? " of blobs" : "",
			         most);
		else
			sleep_ms(10);
}

static size_t memory_of(pid_t pid)
{
	unsigned long pages = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	if (fscanf(f, "%*u %lu", &pages) != 1)
		fail_msg("%s cannot be read", path);
	fclose(f);
	return pages * 4096;
}

struct campaign {
	struct intruder intruder;
	void (*act)(struct intruder *);
};

static void *intrude(void *argument)
{
	struct campaign *c = argument;

	do
		c->act(&c->intruder);
	while (!atomic_load(&c->intruder.stop) && !c->intruder.wrong);
	return NULL;
}

static void withstand(struct daemon *d, const struct intruder_act *act)
{
	struct campaign c = {{d, false, NULL}, act->act};
	const char *name = act->name;
	pid_t server = daemon_server(d, 0);
	size_t descriptors, of_blobs, memory;
	double before = 0, during = 1;
	pthread_t thread;

	if (act->before)
		act->before(&c.intruder);
	good_rounds(d->store);
	descriptors = descriptors_of(server, false);
	of_blobs = descriptors_of(server, true);
	memory = memory_of(server);
	/* Once more, before a machine that became busy meanwhile is blamed on the server. */
	for (int k = 0; k < 4 && during > 2 * before && during > before + 200e-6; k++) {
		before = good_rounds(d->store);
		atomic_store(&c.intruder.stop, false);
		assert_int_equal(pthread_create(&thread, NULL, intrude, &c), 0);
		sleep_ms(20);
		during = good_rounds(d->store);
		atomic_store(&c.intruder.stop, true);
		pthread_join(thread, NULL);
		if (c.intruder.wrong)
			fail_msg("%s: %s", name, c.intruder.wrong);
	}
	print_message("%s: %.0f us, and %.0f us before\n", name, during * 1e6, before * 1e6);
	assert_int_equal(daemon_server(d, 0), server);
	if (!under_sanitizer()) {
		assert_true(during <= 2 * before || during <= before + 200e-6);
		assert_true(memory_of(server) <= memory + 4 * MIB);
	}
	await_descriptors(server, false, descriptors + MORE, name);
	await_descriptors(server, true, of_blobs + MEMORY, name);
	if (act->after)
		act->after(&c.intruder);
	if (c.intruder.wrong)
		fail_msg("%s: %s", name, c.intruder.wrong);
}

DAEMON_TEST(hostile_client_harms_no_other)
{
	sluice_blob *good = put(d->store, "good", 100, 0);

	for (const struct intruder_act *act = intruder_acts; act->name; act++)
		withstand(d, act);
	assert_blob(good, "good", 100);
	assert_let_go(good, d->store, "good");
}

/* Makes a blob and keeps what it can be written by. */
static int seal_and_keep(const struct daemon *d, const char *name, int *memory)
{
	union sl_message m;
	int fd = raw_client(d);
	struct sl_lease lease;

	sl_message_begin(&m, SL_MSG_CREATE, 2, 1);
	m.create.items[0].bytes = MIB;
	m.create.items[0].device = -1;
	m.create.items[0].kind = SLUICE_BLOB_ON_HOST;
	raw_send(fd, &m, m.head.bytes);
	assert_true(raw_receive(fd, &m, NULL) > 0);
	lease = m.leases.items[0];
	sl_message_begin(&m, SL_MSG_REGION, 3, 0);
	m.region.region = lease.range.region;
	m.region.writable = 1;
	raw_send(fd, &m, m.head.bytes);
	assert_true(raw_receive(fd, &m, memory) > 0);
	sl_message_begin(&m, SL_MSG_SEAL, 4, 1);
	m.seal.items[0].lease = lease.id;
	m.seal.items[0].bytes = MIB;
	strcpy(m.seal.items[0].name, name);
	raw_send(fd, &m, m.head.bytes);
	assert_true(raw_receive(fd, &m, NULL) > 0);
	assert_int_equal(m.head.type, SL_MSG_FOUND);
	return fd;
}

/* Within one user a client can spoil what it made; whoever reads it does not die of that. */
DAEMON_TEST(punched_memory_reads_as_zeros)
{
	sluice_blob *blob;
	int memory, fd = seal_and_keep(d, "holes", &memory);
	const char *data;

	blob = got(d->store, "holes");
	assert_int_equal(ftruncate(memory, 4096), -1);
	assert_int_equal(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB), 0);
	data = sluice_blob_data(blob);
	for (size_t i = 0; i < MIB; i += 4096)
		assert_int_equal(data[i], 0);
	assert_let_go(blob, d->store, "holes");
	close(memory);
	close(fd);
}

/* After a server was replaced nobody knows who may write to what. */
DAEMON_TEST(memory_of_a_writer_before_is_not_used_again)
{
	int memory, fd = seal_and_keep(d, "before", &memory);
	pid_t server = daemon_server(d, 0);
	sluice_blob *blobs[8];
	char *mapped = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);

	assert_true(mapped != MAP_FAILED);
	kill(server, SIGKILL);
	daemon_server(d, server);
	assert_ok(sluice_blob_delete(d->store, "before"));
	assert_idle_but(d->store, 1);
	for (int i = 0; i < 8; i++)
		blobs[i] = put(d->store, (const char[]){(char)('a' + i), 0}, MIB, 0);
	memset(mapped, 0xff, MIB);
	for (int i = 0; i < 8; i++) {
		assert_blob(blobs[i], (const char[]){(char)('a' + i), 0}, MIB);
		assert_ok(sluice_blob_release(blobs[i]));
		assert_ok(sluice_blob_delete(d->store, (const char[]){(char)('a' + i), 0}));
	}
	munmap(mapped, MIB);
	close(memory);
	close(fd);
}

/* ---------------------------------------------------------------------------------- other users */

#define NOBODY 65534

/* With the members of a group or without: what an admitted one may do there, which is everything but to end the daemon. */
static int as_nobody(const struct daemon *d, const char *argument)
{
	gid_t group = argument[0] == 'm' ? NOBODY : NOBODY - 1;
	struct sluice_blob_info info = {.size = sizeof(info)};
	sluice_store *store;
	sluice_blob *blob;
	union sl_message m;
	char memory[32];
	int fd, rc;

	if (setgroups(0, NULL) || setgid(group) || setuid(NOBODY))
		return 1;
	rc = sluice_store_open(d->path, NULL, &store);
	if (rc)
		return rc == -EACCES ? 2 : 3;
	/* The catalogue is there to be read, and not to be opened anew. */
	fd = raw_connect(d);
	sl_message_begin(&m, SL_MSG_HELLO, 1, 0);
	m.hello.role = SL_ROLE_CLIENT;
	if (!raw_send(fd, &m, m.head.bytes) || raw_receive(fd, &m, &rc) <= 0 || rc < 0)
		return 8;
	snprintf(memory, sizeof(memory), "/proc/self/fd/%d", rc);
	if (open(memory, O_RDWR | O_CLOEXEC) != -1 || errno != EACCES || close(rc) || close(fd))
		return 9;
	if (sluice_blob_get(store, "theirs", 0, &blob) || !blob_is(blob, "theirs", 50000) ||
	    sluice_blob_release(blob) || sluice_blob_stat(store, "theirs", &info) || info.user)
		return 4;
	/* On a device, too, but for what is the other process's own. */
	if (sluice_blob_get(store, "far", 0, &blob) || !blob_is(blob, "far", 5000) ||
	    sluice_blob_release(blob) || sluice_blob_get(store, "own", 0, &blob) != -ENOTSUP)
		return 10;
	if (try_put(store, "theirs", 10, 0, &blob) != -EEXIST ||
	    try_put(store, "theirs", 10, SLUICE_BLOB_REPLACE, &blob) || sluice_blob_release(blob) ||
	    sluice_blob_delete(store, "theirs"))
		return 5;
	if (try_put(store, "ours", 300000, 0, &blob) || sluice_blob_release(blob) ||
	    sluice_blob_stat(store, "ours", &info) || info.user != NOBODY)
		return 6;
	if (sluice_store_upgrade(store) != -EPERM || sluice_store_stop(store) != -EPERM)
		return 11;
	return sluice_store_close(store) ? 7 : 0;
}

DAEMON_TEST(another_user_is_not_let_in)
{
	if (getuid())
		SKIP("only root can be another user");
	assert_int_equal(WEXITSTATUS(child_status(child_start("as_nobody", d, "member"))), 2);
}

TEST(a_group_shares_everything)
{
	static const char *const options[] = {"--memory", "64M", "--group", "65534", NULL};
	const char *const *before = daemon_options;
	struct daemon *d;
	struct stat st;
	sluice_blob *blob;
	void *memory;
	int device;

	if (getuid())
		SKIP("only root can be another user");
	daemon_options = options;
	daemon_setup((void **)&d);
	daemon_options = before;
	assert_int_equal(stat(d->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660);
	assert_int_equal(st.st_gid, NOBODY);
	assert_ok(sluice_blob_release(put(d->store, "theirs", 50000, 0)));
	assert_ok(sluice_device_find("emulated:0", &device));
	setenv("SLUICE_TEST_PLACE", "emulated:0", 1);
	assert_ok(sluice_blob_release(put(d->store, "far", 5000, 0)));
	unsetenv("SLUICE_TEST_PLACE");
	assert_ok(sluice_device_alloc(device, 5000, &memory));
	assert_ok(sluice_blob_publish(d->store, "own", memory, 5000, NULL, &blob));
	assert_ok(sluice_blob_release(blob));
	assert_int_equal(WEXITSTATUS(child_status(child_start("as_nobody", d, "stranger"))), 2);
	assert_int_equal(child_status(child_start("as_nobody", d, "member")), 0);
	assert_there(d->store, "ours", 300000);
	assert_ok(sluice_blob_delete(d->store, "ours"));
	assert_ok(sluice_blob_delete(d->store, "far"));
	assert_ok(sluice_blob_delete(d->store, "own"));
	assert_ok(sluice_device_free(memory));
	assert_idle(d->store);
	daemon_teardown((void **)&d);
}

/* Lets clients in and hangs up; as the user that it is when it listens. */
static pid_t squat(const char *path, uid_t uid)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	pid_t pid;

	strcpy(address.sun_path, path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(seteuid(uid), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(seteuid(0), 0);
	pid = fork();
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!pid)
		close(accept(fd, NULL, NULL));
	close(fd);
	return pid;
}

TEST(a_server_of_another_user_is_refused_unless_it_is_named)
{
	struct sluice_store_options options = {.size = sizeof(options), .patience_ms = 50};
	static const char *const names[] = {"65534", "nobody"};
	sluice_store *store;
	char path[100];
	pid_t pid;

	if (getuid())
		SKIP("only root can be another user");
	snprintf(path, sizeof(path), "/tmp/sluice-squat-%d", (int)getpid());
	pid = squat(path, NOBODY);
	assert_refused(sluice_store_open(path, &options, &store), EPERM,
	               "SLUICE_STORE_OWNER=65534");
	setenv("SLUICE_STORE_OWNER", "1", 1);
	assert_refused(sluice_store_open(path, &options, &store), EPERM, "user 65534's");
	setenv("SLUICE_STORE_OWNER", "no one", 1);
	assert_refused(sluice_store_open(path, &options, &store), EINVAL, "'no one'");
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		setenv("SLUICE_STORE_OWNER", names[i], 1);
		assert_refused(sluice_store_open(path, &options, &store), ECONNRESET, "hung up");
	}
	unsetenv("SLUICE_STORE_OWNER");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(path);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "256M", NULL};
	static const struct child_role roles[] = {{"as_nobody", as_nobody}, {NULL, NULL}};
	struct rlimit files;

	child_run(argc, argv, roles);
	row_start(1, argv);
	/* Those that are silent are many. */
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	daemon_options = options;
	return RUN_TESTS(NULL, NULL);
}
