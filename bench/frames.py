# SPDX-License-Identifier: Apache-2.0
"""Frames of a program of numpy into files, by sluice, h5py and zarr: `bench/python --rows frames`.

Runs by an interpreter that has these packages, with the arguments FOLDER, frames and rounds, and prints a table.
Each way is a process of its own. A frame is a field of float32, 1080 x 1920, of waves of all lengths (spectrum
k^-3), in chunks of 1/8 frame. A program stores frames without a pause, or computes by numpy for some 60 ms before each.
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time

import numpy

ROWS, COLUMNS, KINDS = 1080, 1920, 6
CHUNK = (ROWS // 8, COLUMNS)
COMPUTE = 60e-3


def fields():
    rng = numpy.random.default_rng(1)
    k = numpy.hypot(numpy.fft.fftfreq(ROWS)[:, None] * ROWS, numpy.fft.rfftfreq(COLUMNS)[None] * COLUMNS)
    waves = numpy.fft.rfft2(rng.standard_normal((ROWS, COLUMNS))) / (1 + k) ** 3
    return [numpy.fft.irfft2(waves * numpy.exp(0.2j * i * numpy.sqrt(k)), (ROWS, COLUMNS)).astype("f4")
            for i in range(KINDS)]


def by_sluice(codec, acquire=False):
    import sluice

    def open_at(path, count):
        writer = sluice.Writer(path)
        series = writer.series("u", shape=(ROWS, COLUMNS), dtype="f4", chunk=CHUNK, codec=codec)

        def fill(i, frame):
            series.acquire()[...] = frame
            series.submit()

        return fill if acquire else lambda i, frame: series.append(frame), writer.close

    return open_at


def by_h5py(level, shuffle):
    import h5py

    def open_at(path, count):
        file = h5py.File(path, "w")
        data = file.create_dataset("u", (count, ROWS, COLUMNS), "f4", chunks=(1, *CHUNK), compression="gzip",
                                   compression_opts=level, shuffle=shuffle)
        return data.__setitem__, file.close

    return open_at


def by_zarr(cname):
    import zarr

    def open_at(path, count):
        blosc = zarr.codecs.BloscCodec(cname=cname, clevel=5, shuffle="shuffle")
        array = zarr.create_array(path, shape=(count, ROWS, COLUMNS), chunks=(1, *CHUNK), dtype="f4", compressors=blosc)
        return array.__setitem__, lambda: None

    return open_at


WAYS = {
    "sluice, deflate 1, append": lambda: by_sluice("deflate"),
    "sluice, deflate 1, acquire": lambda: by_sluice("deflate", True),
    "sluice, zstd 1": lambda: by_sluice("zstd"),
    "h5py, gzip (4)": lambda: by_h5py(4, False),
    "h5py, gzip 1, shuffle": lambda: by_h5py(1, True),
    "zarr, Blosc zstd 5": lambda: by_zarr("zstd"),
    "zarr, Blosc lz4 5": lambda: by_zarr("lz4"),
}


def size_of(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names)


def run(folder, way, count, compute):
    """Prints the seconds of the loop, of calls in it, and until the file is closed; bytes; seconds of processors."""
    kinds, work, calls = numpy.load(os.path.join(folder, "fields.npy")), numpy.ones(1 << 20), 0.0
    path = os.path.join(folder, "output")
    shutil.rmtree(path, ignore_errors=True)
    if os.path.exists(path):
        os.unlink(path)
    put, close = WAYS[way]()(path, count)
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for i in range(count):
        for _ in range(compute):
            numpy.sqrt(work, out=work)
        called = time.perf_counter()
        put(i, kinds[i % KINDS])
        calls += time.perf_counter() - called
    loop = time.perf_counter() - begun
    close()
    closed, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps([loop, calls, closed, size_of(path), cpu]))


def passes():
    """Returns how often the computation is repeated, to take its time."""
    work, times = numpy.ones(1 << 20), []
    for _ in range(20):
        begun = time.perf_counter()
        numpy.sqrt(work, out=work)
        times.append(time.perf_counter() - begun)
    return max(1, round(COMPUTE / statistics.median(times)))


def main(folder, count, rounds):
    numpy.save(os.path.join(folder, "fields.npy"), numpy.stack(fields()))
    compute, raw = passes(), count * ROWS * COLUMNS * 4
    found = {}
    for _ in range(rounds):
        for way in WAYS:
            for repeats in (0, compute):
                ran = subprocess.run([sys.executable, __file__, folder, way, str(count), str(repeats)], text=True,
                                     check=True, stdout=subprocess.PIPE)
                found.setdefault((way, repeats), []).append(json.loads(ran.stdout))
    print(f"{count} frames of {raw / count / 1e6:.1f} MB, {len(os.sched_getaffinity(0))} CPUs, medians of {rounds}\n")
    print("| | no pause: ms a frame in the loop | until closed | CPU | computing 60 ms: ms a frame in calls | loop "
          "| until closed | raw : stored |\n|---|--:|--:|--:|--:|--:|--:|--:|")
    for way in WAYS:
        alone, beside = ([statistics.median(column) for column in zip(*found[way, repeats], strict=True)]
                         for repeats in (0, compute))
        times = [seconds / count * 1e3 for seconds in (alone[0], alone[2], alone[4], beside[1], beside[0], beside[2])]
        print(f"| {way} | {' | '.join(f'{ms:.1f}' for ms in times)} | {raw / alone[3]:.2f} |")


if __name__ == "__main__":
    if len(sys.argv) == 5:
        run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
