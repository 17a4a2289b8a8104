#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks on two nodes: one file, and a file for each node. usage: nodes RANKS_WRITE mpirun node_files_test.py; 77 is a skip."""

import os
import shutil
import struct
import subprocess
import sys
import tempfile

import launch

program = sys.argv[1]


def described(path):
    """Everything of a file that readers see, but for the chunks and the number of frames."""
    found = {}

    def visit(name, item):
        attributes = {key: str(value) for key, value in item.attrs.items() if key != "sluice_frames"}
        found[name] = attributes
        if isinstance(item, launch.h5py.Dataset):
            found[name] = (attributes, item.dtype, item.shape, item.maxshape, launch.read(item).tobytes())

    with launch.h5py.File(path, "r") as file:
        visit("/", file)
        file.visititems(visit)
    return found


def equal_in_both_layouts(folder):
    """Blocks of any form: what h5py reads is the file of a single rank."""
    first = os.path.join(folder, "first.h5")
    launch.write(program, 1, first, precision=9)
    expected = described(first)
    for cut, codec, nodes in (("odd", "deflate", 0), ("odd", "deflate", 1), ("columns", "none", 1), ("some", "none", 1)):
        path = os.path.join(folder, f"{cut}-{nodes}.h5")
        launch.write(program, 5, path, cut=cut, codec=codec, precision=9, nodes=nodes, every=3)
        assert described(path) == expected, (cut, nodes)
        if not nodes:
            continue
        with launch.h5py.File(path, "r") as file:
            for name, _, _ in launch.SERIES:
                files = {source.file_name for source in file[name].virtual_sources()}
                assert files == {f"{cut}-1.h5.node-{i}" for i in range(2)}, (name, files)
                assert file[name].attrs["sluice_frames"] == 10
        if shutil.which("h5dump"):
            shown = subprocess.run(["h5dump", "-d", "v", path], capture_output=True, text=True)
            assert shown.returncode == 0 and "NaN" not in shown.stdout, shown.stderr


def continued(folder):
    path = os.path.join(folder, "append.h5")
    launch.write(program, 4, path, nodes=1, frames=8)
    launch.write(program, 4, path, nodes=1, append=8, frames=8)
    launch.check(path, 16, 16)
    done = launch.run(1, program, path, "nodes=1", "append=16")
    assert done.returncode and "must be on as many nodes as before" in done.stderr, done.stderr


def killed(folder):
    path, told = os.path.join(folder, "x.h5"), os.path.join(folder, "told")
    done = launch.run(
        4, program, path, "nodes=1", "frames=400", "every=2", "die=3", "after=301", f"told={told}")
    assert done.returncode, "nobody was killed"
    with open(told, "rb") as file:
        visible = struct.unpack("3Q", file.read())
    counts = launch.check(path, 0, 400)
    assert visible[0] >= 298 and all(has >= seen for has, seen in zip(counts, visible)), (counts, visible)


for case in (equal_in_both_layouts, continued, killed):
    with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as made:
        print(case.__name__)
        case(made)
