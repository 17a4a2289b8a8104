# SPDX-License-Identifier: Apache-2.0
"""Transfers in stream order, on the emulated device."""
import pytest
import sluice
from conftest import copy_on, pattern


class OfCuda:
    def __init__(self, number):
        self.number = number

    def __cuda_stream__(self):
        return 0, self.number


def test_work_behind_a_read_sees_its_bytes(path, stream, device_array, tmp_path):
    loaded, copied = device_array(50_000), device_array(50_000)
    with sluice.open(path) as f, sluice.open(tmp_path / "out", "w") as out:
        for start in (0, 100, 50_000):
            read = f.read_on(loaded, start, stream)
            copy_on(copied, loaded, stream)
            written = out.write_on(copied, start, stream=OfCuda(stream))
        assert read.wait(60) == 50_000 and written.wait(60) == 50_000
    assert (tmp_path / "out").read_bytes() == pattern(100_000)


def test_an_array_that_is_dropped_lives_until_the_stream_has_passed(path, stream, device_array):
    with sluice.open(path) as f:
        for i in range(50):
            f.read_on(device_array(1000), i, stream)
        assert f.read_on(device_array(1000), 5, stream).wait(60) == 1000


def test_wrong_streams_are_refused(path, stream, device_array):
    with sluice.open(path) as f:
        array = device_array(10)
        for wrong in ("one", None, 1.5):
            with pytest.raises(TypeError, match="stream is needed"):
                f.read_on(array, 0, wrong)
        with pytest.raises(BufferError, match="read-only"):
            f.read_on(device_array(10, read_only=True), 0, stream)
        with pytest.raises(OSError):
            f.read_on(array, 99_995, stream).wait(60)
        with pytest.raises(OSError, match="not opened for writing"):
            f.write_on(array, 0, stream)


class Torch:
    """The part of torch that is asked for streams."""

    strided = "strided"

    class Tensor:
        layout = "strided"

        def __init__(self, array):
            self.array, self.recorded = array, []
            self.device = type("device", (), {"type": "cuda"})

        def detach(self):
            return self

        def is_contiguous(self):
            return True

        def is_conj(self):
            return False

        is_neg = is_conj

        def data_ptr(self):
            return self.array.address

        def numel(self):
            return self.array.n

        def element_size(self):
            return 1

        def record_stream(self, stream):
            self.recorded.append(stream)

    class cuda:
        class Stream:
            def __init__(self, number):
                self.cuda_stream = number

        class ExternalStream(Stream):
            def __init__(self, number, device):
                super().__init__(number)

        @staticmethod
        def current_stream(device):
            return Torch.cuda.Stream(Torch.current)


def test_the_allocator_of_torch_is_told(path, stream, device_array, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", Torch)
    Torch.current = stream
    with sluice.open(path) as f:
        tensor = Torch.Tensor(device_array(1000))
        mine = Torch.cuda.Stream(stream)
        for given in (None, mine, stream):
            assert f.read_on(tensor, 7, given).wait(60) == 1000
        assert [type(s).__name__ for s in tensor.recorded] == ["Stream", "Stream", "ExternalStream"]
        assert tensor.recorded[1] is mine and all(s.cuda_stream == stream for s in tensor.recorded)
        assert tensor.array.get() == pattern(2000)[7:1007]
