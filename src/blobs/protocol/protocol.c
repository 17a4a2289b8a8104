/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: their layout, and checks of everything that was received
 *
 * Two tables describe each type of message: its parts, and the values of its fields. Used by the
 * server and by clients; any thread.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "protocol/protocol.h"

#define HEAD         sizeof(struct sl_head)
#define ROUND(bytes) (((bytes) + 7) & ~(size_t)7)
/* Whether a client sends a message, and whether it has a serial number. */
#define ASKED    true, true
#define TOLD     true, false
#define ANSWERED false, true
#define SENT     false, false

/* The parts of each type of message. */
static const struct message_shape {
	bool from_client;
	bool replied;  /* has a serial number: a request, or the reply to it */
	uint32_t body; /* size, including the header */
	uint32_t item;
	uint32_t least, most; /* number of items */
	uint32_t behind;      /* bytes that may follow the items */
} shapes[SL_MSG_TYPES] = {
	[SL_MSG_HELLO] = {ASKED, sizeof(struct sl_msg_hello)},
	[SL_MSG_CREATE] = {ASKED, HEAD, sizeof(struct sl_create_item), 1, SL_ITEMS_MOST},
	[SL_MSG_SEAL] = {ASKED, HEAD, sizeof(struct sl_seal_item), 1, SL_ITEMS_MOST,
                         SL_METADATA_MOST},
	[SL_MSG_ANNOTATE] = {TOLD, sizeof(struct sl_msg_annotate), .behind = SL_METADATA_MOST},
	[SL_MSG_ABORT] = {TOLD, HEAD, sizeof(struct sl_id_item), 1, SL_ITEMS_MOST},
	[SL_MSG_GET] = {ASKED, sizeof(struct sl_msg_get), sizeof(struct sl_key), 1, SL_ITEMS_MOST},
	[SL_MSG_REGION] = {ASKED, sizeof(struct sl_msg_region)},
	[SL_MSG_LOCATE] = {ASKED, sizeof(struct sl_msg_locate)},
	[SL_MSG_DROP] = {TOLD, HEAD, sizeof(struct sl_id_item), 1, SL_ITEMS_MOST},
	[SL_MSG_NUDGE] = {TOLD, HEAD, sizeof(struct sl_id_item), 0, SL_ITEMS_MOST},
	[SL_MSG_DELETE] = {ASKED, sizeof(struct sl_msg_one_blob)},
	[SL_MSG_PIN] = {ASKED, sizeof(struct sl_msg_one_blob)},
	[SL_MSG_STAT] = {ASKED, sizeof(struct sl_msg_one_blob)},
	[SL_MSG_LIST] = {ASKED, sizeof(struct sl_msg_list)},
	[SL_MSG_STATS] = {ASKED, HEAD},
	[SL_MSG_TRIM] = {ASKED, HEAD},
	[SL_MSG_DEVICE] = {ASKED, sizeof(struct sl_msg_device)},
	[SL_MSG_OFFER] = {TOLD, sizeof(struct sl_msg_offer)},
	[SL_MSG_HAVE] = {TOLD, HEAD, sizeof(struct sl_id_item), 1, SL_ITEMS_MOST},
	[SL_MSG_DAEMON] = {ASKED, sizeof(struct sl_msg_daemon)},
	[SL_MSG_BYE] = {TOLD, HEAD},
	[SL_MSG_WELCOME] = {ANSWERED, sizeof(struct sl_msg_welcome)},
	[SL_MSG_LEASES] = {ANSWERED, HEAD, sizeof(struct sl_lease), 1, 2 * SL_ITEMS_MOST},
	[SL_MSG_FOUND] = {ANSWERED, HEAD, sizeof(struct sl_found_item), 1, SL_ITEMS_MOST},
	[SL_MSG_MEMORY] = {ANSWERED, sizeof(struct sl_msg_memory)},
	[SL_MSG_DONE] = {ANSWERED, HEAD},
	[SL_MSG_INFO] = {ANSWERED, sizeof(struct sl_msg_info), sizeof(struct sluice_blob_info), 0,
                         SL_ITEMS_MOST},
	[SL_MSG_COUNTS] = {ANSWERED, sizeof(struct sl_msg_counts)},
	[SL_MSG_REFUSAL] = {ANSWERED, sizeof(struct sl_msg_refusal)},
	[SL_MSG_DEVICE_IS] = {ANSWERED, sizeof(struct sl_msg_device_is)},
	[SL_MSG_FORGET] = {SENT, HEAD, sizeof(struct sl_id_item), 1, SL_ITEMS_MOST},
	[SL_MSG_EVENT] = {SENT, sizeof(struct sl_msg_event)},
};

