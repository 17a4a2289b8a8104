# SPDX-License-Identifier: Apache-2.0
"""The store: arrays that are shared, their lives, watches, and clients that die."""
import asyncio
import ctypes
import errno
import gc
import itertools
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest
import sluice
from conftest import C, Daemon, pattern
from test_interrupts import interrupted_soon, interrupts  # noqa: F401

KINDS = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32",
         "float64", "complex64", "complex128"]


def eventually(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def is_gone(store, name):
    return not store.list(name)


# ---------------------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize("kind", KINDS)
def test_an_array_is_shared_without_a_copy(store, kind):
    array = (numpy.arange(24) % 5).astype(kind).reshape(2, 3, 4)
    put = store.put("a", array)
    first, second = store.get("a"), store.get("a").numpy()
    assert (first.dtype, first.shape, first.device, first.nbytes) == (kind, (2, 3, 4), "cpu", array.nbytes)
    assert first.sealed and first.id == put.id > 0 and first.name == "a"
    assert second.dtype == array.dtype and (second == array).all() and (put.numpy() == array).all()
    assert second.ctypes.data == first.numpy().ctypes.data and not second.flags.writeable
    assert bytes(first) == array.tobytes()


@pytest.mark.parametrize("value", [
    numpy.float32(2.5), numpy.zeros((0, 3)), numpy.zeros(()), numpy.arange(20)[::-3], numpy.arange(12).reshape(3, 4).T,
    numpy.arange(5, dtype=">i4"), [[1, 2], [3, 4]], b"", b"bytes", bytearray(b"x" * 9), memoryview(b"0123456789")[::2],
    memoryview(numpy.arange(6.0)), True,
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_whatever_numpy_makes_an_array_of_is_put(store, value):
    view = memoryview(value) if isinstance(value, (bytes, bytearray)) else value
    expected = numpy.asarray(view)
    with store.put("a", value) as blob:
        assert blob.shape == expected.shape and blob.numpy().dtype == expected.dtype.newbyteorder("=")
        numpy.testing.assert_array_equal(store.get("a").numpy(), expected)


def test_types_that_numpy_lacks(store):
    for name, item in (("bfloat16", 2), ("float8_e4m3fn", 1), ("float8_e5m2", 1), ("float8_e8m0fnu", 1)):
        with store.create(name, (3, 5), name) as blob:
            memoryview(blob)[:] = bytes(range(15 * item))
        found = store.get(name)
        assert found.dtype == name and found.shape == (3, 5) and found.nbytes == 15 * item
        assert found.numpy().view("u1").tobytes() == bytes(range(15 * item))
    with store.create("by word", 3, "BF16") as blob:
        assert blob.dtype == "bfloat16"


def test_torch(store):
    torch = pytest.importorskip("torch")
    for kind in [*KINDS, "bfloat16", "float8_e4m3fn", "float8_e5m2"]:
        tensor = torch.arange(12).reshape(3, 4).t().to(getattr(torch, kind))
        put = store.put(kind, tensor)
        for found in (put.torch(), store.get(kind).torch(), put.torch(copy=True), put.torch(copy="on-write"),
                      torch.from_dlpack(store.get(kind))):
            assert found.dtype == tensor.dtype and found.shape == (4, 3)
            assert torch.equal(found.to(torch.complex128), tensor.to(torch.complex128))
        assert put.torch().data_ptr() == put.torch().data_ptr() != put.torch(copy=True).data_ptr()
    with store.create("made", (2, 2), torch.bfloat16) as blob:
        blob.torch()[:] = torch.tensor([[1, 2], [3, 4]])
    private = store.get("made").torch(copy="on-write")
    private.zero_()
    assert store.get("made").torch().tolist() == [[1, 2], [3, 4]]
    empty = store.put("empty", torch.zeros(0, 4))
    for found in (empty, empty.torch("on-write"), store.create("e", (0, 4), "f4").torch()):
        assert found.shape == (0, 4)


def test_a_blob_is_filled_and_sealed(store, path):
    blob = store.create("a", (2, 50), "uint8")
    with pytest.raises(FileNotFoundError, match="'a'"):
        store.get("a")
    view = blob.numpy()
    view[0] = 7
    with sluice.open(path) as f:
        f.read_into(memoryview(blob)[50:])
    with pytest.raises(BufferError, match="'a' has 1 views that can write"):
        blob.seal()
    assert not blob.sealed
    del view
    blob.seal()
    assert blob.sealed and store.get("a").numpy()[1].tobytes() == pattern(50)
    with pytest.raises(OSError, match="sealed"):
        blob.seal()
    with pytest.raises(TypeError):
        memoryview(blob)[0] = 1


def test_a_blob_that_is_not_sealed_disappears(store):
    blob = store.create("a", 10, "u1")
    del blob
    with pytest.raises(KeyError), store.create("b", 10, "u1"):
        raise KeyError
    kept = store.create("c", 10, "u1").numpy()
    kept[:] = 3  # its memory stays with the view
    eventually(lambda: [row.state for row in store.list()] in ([], ["created"]))
    assert kept.sum() == 30
    with store.create("a", 4, "u1") as blob:
        blob.numpy()[:] = 9
    assert store.get("a").numpy().tolist() == [9] * 4


def test_views_that_may_be_written_to(store):
    blob = store.put("a", numpy.arange(100_000))
    copy, private = blob.numpy(copy=True), store.get("a").numpy(copy="on-write")
    copy[:] = private[1] = -1
    assert private.flags.writeable and private[[0, 1, 2, 99_999]].tolist() == [0, -1, 2, 99_999]
    assert (blob.numpy() == numpy.arange(100_000)).all()
    store.delete("a")
    blob.release()
    others = [store.put(str(i), bytes(100_000)) for i in range(8)]
    assert private[50_000] == 50_000, others  # it holds the blob
    with pytest.raises(ValueError, match="on-write"):
        store.get("0").numpy(copy="maybe")


def test_a_write_to_a_blob_ends_the_process_that_put_it(daemon):
    script = """if True:
        import ctypes, sys, sluice
        blob = sluice.Store(sys.argv[1]).put("a", b"0123456789")
        ctypes.memset(blob.numpy().ctypes.data, 0, 1)"""
    done = subprocess.run([sys.executable, "-c", script, daemon.path], capture_output=True)
    assert done.returncode == -signal.SIGSEGV
    assert bytes(daemon.open().get("a")) == b"0123456789"


# ------------------------------------------------------------------------------------------------ life


def test_bytes_live_as_long_as_any_view(store):
    for view in (memoryview, lambda blob: blob.numpy()[3:], numpy.from_dlpack, lambda blob: blob.numpy("on-write")):
        kept = view(store.put("a", numpy.arange(5000.0)))
        expected = bytes(kept) if isinstance(kept, memoryview) else kept.tobytes()
        store.delete("a")
        others = [store.put(f"b{i}", numpy.zeros(5000), replace=True) for i in range(20)]
        gc.collect()
        assert bytes(kept) == expected, others
        assert [row.state for row in store.list() if row.name in ("", "a")] == ["dying"]
        del kept
        eventually(lambda: {row.state for row in store.list()} == {"sealed"})
    assert not store.list("a")


def test_a_blob_that_is_released_lives_until_its_last_view_has_gone(store):
    with store.put("a", b"0123456789", transient=True) as blob:
        view = memoryview(blob)
    for call in (lambda: blob.numpy(), lambda: blob.nbytes, blob.seal, blob.__enter__().__dlpack__):
        with pytest.raises(ValueError, match="'a' is released"):
            call()
    blob.release()
    assert "is released" in repr(blob) and bytes(view) == b"0123456789" and store.stat("a").holders == 1
    view.release()
    eventually(lambda: is_gone(store, "a"))


def test_a_transient_blob_lives_as_long_as_a_process_holds_it(daemon, store):
    with daemon.open() as other:
        put = store.put("a", b"x", transient=True)
        assert store.stat("a").transient and not store.stat("a")._replace(transient=False).transient
        got = other.get("a")
        put.release()
        assert store.stat("a").holders == 1 and bytes(got) == b"x"
        del got
        eventually(lambda: is_gone(store, "a"))


def test_a_store_that_is_closed_leaves_blobs_valid(daemon):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    store = daemon.open()
    blob, tensor = store.put("a", numpy.arange(10)), numpy.from_dlpack(store.get("a"))
    before, watch = descriptors(), store.watch()
    store.close()
    store.close()
    for call in (lambda: store.get("a"), store.list, lambda: store.create("b", 1, "u1"), store.watch):
        with pytest.raises(ValueError, match="store is closed"):
            call()
    assert blob.numpy()[9] == 9 and watch.next(0) if watch._events else True
    watch.close()
    del blob
    assert tensor.tolist() == list(range(10))
    del tensor
    assert descriptors() < before  # with the last of them the connection goes


# ---------------------------------------------------------------------------------------------- errors


def test_errors_name_the_blob(store):
    store.put("taken", b"x")
    for error, name, call in [
        (FileNotFoundError, "'no'", lambda: store.get("no")),
        (FileNotFoundError, "'no'", lambda: store.stat("no")),
        (FileNotFoundError, "'no'", lambda: store.delete("no")),
        (TimeoutError, "'no'", lambda: store.get("no", timeout=0.01)),
        (FileExistsError, "'taken'", lambda: store.put("taken", b"y")),
        (OSError, "'big'", lambda: store.create("big", 1 << 40, "u1")),
        (OSError, "255 bytes", lambda: store.get("n" * 256)),
        (OSError, "control", lambda: store.get("a\n")),
        (ValueError, "null character", lambda: store.get("a\0b")),
        (ValueError, "empty", lambda: store.put("", b"x")),
        (OSError, "empty", lambda: store.get("")),
        (UnicodeEncodeError, "surrogates", lambda: store.get("\udc80")),
        (TypeError, "name: a str is needed, not 5", lambda: store.get(5)),
        (TypeError, "name: a str is needed, not b'a'", lambda: store.put(b"a", b"x")),
        (TypeError, "name: a str is needed, not None", lambda: store.delete(None)),
        (TypeError, "'x'.*'O'", lambda: store.put("x", [object()])),
        (TypeError, "'x'.*M8", lambda: store.create("x", 3, "M8[s]")),
        (TypeError, "'x'.*>f4", lambda: store.create("x", 3, ">f4")),
        (TypeError, "'x'.*None", lambda: store.create("x", 3, None)),
        (TypeError, "float", lambda: store.create("x", (2.5,), "f4")),
        (OSError, "'x'.*float4", lambda: store.create("x", 4, "F4")),
        (ValueError, "'x'.*negative", lambda: store.create("x", (2, -1), "u1")),
        (ValueError, "at most 8 dimensions", lambda: store.create("x", (1,) * 9, "u1")),
        (OSError, "'x'.*toaster", lambda: store.create("x", 1, "u1", "toaster")),
        (ValueError, "timeout", lambda: store.get("x", -1)),
        (ValueError, "timeout", lambda: store.get("x", float("nan"))),
        (TypeError, "made by the calls of a store", lambda: sluice.Blob.__new__(sluice.Blob).nbytes),
    ]:
        with pytest.raises(error, match=name):
            call()
    assert [row.name for row in store.list()] == ["taken"]


def test_a_daemon_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no store at .*nowhere"):
        sluice.Store(tmp_path / "nowhere")


def test_pickles(daemon, store):
    blob = store.put("a", b"x")
    with pytest.raises(TypeError, match="'a' cannot be pickled: send its name"):
        pickle.dumps(blob)
    with pickle.loads(pickle.dumps(sluice.Store(daemon.path))) as again:
        assert bytes(again.get("a")) == b"x"


def test_replace_an_id_alone(store):
    first = store.put("a", b"first")
    second = store.put("a", b"second", replace=first.id)
    with pytest.raises(OSError, match=f"{second.id} now") as raised:
        store.put("a", b"third", replace=numpy.int64(first.id))
    assert raised.value.errno == errno.ESTALE and bytes(store.get("a")) == b"second"
    with store.create("a", 5, "u1", replace=second.id) as blob:
        blob.numpy()[:] = range(5)
    assert bytes(store.get("a")) == bytes(range(5)) and store.get("a").id > second.id
    with pytest.raises(ValueError, match="an id|the id"):
        store.put("a", b"x", replace=0)


def test_replace_list_and_stat(store):
    old = store.put("a/1", b"old")
    new = store.put("a/1", b"newer", replace=True)
    store.put("b", b"z").release()
    assert bytes(old) == b"old" and bytes(store.get("a/1")) == b"newer" and old.id != new.id
    (row,) = [row for row in store.list("a/") if row.state != "dying"]
    found = store.stat("a/1")
    assert row._replace(holders=1) == found and found[:5] == ("a/1", new.id, 5, "cpu", "sealed")
    assert (found.user, found.process) == (os.getuid(), os.getpid()) and abs(time.time_ns() - found.made_ns) < 6e10
    for i in range(200):
        store.put(f"many/{i}", b"x").release()
    assert sorted(row.name for row in store.list("many/")) == sorted(f"many/{i}" for i in range(200))


# ----------------------------------------------------------------------------------- waits and threads


def test_a_get_waits_for_the_seal(daemon, store):
    got = threading.Event()

    def put():
        with daemon.open() as other, other.create("a", 3, "u1", transient=True) as blob:
            time.sleep(0.05)
            blob.numpy()[:] = 5
            blob.seal()
            got.wait(60)  # the blob is gone when its last user has left, and the get may come late

    for timeout in (None, 60):
        thread = threading.Thread(target=put)
        thread.start()
        assert store.get("a", timeout=timeout).numpy().tolist() == [5, 5, 5]
        got.set()
        thread.join()
        got.clear()
        eventually(lambda: is_gone(store, "a"))


def test_calls_that_wait_are_interrupted(daemon, store):
    interrupted_soon(lambda: store.get("no", timeout=None), lambda: store.get("no", timeout=100),
                     lambda: store.watch().next(), lambda: sluice.attach("no", None, store=store))
    blobs = [store.create(f"a{i}", 10, "u1") for i in range(7)]
    waiting = iter(blobs)
    server = children_of(daemon.program.pid)[0]
    os.kill(server, signal.SIGSTOP)
    try:
        interrupted_soon(lambda: next(waiting).seal())
        with pytest.raises(ValueError, match="'a0' is being sealed"):
            blobs[0].numpy()
    finally:
        os.kill(server, signal.SIGCONT)
    eventually(lambda: [row.state for row in store.list("a")] == ["sealed"] * 7)
    eventually(lambda: not any("being" in repr(blob) for blob in blobs))
    assert all(blob.sealed and blob.nbytes == 10 for blob in blobs)


def test_threads_share_a_store(store):
    def work(number):
        for i in range(50):
            with store.put(f"{number}/{i}", numpy.full(1000, i)) as blob:
                assert (store.get(blob.name).numpy() == i).all()
            store.delete(blob.name)
        done.append(number)

    done = []
    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(6))
    eventually(lambda: not store.list())


# -------------------------------------------------------------------------------------------- children


def look(view, blob, store, path, results):
    refused = 0
    for call in (lambda: store.get("a"), lambda: store.put("b", b"x"), lambda: memoryview(blob), blob.__dlpack__,
                 store.watch):
        try:
            call()
        except ChildProcessError as error:
            refused += error.errno == errno.ECHILD or "parent's" in str(error)
    with sluice.Store(path) as own:
        results.put((view[:5].tolist(), refused, own.get("a").numpy()[5:7].tolist()))


def test_a_child_of_fork_reads_views_and_opens_its_own_store(daemon, store):
    blob = store.put("a", numpy.arange(1000))
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=look, args=(blob.numpy(), blob, store, daemon.path, results), daemon=True)
    child.start()
    assert results.get(timeout=60) == ([0, 1, 2, 3, 4], 5, [5, 6])
    child.join(60)
    assert child.exitcode == 0 and store.stat("a").holders == 1 and blob.numpy()[999] == 999


def share(store, name, results):
    results.put(int(store.get(name, 60).numpy().sum()))
    store.put("answer", b"x")


def test_a_spawned_process_gets_the_array_by_name(store):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    child = context.Process(target=share, args=(store, "a", results), daemon=True)
    child.start()
    store.put("a", numpy.arange(1000))
    assert results.get(timeout=60) == 499500 and bytes(store.get("answer", 60)) == b"x"
    child.join(60)


# --------------------------------------------------------------------------------------------- watches


def test_a_watch_in_an_event_loop(store):
    async def run():
        seen, watch = [], store.watch("a/")

        async def follow():
            async for event in watch:
                seen.append((event.kind, event.name, event.nbytes))
            seen.append("closed")

        task = asyncio.create_task(follow())
        for i in range(3):
            await asyncio.sleep(0.01)
            store.put(f"a/{i}", b"12345").release()
            store.put(f"b/{i}", b"12345").release()
            store.delete(f"a/{i}")
        while len(seen) < 9:
            await asyncio.sleep(0.01)
        watch.close()
        await asyncio.wait_for(task, 60)
        assert seen == [(kind, f"a/{i}", 5) for i in range(3) for kind in ("created", "sealed", "deleted")] + ["closed"]
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_task_that_is_cancelled_loses_no_event(store):
    async def run():
        with store.watch() as watch:
            names = [str(i) for i in range(20)]
            seen = []
            for name in names:
                store.put(name, b"x").release()
                task = asyncio.create_task(anext(watch))
                await asyncio.sleep(random.choice((0, 0.001, 0.003)))
                task.cancel()
                try:
                    seen.append(await task)
                except asyncio.CancelledError:
                    pass
            while len(seen) < 40:
                seen.append(await asyncio.wait_for(anext(watch), 60))
            assert [event.name for event in seen if event.kind == "sealed"] == names

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_cancelled_task_and_the_next_take_events_in_order(store):
    async def run():
        with store.watch() as watch:
            for name in "01":
                store.put(name, b"x").release()
            take, taken = watch._take, threading.Event()

            def slowly():
                event = take()
                if not taken.is_set():
                    taken.set()
                    time.sleep(0.3)
                return event

            watch._take = slowly
            task = asyncio.create_task(anext(watch))
            while not taken.is_set():
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            seen = [await asyncio.wait_for(anext(watch), 60) for _ in range(4)]
            assert [event.name for event in seen if event.kind == "sealed"] == ["0", "1"]

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_second_task_is_refused_by_a_watch(store):
    async def run():
        with store.watch() as watch:
            tasks = [asyncio.create_task(anext(watch)) for _ in range(2)]
            done, waiting = await asyncio.wait(tasks, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            assert "another task" in str(done.pop().exception())
            store.put("a", b"x").release()
            assert (await asyncio.wait_for(waiting.pop(), 60)).name == "a"

    asyncio.run(run())


def test_a_watch_without_an_event_loop(store):
    with store.watch("a") as watch:
        with pytest.raises(TimeoutError):
            watch.next(0.01)
        store.put("a", b"x")
        assert [watch.next(60).kind, watch.next().kind] == ["created", "sealed"]
    for call in (watch.next, watch.fileno):
        with pytest.raises(ValueError, match="closed"):
            call()


# --------------------------------------------------------------------------------------------- devices


def test_a_blob_on_a_device(store, path, device_array, stream):
    def contents(blob):
        out = ctypes.create_string_buffer(blob.nbytes)
        address = blob.__cuda_array_interface__["data"][0]
        assert C.sluice_copy(out, ctypes.c_void_p(address), ctypes.c_size_t(blob.nbytes)) == 0
        return out.raw

    array = device_array(1000)
    array.set(pattern(1000))
    put = store.put("put", array)
    assert put.device == "emulated:0" and put.shape == (1000,) and contents(put) == pattern(1000)
    with store.create("read", (10, 25), "float32", "emulated:0") as blob:
        assert blob.__cuda_array_interface__["data"][1] is False
        with sluice.open(path) as f:
            assert f.read_on(blob, 7, stream).wait(60) == 1000
    got = store.get("read")
    assert got.shape == (10, 25) and contents(got) == pattern(1007)[7:] and got.__dlpack_device__() == (12, 0)
    assert got.__cuda_array_interface__["data"][1] is True and "dltensor" in repr(got.__dlpack__())
    for refused in (memoryview, bytes, lambda blob: blob.numpy(), lambda blob: blob.numpy("on-write"),
                    lambda blob: blob.__dlpack__(dl_device=(1, 0)), lambda blob: blob.__dlpack__(copy=True)):
        with pytest.raises((BufferError, OSError), match="device|emulated"):
            refused(got)
    with sluice.open(path) as f, pytest.raises(BufferError, match="read-only"):
        f.read_into(got)
    moved = store.put("moved", numpy.arange(4), device="emulated:1")
    assert store.stat("moved").device == "emulated:1" == moved.device
    assert contents(moved) == numpy.arange(4).tobytes()
    assert store.put("back", array, device="cpu").numpy().tobytes() == pattern(1000)


class Streamed:
    """An array with work of a stream under way on it, as of CuPy."""

    def __init__(self, array, stream):
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "stream": stream}
        self.array = array


def test_a_put_comes_after_the_work_of_the_arrays_stream(store, path, device_array, stream):
    for i in range(5):
        array = device_array(50_000)
        with sluice.open(path) as f:
            read = f.read_on(array, i, stream)
            blob = store.put("a", Streamed(array, stream), device="cpu", replace=True)
            assert bytes(blob) == pattern(60_000)[i:i + 50_000]
            read.wait(60)


# ------------------------------------------------------------------------------------------ dead clients


def children_of(pid):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                if int(stat.read().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(entry))
        except OSError:
            pass
    return found


def test_a_server_that_is_killed_takes_no_blob_along(daemon, store):
    blob, watch = store.put("a", b"kept"), store.watch()
    unsealed = store.create("b", 4, "u1")
    server = children_of(daemon.program.pid)[0]
    os.kill(server, signal.SIGKILL)
    assert watch.next(60).kind == "lost"
    assert bytes(blob) == bytes(store.get("a")) == b"kept" and blob.id == store.stat("a").id
    with pytest.raises(ConnectionResetError, match="'b'|replaced"):
        unsealed.seal()
    assert bytes(store.put("c", b"new")) == b"new"


def live(path, step):
    """All that a client does, each step of it."""
    store = sluice.Store(path)
    step("opened")
    store.put("mine/sealed", b"s" * 5000)
    step("put")
    store.put("mine/transient", b"t", transient=True)
    step("dropped")
    kept = store.put("mine/kept", b"k", transient=True)
    step("transient")
    blob = store.create("mine/made", (100, 30), "f4")
    step("created")
    view = blob.numpy()
    view[:50] = 1
    step("filling")
    del view
    blob.seal()
    step("sealed")
    large = store.create("mine/large", 1 << 20, "u1", replace=True)
    step("created large")
    watch = store.watch()
    step("watches")
    theirs = store.get("theirs").numpy()
    step("holds")
    private = store.get("theirs").numpy("on-write")
    private[:] = 1
    step("has a private view")
    store.delete("mine/sealed")
    step("deleted")
    tensor = store.get("mine/made").__dlpack__()
    step("exported")
    store.close()
    step("closed")
    del kept, large, watch, theirs, tensor


def work(path, step):
    store = sluice.Store(path)
    step("begins")
    for i in itertools.count():
        with store.create("mine/array", (1000, 5), "i8", replace=True) as blob:
            blob.numpy()[:] = i
        found = store.get("mine/array").numpy()
        assert (found == i).all()
        store.put(f"mine/{i % 3}", found, replace=True, transient=bool(i % 2))
        step(None)


def client_killed(role, path, last):
    """Runs a client, and kills it in the step of that number, or after so many seconds. Returns the step's name."""
    ours, theirs = multiprocessing.Pipe()

    def step(name):
        if name:
            theirs.send(name)
            theirs.recv()

    child = multiprocessing.get_context("fork").Process(target=role, args=(path, step), daemon=True)
    child.start()
    theirs.close()
    for _ in range(last if isinstance(last, int) else 0):
        ours.recv()
        ours.send(None)
    name = ours.recv()
    if not isinstance(last, int):
        ours.send(None)
        time.sleep(last)
    child.kill()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL, name
    return name


def test_a_client_is_killed_in_each_step(daemon, store):
    theirs, steps = store.put("theirs", b"t" * 70_000), []
    while steps[-1:] != ["closed"]:
        steps.append(client_killed(live, daemon.path, len(steps)))
        # What it had not sealed is gone, and so are its transient blobs; sealed ones are whole.
        eventually(lambda: all(row.state == "sealed" and not row.transient for row in store.list()))
        left = {row.name for row in store.list()} - {"theirs"}
        assert left == {name for name, begins, ends in (("mine/sealed", "put", "deleted"), ("mine/made", "sealed", ""))
                        if begins in steps and ends not in steps}, steps
        if "mine/sealed" in left:
            assert bytes(store.get("mine/sealed")) == b"s" * 5000
        if "mine/made" in left:
            assert store.get("mine/made").numpy()[:50].sum() == 1500
        eventually(lambda: store.stat("theirs").holders == 1)
        for name in left:
            store.delete(name)
        assert bytes(theirs) == b"t" * 70_000
    eventually(lambda: [row.name for row in store.list()] == ["theirs"])
    assert len(steps) == 14


def test_a_client_is_killed_at_any_time(daemon, store):
    for _ in range(8):
        client_killed(work, daemon.path, random.uniform(0, 0.1))
        eventually(lambda: all(row.state == "sealed" for row in store.list()))
        for row in store.list():
            array = store.get(row.name).numpy()
            assert array.shape == (1000, 5) and (array == array[0, 0]).all()
            del array


def test_a_daemon_that_stops_leaves_views_readable():
    daemon = Daemon()
    store = daemon.open()
    blob = store.put("a", b"stays")
    daemon.stop()
    assert bytes(blob) == b"stays"
    del blob
    store.close()
