/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Throws mutated messages at what decides whether one may be looked at, and looks at all that it lets pass, as
 * server and clients do. Arguments: seconds, and a seed to repeat a run.
 */
#include "fuzz/fuzz.h"
#include "protocol/protocol.h"

#include <errno.h>
#include <string.h>

static uint64_t passed[SL_MSG_TYPES];
static volatile uint64_t sum; /* so that nothing that is read is left out */

static void require(bool holds, const char *what, const union sl_message *m)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s, by a message of type %u\n", what, m->head.type);
	abort();
}

/* ------------------------------------------------------------------------------------ messages */

static void add_record(union sl_message *m)
{
	struct sluice_blob_metadata metadata = SLUICE_BLOB_METADATA_INIT;
	static char note[SLUICE_BLOB_NOTE_MOST];
	_Alignas(8) unsigned char bytes[SL_METADATA_MOST];
	struct sl_metadata *record = (struct sl_metadata *)bytes;

	metadata.type = (int)draw(SLUICE_FLOAT8_E8M0 + 3);
	if (metadata.type > SLUICE_FLOAT8_E8M0) /* the types behind it have no whole bytes */
		metadata.type += SLUICE_FLOAT4_E2M1 - SLUICE_FLOAT8_E8M0;
	metadata.rank = metadata.type ? (uint32_t)draw(9) : 0;
	for (unsigned i = 0; i < metadata.rank; i++)
		metadata.shape[i] = (int64_t)draw(3);
	metadata.note = note;
	metadata.note_bytes = draw(4) ? draw(100) : draw(sizeof(note) + 1);
	require(!sl_metadata_make(&metadata, record), "a record cannot be made", m);
	sl_message_add_metadata(m, record);
}

static void name(char text[SL_NAME_BYTES])
{
	static const char *const names[] = {"x", "a/b", "\xc3\xa4", "../..",
	                                    "a longer name of a blob"};

	strcpy(text, names[draw(5)]);
}

static void fill_range(struct sl_region_range *range)
{
	range->region = 1 + draw(10);
	range->region_bytes = 65536;
	range->offset = draw(4) * 4096;
	range->capacity = 4096;
	range->device = (int32_t)draw(3) - 1;
	range->kind = range->device < 0 ? SLUICE_BLOB_ON_HOST : SLUICE_BLOB_ON_DEVICE;
}

static void fill_lease(struct sl_lease *lease)
{
	lease->id = draw(3);
	if (!lease->id)
		return;
	lease->make = (uint32_t)draw(2);
	fill_range(&lease->range);
}