/*
 * Fields with restricted values. A number has 4 or 8 bytes, is signed, and is checked against least
 * and most; a longer field is a string of at least `least` bytes. A field at an offset beyond the
 * body is in each item.
 */
#define FIELD(member) offsetof(union sl_message, member), sizeof(((union sl_message *)0)->member)
static const struct message_field {
	uint16_t type, at, bytes;
	int64_t least, most;
} fields[] = {
	{SL_MSG_HELLO, FIELD(hello.role), SL_ROLE_CLIENT, SL_ROLE_WATCH},
	{SL_MSG_HELLO, FIELD(hello.prefix), 0, 0},
	{SL_MSG_CREATE, FIELD(create.items[0].bytes), 1, INT64_MAX / 2},
	{SL_MSG_CREATE, FIELD(create.items[0].device), -1, INT32_MAX},
	{SL_MSG_CREATE, FIELD(create.items[0].flags), 0, SL_BLOB_FLAGS},
	{SL_MSG_CREATE, FIELD(create.items[0].kind), SLUICE_BLOB_ON_HOST, SLUICE_BLOB_OF_PROCESS},
	{SL_MSG_CREATE, FIELD(create.items[0].name), 0, 0},
	{SL_MSG_SEAL, FIELD(seal.items[0].bytes), 1, INT64_MAX / 2},
	{SL_MSG_SEAL, FIELD(seal.items[0].start), 0, INT64_MAX / 2},
	{SL_MSG_SEAL, FIELD(seal.items[0].flags), 0, SL_BLOB_FLAGS | SL_FLAG_PART},
	{SL_MSG_SEAL, FIELD(seal.items[0].name), 0, 0},
	{SL_MSG_GET, FIELD(get.items[0].name), 0, 0},
	{SL_MSG_DELETE, FIELD(one.key.name), 0, 0},
	{SL_MSG_PIN, FIELD(one.key.name), 0, 0},
	{SL_MSG_STAT, FIELD(one.key.name), 0, 0},
	{SL_MSG_LIST, FIELD(list.most), 1, INT32_MAX},
	{SL_MSG_LIST, FIELD(list.prefix), 0, 0},
	{SL_MSG_DEVICE, FIELD(device.number), -1, INT32_MAX},
	{SL_MSG_DEVICE, FIELD(device.place), 0, 0},
	{SL_MSG_DAEMON, FIELD(daemon.act), SL_DAEMON_UPGRADE, SL_DAEMON_STOP},
	{SL_MSG_INFO, FIELD(info.items[0].name), 0, 0},
	{SL_MSG_INFO, FIELD(info.items[0].place), 0, 0},
	{SL_MSG_REFUSAL, FIELD(head.error), -4095, -1},
	{SL_MSG_DEVICE_IS, FIELD(device_is.item.device), 0, INT32_MAX},
	{SL_MSG_DEVICE_IS, FIELD(device_is.item.place), 1, 0},
	{SL_MSG_EVENT, FIELD(event.item.name), 0, 0},
};

size_t sl_message_begin(union sl_message *m, enum sl_message_type type, uint32_t serial,
                        unsigned count)
{
	size_t bytes = shapes[type].body + (size_t)count * shapes[type].item;

	memset(m, 0, bytes);
	m->head = (struct sl_head){.magic = SL_PROTOCOL_MAGIC,
	                           .version = SL_PROTOCOL_VERSION,
	                           .type = type,
	                           .serial = serial,
	                           .bytes = (uint32_t)bytes,
	                           .count = count};
	return bytes;
}

void sl_message_add_metadata(union sl_message *m, const struct sl_metadata *metadata)
{
	unsigned char *end = m->bytes + m->head.bytes;
	size_t bytes = sl_metadata_bytes(metadata);

	memcpy(end, metadata, bytes);
	memset(end + bytes, 0, ROUND(bytes) - bytes);
	m->head.bytes += (uint32_t)ROUND(bytes);
}

