/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon for tests of the store, with a socket in the scratch directory; and its two processes. */
#ifndef TESTS_STORE_DAEMON_H
#define TESTS_STORE_DAEMON_H

#include <sys/types.h>

#include "lib/support.h"
#include "sluice/store.h"

struct daemon {
	char path[100];   /* of its socket */
	pid_t supervisor; /* as it was started */
	sluice_store *store;
};

/*
 * Where put() and its like make blobs: the device that SLUICE_TEST_PLACE names, as in "emulated:1"; without it -1, the
 * host. So the same tests are for both.
 */
int place(void);
#define ON_DEVICE (place() >= 0)
/* Sets it to the device of that number of SLUICE_TEST_DEVICE; ends the program as skipped if there is none. */
void place_on(int device);

/* What the daemon is started with besides its socket; the last is NULL. For daemon_setup(). Its --memory goes for
 * that device, too. */
extern const char *const *daemon_options;
/* How many open files it may have then, at most; 0: as many as this process. */
extern unsigned daemon_files;
/* Whose it is then; 0: our own user's. */
extern unsigned daemon_user;
/* A user that no other test has at the same time, because the kernel counts the descriptors on their way by user. */
unsigned user_apart(void);
/* Starts one and connects. */
int daemon_setup(void **state);
/* Stops it as SIGTERM does, and asserts that it ends cleanly; everything is to be released. */
int daemon_teardown(void **state);
/* Their bodies have the daemon as d. */
#define DAEMON_TEST_WITH(name, setup, teardown) \
	TEST_OF(struct daemon *d, name, setup, teardown, NULL)
#define DAEMON_TEST(name) DAEMON_TEST_WITH(name, daemon_setup, daemon_teardown)

void daemon_start(struct daemon *d, const char *const *options);
void daemon_stop(struct daemon *d);
/* Another daemon at the same path, which knows nothing of what the one before had. */
void daemon_renew(struct daemon *d);
/* The process of the server, or of the supervisor, by its name; waits until there is one that is not `before`. */
pid_t daemon_server(const struct daemon *d, pid_t before);
/* Kills the server and waits for the next one. */
void daemon_replace_server(const struct daemon *d);
/* The same for the supervisor; then the test ends with daemon_end(). */
void daemon_replace_supervisor(const struct daemon *d);
pid_t daemon_supervisor(const struct daemon *d, pid_t before);
/* Ends a supervisor that is not our child, frees d, and closes its store. */
void daemon_end(struct daemon *d, pid_t supervisor);
/* Any of its processes. */
pid_t daemon_process(const struct daemon *d, const char *name, pid_t before);
/* Connects, as often as that takes. */
sluice_store *daemon_connect(const struct daemon *d);

/* A name; good for seven calls more of the thread. */
const char *named(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Blobs of a pattern that the name and the size give; put() and try_put() make them at place(). */
uint64_t seed_of(const char *name, size_t n);
int create_on(sluice_store *store, const char *name, size_t n, int device, unsigned flags,
              sluice_blob **out);
sluice_blob *put_on(sluice_store *store, const char *name, size_t n, int device, unsigned flags);
sluice_blob *put(sluice_store *store, const char *name, size_t n, unsigned flags);
int try_put(sluice_store *store, const char *name, size_t n, unsigned flags, sluice_blob **out);
sluice_blob *got(sluice_store *store, const char *name);
/* Asserts that the blob is what put() makes. */
void assert_blob(sluice_blob *blob, const char *name, size_t n);
/* Gets the blob of that name, and asserts the same. */
#define assert_there(store, name, n)                   \
	do {                                           \
		sluice_blob *blob_ = got(store, name); \
		assert_blob(blob_, name, n);           \
		assert_ok(sluice_blob_release(blob_)); \
	} while (0)
/* Releases the blob and deletes it. */
#define assert_let_go(blob, store, name)                    \
	do {                                                \
		assert_ok(sluice_blob_release(blob));       \
		assert_ok(sluice_blob_delete(store, name)); \
	} while (0)
/* Whether it is that. Any thread. */
bool blob_is(const sluice_blob *blob, const char *name, size_t n);
/* n bytes of a blob that is not sealed are that; the byte of one that is. */
void set_bytes(sluice_blob *blob, int byte, size_t n);
int byte_at(const sluice_blob *blob, size_t offset);
/* Of the store's account of a device, and of place(). */
struct sluice_store_device_info device_of(sluice_store *store, int device);
#define account_of(store) device_of(store, place())
/* Waits until the store has no more than that on the device, and all of what is gone has been unmapped. */
void assert_memory_is(sluice_store *store, int device, uint64_t most);
/* Waits until the server has no blob, no lease and no client but ours. */
void assert_idle(sluice_store *store);
/* The same, and so many clients more are allowed. */
void assert_idle_but(sluice_store *store, unsigned clients);
struct sluice_store_counts stats_of(sluice_store *store);

/*
 * Clients that are processes of their own: the program once more, because a child of fork() may not use the
 * library. child_run() comes first in main() and does not return in such a process, whose end is the result of
 * its role.
 */
struct child_role {
	const char *name;
	int (*run)(const struct daemon *d, const char *argument);
};
pid_t child_start(const char *role, const struct daemon *d, const char *argument);
void child_run(int argc, char **argv, const struct child_role *roles);
/* Memory that is the same in all of them; zeros at first. */
void *shared_memory(size_t bytes);
int child_status(pid_t pid);

/* Defines main() of a program whose daemons have that much memory; then the roles of its children. */
#define DAEMON_MAIN(memory, ...)                                                 \
	int main(int argc, char **argv)                                          \
	{                                                                        \
		static const char *const options[] = {"--memory", memory, NULL}; \
		static const struct child_role roles[4] = {__VA_ARGS__};         \
                                                                                 \
		child_run(argc, argv, roles);                                    \
		row_start(1, argv);                                              \
		daemon_options = options;                                        \
		return RUN_TESTS(NULL, NULL);                                    \
	}

#endif
