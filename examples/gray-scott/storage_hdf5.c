/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storage as a course on the subject would do it: one thread in the background that calls H5Dwrite, behind
 * a bounded channel of finished frames, and a second channel on which their buffers come back. HDF5's own
 * filters shuffle and compress, on that one thread. And storage before that course: submit calls H5Dwrite
 * with the same filters, and the simulation stands still meanwhile. Of several ranks, rank 0 does so for all,
 * or all of them with a file of parallel HDF5.
 */
#include <errno.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5_error.h"
#include "ranks.h"
#include "storage.h"
#include "storage_hdf5.h"

struct storage {
	struct storage_options options; /* of the frames that are written */
	bool gathers;                   /* from all ranks to rank 0 */
	bool writes;                    /* this rank */
	int level;                      /* of gzip; 0: no filter */
	unsigned count;                 /* of buffers */
	float **buffers;
	pthread_t thread;
	bool started;

	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct {
		float **free, **ready; /* stack, ring */
		unsigned free_count, ready_count, ready_first;
		bool opened, closing;
		int failed; /* negative errno, or 0 */
	} locked;           /* guarded by mutex */
	char message[512];  /* written once, before failed is set */

	struct {
		hid_t file, dataset, memory;
		hid_t transfer; /* a property list */
		hsize_t frames, bytes;
	} hdf5; /* the thread's own until it has ended; without one the caller's */
};

static bool plain_knows(const char *codec, int level, char *why, size_t size)
{
	bool gzip = !strcmp(codec, "gzip");

	snprintf(why, size, "has gzip:1 to gzip:9 and none");
	return (gzip && level <= 9) || (!strcmp(codec, "none") && level == 0);
}

/* HDF5 has no errno, but the sentence of one is in its own. */
static int errno_of(const char *reason)
{
	static const int known[] = {ENOSPC, EFBIG,   ENOENT, EACCES,       EISDIR, EROFS, EDQUOT,
	                            EPERM,  ENOTDIR, ENXIO,  ENAMETOOLONG, EAGAIN, ENOMEM};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(reason, strerror(known[i])))
			return -known[i];
	return -EIO;
}

/* The first error stays. */
static int fail(struct storage *s, const char *what)
{
	char reason[256];

	hdf5_error(reason, sizeof reason);
	pthread_mutex_lock(&s->mutex);
	if (!s->locked.failed) {
		snprintf(s->message, sizeof s->message, "'%s': %s: %s", s->options.path, what,
		         reason);
		s->locked.failed = errno_of(reason);
	}
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mutex);
	return s->locked.failed;
}

static bool write_attributes(const struct storage *s, hid_t dataset)
{
	hid_t space = H5Screate(H5S_SCALAR);
	bool good = space >= 0;

	for (size_t i = 0; good && s->options.names[i]; i++) {
		hid_t attribute = H5Acreate2(dataset, s->options.names[i], H5T_IEEE_F64LE, space,
		                             H5P_DEFAULT, H5P_DEFAULT);

		good = attribute >= 0 &&
		       H5Awrite(attribute, H5T_NATIVE_DOUBLE, &s->options.values[i]) >= 0;
		if (attribute >= 0)
			good = H5Aclose(attribute) >= 0 && good;
	}
	if (space >= 0)
		H5Sclose(space);
	return good;
}

/* A chunk is a frame, so that no reader meets half of one, and the dataset grows by whole frames. */
static hid_t create_dataset(const struct storage *s)
{
	hsize_t none[3] = {0, s->options.whole, s->options.columns};
	hsize_t most[3] = {H5S_UNLIMITED, s->options.whole, s->options.columns};
	hsize_t chunk[3] = {1, s->options.chunk_rows, s->options.columns};
	hid_t space = H5Screate_simple(3, none, most), list = H5Pcreate(H5P_DATASET_CREATE);
	hid_t dataset = H5I_INVALID_HID;

	if (space >= 0 && list >= 0 && H5Pset_chunk(list, 3, chunk) >= 0 &&
	    (!s->level ||
	     (H5Pset_shuffle(list) >= 0 && H5Pset_deflate(list, (unsigned)s->level) >= 0)))
		dataset = H5Dcreate2(s->hdf5.file, STORAGE_DATASET, H5T_IEEE_F32LE, space,
		                     H5P_DEFAULT, list, H5P_DEFAULT);
	if (space >= 0)
		H5Sclose(space);
	if (list >= 0)
		H5Pclose(list);
	return dataset;
}

