# SPDX-License-Identifier: Apache-2.0
"""Workers of a data loader: forked while their parent reads, or spawned."""
import errno
import multiprocessing
import os
import signal
import threading

import sluice
from conftest import DeviceArray, pattern


class Dataset:
    """Reads by a file that it opens when it is first asked, as data sets for DataLoader do."""

    def __init__(self, path):
        self.path, self.file = path, None

    def __getitem__(self, i):
        self.file = self.file or sluice.open(self.path)
        whole = [self.file.read_async(100, i * 100 + k) for k in range(20)]
        return b"".join(operation.wait()[:1] for operation in whole)


def work(dataset, inherited, indices, results):
    refused = 0
    if inherited is not None:
        for call in (lambda: inherited.read(1), lambda: inherited.read_async(1), inherited.stat):
            try:
                call()
            except OSError as error:
                refused += error.errno == errno.ECHILD
    results.put((indices, [dataset[i] for i in indices], refused))


def run_workers(method, path, inherited):
    context = multiprocessing.get_context(method)
    results = context.Queue()
    indices = [list(range(start, 200, 4)) for start in range(4)]
    workers = [context.Process(target=work, args=(Dataset(str(path)), inherited, part, results), daemon=True)
               for part in indices]
    for worker in workers:
        worker.start()
    found = {}
    for _ in workers:
        part, values, refused = results.get(timeout=60)
        assert refused == (3 if inherited is not None else 0)
        found.update(zip(part, values, strict=True))
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert found == {i: pattern(100_000)[i * 100:i * 100 + 20] for i in range(200)}


def test_forked_workers_read_while_their_parent_reads(path):
    with sluice.open(path) as f:
        running = [f.read_async(90_000, i) for i in range(20)]
        dropped = [f.read_async(90_000) for _ in range(20)]
        running[0].add_done_callback(lambda _: None)
        del dropped
        run_workers("fork", path, f)
        assert [operation.wait() for operation in running] == [
            pattern(100_000)[i:i + 90_000] for i in range(20)]


def test_spawned_workers_read(path):
    run_workers("spawn", path, None)


def test_a_child_of_another_thread_is_interrupted(mute_server):
    def fork():
        child = os.fork()
        if child:
            statuses.append(os.waitpid(child, 0)[1])
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(20)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            sluice.open(mute_server)
        except KeyboardInterrupt:
            os._exit(7)
        finally:
            os._exit(1)

    statuses = []
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join(60)
    assert statuses == [7 << 8]


def touch_device(array, path, results):
    with sluice.open(path) as f:
        host = f.read(10)
        try:
            results.put((host, f.read_into(array)))
        except OSError as error:
            results.put((host, error.errno))


def test_a_child_is_refused_devices_that_its_parent_has_used(path):
    array = DeviceArray(10)
    with sluice.open(path) as f:
        assert f.read_into(array) == 10
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=touch_device, args=(array, path, results), daemon=True)
    child.start()
    assert results.get(timeout=60) == (pattern(10), errno.ECHILD)
    child.join(60)
    assert array.get() == pattern(10)
