/* SPDX-License-Identifier: Apache-2.0 */
/* The word of a file with frames: lock, value, and the calls of <sluice/frames.h> for readers.
 * Threads: a writer's; a reader's handle is used by a single thread at a time. */
#include "h5file/word.h"
#include "h5file/h5file.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sluice/frames.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAP_NS 200000
/* Longer than a tick of the clock that times of files have: 10 ms where it is longest. */
#define TICK_NS 20000000

static const char magic[8] = {'\x89', 's', 'l', 'u', 'i', 'c', 'e', '\n'};

struct word {
	char magic[sizeof(magic)];
	uint64_t word; /* little endian */
};

/* -------------------------------------------------------------------------------------- writer */

static struct flock word_range(short type)
{
	return (struct flock){.l_type = type,
	                      .l_whence = SEEK_SET,
	                      .l_start = SL_WORD_PLACE,
	                      .l_len = sizeof(struct word)};
}

int sl_word_lock(int fd, short type)
{
	struct flock ours = word_range(type);

	return fcntl(fd, F_OFD_SETLK, &ours) && (errno == EAGAIN || errno == EACCES) ? -EWOULDBLOCK
	                                                                             : 0;
}

int sl_word_read(int fd, uint64_t *out)
{
	struct word word;
	ssize_t n = pread(fd, &word, sizeof(word), SL_WORD_PLACE);

	if (n < 0)
		return -errno;
	*out = le64toh(word.word);
	return n == sizeof(word) && !memcmp(word.magic, magic, sizeof(magic));
}

int sl_word_write(int fd, uint64_t number)
{
	struct word word = {.word = htole64(number)};

	memcpy(word.magic, magic, sizeof(magic));
	return pwrite(fd, &word, sizeof(word), SL_WORD_PLACE) < 0 ? -errno : 0;
}

/* --------------------------------------------------------------------------------------- state */

/* Whether somebody writes the file; so it is, too, if that cannot be told. */
static bool is_written(int fd)
{
	struct flock its = word_range(F_WRLCK);

	return fcntl(fd, F_OFD_GETLK, &its) || its.l_type != F_UNLCK;
}

static int state_look(int fd, struct sl_h5_state *out)
{
	struct stat status;
	int has_word = sl_word_read(fd, &out->word);

	if (has_word < 0 || fstat(fd, &status))
		return has_word < 0 ? has_word : -errno;
	out->has_word = has_word;
	out->written = false;
	out->length = (uint64_t)status.st_size;
	out->modified_ns = sl_modified_ns(&status);
	return 0;
}

/* ------------------------------------------------------------------------------------- readers */

struct sluice_frames {
	char *path;
	int fd;
	struct sl_h5_state begun; /* without a word the time counts */
};

