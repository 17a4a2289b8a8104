/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of an emulated device
 *
 * Creates, frees, queries and waits for streams and events.
 *
 * Threads: any; the mutex guards the sets of handles, waits sleep on `reached` and `progress`,
 * which the engine signals.
 */
#include <errno.h>
#include <stdlib.h>

#include "device/emulated/emulated.h"

struct stream *sl_emulated_stream(struct emulated *device, sluice_stream stream)
{
	if ((uintptr_t)stream <= 1)
		return &device->legacy;
	if ((uintptr_t)stream == 2)
		return &device->per_thread;
	struct sl_interval *found = sl_emulated_lookup(&device->streams, stream);
	return found ? SL_CONTAINER(found, struct stream, handle) : NULL;
}

struct event *sl_emulated_event(struct emulated *device, sluice_event event)
{
	struct sl_interval *found = sl_emulated_lookup(&device->events, event);

	return found ? SL_CONTAINER(found, struct event, handle) : NULL;
}

/*
 * Enters a call that makes a stream or an event, which waits while a thread is in free, and makes
 * it. The struct begins with the handle, which is identified by its address alone.
 */
static int new_handle(struct emulated *device, enum sluice_emulated_kind kind, const char *call,
                      struct sl_intervals *set, size_t bytes, struct sl_interval **out)
	SL_THREAD_SAFETY(try_acquire_capability(0, &device->mutex))
{
	struct sl_interval *handle;
	int rc = sl_emulated_enter(device, kind);

	if (rc)
		return rc;
	rc = sl_emulated_pass(device, call);
	handle = rc ? NULL : calloc(1, bytes);
	if (!handle) {
		sl_mutex_unlock(&device->mutex);
		return rc ? rc : -ENOMEM;
	}
	handle->start = (uintptr_t)handle;
	handle->end = handle->start + 1;
	sl_intervals_insert(set, handle);
	*out = handle;
	return 0;
}

/* -------------------------------------------------------------------------------- streams */

int sl_emulated_stream_new(struct sl_device *base, sluice_stream *out)
{
	struct emulated *device = sl_emulated_of(base);
	struct sl_interval *handle;
	int rc = new_handle(device, SLUICE_EMULATED_STREAM, "stream_new", &device->streams,
	                    sizeof(struct stream), &handle);

	if (rc)
		return rc;
	struct stream *stream = SL_CONTAINER(handle, struct stream, handle);
	sl_list_init(&stream->commands);
	sl_list_append(&device->all_streams, &stream->link);
	*out = (sluice_stream)stream;
	sl_emulated_leave(device);
	return 0;
}

static int free_stream_locked(struct emulated *device, sluice_stream handle)
	SL_REQUIRES(&device->mutex)
{
	struct stream *stream = sl_emulated_stream(device, handle);

	if (!stream || stream == &device->legacy || stream == &device->per_thread)
		return -EINVAL;
	sl_intervals_remove(&device->streams, &stream->handle);
	stream->freed = true;
	if (!stream->count) {
		sl_list_remove(&stream->link);
		free(stream);
	}
	return device->error;
}

int sl_emulated_stream_free(struct sl_device *base, sluice_stream stream)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter_to_release(device, SLUICE_EMULATED_STREAM);

	if (rc)
		return rc;
	(void)sl_emulated_pass(device, "stream_free");
	rc = free_stream_locked(device, stream);
	sl_emulated_leave(device);
	return rc;
}

static struct command *last_command(struct stream *stream)
{
	return stream->count ? SL_CONTAINER(stream->commands.previous, struct command, in_stream)
	                     : NULL;
}

/* Returns true if the stream is idle, the default stream with those that it is ordered after. */
static bool stream_idle(struct emulated *device, struct stream *stream)
{
	return !stream->count && (stream != &device->legacy || !device->per_thread.count);
}

