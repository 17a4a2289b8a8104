# SPDX-License-Identifier: Apache-2.0
"""Datasets of HDF5 files: selections beside numpy and h5py, while they are written, threads, processes, damage."""

import asyncio
import errno
import gc
import importlib.util
import multiprocessing
import os
import pickle
import random
import re
import subprocess
import sys
import threading
import warnings

import numpy
import pytest
import sluice
from conftest import copy_on
from sluice import _arrays

h5py = pytest.importorskip("h5py", reason="there is no h5py")
import array_files  # noqa: E402
from array_files import expected, selection_of  # noqa: E402

FRAMES = numpy.arange(40 * 9 * 11, dtype="f4").reshape(40, 9, 11)


@pytest.fixture
def run(tmp_path):
    """A file of frames, in chunks of several."""
    path = tmp_path / "run.h5"
    with sluice.Writer(path) as writer:
        u = writer.series("u", shape=(9, 11), dtype="f4", chunk_frames=4)
        for frame in FRAMES:
            u.append(frame)
    return path


@pytest.fixture
def array(run):
    with sluice.open_array(f"{run}#/u") as opened:
        yield opened


# ----------------------------------------------------------------------------------- files of h5py, and selections

@pytest.fixture(scope="module", params=[{}, {"libver": ("v110", "v110")}, {"userblock_size": 1024}],
                ids=["plain", "new", "block"])
def made(request, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("made") / "made.h5")
    return path, array_files.make(path, **request.param)


def same(found, wanted):
    """Whether they have the same type, shape and bits."""
    found, wanted = numpy.asarray(found), numpy.asarray(wanted)
    if found.dtype.name == "bfloat16":
        found = found.view("u2")
    if wanted.dtype.names:  # numpy copies no padding
        return found.dtype == wanted.dtype and found.shape == wanted.shape and (found == wanted).all()
    return found.dtype == wanted.dtype and found.shape == wanted.shape and found.tobytes() == wanted.tobytes()


def opened(path, name):
    try:
        return sluice.open_array(path, name)
    except OSError as error:
        if "libblosc" in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.parametrize("name", array_files.DATASETS)
def test_a_dataset_is_read_as_h5py_reads_it(made, name, monkeypatch):
    path, all_of_it = made
    wanted = all_of_it[name]
    with opened(path, name) as found:
        assert found.shape == wanted.shape and found.nbytes == wanted.nbytes and found.size == wanted.size
        assert same(found, wanted)
        out = numpy.zeros(wanted.shape, found.dtype)
        assert found.read_into(out) == wanted.nbytes and same(out, wanted)
        chance = random.Random(name)
        for _ in range(100 if os.environ.get("STRESS") else 5):
            monkeypatch.setattr(_arrays, "_BLOCK", chance.choice([64, 4096, 16 << 20]))
            monkeypatch.setattr(_arrays, "_WINDOW", chance.choice([64, 65536]))
            monkeypatch.setattr(_arrays, "_GAP", chance.choice([1, 64, 64 << 10]))
            selection = selection_of(wanted.shape, chance)
            assert same(found[selection], expected(wanted, selection)), selection
        if wanted.shape:
            frames = list(found.frames(1))
            assert len(frames) == max(len(wanted) - 1, 0)
            assert all(same(a, b) for a, b in zip(frames, wanted[1:], strict=True))


def test_a_layout_that_the_loaded_hdf5_does_not_know_is_refused(tmp_path):
    if h5py.version.hdf5_version_tuple < (2, 0):
        pytest.skip("this HDF5 writes no such layout")
    with h5py.File(tmp_path / "new.h5", "w", libver="latest") as file:
        array_files.plain(file, "new", chunks=(4, 4))
    try:
        sluice.open_array(tmp_path / "new.h5", "new").close()
    except OSError as error:
        assert re.search(r"new.h5.*HDF5 \d+\.\d+\.\d+.*version", str(error)), error


@pytest.mark.parametrize("name", array_files.REFUSED)
def test_what_is_not_read_is_refused_by_name(made, name):
    with pytest.raises(OSError, match=f"refused/{name}") as raised:
        sluice.open_array(made[0], "refused/" + name)
    assert array_files.REFUSED[name][1] in str(raised.value)


