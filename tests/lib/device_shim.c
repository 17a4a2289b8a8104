/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For each operation a shadow: memory of a device in place of the test's, which gets the source of a
 * write and gives back what a read brought when the test sees its end. In stream order both copies are
 * commands of the same stream, before and behind the operation, and nothing else orders them.
 *
 * A shadow hangs on its operation as the user pointer, so that it is there before the operation can end.
 */
#include "lib/device_shim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "lib/gpu.h"

enum {
	DEVICES = GPU_DEVICES,
	STREAMS = 5, /* of each device; the last two are those that every program has */
	GUARD = 64,
	GUARD_BYTE = 0xa7,
	JUNK_BYTE = 0x3c,
	CLASSES = 32, /* of blocks: powers of two */
};
#define LEAST_BLOCK ((size_t)4096)
#define MOST_BYTES  ((size_t)1 << 30)

static _Noreturn void give_up(const char *what, int rc)
{
	fprintf(stderr, "device shim: %s: %s: \"%s\"\n", what, strerror(rc < 0 ? -rc : rc),
	        sluice_last_message());
	abort();
}

static void must(int rc, const char *what)
{
	if (rc < 0)
		give_up(what, rc);
}

/* -------------------------------------------------------------------------------------- blocks */

enum block_kind { DEVICE_BLOCK, PINNED_BLOCK, BLOCK_KINDS };

/* Kept for ever: to free one waits for the device, and the next user finds out who still uses it. */
struct block {
	struct block *next;
	char *memory;
	size_t length;
	enum block_kind kind;
	int device;
	unsigned class;
};

struct place {
	struct sluice_extent test; /* what the test gave */
	size_t at;                 /* in the block */
};

struct shadow {
	struct shadow *next; /* in orphans */
	void *user;
	sluice_file *file;
	bool read, on_stream;
	bool whole; /* the block had what the test's memory holds: all of it may be given back */
	int device;
	sluice_stream stream;
	size_t count, length; /* of places; of the block that they take */
	struct place *places;
	struct block *block;  /* NULL: the test's own memory is used */
	struct block *behind; /* of a read in stream order: what the stream saw behind it */
	struct block
		*further; /* of an awaited read: of the other device, which gets the bytes, too */
	sluice_event passed;
	enum { RUNNING, SETTLING, SETTLED } state; /* guarded by shim.mutex */
};

static struct {
	pthread_once_t once;
	pid_t owner;
	_Atomic uint64_t draws;
	sluice_stream streams[DEVICES][STREAMS];

	pthread_mutex_t mutex;
	pthread_cond_t settled;
	struct block *blocks[DEVICES][BLOCK_KINDS][CLASSES];
	sluice_event *events[DEVICES]; /* a stack that only grows */
	size_t event_count[DEVICES], event_room[DEVICES];
	struct shadow *orphans; /* nobody has a handle: they are settled with their file */
} shim = {.once = PTHREAD_ONCE_INIT,
          .mutex = PTHREAD_MUTEX_INITIALIZER,
          .settled = PTHREAD_COND_INITIALIZER};

static void start(void)
{
	shim.owner = getpid();
	test_seed();
	for (int d = 0; d < DEVICES; d++) {
		for (int i = 0; i < STREAMS - 2; i++)
			must(sluice_stream_new(gpu_device(d), &shim.streams[d][i]), "stream");
		shim.streams[d][STREAMS - 2] = SLUICE_STREAM_DEFAULT;
		shim.streams[d][STREAMS - 1] = (sluice_stream)2;
	}
}

/* Whether the row is one for this, and the process the one that has the devices. */
static bool active(void)
{
	if (row->memory == HOST_MEMORY && row->order == HOST_ORDER)
		return false;
	pthread_once(&shim.once, start);
	return getpid() == shim.owner;
}

static size_t draw(size_t bound)
{
	struct rng r = rng_new(0x5111 + atomic_fetch_add(&shim.draws, 1));

	return rng_below(&r, bound);
}

