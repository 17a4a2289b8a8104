# SPDX-License-Identifier: Apache-2.0
"""Frames: Writer and Series. h5py and xarray read what they wrote."""

import ctypes
import doctest
import errno
import gc
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest
import sluice
from conftest import C
from test_streams import Torch

h5py = pytest.importorskip("h5py", reason="h5py, which reads the files, is missing")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "f.h5"


def read(path, name="u"):
    with h5py.File(path, "r") as f:
        return f[name][...]


def steps(count, first=0):
    return numpy.arange(first, first + count)[:, None, None] * 100 + numpy.arange(6).reshape(2, 3)


def write(w, values, name="u", **options):
    u = w.series(name, shape=values.shape[1:], dtype=values.dtype, **options)
    for value in values:
        u.append(value)
    return u


@pytest.mark.parametrize("dtype", sluice._writer._TYPES)
@pytest.mark.parametrize("codec", ["deflate", "none"])
def test_every_type_comes_back(file, dtype, codec):
    values = (steps(20) % 251 % 127).astype(dtype)
    with sluice.Writer(file) as w:
        write(w, values, codec=codec)
    found = read(file)
    assert found.dtype == dtype and (found == values).all()


def test_attributes(file):
    given = {"text": "Größe", "one": 7, "half": 0.5, "many": [1, 2, 3], "mixed": (1, 2.5), "array": numpy.arange(3.0),
             "zero": numpy.float32(2), "flag": True}
    with sluice.Writer(file, attributes=given) as w:
        u = w.series("g/u", shape=[4], dtype="i2", attributes=given)
        w.attributes({"later": 1})
        u.attributes({"later": "x"})
        for wrong in (None, b"bytes", [], ["a", 1], {}, [[[1]]], 1 << 63):
            with pytest.raises((TypeError, OverflowError), match="series 'g/u': attribute 'wrong'"):
                u.attributes({"wrong": wrong})
        with pytest.raises(ValueError, match="null"):
            u.attributes({"wrong": "a\0b"})
        with pytest.raises(FileExistsError, match="later"):
            u.attributes({"later": "y"})
    with h5py.File(file, "r") as f:
        for attributes in (f.attrs, f["g/u"].attrs):
            for name, value in given.items():
                assert numpy.all(attributes[name] == value), name
        assert f.attrs["later"] == 1 and f["g/u"].attrs["later"] == "x"


def test_xarray_shows_dimensions_and_coordinates_without_options(file):
    xarray = pytest.importorskip("xarray", reason="xarray is missing")
    pytest.importorskip("h5netcdf", reason="h5netcdf, by which xarray reads, is missing")
    x = numpy.linspace(0, 1, 3)
    with sluice.Writer(file, attributes={"title": "waves"}) as w:
        w.coordinate("x", x, {"units": "m"})
        w.coordinate("level", [3, 4])
        u = w.series("u", shape=(2, 3), dtype="f4", dimensions=("time", "y", "x"), scalars=["time"],
                     attributes={"units": "K"})
        v = w.series("v", shape=(2, 3), dtype="f8", dimensions=("time", "level", "x"))
        for k in range(5):
            u.append(numpy.full((2, 3), k, "f4"), time=k / 2)
            v.append(numpy.full((2, 3), -k, "f8"))
    with xarray.open_dataset(file) as data:
        assert dict(data.sizes) == {"time": 5, "y": 2, "x": 3, "level": 2} and data.attrs["title"] == "waves"
        assert set(data.coords) == {"time", "x", "level"} and data["x"].attrs["units"] == "m"
        assert data["u"].dims == ("time", "y", "x") and data["v"].dims == ("time", "level", "x")
        assert data["u"].sel(time=1.5, x=0.5, y=1) == 3 and (data["x"] == x).all() and data["u"].attrs["units"] == "K"
        assert (data["v"].sel(time=2.0) == -4).all()


