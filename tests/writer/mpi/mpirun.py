# SPDX-License-Identifier: Apache-2.0
"""The commands of the MPI that a program or library is linked with, which need not be the ones without a suffix."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile

# OpenMPI refuses both otherwise; MPICH knows neither.
OPTIONS = {"openmpi": ["--oversubscribe", "--allow-run-as-root"], "mpich": []}


def implementation(linked):
    done = subprocess.run(["ldd", linked], capture_output=True, text=True)
    return "mpich" if "libmpich" in done.stdout else "openmpi"


def tool(name, linked):
    """The path of `mpirun` or `mpicc`. Without it the test is skipped."""
    of = implementation(linked)
    found = shutil.which(f"{name}.{of}") or shutil.which(name)
    if not found:
        print(f"skipped: there is no {name} ({of})")
        sys.exit(77)
    return found


def launcher(linked):
    """The command that starts ranks, without their number (-n)."""
    if "SLUICE_TEST_MPIRUN" in os.environ:
        return os.environ["SLUICE_TEST_MPIRUN"].split()
    command = [tool("mpirun", linked), *OPTIONS[implementation(linked)]]
    # OpenMPI fails at times if another mpirun ends that uses the same folder.
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="mpi-", dir="/tmp")
    atexit.register(shutil.rmtree, os.environ["TMPDIR"], ignore_errors=True)
    return command
