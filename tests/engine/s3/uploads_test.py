#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uploads of many small objects: how many requests they take, and that no object is lost, whatever the server does with
If-None-Match: uploads_test.py SLUICE

The random test is made of SLUICE_TEST_SEED, or of a seed that is printed. With STRESS 60 rounds.
"""

import collections
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import s3_server  # noqa: E402

SLUICE = sys.argv[1]
ROUNDS = 60 if os.environ.get("STRESS") else 4
AT_ONCE = 256  # uploads at a time


class Server(s3_server.Server):
    """Keeps objects in memory. together: PUTs have no answer before so many of them wait, or `patience` seconds are over
    once.
    habit: what it does with If-None-Match: "honours", "ignores", "always" (412 to all), 501 or 400 to all, or how often it
    honours it. faults: how often a request fails. hides: it does not say whether an object is there."""

    def __init__(self, habit="honours", together=1, faults=0.0, seed="", hides=False):
        self.hides, self.patience = hides, 2
        self.habit, self.faults, self.chance = habit, faults, random.Random(seed)
        self.objects, self.together = {}, together
        self.waiting, self.most, self.connections = 0, 0, 0
        self.heads, self.puts = collections.Counter(), collections.Counter()
        self.stored, self.answered, self.proofs, self.disproofs = set(), set(), 0, 0
        # PUTs of objects that no HEAD had asked for, before a PUT again was refused by 412, and after one had succeeded.
        self.unasked_early = self.unasked_later = 0
        self.full = threading.Condition()
        super().__init__("/nowhere")

    def serve(self, sock):
        with self.mutex:
            self.connections += 1
        super().serve(sock)

    def body(self, request):
        key = request.key.decode()
        self.heads[key] += 1
        self.fail()
        data = self.objects.get(key)
        if self.hides:
            raise s3_server.Refused(403, "AccessDenied")
        if data is None:
            raise s3_server.Refused(404, "NoSuchKey")
        return None, data, hashlib.md5(data).hexdigest()

    def fail(self):
        if self.chance.random() < self.faults:
            if self.chance.random() < 0.5:
                raise s3_server.Refused(503, "SlowDown")
            raise ConnectionError("on purpose")

    def keep(self, request):
        """Keeps the bytes of a PUT, or refuses it."""
        key, exclusive = request.key.decode(), request.field("if-none-match") == "*"
        self.puts[key] += 1
        again = key in self.stored  # the answer may be lost, and a HEAD have shown it
        if exclusive and self.puts[key] == 1 and not self.heads[key]:
            self.unasked_early += not self.proofs
            self.unasked_later += self.disproofs > 0
        if exclusive and self.habit in (400, 501):
            raise s3_server.Refused(self.habit, {400: "InvalidArgument", 501: "NotImplemented"}[self.habit])
        honours = self.habit == "honours" or (isinstance(self.habit, float) and self.chance.random() < self.habit)
        if exclusive and (self.habit == "always" or (honours and key in self.objects)):
            self.proofs += again
            raise s3_server.Refused(412, "PreconditionFailed")
        self.objects[key] = request.body
        self.stored.add(key)

    def put(self, sock, request):
        with self.full:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            self.full.notify_all()
            if not self.full.wait_for(lambda: self.most >= self.together, self.patience):
                self.together = 0
            self.waiting -= 1
        with self.mutex:
            self.fail()
            self.keep(request)
            self.fail()
            key = request.key.decode()
            self.disproofs += key in self.answered and request.field("if-none-match") == "*"
            self.answered.add(key)
        self.send(sock, request, 200, [("ETag", f'"{hashlib.md5(request.body).hexdigest()}"')], b"", 0)

    calls = {**s3_server.Server.calls, ("PUT",): put}


def environment(server):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLUICE_"))}
    return {**kept, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}", "AWS_ACCESS_KEY_ID": "AKIDTEST",
           "AWS_SECRET_ACCESS_KEY": s3_server.SECRETS["AKIDTEST"], "AWS_CONFIG_FILE": "/dev/null",
           "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "SLUICE_HTTP_BACKOFF_MS": "2"}


def sluice(server, *arguments):
    return subprocess.run([SLUICE, *arguments], env=environment(server), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False, timeout=60)


def folder_of(files):
    folder = tempfile.mkdtemp(dir=SCRATCH)
    for name, data in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    return folder


def small_objects_go_up_many_at_a_time():
    files = {f"{i % 7}/{i}": os.urandom(i % 5 * 1000) for i in range(3 * AT_ONCE)}
    folder, server = folder_of(files), Server(together=16)
    done = sluice(server, "cp", "-rq", folder, "s3://up/to")
    assert done.returncode == 0, done.stderr
    assert server.objects == {f"to/{name}": data for name, data in files.items()}
    assert server.most >= 16, f"{server.most} at a time"
    assert server.connections <= AT_ONCE, f"{server.connections} connections"
    names = [os.path.join(folder, name) for name in files if name.startswith("3/")]
    server = Server(together=16)
    done = sluice(server, "cp", "-q", *names, "s3://up")
    assert done.returncode == 0, done.stderr
    assert server.objects == {os.path.basename(name): files[os.path.relpath(name, folder)] for name in names}
    assert server.most >= 16, f"{server.most} of several files at a time"


def go_up(server, files, *options, before=()):
    """Copies files to a server that has objects of some of their names before."""
    server.objects = {f"to/{name}": b"before" for name in before}
    return sluice(server, "cp", "-rq", *options, folder_of(files), "s3://up/to")


def files_of(count, chance=random):
    return {f"{i % 7}/{i}": chance.randbytes(chance.choice([1, 100, 1000, 5000])) for i in range(count)}


def a_server_that_honours_the_header_is_asked_once():
    files, server = files_of(4 * AT_ONCE), Server()
    before = sorted(files)[::100]
    done = go_up(server, files, before=before)
    assert done.returncode == 1 and done.stderr.count("exists; use -f") == len(before), done.stderr
    assert server.objects == {f"to/{name}": b"before" if name in before else data for name, data in files.items()}
    assert sum(server.heads.values()) <= 2 * AT_ONCE, f"{sum(server.heads.values())} times HEAD"
    assert sum(server.puts.values()) <= len(files) + 10, f"{sum(server.puts.values())} times PUT"
    server = Server()
    assert go_up(server, files, "-f", before=before).returncode == 0
    assert server.objects == {f"to/{name}": data for name, data in files.items()}
    assert sum(server.heads.values()) <= AT_ONCE and sum(server.puts.values()) == len(files)


def a_server_that_does_anything_else_is_asked_for_each_object():
    for habit in ("ignores", 400, 501):
        files, server = files_of(150), Server(habit)
        before = sorted(files)[::15]
        done = go_up(server, files, before=before)
        assert done.returncode == 1 and done.stderr.count("exists; use -f") == len(before), f"{habit}: {done.stderr}"
        assert server.objects == {f"to/{name}": b"before" if name in before else data for name, data in files.items()}, habit
        assert set(server.heads) == {f"to/{name}" for name in files}, habit
        assert sum(server.puts.values()) < len(files) + 3 * AT_ONCE, habit


def a_single_copy_is_asked_for():
    for habit in ("honours", "ignores", 501):
        server = Server(habit)
        assert go_up(server, {"a": b"a"}).returncode == 0
        assert server.objects == {"to/a": b"a"} and server.heads["to/a"] == 1
        server.objects["to/a"] = b"other"
        assert sluice(server, "cp", "-q", folder_of({"a": b"a"}) + "/a", "s3://up/to/a").returncode == 1
        assert server.objects == {"to/a": b"other"}


def a_server_that_tells_nothing_keeps_its_objects():
    for habit in (400, 501):
        server = Server(habit, hides=True)
        done = go_up(server, {"a": b"a", "b": b"b"}, before=["a"])
        assert done.returncode == 1 and server.objects == {"to/a": b"before"}, f"{habit}: {done.stderr}, {server.objects}"


def an_interrupt_waits_for_no_answer():
    server = Server(together=1000)
    server.patience = 30
    with subprocess.Popen([SLUICE, "cp", "-rq", folder_of(files_of(300)), "s3://up/to"], env=environment(server),
                          stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 20
        while server.waiting < 16:
            assert time.monotonic() < end, f"{server.waiting} PUTs wait"
            time.sleep(0.01)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=20)[1]
    assert time.monotonic() - start < 5, "the interrupt waited for the server"
    assert process.returncode == -signal.SIGINT and "interrupted" in said, (process.returncode, said)
    assert not server.objects


def no_object_is_lost(chance):
    habit = chance.choice(["honours", "honours", "ignores", "always", 400, 501, chance.random(), chance.random() ** 0.1])
    server = Server(habit, faults=chance.choice([0, 0, 0.02, 0.2]), seed=chance.random())
    files = files_of(chance.choice([1, 2, 5, 40, 600]), chance)
    before = [name for name in files if chance.random() < 0.2]
    done = go_up(server, files, before=before)
    said = f"{habit}, faults {server.faults}, {len(before)} of {len(files)} before: {done.stderr[-1000:]}"
    for name, data in files.items():
        there = server.objects.get(f"to/{name}")
        if name not in before:
            assert there == data or (there is None and done.returncode == 1), f"{name}: {there}, {said}"
        elif isinstance(habit, str) or habit > 1 or not server.proofs:
            assert there == b"before" and f"{name}' exists" in done.stderr, f"{name} is lost; {said}"
        else:
            assert there in (b"before", data), f"{name}: {there}, {said}"
    assert done.returncode == 1 or not before or isinstance(habit, float), said
    assert done.returncode == 0 or before or habit == "always" or server.faults or isinstance(habit, float), said
    # The uploads that had begun when the server was found out.
    assert server.unasked_later <= AT_ONCE, f"{server.unasked_later} objects without HEAD, {said}"
    assert server.unasked_early == 0, f"{server.unasked_early} objects without HEAD or proof, {said}"


def main():
    seed = os.environ.get("SLUICE_TEST_SEED") or str(time.time_ns())
    print(f"seed {seed}; the same again with SLUICE_TEST_SEED={seed}")
    small_objects_go_up_many_at_a_time()
    a_server_that_honours_the_header_is_asked_once()
    a_server_that_does_anything_else_is_asked_for_each_object()
    a_single_copy_is_asked_for()
    a_server_that_tells_nothing_keeps_its_objects()
    for _ in range(10):
        an_interrupt_waits_for_no_answer()
    for i in range(ROUNDS):
        no_object_is_lost(random.Random(f"{seed} {i}"))


with tempfile.TemporaryDirectory() as SCRATCH:
    main()
