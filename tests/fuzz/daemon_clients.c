/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that send a daemon messages of all types, in any order, changed or not. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fuzz/daemon_fuzz.h"

enum { CLIENTS = 5, KEPT = 32 };

static struct rng chance;

static uint64_t draw(uint64_t below)
{
	return rng_below(&chance, below);
}

/* ----------------------------------------------------------------------------- what is known */

enum kind { LEASE, REGION, FAR_REGION, BLOB, SESSION, KINDS }; /* far: of a device */

/* Numbers that the daemon has told any of the clients; the last ones, at random places. */
static uint64_t known[KINDS][KEPT], newest[KINDS];
static struct sl_lease to_make[KEPT]; /* regions of devices */
static int32_t device = -1;

/* A lease that can be sealed: with what it was asked for, and memory that is there. */
struct ready {
	uint64_t lease, bytes;
	char name[SL_NAME_BYTES];
};

static struct client {
	int fd; /* -1: it is to connect */
	struct sl_reader reader;
	struct sl_held_blob held[KEPT];
	unsigned held_count;
	uint32_t serial;
	struct sl_create_item asked; /* with that serial number */
	uint32_t asked_serial;
	unsigned deaf; /* so many times more it does not read */
	struct ready ready[4];
} clients[CLIENTS];

static void learn(enum kind kind, uint64_t number)
{
	known[kind][draw(KEPT)] = newest[kind] = number;
}

static uint64_t number_of(enum kind kind)
{
	switch (draw(10)) {
	case 0:
		return draw(3) ? draw(50) : draw(UINT64_MAX);
	case 1:
	case 2:
	case 3:
		return known[kind][draw(KEPT)];
	default:
		return newest[kind];
	}
}

static void learn_lease(const struct sl_lease *lease)
{
	if (!lease->id)
		return;
	learn(LEASE, lease->id);
	learn(lease->range.device < 0 ? REGION : FAR_REGION, lease->range.region);
	if (lease->make)
		to_make[draw(KEPT)] = *lease;
}

static void get_ready(struct client *c, const struct sl_lease *lease, uint64_t bytes,
                      const char *name)
{
	struct ready *r = &c->ready[draw(COUNT_OF(c->ready))];

	r->lease = lease->id;
	r->bytes = bytes;
	strcpy(r->name, name);
}

static void learn_from(struct client *c, const union sl_message *m)
{
	if (m->head.type == SL_MSG_LEASES && m->head.serial == c->asked_serial &&
	    !m->leases.items[0].make)
		get_ready(c, &m->leases.items[0], c->asked.bytes, c->asked.name);
	for (unsigned i = 0; i < m->head.count; i++)
		if (m->head.type == SL_MSG_LEASES) {
			learn_lease(&m->leases.items[i]);
		} else if (m->head.type == SL_MSG_FOUND) {
			learn(BLOB, m->found.items[i].id);
			learn_lease(&m->found.items[i].lease);
			/* Some are held, as the library does. */
			if (c->reader.references && c->held_count < KEPT && draw(2) &&
			    !sl_reader_take(&c->reader, m->found.items[i].slot,
			                    m->found.items[i].generation, &c->held[c->held_count]))
				c->held_count++;
		} else if (m->head.type == SL_MSG_FORGET) {
			learn(FAR_REGION, m->ids.items[i].id);
		}
	if (m->head.type == SL_MSG_DEVICE_IS)
		device = m->device_is.item.device;
}

/* ----------------------------------------------------------------------------------- messages */

static void name(char text[SL_NAME_BYTES])
{
	static const char *const names[] = {"",    "f/a",        "f/b",
	                                    "f/c", "f/\xc3\xa4", "f/a longer name of a blob"};

	strcpy(text, names[draw(COUNT_OF(names))]);
}

static uint32_t flags(void)
{
	return draw(2) ? 0 : (uint32_t)draw(SL_BLOB_FLAGS + 1);
}

static void fill_create(struct sl_create_item *item)
{
	static const uint64_t sizes[] = {1, 100, 5000, 70000, 300000, 3000000};

	item->bytes = draw(20) ? sizes[draw(COUNT_OF(sizes))] : draw(INT64_MAX / 2);
	item->device = draw(2) ? device : -1;
	item->kind =
		item->device < 0 ? SLUICE_BLOB_ON_HOST : SLUICE_BLOB_ON_DEVICE + (uint32_t)draw(2);
	item->flags = flags();
	if (item->kind != SLUICE_BLOB_OF_PROCESS && draw(2))
		name(item->name);
}

