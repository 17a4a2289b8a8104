# SPDX-License-Identifier: Apache-2.0
"""Small tensors in blocks: what _core.divide_dlpack() makes, and load(allocate="blocks")."""

import ctypes
import gc
import io
import random
import threading
import weakref

import numpy
import pytest
import sluice
from sluice import _blocks, _core
from test_tensors import write

U8, F4 = (1, 8), (2, 32)


class Whole(numpy.ndarray):
    """An array that weak references see go."""


class Part:
    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


def divided(whole, rows):
    return [numpy.from_dlpack(Part(capsule)) for capsule in _core.divide_dlpack(whole.__dlpack__(), rows)]


def whole(size):
    return numpy.random.default_rng(size).integers(0, 256, size, "u1").view(Whole)


def test_parts_have_their_bytes_and_the_whole_goes_with_the_last():
    memory = whole(4096)
    copy, seen = memory.tobytes(), weakref.ref(memory)
    parts = divided(memory, [(0, *U8, (7,)), (256, *F4, (2, 3)), (512, *F4, ()), (4096, *U8, (0, 2))])
    del memory
    assert [part.shape for part in parts] == [(7,), (2, 3), (), (0, 2)]
    assert [part.tobytes() for part in parts] == [copy[:7], copy[256:280], copy[512:516], b""]
    order = random.sample(range(len(parts)), len(parts))
    for number in order:
        assert seen() is not None
        parts[number] = None
    gc.collect()
    assert seen() is None


def test_parts_that_nobody_takes_or_that_are_refused_leave_nothing():
    good = (0, *U8, (7,))
    for bad in ((4090, *U8, (7,)), (5000, *U8, (0,)), (0, *F4, (1 << 62, 4)), (0, *U8, (-1,)), (0, *U8, [7]), (0, 1, 8),
                (1 << 64, *U8, (1,)), (0, *U8, (1,) * 100), None):
        memory = whole(4096)
        seen = weakref.ref(memory)
        with pytest.raises((ValueError, TypeError, BufferError, OverflowError)):
            _core.divide_dlpack(memory.__dlpack__(), [good, bad])
        capsules = _core.divide_dlpack(memory.__dlpack__(), [good, good])
        del memory
        assert seen() is not None
        del capsules
        gc.collect()
        assert seen() is None, bad
    for array in (numpy.zeros((2, 2), "u1"), numpy.zeros(4, "f4"), numpy.zeros(8, "u1")[::2]):
        with pytest.raises((ValueError, BufferError)):
            _core.divide_dlpack(array.__dlpack__(), [good])
    nothing = whole(8).__dlpack__()
    of = ctypes.pythonapi.PyCapsule_GetPointer
    of.restype, of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    ctypes.c_void_p.from_address(of(nothing, b"dltensor")).value = None  # as torch's FakeTensor has it
    with pytest.raises(ValueError, match="has no memory"):
        _core.divide_dlpack(nothing, [good])
    taken = numpy.zeros(8, "u1").__dlpack__()
    numpy.from_dlpack(Part(taken))
    for capsule in (taken, None, 3):
        with pytest.raises(ValueError):
            _core.divide_dlpack(capsule, [good])


def test_many_threads_drop_the_parts_of_a_block():
    for _ in range(20):
        memory = whole(4096)
        seen = weakref.ref(memory)
        parts = divided(memory, [(i, *U8, (1,)) for i in range(400)])
        del memory
        threads = [threading.Thread(target=part.clear) for part in (parts[i::4] for i in range(4))]
        parts = None
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        del thread, threads
        gc.collect()
        assert seen() is None


def test_names_are_divided_among_blocks():
    edges = [0, 1, _blocks.SMALL - 1, _blocks.SMALL, _blocks.SMALL + 1]
    sizes = edges + [random.randrange(0, 2 * _blocks.SMALL) for _ in range(500)]
    entries = {str(i): (i, "U8", (size,), 0, 0, size) for i, size in enumerate(sizes)}
    blocks = list(_blocks.divided(list(entries), entries))
    small = [name for name, entry in entries.items() if 0 < entry[5] < _blocks.SMALL]
    assert [name for names, _ in blocks for name in names] == small
    for names, size in blocks:
        assert size == sum(-(-entries[name][5] // _blocks.ALIGNED) * _blocks.ALIGNED for name in names) <= _blocks.BLOCK
    assert all(size > _blocks.BLOCK - _blocks.SMALL for _, size in blocks[:-1])


@pytest.fixture
def loaded(tmp_path):
    """Tensors of torch, their shapes and their bytes; more than a block of them."""
    torch = pytest.importorskip("torch")
    kinds = ("F32", "BF16", "I64", "BOOL", "U8", "F64", "F16", "F8_E4M3", "C64")
    shapes = {f"t{i:03}": (kinds[i % len(kinds)], (i % 7 + 1, 5 * i + 1)) for i in range(400)}
    shapes |= {f"m{i}": ("U8", (700000 + i,)) for i in range(40)}
    shapes |= {"scalar": ("F32", ()), "empty": ("I32", (0, 5)), "large": ("F32", (1100, 300))}
    data = write(tmp_path / "m.safetensors", shapes)
    return torch, sluice.load(tmp_path / "m.safetensors", framework="pt"), shapes, data


def raw(torch, tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def test_each_small_tensor_has_a_storage_of_its_own_length(loaded):
    torch, tensors, shapes, data = loaded
    assert list(tensors) == list(shapes)
    for name, tensor in tensors.items():
        assert tuple(tensor.shape) == tuple(shapes[name][1]) and raw(torch, tensor) == data[name]
        assert tensor.untyped_storage().nbytes() == len(data[name]) and tensor.is_contiguous()
    places = sorted((tensors[name].data_ptr(), len(data[name])) for name in tensors if data[name])
    assert all(a + n <= b for (a, n), (b, _) in zip(places, places[1:], strict=False))
    blocks = sum(b - a - n >= 4096 for (a, n), (b, _) in zip(places, places[1:], strict=False))
    assert blocks < 10, "they lie together"
    stored = io.BytesIO()
    torch.save(tensors["t007"], stored)
    assert len(stored.getvalue()) < 10000
    tensors["t007"].zero_()
    assert raw(torch, tensors["t008"]) == data["t008"]


def test_all_small_tensors_are_saved_with_save_file(loaded, tmp_path):
    torch, tensors, _, data = loaded
    of_torch = pytest.importorskip("safetensors.torch")
    of_torch.save_file(tensors, tmp_path / "again.safetensors")
    again = of_torch.load_file(tmp_path / "again.safetensors")
    assert {name: raw(torch, tensor) for name, tensor in again.items()} == data


def test_a_tensor_outlives_the_others_of_its_block(loaded):
    torch, tensors, _, data = loaded
    kept = tensors["t123"]
    tensors.clear()
    gc.collect()
    more = [torch.full((1 << 20,), 7, dtype=torch.uint8) for _ in range(64)]
    assert raw(torch, kept) == data["t123"] and len(more) == 64