def test_selections_are_those_of_numpy(array):
    for selection in [3, -1, (3, 4, 5), (slice(None, None, 7), 2), (..., 3),
                      (slice(30, 5, -4), ..., slice(None, None, 5)),
                      slice(10, 10), (slice(None), [3, 1, 3]), ([-1, 0],), FRAMES[:, 0, 0] % 2 == 0, (), ...,
                      (numpy.int32(3), slice(numpy.int64(2), None))]:
        found, wanted = array[selection], FRAMES[selection]
        assert type(found) is type(wanted) and same(found, wanted), selection
    assert type(array[1, 2, 3]) is numpy.float32 and array[1, 2, 3, ...].shape == ()
    assert len(array) == 40 and array.ndim == 3 and array.chunks == (4, 9, 11) and array.dtype == "f4"
    assert array.filters == ("shuffle", "deflate") and repr(array).endswith("#/u', float32 [40, 9, 11]>")


@pytest.mark.parametrize("selection, said", [
    (40, "index 40 is not in dimension 0, which has 40 elements"), ((0, -10), "dimension 1"),
    ((0, 0, 0, 0), "4 are too many"),
    ((..., ...), "one ellipsis"), ("x", "by 'x'"), (1.5, "by 1.5"), (None, "by None"), (True, "by True"),
    ([[1]], "dimension 0"),     (([0], [0]), "index twice"), ([40], "not in dimension 0"), ([True], "a mask of 1")])
def test_other_selections_are_refused_with_a_sentence(array, selection, said):
    with pytest.raises(IndexError, match=said):
        array[selection]


def test_memory_that_is_there_is_read_into(array):
    out = numpy.zeros((10, 11), "f4")
    assert array.read_into(out, (slice(0, 10), 4)) == out.nbytes and (out == FRAMES[:10, 4]).all()
    wide = numpy.zeros((80, 9, 22), "f4")
    assert array.read_into(wide[::2, :, ::2]) == FRAMES.nbytes
    assert (wide[::2, :, ::2] == FRAMES).all() and not wide[1::2].any() and not wide[:, :, 1::2].any()
    raw = bytearray(2 * 99 * 4)
    assert array.read_into(raw, slice(7, 9)) == len(raw) and raw == FRAMES[7:9].tobytes()
    assert array.read_into_async(raw, slice(8, 10)).wait() == len(raw) and raw == FRAMES[8:10].tobytes()
    assert array.read_into_async(out, (slice(0, 40, 4), 2)).wait() == out.nbytes and (out == FRAMES[::4, 2]).all()
    assert array.read_into_async(wide[:40, :, ::2]).wait() and (wide[:40, :, ::2] == FRAMES).all()
    assert array.read_into_async(numpy.empty((0, 9, 11), "f4"), slice(0, 0)).wait() == 0
    assert array.read_into(bytearray(), slice(3, 3)) == array.read_into_async(bytearray(), slice(3, 3)).wait() == 0
    for wrong, said in [(numpy.zeros((10, 11)), "float64"), (numpy.zeros((11, 10), "f4"), r"\[11, 10\]")]:
        with pytest.raises(ValueError, match=said):
            array.read_into(wrong, (slice(0, 10), 4))
    with pytest.raises(ValueError, match="791"):
        array.read_into(bytearray(791), slice(7, 9))
    with pytest.raises(TypeError, match="steps or a list"):
        array.read_into(raw, slice(0, 4, 2))
    with pytest.raises(BufferError):
        array.read_into(bytes(792), slice(7, 9))


def test_memory_of_a_device_is_read_into(array, device_array):
    memory = device_array(2 * 99 * 4)
    assert array.read_into(memory, slice(7, 9)) == memory.n and memory.get() == FRAMES[7:9].tobytes()
    assert array.read_into_async(memory, slice(8, 10)).wait() == memory.n and memory.get() == FRAMES[8:10].tobytes()
    with pytest.raises(TypeError, match="steps or a list"):
        array.read_into(memory, slice(0, 4, 2))


