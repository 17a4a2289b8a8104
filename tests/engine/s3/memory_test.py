#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A copy to S3 takes the memory of its parts, however long the object is: memory_test.py SLUICE [BYTES]

20 GiB, of a file and of standard input, go to a server that drops them.
"""

import os
import resource
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import s3_server  # noqa: E402

SLUICE = sys.argv[1]
BYTES = int(sys.argv[2]) if len(sys.argv) > 2 else 20 << 30
MOST = 256 << 20


def main():
    with tempfile.TemporaryDirectory() as root:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLUICE_"))}
        env = {**kept, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_server.start(root)}", "AWS_ACCESS_KEY_ID": "AKIDTEST",
               "AWS_SECRET_ACCESS_KEY": s3_server.SECRETS["AKIDTEST"], "AWS_CONFIG_FILE": "/dev/null",
               "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
        with open(f"{root}/source", "wb") as file:
            file.truncate(BYTES)
        for source in (f"{root}/source", "-"):
            with open(f"{root}/source", "rb") as given:
                zeros = subprocess.Popen(["cat"], stdin=given, stdout=subprocess.PIPE)
                subprocess.run([SLUICE, "cp", "--no-progress", source, "s3://sink/object"], env=env, check=True,
                               stdin=zeros.stdout)
                zeros.stdout.close()
                zeros.wait()
            most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
            print(f"{BYTES >> 20} MiB of {'a file' if source != '-' else 'standard input'}: {most >> 20} MiB resident")
            assert most < MOST


main()
