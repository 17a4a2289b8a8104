/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A road that loses packets, for bench/http
 *
 * A TUN device whose packets are those of real TCP connections: each packet comes back LATENCY / 2
 * milliseconds later with its two addresses exchanged, so that a client that connects to the far address
 * reaches the server of this machine that listens on the near address. One packet in ONE_IN is lost (0:
 * none). Congestion windows, slow start and retransmission are those of the kernel; packets have 1500
 * bytes, each costs a read and a write here, and a core passes some 500,000 a second. At most SLOTS
 * packets (48 MiB) are on the way; further packets are lost, and counted.
 *
 * Usage: lossy LATENCY ONE_IN SEED A.B.C.D. The network of the device is A.B.C.D/30. Prints the name of
 * the device, and the near and far addresses; then for each line of its input what passed since the line
 * before. Ends with its input. Status 77: the system lets nobody make such a device, or not this user.
 *
 * Threads: one.
 */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MTU = 1500, SLOTS = 32768, BATCH = 64 };

struct packet {
	int64_t due;
	size_t length;
	unsigned char data[MTU];
};

static int64_t delay; /* ns */
static unsigned one_in;
static struct packet ring[SLOTS];
static unsigned first, count;
static unsigned long long packets, lost, full;

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int decided(int rc, const char *call)
{
	if (rc < 0)
		err(77, "%s", call);
	return rc;
}

static struct sockaddr_in address(uint32_t host)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(host)};
}

static int make_device(uint32_t network)
{
	struct ifreq device = {.ifr_flags = IFF_TUN | IFF_NO_PI};
	int fd = decided(open("/dev/net/tun", O_RDWR | O_NONBLOCK), "/dev/net/tun");
	int control = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in near = address(network + 1), mask = address(~3U);
	char far[INET_ADDRSTRLEN];

	decided(ioctl(fd, TUNSETIFF, &device), "TUNSETIFF");
	memcpy(&device.ifr_addr, &near, sizeof(near));
	decided(ioctl(control, SIOCSIFADDR, &device), "address");
	memcpy(&device.ifr_netmask, &mask, sizeof(mask));
	decided(ioctl(control, SIOCSIFNETMASK, &device), "mask");
	device.ifr_mtu = MTU;
	decided(ioctl(control, SIOCSIFMTU, &device), "MTU");
	device.ifr_qlen = SLOTS;
	decided(ioctl(control, SIOCSIFTXQLEN, &device), "queue");
	device.ifr_flags = IFF_UP | IFF_RUNNING;
	decided(ioctl(control, SIOCSIFFLAGS, &device), "up");
	close(control);
	near = address(network + 2);
	inet_ntop(AF_INET, &near.sin_addr, far, sizeof(far));
	near = address(network + 1);
	printf("%s %s %s\n", device.ifr_name, inet_ntoa(near.sin_addr), far);
	fflush(stdout);
	return fd;
}

/* Returns whether a packet came. */
static int take(int fd)
{
	struct packet spare, *p = count < SLOTS ? &ring[(first + count) % SLOTS] : &spare;
	unsigned char swap[4];
	ssize_t n = read(fd, p->data, MTU);

	if (n <= 0)
		return 0;
	packets++;
	if (n < 20 || p->data[0] >> 4 != 4)
		return 1;
	if (one_in && random() % one_in == 0) {
		lost++;
	} else if (p == &spare) {
		full++;
	} else {
		/* The sums of IP and TCP stay right. */
		memcpy(swap, p->data + 12, 4);
		memcpy(p->data + 12, p->data + 16, 4);
		memcpy(p->data + 16, swap, 4);
		p->length = (size_t)n;
		p->due = now_ns() + delay;
		count++;
	}
	return 1;
}

static void deliver(int fd)
{
	for (int64_t now = now_ns(); count && ring[first].due <= now;) {
		if (write(fd, ring[first].data, ring[first].length) < 0)
			full++;
		first = (first + 1) % SLOTS;
		count--;
	}
}

/* Answers a line of the input, or ends the program with it. */
static void answer_input(void)
{
	char byte;

	if (read(STDIN_FILENO, &byte, 1) <= 0)
		exit(0);
	printf("{\"packets\": %llu, \"lost\": %llu, \"full\": %llu}\n", packets, lost, full);
	fflush(stdout);
	packets = lost = full = 0;
}

int main(int argc, char **argv)
{
	struct in_addr network;
	struct pollfd ready[2] = {{.events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};

	if (argc != 5 || !inet_aton(argv[4], &network))
		errx(2, "usage: lossy LATENCY ONE_IN SEED A.B.C.D");
	delay = (int64_t)(atof(argv[1]) * 1e6 / 2);
	one_in = (unsigned)atoi(argv[2]);
	srandom((unsigned)atoi(argv[3]));
	ready[0].fd = make_device(ntohl(network.s_addr));
	for (;;) {
		int64_t left = count ? ring[first].due - now_ns() : 0;
		struct timespec timeout = {left / 1000000000, left % 1000000000};

		if (left >= 0)
			ppoll(ready, 2, count ? &timeout : NULL, NULL);
		if (left >= 0 && ready[1].revents)
			answer_input();
		for (int i = 0; i < BATCH && take(ready[0].fd); i++)
			;
		deliver(ready[0].fd);
	}
}