def test_work_behind_a_read_in_stream_order_sees_the_part(array, device_array, stream):
    memory, copied = device_array(3 * 5 * 11 * 4), device_array(3 * 5 * 11 * 4)
    for start in range(30):
        read = array.read_on(memory, (slice(start, start + 3), slice(2, 7)), stream)
        copy_on(copied, memory, stream)
        assert read.wait(60) == memory.n
        copied.pass_stream(stream)
        assert copied.get() == FRAMES[start:start + 3, 2:7].tobytes()
    with pytest.raises(TypeError, match="steps or a list"):
        array.read_on(memory, slice(0, 4, 2), stream)
    with pytest.raises(ValueError, match="buffer 660"):
        array.read_on(memory, slice(0, 4), stream)
    with pytest.raises(TypeError, match="stream is needed"):
        array.read_on(memory, (slice(0, 3), slice(0, 5)))


def test_a_part_is_read_as_a_tensor(array, tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert type(array.read((3, ..., slice(None, None, 2)), framework="np")) is numpy.ndarray
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["big"] = FRAMES.astype(">f4")
        file["one"] = numpy.int16(-3)
    with sluice.open_array(tmp_path / "t.h5", "big") as big, sluice.open_array(tmp_path / "t.h5", "one") as one:
        for selection in (), 3, (3, 4, 5), (slice(2, 9), 4), (slice(30, 2, -3), [3, 1]):
            for found in array.read(selection), big.read(selection):
                assert found.dtype is torch.float32 and found.device.type == "cpu"
                assert same(numpy.from_dlpack(found), FRAMES[selection]), selection
        assert one.read() == -3 and one.read().dtype is torch.int16
        assert torch.equal(sluice.load_array(tmp_path / "t.h5#/big"), big.read())


def test_steps_read_the_chunks_that_they_need_alone(run, monkeypatch):
    asked = []

    class Counting(sluice.File):
        def _box(self, buffer, start, count, as_operation):
            asked.append((start, count))
            return super()._box(buffer, start, count, as_operation)
    monkeypatch.setattr(_arrays, "File", Counting)
    monkeypatch.setattr(_arrays, "_GAP", 1)
    with sluice.open_array(run, "u") as array:
        assert (array[::10] == FRAMES[::10]).all()
        assert asked == [((i, 0, 0), (1, 9, 11)) for i in range(0, 40, 10)]
        asked.clear()
        monkeypatch.setattr(_arrays, "_BLOCK", 8 * 99 * 4)
        assert (array[1:30:3] == FRAMES[1:30:3]).all()
        assert asked == [((at, 0, 0), (rows, 9, 11)) for at, rows in ((1, 7), (10, 4), (16, 7), (25, 4))]
        asked.clear()
        monkeypatch.setattr(_arrays, "_GAP", 4 * 99 * 4)  # a chunk, of which a row is 44 bytes
        assert (array[::8, 2] == FRAMES[::8, 2]).all() and (array[::4, 2] == FRAMES[::4, 2]).all()
        assert asked == [*(((i, 2, 0), (1, 1, 11)) for i in range(0, 40, 8)), ((0, 2, 0), (37, 1, 11))]


def test_no_read_is_in_flight_when_one_has_failed(run, monkeypatch):
    class Reading:
        def __init__(self, at):
            self.at, self.cancelled, self.over = at, False, False

        def cancel(self):
            self.cancelled = True

        def wait(self, timeout=None):
            self.over = True
            if self.at in (10, 12) or self.cancelled:
                raise OSError(5, "a disk")

    class Failing(sluice.File):
        def _box(self, buffer, start, count, as_operation):
            reads.append(Reading(start[0]))
            return reads[-1]
    reads = []
    monkeypatch.setattr(_arrays, "File", Failing)
    monkeypatch.setattr(_arrays, "_GAP", 1)
    with sluice.open_array(run, "u") as array:
        for read in (lambda: array[::10], lambda: list(array.frames(8, 20))):
            reads.clear()
            with pytest.raises(OSError, match="a disk"):
                read()
            assert len(reads) >= 3 and all(one.over for one in reads) and reads[-1].cancelled, vars(reads[-1])


@pytest.mark.parametrize("borrowed", [0, 1])
def test_memory_of_frames_is_used_again_when_they_are_gone(array, monkeypatch, borrowed):
    monkeypatch.setattr(_arrays, "_GAP", 1)
    monkeypatch.setattr(_arrays, "_WINDOW", 1)
    if borrowed:  # from Python 3.14 on an argument is perhaps no reference of its own
        count = sys.getrefcount
        monkeypatch.setattr(sys, "getrefcount", lambda block: count(block) - 2)
    taken, kept, unused = [], [], _arrays._unused

    def watched(*given):
        block = unused(*given)
        taken.append(block is not None)
        return block
    monkeypatch.setattr(_arrays, "_unused", watched)
    for number, frame in enumerate(array.frames()):
        if number in (9, 18):
            kept.append((number, frame[1:]))  # a view of a view
        assert (frame == FRAMES[number]).all()
    assert sum(taken) >= 3 and all((part == FRAMES[number, 1:]).all() for number, part in kept)
    assert (numpy.array(list(array.frames())) == FRAMES).all()


def test_frames_are_read_in_advance_and_bounded(array, monkeypatch):
    monkeypatch.setattr(_arrays, "_WINDOW", 3 * 4 * 99 * 4)
    monkeypatch.setattr(_arrays, "_GAP", 1)
    started = array.read_into_async

    def start(block, selection):
        running.append((selection.start, selection.stop))
        return started(block, selection)
    running = []
    monkeypatch.setattr(array, "read_into_async", start)
    frames = array.frames(2, -1)
    assert (next(frames) == FRAMES[2]).all()
    assert running == [(2, 4), (4, 8), (8, 12)]
    assert (numpy.array(list(frames)) == FRAMES[3:-1]).all()
    assert running[-1] == (36, 39)
    running.clear()
    monkeypatch.setattr(_arrays, "_GAP", 20 * 99 * 4)
    monkeypatch.setattr(_arrays, "_READS", 2)
    frames = array.frames()
    next(frames)
    assert running == [(0, 20), (20, 40)]
    for number, frame in enumerate(array):
        assert (frame == FRAMES[number]).all()
        if number == 5:
            break


# ------------------------------------------------------------------------------------------------- samples

@pytest.fixture
def samples(run, tmp_path):
    """Of two datasets, the second of which has 5 entries, and is contiguous."""
    with h5py.File(tmp_path / "more.h5", "w") as file:
        file["v"] = -FRAMES[:5]
    return sluice.Samples([f"{run}#/u", f"{tmp_path / 'more.h5'}#/v"], transform=numpy.copy)


ENTRIES = numpy.concatenate([FRAMES, -FRAMES[:5]])


def test_samples_are_the_entries_of_datasets(samples, run, tmp_path):
    assert len(samples) == 45 and same(samples[44], ENTRIES[44]) and same(samples[-45], ENTRIES[0])
    assert same(samples.__getitems__([44, 0, 1, 2, 39, 40, 40, 7]), ENTRIES[[44, 0, 1, 2, 39, 40, 40, 7]])
    assert same(list(samples), ENTRIES)
    for number in (45, -46):
        with pytest.raises(IndexError, match=f"sample {number} is none of 45"):
            samples[number]
    samples.close()
    again = pickle.loads(pickle.dumps(samples))
    assert same(again[3], ENTRIES[3]) and same(samples[3], ENTRIES[3])
    with h5py.File(tmp_path / "wide.h5", "w") as file:
        file["v"] = FRAMES[:, :2]
        file["none"] = FRAMES[:0]
    with pytest.raises(ValueError, match="2 types or shapes"):
        sluice.Samples([f"{run}#/u", f"{tmp_path / 'wide.h5'}#/v"])
    assert len(sluice.Samples(f"{tmp_path / 'wide.h5'}#/none")) == 0
    with pytest.raises(OSError, match="/none"):
        sluice.Samples(f"{run}#/none")


def test_batches_are_read_in_advance(samples, monkeypatch):
    chance = numpy.random.default_rng(1)
    for size, ahead, drop_last in [(1, 0, False), (4, 2, False), (4, 2, True), (45, 1, True), (50, 3, False),
                                   (50, 3, True)]:
        for order in None, chance.permutation(45), [3, 4, 5, 39, 40, 41, 3]:
            wanted = ENTRIES if order is None else ENTRIES[order]
            wanted = wanted[:len(wanted) // size * size] if drop_last else wanted
            found = list(samples.batches(size, order, device=numpy.empty, ahead=ahead, drop_last=drop_last))
            assert [len(batch) for batch in found[:-1]] == [size] * (len(found) - 1)
            assert same(numpy.concatenate([ENTRIES[:0], *found]), wanted)
    assert same(numpy.asarray(next(samples.batches(3))), ENTRIES[:3])  # tensors, or without torch arrays
    started, start = [], sluice.Samples._start
    monkeypatch.setattr(sluice.Samples, "_start", lambda *given: started.append(given[2]) or start(*given))
    batches = samples.batches(5, device=numpy.empty, ahead=3)
    next(batches)
    assert [list(numbers) for numbers in started] == [list(range(at, at + 5)) for at in (0, 5, 10, 15)]
    batches.close()
    with pytest.raises(IndexError, match="sample 45"):
        list(samples.batches(2, [1, 2, 45], device=numpy.empty))
    with pytest.raises(TypeError, match="no batches"):
        next(sluice.Samples(samples.files[0].partition("#")[0], [(0, 1)]).batches(1))


def test_batches_come_into_memory_of_a_device(samples, device_array):
    def make(shape, dtype):
        return device_array(int(numpy.prod(shape)) * dtype.itemsize)
    found = b"".join(batch.get() for batch in samples.batches(10, range(40), device=make))
    assert found == FRAMES.tobytes()


@pytest.mark.parametrize("workers", [0, 2])
def test_torch_gets_entries_and_batches(samples, workers):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    samples.transform = torch.from_numpy
    loader = torch.utils.data.DataLoader(samples, batch_size=10, num_workers=workers)
    assert same(torch.cat(list(loader)).numpy(), ENTRIES)
    batches = list(samples.batches(10))
    assert batches[0].dtype is torch.float32 and same(torch.cat(batches).numpy(), ENTRIES)


# ------------------------------------------------------------------------------------------------- while it is written

def test_frames_of_a_writer_are_there_after_a_flush(tmp_path):
    with sluice.Writer(tmp_path / "run.h5") as writer:
        u = writer.series("u", shape=(9, 11), dtype="f4", codec="deflate", chunk_frames=1)
        v = writer.series("v", shape=(9, 11), dtype="f4", codec="none", chunk_frames=4)
        for frame in FRAMES[:10]:
            u.append(frame)
            v.append(frame)
        writer.flush()
        path = tmp_path / "run.h5"
        with sluice.open_array(path, "/u") as first, sluice.open_array(path, "v") as second:
            assert len(first) == 10 and (first[...] == FRAMES[:10]).all()
            for frame in FRAMES[10:]:
                u.append(frame)
                v.append(frame)
            writer.flush()
            assert len(first) == 10 and (first[...] == FRAMES[:10]).all()
            for opened in (first, second):
                opened.refresh()
                assert len(opened) == 40 and (opened[...] == FRAMES).all()


def test_blocks_of_several_files_are_read_as_one(tmp_path):
    writers = [sluice.Writer(tmp_path / f"n{i}.h5") for i in range(2)]
    series = [writer.series("u", shape=(4, 6), dtype="i4") for writer in writers]
    for writer in writers:
        writer.flush()
    layout = h5py.VirtualLayout((1, 4, 6), "i4", maxshape=(None, 4, 6))
    for i in range(len(writers)):
        source = h5py.VirtualSource(f"n{i}.h5", "u", (1, 4, 6), maxshape=(None, 4, 6))
        block = (slice(0, h5py.h5s.UNLIMITED), slice(2 * i, 2 * i + 2))
        layout[block] = source[block]
    path = tmp_path / "v.h5"
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("u", layout, fillvalue=-7)
    chance = random.Random(12)
    with sluice.open_array(f"{path}#/u") as array:
        assert array.shape == (0, 4, 6)
        for step in range(5):
            for i in range(2):
                for k in range(3 - i):  # of the second are fewer there
                    series[i].append(numpy.full((4, 6), 100 * step + 10 * k + i, "i4"))
                writers[i].flush()
            array.refresh()
            wanted = numpy.full((3 * step + 3, 4, 6), -7, "i4")
            wanted[:, :2] = numpy.reshape([100 * n + 10 * k for n in range(step + 1) for k in range(3)], (-1, 1, 1))
            wanted[: 2 * step + 2, 2:] = numpy.reshape(
                [100 * n + 10 * k + 1 for n in range(step + 1) for k in range(2)], (-1, 1, 1))
            assert len(array) == len(wanted) and same(array[...], wanted)
            for _ in range(20):
                selection = selection_of(array.shape, chance)
                assert same(array[selection], expected(wanted, selection)), selection
            assert same(numpy.stack(list(array.frames(1))), wanted[1:])
    for writer in writers:
        writer.close()
    with h5py.File(path) as file:
        assert same(file["u"][...], wanted)


@pytest.mark.parametrize("least, swmr", [("earliest", False), ("v110", False), ("v110", True)])
def test_a_refresh_finds_what_another_program_has_written(tmp_path, least, swmr):
    path, virtual = tmp_path / "a.h5", tmp_path / "v.h5"
    source = h5py.VirtualSource("a.h5", "s", (4, 100), maxshape=(None, 100))
    layout = h5py.VirtualLayout((4, 100), "i4", maxshape=(None, 100))
    layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
    with h5py.File(virtual, "w", libver=("v110", "v110")) as file:
        file.create_virtual_dataset("s", layout)
    with h5py.File(path, "w", libver=(least, "v110")) as file:
        s = file.create_dataset("s", data=numpy.arange(400, dtype="i4").reshape(4, 100), chunks=(2, 100),
                                maxshape=(None, 100), compression="gzip")
        file.flush()
        if swmr:
            file.swmr_mode = True
        with sluice.open_array(path, "s") as one, sluice.open_array(virtual, "s") as array:
            for step in range(5):
                s.resize(len(s) + 2, 0)
                s[-2:] = numpy.arange(200).reshape(2, 100) + step
                s.flush()
                if not swmr:
                    file.flush()
                for each in (one, array):
                    with pytest.raises(OSError) as error:
                        each[0]
                    assert error.value.errno == errno.ESTALE
                    each.refresh()
                    assert same(each[...], s[...])
    with h5py.File(path, "w") as file:
        file["s"] = numpy.zeros((1, 100), "i4")
        file.flush()
        with sluice.open_array(path, "s") as one:
            del file["s"]
            file["s"] = numpy.zeros((1, 100), "f4")
            file.flush()
            with pytest.raises(OSError, match="another dataset"):
                one.refresh()


def test_a_file_is_read_while_a_writer_and_others_use_it(tmp_path):
    over = threading.Event()

    def write():
        with sluice.Writer(tmp_path / "run.h5", checkpoint_frames=1) as writer:
            u = writer.series("u", shape=(50, 60), dtype="i4", chunk_frames=3)
            writer.flush()
            begun.set()
            for i in range(300):
                u.append(numpy.full((50, 60), i, "i4"))
        over.set()
    begun = threading.Event()
    writing = threading.Thread(target=write)
    writing.start()
    assert begun.wait(60)
    seen = 0
    with sluice.open_array(tmp_path / "run.h5", "/u") as u:
        while True:
            last = over.is_set()
            u.refresh()
            assert len(u) >= seen
            for i in range(max(seen - 3, 0), len(u)):
                assert (u[i] == i).all()
            seen = len(u)
            if last:
                break
    writing.join()
    assert seen == 300


def test_a_file_that_another_program_changes_is_stale(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file.create_dataset("u", data=numpy.zeros((100, 100)), chunks=(10, 10), compression="gzip")
    with sluice.open_array(tmp_path / "other.h5", "u") as u:
        assert not u[5].any()
        with h5py.File(tmp_path / "other.h5", "r+") as file:
            file["u"][...] = 1
            file.create_dataset("v", data=numpy.zeros(10000))
        with pytest.raises(OSError, match="other.h5") as raised:
            u[50:]
        assert raised.value.errno == 116  # ESTALE


# -------------------------------------------------------------------------------------------------- threads, processes

def test_threads_read_at_once(array):
    def work(seed):
        chance = random.Random(seed)
        for _ in range(30):
            selection = selection_of(FRAMES.shape, chance)
            if not same(array[selection], expected(FRAMES, selection)):
                wrong.append(selection)
    wrong = []
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_asyncio_awaits_reads(run):
    async def main():
        with await sluice.open_array_async(run, "u") as u:
            outs = [numpy.empty((9, 11), "f4") for _ in range(40)]
            moved = await asyncio.gather(*(wait(u.read_into_async(out, i)) for i, out in enumerate(outs)))
            assert moved == [9 * 11 * 4] * 40 and (numpy.array(outs) == FRAMES).all()

    async def wait(operation):
        return await operation
    asyncio.run(main())


def work(array, results):
    results.put(array[5:7].tobytes())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_opens_the_file_for_itself(array, method):
    context = multiprocessing.get_context(method)
    results = context.Queue()
    worker = context.Process(target=work, args=(array, results), daemon=True)
    worker.start()
    assert results.get(timeout=60) == FRAMES[5:7].tobytes()
    worker.join(60)
    assert worker.exitcode == 0
    with pickle.loads(pickle.dumps(array)) as again:
        assert (again[3] == FRAMES[3]).all()


def test_a_closed_array_says_so(run):
    array = sluice.open_array(run, "u")
    frames = array.frames()
    next(frames)
    array.close()
    array.close()
    assert array.closed and "closed" in repr(array)
    for call in (lambda: array[0], array.refresh, lambda: pickle.dumps(array)):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_an_array_that_is_dropped_warns_and_goes(run):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))
    sluice.open_array(run, "u").close()
    gc.collect()
    before = descriptors()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        array = sluice.open_array(run, "u")
        frames = array.frames()
        next(frames)
        del array, frames
        gc.collect()
    assert [w.category for w in seen] == [ResourceWarning] and descriptors() <= before


@pytest.mark.parametrize("end", ["", "del u", "raise SystemExit(0)", "os._exit(0)",
                                 "os.kill(os.getpid(), signal.SIGINT)"])
def test_the_interpreter_ends_with_reads_in_flight(run, end):
    code = f"""
import os, signal, sys, numpy, sluice
u = sluice.open_array(sys.argv[1])
frames = u.frames()
next(frames)
out = numpy.empty(u.shape, u.dtype)
operations = [u.read_into_async(out) for _ in range(50)]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
print("read", flush=True)
{end}
"""
    ran = subprocess.run([sys.executable, "-c", code, f"{run}#/u"], capture_output=True, text=True, timeout=60,
                         env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(sluice.__file__))})
    assert ran.stdout == "read\n" and ran.returncode in ((0,) if "SIGINT" not in end else (-2, 130)), ran.stderr


