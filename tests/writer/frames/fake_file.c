/* SPDX-License-Identifier: Apache-2.0 */
#include "frames/fake_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct sl_h5_file {
	int error;
};
struct sl_h5_dataset {
	struct fake_dataset *of;
};

struct fake fake;
static struct sl_h5_file file;
static struct sl_h5_dataset handles[FAKE_DATASETS];

/* Contiguous datasets lie far from each other in a file that is mostly a hole. */
static uint64_t place_of(const struct fake_dataset *d)
{
	return 4096 + ((uint64_t)(d - fake.datasets) << 30);
}

static void wrong(const char *what)
{
	fprintf(stderr, "fake file: %s\n", what);
	atomic_fetch_add(&fake.wrong, 1);
}

void fake_reset(void)
{
	for (unsigned i = 0; i < fake.count; i++) {
		struct fake_dataset *d = &fake.datasets[i];

		for (uint64_t k = 0; k < d->count; k++) {
			for (size_t c = 0; c < d->frames[k].count; c++)
				free(d->frames[k].chunks[c].bytes);
			free(d->frames[k].chunks);
			free(d->frames[k].scalars);
		}
		free(d->frames);
	}
	if (fake.memory > 0)
		close(fake.memory);
	memset(&fake, 0, sizeof(fake));
	file.error = 0;
}

/* Every call passes here; what a test has arranged happens. */
static int enter(enum fake_call call)
{
	static _Atomic unsigned inside;
	unsigned number = atomic_fetch_add(&fake.calls, 1) + 1;
	bool storing = call == FAKE_STORE || call == FAKE_FRAME || call == FAKE_FLUSH;

	if (atomic_fetch_add(&inside, 1))
		wrong("two calls at a time");
	while (storing && atomic_load(&fake.shut)) {
		atomic_store(&fake.waiting, 1);
		usleep(200);
	}
	atomic_store(&fake.waiting, 0);
	if (fake.slow_us)
		usleep(fake.slow_us);
	atomic_fetch_sub(&inside, 1);
	if (number == fake.die_at)
		pthread_exit(NULL);
	if (fake.fail_at && number >= fake.fail_at && !file.error &&
	    (fake.fail_call == FAKE_ANY || fake.fail_call == call))
		file.error = fake.fail_error;
	if (file.error)
		return sl_fail(file.error, "the fake was told to fail");
	return 0;
}

int sl_h5_usable(unsigned flags)
{
	(void)flags;
	return 0;
}