static void fill_key(struct sl_key *key)
{
	do
		name(key->name);
	while (!key->name[0]);
	if (draw(3))
		return;
	memset(key->name, 0, sizeof(key->name));
	key->id = number_of(BLOB) | 1;
}

static void add_metadata(union sl_message *m)
{
	static char note[SLUICE_BLOB_NOTE_MOST];
	_Alignas(8) unsigned char bytes[SL_METADATA_MOST];
	struct sluice_blob_metadata metadata = SLUICE_BLOB_METADATA_INIT;

	memset(note, (int)draw(256), sizeof(note));
	metadata.note = note;
	metadata.note_bytes = draw(3) ? draw(300) : draw(sizeof(note) + 1);
	if (!sl_metadata_make(&metadata, (struct sl_metadata *)bytes))
		sl_message_add_metadata(m, (struct sl_metadata *)bytes);
}

static void fill_item(struct client *c, union sl_message *m, unsigned i)
{
	struct sl_seal_item *seal = &m->seal.items[i];

	switch (m->head.type) {
	case SL_MSG_CREATE:
		fill_create(&m->create.items[i]);
		break;
	case SL_MSG_SEAL:
		if (draw(3)) {
			const struct ready *r = &c->ready[draw(COUNT_OF(c->ready))];

			seal->lease = r->lease;
			seal->bytes = r->bytes | !r->bytes;
			strcpy(seal->name, r->name);
			if (r->name[0] || draw(4))
				break;
			name(seal->name);
			seal->flags = SLUICE_BLOB_REPLACE;
			seal->replaces = draw(2) ? number_of(BLOB) : 0;
			break;
		}
		seal->lease = number_of(LEASE);
		seal->bytes = draw(3) ? 1 + draw(100) : 1 + draw(100000);
		seal->start = draw(8) ? 0 : draw(100000);
		seal->flags = flags();
		name(seal->name);
		seal->replaces = draw(8) ? 0 : number_of(BLOB);
		break;
	case SL_MSG_GET:
		fill_key(&m->get.items[i]);
		break;
	case SL_MSG_ABORT:
		m->ids.items[i].id = number_of(LEASE);
		break;
	case SL_MSG_NUDGE:
		m->ids.items[i].id = number_of(BLOB);
		break;
	default: /* SL_MSG_DROP, SL_MSG_HAVE */
		m->ids.items[i].id = number_of(draw(3) ? FAR_REGION : REGION);
	}
}

/* All but the last become parts of that. */
static void make_parts(union sl_message *m)
{
	for (unsigned i = 0; i + 1 < m->head.count; i++) {
		struct sl_seal_item *item = &m->seal.items[i];

		item->flags = SL_FLAG_PART;
		item->start = item->replaces = 0;
		memset(item->name, 0, sizeof(item->name));
	}
}

static void fill_body(struct client *c, union sl_message *m)
{
	switch (m->head.type) {
	case SL_MSG_HELLO:
		m->hello.role = draw(4) ? SL_ROLE_CLIENT : SL_ROLE_WATCH;
		m->hello.session = draw(2) ? number_of(SESSION) : 0;
		name(m->hello.prefix);
		break;
	case SL_MSG_ANNOTATE:
		m->annotate.lease = number_of(LEASE);
		add_metadata(m);
		break;
	case SL_MSG_SEAL:
		if (m->head.count == 1 && !draw(4))
			add_metadata(m);
		if (m->head.count > 1 && draw(2))
			make_parts(m);
		break;
	case SL_MSG_GET:
		m->get.timeout_ms = draw(2) ? 0 : (int32_t)draw(50) - 1;
		break;
	case SL_MSG_REGION:
		m->region.region = number_of(draw(2) ? FAR_REGION : REGION);
		m->region.writable = (uint32_t)draw(2);
		break;
	case SL_MSG_LOCATE:
		m->locate.region = number_of(REGION);
		m->locate.offset = draw(4) * 4096;
		break;
	case SL_MSG_DELETE:
	case SL_MSG_PIN:
	case SL_MSG_STAT:
		fill_key(&m->one.key);
		m->one.on = (uint32_t)draw(2);
		break;
	case SL_MSG_LIST:
		m->list.cursor = draw(4) ? draw(100) : draw(UINT64_MAX);
		m->list.most = 1 + (uint32_t)draw(70);
		name(m->list.prefix);
		break;
	case SL_MSG_DEVICE:
		m->device.number = (int32_t)draw(4) - 1;
		if (m->device.number < 0)
			strcpy(m->device.place, draw(2) ? "nowhere:0" : "nowhere:1");
		break;
	case SL_MSG_OFFER:
		if (draw(8)) {
			const struct sl_lease *lease = &to_make[draw(KEPT)];

			m->offer.region = lease->range.region;
			get_ready(c, lease, 1 + draw(100), "");
		} else {
			m->offer.region = number_of(FAR_REGION);
		}
		break;
	case SL_MSG_DAEMON:
		m->daemon.act = SL_DAEMON_UPGRADE;
		break;
	}
}

