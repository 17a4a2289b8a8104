/* SPDX-License-Identifier: Apache-2.0 */
/* The copies of long writes into parts, each of which stands still at a page until the test gives the page. */
#include "http/s3_cases.h"
#include "io/io.h"
#include "io/io_internal.h"
#include "sluice/device.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PART = 512 << 10, PARTS = 4 };

/* Memory of so many parts whose pages are absent: a thread that reads one waits. */
struct absent {
	int fd; /* of userfaultfd() */
	char *data;
	size_t length;
	unsigned met; /* a bit for each part that a thread waits in */
};

static struct absent absent_new(unsigned parts)
{
	struct absent m = {.length = (size_t)parts * PART};
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register all = {.mode = UFFDIO_REGISTER_MODE_MISSING};

	m.fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (m.fd < 0)
		return m;
	assert_ok(ioctl(m.fd, UFFDIO_API, &api));
	m.data = mmap(NULL, m.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(m.data, MAP_FAILED);
	madvise(m.data, m.length, MADV_NOHUGEPAGE);
	all.range.start = (uintptr_t)m.data;
	all.range.len = m.length;
	assert_ok(ioctl(m.fd, UFFDIO_REGISTER, &all));
	return m;
}

/* Waits until threads wait in so many parts, or for that time. Returns whether they do. */
static bool absent_are_met(struct absent *m, int parts, int ms)
{
	double end = seconds_now() + ms / 1e3;
	struct uffd_msg message;

	while (__builtin_popcount(m->met) < parts && seconds_now() < end) {
		poll(&(struct pollfd){.fd = m->fd, .events = POLLIN}, 1, 20);
		if (read(m->fd, &message, sizeof(message)) == sizeof(message))
			m->met |= 1u
			          << ((message.arg.pagefault.address - (uintptr_t)m->data) / PART);
	}
	return __builtin_popcount(m->met) == parts;
}

/* Gives parts their bytes, those of the pattern 5, and wakes the threads that wait there. */
static void absent_give(const struct absent *m, unsigned first, unsigned count)
{
	struct buffer b = buffer_new((size_t)count * PART, 0);
	struct uffdio_copy copy = {.dst = (uintptr_t)m->data + (uintptr_t)first * PART,
	                           .src = (uintptr_t)b.data,
	                           .len = b.length};

	pattern_fill(b.data, b.length, (uint64_t)first * PART, 5);
	assert_ok(ioctl(m->fd, UFFDIO_COPY, &copy));
	buffer_free(&b);
}

static void absent_free(struct absent *m)
{
	munmap(m->data, m->length);
	close(m->fd);
}

static void copies(struct fixture *f, const char *workers)
{
	with(f, "SLUICE_S3_PART_BYTES", "512K");
	with(f, "SLUICE_S3_UPLOAD_BYTES", "4M");
	with(f, "SLUICE_WORKERS", workers);
}

S3_TEST(threads_copy_a_part_each_and_a_write_ends_with_the_last_of_them)
{
	struct absent m = absent_new(PARTS);
	const char *path = scratch(f, "object"), *kind = "PUT_partNumber_uploadId";
	bool together;
	sluice_file *file;
	sluice_op *op;
	long parts;
	int early;

	if (m.fd < 0)
		SKIP("userfaultfd() is refused");
	copies(f, "4");
	/* A file begins with an eighth of it. */
	with(f, "SLUICE_S3_UPLOAD_BYTES", "16M");
	parts = s3_counted(f, "files", kind);
	file = s3_open_put(f, s3_uri("files", path), 0, 0);
	op = start_write(file, m.data, m.length, 0);
	together = absent_are_met(&m, PARTS, PATIENCE_MS / 4);
	/* All bytes are taken, and all but those of the first part copied and sent. */
	absent_give(&m, 1, PARTS - 1);
	while (together && s3_counted(f, "files", kind) < parts + PARTS - 1)
		sleep_ms(5);
	sleep_ms(50);
	early = sluice_poll(op);
	absent_give(&m, 0, 1);
	assert_true(together);
	assert_int_equal(early, 0);
	assert_moves(op, m.length);
	assert_ok(sluice_close(file));
	assert_file_is(path, m.data, m.length);
	absent_free(&m);
}

static unsigned in_flight(sluice_op *op)
{
	unsigned n;

	sl_mutex_lock(&op->mutex);
	n = op->locked.in_flight;
	sl_mutex_unlock(&op->mutex);
	return n;
}

/* The only worker waits in a copy of another object. */
S3_TEST(a_write_through_slots_has_a_piece_of_each_in_flight)
{
	enum { SLOTS = 64, SLOT = 256 << 10 };
	struct absent m = absent_new(1);
	const size_t n = (size_t)(SLOTS + 16) * SLOT;
	const char *path = scratch(f, "object"), *other = scratch(f, "other");
	sluice_file *file, *held;
	struct buffer b = buffer_new(n, 0);
	unsigned most = 0;
	sluice_op *op, *holds;
	void *memory;
	int device;

	if (m.fd < 0)
		SKIP("userfaultfd() is refused");
	copies(f, "1");
	with(f, "SLUICE_SLOTS", "64");
	with(f, "SLUICE_PIECE_BYTES", "256K");
	with(f, "SLUICE_SLOT_BYTES", "256K");
	pattern_fill(b.data, n, 0, 6);
	assert_ok(sluice_device_find("emulated", &device));
	assert_ok(sluice_device_alloc(device, n, &memory));
	assert_ok(sluice_copy(memory, b.data, n));
	held = s3_open_put(f, s3_uri("files", other), 0, 0);
	holds = start_write(held, m.data, m.length, 0);
	file = s3_open_put(f, s3_uri("files", path), 0, 0);
	if (absent_are_met(&m, 1, PATIENCE_MS)) {
		double end = seconds_now() + PATIENCE_MS / 4e3;

		op = start_write(file, memory, n, 0);
		while (most < SLOTS && seconds_now() < end) {
			unsigned now = in_flight(op);

			most = now > most ? now : most;
			sleep_ms(1);
		}
		absent_give(&m, 0, 1);
		assert_moves(op, n);
	}
	assert_int_equal(most, SLOTS);
	assert_moves(holds, m.length);
	assert_ok(sluice_close(held));
	assert_ok(sluice_close(file));
	assert_file_is(path, b.data, n);
	assert_ok(sluice_device_free(memory));
	buffer_free(&b);
	absent_free(&m);
}