static struct block *block_take(int device, enum block_kind kind, size_t length)
{
	struct block *block;
	unsigned class = 0;
	void *memory;

	while (LEAST_BLOCK << class < length)
		class ++;
	pthread_mutex_lock(&shim.mutex);
	block = shim.blocks[device][kind][class];
	if (block)
		shim.blocks[device][kind][class] = block->next;
	pthread_mutex_unlock(&shim.mutex);
	if (block)
		return block;
	block = calloc(1, sizeof(*block));
	block->length = LEAST_BLOCK << class;
	if (kind == DEVICE_BLOCK)
		must(sluice_device_alloc(gpu_device(device), block->length, &memory), "memory");
	else
		must(sluice_pinned_alloc(gpu_device(device), block->length, &memory), "pinned");
	block->memory = memory;
	block->kind = kind;
	block->device = device;
	block->class = class;
	return block;
}

static void block_give(struct block *block)
{
	if (!block)
		return;
	pthread_mutex_lock(&shim.mutex);
	block->next = shim.blocks[block->device][block->kind][block->class];
	shim.blocks[block->device][block->kind][block->class] = block;
	pthread_mutex_unlock(&shim.mutex);
}

static sluice_event event_take(int device)
{
	sluice_event event = NULL;

	pthread_mutex_lock(&shim.mutex);
	if (shim.event_count[device])
		event = shim.events[device][--shim.event_count[device]];
	pthread_mutex_unlock(&shim.mutex);
	if (!event)
		must(sluice_event_new(gpu_device(device), &event), "event");
	return event;
}

static void event_give(int device, sluice_event event)
{
	if (!event)
		return;
	pthread_mutex_lock(&shim.mutex);
	if (shim.event_count[device] == shim.event_room[device]) {
		shim.event_room[device] = 2 * shim.event_room[device] + 64;
		shim.events[device] = realloc(shim.events[device],
		                              shim.event_room[device] * sizeof(sluice_event));
	}
	shim.events[device][shim.event_count[device]++] = event;
	pthread_mutex_unlock(&shim.mutex);
}

/* -------------------------------------------------------------------------------------- submit */

/* Calls that are refused, and memory that no processor can copy, stay as they are. */
static bool can_be_shadowed(const struct sluice_request *r)
{
	size_t total = 0;

	if (r->kind != SLUICE_READ && r->kind != SLUICE_WRITE)
		return false;
	for (size_t i = 0; i < r->count; i++) {
		const struct sluice_extent *v = &r->extents[i];

		if (v->length > MOST_BYTES || v->offset > (uint64_t)INT64_MAX - v->length)
			return false;
		if (v->length && (uintptr_t)v->data < 65536)
			return false;
		total += v->length;
		if (total > MOST_BYTES)
			return false;
	}
	return total > 0;
}

/* In stream order a read beyond the end is an error, so those go without; *beyond says which. */
static bool may_be_on_stream(sluice_file *file, const struct sluice_request *r, bool *beyond)
{
	struct sluice_file_info st = {.size = sizeof(st)};

	*beyond = false;
	if (r->kind != SLUICE_READ)
		return true;
	*beyond = true;
	if (sluice_stat(file, &st) != 0)
		return false;
	if (st.flags & (SLUICE_STAT_SIZE_UNKNOWN | SLUICE_STAT_WHOLE_ONLY))
		return false;
	for (size_t i = 0; i < r->count; i++)
		if (r->extents[i].length && r->extents[i].offset + r->extents[i].length > st.length)
			return false;
	*beyond = false;
	return true;
}

static bool chance(int choice, int always, int sometimes)
{
	return choice == always || (choice == sometimes && draw(3));
}

/* A file in memory of a device has no fan-out; with cuFile a file would have a descriptor more. */
static bool fans_out(void)
{
	const char *backend = row->config.backend;

	return !row->on_device && !(backend && !strcmp(backend, "cufile"));
}

