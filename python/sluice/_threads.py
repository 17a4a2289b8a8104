# SPDX-License-Identifier: Apache-2.0
"""Threads that make calls which wait. The end of the interpreter does not wait for them."""

from __future__ import annotations

import functools
import os
import queue
import sys
import threading
from concurrent.futures import Executor, Future
from typing import Any, Callable


class Pool(Executor):
    """At most so many daemon threads: the end of the interpreter waits for those of a ThreadPoolExecutor."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self.idle = threading.Semaphore(0)  # threads without a call
        self.lock = threading.Lock()
        self.threads = 0  # guarded by the lock

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        self.reserve()
        return self.put(functools.partial(call, *arguments, **options))

    def reserve(self) -> None:
        """Have a thread for one put() that follows; RuntimeError: there is none."""
        if sys.is_finalizing():
            raise RuntimeError("the interpreter has ended, and starts no thread")
        with self.lock:
            if not self.idle.acquire(blocking=False) and self.threads < self.most:
                threading.Thread(target=self.run, name="sluice-call", daemon=True).start()
                self.threads += 1

    def put(self, call: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self.calls.put((future, call))
        return future

    def run(self) -> None:
        while True:
            future, call = self.calls.get()  # which a submission ends
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del future, call
            self.idle.release()


@functools.cache
def waiting() -> Pool:
    """The threads that wait for servers."""
    return Pool(64)


@functools.cache
def calls() -> Pool:
    """The threads of single calls, none of which waits for another one."""
    return Pool(1024)


def _after_fork() -> None:
    """The threads are the parent's."""
    waiting.cache_clear()
    calls.cache_clear()


os.register_at_fork(after_in_child=_after_fork)
