/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice doctor: the machine
 *
 * Findings that do not depend on the library: kernel, cores, memory, limits.
 *
 * Threads: the main thread.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli.h"

__attribute__((format(printf, 2, 3))) static void make_finding(struct cli_finding *f,
                                                               const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(f->detail, sizeof(f->detail), format, args);
	va_end(args);
}

static void describe_kernel(struct cli_finding *f)
{
	struct utsname u;

	f->feature.usable = uname(&u) == 0;
	if (f->feature.usable)
		make_finding(f, "%s %s, %s", u.sysname, u.release, u.machine);
}

int cli_cores_of_node(int node)
{
	size_t bytes;
	cpu_set_t *set = sl_machine_cores("", node, &bytes);
	int count = set ? CPU_COUNT_S(bytes, set) : -1;

	CPU_FREE(set);
	return count;
}

static void describe_cores(struct cli_finding *f)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN), own = cli_cores_of_node(-1);
	unsigned cores = (unsigned)(own > 0 ? own : online), quota = sl_machine_quota("");
	unsigned usable = SL_MIN(cores, quota);

	make_finding(f, "%u for this process%s, %ld online", usable,
	             quota < cores ? " by its cgroup's quota" : "", online);
	if (usable < online) {
		f->feature.effect = "sluice starts threads for those of this process";
		f->feature.remedy = "more cores by taskset, the cgroup or the job scheduler";
	}
}

static uint64_t meminfo(const char *key)
{
	char line[128];
	uint64_t kib = 0;
	FILE *in = fopen("/proc/meminfo", "re");

	while (in && fgets(line, sizeof(line), in))
		if (!strncmp(line, key, strlen(key)))
			kib = strtoull(line + strlen(key), NULL, 10);
	if (in)
		fclose(in);
	return kib << 10;
}

static void describe_memory(struct cli_finding *f)
{
	char total[CLI_TEXT], available[CLI_TEXT], limit[CLI_TEXT];
	uint64_t own = sl_machine_memory(""), all = meminfo("MemTotal:");

	cli_size_format(all, total);
	cli_size_format(meminfo("MemAvailable:"), available);
	make_finding(f, "%s, %s available", total, available);
	if (own >= all)
		return;
	make_finding(f, "%s, %s available; %s for the cgroup of this process", total, available,
	             cli_size_format(own, limit));
	f->feature.effect = "sluiced takes half of the cgroup's memory for blobs without --memory";
	f->feature.remedy = "more memory by the cgroup, the container or the job scheduler";
}

static void describe_numa(struct cli_finding *f)
{
	unsigned nodes = sl_machine_nodes("");

	if (nodes > 1) {
		make_finding(f, "%u nodes", nodes);
		f->feature.effect =
			"reads into a GPU use its node, all else is not bound to a node";
		f->feature.remedy = "numactl --cpunodebind and --membind, near the storage";
	} else {
		make_finding(f, nodes ? "1 node" : "not reported by this kernel");
	}
}

static void describe_readers(struct cli_finding *f)
{
	bool usable;
	CLI_OWNED char *text = sl_seats_describe(&usable);

	if (text)
		make_finding(f, "%s", text);
	f->feature.usable = usable;
	if (!usable) {
		f->feature.effect = "processes with reads into GPUs at once do not share the cores";
		f->feature.remedy = "remove it; or SLUICE_WORKERS, the cores by the processes";
	}
}

static const char *limit_text(rlim_t limit, bool bytes, char text[CLI_TEXT])
{
	if (limit == RLIM_INFINITY)
		return "unlimited";
	if (bytes)
		return cli_size_format(limit, text);
	snprintf(text, CLI_TEXT, "%" PRIu64, (uint64_t)limit);
	return text;
}

static void describe_memlock(struct cli_finding *f)
{
	struct rlimit limit;
	char text[CLI_TEXT];

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return;
	make_finding(f, "%s", limit_text(limit.rlim_cur, true, text));
	if (limit.rlim_cur >= 64 << 20)
		return;
	if (geteuid() == 0) {
		make_finding(f, "%s, which does not bind root", text);
		return;
	}
	f->feature.usable = 0;
	f->feature.effect = "little memory can be pinned for registered buffers and GPUs";
	f->feature.remedy = "'ulimit -l', memlock in /etc/security/limits.conf, or LimitMEMLOCK= "
			    "of the service";
}

static void describe_open_files(struct cli_finding *f)
{
	struct rlimit limit;
	char now[CLI_TEXT], most[CLI_TEXT];

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	make_finding(f, "%s, can be raised to %s", limit_text(limit.rlim_cur, false, now),
	             limit_text(limit.rlim_max, false, most));
	if (limit.rlim_cur < 1024) {
		f->feature.usable = 0;
		f->feature.effect = "sluice_open() and sluice_op_fd() fail with EMFILE early";
		f->feature.remedy = "'ulimit -n 4096'";
	}
}

bool cli_machine_finding(size_t index, struct cli_finding *out)
{
	static const struct {
		const char *name;
		void (*find)(struct cli_finding *);
	} findings[] = {
		{"kernel", describe_kernel},       {"cores", describe_cores},
		{"memory", describe_memory},       {"NUMA", describe_numa},
		{"memlock", describe_memlock},     {"open files", describe_open_files},
		{"GPU readers", describe_readers},
	};

	if (index >= sizeof(findings) / sizeof(*findings))
		return false;
	*out = (struct cli_finding){.detail = "not known"};
	out->feature = (struct sluice_feature){.name = findings[index].name, .usable = 1};
	out->feature.detail = out->detail;
	findings[index].find(out);
	return true;
}
