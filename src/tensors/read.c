/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads
 *
 * Reads a plan: an operation for each file and device. Their ends come through a queue of the load.
 * One thread at a time collects them: a thread that waits for the load, or the load's own, which
 * there is where slices are copied between devices, narrow columns gathered, or digests or sums
 * checked. The first failure cancels the other operations, and the load is over when all are.
 *
 *   free      --[sluice_tensor_load_wait, load_run]--> collected  takes ends from the queue
 *   collected --[load_collect: the deadline]---------> free
 *   collected --[load_collect: the last end]---------> over       the result is fixed
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "tensors/header.h"

enum { LOAD_FREE, LOAD_COLLECTED, LOAD_OVER };

struct sluice_tensor_load {
	/* Fixed before the handle is out. */
	const struct sluice_tensor_plan *plan;
	struct sl_tensor_stretches stretches; /* without extents */
	sluice_queue *queue;
	sluice_op **ops;               /* of the stretches */
	size_t started;                /* the first so many */
	uint64_t bytes;                /* of all tensors */
	uint64_t read;                 /* that are read from files */
	struct sluice_digest *digests; /* of all files; NULL: not checked, by operations */
	bool summed;                   /* the thread checks the CRC-32 of what is in archives */
	pthread_t thread;
	bool threaded;

	_Atomic bool stop;      /* failed, or cancelled */
	_Atomic uint32_t state; /* of the above; a word that threads wait for */
	_Atomic uint64_t moved; /* bytes, of files with digests, and of columns that are gathered */

	/* Of the thread that collects; fixed once the load is over. */
	size_t ended;
	int error; /* the first */
	char *message;
	sluice_stream streams[SL_DEVICES_MOST]; /* for copies */
};

static int load_check(const struct sluice_tensor_load *load)
{
	return load ? sl_context_check(load->plan->tensors->ctx) : sl_fail(-EINVAL, "load is NULL");
}

static void load_stop(struct sluice_tensor_load *load)
{
	atomic_store(&load->stop, true);
	for (size_t i = 0; i < load->started; i++)
		sluice_cancel(load->ops[i]);
}

/* Keeps the first error and sentence, and ends everything else. */
static void load_note(struct sluice_tensor_load *load, int error)
{
	if (load->error || !error)
		return;
	load->error = error;
	load->message = strdup(sluice_last_message());
	load_stop(load);
}

/* -------------------------------------------------------------------------------------- copies */

/* Copies a stretch, in streams of the load, to other devices that want it. Waits for the copies. */
static int load_copy_stretch(struct sluice_tensor_load *load, size_t stretch)
{
	const struct sl_tensor_target *targets = load->stretches.targets;
	int rc = 0;

	for (size_t i = 0; !rc && i < load->plan->count; i++) {
		const struct sl_tensor_target *from = &targets[targets[i].source];
		int device = targets[i].device < 0 ? from->device : targets[i].device;

		if (targets[i].source == i || targets[i].gathered || targets[i].fanned ||
		    from->stretch != stretch || targets[i].to == from->to)
			continue;
		if (atomic_load(&load->stop))
			rc = sl_fail(-ECANCELED, "the load was cancelled");
		if (!rc && !load->streams[device])
			rc = sluice_stream_new(device, &load->streams[device]);
		if (!rc && from->device >= 0)
			sl_device_reach(sl_device_find(device), sl_device_find(from->device));
		if (!rc)
			rc = sluice_copy_on(targets[i].to, from->to, load->plan->order[i]->bytes,
			                    load->streams[device]);
	}
	for (int i = 0; i < SL_DEVICES_MOST; i++) {
		int end = load->streams[i] ? sluice_stream_synchronize(i, load->streams[i]) : 0;

		rc = rc ? rc : end;
	}
	return rc;
}

/* ---------------------------------------------------------------------------------------- sums */

#define SUM_STEP ((size_t)16 << 20) /* bytes, after which the stop is seen */