/* One that is right, of any type. */
static void make(union sl_message *m)
{
	unsigned type = 1 + (unsigned)draw(SL_MSG_TYPES - 1), count = 1 + (unsigned)draw(4);
	bool replied = type != SL_MSG_ANNOTATE && type != SL_MSG_ABORT && type != SL_MSG_DROP &&
	               type != SL_MSG_BYE && type != SL_MSG_NUDGE && type != SL_MSG_EVENT &&
	               type != SL_MSG_OFFER && type != SL_MSG_HAVE && type != SL_MSG_FORGET;
	bool items = type == SL_MSG_CREATE || type == SL_MSG_SEAL || type == SL_MSG_ABORT ||
	             type == SL_MSG_GET || type == SL_MSG_DROP || type == SL_MSG_HAVE ||
	             type == SL_MSG_NUDGE || type == SL_MSG_FORGET || type == SL_MSG_LEASES ||
	             type == SL_MSG_FOUND || type == SL_MSG_INFO;

	if (type == SL_MSG_REFUSAL) {
		sl_message_refuse(m, 1, -ENOENT, "it is not there");
		return;
	}
	sl_message_begin(m, type, replied, items ? count : 0);
	for (unsigned i = 0; items && i < count; i++)
		switch (type) {
		case SL_MSG_CREATE:
			m->create.items[i].bytes = 1 + draw(1000);
			m->create.items[i].device = (int32_t)i - 1;
			m->create.items[i].kind = i ? SLUICE_BLOB_OF_PROCESS : SLUICE_BLOB_ON_HOST;
			name(m->create.items[i].name);
			break;
		case SL_MSG_SEAL:
			m->seal.items[i].bytes = UINT64_C(1) << 40;
			name(m->seal.items[i].name);
			break;
		case SL_MSG_GET:
			name(m->get.items[i].name);
			break;
		case SL_MSG_LEASES:
			fill_lease(&m->leases.items[i]);
			break;
		case SL_MSG_FOUND:
			fill_lease(&m->found.items[i].lease);
			break;
		case SL_MSG_INFO:
			name(m->info.items[i].name);
			m->info.items[i].device = (int32_t)i - 1;
			m->info.items[i].kind = i ? SLUICE_BLOB_ON_DEVICE : SLUICE_BLOB_ON_HOST;
			if (i)
				strcpy(m->info.items[i].place, "0000:65:00.0");
			break;
		}
	if (type == SL_MSG_HELLO)
		m->hello.role = SL_ROLE_CLIENT;
	if (type == SL_MSG_DAEMON)
		m->daemon.act = 1 + (uint32_t)draw(2);
	if (type == SL_MSG_DEVICE)
		m->device.number = (int32_t)draw(3) - 1;
	if (type == SL_MSG_DEVICE && m->device.number < 0)
		strcpy(m->device.place, "emulated:0");
	if (type == SL_MSG_DEVICE_IS)
		strcpy(m->device_is.item.place, "emulated:1");
	if (type == SL_MSG_MEMORY) {
		m->memory.device = (int32_t)draw(2) - 1;
		m->memory.kind = m->memory.device < 0 ? SLUICE_BLOB_ON_HOST : SLUICE_BLOB_ON_DEVICE;
	}
	if (type == SL_MSG_LIST)
		m->list.most = 5;
	if (type == SL_MSG_DELETE || type == SL_MSG_PIN || type == SL_MSG_STAT)
		name(m->one.key.name);
	if (type == SL_MSG_ANNOTATE || (type == SL_MSG_SEAL && count == 1 && draw(2)))
		add_record(m);
}

static size_t mutate(union sl_message *m)
{
	size_t n = m->head.bytes;

	for (uint64_t k = draw(4); k > 0; k--) {
		size_t at = draw(4) ? draw(SL_MIN(n, sizeof(m->head) + 40)) : draw(n);
		uint32_t number = draw(2) ? (uint32_t)draw(UINT32_MAX) : (uint32_t)draw(300);

		switch (draw(6)) {
		case 5: /* no string has an end there */
			memset(m->bytes + at, 'x', SL_MIN(n - at, draw(2 * SL_NAME_BYTES)));
			break;
		case 0:
			m->bytes[at] ^= (unsigned char)(1u << draw(8));
			break;
		case 1:
			m->bytes[at] = (unsigned char)draw(256);
			break;
		case 2:
			if (at + 4 <= n)
				memcpy(m->bytes + at, &number, 4);
			break;
		case 3:
			n = draw(n + 1);
			if (draw(2) && n >= sizeof(m->head))
				m->head.bytes = (uint32_t)n;
			break;
		default:
			n = SL_MIN(n + draw(400), sizeof(*m));
			if (draw(2))
				m->head.bytes = (uint32_t)n;
		}
		if (n < sizeof(m->head))
			break;
	}
	return n;
}

/* ----------------------------------------------------------------------------------- who reads */

static void read_name(const union sl_message *m, const char *text)
{
	size_t length = strnlen(text, SL_NAME_BYTES);

	require(length < SL_NAME_BYTES, "a name has no end", m);
	for (size_t i = 0; i < length; i++)
		require((unsigned char)text[i] >= ' ' && text[i] != 0x7f,
		        "a name has a control character", m);
}

