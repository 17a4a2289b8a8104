# SPDX-License-Identifier: Apache-2.0
"""The kinds of memory that calls take."""
import array
import contextlib
import ctypes
import mmap

import numpy
import pytest
import sluice
from conftest import pattern
from sluice import _core


def test_all_that_has_the_buffer_protocol(path):
    with sluice.open(path) as f:
        for buffer in (bytearray(8), array.array("d", [0.0]), numpy.zeros((2, 2), "f2"), mmap.mmap(-1, 8),
                       memoryview(bytearray(16))[4:12], (ctypes.c_char * 8)(), numpy.zeros(8, "i1").reshape(2, 4)):
            assert f.read_into(buffer, 3) == 8
            assert bytes(memoryview(buffer).cast("B")) == pattern(11)[3:]
        assert f.read_into(numpy.zeros(0)) == 0
        assert f.read_into(numpy.zeros((), "u4")) == 4


def test_arrays_of_objects_are_refused(path, tmp_path):
    objects = numpy.array([path, None, 3])
    kinds = [objects, memoryview(objects), (ctypes.py_object * 2)(1, 2), numpy.zeros(2, [("i", "i4"), ("o", "O")]),
             numpy.zeros(2, [("time", "M8[s]"), ("o", "O")]), numpy.zeros((2, 2), [("a", [("b", "O", 2)])])]
    with sluice.open(path, "r+") as f:
        for buffer in kinds:
            for call in (f.read_into, f.read_into_async, f.write, f.write_async, lambda b: f.readv([(b, 0)])):
                with pytest.raises(TypeError, match="Python objects"):
                    call(buffer)
        assert objects[0] is path and f.read(100_000) == pattern(100_000)
        for buffer in (numpy.zeros(2, "M8[s]"), numpy.zeros(2, [("Offset", "i4"), ("Other", "M8[s]")]),
                       numpy.zeros(4, "S4"), numpy.zeros(3, "U1"), numpy.zeros(1, "c16"), numpy.zeros(1, "V9")):
            assert f.read_into(buffer, 3) == buffer.nbytes and buffer.tobytes() == pattern(100)[3:3 + buffer.nbytes]


def test_memory_of_a_device(path, device_array, tmp_path):
    with sluice.open(path) as f:
        whole = device_array(50_000)
        assert f.read_into(whole, 7) == 50_000 and whole.get() == pattern(100_000)[7:50_007]
        parts = [device_array(1000) for _ in range(8)]
        assert f.readv([(part, i * 900) for i, part in enumerate(parts)]) == 8000
        assert all(part.get() == pattern(100_000)[i * 900:i * 900 + 1000] for i, part in enumerate(parts))
        with pytest.raises(BufferError, match="read-only"):
            f.read_into(device_array(10, read_only=True))
        with pytest.raises(BufferError, match="contiguous"):
            f.read_into(device_array(10, strides=(2,)))
        assert f.read_into(device_array(10, strides=(1,))) == 10
        negative = device_array(10)
        negative.n = -1
        with pytest.raises(OverflowError):
            f.read_into(negative)
    with sluice.open(tmp_path / "out", "w") as f:
        assert f.write(whole) == 50_000
    assert (tmp_path / "out").read_bytes() == pattern(100_000)[7:50_007]


class Both(numpy.ndarray):
    """An array that refuses the buffer protocol, as one of cupy."""

    @property
    def __cuda_array_interface__(self):
        return self.memory.__cuda_array_interface__


def test_memory_of_a_device_whose_array_refuses_the_buffer_protocol(path, device_array):
    array = numpy.zeros((4, 4))[:, 1].view(Both)
    array.memory = device_array(1000)
    with sluice.open(path) as f:
        assert f.read_into(array, 3) == 1000 and array.memory.get() == pattern(1003)[3:]


class Exchanged:
    """An array that is known by DLPack alone."""

    def __init__(self, base, old=False):
        self.base, self.old = base, old

    def __dlpack__(self, **options):
        if self.old and options:
            raise TypeError("max_version is of a later version")
        return self.base.__dlpack__()

    def __dlpack_device__(self):
        return self.base.__dlpack_device__()