static int create(struct storage *s)
{
	hsize_t frame[3] = {1, s->options.rows, s->options.columns};

	s->hdf5.file = storage_create_file(s->options.path, !s->gathers, &s->hdf5.transfer);
	if (s->hdf5.file < 0)
		return fail(s, "cannot be created");
	s->hdf5.memory = H5Screate_simple(3, frame, NULL);
	s->hdf5.dataset = create_dataset(s);
	if (s->hdf5.memory < 0 || s->hdf5.dataset < 0 || !write_attributes(s, s->hdf5.dataset))
		return fail(s, "the dataset cannot be created");
	return 0;
}

static int append(struct storage *s, const float *frame)
{
	hsize_t first[3] = {s->hdf5.frames, s->options.first, 0};
	hsize_t one[3] = {1, s->options.rows, s->options.columns};
	hsize_t size[3] = {s->hdf5.frames + 1, s->options.whole, s->options.columns};
	char what[64];
	hid_t space;
	bool good;

	if (H5Dset_extent(s->hdf5.dataset, size) < 0)
		return fail(s, "the dataset cannot grow");
	space = H5Dget_space(s->hdf5.dataset);
	good = space >= 0 &&
	       H5Sselect_hyperslab(space, H5S_SELECT_SET, first, NULL, one, NULL) >= 0 &&
	       H5Dwrite(s->hdf5.dataset, H5T_NATIVE_FLOAT, s->hdf5.memory, space, s->hdf5.transfer,
	                frame) >= 0;
	if (!good) {
		snprintf(what, sizeof what, "frame %llu cannot be written",
		         (unsigned long long)s->hdf5.frames);
		fail(s, what);
		/* A frame that is not there is not shown. */
		size[0] = s->hdf5.frames;
		H5Dset_extent(s->hdf5.dataset, size);
	} else {
		s->hdf5.frames++;
	}
	if (space >= 0)
		H5Sclose(space);
	return good ? 0 : -EIO;
}

/* The next frame to be written, or NULL when there will be none. */
static float *take_ready(struct storage *s, float *written)
{
	float *frame = NULL;

	pthread_mutex_lock(&s->mutex);
	if (written)
		s->locked.free[s->locked.free_count++] = written;
	pthread_cond_broadcast(&s->changed);
	while (!s->locked.ready_count && !s->locked.closing)
		pthread_cond_wait(&s->changed, &s->mutex);
	if (s->locked.ready_count && !s->locked.failed) {
		frame = s->locked.ready[s->locked.ready_first];
		s->locked.ready_first = (s->locked.ready_first + 1) % s->count;
		s->locked.ready_count--;
		pthread_cond_broadcast(&s->changed);
	}
	pthread_mutex_unlock(&s->mutex);
	return frame;
}

static void finish(struct storage *s)
{
	if (s->hdf5.dataset >= 0) {
		s->hdf5.bytes = H5Dget_storage_size(s->hdf5.dataset);
		if (H5Dclose(s->hdf5.dataset) < 0)
			fail(s, "the dataset cannot be closed");
	}
	if (s->hdf5.memory >= 0)
		H5Sclose(s->hdf5.memory);
	if (s->hdf5.transfer > 0)
		H5Pclose(s->hdf5.transfer);
	if (s->hdf5.file >= 0 && H5Fclose(s->hdf5.file) < 0)
		fail(s, "cannot be closed");
}

static void *run(void *argument)
{
	struct storage *s = argument;
	float *frame = NULL;
	int rc;

	hdf5_errors_quiet();
	rc = create(s);
	pthread_mutex_lock(&s->mutex);
	s->locked.opened = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mutex);
	while (!rc && (frame = take_ready(s, frame)))
		rc = append(s, frame);
	finish(s);
	return NULL;
}

static int refuse(struct storage *s, int rc, const char *what)
{
	snprintf(s->message, sizeof s->message, "'%s': %s: %s", s->options.path, what,
	         strerror(-rc));
	s->locked.failed = rc;
	return rc;
}

static int make_buffers(struct storage *s)
{
	size_t bytes = s->options.rows * s->options.columns * sizeof(float);

	s->buffers = calloc(3 * (size_t)s->count, sizeof *s->buffers);
	if (!s->buffers)
		return -ENOMEM;
	s->locked.free = s->buffers + s->count;
	s->locked.ready = s->buffers + 2 * (size_t)s->count;
	for (unsigned i = 0; i < s->count; i++) {
		s->buffers[i] = malloc(bytes);
		if (!s->buffers[i])
			return -ENOMEM;
		s->locked.free[s->locked.free_count++] = s->buffers[i];
	}
	return 0;
}

