#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/cluster.md, in C and in Fortran, and the simulation in Fortran, compiled as their readers do and run by
ranks of MPI.
usage: cluster_test.py SOURCES LIBRARIES c|fortran; 77 is a skip."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sources, libraries, language = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
sys.path.insert(0, os.path.join(sources, "tests", "writer", "mpi"))
import mpirun  # noqa: E402

LIBRARY = os.path.join(libraries, "libsluice-mpi.so")
MODULE = os.path.join(sources, "include", "sluice", "sluice.f90")  # sluice.pc has the place where it is installed
COMPILER = mpirun.tool({"c": "mpicc", "fortran": "mpif90"}[language], LIBRARY)
try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
if language == "fortran" and not shutil.which("gfortran"):
    print("skipped: there is no gfortran")
    sys.exit(77)


def run(*command, status=(0,)):
    done = subprocess.run(command, capture_output=True, text=True, timeout=100,
                          env={**os.environ, "LD_LIBRARY_PATH": libraries})
    assert done.returncode in status, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def source(rows):
    """The program, for a field of so many rows instead of 70."""
    if language == "fortran":
        name, pattern = os.path.join(sources, "examples", "write_ranks.f90"), r"^(.*)$"
    else:
        name, pattern = os.path.join(sources, "docs", "cluster.md"), r"^```c\n(.*?)^```$"
    with open(name, encoding="utf-8") as file:
        program = re.search(pattern, file.read(), re.S | (re.M if language == "c" else 0)).group(1)
    path = "run.c" if language == "c" else "run.f90"
    with open(path, "w", encoding="utf-8") as file:
        file.write(program.replace("= 70", f"= {rows}"))
    return path


def build(path):
    run(COMPILER, "-Wall", "-Wextra", "-Werror", "-I", os.path.join(sources, "include"),
        *([MODULE] if language == "fortran" else []), path, "-o", "run", "-L", libraries, "-lsluice-mpi", "-lsluice")


def simulation():
    """A number of ranks does not change a bit of it."""
    build(os.path.join(sources, "examples", "gray_scott.f90"))
    fields = []
    for ranks in (1, 3):
        run(*mpirun.launcher(LIBRARY), "-n", str(ranks), "./run", f"{ranks}.h5")
        with h5py.File(f"{ranks}.h5", "r") as found:
            fields.append(found["v"][...])
    assert fields[0].shape == (8, 96, 96) and (fields[0] == fields[1]).all()
    assert 0 <= fields[0].min() and 0.2 < fields[0][-1].max() < 1, fields[0][-1].max()


# Of two rows a rank of three has none.
for rows in (70, 2):
    with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
        os.chdir(folder)
        build(source(rows))
        ranks = [*mpirun.launcher(LIBRARY), "-n", "3", "./run", "run.h5"]
        run(*ranks)
        k, j, i = numpy.indices((6, rows, 50))
        with h5py.File("run.h5", "r") as found:
            assert found["fields/u"].dtype == numpy.float64
            assert (found["fields/u"][...] == 10000 * k + 100 * j + i).all()
        if rows == 70:
            # Open MPI 4.1's own mpirun crashes at times when all ranks abort at once.
            why = run(*ranks, status=(1, -signal.SIGSEGV))
            assert "run.h5' exists" in why, why
            if language == "fortran":
                simulation()
        os.chdir("/")