def test_arrays_by_dlpack(path):
    with sluice.open(path) as f:
        for old in (False, True):
            base = numpy.zeros((5, 8), "u2")
            assert f.read_into(Exchanged(base, old), 9) == 80 and base.tobytes() == pattern(89)[9:]
            with pytest.raises(BufferError, match="contiguous"):
                f.read_into(Exchanged(numpy.zeros((4, 4))[:, :2], old))


class Refuses(mmap.mmap):
    """An array that refuses the buffer protocol in every form, as one of JAX whose numbers are bf16."""

    def __dlpack__(self, **options):
        return self.base.__dlpack__()


def test_arrays_that_refuse_the_buffer_protocol_are_sources_by_dlpack(path, tmp_path):
    array = Refuses(-1, 1)
    array.close()
    array.base = numpy.arange(100, dtype="u1")
    with sluice.open(tmp_path / "out", "w") as f:
        assert f.write(array) == 100
    assert (tmp_path / "out").read_bytes() == bytes(range(100))
    with sluice.open(path) as f, pytest.raises(BufferError, match="mmap"):
        f.read_into(array)
    with sluice.open(tmp_path / "out", "w") as f:
        with pytest.raises(BufferError, match="contiguous"):
            f.write(numpy.zeros((4, 4))[:, 1])
        f.discard()


class Torch:
    """The part of torch that is looked at."""

    strided = "torch.strided"

    class Tensor:
        layout, contiguous, kind = "torch.strided", True, "cpu"

        def __init__(self, base):
            self.base = base

        device = property(lambda self: type("device", (), {"type": self.kind}))

        def detach(self):
            return self

        def is_contiguous(self):
            return self.contiguous

        def is_conj(self):
            return False

        is_neg = is_conj

        def data_ptr(self):
            return self.base.ctypes.data

        def numel(self):
            return self.base.size

        def element_size(self):
            return self.base.itemsize


def test_tensors_of_torch_by_their_type(path, monkeypatch):
    try:
        import torch
    except ImportError:
        torch = None
    with sluice.open(path) as f:
        if torch:
            for kind in (torch.bfloat16, torch.float32, torch.float8_e4m3fn):
                tensor = torch.zeros(16, dtype=kind)
                assert f.read_into(tensor, 5) == 16 * tensor.element_size()
                assert bytes(tensor.view(torch.uint8).numpy()) == pattern(200)[5:5 + 16 * tensor.element_size()]
            weight = torch.nn.Parameter(torch.zeros(4))
            assert f.read_into(weight) == 16 and bytes(weight.detach().view(torch.uint8).numpy()) == pattern(16)
            with pytest.raises(BufferError, match="contiguous"):
                f.read_into(torch.zeros(4, 4).t())
            with pytest.raises(BufferError):
                f.read_into(torch.zeros(4).to_sparse())
            return
        monkeypatch.setitem(__import__("sys").modules, "torch", Torch)
        tensor = Torch.Tensor(numpy.zeros(16, "f4"))
        assert f.read_into(tensor, 5) == 64 and tensor.base.tobytes() == pattern(69)[5:]
        tensor.contiguous = False
        with pytest.raises(BufferError, match="contiguous"):
            f.read_into(tensor)
        tensor.contiguous, tensor.kind = True, "meta"
        with pytest.raises(BufferError, match="no memory"):
            f.read_into(tensor)


def test_objects_that_were_not_made_refuse_each_call():
    arguments = [(), (1,), (None,), (b"x",), (1, 2), (b"x", 0), ("a", 1), (1, b"12345678"), ("x", 1, 3, b"abc", [])]
    for kind in [kind for kind in vars(_core).values() if isinstance(kind, type) and kind is not _core.Frame]:
        unmade = kind.__new__(kind)
        calls = [getattr(unmade, name) for name in dir(kind) if callable(getattr(kind, name)) and name[:2] != "__"]
        for call in [*calls, kind, memoryview]:
            for given in arguments:
                with contextlib.suppress(BufferError, OSError, OverflowError, TypeError, ValueError):
                    call(*given)
