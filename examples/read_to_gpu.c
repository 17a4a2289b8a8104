/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a file into the memory of a GPU, with a kernel behind it on the same stream, by the driver's
 * API: cc read_to_gpu.c $(pkg-config --cflags --libs sluice) -lcuda
 */
#include <cuda.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <sluice/sluice.h>

/* void sum(const unsigned char *data, uint64_t n, uint64_t *sum), for a grid of any size. */
static const char ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry sum(.param .u64 data, .param .u64 n, .param .u64 sum)\n"
	"{\n"
	"	.reg .pred over;\n"
	"	.reg .u32 thread, block, size, blocks;\n"
	"	.reg .u64 from, end, to, i, step, at, byte, mine, before;\n"
	"	ld.param.u64 from, [data]; ld.param.u64 end, [n]; ld.param.u64 to, [sum];\n"
	"	mov.u32 thread, %tid.x; mov.u32 block, %ctaid.x;\n"
	"	mov.u32 size, %ntid.x; mov.u32 blocks, %nctaid.x;\n"
	"	cvt.u64.u32 i, thread; mul.wide.u32 step, block, size; add.u64 i, i, step;\n"
	"	mul.wide.u32 step, blocks, size; mov.u64 mine, 0;\n"
	"next:	setp.ge.u64 over, i, end;\n"
	"	@over bra done;\n"
	"	add.u64 at, from, i; ld.global.u8 byte, [at]; add.u64 mine, mine, byte;\n"
	"	add.u64 i, i, step;\n"
	"	bra next;\n"
	"done:	atom.global.add.u64 before, [to], mine;\n"
	"	ret;\n"
	"}\n";

static void fail(const char *why)
{
	fprintf(stderr, "read_to_gpu: %s\n", why);
	exit(1);
}

static void check(int rc)
{
	if (rc < 0)
		fail(sluice_last_message());
}

static void finish(sluice_op *op)
{
	if (sluice_wait(op, -1) < 0)
		fail(sluice_op_message(op));
	sluice_op_free(op);
}

static void cuda(CUresult rc)
{
	const char *name;

	if (rc)
		fail(cuGetErrorName(rc, &name) ? "an error without a name" : name);
}

/* What the kernel has to come to. */
static uint64_t sum_on_host(sluice_file *file, size_t n)
{
	unsigned char *data = malloc(n + 1);
	uint64_t sum = 0;
	sluice_op *op;

	if (!data)
		fail("out of memory");
	check(sluice_read(file, data, n, 0, &op));
	finish(op);
	for (size_t i = 0; i < n; i++)
		sum += data[i];
	free(data);
	return sum;
}

int main(int argc, char **argv)
{
	struct sluice_file_info st = {.size = sizeof st};
	CUdeviceptr data, sum_there;
	CUfunction kernel;
	CUcontext context;
	CUmodule module;
	CUdevice device;
	CUstream stream;
	sluice_context *ctx;
	sluice_file *file;
	sluice_op *op;
	uint64_t sum = 0;

	if (argc != 2)
		fail("usage: read_to_gpu FILE");
	/* Before cuInit(): so more streams may wait. See docs/asynchrony.md. */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	cuda(cuInit(0));
	cuda(cuDeviceGet(&device, 0));
	cuda(cuDevicePrimaryCtxRetain(&context, device));
	cuda(cuCtxSetCurrent(context));
	cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	cuda(cuModuleLoadData(&module, ptx));
	cuda(cuModuleGetFunction(&kernel, module, "sum"));

	check(sluice_context_new(NULL, &ctx));
	check(sluice_open(ctx, argv[1], NULL, &file));
	check(sluice_stat(file, &st));
	if (st.flags & SLUICE_STAT_SIZE_UNKNOWN)
		fail("the file does not know its length");
	uint64_t n = st.length;
	cuda(cuMemAlloc(&data, n + 1));
	cuda(cuMemAlloc(&sum_there, sizeof sum));

	/* Everything is given to the stream at once; nothing here waits for the file. */
	cuda(cuMemsetD8Async(sum_there, 0, sizeof sum, stream));
	check(sluice_read_on(file, (void *)data, n, 0, stream, &op));
	cuda(cuLaunchKernel(kernel, 256, 1, 1, 256, 1, 1, 0, stream,
	                    (void *[]){&data, &n, &sum_there}, NULL));
	cuda(cuStreamSynchronize(stream));
	cuda(cuMemcpyDtoH(&sum, sum_there, sizeof sum));
	/* The stream went on whatever happened: only the operation knows whether the sum means anything. */
	finish(op);
	printf("%" PRIu64 " is the sum of the %" PRIu64 " bytes of %s\n", sum, n, argv[1]);
	if (sum != sum_on_host(file, n))
		fail("the host's sum is another");

	check(sluice_close(file));
	sluice_context_close(ctx);
	cuda(cuMemFree(data));
	cuda(cuMemFree(sum_there));
	cuda(cuStreamDestroy(stream)); /* not before the operations on it are over */
	cuda(cuModuleUnload(module));
	cuda(cuDevicePrimaryCtxRelease(device));
	return 0;
}
