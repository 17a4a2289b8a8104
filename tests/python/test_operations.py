# SPDX-License-Identifier: Apache-2.0
import asyncio
import errno
import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref

import pytest
import sluice
from conftest import pattern


class Tracked(bytearray):
    """A buffer whose end can be seen."""


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_operation_is_a_future(slow_server):
    with sluice.open(slow_server.uri) as f:
        buffer = bytearray(50_000)
        operation, whole = f.read_into_async(buffer, 10), f.read_async(1000, 500)
        ends = []
        operation.add_done_callback(ends.append)
        assert not operation.done and "running" in repr(operation)
        with pytest.raises(TimeoutError):
            operation.wait(0)
        with pytest.raises(TimeoutError):
            operation.wait(timeout=0.05)
        with pytest.raises(BufferError):  # it is exported
            buffer.append(1)
        slow_server.go.set()
        assert operation.wait() == operation.wait(0) == 50_000 and operation.done
        assert buffer == pattern(100_000)[10:50_010] and not operation.cancel()
        assert whole.wait(30) == pattern(2000)[500:1500]
        wait_until(lambda: ends == [operation])
        operation.add_done_callback(ends.append)
        assert ends == [operation] * 2
        with pytest.raises(TypeError, match="None cannot be called"):
            operation.add_done_callback(None)
        with pytest.MonkeyPatch.context() as patch:  # as of an operation that ends later
            patch.setattr(sys, "unraisablehook", ends.append)
            assert operation.add_done_callback(lambda _: 1 / 0) is None
        assert ends.pop().exc_type is ZeroDivisionError
        buffer.append(1)


def test_a_cancelled_operation_fails_and_gives_its_buffer_back(slow_server):
    with sluice.open(slow_server.uri) as f:
        buffer = bytearray(50_000)
        operation = f.read_into_async(buffer)
        assert operation.cancel()
        with pytest.raises(OSError) as caught:
            operation.wait(30)
        assert caught.value.errno == errno.ECANCELED and "failed" in repr(operation)
        buffer.clear()


def test_a_failed_operation_has_the_sentence_of_its_error(path):
    with sluice.open(path, "a") as f, pytest.raises(OSError, match="pattern"):
        os.truncate(path, 10)
        f.write_async(b"x", 2**62).wait()


def test_the_buffer_of_a_dropped_operation_lives_until_its_end(slow_server):
    f = sluice.open(slow_server.uri)
    buffer = Tracked(50_000)
    alive = weakref.ref(buffer)
    f.read_into_async(buffer)
    file = weakref.ref(f)
    del buffer, f
    gc.collect()
    assert alive() is not None and file() is not None
    with pytest.warns(ResourceWarning):
        slow_server.go.set()
        wait_until(lambda: alive() is None)
        wait_until(lambda: file() is None or file().closed)


def test_dropped_operations_of_a_closed_loop_end(slow_server):
    f = sluice.open(slow_server.uri)
    buffers = [Tracked(50_000) for _ in range(3)]
    alive = [weakref.ref(buffer) for buffer in buffers]

    async def drop():
        for buffer in buffers:
            f.read_into_async(buffer)

    asyncio.run(drop())
    buffers.clear()
    gc.collect()
    slow_server.go.set()
    wait_until(lambda: gc.collect() >= 0 and not any(ref() for ref in alive))
    f.close()


def test_a_task_that_is_cancelled_when_its_file_is_open_warns_of_nothing(path):
    async def wait_for(operation):
        return await operation

    async def is_cancelled(operation, late):
        task = asyncio.ensure_future(wait_for(operation))
        await asyncio.sleep(0)
        if late:  # it has not noticed yet
            operation.wait(30)
        task.cancel()
        try:
            (await task).close()  # it was over at once
        except asyncio.CancelledError:
            operation.add_done_callback(lambda _: ends.append(late))
        while not operation.done:
            await asyncio.sleep(0.001)

    with sluice.Writer(f"{path}.h5") as w:
        w.series("u", shape=(2,), dtype="i8").append([1, 2])
    made, opened = [], sluice.File._prepare
    with warnings.catch_warnings(record=True) as warned, pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("always")
        patch.setattr(sluice.File, "_prepare", lambda f, *a: made.append(weakref.ref(f)) or opened(f, *a))
        for opens in (lambda: sluice.open_async(path), lambda: sluice.open_array_async(f"{path}.h5#/u")):
            ends = []
            while ends.count(True) < 3 or ends.count(False) < 3:
                for late in (False, True):
                    asyncio.run(is_cancelled(opens(), late))
        wait_until(lambda: gc.collect() >= 0 and (warned or not any(ref() for ref in made)))
    assert made and not warned, warned[0]


