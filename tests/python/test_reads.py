# SPDX-License-Identifier: Apache-2.0
"""Bytes of reads in flight are bounded."""
import asyncio
import errno
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest
import sluice
from conftest import SlowServer, pattern
from sluice import _core

DATA = pattern(100_000)


@pytest.fixture
def bound():
    """Sets how many bytes may be in flight; all of them have to be gone at the end."""
    before = _core.reads()[2]
    yield _core.reads
    gc.collect()
    wait_until(lambda: _core.reads()[:2] == (0, 0))
    _core.reads(before)


@pytest.fixture
def file(path):
    """The file of the pattern, of which no read is over at once."""
    with sluice.open(path, context=sluice.Context(inline_bytes=64)) as opened:
        yield opened


@pytest.fixture
def slow():
    """Opens a file that is read when `go` of its server is set: (server, file)."""
    opened = []

    def open_one(**options):
        server = SlowServer(DATA)
        opened.append((server, sluice.open(server.uri, **options)))
        return opened[-1]

    yield open_one
    for server, f in opened:
        server.go.set()
        f.discard()
        server.server.shutdown()
        server.server.server_close()


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def over(operations):
    """Reads that wait are over when those before them are, in the order of their bytes."""
    return [operation.wait(60) for operation in operations]


# ------------------------------------------------------------------------------------------------ order and bound


def test_reads_wait_in_order_without_bytes_and_threads(bound, slow):
    bound(100_000)
    server, f = slow()
    before = sum("sluice" in thread.name for thread in threading.enumerate())
    operations = [f.read_async(40_000, i) for i in range(50)]
    assert bound() == (48, 80_000, 100_000)
    time.sleep(0.05)
    assert bound() == (48, 80_000, 100_000)
    assert sum("sluice" in thread.name for thread in threading.enumerate()) <= before + 1
    assert not any(operation.done for operation in operations)
    assert "running" in repr(operations[40])
    for seconds in (0, 0.02):
        try:
            operations[30].wait(seconds)
        except TimeoutError:
            continue
        raise AssertionError
    server.go.set()
    assert over(reversed(operations)) == [DATA[i:i + 40_000] for i in reversed(range(50))]
    assert bound() == (0, 0, 100_000)


def test_one_read_at_a_time_keeps_the_order(bound, file, path):
    bound(1)
    with sluice.open(path) as other:
        operations = [(file, other)[i % 2].read_async(5000 + i % 7, i) for i in range(300)]
        done = []
        while not all(done):
            done = [operation.done for operation in reversed(operations)]
            assert done == sorted(done)  # those before one that is over are over
        assert over(operations) == [DATA[i:i + 5000 + i % 7] for i in range(300)]


def test_a_longer_read_runs_alone(bound, slow):
    bound(1000)
    (server, f), (other, g) = slow(), slow()
    first, long, behind = f.read_async(400), g.read_async(50_000, 7), f.read_async(10, 3)
    assert bound() == (2, 400, 1000)
    server.go.set()
    assert first.wait() == DATA[:400]
    wait_until(lambda: bound() == (1, 50_000, 1000))
    other.go.set()
    assert long.wait() == DATA[7:50_007] and behind.wait() == DATA[3:13]


def test_reads_that_threads_wait_for_are_bounded(bound, file):
    bound(100_000)
    seen, failed = [], []

    def work(seed):
        try:
            for i in range(20):
                n, at = 60_000 if i % 3 else 20_000, (seed * 131 + i * 17) % 30_000
                assert file.read(n, at) == DATA[at:at + n]
                seen.append(bound()[1])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed and len(seen) == 320 and max(seen) <= 100_000 and bound()[:2] == (0, 0)


# ------------------------------------------------------------------------------------------------- who begins them


def test_a_loop_goes_on_while_its_reads_wait(bound, slow):
    bound(100_000)

    async def main():
        server, f = slow()
        begun = time.monotonic()
        reads = [asyncio.ensure_future(result(f.read_async(40_000, i))) for i in range(40)]
        for _ in range(200):
            await asyncio.sleep(0)
        assert time.monotonic() - begun < 10 and not any(read.done() for read in reads)
        server.go.set()
        assert await asyncio.gather(*reads) == [DATA[i:i + 40_000] for i in range(40)]

    asyncio.run(main())


async def result(operation):
    return await operation


def test_reads_begin_where_no_thread_asks_for_those_before(bound, file):
    bound(100_000)
    operations = [file.read_async(90_000, i) for i in range(20)]
    wait_until(lambda: operations[-1].done)
    assert over(operations) == [DATA[i:i + 90_000] for i in range(20)]


