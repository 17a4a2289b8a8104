/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/daemon.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/gpu.h"
#include "sluice/device.h"

const char *const *daemon_options;
unsigned daemon_files, daemon_user;

unsigned user_apart(void)
{
	return 20000 + (unsigned)getpid() % 40000;
}

int place(void)
{
	const char *name = getenv("SLUICE_TEST_PLACE");
	int device = -1;

	if (name && sluice_device_find(name, &device))
		fail_msg("SLUICE_TEST_PLACE: %s", sluice_last_message());
	return device;
}

void place_on(int device)
{
	if (gpu_open(NULL)) {
		fprintf(stderr, "%s\n", gpu_message());
		exit(77);
	}
	setenv("SLUICE_TEST_PLACE", gpu_name(device), 1);
}

/* ------------------------------------------------------------------------------------ processes */

static void read_text(const char *format, int pid, char *text, size_t size)
{
	char path[64];
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), format, pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, size - 1);
		close(fd);
	}
	text[n > 0 ? n : 0] = '\0';
	for (ssize_t i = 0; i + 1 < n; i++)
		if (!text[i])
			text[i] = ' ';
}

/* A living process with that name whose command line has the daemon's socket in it. */
static pid_t find(const struct daemon *d, const char *name, pid_t before)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	pid_t found = 0;

	assert_non_null(proc);
	while (!found && (e = readdir(proc))) {
		char comm[64], line[512], stat[512], *state;
		int pid = atoi(e->d_name);

		if (pid <= 0 || pid == before)
			continue;
		read_text("/proc/%d/comm", pid, comm, sizeof(comm));
		comm[strcspn(comm, "\n")] = '\0';
		read_text("/proc/%d/cmdline", pid, line, sizeof(line));
		read_text("/proc/%d/stat", pid, stat, sizeof(stat));
		state = strrchr(stat, ')');
		if (!strcmp(comm, name) && strstr(line, d->path) && state && state[2] != 'Z')
			found = pid;
	}
	closedir(proc);
	return found;
}

pid_t daemon_process(const struct daemon *d, const char *name, pid_t before)
{
	double until = seconds_now() + 20;
	pid_t pid;

	while (!(pid = find(d, name, before)))
		if (seconds_now() > until)
			fail_msg("there is no process %s", name);
		else
			sleep_ms(2);
	return pid;
}

pid_t daemon_server(const struct daemon *d, pid_t before)
{
	return daemon_process(d, "sluiced-server", before);
}

void daemon_replace_server(const struct daemon *d)
{
	pid_t server = daemon_server(d, 0);

	kill(server, SIGKILL);
	daemon_server(d, server);
}

pid_t daemon_supervisor(const struct daemon *d, pid_t before)
{
	return daemon_process(d, "sluiced", before);
}

void daemon_replace_supervisor(const struct daemon *d)
{
	pid_t before = daemon_supervisor(d, 0);

	kill(before, SIGKILL);
	waitpid(before, NULL, 0);
	daemon_supervisor(d, before);
}

/* Adds --device-memory, as much as --memory says. */
static void limit_device(const char **arguments, size_t size)
{
	struct sluice_device device = {.size = sizeof(device)};
	static char limit[100];
	size_t n = 0, memory = 0;

	for (; arguments[n]; n++)
		if (!strcmp(arguments[n], "--memory"))
			memory = n + 1;
	if (!ON_DEVICE || !memory)
		return;
	assert_true(n + 3 <= size);
	assert_ok(sluice_device_describe(place(), &device));
	snprintf(limit, sizeof(limit), "%s=%s", device.pci ? device.pci : device.name,
	         arguments[memory]);
	arguments[n] = "--device-memory";
	arguments[n + 1] = limit;
}

static void start(struct daemon *d, const char *const *options)
{
	const char *program = getenv("SLUICED"), *folder = getenv("SLUICE_TEST_DIR");
	const char *arguments[20] = {program, "--socket", d->path};
	pid_t parent = getpid();

	assert_non_null(program);
	assert_non_null(folder);
	for (unsigned i = 0; options && options[i]; i++)
		arguments[3 + i] = options[i];
	limit_device(arguments, COUNT_OF(arguments));
	d->supervisor = fork();
	assert_true(d->supervisor >= 0);
	if (!d->supervisor) {
		/* Before the next, which that would undo. */
		if (daemon_user && (setgid(daemon_user) || setuid(daemon_user)))
			_exit(126);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (daemon_files)
			setrlimit(RLIMIT_NOFILE, &(struct rlimit){daemon_files, daemon_files});
		if (getppid() == parent)
			execv(program, (char **)arguments);
		_exit(127);
	}
}

