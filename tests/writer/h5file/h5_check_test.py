#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""sluice h5 check: files of each codec and of h5py are right; damaged files end with a sentence, and never otherwise.
usage: h5_check_test.py WRITE_SMALL SLUICE; with STRESS many more damaged files, of SLUICE_TEST_SEED or a seed that is printed.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

PROGRAM, SLUICE = sys.argv[1:3]
seed = os.environ.get("SLUICE_TEST_SEED") or str(time.time_ns())
print(f"seed {seed}; the same again with SLUICE_TEST_SEED={seed}")
chance = random.Random(seed)


def check(*arguments):
    done = subprocess.run([SLUICE, "h5", "check", *arguments], capture_output=True, encoding="utf-8",
                          errors="surrogateescape", timeout=60)  # a damaged name has any bytes
    return done.returncode, done.stdout, done.stderr


def datasets(path, status=0):
    """The objects of --json by their names, and the first line."""
    found, out, said = check("--json", path)
    assert found == status and bool(said) == bool(status), (path, found, out, said)
    first, *rest = map(json.loads, out.splitlines())
    assert first["right"] == (not status) and first["file"] == path
    return {each["dataset"]: each for each in rest}, first["state"]


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, **options):
    return subprocess.Popen([PROGRAM, path, *(f"{k}={v}" for k, v in options.items())], stderr=subprocess.PIPE)


def of_ours():
    paths = []
    for codec in ("none", "deflate", "zstd", "lz4", "bitshuffle-lz4"):
        path = f"{codec}.h5"
        program = write(path, codec=codec, frames=9, rows=300, columns=100, chunk_frames=1, scalar=1)
        if b"not built in" in program.communicate()[1]:
            continue
        found, state = datasets(path)
        s = found["s"]
        assert (s["frames"], s["chunks"], s["masked"], s["wrong"], state) == (9, 9, 0, 0, "at rest"), s
        assert codec == "none" or codec in s["filters"].split()
        data = bytearray(contents(path))
        with h5py.File(path, "r") as file:
            place = file["s"].id.get_chunk_info(4).byte_offset
        data[place:place + 200] = bytes(200)
        with open("damaged.h5", "wb") as file:
            file.write(data)
        if codec != "none":  # which no reader can tell
            found, _ = datasets("damaged.h5", 1)
            assert found["s"]["wrong"] == 1 and "chunk at 4" in found["s"]["message"], found["s"]
        paths.append(path)
    write("small.h5", codec="deflate", frames=1000, rows=3, columns=10).communicate()
    datasets("small.h5")
    return [*paths, "small.h5"]


def of_others():
    with h5py.File("h5py.h5", "w") as file:
        file.create_dataset("g/sums", data=numpy.arange(100000.), chunks=(1000,), fletcher32=True)
        file.create_dataset("zipped", data=numpy.arange(100000.), chunks=True, compression="gzip", fletcher32=True)
        file.create_dataset("plain", data=numpy.arange(10))
        file.create_dataset("text", data=["x", "yy"] * 100, dtype=h5py.string_dtype(), chunks=True)
        file.create_dataset("scalar", data=4.0)
        file.create_dataset("huge", shape=(10**12, 10**6), chunks=(1000, 1000), dtype="f4", compression="gzip")[5, 5] = 1
        file.create_dataset("empty", shape=(0, 4), maxshape=(None, 4), chunks=(1, 4))
        file["scalar"].attrs["sluice_frames"] = numpy.int64(0)
        file["plain"].attrs["sluice_frames"] = numpy.arange(8, dtype="i1")  # 8 bytes that are 8 numbers
        file["nowhere"] = h5py.SoftLink("/none")
        place = file["g/sums"].id.get_chunk_info(7).byte_offset
    found, state = datasets("h5py.h5")
    assert found["huge"]["chunks"] == 1 and state == "of another program or version"
    data = bytearray(contents("h5py.h5"))
    data[place + 8] ^= 1
    with open("damaged.h5", "wb") as file:
        file.write(data)
    assert datasets("damaged.h5", 1)[0]["g/sums"]["wrong"] == 1
    return ["h5py.h5"]


def states():
    program = write("live.h5", frames=40, rows=30, columns=30, flush=1, pause=50, chunk_frames=1)
    while not os.path.exists("live.h5"):
        time.sleep(0.01)
    assert datasets("live.h5")[1] == "being written"
    program.send_signal(signal.SIGKILL)
    program.communicate()
    assert datasets("live.h5")[1] in ("at rest", "left in a flush")


def a_signal_ends_the_reading():
    with h5py.File("long.h5", "w") as file:
        s = file.create_dataset("s", shape=(4096, 1 << 22), chunks=(1, 1 << 22), dtype="u1", compression="gzip")
        s[0] = 0
        for i in range(1, 4096):
            s.id.write_direct_chunk((i, 0), s.id.read_direct_chunk((0, 0))[1])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        program = subprocess.Popen([SLUICE, "h5", "check", "long.h5"])
        children = f"/proc/{program.pid}/task/{program.pid}/children"
        while not (child := contents(children).decode().strip()):
            time.sleep(0.01)
        time.sleep(0.2)
        program.send_signal(number)
        assert program.wait(10) == -number
        until = time.monotonic() + 10
        while os.path.exists(f"/proc/{child}/maps") and contents(f"/proc/{child}/cmdline"):
            assert time.monotonic() < until, f"process {child} reads on"
            time.sleep(0.01)


def damaged(paths):
    for i in range(2000 if os.environ.get("STRESS") else 40):
        path = chance.choice(paths)
        data = bytearray(contents(path))
        if chance.random() < 0.2:
            data = data[:chance.randrange(len(data))]
        for _ in range(chance.choice((1, 1, 3, 10)) if data else 0):
            at = chance.randrange(min(len(data), chance.choice((8000, len(data)))))
            data[at] = chance.choice((0, 255, data[at] ^ 1 << chance.randrange(8), chance.randrange(256)))
        with open("damaged.h5", "wb") as file:
            file.write(data)
        status, out, said = check("damaged.h5")
        assert status in (0, 1) and bool(said) == bool(status), (i, path, status, out, said)


def refusals():
    os.mkfifo("pipe")
    for path, word in (("pipe", "regular"), (".", "regular"), ("none.h5x", "No such file"), ("/dev/null", "regular"),
                       (sys.argv[0], "signature"), ("s3://b/k", "sluice cp")):  # fmt: skip
        status, _, said = check(path)
        assert status == 1 and word in said, (path, status, said)
    assert check()[0] == check("a", "b")[0] == 2


sys.argv[0] = os.path.abspath(sys.argv[0])
PROGRAM, SLUICE = os.path.abspath(PROGRAM), os.path.abspath(SLUICE)
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    refusals()
    files = of_ours() + of_others()
    states()
    a_signal_ends_the_reading()
    damaged(files)
    os.chdir("/")
