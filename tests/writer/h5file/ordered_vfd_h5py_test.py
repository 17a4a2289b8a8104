#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What others make of the files: h5py of those whose writer was killed, h5diff and h5dump of those
that were closed. usage: h5py_test.py WRITE_FRAMES; 77 is a skip."""

import os
import random
import shutil
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
if not (shutil.which("h5diff") and shutil.which("h5dump")):
    print("skipped: no h5diff or h5dump")
    sys.exit(77)

FRAMES = 120
KILLS = 1000 if os.environ.get("STRESS") else 40
program = sys.argv[1]


def write(driver, path, *point):
    answer = subprocess.run(
        [program, driver, path, *map(str, point)], check=True, capture_output=True, text=True
    )
    return map(int, answer.stdout.split())


def expected(series, shape):
    frame, row, column = numpy.indices(shape, dtype=numpy.int64)
    return 1 + (frame * 8191 + row * 131 + column * 7 + series * 3) % 65521


def check(path, flushed, rows, columns):
    with h5py.File(path, "r") as file:
        times = file["time"][...]
        assert len(times) >= flushed and (times == 0.5 * numpy.arange(len(times))).all()
        for series, name in enumerate("uv"):
            frames = file[name][...]
            assert frames.shape[0] >= flushed and frames.shape[1:] == (rows, columns)
            assert (frames == expected(series, frames.shape)).all(), name


def dump(path):
    text = subprocess.run(["h5dump", path], check=True, capture_output=True, text=True).stdout
    return text.split("\n", 1)[1]  # the first line is the path


os.environ["HDF5_USE_FILE_LOCKING"] = "FALSE"
with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
    ours, theirs = os.path.join(folder, "ours.h5"), os.path.join(folder, "theirs.h5")
    points, flushed, rows, columns = write("ordered", ours)
    assert flushed == FRAMES
    write("sec2", theirs)
    check(ours, FRAMES, rows, columns)
    subprocess.run(["h5diff", ours, theirs], check=True)
    assert dump(ours) == dump(theirs)
    print(f"h5diff and h5dump see no difference; {os.path.getsize(ours)} bytes, "
          f"by HDF5's own driver {os.path.getsize(theirs)}")

    chance = random.Random(int(os.environ.get("SLUICE_TEST_SEED", "20240229")))
    opened = 0
    for point in chance.sample(range(1, points + 1), KILLS):
        _, flushed, rows, columns = write("ordered", ours, point)
        if flushed:
            check(ours, flushed, rows, columns)
            opened += 1
        os.unlink(ours)
    print(f"{KILLS} writers killed, {opened} of them after a flush: h5py finds every frame")
    assert opened > KILLS / 2