void daemon_start(struct daemon *d, const char *const *options)
{
	static unsigned number;

	/* A path of a socket is short. */
	snprintf(d->path, sizeof(d->path), "/tmp/sluice-test-%d-%u", (int)getpid(), number++);
	start(d, options);
}

void daemon_renew(struct daemon *d)
{
	daemon_stop(d);
	start(d, daemon_options);
}

static void assert_socket_is_gone(const struct daemon *d)
{
	char lock[120];

	assert_int_equal(access(d->path, F_OK), -1);
	snprintf(lock, sizeof(lock), "%s.lock", d->path);
	unlink(lock);
}

void daemon_stop(struct daemon *d)
{
	int status;

	kill(d->supervisor, SIGTERM);
	assert_int_equal(waitpid(d->supervisor, &status, 0), d->supervisor);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_socket_is_gone(d);
}

void daemon_end(struct daemon *d, pid_t supervisor)
{
	assert_ok(sluice_store_close(d->store));
	kill(supervisor, SIGTERM);
	for (int i = 0; i < 2000 && access(d->path, F_OK) == 0; i++)
		sleep_ms(5);
	assert_socket_is_gone(d);
	free(d);
}

sluice_store *daemon_connect(const struct daemon *d)
{
	double until = seconds_now() + 20;
	sluice_store *store;

	while (sluice_store_open(d->path, NULL, &store)) {
		if (seconds_now() > until)
			fail_msg("cannot connect: %s", sluice_last_message());
		sleep_ms(2);
	}
	return store;
}

int daemon_setup(void **state)
{
	struct daemon *d = calloc(1, sizeof(*d));

	assert_non_null(d);
	daemon_start(d, daemon_options);
	d->store = daemon_connect(d);
	*state = d;
	return 0;
}

int daemon_teardown(void **state)
{
	struct daemon *d = *state;

	assert_ok(sluice_store_close(d->store));
	daemon_stop(d);
	free(d);
	return 0;
}

/* ------------------------------------------------------------------------------------ children */

pid_t child_start(const char *role, const struct daemon *d, const char *argument)
{
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			execl("/proc/self/exe", "child", role, d->path, argument, NULL);
		_exit(127);
	}
	return pid;
}

void child_run(int argc, char **argv, const struct child_role *roles)
{
	struct daemon d = {.supervisor = 0};

	if (argc != 4)
		return;
	snprintf(d.path, sizeof(d.path), "%s", argv[2]);
	for (; roles->name; roles++)
		if (!strcmp(roles->name, argv[1]))
			_exit(roles->run(&d, argv[3]));
	_exit(126);
}

void *shared_memory(size_t bytes)
{
	const char *text = getenv("SLUICE_TEST_SHARED");
	int fd = text ? atoi(text) : memfd_create("shared", 0);
	char number[20];
	void *memory;

	if (fd < 0 || (!text && ftruncate(fd, (off_t)bytes)))
		abort();
	snprintf(number, sizeof(number), "%d", fd);
	setenv("SLUICE_TEST_SHARED", number, 1);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		abort();
	return memory;
}

