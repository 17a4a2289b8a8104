/* SPDX-License-Identifier: Apache-2.0 */
/* What clients do that do not keep to the protocol. */
#include "sluiced/intruder.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SILENT  1000
#define WAITED  128 /* requests of a client that may wait */
#define FLOODED 20000

static void expect(struct intruder *i, bool right, const char *what)
{
	if (!right && !i->wrong)
		i->wrong = what;
}

static void promise(struct intruder *i)
{
	union sl_message m;
	int fd = raw_connect(i->d);

	sl_message_begin(&m, SL_MSG_HELLO, 1, 0);
	m.head.bytes = UINT32_MAX;
	raw_send(fd, &m, sizeof(m.hello));
	expect(i, is_hung_up(fd), "a message of 4 GiB is waited for");
	close(fd);
	fd = raw_connect(i->d);
	sl_message_begin(&m, SL_MSG_CREATE, 1, 1);
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

	sl_message_begin(&m, SL_MSG_HELLO, 1, 0);
	raw_send(fd, &m, 1 + (size_t)rand() % (m.head.bytes - 1));
	expect(i, is_hung_up(fd), "half a message is taken");
	close(fd);
	fd = raw_client(i->d);
	sl_message_begin(&m, SL_MSG_SEAL, 2, 1);
	raw_send(fd, &m, m.head.bytes - 10);
	expect(i, is_hung_up(fd), "half a seal is taken");
	close(fd);
}

static void send_descriptors(struct intruder *i)
{
	union sl_message m;
	int fd = raw_connect(i->d), fds[100];

	for (unsigned k = 0; k < 100; k++)
		fds[k] = fd;
	sl_message_begin(&m, SL_MSG_HELLO, 1, 0);
	m.hello.role = SL_ROLE_CLIENT;
	if (raw_send_with(fd, &m, m.head.bytes, fds, rand() % 2 ? 1 : 100))
		expect(i, is_hung_up(fd), "descriptors are taken");
	close(fd);
}

/* A connection that is not through with what was sent into it, and whose last descriptor waits for that. end: nobody
 * accepts it there. */
static int make_lingering(int *end)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct linger linger = {1, 2};
	static char much[1 << 20];

	if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &size) ||
	    connect(fd, (struct sockaddr *)&address, size) ||
	    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger))) {
		close(listener);
		close(fd);
		return -1;
	}
	while (send(fd, much, sizeof(much), MSG_DONTWAIT) > 0)
		;
	*end = listener;
	return fd;
}

static void send_what_lingers(struct intruder *i)
{
	union sl_message m;
	int fd = raw_connect(i->d), end = -1, sent = make_lingering(&end), other;
	double begun;

	expect(i, sent >= 0, "there is no connection that lingers");
	sl_message_begin(&m, SL_MSG_HELLO, 1, 0);
	m.hello.role = SL_ROLE_CLIENT;
	raw_send_with(fd, &m, m.head.bytes, &sent, 1);
	close(sent);
	expect(i, is_hung_up(fd), "a descriptor is taken");
	begun = seconds_now();
	other = raw_client(i->d);
	expect(i, other >= 0 && seconds_now() - begun < 1, "others wait for a descriptor's end");
	close(other);
	close(end);
	close(fd);
}

