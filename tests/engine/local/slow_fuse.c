/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system with two files, of which one tells no length, spoken over /dev/fuse (linux/fuse.h), by a process of
 * its own: this one may end with requests that are not answered.
 */
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "local/slow.h"

enum { FILE_NODE = 2, UNSIZED_NODE, REQUEST = 2 << 20 };

static int device = -1;
static pid_t server;
static char mounted[256];
static pthread_mutex_t content_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned char *content; /* guarded by content_mutex */

static void reply(const struct fuse_in_header *in, int error, const void *data, size_t n)
{
	struct fuse_out_header out = {sizeof(out) + (error ? 0 : n), error, in->unique};
	struct iovec v[] = {{&out, sizeof(out)}, {(void *)(uintptr_t)data, error ? 0 : n}};

	/* Whoever asked may be gone. */
	(void)!writev(device, v, 2);
}

static struct fuse_attr attributes(uint64_t node)
{
	struct fuse_attr a = {.ino = node, .blksize = 4096, .nlink = 1};

	a.mode = node >= FILE_NODE ? S_IFREG | 0666 : S_IFDIR | 0755;
	a.size = node == FILE_NODE ? SLOW_BYTES : 0;
	a.blocks = a.size / 512;
	return a;
}

/* Who asks for the size is never answered from what the kernel remembers. */
static void serve_lookup(const struct fuse_in_header *in)
{
	const char *name = (const char *)(in + 1);
	struct fuse_entry_out entry = {.nodeid = FILE_NODE, .entry_valid = 3600};
	bool unsized = strcmp(name, "unsized") == 0;

	entry.nodeid += unsized;
	entry.attr = attributes(entry.nodeid);
	reply(in, unsized || strcmp(name, "file") == 0 ? 0 : -ENOENT, &entry, sizeof(entry));
}

static void serve_attributes(const struct fuse_in_header *in)
{
	struct fuse_attr_out out = {.attr_valid = 0, .attr = attributes(in->nodeid)};

	if (in->nodeid == FILE_NODE && in->opcode == FUSE_GETATTR)
		slow_wait(SLOW_SIZE);
	reply(in, 0, &out, sizeof(out));
}

static void serve_read(const struct fuse_in_header *in)
{
	const struct fuse_read_in *r = (const void *)(in + 1);
	size_t left = r->offset < SLOW_BYTES ? SLOW_BYTES - r->offset : 0;

	slow_wait(SLOW_READ);
	pthread_mutex_lock(&content_mutex);
	reply(in, 0, content + r->offset, left < r->size ? left : r->size);
	pthread_mutex_unlock(&content_mutex);
}

static void serve_write(const struct fuse_in_header *in)
{
	const struct fuse_write_in *w = (const void *)(in + 1);
	struct fuse_write_out out = {.size = w->size};

	slow_wait(SLOW_WRITE);
	if (w->offset + w->size > SLOW_BYTES) {
		reply(in, -EFBIG, NULL, 0);
		return;
	}
	pthread_mutex_lock(&content_mutex);
	memcpy(content + w->offset, w + 1, w->size);
	pthread_mutex_unlock(&content_mutex);
	reply(in, 0, &out, sizeof(out));
}

/* The first open of the file without a length is interrupted. */
static void serve_open(const struct fuse_in_header *in)
{
	static _Atomic bool interrupted;
	struct fuse_open_out open = {.open_flags = in->nodeid >= FILE_NODE ? FOPEN_DIRECT_IO : 0};
	bool first = in->nodeid == UNSIZED_NODE && !atomic_exchange(&interrupted, true);

	reply(in, first ? -EINTR : 0, &open, sizeof(open));
}

static void *serve(void *request)
{
	const struct fuse_in_header *in = request;
	struct fuse_init_out init = {.major = 7,
	                             .minor = 31,
	                             .flags = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES,
	                             .max_background = 1000,
	                             .congestion_threshold = 1000,
	                             .max_write = 1 << 20,
	                             .max_pages = 256};
	struct fuse_statfs_out fs = {.st = {.bsize = 4096,
	                                    .blocks = 1 << 20,
	                                    .bfree = 1 << 19,
	                                    .bavail = 1 << 19,
	                                    .namelen = 255}};

	switch (in->opcode) {
	case FUSE_INIT:
		reply(in, 0, &init, sizeof(init));
		break;
	case FUSE_LOOKUP:
		serve_lookup(in);
		break;
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		serve_attributes(in);
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		serve_open(in);
		break;
	case FUSE_READ:
		serve_read(in);
		break;
	case FUSE_WRITE:
		serve_write(in);
		break;
	case FUSE_FSYNC:
		slow_wait(SLOW_SYNC);
		reply(in, 0, NULL, 0);
		break;
	case FUSE_STATFS:
		reply(in, 0, &fs, sizeof(fs));
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_ACCESS:
	case FUSE_DESTROY:
		reply(in, 0, NULL, 0);
		break;
	default:
		reply(in, -ENOSYS, NULL, 0);
	}
	free(request);
	return NULL;
}

/* A thread for each request: some of them wait. */
static void run_server(void)
{
	char *buffer = malloc(REQUEST);
	pthread_t thread;
	ssize_t n;

	while ((n = read(device, buffer, REQUEST)) > 0 || errno == EINTR || errno == EAGAIN ||
	       errno == ENOENT) {
		void *request;

		if (n <= 0)
			continue;
		request = memcpy(malloc((size_t)n + 1), buffer, (size_t)n);
		((char *)request)[n] = '\0';
		if (pthread_create(&thread, NULL, serve, request))
			_exit(1);
		pthread_detach(thread);
	}
	_exit(0);
}

const char *slow_fuse_start(const char *directory, char *path, size_t size)
{
	char options[128];

	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (device < 0)
		return "there is no /dev/fuse to open";
	snprintf(mounted, sizeof(mounted), "%s/fuse", directory);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", device,
	         getuid(), getgid());
	if (mkdir(mounted, 0700) ||
	    mount("slow", mounted, "fuse.slow", MS_NOSUID | MS_NODEV, options)) {
		close(device);
		return "no file system may be mounted here";
	}
	content = malloc(SLOW_BYTES);
	pattern_fill(content, SLOW_BYTES, 0, SLOW_SEED);
	server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_server();
	}
	/* The connection ends with the server. */
	close(device);
	snprintf(path, size, "%s/file", mounted);
	return server < 0 ? "no process for the server" : NULL;
}

void slow_fuse_stop(void)
{
	umount2(mounted, MNT_DETACH);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	rmdir(mounted);
}
