# SPDX-License-Identifier: Apache-2.0
"""Operations as futures, and the threads and event loops that see their ends.

An operation belongs to the queue of the event loop that runs when it is submitted, or to the queue of the
process. The daemon thread, which is started when it is first needed, looks at a queue while there are
operations that no thread asks for: dropped, or with a callback.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Generator, Iterable

from . import _core

if TYPE_CHECKING:
    import asyncio


class Operation(_core.Operation):
    """A read, a write or another call in flight: wait(), done, cancel(), add_done_callback(), or await it.

    The result is that of the call: the bytes of read_async(), the number of bytes that others have moved, a File,
    a Stat or None. The buffer is kept until the operation is over, even if this object is dropped; a read_async()
    that is dropped is cancelled.

    >>> with sluice.open(path) as f:
    ...     f.read_async(5).wait()
    b'hello'
    """

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        if not self.done:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            self.add_done_callback(lambda _: _resolve(loop, future))
            try:
                yield from future
            except asyncio.CancelledError:
                self.cancel()
                self.add_done_callback(_leave)
                raise
        return self.wait(0)

    def __repr__(self) -> str:
        if not self.done:
            return "<sluice.Operation, running>"
        try:
            value = self.wait(0)
        except Exception as error:
            return f"<sluice.Operation, failed: {error}>"
        moved = len(value) if isinstance(value, bytes) else value
        return f"<sluice.Operation, done: {f'{moved} bytes' if isinstance(moved, int) else moved}>"


class Call(Operation):
    """A call that another thread makes, and that cannot be cancelled."""

    def __init__(self, function: Callable[[], object]) -> None:
        from . import _threads

        self._future = _threads.calls().submit(function)

    def wait(self, timeout: float | None = None) -> Any:
        return self._future.result(timeout)

    def cancel(self) -> bool:
        return False

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        self._future.add_done_callback(lambda _: _core.call_back(callback, self))

    @property
    def done(self) -> bool:
        return self._future.done()


def progress(operations: Operation | Iterable[Operation], **options: Any) -> list[Any]:
    """Wait for operations, and show by tqdm how many are over, if tqdm is there.

    options: for tqdm. Returns the results in the order of the operations; raises the first error.

    >>> with sluice.open(path) as f:
    ...     sluice.progress([f.read_async(1, i) for i in range(3)], disable=True)
    [b'h', b'e', b'l']
    """
    waiting = [operations] if isinstance(operations, Operation) else list(operations)
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return [operation.wait() for operation in waiting]
    return [operation.wait() for operation in tqdm(waiting, **options)]


def _leave(operation: Operation) -> None:
    """Mark the file of an open that was too late for its cancel: no program has it to close it, so none is warned."""
    with contextlib.suppress(Exception):  # it failed, or its result is no file
        found = operation.wait(0)
        getattr(found, "_file", found)._left = True


def _resolve(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    import asyncio

    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    if asyncio._get_running_loop() is loop:
        resolve()
        return
    with contextlib.suppress(RuntimeError):  # the loop is closed: no coroutine of it waits
        loop.call_soon_threadsafe(resolve)


class Queue(_core.Queue):
    """A queue of operations that are over; `loop`: the event loop that looks at it."""

    loop: weakref.ref[Any] | None = None

    @property
    def in_loop(self) -> bool:
        loop = self.loop() if self.loop else None
        return loop is not None and not loop.is_closed()


class _Daemon:
    """The thread for operations that no thread asks for."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a collection while it is held may call watch()
        self.poll: select.epoll | None = None
        self.queues: dict[int, Queue] = {}  # by descriptor; guarded by the lock, as the polled ones are

    def watch(self, queue: Queue) -> None:
        fd = queue.fileno()
        with self.lock:
            if self.poll is None:
                self.poll = select.epoll()
                threading.Thread(target=self.run, args=(self.poll,), name="sluice", daemon=True).start()
            if fd not in self.queues:
                self.queues[fd] = queue
                self.poll.register(fd, select.EPOLLIN)

    def run(self, poll: select.epoll) -> None:
        # An end of an operation that no thread asks for ends the wait.
        while True:
            for fd, _ in poll.poll():
                with self.lock:
                    queue = self.queues.get(fd)
                if queue is not None:
                    queue.drain()
                    self.leave(fd, queue, poll)

    def leave(self, fd: int, queue: Queue, poll: select.epoll) -> None:
        with self.lock:
            if not queue.wanted and fd in self.queues:
                del self.queues[fd]
                poll.unregister(fd)


_daemon = _Daemon()
_queue: Queue | None = None
_ticks = False  # there is a thread for reads that wait
_TICK, _IDLE_TICKS = 0.005, 200  # seconds, and how often none waits before the thread ends
_loops: weakref.WeakKeyDictionary[Any, Queue] = weakref.WeakKeyDictionary()


def watch(queue: Queue) -> None:
    """Have the daemon thread look at the queue, unless an event loop does."""
    # At the end of the interpreter the start of a thread would wait for ever.
    if not queue.in_loop and not sys.is_finalizing():
        _daemon.watch(queue)


def adopt(operation: Operation) -> None:
    """Keep an operation whose call was interrupted until it is over, on another thread: rare."""
    Call(operation.wait)


def tick() -> None:
    """Have a thread begin reads that wait for room, as long as there are some."""
    global _ticks
    if _ticks or sys.is_finalizing():
        return
    _ticks = True
    try:
        threading.Thread(target=_run_ticks, name="sluice-reads", daemon=True).start()
    except RuntimeError:  # threads that wait for reads begin them
        _ticks = False


def _run_ticks() -> None:
    global _ticks
    idle = 0
    while idle < _IDLE_TICKS:
        time.sleep(_TICK)
        idle = 0 if _core.reads()[0] else idle + 1
    _ticks = False
    if _core.reads()[0]:
        tick()


def _loop_queue(loop: Any) -> Queue:
    queue = _loops.get(loop)
    if queue is None:
        queue = Queue()
        queue.loop = weakref.ref(loop)
        drain = queue.drain  # a loop that is closed, or collected, lets go of it
        loop.add_reader(queue.fileno(), drain)
        _loops[loop] = queue
        weakref.finalize(drain, _loop_gone, queue).atexit = False
    return queue


def _loop_gone(queue: Queue) -> None:
    if queue.wanted:
        _daemon.watch(queue)


def current_queue() -> Queue:
    """Return the queue for the operations of this thread."""
    global _queue
    asyncio = sys.modules.get("asyncio.events")
    loop = asyncio._get_running_loop() if asyncio is not None else None
    if loop is not None:
        try:
            return _loop_queue(loop)
        except (NotImplementedError, TypeError):  # a loop without add_reader, or weak references
            pass
    if _queue is None:
        _queue = Queue()
    return _queue


def _after_fork() -> None:
    """The queues, and the threads, are the parent's."""
    global _daemon, _queue, _loops, _ticks
    _daemon, _queue, _loops, _ticks = _Daemon(), None, weakref.WeakKeyDictionary(), False


os.register_at_fork(after_in_child=_after_fork)
