#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""examples/gray-scott under mpirun. A case is a function whose name is the sentence that it proves.
usage: gray_scott_mpi_test.py GRAY_SCOTT GRAY_SCOTT_MPI; 77 is a skip."""

import os
import sys

sys.dont_write_bytecode = True
from cases import Skip, run, run_all  # noqa: E402

try:
    import h5py
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "writer", "mpi"))
from mpirun import launcher  # noqa: E402

alone, by_ranks = map(os.path.abspath, sys.argv[1:])
LAUNCHER = launcher(by_ranks)
# OpenMPI keeps memory until the process ends.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
GRID = ["--nbrow", "41", "--nbcol", "97", "--nbimage", "5", "--nbextrastep", "40", "--blocks", "7"]


def mpirun(ranks, *command, status=0):
    return run(*LAUNCHER, "-n", ranks, *command, status=status)


def contents(path):
    with h5py.File(path, "r") as file:
        frames = file["matrix"]
        assert frames.shape == (5, 41, 97)
        values = frames[...]
        assert values[0].max() > 0.1 and (values[0] != values[4]).any()  # there is something to compare
        attributes = {name: frames.attrs[name].tobytes() for name in frames.attrs}
        return values.tobytes(), {name: attributes[name] for name in attributes if "sluice" not in name}


def check_same(*command):
    run(alone, *GRID, "--threads", 1, "-o", "alone.h5")
    text = mpirun(*command, *GRID, "-o", "ranks.h5").stdout
    assert f"5 images of 41 x 97 by {command[0]} ranks" in text, text
    assert contents("ranks.h5") == contents("alone.h5")


def the_file_of_three_ranks_is_bit_for_bit_that_of_a_program_without_mpi():
    check_same(3, by_ranks)


# 41 rows: the slabs are smaller than a halo of eight rows.
def slabs_of_a_few_rows_change_no_bit():
    check_same(6, by_ranks, "--codec", "none")


def h5dwrite_on_rank_0_stores_the_same():
    for storage in "plain", "sync":
        check_same(3, by_ranks, "--storage", storage)


def parallel_hdf5_stores_the_same():
    if "'collective'" not in run(by_ranks, "--storage", "?", status=2).stderr:
        raise Skip("built without parallel HDF5 (libhdf5-openmpi-dev)")
    check_same(3, by_ranks, "--storage", "collective")


def wrong_input_is_told_by_one_rank():
    why = mpirun(3, by_ranks, "--nbrow", 2, status=2).stderr
    assert why.count("2 rows are too few for 3 ranks") == 1, why


run_all([
    the_file_of_three_ranks_is_bit_for_bit_that_of_a_program_without_mpi,
    slabs_of_a_few_rows_change_no_bit,
    h5dwrite_on_rank_0_stores_the_same,
    parallel_hdf5_stores_the_same,
    wrong_input_is_told_by_one_rank,
])
