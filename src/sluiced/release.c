/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is given back to the kernel. For a gigabyte that takes a third of a second, so that it is done by a
 * thread which does nothing else, one piece after the other. The account says at once that it is free. If the
 * server dies before, it is free when the last process has unmapped it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "sluiced/server.h"

/* What is not larger costs less than to tell a thread. */
#define AT_ONCE (UINT64_C(1) << 20)
/* Of all memory: while so much is to be given back, the server does it itself. */
#define MUCH_PART 8

struct piece {
	struct sl_list link;
	int fd;
	uint64_t bytes; /* to be taken out of it before it is closed */
};

static void punch(int fd, uint64_t bytes)
{
	/* What is sealed against writing stays with those who have it mapped. */
	(void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
}

static void *give_back(void *argument)
{
	struct sl_release *release = argument;

	for (;;) {
		struct piece *piece;

		pthread_mutex_lock(&release->mutex);
		while (sl_list_empty(&release->pieces))
			pthread_cond_wait(&release->more, &release->mutex);
		piece = SL_CONTAINER(sl_list_take(&release->pieces), struct piece, link);
		pthread_mutex_unlock(&release->mutex);
		if (piece->bytes)
			punch(piece->fd, piece->bytes);
		close(piece->fd);
		pthread_mutex_lock(&release->mutex);
		release->bytes -= piece->bytes;
		pthread_mutex_unlock(&release->mutex);
		free(piece);
	}
	return NULL;
}

static bool start(struct sl_release *release)
{
	pthread_attr_t attributes;
	pthread_t thread;

	if (release->running)
		return true;
	pthread_mutex_init(&release->mutex, NULL);
	pthread_cond_init(&release->more, NULL);
	sl_list_init(&release->pieces);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	release->running = !pthread_create(&thread, &attributes, give_back, release);
	pthread_attr_destroy(&attributes);
	return release->running;
}

/* The thread has the descriptor then. */
static bool hand_over(struct sl_release *release, int fd, uint64_t bytes)
{
	struct piece *piece = malloc(sizeof(*piece));

	if (!piece)
		return false;
	piece->fd = fd;
	piece->bytes = bytes;
	pthread_mutex_lock(&release->mutex);
	release->bytes += bytes;
	sl_list_append(&release->pieces, &piece->link);
	pthread_cond_signal(&release->more);
	pthread_mutex_unlock(&release->mutex);
	return true;
}

/* So that what counts as free and is not stays within bounds: one piece, or a part of all. */
static bool has_much(struct sl_release *release, uint64_t most)
{
	bool much;

	pthread_mutex_lock(&release->mutex);
	much = release->bytes > most;
	pthread_mutex_unlock(&release->mutex);
	return much;
}

void sl_memory_release(struct sl_server *server, int fd, uint64_t bytes)
{
	struct sl_release *release = &server->release;
	int own = -1;

	if (bytes > AT_ONCE && start(release) &&
	    !has_much(release, server->settings->memory_bytes / MUCH_PART))
		own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own >= 0 && hand_over(release, own, bytes))
		return;
	if (own >= 0)
		close(own);
	punch(fd, bytes);
}

void sl_memory_close(struct sl_server *server, int fd)
{
	if (!start(&server->release) || !hand_over(&server->release, fd, 0))
		close(fd);
}
