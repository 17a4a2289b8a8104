# SPDX-License-Identifier: Apache-2.0
"""Programs of MPI, started as ranks of this machine, and the frames that ranks_write has to have written."""

import os
import subprocess
import sys
import time

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "frames"))
import chunks  # noqa: E402
import mpirun  # noqa: E402


SERIES = [
    ("fields/u", numpy.float32, (60, 50)),
    ("v", numpy.float64, (21, 14, 9)),
    ("deep/er/w", numpy.int16, (2803,)),
]


LAUNCHER = mpirun.launcher(sys.argv[1])


def run(ranks, *command):
    """The finished process, with its output."""
    environment = dict(os.environ, LC_ALL="C.UTF-8")
    # MPI's own memory is not ours to find leaks in.
    environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    return subprocess.run(
        [*LAUNCHER, "-n", str(ranks), *map(str, command)],
        capture_output=True, text=True, env=environment, timeout=300)


def write(program, ranks, path, **options):
    """Runs ranks_write, which has to end well. Returns its output."""
    done = run(ranks, program, path, *(f"{name}={value}" for name, value in options.items()))
    assert done.returncode == 0, (ranks, options, done.returncode, done.stdout, done.stderr)
    return done.stdout


def frame(number, k):
    """Frame k of the series with that number."""
    _, dtype, shape = SERIES[number]
    i = numpy.arange(numpy.prod(shape), dtype=numpy.uint64)
    values = ((i // 3 + k * 7 + number * 13) % 251).astype(float)
    values += ((i * 2654435761 + k) % 16).astype(float) / 16
    return (values * 16 if dtype == numpy.int16 else values).astype(dtype).reshape(shape)


def read(dataset):
    return chunks.read(dataset)


def _opened(path):
    """Ranks that mpirun has ended may have it a little longer."""
    for _ in range(600):
        try:
            return h5py.File(path, "r")
        except BlockingIOError:
            time.sleep(0.05)
    raise TimeoutError(path)


def check(path, least, most):
    """Every frame is as it was written. Returns how many there are of each series."""
    counts = []
    with _opened(path) as file:
        for number, (name, _, _) in enumerate(SERIES):
            if name not in file:
                assert least == 0 or number > 0, name
                counts.append(0)
                continue
            found = read(file[name])
            assert len(found) <= most, (name, len(found), most)
            # A virtual dataset has parts of frames behind those that it counts.
            count = int(file[name].attrs.get("sluice_frames", len(found)))
            for k, one in enumerate(found):
                right = one == frame(number, k)
                assert (right if k < count else right | numpy.isnan(one) | (one == 0)).all(), (name, k)
            counts.append(count)
        if counts[0]:
            times = file["fields/u_time"][: counts[0]]
            assert (times == numpy.arange(counts[0]) * 0.5).all()
    assert min(counts) >= least, (counts, least)
    return counts
