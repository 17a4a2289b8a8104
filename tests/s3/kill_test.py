#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies to S3 that end by SIGKILL at any moment leave the old object or the new, and nothing that is not found:
kill_test.py SLUICE

The moments are of SLUICE_TEST_SEED, or of a seed that is printed; 200 of them with STRESS.
"""

import os
import random
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import s3_server  # noqa: E402

SLUICE = sys.argv[1]
URI = "s3://slow/object"
ROUNDS = 200 if os.environ.get("STRESS") else 12


def environment(port):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "AKIDTEST",
            "AWS_SECRET_ACCESS_KEY": s3_server.SECRETS["AKIDTEST"], "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "SLUICE_S3_PART_BYTES": "64K", "SLUICE_S3_UPLOAD_BYTES": "1M"}


def main():
    seed = os.environ.get("SLUICE_TEST_SEED") or str(time.time_ns())
    print(f"seed {seed}; the same again with SLUICE_TEST_SEED={seed}")
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as root:
        env = environment(s3_server.start(root))
        command = [SLUICE, "cp", "-q", "-f", f"{root}/source", URI]
        earlier, left, killed = (b"",), 0, 0
        with open(f"{root}/object", "wb"):
            pass
        longest = 0
        for i in range(ROUNDS + 1):
            new = chance.randbytes(2_000_000 + i)
            with open(f"{root}/source", "wb") as file:
                file.write(new)
            begun = time.monotonic()
            copy = subprocess.Popen(command, env=env)
            if i:
                try:
                    copy.wait(longest * 1.1 * chance.random())
                except subprocess.TimeoutExpired:
                    copy.kill()
            status = copy.wait()
            longest = longest or time.monotonic() - begun
            assert status in (0, -9), status
            with open(f"{root}/object", "rb") as file:
                there = file.read()
            assert there == new or (status and there in earlier), (i, len(there))
            # The last request of a copy may still be on its way to the server when the copy is killed.
            earlier = (there, new) if status else (new,)
            killed += status != 0
            found = subprocess.run([SLUICE, "s3", "abandoned", "--remove", "--age", "0", "s3://slow"], env=env,
                                   check=True, stdout=subprocess.PIPE, timeout=60).stdout
            left += len(found.splitlines())
            again = subprocess.run([SLUICE, "s3", "abandoned", "s3://slow"], env=env, check=True,
                                   stdout=subprocess.PIPE, timeout=60).stdout
            assert not again or status, again
    print(f"{killed} of {ROUNDS} copies were killed, and left {left} uploads")
    assert killed and left


main()
