/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/protocol_client.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

int raw_connect(const struct daemon *d)
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

bool raw_send(int fd, const void *data, size_t n)
{
	return send(fd, data, n, MSG_NOSIGNAL) == (ssize_t)n;
}

bool raw_send_with(int fd, const void *data, size_t n, const int *fds, unsigned count)
{
	struct iovec io = {(void *)data, n};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(128 * sizeof(int))] = {0};
	struct msghdr message = {.msg_iov = &io,
	                         .msg_iovlen = 1,
	                         .msg_control = control,
	                         .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *h = (struct cmsghdr *)control;

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(h), fds, count * sizeof(int));
	return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)n;
}

static ssize_t receive(int fd, union sl_message *m, int fds[SL_FDS_MOST])
{
	struct timeval limit = {10, 0};
	int cut_off;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return sl_fds_receive(fd, m, sizeof(*m), fds, 0, &cut_off);
}

ssize_t raw_receive(int fd, union sl_message *m, int *with)
{
	int fds[SL_FDS_MOST];
	ssize_t n = receive(fd, m, fds);

	if (with)
		*with = fds[0];
	else if (fds[0] >= 0)
		close(fds[0]);
	if (fds[1] >= 0)
		close(fds[1]);
	return n;
}

static int say_hello(const struct daemon *d, uint32_t role)
{
	union sl_message m;
	int fd = raw_connect(d);

	if (fd < 0)
		return -1;
	sl_message_begin(&m, SL_MSG_HELLO, 1, 0);
	m.hello.role = role;
	if (!raw_send(fd, &m, m.head.bytes) || raw_receive(fd, &m, NULL) <= 0 ||
	    m.head.type != SL_MSG_WELCOME) {
		close(fd);
		return -1;
	}
	return fd;
}

int raw_client(const struct daemon *d)
{
	return say_hello(d, SL_ROLE_CLIENT);
}

int raw_watch(const struct daemon *d)
{
	return say_hello(d, SL_ROLE_WATCH);
}

bool is_hung_up(int fd)
{
	union sl_message m;
	ssize_t n;

	while ((n = raw_receive(fd, &m, NULL)) > 0)
		if (m.head.type != SL_MSG_REFUSAL)
			return false;
	return n == 0 || errno == ECONNRESET;
}

/* ----------------------------------------------------------------------------- come and go */

static bool try_open(struct raw *c, const struct daemon *d, uint64_t session)
{
	struct sl_segment *segment;
	int fds[2];

	*c = (struct raw){.fd = raw_connect(d), .serial = 1, .with = -1};
	if (c->fd < 0)
		return false;
	sl_message_begin(&c->m, SL_MSG_HELLO, 1, 0);
	c->m.hello.role = SL_ROLE_CLIENT;
	c->m.hello.session = session;
	if (!raw_send(c->fd, &c->m, c->m.head.bytes) || receive(c->fd, &c->m, fds) <= 0 ||
	    c->m.head.type != SL_MSG_WELCOME || fds[1] < 0) {
		close(c->fd);
		return false;
	}
	c->session = c->m.welcome.session;
	c->epoch = c->m.welcome.epoch;
	if (sl_segment_map(fds[0], false, &segment) ||
	    sl_references_map(fds[1], true, &c->reader.references))
		fail_msg("the catalogue cannot be mapped");
	c->reader.segment = segment;
	close(fds[0]);
	close(fds[1]);
	return true;
}

void raw_open_again(struct raw *c, const struct daemon *d, uint64_t session)
{
	double until = seconds_now() + 20;

	while (!try_open(c, d, session)) {
		if (seconds_now() > until)
			fail_msg("cannot connect");
		sleep_ms(2);
	}
}

void raw_open(struct raw *c, const struct daemon *d, uint64_t session)
{
	if (!try_open(c, d, session))
		fail_msg("cannot connect");
}

struct raw *raw_new(const struct daemon *d)
{
	struct raw *c = malloc(sizeof(*c));

	assert_non_null(c);
	raw_open(c, d, 0);
	return c;
}

void raw_hang_up(struct raw *c)
{
	close(c->fd);
	if (c->with >= 0)
		close(c->with);
	sl_segment_unmap((struct sl_segment *)c->reader.segment);
	sl_references_unmap(c->reader.references);
}

