/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers of a command
 *
 * Allocates memory of the host or of a device for reading and writing.
 *
 * Threads: the owner of the buffers.
 */
#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli.h"

enum { PAGE = 4096, PIECE = 4 << 20 };

int cli_option_memory(struct argp_state *state, const char *option, const char *text)
{
	int device, rc;

	if (!strcmp(text, "host"))
		return -1;
	/* Allows more waiting streams before unrelated streams stall. The driver reads it once. */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	rc = sluice_device_find(text, &device);
	if (rc == -EINVAL)
		argp_error(state, "--%s: %s", option, sluice_last_message());
	if (rc)
		errx(CLI_FAILED, "--%s: %s", option, sluice_last_message());
	return device;
}

const char *cli_memory_name(int device)
{
	struct sluice_device d = {.size = sizeof d, .name = "host"};

	if (device >= 0 && sluice_device_describe(device, &d))
		errx(CLI_FAILED, "%s", sluice_last_message());
	return d.name;
}

static int map_host(struct cli_memory *m, bool huge)
{
	char text[CLI_TEXT];

	m->mapping = mmap(NULL, m->size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                  -1, 0);
	if (m->mapping == MAP_FAILED) {
		m->mapping = NULL;
		warn("no memory for buffers of %s", cli_size_format(m->size, text));
		return -ENOMEM;
	}
	if (huge)
		madvise(m->mapping, m->size + PAGE, MADV_HUGEPAGE);
	m->data = m->mapping;
	return 0;
}

int cli_memory_new(struct cli_memory *m, int device, size_t size, bool huge)
{
	void *data;

	*m = (struct cli_memory){.device = device, .size = size};
	if (device < 0)
		return map_host(m, huge);
	int rc = cli_said(sluice_device_alloc(device, size, &data));
	if (rc)
		return rc;
	m->data = data;
	for (unsigned i = 0; i < CLI_STREAMS; i++) {
		rc = cli_said(sluice_stream_new(device, &m->streams[i]));
		if (rc) {
			cli_memory_free(m);
			return rc;
		}
	}
	return 0;
}

void cli_memory_free(struct cli_memory *m)
{
	if (m->mapping)
		munmap(m->mapping, m->size + PAGE);
	for (unsigned i = 0; i < CLI_STREAMS; i++)
		sluice_stream_free(m->streams[i]);
	if (m->device >= 0)
		sluice_device_free(m->data);
	*m = (struct cli_memory){.device = -1};
}

int cli_memory_fill(struct cli_memory *m, uint64_t seed)
{
	uint64_t *words = malloc(PIECE);
	int rc = words ? 0 : cli_fail(-ENOMEM, "out of memory");

	for (size_t at = 0; rc == 0 && at < m->size; at += PIECE) {
		size_t n = SL_MIN(m->size - at, (size_t)PIECE);

		for (size_t i = 0; i * sizeof *words < n; i++)
			words[i] = sl_random(&seed);
		rc = cli_said(sluice_copy(m->data + at, words, n));
	}
	free(words);
	return rc;
}