/* Those that make and give up what others refer to are more frequent. */
static unsigned draw_type(void)
{
	static const unsigned char often[] = {
		SL_MSG_CREATE, SL_MSG_CREATE, SL_MSG_SEAL,  SL_MSG_SEAL,   SL_MSG_OFFER,
		SL_MSG_OFFER,  SL_MSG_HAVE,   SL_MSG_ABORT, SL_MSG_GET,    SL_MSG_REGION,
		SL_MSG_DROP,   SL_MSG_DELETE, SL_MSG_NUDGE, SL_MSG_DEVICE, SL_MSG_ANNOTATE};
	static const unsigned char seldom[] = {SL_MSG_BYE, SL_MSG_HELLO};
	unsigned type;

	if (!draw(2000))
		return SL_MSG_DAEMON;
	if (draw(3))
		return often[draw(COUNT_OF(often))];
	if (!draw(20))
		return seldom[draw(COUNT_OF(seldom))];
	do
		type = 1 + (unsigned)draw(SL_MSG_BYE - 1);
	while (type == SL_MSG_HELLO || type == SL_MSG_DAEMON);
	return type;
}

static void make(struct client *c, union sl_message *m, unsigned type)
{
	bool items = type == SL_MSG_CREATE || type == SL_MSG_SEAL || type == SL_MSG_GET ||
	             type == SL_MSG_ABORT || type == SL_MSG_DROP || type == SL_MSG_HAVE ||
	             type == SL_MSG_NUDGE;
	bool told = type == SL_MSG_ANNOTATE || type == SL_MSG_ABORT || type == SL_MSG_DROP ||
	            type == SL_MSG_HAVE || type == SL_MSG_NUDGE || type == SL_MSG_OFFER ||
	            type == SL_MSG_BYE;
	unsigned count = draw(3) ? 1 : 1 + (unsigned)draw(draw(10) ? 5 : SL_ITEMS_MOST);

	sl_message_begin(m, type, told ? 0 : ++c->serial, items ? count : 0);
	m->head.settled = c->serial - (uint32_t)draw(4);
	for (unsigned i = 0; items && i < count; i++)
		fill_item(c, m, i);
	fill_body(c, m);
	if (type == SL_MSG_CREATE) {
		c->asked = m->create.items[0];
		c->asked_serial = c->serial;
	}
}

/* The daemon is not to be stopped. */
static void leave_it_running(union sl_message *m)
{
	if (m->head.type == SL_MSG_DAEMON && m->daemon.act == SL_DAEMON_STOP)
		m->daemon.act = 0;
}

static size_t mutate(union sl_message *m)
{
	size_t n = m->head.bytes;

	for (uint64_t k = 1 + draw(3); k > 0; k--) {
		size_t at = draw(4) ? draw(SL_MIN(n, sizeof(m->head) + 40)) : draw(n);
		uint64_t number = draw(2) ? draw(UINT64_MAX) : draw(300);

		switch (draw(5)) {
		case 0:
			m->bytes[at] ^= (unsigned char)(1u << draw(8));
			break;
		case 1:
			memcpy(m->bytes + at, &number, SL_MIN(n - at, draw(2) ? 4 : 8));
			break;
		case 2:
			memset(m->bytes + at, 'x', SL_MIN(n - at, draw(2 * SL_NAME_BYTES)));
			break;
		case 3:
			n = 1 + draw(n);
			break;
		default:
			n = SL_MIN(n + draw(400), sizeof(*m));
		}
		if (draw(2) && n >= sizeof(m->head))
			m->head.bytes = (uint32_t)n;
	}
	leave_it_running(m);
	return n;
}

/* --------------------------------------------------------------------------------- descriptors */

static int pair_end(int fds[2])
{
	close(fds[0]);
	return fds[1];
}

