#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of MPI that differ: slow, lazy, gone too early, in another number. usage: ranks_mpi_test.py RANKS_WRITE;
77 is a skip."""

import os
import sys
import tempfile

import launch

program = sys.argv[1]
# Read by all ranks together, by the parallel build of HDF5; it is Debian's package python3-h5py-mpi.
READ_IN_PARALLEL = """
import sys
try:
    import h5py._debian_h5py_mpi as h5py
    from mpi4py import MPI
except ImportError as missing:
    print("missing:", missing)
    sys.exit(0)
comm = MPI.COMM_WORLD
with h5py.File(sys.argv[1], "r", driver="mpio", comm=comm) as file:
    rows = 60 // comm.size
    mine = file["fields/u"][:, comm.rank * rows:(comm.rank + 1) * rows]
    total = comm.allreduce(float(mine.sum()))
if comm.rank == 0:
    print(total)
"""


def slow_rank(folder):
    path = os.path.join(folder, "slow.h5")
    launch.write(program, 4, path, slow=2, frames=30)
    launch.check(path, 30, 30)


def lazy_rank(folder):
    path = os.path.join(folder, "lazy.h5")
    done = launch.run(3, program, path, "lazy=1", "every=1")
    assert done.returncode == 1, done
    for rank in range(3):
        says = f"rank {rank}: close: -61:"
        assert says in done.stderr, (says, done.stderr)
    assert "rank 1 has closed the writer after 5 frames of" in done.stderr, done.stderr
    launch.check(path, 5, 5)


def other_number(folder):
    path = os.path.join(folder, "append.h5")
    launch.write(program, 2, path, frames=8)
    launch.write(program, 4, path, append=8, frames=8, cut="odd")
    launch.check(path, 16, 16)


def finalized(folder):
    """MPI_Finalize() with a writer that is open leaves the file as of its last flush."""
    path = os.path.join(folder, "left.h5")
    done = launch.run(2, program, path, "leave=1", "every=4", "frames=10")
    assert done.returncode == 1, done
    assert "close: -108:" in done.stderr, done.stderr
    launch.check(path, 8, 10)


def deserted(folder):
    """A rank that calls MPI_Finalize() with its writer open, while others wait for it without end."""
    for rank, level in ((0, "serialized"), (1, "multiple")):
        path = os.path.join(folder, f"{rank}.h5")
        done = launch.run(3, program, path, f"desert={rank}", "every=1", f"thread={level}")
        assert done.returncode == 1, done
        for other in {0, 1, 2} - {rank}:
            says = f"rank {other}: close: -108: rank {rank} has ended the messages (MPI_Finalize?) with the writer open"
            assert says in done.stderr, (says, done.stderr)
        launch.check(path, 5, 5)


def left_behind(folder):
    """A rank is killed before the first flush: the next run of that name removes what it finds."""
    path = os.path.join(folder, "x.h5")
    done = launch.run(2, program, path, "die=1", "us=100000", "frames=100000")
    assert done.returncode, done
    (left,) = os.listdir(folder)
    assert left.startswith(".x.h5."), left
    os.utime(os.path.join(folder, left), (0, 0))
    launch.write(program, 2, path)
    assert os.listdir(folder) == ["x.h5"], os.listdir(folder)


def absent(folder):
    """A rank that does not open the writer."""
    done = launch.run(3, program, os.path.join(folder, "x.h5"), "absent=1")
    assert done.returncode, done
    assert "-110: not all ranks of the communicator have called sluice_writer_open_mpi in 100 ms" in done.stderr, done
    assert not os.listdir(folder), os.listdir(folder)


def in_parallel(folder):
    if launch.mpirun.implementation(program) != "openmpi":
        print("not read in parallel: h5py-mpi has another MPI")
        return
    path = os.path.join(folder, "parallel.h5")
    launch.write(program, 2, path, frames=3)
    script = os.path.join(folder, "read.py")
    with open(script, "w") as file:
        file.write(READ_IN_PARALLEL)
    done = launch.run(2, "/usr/bin/python3", script, path)
    assert done.returncode == 0, done
    if "missing" in done.stdout:
        print("not read in parallel:", done.stdout.splitlines()[0])
        return
    expected = sum(float(launch.frame(0, k).sum()) for k in range(3))
    assert float(done.stdout) == expected, (done.stdout, expected)


for case in (slow_rank, lazy_rank, other_number, finalized, deserted, left_behind, absent, in_parallel):
    with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
        print(case.__name__)
        case(folder)
