# SPDX-License-Identifier: Apache-2.0
"""Frames of a simulation, and the programs that store them: for bench/writer and bench/mpi."""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from typing import NamedTuple

import against
import report
from peers import Failed, Sample, run
from report import say

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CORES = len(os.sched_getaffinity(0))
KEPT = 24  # different frames of each kind


def median(values):
    return statistics.median(list(values))


class Stored(NamedTuple):
    """The result of a run of bench_writer or bench_mpi: seconds, but for the bytes and the frames."""

    bytes: int
    seconds: float
    cpu_seconds: float  # of all ranks
    calls: float  # in acquire, submit, push or H5Dwrite: of the rank that waited most
    longest: float  # one of these calls
    filling: float  # between them
    others: float  # processor time of others meanwhile
    stored: int  # length of the file, or of all files
    frames: int
    lock_longest: float = 0  # of another thread's calls of HDF5
    lock_p99: float = 0

    rate = Sample.rate
    cpu_per_gb = Sample.cpu_per_gb

    @property
    def ratio(self):
        return self.bytes / self.stored


class Results:
    def __init__(self):
        self.rows, self.figures, self.tables = [], [], []


class Storing:
    """The settings of a bench, and the processor time that there was meanwhile."""

    def __init__(self, options):
        self.options = options
        self.rounds = options.rounds or (1 if options.quick else 5)
        self.rows, self.columns = map(int, options.grid.split("x"))
        self.disk = os.environ.get("SLUICE_BENCH_DIR") or os.path.join(options.build, "bench")
        self.frames = os.path.join(self.disk, f"frames-{options.grid}")
        self.others = self.time = 0  # processor time, that others took and that there was

    def program(self, name):
        return os.path.join(self.options.build, "bench", name)

    def make_frames(self):
        """Once; later runs, and others at the same time, find them whole. The share of the area that moves in the active ones."""
        note = os.path.join(self.frames, "note")
        if not os.path.exists(note):
            say(f"Running the simulation for frames of {self.options.grid}, about half a minute")
            os.makedirs(self.disk, exist_ok=True)
            folder = tempfile.mkdtemp(prefix=f"frames-{self.options.grid}-", dir=self.disk)
            text = run([self.program("bench_writer_frames"), folder, str(self.rows), str(self.columns), str(KEPT)])[0]
            with open(os.path.join(folder, "note"), "w", encoding="utf-8") as file:
                file.write(text)
            try:
                os.rename(folder, self.frames)
            except OSError:  # another run was faster
                shutil.rmtree(folder)
        with open(note, encoding="utf-8") as file:
            return json.load(file)["moving"]

    def run(self, command, options):
        """The result of a program with OPTION=VALUE."""
        stored = Stored(**json.loads(run(command + [f"{k}={v}" for k, v in options.items()])[0]))
        self.others += stored.others
        self.time += stored.seconds * CORES
        return stored

    def conclude(self, machine, results):
        machine["processor time that others took while this ran"] = f"{100 * self.others / self.time:.0f} %"
        say(f"Others took {100 * self.others / self.time:.0f} % of the processor time meanwhile")
        report.conclude(results.rows, machine, self.options, results.figures, results.tables)


def compare(*paths):
    """By the words of h5diff and not by its status: that is 1 for attributes that only one of the files has."""
    command = ["h5diff", "-v", "-n", "1", *paths, "/v"]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    if "\n0 differences found" not in text:
        raise Failed(f"{' '.join(command)}: {text.strip()}")


def arguments(about, grid, rows=()):
    """The options that both have."""
    parser = report.parser(about, "few frames", rows=rows)
    parser.add_argument("--grid", default=grid, metavar="RxC", help="of a frame; for tests")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="where the programs are")
    against.add_argument(parser)
    return parser
