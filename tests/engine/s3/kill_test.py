#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies to S3 that end by SIGKILL at any moment leave the old object or the new, and each upload that they leave is listed:
kill_test.py SLUICE

A copy is killed so many requests after it began, and up to 10 ms later. The moments are of SLUICE_TEST_SEED, or of a seed
that is printed; 200 of them with STRESS.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import s3_server  # noqa: E402

SLUICE = sys.argv[1]
ROUNDS = 200 if os.environ.get("STRESS") else 12
PART = 64 << 10
PARTS = 31


def environment(port):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "AKIDTEST",
            "AWS_SECRET_ACCESS_KEY": s3_server.SECRETS["AKIDTEST"], "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "SLUICE_S3_PART_BYTES": str(PART), "SLUICE_S3_UPLOAD_BYTES": "1M"}


def main():
    seed = os.environ.get("SLUICE_TEST_SEED") or str(time.time_ns())
    print(f"seed {seed}; the same again with SLUICE_TEST_SEED={seed}")
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as root:
        server = s3_server.Server(root)
        env = environment(server.port)

        def abandoned(*options):
            found = subprocess.run([SLUICE, "s3", "abandoned", "--json", *options, "s3://slow"], env=env, check=True,
                                   stdout=subprocess.PIPE, text=True, timeout=60).stdout
            return sorted(json.loads(line)["upload"] for line in found.splitlines())
        earlier, left, killed = b"", 0, 0
        with open(f"{root}/object", "wb"):
            pass
        for i in range(ROUNDS):
            new = chance.randbytes((PARTS - 1) * PART + 1 + i)
            with open(f"{root}/source", "wb") as file:
                file.write(new)
            seen, after = sum(server.counts["slow"].values()), chance.randint(0, PARTS + 3)
            copy = subprocess.Popen([SLUICE, "cp", "-q", "-f", f"{root}/source", "s3://slow/object"], env=env)
            while copy.poll() is None and sum(server.counts["slow"].values()) - seen < after:
                time.sleep(0.001)
            time.sleep(chance.random() * 0.01)
            copy.kill()
            status = copy.wait()
            assert status in (0, -9), status
            # Requests of the copy may still be on their way: each connection is a thread.
            while threading.active_count() > 2:
                time.sleep(0.001)
            with open(f"{root}/object", "rb") as file:
                there = file.read()
            assert there == new or (status and there == earlier), (i, len(there))
            earlier = there
            killed += status != 0
            left += len(server.uploads)
            names = sorted(server.uploads)
            assert abandoned() == names
            if i % 4 == 3 or i == ROUNDS - 1:
                assert abandoned("--remove", "--age", "0") == names
                assert not server.uploads, server.uploads
    print(f"{killed} of {ROUNDS} copies were killed, and left {left} uploads")
    assert killed and left


main()
