/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors from clients. One may be a file whose end waits for somebody: a connection that lingers, or what lies in a
 * file system that the client itself serves. Such a one is never looked into, and closed by a thread of its own.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sluiced/server.h"

/* Of threads that do nothing else. */
#define CLOSERS 64

/* Of NVIDIA's devices, in the kernel's list: what stands for their memory is a file of one of them. */
#define NVIDIA_MAJOR 195

static _Atomic unsigned closers;

bool sl_stray_is_memory(int fd)
{
	struct statx about;

	if (fcntl(fd, F_GET_SEALS) >= 0)
		return true;
	/* As it is known here: whoever serves the file is not asked. */
	return !statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &about) &&
	       S_ISCHR(about.stx_mode) && about.stx_rdev_major == NVIDIA_MAJOR;
}

static void *close_it(void *fd)
{
	close((int)(intptr_t)fd);
	atomic_fetch_sub(&closers, 1);
	return NULL;
}

void sl_stray_close(int fd)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	if (sl_stray_is_memory(fd)) {
		close(fd);
		return;
	}
	/* If so many of them wait already it stays open: that costs a descriptor, and nobody's time. */
	if (atomic_fetch_add(&closers, 1) >= CLOSERS) {
		atomic_fetch_sub(&closers, 1);
		return;
	}
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attributes, close_it, (void *)(intptr_t)fd);
	pthread_attr_destroy(&attributes);
	if (error)
		atomic_fetch_sub(&closers, 1);
}