# --------------------------------------------------------------------------------------------------- names, libraries

def test_names_are_split_at_their_last_mark(run, tmp_path):
    with sluice.open_array(f"{run}#/u") as u:
        assert u.uri == str(run) and u.dataset == "/u"
    with sluice.open_array(f"file://{run}#/u") as u:
        assert u.shape == (40, 9, 11)
    odd = tmp_path / "a#"
    odd.mkdir()
    (odd / "u").write_bytes(b"file")
    with pytest.raises(ValueError, match="no dataset"):
        sluice.open_array(f"{odd}/u")
    os.rename(run, odd / "run.h5")
    with sluice.open_array(f"{odd}/run.h5#/u") as u:
        assert len(u) == 40
    for name, error in [(f"{odd}/run.h5#/w", FileNotFoundError), (f"{odd}/run.h5#/", IsADirectoryError),
                        (f"{odd}/not.h5#/u", FileNotFoundError)]:
        with pytest.raises(error):
            sluice.open_array(name)
    with pytest.raises(ValueError, match="no dataset"):
        sluice.open_array(f"{odd}/run.h5")
    with sluice.open(odd / "run.h5", dataset="/u") as raw:
        assert raw.size == FRAMES.nbytes and raw.read(400, 396) == FRAMES.tobytes()[396:796]


