# SPDX-License-Identifier: Apache-2.0
"""Rows of bench/device: processes that read into all GPUs of the machine at the same time, each its own file."""

import os
import re

from device_run import ORDERS, Program, Skipped, size_text
from peers import GIB, MIB, Failed, Sample

MOST = 16  # GPUs


class Several:
    """A program and a file, in the page cache, for each GPU."""

    def __init__(self, b):
        self.size = min(b.size, 2 * GIB)
        self.programs, self.paths = [], []
        kind = re.sub(":.*", "", b.device)
        for i in range(MOST):
            program = Program(b.program.arguments[0], f"{kind}:{i}", self.size)
            try:
                program.start()
            except (Failed, Skipped):
                break
            self.programs.append(program)
        if len(self.programs) < 2:
            self.stop()
            raise Skipped(f"this machine has {len(self.programs)} GPUs of the kind {kind}")
        for i in range(len(self.programs)):
            self.paths.append(os.path.join(b.shm, f"several-{i}"))
            random = os.urandom(min(16 * MIB, self.size))
            with open(self.paths[-1], "wb") as out:
                for _ in range(0, self.size, len(random)):
                    out.write(random)

    def stop(self):
        for program in self.programs:
            program.stop()
        for path in self.paths:
            os.unlink(path)

    def together(self, programs, verb, **options):
        """A sample of these, from the start of all to the end of the last."""
        try:
            for i in programs:
                self.programs[i].tell(verb, **{k: v[i] if isinstance(v, list) else v for k, v in options.items()})
            found = [self.programs[i].answer(60) for i in programs]
        except (Failed, Skipped):
            for program in self.programs:  # some have not answered; the next job starts them
                program.stop()
            raise
        return Sample(sum(f["bytes"] for f in found), max(f["seconds"] for f in found),
                      sum(f["cpu_seconds"] for f in found))

    def side(self, order, count, passes):
        return lambda: self.together(range(count), "move", path=self.paths, bytes=self.size, count=1,
                                     stream=ORDERS[order], streams=1, passes=passes)


def several(b):
    """Processes that know of each other, and share the cores."""
    s = Several(b)
    try:
        n, passes = len(s.programs), 2 if b.quick else 8
        copies = min(64 * MIB, s.size)
        sides = {"ceiling": lambda: s.together(range(n), "ceiling", bytes=copies, count=passes * s.size // copies,
                                               write=0)}
        for order in ORDERS:
            sides[f"all {order}"] = s.side(order, n, passes)
            sides[f"alone {order}"] = s.side(order, 1, passes)
        samples = b.in_turn(sides)
    finally:
        s.stop()
    rows = []
    how = f"{size_text(s.size)} in one operation, {passes} times, of a file in memory for each of {n} processes and GPUs."
    for order in ORDERS:
        alone = f"alone {order}"
        if alone in b.failures:
            b.failures[f"{n} x {alone}"] = b.failures[alone]
        samples[f"{n} x {alone}"] = [Sample(n * x.bytes, x.seconds, n * x.cpu_seconds) for x in samples.get(alone, [])]
        rows.append(b.row(f"several-{order}", f"read into {n} GPUs at once, {order} order", 0.85 if n == 2 else 0,
                          "a process alone, times as many", how, samples, f"all {order}",
                          [f"{n} x {alone}", alone, "ceiling"]))
    return rows
