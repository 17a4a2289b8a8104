/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the public interface share: rows (which backend, with which features off),
 * scratch files, reproducible contents, and calls that say what sluice said when they fail.
 *
 * cmocka leaves a failed test by longjmp, so everything here that asserts is for the main thread.
 */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/cases.h"
#include "lib/pattern.h"
#include "sluice/sluice.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
/* No process has memory there. It is aligned, so that it reaches the kernel, which answers EFAULT. */
#define NOWHERE     ((void *)4096)
#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* No test waits longer than this for one operation; a hang becomes a failure with a name. */
enum { PATIENCE_MS = 60000 };

/* What the operations of a program that is linked with device_shim.c move, and in which order. */
enum row_memory { HOST_MEMORY, DEVICE_MEMORY, ANY_MEMORY };
enum row_order { HOST_ORDER, STREAM_ORDER, ANY_ORDER };

/* One way to run a suite. What is 0 or NULL is left to the library's defaults. */
struct row {
	const char *name;
	struct sluice_config config;
	/* Files are read from nginx by this backend, or are blobs of the "store"; NULL: local files. */
	const char *remote;
	bool tls;
	bool s3;                /* files are objects of the server of S3 instead */
	bool on_device;         /* of the "store": the blobs are memory of the first device */
	enum row_memory memory; /* of the devices that SLUICE_TEST_DEVICE names */
	enum row_order order;
	bool delays; /* of the emulated devices, by the seed */
};
extern const struct row *row;

/*
 * Called first in main(): takes the row's name from argv[1] ("auto" without one), drops SLUICE_*
 * from the environment, and ends the process with status 77 and a reason if the row cannot run
 * here. A row that can run and does not is a failure, not a skip.
 */
void row_start(int argc, char **argv);
/* Starts the devices that SLUICE_TEST_DEVICE names, for a program that has tests of them in every row: before anything is counted. */
void row_start_devices(void);
/* The row's settings; a test may change single ones. */
struct sluice_config row_config(void);
/* Sets a number in `tune`, beside the others that are there; 0: as if it were not named. The text lives for the next 60 calls. */
void config_tune(struct sluice_config *config, const char *name, size_t value);
/* The number that `tune` has for that name, or 0. */
size_t config_tuned(const struct sluice_config *config, const char *name);
/* n bytes, or fewer for a row whose pieces are so small that n would take long. */
size_t row_bytes(size_t n);
/* Whether files are blobs: they have at least one byte. */
bool row_is_store(void);
/* Whether requests of this row may go through io_uring. */
bool row_has_uring(void);
/* What io_uring answers when it is asked directly, without sluice. */
bool machine_has_uring(void);

/* A test's surroundings: a scratch directory below SLUICE_TEST_DIR and a context of the row. */
struct fixture {
	sluice_context *ctx;
	char dir[256];
	size_t descriptors, threads; /* of the process before the context was made */
	double begun;                /* seconds_now() */
};
int fixture_setup(void **state);
/* Frees the context and asserts that no descriptor and no thread is left of it. */
int fixture_teardown(void **state);
/* Replaces the fixture's context by one with these settings. */
void fixture_config(struct fixture *f, const struct sluice_config *config);
/* Their bodies have the fixture as f. */
#define FIXTURE_TEST_WITH(name, setup, teardown) \
	TEST_OF(struct fixture *f, name, setup, teardown, NULL)
#define FIXTURE_TEST(name) FIXTURE_TEST_WITH(name, fixture_setup, fixture_teardown)
/* In a table of cmocka's. */
#define fixture_test(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

/* Why a case does not run in rows of some kind; NULL: it does. */
struct skipped {
	const char *remote; /* files */
	const char *memory; /* of devices */
	const char *order;  /* of streams */
	const char *device; /* with devices at all */
	const char *gpu;    /* with a device that is not emulated */
};
#define ROW_TEST(name, ...)                                               \
	TEST_OF(struct fixture *f, name, fixture_setup, fixture_teardown, \
	        (&(struct skipped){__VA_ARGS__}))
