# SPDX-License-Identifier: Apache-2.0
"""Slices for ranks, for the rows "slices" of bench/models: all ranks of a process, and one rank of several, beside whole loads.

The file has layers of matrices of 16 bits, of 4,096 x 4,096 and 4,096 x 14,336 from 1 GiB on: half of the bytes are divided along
their columns. Every byte of every way is compared in its first round, which is not timed, with what numpy finds in the file.
"""

import ctypes
import fnmatch
import importlib.util
import json
import statistics
import struct
import time

import numpy
import sluice
import swap

ROWS, COLUMNS = {"*_proj.weight": 0}, {"*_proj.weight": 1}
BOTH = {"*.o_proj.weight": 1, "*.down_proj.weight": 1, **ROWS}
NAMES = {"whole": {}, "rows": ROWS, "rows and columns": BOTH, "columns": COLUMNS}
HEADER = struct.Struct("<Q")


def shapes(mib):
    """The names and shapes of about so many MiB."""
    hidden = 4096 if mib >= 1024 else 256
    inner = hidden * 7 // 2
    layer = {"self_attn.q_proj.weight": (hidden, hidden), "self_attn.o_proj.weight": (hidden, hidden),
             "mlp.up_proj.weight": (inner, hidden), "mlp.down_proj.weight": (hidden, inner), "norm.weight": (hidden,)}
    layers = max(1, (mib << 20) // (18 * hidden * hidden))
    return {f"model.layers.{i}.{name}": shape for i in range(layers) for name, shape in layer.items()}


def write(path, mib):
    """Make the file, and return its arrays."""
    header, at = {}, 0
    for name, shape in shapes(mib).items():
        end = at + 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = numpy.random.default_rng(1).integers(0, 1 << 64, 1 << 21, "u8")
    with open(path, "wb") as file:
        file.write(HEADER.pack(len(text)) + text)
        for start in range(0, at, block.nbytes):
            file.write((block + numpy.uint64(start)).tobytes()[:at - start])
    data = numpy.memmap(path, "i2", "r", HEADER.size + len(text))
    return {name: data[begin // 2:end // 2].reshape(entry["shape"])
            for name, entry in header.items() for begin, end in [entry["data_offsets"]]}


def index(name, slices, rank, ranks, length):
    """The slice of a rank, for an array or for get_slice()."""
    dimension = next((number for pattern, number in slices.items() if fnmatch.fnmatchcase(name, pattern)), None)
    if dimension is None:
        return (slice(None),)
    n = length[dimension]
    return (slice(None),) * dimension + (slice(n * rank // ranks, n * (rank + 1) // ranks),)


class Host:
    """Arrays of numpy; and what the platforms have in common."""

    framework = "np"

    def __init__(self, devices, arrays):
        self.expected = dict.fromkeys(devices, arrays)

    def load(self, path, given, slices, ranks):
        """Our load for ranks of so many, which the mapping has with their devices: the tensors of each."""
        if len(given) > 1:
            return sluice.load(path, given, framework=self.framework, slices=slices, even=True, ranks=ranks)
        (rank, device), = given.items()
        return {rank: sluice.load(path, device, framework=self.framework, slices=slices, even=True, rank=rank, ranks=ranks)}

    def get_slices(self, path, given, slices, ranks):
        """The same by safetensors, rank by rank."""
        from safetensors import safe_open

        found = {}
        for rank, device in given.items():
            with safe_open(path, self.framework or "pt", device) as file:
                opened = {name: file.get_slice(name) for name in file.keys()}
                found[rank] = {name: one[index(name, slices, rank, ranks, one.get_shape())] for name, one in opened.items()}
        return found

    def wanted(self, device, slices, rank, ranks):
        return {name: array[index(name, slices, rank, ranks, array.shape)] for name, array in self.expected[device].items()}

    def same(self, found, wanted):
        return found.shape == wanted.shape and bool((numpy.ascontiguousarray(found).view("i2") == wanted).all())

    def synchronize(self):
        pass


class Torch(Host):
    framework = None

    def __init__(self, devices, arrays):
        import torch

        self.torch = torch
        self.expected = {device: {name: torch.from_numpy(numpy.array(array)).to(device) for name, array in arrays.items()}
                         for device in devices}

    def same(self, found, wanted):
        return found.shape == wanted.shape and self.torch.equal(found.contiguous().view(self.torch.int16), wanted)

    def synchronize(self):
        for device in self.expected:
            self.torch.cuda.synchronize(device)


class Memory(swap.Block):
    """Memory of a device without torch, until it is not used any more."""

    C = ctypes.CDLL(sluice._core.__file__)

    def __init__(self, device, n):
        number, self.address, self.n = ctypes.c_int(), ctypes.c_void_p(), n
        assert not self.C.sluice_device_find(device.encode(), ctypes.byref(number))
        assert not self.C.sluice_device_alloc(number, ctypes.c_size_t(n), ctypes.byref(self.address))
        super().__init__(self.address.value, n)

    def __del__(self):
        self.C.sluice_device_free(self.address)


class Plain(Host):
    """Stands in for torch, on a device of any kind."""

    def load(self, path, given, slices, ranks):
        into = {rank: {name: Memory(device, array.nbytes) for name, array in self.wanted(device, slices, rank, ranks).items()}
                for rank, device in given.items()}
        (rank, tensors), *others = into.items()
        if others:
            sluice.load_into(into, path, slices=slices, even=True, ranks=ranks)
        else:
            sluice.load_into(tensors, path, slices=slices, even=True, rank=rank, ranks=ranks)
        return into

    get_slices = None

    def same(self, found, wanted):
        out = numpy.empty(wanted.shape, wanted.dtype)
        assert not Memory.C.sluice_copy(ctypes.c_void_p(out.ctypes.data), found.address, ctypes.c_size_t(out.nbytes))
        return found.n == wanted.nbytes and bool((out == wanted).all())


def bytes_read():
    """That this process has read by calls, and not by a mapping or by io_uring."""
    with open("/proc/self/io", encoding="ascii") as file:
        return int(file.readline().split()[1])


def ways(devices):
    """Yields (name, call, ranks with their devices, slices, number of ranks)."""
    first, several = devices[0], dict(enumerate(devices))
    count = len(several)
    yield "the whole into one", "load", {0: first}, {}, 1
    yield f"the whole into each of {count}", "load", several, {}, count
    for kind in ("rows", "rows and columns", "columns"):
        yield f"{count} ranks: {kind}", "load", several, NAMES[kind], count
    twice = {rank: devices[rank % count] for rank in range(2 * count)}
    yield f"{2 * count} ranks: rows and columns", "load", twice, BOTH, 2 * count
    yield f"{count} ranks: rows and columns, get_slice", "get_slices", several, BOTH, count
    for ranks in (4, 8):
        for kind in ("rows", "rows and columns", "columns"):
            yield f"rank 1 of {ranks}: {kind}", "load", {1: first}, NAMES[kind], ranks
        yield f"rank 1 of {ranks}: rows and columns, get_slice", "get_slices", {1: first}, BOTH, ranks


def devices_of(name):
    """All devices of the kind, or the host twice."""
    if name == "cpu":
        return ["cpu", "cpu"]
    kind, number = name.split(":")[0], ctypes.c_int()
    found = [f"{kind}:{i}" for i in range(16)]
    return [one for one in found if not Memory.C.sluice_device_find(one.encode(), ctypes.byref(number))]


def rows(path, device, mib, rounds, row):
    """Measures each way in turn, and calls row(name, seconds, CPU seconds, bytes, text); GB/s are of the bytes that the ranks get."""
    arrays, devices = write(path, mib), devices_of(device)
    torch = device.startswith("cuda") and importlib.util.find_spec("torch")
    platform = (Torch if torch else Host if device == "cpu" else Plain)(devices, arrays)
    peer = importlib.util.find_spec("safetensors") and platform.get_slices
    if not peer:
        print("slices: left out: get_slice, which needs safetensors" + (" and torch" if device != "cpu" else ""))
    taken = {}
    for i in range(rounds + 1):
        for name, call, given, slices, ranks in ways(devices):
            if call == "get_slices" and not peer:
                continue
            platform.synchronize()
            before, begun, worked = bytes_read(), time.perf_counter(), time.process_time()
            found = getattr(platform, call)(path, given, slices, ranks)
            platform.synchronize()
            seconds, worked, read = time.perf_counter() - begun, time.process_time() - worked, bytes_read() - before
            wanted = {rank: platform.wanted(where, slices, rank, ranks) for rank, where in given.items()}
            if i:
                size = sum(array.nbytes for some in wanted.values() for array in some.values())
                taken.setdefault(name, []).append((seconds, worked, size, read))
                del found
                continue
            for rank, some in wanted.items():
                assert found[rank].keys() == some.keys()
                for key, array in some.items():
                    assert platform.same(found[rank][key], array), (name, rank, key)
            del found
    whole = sum(array.nbytes for array in arrays.values())
    for name, samples in taken.items():
        seconds, worked, size, read = (statistics.median(of) for of in zip(*samples, strict=True))
        row(f"slices, {name}", seconds, worked, size, f"read {read / whole:6.3f} of the file" if read * 10 > size else "mapped")
    print(f"slices: {len(arrays)} tensors, {whole / 1e9:.2f} GB, {', '.join(devices)}: every byte is right")
