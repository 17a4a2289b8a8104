# SPDX-License-Identifier: Apache-2.0
"""Reads a dataset in one way, in a process of its own: `bench/arrays` runs it by the interpreter that has the library.

arrays_sides.py                             what there is, as JSON: versions, or why not
arrays_sides.py SIDE PATTERN FILE WORKERS   {"bytes": of the elements that were read or had to be decoded, "seconds",
                                            "cpu_seconds", "sum"}: of the elements that came, as 64-bit integers of their bits
arrays_sides.py make zarr FILE FOLDER CODEC  a copy of the dataset, in Blosc
arrays_sides.py device DEVICE FILE WORKERS   all of it into memory of a device ("cuda:0", "emulated:0"), in all ways in turn:
                                            "awaited", "stream", "H5Dread" (of h5py, into pinned memory, and a copy), and
                                            "host", into memory of the host: {"sides": {WAY: [[bytes, seconds, cpu_seconds]]}, "sum"}

The clock runs from the opening of the file to the last element. Before, the library was loaded and has opened the file
once, and the memory for whole arrays was touched.
"""

import contextlib
import ctypes
import importlib
import json
import mmap
import multiprocessing
import os
import random
import resource
import sys
import time

import numpy

shared = None  # memory of all processes of the pool
pool_seconds = 0  # of the processor, by the processes
CHUNKS = 200  # that the pattern "chunk" reads, at random


