#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reads each image of a run by h5py and compares its CRC-32 with the one that gray-scott computed before
it handed the image over. usage: verify.py FILE CHECKSUMS"""

import signal
import sys
import zlib

try:
    import h5py
except ImportError as missing:
    sys.exit(f"verify.py: {missing}")

signal.signal(signal.SIGINT, signal.SIG_DFL)
path, checksums = sys.argv[1:]
with open(checksums, encoding="ascii") as lines:
    expected = [int(line.split()[1], 16) for line in lines]
with h5py.File(path, "r") as file:
    frames = file["matrix"]
    if len(frames) != len(expected):
        sys.exit(f"'{path}' has {len(frames)} images, not {len(expected)}")
    for number, crc in enumerate(expected):
        if zlib.crc32(frames[number].tobytes()) != crc:
            sys.exit(f"image {number} of '{path}' is not what was computed")
    filters = [frames.id.get_create_plist().get_filter(i)[3].decode() for i in
               range(frames.id.get_create_plist().get_nfilters())]
print(f"h5py {h5py.__version__} reads all {len(expected)} images, bit for bit what was computed, "
      f"through the filters: {', '.join(filters) or 'none'}")
