/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "protocol/protocol.h"

#define FROM_CLIENT  true
#define FROM_SERVER  false
#define HEAD         sizeof(struct sl_head)
#define ROUND(bytes) (((bytes) + 7) & ~(size_t)7)
#define NO_VALUE     "no value that there is"
#define NO_PLACE     "no place that there is"

/* What a message of each type is made of. */
static const struct shape {
	uint32_t body; /* with the header */
	uint32_t item;
	uint32_t least, most; /* items */
	uint32_t behind;      /* bytes that may follow the items */
	bool from_client;
	bool replied; /* a request with a serial number */
} shapes[SL_TYPES] = {
	[SL_HELLO] = {sizeof(struct sl_hello), 0, 0, 0, 0, FROM_CLIENT, true},
	[SL_CREATE] = {HEAD, sizeof(struct sl_create_item), 1, SL_ITEMS_MOST, 0, FROM_CLIENT, true},
	[SL_SEAL] = {HEAD, sizeof(struct sl_seal_item), 1, SL_ITEMS_MOST, SL_RECORD_MOST,
                     FROM_CLIENT, true},
	[SL_ANNOTATE] = {sizeof(struct sl_annotate), 0, 0, 0, SL_RECORD_MOST, FROM_CLIENT, false},
	[SL_ABORT] = {HEAD, sizeof(struct sl_id_item), 1, SL_ITEMS_MOST, 0, FROM_CLIENT, false},
	[SL_GET] = {sizeof(struct sl_get), sizeof(struct sl_key), 1, SL_ITEMS_MOST, 0, FROM_CLIENT,
                    true},
	[SL_REGION] = {sizeof(struct sl_region_request), 0, 0, 0, 0, FROM_CLIENT, true},
	[SL_LOCATE] = {sizeof(struct sl_locate), 0, 0, 0, 0, FROM_CLIENT, true},
	[SL_DROP] = {HEAD, sizeof(struct sl_id_item), 1, SL_ITEMS_MOST, 0, FROM_CLIENT, false},
	[SL_NUDGE] = {HEAD, sizeof(struct sl_id_item), 0, SL_ITEMS_MOST, 0, FROM_CLIENT, false},
	[SL_DELETE] = {sizeof(struct sl_one), 0, 0, 0, 0, FROM_CLIENT, true},
	[SL_PIN] = {sizeof(struct sl_one), 0, 0, 0, 0, FROM_CLIENT, true},
	[SL_STAT] = {sizeof(struct sl_one), 0, 0, 0, 0, FROM_CLIENT, true},
	[SL_LIST] = {sizeof(struct sl_list_request), 0, 0, 0, 0, FROM_CLIENT, true},
	[SL_STATS] = {HEAD, 0, 0, 0, 0, FROM_CLIENT, true},
	[SL_TRIM] = {HEAD, 0, 0, 0, 0, FROM_CLIENT, true},
	[SL_DEVICE] = {sizeof(struct sl_device_request), 0, 0, 0, 0, FROM_CLIENT, true},
	[SL_OFFER] = {sizeof(struct sl_offer), 0, 0, 0, 0, FROM_CLIENT, false},
	[SL_HAVE] = {HEAD, sizeof(struct sl_id_item), 1, SL_ITEMS_MOST, 0, FROM_CLIENT, false},
	[SL_DAEMON] = {sizeof(struct sl_daemon_request), 0, 0, 0, 0, FROM_CLIENT, true},
	[SL_BYE] = {HEAD, 0, 0, 0, 0, FROM_CLIENT, false},
	[SL_WELCOME] = {sizeof(struct sl_welcome), 0, 0, 0, 0, FROM_SERVER, true},
	[SL_LEASES] = {HEAD, sizeof(struct sl_lease), 1, 2 * SL_ITEMS_MOST, 0, FROM_SERVER, true},
	[SL_FOUND] = {HEAD, sizeof(struct sl_found_item), 1, SL_ITEMS_MOST, 0, FROM_SERVER, true},
	[SL_MEMORY] = {sizeof(struct sl_memory), 0, 0, 0, 0, FROM_SERVER, true},
	[SL_DONE] = {HEAD, 0, 0, 0, 0, FROM_SERVER, true},
	[SL_INFO] = {sizeof(struct sl_info), sizeof(struct sl_info_item), 0, SL_ITEMS_MOST, 0,
                     FROM_SERVER, true},
	[SL_COUNTS] = {sizeof(struct sl_counts), 0, 0, 0, 0, FROM_SERVER, true},
	[SL_REFUSAL] = {sizeof(struct sl_refusal), 0, 0, 0, 0, FROM_SERVER, true},
	[SL_DEVICE_IS] = {sizeof(struct sl_device_is), 0, 0, 0, 0, FROM_SERVER, true},
	[SL_FORGET] = {HEAD, sizeof(struct sl_id_item), 1, SL_ITEMS_MOST, 0, FROM_SERVER, false},
	[SL_EVENT] = {sizeof(struct sl_event), 0, 0, 0, 0, FROM_SERVER, false},
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

void sl_message_add_record(union sl_message *m, const struct sl_record *record)
{
	unsigned char *end = m->bytes + m->head.bytes;
	size_t bytes = sl_record_bytes(record);

	memcpy(end, record, bytes);
	memset(end + bytes, 0, ROUND(bytes) - bytes);
	m->head.bytes += (uint32_t)ROUND(bytes);
}

void sl_message_refuse(union sl_message *m, uint32_t serial, int error, const char *text)
{
	sl_message_begin(m, SL_REFUSAL, serial, 0);
	m->head.error = error;
	strncpy(m->refusal.text, text, sizeof(m->refusal.text) - 1);
}

static size_t end_of_items(const union sl_message *m)
{
	const struct shape *shape = &shapes[m->head.type];

	return shape->body + (size_t)m->head.count * shape->item;
}

const struct sl_record *sl_message_record(const union sl_message *m)
{
	size_t end = end_of_items(m);

	return end < m->head.bytes ? (const struct sl_record *)(m->bytes + end) : NULL;
}

/* -------------------------------------------------------------------------------- what is said */

/* The length of the UTF-8 sequence at s, of at most n bytes; 0: there is none, or a control character. */
static size_t character(const unsigned char *s, size_t n)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t length = s[0] < 0x80             ? 1
	                : (s[0] & 0xe0) == 0xc0 ? 2
	                : (s[0] & 0xf0) == 0xe0 ? 3
	                : (s[0] & 0xf8) == 0xf0 ? 4
	                                        : 0;
	uint32_t code = length > 1 ? s[0] & (0x7fu >> length) : s[0];

	if (!length || length > n)
		return 0;
	for (size_t i = 1; i < length; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ||
	    code < 0x20 || (code >= 0x7f && code < 0xa0))
		return 0;
	return length;
}

