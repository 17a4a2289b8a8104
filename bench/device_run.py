# SPDX-License-Identifier: Apache-2.0
"""The program that bench/device drives, the files that it works on, and how sides are run in turn."""

import json
import os
import select
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

import report
from peers import ENVIRONMENT, GIB, KIB, MIB, Failed, Sample, Sluice, WorkFile, run
from report import say

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORDERS = {"host": 0, "stream": 1}


class Skipped(Exception):
    """It cannot be measured here."""


def size_text(size):
    for unit, letter in ((GIB, "G"), (MIB, "M"), (KIB, "K")):
        if size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


class Program:
    """bench_device: one process that measures what it is asked for."""

    def __init__(self, path, device, size, **settings):
        self.arguments = [path, device, str(size)]
        self.settings = settings
        self.process = None
        self.about = {}

    def start(self):
        self.process = subprocess.Popen(
            self.arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=ENVIRONMENT | self.settings)
        self.about = self.answer(60)

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def answer(self, seconds):
        """One line. A process that says nothing in time is ended; the next job starts another one."""
        line, end = b"", time.monotonic() + seconds
        while not line.endswith(b"\n"):
            ready = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]
            part = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not part:
                self.process.kill()
                status = self.process.wait()
                self.process = None
                text = line.decode(errors="replace").strip()
                raise Failed(f"{'ended, status ' + str(status) if ready else 'no answer'}: {text}")
            line += part
        text = line.decode(errors="replace").strip().splitlines()[-1]
        try:
            found = json.loads(text)
        except ValueError:
            found = {"error": text}
        if "skipped" in found or "error" in found:
            self.stop()
            raise Skipped(found["skipped"]) if "skipped" in found else Failed(found["error"])
        return found

    def tell(self, verb, **options):
        """Gives it a job, whose answer() is to come."""
        if not self.process:
            self.start()
        line = " ".join([verb] + [f"{k}={v}" for k, v in options.items() if v is not None])
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.stop()
            raise Failed("bench_device has ended") from None

    def ask(self, verb, seconds=30, **options):
        self.tell(verb, **options)
        return self.answer(seconds)

    def sample(self, verb, **options):
        found = self.ask(verb, **options)
        return Sample(found["bytes"], found["seconds"], found["cpu_seconds"])


