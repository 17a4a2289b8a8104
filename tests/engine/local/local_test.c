/* SPDX-License-Identifier: Apache-2.0 */
/* What local files make of what the kernel says: of a machine with pages of 64 KiB, of file systems and files. */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "device/device.h"
#include "frames/frames_internal.h"
#include "lib/support.h"
#include "local/local_internal.h"
#include "sluice/device.h"

#define LOCAL(name) TEST_WITH(name, setup, fixture_teardown)

#define CACHESTAT 451
#define LARGE     (64 * KIB)

static size_t page_size;       /* that the machine is said to have */
static struct statfs *system_; /* that files are said to be of; NULL: the real one */
static int stat_error;         /* of the next fstat(), once */
static _Atomic int stat_calls, reads_refused;

size_t __wrap_sl_page_size(void);
size_t __wrap_sl_page_size(void)
{
	return page_size;
}

/* Counts in pages of that size. */
long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	long rc = __real_syscall(number, a, b, c, d, e, f);

	if (number == CACHESTAT && !rc)
		*(uint64_t *)c /= page_size / 4096;
	reads_refused += number == SYS_preadv2 && rc < 0;
	return rc;
}

int __real_mincore(void *address, size_t length, unsigned char *vector);
int __wrap_mincore(void *address, size_t length, unsigned char *vector);
int __wrap_mincore(void *address, size_t length, unsigned char *vector)
{
	size_t ratio = page_size / 4096, pages = (length + 4095) / 4096;
	unsigned char *real = malloc(pages);
	int rc = __real_mincore(address, length, real);

	for (size_t i = 0; !rc && i < pages; i += ratio)
		vector[i / ratio] = real[i];
	free(real);
	return rc;
}

void *__real_mmap64(void *at, size_t length, int access, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t length, int access, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t length, int access, int flags, int fd, off_t offset)
{
	char *room;

	if (at || !(flags & MAP_ANONYMOUS))
		return __real_mmap64(at, length, access, flags, fd, offset);
	room = __real_mmap64(NULL, length + page_size, access, flags, fd, offset);
	return room == MAP_FAILED ? room : room + -(uintptr_t)room % page_size;
}

int __real_fstatfs64(int fd, struct statfs *out);
int __wrap_fstatfs64(int fd, struct statfs *out);
int __wrap_fstatfs64(int fd, struct statfs *out)
{
	if (!system_)
		return __real_fstatfs64(fd, out);
	*out = *system_;
	return 0;
}

int __real_fstat64(int fd, struct stat *out);
int __wrap_fstat64(int fd, struct stat *out);
int __wrap_fstat64(int fd, struct stat *out)
{
	errno = stat_error;
	stat_error = 0;
	stat_calls++;
	return errno ? -1 : __real_fstat64(fd, out);
}

static int setup(void **state)
{
	page_size = LARGE;
	system_ = NULL;
	return fixture_setup(state);
}

LOCAL(a_file_is_cold_unless_its_disk_is_quick_or_it_has_holes)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "cold");
	struct sl_core core = {.kernel.cachestat = true};
	struct sl_local local = {.core = &core, .device = 7};

	file_make(path, 4 * MIB, 1);
	file_set_residency(path, COLD);
	local.descriptor = open(path, O_RDONLY);
	assert_true(local.descriptor >= 0);
	if (sl_resident(&local, 0, LARGE))
		SKIP("this file system keeps its pages");
	assert_int_equal(sl_local_ops.cold(&local.base, 0, 4 * MIB), 7);
	core.quick = 8;
	assert_int_equal(sl_local_ops.cold(&local.base, 0, 4 * MIB), 7);
	core.quick = 7;
	assert_int_equal(sl_local_ops.cold(&local.base, 0, 4 * MIB), 0);
	core.quick = 0;
	assert_int_equal(truncate(path, 8 * MIB), 0);
	assert_int_equal(sl_local_ops.cold(&local.base, 0, 4 * MIB), 0);
	close(local.descriptor);
}

LOCAL(residency_is_counted_in_pages_of_the_machine)
{
	struct fixture *f = *state;
	const char *path = scratch(f, "resident");
	struct sl_core core = {.kernel.cachestat = true};
	struct sl_local local = {.core = &core};

	sl_mutex_init(&local.map.mutex);
	file_make(path, 4 * MIB, 1);
	local.descriptor = open(path, O_RDWR);
	assert_true(local.descriptor >= 0);
	for (int way = 0; way < 2; way++) {
		core.kernel.cachestat = !way;
		file_set_residency(path, COLD);
		assert_false(sl_resident(&local, 0, 4 * MIB));
		file_set_residency(path, CACHED);
		assert_true(sl_resident(&local, 0, 4 * MIB));
		assert_true(sl_resident(&local, LARGE, MIB));
	}
	close(local.descriptor);
	sl_residency_close(&local);
}

