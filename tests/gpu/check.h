/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is checked on a real device with nothing but sluice and the driver. Each check is a process of its
 * own, so that one that hangs, or that breaks the driver, leaves the others alone.
 */
#ifndef TESTS_GPU_CHECK_H
#define TESTS_GPU_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/gpu.h"
#include "lib/gpu_cuda.h"
#include "lib/pattern.h"

#define MIB ((size_t)1 << 20)
/* The status of a check that cannot be made. */
enum { SKIPPED = 77 };

struct check {
	const char *name, *sentence;
	bool (*run)(void);
	unsigned seconds; /* that it may take */
	bool bare;        /* it begins without the device, and without a context */
};
/* Each table ends with a row without a name, and the list of the program's tables with NULL. */
extern const struct check *const check_tables[];
extern const struct check bytes_checks[], stream_checks[], pointer_checks[], sharing_checks[],
	exit_checks[];
extern const struct check store_checks[], store_memory_checks[], store_order_checks[];

/* The process is a check's. */
extern sluice_context *ctx;
extern bool small;
/* A file of so many bytes of the pattern `seed`, which is another one in each run. */
extern size_t file_bytes;
extern uint64_t seed;
extern const char *const file_path;

/* Ends the check as failed and says why; as skipped. */
__attribute__((format(printf, 1, 2))) _Noreturn void broken(const char *format, ...);
__attribute__((format(printf, 1, 2))) _Noreturn void skip(const char *format, ...);
#define MUST(call)                                                      \
	do {                                                            \
		if ((call) < 0)                                         \
			broken("%s: %s", #call, sluice_last_message()); \
	} while (0)
#define GPU(call)                                               \
	do {                                                    \
		if (call)                                       \
			broken("%s: %s", #call, gpu_message()); \
	} while (0)
/* A call of the driver itself; the check is skipped where it has no such function. */
#define DRIVER(function, ...)                                                     \
	do {                                                                      \
		CUresult rc_;                                                     \
		if (!gpu_driver.function)                                         \
			skip("this driver has no %s", #function);                 \
		rc_ = gpu_driver.function(__VA_ARGS__);                           \
		if (rc_)                                                          \
			broken("%s: %d %s", #function, rc_, gpu_error_name(rc_)); \
	} while (0)
/* Starts this program once more, with the device, to play() that. If that begins with "user_" the process belongs to
 * OTHER_USER and to the group of that number, and with "namespaces_" it has namespaces of its own: both need root. */
enum { OTHER_USER = 65534 };
pid_t start_self(const char *how);
/* The status of the process, or -1: it had to be killed. */
int wait_for(pid_t pid, unsigned seconds);
int run_self(const char *how, unsigned seconds); /* both */
/* Each program's own; main()'s status. */
int play(const char *how);
int share_end(const char *how);
/* For checks that speak with the driver. */
void need_cuda(void);

sluice_file *open_in(void);
/* A new file, to be written and read. */
sluice_file *open_out(void);
sluice_stream new_stream(int which);
void *new_memory(int which, size_t n);
void *new_pinned(int which, size_t n);
/* Waits for it; whether it moved n bytes, and if not, says what it says. */
bool moved(sluice_op *op, size_t n);
/* In stream order; whether the bytes are right is in *wrong once the stream has passed. */
void look_on(int which, sluice_stream stream, struct gpu_match *match, const void *memory, size_t n,
             uint64_t offset);
void look_for(int which, sluice_stream stream, struct gpu_match *match, const void *memory,
              size_t n, uint64_t offset, uint64_t of_seed);
/* Synchronises, and then whether match found nothing wrong. */
bool right(int which, sluice_stream stream, const struct gpu_match *match, const char *what);

#endif