def places(shape, chunks):
    """Chunks at random, as slices."""
    chance = random.Random(1)
    found = []
    for _ in range(CHUNKS):
        starts = [chance.randrange(-(-n // c)) * c for n, c in zip(shape, chunks)]
        found.append(tuple(slice(s, min(s + c, n)) for s, c, n in zip(starts, chunks, shape)))
    return found


def chunks_of(dataset):
    """Of a dataset that has none, as those of the others."""
    return dataset.chunks or (1, max(dataset.shape[1] // 8, 1), dataset.shape[2])


def read_all(dataset, pattern, into, out):
    """Reads by one thread; into(dataset, out, selection) is the way of the library to read into memory."""
    middle = dataset.shape[2] // 2
    if pattern == "whole":
        into(dataset, out, ())
        return [out]
    if pattern == "frames":
        frame, found = numpy.empty(dataset.shape[1:], dataset.dtype), []
        for i in range(dataset.shape[0]):
            into(dataset, frame, i)
            found.append(frame[0, :8].copy())
        return found
    if pattern == "column":
        return [dataset[:, :, middle]]
    return chunks_read(dataset, places(dataset.shape, chunks_of(dataset)), into)


def chunks_read(dataset, wanted, into):
    """Into the same memory again and again, but at the edges of the dataset."""
    chunk, found = numpy.empty(chunks_of(dataset), dataset.dtype), []
    for place in wanted:
        shape = tuple(part.stop - part.start for part in place)
        out = chunk if chunk.shape == shape else numpy.empty(shape, dataset.dtype)
        into(dataset, out, place)
        found.append(out[0, 0, :8].copy())
    return found


def by_sluice(file, pattern, workers, out):
    import sluice

    with sluice.open_array(file, "u") as array:
        if pattern == "frames":
            return [frame[0, :8].copy() for frame in array.frames()]
        return read_all(array, pattern, lambda a, o, s: a.read_into(o, s), out)


def by_h5py(file, pattern, workers, out):
    h5py = with_plugins()

    with h5py.File(file) as opened:
        return read_all(opened["u"], pattern, directly, out)


def directly(dataset, out, selection):
    dataset.read_direct(out, None if selection == () else numpy.s_[selection])


def work(job):
    """In a process of the pool: frames of a range, into shared memory, or some of their elements."""
    begun = time.process_time()
    found = work_on(*job)
    return time.process_time() - begun, found


def work_on(file, pattern, shape, dtype, part):
    h5py = with_plugins()
    with h5py.File(file) as opened:
        dataset = opened["u"]
        if pattern == "whole":
            out = numpy.ndarray(shape, dtype, shared)
            dataset.read_direct(out, numpy.s_[part[0] : part[1]], numpy.s_[part[0] : part[1]])
            return []
        if pattern == "frames":
            frame = numpy.empty(shape[1:], dtype)
            found = []
            for i in range(*part):
                dataset.read_direct(frame, numpy.s_[i])
                found.append(frame[0, :8].copy())
            return found
        if pattern == "column":
            return [dataset[part[0] : part[1], :, shape[2] // 2]]
        return chunks_read(dataset, places(shape, chunks_of(dataset))[part[0] : part[1]], directly)


def by_pool(file, pattern, workers, out):
    """Processes that are there before the clock starts."""
    shape, dtype, pool = out
    count = CHUNKS if pattern == "chunk" else shape[0]
    step = max(1, min(-(-count // workers), 8))
    jobs = [(file, pattern, shape, dtype, (at, min(at + step, count)))
            for at in range(0, count, step)]
    done = pool.map(work, jobs, chunksize=1)
    global pool_seconds
    pool_seconds = sum(seconds for seconds, _ in done)
    found = [part for _, parts in done for part in parts]
    return [numpy.ndarray(shape, dtype, shared)] if shared else found


def by_zarr(folder, pattern, workers, out):
    import zarr
    from numcodecs import blosc

    with contextlib.suppress(AttributeError):
        blosc.set_nthreads(workers)

    def into(dataset, out, selection):
        out[...] = dataset[...] if selection == () else dataset[selection]

    return read_all(zarr.open(folder, mode="r"), pattern, into, out)


def with_plugins():
    import h5py

    with contextlib.suppress(ImportError):
        import hdf5plugin  # noqa: F401
    return h5py


def opened_once(file):
    with with_plugins().File(file) as opened:
        return opened["u"].shape


class Memory:
    """Memory of a device, or pinned memory, by the calls of the library."""

    def __init__(self, lib, device, size, pinned=False):
        number, address = ctypes.c_int(), ctypes.c_void_p()
        self.lib, self.size = lib, size
        self.checked(lib.sluice_device_find(device.encode(), ctypes.byref(number)))
        make = lib.sluice_pinned_alloc if pinned else lib.sluice_device_alloc
        self.checked(make(number, ctypes.c_size_t(size), ctypes.byref(address)))
        self.number, self.address = number, address.value

    def checked(self, rc):
        if rc < 0:
            self.lib.sluice_last_message.restype = ctypes.c_char_p
            sys.exit(self.lib.sluice_last_message().decode())

    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "strides": None, "version": 3}

    def stream(self):
        made = ctypes.c_void_p()
        self.checked(self.lib.sluice_stream_new(self.number, ctypes.byref(made)))
        return made.value

    def copy(self, to, source):
        self.checked(self.lib.sluice_copy(ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(self.size)))


PASSES, SLOW_PASSES = 15, 2  # of each way into memory of a device, in turn; of HDF5


def into_device(device, file, shape, dtype):
    """Returns bytes, seconds and processor seconds of each pass of each way, and the sum of the elements that each brings."""
    import sluice

    lib, host = ctypes.CDLL(sluice._core.__file__), numpy.zeros(shape, dtype)
    memory, pinned = Memory(lib, device, host.nbytes), Memory(lib, device, host.nbytes, True)
    stream = memory.stream()
    slow = numpy.frombuffer((ctypes.c_char * host.nbytes).from_address(pinned.address), dtype).reshape(shape)

    def by_hdf5():
        with with_plugins().File(file) as opened:
            opened["u"].read_direct(slow)
        memory.copy(memory.address, pinned.address)

    def by_us(read):
        with sluice.open_array(file, "u") as array:
            read(array)

    ways = {"awaited": lambda: by_us(lambda array: array.read_into(memory)),
            "stream": lambda: by_us(lambda array: array.read_on(memory, (), stream).wait()),
            "host": lambda: by_us(lambda array: array.read_into(host)), "H5Dread": by_hdf5}
    try:
        with with_plugins().File(file) as opened:
            opened["u"][0, 0, 0]
    except (ImportError, OSError):  # there is no h5py, or no filter
        del ways["H5Dread"]
    found, total = {way: [] for way in ways}, 0
    for turn in range(PASSES + 1):  # in the first memory is pinned, and what comes is looked at
        for way, read in ways.items():
            if turn > SLOW_PASSES and way == "H5Dread":
                continue
            if not turn:
                host.fill(0)
                memory.copy(memory.address, host.ctypes.data)
            begun, before = time.perf_counter(), cpu_seconds()
            read()
            if turn:
                found[way].append([host.nbytes, time.perf_counter() - begun, cpu_seconds() - before])
                continue
            if way != "host":
                memory.copy(host.ctypes.data, memory.address)
            came = int(host.view("u4").sum(dtype="u8")) % 2**64
            if total not in (0, came):
                sys.exit(f"{way}: other elements came")
            total = came
    return {"sides": found, "sum": total}


SIDES = {"sluice": by_sluice, "h5py": by_h5py, "pool": by_pool, "zarr": by_zarr}


def make_zarr(file, folder, codec):
    import sluice
    import zarr
    from numcodecs import Blosc

    codec = Blosc({"deflate": "zlib"}.get(codec, codec), 1 if codec == "deflate" else 5, Blosc.SHUFFLE)
    with sluice.open_array(file, "u") as array:
        options = {"zarr_format": 2} if int(zarr.__version__.split(".")[0]) > 2 else {}
        made = zarr.open(folder, mode="w", shape=array.shape, chunks=chunks_of(array), dtype=array.dtype, compressor=codec,
                         **options)
        for i, frame in enumerate(array.frames()):
            made[i] = frame


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime + pool_seconds


def decoded(pattern, shape, chunks, item):
    """Bytes that have to be decoded."""
    if pattern == "chunk":
        return sum(int(numpy.prod([part.stop - part.start for part in place])) for place in places(shape, chunks)) * item
    return int(numpy.prod(shape)) * item


def main():
    if len(sys.argv) == 1:
        found = {}
        for name in ("numpy", "sluice", "h5py", "hdf5plugin", "zarr", "numcodecs"):
            try:
                module = importlib.import_module("hdf5plugin" if name == "hdf5plugin" else name)
                found[name] = getattr(module, "__version__", "") or getattr(module, "version", "there")
                if name == "h5py":
                    found["HDF5"] = module.version.hdf5_version
            except Exception as missing:  # of any kind: it is left out by name
                found[name] = f"not: {missing}"
        print(json.dumps(found))
        return
    if sys.argv[1] == "make":
        make_zarr(*sys.argv[3:])
        return
    side, pattern, file, workers = sys.argv[1:]
    shape, dtype, chunks = json.loads(os.environ["BENCH_ARRAY"])
    if side == "device":
        print(json.dumps(into_device(pattern, file, shape, dtype)))
        return
    workers, pool = int(workers), None
    out = numpy.zeros(shape, dtype) if pattern == "whole" and side != "pool" else None
    if out is not None:
        out.fill(1)
    if side == "pool":
        if pattern == "whole":
            global shared
            shared = mmap.mmap(-1, int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize)
            numpy.frombuffer(shared, "u1").fill(1)
        pool = multiprocessing.get_context("fork").Pool(workers, initializer=with_plugins)
        pool.map(opened_once, [file] * workers * 4)
        out = tuple(shape), dtype, pool
    elif side == "sluice":
        import sluice

        sluice.open_array(file, "u").close()
    elif side == "h5py":
        opened_once(file)
    else:
        import zarr

        zarr.open(file, mode="r")
    used, begun = cpu_seconds(), time.perf_counter()
    found = SIDES[side](file, pattern, workers, out)
    seconds, used = time.perf_counter() - begun, cpu_seconds() - used
    if pool:
        pool.close()
        pool.join()
    total = sum(int(numpy.ascontiguousarray(part).view("u4").sum(dtype="u8")) for part in found) % 2**64
    print(json.dumps({"bytes": decoded(pattern, shape, chunks, numpy.dtype(dtype).itemsize), "seconds": seconds,
                      "cpu_seconds": used, "sum": total}))


if __name__ == "__main__":
    main()
