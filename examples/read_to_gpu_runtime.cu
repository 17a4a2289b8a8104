// SPDX-License-Identifier: Apache-2.0
// Reads a file into the memory of a GPU, with a kernel behind it on the same stream, by CUDA's runtime:
// nvcc read_to_gpu_runtime.cu $(pkg-config --cflags --libs sluice)
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <sluice/sluice.h>

__global__ void sum_bytes(const unsigned char *data, size_t n, unsigned long long *sum)
{
	unsigned long long mine = 0;

	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		mine += data[i];
	atomicAdd(sum, mine);
}

static void fail(const char *why)
{
	fprintf(stderr, "read_to_gpu_runtime: %s\n", why);
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

static void cuda(cudaError_t rc)
{
	if (rc != cudaSuccess)
		fail(cudaGetErrorString(rc));
}

// What the kernel has to come to.
static unsigned long long sum_on_host(sluice_file *file, size_t n)
{
	std::vector<unsigned char> data(n + 1);
	unsigned long long sum = 0;
	sluice_op *op;

	check(sluice_read(file, data.data(), n, 0, &op));
	finish(op);
	for (size_t i = 0; i < n; i++)
		sum += data[i];
	return sum;
}

int main(int argc, char **argv)
{
	struct sluice_file_info st = {};
	unsigned char *data;
	unsigned long long *sum_there, sum = 0;
	cudaStream_t stream;
	sluice_context *ctx;
	sluice_file *file;
	sluice_op *op;

	if (argc != 2)
		fail("usage: read_to_gpu_runtime FILE");
	// Before the runtime's first call: so more streams may wait. See docs/asynchrony.md.
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	check(sluice_context_new(nullptr, &ctx));
	check(sluice_open(ctx, argv[1], nullptr, &file));
	st.size = sizeof st;
	check(sluice_stat(file, &st));
	if (st.flags & SLUICE_STAT_SIZE_UNKNOWN)
		fail("the file does not know its length");
	size_t n = st.length;
	cuda(cudaMalloc(&data, n + 1));
	cuda(cudaMalloc(&sum_there, sizeof sum));

	// Everything is given to the stream at once; nothing here waits for the file.
	cuda(cudaMemsetAsync(sum_there, 0, sizeof sum, stream));
	check(sluice_read_on(file, data, n, 0, stream, &op));
	sum_bytes<<<256, 256, 0, stream>>>(data, n, sum_there);
	cuda(cudaGetLastError());
	cuda(cudaStreamSynchronize(stream));
	cuda(cudaMemcpy(&sum, sum_there, sizeof sum, cudaMemcpyDeviceToHost));
	// The stream went on whatever happened: only the operation knows whether the sum means anything.
	finish(op);
	printf("%llu is the sum of the %zu bytes of %s\n", sum, n, argv[1]);
	if (sum != sum_on_host(file, n))
		fail("the host's sum is another");

	check(sluice_close(file));
	sluice_context_close(ctx);
	cuda(cudaFree(data));
	cuda(cudaFree(sum_there));
	cuda(cudaStreamDestroy(stream)); // not before the operations on it are over
	return 0;
}