class Bench:
    """The files, the program, and what has been measured."""

    def __init__(self, options):
        self.quick = options.quick
        self.rounds = options.rounds or (2 if options.quick else 5)
        self.size = options.size or (512 * MIB if options.quick else 4 * GIB)
        self.block = min(4 * MIB, self.size // 16)  # of a peer's task
        self.build = options.build
        self.device = options.device
        self.program = Program(os.path.join(self.build, "bench", "bench_device"), self.device, self.size)
        self.sluice = Sluice(os.path.join(self.build, "sluice"))
        folder = os.environ.get("SLUICE_BENCH_DIR") or os.path.join(self.build, "bench")
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.shm = tempfile.mkdtemp(prefix="sluice-bench-", dir="/dev/shm")
        self.source = WorkFile(os.path.join(folder, "source"), self.size)
        self.target = WorkFile(os.path.join(folder, "target"), self.size)
        self.memory = WorkFile(os.path.join(self.shm, "file"), self.size)
        self.server = None
        self.failures = {}  # side to why it was not measured

    def check(self):
        if not os.access(self.program.arguments[0], os.X_OK):
            raise Failed(f"{self.program.arguments[0]} is missing; run make bench-gpu")
        for place, files in ((self.folder, 2), (self.shm, 1)):
            free = shutil.disk_usage(place).free
            if free < files * self.size + 64 * MIB:
                raise Failed(
                    f"{place} has {free >> 20} MiB free and {files * self.size >> 20} are needed; "
                    "use --quick or --size")
        self.program.start()

    def make_files(self):
        """Random bytes, which repeat: nothing here looks for that."""
        random = os.urandom(min(64 * MIB, self.size))
        for file in (self.source, self.target, self.memory):
            with open(file.path, "wb") as out:
                for at in range(0, self.size, len(random)):
                    out.write(random[: self.size - at])
                out.flush()
                os.fsync(out.fileno())

    def stop(self):
        self.program.stop()
        if self.server:
            self.server.stdin.close()
            self.server.wait()
        for name in ("source", "target", "serve", "sink"):
            if os.path.exists(os.path.join(self.folder, name)):
                os.unlink(os.path.join(self.folder, name))
        shutil.rmtree(self.shm, ignore_errors=True)

    def serve(self):
        """The source, over HTTP; its URL, and what receives it without sluice."""
        tools = {}
        for name in ("serve", "sink"):
            tools[name] = os.path.join(self.folder, name)
            run(["gcc", "-O2", "-pthread", "-D_GNU_SOURCE", "-o", tools[name],
                 os.path.join(ROOT, "bench", name + ".c")])
        self.server = subprocess.Popen([tools["serve"], self.source.path], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        port = int(self.server.stdout.readline())
        socket.create_connection(("127.0.0.1", port)).close()
        return f"http://127.0.0.1:{port}/source", tools["sink"], port

    # What the sides of a row are made of: functions that give one Sample.

    def move(self, path, shape, order, write=0, passes=1, **more):
        count, size = shape
        return lambda: self.program.sample(
            "move", path=path, bytes=size, count=count, stream=ORDERS[order],
            streams=1 if count == 1 else 2, write=write, passes=passes, **more)

    def peer(self, verb, path, threads, write=0, passes=1, block=None, count=None, **more):
        block = block or self.block
        return lambda: self.program.sample(
            verb, path=path, threads=threads, bytes=block, count=count or self.size // block,
            write=write, passes=passes, **more)

    def cold(self, side):
        """The same, of a source of which nothing is in the page cache."""
        def run():
            self.source.cool()
            return side()

        return run

    def ceiling(self, write):
        size = min(64 * MIB, self.size)
        return lambda: self.program.sample("ceiling", bytes=size, count=64, write=write)

    def shapes(self):
        """Operations of these sizes, all submitted at once: name to (number, bytes)."""
        many = [("64M", 64 * MIB, 64), ("1M", MIB, 1000), ("4K", 4 * KIB, 10000)]
        found = {size_text(self.size): (1, self.size)}
        for name, size, count in many:
            if self.size // size > 1:
                found[name] = (min(count, self.size // size), size)
        return found

    def in_turn(self, sides, rounds=None):
        """A sample of each side in each round, beginning with another one each time, after one
        that does not count. A side that fails is left out from then on, and said."""
        samples = {name: [] for name in sides}
        names = list(sides)
        for i in range(-1, rounds or self.rounds):
            first = i % len(names)
            for name in names[first:] + names[:first]:
                if name in self.failures:
                    continue
                try:
                    sample = sides[name]()
                except (Failed, Skipped) as why:
                    self.failures[name] = str(why)
                    say(f"  {name}: {why}")
                    continue
                if i >= 0:
                    samples[name].append(sample)
        return samples

    def fastest(self, samples, names):
        """The name of that with the highest rate."""
        return max(names, key=lambda n: statistics.median([s.rate for s in samples[n]] or [0]))

    def aim(self, value):
        """None of a device that is no GPU."""
        return None if self.device.startswith("emulated") else value

    def row(self, key, title, aim, peer, how, samples, side, peers, **more):
        """A row of the report, or that it was skipped. The first of the peers is a name, or several
        names of which the slowest of each round counts."""
        first = peers[0] if isinstance(peers[0], tuple) else (peers[0],)
        for name in (side, *first):
            if name in self.failures:
                return report.Row(key, title, 0, peer, how, None, {},
                                  skipped=f"{name}: {self.failures[name]}")
        chosen = {"sluice": samples[side]}
        chosen["peer"] = [min(s, key=lambda x: x.rate) for s in zip(*(samples[n] for n in first))]
        chosen |= {n: samples[n] for n in peers[1:] if n not in self.failures}
        return report.Row(key, title, self.aim(aim) or 0, peer, how, None,
                          {n: None for n in chosen}, chosen, **more)