static int never_enter(struct sl_device *device, sluice_stream stream)
{
	(void)device, (void)stream;
	abort();
}

/* As HIP's, whose devices have contexts, too. */
LOCAL(cufile_is_not_given_memory_of_another_vendors_gpu)
{
	const struct sl_device_ops ops = {.enter = never_enter};
	const struct sl_device_kind kind = {.name = "other"};
	struct sl_device device = {.ops = &ops, .kind = &kind, .name = "other:0"};
	struct sl_core core = {0};
	struct sl_local local = {.core = &core, .choice = SL_CHOICE_CUFILE};
	char memory;

	(void)state;
	assert_ok(sl_cufile_new(&core, &core.cufile));
	assert_int_equal(sl_local_ops.moves->takes(&local.base, &device, NULL, 0, false, false), 0);
	assert_int_equal(sl_cufile_register(core.cufile, &device, &memory, 1), -ENOTSUP);
	assert_non_null(strstr(sluice_last_message(), "other:0 is none"));
	sl_cufile_free(core.cufile);
}

/* Direct and buffered writes must not meet in a page. */
LOCAL(direct_io_is_of_whole_pages)
{
	struct fixture *f = *state;
	struct sluice_config c = row_config();
	struct sluice_file_info st = {.size = sizeof(st)};
	struct buffer b = buffer_new(3 * MIB, 0);
	struct rng r = rng_new(1);
	sluice_file *file;

	if (!scratch_takes_direct(f))
		SKIP("files here cannot be opened for direct I/O");
	c.direct_bytes = 128 * KIB;
	fixture_config(f, &c);
	file = open_both(f->ctx, scratch(f, "direct"));
	assert_ok(sluice_stat(file, &st));
	assert_int_equal(st.direct_offset, LARGE);
	pattern_fill(b.data, b.length, 0, 1);
	assert_write(file, b.data, b.length, 0);
	for (int i = 0; i < 20; i++) {
		size_t n = rng_length(&r, LARGE, b.length), at = rng_below(&r, b.length - n + 1);

		pattern_fill(b.data + at, n, at, (uint64_t)i);
		assert_write(file, b.data + at, n, at);
	}
	assert_file_is(scratch(f, "direct"), b.data, b.length);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

LOCAL(memory_is_taken_by_whole_pages)
{
	static const size_t lengths[] = {1, 100000, 3 * MIB + 1};
	struct sl_area area;
	void *pinned;
	int index;

	for (size_t i = 0; i < COUNT_OF(lengths); i++) {
		assert_ok(sl_area_take(&area, lengths[i]));
		assert_int_equal((uintptr_t)area.memory % LARGE, 0);
		assert_int_equal(area.length % LARGE, 0);
		memset(area.memory, 1, area.length);
		sl_area_release(&area);
	}
	assert_ok(sluice_device_find("emulated", &index));
	assert_ok(sluice_pinned_alloc(index, 1, &pinned));
	memset(pinned, 1, LARGE);
	assert_true(sl_device_find((unsigned)index)
	                    ->ops->registered(sl_device_find((unsigned)index), pinned, LARGE));
	assert_ok(sluice_pinned_free(pinned));
}

/* Many small files and a large one, which is the last and is read from storage. */
static void check_descriptors(struct fixture *f, bool direct)
{
	enum { FILES = 64 };
	size_t before = count_descriptors();
	struct buffer b = buffer_new(MIB, 0);
	sluice_file *files[FILES];
	struct rlimit all, full;
	char data[3];

	file_make(scratch(f, "small"), sizeof(data), 1);
	file_make(scratch(f, "big"), b.length, 2);
	for (int i = 0; i < FILES; i++) {
		files[i] = open_both(f->ctx, scratch(f, i < FILES - 1 ? "small" : "big"));
		assert_read(files[i], data, sizeof(data), 0);
		assert_pattern(data, sizeof(data), 0, i < FILES - 1 ? 1 : 2);
	}
	file_set_residency(scratch(f, "big"), COLD);
	assert_int_equal(count_descriptors(), before + FILES);
	/* With no descriptor left the bytes come through the page cache. */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	full = all;
	full.rlim_cur = (rlim_t)dup(0);
	close((int)full.rlim_cur);
	if (!direct)
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &full), 0);
	assert_read(files[FILES - 1], b.data, b.length, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
	assert_pattern(b.data, b.length, 0, 2);
	assert_int_equal(count_descriptors(), before + FILES + direct);
	for (int i = 0; i < FILES; i++)
		assert_ok(sluice_close(files[i]));
	assert_int_equal(count_descriptors(), before);
	buffer_free(&b);
}

