/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By sluice; by a message over a socket, with memory that both have mapped from the beginning: what no way that
 * lets a consumer sleep can be faster than; and by a new memfd, sealed, whose descriptor is sent.
 */
#include "store_bench.h"

#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------- sluice */

static struct {
	sluice_store *store;
	sluice_blob *blob;
	unsigned pair;
	char name[64];
} sluice;

static const char *name_of(unsigned number)
{
	snprintf(sluice.name, sizeof(sluice.name), "pair %u/%u", sluice.pair, number);
	return sluice.name;
}

static void sluice_open_side(unsigned pair)
{
	sluice.pair = pair;
	sluice.store = store_open();
}

static void *sluice_begin(unsigned number)
{
	must(sluice_blob_create(sluice.store, name_of(number), options.bytes, -1, NULL,
	                        &sluice.blob),
	     "create");
	return sluice_blob_mutable_data(sluice.blob);
}

static void sluice_publish(unsigned number)
{
	(void)number;
	must(sluice_blob_seal(sluice.blob), "seal");
}

static void sluice_release(unsigned number)
{
	(void)number;
	sluice_blob_release(sluice.blob);
}

static void sluice_end(unsigned number)
{
	sluice_release(number);
	must(sluice_blob_delete(sluice.store, name_of(number)), "delete");
}

static const void *sluice_take(unsigned number)
{
	must(sluice_blob_get(sluice.store, name_of(number), -1, &sluice.blob), "get");
	return sluice_blob_data(sluice.blob);
}

static void sluice_close_side(void)
{
	must(sluice_store_close(sluice.store), "close");
}

const struct way way_sluice = {.name = "sluice",
                               .produce_open = sluice_open_side,
                               .begin = sluice_begin,
                               .publish = sluice_publish,
                               .end = sluice_end,
                               .produce_close = sluice_close_side,
                               .consume_open = sluice_open_side,
                               .take = sluice_take,
                               .release = sluice_release,
                               .consume_close = sluice_close_side};

/* ------------------------------------------------------------------------------------- socket */

static struct {
	char *memory;
	int link[2];
} bare;

static void bare_prepare(unsigned pair)
{
	(void)pair;
	bare.memory = mmap(NULL, options.bytes, PROT_READ | PROT_WRITE,
	                   MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (bare.memory == MAP_FAILED || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, bare.link))
		err(1, "way=socket");
}

/* A child of fork() has the table of pages to make anew; that is none of what is measured. */
static void bare_open(unsigned pair)
{
	(void)pair;
	madvise(bare.memory, options.bytes, MADV_POPULATE_READ);
	madvise(bare.memory, options.bytes, MADV_POPULATE_WRITE);
}

static void *bare_begin(unsigned number)
{
	(void)number;
	return bare.memory;
}

static void bare_publish(unsigned number)
{
	if (send(bare.link[0], &number, sizeof(number), 0) < 0)
		err(1, "send");
}

static const void *bare_take(unsigned number)
{
	unsigned found;

	if (recv(bare.link[1], &found, sizeof(found), 0) < 0 || found != number)
		err(1, "receive");
	return bare.memory;
}

static void bare_nothing(unsigned number)
{
	(void)number;
}

static void bare_close(void)
{
}

const struct way way_socket = {.name = "socket",
                               .prepare = bare_prepare,
                               .produce_open = bare_open,
                               .begin = bare_begin,
                               .publish = bare_publish,
                               .end = bare_nothing,
                               .produce_close = bare_close,
                               .consume_open = bare_open,
                               .take = bare_take,
                               .release = bare_nothing,
                               .consume_close = bare_close};

/* -------------------------------------------------------------------------------------- memfd */

static struct {
	int link[2], fd;
	void *memory;
} plain;

static void plain_prepare(unsigned pair)
{
	(void)pair;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, plain.link))
		err(1, "way=memfd");
}

static void plain_open(unsigned pair)
{
	(void)pair;
}

static void *plain_map(int protection)
{
	plain.memory = mmap(NULL, options.bytes, protection, MAP_SHARED, plain.fd, 0);
	if (plain.memory == MAP_FAILED)
		err(1, "way=memfd");
	return plain.memory;
}

static void *plain_begin(unsigned number)
{
	(void)number;
	plain.fd = memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (plain.fd < 0 || ftruncate(plain.fd, (off_t)options.bytes))
		err(1, "way=memfd");
	return plain_map(PROT_READ | PROT_WRITE);
}

/* Sends plain.fd with a byte, or receives it. */
static void plain_pass(bool send)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec io = {&(char){0}, 1};
	struct msghdr m = {.msg_iov = &io,
	                   .msg_iovlen = 1,
	                   .msg_control = control,
	                   .msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&m);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &plain.fd, sizeof(int));
	if ((send ? sendmsg(plain.link[0], &m, 0) : recvmsg(plain.link[1], &m, 0)) != 1)
		err(1, "way=memfd");
	memcpy(&plain.fd, CMSG_DATA(header), sizeof(int));
}

static void plain_release(unsigned number)
{
	(void)number;
	munmap(plain.memory, options.bytes);
	close(plain.fd);
}

static void plain_publish(unsigned number)
{
	munmap(plain.memory, options.bytes);
	fcntl(plain.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	plain_pass(true);
	close(plain.fd);
	(void)number;
}

static const void *plain_take(unsigned number)
{
	(void)number;
	plain_pass(false);
	return plain_map(PROT_READ);
}

const struct way way_memfd = {.name = "memfd",
                              .prepare = plain_prepare,
                              .produce_open = plain_open,
                              .begin = plain_begin,
                              .publish = plain_publish,
                              .end = bare_nothing,
                              .produce_close = bare_close,
                              .consume_open = plain_open,
                              .take = plain_take,
                              .release = plain_release,
                              .consume_close = bare_close};