def test_numpy_and_load_array(array, run):
    assert (numpy.asarray(array) == FRAMES).all() and numpy.asarray(array, "f8").dtype == "f8"
    assert (numpy.array(array)[3] == FRAMES[3]).all()
    with pytest.raises(ValueError, match="copy"):
        array.__array__(copy=False)
    found = sluice.load_array(f"{run}#/u", framework="np")
    assert same(found, FRAMES) and sluice.load_array(f"{run}#/u", framework="np", dtype="f8").dtype == "f8"
    with pytest.raises(TypeError, match="names"):
        sluice.load_array(f"{run}#/u", framework="np", names="*")


def test_torch_gets_tensors(made):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    path, all_of_it = made
    for name in ("type/<f4", "type/>i2", "type/?", "type/<c8"):
        found = sluice.load_array(f"{path}#/{name}")
        assert isinstance(found, torch.Tensor) and (found.numpy() == all_of_it[name]).all()
    found = sluice.load_array(f"{path}#/type/bfloat16")
    bits = found.view(torch.int16).numpy().view("u2")
    assert found.dtype == torch.bfloat16 and (bits == all_of_it["type/bfloat16"]).all()
    out = torch.empty((2, 17), dtype=torch.float32)
    with sluice.open_array(path, "type/<f4") as array:
        array.read_into(out, slice(3, 5))
    assert (out.numpy() == all_of_it["type/<f4"][3:5]).all()