/* A case for rows of local files; in the others it is skipped, and says why. */
#define LOCAL_TEST(name, why) ROW_TEST(name, .remote = (why))
/* A case of what only the emulated devices can do. */
#define EMULATED_TEST(name, why) ROW_TEST(name, .gpu = (why))

/* The name of a file in the scratch directory; one of a few static buffers, used in turn. */
const char *scratch(const struct fixture *f, const char *name);
bool scratch_takes_direct(const struct fixture *f);
/* What the row opens to read that file: the same, or where nginx has it. */
const char *address(const struct fixture *f, const char *name);

/* Ends the running test as skipped and says why. */
#define SKIP(...)                               \
	do {                                    \
		print_message("[  reason  ] "); \
		print_message(__VA_ARGS__);     \
		print_message("\n");            \
		skip();                         \
	} while (0)

/* ------------------------------------------------------------------------------------- contents */

struct rng {
	uint64_t state;
};
/* SLUICE_TEST_SEED, or else one of this moment; printed when it is first asked for. */
uint64_t test_seed(void);
struct rng rng_new(uint64_t stream);
uint64_t rng_next(struct rng *r);
/* 0 to bound - 1. */
size_t rng_below(struct rng *r, size_t bound);
/* A length that likes edges: 0, 1, around 4 KiB and `piece`, or anything up to `most`. */
size_t rng_length(struct rng *r, size_t piece, size_t most);

#define assert_pattern(src, n, offset, seed)                                         \
	do {                                                                         \
		size_t n_ = (n);                                                     \
		size_t at_ = pattern_match(src, n_, offset, seed);                   \
		if (at_ != n_)                                                       \
			fail_msg("byte %zu of %zu at offset %llu is wrong", at_, n_, \
			         (unsigned long long)(offset));                      \
	} while (0)
#define assert_bytes(a, b, n)                                                  \
	do {                                                                   \
		size_t n_ = (n);                                               \
		size_t at_ = first_difference(a, b, n_);                       \
		if (at_ != n_)                                                 \
			fail_msg("byte %zu of %zu is %02x, not %02x", at_, n_, \
			         ((const unsigned char *)(a))[at_],            \
			         ((const unsigned char *)(b))[at_]);           \
	} while (0)

/* n bytes that start `skew` bytes behind a page boundary, with guards around them. */
struct buffer {
	unsigned char *data;
	size_t length;
	void *base;
	size_t mapped;
};
struct buffer buffer_new(size_t n, size_t skew);
/* Asserts that nothing was written outside the n bytes, and frees them. */
void buffer_free(struct buffer *b);

/* ---------------------------------------------------------------------------------- plain files */

/* Makes a file of n bytes of the pattern `seed` without sluice, and puts it on storage. */
void file_make(const char *path, size_t n, uint64_t seed);
void file_write(const char *path, const void *src, size_t n, uint64_t offset);
/* Reads without sluice; asserts that all n bytes are there. */
void file_read(const char *path, void *dst, size_t n, uint64_t offset);
void assert_file_is(const char *path, const void *expected, size_t n);
uint64_t file_length(const char *path);
void file_truncate(const char *path, uint64_t length);

enum residency { COLD, CACHED, HALF_CACHED, RESIDENCIES };
/* Brings the file's pages into that state, as far as the file system follows. */
void file_set_residency(const char *path, enum residency r);
/* Files in a directory, "." and ".." not counted. */
size_t directory_entries(const char *dir);

/* -------------------------------------------------------------------------------------- process */

/* Less those that the driver of a GPU has for its devices. */
size_t count_descriptors(void);
/* Threads of this process, less those that the kernel made for io_uring and the driver of a GPU. */
size_t count_threads(void);
/* Those whose name begins so, "iou-" for the kernel's; NULL: as above. */
size_t count_threads_named(const char *prefix);
/* What the process has of both, by name. */
void print_belongings(void);
/* Processor time of threads that the driver of a GPU made. */
double driver_seconds(void);
size_t resident_bytes(void);
double seconds_now(void);
double cpu_seconds(void);
void sleep_ms(int ms);
/* Whether the program was built for a sanitizer: limits on memory and time do not hold then. */
bool under_sanitizer(void);
/* In a child of a fork that ends by exit(): no search for leaks, because it has memory of threads that it lacks. */
void forget_leaks(void);
/* Whether everything is to be tested, however long it takes: `make stress`. */
bool under_stress(void);
/* How many of the rounds of a random test, each as good as the others: a third if not under stress. */
int rounds_of(int whole);
/* Waits until fd is readable; false after timeout_ms. */
bool readable(int fd, int timeout_ms);