int sl_emulated_stream_query(struct sl_device *base, sluice_stream handle)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter(device, SLUICE_EMULATED_QUERY);

	if (rc)
		return rc;
	struct stream *stream = sl_emulated_stream(device, handle);
	rc = stream ? stream_idle(device, stream) : -EINVAL;
	sl_emulated_leave(device);
	return rc;
}

int sl_emulated_stream_synchronize(struct sl_device *base, sluice_stream handle)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter(device, SLUICE_EMULATED_SYNCHRONIZE);
	struct command *last[2] = {NULL, NULL};

	if (rc)
		return rc;
	struct stream *stream = sl_emulated_stream(device, handle);
	last[0] = stream ? last_command(stream) : NULL;
	if (stream == &device->legacy)
		last[1] = last_command(&device->per_thread);
	rc = stream ? sl_emulated_wait_for(device, last, "stream_synchronize") : -EINVAL;
	sl_emulated_leave(device);
	return rc;
}

int sl_emulated_stream_check(struct sl_device *base, sluice_stream handle)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter(device, SLUICE_EMULATED_QUERY);

	if (rc)
		return sl_fail(rc, "%s does nothing any more: %s", base->name, sl_error_text(rc));
	if (!sl_emulated_stream(device, handle))
		rc = sl_fail(-EINVAL, "%s has no such stream", base->name);
	sl_emulated_leave(device);
	return rc;
}

/* --------------------------------------------------------------------------------- events */

int sl_emulated_event_new(struct sl_device *base, sluice_event *out)
{
	struct emulated *device = sl_emulated_of(base);
	struct sl_interval *handle;
	int rc = new_handle(device, SLUICE_EMULATED_EVENT, "event_new", &device->events,
	                    sizeof(struct event), &handle);

	if (rc)
		return rc;
	*out = (sluice_event)handle;
	sl_emulated_leave(device);
	return 0;
}

int sl_emulated_event_free(struct sl_device *base, sluice_event handle)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter_to_release(device, SLUICE_EMULATED_EVENT);

	if (rc)
		return rc;
	(void)sl_emulated_pass(device, "event_free");
	rc = device->error;
	struct event *event = sl_emulated_event(device, handle);
	if (event) {
		sl_intervals_remove(&device->events, &event->handle);
		if (event->record)
			event->record->event = NULL;
		free(event);
	} else {
		rc = -EINVAL;
	}
	sl_emulated_leave(device);
	return rc;
}

int sl_emulated_event_query(struct sl_device *base, sluice_event handle)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter(device, SLUICE_EMULATED_QUERY);

	if (rc)
		return rc;
	struct event *event = sl_emulated_event(device, handle);
	rc = event ? !event->record : -EINVAL;
	sl_emulated_leave(device);
	return rc;
}

int sl_emulated_event_synchronize(struct sl_device *base, sluice_event handle)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter(device, SLUICE_EMULATED_SYNCHRONIZE);
	struct command *record[2] = {NULL, NULL};

	if (rc)
		return rc;
	struct event *event = sl_emulated_event(device, handle);
	record[0] = event ? event->record : NULL;
	rc = event ? sl_emulated_wait_for(device, record, "event_synchronize") : -EINVAL;
	sl_emulated_leave(device);
	return rc;
}

/* -------------------------------------------------------------------------------- waiting */

int sl_emulated_wait_for(struct emulated *device, struct command *const commands[2],
                         const char *call)
{
	struct waiter waiters[2];

	for (int i = 0; i < 2; i++) {
		waiters[i] = (struct waiter){.caller = true, .ready = !commands[i]};
		if (commands[i])
			sl_list_append(&commands[i]->waiters, &waiters[i].link);
	}
	while (!device->error && !(waiters[0].ready && waiters[1].ready))
		sl_emulated_sleep(device, &device->reached, call, "the stream is not there yet");
	int rc = device->error;
	for (int i = 0; i < 2; i++) {
		if (!waiters[i].ready)
			sl_list_remove(&waiters[i].link);
		else if (waiters[i].error)
			rc = waiters[i].error;
	}
	return rc;
}
