/* SPDX-License-Identifier: Apache-2.0 */
/* The remote copy of a file of frames: HDF5 goes back to the begin of a file, and objects of
 * servers are written once, front to back. So frames come to a local file, which is sent when it is
 * closed, and as it was after a flush now and then. Threads: the program's open; the file thread
 * sends at the end, and makes images of the file, which a thread of this file sends. That has no
 * lock. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frames/frames_internal.h"

#define COPY_BYTES   ((size_t)4 << 20)
#define WAIT_MS      200 /* until a wait looks whether it is still wanted */
#define NAME_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

/* ---------------------------------------------------------------------------------------- open */

bool sl_remote_copy_can(const char *scheme)
{
	return !strcmp(scheme, "s3") || !strcmp(scheme, "http") || !strcmp(scheme, "https");
}

/* Chooses FOLDER/run.h5.0123456789abcdef, after the object. */
static int local_name(const char *name, const char *folder, char **out)
{
	const char *last = strrchr(name, '/') + 1;
	char word[101], *at = word, *path;
	int rc;
	uint64_t random = (uint64_t)sl_now() ^ (uint64_t)getpid() << 40;

	for (; *last && *last != '?' && at < word + sizeof(word) - 1; last++)
		*at++ = strchr(NAME_LETTERS, *last) ? *last : '_';
	*at = '\0';
	if (!folder || !folder[0])
		folder = getenv("TMPDIR");
	path = sl_format("%s/%s.%016llx", folder && folder[0] ? folder : "/tmp",
	                 word[0] ? word : "frames", (unsigned long long)sl_random(&random));
	rc = path ? sl_path_resolve(path, out) : sl_fail(-ENOMEM, "no memory");
	free(path);
	return SL_MIN(rc, 0);
}

/* size: 0 if it is not known. */
static int remote_copy_open(const struct sl_remote_copy *copy, uint64_t size,
                            struct sluice_file **out)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;

	o.flags = SLUICE_OPEN_REPLACE | (copy->exclusive ? SLUICE_OPEN_EXCLUSIVE : 0);
	o.expected_size = size;
	return sluice_open(copy->ctx, copy->uri, &o, out);
}

/* Asks for what a server can tell before it has the bytes: keys, a name that is taken, a bucket
 * that is missing. */
static int remote_copy_ask(const struct sl_remote_copy *copy)
{
	struct sluice_file *file;
	struct sluice_list *list;
	int rc = remote_copy_open(copy, 0, &file);

	if (rc)
		return rc;
	sluice_discard(file);
	/* Only this says it; lists may be forbidden, and web servers have none. */
	rc = sluice_list_open(copy->ctx, copy->uri, NULL, 0, &list);
	if (!rc)
		sluice_list_free(list);
	return rc == -ENOENT ? rc : 0;
}

int sl_remote_copy_new(struct sluice_context *ctx, const char *uri,
                       const struct sluice_writer_options *o, struct sl_remote_copy **out,
                       char **path)
{
	struct sl_remote_copy *copy = calloc(1, sizeof(*copy));
	int rc = 0;

	if (!copy)
		return sl_fail(-ENOMEM, "no memory");
	copy->ctx = ctx;
	copy->uri = strdup(uri);
	copy->name = sl_uri_name(uri);
	copy->exclusive = !(o->flags & SLUICE_WRITER_REPLACE);
	copy->interval_ns = (int64_t)o->upload_ms * 1000000;
	copy->fd = -1;
	if (!copy->uri || !copy->name)
		rc = sl_fail(-ENOMEM, "no memory");
	else if (o->flags & SLUICE_WRITER_APPEND)
		rc = sl_fail(-ENOTSUP,
		             "'%s' is on a server, and files are continued in place: copy it here "
		             "with sluice cp, continue it, and copy it back",
		             copy->name);
	if (!rc)
		rc = local_name(copy->name, o->upload_folder, path);
	if (!rc)
		rc = remote_copy_ask(copy);
	if (rc) {
		sl_remote_copy_free(copy);
		return rc;
	}
	sl_log(sl_context_settings(ctx), SL_LOG_INFO, "frames of '%s' come to '%s'", copy->name,
	       *path);
	*out = copy;
	return 0;
}

/* ---------------------------------------------------------------------------------------- send */

/* Writes n bytes to the object, or cancels that. */
static int remote_copy_write(struct sluice_file *file, const char *bytes, size_t n, uint64_t at,
                             const _Atomic bool *stop)
{
	struct sluice_op *op;
	int64_t done = *stop ? sl_fail(-ECANCELED, "it was given up")
	                     : sluice_write(file, bytes, n, at, &op);

	if (done < 0)
		return (int)done;
	/* Ended by the server, or by the flag. */
	while ((done = sluice_wait(op, WAIT_MS)) == -EINPROGRESS)
		if (*stop)
			sluice_cancel(op);
	if (done < 0)
		sl_fail((int)done, "%s", sluice_op_message(op));
	sluice_op_free(op);
	return (int)SL_MIN(done, 0);
}

