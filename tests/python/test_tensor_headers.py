# SPDX-License-Identifier: Apache-2.0
"""Files of tensors that a stranger has made: their bytes come to where memory was made for them, or an error does.

Memory has guards on both sides. Torch is a stand-in with such memory, so that its types are there without it.
"""
import ctypes
import itertools
import json
import os
import random
import struct
import sys
import types

import numpy
import pytest
import sluice
from sluice import _core, _libraries

BITS = {"BOOL": 8, "U8": 8, "I16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64, "F8_E4M3": 8, "F8_E8M0": 8,
        "F6_E2M3": 6, "F4": 4}
GUARD = 1 << 14
REFUSALS = (ValueError, TypeError, OSError, KeyError, IndexError, RuntimeError)


class Guarded:
    """Bytes between guards."""

    made: list = []

    def __init__(self, n):
        self.whole = numpy.full(n + 2 * GUARD, 0xA5, "u1")
        self.bytes = self.whole[GUARD:GUARD + n]
        self.made.append(self)

    @classmethod
    def check(cls):
        for made in cls.made:
            assert (made.whole[:GUARD] == 0xA5).all() and (made.whole[GUARD + len(made.bytes):] == 0xA5).all()
        cls.made.clear()


class Dtype:
    def __init__(self, itemsize):
        self.itemsize = itemsize


