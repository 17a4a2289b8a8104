/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for words and writes of them, of programs and of the fake driver itself. */
#include <sys/mman.h>

#include "lib/fake_cuda/fake_cuda.h"

/* Never so many at once that one is used again while it is still looked at. */
#define WORDS 4096

static struct {
	_Atomic uint32_t *words;
	_Atomic uint32_t used;
} own;

bool fake_make_words(void)
{
	size_t length = WORDS * sizeof(uint32_t);
	void *words =
		mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (words == MAP_FAILED || fake_pin(words, length))
		return false;
	own.words = words;
	return true;
}

struct sl_command fake_word(enum sl_command_kind kind)
{
	uint32_t n = atomic_fetch_add(&own.used, 1);

	return (struct sl_command){.kind = kind, .word = {&own.words[n % WORDS], n / WORDS + 1}};
}

static CUresult give_word(const struct on *on, enum sl_command_kind kind, CUdeviceptr at,
                          uint32_t value, unsigned flags)
{
	struct sl_command command = {.kind = kind,
	                             .word = {(_Atomic uint32_t *)(uintptr_t)at, value}};
	size_t taken;

	if (flags)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (on->captured)
		return CUDA_SUCCESS;
	return fake_error(sl_emulated_enqueue(on->device, on->stream, &command, 1, &taken));
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                unsigned flags)
{
	struct on on;
	CUresult rc = fake_on(CALL_cuStreamWaitValue32_v2, stream, &on);

	return rc ? rc : give_word(&on, SL_AWAIT_WORD, address, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                 unsigned flags)
{
	struct on on;
	CUresult rc = fake_on(CALL_cuStreamWriteValue32_v2, stream, &on);

	return rc ? rc : give_word(&on, SL_WRITE_WORD, address, value, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count,
                               CUstreamBatchMemOpParams *operations, unsigned flags)
{
	struct on on;
	CUresult rc = fake_on(CALL_cuStreamBatchMemOp_v2, stream, &on);

	if (!rc && (flags || !count || count > 256))
		rc = CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; !rc && i < count; i++) {
		const CUstreamBatchMemOpParams *o = &operations[i];

		if (o->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32)
			rc = give_word(&on, SL_AWAIT_WORD, o->word.address, (uint32_t)o->word.value,
			               o->word.flags);
		else if (o->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
			rc = give_word(&on, SL_WRITE_WORD, o->word.address, (uint32_t)o->word.value,
			               o->word.flags);
		else
			rc = CUDA_ERROR_NOT_SUPPORTED;
	}
	return rc;
}
