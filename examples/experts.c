/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a model that is larger than a device's memory: each step needs two of its many experts, which a router chooses.
 * The device keeps those that were used last; the others are read in front of the kernel, all of a step by one call in
 * stream order. Nothing waits between two steps: kernels that use the place of an expert come before the next read.
 * The file has tensors "experts.N.w1", "experts.N.w2" and "experts.N.w3", of the same lengths for each N.
 */
#include <inttypes.h>
#include <sluice/device.h>
#include <sluice/emulated.h>
#include <sluice/tensors.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXPERTS = 128, MATRICES = 3, CHOSEN = 2, SLOTS = 8, STEPS = 200 };

static struct sluice_extent matrices[EXPERTS * MATRICES]; /* of the file */
static size_t block, count; /* bytes of an expert, and how many there are */

/* The experts in the device, and the last step that used each. */
static struct slot {
	char *data;
	unsigned expert, used; /* EXPERTS: none */
} slots[SLOTS];

static struct step {
	unsigned expert[CHOSEN];
	const char *data[CHOSEN];
	uint64_t sum;
	sluice_op *read; /* NULL: all were there */
} steps[STEPS];

static int check(int rc)
{
	if (rc < 0) {
		fprintf(stderr, "%s\n", sluice_last_message());
		exit(1);
	}
	return rc;
}

/* On a GPU this is a __global__ function, which run_step() launches with <<<..., stream>>>. */
static void kernel(void *argument)
{
	struct step *step = argument;

	for (int i = 0; i < CHOSEN; i++) {
		const unsigned char *bytes = sluice_emulated_memory(step->data[i]);

		for (size_t j = 0; j < block; j++)
			step->sum += bytes[j];
	}
}

static void find_experts(sluice_tensors *tensors)
{
	struct sluice_tensor tensor = {.size = sizeof tensor};
	char name[32];
	size_t index, i;

	for (i = 0; i < EXPERTS * MATRICES; i++) {
		snprintf(name, sizeof name, "experts.%zu.w%zu", i / MATRICES, i % MATRICES + 1);
		if (sluice_tensors_find(tensors, name, &index))
			break;
		check(sluice_tensors_get(tensors, index, &tensor));
		if (i >= MATRICES && tensor.bytes != matrices[i % MATRICES].length)
			break;
		matrices[i] = (struct sluice_extent){NULL, tensor.bytes, tensor.offset};
		block += i < MATRICES ? tensor.bytes : 0;
	}
	count = i / MATRICES;
	check(count ? 0 : -1);
}

/* Returns the place of an expert. If it is missing it takes the oldest, and is added to the extents to read. */
static const char *place(unsigned expert, unsigned now, struct sluice_extent *missing, size_t *n)
{
	struct slot *slot = slots;

	for (int i = 1; i < SLOTS && slot->expert != expert; i++)
		if (slots[i].expert == expert || slots[i].used < slot->used)
			slot = &slots[i];
	char *to = slot->data;
	for (int i = 0; slot->expert != expert && i < MATRICES; i++) {
		missing[*n] = matrices[expert * MATRICES + i];
		missing[*n].data = to;
		to += missing[(*n)++].length;
	}
	slot->expert = expert;
	slot->used = now;
	return slot->data;
}

/* Chooses the experts of a step, reads those that are missing, and launches the kernel. Returns how many it reads. */
static unsigned run_step(sluice_file *file, int device, sluice_stream stream, unsigned number)
{
	static uint64_t random = 1;
	struct sluice_extent missing[CHOSEN * MATRICES];
	struct sluice_request request = SLUICE_REQUEST_INIT;
	struct step *step = &steps[number];
	size_t n = 0;

	for (int i = 0; i < CHOSEN; i++) {
		/* Routers, too, prefer some experts. */
		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		step->expert[i] = (random >> 48) * (random >> 32 & 0xffff) * count >> 32;
		step->data[i] = place(step->expert[i], number + 1, missing, &n);
	}
	request.kind = SLUICE_READ;
	request.extents = missing;
	request.count = n;
	request.on = 1;
	request.stream = stream;
	if (n)
		check(sluice_submit(file, &request, &step->read));
	check(sluice_emulated_launch(device, stream, kernel, step));
	return n / MATRICES;
}

int main(int argc, char **argv)
{
	struct sluice_tensor_file file = {.size = sizeof file};
	const char *uri = argc == 2 ? argv[1] : "";
	sluice_context *ctx;
	sluice_tensors *tensors;
	sluice_stream stream;
	int device, missing = 0;

	check(sluice_context_new(NULL, &ctx));
	check(sluice_device_find("emulated", &device));
	check(sluice_stream_new(device, &stream));
	check(sluice_tensors_open(ctx, &uri, 1, NULL, &tensors));
	check(sluice_tensors_file(tensors, 0, &file));
	find_experts(tensors);
	for (int i = 0; i < SLOTS; i++) {
		check(sluice_device_alloc(device, block, (void **)&slots[i].data));
		slots[i].expert = EXPERTS;
	}
	for (unsigned i = 0; i < STEPS; i++)
		missing += run_step(file.file, device, stream, i);
	check(sluice_stream_synchronize(device, stream));
	for (unsigned i = 0; i < STEPS; i++) {
		if (steps[i].read && sluice_wait(steps[i].read, -1) < 0)
			fprintf(stderr, "%s\n", sluice_op_message(steps[i].read));
		sluice_op_free(steps[i].read);
		printf("experts %u and %u: %" PRIu64 "\n", steps[i].expert[0], steps[i].expert[1],
		       steps[i].sum);
	}
	printf("%d of %d experts were read\n", missing, STEPS * CHOSEN);
	for (int i = 0; i < SLOTS; i++)
		check(sluice_device_free(slots[i].data));
	check(sluice_stream_free(stream));
	sluice_tensors_free(tensors);
	return check(sluice_context_close(ctx));
}