/* ---------------------------------------------------------------------------------------- calls */

#define assert_ok(call)                                                                           \
	do {                                                                                      \
		int rc_ = (call);                                                                 \
		if (rc_ < 0)                                                                      \
			fail_msg("%s: %s: \"%s\"", #call, strerror(-rc_), sluice_last_message()); \
	} while (0)

/* The call answers -error, with a sentence that has `says` in it. */
#define assert_refused(call, error, says)                                                      \
	do {                                                                                   \
		int rc_ = (call);                                                              \
		if (rc_ != -(error))                                                           \
			fail_msg("%s: %d (%s), not -%s; \"%s\"", #call, rc_,                   \
			         strerror(rc_ < 0 ? -rc_ : 0), #error, sluice_last_message()); \
		if (!strstr(sluice_last_message(), says))                                      \
			fail_msg("%s: \"%s\" does not mention \"%s\"", #call,                  \
			         sluice_last_message(), says);                                 \
		if (!*sluice_last_message())                                                   \
			fail_msg("%s: no sentence behind -%s", #call, #error);                 \
	} while (0)

/* Waits for the operation and frees it; it must have moved n bytes. */
#define assert_moves(op, n) finish_moving(op, n, __FILE__, __LINE__)
/* Waits for the operation and frees it; it must have ended with -error and a sentence. */
#define assert_fails(op, error) finish_failing(op, error, __FILE__, __LINE__)
void finish_moving(sluice_op *op, uint64_t n, const char *file, int line);
void finish_failing(sluice_op *op, int error, const char *file, int line);
/* Waits for the operation and frees it; its result is not judged. */
int64_t finish(sluice_op *op);

sluice_file *open_read(sluice_context *ctx, const char *path);
/* Reading and writing, made if there is none. */
sluice_file *open_both(sluice_context *ctx, const char *path);
int open_flags(sluice_context *ctx, const char *path, unsigned flags, sluice_file **out);
sluice_op *start_read(sluice_file *file, void *dst, size_t n, uint64_t offset);
sluice_op *start_write(sluice_file *file, const void *src, size_t n, uint64_t offset);
/* The one or the other. */
sluice_op *start_move(sluice_file *file, bool write, void *data, size_t n, uint64_t offset);
/* Start and finish in one; the result of the operation. */
int64_t read_now(sluice_file *file, void *dst, size_t n, uint64_t offset);
int64_t write_now(sluice_file *file, const void *src, size_t n, uint64_t offset);
/* A file, and an operation on it, of which only the end matters: writing in rows of local files,
 * else reading. Of two that run at once no bytes may be the same. */
sluice_file *open_any(struct fixture *f, const char *name);
sluice_op *start_any(sluice_file *file, size_t n, uint64_t offset);
#define assert_read(file, dst, n, offset)  assert_int_equal(read_now(file, dst, n, offset), n)
#define assert_write(file, src, n, offset) assert_int_equal(write_now(file, src, n, offset), n)

/* sluice_submit() of a read or a write of extents, awaited on the host or in the order of a stream. */
int submit_read(sluice_file *file, const struct sluice_extent *v, size_t count, sluice_op **out);
int submit_write(sluice_file *file, const struct sluice_extent *v, size_t count, sluice_op **out);
int submit_read_on(sluice_file *file, const struct sluice_extent *v, size_t count,
                   sluice_stream stream, sluice_op **out);
int submit_write_on(sluice_file *file, const struct sluice_extent *v, size_t count,
                    sluice_stream stream, sluice_op **out);

#endif
