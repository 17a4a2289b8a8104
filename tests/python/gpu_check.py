#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stream order against kernels of torch and cupy on a GPU, while their allocators free memory.

usage: tests/python/gpu_check.py [SECONDS [torch|cupy]]

On 16 streams in turn: a read into a new array, a kernel that compares every byte, a kernel that changes the array, a
write of it behind that, and the array is dropped. At the end the written file is compared too. The last line has the
totals. Exit status 77: there is no GPU, or neither library.
"""

import os
import random
import sys
import tempfile
import time

import numpy
import sluice

STREAMS, WORDS = 16, 16 << 20  # words of 8 bytes, each the number of its place


def read_streams(seconds, names, library, streams, current, path, out_path):
    """Returns the operations and the words that differed."""
    rng, wrong, rounds, operations = random.Random(1), [], 0, []
    until = time.monotonic() + seconds
    with sluice.open(path) as f, sluice.open(out_path, "r+") as out:
        errors = [library.zeros(1, dtype=library.int64) for _ in streams]
        library.cuda.synchronize() if names == "torch" else library.cuda.Device().synchronize()
        while time.monotonic() < until:
            for k, stream in enumerate(streams):
                n = rng.randrange(1, 1 << rng.randrange(4, 19))
                at = k * (WORDS // STREAMS) + rng.randrange(WORDS // STREAMS - n)
                with current(stream):
                    array = library.empty(n, dtype=library.int64)
                    operations.append(f.read_on(array, at * 8))
                    errors[k] += (array != library.arange(at, at + n)).sum()
                    changed = array + 1
                    operations.append(out.write_on(changed, at * 8))
                    del array, changed
            rounds += 1
            if rounds % 20 == 0:
                library.cuda.empty_cache() if names == "torch" else library.get_default_memory_pool().free_all_blocks()
            while len(operations) > 2000:
                operations.pop(0).wait()
        for operation in operations:
            operation.wait()
        for stream in streams:
            stream.synchronize()
        wrong = sum(int(error[0]) for error in errors)
    return rounds * STREAMS * 2, wrong


def compare_written(out_path):
    """Counts words that are neither as they were nor as they were written."""
    words = numpy.fromfile(out_path, "i8")
    place = numpy.arange(WORDS)
    return int(((words != place) & (words != place + 1)).sum()), int((words == place + 1).sum())


def refuses_capture(torch, path):
    with sluice.open(path) as f:
        tensor, stream = torch.empty(8, dtype=torch.int64, device="cuda"), torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=stream):
                f.read_on(tensor, 0, stream)
        except OSError as error:
            return f"a stream in capture: {error}"
    raise AssertionError("a stream in capture was not refused")


def libraries():
    try:
        import torch

        if torch.cuda.is_available():
            torch.set_default_device("cuda")
            yield "torch", torch, [torch.cuda.Stream() for _ in range(STREAMS)], torch.cuda.stream
    except ImportError:
        pass
    try:
        import cupy

        if cupy.cuda.is_available():
            yield "cupy", cupy, [cupy.cuda.Stream(non_blocking=True) for _ in range(STREAMS)], lambda stream: stream
    except ImportError:
        pass


def main():
    seconds, found, failed = float(sys.argv[1]) if len(sys.argv) > 1 else 60, 0, 0
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
        path, out_path = os.path.join(folder, "words"), os.path.join(folder, "written")
        for name, library, streams, current in libraries():
            if sys.argv[2:] not in ([], [name]):
                continue
            found += 1
            for file in (path, out_path):
                numpy.arange(WORDS).tofile(file)
            operations, wrong = read_streams(seconds, name, library, streams, current, path, out_path)
            strange, written = compare_written(out_path)
            print(f"{name}: {operations} operations, {wrong} wrong words read, {strange} written, {written} words new")
            failed += bool(wrong or strange or not written)
            if name == "torch":
                print(refuses_capture(library, path))
    if not found:
        print("there is no GPU that torch or cupy can use")
        sys.exit(77)
    print(f"{found - failed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