/* Sends a file that does not change. The object has it when this returns 0, else nothing of it. */
static int remote_copy_send(struct sl_remote_copy *copy, int fd, const _Atomic bool *stop)
{
	off_t size = lseek(fd, 0, SEEK_END);
	char *memory = malloc(COPY_BYTES), *sentence;
	struct sluice_file *file = NULL;
	ssize_t n;
	int rc = size < 0  ? sl_fail(-errno, "%s", sl_error_text(-errno))
	         : !memory ? sl_fail(-ENOMEM, "no memory")
	                   : remote_copy_open(copy, (uint64_t)size, &file);

	for (off_t at = 0; !rc && at < size; at += n) {
		n = pread(fd, memory, SL_MIN(COPY_BYTES, (size_t)(size - at)), at);
		rc = n > 0 ? remote_copy_write(file, memory, (size_t)n, (uint64_t)at, stop)
		           : sl_fail(n ? -errno : -EIO, "its bytes from %lld on cannot be read: %s",
		                     (long long)at, n ? sl_error_text(-errno) : "it is shorter");
	}
	free(memory);
	if (!rc) {
		rc = sluice_close(file);
		/* From here on the object is ours. */
		copy->exclusive &= rc != 0;
	} else if (file) {
		sentence = strdup(sluice_last_message());
		sluice_discard(file);
		sl_fail_with(rc, sentence);
		free(sentence);
	}
	return rc;
}

/* -------------------------------------------------------------------------------------- images */

static void *remote_copy_run(void *argument)
{
	struct sl_remote_copy *copy = argument;
	int rc = remote_copy_send(copy, copy->fd, &copy->stop);

	if (rc && !copy->stop)
		sl_log(sl_context_settings(copy->ctx), SL_LOG_ERROR,
		       "cannot upload '%s' yet, and it is tried again: %s", copy->name,
		       sluice_last_message());
	return NULL;
}

/* Returns whether no thread sends; wait: ends one, by the flag. */
static bool remote_copy_idle(struct sl_remote_copy *copy, bool wait)
{
	copy->stop |= wait;
	if (copy->fd < 0)
		return true;
	if (wait)
		pthread_join(copy->thread, NULL);
	else if (pthread_tryjoin_np(copy->thread, NULL))
		return false;
	close(copy->fd);
	copy->fd = -1;
	return true;
}

/* Copies a file to one without a name beside it; file systems that can share the blocks. Returns a
 * descriptor or -errno. */
static int image_make(const char *path)
{
	char *name = NULL;
	int from = open(path, O_RDONLY | O_CLOEXEC),
	    to = from < 0 ? -errno : sl_temporary_open(path, 0600, &name);
	ssize_t n = 1;

	if (to >= 0)
		unlink(name);
	while (to >= 0 && n > 0)
		n = copy_file_range(from, NULL, to, NULL, (size_t)1 << 30, 0);
	if (n < 0) {
		n = -errno;
		close(to);
		to = (int)n;
	}
	if (from >= 0)
		close(from);
	free(name);
	return to;
}

void sl_remote_copy_flushed(struct sl_remote_copy *copy, const char *path)
{
	int64_t now = sl_now();
	int rc;

	if (!copy->interval_ns || now < copy->next || !remote_copy_idle(copy, false))
		return;
	copy->next = now + copy->interval_ns;
	copy->fd = rc = image_make(path);
	if (rc >= 0 &&
	    (rc = sl_thread_start(&copy->thread, "sluice-upload", remote_copy_run, copy))) {
		close(copy->fd);
		copy->fd = -1;
	}
	if (rc < 0)
		sl_log(sl_context_settings(copy->ctx), SL_LOG_ERROR,
		       "no upload of '%s' this time: %s", path, sl_error_text(rc));
}

/* ----------------------------------------------------------------------------------------- end */

int sl_remote_copy_finish(struct sl_remote_copy *copy, const char *path)
{
	int fd, rc;

	remote_copy_idle(copy, true);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return sl_fail(-errno, "%s", sl_error_text(-errno));
	rc = remote_copy_send(copy, fd, &copy->discarded);
	close(fd);
	return rc;
}

void sl_remote_copy_free(struct sl_remote_copy *copy)
{
	if (!copy)
		return;
	remote_copy_idle(copy, true);
	free(copy->uri);
	free(copy->name);
	free(copy);
}