/* Checks the whole members of archives that have come into memory of the host. */
static int load_check_sums(const struct sluice_tensor_load *load)
{
	for (size_t i = 0; i < load->plan->count; i++) {
		const struct sl_tensor_item *item = load->plan->order[i];
		const struct sl_tensor *tensor = item->tensor;
		const struct sl_tensor_file *file = &load->plan->tensors->files[tensor->file];
		uint32_t crc = tensor->crc_before;

		if (!file->summed || item->bytes != tensor->bytes ||
		    load->stretches.targets[i].device >= 0)
			continue;
		for (uint64_t at = 0; at < tensor->bytes; at += SUM_STEP) {
			if (atomic_load(&load->stop))
				return sl_fail(-ECANCELED, "the load was cancelled");
			crc = sl_crc32(crc, load->stretches.targets[i].to + at,
			               SL_MIN(tensor->bytes - at, SUM_STEP));
		}
		if (crc != tensor->crc)
			return sl_tensor_refuse(file, -EBADMSG, tensor->name,
			                        "its CRC-32 is %08x, and should be %08x", crc,
			                        tensor->crc);
	}
	return 0;
}

/* ------------------------------------------------------------------------------------- collect */

static void load_op_ended(struct sluice_tensor_load *load, sluice_op *op)
{
	const struct sl_tensor_stretch *stretch = sluice_op_user(op);
	int64_t moved = sluice_wait(op, 0);
	int rc = 0;

	load->ended++;
	if (moved < 0)
		rc = sl_fail((int)moved, "%s", sluice_op_message(op));
	else if ((uint64_t)moved < stretch->bytes)
		rc = sl_fail(-EIO, "'%s' has become shorter than its header says",
		             load->plan->tensors->files[stretch->file].name);
	else if (load->stretches.copied && !load->error)
		rc = load_copy_stretch(load, stretch - load->stretches.stretches);
	load_note(load, rc);
}

static int load_timeout(int64_t deadline)
{
	int64_t left = (deadline - sl_now() + 999999) / 1000000;

	return deadline == SL_FOREVER ? -1 : (int)SL_MIN(SL_MAX(left, 0), INT_MAX);
}

/* Takes the ends of operations until the last or the deadline, and lets others go on. */
static void load_collect(struct sluice_tensor_load *load, int64_t deadline)
{
	sluice_op *op;

	while (load->ended < load->started &&
	       !sluice_queue_next(load->queue, load_timeout(deadline), &op))
		load_op_ended(load, op);
	bool over = load->ended == load->started;
	if (over && load->summed && !load->error)
		load_note(load, load_check_sums(load));
	atomic_store(&load->state, over ? LOAD_OVER : LOAD_FREE);
	sl_word_wake(&load->state, INT_MAX);
}

static void *load_run(void *argument)
{
	struct sluice_tensor_load *load = argument;
	int rc = 0;

	if (load->digests)
		rc = sl_tensor_read_verified(load->plan->tensors, load->stretches.stretches,
		                             load->stretches.count, load->digests, &load->moved,
		                             &load->stop);
	else if (load->stretches.gathered)
		rc = sl_tensor_gather(load->plan, load->stretches.targets, &load->moved,
		                      &load->stop);
	load_note(load, rc);
	load_collect(load, SL_FOREVER);
	return NULL;
}

/* --------------------------------------------------------------------------------------- start */

/* Has the further memory of a stretch copied, and not read into. */
static void load_narrow(struct sluice_tensor_load *load, size_t stretch)
{
	struct sl_tensor_target *targets = load->stretches.targets;

	for (size_t i = 0; i < load->plan->count; i++)
		if (targets[targets[i].source].stretch == stretch)
			targets[i].fanned = false;
	load->stretches.copied = true;
}

