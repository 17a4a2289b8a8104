/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Movers: threads that write regions to files, read them back, and close files that were given up.
 *
 * A job is a copy. The first mover of a job makes its file; up to SL_MOVERS threads then move
 * pieces of it. The last of them appends the copy to spill->ended and wakes the server's loop by an
 * eventfd. Movers touch nothing else of the server, whose thread gives copies up.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sluiced/memory/memory.h"
#include "sluiced/spill/spill.h"
#include "sluiced/waits/waits.h"

#define PIECE (UINT64_C(8) << 20)

/*
 * Makes a file without a name, or with a name for a moment only. Uses direct I/O where possible:
 * pages of the page cache would take the memory that is to become free. A full disk is found before
 * any byte is moved.
 */
static int mover_make_file(struct sl_spill_copy *copy)
{
	uint64_t bytes = (64 - (unsigned)__builtin_clzll(copy->moving)) * copy->range_bytes;
	const char *folder = copy->spill->folder;
	char path[PATH_MAX + 32];
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
		snprintf(path, sizeof(path), "%s/.sluice-spill-XXXXXX", folder);
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			unlink(path);
	}
	if (fd < 0)
		return sl_fail(-errno, "cannot make a file in '%s': %s", folder,
		               sl_error_text(-errno));
	(void)!fcntl(fd, F_SETFL, O_DIRECT);
	copy->file = fd;
	if (!fallocate(fd, 0, 0, (off_t)bytes) || errno == EOPNOTSUPP || errno == ENOSYS)
		return 0;
	return sl_fail(-errno, "no space for %" PRIu64 " bytes: %s", bytes, sl_error_text(-errno));
}

static int mover_move_bytes(struct sl_spill_copy *copy, char *memory, uint64_t at, uint64_t bytes)
{
	bool writes = copy->state == SL_COPY_WRITING;

	for (uint64_t moved = 0; moved < bytes;) {
		ssize_t n = writes ? pwrite(copy->file, memory + moved, bytes - moved,
		                            (off_t)(at + moved))
		                   : pread(copy->file, memory + moved, bytes - moved,
		                           (off_t)(at + moved));
		int error = n < 0 ? errno : EIO;

		if (n > 0)
			moved += (uint64_t)n;
		else if (n < 0 && error == EINVAL && fcntl(copy->file, F_GETFL) & O_DIRECT)
			(void)!fcntl(copy->file, F_SETFL, 0);
		else if (n == 0)
			return sl_fail(-EIO, "only %" PRIu64 " of %" PRIu64 " bytes are there",
			               at + moved, at + bytes);
		else if (error != EINTR)
			return sl_fail(-error, "cannot %s a file: %s", writes ? "write" : "read",
			               sl_error_text(-error));
	}
	return 0;
}

static int mover_move_piece(struct sl_spill_copy *copy, uint64_t at, uint64_t bytes)
{
	uint64_t before = at % sl_page_size();
	char *base = mmap(NULL, before + bytes,
	                  PROT_READ | (copy->state == SL_COPY_WRITING ? 0 : PROT_WRITE), MAP_SHARED,
	                  copy->memory, (off_t)(at - before));
	int rc;

	if (base == MAP_FAILED)
		return sl_fail(-errno, "cannot map memory: %s", sl_error_text(-errno));
	rc = mover_move_bytes(copy, base + before, at, bytes);
	munmap(base, before + bytes);
	return rc;
}

/* Takes the next bytes that no mover has begun. Returns how many; 0: none are left. */
static uint64_t mover_take_piece(struct sl_spill_copy *copy, uint64_t *from)
{
	uint64_t at, end, step = copy->range_bytes;

	sl_mutex_lock(&copy->spill->mutex);
	for (at = copy->at; at < 64 * step && !(copy->moving >> at / step & 1);)
		at += step;
	for (end = at; end - at < PIECE && end < 64 * step && copy->moving >> end / step & 1;)
		end = SL_MIN(end + step - end % step, at + PIECE);
	copy->at = end;
	sl_mutex_unlock(&copy->spill->mutex);
	*from = at;
	return end - at;
}

static void mover_note_error(struct sl_spill_copy *copy, int error)
{
	copy->error = error;
	copy->at = UINT64_MAX / 2;
	snprintf(copy->text, sizeof(copy->text), "%s", sluice_last_message());
}

