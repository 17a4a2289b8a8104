/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that do not keep to the protocol. Each is at it from a thread of its own while a well-behaved client
 * measures how long it waits for its blobs; and the server's memory and descriptors are counted.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/daemon.h"
#include "store/protocol.h"

#define CYCLES  100
#define ROUNDS  5
#define SILENT  1000
#define FLOODED 20000

/* ------------------------------------------------------------------------------- raw clients */

static int raw_connect(const struct daemon *d)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", d->path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static bool raw_send(int fd, const void *data, size_t n)
{
	return send(fd, data, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* One answer, and the descriptor that came with it; its length. */
static ssize_t raw_receive(int fd, union sl_message *m, int *with)
{
	struct iovec io = {m, sizeof(*m)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
	struct msghdr message = {.msg_iov = &io,
	                         .msg_iovlen = 1,
	                         .msg_control = control,
	                         .msg_controllen = sizeof(control)};
	struct timeval limit = {10, 0};
	struct cmsghdr *h;
	ssize_t n;
	int fds[2] = {-1, -1};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	h = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (h)
		memcpy(fds, CMSG_DATA(h), SL_MIN(h->cmsg_len - CMSG_LEN(0), sizeof(fds)));
	if (with)
		*with = fds[0];
	else if (fds[0] >= 0)
		close(fds[0]);
	if (fds[1] >= 0)
		close(fds[1]);
	return n;
}

/* A client that has said hello; -1. */
static int raw_client(const struct daemon *d)
{
	union sl_message m;
	int fd = raw_connect(d);

	if (fd < 0)
		return -1;
	sl_message_begin(&m, SL_HELLO, 1, 0);
	m.hello.role = SL_ROLE_CLIENT;
	if (!raw_send(fd, &m, m.head.bytes) || raw_receive(fd, &m, NULL) <= 0 ||
	    m.head.type != SL_WELCOME) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The server is to hang up, after it has perhaps said why. */
static bool is_hung_up(int fd)
{
	union sl_message m;
	ssize_t n;

	while ((n = raw_receive(fd, &m, NULL)) > 0)
		if (m.head.type != SL_REFUSAL)
			return false;
	return n == 0 || errno == ECONNRESET;
}

/* --------------------------------------------------------------------------- what they do */

struct intruder {
	const struct daemon *d;
	_Atomic bool stop;
	const char *wrong; /* what the server did that it should not */
};

static void expect(struct intruder *i, bool right, const char *what)
{
	if (!right && !i->wrong)
		i->wrong = what;
}

static void promise(struct intruder *i)
{
	union sl_message m;
	int fd = raw_connect(i->d);

	sl_message_begin(&m, SL_HELLO, 1, 0);
	m.head.bytes = UINT32_MAX;
	raw_send(fd, &m, sizeof(m.hello));
	expect(i, is_hung_up(fd), "a message of 4 GiB is waited for");
	close(fd);
	fd = raw_connect(i->d);
	sl_message_begin(&m, SL_CREATE, 1, 1);
	m.head.count = UINT32_MAX;
	raw_send(fd, &m, m.head.bytes);
	expect(i, is_hung_up(fd), "4 G items are waited for");
	close(fd);
}

static void be_silent(struct intruder *i)
{
	static int fds[SILENT];

	for (unsigned k = 0; k < SILENT; k++) {
		fds[k] = raw_connect(i->d);
		expect(i, fds[k] >= 0, "a connection is not accepted");
	}
	while (!atomic_load(&i->stop))
		sleep_ms(1);
	for (unsigned k = 0; k < SILENT; k++)
		if (fds[k] >= 0)
			close(fds[k]);
}

static void say_half(struct intruder *i)
{
	union sl_message m;
	int fd = raw_connect(i->d);

	sl_message_begin(&m, SL_HELLO, 1, 0);
	raw_send(fd, &m, 1 + (size_t)rand() % (m.head.bytes - 1));
	expect(i, is_hung_up(fd), "half a message is taken");
	close(fd);
	fd = raw_client(i->d);
	sl_message_begin(&m, SL_SEAL, 2, 1);
	raw_send(fd, &m, m.head.bytes - 10);
	expect(i, is_hung_up(fd), "half a seal is taken");
	close(fd);
}

static void send_descriptors(struct intruder *i)
{
	union sl_message m;
	struct iovec io = {&m, 0};
	int fd = raw_connect(i->d), fds[100];
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {0};
	struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control};
	struct cmsghdr *h = (struct cmsghdr *)control;
	unsigned count = rand() % 2 ? 1 : 100;

	for (unsigned k = 0; k < 100; k++)
		fds[k] = fd;
	sl_message_begin(&m, SL_HELLO, 1, 0);
	m.hello.role = SL_ROLE_CLIENT;
	io.iov_len = m.head.bytes;
	message.msg_controllen = CMSG_SPACE(count * sizeof(int));
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(h), fds, count * sizeof(int));
	if (sendmsg(fd, &message, MSG_NOSIGNAL) > 0)
		expect(i, is_hung_up(fd), "descriptors are taken");
	close(fd);
}

static void speak_otherwise(struct intruder *i)
{
	union sl_message m;
	int fd = raw_connect(i->d);

	sl_message_begin(&m, SL_HELLO, 1, 0);
	m.hello.role = SL_ROLE_CLIENT;
	m.head.version = SL_PROTOCOL_VERSION + 1;
	raw_send(fd, &m, m.head.bytes);
	expect(i,
	       raw_receive(fd, &m, NULL) > 0 && m.head.type == SL_REFUSAL &&
	               m.head.error == -EPROTO && strstr(m.refusal.text, "version"),
	       "another version is not refused by name");
	close(fd);
}

static void misname(struct intruder *i)
{
	static char names[][SL_NAME_BYTES] = {"a\0b", "\x01", "\xff\xfe", "\xc0\xaf"};
	static char whole[4096 + 64];
	union sl_message m;
	unsigned k = (unsigned)rand() % 5;
	int fd = raw_client(i->d);

	sl_message_begin(&m, SL_CREATE, 2, 1);
	m.create.items[0].bytes = 100;
	m.create.items[0].device = -1;
	m.create.items[0].kind = SLUICE_BLOB_ON_HOST;
	if (k < 4)
		memcpy(m.create.items[0].name, names[k], SL_NAME_BYTES);
	else
		memset(m.create.items[0].name, 'x', SL_NAME_BYTES); /* without an end */
	if (k == 4 && rand() % 2) {
		/* 4 KiB of it. */
		memset(whole, 'x', sizeof(whole));
		memcpy(whole, &m, sizeof(m.create) + 16);
		raw_send(fd, whole, sizeof(whole));
	} else {
		raw_send(fd, &m, m.head.bytes);
	}
	expect(i, is_hung_up(fd), "a name that is none is taken");
	close(fd);
}

/* Asks and asks, and does not read. */
static void flood(struct intruder *i)
{
	union sl_message m;
	int fd = raw_client(i->d);

	sl_message_begin(&m, SL_GET, 2, 1);
	strcpy(m.get.items[0].name, "good");
	for (unsigned k = 0; k < FLOODED && !atomic_load(&i->stop); k++)
		if (send(fd, &m, m.head.bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			sleep_ms(1);
	close(fd);
}

/* Waits for more than it may, for what never comes. */
static void wait_in_vain(struct intruder *i)
{
	union sl_message m;
	int fd = raw_client(i->d);
	unsigned refused = 0;

	for (unsigned k = 0; k < 100; k++) {
		sl_message_begin(&m, SL_GET, 2 + k, 1);
		m.get.timeout_ms = -1;
		strcpy(m.get.items[0].name, "never");
		raw_send(fd, &m, m.head.bytes);
	}
	for (unsigned k = 0; k < 36; k++)
		refused += raw_receive(fd, &m, NULL) > 0 && m.head.error == -EAGAIN;
	expect(i, refused == 36, "a client waits for more than it may");
	close(fd);
}

/* Says as much as there may be said of blobs that never come. */
static void annotate(struct intruder *i)
{
	struct sluice_blob_metadata metadata = SLUICE_BLOB_METADATA_INIT;
	static char note[SLUICE_BLOB_NOTE_MOST];
	_Alignas(8) unsigned char record[SL_RECORD_MOST];
	uint64_t tickets[SL_ITEMS_MOST];
	union sl_message m;
	int fd = raw_client(i->d);

	metadata.note = note;
	metadata.note_bytes = sizeof(note);
	sl_record_make(&metadata, (struct sl_record *)record);
	sl_message_begin(&m, SL_CREATE, 2, SL_ITEMS_MOST);
	for (unsigned k = 0; k < SL_ITEMS_MOST; k++) {
		m.create.items[k].bytes = 100;
		m.create.items[k].device = -1;
	}
	raw_send(fd, &m, m.head.bytes);
	expect(i, raw_receive(fd, &m, NULL) > 0 && m.head.count >= SL_ITEMS_MOST, "no leases");
	for (unsigned k = 0; k < SL_ITEMS_MOST; k++)
		tickets[k] = m.leases.items[k].ticket;
	for (unsigned k = 0; k < 4 * SL_ITEMS_MOST; k++) {
		sl_message_begin(&m, SL_ANNOTATE, 0, 0);
		m.annotate.ticket = tickets[k % SL_ITEMS_MOST];
		sl_message_add_record(&m, (const struct sl_record *)record);
		raw_send(fd, &m, m.head.bytes);
	}
	sl_message_begin(&m, SL_STATS, 3, 0);
	raw_send(fd, &m, m.head.bytes);
	expect(i, raw_receive(fd, &m, NULL) > 0 && m.head.type == SL_COUNTS,
	       "what may be said is not taken");
	sl_message_begin(&m, SL_BYE, 0, 0);
	raw_send(fd, &m, m.head.bytes);
	close(fd);
}

/* A public blob whose memory it has not given up. */
static void keep_writing(struct intruder *i)
{
	union sl_message m;
	int fd = raw_client(i->d), memory;
	struct sl_lease lease;
	char *mapped;

	sl_message_begin(&m, SL_CREATE, 2, 1);
	m.create.items[0].bytes = 100;
	m.create.items[0].device = -1;
	m.create.items[0].kind = SLUICE_BLOB_ON_HOST;
	m.create.items[0].flags = SLUICE_BLOB_PUBLIC;
	raw_send(fd, &m, m.head.bytes);
	raw_receive(fd, &m, NULL);
	lease = m.leases.items[0];
	sl_message_begin(&m, SL_REGION, 3, 0);
	m.region.region = lease.place.region;
	m.region.writable = 1;
	raw_send(fd, &m, m.head.bytes);
	raw_receive(fd, &m, &memory);
	mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (mapped == MAP_FAILED) {
		expect(i, false, "the memory of a lease cannot be mapped");
		close(fd);
		return;
	}
	expect(i, ftruncate(memory, 0) && errno == EPERM, "memory can be made shorter");
	expect(i, ftruncate(memory, 1 << 30) && errno == EPERM, "memory can be made longer");
	expect(i, fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE) && errno == EBUSY,
	       "memory is sealed against writing though it is mapped so");
	sl_message_begin(&m, SL_SEAL, 4, 1);
	m.seal.items[0].ticket = lease.ticket;
	m.seal.items[0].bytes = 100;
	m.seal.items[0].flags = SLUICE_BLOB_PUBLIC;
	strcpy(m.seal.items[0].name, "written");
	raw_send(fd, &m, m.head.bytes);
	expect(i, raw_receive(fd, &m, NULL) > 0 && m.head.error == -EBUSY,
	       "a public blob is sealed that can be written to");
	/* Somebody else's memory, whichever it is. */
	for (uint64_t region = 1; region < lease.place.region; region++) {
		sl_message_begin(&m, SL_REGION, 5, 0);
		m.region.region = region;
		m.region.writable = 1;
		raw_send(fd, &m, m.head.bytes);
		expect(i, raw_receive(fd, &m, NULL) > 0 && m.head.error == -ESTALE,
		       "memory of others can be had for writing");
	}
	munmap(mapped, 4096);
	close(memory);
	/* Without it, what it has would be its own until this process is dead. */
	sl_message_begin(&m, SL_BYE, 0, 0);
	raw_send(fd, &m, m.head.bytes);
	close(fd);
}

/* Names of others in a way that our library does not ask for. */
static void replace_wrongly(struct intruder *i)
{
	union sl_message m;
	int fd = raw_client(i->d);
	uint64_t tickets[2];

	sl_message_begin(&m, SL_CREATE, 2, 2);
	for (unsigned k = 0; k < 2; k++) {
		m.create.items[k].bytes = 100;
		m.create.items[k].device = -1;
		if (k)
			strcpy(m.create.items[k].name, "reserved");
	}
	raw_send(fd, &m, m.head.bytes);
	raw_receive(fd, &m, NULL);
	tickets[0] = m.leases.items[0].ticket;
	tickets[1] = m.leases.items[1].ticket;
	/* Several at once, and one whose name is there already. */
	for (unsigned count = 2; count; count--) {
		sl_message_begin(&m, SL_SEAL, 5 - count, count);
		for (unsigned k = 0; k < count; k++) {
			m.seal.items[k].ticket = tickets[count == 2 ? k : 1];
			m.seal.items[k].bytes = 100;
			m.seal.items[k].flags = SLUICE_BLOB_REPLACE;
			strcpy(m.seal.items[k].name, k == 0 && count == 2 ? "good" : "reserved");
		}
		raw_send(fd, &m, m.head.bytes);
		expect(i, raw_receive(fd, &m, NULL) > 0 && m.head.error == -EINVAL,
		       "a seal replaces that must not");
	}
	sl_message_begin(&m, SL_BYE, 0, 0);
	raw_send(fd, &m, m.head.bytes);
	close(fd);
}

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
		assert_ok(sluice_blob_release(blob));
		assert_ok(sluice_blob_delete(store, "mine"));
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

static size_t descriptors_of(pid_t pid)
{
	char path[64];
	struct dirent *e;
	size_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((e = readdir(dir)))
		n++;
	closedir(dir);
	return n;
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

static void withstand(struct daemon *d, const char *name, void (*act)(struct intruder *))
{
	struct campaign c = {{d, false, NULL}, act};
	pid_t server = daemon_server(d, 0);
	double before = good_rounds(d->store), during;
	size_t descriptors = descriptors_of(server), memory = memory_of(server);
	pthread_t thread;
	double until;

	assert_int_equal(pthread_create(&thread, NULL, intrude, &c), 0);
	sleep_ms(20);
	during = good_rounds(d->store);
	/* Once more, before a busy machine is blamed on the server. */
	for (int k = 0; k < 3 && during > 2 * before && during > before + 200e-6; k++)
		during = good_rounds(d->store);
	atomic_store(&c.intruder.stop, true);
	pthread_join(thread, NULL);
	if (c.intruder.wrong)
		fail_msg("%s: %s", name, c.intruder.wrong);
	print_message("%s: %.0f us, and %.0f us before\n", name, during * 1e6, before * 1e6);
	assert_int_equal(daemon_server(d, 0), server);
	if (!under_sanitizer()) {
		assert_true(during <= 2 * before || during <= before + 200e-6);
		assert_true(memory_of(server) <= memory + 4 * MIB);
	}
	until = seconds_now() + 10;
	while (descriptors_of(server) > descriptors + 2 && seconds_now() < until)
		sleep_ms(10);
	assert_true(descriptors_of(server) <= descriptors + 2);
}

static void nobody_suffers_from_a_hostile_client(void **state)
{
	static const struct {
		const char *name;
		void (*act)(struct intruder *);
	} acts[] = {
		{"promises", promise},
		{"silence", be_silent},
		{"halves", say_half},
		{"descriptors", send_descriptors},
		{"versions", speak_otherwise},
		{"names", misname},
		{"floods", flood},
		{"waits", wait_in_vain},
		{"notes", annotate},
		{"writers", keep_writing},
		{"replacers", replace_wrongly},
	};
	struct daemon *d = *state;
	sluice_blob *good = put(d->store, "good", 100, 0);

	for (size_t k = 0; k < COUNT_OF(acts); k++)
		withstand(d, acts[k].name, acts[k].act);
	assert_blob(good, "good", 100);
	assert_ok(sluice_blob_release(good));
	assert_ok(sluice_blob_delete(d->store, "good"));
}

/* Makes a blob and keeps what it can be written by. */
static int seal_and_keep(const struct daemon *d, const char *name, int *memory)
{
	union sl_message m;
	int fd = raw_client(d);
	struct sl_lease lease;

	sl_message_begin(&m, SL_CREATE, 2, 1);
	m.create.items[0].bytes = MIB;
	m.create.items[0].device = -1;
	m.create.items[0].kind = SLUICE_BLOB_ON_HOST;
	raw_send(fd, &m, m.head.bytes);
	assert_true(raw_receive(fd, &m, NULL) > 0);
	lease = m.leases.items[0];
	sl_message_begin(&m, SL_REGION, 3, 0);
	m.region.region = lease.place.region;
	m.region.writable = 1;
	raw_send(fd, &m, m.head.bytes);
	assert_true(raw_receive(fd, &m, memory) > 0);
	sl_message_begin(&m, SL_SEAL, 4, 1);
	m.seal.items[0].ticket = lease.ticket;
	m.seal.items[0].bytes = MIB;
	strcpy(m.seal.items[0].name, name);
	raw_send(fd, &m, m.head.bytes);
	assert_true(raw_receive(fd, &m, NULL) > 0);
	assert_int_equal(m.head.type, SL_FOUND);
	return fd;
}

/* Within one user a client can spoil what it made; whoever reads it does not die of that. */
static void what_is_punched_reads_as_zeros(void **state)
{
	struct daemon *d = *state;
	sluice_blob *blob;
	int memory, fd = seal_and_keep(d, "holes", &memory);
	const char *data;

	blob = got(d->store, "holes");
	assert_int_equal(ftruncate(memory, 4096), -1);
	assert_int_equal(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB), 0);
	data = sluice_blob_data(blob);
	for (size_t i = 0; i < MIB; i += 4096)
		assert_int_equal(data[i], 0);
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "holes"));
	close(memory);
	close(fd);
}

/* After a server was replaced nobody knows who may write to what. */
static void memory_of_a_writer_before_is_not_used_again(void **state)
{
	struct daemon *d = *state;
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

static int as_nobody(const struct daemon *d, const char *argument)
{
	sluice_store *store;
	sluice_blob *blob;
	struct sluice_blob_info infos[4] = {{.size = sizeof(infos[0])}};
	uint64_t cursor = 0;
	bool admitted = argument[0] == 'a';
	int rc;

	if (setgid(NOBODY) || setuid(NOBODY))
		return 1;
	rc = sluice_store_open(d->path, NULL, &store);
	if (!admitted)
		return rc == -EACCES ? 0 : 2;
	if (rc)
		return 3;
	if (sluice_blob_get(store, "private", 0, &blob) != -ENOENT ||
	    sluice_blob_delete(store, "private") != -ENOENT)
		return 4;
	if (sluice_blob_delete(store, "public") != -EACCES)
		return 5;
	if (sluice_blob_list(store, "", &cursor, infos, 4) != 1 || strcmp(infos[0].name, "public"))
		return 6;
	if (sluice_blob_get(store, "public", 0, &blob) || !blob_is(blob, "public", 50000))
		return 7;
	if (sluice_blob_get_id(store, 1, 0, &blob) != -ENOENT)
		return 8;
	/* Its names are its own, but for public ones. */
	if (try_put(store, "private", 10, 0, &blob) || !blob_is(blob, "private", 10))
		return 9;
	if (try_put(store, "public", 10, SLUICE_BLOB_PUBLIC, &blob) != -EEXIST)
		return 10;
	return 0;
}

static void another_user_is_not_admitted(void **state)
{
	struct daemon *d = *state;

	if (getuid())
		SKIP("only root can be another user");
	assert_int_equal(child_status(child_start("as_nobody", d, "refused")), 0);
}

static void another_user_sees_what_is_public(void **state)
{
	static const char *const options[] = {"--allow-user", "65534", NULL};
	const char *const *before = daemon_options;
	struct daemon *d;
	sluice_blob *blobs[2];

	(void)state;
	if (getuid())
		SKIP("only root can be another user");
	daemon_options = options;
	daemon_setup((void **)&d);
	daemon_options = before;
	blobs[0] = put(d->store, "private", 50000, 0);
	blobs[1] = put(d->store, "public", 50000, SLUICE_BLOB_PUBLIC);
	assert_int_equal(child_status(child_start("as_nobody", d, "admitted")), 0);
	assert_blob(blobs[0], "private", 50000);
	assert_ok(sluice_blob_release_many(blobs, 2));
	assert_ok(sluice_blob_delete(d->store, "private"));
	assert_ok(sluice_blob_delete(d->store, "public"));
	daemon_teardown((void **)&d);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "256M", NULL};
	static const struct child_role roles[] = {{"as_nobody", as_nobody}, {NULL, NULL}};
	const struct CMUnitTest tests[] = {
		daemon_test(nobody_suffers_from_a_hostile_client),
		daemon_test(what_is_punched_reads_as_zeros),
		daemon_test(memory_of_a_writer_before_is_not_used_again),
		daemon_test(another_user_is_not_admitted),
		cmocka_unit_test(another_user_sees_what_is_public),
	};
	struct rlimit files;

	child_run(argc, argv, roles);
	row_start(1, argv);
	/* Those that are silent are many. */
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	daemon_options = options;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
