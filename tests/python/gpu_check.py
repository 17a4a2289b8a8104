#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stream order against kernels of torch and cupy on a GPU, while their allocators free memory.

usage: tests/python/gpu_check.py [SECONDS [torch|cupy]]

On 16 streams in turn: a read into a new array, a kernel that compares every byte, a kernel that changes the array, a
write of it behind that, and the array is dropped. At the end the written file is compared too. Then such reads of parts
of a dataset, and batches that are read in advance. The last line has the totals. Exit status 77: there is no GPU, or
neither library.
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


def read_datasets(name, library, streams, current, path):
    """Returns a line, and whether it is a failure."""
    frames = numpy.arange(60 * 70 * 500, dtype="i4").reshape(60, 70, 500)
    try:
        writer = sluice.Writer(path, "w")
        u = writer.series("u", shape=(70, 500), dtype="i4", chunk=(20, 125), chunk_frames=8)
    except OSError as missing:
        return f"no datasets: {missing}", False
    with writer:
        for frame in frames:
            u.append(frame)
    rng, operations, wanted = random.Random(2), [], library.asarray(frames)
    errors = [library.zeros(1, dtype=library.int64) for _ in streams]
    library.cuda.synchronize() if name == "torch" else library.cuda.Device().synchronize()
    with sluice.open_array(path, "u") as array:
        for k in range(40 * STREAMS):
            starts = [rng.randrange(n) for n in frames.shape]
            ends = [rng.randrange(start, n) + 1 for start, n in zip(starts, frames.shape, strict=True)]
            box = tuple(map(slice, starts, ends))
            with current(streams[k % STREAMS]):
                part = library.empty([place.stop - place.start for place in box], dtype=library.int32)
                operations.append(array.read_on(part, box))
                errors[k % STREAMS] += (part != wanted[box]).sum()
                del part
        for operation in operations:
            operation.wait()
        for stream in streams:
            stream.synchronize()
        wrong = sum(int(error[0]) for error in errors)
        if name == "torch":
            wrong += int((array.read((slice(3, 50), 4), "cuda") != wanted[3:50, 4]).sum())
            wrong += sum(not batch.is_pinned() for batch in sluice.Samples(f"{path}#/u").batches(25))
    count, order = 0, numpy.random.default_rng(3).permutation(60)
    memory = "cuda" if name == "torch" else library.empty
    for i, batch in enumerate(sluice.Samples(f"{path}#/u").batches(7, order, device=memory)):
        wrong += int((batch != wanted[library.asarray(order[i * 7 : i * 7 + 7])]).sum())
        batch += 1  # its memory is used again
        count += len(batch)
    line = f"{name}: {len(operations)} parts of a dataset and {count} samples, {wrong} wrong elements"
    return line, wrong > 0 or count != 60


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
            line, bad = read_datasets(name, library, streams, current, os.path.join(folder, "frames.h5"))
            print(line)
            failed += bool(wrong or strange or not written or bad)
            if name == "torch":
                print(refuses_capture(library, path))
    if not found:
        print("there is no GPU that torch or cupy can use")
        sys.exit(77)
    print(f"{found - failed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
