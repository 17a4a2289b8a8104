/* SPDX-License-Identifier: Apache-2.0 */
#include "frames/small_disk.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include "frames/field.h"

enum { DISK_KIB = 3072 };

static char disk[256], file_path[300], ballast[300]; /* disk empty: nothing can be mounted */

static void disk_mount(void)
{
	const char *base = getenv("SLUICE_TEST_DIR");
	char size[32];

	snprintf(disk, sizeof(disk), "%.200s/disk-XXXXXX", base ? base : ".");
	snprintf(size, sizeof(size), "size=%uk", DISK_KIB + 16);
	if (!mkdtemp(disk)) {
		disk[0] = '\0';
		return;
	}
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("sluice", disk, "tmpfs", 0, size)) {
		rmdir(disk);
		disk[0] = '\0';
	}
	snprintf(file_path, sizeof(file_path), "%s/frames.h5", disk);
	snprintf(ballast, sizeof(ballast), "%s/ballast", disk);
}

int disk_run(const char *file)
{
	int failed;

	disk_mount();
	failed = run_tests_of(file, NULL, NULL);
	if (disk[0]) {
		umount2(disk, MNT_DETACH);
		rmdir(disk);
	}
	return failed;
}

void disk_leave_all(void)
{
	unlink(ballast);
}

void disk_leave_room(unsigned kib)
{
	int fd;

	disk_leave_all();
	fd = open(ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(posix_fallocate(fd, 0, (off_t)(DISK_KIB - kib) * 1024), 0);
	close(fd);
}

const char *disk_file(unsigned kib)
{
	if (!disk[0])
		SKIP("no file system can be mounted here");
	unlink(file_path);
	disk_leave_room(kib);
	return file_path;
}

void assert_disk_has(unsigned files)
{
	assert_int_equal(directory_entries(disk), 1 + files);
}
