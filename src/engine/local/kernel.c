/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Features of the kernel
 *
 * Finds by calls, and not by the version, which features of the kernel local files can use, as a
 * context is made, and describes them for sluice_context_feature(), on any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "local/local_internal.h"

/* Returns whether reads of the program file, which is resident on a common disk, take the flag. */
static bool kernel_has_read_flag(int flag)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	char byte;
	struct iovec vector = {&byte, 1};
	struct statfs fs;

	if (fd < 0)
		return true; /* the first read of each file finds out */
	bool takes = preadv2(fd, &vector, 1, 0, flag) >= 0 || errno == EAGAIN;
	/* And so if the program is in memory, where no file takes a flag. */
	takes = takes || (errno == EOPNOTSUPP && !fstatfs(fd, &fs) && fs.f_type == TMPFS_MAGIC);
	close(fd);
	return takes;
}

static bool kernel_has_dioalign(void)
{
	struct statx stat;

	/* A kernel that knows the field sets its bit for some file of any disk; an older kernel
	 * never does. The alignment itself is asked for each file. */
	if (statx(AT_FDCWD, "/proc/self/exe", 0, STATX_DIOALIGN, &stat))
		return errno == ENOENT; /* without /proc the open of each file finds out */
	return stat.stx_mask & STATX_DIOALIGN;
}

void sl_kernel_probe(unsigned disable, struct sl_kernel *out)
{
	/* Only a kernel that has the call notices the bad descriptor. */
	out->cachestat = !(disable & SL_DISABLE_CACHESTAT) &&
	                 syscall(SYS_cachestat, -1, NULL, NULL, 0) < 0 && errno != ENOSYS;
	out->nowait = !(disable & SL_DISABLE_NOWAIT) && kernel_has_read_flag(RWF_NOWAIT);
	out->dontcache = !(disable & SL_DISABLE_DONTCACHE) && kernel_has_read_flag(RWF_DONTCACHE);
	out->dioalign = !(disable & SL_DISABLE_DIOALIGN) && kernel_has_dioalign();
	atomic_init(&out->uring_error, disable & SL_DISABLE_URING ? -ECANCELED : 0);
}

/* The descriptions of the features that are flags of struct sl_kernel. */
static const struct kernel_feature {
	const char *name;
	size_t flag; /* offset in struct sl_kernel */
	unsigned disable;
	const char *with, *without; /* the effect */
	const char *remedy;
} kernel_features[] = {
	{"cachestat", offsetof(struct sl_kernel, cachestat), SL_DISABLE_CACHESTAT,
         "asked what is in the page cache",
         "mincore is asked what is in the page cache, which is slower and knows only the user's "
         "own files",
         "run Linux 6.5 or newer"},
	{"RWF_NOWAIT", offsetof(struct sl_kernel, nowait), SL_DISABLE_NOWAIT,
         "small resident reads are done by the submitting call",
         "small reads are done by the workers", NULL},
	{"RWF_DONTCACHE", offsetof(struct sl_kernel, dontcache), SL_DISABLE_DONTCACHE,
         "large reads that cannot be direct leave nothing in the page cache",
         "large reads that cannot be direct fill the page cache", "run Linux 6.14 or newer"},
	{"STATX_DIOALIGN", offsetof(struct sl_kernel, dioalign), SL_DISABLE_DIOALIGN,
         "direct I/O uses the alignment that the file asks for",
         "direct I/O is tried with an alignment of 4 KiB", "run Linux 6.1 or newer"},
};

_Static_assert(SL_LOCAL_FEATURES == 2 + sizeof(kernel_features) / sizeof(kernel_features[0]),
               "io_uring, the table, cuFile");

static void describe_uring(const struct sl_core *core, struct sluice_feature *out)
{
	int error = atomic_load(&core->kernel.uring_error);

	out->name = "io_uring";
	out->usable = !error;
	out->detail = !error                ? "there"
	              : error == -ECANCELED ? "switched off by the settings"
	                                    : sl_error_text(error);
	out->effect = !error ? "cold data is read and written at depth by the reactors"
	                     : "cold data is read and written by the workers' blocking calls";
	if (error == -EPERM)
		out->remedy = "allow it: sysctl kernel.io_uring_disabled=0, or the container's "
			      "seccomp profile";
	else if (error == -ENOMEM)
		out->remedy = "raise the limit of memory, or of locked memory (ulimit -l)";
	else if (error == -ENOSYS)
		out->remedy = "run Linux 5.10 or newer";
}

void sl_local_feature(const struct sl_core *core, size_t index, struct sluice_feature *out)
{
	out->remedy = NULL;
	if (index == 0) {
		describe_uring(core, out);
		return;
	}
	if (index == SL_LOCAL_FEATURES - 1) {
		sl_cufile_feature(core, out);
		return;
	}
	const struct kernel_feature *feature = &kernel_features[index - 1];
	bool masked = core->settings.disable & feature->disable;
	out->name = feature->name;
	out->usable = *(const bool *)((const char *)&core->kernel + feature->flag);
	out->detail = out->usable ? "there"
	              : masked    ? "switched off by SLUICE_DISABLE"
	                          : "not on this kernel and file system";
	out->effect = out->usable ? feature->with : feature->without;
	out->remedy = out->usable || masked ? NULL : feature->remedy;
}