/* With so many buffers, where frames are written. */
static int make(const struct storage_options *options, unsigned count, bool gathers,
                struct storage **out)
{
	struct storage *s = calloc(1, sizeof *s);
	int rc;

	*out = s;
	if (!s)
		return -ENOMEM;
	s->options = *options;
	s->gathers = gathers;
	s->writes = !gathers || !ranks.own;
	if (gathers && s->writes)
		s->options.rows = s->options.chunk_rows = options->whole;
	if (!strcmp(options->codec, "gzip"))
		s->level = options->level ? options->level : 1;
	s->count = s->writes ? count : 1;
	s->hdf5.file = s->hdf5.dataset = s->hdf5.memory = H5I_INVALID_HID;
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->changed, NULL);
	rc = make_buffers(s);
	return rc ? refuse(s, rc, "buffers") : 0;
}

static int plain_open(const struct storage_options *options, struct storage **out)
{
	int rc = make(options, options->waiting + 1, true, out);
	struct storage *s = *out;

	if (rc || !s->writes)
		return rc;
	rc = -pthread_create(&s->thread, NULL, run, s);
	if (rc)
		return refuse(s, rc, "a thread");
	s->started = true;
	pthread_mutex_lock(&s->mutex);
	while (!s->locked.opened)
		pthread_cond_wait(&s->changed, &s->mutex);
	rc = s->locked.failed;
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

static int open_without_thread(const struct storage_options *options, bool gathers,
                               struct storage **out)
{
	int rc = make(options, 1, gathers, out);

	hdf5_errors_quiet();
	return rc || !(*out)->writes ? rc : create(*out);
}

static int sync_open(const struct storage_options *options, struct storage **out)
{
	return open_without_thread(options, true, out);
}

static int collective_open(const struct storage_options *options, struct storage **out)
{
	return open_without_thread(options, false, out);
}

static int plain_acquire(struct storage *s, float **frame)
{
	int rc;

	pthread_mutex_lock(&s->mutex);
	while (!s->locked.free_count && !s->locked.failed)
		pthread_cond_wait(&s->changed, &s->mutex);
	rc = s->locked.failed;
	if (!rc)
		*frame = s->locked.free[--s->locked.free_count];
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

static int submit_to_thread(struct storage *s, float *frame)
{
	unsigned last;
	int rc;

	pthread_mutex_lock(&s->mutex);
	last = (s->locked.ready_first + s->locked.ready_count++) % s->count;
	s->locked.ready[last] = frame;
	pthread_cond_broadcast(&s->changed);
	rc = s->locked.failed;
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

static int plain_submit(struct storage *s, float *frame)
{
	int rc = 0;

	if (s->gathers)
		ranks_gather(frame, s->options.whole, s->options.columns);
	if (s->started)
		return submit_to_thread(s, frame);
	if (s->writes)
		rc = append(s, frame);
	s->locked.free[s->locked.free_count++] = frame;
	return rc;
}

static int plain_close(struct storage *s)
{
	if (!s->started) {
		finish(s);
		return s->locked.failed;
	}
	pthread_mutex_lock(&s->mutex);
	s->locked.closing = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mutex);
	pthread_join(s->thread, NULL);
	s->started = false;
	return s->locked.failed;
}

static void plain_free(struct storage *s)
{
	if (!s)
		return;
	for (unsigned i = 0; s->buffers && i < s->count; i++)
		free(s->buffers[i]);
	free(s->buffers);
	pthread_mutex_destroy(&s->mutex);
	pthread_cond_destroy(&s->changed);
	free(s);
}

static const char *plain_message(const struct storage *s)
{
	return s ? s->message : "out of memory";
}

static struct storage_totals plain_totals(const struct storage *s)
{
	return (struct storage_totals){.frames = s->hdf5.frames,
	                               .bytes = ranks.own ? 0 : s->hdf5.bytes};
}

static const struct storage_calls plain_calls = {
	.knows = plain_knows,
	.acquire = plain_acquire,
	.submit = plain_submit,
	.close = plain_close,
	.totals = plain_totals,
	.message = plain_message,
	.free = plain_free,
};

const struct storage_kind storage_plain = {"plain", "gzip", plain_open, &plain_calls};
const struct storage_kind storage_sync = {"sync", "gzip", sync_open, &plain_calls};
const struct storage_kind storage_collective = {"collective", "gzip", collective_open,
                                                &plain_calls};