int sl_name_check(const char *name, size_t size, bool empty)
{
	size_t length = strnlen(name, size);

	if (length >= SL_MIN(size, SL_NAME_BYTES))
		return sl_fail(-EINVAL, "a name has at most %d bytes", SLUICE_BLOB_NAME_MOST);
	if (!length && !empty)
		return sl_fail(-EINVAL, "a name is empty");
	for (size_t at = 0, n; at < length; at += n) {
		n = character((const unsigned char *)name + at, length - at);
		if (!n)
			return sl_fail(-EINVAL,
			               "a name is no UTF-8, or has control characters in it");
	}
	return 0;
}

/* A string of a message: a name, and nothing behind it. */
static int check_string(const char text[SL_NAME_BYTES], bool empty)
{
	static const char zeros[SL_NAME_BYTES];
	int rc = sl_name_check(text, SL_NAME_BYTES, empty);
	size_t length = strnlen(text, SL_NAME_BYTES);

	if (!rc && memcmp(text + length, zeros, SL_NAME_BYTES - length))
		rc = sl_fail(-EPROTO, "there is something behind the end of a name");
	return rc;
}

/* ------------------------------------------------------------------------------------ records */

/* What is behind the record; it may lie anywhere. */
static int64_t number_at(const struct sl_record *record, unsigned index)
{
	int64_t number;

	memcpy(&number, (const char *)(record + 1) + 8 * (size_t)index, sizeof(number));
	return number;
}