void raw_bye(struct raw *c)
{
	raw_begin(c, SL_MSG_BYE, 0);
	c->m.head.serial = 0;
	raw_send(c->fd, &c->m, c->m.head.bytes);
	raw_hang_up(c);
}

void raw_end(struct raw *c)
{
	raw_bye(c);
	free(c);
}

/* --------------------------------------------------------------------------- say and hear */

void raw_begin(struct raw *c, enum sl_message_type type, unsigned count)
{
	sl_message_begin(&c->m, type, ++c->serial, count);
	c->m.head.settled = c->serial - 1;
}

/* The next message; notes what is to be forgotten. */
static bool hear(struct raw *c)
{
	if (c->with >= 0)
		close(c->with);
	if (raw_receive(c->fd, &c->m, &c->with) <= 0)
		return false;
	for (unsigned i = 0; c->m.head.type == SL_MSG_FORGET && i < c->m.head.count; i++) {
		assert_true(c->forgotten_count < RAW_FORGOTTEN);
		c->forgotten[c->forgotten_count++] = c->m.ids.items[i].id;
	}
	return true;
}

int raw_ask(struct raw *c)
{
	uint32_t serial = c->m.head.serial;

	if (!raw_send(c->fd, &c->m, c->m.head.bytes))
		return -ECONNRESET;
	do
		if (!hear(c))
			return -ECONNRESET;
	while (c->m.head.serial != serial && c->m.head.serial != SL_SERIAL_ANY);
	return c->m.head.error;
}

bool raw_is_told(struct raw *c, uint64_t region)
{
	for (;;) {
		for (unsigned i = 0; i < c->forgotten_count; i++)
			if (c->forgotten[i] == region)
				return true;
		if (!hear(c))
			return false;
	}
}

void raw_tell(struct raw *c, enum sl_message_type type, uint64_t id)
{
	raw_begin(c, type, 1);
	c->m.head.serial = 0;
	c->m.ids.items[0].id = id;
	raw_send(c->fd, &c->m, c->m.head.bytes);
}

/* -------------------------------------------------------------------------- memory of devices */

struct sluice_store_device_info raw_device(struct raw *c, const char *place)
{
	raw_begin(c, SL_MSG_DEVICE, 0);
	c->m.device.number = -1;
	strcpy(c->m.device.place, place);
	assert_int_equal(raw_ask(c), 0);
	return c->m.device_is.item;
}

int raw_create(struct raw *c, int32_t device, uint32_t kind, uint64_t bytes, uint32_t flags,
               const char *name, struct sl_lease leases[2 * SL_ITEMS_MOST])
{
	struct sl_create_item *item = &c->m.create.items[0];
	int rc;

	raw_begin(c, SL_MSG_CREATE, 1);
	item->bytes = bytes;
	item->device = device;
	item->kind = kind;
	item->flags = flags;
	strcpy(item->name, name);
	rc = raw_ask(c);
	if (rc)
		return rc;
	memcpy(leases, c->m.leases.items, c->m.head.count * sizeof(leases[0]));
	return (int)c->m.head.count;
}

void raw_offer(struct raw *c, uint64_t region, int fd)
{
	raw_begin(c, SL_MSG_OFFER, 0);
	c->m.head.serial = 0;
	c->m.offer.region = region;
	raw_send_with(c->fd, &c->m, c->m.head.bytes, &fd, 1);
}

