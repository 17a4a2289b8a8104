/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that moves regions between memory and files, with a context of its own. It knows nothing of blobs:
 * it gets descriptors, moves bytes, and answers. It ends when the server's end of the socket is closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sluiced/spill.h"

/* Pages in flight keep the kernel from sealing memory for a moment. */
#define CLOSE_MS 20

struct work {
	struct sl_job job;
	int file, memory;
	char *base;
	sluice_file *open;
	struct sluice_extent extents[SL_RANGES_MOST];
	unsigned count;
	uint64_t bytes;
};

static void answer(int socket, const struct work *work, int error, const char *text)
{
	struct sl_job_done done = {.number = work->job.number, .error = error};
	struct iovec io = {&done, sizeof(done)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};
	struct cmsghdr *header = (struct cmsghdr *)control;

	snprintf(done.text, sizeof(done.text), "%s", error ? text : "");
	if (!error && work->job.kind == SL_JOB_WRITE) {
		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &work->file, sizeof(int));
	}
	while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

/* ------------------------------------------------------------------------------------- begin */

/* Without a name, or with one for a moment where the file system has no such files. */
static int make_file(const char *folder)
{
	char path[PATH_MAX + 32];
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd >= 0 ? fd
		               : sl_fail(-errno, "cannot make a file in '%s': %s", folder,
		                         sl_error_text(-errno));
	snprintf(path, sizeof(path), "%s/.sluice-spill-XXXXXX", folder);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return sl_fail(-errno, "cannot make a file in '%s': %s", folder,
		               sl_error_text(-errno));
	unlink(path);
	return fd;
}

/* The runs of ranges that are to be moved. */
static void find_extents(struct work *work)
{
	uint64_t range = work->job.range_bytes;

	for (unsigned i = 0; i < SL_RANGES_MOST && (uint64_t)i * range < work->job.bytes; i++) {
		if (!(work->job.ranges >> i & 1))
			continue;
		if (i && work->job.ranges >> (i - 1) & 1)
			work->extents[work->count - 1].length += range;
		else
			work->extents[work->count++] =
				(struct sluice_extent){work->base + i * range, range, i * range};
		work->bytes += range;
	}
}

static int begin(sluice_context *context, const char *folder, struct work *work)
{
	bool writes = work->job.kind == SL_JOB_WRITE;
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	struct sluice_request request = SLUICE_REQUEST_INIT;
	char path[64];
	sluice_op *op;
	int rc;

	if (writes)
		work->file = make_file(folder);
	if (work->file < 0)
		return work->file;
	work->base = mmap(NULL, work->job.bytes, writes ? PROT_READ : PROT_READ | PROT_WRITE,
	                  MAP_SHARED, work->memory, 0);
	if (work->base == MAP_FAILED) {
		work->base = NULL;
		return sl_fail(-errno, "cannot map memory: %s", sl_error_text(-errno));
	}
	find_extents(work);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", work->file);
	options.flags = writes ? SLUICE_OPEN_WRITE : SLUICE_OPEN_READ;
	/* A disk that is full says so before anything is moved. */
	if (writes && work->count)
		options.expected_size = work->extents[work->count - 1].offset +
		                        work->extents[work->count - 1].length;
	rc = sluice_open(context, path, &options, &work->open);
	if (rc == -ENOSPC)
		return sl_fail(rc, "no place for %" PRIu64 " bytes: %s", options.expected_size,
		               sl_error_text(rc));
	if (rc)
		return rc;
	request.kind = writes ? SLUICE_WRITE : SLUICE_READ;
	request.extents = work->extents;
	request.count = work->count;
	request.user = work;
	return sluice_submit(work->open, &request, &op);
}

/* --------------------------------------------------------------------------------------- end */

static void work_free(struct work *work)
{
	if (work->base)
		munmap(work->base, work->job.bytes);
	if (work->open)
		sluice_discard(work->open);
	if (work->file >= 0)
		close(work->file);
	if (work->memory >= 0)
		close(work->memory);
	free(work);
}