def test_a_thread_of_a_loop_may_wait_for_a_read(bound, file):
    bound(100_000)

    async def main(f):
        held = [f.read_async(90_000, i) for i in range(5)]
        assert f.read(50_000, 9) == DATA[9:50_009]  # the loop sees no end meanwhile
        f.read_async(90_000)
        assert held[4].wait(60) == DATA[4:90_004]
        assert [await operation for operation in held] == [DATA[i:i + 90_000] for i in range(5)]

    asyncio.run(main(file))


def test_reads_of_a_loop_that_stands_still_hold_up_no_others(bound, file):
    bound(100_000)
    loop, held = asyncio.new_event_loop(), []

    async def start():
        held.extend(file.read_async(90_000, i) for i in range(4))

    loop.run_until_complete(start())
    assert file.read(80_000) == DATA[:80_000] and over([file.read_async(90_000)]) == [DATA[:90_000]]
    loop.close()
    assert over(held) == [DATA[i:i + 90_000] for i in range(4)]


def test_callbacks_may_read(bound, file):
    bound(100_000)
    results = []

    def again(operation):
        results.append((operation.wait(), file.read(70_000, 5), file.read_async(70_000, 6).wait()))

    operations = [file.read_async(70_000, i) for i in range(30)]
    for operation in operations:
        operation.add_done_callback(again)
    wait_until(lambda: len(results) == 30)
    assert sorted(results) == sorted((DATA[i:i + 70_000], DATA[5:70_005], DATA[6:70_006]) for i in range(30))


def test_reads_wait_for_a_place_among_the_operations(bound, slow, path):
    bound(100_000)
    context = sluice.Context(max_operations=1, inline_bytes=64)
    (server, g), (other, h) = slow(context=context), slow()
    buffer = bytearray(1000)
    into, holds = g.read_into_async(buffer), h.read_async(99_000)
    with sluice.open(path, context=context) as f:
        waiting = [f.read_async(3000, i) for i in range(50)]
        other.go.set()
        assert holds.wait() == DATA[:99_000]
        # Every few milliseconds one of them has memory for a moment, and tries.
        wait_until(lambda: bound()[:2] == (50, 0))
        assert waiting[7].cancel()
        server.go.set()
        assert into.wait() == 1000
        del waiting[7]
        assert over(waiting) == [DATA[i:i + 3000] for i in range(50) if i != 7]
    assert bound()[:2] == (0, 0)


def test_reads_that_are_refused_when_they_begin_fail_then(bound, slow, file):
    bound(100_000)
    server, f = slow()
    first, ends = f.read_async(99_000), []
    refused = [file.read_async(5000, 2**63) for _ in range(20_000)]
    for operation in refused[::100]:
        operation.add_done_callback(ends.append)
    endless, last = file.read_async(2**62), file.read_async(5000, 1)
    server.go.set()
    assert first.wait() == DATA[:99_000] and last.wait() == DATA[1:5001]
    for operation in refused:
        with pytest.raises(OSError, match="INT64_MAX"):
            operation.wait()
    assert endless.wait() == DATA and file.read(2**62) == DATA
    wait_until(lambda: len(ends) == 200)


# ------------------------------------------------------------------------------------------------ cancel, drop, close


def test_a_read_that_waits_is_cancelled_at_once(bound, slow):
    bound(100_000)
    server, f = slow()
    first, ends = f.read_async(90_000), []
    waiting = [f.read_async(200_000), *(f.read_async(3000, i) for i in range(3))]
    waiting[0].add_done_callback(ends.append)
    assert waiting[0].cancel() and ends == waiting[:1] and waiting[0].done and not waiting[0].cancel()
    with pytest.raises(OSError, match="before it began") as raised:
        waiting[0].wait()
    assert raised.value.errno == errno.ECANCELED
    assert bound() == (0, 99_000, 100_000)  # those behind it have begun

    async def main():
        task = asyncio.ensure_future(result(f.read_async(50_000)))
        await asyncio.sleep(0.01)
        assert bound()[0] == 1 and task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bound()[0] == 0

    asyncio.run(main())
    server.go.set()
    assert first.wait() == DATA[:90_000] and over(waiting[1:]) == [DATA[i:i + 3000] for i in range(3)]


def test_a_dropped_read_is_cancelled(bound, slow):
    bound(100_000)
    server, f = slow()
    f.read_async(50_000)
    wait_until(lambda: bound()[:2] == (0, 0))  # before the server answers
    kept, filled = f.read_async(90_000), bytearray(1000)
    for _ in range(100):
        f.read_async(50_000)
        assert bound()[:2] == (0, 90_000)
    f.read_into_async(filled)
    called = []
    f.read_async(60_000, 1).add_done_callback(lambda operation: called.append(operation.wait()))
    gc.collect()
    time.sleep(0.02)
    assert not called and bound()[0] == 1

    async def main():
        for i in range(1000):
            f.read_async(10, i)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert bound()[0] == 1
    server.go.set()
    assert kept.wait() == DATA[:90_000]
    wait_until(lambda: called and filled == DATA[:1000])  # somebody can get their bytes
    assert called == [DATA[1:60_001]]