/* Bytes from the first element of a tensor to the end of its last one; -1: too many. */
static int64_t extent_of(const struct sl_record *record)
{
	uint64_t element = sl_type_find((int)record->type)->bytes, last = 0;

	for (unsigned i = 0; i < record->rank; i++) {
		int64_t length = number_at(record, i), stride = number_at(record, record->rank + i);
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

int sl_record_check(const struct sl_record *record, size_t n, uint64_t blob_bytes)
{
	int64_t extent;

	if (n < sizeof(*record) || record->rank > SLUICE_BLOB_RANK_MOST ||
	    record->note_bytes > SLUICE_BLOB_NOTE_MOST || record->zero ||
	    sl_record_bytes(record) != n)
		return sl_fail(-EINVAL, "metadata: not as long as it says");
	if (!record->type)
		return record->rank || record->offset
		               ? sl_fail(-EINVAL, "metadata: a tensor without a type")
		               : 0;
	if (!sl_type_find((int)record->type))
		return sl_fail(-EINVAL, "metadata: %d is no type", (int)record->type);
	for (unsigned i = 0; i < 2 * record->rank; i++)
		if (number_at(record, i) < 0)
			return sl_fail(-EINVAL, "metadata: a dimension or a stride is negative");
	extent = extent_of(record);
	if (extent < 0 || record->offset > blob_bytes ||
	    (uint64_t)extent > blob_bytes - record->offset)
		return sl_fail(-EINVAL, "metadata: the tensor is larger than its blob");
	return 0;
}

/* Compact strides where none were given. */
static int fill_strides(struct sluice_blob_metadata *m)
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

int sl_record_make(const struct sluice_blob_metadata *from, struct sl_record *to)
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
	if (fill_strides(&m))
		return -EINVAL;
	*to = (struct sl_record){.type = (uint32_t)m.type,
	                         .rank = m.rank,
	                         .offset = m.offset,
	                         .note_bytes = (uint32_t)m.note_bytes};
	memcpy(numbers, m.shape, m.rank * sizeof(*numbers));
	memcpy(numbers + m.rank, m.strides, m.rank * sizeof(*numbers));
	if (m.note_bytes)
		memcpy(numbers + 2 * (size_t)m.rank, m.note, m.note_bytes);
	return 0;
}

void sl_record_tell(const struct sl_record *record, struct sluice_blob_metadata *to)
{
	*to = (struct sluice_blob_metadata){.size = sizeof(*to),
	                                    .type = (int)record->type,
	                                    .rank = record->rank,
	                                    .offset = record->offset,
	                                    .note_bytes = record->note_bytes};
	for (unsigned i = 0; i < record->rank; i++) {
		to->shape[i] = number_at(record, i);
		to->strides[i] = number_at(record, record->rank + i);
	}
	if (record->note_bytes)
		to->note = (const char *)(record + 1) + (size_t)record->rank * 16;
}

/* ----------------------------------------------------------------------------------- messages */

/* The record behind the items: all there, and nothing behind it but zeros up to a multiple of 8. */
static int check_record(const union sl_message *m, bool needed, uint64_t blob_bytes)
{
	size_t start = end_of_items(m), rest = m->head.bytes - start, bytes;
	const struct sl_record *record = (const struct sl_record *)(m->bytes + start);

	if (!rest && !needed)
		return 0;
	if (rest < sizeof(*record) || record->rank > SLUICE_BLOB_RANK_MOST ||
	    record->note_bytes > SLUICE_BLOB_NOTE_MOST)
		return sl_fail(-EPROTO, "half a record");
	bytes = sl_record_bytes(record);
	if (ROUND(bytes) != rest)
		return sl_fail(-EPROTO, "a record is not as long as it says");
	for (size_t i = bytes; i < rest; i++)
		if (m->bytes[start + i])
			return sl_fail(-EPROTO, "there is something behind a record");
	return sl_record_check(record, bytes, blob_bytes);
}

/* What a message has to be beyond its shape. */
static int expect(bool right, const char *wrong)
{
	return right ? 0 : sl_fail(-EPROTO, "%s", wrong);
}

/* A device, or the host, and what kind of memory is there. */
static bool is_memory(int32_t device, uint32_t kind)
{
	return kind >= SLUICE_BLOB_ON_HOST && kind <= SLUICE_BLOB_OF_PROCESS && device >= -1 &&
	       (device == -1) == (kind == SLUICE_BLOB_ON_HOST);
}

static int check_blob(const char *name, uint64_t bytes, uint32_t flags)
{
	int rc = check_string(name, true);

	return rc ? rc
	          : expect(bytes && bytes <= INT64_MAX / 2 && !(flags & ~SL_BLOB_FLAGS),
	                   "a size or flags that cannot be");
}

static int check_create(const union sl_message *m)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < m->head.count; i++) {
		const struct sl_create_item *item = &m->create.items[i];

		rc = check_blob(item->name, item->bytes, item->flags);
		if (!rc)
			rc = expect(is_memory(item->device, item->kind) && !item->zero, NO_PLACE);
	}
	return rc;
}