static struct shadow *shadow_new(sluice_file *file, const struct sluice_request *r, bool detached)
{
	/* Streams reach a blob on a device with that device's memory, and with so many extents at most. */
	bool there = row->on_device && row->order != HOST_ORDER;
	struct shadow *s = calloc(1, sizeof(*s));
	size_t at = GUARD;
	bool beyond;

	s->user = r->user;
	s->file = file;
	s->read = r->kind == SLUICE_READ;
	s->device = there ? 0 : (int)draw(DEVICES);
	s->stream = shim.streams[s->device][draw(STREAMS)];
	s->on_stream =
		may_be_on_stream(file, r, &beyond) && chance(row->order, STREAM_ORDER, ANY_ORDER);
	s->whole = s->read && (detached || (beyond && r->count > 1));
	if (there && r->count > 64)
		s->on_stream = false;
	if (!can_be_shadowed(r) || !chance(row->memory, DEVICE_MEMORY, ANY_MEMORY)) {
		s->on_stream &= !there;
		return s;
	}
	s->count = r->count;
	s->places = calloc(r->count, sizeof(*s->places));
	for (size_t i = 0; i < r->count; i++) {
		/* As skewed as in the test's memory. */
		at += ((uintptr_t)r->extents[i].data - at) % 64;
		s->places[i] = (struct place){r->extents[i], at};
		at += r->extents[i].length + GUARD;
	}
	s->length = at;
	s->block = block_take(s->device, DEVICE_BLOCK, at);
	if (s->read && !s->on_stream && fans_out() && !draw(4))
		s->further = block_take(!s->device, DEVICE_BLOCK, at);
	return s;
}

static void shadow_free(struct shadow *s)
{
	block_give(s->block);
	block_give(s->behind);
	block_give(s->further);
	event_give(s->device, s->passed);
	free(s->places);
	free(s);
}

/* What the device's memory holds at first: the source of a write, else nothing that a test knows. */
static void fill_block(struct shadow *s)
{
	unsigned char *image = malloc(s->length);

	memset(image, GUARD_BYTE, s->length);
	for (size_t i = 0; i < s->count; i++) {
		const struct sluice_extent *v = &s->places[i].test;

		if (!v->length)
			continue;
		if (s->read && !s->whole)
			memset(image + s->places[i].at, JUNK_BYTE, v->length);
		else
			memcpy(image + s->places[i].at, v->data, v->length);
	}
	if (s->on_stream)
		must(sluice_copy_on(s->block->memory, image, s->length, s->stream), "copy before");
	else
		must(sluice_copy(s->block->memory, image, s->length), "copy");
	free(image);
}

static int submit_shadow(struct shadow *s, sluice_file *file, struct sluice_request *r,
                         sluice_op **out)
{
	struct sluice_extent *v = NULL;
	void **also = NULL;
	int rc;

	/* As CUDA's programs do for default streams. */
	gpu_use(s->device);
	r->user = s;
	r->on = s->on_stream;
	r->stream = s->stream;
	if (s->block) {
		fill_block(s);
		v = calloc(s->count, sizeof(*v));
		for (size_t i = 0; i < s->count; i++) {
			v[i] = s->places[i].test;
			v[i].data = s->block->memory + s->places[i].at;
		}
		r->extents = v;
	}
	if (s->further) {
		also = calloc(s->count, sizeof(*also));
		for (size_t i = 0; i < s->count; i++)
			also[i] = s->further->memory + s->places[i].at;
		r->also = also;
		r->also_count = 1;
	}
	rc = __real_sluice_submit(file, r, out);
	free(v);
	free(also);
	return rc;
}

/* Behind a read, on its stream. */
static void look_behind(struct shadow *s)
{
	must(sluice_copy_on(s->behind->memory, s->block->memory, s->length, s->stream),
	     "copy behind");
	must(sluice_event_record(s->passed, s->stream), "record");
}

static void orphan(struct shadow *s)
{
	pthread_mutex_lock(&shim.mutex);
	s->next = shim.orphans;
	shim.orphans = s;
	pthread_mutex_unlock(&shim.mutex);
}

