/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a blob's bytes, and the tensor that other libraries see. */
#include <string.h>

#include "lib/daemon.h"
#include "store/dlpack.h"

DAEMON_TEST(metadata_comes_with_the_blob)
{
	sluice_store *other = daemon_connect(d);
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT, out = SLUICE_BLOB_METADATA_INIT;
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	static char note[SLUICE_BLOB_NOTE_MOST];
	sluice_blob *blob, *read;

	memset(note, 'n', sizeof(note));
	for (size_t length = 0; length <= sizeof(note); length += sizeof(note) / 2) {
		m.type = SLUICE_FLOAT32;
		m.rank = 8;
		for (int i = 0; i < 8; i++)
			m.shape[i] = i < 5 ? 1 : 2 + i % 2;
		m.note = note;
		m.note_bytes = length;
		o.metadata = &m;
		assert_ok(sluice_blob_create(d->store, "tensor", 4 * 3 * 2 * 3, -1, &o, &blob));
		assert_ok(sluice_blob_seal(blob));
		read = got(other, "tensor");
		assert_ok(sluice_blob_get_metadata(read, &out));
		assert_int_equal(out.type, SLUICE_FLOAT32);
		assert_int_equal(out.rank, 8);
		assert_memory_equal(out.shape, m.shape, sizeof(m.shape));
		assert_int_equal(out.strides[7], 1);
		assert_int_equal(out.strides[6], 3);
		assert_int_equal(out.strides[5], 6);
		assert_int_equal(out.note_bytes, length);
		assert_true(!length || !memcmp(out.note, note, length));
		assert_ok(sluice_blob_release(read));
		assert_refused(sluice_blob_set_metadata(blob, &m), EPERM, "sealed");
		assert_let_go(blob, d->store, "tensor");
	}
	m.shape[0] = 2;
	assert_refused(sluice_blob_create(d->store, "t", 4 * 18, -1, &o, &blob), EINVAL, "larger");
	m.type = SLUICE_FLOAT4_E2M1;
	assert_refused(sluice_blob_create(d->store, "t", 4 * 36, -1, &o, &blob), EINVAL,
	               "whole bytes");
	m.type = SLUICE_STRING + 1;
	assert_refused(sluice_blob_create(d->store, "t", 4 * 36, -1, &o, &blob), EINVAL, "no type");
	m.type = -1;
	assert_refused(sluice_blob_create(d->store, "t", 4 * 36, -1, &o, &blob), EINVAL, "no type");
	m.type = 0;
	assert_refused(sluice_blob_create(d->store, "t", 4 * 36, -1, &o, &blob), EINVAL, "type");
	m.type = SLUICE_FLOAT32;
	m.note_bytes = SLUICE_BLOB_NOTE_MOST + 1;
	assert_refused(sluice_blob_create(d->store, "t", 4 * 36, -1, &o, &blob), EINVAL, "note");
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

DAEMON_TEST(a_blob_is_a_tensor_for_others)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	struct managed *plain;
	struct versioned *versioned;
	sluice_blob *blob;
	void *out;

	m.type = SLUICE_FLOAT64;
	m.rank = 2;
	m.shape[0] = 3;
	m.shape[1] = 5;
	m.offset = 8;
	o.metadata = &m;
	assert_ok(sluice_blob_create(d->store, "t", 128, -1, &o, &blob));
	((double *)sluice_blob_mutable_data(blob))[1 + 2 * 5 + 4] = 42;
	assert_refused(sluice_blob_to_dlpack(blob, 0, &out), EPERM, "sealed");
	assert_ok(sluice_blob_seal(blob));
	assert_ok(sluice_blob_to_dlpack(blob, 0, &out));
	plain = out;
	assert_ok(sluice_blob_to_dlpack(blob, 1, &out));
	versioned = out;
	assert_refused(sluice_blob_to_dlpack(blob, 2, &out), EINVAL, "version");
	assert_ok(sluice_blob_release(blob));
	/* The two tensors. */
	assert_refused(sluice_store_close(d->store), EBUSY, "2 blobs");
	assert_int_equal(plain->t.device_type, 1);
	assert_int_equal(plain->t.ndim, 2);
	assert_int_equal(plain->t.bits, 64);
	assert_int_equal(plain->t.strides[0], 5);
	assert_int_equal(versioned->major, 1);
	assert_int_equal(versioned->minor, 1);
	assert_int_equal(versioned->flags, 1);
	assert_int_equal(versioned->t.shape[1], 5);
	assert_true(((double *)((char *)plain->t.data + plain->t.byte_offset))[14] == 42);
	plain->deleter(plain);
	assert_true(((double *)((char *)versioned->t.data + versioned->t.byte_offset))[14] == 42);
	versioned->deleter(versioned);
	assert_ok(sluice_blob_delete(d->store, "t"));
	assert_idle(d->store);
}

DAEMON_TEST(each_type_has_its_code_and_size_in_a_tensor)
{
	static const struct {
		int type, code, bits;
	} types[] = {
		{SLUICE_INT8, 0, 8},
		{SLUICE_UINT8, 1, 8},
		{SLUICE_INT16, 0, 16},
		{SLUICE_UINT16, 1, 16},
		{SLUICE_INT32, 0, 32},
		{SLUICE_UINT32, 1, 32},
		{SLUICE_INT64, 0, 64},
		{SLUICE_UINT64, 1, 64},
		{SLUICE_FLOAT16, 2, 16},
		{SLUICE_FLOAT32, 2, 32},
		{SLUICE_FLOAT64, 2, 64},
		{SLUICE_BFLOAT16, 4, 16},
		{SLUICE_COMPLEX64, 5, 64},
		{SLUICE_COMPLEX128, 5, 128},
		{SLUICE_BOOL, 6, 8},
		{SLUICE_FLOAT8_E4M3, 10, 8},
		{SLUICE_FLOAT8_E5M2, 12, 8},
		{SLUICE_FLOAT8_E8M0, 14, 8},
		{SLUICE_FLOAT8_E4M3FNUZ, 11, 8},
		{SLUICE_FLOAT8_E5M2FNUZ, 13, 8},
	};
	struct managed *managed;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
		struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
		size_t bytes = (size_t)types[i].bits / 8 * 7;
		sluice_blob *blob;
		void *out;

		m.type = types[i].type;
		m.rank = 1;
		m.shape[0] = 7;
		o.metadata = &m;
		assert_refused(sluice_blob_create(d->store, NULL, bytes - 1, -1, &o, &blob), EINVAL,
		               "larger");
		assert_ok(sluice_blob_create(d->store, NULL, bytes, -1, &o, &blob));
		assert_ok(sluice_blob_seal(blob));
		assert_ok(sluice_blob_to_dlpack(blob, 0, &out));
		managed = out;
		assert_int_equal(managed->t.code, types[i].code);
		assert_int_equal(managed->t.bits, types[i].bits);
		assert_int_equal(managed->t.lanes, 1);
		managed->deleter(managed);
		assert_ok(sluice_blob_delete_id(d->store, sluice_blob_id(blob)));
		assert_ok(sluice_blob_release(blob));
	}
	assert_idle(d->store);
}

DAEMON_MAIN("64M")
