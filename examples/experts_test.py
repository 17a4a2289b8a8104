#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each step of the example experts has the bytes of the experts that it names: experts_test.py PROGRAM"""

import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

EXPERTS = 40


def model(path):
    """Writes a file with EXPERTS experts, whose matrices are not side by side; returns the sum of the bytes of each."""
    header, data, sums = {}, b"", [0] * EXPERTS
    for matrix, length in enumerate((3000, 70000, 512)):
        for expert in random.sample(range(EXPERTS), EXPERTS):
            part = random.randbytes(length)
            header[f"experts.{expert}.w{matrix + 1}"] = {
                "dtype": "U8", "shape": [length], "data_offsets": [len(data), len(data) + length]}
            data += part
            sums[expert] += sum(part)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return sums


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.safetensors")
    sums = model(path)
    out = subprocess.run([sys.argv[1], path], check=True, capture_output=True, text=True).stdout.splitlines()
    steps = [tuple(map(int, re.findall(r"\d+", line))) for line in out[:-1]]
    assert len(steps) == 200, out
    assert all(sums[a] + sums[b] == total for a, b, total in steps), out
    read, wanted = map(int, re.findall(r"\d+", out[-1]))
    assert wanted == 400 and 100 < read < 350, out[-1]
    lost = subprocess.run([sys.argv[1], path + "x"], capture_output=True, text=True)
    assert lost.returncode == 1 and "x'" in lost.stderr, lost