/* Leaves a job with this mover's result. The last mover of the copy ends the job. */
static void mover_leave_job(struct sl_spill_copy *copy, int error)
{
	struct sl_spill *spill = copy->spill;
	uint64_t one = 1;
	bool last;

	sl_mutex_lock(&spill->mutex);
	if (error && !copy->error)
		mover_note_error(copy, error);
	last = !--copy->movers;
	sl_mutex_unlock(&spill->mutex);
	if (!last)
		return;
	/* To the disk before the memory goes: the kernel drops pages that it cannot write. */
	if (copy->state == SL_COPY_WRITING && !copy->error &&
	    !(fcntl(copy->file, F_GETFL) & O_DIRECT) && fdatasync(copy->file)) {
		sl_fail(-errno, "cannot write a file: %s", sl_error_text(-errno));
		mover_note_error(copy, -EIO);
	}
	if (copy->state == SL_COPY_WRITING && copy->error && copy->file >= 0) {
		close(copy->file);
		copy->file = -1;
	}
	sl_mutex_lock(&spill->mutex);
	sl_list_append(&spill->ended, &copy->link);
	sl_mutex_unlock(&spill->mutex);
	(void)!write(spill->event, &one, sizeof(one));
}

static void mover_help(struct sl_task *task)
{
	struct sl_spill_copy *copy = SL_CONTAINER(task, struct sl_move_task, task)->copy;
	uint64_t at, bytes;
	int rc = 0;

	while (!rc && (bytes = mover_take_piece(copy, &at)))
		rc = mover_move_piece(copy, at, bytes);
	mover_leave_job(copy, rc);
}

static void mover_begin(struct sl_task *task)
{
	struct sl_spill_copy *copy = SL_CONTAINER(task, struct sl_move_task, task)->copy;
	struct sl_spill *spill = copy->spill;
	int rc = 0;

	if (copy->state == SL_COPY_CLOSING) {
		/* The supervisor may close its descriptor later; the space is free now. */
		(void)!ftruncate(copy->file, 0);
		close(copy->file);
	} else if (copy->state == SL_COPY_WRITING) {
		rc = mover_make_file(copy);
	}
	if (rc || copy->state == SL_COPY_CLOSING) {
		mover_leave_job(copy, rc);
		return;
	}
	for (unsigned i = 1; i < SL_MOVERS && i * PIECE < copy->range_bytes; i++) {
		copy->tasks[i] = (struct sl_move_task){.task.run = mover_help, .copy = copy};
		sl_mutex_lock(&spill->mutex);
		copy->movers++;
		sl_mutex_unlock(&spill->mutex);
		sl_pool_submit(spill->movers, &copy->tasks[i].task);
	}
	mover_help(task);
}

int sl_movers_start(struct sl_spill *spill, const char *folder)
{
	spill->folder = folder;
	spill->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (spill->event < 0)
		return sl_fail(-errno, "cannot make an eventfd: %s", sl_error_text(-errno));
	sl_mutex_init(&spill->mutex);
	sl_list_init(&spill->ended);
	return sl_pool_start("mover", 1, SL_MOVERS, &spill->movers);
}

void sl_movers_submit(struct sl_spill *spill, struct sl_spill_copy *copy)
{
	copy->spill = spill;
	copy->at = 0;
	copy->error = 0;
	copy->movers = 1;
	copy->tasks[0] = (struct sl_move_task){.task.run = mover_begin, .copy = copy};
	sl_pool_submit(spill->movers, &copy->tasks[0].task);
}

/* ------------------------------------------------------------------------------------ give up */

void sl_spill_copy_forget(struct sl_server *server, struct sl_spill_copy *copy)
{
	server->counts.spilled_bytes -= copy->bytes;
	free(copy);
}

void sl_spill_copy_free(struct sl_server *server, struct sl_spill_copy *copy)
{
	if (copy->region)
		copy->region->copy = NULL;
	copy->region = NULL;
	if (sl_list_linked(&copy->link))
		sl_list_remove(&copy->link);
	if (copy->row != SL_NO_ROW) {
		copy->file = fcntl(server->descriptors->held[copy->row].fd, F_DUPFD_CLOEXEC, 0);
		sl_descriptors_drop(server->descriptors, copy->row);
	}
	/* It counts in the folder until its file is closed. */
	copy->state = SL_COPY_CLOSING;
	if (copy->file >= 0) {
		server->spill->closing++;
		sl_movers_submit(server->spill, copy);
	} else {
		sl_spill_copy_forget(server, copy);
	}
}

void sl_spill_forget(struct sl_server *server, struct sl_region *region)
{
	struct sl_spill_copy *copy = region->copy;

	if (!copy)
		return;
	sl_room_drop(server, region);
	region->copy = NULL;
	copy->region = NULL;
	/* Movers finish a job that they have begun. */
	if (copy->state == SL_COPY_WHOLE)
		sl_spill_copy_free(server, copy);
}