def test_dask_computes(array):
    if not importlib.util.find_spec("dask"):
        pytest.skip("there is no dask")
    import dask.array
    lazy = dask.array.from_array(array, chunks=(8, 9, 11))
    assert float(lazy.sum().compute()) == float(FRAMES.sum(dtype="f8"))
    assert (lazy[3:30:4, ::2, [1, 5]].compute() == FRAMES[3:30:4, ::2, [1, 5]]).all()
    assert dask.array.from_array(array).chunks[0][0] % 4 == 0


# -------------------------------------------------------------------------------------------------------------- damage

def test_damage_is_an_error_that_names_the_chunk(tmp_path):
    path = tmp_path / "damaged.h5"
    data = numpy.arange(4000, dtype="i4").reshape(40, 100) // 3
    with h5py.File(path, "w") as file:
        for name, option in {"deflate": ("compression", "gzip"), "fletcher32": ("fletcher32", True),
                             "lzf": ("compression", "lzf")}.items():
            options = dict([option])
            file.create_dataset(name, data=data, chunks=(10, 100), **options)
        places = {name: file[name].id.get_chunk_info(2) for name in file}
    good = path.read_bytes()
    for name, place in places.items():
        bad = bytearray(good)
        for at in range(place.byte_offset, place.byte_offset + 8):
            bad[at] = 0xff if name == "lzf" else bad[at] ^ 0x55  # a copy from before the begin
        path.write_bytes(bad)
        with sluice.open_array(path, name) as array:
            assert (array[:20] == data[:20]).all()
            with pytest.raises(OSError, match=f"{name}.*20") as raised:
                array[15:25]
            assert raised.value.errno in (74, 5), raised.value  # EBADMSG, EIO
            assert (array[30:] == data[30:]).all()


CHILD = """
import resource, sys, sluice
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
said = 0
for name in sys.argv[2:]:
    try:
        with sluice.open_array(sys.argv[1], name) as array:
            array[...]
    except OSError as error:
        said += bool(str(error))
print(said)
"""


def test_a_file_that_is_cut_is_an_error(tmp_path):
    """In a child: HDF5 itself may crash over a damaged header."""
    path = tmp_path / "cut.h5"
    names = ["a", "b", "c"]
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=numpy.arange(4000), chunks=(100,), compression="gzip")
        file.create_dataset("b", data=numpy.arange(4000))
        file.create_dataset("c", data=numpy.arange(4000), chunks=(100,), maxshape=(None,), shuffle=True,
                            compression="lzf")
    good = path.read_bytes()
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(sluice.__file__))}
    for share in (0, 0.01, 0.1, 0.5, 0.9, 0.999):
        path.write_bytes(good[:int(len(good) * share)])
        ran = subprocess.run([sys.executable, "-c", CHILD, path, *names], capture_output=True, text=True, timeout=120,
                             env=environment)
        assert ran.returncode == 0 and 1 <= int(ran.stdout) <= 3, (share, ran.returncode, ran.stderr)
