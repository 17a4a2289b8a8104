#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that are killed at moments from seeds, each rank in turn: the file has every frame that was visible, and none that is
wrong. usage: mpi_kill_test.py RANKS_WRITE FIRST COUNT; 77 is a skip."""

import os
import random
import struct
import sys
import tempfile

import launch

program, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
FRAMES = 400
died = opened = frames = 0
for seed in range(first, first + count):
    chance = random.Random(seed)
    ranks = chance.choice([2, 3, 4])
    options = {
        "frames": FRAMES, "die": seed % ranks, "us": chance.choice([5000, 60000, 250000]) + chance.randrange(50000),
        "seed": chance.choice([0, seed]), "cut": chance.choice(["slabs", "odd", "columns"]),
        "codec": chance.choice(["deflate", "none"]),
        chance.choice(["every", "checkpoint"]): chance.choice([1, 3]),
    }
    if seed % 3 == 0:
        options["nodes"] = 1
    with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
        path, told = os.path.join(folder, "x.h5"), os.path.join(folder, "told")
        done = launch.run(
            ranks, program, path, f"told={told}", *(f"{name}={value}" for name, value in options.items()))
        visible = [0, 0, 0]
        if os.path.exists(told) and os.path.getsize(told) == 24:
            with open(told, "rb") as file:
                visible = struct.unpack("3Q", file.read())
        died += done.returncode != 0
        if not os.path.exists(path):
            assert not any(visible), (seed, options, visible, done.stderr)
            continue
        try:
            counts = launch.check(path, 0, FRAMES)
        except BaseException:
            print("seed", seed, options, visible, done.stderr)
            raise
        assert all(has >= seen for has, seen in zip(counts, visible)), (seed, options, counts, visible)
        opened += 1
        frames += counts[0]
print(f"{count} runs, {died} killed, {opened} files, {frames} frames")
assert died > count / 2 and opened > count / 2
