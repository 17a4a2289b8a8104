#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the CRC-32 of each image of a run with the one that gray-scott computed before it handed the image over.
usage: verify.py FILE CHECKSUMS    reads the images by h5py
       verify.py - CHECKSUMS       from standard input, a file of numpy (.npy), as sluice cp writes it"""

import ast
import signal
import sys
import zlib

signal.signal(signal.SIGINT, signal.SIG_DFL)
path, checksums = sys.argv[1:]
with open(checksums, encoding="ascii") as lines:
    expected = [int(line.split()[1], 16) for line in lines]


def images_of_numpy(stream):
    """The number of images, and each; the format is that of numpy.lib.format, version 1."""
    head = stream.read(10)
    if head[:7] != b"\x93NUMPY\x01":
        sys.exit("standard input is no .npy file")
    fields = ast.literal_eval(stream.read(int.from_bytes(head[8:], "little")).decode())
    count, rows, columns = fields["shape"]
    return count, (stream.read(rows * columns * int(fields["descr"][2:])) for _ in range(count))


def images_of_hdf5(name):
    try:
        import h5py
    except ImportError as missing:
        sys.exit(f"verify.py: {missing}")
    frames = h5py.File(name, "r")["matrix"]
    return len(frames), (frame.tobytes() for frame in frames)


count, images = images_of_numpy(sys.stdin.buffer) if path == "-" else images_of_hdf5(path)
if count != len(expected):
    sys.exit(f"'{path}' has {count} images, not {len(expected)}")
for number, (image, crc) in enumerate(zip(images, expected)):
    if zlib.crc32(image) != crc:
        sys.exit(f"image {number} of '{path}' is not what was computed")
if path == "-":
    print(f"sluice reads all {count} images, bit for bit what was computed")
    sys.exit()
import h5py  # noqa: E402

made = h5py.File(path, "r")["matrix"].id.get_create_plist()
filters = [made.get_filter(i)[3].decode() for i in range(made.get_nfilters())]
print(f"h5py {h5py.__version__} reads all {count} images, bit for bit what was computed, "
      f"through the filters: {', '.join(filters) or 'none'}")
