/* SPDX-License-Identifier: Apache-2.0 */
/* What a large blob costs who makes it, and getting one again. */
#include "store_bench.h"

#include <err.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------------- put */

struct put {
	double create, fill, seal;
};

static struct put put(sluice_store *store, const char *from, unsigned flags, bool by_parts)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	int64_t begun = now_ns(), created, filled, sealed;
	sluice_blob *blob;

	o.flags = flags;
	must(sluice_blob_create(store, "a blob", options.bytes, -1, &o, &blob), "create");
	created = now_ns();
	copy_by(options.threads, sluice_blob_mutable_data(blob), from, options.bytes,
	        by_parts ? blob : NULL);
	filled = now_ns();
	must(sluice_blob_seal(blob), "seal");
	sealed = now_ns();
	sluice_blob_release(blob);
	must(sluice_blob_delete(store, "a blob"), "delete");
	return (struct put){(double)(created - begun), (double)(filled - created),
	                    (double)(sealed - filled)};
}

/*
 * By the state of the memory: way=warm: it was used before. Else nobody has touched it, as the daemon is new, and
 * there is one put: made ready by create (way=first), not at all (way=cold), by each thread before it writes
 * (way=parts).
 */
void run_put(void)
{
	bool is_warm = !strcmp(options.way, "warm"), by_parts = !strcmp(options.way, "parts");
	unsigned flags = is_warm || !strcmp(options.way, "first") ? 0 : SLUICE_BLOB_COLD;
	double times[256], create[256];
	char *from = warm_memory(options.bytes);
	sluice_store *store = store_open();
	int64_t cpu;

	if (options.count > 256 || (!is_warm && options.count != 1))
		errx(2, "count=%u", options.count);
	if (is_warm)
		put(store, from, 0, false);
	cpu = cpu_ns();
	for (unsigned i = 0; i < options.count; i++) {
		struct put p = put(store, from, flags, by_parts);

		times[i] = p.create + p.fill + p.seal;
		create[i] = p.create;
	}
	cpu = (cpu_ns() - cpu) / options.count;
	sluice_store_close(store);
	printf("{\"seconds\": %.9f, \"cpu_seconds\": %.9f, \"create\": %.9f}\n",
	       median(times, options.count) / 1e9, (double)cpu / 1e9,
	       median(create, options.count) / 1e9);
}

/* --------------------------------------------------------------------------------------- copy */

void run_copy(void)
{
	char *from = warm_memory(options.bytes), *to = warm_memory(options.bytes);
	double times[256];
	int64_t cpu = cpu_ns();

	if (options.count > 256)
		errx(2, "count=%u", options.count);
	for (unsigned i = 0; i < options.count; i++) {
		int64_t begun = now_ns();

		copy_by(options.threads, to, from, options.bytes, NULL);
		times[i] = (double)(now_ns() - begun);
	}
	cpu = (cpu_ns() - cpu) / options.count;
	printf("{\"seconds\": %.9f, \"cpu_seconds\": %.9f}\n", median(times, options.count) / 1e9,
	       (double)cpu / 1e9);
}

/* ---------------------------------------------------------------------------------------- get */

/* From here on the kernel ends this process at any system call but those of its end. */
static void forbid_system_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		err(3, "seccomp");
}

static void get_one(sluice_store *store, const char *name)
{
	sluice_blob *blob;

	must(sluice_blob_get(store, name, 0, &blob), "get");
	if (*(const char *)sluice_blob_data(blob) != 1)
		errx(1, "it is not what was put there");
	sluice_blob_release(blob);
}

/* way=strict: under that filter; the store is not closed then. */
void run_get(void)
{
	char(*names)[32] = calloc(options.blobs, sizeof(*names)), text[80];
	sluice_store *store = store_open();
	int64_t begun;
	int length;

	if (!names)
		errx(1, "no memory");
	for (unsigned i = 0; i < options.blobs; i++) {
		sluice_blob *blob;

		snprintf(names[i], sizeof(names[i]), "blob %u", i);
		must(sluice_blob_create(store, names[i], options.bytes, -1, NULL, &blob), "create");
		memset(sluice_blob_mutable_data(blob), 1, options.bytes);
		must(sluice_blob_seal(blob), "seal");
		sluice_blob_release(blob);
		get_one(store, names[i]);
	}
	if (!strcmp(options.way, "strict"))
		forbid_system_calls();
	begun = now_ns();
	for (unsigned i = 0; i < options.count; i++)
		get_one(store, names[i % options.blobs]);
	length = snprintf(text, sizeof(text), "{\"nanoseconds\": %.1f}\n",
	                  (double)(now_ns() - begun) / options.count);
	if (write(1, text, (size_t)length) != length)
		_exit(1);
	_exit(0);
}
