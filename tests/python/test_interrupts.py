# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends every wait, soon."""
import contextlib
import os
import random
import signal
import statistics
import threading
import time
from pathlib import Path

import numpy  # here, as load() would else: an interrupt of that import is lost, or an ImportError, now and then
import pytest
import sluice
from conftest import pattern

# 100 ms are promised, also of a machine that is loaded now and then: one that is so for long has some tries.
SOON, PATIENCE, ROUNDS, TRIES = 0.1, 20.0, 7, 4


@pytest.fixture(autouse=True)
def interrupts():
    """A shell has its background jobs ignore SIGINT, and Python then leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(call):
    """Calls on the main thread, and interrupts it. Returns the seconds from the interrupt to its end."""
    sent = []

    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(random.uniform(0.05, 0.2), send)
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()  # on a loaded machine it may send before the call
            call()
        return time.monotonic() - sent[0]
    finally:
        timer.join()


def interrupted_soon(*calls):
    """Interrupts the calls in turn, for several rounds."""
    for _ in range(TRIES):
        times = [interrupted(call) for _ in range(ROUNDS) for call in calls]
        assert max(times) < PATIENCE
        if statistics.median(times) < SOON:
            return
    assert statistics.median(times) < SOON


def test_an_open_is_interrupted(mute_server):
    interrupted_soon(lambda: sluice.open(mute_server), lambda: sluice.load(mute_server, framework="np"))


def test_a_read_is_interrupted_and_its_buffer_stays_exported_until_it_is_over(slow_server):
    with sluice.open(slow_server.uri) as f:
        buffer = bytearray(50_000)
        interrupted_soon(lambda: f.read_into(buffer))
        interrupted_soon(lambda: f.read(1000), lambda: f.readv([(bytearray(1000), 0)]))
        deadline = time.monotonic() + 30
        while True:  # the cancelled operation gives it back
            try:
                buffer.append(1)
                break
            except BufferError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        slow_server.go.set()
        assert f.read(1000) == pattern(1000)


def test_a_wait_is_interrupted_and_the_operation_goes_on(slow_server):
    with sluice.open(slow_server.uri) as f:
        operation = f.read_async(1000)
        interrupted_soon(operation.wait, lambda: operation.wait(60))
        slow_server.go.set()
        assert operation.wait() == pattern(1000)


def test_a_close_is_interrupted(slow_server):
    def close():
        f = sluice.open(slow_server.uri)
        reads.append(f.read_async(1000))
        try:
            f.close()
        finally:
            assert f.closed

    reads = []
    interrupted_soon(close)
    slow_server.go.set()
    assert reads and all(read.wait() == pattern(1000) for read in reads)  # some interrupts come before the read


def test_a_submission_that_waits_for_room_is_interrupted(slow_server):
    context = sluice.Context(max_operations=1)
    with (sluice.open(slow_server.uri, context=context) as f,
          sluice.open(slow_server.uri, context=context, nonblock=True) as other):
        running = f.read_async(1000)
        interrupted_soon(lambda: f.read(10), lambda: f.read_async(10))
        with pytest.raises(BlockingIOError, match="MAX_OPERATIONS"):
            other.read_async(10)
        threading.Timer(0.1, slow_server.go.set).start()
        assert f.read(1000) == running.wait() == pattern(1000)


def test_a_handler_that_returns_interrupts_nothing(slow_server):
    calls = []
    before = signal.signal(signal.SIGUSR1, lambda *_: calls.append(1))
    try:
        with sluice.open(slow_server.uri) as f:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            threading.Timer(0.2, slow_server.go.set).start()
            assert f.read(1000) == pattern(1000) and calls == [1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def interrupt_here(*_):
    """As if the user did while this runs."""
    signal.raise_signal(signal.SIGINT)
    time.sleep(0.001)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_callback_is_raised_behind_it(path, kind):
    def end(*_):
        raise kind

    signal.signal(signal.SIGINT, end)
    with sluice.open(path) as f:
        for operation in (f.stat_async(), f.read_async(1000)):
            operation.wait()
            with pytest.raises(kind):
                operation.add_done_callback(interrupt_here)  # at once: it is over
                time.sleep(1)


class Times(numpy.ndarray):
    """Of a type for which numpy has no format, so that dtype is asked for."""

    @property
    def dtype(self):
        interrupt_here()


class Number:
    def __index__(self):
        interrupt_here()
        return 1


class Refused(numpy.ndarray):
    """With a buffer that is refused, as it is not contiguous: then it may have another way."""

    @property
    def __cuda_array_interface__(self):
        interrupt_here()


def test_an_interrupt_in_an_argument_is_raised(path):
    with sluice.open(path) as f:
        for buffer in (numpy.zeros(4, "datetime64[s]").view(Times), numpy.zeros((4, 4), "u1")[:, ::2].view(Refused)):
            with pytest.raises(KeyboardInterrupt):
                f.read_into(buffer)
    with pytest.raises(KeyboardInterrupt):
        sluice.Context(max_operations=Number())


def thread_names():
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # of a thread that has ended meanwhile
            yield Path(f"/proc/self/task/{task}/comm").read_text()


def test_a_call_that_is_over_when_a_handler_raises_leaves_no_thread(slow_server):
    def late(*_):
        slow_server.go.set()
        time.sleep(0.3)  # the call ends
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, late)
    counts = []
    for _ in range(4):
        slow_server.go.clear()
        interrupted(lambda: sluice.load(slow_server.uri, framework="np"))
        slow_server.go.set()
        counts.append(sum(name == "python3\n" for name in thread_names()))
    assert counts[-1] - counts[0] < 3