def test_callbacks_of_a_closed_loop_run(slow_server):
    f, ends = sluice.open(slow_server.uri), []

    async def start():
        f.read_async(1000).add_done_callback(lambda operation: ends.append(operation.wait(0)))

    loop = asyncio.new_event_loop()
    loop.run_until_complete(start())
    loop.close()
    slow_server.go.set()
    wait_until(lambda: ends)
    assert ends == [pattern(1000)] and loop.is_closed()
    f.close()


def test_calls_of_a_file_have_forms_that_return_operations(path, slow_server, mute_server, tmp_path):
    async def main():
        f = await sluice.open_async(tmp_path / "new", "w", durable=False)
        assert await f.write_async(b"new") == 3 and await f.sync_async() is None
        assert (await f.stat_async()).size == 3
        assert not f.close_async().cancel()
        with pytest.raises(FileNotFoundError, match="no-such"):
            await sluice.open_async(path.parent / "no-such")
        slow = sluice.open(slow_server.uri)
        read, closed = slow.read_async(1000), slow.close_async()
        await asyncio.sleep(0.02)
        assert not closed.done and "running" in repr(closed)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(result(closed))), 0.02)
        slow_server.go.set()
        assert await closed is None and await read == pattern(1000) and slow.closed

    async def result(operation):
        return await operation

    asyncio.run(main())
    assert (tmp_path / "new").read_bytes() == b"new"
    opened, ends = sluice.open_async(path), []
    with opened.wait(30) as f:
        assert f.read(5) == pattern(5) and opened.done and repr(f) in repr(opened)
        opened.add_done_callback(ends.append)
        assert ends == [opened]
        with pytest.raises(TimeoutError):
            sluice.open_async(mute_server, headers=["X: y"]).wait(0)
    failed = f.stat_async()
    with pytest.raises(ValueError, match="closed"):
        failed.wait()
    assert "failed: the file is closed" in repr(failed)


def test_close_waits_for_operations(slow_server):
    f = sluice.open(slow_server.uri)
    buffer = bytearray(50_000)
    operation = f.read_into_async(buffer)
    threading.Timer(0.05, slow_server.go.set).start()
    f.close()
    assert operation.done and operation.wait() == 50_000 and buffer == pattern(50_000)


def test_coroutines_await_operations(path):
    async def read(f, i):
        buffer = bytearray(90)
        assert await f.read_into_async(buffer, i) == 90
        return bytes(buffer)

    async def main():
        with sluice.open(path) as f:
            assert await asyncio.gather(*[read(f, i) for i in range(1000)]) == [
                pattern(2000)[i:i + 90] for i in range(1000)]
            operation = f.read_async(4)
            assert await operation == await operation == pattern(4)
            with pytest.raises(OSError):
                await f.write_async(b"x")

    asyncio.run(main())
    asyncio.run(main())


def test_a_loop_goes_on_while_its_tasks_wait(slow_server):
    async def main():
        with sluice.open(slow_server.uri) as f:
            made_before = f.read_async(1000)
            reads = [asyncio.ensure_future(wait(f.read_async(1000, i))) for i in range(50)]
            for _ in range(100):
                await asyncio.sleep(0)
            assert not any(read.done() for read in reads)
            slow_server.go.set()
            assert await asyncio.gather(*reads) == [pattern(2000)[i:i + 1000] for i in range(50)]
            assert await made_before == pattern(1000)

    async def wait(operation):
        return await operation

    asyncio.run(main())


def test_an_operation_of_no_loop_may_be_awaited(slow_server):
    with sluice.open(slow_server.uri) as f:
        operation = f.read_async(1000)

        async def main():
            asyncio.get_running_loop().call_later(0.05, slow_server.go.set)
            return await operation

        assert asyncio.run(main()) == pattern(1000)


def test_a_cancelled_task_cancels_its_operation(slow_server):
    async def main():
        with sluice.open(slow_server.uri) as f:
            operation = f.read_async(1000)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(operation_of(operation), 0.05)
            with pytest.raises(OSError, match="anceled|ancelled"):
                operation.wait(30)

    async def operation_of(operation):
        return await operation

    asyncio.run(main())


def test_many_threads_use_a_file_at_once(path):
    failed = []

    def work(seed):
        try:
            for i in range(300):
                offset = (seed * 7919 + i * 131) % 90_000
                operations = [f.read_async(100, offset + k) for k in range(8)]
                if i % 3 == 0:
                    del operations[4:]
                for k, operation in enumerate(operations):
                    assert operation.wait(60) == pattern(100_000)[offset + k:offset + k + 100]
                assert f.read(64, offset) == pattern(100_000)[offset:offset + 64]
        except BaseException as error:
            failed.append(error)

    with sluice.open(path, context=sluice.Context(inline_bytes=64)) as f:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


