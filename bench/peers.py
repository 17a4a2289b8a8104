# SPDX-License-Identifier: Apache-2.0
"""Runs sluice and the tools it is compared with, and keeps the file they work on in a known state."""

import ctypes
import json
import os
import shlex
import subprocess
import time
from typing import NamedTuple

import against

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE = os.sysconf("SC_PAGE_SIZE")

# What the caller's shell has set must not tune sluice: the figures are those of its defaults.
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}


class Failed(Exception):
    """A tool did not do what it was asked for."""


class Sample(NamedTuple):
    """What one run moved, how long that took, and the processor time of all its threads."""

    bytes: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self):
        return self.bytes / self.seconds

    @property
    def cpu_per_gb(self):
        return self.cpu_seconds / (self.bytes / 1e9)


def add_up(samples):
    """Runs that followed each other, as a single one."""
    return Sample(*map(sum, zip(*samples)))


def run(command, **settings):
    """Runs a tool to its end; its standard output, and the seconds and processor time of it all."""
    command = [against.program(command[0]), *command[1:]]
    start = time.perf_counter()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT | settings,
        text=True,
    ) as process:
        # Their messages are far shorter than a pipe is long, so that one can be read after the
        # other.
        output, errors = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if process.returncode != 0:
        raise Failed(f"{shlex.join(command)}: status {process.returncode}: {errors.strip()}")
    return output, seconds, usage.ru_utime + usage.ru_stime


class Sluice:
    """The command of the build that is measured."""

    def __init__(self, program):
        self.program = program

    def bench(self, direction, path, *options, **settings):
        return add_up(self.passes(direction, path, *options, **settings))

    def passes(self, direction, path, *options, **settings):
        """A sample of each pass; the processor time is that of the mean pass."""
        command = [self.program, "bench", direction, path, "--json", *options]
        result = json.loads(run(command, **settings)[0])
        moved = result["bytes"]
        cpu = result["cpu_seconds_per_gb"] * moved / 1e9
        return [Sample(moved, seconds, cpu) for seconds in result["seconds"]]


def fio(expected_bytes, **options):
    """
    One fio job description on the command line; True is a bare option. fio's clock runs from the
    first request of a job to its last, without opening and laying out the file; of several jobs
    the longest counts.
    """
    command = ["fio", "--name=bench", "--output-format=json", "--group_reporting"]
    # The state of the page cache is prepared by us. No clock is read for each request, and blocks
    # are not altered before each write: both would slow fio down and sluice does neither.
    options = {"invalidate": 0, "gtod_reduce": 1, "scramble_buffers": 0, **options}
    command += [f"--{name}={value}" for name, value in options.items()]
    output = run(command)[0]
    job = json.loads(output[output.index("{") :])["jobs"][0]
    # The reads are asked for as "rw" with 100 % reads, see READ.
    wanted, other = ("write", "read") if options["rw"] == "write" else ("read", "write")
    moved = job[wanted]["io_bytes"]
    if job["error"] or job[other]["io_bytes"] or moved != expected_bytes:
        raise Failed(f"{shlex.join(command)}: moved {moved} bytes instead of {expected_bytes}")
    cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3
    return Sample(moved, job[wanted]["runtime"] / 1e3, cpu)


# fio fills its buffers before its clock starts if it may have to write them, and otherwise leaves
# them untouched, so that the page faults of the first pass are part of the measured time: reading
# 1 GiB once in blocks of 256 MiB with four jobs made 262,000 faults and took 1.1 s with rw=read,
# and 40 faults and 0.04 s with this. sluice bench touches its buffers beforehand.
READ = {"rw": "rw", "rwmixread": 100}


def dd(path, size, block):
    _, seconds, cpu = run(["dd", f"if={path}", "of=/dev/null", f"bs={block}", "status=none"])
    return Sample(size, seconds, cpu)


def compact_memory():
    """
    Asks the kernel to put the free pages of memory together, which only root may. How many
    neighbours a buffer's pages have decides how long the requests of a disk can be: the same read
    of 4 GiB took requests of 0.5 MiB and 1.0 GB/s, or of 4 MiB and 2.2 GB/s, by chance.
    """
    try:
        with open("/proc/sys/vm/compact_memory", "w", encoding="ascii") as file:
            file.write("1")
    except OSError:
        pass


class WorkFile:
    """A file of random bytes, and what of it is in the page cache."""

    def __init__(self, path, size):
        self.path, self.size = path, size

    def make(self):
        with open(self.path, "wb") as file:
            for offset in range(0, self.size, 16 * MIB):
                file.write(os.urandom(min(16 * MIB, self.size - offset)))
            file.flush()
            os.fsync(file.fileno())

    def remove(self):
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        compact_memory()

    def drop(self, ranges=None):
        """Drops the pages of some ranges (offset, length), or all, out of the cache."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(fd)
            for offset, length in ranges or [(0, 0)]:
                os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
        compact_memory()

    def warm(self):
        """Reads until all is cached. Pages that were read ahead under RWF_DONTCACHE, as sluice may
        do, leave the cache with their first reader, so that one pass need not be enough."""
        buffer = bytearray(4 * MIB)
        for _ in range(4):
            if self.resident() > 0.999:
                return
            with open(self.path, "rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass
        raise Failed(f"{self.path}: {self.size} bytes do not stay in the page cache here")

    def cool(self):
        self.drop()
        if self.resident() > 0.001:
            raise Failed(f"{self.path}: cannot be dropped from the page cache here")

    def resident(self):
        """The part of the file that is in the page cache, 0 to 1, as mincore(2) says."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [
            ctypes.c_long
        ]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
        prot_read, map_shared = 1, 1
        fd = os.open(self.path, os.O_RDONLY)
        try:
            address = libc.mmap(None, self.size, prot_read, map_shared, fd, 0)
        finally:
            os.close(fd)
        if address == ctypes.c_void_p(-1).value:
            raise Failed(f"{self.path}: mmap: {os.strerror(ctypes.get_errno())}")
        pages = (self.size + PAGE - 1) // PAGE
        state = ctypes.create_string_buffer(pages)
        if libc.mincore(address, self.size, state):
            raise Failed(f"{self.path}: mincore: {os.strerror(ctypes.get_errno())}")
        libc.munmap(address, self.size)
        return state.raw.count(b"\1") / pages


def direct_possible(path):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True
