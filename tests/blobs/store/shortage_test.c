/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and sockets that fail a client: the first call of the kind does in the first round, the second one in the second, and
 * so on until none is reached. Whatever a call answers, nothing is left behind, and the next round begins as this one did.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "store/device_common.h"

enum kind { MALLOC, MMAP, SENDMSG, RECVMSG, KINDS };
static const char *const kinds[] = {"malloc", "mmap", "sendmsg", "recvmsg"};
/* Of the thread that runs the rounds; 0: none fails. */
static _Thread_local unsigned left[KINDS];

static bool fails(enum kind kind)
{
	return left[kind] && !--left[kind];
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_mmap64(void *at, size_t n, int protection, int flags, int fd, off_t offset);
ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *m, int flags);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_mmap64(void *at, size_t n, int protection, int flags, int fd, off_t offset);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags);

void *__wrap_malloc(size_t n)
{
	return fails(MALLOC) ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t count, size_t n)
{
	return fails(MALLOC) ? NULL : __real_calloc(count, n);
}

void *__wrap_mmap64(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
	if (!fails(MMAP))
		return __real_mmap64(at, n, protection, flags, fd, offset);
	errno = ENOMEM;
	return MAP_FAILED;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	if (!fails(SENDMSG))
		return __real_sendmsg(fd, m, flags);
	errno = ENOBUFS;
	return -1;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags)
{
	if (!fails(RECVMSG))
		return __real_recvmsg(fd, m, flags);
	errno = ENOMEM;
	return -1;
}

/* What can be had of: a blob made, sealed in one of three ways or not, got with another one, and let go. */
static void use(sluice_store *store, int device, sluice_stream stream)
{
	static const char *const names[] = {"a", "b"};
	sluice_blob *made[2] = {NULL, NULL}, *read[2] = {NULL, NULL};
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;

	m.note = "note";
	m.note_bytes = 4;
	o.metadata = &m;
	if (!sluice_blob_create(store, names[0], 3 * MIB, device, &o, &made[0]) &&
	    !sluice_blob_create(store, names[1], 100, device, NULL, &made[1]) && stream &&
	    !sluice_blob_seal_on(made[0], stream))
		sluice_blob_wait_sealed(made[0], 20000);
	else if (made[0])
		sluice_blob_seal(made[0]);
	if (made[1])
		sluice_blob_seal(made[1]);
	if (!sluice_blob_get_many(store, names, 2, 0, read)) {
		assert_non_null(read[0]);
		assert_non_null(read[1]);
	}
	if (stream && read[0] && !sluice_blob_release_on(read[0], stream))
		read[0] = NULL;
	sluice_blob_release_many(read, 2);
	sluice_blob_release_many(made, 2);
}

static void clean(sluice_store *store)
{
	static const char *const names[] = {"a", "b"};

	for (int i = 0; i < 2; i++)
		if (sluice_blob_exists(store, names[i]))
			assert_ok(sluice_blob_delete(store, names[i]));
}

static void run(const struct daemon *d, enum kind kind, int device)
{
	unsigned n = 0;
	bool reached;

	do {
		sluice_stream stream = NULL;
		sluice_store *store;

		if (device >= 0)
			assert_ok(sluice_stream_new(device, &stream));
		left[kind] = ++n;
		if (!sluice_store_open(d->path, NULL, &store)) {
			use(store, device, stream);
			reached = !left[kind];
			left[kind] = 0;
			clean(store);
			assert_ok(sluice_store_close(store));
		} else {
			reached = !left[kind];
			left[kind] = 0;
			assert_true(reached);
		}
		if (stream)
			assert_ok(sluice_stream_free(stream));
		clean(d->store);
	} while (reached);
	print_message("%s on %d: %u rounds\n", kinds[kind], device, n);
	assert_true(n > 5);
	/* One that hung up without a word may have its memory mapped as long as its process lives. */
	assert_idle_but(d->store, kind < SENDMSG ? 0 : 1000);
}

DAEMON_TEST(failed_creation_leaves_nothing)
{
	for (enum kind kind = 0; kind < KINDS; kind++)
		for (int device = -1; device < 1; device++)
			run(d, kind, device);
}

DAEMON_MAIN("256M")
