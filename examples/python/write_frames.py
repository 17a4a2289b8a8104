#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes frames of a reaction of two substances (Gray-Scott), and draws some of them. Needs numpy and h5py.

usage: write_frames.py FILE.h5 [FRAMES.png]
"""

import sys

import h5py
import numpy
import sluice
from _picture import grey

SIZE, FRAMES, STEPS = 128, 12, 250


def laplacian(a):
    return numpy.roll(a, 1, 0) + numpy.roll(a, -1, 0) + numpy.roll(a, 1, 1) + numpy.roll(a, -1, 1) - 4 * a


def react(u, v):
    reaction = u * v * v
    u += 0.16 * laplacian(u) - reaction + 0.06 * (1 - u)
    v += 0.08 * laplacian(v) + reaction - 0.122 * v


def main(path, picture=None):
    u, v = numpy.ones((SIZE, SIZE), "f4"), numpy.zeros((SIZE, SIZE), "f4")
    for y, x in numpy.random.default_rng(7).integers(0, SIZE - 10, (20, 2)):
        u[y : y + 10, x : x + 10], v[y : y + 10, x : x + 10] = 0.5, 0.25
    across = numpy.linspace(0, 1, SIZE)
    with sluice.Writer(path, "w", attributes={"title": "Gray-Scott", "feed": 0.06}) as writer:
        writer.coordinate("y", across)
        writer.coordinate("x", across, {"units": "m"})
        series = writer.series("v", shape=v.shape, dtype=v.dtype, dimensions=("time", "y", "x"), scalars=["time"])
        for step in range(FRAMES):
            for _ in range(STEPS):
                react(u, v)
            frame = series.acquire()  # memory of the writer; append(v) would copy the array
            frame[...] = v
            series.submit(frame, time=step * STEPS)
        writer.flush()  # counts are final behind it
        stats = writer.stats()
    print(f"{stats['visible']} frames, {stats['raw_bytes']} bytes in {stats['stored_bytes']}")
    with h5py.File(path) as file:
        print("the last has the mean", file["v"][-1].mean())
        if picture:
            grey(picture, numpy.hstack(file["v"][1::4]))


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
