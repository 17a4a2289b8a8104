# SPDX-License-Identifier: Apache-2.0
"""Cases of an example as its users see it: functions, each named by the sentence that it proves."""

import os
import subprocess
import sys
import tempfile
import time


class Skip(Exception):
    pass


def run(*arguments, status=0, **options):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == status, f"{arguments} ended with {done.returncode}: {done.stderr}"
    return done


def run_all(cases):
    """Each in a folder of its own; ends the program, with 77 if all were skipped."""
    skipped = 0
    for case in cases:
        begin, busy = time.monotonic(), os.times()
        with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
            os.chdir(folder)
            try:
                case()
                cpu = sum(os.times()[2:4]) - sum(busy[2:4])
                print(f"{case.__name__} ({time.monotonic() - begin:.1f} s, {cpu:.1f} of a processor)", flush=True)
            except Skip as why:
                skipped += 1
                print(f"skipped: {case.__name__}: {why}", flush=True)
            finally:
                os.chdir("/")
    sys.exit(77 if skipped == len(cases) else 0)