static int submit(sluice_file *file, const struct sluice_request *given, sluice_op **out)
{
	struct sluice_request r = *given;
	struct shadow *s = shadow_new(file, &r, !out);
	bool behind = s->block && s->read && s->on_stream;
	int rc;

	/* Another thread may see the end of the operation at any time from the submission on: it waits
	 * for SETTLED if this one is not ready. */
	if (behind) {
		s->behind = block_take(s->device, PINNED_BLOCK, s->length);
		s->passed = event_take(s->device);
		s->state = SETTLING;
	}
	rc = submit_shadow(s, file, &r, out);
	if (rc) {
		if (s->block && s->on_stream)
			must(sluice_stream_synchronize(gpu_device(s->device), s->stream), "wait");
		shadow_free(s);
		return rc;
	}
	if (behind) {
		look_behind(s);
		pthread_mutex_lock(&shim.mutex);
		s->state = RUNNING;
		pthread_cond_broadcast(&shim.settled);
		pthread_mutex_unlock(&shim.mutex);
	}
	if (out)
		return 0;
	if (s->block)
		orphan(s);
	else
		shadow_free(s);
	return 0;
}

/* --------------------------------------------------------------------------------------- settle */

static void check_guards(const struct shadow *s, const unsigned char *image)
{
	size_t at = 0;

	for (size_t i = 0; i <= s->count; i++) {
		size_t end = i < s->count ? s->places[i].at : s->length;

		for (; at < end; at++)
			if (image[at] != GUARD_BYTE)
				give_up("the device's memory was written outside of the extents",
				        EFAULT);
		if (i < s->count)
			at += s->places[i].test.length;
	}
}

/* The other device has the same bytes of each extent, of `left` in all. */
static void check_further(const struct shadow *s, const unsigned char *image, uint64_t left)
{
	unsigned char *held = malloc(s->length);

	must(sluice_copy(held, s->further->memory, s->length), "copy back from the other device");
	for (size_t i = 0; i < s->count && left; i++) {
		size_t length = s->places[i].test.length, n = length < left ? length : left;

		if (memcmp(held + s->places[i].at, image + s->places[i].at, n))
			give_up("the other device has other bytes", EBADMSG);
		left -= n;
	}
	free(held);
}

/* result: of the operation; negative, or what is known of one without a handle. */
static void give_back(struct shadow *s, int64_t result)
{
	unsigned char *image = s->behind ? (unsigned char *)s->behind->memory : malloc(s->length);
	uint64_t total = 0, left;

	if (s->behind)
		must(sluice_event_synchronize(s->passed), "event");
	else
		must(sluice_copy(image, s->block->memory, s->length), "copy back");
	check_guards(s, image);
	for (size_t i = 0; i < s->count; i++)
		total += s->places[i].test.length;
	left = s->whole ? total : result > 0 ? (uint64_t)result : 0;
	if (s->further && !s->whole && result > 0)
		check_further(s, image, left);
	for (size_t i = 0; s->read && i < s->count && left; i++) {
		const struct sluice_extent *v = &s->places[i].test;
		size_t n = v->length < left ? v->length : left;

		if (n)
			memcpy(v->data, image + s->places[i].at, n);
		left -= n;
	}
	if (!s->behind)
		free(image);
}

/* The operation is over: its memory is the test's again. Once, whoever comes first. */
static void settle(struct shadow *s, int64_t result)
{
	pthread_mutex_lock(&shim.mutex);
	while (s->state == SETTLING)
		pthread_cond_wait(&shim.settled, &shim.mutex);
	if (s->state == SETTLED) {
		pthread_mutex_unlock(&shim.mutex);
		return;
	}
	s->state = SETTLING;
	pthread_mutex_unlock(&shim.mutex);
	if (s->block)
		give_back(s, result);
	block_give(s->block);
	block_give(s->behind);
	block_give(s->further);
	event_give(s->device, s->passed);
	s->block = s->behind = s->further = NULL;
	s->passed = NULL;
	pthread_mutex_lock(&shim.mutex);
	s->state = SETTLED;
	pthread_cond_broadcast(&shim.settled);
	pthread_mutex_unlock(&shim.mutex);
}

