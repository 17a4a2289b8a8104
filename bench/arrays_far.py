# SPDX-License-Identifier: Apache-2.0
"""The rows "far" of bench/arrays: a dataset on nginx, near by and behind bench/relay.c, 20 ms away.

320 frames of float32, 512 x 512, in chunks of 16 rows with shuffle and deflate, which sluice has written.
"whole": all of such frames without a codec, in chunks of a frame; the limit is sluice bench
of that file, as sluice is by sluice bench, too, each by the median of five passes of the open file. "column": a row of every 4th
frame, which needs 80 of 10,240 chunks; "all": a column of all frames, which needs all. The others: h5py over fsspec with its caches,
and for "all" a download of the file by sluice cp and a read of that. Each side is a process, and its seconds are those of
opening and reading.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import ranges
from peers import Failed, Sample, run

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIDE = """
import sys, time, json
uri, side, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
where = (slice(None), slice(None), 77) if step == 1 else (slice(None, None, step), 200, slice(None))
if side == "sluice":
    import sluice, numpy
    begun = time.perf_counter()
    with sluice.open_array(uri + "#/u") as u:
        found = u[...] if not step else u[where]
else:
    import fsspec, h5py, numpy
    begun = time.perf_counter()
    with fsspec.open(uri, "rb", cache_type=side, **({} if side == "all" else {"block_size": 1 << 20})) as raw, h5py.File(raw, "r") as file:
        found = file["u"][...] if not step else file["u"][where]
print(json.dumps([time.perf_counter() - begun, float(numpy.sum(found[::7], dtype="f8"))]))
"""
MAKE = """
import sys, numpy, sluice
base = numpy.cumsum(numpy.random.default_rng(1).normal(size=(512, 512)), axis=1).astype("f4").round(1)
for name, options in ("far", {"codec": "deflate", "chunk": (16, 512)}), ("plain", {"codec": "none", "chunk_frames": 1}):
    with sluice.Writer(f"{sys.argv[1]}/{name}.h5") as writer:
        u = writer.series("u", shape=(512, 512), dtype="f4", **options)
        for i in range(int(sys.argv[2])):
            u.append(base + numpy.float32(i))
"""
PATTERNS = {"whole": 0, "column": 4, "all": 1}  # the step between frames
CACHES = {"whole": (), "column": ("readahead", "blockcache", "all"), "all": ("all",)}  # of fsspec: others are slower there


class Road:
    """nginx, which serves a folder, and a relay to it."""

    def __init__(self, folder, milliseconds):
        relay = os.path.join(folder, "relay")
        if not os.path.exists(relay):
            run(["cc", "-O2", "-D_GNU_SOURCE", os.path.join(ROOT, "bench", "relay.c"), "-o", relay, "-lpthread"])
        try:
            self.server, uri = ranges.start_nginx(folder)
        except ranges.Skipped as missing:
            raise Failed(str(missing)) from None
        self.relay = subprocess.Popen([relay, uri.rpartition(":")[2], str(milliseconds), "0", "0", "0", "1"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.uri = f"http://127.0.0.1:{self.relay.stdout.readline().strip()}"

    def __enter__(self):
        return self.uri

    def __exit__(self, *_):
        self.relay.communicate()
        self.server.terminate()
        self.server.wait()


def measure(build, folder, peers, count, rounds, patterns, say):
    """Prints the seconds of each side and row, by the median of the rounds. Returns samples by row."""
    settings = {"PYTHONPATH": os.path.join(build, "python")}
    program, local = os.path.join(build, "sluice"), os.path.join(folder, "local.h5")
    results = {}
    run([sys.executable, "-c", MAKE, folder, str(count)], **settings)
    for milliseconds in (0, 20):
        with Road(folder, milliseconds) as road:

            def file_of(pattern, road=road):
                return f"{road}/{'plain' if pattern == 'whole' else 'far'}.h5"

            def by(side, pattern, python=sys.executable, at=None):
                said = json.loads(run([python, "-c", SIDE, at or file_of(pattern), side, str(PATTERNS[pattern])], **settings)[0])
                if sums.setdefault(pattern, said[1]) != said[1]:
                    raise Failed(f"{side}, {pattern}: other elements came")
                return said[0]

            def raw(behind=""):
                said = json.loads(run([program, "bench", "read", "--json", "--repeat", "5", file_of("whole") + behind])[0])
                return statistics.median(said["seconds"])

            def copied(pattern):
                begun = time.perf_counter()
                run([program, "cp", "-q", file_of(pattern), local])
                return time.perf_counter() - begun + by("sluice", pattern, at=local)

            sums = {}
            for pattern in patterns:
                sides = {"sluice": lambda pattern=pattern: by("sluice", pattern)}
                if pattern == "whole":
                    sides = {"sluice": lambda: raw("#/u"), "raw": raw}
                if pattern == "all":
                    sides["cp"] = lambda pattern=pattern: copied(pattern)
                for cache in CACHES[pattern] if peers else ():
                    sides[cache] = lambda cache=cache, pattern=pattern: by(cache, pattern, peers)
                taken = {name: [] for name in sides}
                for _ in range(rounds):
                    for name, side in sides.items():
                        taken[name].append(side())
                        if os.path.exists(local):
                            os.remove(local)
                row = {name: statistics.median(each) for name, each in taken.items()}
                bytes_read = count * (1 << 20) // {"whole": 1, "column": 512 * 4, "all": 512}[pattern]
                results[f"far-{pattern}-{milliseconds}"] = {
                    name: [Sample(bytes_read, seconds, 0) for seconds in each] for name, each in taken.items()}
                say(f"  far-{pattern}, {milliseconds} ms: " + ", ".join(
                    f"{name} {seconds:.2f} s ({seconds / row['sluice']:.2f})" for name, seconds in row.items()))
    return results