LOCAL(a_file_takes_one_descriptor_until_a_large_piece_needs_another)
{
	struct fixture *f = *state;
	struct statfs nfs = {.f_type = NFS_SUPER_MAGIC, .f_bsize = 4096, .f_blocks = 1};
	struct sluice_config c = row_config();

	if (!scratch_takes_direct(f))
		SKIP("files here cannot be opened for direct I/O");
	page_size = 4096;
	c.direct_bytes = 128 * KIB;
	/* Of a server's files the thread that makes the call opens it. */
	for (int i = 0; i < 4; i++) {
		fixture_config(f, &c);
		system_ = i / 2 ? &nfs : NULL;
		check_descriptors(f, i % 2);
	}
}

/* That of a server is a question to the server. */
LOCAL(a_small_read_does_not_ask_for_the_length)
{
	struct fixture *f = *state;
	struct sluice_config c = row_config();
	char data[4096];
	sluice_file *file;

	page_size = 4096;
	config_tune(&c, "inline_bytes", sizeof(data));
	fixture_config(f, &c);
	file_make(scratch(f, "small"), sizeof(data), 1);
	file_set_residency(scratch(f, "small"), CACHED);
	stat_calls = 0;
	file = open_read(f->ctx, scratch(f, "small"));
	assert_read(file, data, sizeof(data), 0);
	assert_ok(sluice_close(file));
	/* Where statx() tells nothing of the file, this looks at its kind. */
	assert_true(stat_calls <= 1);
}

/* tmpfs has no RWF_NOWAIT. */
LOCAL(a_small_read_from_tmpfs_is_over_at_once)
{
	struct fixture *f = *state;
	char path[] = "/dev/shm/sluice-test.XXXXXX", data[4096];
	int fd = mkstemp(path);
	sluice_file *file;
	struct statfs fs;

	if (fd < 0 || fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		SKIP("/dev/shm is no tmpfs");
	close(fd);
	page_size = 4096;
	file_make(path, sizeof(data), 1);
	reads_refused = 0;
	file = open_read(f->ctx, path);
	assert_read(file, data, sizeof(data), 0);
	assert_pattern(data, sizeof(data), 0, 1);
	assert_int_equal(reads_refused, 0);
	assert_ok(sluice_close(file));
	unlink(path);
}

static bool size_is_known(struct fixture *f, const char *path)
{
	sluice_file *file = open_both(f->ctx, path);
	struct sluice_file_info st = {.size = sizeof(st)};

	assert_ok(sluice_stat(file, &st));
	assert_ok(sluice_close(file));
	return !(st.flags & SLUICE_STAT_SIZE_UNKNOWN);
}

LOCAL(a_server_need_not_say_how_many_blocks_it_has)
{
	struct fixture *f = *state;
	struct statfs none = {.f_type = 0x65735546, .f_bsize = 4096};
	const char *path = scratch(f, "served"), *hollow = scratch(f, "hollow");

	page_size = 4096;
	file_make(path, 100000, 1);
	file_write(hollow, "", 0, 0);
	file_truncate(hollow, 4096);
	system_ = &none;
	assert_true(size_is_known(f, path));
	assert_true(size_is_known(f, hollow));
	assert_false(size_is_known(f, scratch(f, "empty")));
	/* There a length says nothing: in /sys all files have 4096 bytes. */
	none.f_type = SYSFS_MAGIC;
	assert_false(size_is_known(f, hollow));
}

LOCAL(why_a_length_cannot_be_had_is_told)
{
	static const int errors[] = {ESTALE, EPERM};
	static const int told[] = {ESTALE, EIO};
	struct fixture *f = *state;
	struct sluice_config c = row_config();
	char data[4096];
	sluice_file *file;

	page_size = 4096;
	config_tune(&c, "inline_bytes", 1);
	fixture_config(f, &c);
	file_make(scratch(f, "stale"), sizeof(data), 1);
	file = open_read(f->ctx, scratch(f, "stale"));
	for (size_t i = 0; i < COUNT_OF(errors); i++) {
		stat_error = errors[i];
		assert_fails(start_read(file, data, sizeof(data), 0), told[i]);
	}
	assert_ok(sluice_close(file));
}

int main(int argc, char **argv)
{
	void *memory;
	int index;

	row_start(argc, argv);
	/* Its threads are there before anybody counts. */
	page_size = 4096;
	assert_ok(sluice_device_find("emulated", &index));
	assert_ok(sluice_device_alloc(index, 1, &memory));
	assert_ok(sluice_device_free(memory));
	return RUN_TESTS(NULL, NULL);
}