/* Of all kinds, for a region or not. */
static int descriptor(uint64_t region)
{
	uint64_t bytes = 4096;
	int fds[2];

	for (unsigned i = 0; i < KEPT; i++)
		if (to_make[i].range.region == region &&
		    to_make[i].range.kind == SLUICE_BLOB_ON_DEVICE)
			bytes = to_make[i].range.region_bytes;
	switch (draw(60)) {
	case 0:
		return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) ? -1 : pair_end(fds);
	case 1:
		return pipe(fds) ? -1 : pair_end(fds);
	case 2:
		return (int)syscall(SYS_pidfd_open, getpid(), 0);
	case 3:
		return open("/dev/null", O_RDONLY | O_CLOEXEC);
	case 4:
		return raw_memory(draw(3) * 4096, draw(2));
	default:
		return raw_memory(bytes, true);
	}
}

static void send_with_descriptors(int fd, const union sl_message *m, size_t n)
{
	static const unsigned counts[] = {2, 3, 16, 100};
	unsigned count = draw(60) ? 1 : counts[draw(COUNT_OF(counts))];
	int fds[100], own = descriptor(m->offer.region);

	for (unsigned i = 0; i < count; i++)
		fds[i] = own;
	if (own >= 0)
		raw_send_with(fd, m, n, fds, count);
	if (own >= 0)
		close(own);
}

/* ------------------------------------------------------------------------------------ clients */

static void leave(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	if (!c->reader.references)
		return;
	sl_segment_unmap((struct sl_segment *)c->reader.segment);
	sl_references_unmap(c->reader.references);
	c->reader = (struct sl_reader){NULL, NULL};
	c->held_count = 0;
}

/* Reads all that there is, or leaves it to be read later. */
static void listen_to(struct client *c)
{
	static union sl_message m;
	int fds[SL_FDS_MOST], cut;
	ssize_t n;

	if (!c->deaf && !draw(400))
		c->deaf = 200;
	if (c->deaf) {
		c->deaf--;
		return;
	}
	if (!draw(4))
		return;
	while ((n = sl_fds_receive(c->fd, &m, sizeof(m), fds, MSG_DONTWAIT, &cut)) > 0) {
		if (m.head.type == SL_MSG_WELCOME) {
			struct sl_segment *segment;

			learn(SESSION, m.welcome.session);
			if (fds[1] >= 0 && !c->reader.references &&
			    !sl_segment_map(fds[0], false, &segment)) {
				c->reader.segment = segment;
				if (sl_references_map(fds[1], true, &c->reader.references))
					sl_segment_unmap(segment);
			}
		} else if (!sl_message_check(&m, (size_t)n, false)) {
			learn_from(c, &m);
		}
		for (int i = 0; i < SL_FDS_MOST; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
	if (n != -EAGAIN)
		leave(c);
}

static void begin(const struct daemon *d, struct client *c)
{
	static union sl_message m;

	c->fd = raw_connect(d);
	if (c->fd < 0)
		return;
	make(c, &m, SL_MSG_HELLO);
	/* With the pidfd that may come with it, or without. */
	if (draw(3))
		raw_send(c->fd, &m, m.head.bytes);
	else
		send_with_descriptors(c->fd, &m, m.head.bytes);
	if (!draw(20)) {
		leave(c);
	} else {
		struct timeval limit = {PATIENCE, 0};
		char byte;

		setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		(void)!recv(c->fd, &byte, 1, MSG_PEEK);
	}
}

static void speak(struct client *c)
{
	static union sl_message m;
	size_t n;
	struct timeval limit = {0, 2000};

	make(c, &m, draw_type());
	n = draw(40) ? m.head.bytes : mutate(&m);
	setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (draw(100) ? m.head.type == SL_MSG_OFFER : m.head.type != SL_MSG_OFFER)
		send_with_descriptors(c->fd, &m, n);
	else
		raw_send(c->fd, &m, n);
}

static void act(const struct daemon *d, struct client *c)
{
	if (c->fd < 0)
		begin(d, c);
	else if (!draw(150))
		leave(c);
	else if (c->held_count && !draw(4))
		sl_reader_release(&c->reader, &c->held[--c->held_count]);
	else
		speak(c);
	if (c->fd >= 0)
		listen_to(c);
}

void fuzz_clients(const struct daemon *d, struct rng r)
{
	chance = r;
	for (unsigned i = 0; i < CLIENTS; i++)
		clients[i] = (struct client){.fd = -1, .serial = (uint32_t)draw(UINT32_MAX)};
	for (unsigned i = 0; i < MESSAGES; i++)
		act(d, &clients[draw(CLIENTS)]);
	/* Half of them says that it is over, the others die. */
	for (unsigned i = 0; i < CLIENTS; i++)
		if (clients[i].fd >= 0 && draw(2)) {
			union sl_message m;

			make(&clients[i], &m, SL_MSG_BYE);
			raw_send(clients[i].fd, &m, m.head.bytes);
		}
	_exit(0);
}