static int check_seal(const union sl_message *m)
{
	int rc = expect(m->head.count == 1 || !sl_message_record(m),
	                "a record behind several items");

	for (unsigned i = 0; !rc && i < m->head.count; i++) {
		const struct sl_seal_item *item = &m->seal.items[i];

		rc = check_blob(item->name, item->bytes, item->flags);
		if (!rc)
			rc = expect(item->start <= INT64_MAX / 2 && !item->zero, NO_VALUE);
	}
	return rc ? rc : check_record(m, false, m->seal.items[0].bytes);
}

/* An id without a name, or a name without an id. */
static int check_key(const struct sl_key *key)
{
	int rc = check_string(key->name, true);

	return rc ? rc : expect(!key->id == !!key->name[0], "neither a name nor an id, or both");
}

/* One that is none has no ticket, and is all zeros. */
static int check_lease(const struct sl_lease *lease)
{
	static const struct sl_lease none;
	const struct sl_place *place = &lease->place;

	if (!lease->ticket)
		return expect(!memcmp(lease, &none, sizeof(none)), "half a lease");
	if (lease->make > 1 || lease->zero)
		return expect(false, NO_VALUE);
	return expect(place->offset <= place->region_bytes &&
	                      place->capacity <= place->region_bytes - place->offset &&
	                      is_memory(place->device, place->kind),
	              "a place beyond its region");
}

static int check_leases(const union sl_message *m)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < m->head.count; i++)
		rc = check_lease(m->head.type == SL_FOUND ? &m->found.items[i].lease
		                                          : &m->leases.items[i]);
	return rc;
}

/* The name of a device; "" if there is to be none. */
static int check_device(const char place[SLUICE_BLOB_PLACE_BYTES], bool none)
{
	int rc = sl_name_check(place, SLUICE_BLOB_PLACE_BYTES, none);

	if (!rc)
		rc = expect(!none || !place[0], "a number and a place");
	for (size_t i = strnlen(place, SLUICE_BLOB_PLACE_BYTES); !rc && i < SLUICE_BLOB_PLACE_BYTES;
	     i++)
		rc = expect(!place[i], "there is something behind the end of a name");
	return rc;
}

static int check_get(const union sl_message *m)
{
	int rc = expect(!m->get.zero, NO_VALUE);

	for (unsigned i = 0; !rc && i < m->head.count; i++)
		rc = check_key(&m->get.items[i]);
	return rc;
}

static int check_info(const union sl_message *m)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < m->head.count; i++) {
		const struct sl_info_item *item = &m->info.items[i];

		rc = check_string(item->name, true);
		if (!rc)
			rc = expect(is_memory(item->device, item->kind) && !item->zero, NO_PLACE);
		if (!rc)
			rc = check_device(item->place, item->device == -1);
	}
	return rc;
}

