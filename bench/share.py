# SPDX-License-Identifier: Apache-2.0
"""An array goes to another process of this machine, by ways of Python to share memory: `bench/python --rows store`."""

import importlib.util
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
from multiprocessing import shared_memory

import numpy
import sluice

SIZES = [("1 B", 1, 1000), ("4 KiB", 4096, 1000), ("1 MiB", 1 << 20, 200), ("256 MiB", 256 << 20, 8)]


class Sluice:
    """By the store; the pipe has a number."""

    name = "sluice, put + get"

    def __init__(self, path):
        self.store = sluice.Store(path)

    def put(self, pipe, array):
        self.kept = self.store.put("array", array, replace=True, transient=True)
        pipe.send(0)

    def take(self, pipe):
        pipe.recv()
        return self.store.get("array").numpy()

    def end(self):
        pass


class SluiceFilled(Sluice):
    """The same, filled in place by numpy."""

    name = "sluice, create + seal + get"

    def put(self, pipe, array):
        with self.store.create("array", array.shape, array.dtype, replace=True) as blob:
            blob.numpy()[:] = array
        pipe.send(0)


class Shared:
    """By multiprocessing.shared_memory; the pipe has the name."""

    name = "multiprocessing.shared_memory"

    def __init__(self, path):
        self.memory = None

    def put(self, pipe, array):
        self.memory = shared_memory.SharedMemory(create=True, size=array.nbytes)
        numpy.frombuffer(self.memory.buf, array.dtype)[: array.size] = array
        pipe.send((self.memory.name, array.size))

    def take(self, pipe):
        name, size = pipe.recv()
        self.memory = shared_memory.SharedMemory(name)
        return numpy.frombuffer(self.memory.buf, "u1")[:size]

    def end(self):
        self.memory.close()
        if self.memory._name and multiprocessing.parent_process() is None:
            self.memory.unlink()


class Torch:
    """By torch.multiprocessing: the pipe has the tensor, made in shared memory as a DataLoader does."""

    name = "torch.multiprocessing"

    def __init__(self, path):
        import torch
        import torch.multiprocessing  # noqa: F401

        self.torch = torch

    def put(self, pipe, array):
        storage = self.torch.UntypedStorage._new_shared(array.nbytes)
        self.tensor = self.torch.empty(0, dtype=self.torch.uint8).set_(storage)
        self.tensor.copy_(self.torch.from_numpy(array))
        pipe.send(self.tensor)

    def take(self, pipe):
        return pipe.recv()

    def end(self):
        self.tensor = None


def consume(way, path, pipe):
    made = way(path)
    pipe.send("ready")
    while pipe.poll(None):
        array = made.take(pipe)
        ends = int(array[0]), int(array[-1])
        del array
        made.end()
        pipe.send(ends)


def seconds(way, path, array, count):
    """Seconds from the start of a put until the other process has read both ends of the array."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=consume, args=(way, path, theirs), daemon=True)
    child.start()
    made = way(path)
    assert ours.recv() == "ready"
    for n in (min(count, 3), count):
        begun = time.perf_counter()
        for _ in range(n):
            made.put(ours, array)
            assert ours.recv() == (array[0], array[-1])
            made.end()
        found = (time.perf_counter() - begun) / n
    child.terminate()
    child.join()
    return found


def measure(root, quick):
    """Returns a table: the median of five rounds."""
    ways = [Sluice, SluiceFilled, Shared] + [Torch] * bool(importlib.util.find_spec("torch"))
    rows = {way.name: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "socket")
        daemon = subprocess.Popen([os.path.join(root, "build", "sluiced"), "--socket", path, "--memory", "2G"],
                                  stderr=subprocess.DEVNULL)
        try:
            while not os.path.exists(path) and daemon.poll() is None:
                time.sleep(0.01)
            for _, size, count in SIZES:
                array = numpy.resize(numpy.arange(7, 250, dtype="u1"), size)
                rounds = [[seconds(way, path, array, max(count // (10 if quick else 1), 2)) for way in ways]
                          for _ in range(1 if quick else 5)]
                for way, times in zip(ways, zip(*rounds, strict=True), strict=True):
                    rows[way.name].append(statistics.median(times) * 1e6)
        finally:
            daemon.terminate()
            daemon.wait()
    lines = [f"| us from put to read | {' | '.join(name for name, _, _ in SIZES)} |", "|---|" + "--:|" * len(SIZES)]
    return "\n".join(lines + [f"| {name} | {' | '.join(f'{t:.0f}' for t in times)} |" for name, times in rows.items()])
