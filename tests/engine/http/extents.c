/* SPDX-License-Identifier: Apache-2.0 */
/* Extents of one read that lie near each other in the object are asked for together. */
#include "http/cases.h"

enum { COUNT = 400, EACH = 1000 };

/* Reads COUNT extents, each `step` bytes behind the one before, in that order or mixed; looks at all bytes and at those
 * beside them. */
static void reads_extents(struct fixture *f, const char *uri, size_t step, bool mixed)
{
	struct buffer b = buffer_new(COUNT * (EACH + 1), 0);
	sluice_file *file = open_read(f->ctx, uri);
	struct sluice_extent v[COUNT];
	sluice_op *op;

	memset(b.data, 0x5a, b.length);
	for (size_t i = 0; i < COUNT; i++)
		v[i] = (struct sluice_extent){b.data + i * (EACH + 1), EACH,
		                              (mixed ? i * 7 % COUNT : i) * step};
	assert_ok(submit_read(file, v, COUNT, &op));
	assert_moves(op, (int64_t)COUNT * EACH);
	for (size_t i = 0; i < COUNT; i++) {
		assert_served(v[i].data, EACH, v[i].offset);
		assert_int_equal(((char *)v[i].data)[EACH], 0x5a);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(extents_that_touch_are_one_request)
{
	const char *uri = fault_uri("size=%d", COUNT * EACH);

	reads_extents(f, uri, EACH, false);
	assert_in_range(asked(uri, "GET"), 1, 2);
	/* Not in the order of the file. */
	uri = fault_uri("size=%d", COUNT * EACH);
	reads_extents(f, uri, EACH, true);
	assert_in_range(asked(uri, "GET"), 1, 2);
}

HTTP_TEST(extents_that_overlap_are_one_request)
{
	const char *uri = fault_uri("size=%d", COUNT * EACH);

	reads_extents(f, uri, EACH / 3, true);
	assert_in_range(asked(uri, "GET"), 1, 2);
	uri = fault_uri("size=%d", COUNT * EACH);
	reads_extents(f, uri, 0, false);
	assert_in_range(asked(uri, "GET"), 1, 2);
}

/* At most as many bytes are dropped as asked for, and no long gap. */
HTTP_TEST(short_gaps_between_extents_are_read)
{
	const char *uri = fault_uri("size=%d", 2 * COUNT * EACH);

	reads_extents(f, uri, EACH + EACH / 2, false);
	assert_in_range(asked(uri, "GET"), 1, 2);
	uri = fault_uri("size=%d", 3 * COUNT * EACH);
	reads_extents(f, uri, 2 * EACH + EACH / 2, false);
	assert_int_equal(asked(uri, "GET"), COUNT);
	with(f, "SLUICE_HTTP_GAP_BYTES", "100");
	uri = fault_uri("size=%d", 2 * COUNT * EACH);
	reads_extents(f, uri, EACH + EACH / 2, false);
	assert_int_equal(asked(uri, "GET"), COUNT);
}

/* What was cut off in mid-body goes on where it ended, also in a gap. */
HTTP_TEST(a_request_for_several_extents_is_continued)
{
	for (int cut = 1490; cut < 1510; cut += 3)
		reads_extents(f, fault_uri("size=%d&fault=short:%d&times=1", 2 * COUNT * EACH, cut),
		              EACH + EACH / 2, false);
}
