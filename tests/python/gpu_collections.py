#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collections of tensors of torch on a GPU, published and attached by processes, with a daemon of their own.

usage: tests/python/gpu_collections.py DAEMON

The last line has the totals. Exit status 77: there is no GPU that torch can use.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import time

import sluice

CASES = {
    "published": "torch's, behind a kernel on a stream",
    "filled": "made in the store, filled by a kernel, sealed on its stream",
    "files": "read from a file into the GPU",
}


def expected(torch, name, round_):
    """What each tensor of a collection has: of types that numpy has and that it has not, one empty, one a number."""
    number = sorted(CASES).index(name) + 100 * round_
    make = torch.Generator(device="cuda").manual_seed(number)
    return {
        "half": torch.full((1000, 1024), number, dtype=torch.bfloat16, device="cuda"),
        "random": torch.randint(-2**31, 2**31 - 1, (3, 1 << 20), dtype=torch.int32, device="cuda", generator=make),
        "number": torch.tensor(float(number), dtype=torch.float64, device="cuda"),
        "empty": torch.empty((0, 7), dtype=torch.float32, device="cuda"),
    }


def compare(torch, name, round_):
    """Attaches, and compares every element; names what differs."""
    with sluice.attach(name, timeout=60) as model:
        for key, tensor in expected(torch, name, round_).items():
            found = model[key]
            if (found.dtype, found.shape, found.device) != (tensor.dtype, tensor.shape, tensor.device):
                raise AssertionError(f"{name}: {key} is {found.dtype} {found.shape} on {found.device}")
            if not torch.equal(found, tensor):
                raise AssertionError(f"{name}: {key} differs in {int((found != tensor).sum())} elements")
            del found
        return model.version


def publish(torch, name, round_, folder):
    tensors, stream = expected(torch, name, round_), torch.cuda.Stream()
    torch.cuda.synchronize()
    replace = round_ > 0
    if name == "published":
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            moved = {key: tensor.clone() for key, tensor in tensors.items()}
            return sluice.publish(name, moved, replace=replace)
    if name == "filled":
        kinds = {key: (tensor.shape, tensor.dtype) for key, tensor in tensors.items()}
        model = sluice.collection(name, kinds, "cuda:0", replace=replace)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            for key, tensor in tensors.items():
                model[key].copy_(tensor)
        model.seal(stream)
        return model
    path = os.path.join(folder, f"{round_}.safetensors")
    write_file(torch, path, tensors)
    return sluice.publish(name, path, "cuda:0", replace=replace)


def write_file(torch, path, tensors):
    kinds = {torch.bfloat16: "BF16", torch.int32: "I32", torch.float64: "F64", torch.float32: "F32"}
    header, at, parts = {}, 0, []
    for key, tensor in tensors.items():
        data = bytes(tensor.cpu().reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""
        header[key] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def main():
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("there is no GPU that torch can use")
        sys.exit(77)
    if len(sys.argv) == 4:  # a process that attaches
        print(compare(torch, sys.argv[2], int(sys.argv[3])))
        return
    failed, checks = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SLUICE_STORE"] = os.path.join(folder, "socket")
        daemon = subprocess.Popen([sys.argv[1], "--memory", "64M", "--device-memory", "0=256M"])
        try:
            while not os.path.exists(os.environ["SLUICE_STORE"]):
                if daemon.poll() is not None:
                    sys.exit(f"the daemon ended with {daemon.returncode}")
                time.sleep(0.05)
            for round_ in range(2):
                for name, what in CASES.items():
                    checks += 1
                    try:
                        with publish(torch, name, round_, folder) as model:
                            version = compare(torch, name, round_)
                            attach = [sys.executable, __file__, sys.argv[1], name, str(round_)]
                            other = subprocess.run(attach, check=True, stdout=subprocess.PIPE, text=True, timeout=60)
                            if not version == model.version == int(other.stdout):
                                raise AssertionError(f"versions {version}, {model.version}, {other.stdout}")
                        print(f"{name}, round {round_}: passed ({what})")
                    except (AssertionError, OSError, RuntimeError, subprocess.SubprocessError) as error:
                        failed += 1
                        print(f"{name}, round {round_}: failed: {error}")
        finally:
            daemon.terminate()
            daemon.wait()
    print(f"{checks - failed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