/* 1: path names the file that is open. */
static int frames_is_same(const struct sluice_frames *f)
{
	struct stat ours, named;

	if (fstat(f->fd, &ours) || stat(f->path, &named))
		return -errno;
	return ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

static int frames_open_again(struct sluice_frames *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	return f->fd < 0 ? -errno : 0;
}

int sluice_frames_open(const char *path, sluice_frames **out)
{
	struct sluice_frames *f;
	int rc;

	if (!path || !out)
		return sl_fail(-EINVAL, "sluice_frames_open: %s is NULL", path ? "out" : "path");
	f = calloc(1, sizeof(*f));
	if (!f || !(f->path = strdup(path))) {
		free(f);
		return sl_fail(-ENOMEM, "no memory");
	}
	f->fd = -1;
	rc = frames_open_again(f);
	if (!rc) {
		*out = f;
		return 0;
	}
	sluice_frames_free(f);
	return sl_fail(rc, "cannot open '%s': %s", path, sl_error_text(rc));
}

/* 1: it may be read; 0: it is to be waited for. */
static int frames_look(struct sluice_frames *f)
{
	int rc = frames_is_same(f);

	if (rc <= 0)
		rc = frames_open_again(f);
	if (rc >= 0)
		rc = state_look(f->fd, &f->begun);
	if (rc < 0)
		return sl_fail(rc, "cannot look at '%s': %s", f->path, sl_error_text(rc));
	if ((f->begun.has_word && f->begun.word % 2 == 0) || !is_written(f->fd))
		return 1;
	return f->begun.has_word
	               ? 0
	               : sl_fail(-ENOTSUP,
	                         "'%s' is being written, and has no number that says when: it "
	                         "was made by another program or version",
	                         f->path);
}

int sluice_frames_begin(sluice_frames *f, int timeout_ms)
{
	const struct timespec nap = {0, NAP_NS};
	int64_t deadline = sl_deadline(timeout_ms);
	int rc = f ? frames_look(f) : sl_fail(-EINVAL, "sluice_frames_begin: the file is NULL");

	/* Ended by the end of the flush, that of the writer, or the deadline. */
	while (!rc && sl_now() < deadline) {
		nanosleep(&nap, NULL);
		rc = frames_look(f);
	}
	if (!rc)
		return sl_fail(-EAGAIN, "'%s' is in the middle of a flush", f->path);
	return SL_MIN(rc, 0);
}

int sluice_frames_check(sluice_frames *f)
{
	struct sl_h5_state now;
	int rc = f ? state_look(f->fd, &now) : -EINVAL;
	bool same;

	if (rc)
		return sl_fail(rc, "cannot look at '%s': %s", f ? f->path : "NULL",
		               sl_error_text(rc));
	same = now.has_word == f->begun.has_word && frames_is_same(f) > 0 &&
	       (now.has_word ? now.word == f->begun.word
	                     : !is_written(f->fd) && now.modified_ns == f->begun.modified_ns);
	return same ? 0 : sl_fail(-EAGAIN, "'%s' has changed meanwhile", f->path);
}

/* ------------------------------------------------------------------- datasets that are read */

/* Whether the next change may leave the time as it is: a tick of the kernel's clock has many. */
static bool state_is_young(const struct sl_h5_state *state)
{
	struct timespec now;
	int64_t age;

	clock_gettime(CLOCK_REALTIME, &now);
	age = now.tv_sec * INT64_C(1000000000) + now.tv_nsec - state->modified_ns;
	return age >= 0 && age < TICK_NS;
}

int sl_h5_state_take(int fd, int64_t deadline, struct sl_h5_state *out)
{
	const struct timespec nap = {0, NAP_NS};

	/* Ended by the end of the flush, that of the writer, a pause of others, or the deadline. */
	for (;;) {
		bool written = is_written(fd);
		int rc = state_look(fd, out);

		out->written = out->has_word && written;
		if (rc || !(out->written ? out->word % 2 : state_is_young(out)))
			return rc;
		if (sl_now() >= deadline)
			return -EAGAIN;
		nanosleep(&nap, NULL);
	}
}

/* Between flushes a writer appends bytes, which changes the length and the time alone. Without one
 * in either look, another program has changed them. */
int sl_h5_state_holds(int fd, const struct sl_h5_state *state)
{
	struct sl_h5_state now;
	int rc = state_look(fd, &now);

	if (rc)
		return rc;
	if (!state->has_word)
		return now.length == state->length && now.modified_ns == state->modified_ns
		               ? 1
		               : -ESTALE;
	if (!now.has_word)
		return -ESTALE;
	if (now.word != state->word)
		return 0;
	if ((now.length == state->length && now.modified_ns == state->modified_ns) ||
	    is_written(fd))
		return 1;
	if (state->written)
		return 0;
	/* A writer may have come and gone meanwhile. */
	rc = state_look(fd, &now);
	return rc ? rc : now.has_word && now.word != state->word ? 0 : -ESTALE;
}

void sluice_frames_free(sluice_frames *f)
{
	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	free(f->path);
	free(f);
}
