/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the fake driver in stream order. Each device has one large allocation that is cut up here;
 * what a stream gives back is used again when a word says that the stream has come to it. Nothing of this
 * is held up by a call that frees, as with the real one.
 */
#include <errno.h>
#include <stdlib.h>

#include "lib/fake_cuda/fake_cuda.h"

#define POOL_BYTES ((size_t)4 << 30)
#define ALIGNMENT  ((size_t)512)

struct piece {
	struct piece *next;
	uint64_t start, end;
	bool freed; /* used again once the word is there */
	struct sl_command word;
};

static struct pool {
	pthread_mutex_t mutex;
	uint64_t start;       /* 0: not made yet */
	struct piece *pieces; /* by their addresses */
} pools[EMULATED_DEVICES] = {{.mutex = PTHREAD_MUTEX_INITIALIZER},
                             {.mutex = PTHREAD_MUTEX_INITIALIZER}};

static bool is_over(const struct piece *piece)
{
	uint32_t now = piece->freed ? atomic_load(piece->word.word.at) : 0;

	return piece->freed && (int32_t)(now - piece->word.word.value) >= 0;
}

static void collect(struct pool *pool)
{
	for (struct piece **at = &pool->pieces; *at;) {
		struct piece *piece = *at;

		if (is_over(piece)) {
			*at = piece->next;
			free(piece);
		} else {
			at = &piece->next;
		}
	}
}

static struct piece *cut(struct pool *pool, size_t length)
{
	struct piece **at = &pool->pieces, *piece;
	uint64_t start = pool->start;

	for (; *at && (*at)->start - start < length; at = &(*at)->next)
		start = (*at)->end;
	if (pool->start + POOL_BYTES - start < length)
		return NULL;
	piece = calloc(1, sizeof(*piece));
	if (!piece)
		return NULL;
	piece->start = start;
	piece->end = start + length;
	piece->next = *at;
	*at = piece;
	return piece;
}

static int alloc_locked(struct pool *pool, struct sl_device *device, size_t length, void **out)
{
	struct piece *piece;
	void *memory;
	int rc;

	if (!pool->start) {
		rc = sl_emulated_alloc(device, POOL_BYTES, &memory);
		if (rc)
			return rc;
		pool->start = (uintptr_t)memory;
	}
	collect(pool);
	piece = cut(pool, (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
	if (!piece)
		return -ENOMEM;
	*out = (void *)(uintptr_t)piece->start;
	return 0;
}

static CUresult alloc(const struct on *on, size_t length, CUdeviceptr *out)
{
	struct pool *pool = &pools[on->ctx->ordinal];
	void *memory;
	int rc;

	if (!length || length > POOL_BYTES)
		return length ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&pool->mutex);
	rc = alloc_locked(pool, on->device, length, &memory);
	pthread_mutex_unlock(&pool->mutex);
	if (rc)
		return fake_error(rc);
	*out = (uintptr_t)memory;
	return fake_add_block(BLOCK_POOL, on->ctx, on->ctx->ordinal, memory, length);
}

CUresult fake_pool_free(const struct on *on, const struct block *block)
{
	struct pool *pool = &pools[block->ordinal];
	struct piece *piece;
	CUresult rc;
	size_t taken;

	pthread_mutex_lock(&pool->mutex);
	for (piece = pool->pieces; piece->start != block->at.start;)
		piece = piece->next;
	piece->word = fake_word(SL_WRITE_WORD);
	rc = fake_error(sl_emulated_enqueue(on->device, on->stream, &piece->word, 1, &taken));
	piece->freed = !rc;
	pthread_mutex_unlock(&pool->mutex);
	return rc;
}

/* A capture would take it into the graph, which the fake cannot. */
CUresult cuMemAllocAsync(CUdeviceptr *out, size_t length, CUstream stream)
{
	struct on on;
	CUresult rc = fake_on(CALL_cuMemAllocAsync, stream, &on);

	if (!rc && on.captured)
		rc = CUDA_ERROR_NOT_SUPPORTED;
	return rc ? rc : alloc(&on, length, out);
}

CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream stream)
{
	struct on on;
	CUresult rc = fake_on(CALL_cuMemFreeAsync, stream, &on);
	struct block block;

	if (!rc && on.captured)
		rc = CUDA_ERROR_NOT_SUPPORTED;
	if (rc)
		return rc;
	if (!fake_take_block(1u << BLOCK_POOL, (void *)(uintptr_t)memory, &block))
		return CUDA_ERROR_INVALID_VALUE;
	return fake_pool_free(&on, &block);
}
