#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Follows a run: python3 follow_frames.py run.h5 fields/u

Prints the number of frames and the mean of the last one, each time there is a new one, while a writer of sluice
writes the file. read() is all of the rule: what it returns is of one state of the file. See docs/writer.md.
"""

import fcntl
import os
import struct
import sys
import time

import h5py

PLACE = 128  # of the word: "\x89sluice\n", and a number that is odd in the middle of a flush


def number(fd):
    magic, n = struct.unpack("<8sQ", os.pread(fd, 16, PLACE))
    if magic != b"\x89sluice\n":
        raise ValueError("the file was not made by a writer of sluice")
    return n


def is_written(fd):
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, PLACE, 16, 0)
    return struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_OFD_GETLK, lock))[0] != fcntl.F_UNLCK


def read(path, get):
    """get(file), which reads what it wants of an h5py.File, and returns arrays, no datasets."""
    while True:
        fd = os.open(path, os.O_RDONLY)
        try:
            before = number(fd)
            if before % 2 and is_written(fd):
                time.sleep(0.0002)
                continue
            result = error = None
            try:
                with h5py.File(path, "r", locking=False) as file:
                    result = get(file)
            except Exception as wrong:  # of any kind, if the file has changed meanwhile
                error = wrong
            if number(fd) == before and os.path.samestat(os.fstat(fd), os.stat(path)):
                if error:
                    raise error
                return result
        finally:
            os.close(fd)


def last(file, name):
    frames = file[name]
    count = int(frames.attrs.get("sluice_frames", frames.shape[0]))  # of a fixed number: those that are stored
    return count, frames[count - 1].mean() if count else None


if __name__ == "__main__":
    len(sys.argv) == 3 or sys.exit(__doc__)
    seen = 0
    while True:
        count, mean = read(sys.argv[1], lambda file: last(file, sys.argv[2]))
        if count != seen:
            print(f"{count} frames, the mean of the last one is {mean:.6g}", flush=True)
        seen = count
        time.sleep(0.2)
