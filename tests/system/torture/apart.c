/* SPDX-License-Identifier: Apache-2.0 */
#include "system/torture/apart.h"

__typeof__(sl_copier_submit) __real_sl_copier_submit, __wrap_sl_copier_submit;
__typeof__(sl_stream_enter) __real_sl_stream_enter, __wrap_sl_stream_enter;

/* Of operations that are apart, in what the caller could have attached. */
static struct apart *apart_of(const struct sluice_op *op)
{
	return op->user;
}

void __wrap_sl_copier_submit(struct sl_staging *staging, struct sl_copy_job *copy)
{
	struct apart *apart = NULL;
	bool hold = false;

	if (!copy->drains)
		apart = apart_of(SL_CONTAINER(copy, struct sl_slot_use, job)->staged->op);
	if (apart) {
		pthread_mutex_lock(&apart->mutex);
		hold = !apart->begun;
		if (hold)
			sl_list_append(&apart->held, &copy->link);
		pthread_mutex_unlock(&apart->mutex);
	}
	if (!hold)
		__real_sl_copier_submit(staging, copy);
}

void apart_begin(struct apart *apart)
{
	struct sl_staging *staging = apart->op->staged->staging;
	struct sl_list *link, held;

	sl_list_init(&held);
	pthread_mutex_lock(&apart->mutex);
	apart->begun = true;
	while ((link = sl_list_take(&apart->held)))
		sl_list_append(&held, link);
	pthread_mutex_unlock(&apart->mutex);
	while ((link = sl_list_take(&held)))
		__real_sl_copier_submit(staging, SL_CONTAINER(link, struct sl_copy_job, link));
}

bool apart_is_over(const struct apart *apart)
{
	return atomic_load(&apart->op->state) & SL_OP_DONE;
}

/* A read that cannot be whole is an error in stream order only. */
static bool is_short(const struct sluice_op *op)
{
	struct sl_backend *backend = op->file->backend;
	int64_t size = backend->ops->size ? backend->ops->size(backend) : INT64_MAX;

	for (size_t i = 0; op->kind == SL_READ && i < op->count; i++)
		if (op->extents[i].offset + op->extents[i].length > (uint64_t)size)
			return true;
	return false;
}

int __wrap_sl_stream_enter(struct sluice_op *op, sluice_op **out)
{
	struct sl_staged *staged = op->staged;
	struct apart *apart;
	int rc;

	if (staged->route != &sl_route_stream || is_short(op))
		return __real_sl_stream_enter(op, out);
	apart = calloc(1, sizeof(*apart));
	apart->op = op;
	pthread_mutex_init(&apart->mutex, NULL);
	sl_list_init(&apart->held);
	op->user = apart;
	op->on_stream = false;
	staged->route = &sl_route_copier;
	staged->waiter.words = false;
	atomic_fetch_add(&op->references, out ? 2 : 1);
	atomic_fetch_add(&op->file->in_flight, 1);
	rc = sl_order_enter(op);
	if (rc < 0)
		caught("environment", "an operation has no place: %d", rc);
	if (out)
		*out = op;
	if (!rc)
		sl_op_start(op);
	if (apart_enqueue(apart, sl_staging_device(staged->staging), staged->stream))
		apart_begin(apart);
	return 0;
}