/* Starts the operations. If not the first of them is refused, the load has the error. */
static int load_submit(struct sluice_tensor_load *load,
                       const struct sluice_tensor_read_options *options)
{
	int rc = 0;

	for (; !rc && load->started < load->stretches.count; load->started += !rc) {
		struct sl_tensor_stretch *stretch = &load->stretches.stretches[load->started];
		struct sluice_request r = SLUICE_REQUEST_INIT;

		r.kind = SLUICE_READ;
		r.extents = stretch->extents;
		r.count = stretch->count;
		r.user = stretch;
		r.on = options->on;
		r.stream = options->stream;
		r.queue = load->queue;
		r.also = stretch->also;
		r.also_count = stretch->further;
		rc = sluice_submit(load->plan->tensors->files[stretch->file].file, &r,
		                   &load->ops[load->started]);
		/* Of a blob in memory of a device. */
		if (rc == -ENOTSUP && r.also_count) {
			load_narrow(load, load->started);
			r.also_count = 0;
			rc = sluice_submit(load->plan->tensors->files[stretch->file].file, &r,
			                   &load->ops[load->started]);
		}
		free(stretch->extents);
		free(stretch->also);
		stretch->extents = NULL;
		stretch->also = NULL;
	}
	if (!load->started)
		return rc;
	load_note(load, rc);
	return 0;
}

static int load_start_thread(struct sluice_tensor_load *load)
{
	atomic_store(&load->state, LOAD_COLLECTED);
	int rc = sl_thread_start(&load->thread, "sluice-tensors", load_run, load);
	load->threaded = !rc;
	if (!rc)
		return 0;
	atomic_store(&load->state, LOAD_FREE);
	return sl_fail(rc, "cannot start a thread for a load: %s", sl_error_text(rc));
}

static int load_start(struct sluice_tensor_load *load,
                      const struct sluice_tensor_read_options *options)
{
	int rc = sluice_queue_new(&load->queue);

	if (rc)
		return rc;
	if (load->digests)
		return load_start_thread(load);
	load->ops = calloc(load->stretches.count + 1, sizeof(sluice_op *));
	if (!load->ops)
		return sl_fail(-ENOMEM, "no memory");
	rc = load_submit(load, options);
	if (!rc && (load->stretches.copied || load->stretches.gathered || load->summed) &&
	    load_start_thread(load))
		load_note(load, -EAGAIN);
	return rc;
}

static int load_make(struct sluice_tensor_load *load, const sluice_tensor_memory *memory,
                     const struct sluice_tensor_read_options *options)
{
	const struct sluice_tensors *tensors = load->plan->tensors;
	const struct sl_tensor_stretch *stretch;
	enum sl_tensor_stretches_kind kind = options->digests ? SL_PARTS_BY_FILE
	                                     : options->on    ? SL_PARTS_ON_STREAM
	                                                      : SL_PARTS_COPIED;
	int rc = sl_tensor_stretches_make(load->plan, memory, kind, &load->stretches);

	for (size_t i = 0; i < load->plan->count; i++) {
		const struct sl_tensor_item *item = &load->plan->items[i];

		load->bytes += item->bytes;
		load->summed |=
			kind == SL_PARTS_COPIED && tensors->files[item->tensor->file].summed;
	}
	load->read = load->stretches.gathered;
	for (stretch = load->stretches.stretches;
	     !rc && stretch < load->stretches.stretches + load->stretches.count; stretch++) {
		load->read +=
			options->digests ? tensors->files[stretch->file].length : stretch->bytes;
		if (options->on && stretch->device != load->stretches.stretches->device)
			rc = sl_fail(-EINVAL, "in stream order all tensors are of one device");
	}
	if (!rc && options->digests) {
		load->digests = calloc(tensors->file_count + 1, sizeof(*load->digests));
		if (!load->digests)
			return sl_fail(-ENOMEM, "no memory");
		memcpy(load->digests, options->digests,
		       tensors->file_count * sizeof(*load->digests));
	}
	return rc ? rc : load_start(load, options);
}

