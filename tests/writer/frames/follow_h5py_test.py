#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The rule of readers in Python, as the example has it, beside a writer that flushes all the time.
usage: follow_h5py_test.py FRAME_READER FOLLOW_FRAMES; 77 is a skip."""

import importlib.util
import os
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

ELEMENTS, READS = 16, 50000 if os.environ.get("STRESS") else 300
spec = importlib.util.spec_from_file_location("follow_frames", sys.argv[2])
sys.dont_write_bytecode = True
follow = importlib.util.module_from_spec(spec)
spec.loader.exec_module(follow)
tries = 0


def newest(file):
    global tries
    tries += 1
    frames = file["u"]
    first = max(len(frames) - 50, 0)
    return first, frames[first:]


with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
    for shared in [], ["shared"]:
        path = os.path.join(folder, "file.h5")
        writer = subprocess.Popen([sys.argv[1], path, *shared])
        reads = good = tries = 0
        try:
            while not os.path.exists(path):
                assert writer.poll() is None
                time.sleep(0.01)
            while reads < READS:
                first, frames = follow.read(path, newest)
                good += 1
                reads += len(frames)
                number, element = numpy.indices(frames.shape)
                assert (frames == 1 + (first + number) * 131 + element).all(), f"frames from {first} on"
        finally:
            writer.kill()
            writer.wait()
        first, frames = follow.read(path, newest)
        os.remove(path)
        chunks = "of several frames" if shared else "of one frame"
        print(f"chunks {chunks}: {reads} frames read by the rule, in {good} of {tries} tries: all of them are right")
