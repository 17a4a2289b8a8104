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


# MPI_Init(): messages move in calls of the writer alone. Ranks have a column of u(6, ranks) each.
ALONE = """
program alone
  use mpi_f08
  use sluice
  implicit none
  type(c_ptr) :: context, writer, series
  type(sluice_series_options) :: options
  type(sluice_block) :: block
  character(kind=c_char), target :: names(2, 3) = reshape(["t", c_null_char, "y", c_null_char, "x", c_null_char], &
    [2, 3])
  type(c_ptr), target :: dimensions(3)
  real(c_float), target :: u(6)
  real(c_double), target :: x(6) = [0d0, 0.1d0, 0.2d0, 0.3d0, 0.4d0, 0.5d0]
  integer :: rank, ranks, i

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call must(sluice_context_new(c_null_ptr, context))
  call must(sluice_writer_open_mpi_fortran(context, MPI_COMM_WORLD%MPI_VAL, "run.h5"//c_null_char, c_null_ptr, writer))
  if (rank == 0) then
    call must(sluice_writer_add_coordinate(writer, "x"//c_null_char, sluice_float64, 6_c_size_t, c_loc(x), c_null_ptr, &
      0_c_size_t))
  end if
  dimensions = [c_loc(names(1, 1)), c_loc(names(1, 2)), c_loc(names(1, 3))]
  options%size = c_sizeof(options)
  options%type = sluice_float32
  options%rank = 2
  options%shape(1:2) = [ranks, 6]
  options%dimensions = c_loc(dimensions)
  block%start(1:2) = [rank, 0]
  block%count(1:2) = [1, 6]
  call must(sluice_series_add_block(writer, "u"//c_null_char, options, block, -1_c_int, series))
  do i = 1, 20
    u = 100 * rank + i
    call must(sluice_series_push(series, c_loc(u), c_null_ptr, -1_c_int))
    call must(sluice_writer_progress(writer))
  end do
  call must(sluice_writer_close(writer, -1_c_int))
  call must(sluice_context_close(context))
  call MPI_Finalize()
contains
  subroutine must(rc)
    integer(c_int), intent(in) :: rc

    if (rc >= 0) return
    write (*, *) sluice_message()
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine
end program
"""


def alone():
    os.remove("run.h5")
    with open("alone.f90", "w", encoding="utf-8") as file:
        file.write(ALONE)
    build("alone.f90")
    run(*mpirun.launcher(LIBRARY), "-n", "3", "./run")
    with h5py.File("run.h5", "r") as found:
        assert (found["u"][...] == numpy.arange(1, 21)[:, None, None] + numpy.array([0, 100, 200])[None, :, None]).all()
        assert found["u"].shape == (20, 3, 6) and found["u"].dims[2][0] == found["x"] and found["x"][5] == 0.5


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
                alone()
        os.chdir("/")