def run(program, *arguments, **variables):
    ran = subprocess.run([sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", program, *map(str, arguments)],
                         capture_output=True, text=True, timeout=120, env={**os.environ, **variables})
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    return ran.stdout


def test_a_loop_that_drops_reads_and_never_waits_stays_small(path):
    large = path.with_name("large")
    large.write_bytes(b"x" * (1 << 20))
    grown = run("""
import asyncio, resource, sluice, sys

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

async def main(f):
    for _ in range(3000):
        f.read_async(1 << 20)

with sluice.open(sys.argv[1], context=sluice.Context(inline_bytes=64)) as f:
    assert len(f.read(1 << 20)) == 1 << 20
    before = peak()
    asyncio.run(main(f))
    for _ in range(3000):
        f.read_async(1 << 20)
    assert f.read(5) == b"xxxxx"
    print(peak() - before)
""", large, SLUICE_READ_BYTES="32 MiB")
    assert int(grown) < 80 << 20


def test_close_waits_for_reads_that_wait(bound, slow, path):
    bound(100_000)
    server, f = slow()
    operations = [f.read_async(60_000, i) for i in range(10)]
    threading.Timer(0.05, server.go.set).start()
    f.close()
    assert f.closed and all(operation.done for operation in operations)
    assert over(operations) == [DATA[i:i + 60_000] for i in range(10)]
    server, f = slow()
    operations = [f.read_async(60_000, i) for i in range(10)]
    threading.Timer(0.05, server.go.set).start()
    f.discard()
    assert over(operations) == [DATA[i:i + 60_000] for i in range(10)]

    async def main():
        f = sluice.open(path, context=sluice.Context(inline_bytes=64))
        operations = [f.read_async(60_000, i) for i in range(10)]
        f.close()  # the thread of the loop
        with pytest.raises(ValueError, match="closed"):
            f.read_async(60_000)
        assert [await operation for operation in operations] == [DATA[i:i + 60_000] for i in range(10)]

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_waiting_reads_need_lives_until_they_are_over(bound, path):
    bound(100_000)
    for operations in ([], None):  # kept, or dropped
        context = sluice.Context(inline_bytes=64)
        f = sluice.open(path, context=context)
        alive = weakref.ref(context), weakref.ref(f)
        found = [f.read_async(60_000, i) for i in range(10)]
        del f, context
        gc.collect()
        if operations is not None:
            assert over(found) == [DATA[i:i + 60_000] for i in range(10)]
        del found
        wait_until(lambda alive=alive: gc.collect() >= 0 and not any(ref() for ref in alive))
    assert bound()[:2] == (0, 0)


def test_a_wait_for_room_is_interrupted(bound, slow):
    bound(1000)
    server, f = slow()
    running = f.read_async(50_000)
    waiting = f.read_async(10, 4)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for call in (lambda: f.read(10), waiting.wait, lambda: waiting.wait(60), f.close):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            call()
        assert time.monotonic() - begun < 10 and bound()[0] == 1
    server.go.set()
    assert running.wait() == DATA[:50_000] and waiting.wait() == DATA[4:14]


# --------------------------------------------------------------------------------------------- processes


def test_a_child_of_fork_has_room_of_its_own(bound, slow, path):
    bound(100_000)
    server, f = slow()
    running, waiting = f.read_async(90_000), [f.read_async(80_000, i) for i in range(5)]
    child = os.fork()
    if not child:
        status = 1
        try:
            assert bound() == (0, 0, 100_000)
            for operation in (running, *waiting):
                with pytest.raises(OSError) as raised:
                    operation.wait()
                assert raised.value.errno == errno.ECHILD, raised.value
            with sluice.open(path, context=sluice.Context(inline_bytes=64)) as g:
                assert over([g.read_async(80_000, i) for i in range(20)]) == [DATA[i:i + 80_000] for i in range(20)]
            del running, waiting
            gc.collect()
            assert bound() == (0, 0, 100_000)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert bound()[0] == 5
    server.go.set()
    assert running.wait() == DATA[:90_000] and over(waiting) == [DATA[i:i + 80_000] for i in range(5)]


@pytest.mark.parametrize("end", ["", "os._exit(0)", "del kept", "asyncio.run(more())"])
def test_the_interpreter_ends_while_reads_wait(slow, path, end):
    run(f"""
import asyncio, os, sluice, sys, threading, time
f = sluice.open(sys.argv[1])
g = sluice.open(sys.argv[2], context=sluice.Context(inline_bytes=64))
kept = [file.read_async(60_000, i) for i in range(50) for file in (f, g)]
kept[-1].add_done_callback(lambda operation: print("late"))
threading.Thread(target=f.read, args=(60_000,), daemon=True).start()
time.sleep(0.05)

async def more():
    kept.extend(g.read_async(60_000, i) for i in range(50))

{end}
""", slow()[0].uri, path, SLUICE_READ_BYTES="100000")


def test_the_bound_is_a_quarter_of_the_memory_or_as_it_is_given(path):
    program = "import sluice, sys; from sluice import _core; sluice.open(sys.argv[1]).read(1); print(_core.reads()[2])"
    memory = os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < int(run(program, path, SLUICE_READ_BYTES="")) <= memory // 4
    assert int(run(program, path, SLUICE_READ_BYTES="3 MiB")) == 3 << 20
    with pytest.raises(AssertionError, match="SLUICE_READ_BYTES: 'many' is no number or size"):
        run(program, path, SLUICE_READ_BYTES="many")


# ------------------------------------------------------------------------------------------------ at random

MOST, LONGEST = 3 << 20, 5 << 20


class Mix:
    """Reads that are awaited, waited for, dropped and cancelled, on threads and in loops, of several files."""

    def __init__(self, path, seed, rounds):
        self.data = DATA * 60
        large = path.with_name("large")
        large.write_bytes(self.data)
        self.seed, self.rounds = seed, rounds
        self.files = [sluice.open(large, context=sluice.Context(inline_bytes=size)) for size in (64, 65536)]
        self.failed, self.highest, self.reads = [], 0, 0

    def look(self):
        self.highest = max(self.highest, _core.reads()[1])

    def pick(self, rng):
        n = rng.choice([0, 1, 1000, 70_000, 1 << 20, LONGEST if rng.random() < 0.1 else 500_000])
        at = rng.randrange(len(self.data) + 10)
        self.reads += 1
        return rng.choice(self.files), n, at, self.data[at:at + n]

    def check(self, call, right, cancelled):
        try:
            found = call()
        except OSError as error:
            assert cancelled and error.errno == errno.ECANCELED, error
        else:
            assert found == right

    def begin(self, rng):
        file, n, at, right = self.pick(rng)
        operation = file.read_async(n, at)
        self.look()
        cancelled = rng.random() < 0.15
        if cancelled:
            operation.cancel()
        return operation, right, cancelled

    def on_thread(self, seed):
        rng = random.Random(seed)
        held = []
        for _ in range(self.rounds):
            file, n, at, right = self.pick(rng)
            match rng.randrange(5):
                case 0:
                    assert file.read(n, at) == right
                case 1:
                    file.read_async(n, at)
                case _:
                    held.append(self.begin(rng))
            while len(held) > 12:
                operation, right, cancelled = held.pop(rng.randrange(len(held)))
                if rng.random() < 0.7:
                    self.check(operation.wait, right, cancelled)
        for operation, right, cancelled in held:
            self.check(operation.wait, right, cancelled)

    async def task(self, rng):
        for _ in range(3):
            operation, right, cancelled = self.begin(rng)
            if rng.random() < 0.2:
                continue
            try:
                found = await operation
            except OSError as error:
                assert cancelled and error.errno == errno.ECANCELED
            else:
                assert found == right

    async def in_loop(self, rng):
        for _ in range(max(self.rounds // 30, 1)):
            tasks = [asyncio.ensure_future(self.task(rng)) for _ in range(10)]
            await asyncio.sleep(0)
            for task in tasks:
                if rng.random() < 0.1:
                    task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                    raise outcome

    def run(self, work, *arguments):
        try:
            work(*arguments)
        except BaseException as error:
            self.failed.append(error)

    def all(self):
        works = [(self.on_thread, self.seed + i) for i in range(3)]
        works += [(lambda rng: asyncio.run(self.in_loop(rng)), random.Random(self.seed - i)) for i in range(1, 3)]
        threads = [threading.Thread(target=self.run, args=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive()
        if self.failed:
            raise self.failed[0]
        gc.collect()
        wait_until(lambda: _core.reads()[:2] == (0, 0))
        assert 0 < self.highest <= LONGEST


def test_reads_at_random(bound, path):
    bound(MOST)
    seed = int(os.environ.get("SEED", random.randrange(2**32)))
    print("SEED", seed)
    mix = Mix(path, seed, 20_000 if os.environ.get("STRESS") else 100)
    mix.all()
    for file in mix.files:
        file.close()