class Tensor:
    """As one of torch, of bytes that lie in numpy's memory."""

    layout, device = "strided", types.SimpleNamespace(type="cpu")

    def __init__(self, raw, dtype, shape):
        self.raw, self.dtype, self.shape = raw, dtype, tuple(shape)
        if self.numel() * dtype.itemsize != len(raw):
            raise RuntimeError("the shape is not that of the memory")

    def numel(self):
        count = 1
        for length in self.shape:
            count *= length
        return count

    def view(self, how):
        if isinstance(how, Dtype):
            return Tensor(self.raw, how, (len(self.raw) // how.itemsize,))
        return Tensor(self.raw, self.dtype, how)

    def __getitem__(self, part):
        return Tensor(self.raw[part], self.dtype, (len(self.raw[part]),))

    def element_size(self):
        return self.dtype.itemsize

    def data_ptr(self):
        return self.raw.ctypes.data

    def detach(self):
        return self

    def is_contiguous(self):
        return True

    def is_conj(self):
        return False

    is_neg = is_conj


def empty(shape, dtype, device):
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    count = dtype.itemsize
    for length in shape:
        count *= length
    return Tensor(Guarded(count).bytes, dtype, shape)


def from_dlpack(capsule):
    """A part of a block, which the capsule keeps."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    data, _, rank, _, bits, _, shape = struct.unpack("QqiBBHQ", ctypes.string_at(pointer(capsule, b"dltensor"), 32))
    memory = (ctypes.c_uint8 * _core.parse_dlpack(capsule)[1]).from_address(data)
    memory.keeper = capsule
    return Tensor(numpy.frombuffer(memory, "u1"), Dtype(bits // 8), (ctypes.c_int64 * rank).from_address(shape))


@pytest.fixture
def torch(monkeypatch):
    """Torch's part that is looked at, and numpy's memory, with guards."""
    made = types.ModuleType("torch")
    made.__dict__.update({name: Dtype(max(BITS.get(kind, 8) // 8, 1)) for kind, name in _libraries.TORCH.items()},
                         Tensor=Tensor, strided="strided", empty=empty, __version__="0",
                         device=lambda *_: types.SimpleNamespace(type="cpu"))
    dlpack = types.SimpleNamespace(to_dlpack=lambda tensor: tensor.raw.__dlpack__(), from_dlpack=from_dlpack)
    made.utils = types.SimpleNamespace(dlpack=dlpack)
    monkeypatch.setitem(sys.modules, "torch", made)

    def numpy_empty(self, kind, shape):
        dtype = self.dtype(kind)
        count = dtype.itemsize
        for length in shape:
            count *= length
        return Guarded(count).bytes.view(dtype).reshape(shape)

    monkeypatch.setattr(_libraries.Numpy, "empty", numpy_empty)
    yield made
    Guarded.made.clear()


def write(path, header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def raw(tensor):
    return tensor.raw.tobytes() if isinstance(tensor, Tensor) else tensor.tobytes()


def cut(data, kind, shape, ranges):
    """The bytes of a slice; None: a run of it does not begin and end at a byte."""
    bits, strides = BITS[kind], []
    for length in reversed(shape):
        strides.insert(0, bits)
        bits *= length
    everything, size = int.from_bytes(data, "little"), BITS[kind]
    found = place = 0
    for at in itertools.product(*(range(*bounds) for bounds in ranges)):
        bit = sum(i * stride for i, stride in zip(at, strides, strict=True))
        found |= (everything >> bit & (1 << size) - 1) << place
        place += size
    return found.to_bytes(-(-place // 8), "little") if place % 8 == 0 else None


def test_a_packed_type_whose_rows_end_in_a_byte_is_refused(torch, tmp_path):
    path = tmp_path / "m.safetensors"
    for shape in ([512, 3], [2, 1], [2, 2, 5], [8, 1, 1]):
        count = numpy.prod(shape) // 2
        write(path, {"a": {"dtype": "F4", "shape": shape, "data_offsets": [0, int(count)]}}, b"\x41" * int(count))
        for allocate in ("blocks", "torch"):
            with pytest.raises(ValueError, match="^'a': F4 .* last dimension is not even"):
                sluice.load(path, framework="pt", allocate=allocate)
        with sluice.safe_open(path, "pt") as f:
            for call in (lambda: f.get_tensor("a"), lambda: f.get_slice("a")[:2], lambda: f.get_slice("a")[1]):
                with pytest.raises((ValueError, OSError)):
                    call()
        Guarded.check()
        with pytest.raises(ValueError, match="last dimension"):
            sluice.load_into({"a": empty((*shape[:-1], shape[-1] // 2), torch.float4_e2m1fn_x2, "cpu")}, path)
        into = bytearray(int(count))
        assert sluice.load_into({"a": into}, path) == ["a"] and into == b"\x41" * int(count)


def test_what_python_hands_over_goes_with_its_length(torch, tmp_path):
    path = tmp_path / "m.safetensors"
    write(path, {"a": {"dtype": "U8", "shape": [3, 5], "data_offsets": [0, 15]}}, bytes(range(15)))
    files = _core.Tensors(sluice._context.default(), [os.fsencode(path)], [])

    def load(length, ranges=None, digests=None):
        memory = Guarded(100)
        _core.Load(files, [(0, ranges, (memory.bytes.ctypes.data, length))], memory, None, digests).wait(-1)
        return memory.bytes[:length].tobytes()

    assert load(15) == bytes(range(15)) and load(4, ((1, 3), (2, 4))) == bytes((7, 8, 12, 13))
    for length, ranges in ((14, None), (16, None), (0, None), (2**64 - 1, None), (3, ((1, 3), (2, 4)))):
        with pytest.raises(ValueError, match="bytes, its destination"):
            load(length, ranges)
    for ranges in ((), ((0, 3),), ((0, 3), (0, 5), (0, 1))):
        with pytest.raises(ValueError, match="'a' has 2 dimensions"):
            load(15, ranges)
    for digests in ([], [None, None]):
        with pytest.raises(ValueError, match="digests are not one for each file"):
            load(15, None, digests)
    with pytest.raises(ValueError, match="32 or 16 bytes, not 5"):
        load(15, None, [b"12345"])
    with pytest.raises(OSError, match="no tensor"):
        _core.Load(files, [(1, None, bytearray(15))], None, None, None)
    for wrong in (5, (5,), (5, -1), (-5, 15), None):
        with pytest.raises((TypeError, OverflowError)):
            _core.Load(files, [(0, None, wrong)], None, None, None)
    with pytest.raises(ValueError, match="null"):
        _core.Tensors(sluice._context.default(), [os.fsencode(path) + b"\0x"], [])
    Guarded.check()


def hostile(rng, header, size):
    """Changes a header as no program would write it."""
    name = rng.choice(list(header))
    row = dict(header[name])
    header[name] = row
    match rng.randrange(8):
        case 0:
            row["dtype"] = rng.choice([*BITS, "F99", "", None, "F6_E3M2"])
        case 1:
            row["shape"] = [*row["shape"], rng.choice([1, 2, 3, 0, -1, 2**63, 2**64, 1.5, None])]
        case 2 if row["shape"]:
            row["shape"] = list(row["shape"])
            row["shape"][rng.randrange(len(row["shape"]))] += rng.choice([-1, 1, 2**32, 2**62])
        case 3:
            row["data_offsets"] = [row["data_offsets"][0] + rng.choice([-1, 1]), row["data_offsets"][1]]
        case 4:
            row["data_offsets"] = [row["data_offsets"][0], row["data_offsets"][1] + rng.choice([-1, 1, 2**63, size])]
        case 5:
            row["data_offsets"] = rng.choice([[0], [0, size], [0, 1, 2], [size, 0], "ab"])
        case 6:
            row["shape"] = [1] * rng.choice([15, 16, 17, 40])
        case _:
            header["other"] = row
    return header


def pick(rng, shape):
    """An index of a slice, its ranges, and its shape."""
    index, ranges = [], []
    for length in shape:
        if length and rng.random() < 0.3:
            at = rng.randrange(length)
            index.append(at)
            ranges.append((at, at + 1))
        else:
            bounds = sorted(rng.randrange(length + 1) for _ in range(2))
            bounds = rng.choice([bounds, [0, length]])
            index.append(slice(*bounds))
            ranges.append(tuple(bounds))
    return tuple(index), ranges


def one_round(rng, path):
    header, data, right = {}, b"", {}
    for i in range(rng.randrange(1, 4)):
        kind = rng.choice(list(BITS))
        shape = [rng.choice([0, 1, 1, 2, 3, 3, 4, 5, 7, 8]) for _ in range(rng.randrange(4))]
        bits = BITS[kind]
        for length in shape:
            bits *= length
        part = rng.randbytes(bits // 8)
        if kind == "BOOL":
            part = bytes(byte & 1 for byte in part)
        header[f"t{i}"] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        right[f"t{i}"] = kind, shape, part
        data += part
    changed = rng.random() < 0.5
    if changed:
        hostile(rng, header, len(data))
    write(path, header, data)

    def attempt(expected, call, *arguments):
        """The bytes are right, unless the header is not; nothing is written elsewhere."""
        try:
            found = call(*arguments)
        except REFUSALS:
            found = None
        Guarded.check()
        if found is not None and not changed:
            assert raw(found) == expected, header
        return found is not None

    def whole(name, framework, allocate):
        return sluice.load(path, framework=framework, allocate=allocate, names=[name])[name]

    def part_of(name, framework, index):
        return sluice.safe_open(path, framework).get_slice(name)[index]

    def into(name, length):
        memory = Guarded(length).bytes
        sluice.load_into({name: memory.data}, path, strict=False)
        return memory

    loaded = 0
    for name, (kind, shape, part) in right.items():
        for framework in ("pt", "np"):
            index, ranges = pick(rng, shape)
            loaded += attempt(cut(part, kind, shape, ranges), part_of, name, framework, index)
            for allocate in ("blocks", "torch"):
                loaded += attempt(part, whole, name, framework, allocate)
        loaded += attempt(part, into, name, len(part) + rng.choice([0, 0, 0, -1, 1]) if part else 0)
    return loaded, changed


def test_headers_at_random(torch, tmp_path):
    seed = int(os.environ.get("SEED", random.randrange(2**32)))
    print("SEED", seed)
    rng = random.Random(seed)
    loaded = [0, 0]
    for _ in range(3000 if os.environ.get("STRESS") else 120):
        found, changed = one_round(rng, tmp_path / "m.safetensors")
        loaded[changed] += found
    assert loaded[0] > 100