static int end(struct work *work, sluice_op *op)
{
	int64_t moved = sluice_wait(op, 0);
	int rc = 0;

	if (moved < 0)
		rc = sl_fail((int)moved, "%s", sluice_op_message(op));
	else if ((uint64_t)moved != work->bytes)
		rc = sl_fail(-EIO, "%lld of %llu bytes are there", (long long)moved,
		             (unsigned long long)work->bytes);
	sluice_op_free(op);
	if (!rc) {
		rc = sluice_close(work->open);
		work->open = NULL;
	}
	return rc;
}

static void finish(int socket, struct work *work, int rc)
{
	answer(socket, work, rc, sluice_last_message());
	work_free(work);
}

/* ------------------------------------------------------------------------------------- loop */

/* False: the server has closed its end. */
static bool receive(int socket, struct sl_job *job, int fds[2])
{
	struct iovec io = {job, sizeof(*job)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
	struct msghdr message = {.msg_iov = &io,
	                         .msg_iovlen = 1,
	                         .msg_control = control,
	                         .msg_controllen = sizeof(control)};
	struct cmsghdr *header;
	ssize_t n;

	fds[0] = fds[1] = -1;
	do
		n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n != sizeof(*job))
		return false;
	header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(header),
		       SL_MIN(header->cmsg_len - CMSG_LEN(0), 2 * sizeof(int)));
	return true;
}

/* A file that was given up. By the next message the server has closed it, so that the last close is here. */
static void close_last(int *last, int next)
{
	if (*last >= 0)
		close(*last);
	*last = next;
}

static bool take_job(int socket, sluice_context *context, const char *folder, int *last)
{
	struct work *work;
	struct sl_job job;
	int fds[2], rc;

	if (!receive(socket, &job, fds))
		return false;
	close_last(last, job.kind == SL_JOB_CLOSE ? fds[0] : -1);
	if (job.kind == SL_JOB_CLOSE)
		return true;
	work = calloc(1, sizeof(*work));
	if (!work)
		return false;
	work->job = job;
	work->file = job.kind == SL_JOB_WRITE ? -1 : fds[0];
	work->memory = job.kind == SL_JOB_WRITE ? fds[0] : fds[1];
	rc = work->memory < 0 ? sl_fail(-EMFILE, "no descriptor is left")
	                      : begin(context, folder, work);
	if (rc)
		finish(socket, work, rc);
	return true;
}

static void take_ends(int socket, sluice_context *context)
{
	sluice_op *op;

	while (!sluice_next_done(context, 0, &op)) {
		struct work *work = sluice_op_user(op);

		finish(socket, work, end(work, op));
	}
}

_Noreturn void sl_spiller_run(int socket, const char *folder)
{
	struct sluice_config config = SLUICE_CONFIG_INIT;
	sluice_context *context;
	struct pollfd fds[2] = {{.fd = socket, .events = POLLIN}, {.events = POLLIN}};
	int last = -1, ready;

	config.workers = 4;
	config.reactors = 1;
	if (sluice_context_new(&config, &context)) {
		fprintf(stderr, "sluiced: cannot spill: %s\n", sluice_last_message());
		_exit(EXIT_FAILURE);
	}
	fds[1].fd = sluice_done_fd(context);
	for (;;) {
		/* Ended by the server, which sends or goes, and by operations. */
		ready = poll(fds, 2, last >= 0 ? CLOSE_MS : -1);
		if (ready < 0 && errno != EINTR)
			_exit(EXIT_FAILURE);
		if (ready <= 0) {
			close_last(&last, -1);
			continue;
		}
		if (fds[1].revents)
			take_ends(socket, context);
		if (fds[0].revents && !take_job(socket, context, folder, &last))
			_exit(EXIT_SUCCESS);
	}
}
