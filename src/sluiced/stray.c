/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors from clients. One may be a file whose end waits for somebody: a connection that lingers, or what lies in a
 * file system that the client itself serves. Such a one is never looked into, and closed by a thread that does
 * nothing else; if all of these wait already it waits with them, and costs a descriptor, but nobody's time.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sluiced/server.h"

/* Threads at most. */
#define CLOSERS 64

/* Of NVIDIA's devices, in the kernel's list: what stands for their memory is a file of one of them. */
#define NVIDIA_MAJOR 195

bool sl_stray_is_memory(int fd)
{
	struct statx about;

	if (fcntl(fd, F_GET_SEALS) >= 0)
		return true;
	/* As it is known here: whoever serves the file is not asked. */
	return !statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &about) &&
	       S_ISCHR(about.stx_mode) && about.stx_rdev_major == NVIDIA_MAJOR;
}

struct stray {
	struct sl_list link;
	int fd;
};

/* Until there are none left. */
static void *close_all(void *argument)
{
	struct sl_strays *strays = argument;

	for (;;) {
		struct sl_list *link;
		struct stray *stray;

		pthread_mutex_lock(&strays->mutex);
		link = sl_list_take(&strays->waiting);
		strays->threads -= !link;
		pthread_mutex_unlock(&strays->mutex);
		if (!link)
			return NULL;
		stray = SL_CONTAINER(link, struct stray, link);
		close(stray->fd);
		free(stray);
	}
}

/* It waits for a thread; whether one more is to come. */
static bool put(struct sl_strays *strays, struct stray *stray)
{
	bool more;

	pthread_mutex_lock(&strays->mutex);
	sl_list_append(&strays->waiting, &stray->link);
	more = strays->threads < CLOSERS;
	strays->threads += more;
	pthread_mutex_unlock(&strays->mutex);
	return more;
}

static void start_thread(struct sl_strays *strays)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attributes, close_all, strays);
	pthread_attr_destroy(&attributes);
	if (!error)
		return;
	/* With the next one. */
	pthread_mutex_lock(&strays->mutex);
	strays->threads--;
	pthread_mutex_unlock(&strays->mutex);
}

void sl_stray_close(struct sl_server *server, int fd)
{
	struct sl_strays *strays = &server->strays;
	struct stray *stray;

	if (sl_stray_is_memory(fd)) {
		sl_memory_close(server, fd);
		return;
	}
	if (!strays->begun) {
		pthread_mutex_init(&strays->mutex, NULL);
		sl_list_init(&strays->waiting);
		strays->begun = true;
	}
	stray = malloc(sizeof(*stray));
	/* Else it stays open: that costs a descriptor, and nobody's time. */
	if (!stray)
		return;
	stray->fd = fd;
	if (put(strays, stray))
		start_thread(strays);
}
