#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Chunks of several frames: what h5py reads of them, and that a writer continues those that h5py made.
usage: small_h5py_test.py WRITE_SMALL; 77 is a skip. A tenth of the cases, with STRESS all."""

import itertools
import os
import random
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

program = sys.argv[1]
seed = os.environ.get("SLUICE_TEST_SEED") or str(random.randrange(10**9))
print(f"the same cases again with SLUICE_TEST_SEED={seed}")
random.seed(seed)


def some(cases):
    return [case for case in cases if os.environ.get("STRESS") or random.random() < 0.1]


def write(path, **options):
    subprocess.run([program, path, *(f"{k}={v}" for k, v in options.items())], check=True)


def expected(frames, rows, columns):
    cells = numpy.arange(rows * columns).reshape(1, rows, columns) / 4096
    return numpy.arange(frames).reshape(frames, 1, 1) + cells


def check(path, frames, rows, columns, chunk=None, scalar=False):
    with h5py.File(path, "r") as file:
        data = file["s"]
        assert data.shape == (frames, rows, columns), data.shape
        wrong = (data[...] != expected(frames, rows, columns)).any(axis=(1, 2)).nonzero()[0]
        assert not len(wrong), (path, wrong)
        assert not chunk or data.chunks == chunk, data.chunks
        for i in range(data.id.get_num_chunks()):
            assert data.id.get_chunk_info(i).filter_mask == 0, (path, i)
        if scalar:
            assert (file["s_time"][...] == numpy.arange(frames) / 2).all()
        return data.id.get_storage_size()


def ours(path):
    # Frames, rows, columns, frames of a chunk: chosen, and set; whole chunks, parts of them, and none.
    shapes = (
        (2500, 1, 4, 0, 1024), (2048, 1, 4, 0, 1024), (500, 3, 21, 0, 130), (7, 40, 100, 0, 2),
        (9, 64, 128, 0, 1), (50, 2, 3, 7, 7), (1, 1, 1, 0, 1024), (40, 100, 100, 3, 3),
    )
    for shape, codec, flush in some(itertools.product(shapes, ("none", "deflate"), (0, 1, 3))):
        frames, rows, columns, chunk, wanted = shape
        flush *= 50 if frames > 100 else 1
        write(path, codec=codec, frames=frames, rows=rows, columns=columns, chunk_frames=chunk, flush=flush, scalar=1)
        check(path, frames, rows, columns, (wanted, rows, columns) if wanted > 1 else None, True)
        # And goes on, in the middle of a chunk; and from an earlier frame.
        write(path, append=1, codec=codec, frames=frames, rows=rows, columns=columns, flush=flush, scalar=1)
        check(path, 2 * frames, rows, columns, None, True)
        write(path, append=1, frames=5, rows=rows, columns=columns, at=frames // 2, scalar=1)
        check(path, frames // 2 + 5, rows, columns, None, True)
    write(path, frames=2000, ahead=50, chunk_frames=16)
    with h5py.File(path, "r") as file:
        assert (numpy.sort(file["s"][:, 0, 0]) == numpy.arange(2000)).all()


def sizes(path):
    """Flushes in the middle of all 20 chunks, of 32 KB, cost no more than three; see take_place()."""
    for codec, most in (("none", 16), ("deflate", 96)):
        write(path, codec=codec, frames=2000, chunk_frames=100, columns=40)
        once = os.path.getsize(path)
        write(path, codec=codec, frames=2000, chunk_frames=100, columns=40, flush=30)
        check(path, 2000, 1, 40)
        often = os.path.getsize(path)
        assert often - once <= most << 10, (codec, once, often)


def theirs(path):
    filters = ({}, {"compression": "gzip"}, {"compression": "gzip", "shuffle": True})
    for (rows, columns), filtered, frames, which in some(
        itertools.product(((1, 4), (30, 50), (5, 900)), filters, (0, 1, 25, 40), range(3))
    ):
        chunks = (True, (10, rows, columns), (4, max(rows // 2, 1), 3))[which]
        with h5py.File(path, "w") as file:
            file.create_dataset("s", data=expected(frames, rows, columns), chunks=chunks,
                                maxshape=(None, rows, columns), **filtered)
        write(path, append=1, frames=33, rows=rows, columns=columns, flush=10)
        check(path, frames + 33, rows, columns)
        if frames:
            write(path, append=1, frames=3, rows=rows, columns=columns, at=frames - 1)
            check(path, frames + 2, rows, columns)


with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
    path = os.path.join(folder, "file.h5")
    ours(path)
    print("h5py reads what a writer has stored, and continued")
    sizes(path)
    print("flushes do not make the file grow")
    theirs(path)
    print("a writer continues what h5py made")
