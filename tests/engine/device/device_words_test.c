/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of devices and their drivers, and how they are called. */
#include <dirent.h>

#include "device/device_common.h"

TEST(devices_are_described_and_found_by_name)
{
	struct sluice_device device = {.size = sizeof(device)};
	int number = -7;

	assert_int_equal(sluice_device_describe(0, &device), 0);
	assert_string_equal(device.name, "emulated:0");
	assert_string_equal(sl_device_place(sl_device_find(0)), "emulated:0");
	assert_int_equal(device.memory_bytes, UINT64_C(16) << 30);
	assert_int_equal(device.stream_order, 1);
	assert_int_equal(sluice_device_find("emulated:1", &number), 0);
	assert_int_equal(number, 1);
	assert_int_equal(sluice_device_find("emulated", &number), 0);
	assert_int_equal(number, 0);
	assert_int_equal(sluice_device_find("emulated:2", &number), -ENODEV);
	assert_int_equal(sluice_device_find("emulate", &number), -ENODEV);
	assert_int_equal(sluice_device_find("emulated:00", &number), -ENODEV);
	assert_int_equal(sluice_device_find("emulated:", &number), -EINVAL);
	assert_int_equal(sluice_device_find("emulated:x", &number), -EINVAL);
	assert_int_equal(sluice_device_find("emulated:-1", &number), -EINVAL);
	assert_int_equal(sluice_device_find("device: 0", &number), -EINVAL);
	assert_int_equal(sluice_device_find("dev", &number), -ENODEV);
	assert_int_equal(sluice_device_find("", &number), -EINVAL);
	assert_int_equal(sluice_device_find(NULL, &number), -EINVAL);
	assert_int_equal(number, 0);
	assert_int_equal(sluice_device_describe(2, &device), -ENOENT);
	assert_int_equal(sluice_device_describe(-1, &device), -ENOENT);
	device.size = 0;
	assert_int_equal(sluice_device_describe(0, &device), -EINVAL);
}

/* Where there is hardware, it is counted; elsewhere it is said what is missing. */
TEST(a_real_device_is_found_by_its_place_among_them)
{
	struct sluice_device device = {.size = sizeof(device)};
	char name[32];
	int number, real = 0;

	for (int i = 0; !sluice_device_describe(i, &device); i++) {
		if (!device.real)
			continue;
		snprintf(name, sizeof(name), "device:%d", real++);
		assert_int_equal(sluice_device_find(name, &number), 0);
		assert_int_equal(number, i);
	}
	snprintf(name, sizeof(name), "device:%d", real);
	assert_int_equal(sluice_device_find(name, &number), -ENODEV);
	assert_int_equal(sluice_device_find("device", &number), real ? 0 : -ENODEV);
	if (!real)
		assert_non_null(strstr(sluice_last_message(), "there is no device: "));
}

/* Of the emulated devices, which are on no bus and need no driver. */
TEST(device_info_can_grow)
{
	struct {
		struct sluice_device device;
		char behind[64];
	} larger;
	struct sluice_device device;
	size_t before = offsetof(struct sluice_device, stream_order_detail);

	memset(&device, 0x55, sizeof(device));
	device.size = sizeof(device);
	assert_int_equal(sluice_device_describe(0, &device), 0);
	assert_non_null(device.stream_order_detail);
	assert_null(device.driver);
	assert_null(device.pci);
	assert_int_equal(device.numa_node, -1);
	assert_int_equal(device.real, 0);

	memset(&device, 0x55, sizeof(device));
	device.size = before;
	assert_int_equal(sluice_device_describe(0, &device), 0);
	assert_string_equal(device.name, "emulated:0");
	assert_int_equal(device.size, before);
	assert_int_equal(device.real, 0x55555555);

	memset(&larger, 0x55, sizeof(larger));
	larger.device.size = sizeof(larger);
	assert_int_equal(sluice_device_describe(0, &larger.device), 0);
	assert_int_equal(larger.device.numa_node, -1);
	assert_int_equal(larger.behind[0], 0x55);
}

/* The kind whose driver is missing is told of, too. */
TEST(drivers_are_described)
{
	struct sluice_feature feature = {.size = sizeof(feature)};
	int count = 0, number;

	for (; !sluice_device_feature(count, &feature); count++) {
		assert_true(*feature.name && *feature.detail && *feature.effect);
		assert_int_equal(feature.size, sizeof(feature));
	}
	assert_true(count >= 1);
	assert_int_equal(sluice_device_feature(count, &feature), -ENOENT);
	assert_int_equal(sluice_device_feature(-1, &feature), -ENOENT);
	assert_int_equal(sluice_device_feature(0, NULL), -EINVAL);
	assert_int_equal(sluice_device_feature(0, &feature), 0);
	assert_string_equal(feature.name, "CUDA driver");
	assert_int_equal(feature.usable, sluice_device_find("cuda", &number) == 0);
	feature.size = 0;
	assert_int_equal(sluice_device_feature(0, &feature), -EINVAL);
}

/* Against what the shell would read. */
TEST(the_kernel_tells_of_the_bus)
{
	DIR *bus = opendir("/sys/bus/pci/devices");
	struct dirent *entry;
	char path[320];
	int node;

	assert_int_equal(sl_pci_node("ffff:ff:1f.7"), -1);
	assert_false(sl_pci_shares_memory("ffff:ff:1f.7"));
	assert_false(sl_pci_has_display(0xfffe));
	while (bus && (entry = readdir(bus))) {
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", entry->d_name);
		FILE *in = fopen(path, "re");
		if (!in)
			continue;
		assert_int_equal(fscanf(in, "%d", &node), 1);
		assert_int_equal(sl_pci_node(entry->d_name), node);
		fclose(in);
	}
	if (bus)
		closedir(bus);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
