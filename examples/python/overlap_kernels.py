#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes with a block of a file while the next block is read, on a GPU in the order of a stream.

usage: overlap_kernels.py FILE [PICTURE]    PICTURE: an SVG of the times of reads and computing
"""

import sys
import time

import _picture
import sluice
import torch

BLOCK = 4 << 20


def on_gpu(file, blocks):
    """The reads of a stream are in order with its kernels: this loop waits for nothing."""
    streams, reads = [torch.cuda.Stream(), torch.cuda.Stream()], []
    total = torch.zeros(2, dtype=torch.int64, device="cuda")
    buffers = torch.empty((2, BLOCK), dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    for i in range(blocks):
        with torch.cuda.stream(streams[i % 2]):
            reads.append(file.read_on(buffers[i % 2], i * BLOCK))
            total[i % 2] += buffers[i % 2].sum(dtype=torch.int64)
    torch.cuda.synchronize()
    assert sum(read.wait() for read in reads) == blocks * BLOCK  # a stream goes on if a read fails
    return int(total.sum()), {}


def on_processor(file, blocks):
    buffers = torch.empty((2, BLOCK), dtype=torch.uint8)
    total, begun, times = 0, time.perf_counter(), {"reads": [], "computing": []}

    def read(i):
        asked, operation = time.perf_counter(), file.read_into_async(buffers[i % 2], i * BLOCK)
        operation.add_done_callback(lambda _: times["reads"].append((asked - begun, time.perf_counter() - begun)))
        return operation

    operation = read(0)
    for i in range(blocks):
        operation.wait()
        operation = read(i + 1) if i + 1 < blocks else operation
        came = time.perf_counter()
        total += int(buffers[i % 2].sum(dtype=torch.int64))
        times["computing"].append((came - begun, time.perf_counter() - begun))
    return total, times


if __name__ == "__main__":
    sys.argv[1:] or sys.exit(__doc__)
    with sluice.open(sys.argv[1]) as file:
        compute = on_gpu if torch.cuda.is_available() else on_processor
        total, times = compute(file, file.size // BLOCK)
    print(f"{total} is the sum of the blocks of {sys.argv[1]}")
    if times and sys.argv[2:]:
        _picture.bars(sys.argv[2], times)