static void speak_otherwise(struct intruder *i)
{
	union sl_message m;
	int fd = raw_connect(i->d);

	sl_message_begin(&m, SL_MSG_HELLO, 1, 0);
	m.hello.role = SL_ROLE_CLIENT;
	m.head.version = SL_PROTOCOL_VERSION + 1;
	raw_send(fd, &m, m.head.bytes);
	expect(i,
	       raw_receive(fd, &m, NULL) > 0 && m.head.type == SL_MSG_REFUSAL &&
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

	sl_message_begin(&m, SL_MSG_CREATE, 2, 1);
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

	sl_message_begin(&m, SL_MSG_GET, 2, 1);
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

	for (unsigned k = 0; k < WAITED + 36; k++) {
		sl_message_begin(&m, SL_MSG_GET, 2 + k, 1);
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
	_Alignas(8) unsigned char record[SL_METADATA_MOST];
	uint64_t tickets[SL_ITEMS_MOST];
	union sl_message m;
	int fd = raw_client(i->d);

	metadata.note = note;
	metadata.note_bytes = sizeof(note);
	sl_metadata_make(&metadata, (struct sl_metadata *)record);
	sl_message_begin(&m, SL_MSG_CREATE, 2, SL_ITEMS_MOST);
	for (unsigned k = 0; k < SL_ITEMS_MOST; k++) {
		m.create.items[k].bytes = 100;
		m.create.items[k].device = -1;
		m.create.items[k].kind = SLUICE_BLOB_ON_HOST;
	}
	raw_send(fd, &m, m.head.bytes);
	expect(i, raw_receive(fd, &m, NULL) > 0 && m.head.count >= SL_ITEMS_MOST, "no leases");
	for (unsigned k = 0; k < SL_ITEMS_MOST; k++)
		tickets[k] = m.leases.items[k].id;
	for (unsigned k = 0; k < 4 * SL_ITEMS_MOST; k++) {
		sl_message_begin(&m, SL_MSG_ANNOTATE, 0, 0);
		m.annotate.lease = tickets[k % SL_ITEMS_MOST];
		sl_message_add_metadata(&m, (const struct sl_metadata *)record);
		raw_send(fd, &m, m.head.bytes);
	}
	sl_message_begin(&m, SL_MSG_STATS, 3, 0);
	raw_send(fd, &m, m.head.bytes);
	expect(i, raw_receive(fd, &m, NULL) > 0 && m.head.type == SL_MSG_COUNTS,
	       "what may be said is not taken");
	sl_message_begin(&m, SL_MSG_BYE, 0, 0);
	raw_send(fd, &m, m.head.bytes);
	close(fd);
}

/* Memory that it may write to, and memory of others. */
static void keep_writing(struct intruder *i)
{
	union sl_message m;
	int fd = raw_client(i->d), memory;
	struct sl_lease lease;

	sl_message_begin(&m, SL_MSG_CREATE, 2, 1);
	m.create.items[0].bytes = 100;
	m.create.items[0].device = -1;
	m.create.items[0].kind = SLUICE_BLOB_ON_HOST;
	raw_send(fd, &m, m.head.bytes);
	raw_receive(fd, &m, NULL);
	lease = m.leases.items[0];
	sl_message_begin(&m, SL_MSG_REGION, 3, 0);
	m.region.region = lease.range.region;
	m.region.writable = 1;
	raw_send(fd, &m, m.head.bytes);
	raw_receive(fd, &m, &memory);
	expect(i, ftruncate(memory, 0) && errno == EPERM, "memory can be made shorter");
	expect(i, ftruncate(memory, 1 << 30) && errno == EPERM, "memory can be made longer");
	/* Somebody else's memory, whichever it is. */
	for (uint64_t region = 1; region < lease.range.region; region++) {
		sl_message_begin(&m, SL_MSG_REGION, 5, 0);
		m.region.region = region;
		m.region.writable = 1;
		raw_send(fd, &m, m.head.bytes);
		expect(i, raw_receive(fd, &m, NULL) > 0 && m.head.error == -ESTALE,
		       "memory of others can be had for writing");
	}
	close(memory);
	/* Without it, what it has would be its own until this process is dead. */
	sl_message_begin(&m, SL_MSG_BYE, 0, 0);
	raw_send(fd, &m, m.head.bytes);
	close(fd);
}

/* ------------------------------------------------------------------------------- with devices */

/* Names of others in a way that our library does not ask for. */
static void replace_wrongly(struct intruder *i)
{
	union sl_message m;
	int fd = raw_client(i->d);
	uint64_t tickets[2];

	sl_message_begin(&m, SL_MSG_CREATE, 2, 2);
	for (unsigned k = 0; k < 2; k++) {
		m.create.items[k].bytes = 100;
		m.create.items[k].device = -1;
		m.create.items[k].kind = SLUICE_BLOB_ON_HOST;
		if (k)
			strcpy(m.create.items[k].name, "reserved");
	}
	raw_send(fd, &m, m.head.bytes);
	raw_receive(fd, &m, NULL);
	tickets[0] = m.leases.items[0].id;
	tickets[1] = m.leases.items[1].id;
	/* Several at once, and one whose name is there already. */
	for (unsigned count = 2; count; count--) {
		sl_message_begin(&m, SL_MSG_SEAL, 5 - count, count);
		for (unsigned k = 0; k < count; k++) {
			m.seal.items[k].lease = tickets[count == 2 ? k : 1];
			m.seal.items[k].bytes = 100;
			m.seal.items[k].flags = SLUICE_BLOB_REPLACE;
			strcpy(m.seal.items[k].name, k == 0 && count == 2 ? "good" : "reserved");
		}
		raw_send(fd, &m, m.head.bytes);
		expect(i, raw_receive(fd, &m, NULL) > 0 && m.head.error == -EINVAL,
		       "a seal replaces that must not");
	}
	sl_message_begin(&m, SL_MSG_BYE, 0, 0);
	raw_send(fd, &m, m.head.bytes);
	close(fd);
}

/* A seal with an id to be replaced: without REPLACE, without a name, and in a part. */
static void replace_nothing(struct intruder *i)
{
	for (unsigned how = 0; how < 3; how++) {
		union sl_message m;
		int fd = raw_client(i->d);

		sl_message_begin(&m, SL_MSG_SEAL, 2, how == 2 ? 2 : 1);
		m.seal.items[0].bytes = m.seal.items[1].bytes = 100;
		m.seal.items[0].flags = how == 2 ? SL_FLAG_PART : how ? SLUICE_BLOB_REPLACE : 0;
		m.seal.items[0].replaces = 1;
		strcpy(m.seal.items[0].name, how ? "" : "good");
		raw_send(fd, &m, m.head.bytes);
		expect(i, raw_receive(fd, &m, NULL) <= 0 || m.head.serial == SL_SERIAL_ANY,
		       "an id to be replaced where none can be");
		close(fd);
	}
}

static int32_t device_number(int fd, const char *place)
{
	union sl_message m;

	sl_message_begin(&m, SL_MSG_DEVICE, 2, 0);
	m.device.number = -1;
	snprintf(m.device.place, sizeof(m.device.place), "%s", place);
	raw_send(fd, &m, m.head.bytes);
	return raw_receive(fd, &m, NULL) > 0 && m.head.type == SL_MSG_DEVICE_IS
	               ? m.device_is.item.device
	               : -1;
}

static void say_bye(int fd)
{
	union sl_message m;

	sl_message_begin(&m, SL_MSG_BYE, 0, 0);
	raw_send(fd, &m, m.head.bytes);
	close(fd);
}

/* Makes one up place after the other. */
static void name_places(struct intruder *i)
{
	char place[SLUICE_BLOB_PLACE_BYTES];
	int fd = raw_client(i->d);
	unsigned known = 0;

	for (unsigned k = 0; k < 100; k++) {
		snprintf(place, sizeof(place), "nowhere:%u", k);
		known += device_number(fd, place) >= 0;
	}
	expect(i, known == 64, "another number of places is made known than there may be");
	say_bye(fd);
}

static bool receive_answer(int fd, union sl_message *m, uint32_t serial)
{
	while (raw_receive(fd, m, NULL) > 0)
		if (m->head.serial == serial)
			return true;
	return false;
}

/* The range of a blob of its own on a device. */
static bool lease_memory(int fd, int32_t device, uint32_t kind, struct sl_lease *out)
{
	union sl_message m;

	sl_message_begin(&m, SL_MSG_CREATE, 3, 1);
	m.create.items[0].bytes = 1;
	m.create.items[0].device = device;
	m.create.items[0].kind = kind;
	m.create.items[0].flags = SLUICE_BLOB_ALONE;
	raw_send(fd, &m, m.head.bytes);
	if (!receive_answer(fd, &m, 3) || m.head.type != SL_MSG_LEASES)
		return false;
	*out = m.leases.items[0];
	return true;
}

static uint64_t seal_memory(int fd, const struct sl_lease *lease)
{
	union sl_message m;

	sl_message_begin(&m, SL_MSG_SEAL, 4, 1);
	m.seal.items[0].lease = lease->id;
	m.seal.items[0].bytes = 1;
	raw_send(fd, &m, m.head.bytes);
	return receive_answer(fd, &m, 4) && m.head.type == SL_MSG_FOUND ? m.found.items[0].id : 0;
}

/* Offers more than it may, and never unmaps anything. */
static void offer_and_keep(struct intruder *i)
{
	int fd = raw_client(i->d);
	int32_t device = device_number(fd, "nowhere:0");
	struct sl_lease lease;
	union sl_message m;
	uint64_t id;

	for (unsigned k = 0; k < 200; k++) {
		bool letter = k % 16;
		int memory = raw_memory(letter ? 4096 : 2 * MIB, true);

		if (!lease_memory(fd, device,
		                  letter ? SLUICE_BLOB_OF_PROCESS : SLUICE_BLOB_ON_DEVICE,
		                  &lease)) {
			expect(i, false, "there is no memory of a device");
			break;
		}
		sl_message_begin(&m, SL_MSG_OFFER, 0, 0);
		m.offer.region = lease.range.region;
		raw_send_with(fd, &m, m.head.bytes, &memory, 1);
		close(memory);
		id = seal_memory(fd, &lease);
		expect(i, id, "a blob on a device is not sealed");
		sl_message_begin(&m, SL_MSG_DELETE, 5, 0);
		m.one.key.id = id;
		raw_send(fd, &m, m.head.bytes);
	}
	say_bye(fd);
}

/* Leases on and on, and offers nothing. */
static void lease_and_keep(struct intruder *i)
{
	int fd = raw_client(i->d);
	int32_t device = device_number(fd, "nowhere:0");
	struct sl_lease lease;
	unsigned count = 0;

	while (count < 2000 && lease_memory(fd, device, SLUICE_BLOB_ON_DEVICE, &lease))
		count++;
	expect(i, count == 1024, "a client has another number of leases than it may");
	say_bye(fd);
}

/* Has mapped memory that it is only to make, and gives it up. */
static void have_before_offer(struct intruder *i)
{
	union sl_message m;
	int fd = raw_client(i->d);
	struct sl_lease lease;

	expect(i,
	       lease_memory(fd, device_number(fd, "nowhere:0"), SLUICE_BLOB_ON_DEVICE, &lease) &&
	               lease.make,
	       "there is no memory of a device");
	sl_message_begin(&m, SL_MSG_HAVE, 0, 1);
	m.ids.items[0].id = lease.range.region;
	raw_send(fd, &m, m.head.bytes);
	sl_message_begin(&m, SL_MSG_ABORT, 0, 1);
	m.ids.items[0].id = lease.id;
	raw_send(fd, &m, m.head.bytes);
	expect(i,
	       raw_receive(fd, &m, NULL) > 0 && m.head.type == SL_MSG_FORGET &&
	               m.ids.items[0].id == lease.range.region,
	       "memory that nobody has offered is had");
	close(fd);
}

/* Has mapped what nobody knows, and does not hear that it is to be unmapped. */
static void have_much(struct intruder *i)
{
	union sl_message m;
	int fd = raw_client(i->d);

	sl_message_begin(&m, SL_MSG_HAVE, 0, SL_ITEMS_MOST);
	for (unsigned k = 0; k < SL_ITEMS_MOST; k++)
		m.ids.items[k].id = UINT64_MAX - k;
	for (unsigned k = 0; k < FLOODED && !atomic_load(&i->stop); k++)
		if (send(fd, &m, m.head.bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			sleep_ms(1);
	close(fd);
}

/* ---------------------------------------------------------------------------------- refusals */

#define HELD 8000

static void begin_create(union sl_message *m, uint32_t serial, uint64_t bytes, uint32_t flags)
{
	sl_message_begin(m, SL_MSG_CREATE, serial, 1);
	m->create.items[0].bytes = bytes;
	m->create.items[0].device = -1;
	m->create.items[0].kind = SLUICE_BLOB_ON_HOST;
	m->create.items[0].flags = flags;
}

/* A blob with memory of its own; 0: there is no room. */
static uint64_t fill(int fd)
{
	union sl_message m;
	uint64_t ticket;

	begin_create(&m, 2, 1, SLUICE_BLOB_ALONE);
	raw_send(fd, &m, m.head.bytes);
	if (raw_receive(fd, &m, NULL) <= 0 || m.head.type != SL_MSG_LEASES)
		return 0;
	ticket = m.leases.items[0].id;
	sl_message_begin(&m, SL_MSG_SEAL, 3, 1);
	m.seal.items[0].lease = ticket;
	m.seal.items[0].bytes = 1;
	raw_send(fd, &m, m.head.bytes);
	return raw_receive(fd, &m, NULL) > 0 && m.head.type == SL_MSG_FOUND ? m.found.items[0].id
	                                                                    : 0;
}

static uint64_t filled[HELD];
static unsigned filled_count;

static void fill_up(struct intruder *i)
{
	int fd = raw_client(i->d);

	filled_count = 0;
	while (filled_count < HELD && (filled[filled_count] = fill(fd)))
		filled_count++;
	expect(i, filled_count > 1000, "there is no room for a thousand blobs");
	say_bye(fd);
}

static void empty(struct intruder *i)
{
	union sl_message m;
	int fd = raw_client(i->d);

	for (unsigned k = 0; k < filled_count; k++) {
		sl_message_begin(&m, SL_MSG_DELETE, 5, 0);
		m.one.key.id = filled[k];
		raw_send(fd, &m, m.head.bytes);
		expect(i, raw_receive(fd, &m, NULL) > 0 && m.head.type == SL_MSG_DONE,
		       "a blob cannot be deleted");
	}
	say_bye(fd);
}

/* Two that want, over and over again, what cannot be, while there are thousands of blobs. */
static void be_refused(struct intruder *i)
{
	union sl_message m;
	int fds[2] = {raw_client(i->d), raw_client(i->d)};

	while (!atomic_load(&i->stop)) {
		for (unsigned k = 0; k < 2; k++) {
			begin_create(&m, 4, (uint64_t)(k ? 250 : 257) << 20, 0);
			raw_send(fds[k], &m, m.head.bytes);
		}
		for (unsigned k = 0; k < 2; k++)
			expect(i, raw_receive(fds[k], &m, NULL) > 0 && m.head.error == -ENOSPC,
			       "there is more memory than there is");
	}
	say_bye(fds[0]);
	say_bye(fds[1]);
}

const struct intruder_act intruder_acts[] = {
	{"promises", promise, NULL, NULL},
	{"silence", be_silent, NULL, NULL},
	{"halves", say_half, NULL, NULL},
	{"descriptors", send_descriptors, NULL, NULL},
	{"lingering", send_what_lingers, NULL, NULL},
	{"versions", speak_otherwise, NULL, NULL},
	{"names", misname, NULL, NULL},
	{"floods", flood, NULL, NULL},
	{"waits", wait_in_vain, NULL, NULL},
	{"notes", annotate, NULL, NULL},
	{"writers", keep_writing, NULL, NULL},
	{"replacers", replace_wrongly, NULL, NULL},
	{"replacers of nothing", replace_nothing, NULL, NULL},
	{"places", name_places, NULL, NULL},
	{"offers", offer_and_keep, NULL, NULL},
	{"leases", lease_and_keep, NULL, NULL},
	{"haves", have_much, NULL, NULL},
	{"haves too early", have_before_offer, NULL, NULL},
	{"refusals", be_refused, fill_up, empty},
	{NULL, NULL, NULL, NULL},
};
