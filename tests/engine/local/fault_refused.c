/* SPDX-License-Identifier: Apache-2.0 */
/* The process may not make some system calls, from its beginning or from some moment on. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "local/fault.h"

#define LENGTH  (8 * MIB)
#define SKIPPED 77

/* A filter cannot be taken off again: what is below runs in a child, which tells by its exit status. */
#define CHECK(x)                                                                    \
	do {                                                                        \
		if (!(x)) {                                                         \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #x, \
			        sluice_last_message());                             \
			_exit(1);                                                   \
		}                                                                   \
	} while (0)

static void in_child(struct fixture *f, void (*run)(struct fixture *f))
{
	pid_t child;
	int status;

	assert_ok(sluice_context_close(f->ctx));
	f->ctx = NULL;
	child = fork();
	if (!child) {
		alarm(60);
		run(f);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		SKIP("not allowed here");
	assert_int_equal(status, 0);
}

/* In all threads. */
static void deny(int call, int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {COUNT_OF(filter), filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
		_exit(SKIPPED);
}

static unsigned char *filled(uint64_t seed)
{
	unsigned char *bytes = aligned_alloc(4096, LENGTH);

	CHECK(bytes);
	pattern_fill(bytes, LENGTH, 0, seed);
	return bytes;
}

static void move(sluice_file *file, bool write, unsigned char *bytes, size_t n)
{
	sluice_op *op;

	if (write)
		CHECK(!sluice_write(file, bytes, n, 0, &op));
	else
		CHECK(!sluice_read(file, bytes, n, 0, &op));
	CHECK(sluice_wait(op, PATIENCE_MS) == (int64_t)n);
	sluice_op_free(op);
}

/* All ways that there are: cold and resident, small and large, both directions. */
static void use(sluice_context *ctx, struct fixture *f)
{
	const char *path = scratch(f, "used");
	unsigned char *bytes = filled(7), *back = filled(1);
	sluice_op *op;
	sluice_file *file;

	CHECK(!open_flags(ctx, path, SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE,
	                  &file));
	move(file, true, bytes, LENGTH);
	move(file, true, bytes, 4096);
	file_set_residency(path, COLD);
	move(file, false, back, LENGTH);
	CHECK(pattern_match(back, LENGTH, 0, 7) == LENGTH);
	move(file, false, back, LENGTH);
	file_set_residency(path, COLD);
	CHECK(!sluice_read(file, back, LENGTH, 0, &op));
	sluice_cancel(op);
	CHECK(sluice_wait(op, PATIENCE_MS) != -EINPROGRESS);
	sluice_op_free(op);
	CHECK(!sluice_close(file));
	free(bytes);
	free(back);
}

static bool uses_uring(sluice_context *ctx)
{
	struct sluice_feature feature = {.size = sizeof(feature)};

	CHECK(!sluice_context_feature(ctx, 0, &feature));
	CHECK(!strcmp(feature.name, "io_uring"));
	return feature.usable;
}

static void without_from_the_start(struct fixture *f)
{
	struct sluice_config c = row_config();
	struct sluice_feature feature = {.size = sizeof(feature)};
	sluice_context *ctx;

	deny(SYS_io_uring_enter, EPERM);
	c.backend = "uring";
	if (row_has_uring()) {
		CHECK(sluice_context_new(&c, &ctx) == -ENOSYS);
		CHECK(strstr(sluice_last_message(), strerror(EPERM)));
	}
	c.backend = row_has_uring() ? "auto" : row->config.backend;
	CHECK(!sluice_context_new(&c, &ctx));
	CHECK(!uses_uring(ctx));
	CHECK(!sluice_context_feature(ctx, 0, &feature));
	CHECK(!row_has_uring() || strstr(feature.detail, strerror(EPERM)));
	use(ctx, f);
	CHECK(!sluice_context_close(ctx));
}

FAULT_TEST(io_uring_enter_may_be_refused_from_the_start)
{
	in_child(f, without_from_the_start);
}

static void without_later(struct fixture *f)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	sluice_context *ctx;
	sluice_file *file;

	CHECK(!sluice_context_new(&row->config, &ctx));
	use(ctx, f);
	deny(SYS_io_uring_enter, EPERM);
	use(ctx, f);
	CHECK(!uses_uring(ctx));
	options.flags = SLUICE_OPEN_READ;
	options.backend = "uring";
	CHECK(sluice_open(ctx, scratch(f, "used"), &options, &file) == -ENOSYS);
	CHECK(!sluice_context_close(ctx));
}

FAULT_TEST(io_uring_enter_may_be_refused_later)
{
	in_child(f, without_later);
}

static void without_in_the_middle(struct fixture *f, bool write)
{
	struct sluice_config c = row_config();
	const char *path = scratch(f, "middle");
	unsigned char *bytes = filled(2);
	sluice_context *ctx;
	sluice_file *file;
	sluice_op *op;

	config_tune(&c, "reactors", 1);
	config_tune(&c, "piece_bytes", 256 * KIB);
	file_make(path, LENGTH, write ? 1 : 2);
	file_set_residency(path, COLD);
	CHECK(!sluice_context_new(&c, &ctx));
	CHECK(!open_flags(ctx, path, SLUICE_OPEN_READ | SLUICE_OPEN_WRITE, &file));
	if (!write)
		memset(bytes, 0, LENGTH);
	/* One result is held; what else the kernel has taken it ends meanwhile, and nobody hears of it. */
	gate_close(NULL);
	if (write)
		CHECK(!sluice_write(file, bytes, LENGTH, 0, &op));
	else
		CHECK(!sluice_read(file, bytes, LENGTH, 0, &op));
	CHECK(gate_holds(1));
	deny(SYS_io_uring_enter, EPERM);
	gate_open();
	CHECK(sluice_wait(op, PATIENCE_MS) == LENGTH);
	sluice_op_free(op);
	CHECK(!sluice_close(file));
	if (write)
		file_read(path, bytes, LENGTH, 0);
	CHECK(pattern_match(bytes, LENGTH, 0, 2) == LENGTH);
	/* The operation is over: nothing touches its memory. */
	memset(bytes, 0x55, LENGTH);
	sleep_ms(100);
	for (size_t i = 0; i < LENGTH; i++)
		CHECK(bytes[i] == 0x55);
	free(bytes);
	CHECK(!sluice_context_close(ctx));
}

static void without_in_a_read(struct fixture *f)
{
	without_in_the_middle(f, false);
}

static void without_in_a_write(struct fixture *f)
{
	without_in_the_middle(f, true);
}

FAULT_TEST(io_uring_enter_may_be_refused_in_the_middle_of_a_read)
{
	in_child(f, without_in_a_read);
}

FAULT_TEST(io_uring_enter_may_be_refused_in_the_middle_of_a_write)
{
	in_child(f, without_in_a_write);
}

static void without_fallocate(struct fixture *f, int error)
{
	sluice_context *ctx;

	CHECK(!sluice_context_new(&row->config, &ctx));
	deny(SYS_fallocate, error);
	use(ctx, f);
	CHECK(!sluice_context_close(ctx));
}

static void fallocate_is_unknown(struct fixture *f)
{
	without_fallocate(f, ENOSYS);
}

static void fallocate_is_forbidden(struct fixture *f)
{
	without_fallocate(f, EPERM);
}

FAULT_TEST(a_write_needs_no_reservation)
{
	in_child(f, fallocate_is_unknown);
}

FAULT_TEST(a_write_needs_no_permission_to_reserve)
{
	in_child(f, fallocate_is_forbidden);
}

/* With what a program has open from before, as one that gives its rights away. */
static void in_a_jail(struct fixture *f)
{
	struct sluice_file_info st = {.size = sizeof(st)};
	bool direct = scratch_takes_direct(f);
	struct sluice_feature feature[2] = {{.size = sizeof(*feature)}, {.size = sizeof(*feature)}};
	sluice_context *ctx;
	sluice_file *file;

	CHECK(!sluice_context_new(&row->config, &ctx));
	CHECK(!sluice_context_feature(ctx, 4, &feature[0]));
	CHECK(!sluice_context_close(ctx));
	if (chdir(f->dir) || chroot("."))
		_exit(SKIPPED);
	CHECK(access("/proc", F_OK));
	CHECK(!sluice_context_new(&row->config, &ctx));
	CHECK(!sluice_context_feature(ctx, 4, &feature[1]));
	CHECK(!strcmp(feature[1].name, "STATX_DIOALIGN"));
	CHECK(feature[1].usable == feature[0].usable);
	CHECK(!open_flags(ctx, "/jailed", SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE, &file));
	CHECK(!sluice_stat(file, &st));
	CHECK(!direct || st.direct_offset);
	CHECK(!sluice_close(file));
	CHECK(!sluice_context_close(ctx));
}

FAULT_TEST(direct_io_needs_no_proc)
{
	in_child(f, in_a_jail);
}
