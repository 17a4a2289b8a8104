/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel tells of the devices on the PCI bus. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/device.h"

#define BUS "/sys/bus/pci/devices"

static bool read_attribute(const char *address, const char *name, char text[32])
{
	char path[320];
	FILE *in;
	bool found;

	snprintf(path, sizeof(path), BUS "/%s/%s", address, name);
	in = fopen(path, "re");
	found = in && fgets(text, 32, in);
	if (in)
		fclose(in);
	return found;
}

int sl_pci_node(const char *address)
{
	char text[32];

	return read_attribute(address, "numa_node", text) ? (int)strtol(text, NULL, 10) : -1;
}

bool sl_pci_shares_memory(const char *address)
{
	char path[320];

	snprintf(path, sizeof(path), BUS "/%s/p2pmem", address);
	return !access(path, F_OK);
}

static bool is_display(const char *address, unsigned vendor)
{
	char text[32];

	return read_attribute(address, "vendor", text) && strtoul(text, NULL, 16) == vendor &&
	       read_attribute(address, "class", text) && strtoul(text, NULL, 16) >> 16 == 0x03;
}

bool sl_pci_display(unsigned vendor, unsigned index, char address[32])
{
	struct dirent **entries;
	int count = scandir(BUS, &entries, NULL, alphasort);
	bool found = false;

	for (int i = 0; i < count; i++) {
		if (!found && is_display(entries[i]->d_name, vendor) && !index--) {
			snprintf(address, 32, "%.31s", entries[i]->d_name);
			found = true;
		}
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
	return found;
}

bool sl_pci_has_display(unsigned vendor)
{
	char address[32];

	return sl_pci_display(vendor, 0, address);
}