int sl_h5_file_open(const char *path, const struct sl_h5_file_options *o, struct sl_h5_file **out)
{
	int rc = enter(FAKE_OPEN);

	(void)path;
	(void)o;
	if (rc)
		return rc;
	fake.memory = memfd_create("frames", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	*out = &file;
	return 0;
}

static bool any_torn(void)
{
	for (unsigned i = 0; i < fake.count; i++)
		if (fake.datasets[i].count > fake.datasets[i].whole)
			return true;
	return false;
}

int sl_h5_dataset_add(struct sl_h5_file *f, const char *name, struct sl_h5_layout *layout,
                      const struct sl_h5_set_options *set, struct sl_h5_dataset **out,
                      uint64_t *first)
{
	struct fake_dataset *d = &fake.datasets[fake.count];
	int rc;

	(void)f;
	(void)set;
	if (fake.adopt)
		fake.adopt(layout);
	*first = fake.first;
	rc = out ? enter(FAKE_ADD) : 0;
	if (rc || !out)
		return rc;
	if (any_torn())
		wrong("add while a frame is not whole");
	snprintf(d->name, sizeof(d->name), "%s", name);
	d->layout = *layout;
	d->first = fake.first;
	handles[fake.count].of = d;
	*out = &handles[fake.count++];
	return 0;
}

void sl_h5_dataset_forget(struct sl_h5_dataset *dataset)
{
	if (dataset != &handles[fake.count - 1] || dataset->of->count)
		wrong("what is dropped is not new");
	fake.count--;
}

int sl_h5_dataset_offset(struct sl_h5_dataset *dataset, uint64_t *offset, int *fd)
{
	*offset = place_of(dataset->of);
	*fd = fake.memory;
	return 0;
}

int sl_h5_chunk_store(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                      uint32_t mask, const void *bytes, size_t n)
{
	struct fake_dataset *d = dataset->of;
	struct fake_frame *to;
	struct fake_chunk *chunk;
	int rc = enter(FAKE_STORE);

	if (rc)
		return rc;
	atomic_fetch_add(&fake.stores, 1);
	if (frame < d->first || frame - d->first != d->whole)
		wrong("a chunk of a frame that is not the next");
	frame -= d->first;
	if (frame >= d->count) {
		d->frames = realloc(d->frames, (frame + 1) * sizeof(*d->frames));
		memset(&d->frames[d->count], 0, (frame + 1 - d->count) * sizeof(*d->frames));
		d->count = frame + 1;
	}
	to = &d->frames[frame];
	to->chunks = realloc(to->chunks, (to->count + 1) * sizeof(*to->chunks));
	chunk = &to->chunks[to->count++];
	memcpy(chunk->offset, offset, d->layout.rank * sizeof(*offset));
	chunk->mask = mask;
	chunk->length = n;
	chunk->bytes = malloc(n + 1);
	memcpy(chunk->bytes, bytes, n);
	return 0;
}

int sl_h5_chunk_store_last(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                           const void *bytes, size_t n, bool there)
{
	(void)there;
	return sl_h5_chunk_store(dataset, frame, offset, 0, bytes, n);
}

void sl_h5_fill(const struct sl_h5_dataset *dataset, void *out, size_t n)
{
	(void)dataset;
	memset(out, 0, n);
}

bool sl_h5_chunk_is_raw(const struct sl_h5_dataset *dataset, uint64_t frame)
{
	(void)dataset, (void)frame;
	return false;
}

int sl_h5_chunk_store_frames(struct sl_h5_dataset *dataset, uint64_t frame, uint64_t from,
                             uint64_t to, const uint64_t *offset, const void *bytes, size_t n)
{
	(void)dataset, (void)frame, (void)from, (void)to, (void)offset, (void)bytes, (void)n;
	wrong("chunks of several frames are tested with HDF5");
	return 0;
}

int sl_h5_chunk_read(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                     void *out, size_t n)
{
	(void)dataset, (void)frame, (void)offset, (void)out, (void)n;
	wrong("chunks of several frames are tested with HDF5");
	return 0;
}

int sl_h5_frames_stored(struct sl_h5_dataset *dataset, uint64_t frame, uint64_t frames,
                        const double *scalars, double max_error)
{
	struct fake_dataset *d = dataset->of;
	size_t count = d->layout.scalar_count;
	int rc = enter(FAKE_FRAME);

	if (rc)
		return rc;
	if (frame - d->first != d->whole || frames != 1)
		wrong("a frame that is not the next");
	d->max_error = max_error;
	if (!d->layout.contiguous) {
		struct fake_frame *f = &d->frames[d->whole];

		f->whole = true;
		f->scalars = malloc(count * sizeof(double) + 1);
		if (count)
			memcpy(f->scalars, scalars, count * sizeof(double));
	}
	d->whole++;
	return 0;
}

int sl_h5_coordinate_add(struct sl_h5_file *f, const struct sl_h5_coordinate *c)
{
	(void)f, (void)c;
	return enter(FAKE_ADD);
}

int sl_h5_attributes_give(struct sl_h5_file *f, struct sl_h5_dataset *dataset,
                          const struct sluice_attribute *list, size_t count)
{
	(void)f, (void)dataset, (void)list, (void)count;
	if (any_torn())
		wrong("attributes while a frame is not whole");
	return 0;
}

int sl_h5_file_flush(struct sl_h5_file *f)
{
	int rc = enter(FAKE_FLUSH);

	(void)f;
	if (rc)
		return rc;
	if (any_torn())
		wrong("a flush while a frame is not whole");
	for (unsigned i = 0; i < fake.count; i++)
		fake.datasets[i].flushed = fake.datasets[i].whole;
	atomic_fetch_add(&fake.flushes, 1);
	return 0;
}

int sl_h5_file_close(struct sl_h5_file *f, bool keep)
{
	int rc = enter(FAKE_CLOSE);

	if (fake.closed)
		wrong("closed twice");
	fake.closed = true;
	fake.kept = keep;
	if (rc || f->error)
		return rc;
	for (unsigned i = 0; keep && i < fake.count; i++)
		fake.datasets[i].flushed = fake.datasets[i].whole;
	return 0;
}

uint64_t sl_h5_file_held(const struct sl_h5_file *f)
{
	(void)f;
	return 0;
}

/* -------------------------------------------------------------------------------- reading back */

/* The chunk as the program's elements, by the filters that its mask leaves. */
static bool decode(const struct sl_h5_layout *l, const struct fake_chunk *chunk, size_t n,
                   unsigned char *out)
{
	unsigned char *packed = malloc(n);
	void *state;
	bool good = true;

	if (!l->codec->filter || chunk->mask & sl_h5_mask_codec(l)) {
		good = chunk->length == n;
		memcpy(packed, chunk->bytes, good ? n : 0);
	} else {
		l->codec->state_new(l->level, l->element, n, &state);
		good = !l->codec->decompress(state, chunk->bytes, chunk->length, packed, n);
		l->codec->state_free(state);
	}
	if (l->shuffle && !(chunk->mask & sl_h5_mask_shuffle(l)))
		sl_unshuffle(packed, n, l->element, out);
	else
		memcpy(out, packed, n);
	free(packed);
	return good;
}

/* Copies what of the chunk is in the frame, one element at a time; and the rest has to be 0. */
static bool place(const struct sl_h5_layout *l, const struct fake_chunk *chunk,
                  const unsigned char *from, unsigned char *out)
{
	uint64_t at[SLUICE_FRAME_RANK_MOST] = {0};

	for (size_t i = 0;; i++) {
		size_t to = 0;
		bool inside = true;
		unsigned d;

		for (d = 0; d < l->rank; d++) {
			to = to * l->shape[d] + chunk->offset[d] + at[d];
			inside &= chunk->offset[d] + at[d] < l->shape[d];
		}
		for (size_t b = 0; !inside && b < l->element; b++)
			if (from[i * l->element + b])
				return false;
		if (inside)
			memcpy(out + to * l->element, from + i * l->element, l->element);
		for (d = l->rank; d-- && ++at[d] == l->chunk[d];)
			at[d] = 0;
		if (d == (unsigned)-1)
			return true;
	}
}

bool fake_read(const struct fake_dataset *dataset, uint64_t frame, void *out)
{
	const struct sl_h5_layout *l = &dataset->layout;
	size_t bytes = l->element, n = l->element, wanted = 1;
	bool good = true;
	unsigned char *chunk;

	for (unsigned d = 0; d < l->rank; d++) {
		bytes *= l->shape[d];
		n *= l->chunk[d];
		wanted *= (l->shape[d] + l->chunk[d] - 1) / l->chunk[d];
	}
	if (l->contiguous)
		return pread(fake.memory, out, bytes, (off_t)(place_of(dataset) + frame * bytes)) ==
		       (ssize_t)bytes;
	if (frame - dataset->first >= dataset->whole)
		return false;
	chunk = malloc(n);
	good = dataset->frames[frame - dataset->first].count == wanted;
	for (size_t i = 0; good && i < wanted; i++) {
		const struct fake_chunk *c = &dataset->frames[frame - dataset->first].chunks[i];

		good = decode(l, c, n, chunk) && place(l, c, chunk, out);
	}
	free(chunk);
	return good;
}