static int check_body(const union sl_message *m)
{
	int rc;

	switch (m->head.type) {
	case SL_HELLO:
		rc = expect((m->hello.role == SL_ROLE_CLIENT || m->hello.role == SL_ROLE_WATCH) &&
		                    !m->hello.zero,
		            "no role that there is");
		return rc ? rc : check_string(m->hello.prefix, true);
	case SL_CREATE:
		return check_create(m);
	case SL_SEAL:
		return check_seal(m);
	case SL_ANNOTATE:
		return check_record(m, true, UINT64_MAX);
	case SL_GET:
		return check_get(m);
	case SL_DAEMON:
		if (m->daemon.act < SL_DAEMON_UPGRADE || m->daemon.act > SL_DAEMON_STOP ||
		    m->daemon.zero)
			return sl_fail(-EPROTO, "no act that there is");
		return 0;
	case SL_DELETE:
	case SL_PIN:
	case SL_STAT:
		rc = expect(m->one.on <= 1 && !m->one.zero, NO_VALUE);
		return rc ? rc : check_key(&m->one.key);
	case SL_LIST:
		rc = expect(!m->list.zero && m->list.most, "a list of nothing");
		return rc ? rc : check_string(m->list.prefix, true);
	case SL_LEASES:
	case SL_FOUND:
		return check_leases(m);
	case SL_REGION:
		return expect(m->region.writable <= 1 && !m->region.zero, NO_VALUE);
	case SL_MEMORY:
		return expect(is_memory(m->memory.device, m->memory.kind), NO_PLACE);
	case SL_DEVICE:
		rc = expect(m->device.number >= -1 && !m->device.zero, NO_VALUE);
		return rc ? rc : check_device(m->device.place, m->device.number != -1);
	case SL_DEVICE_IS:
		rc = expect(m->device_is.number >= 0 && !m->device_is.zero, NO_VALUE);
		return rc ? rc : check_device(m->device_is.place, false);
	case SL_INFO:
		return check_info(m);
	case SL_REFUSAL:
		return expect(m->head.error < 0 && m->head.error > -4096 &&
		                      memchr(m->refusal.text, 0, sizeof(m->refusal.text)),
		              "a refusal without an error");
	case SL_EVENT:
		return check_string(m->event.name, true);
	default:
		return 0;
	}
}

int sl_message_check(const union sl_message *m, size_t n, bool from_client)
{
	const struct shape *shape;
	size_t least;

	if (n < sizeof(m->head) || m->head.magic != SL_PROTOCOL_MAGIC)
		return sl_fail(-EPROTO, "no message of the store");
	if (m->head.version != SL_PROTOCOL_VERSION)
		return sl_fail(-EPROTO, "version %u of the protocol, and this is version %d",
		               m->head.version, SL_PROTOCOL_VERSION);
	if (!m->head.type || m->head.type >= SL_TYPES ||
	    shapes[m->head.type].from_client != from_client)
		return sl_fail(-EPROTO, "a message of type %u", m->head.type);
	shape = &shapes[m->head.type];
	if (m->head.bytes != n || n > SL_MESSAGE_MOST)
		return sl_fail(-EPROTO, "a message of %zu bytes that says %u", n, m->head.bytes);
	if (m->head.count < shape->least || m->head.count > shape->most)
		return sl_fail(-EPROTO, "a message of %u items", m->head.count);
	least = shape->body + (size_t)m->head.count * shape->item;
	if (n < least || n - least > shape->behind || m->head.zero)
		return sl_fail(-EPROTO, "a message of %zu bytes with %u items", n, m->head.count);
	if (shape->replied != (m->head.serial != 0))
		return sl_fail(-EPROTO, "a serial number that is not to be, or is missing");
	if ((m->head.error != 0) != (m->head.type == SL_REFUSAL))
		return sl_fail(-EPROTO, "an error where there is none");
	/* A name that is wrong is a mistake of the protocol as well: the library does not send it. */
	return check_body(m) ? -EPROTO : 0;
}
