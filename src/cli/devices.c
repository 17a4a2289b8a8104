/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice doctor: devices
 *
 * Prints devices and their drivers.
 *
 * Threads: the main thread.
 */
#include <errno.h>
#include <inttypes.h>

#include "doctor.h"

/* Prints the place of a device, and whether this process may run near it. */
static void print_doctor_place(const struct sluice_device *d, int cores)
{
	if (!d->pci)
		return;
	printf("  %-16s at %s", "", d->pci);
	if (d->numa_node >= 0)
		printf(", NUMA node %d", d->numa_node);
	else
		fputs(cli_nodes() > 1 ? "; its NUMA node is not known" : "; there is one NUMA node",
		      stdout);
	if (cores > 0)
		printf(", of which this process has %d core%s", cores, cores == 1 ? "" : "s");
	else if (cores == 0)
		fputs(", of which this process has no core", stdout);
	putchar('\n');
}

static void print_doctor_facts_json(const struct sluice_device *d, int cores)
{
	printf(", \"real\": %s, \"memory_bytes\": %" PRIu64 ", \"free_bytes\": %" PRIu64
	       ", \"stream_order\": %s",
	       d->real ? "true" : "false", d->memory_bytes, d->free_bytes,
	       d->stream_order ? "true" : "false");
	cli_json_string(", \"stream_order_detail\": ", d->stream_order_detail);
	cli_json_string(", \"driver\": ", d->driver);
	cli_json_string(", \"pci\": ", d->pci);
	if (d->numa_node < 0)
		printf(", \"numa_node\": null");
	else
		printf(", \"numa_node\": %d", d->numa_node);
	if (cores < 0)
		printf(", \"cores_there\": null}");
	else
		printf(", \"cores_there\": %d}", cores);
}

static void print_doctor_facts(const struct sluice_device *d, int cores)
{
	char available[CLI_TEXT], total[CLI_TEXT];

	printf("  %-16s memory: %s of %s free\n", "", cli_size_format(d->free_bytes, available),
	       cli_size_format(d->memory_bytes, total));
	printf("  %-16s stream order: %s, %s\n", "", d->stream_order ? "yes" : "no",
	       d->stream_order_detail);
	print_doctor_place(d, cores);
}

static void print_doctor_device(bool json, const struct sluice_device *d, bool first)
{
	int cores = d->numa_node < 0 ? -1 : cli_cores_of_node(d->numa_node);
	char remedy[96];
	struct sluice_feature f = {.name = d->name, .usable = 1, .detail = d->detail};

	snprintf(remedy, sizeof remedy, "numactl --cpunodebind=%d --membind=%d", d->numa_node,
	         d->numa_node);
	if (json) {
		f.effect = cores == 0 ? "bytes go by way of another node" : NULL;
		f.remedy = cores == 0 ? remedy : NULL;
		cli_feature_begin(json, &f, first);
		print_doctor_facts_json(d, cores);
		return;
	}
	cli_feature_print(json, &f, first);
	print_doctor_facts(d, cores);
	if (cores == 0)
		printf("  %-16s remedy: %s\n", "", remedy);
}

static void print_doctor_lost(bool json, int number, bool first)
{
	char name[CLI_TEXT];
	struct sluice_feature f = {.name = name, .detail = sluice_last_message()};

	snprintf(name, sizeof name, "device %d", number);
	cli_feature_print(json, &f, first);
}

/* Prints hardware devices, or the others. Returns whether the next item is still the first. */
static bool print_devices(bool json, bool real, bool first)
{
	struct sluice_device d = {.size = sizeof d};
	int rc;

	for (int i = 0; (rc = sluice_device_describe(i, &d)) != -ENOENT; i++) {
		if (rc ? !real : d.real != real)
			continue;
		if (rc)
			print_doctor_lost(json, i, first);
		else
			print_doctor_device(json, &d, first);
		first = false;
	}
	return first;
}

void cli_devices_print(bool json)
{
	struct sluice_feature f = {.size = sizeof f};

	cli_heading_print(json, "GPU drivers", "drivers");
	for (int i = 0; sluice_device_feature(i, &f) == 0; i++)
		cli_feature_print(json, &f, i == 0);
	cli_list_end(json);
	cli_heading_print(json, "Devices", "devices");
	print_devices(json, false, print_devices(json, true, true));
	cli_list_end(json);
}