def test_one_operation_is_awaited_by_many_threads(slow_server):
    with sluice.open(slow_server.uri) as f:
        operation, results = f.read_async(1000), []
        threads = [threading.Thread(target=lambda: results.append(operation.wait())) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.02)
        slow_server.go.set()
        for thread in threads:
            thread.join(60)
        assert results == [pattern(1000)] * 8


def test_nothing_is_left_over_after_many_calls(path):
    def calls(n):
        for i in range(n):
            f.read_into(buffer, i % 5000)
            f.read(10)
            f.readv([(buffer, 0)])
            f.read_into_async(buffer, i % 5000)
            f.read_into_async(buffer).wait()
            with pytest.raises(OSError):
                f.write(buffer)
        gc.collect()

    buffer = bytearray(100)
    with sluice.open(path, context=sluice.Context(inline_bytes=64)) as f:
        calls(1000)
        before, descriptors = sys.getrefcount(f), len(os.listdir("/proc/self/fd"))
        objects, memory = len(gc.get_objects()), resident()
        calls(int(os.environ.get("STRESS", "") and 20_000 or 3000))
        wait_until(lambda: sys.getrefcount(f) <= before)
        assert len(os.listdir("/proc/self/fd")) <= descriptors
        assert len(gc.get_objects()) < objects + 100
        assert resident() < memory + (8 << 20)
        buffer.append(1)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def run_python(text, *args, **options):
    return subprocess.run([sys.executable, "-c", text, *map(str, args)], timeout=60, capture_output=True, text=True,
                          **options)


def test_the_interpreter_ends_with_operations_in_flight(slow_server, path):
    for end in ("", "import os; os._exit(0)", "sys.exit(0)", "raise SystemExit(0)"):
        ran = run_python(f"""
import sluice, sys
f = sluice.open(sys.argv[1])
g = sluice.open(sys.argv[2])
buffers = [bytearray(50_000) for _ in range(20)]
operations = [f.read_into_async(b) for b in buffers]
dropped = [f.read_into_async(b) and None for b in buffers]
local = [g.read_async(90_000) for _ in range(50)]
operations[0].add_done_callback(print)
{end}
""", slow_server.uri, path)
        assert ran.returncode == 0 and not ran.stderr, ran.stderr


def test_a_program_that_ends_with_writes_in_flight_leaves_nothing(tmp_path):
    for end in ("", "del o", "io = f.as_io(); io.write(b'a')"):
        ran = run_python(f"""
import sluice, sys
f = sluice.open(sys.argv[1], "w")
o = f.write_async(bytes(20_000_000))
{end}
""", tmp_path / "new", env={**os.environ, "PYTHONDEVMODE": "1"})
        assert ran.returncode == 0 and "new', mode 'w'> was not closed" in ran.stderr, ran.stderr
        assert "ignored" not in ran.stderr and not os.listdir(tmp_path), ran.stderr


def test_memory_is_used_as_the_debugging_allocator_allows(path):
    ran = run_python("""
import asyncio, sluice, sys, gc
async def main():
    with sluice.open(sys.argv[1]) as f:
        for i in range(200):
            assert len(await f.read_async(100, i)) == 100
            f.read_async(90_000), f.readv([(bytearray(10), i)]), f.stat()
with sluice.open(sys.argv[1]) as f:
    assert len(f.read(200_000)) == 100_000
asyncio.run(main())
gc.collect()
""", path, env={**os.environ, "PYTHONMALLOC": "debug"})
    assert ran.returncode == 0 and not ran.stderr, ran.stderr


def test_other_interpreters_are_refused(path):
    ran = run_python("""
import sluice, sys
try:
    import _interpreters as sub
except ImportError:
    import _xxsubinterpreters as sub
try:
    error = sub.run_string(sub.create(), "import sluice").formatted
except sub.RunFailedError as raised:  # before 3.13
    error = str(raised)
assert "main interpreter" in error or "loading in subinterpreters" in error, error
assert len(sluice.open(sys.argv[1]).read_async(3).wait()) == 3
""", path)
    assert ran.returncode == 0, ran.stderr


def test_what_callbacks_raise_goes_to_the_hook(path, monkeypatch):
    caught = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: caught.append(raised.exc_type))
    with sluice.open(path) as f:
        for operation in (f.stat_async(), f.read_async(3)):
            for kind in (ValueError, GeneratorExit):
                def fail(_, kind=kind):
                    raise kind("of a callback")

                operation.wait(60)
                operation.add_done_callback(fail)
    assert caught == [ValueError, GeneratorExit] * 2


def test_a_read_beyond_a_small_file_takes_its_memory_alone(path):
    with sluice.open(path) as f:
        whole = f.read(f.size)
        for n in (1 << 27, 1 << 40, 2**63 - 1):
            assert f.read(n) == f.read_async(n).wait(60) == whole
            assert f.read(n, 5) == whole[5:] and f.read(n, 1 << 50) == b""