def test_a_file_is_continued(file):
    values = steps(10).astype("i4")
    with sluice.Writer(file) as w:
        u = w.series("u", shape=(2, 3), dtype="i4", scalars=["step"])
        for i, value in enumerate(values):
            u.append(value, step=i)
    with pytest.raises(FileExistsError, match="f.h5"):
        sluice.Writer(file)
    with sluice.Writer(file, "a") as w:
        u = w.series("u", shape=(2, 3), dtype="i4", scalars=["step"])
        assert u.frames == 10
        u.append(values[0], step=10)
    with sluice.Writer(file, "a") as w:
        u = w.series("u", shape=(2, 3), dtype="i4", scalars=["step"], continue_at=4)
        assert u.frames == 4
        u.append(values[9], step=99)
        assert u.frames == 5
        with pytest.raises(OSError, match="'/v'"):
            w.series("v", shape=[2], dtype="i4", continue_at=1)
    assert (read(file) == [*values[:4], values[9]]).all() and list(read(file, "u_step")) == [0, 1, 2, 3, 99]
    with sluice.Writer(file, "w") as w:
        write(w, values[:2])
    assert len(read(file)) == 2


@pytest.mark.parametrize("chunk_frames", (1, 5, None))
def test_frames_that_were_given_up_are_gone(file, chunk_frames):
    """A random history of runs that go back; h5py, which makes the datasets longer, sees none of what was there."""
    draw = random.Random(int(os.environ.get("SLUICE_TEST_SEED", 7)))
    expected = numpy.empty((0, 500), "f8")
    for run in range(12):
        at, count, flush = draw.randint(0, len(expected)), draw.randint(0, 40), draw.randint(1, 9)
        more = {"continue_at": at} if draw.random() < 0.8 else {}
        kept = expected[:at] if more else expected
        added = numpy.sin(numpy.arange(count * 500) * (0.01 + run)).reshape(count, 500).round(2) + 2
        expected = numpy.concatenate((kept, added))
        with sluice.Writer(file, mode="a") as w:
            if chunk_frames:
                more["chunk_frames"] = chunk_frames
            u = w.series("u", shape=(500,), dtype="f8", scalars=["step"], **more)
            assert u.frames == len(kept)
            for i, frame in enumerate(added):
                u.append(frame, step=len(kept) + i + 1)
                if i % flush == 0:
                    w.flush()
        longer = shutil.copy(file, file.with_suffix(".longer"))
        with h5py.File(longer, "a") as f:
            u, step = f["u"], f["u_step"]
            assert numpy.array_equal(u[...], expected)
            assert numpy.array_equal(step[...], numpy.arange(len(expected)) + 1)
            if hasattr(u.id, "get_num_chunks"):
                assert u.id.get_num_chunks() == -(-len(expected) // u.chunks[0])
            u.resize(len(expected) + 100, 0)
            step.resize(len(expected) + 2000, 0)
            assert not u[len(expected) :].any() and not step[len(expected) :].any()


@pytest.mark.parametrize("flushes", (False, True))
@pytest.mark.parametrize("filters", ({"compression": "gzip"}, {"fletcher32": True}, {}))
def test_the_rest_of_a_chunk_has_the_fill_value(file, flushes, filters):
    with h5py.File(file, "w") as f:
        f.create_dataset("u", (2, 7), "f4", maxshape=(None, 7), chunks=(8, 7), fillvalue=numpy.nan, **filters)
    with sluice.Writer(file, "a") as w:
        u = w.series("u", shape=7, dtype="f4")
        for _ in range(9):
            u.append(numpy.ones(7, "f4"))
            if flushes:
                w.flush()
    with h5py.File(file, "a") as f:
        f["u"].resize(30, 0)
        assert (f["u"][2:11] == 1).all() and numpy.isnan(f["u"][:2]).all() and numpy.isnan(f["u"][11:]).all()


def test_a_dataset_with_two_names_is_one_series(file):
    with sluice.Writer(file) as w:
        for name in "uv":
            w.series(name, shape=7, dtype="f4", scalars=["time"]).append(numpy.ones(7, "f4"), time=1)
    with h5py.File(file, "a") as f:
        f["hard"], f["soft"], f["w"] = f["u"], h5py.SoftLink("/u"), f["v"]
        f["w_time"] = f["u_time"]
    with sluice.Writer(file, "a") as w:
        w.series("u", shape=7, dtype="f4", scalars=["time"])
        for name, other in ("hard", "u"), ("soft", "u"), ("w", "u_time"):
            with pytest.raises(FileExistsError, match=f"'/{other}', a dataset of this writer already"):
                w.series(name, shape=7, dtype="f4", scalars=["time"] if name == "w" else [])
        w.series("v", shape=7, dtype="f4", scalars=["time"])
        w.discard()


def test_acquired_frames_are_filled_in_place(file):
    with sluice.Writer(file, memory_bytes=64 << 20) as w:
        u = w.series("u", shape=(300, 200), dtype="f8", scalars=["time"], depth=3)
        for i in range(20):
            frame = u.acquire()
            assert frame.shape == (300, 200) and frame.flags.c_contiguous and frame.ctypes.data % 4096 == 0
            frame[...] = i
            if i % 2:
                u.submit(frame, time=i)
            else:
                u.submit(time=i)
            for change in (lambda frame=frame: frame.fill(9), lambda frame=frame: frame.__setitem__(0, 1)):
                with pytest.raises(ValueError, match="read-only"):
                    change()
        counts = u.stats()
        assert counts["submitted"] == 20 and counts["copy_bytes"] == 0 and w.stats()["held"] == 0
    assert frame.sum() >= 0 and not frame.flags.writeable  # memory that stays
    assert (read(file)[:, 7, 7] == range(20)).all() and (read(file, "u_time") == range(20)).all()


def test_a_frame_with_views_is_not_submitted(file):
    with sluice.Writer(file) as w:
        u = w.series("u", shape=[10], dtype="u1")
        frame = u.acquire()
        for make in (lambda: frame[2:], lambda: frame.view("i2"), lambda: frame[:4][::2].reshape(2, 1)):
            view = make()
            for end in (u.submit, u.discard):
                with pytest.raises(BufferError, match="series 'u'.*share"):
                    end(frame)
            view[...] = 1
            del view
        copy = frame.copy()
        alias = frame
        u.submit(frame)
        with pytest.raises(ValueError, match="series 'u'.*submitted"):
            u.submit(alias)
        with pytest.raises(ValueError, match="append"):
            u.submit(copy)
        with pytest.raises(ValueError, match="0 frames are acquired"):
            u.submit()
        dropped = u.acquire()
        u.discard(dropped)
        u.append(copy)
        first, second = u.acquire(60), u.acquire(60)
        with pytest.raises(ValueError, match="2 frames are acquired"):
            u.submit()
        with pytest.raises(OSError, match="'u'") as raised:
            u.acquire()
        assert raised.value.errno == errno.EDEADLK
        with pytest.raises(TimeoutError, match="'u'"):
            u.acquire(timeout=0.01)
        with pytest.raises(TimeoutError, match="'u'"):
            u.append(copy, timeout=0)
        second[...], first[...] = 2, 3
        u.submit(second)
        u.submit(first)
    assert read(file).tolist() == [copy.tolist(), copy.tolist(), [2] * 10, [3] * 10]


def test_arrays_live_longer_than_the_writer(file):
    def maps():
        with open("/proc/self/smaps_rollup") as f:
            return int(f.read().split("Rss:")[1].split()[0])

    size = 64 << 20
    arrays = []
    before = maps()
    with pytest.warns(RuntimeWarning, match="2 acquired frames were not submitted"):
        with sluice.Writer(file) as w:
            u = w.series("u", shape=[size // 8], dtype="f8", codec="none")
            arrays += [u.acquire(), u.acquire()]
    for array in arrays:
        array[...] = 5
        assert array[-1] == 5
    assert maps() - before > size >> 10
    del arrays[:], array
    assert maps() - before < size >> 10
    with pytest.raises(ValueError, match="closed"):
        u.append(numpy.zeros(size // 8))
    with pytest.raises(ValueError, match="closed"):
        w.flush()
    assert w.closed and len(read(file)) == 0


def test_arrays_of_all_kinds_are_copied(file):
    values = steps(6).astype("f4")
    with sluice.Writer(file) as w:
        u = w.series("u", shape=(2, 3), dtype=numpy.float32)
        u.append(numpy.asfortranarray(values[0]))
        u.append(numpy.repeat(values[1], 2, axis=1)[:, ::2])
        u.append(values[2].astype(">f4"))
        u.append(memoryview(values[3]))
        u.append(list(values[4]))
        u.append(numpy.broadcast_to(numpy.float32(1), (2, 3)))
    assert (read(file)[:5] == values[:5]).all() and (read(file)[5] == 1).all()


def test_tensors_of_torch_are_copied(file):
    torch = pytest.importorskip("torch", reason="torch is missing")
    with sluice.Writer(file) as w:
        u = w.series("u", shape=(2, 3), dtype=torch.float32)
        u.append(torch.ones(2, 3, requires_grad=True))
        u.append(torch.arange(6.0).reshape(3, 2).T)
        with pytest.raises(TypeError, match="series 'u'.*bfloat16"):
            u.append(torch.ones(2, 3, dtype=torch.bfloat16))
        for wrong in (torch.bfloat16, torch.float8_e4m3fn, torch.complex32, torch.qint8):
            with pytest.raises(TypeError, match="series 'v': torch"):
                w.series("v", shape=(2, 3), dtype=wrong)
    assert (read(file) == [[[1] * 3] * 2, [[0, 2, 4], [1, 3, 5]]]).all()


def test_wrong_input_names_the_series(file):
    with sluice.Writer(file) as w:
        u = w.series("u", shape=(2, 3), dtype="f4", scalars=["time"])
        right = numpy.zeros((2, 3), "f4")
        for error, match, array, scalars in (
            (TypeError, "series 'u' has frames of float32, not of float64", right.astype("f8"), {"time": 1}),
            (TypeError, "series 'u'.*not of int32", right.astype("i4"), {"time": 1}),
            (ValueError, r"series 'u'.*\(2, 3\), not \(3, 2\)", right.T, {"time": 1}),
            (ValueError, "series 'u'", right[:, 0], {"time": 1}),
            (TypeError, "series 'u'", object(), {"time": 1}),
            (TypeError, "series 'u'.*'time'", right, {}),
            (TypeError, "series 'u'.*'step'", right, {"time": 1, "step": 2}),
            (TypeError, "series 'u'.*numbers", right, {"time": "now"}),
            (TypeError, "series 'u'.*stream", right, {"time": 1, "stream": 0}),
        ):
            with pytest.raises(error, match=match):
                u.append(array, **scalars)
        assert u.stats()["submitted"] == 0
        for dtype in (None, "U3", "M8[s]", "O", "nonsense"):
            with pytest.raises(TypeError, match="series 'v'"):
                w.series("v", shape=[2], dtype=dtype)
        for error, options in (
            (OSError, {"shape": [2] * 5}), (OSError, {"shape": [0]}),
            (OSError, {"codec": "rle"}), (OSError, {"level": 99}), (ValueError, {"scalars": ["timeout"]}),
            (ValueError, {"dimensions": ["x"]}), (TypeError, {"scalars": [1]}), (OverflowError, {"depth": -1}),
            (TypeError, {"shape": ["a"]}), (OSError, {"depth": 1 << 40}), (TypeError, {"unknown": 1}),
            (TypeError, {"shape": [2.5]}), (ValueError, {"chunk": (1, 1)}), (TypeError, {"scalars": "time"}),
            (TypeError, {"dimensions": "xy"}), (TypeError, {"attributes": {1: 2}}),
        ):
            with pytest.raises((error, ValueError) if error is TypeError else error):
                w.series("v", **{"shape": [2], "dtype": "f4", **options})
        assert w.series("v", shape=numpy.int64(2), dtype="f4").shape == (2,)
        with pytest.raises(FileExistsError, match="'u'"):
            w.series("u", shape=(2, 3), dtype="f4")
        for wrong, error in ((["a"], TypeError), ([[1.0]], ValueError), ([], OSError), ([1j], TypeError)):
            with pytest.raises(error, match="coordinate 'x'"):
                w.coordinate("x", wrong)
    for error, wrong in ((OSError, "http://localhost/f.h5"), (FileNotFoundError, "/nonsense/f.h5")):
        with pytest.raises(error):
            sluice.Writer(wrong)
    with pytest.raises(ValueError, match="mode"):
        sluice.Writer(file, "r")
    with pytest.raises(TypeError, match="unknown"):
        sluice.Writer(file, unknown=1)


def test_a_series_that_drops_does_not_wait(file):
    with sluice.Writer(file) as w:
        u = w.series("u", shape=[5], dtype="i8", drop=True)
        mine = u.acquire(), u.acquire()
        for _ in range(3):
            u.append(numpy.zeros(5, "i8"))
        assert u.stats()["dropped"] == 3
        u.discard(mine[0])
        u.append(numpy.full(5, 7))
        u.discard(mine[1])
    assert read(file).tolist() == [[7] * 5]


def test_a_wait_holds_no_lock(file):
    with sluice.Writer(file) as w:
        u = w.series("u", shape=[5], dtype="i8")
        frames = [u.acquire(), u.acquire()]
        for frame in frames:
            frame[...] = 3
        del frame
        thread = threading.Timer(0.1, lambda: u.submit(frames.pop()))
        thread.start()
        u.append(numpy.full(5, 4), timeout=60)
        thread.join()
        u.submit(frames.pop())
    assert [row[0] for row in read(file)] == [3, 4, 3]


def test_threads_append(file):
    with sluice.Writer(file) as w:
        u = w.series("u", shape=[2000], dtype="i4", depth=4)
        ends = []

        def run(number):
            for i in range(50):
                if i % 2:
                    u.append(numpy.full(2000, number * 50 + i, "i4"))
                else:
                    frame = u.acquire(60)
                    frame[...] = number * 50 + i
                    u.submit(frame)
            ends.append(number)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ends) == [0, 1, 2]
    found = read(file)
    assert sorted(found[:, 0]) == list(range(150)) and (found == found[:, :1]).all()


def test_a_close_waits_for_calls_of_other_threads(file):
    w = sluice.Writer(file)
    u = w.series("u", shape=[5], dtype="i8")
    held = u.acquire(), u.acquire()
    errors = []

    def wait():
        try:
            u.append(held[0], timeout=60)
        except ValueError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    with pytest.warns(RuntimeWarning, match="2 acquired"):
        w.close()
    thread.join()
    assert errors == ["the writer is closed"]


def test_arrays_of_a_device_are_copied_in_stream_order(file, device_array, stream):
    source, other, target = device_array(1000), device_array(1000), device_array(1000)
    source.set(b"1" * 1000)
    other.set(b"2" * 1000)
    with sluice.Writer(file) as w:
        u = w.series("u", shape=[1000], dtype="u1")
        for data in (source, other) * 5:
            assert C.sluice_copy_on(ctypes.c_void_p(target.address), ctypes.c_void_p(data.address),
                                    ctypes.c_size_t(1000), ctypes.c_void_p(stream)) == 0
            u.append(target, stream=stream)
        for _ in range(10):  # an array that is dropped stays until it is copied
            dropped = device_array(1000)
            dropped.set(b"3" * 1000)
            u.append(dropped, stream=stream)
            del dropped
        with pytest.raises(TypeError, match="stream is needed"):
            u.append(target)
        with pytest.raises(ValueError, match="series 'u'"):
            u.append(device_array(10), stream=stream)
        with pytest.raises(BufferError, match="contiguous"):
            u.append(device_array(1000, strides=(2,)), stream=stream)
    assert read(file)[:, 500].tobytes() == b"12" * 5 + b"3" * 10


def test_tensors_of_torch_on_a_device(file, device_array, stream, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", Torch)
    monkeypatch.setattr(Torch, "current", stream, raising=False)
    tensor = Torch.Tensor(device_array(1000))
    tensor.array.set(b"7" * 1000)
    tensor.dtype, tensor.shape = "torch.uint8", (1000,)
    with sluice.Writer(file) as w:
        u = w.series("u", shape=[1000], dtype="u1")
        u.append(tensor)
        u.append(tensor, stream=Torch.cuda.Stream(stream))
        tensor.shape = (10, 100)
        with pytest.raises(ValueError, match="series 'u'"):
            u.append(tensor)
        tensor.dtype = "torch.float8_e5m2"
        with pytest.raises(TypeError, match="series 'u'.*float8_e5m2"):
            u.append(tensor)
    assert read(file).tobytes() == b"7" * 2000 and [s.cuda_stream for s in tensor.recorded] == [stream] * 2


def test_examples_in_docstrings_are_right(tmp_path):
    finder = doctest.DocTestFinder()
    kinds = (sluice.Writer, sluice.Series, sluice._core.Writer, sluice._core.Series)
    methods = [method for kind in kinds for method in vars(kind).values() if getattr(method, "__doc__", None)]
    tests = [test for found in (sluice.Writer, *methods) for test in finder.find(
        found, name=repr(found), module=False, globs={"sluice": sluice, "path": str(tmp_path / "hello")})]
    assert len([test for test in tests if test.examples]) >= 7
    for test in tests:
        assert doctest.DocTestRunner().run(test).failed == 0


# ---------------------------------------------------------------------------------------- errors


class Failing:
    """Lets writes of this process fail, with EFBIG, behind a size that no file may pass."""

    def __enter__(self):
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, self.before[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


def append_until_it_fails(u):
    noise = numpy.random.default_rng(1).integers(0, 256, 20_000, "u1")
    for _ in range(1000):
        u.append(noise)


def make_noise(file):
    w = sluice.Writer(file)
    return w, w.series("u", shape=[20_000], dtype="u1", chunk_frames=1)


def test_an_error_of_the_background_is_raised_by_the_next_calls(file):
    with pytest.raises(OSError, match="'u'") as at_exit:
        w, u = make_noise(file)
        u.append(numpy.zeros(20_000, "u1"))
        w.flush()
        with Failing(), w:
            with pytest.raises(OSError, match="frame [0-9]+ of 'u'") as first:
                append_until_it_fails(u)
            for call in (u.acquire, w.flush, lambda: w.series("v", shape=[2], dtype="f4")):
                with pytest.raises(OSError) as later:
                    call()
                assert str(later.value) == str(first.value)
    assert str(at_exit.value) == str(first.value) and first.value.errno == errno.EFBIG and w.closed
    assert len(read(file)) >= 1


def test_the_exception_of_the_program_is_not_masked(file):
    w, u = make_noise(file)
    with pytest.raises(KeyError) as raised, Failing(), w:
        try:
            append_until_it_fails(u)
        except OSError as error:
            sentence = error.strerror
        raise KeyError("mine")
    assert len(raised.value.__notes__) == 1 and sentence in raised.value.__notes__[0] and w.closed
    w, u = make_noise(file.with_name("g.h5"))
    with pytest.raises(OSError, match="'u'") as raised, Failing(), w:
        append_until_it_fails(u)
    assert not hasattr(raised.value, "__notes__")


def test_frames_before_an_exception_are_stored(file):
    with pytest.raises(KeyError), sluice.Writer(file) as w:
        write(w, steps(7))
        raise KeyError
    assert (read(file) == steps(7)).all()
    with pytest.raises(KeyError), sluice.Writer(file, "w") as w:
        write(w, steps(2))
        w.discard()
        raise KeyError
    assert len(read(file)) == 7


def test_a_writer_that_is_dropped_stores_its_frames(file):
    w = sluice.Writer(file)
    u = write(w, steps(7))
    del w
    gc.collect()
    with pytest.warns(ResourceWarning, match="f.h5.*not closed"):
        del u
        gc.collect()
    assert (read(file) == steps(7)).all()


AT_EXIT = """
import sys, numpy, sluice
w = sluice.Writer(sys.argv[1])
u = w.series("u", shape=[1000], dtype="i8")
for i in range(100):
    u.append(numpy.full(1000, i))
frame = u.acquire()
if len(sys.argv) > 2:
    raise KeyError
"""


BOTH_FAIL = """
import resource, sys, numpy, sluice
writers = [sluice.Writer(path) for path in sys.argv[1:]]
series = [w.series("u", shape=[100_000], dtype="u1", codec="none") for w in writers]
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, -1))
for u in series:
    u.append(numpy.ones(100_000, "u1"))
"""


def test_errors_at_the_end_of_the_program_are_shown(tmp_path):
    files = [tmp_path / "a.h5", tmp_path / "b.h5"]
    ran = subprocess.run([sys.executable, "-c", BOTH_FAIL, *files], capture_output=True, text=True)
    assert ran.stderr.count("OSError: [Errno 27]") == 2, ran.stderr


@pytest.mark.parametrize("more", [[], ["raise"]])
def test_a_writer_that_is_open_at_the_end_of_the_program_stores_its_frames(file, more):
    ran = subprocess.run([sys.executable, "-X", "dev", "-c", AT_EXIT, file, *more], capture_output=True, text=True)
    assert ran.returncode == len(more) and "ResourceWarning" in ran.stderr, ran.stderr
    assert (read(file)[:, 0] == range(100)).all()


def test_a_child_does_not_touch_the_file(file):
    w = sluice.Writer(file)
    u = write(w, steps(3))
    frame = u.acquire()
    child = os.fork()
    if not child:
        signal.alarm(30)
        refused = 0
        for call in (lambda: u.append(steps(1)[0]), u.acquire, w.flush, w.stats, w.close):
            try:
                call()
            except OSError as error:
                refused += error.errno == errno.ECHILD
        del w, u, call, frame
        gc.collect()
        os._exit(refused)
    assert os.waitpid(child, 0)[1] == 5 << 8
    frame[...] = 9
    u.submit(frame)
    w.close()
    assert len(read(file)) == 4


# A disk of 3 MiB, on which Ctrl-C and room come while the writer waits.
FULL = """
import errno, os, signal, sys, threading, time, warnings
import h5py, numpy, sluice
folder = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupted(call):
    sent = []
    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    timer = threading.Timer(0.3, send)
    timer.start()
    try:
        call()
    except KeyboardInterrupt:
        timer.join()
        return time.monotonic() - sent[0]
    raise AssertionError("not interrupted")

ballast = open(folder + "/ballast", "wb")
ballast.write(bytes(2 << 20))
ballast.flush()
noise = numpy.random.default_rng(1).integers(0, 256, 100_000, "u1")
w = sluice.Writer(folder + "/f.h5", full_disk_ms=-1, checkpoint_ms=-1)
u = w.series("u", shape=[100_000], dtype="u1")
while True:
    try:
        u.append(noise, timeout=1)
    except TimeoutError:  # the disk is slow, and not full yet
        continue
    except OSError as error:
        assert error.errno == errno.ENOSPC and "room on the disk" in str(error), error
        break
assert w.stats()["full_now"] == errno.ENOSPC
calls = [lambda: u.append(noise), u.acquire, w.flush, lambda: u.attributes({"a": 1}), w.close, w.close]
times = sorted(interrupted(call) for call in calls)
assert times[len(times) // 2] < 0.2 and times[-1] < 5, times
count = w.stats()["submitted"]
assert not w.closed
if sys.argv[2] == "room":
    ballast.truncate(0)
    w.close()
    with h5py.File(folder + "/f.h5") as f:
        assert len(f["u"]) == count and (f["u"][...] == noise).all()
else:
    begun = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del calls, u, w
    assert time.monotonic() - begun < 20 and caught[0].category is ResourceWarning
print("done")
"""


@pytest.mark.parametrize("how", ["room", "dropped"])
def test_a_full_disk_is_waited_for_and_interrupted(tmp_path, how):
    command = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=3m none "$0" && exec "$@"', tmp_path]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted in a namespace here")
    ran = subprocess.run([*command, sys.executable, "-c", FULL, tmp_path, how], capture_output=True, text=True)
    assert ran.stdout == "done\n", ran.stderr
    assert "f.h5': No space left on device: the writer waits for room" in ran.stderr


def test_a_file_on_a_server(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[1] / "engine/http"))
    import s3_server

    objects, local = tmp_path / "objects", tmp_path / "local"
    objects.mkdir()
    local.mkdir()
    monkeypatch.setenv("TMPDIR", str(local))
    monkeypatch.setenv("SLUICE_S3_PART_BYTES", "64K")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.SECRETS["AKIDTEST"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3_server.start(objects)}")
    context = sluice.Context()
    with sluice.Writer("s3://fast/run.h5", context=context) as w:
        write(w, steps(20))
        assert not os.listdir(objects)
    assert (read(objects / "run.h5") == steps(20)).all() and not os.listdir(local)
    with pytest.raises(FileExistsError, match="run.h5"):
        sluice.Writer("s3://fast/run.h5", context=context)
    noise = numpy.random.default_rng(1).random((20, 64, 64))
    with (pytest.raises(PermissionError, match="its frames are in '.*run2.h5.*', which stays"),
          sluice.Writer("s3://denied/run2.h5", context=context) as w):  # fmt: skip
        write(w, noise)
    (left,) = local.iterdir()
    assert (read(left) == noise).all() and not (objects / "run2.h5").exists()
