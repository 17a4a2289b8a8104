#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a column of a dataset of a terabyte from S3, or from another server, and draws it: the probes along a line, at
all times. Of each chunk of 16 MiB a KiB is asked for, and the index of 65,536 chunks is fetched side by side.

usage: far_array.py --make FILE       makes the file: 1.1 TB of holes, but for that column
       far_array.py URI [PICTURE]     URI: s3://bucket/FILE#/u or http://host/FILE#/u; PICTURE: a PNG
"""

import sys
import time

import _picture
import numpy as np
import sluice

TIMES, N, ROW, PROBES = 1024, 16384, 5000, slice(3000, 3256)


def make(path):
    import h5py

    with h5py.File(path, "w") as file:
        options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        options.set_chunk((1, 256, N))
        options.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        options.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((TIMES, N, N))
        u = h5py.Dataset(h5py.h5d.create(file.id, b"u", h5py.h5t.IEEE_F32LE, space, options))
        x = np.linspace(-3, 3, PROBES.stop - PROBES.start)
        for i in range(TIMES):
            u[i, ROW, PROBES] = np.sin(5 * x - i / 40) * np.exp(-((x - i / 400) ** 2))


def main(uri, picture=None):
    begun = time.perf_counter()
    with sluice.open_array(uri) as u:
        column = u[:, ROW, PROBES]
        print(f"{u.shape} {u.dtype}, {u.nbytes / 1e12:.1f} TB; the column has {column.nbytes / 1e6:.1f} MB, "
              f"and its greatest element is {column.max():.3f}")
    print(f"{time.perf_counter() - begun:.1f} s", file=sys.stderr)
    if picture:
        _picture.grey(picture, column)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        make(sys.argv[2])
    elif sys.argv[1:]:
        main(*sys.argv[1:3])
    else:
        sys.exit(__doc__)
