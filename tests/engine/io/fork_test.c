/* SPDX-License-Identifier: Apache-2.0 */
/* Handles after fork(), where pages that the kernel wipes in children are refused. The program is linked with --wrap=madvise. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/support.h"

static int refusal;

int __real_madvise(void *at, size_t n, int advice);
int __wrap_madvise(void *at, size_t n, int advice);
int __wrap_madvise(void *at, size_t n, int advice)
{
	if (advice != MADV_WIPEONFORK || !refusal)
		return __real_madvise(at, n, advice);
	errno = refusal;
	return -1;
}

#define CHECK(x)                                                                    \
	do {                                                                        \
		if (!(x)) {                                                         \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #x, \
			        sluice_last_message());                             \
			_exit(1);                                                   \
		}                                                                   \
	} while (0)

static bool ends_well(pid_t child)
{
	int status;

	return waitpid(child, &status, 0) == child && !status;
}

static void use(sluice_context *ctx, const char *path)
{
	char bytes[100] = "bytes", back[100];
	sluice_file *file;
	sluice_op *op;

	CHECK(!open_flags(ctx, path, SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE,
	                  &file));
	CHECK(!sluice_write(file, bytes, sizeof(bytes), 0, &op));
	CHECK(sluice_wait(op, PATIENCE_MS) == sizeof(bytes));
	sluice_op_free(op);
	CHECK(!sluice_read(file, back, sizeof(back), 0, &op));
	CHECK(sluice_wait(op, PATIENCE_MS) == sizeof(back));
	sluice_op_free(op);
	CHECK(!memcmp(bytes, back, sizeof(back)));
	CHECK(!sluice_close(file));
}

/* By fork(), and by a call that runs no handlers of fork(). */
static pid_t split(bool bare)
{
	return bare ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
}

/* A process with a context, its child with another one, and a child of that child. */
static void generations(const char *path, int depth, sluice_context **older)
{
	sluice_context *ctx, *none;
	pid_t child;

	CHECK(!sluice_context_new(NULL, &ctx));
	use(ctx, path);
	older[depth] = ctx;
	for (int bare = 0; depth < 2 && bare < 2; bare++) {
		child = split(bare);
		if (!child) {
			for (int i = 0; i <= depth; i++) {
				CHECK(sluice_open(older[i], path, NULL, (sluice_file **)&none) ==
				      -ECHILD);
				CHECK(strstr(sluice_last_message(), "forked"));
				CHECK(sluice_context_close(older[i]) == -ECHILD);
			}
			generations(path, depth + 1, older);
			/* Whose number is newer than that of the parent's handles. */
			CHECK(sluice_context_close(older[0]) == -ECHILD);
			_exit(0);
		}
		CHECK(ends_well(child));
		use(ctx, path);
	}
	CHECK(!sluice_context_close(ctx));
}

static void check_refused(int error)
{
	static const char name[] = "/sluice-fork.XXXXXX";
	const char *folder = getenv("SLUICE_TEST_DIR");
	sluice_context *older[3];
	char path[300];
	pid_t child;
	int fd;

	snprintf(path, sizeof(path), "%s%s", folder ? folder : "/tmp", name);
	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	refusal = error;
	/* The page is made once in a process. */
	child = fork();
	if (!child) {
		alarm(60);
		generations(path, 0, older);
		_exit(0);
	}
	assert_true(ends_well(child));
	unlink(path);
}

TEST(children_are_told_from_their_parents)
{
	check_refused(0);
}

TEST(children_are_told_where_the_kernel_wipes_no_pages)
{
	check_refused(EINVAL);
	check_refused(EPERM);
	check_refused(ENOSYS);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
