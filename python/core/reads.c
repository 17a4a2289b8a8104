/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads into bytes of their own
 *
 * read() and read_async() make the bytes that they return. A read takes them when it begins, and the bytes of those in
 * flight are bounded: others wait, and begin in order, whatever their files and threads are. A read that is over is not in
 * flight, whether a thread has seen its end or not; if it was dropped its bytes go first.
 *
 * Each end that a thread sees begins other reads. Ends that none sees, and room among max_operations, are looked for by
 * threads that wait for a read, and by the ticker of the package (_operation.py), which there is while reads wait.
 */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* Of the library's inner parts; see src/core/core.h. */
uint64_t sl_machine_memory(const char *root);

#define LOOK_NS   1000000 /* between two looks at what runs */
#define LOOK_MOST 256     /* reads of a look */

/* Reads that wait, and those in flight. */
static struct link waiting = {&waiting, &waiting}, taken = {&taken, &taken};
static size_t count;   /* of reads that wait */
static uint64_t bytes; /* in flight */
static uint64_t most;  /* of `bytes` */
static bool most_known;
static bool beginning; /* a thread submits a read */
static unsigned loops; /* of reads_begin_all(): ends in one leave the next read to it */
static int64_t looked; /* when, in nanoseconds */

#define PENDING(at) ((struct pending *)((char *)(at)-offsetof(struct pending, link)))

static void link_remove(struct link *link)
{
	link->next->previous = link->previous;
	link->previous->next = link->next;
	link->next = NULL;
}

static void link_insert(struct link *link, struct link *before)
{
	link->next = before;
	link->previous = before->previous;
	link->previous->next = before->previous = link;
}

static int find_most(void)
{
	const char *text = getenv("SLUICE_READ_BYTES");
	PyObject *sentence;

	if (!most_known && text && *text && sluice_size_parse(text, &most)) {
		sentence =
			PyUnicode_FromFormat("SLUICE_READ_BYTES: '%s' is no number or size", text);
		raise_text(-EINVAL, sentence);
		Py_XDECREF(sentence);
		return -1;
	}
	if (!most_known && (!text || !*text))
		most = sl_machine_memory("") / 4;
	most_known = true;
	return 0;
}

static bool reads_have_room(size_t n)
{
	return !bytes || (n <= most && bytes <= most - n);
}

/* Takes the bytes of a read, which is in no list. Returns 0, or -1 with an exception. */
static int read_take(struct pending *pending)
{
	pending->bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)pending->length);
	if (!pending->bytes)
		return -1;
	pending->count = 1;
	pending->held[0] =
		(struct held){.data = PyBytes_AsString(pending->bytes), .length = pending->length};
	pending->state = READ_BEGINS;
	bytes += pending->length;
	link_insert(&pending->link, &taken);
	return 0;
}

void read_leave(struct pending *pending)
{
	if (!pending->link.next)
		return;
	link_remove(&pending->link);
	if (pending->state == READ_WAITS)
		count--;
	else
		bytes -= pending->length;
}

void read_let_go(struct pending *pending)
{
	if (pending->handle)
		handle_give(pending->handle);
	pending->handle = NULL;
}

/* Has a read wait before another one. */
static void read_queue(struct pending *pending, struct link *before)
{
	pending->state = READ_WAITS;
	link_insert(&pending->link, before);
	count++;
}

int read_has_to_wait(const struct pending *pending)
{
	if (pending->state != READ_NEW)
		return 0;
	return find_most() ? -1 : count || !reads_have_room(pending->length);
}

int read_enter(struct pending *pending)
{
	int waits = read_has_to_wait(pending);
	PyObject *done;

	if (waits <= 0)
		return waits || pending->state != READ_NEW ? waits : read_take(pending);
	if (!pending->file->handle) {
		PyErr_SetString(PyExc_ValueError, "the file is closed");
		return -1;
	}
	pending->handle = pending->file->handle;
	handle_take(pending->handle);
	read_queue(pending, &waiting);
	done = PyObject_CallFunctionObjArgs(hooks.tick, NULL);
	Py_XDECREF(done);
	return done ? 1 : -1;
}

/* Begins the first of the reads that wait; returns whether it has to go on waiting, for a place among max_operations. */
static bool read_begin(struct pending *pending)
{
	struct operation *owner = pending->owner;
	bool no_memory;
	int rc;

	operation_use(owner);
	read_leave(pending);
	beginning = true;
	rc = read_take(pending) ? -ENOMEM
	                        : pending_try(pending, SLUICE_READ, &pending->offset, false, NULL);
	beginning = false;
	if (rc == -EBUSY && !pending->cancelled) {
		read_leave(pending);
		Py_CLEAR(pending->bytes);
		pending->count = 0;
		read_queue(pending, waiting.next);
	} else if (pending->cancelled && rc) {
		operation_end(owner, -ECANCELED, READ_CANCELLED);
	} else if (rc) {
		no_memory = PyErr_Occurred();
		PyErr_Clear();
		operation_end(owner, rc,
		              no_memory ? "no memory for a read" : sluice_last_message());
	} else {
		pending->state = READ_RUNS;
		read_let_go(pending);
		if (pending->cancelled)
			sluice_cancel(pending->op);
		if (sluice_poll(pending->op))
			read_leave(pending);
	}
	operation_give(owner);
	return rc == -EBUSY;
}

static void reads_begin_all(void)
{
	PyObject *type, *value, *traceback;
	bool full = false;

	PyErr_Fetch(&type, &value, &traceback);
	loops++;
	while (count && !beginning && !full && reads_have_room(PENDING(waiting.next)->length))
		full = read_begin(PENDING(waiting.next));
	loops--;
	PyErr_Restore(type, value, traceback);
}

void reads_begin(void)
{
	if (count && !loops)
		reads_begin_all();
}

void reads_look(void)
{
	PyObject *type, *value, *traceback;
	struct link *end = taken.previous, *at = NULL;
	struct timespec t;
	int64_t now;

	if (!count)
		return;
	clock_gettime(CLOCK_MONOTONIC, &t);
	now = t.tv_sec * 1000000000LL + t.tv_nsec;
	if (now - looked < LOOK_NS)
		return;
	looked = now;
	PyErr_Fetch(&type, &value, &traceback);
	for (int i = 0; i < LOOK_MOST && at != end && taken.next != &taken; i++) {
		struct pending *pending = PENDING(at = taken.next);

		link_remove(at);
		link_insert(at, &taken); /* the next look begins behind it */
		if (pending->state != READ_RUNS || !sluice_poll(pending->op))
			continue;
		read_leave(pending);
		if (!pending->owner && pending->queue)
			pending_free(pending);
	}
	PyErr_Restore(type, value, traceback);
	/* Also where a callback of a read that has failed waits for another one. */
	reads_begin_all();
}

void reads_reset(void)
{
	while (waiting.next != &waiting)
		read_leave(PENDING(waiting.next));
	while (taken.next != &taken)
		read_leave(PENDING(taken.next));
	beginning = false;
	loops = 0;
}

PyObject *reads(PyObject *module, PyObject *args)
{
	if (find_most() || !PyArg_ParseTuple(args, "|O&:reads", parse_number, &most))
		return NULL;
	reads_look();
	return Py_BuildValue("nKK", (Py_ssize_t)count, (unsigned long long)bytes,
	                     (unsigned long long)most);
}