/* Those of a file, or NULL. */
static struct shadow *take_orphans(const sluice_file *file)
{
	struct shadow *taken = NULL, **at = &shim.orphans;

	pthread_mutex_lock(&shim.mutex);
	while (*at) {
		struct shadow *s = *at;

		if (s->file != file) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		s->next = taken;
		taken = s;
	}
	pthread_mutex_unlock(&shim.mutex);
	return taken;
}

static void settle_orphans(struct shadow *s)
{
	while (s) {
		struct shadow *next = s->next;

		settle(s, 0);
		shadow_free(s);
		s = next;
	}
}

static struct shadow *shadow_of(const sluice_op *op)
{
	return __real_sluice_op_user(op);
}

/* ---------------------------------------------------------------------------------------- wraps */

int __wrap_sluice_submit(sluice_file *file, const struct sluice_request *r, sluice_op **out)
{
	bool malformed = !file || !r || r->size != sizeof(*r) || (r->count && !r->extents);

	if (malformed || !active())
		return __real_sluice_submit(file, r, out);
	return submit(file, r, out);
}

static int submit_extents(sluice_file *file, int kind, const struct sluice_extent *v, size_t count,
                          sluice_op **out)
{
	struct sluice_request r = SLUICE_REQUEST_INIT;

	r.kind = kind;
	r.extents = v;
	r.count = count;
	return __wrap_sluice_submit(file, &r, out);
}

int __wrap_sluice_read(sluice_file *file, void *dst, size_t n, uint64_t offset, sluice_op **out)
{
	struct sluice_extent v = {dst, n, offset};

	return active() ? submit_extents(file, SLUICE_READ, &v, 1, out)
	                : __real_sluice_read(file, dst, n, offset, out);
}

int __wrap_sluice_write(sluice_file *file, const void *src, size_t n, uint64_t offset,
                        sluice_op **out)
{
	struct sluice_extent v = {(void *)(uintptr_t)src, n, offset};

	return active() ? submit_extents(file, SLUICE_WRITE, &v, 1, out)
	                : __real_sluice_write(file, src, n, offset, out);
}

int64_t __wrap_sluice_wait(sluice_op *op, int timeout_ms)
{
	int64_t result = __real_sluice_wait(op, timeout_ms);

	if (op && result != -EINPROGRESS && active())
		settle(shadow_of(op), result);
	return result;
}

int __wrap_sluice_queue_next(sluice_queue *queue, int timeout_ms, sluice_op **out)
{
	int rc = __real_sluice_queue_next(queue, timeout_ms, out);

	if (!rc && active())
		settle(shadow_of(*out), __real_sluice_wait(*out, 0));
	return rc;
}

void *__wrap_sluice_op_user(const sluice_op *op)
{
	return op && active() ? shadow_of(op)->user : __real_sluice_op_user(op);
}

void __wrap_sluice_op_free(sluice_op *op)
{
	struct shadow *s;

	if (!op || !active()) {
		__real_sluice_op_free(op);
		return;
	}
	s = shadow_of(op);
	if (sluice_poll(op) == 1) {
		settle(s, __real_sluice_wait(op, 0));
		__real_sluice_op_free(op);
		shadow_free(s);
		return;
	}
	__real_sluice_op_free(op);
	if (s->block)
		orphan(s);
	else
		shadow_free(s);
}

int __wrap_sluice_sync(sluice_file *file)
{
	struct shadow *before = file && active() ? take_orphans(file) : NULL;
	int rc = __real_sluice_sync(file);

	settle_orphans(before);
	return rc;
}

int __wrap_sluice_close(sluice_file *file)
{
	struct shadow *before = file && active() ? take_orphans(file) : NULL;
	int rc = __real_sluice_close(file);

	settle_orphans(before);
	return rc;
}

void __wrap_sluice_discard(sluice_file *file)
{
	struct shadow *before = file && active() ? take_orphans(file) : NULL;

	__real_sluice_discard(file);
	settle_orphans(before);
}
