/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of gpu_cuda.c, for any GPU that a driver of today has. Grids of any size do all n bytes. */
#include "support/gpu_cuda.h"

const char gpu_kernels[] = R"(
.version 6.0
.target sm_50
.address_size 64

// The byte at that position of the pattern; pattern.c has the same.
.func (.reg .u32 byte) pattern_byte(.reg .u64 position, .reg .u64 seed)
{
	.reg .u64 word, high;
	.reg .u32 shift;

	shr.u64 word, position, 3;
	mul.lo.u64 word, word, 0x2545f4914f6cdd1d;
	add.u64 word, word, seed;
	add.u64 word, word, 0x9e3779b97f4a7c15;
	shr.u64 high, word, 30;
	xor.b64 word, word, high;
	mul.lo.u64 word, word, 0xbf58476d1ce4e5b9;
	shr.u64 high, word, 27;
	xor.b64 word, word, high;
	mul.lo.u64 word, word, 0x94d049bb133111eb;
	shr.u64 high, word, 31;
	xor.b64 word, word, high;
	cvt.u32.u64 shift, position;
	and.b32 shift, shift, 7;
	shl.b32 shift, shift, 3;
	shr.u64 word, word, shift;
	cvt.u32.u64 byte, word;
	and.b32 byte, byte, 255;
	ret;
}

// Which byte is this thread's first.
.func (.reg .u64 first) first_byte()
{
	.reg .u32 block, size, thread;
	.reg .u64 wide;

	mov.u32 block, %ctaid.x;
	mov.u32 size, %ntid.x;
	mov.u32 thread, %tid.x;
	mul.wide.u32 first, block, size;
	cvt.u64.u32 wide, thread;
	add.u64 first, first, wide;
	ret;
}

// How far its next one is from it.
.func (.reg .u64 stride) step()
{
	.reg .u32 size, blocks;

	mov.u32 size, %ntid.x;
	mov.u32 blocks, %nctaid.x;
	mul.wide.u32 stride, blocks, size;
	ret;
}

.visible .entry sluice_fill(.param .u64 bytes, .param .u64 n, .param .u64 offset, .param .u64 seed)
{
	.reg .u64 at, end, from, by, i, stride, position;
	.reg .u32 byte;
	.reg .pred over;

	ld.param.u64 from, [bytes];
	ld.param.u64 end, [n];
	ld.param.u64 position, [offset];
	ld.param.u64 by, [seed];
	call.uni (i), first_byte, ();
	call.uni (stride), step, ();
	add.u64 position, position, i;
next:
	setp.ge.u64 over, i, end;
	@over bra done;
	call (byte), pattern_byte, (position, by);
	add.u64 at, from, i;
	st.u8 [at], byte;
	add.u64 i, i, stride;
	add.u64 position, position, stride;
	bra next;
done:
	ret;
}

.visible .entry sluice_scribble(.param .u64 bytes, .param .u64 n, .param .u32 byte)
{
	.reg .u64 at, end, from, i, stride;
	.reg .u32 what;
	.reg .pred over;

	ld.param.u64 from, [bytes];
	ld.param.u64 end, [n];
	ld.param.u32 what, [byte];
	call.uni (i), first_byte, ();
	call.uni (stride), step, ();
next:
	setp.ge.u64 over, i, end;
	@over bra done;
	add.u64 at, from, i;
	st.u8 [at], what;
	add.u64 i, i, stride;
	bra next;
done:
	ret;
}

// Adds how many bytes are not the pattern to the word at wrong.
.visible .entry sluice_match(.param .u64 bytes, .param .u64 n, .param .u64 offset, .param .u64 seed,
                             .param .u64 wrong)
{
	.reg .u64 at, end, from, by, i, stride, position, count, sum;
	.reg .u32 byte, is;
	.reg .pred over, good, none;

	ld.param.u64 from, [bytes];
	ld.param.u64 end, [n];
	ld.param.u64 position, [offset];
	ld.param.u64 by, [seed];
	ld.param.u64 sum, [wrong];
	mov.u64 count, 0;
	call.uni (i), first_byte, ();
	call.uni (stride), step, ();
	add.u64 position, position, i;
next:
	setp.ge.u64 over, i, end;
	@over bra done;
	call (byte), pattern_byte, (position, by);
	add.u64 at, from, i;
	ld.u8 is, [at];
	setp.eq.u32 good, is, byte;
	@!good add.u64 count, count, 1;
	add.u64 i, i, stride;
	add.u64 position, position, stride;
	bra next;
done:
	setp.eq.u64 none, count, 0;
	@!none red.add.u64 [sum], count;
	ret;
}

.visible .entry sluice_take(.param .u64 bytes, .param .u64 out, .param .u64 n)
{
	.reg .u64 at, end, from, to, i, stride;
	.reg .u32 byte;
	.reg .pred over;

	ld.param.u64 from, [bytes];
	ld.param.u64 to, [out];
	ld.param.u64 end, [n];
	call.uni (i), first_byte, ();
	call.uni (stride), step, ();
next:
	setp.ge.u64 over, i, end;
	@over bra done;
	add.u64 at, from, i;
	ld.u8 byte, [at];
	add.u64 at, to, i;
	st.u8 [at], byte;
	add.u64 i, i, stride;
	bra next;
done:
	ret;
}

.visible .entry sluice_spin(.param .u64 nanoseconds)
{
	.reg .u64 start, now, time;
	.reg .pred more;

	ld.param.u64 time, [nanoseconds];
	mov.u64 start, %globaltimer;
again:
	mov.u64 now, %globaltimer;
	sub.u64 now, now, start;
	setp.lt.u64 more, now, time;
	@more bra again;
	ret;
}

// The time of the GPU, in nanoseconds.
.visible .entry sluice_stamp(.param .u64 at)
{
	.reg .u64 to, now;

	ld.param.u64 to, [at];
	mov.u64 now, %globaltimer;
	st.u64 [to], now;
	ret;
}
)";