void sl_message_refuse(union sl_message *m, uint32_t serial, int error, const char *text)
{
	sl_message_begin(m, SL_MSG_REFUSAL, serial, 0);
	m->head.error = error;
	strncpy(m->refusal.text, text, sizeof(m->refusal.text) - 1);
}

static size_t message_items_end(const union sl_message *m)
{
	const struct message_shape *shape = &shapes[m->head.type];

	return shape->body + (size_t)m->head.count * shape->item;
}

const struct sl_metadata *sl_message_metadata(const union sl_message *m)
{
	size_t end = message_items_end(m);

	return end < m->head.bytes ? (const struct sl_metadata *)(m->bytes + end) : NULL;
}

/* ------------------------------------------------------------------------------- what is said */

int sl_name_check(const char *name, size_t size, bool empty)
{
	size_t length = strnlen(name, size);
	uint32_t c;

	if (length >= SL_MIN(size, SL_NAME_BYTES))
		return sl_fail(-EINVAL, "a name has at most %d bytes", SLUICE_BLOB_NAME_MOST);
	if (!length && !empty)
		return sl_fail(-EINVAL, "a name is empty");
	for (size_t at = 0, n; at < length; at += n) {
		n = sl_utf8_sequence(name + at, length - at, &c);
		if (!n || c < 0x20 || (c >= 0x7f && c < 0xa0))
			return sl_fail(-EINVAL,
			               "a name is no UTF-8, or has control characters in it");
	}
	return 0;
}

/* ------------------------------------------------------------------------------------ records */

/* Returns a number that follows the record, at any alignment. */
static int64_t metadata_number(const struct sl_metadata *metadata, unsigned index)
{
	int64_t number;

	memcpy(&number, (const char *)(metadata + 1) + 8 * (size_t)index, sizeof(number));
	return number;
}

/* Returns the bytes from the first element of a tensor to the end of the last; -1: too many. */
static int64_t metadata_extent(const struct sl_metadata *metadata)
{
	uint64_t element = sl_type_bytes(sl_type_find((int)metadata->type)), last = 0;

	for (unsigned i = 0; i < metadata->rank; i++) {
		int64_t length = metadata_number(metadata, i),
			stride = metadata_number(metadata, metadata->rank + i);
		uint64_t span;

		if (!length)
			return 0;
		if (__builtin_mul_overflow((uint64_t)length - 1, (uint64_t)stride, &span) ||
		    __builtin_add_overflow(last, span, &last))
			return -1;
	}
	if (__builtin_add_overflow(last, 1, &last) ||
	    __builtin_mul_overflow(last, element, &last) || last > INT64_MAX)
		return -1;
	return (int64_t)last;
}

int sl_metadata_check(const struct sl_metadata *m, size_t n, uint64_t blob_bytes)
{
	if (n < sizeof(*m) || m->rank > SLUICE_BLOB_RANK_MOST ||
	    m->note_bytes > SLUICE_BLOB_NOTE_MOST || m->zero || sl_metadata_bytes(m) != n)
		return sl_fail(-EINVAL, "metadata: not as long as it says");
	if (!m->type)
		return m->rank || m->offset ? sl_fail(-EINVAL, "metadata: a tensor without a type")
		                            : 0;
	const struct sl_type *type = sl_type_find((int)m->type);
	if (!type)
		return sl_fail(-EINVAL, "metadata: %d is no type", (int)m->type);
	if (!type->bits || type->bits % 8)
		return sl_fail(-EINVAL,
		               "metadata: elements of a blob have whole bytes, and %s has not",
		               type->name);
	for (unsigned i = 0; i < 2 * m->rank; i++)
		if (metadata_number(m, i) < 0)
			return sl_fail(-EINVAL, "metadata: a dimension or a stride is negative");
	int64_t extent = metadata_extent(m);
	if (extent < 0 || m->offset > blob_bytes || (uint64_t)extent > blob_bytes - m->offset)
		return sl_fail(-EINVAL, "metadata: the tensor is larger than its blob");
	return 0;
}

/* Fills in compact strides where none were given. */
static int metadata_fill_strides(struct sluice_blob_metadata *m)
{
	int64_t next = 1;

	for (unsigned i = 0; i < m->rank; i++)
		if (m->strides[i])
			return 0;
	for (unsigned i = m->rank; i-- > 0;) {
		m->strides[i] = next;
		if (__builtin_mul_overflow(next, SL_MAX(m->shape[i], 1), &next))
			return sl_fail(-EINVAL, "metadata: the shape is too large");
	}
	return 0;
}

