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
	uint64_t range_bytes, ranges; /* to be taken out of it before it is closed */
	uint64_t bytes;               /* that is so many */
};

static void punch(int fd, uint64_t range_bytes, uint64_t ranges)
{
	for (unsigned from = 0, to; from < 64; from = to + 1) {
		for (to = from; to < 64 && ranges >> to & 1; to++)
			;
		/* What is sealed against writing stays with those who have it mapped. */
		if (to > from)
			(void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			                 (off_t)(from * range_bytes),
			                 (off_t)((to - from) * range_bytes));
	}
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
			punch(piece->fd, piece->range_bytes, piece->ranges);
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
static bool hand_over(struct sl_release *release, int fd, uint64_t range_bytes, uint64_t ranges)
{
	uint64_t bytes = (unsigned)__builtin_popcountll(ranges) * range_bytes;
	struct piece *piece = malloc(sizeof(*piece));

	if (!piece)
		return false;
	*piece = (struct piece){
		.fd = fd, .range_bytes = range_bytes, .ranges = ranges, .bytes = bytes};
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

void sl_memory_release(struct sl_server *server, int fd, uint64_t range_bytes, uint64_t ranges)
{
	uint64_t bytes = (unsigned)__builtin_popcountll(ranges) * range_bytes;
	struct sl_release *release = &server->release;
	int own = -1;

	if (bytes > AT_ONCE && start(release) &&
	    !has_much(release, server->settings->memory_bytes / MUCH_PART))
		own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own >= 0 && hand_over(release, own, range_bytes, ranges))
		return;
	if (own >= 0)
		close(own);
	punch(fd, range_bytes, ranges);
}

void sl_memory_close(struct sl_server *server, int fd)
{
	if (!start(&server->release) || !hand_over(&server->release, fd, 0, 0))
		close(fd);
}
