#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a part of a zarr array over HTTP, and draws it.

usage: zarr_over_http.py --make FOLDER          makes an array
       zarr_over_http.py URI [PICTURE]          URI: http://host/array; PICTURE: a PNG
"""

import sys

import _picture
import numpy as np
import sluice.fsspec  # noqa: F401  makes sluice+http known
import zarr


def make(folder, n=512):
    y, x = np.mgrid[-3 : 3 : n * 1j, -3 : 3 : n * 1j]
    array = zarr.create_array(folder, shape=(8, n, n), chunks=(1, 128, 128), dtype="f4")
    for i in range(8):
        array[i] = np.sin(3 * x + i) * np.cos(2 * y - i) * np.exp(-(x**2 + y**2) / 4)


def main(uri, picture=None):
    # Zarr asks for ten chunks at a time; a server that is far away needs more.
    zarr.config.set({"async.concurrency": 64})
    array = zarr.open_array("sluice+" + uri, mode="r")
    plane = array[3]
    print(f"{array.shape} {array.dtype}; the sum of plane 3 is {plane.sum():.3f}")
    if picture:
        _picture.grey(picture, plane)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        make(sys.argv[2])
    elif sys.argv[1:]:
        main(*sys.argv[1:3])
    else:
        sys.exit(__doc__)