int sl_metadata_make(const struct sluice_blob_metadata *from, struct sl_metadata *to)
{
	struct sluice_blob_metadata m = {0};
	int64_t *numbers = (int64_t *)(to + 1);

	if (from->size < sizeof(from->size))
		return sl_fail(-EINVAL, "metadata: size is not set");
	memcpy(&m, from, SL_MIN(from->size, sizeof(m)));
	if (m.rank > SLUICE_BLOB_RANK_MOST)
		return sl_fail(-EINVAL, "metadata: more than %d dimensions", SLUICE_BLOB_RANK_MOST);
	if (m.note_bytes > SLUICE_BLOB_NOTE_MOST || (m.note_bytes && !m.note))
		return sl_fail(-EINVAL, "metadata: a note of %zu bytes; there may be %d",
		               m.note_bytes, SLUICE_BLOB_NOTE_MOST);
	if (metadata_fill_strides(&m))
		return -EINVAL;
	*to = (struct sl_metadata){.type = (uint32_t)m.type,
	                           .rank = m.rank,
	                           .offset = m.offset,
	                           .note_bytes = (uint32_t)m.note_bytes};
	memcpy(numbers, m.shape, m.rank * sizeof(*numbers));
	memcpy(numbers + m.rank, m.strides, m.rank * sizeof(*numbers));
	if (m.note_bytes)
		memcpy(numbers + 2 * (size_t)m.rank, m.note, m.note_bytes);
	return 0;
}

void sl_metadata_read(const struct sl_metadata *metadata, struct sluice_blob_metadata *to)
{
	*to = (struct sluice_blob_metadata){.size = sizeof(*to),
	                                    .type = (int)metadata->type,
	                                    .rank = metadata->rank,
	                                    .offset = metadata->offset,
	                                    .note_bytes = metadata->note_bytes};
	for (unsigned i = 0; i < metadata->rank; i++) {
		to->shape[i] = metadata_number(metadata, i);
		to->strides[i] = metadata_number(metadata, metadata->rank + i);
	}
	if (metadata->note_bytes)
		to->note = (const char *)(metadata + 1) + (size_t)metadata->rank * 16;
}

/* ----------------------------------------------------------------------------------- messages */

/* Checks the metadata behind the items, which must end with the message, up to padding. */
static int message_check_metadata(const union sl_message *m, bool needed, uint64_t blob_bytes)
{
	size_t start = message_items_end(m), rest = m->head.bytes - start;
	const struct sl_metadata *metadata = (const struct sl_metadata *)(m->bytes + start);

	if (!rest && !needed)
		return 0;
	if (rest < sizeof(*metadata) || ROUND(sl_metadata_bytes(metadata)) != rest)
		return sl_fail(-EPROTO, "a record is not as long as it says");
	return sl_metadata_check(metadata, sl_metadata_bytes(metadata), blob_bytes);
}

/* Checks a name, and that only zeros follow it. */
static bool string_is_valid(const char *text, size_t size, size_t least)
{
	size_t length = 0;

	while (length < size && text[length])
		length++;
	for (size_t i = length; i < size; i++)
		if (text[i])
			return false;
	return length >= least && !sl_name_check(text, size, true);
}

static bool field_is_valid(const struct message_field *field, const unsigned char *at)
{
	int64_t large;
	int32_t small;

	if (field->bytes > sizeof(large))
		return string_is_valid((const char *)at, field->bytes, (size_t)field->least);
	memcpy(&large, at, field->bytes);
	memcpy(&small, at, sizeof(small));
	if (field->bytes == sizeof(small))
		large = small;
	return large >= field->least && large <= field->most;
}

static int message_check_fields(const union sl_message *m)
{
	const struct message_shape *shape = &shapes[m->head.type];

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		const struct message_field *field = &fields[i];
		unsigned count = field->at < shape->body ? 1 : m->head.count;

		if (field->type != m->head.type)
			continue;
		for (unsigned j = 0; j < count; j++)
			if (!field_is_valid(field, m->bytes + field->at + (size_t)j * shape->item))
				return sl_fail(
					-EPROTO,
					"a message of type %u: a value that cannot be, at byte %u",
					m->head.type, field->at);
	}
	return 0;
}