int child_status(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* --------------------------------------------------------------------------------------- blobs */

const char *named(const char *format, ...)
{
	static _Thread_local char names[8][32];
	static _Thread_local unsigned turn;
	char *name = names[turn++ % COUNT_OF(names)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(name, sizeof(names[0]), format, arguments);
	va_end(arguments);
	return name;
}

uint64_t seed_of(const char *name, size_t n)
{
	uint64_t seed = n;

	while (*name)
		seed = (seed ^ (unsigned char)*name++) * UINT64_C(1099511628211);
	return seed;
}

/* Between a blob and memory of the host. */
static void copy(void *to, const void *from, size_t n)
{
	if (sluice_copy(to, from, n))
		fail_msg("a copy of %zu bytes: %s", n, sluice_last_message());
}

void set_bytes(sluice_blob *blob, int byte, size_t n)
{
	void *bytes = sluice_blob_mutable_data(blob);
	void *here = sluice_blob_device(blob) < 0 ? bytes : malloc(n);

	memset(here, byte, n);
	if (here == bytes)
		return;
	copy(bytes, here, n);
	free(here);
}

int byte_at(const sluice_blob *blob, size_t offset)
{
	unsigned char byte;

	copy(&byte, (const char *)sluice_blob_data(blob) + offset, 1);
	return byte;
}

int create_on(sluice_store *store, const char *name, size_t n, int device, unsigned flags,
              sluice_blob **out)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	void *bytes, *here;
	int rc;

	o.flags = flags;
	rc = sluice_blob_create(store, name, n, device, &o, out);
	if (rc)
		return rc;
	bytes = sluice_blob_mutable_data(*out);
	here = device < 0 ? bytes : malloc(n);
	pattern_fill(here, n, 0, seed_of(name, n));
	if (here == bytes)
		return 0;
	rc = sluice_copy(bytes, here, n);
	free(here);
	return rc;
}

sluice_blob *put_on(sluice_store *store, const char *name, size_t n, int device, unsigned flags)
{
	sluice_blob *blob = NULL;

	assert_ok(create_on(store, name, n, device, flags, &blob));
	assert_ok(sluice_blob_seal(blob));
	return blob;
}

int try_put(sluice_store *store, const char *name, size_t n, unsigned flags, sluice_blob **out)
{
	sluice_blob *blob;
	int rc = create_on(store, name, n, place(), flags, &blob);

	if (rc)
		return rc;
	rc = sluice_blob_seal(blob);
	if (rc)
		sluice_blob_release(blob);
	else
		*out = blob;
	return rc;
}

sluice_blob *put(sluice_store *store, const char *name, size_t n, unsigned flags)
{
	return put_on(store, name, n, place(), flags);
}

sluice_blob *got(sluice_store *store, const char *name)
{
	sluice_blob *blob = NULL;

	assert_ok(sluice_blob_get(store, name, 0, &blob));
	return blob;
}

bool blob_is(const sluice_blob *blob, const char *name, size_t n)
{
	const void *bytes = sluice_blob_data(blob);
	void *here = NULL;
	bool is;

	if (sluice_blob_size(blob) != n || !bytes)
		return false;
	if (sluice_blob_device(blob) >= 0) {
		here = malloc(n);
		if (sluice_copy(here, bytes, n)) {
			free(here);
			return false;
		}
	}
	is = pattern_match(here ? here : bytes, n, 0, seed_of(name, n)) == n;
	free(here);
	return is;
}

void assert_blob(sluice_blob *blob, const char *name, size_t n)
{
	assert_int_equal(sluice_blob_size(blob), n);
	assert_non_null(sluice_blob_data(blob));
	assert_string_equal(sluice_blob_name(blob), name);
	if (!blob_is(blob, name, n))
		fail_msg("'%s' has not the bytes that it was given", name);
}

struct sluice_store_counts stats_of(sluice_store *store)
{
	struct sluice_store_counts stats = {.size = sizeof(stats)};

	assert_ok(sluice_store_stats(store, &stats));
	return stats;
}

struct sluice_store_device_info device_of(sluice_store *store, int device)
{
	struct sluice_store_device_info d = {.size = sizeof(d)};

	for (unsigned i = 0; !sluice_store_device(store, i, &d); i++)
		if (d.device == device)
			return d;
	return (struct sluice_store_device_info){.size = sizeof(d)};
}

void assert_memory_is(sluice_store *store, int device, uint64_t most)
{
	double until = seconds_now() + 20;
	struct sluice_store_device_info d;

	for (;;) {
		d = device_of(store, device);
		if (d.memory_bytes <= most && !d.leaving_bytes)
			return;
		if (seconds_now() > until)
			fail_msg("%llu bytes, %llu of them leaving",
			         (unsigned long long)d.memory_bytes,
			         (unsigned long long)d.leaving_bytes);
		sleep_ms(2);
	}
}

void assert_idle(sluice_store *store)
{
	assert_idle_but(store, 0);
}

void assert_idle_but(sluice_store *store, unsigned clients)
{
	double until = seconds_now() + 20;
	struct sluice_store_device_info there;
	struct sluice_store_counts s;

	for (;;) {
		s = stats_of(store);
		there = account_of(store);
		if (!s.sealed && !s.created && !s.dying && !s.blob_bytes && !there.leaving_bytes &&
		    s.clients <= 1 + clients)
			return;
		if (seconds_now() > until)
			fail_msg("%llu sealed, %llu created, %llu dying, %llu bytes, %llu bytes "
			         "leaving "
			         "the device, %llu clients",
			         (unsigned long long)s.sealed, (unsigned long long)s.created,
			         (unsigned long long)s.dying, (unsigned long long)s.blob_bytes,
			         (unsigned long long)there.leaving_bytes,
			         (unsigned long long)s.clients);
		sleep_ms(5);
	}
}