int raw_memory(uint64_t bytes, bool sealed)
{
	int fd = memfd_create("device", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	if (sealed)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

void raw_make(struct raw *c, const struct sl_lease *lease)
{
	uint64_t region = lease->range.region;
	bool letter = lease->range.kind == SLUICE_BLOB_OF_PROCESS;
	int fd = raw_memory(letter ? 4096 : lease->range.region_bytes, true);

	assert_int_equal(pwrite(fd, &region, sizeof(region), 0), sizeof(region));
	raw_offer(c, region, fd);
	close(fd);
}

bool raw_memory_is(int fd, uint64_t region)
{
	uint64_t found = 0;

	return pread(fd, &found, sizeof(found), 0) == sizeof(found) && found == region;
}

int raw_seal(struct raw *c, const struct sl_lease *lease, const char *name, uint64_t bytes,
             uint64_t start, uint32_t flags, struct sl_found_item *out)
{
	struct sl_seal_item *item = &c->m.seal.items[0];
	int rc;

	raw_begin(c, SL_MSG_SEAL, 1);
	item->lease = lease->id;
	item->bytes = bytes;
	item->start = start;
	item->flags = flags;
	strcpy(item->name, name);
	rc = raw_ask(c);
	if (!rc)
		*out = c->m.found.items[0];
	return rc;
}

int raw_put(struct raw *c, int32_t device, const char *name, uint64_t bytes, uint32_t flags,
            struct sl_lease *lease, struct sl_found_item *out)
{
	struct sl_lease leases[2 * SL_ITEMS_MOST];
	int rc = raw_create(c, device, SLUICE_BLOB_ON_DEVICE, bytes, flags, "", leases);

	if (rc < 0)
		return rc;
	*lease = leases[0];
	if (lease->make)
		raw_make(c, lease);
	for (int i = 1; i < rc; i++)
		raw_tell(c, SL_MSG_ABORT, leases[i].id);
	rc = raw_seal(c, lease, name, bytes, 0, flags, out);
	if (!rc && out->lease.id)
		raw_tell(c, SL_MSG_ABORT, out->lease.id);
	return rc;
}

void raw_put_ok(struct raw *c, int32_t device, const char *name, uint64_t bytes, uint32_t flags,
                struct sl_lease *lease)
{
	struct sl_found_item found;
	int rc = raw_put(c, device, name, bytes, flags, lease, &found);

	if (rc)
		fail_msg("%s: %d: %s", name, rc, c->m.refusal.text);
}

int raw_get(struct raw *c, const char *name, struct sl_found_item *out)
{
	int rc;

	raw_begin(c, SL_MSG_GET, 1);
	strcpy(c->m.get.items[0].name, name);
	rc = raw_ask(c);
	if (!rc)
		*out = c->m.found.items[0];
	return rc;
}

void raw_hold(struct raw *c, const struct sl_found_item *found, struct sl_held_blob *out)
{
	assert_int_equal(sl_reader_take(&c->reader, found->slot, found->generation, out), 0);
}

void raw_release(struct raw *c, const struct sl_held_blob *held)
{
	if (!sl_reader_release(&c->reader, held))
		return;
	raw_begin(c, SL_MSG_NUDGE, 0);
	c->m.head.serial = 0;
	raw_send(c->fd, &c->m, c->m.head.bytes);
}

int raw_region(struct raw *c, uint64_t region)
{
	int rc, fd;

	raw_begin(c, SL_MSG_REGION, 0);
	c->m.region.region = region;
	rc = raw_ask(c);
	if (rc)
		return rc;
	fd = c->with;
	c->with = -1;
	return fd;
}

int raw_delete(struct raw *c, const char *name)
{
	raw_begin(c, SL_MSG_DELETE, 0);
	strcpy(c->m.one.key.name, name);
	return raw_ask(c);
}

void raw_await(struct raw *c, const char *place, uint64_t bytes, uint64_t leaving)
{
	double until = seconds_now() + 10;
	struct sluice_store_device_info is;

	for (;;) {
		is = raw_device(c, place);
		if (is.memory_bytes == bytes && is.leaving_bytes == leaving)
			return;
		if (seconds_now() > until)
			fail_msg("%s has %llu bytes in use, of which %llu leave; not %llu and "
			         "%llu",
			         place, (unsigned long long)is.memory_bytes,
			         (unsigned long long)is.leaving_bytes, (unsigned long long)bytes,
			         (unsigned long long)leaving);
		sleep_ms(2);
	}
}

/* ----------------------------------------------------------------------------- other processes */

void raw_other_says(int say)
{
	(void)!write(say, "", 1);
	pause();
}

struct raw_other raw_other_start(const struct daemon *d,
                                 void (*run)(const struct daemon *d, int say))
{
	struct raw_other other;
	pid_t parent = getpid();
	int pair[2];
	char byte;

	assert_int_equal(pipe(pair), 0);
	other.pid = fork();
	assert_true(other.pid >= 0);
	if (!other.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		if (getppid() == parent)
			run(d, pair[1]);
		_exit(0);
	}
	close(pair[1]);
	other.said = pair[0];
	assert_int_equal(read(pair[0], &byte, 1), 1);
	return other;
}

void raw_other_kill(struct raw_other *other)
{
	kill(other->pid, SIGKILL);
	waitpid(other->pid, NULL, 0);
	close(other->said);
}
