#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What h5py reads of the file of a writer, and that a writer continues what h5py made.
usage: series_h5py_test.py WRITE_SERIES; 77 is a skip."""

import os
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

FRAMES, ROWS, COLUMNS = 4, 3, 5
TYPES = [
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
]
program = sys.argv[1]


def expected(frames, dtype):
    return (numpy.arange(frames * ROWS * COLUMNS) % 100).reshape(frames, ROWS, COLUMNS).astype(dtype)


def check_frames(dataset, frames, dtype):
    assert dataset.dtype == numpy.dtype(dtype), (dataset, dtype)
    assert dataset.shape[1:] == (ROWS, COLUMNS)
    assert (dataset[:frames] == expected(frames, dtype)).all(), dataset


def check_attributes(dataset):
    assert dataset.attrs["units"] == "mol/m\u00b3"
    assert list(dataset.attrs["numbers"]) == [0.5, 1.5]
    assert dataset.attrs["integer"] == -7 and dataset.attrs["integer"].shape == ()


def check_ours(group):
    for number, dtype in enumerate(TYPES):
        dataset = group[dtype]
        contiguous = dtype == "float64"
        check_frames(dataset, FRAMES, dtype)
        check_attributes(dataset)
        assert len(dataset) == FRAMES + 3 if contiguous else FRAMES
        assert dataset.maxshape[0] == (FRAMES + 3 if contiguous else None)
        assert dataset.chunks == (None if contiguous else (1, ROWS, COLUMNS))
        assert dataset.compression == ("gzip" if number % 2 else None)
        assert dataset.shuffle == bool(number % 2)
        assert list(group[dtype + "_time"][...]) == [0.5 * frame for frame in range(FRAMES)]
    assert group["float64"].attrs["sluice_frames"] == FRAMES
    assert group["float32"].attrs["sluice_precision"] == 10
    assert group["float32"].attrs["sluice_max_error"] == 0.375


# One frame of each, in the ways in which programs use h5py, but for two.
def make_theirs(path):
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "theirs"
        group = file.create_group("theirs")
        for number, dtype in enumerate(TYPES):
            if dtype == "float32" or dtype == "float64":
                continue
            filters = {"compression": "gzip", "compression_opts": 5, "shuffle": True} if number % 2 else {}
            data = group.create_dataset(
                dtype, (1, ROWS, COLUMNS), dtype, maxshape=(None, ROWS, COLUMNS), chunks=(1, ROWS, COLUMNS),
                **filters,
            )
            data[...] = expected(1, dtype)
            times = group.create_dataset(dtype + "_time", (1,), "f8", maxshape=(None,), chunks=(7,))
            times[0] = 0


with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
    path = os.path.join(folder, "file.h5")
    subprocess.run([program, "new", path], check=True)
    with h5py.File(path, "r") as file:
        assert file.attrs["title"] == "gr\u00e4y", file.attrs["title"]
        check_ours(file["ours"])
    print(f"h5py {h5py.version.version} reads all of a new file")

    # And goes on with it, as any program may.
    with h5py.File(path, "a") as file:
        data = file["ours/int16"]
        data.resize(FRAMES + 1, axis=0)
        data[FRAMES] = expected(FRAMES + 1, "int16")[FRAMES]
        del file["ours/uint8"]
        check_frames(data, FRAMES + 1, "int16")

    make_theirs(path)
    subprocess.run([program, "append", path], check=True)
    with h5py.File(path, "r") as file:
        assert file.attrs["title"] == "theirs"
        for number, dtype in enumerate(TYPES[:-2]):
            data = file["theirs"][dtype]
            check_frames(data, 1 + FRAMES, dtype)
            assert data.compression_opts == (5 if number % 2 else None)
            times = list(file["theirs"][dtype + "_time"][...])
            assert times == [0.5 * frame for frame in range(1 + FRAMES)], times
        assert len(file["theirs/float32"]) == FRAMES
        assert file["theirs/float64"].attrs["sluice_frames"] == FRAMES
    print("a writer continues what h5py made")
