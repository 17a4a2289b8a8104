#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
Stores frames as bench_writer does, with its options and its answer, by libraries of Python:
  writer_python.py                   what there is: {"tables": VERSION or why not, "zarr": ...}
  writer_python.py OPTION=VALUE...   sink=tables|zarr codec= level= shuffle=byte|bit, and the others as there
Blosc compresses with as many threads as there are cores.
"""

import importlib
import json
import os
import resource
import sys
import time


def busy_seconds():
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, hard, soft, stolen = map(int, file.readline().split()[1:9])
    return (user + nice + system + hard + soft + stolen) / os.sysconf("SC_CLK_TCK")


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def chunk_of(o):
    return (1, int(o["chunk_rows"]), int(o["chunk_columns"]))


def open_tables(o, cores):
    import tables

    tables.set_blosc_max_threads(cores)
    shape = (int(o["rows"]), int(o["columns"]))
    filters = tables.Filters(complevel=int(o["level"]), complib=f"blosc:{o['codec']}",
                             shuffle=o["shuffle"] == "byte", bitshuffle=o["shuffle"] == "bit")
    file = tables.open_file(o["output"], "w")
    array = file.create_earray("/", "v", tables.Float32Atom(), (0, *shape), filters=filters,
                               chunkshape=chunk_of(o))
    return lambda i, frame: array.append(frame), file.close


def open_zarr(o, cores):
    import zarr
    from numcodecs import Blosc, blosc

    blosc.set_nthreads(cores)
    shape = (int(o["rows"]), int(o["columns"]))
    codec = Blosc(o["codec"], int(o["level"]), {"byte": Blosc.SHUFFLE, "bit": Blosc.BITSHUFFLE}[o["shuffle"]])
    array = zarr.open(o["output"], mode="w", shape=(int(o["frames"]), *shape), chunks=chunk_of(o),
                      dtype="f4", compressor=codec)

    def put(i, frame):
        array[i] = frame[0]

    return put, lambda: None


def stored(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names)


def what_there_is():
    found = {}
    for name in ("tables", "zarr"):
        try:
            importlib.import_module("numcodecs" if name == "zarr" else "numpy")
            found[name] = importlib.import_module(name).__version__
        except ImportError as missing:
            found[name] = str(missing)
    return found


def main():
    import numpy

    o = dict(argument.split("=", 1) for argument in sys.argv[1:])
    cores = sorted(os.sched_getaffinity(0))[-int(o.get("cores", 0)):]
    os.sched_setaffinity(0, cores)
    frames = int(o["frames"])
    every = numpy.fromfile(o["from"], "f4").reshape(-1, 1, int(o["rows"]), int(o["columns"]))
    put, close = {"tables": open_tables, "zarr": open_zarr}[o["sink"]](o, len(cores))
    calls = []
    busy, cpu, start = busy_seconds(), cpu_seconds(), time.perf_counter()
    for i in range(frames):
        before = time.perf_counter()
        put(i, every[i * len(every) // frames if frames < len(every) else i % len(every)])
        calls.append(time.perf_counter() - before)
    close()
    seconds, cpu, busy = time.perf_counter() - start, cpu_seconds() - cpu, busy_seconds() - busy
    print(json.dumps({
        "bytes": frames * every[0].nbytes, "seconds": seconds, "cpu_seconds": cpu, "stored": stored(o["output"]),
        "calls": sum(calls), "longest": max(calls), "filling": 0, "others": max(busy - cpu, 0), "frames": frames}))


if len(sys.argv) == 1:
    print(json.dumps(what_there_is()))
else:
    main()