/* Checks that a key has either an id or a name. */
static bool key_is_valid(const struct sl_key *key)
{
	return !key->id == !!key->name[0];
}

static bool range_is_in_region(const struct sl_region_range *range)
{
	return range->offset <= range->region_bytes &&
	       range->capacity <= range->region_bytes - range->offset;
}

/* Checks that all items but the last are parts, or none. */
static bool seal_item_is_valid(const union sl_message *m, unsigned item)
{
	const struct sl_seal_item *at = &m->seal.items[item];

	if (item < sl_message_parts(m))
		return at->flags == SL_FLAG_PART && !at->name[0] && !at->start && !at->replaces;
	if (at->replaces && !(at->flags & SLUICE_BLOB_REPLACE && at->name[0]))
		return false;
	return !(at->flags & SL_FLAG_PART) && (m->head.count == 1 || !sl_message_metadata(m));
}

/* Checks whether the fields of an item, or of a message without items, are consistent. */
static bool message_is_consistent(const union sl_message *m, unsigned item)
{
	switch (m->head.type) {
	case SL_MSG_CREATE:
		return (m->create.items[item].device == -1) ==
		       (m->create.items[item].kind == SLUICE_BLOB_ON_HOST);
	case SL_MSG_SEAL:
		return seal_item_is_valid(m, item);
	case SL_MSG_GET:
		return key_is_valid(&m->get.items[item]);
	case SL_MSG_DELETE:
	case SL_MSG_PIN:
	case SL_MSG_STAT:
		return key_is_valid(&m->one.key);
	case SL_MSG_DEVICE:
		return (m->device.number == -1) == !!m->device.place[0];
	case SL_MSG_LEASES:
	case SL_MSG_FOUND:
		return range_is_in_region(&sl_message_lease(m, item)->range);
	case SL_MSG_REFUSAL:
		return memchr(m->refusal.text, 0, sizeof(m->refusal.text));
	default:
		return true;
	}
}

static int message_check_body(const union sl_message *m)
{
	int rc = message_check_fields(m);

	for (unsigned i = 0; !rc && i < SL_MAX(m->head.count, 1); i++)
		if (!message_is_consistent(m, i))
			rc = sl_fail(-EPROTO, "a message of type %u: its values do not go together",
			             m->head.type);
	if (!rc && m->head.type == SL_MSG_SEAL)
		rc = message_check_metadata(m, false, m->seal.items[0].bytes);
	if (!rc && m->head.type == SL_MSG_ANNOTATE)
		rc = message_check_metadata(m, true, UINT64_MAX);
	return rc;
}

int sl_message_check(const union sl_message *m, size_t n, bool from_client)
{
	if (n < sizeof(m->head) || m->head.magic != SL_PROTOCOL_MAGIC)
		return sl_fail(-EPROTO, "no message of the store");
	if (m->head.version != SL_PROTOCOL_VERSION)
		return sl_fail(-EPROTO,
		               "the %s speaks version %u of the store's protocol, and this %s "
		               "version %d: both have to be of one release",
		               from_client ? "client" : "daemon", m->head.version,
		               from_client ? "daemon" : "program", SL_PROTOCOL_VERSION);
	if (!m->head.type || m->head.type >= SL_MSG_TYPES ||
	    shapes[m->head.type].from_client != from_client)
		return sl_fail(-EPROTO, "a message of type %u", m->head.type);
	const struct message_shape *shape = &shapes[m->head.type];
	if (m->head.bytes != n || n > SL_MESSAGE_MOST)
		return sl_fail(-EPROTO, "a message of %zu bytes that says %u", n, m->head.bytes);
	if (m->head.count < shape->least || m->head.count > shape->most)
		return sl_fail(-EPROTO, "a message of %u items", m->head.count);
	size_t least = shape->body + (size_t)m->head.count * shape->item;
	if (n < least || n - least > shape->behind)
		return sl_fail(-EPROTO, "a message of %zu bytes with %u items", n, m->head.count);
	if (shape->replied != (m->head.serial != 0))
		return sl_fail(-EPROTO, "a serial number that is not to be, or is missing");
	if ((m->head.error != 0) != (m->head.type == SL_MSG_REFUSAL))
		return sl_fail(-EPROTO, "an error where there is none");
	/* A wrong name breaks the protocol as well, because the library does not send it. */
	return message_check_body(m) ? -EPROTO : 0;
}
