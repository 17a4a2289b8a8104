#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes with a block of a file while the next block is read, on a GPU in the order of a stream.

usage: overlap_kernels.py FILE [PICTURE]    PICTURE: an SVG of the times of reads and computing

Without a GPU the processor computes, and asks for the next block before it begins.
"""

import sys
import time

import _picture
import sluice
import torch

BLOCK = 4 << 20


def on_gpu(file, blocks):
    """The reads of a stream are in order with its kernels: this loop waits for nothing."""
    streams = [torch.cuda.Stream() for _ in range(2)]
    total = torch.zeros(2, dtype=torch.int64, device="cuda")
    buffers = [torch.empty(BLOCK, dtype=torch.uint8, device="cuda") for _ in range(2)]
    torch.cuda.synchronize()
    reads = []
    for i in range(blocks):
        with torch.cuda.stream(streams[i % 2]):
            reads.append(file.read_on(buffers[i % 2], i * BLOCK))
            total[i % 2] += buffers[i % 2].sum(dtype=torch.int64)
    torch.cuda.synchronize()
    assert sum(read.wait() for read in reads) == blocks * BLOCK  # a stream goes on if a read fails
    return int(total.sum()), {}


def on_processor(file, blocks):
    buffers = [torch.empty(BLOCK, dtype=torch.uint8) for _ in range(2)]
    total, begun, times = 0, time.perf_counter(), {"reads": [], "computing": []}

    def now():
        return (time.perf_counter() - begun) * 1e3

    def read(i):
        asked = now()
        operation = file.read_into_async(buffers[i % 2], i * BLOCK)
        operation.add_done_callback(lambda _: times["reads"].append((asked, now())))
        return operation

    operation = read(0)
    for i in range(blocks):
        operation.wait()
        operation = read(i + 1) if i + 1 < blocks else operation
        came = now()
        total += int(buffers[i % 2].sum(dtype=torch.int64))
        times["computing"].append((came, now()))
    return total, times


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    with sluice.open(sys.argv[1]) as file:
        blocks = file.size // BLOCK
        total, times = (on_gpu if torch.cuda.is_available() else on_processor)(file, blocks)
    print(f"{total} is the sum of {blocks} blocks of {sys.argv[1]}")
    if times and sys.argv[2:]:
        _picture.bars(sys.argv[2], times)