static int read_check(const sluice_tensor_plan *plan, const sluice_tensor_memory *memory,
                      const struct sluice_tensor_read_options *options)
{
	if (options->digests && options->on)
		return sl_fail(-ENOTSUP, "digests are not checked in stream order");
	if (memory && !sl_process_is(memory->process))
		return sl_process_refuse();
	if (plan->bytes && !memory)
		return sl_fail(-EINVAL, "the plan needs %" PRIu64 " bytes of memory, which is NULL",
		               plan->bytes);
	if (memory && memory->bytes < plan->bytes)
		return sl_fail(-EINVAL,
		               "the plan needs %" PRIu64 " bytes, and the memory has %" PRIu64,
		               plan->bytes, memory->bytes);
	return 0;
}

/* Frees a load without a thread, of which no operation is running. */
static void load_clear(struct sluice_tensor_load *load)
{
	for (size_t i = 0; i < load->started; i++)
		sluice_op_free(load->ops[i]);
	for (int i = 0; i < SL_DEVICES_MOST; i++)
		sluice_stream_free(load->streams[i]);
	sluice_queue_free(load->queue);
	sl_tensor_stretches_clear(&load->stretches);
	free(load->ops);
	free(load->digests);
	free(load->message);
	free(load);
}

/* --------------------------------------------------------------------------------- public calls */

int sluice_tensor_plan_read(sluice_tensor_plan *plan, sluice_tensor_memory *memory,
                            const struct sluice_tensor_read_options *options,
                            sluice_tensor_load **out)
{
	struct sluice_tensor_read_options o = SLUICE_TENSOR_READ_OPTIONS_INIT;

	if (!plan || !out)
		return sl_fail(-EINVAL, "sluice_tensor_plan_read: NULL");
	int rc = sl_struct_take("tensor read options", options, &o, sizeof(o));
	if (!rc)
		rc = sl_context_check(plan->tensors->ctx);
	if (!rc)
		rc = read_check(plan, memory, &o);
	if (rc)
		return rc;
	struct sluice_tensor_load *load = calloc(1, sizeof(*load));
	if (!load)
		return sl_fail(-ENOMEM, "no memory");
	load->plan = plan;
	rc = load_make(load, memory, &o);
	if (rc)
		load_clear(load);
	else
		*out = load;
	return rc;
}

int64_t sluice_tensor_load_wait(sluice_tensor_load *load, int timeout_ms)
{
	int64_t deadline = sl_deadline(timeout_ms);
	int rc = load_check(load);

	if (rc)
		return rc;
	for (;;) {
		uint32_t state = LOAD_FREE;

		if (atomic_compare_exchange_strong(&load->state, &state, LOAD_COLLECTED)) {
			load_collect(load, deadline);
			state = atomic_load(&load->state);
		}
		if (state == LOAD_OVER)
			return load->error ? load->error : (int64_t)load->bytes;
		if (sl_now() >= deadline)
			return sl_fail(-EINPROGRESS, "the load is still running");
		/* The thread that collects wakes this one. */
		if (state == LOAD_COLLECTED)
			sl_word_wait(&load->state, state, deadline);
	}
}

void sluice_tensor_load_progress(sluice_tensor_load *load, uint64_t *read, uint64_t *all)
{
	if (load_check(load))
		return;
	uint64_t moved = atomic_load(&load->moved);
	for (size_t i = 0; i < load->started; i++)
		moved += sluice_op_moved(load->ops[i]);
	if (read)
		*read = moved;
	if (all)
		*all = load->read;
}

void sluice_tensor_load_cancel(sluice_tensor_load *load)
{
	if (!load_check(load))
		load_stop(load);
}

const char *sluice_tensor_load_message(const sluice_tensor_load *load)
{
	if (load_check(load) || atomic_load(&load->state) != LOAD_OVER || !load->error)
		return "";
	return load->message ? load->message : sl_error_text(load->error);
}

void sluice_tensor_load_free(sluice_tensor_load *load)
{
	if (!load || load_check(load))
		return;
	sluice_tensor_load_wait(load, -1);
	if (load->threaded)
		pthread_join(load->thread, NULL);
	load_clear(load);
}
