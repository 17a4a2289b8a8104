#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The file of 2, 4 and 7 ranks is that of one rank, dataset by dataset. usage: equality_test.py RANKS_WRITE CUT;
77 is a skip."""

import os
import sys
import tempfile

import launch

program, cut = sys.argv[1], sys.argv[2]
# How the blocks are cut, and with it other options, so that few runs have all of them.
options = {
    "slabs": {"codec": "deflate", "every": 3},
    "columns": {"codec": "none", "thread": "funneled", "checkpoint": 2},
    "odd": {"codec": "zstd", "seed": 4},
    # Of a program that is linked with parallel HDF5.
    "parallel": {"codec": "deflate", "every": 3, "only": 1},
    "some": {"codec": "deflate", "thread": "serialized", "precision": 9, "seed": 9},
}[cut]


def described(path):
    """Everything of a file but the places."""
    found = {}

    def visit(name, item):
        attributes = {key: str(value) for key, value in item.attrs.items()}
        found[name] = attributes
        if isinstance(item, launch.h5py.Dataset):
            found[name] = (
                attributes, item.dtype, item.shape, item.maxshape, item.chunks, launch.chunks.filters_of(item),
                launch.read(item).tobytes())

    with launch.h5py.File(path, "r") as file:
        visit("/", file)
        file.visititems(visit)
    return found


with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
    first = os.path.join(folder, "1.h5")
    launch.write(program, 1, first, cut=cut, **options)
    if "precision" not in options:
        launch.check(first, 10, 10)
    expected = described(first)
    if cut == "parallel":
        done = launch.run(2, program, os.path.join(folder, "refused.h5"))
        assert "not threadsafe, as parallel HDF5 is not" in done.stderr, done
    for ranks in (2, 4, 7) if cut != "parallel" else (2,):
        path = os.path.join(folder, f"{ranks}.h5")
        launch.write(program, ranks, path, cut=cut, **options)
        found = described(path)
        assert found.keys() == expected.keys(), (ranks, found.keys())
        for name in expected:
            assert found[name] == expected[name], (ranks, name, found[name][:5], expected[name][:5])
    assert set(os.listdir(folder)) <= {"1.h5", "2.h5", "4.h5", "7.h5"}