static void read_record(const union sl_message *m, uint64_t blob_bytes)
{
	const struct sl_metadata *record = sl_message_metadata(m);
	struct sluice_blob_metadata metadata;

	if (!record)
		return;
	sl_metadata_read(record, &metadata);
	require(metadata.rank <= SLUICE_BLOB_RANK_MOST, "too many dimensions", m);
	for (size_t i = 0; i < metadata.note_bytes; i++)
		sum += ((const unsigned char *)metadata.note)[i];
	require(!metadata.type || sl_type_find(metadata.type), "an unknown type", m);
	require(metadata.offset <= blob_bytes, "a tensor begins behind its blob", m);
}

static void read_range(const union sl_message *m, const struct sl_region_range *range)
{
	require(range->offset <= range->region_bytes &&
	                range->capacity <= range->region_bytes - range->offset,
	        "a range lies outside of its region", m);
}

static void read_message(const union sl_message *m)
{
	passed[m->head.type]++;
	for (unsigned i = 0; i < m->head.count; i++)
		switch (m->head.type) {
		case SL_MSG_CREATE:
			read_name(m, m->create.items[i].name);
			require(m->create.items[i].bytes, "a blob without bytes", m);
			break;
		case SL_MSG_SEAL:
			read_name(m, m->seal.items[i].name);
			break;
		case SL_MSG_GET:
			read_name(m, m->get.items[i].name);
			require(m->get.items[i].id || m->get.items[i].name[0],
			        "nothing is asked for", m);
			break;
		case SL_MSG_ABORT:
		case SL_MSG_DROP:
		case SL_MSG_HAVE:
		case SL_MSG_NUDGE:
		case SL_MSG_FORGET:
			sum += m->ids.items[i].id;
			break;
		case SL_MSG_LEASES:
			read_range(m, &m->leases.items[i].range);
			break;
		case SL_MSG_FOUND:
			read_range(m, &m->found.items[i].lease.range);
			break;
		case SL_MSG_INFO:
			read_name(m, m->info.items[i].name);
			break;
		default:
			require(false, "items where there are none", m);
		}
	if (m->head.type == SL_MSG_HELLO)
		read_name(m, m->hello.prefix);
	if (m->head.type == SL_MSG_DEVICE || m->head.type == SL_MSG_DEVICE_IS)
		require(memchr(m->head.type == SL_MSG_DEVICE ? m->device.place
		                                             : m->device_is.item.place,
		               0, SLUICE_BLOB_PLACE_BYTES),
		        "the name of a device has no end", m);
	if (m->head.type == SL_MSG_LIST)
		read_name(m, m->list.prefix);
	if (m->head.type == SL_MSG_EVENT)
		read_name(m, m->event.item.name);
	if (m->head.type == SL_MSG_SEAL && m->head.count == 1)
		read_record(m, m->seal.items[0].bytes);
	if (m->head.type == SL_MSG_ANNOTATE)
		read_record(m, UINT64_MAX);
	if (m->head.type == SL_MSG_REFUSAL)
		require(m->head.error < 0 && strlen(m->refusal.text) < SL_TEXT_BYTES,
		        "a refusal without an error or an end", m);
}

static void check(const union sl_message *m, size_t n)
{
	/* Of its very length, so that the sanitizer sees one byte too many. */
	union sl_message *exact = malloc(n ? n : 1);

	memcpy(exact, m, n);
	for (int from_client = 0; from_client < 2; from_client++)
		if (!sl_message_check(exact, n, from_client))
			read_message(exact);
	free(exact);
}

static unsigned long runs;
static union sl_message last;

static void check_some(void)
{
	for (int i = 0; i < 1000; i++, runs++) {
		bool client;

		make(&last);
		client = last.head.type < SL_MSG_WELCOME;
		require(!sl_message_check(&last, last.head.bytes, client), sluice_last_message(),
		        &last);
		check(&last, mutate(&last));
	}
}

int main(int argc, char **argv)
{
	fuzz(argc, argv, check_some);
	/* Each type was there, changed, and passed. */
	for (unsigned type = 1; type < SL_MSG_TYPES; type++)
		require(passed[type] > 0, "a type never passes", &last);
	printf("%lu messages\n", runs);
	return 0;
}
