/* SPDX-License-Identifier: Apache-2.0 */
#include "tensors/format.h"

const char *made(struct fixture *f, const char *name, const void *bytes, size_t n)
{
	file_make(scratch(f, name), 0, 0);
	file_write(scratch(f, name), bytes, n, 0);
	return address(f, name);
}

sluice_tensors *opened(struct fixture *f, const char *uri)
{
	sluice_tensors *t;

	assert_ok(sluice_tensors_open(f->ctx, &uri, 1, NULL, &t));
	return t;
}

struct sluice_tensor got(const sluice_tensors *t, size_t index)
{
	struct sluice_tensor tensor = {.size = sizeof(tensor)};

	assert_ok(sluice_tensors_get(t, index, &tensor));
	return tensor;
}

struct sluice_tensor found(const sluice_tensors *t, const char *name)
{
	struct sluice_tensor tensor;
	size_t index;

	assert_ok(sluice_tensors_find(t, name, &index));
	tensor = got(t, index);
	assert_string_equal(tensor.name, name);
	return tensor;
}

void assert_open_refused(struct fixture *f, const char *uri, int error, const char *says)
{
	sluice_tensors *t = NULL;
	int rc = sluice_tensors_open(f->ctx, &uri, 1, NULL, &t);

	if (rc != -error || !strstr(sluice_last_message(), says))
		fail_msg("%d (%s), not -%d (%s): \"%s\"", rc, strerror(-rc), error, says,
		         rc ? sluice_last_message() : "");
	assert_null(t);
}
