# SPDX-License-Identifier: Apache-2.0
"""Swaps of weights in place, for the rows "swap" of bench/models: each way in a process of its own, which prints a JSON.

usage: bench/swap.py ring|pinned|wake DEVICE MIB ROUNDS

The store has the collections "even" and "odd" of MIB in 400 tensors each. Tensor i has the numbers of BASE, each with some
constant added, so that every byte is compared where it is. With torch, a graph that was captured once sums each tensor.
"""

import concurrent.futures
import ctypes
import importlib.util
import json
import os
import sys
import time

import numpy
import sluice
from sluice import _core

TENSORS = 400


def layout(mib):
    """The length of each tensor of 128 columns, and its names."""
    rows = (mib << 20) // TENSORS // 256
    return rows, [f"layer.{i}.weight" for i in range(TENSORS)]


def base(rows):
    return numpy.random.default_rng(1).integers(-(2**15), 2**15, rows * 128, "i2")


def constant(which, i):
    return i + 1000 * (which == "odd")


def make(store, mib):
    """Make both collections, in memory of the host."""
    rows, names = layout(mib)
    numbers = base(rows)
    for which in ("even", "odd"):
        with sluice.collection(which, {name: ((rows, 128), "float16") for name in names}, framework="np", store=store) as made:

            def fill(i, name):
                numpy.add(numbers, constant(which, i), out=made[name].view("i2").reshape(-1))

            with concurrent.futures.ThreadPoolExecutor(min(16, os.cpu_count())) as pool:
                list(pool.map(fill, range(TENSORS), names))
            made.seal()


class Torch:
    framework = None

    def __init__(self, device, rows):
        import torch

        self.torch, self.device, self.rows = torch, device, rows
        self.base = torch.from_numpy(base(rows)).to(device)
        self.out = self.graph = None

    def state(self, names):
        return {name: self.torch.zeros((self.rows, 128), dtype=self.torch.float16, device=self.device) for name in names}

    def sums(self, tensors):
        return self.torch.stack([tensor.view(self.torch.int16).sum(dtype=self.torch.int64) for tensor in tensors])

    def capture(self, state):
        self.sums(state.values())
        self.torch.cuda.synchronize()
        self.graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(self.graph):
            self.out = self.sums(state.values())

    def check(self, state, which):
        """Every byte, and the outputs of the graph."""
        wanted = []
        for i, tensor in enumerate(state.values()):
            numbers = self.base + constant(which, i)
            assert self.torch.equal(tensor.view(self.torch.int16).reshape(-1), numbers), (which, i)
            wanted.append(numbers.sum(dtype=self.torch.int64))
        self.graph.replay()
        assert self.torch.equal(self.out, self.torch.stack(wanted)), (which, "graph")

    def synchronize(self):
        self.torch.cuda.synchronize()


class Block:
    """Memory of a device without torch."""

    def __init__(self, address, n):
        self.__cuda_array_interface__ = {"shape": (n,), "typestr": "|u1", "data": (address, False), "version": 3}


class Plain:
    """Stands in for torch, on a device of any kind; has no graphs."""

    framework, graph = "dlpack", None

    def __init__(self, device, rows):
        self.C, self.rows, self.base = ctypes.CDLL(_core.__file__), rows, base(rows)
        self.number = ctypes.c_int()
        assert not self.C.sluice_device_find(device.encode(), ctypes.byref(self.number))

    def state(self, names):
        found, address = {}, ctypes.c_void_p()
        for name in names:
            assert not self.C.sluice_device_alloc(self.number, ctypes.c_size_t(256 * self.rows), ctypes.byref(address))
            found[name] = Block(address.value, 256 * self.rows)
        return found

    def capture(self, state):
        pass

    def check(self, state, which):
        out = numpy.empty(self.rows * 128, "i2")
        for i, array in enumerate(state.values()):
            source = array.__cuda_array_interface__["data"][0]
            assert not self.C.sluice_copy(ctypes.c_void_p(out.ctypes.data), ctypes.c_void_p(source), ctypes.c_size_t(out.nbytes))
            assert (out == self.base + numpy.int16(constant(which, i))).all(), (which, i)

    def synchronize(self):
        pass


def timed(call):
    begun, worked = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - begun, time.process_time() - worked


def swap(platform, names, rounds, pin):
    state = platform.state(names)
    platform.capture(state)
    platform.synchronize()
    taken = []
    for i in range(rounds + (2 if pin else 1)):  # pinned, the first two register
        which = ("odd", "even")[i % 2]
        taken.append(timed(lambda: sluice.load_into(state, "store://" + which, pin=pin)))
        platform.check(state, which)
    first = 2 if pin else 1
    told = {"first": taken[0], "swaps": taken[first:], "graph": platform.graph is not None}
    if platform.graph is not None:
        told["on a stream"] = []
        for which in ("even", "odd"):
            stream = platform.torch.cuda.Stream()

            def on():
                sluice.load_into(state, "store://" + which, pin=pin, stream=stream)
                stream.synchronize()

            told["on a stream"].append(timed(on))
            platform.check(state, which)
    if pin:
        told["pinned"] = [found._asdict() for found in sluice.pinned()]
        begun = time.perf_counter()
        sluice.unpin()
        told["unpin"] = time.perf_counter() - begun
    return told


def wake(platform, device, names, rounds):
    def publish(which):
        return sluice.publish("awake", "store://" + which, device, replace=True, framework=platform.framework)

    publish("even").close()
    current = sluice.attach("awake", framework=platform.framework)
    state = dict(current)
    platform.capture(state)
    platform.check(state, "even")
    platform.synchronize()
    taken, keeps = [], []
    for i in range(rounds):
        which = ("odd", "even")[i % 2]
        keeps.append(timed(lambda: current.close(keep=True)))
        made = []

        def again():
            made.append(publish(which))
            made.append(sluice.attach("awake", framework=platform.framework, at=current))

        taken.append(timed(again))
        made[0].close()
        current = made[1]
        platform.check(state, which)
        platform.synchronize()
    return {"wakes": taken, "keeps": keeps, "graph": platform.graph is not None}


def main():
    way, device, mib, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rows, names = layout(mib)
    torch = device.startswith("cuda") and importlib.util.find_spec("torch")
    platform = (Torch if torch else Plain)(device, rows)
    told = wake(platform, device, names, rounds) if way == "wake" else swap(platform, names, rounds, way == "pinned")
    print(json.dumps({"bytes": TENSORS * rows * 256, **told}))


if __name__ == "__main__":
    main()
