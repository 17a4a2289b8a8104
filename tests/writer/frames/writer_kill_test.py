#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What h5py finds in the files of writers that were killed at any write, and at any moment: every frame that
was visible, none that is wrong, and the numbers that came with them. Some are continued, and then have all. usage: kill_test.py WRITER_KILL;
a part of the points, with STRESS all of them; 77 is a skip."""

import os
import random
import subprocess
import sys
import tempfile
import time

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import chunks  # noqa: E402
import content  # noqa: E402

SERIES = [("fields/u", ["time", "step"]), ("fields/v", ["time"]), ("w", []), ("p", []), ("deep/er/q", [])]
FRAMES, ROOM, SHAPE = 120, 130, (9, 10)
STRESS = bool(os.environ.get("STRESS"))
program = sys.argv[1]
expected = [
    numpy.array([content.frame("float32", content.SMOOTH, 1000 + s, k, SHAPE) for k in range(FRAMES)])
    for s in range(len(SERIES))
]


def check_companions(file, number, name, scalars, count):
    for which, scalar in enumerate(scalars):
        values = file[f"{name}_{scalar}"][...]
        assert len(values) >= count, (name, scalar, len(values), count)
        assert (values[:count] == content.scalars(count, 1000 + number, which)).all(), (name, scalar)


def check_series(file, number, visible, submitted):
    name, scalars = SERIES[number]
    if name not in file:
        assert visible == 0, name
        return 0
    dataset = file[name]
    fixed = dataset.chunks is None
    assert not fixed or len(dataset) == ROOM
    count = int(dataset.attrs["sluice_frames"]) if fixed else len(dataset)
    assert visible <= count <= submitted, (name, visible, count, submitted)
    found = dataset[:count] if fixed else chunks.read(dataset)
    assert (found == expected[number][:count]).all(), name
    check_companions(file, number, name, scalars, count)
    return count


def check_file(path, counts):
    """The frames that each series has."""
    visible, submitted = counts[::2], counts[1::2]
    if not os.path.exists(path):
        assert not any(visible)
        return [0] * len(SERIES)
    with h5py.File(path, "r") as file:
        return [check_series(file, n, visible[n], submitted[n]) for n in range(len(SERIES))]


def go_on(way, path, counts):
    """A file is continued where its writer died."""
    subprocess.run([program, way, path, "finish", *map(str, counts)], check=True)
    check_file(path, [FRAMES] * 2 * len(SERIES))


def check_lines(way, lines):
    """Deaths, points, files that exist."""
    deaths, points, opened = 0, 0, 0
    for line in lines:
        path, died, point, *counts = line.rsplit(" ", 12)
        try:
            there = check_file(path, list(map(int, counts)))
            opened += os.path.exists(path)
            if random.random() < (0.3 if STRESS else 0.15):
                go_on(way, path, there)
            if os.path.exists(path):
                os.unlink(path)
        except Exception as error:
            raise AssertionError(f"{os.path.basename(path)}: {error!r}") from error
        deaths, points = deaths + int(died), max(points, int(point))
    return deaths, points, opened


def run(way, *arguments):
    with subprocess.Popen([program, way, *map(str, arguments)], stdout=subprocess.PIPE, text=True) as process:
        answer = check_lines(way, process.stdout)
    assert process.returncode == 0, (way, arguments, process.returncode)
    return answer


def nothing_left(folder):
    """A file without a name goes with its process; one with a temporary name may stay."""
    left = [name for name in os.listdir(folder) if not name.endswith(".sluice")]
    assert not left, left


def at_points(folder, way, part):
    path = os.path.join(folder, way)
    _, points, _ = run(way, path)
    step = 1 if STRESS else part
    deaths, _, opened = run(way, path, random.randint(1, step), step)
    # A few may come and go: what several threads do is in another order each time.
    assert deaths > 0.9 * points / step - 1, (deaths, points)
    assert opened > 0.8 * deaths
    nothing_left(folder)
    print(f"{way}: {points} points, {deaths} deaths, {opened} files: h5py finds every frame")


def at_moments(folder, count):
    path = os.path.join(folder, "any")
    begun = time.monotonic()
    run("any", path)
    took = int(1e6 * (time.monotonic() - begun))
    deaths, _, opened = run("any", path, "random", count, random.randrange(10**9), took)
    nothing_left(folder)
    print(f"any moment of {took} us: {deaths} deaths, {opened} files: h5py finds every frame")
    assert deaths >= count / 20


os.environ["HDF5_USE_FILE_LOCKING"] = "FALSE"
seed = os.environ.get("SLUICE_TEST_SEED") or str(random.randrange(10**9))
print(f"the same points again with SLUICE_TEST_SEED={seed}")
random.seed(seed)
with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
    at_points(folder, "flushed", 10)
    at_points(folder, "checkpoints", 30)
    at_points(folder, "continued", 30)
    at_points(folder, "gathered", 30)
    at_moments(folder, 200 if STRESS else 20)
