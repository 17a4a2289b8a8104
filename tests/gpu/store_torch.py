#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A tensor of PyTorch's on a GPU, read by another process without a copy, as a tensor there.

usage: tests/gpu/store_torch.py BUILD

Prints a line, and "N passed, N failed, N skipped".
"""

import ctypes
import os
import subprocess
import sys
import tempfile
import time

COUNT = 3_000_001
FLOAT32 = 10  # of enum sluice_type
BEGIN = 17  # elements of the tensor that are not published


class Metadata(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("type", ctypes.c_int), ("rank", ctypes.c_uint), ("shape", ctypes.c_int64 * 8),
                ("strides", ctypes.c_int64 * 8), ("offset", ctypes.c_uint64), ("note", ctypes.c_void_p),
                ("note_bytes", ctypes.c_size_t)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("flags", ctypes.c_uint), ("metadata", ctypes.POINTER(Metadata))]


class Store:
    """What is used of the library; its socket is SLUICE_STORE."""

    def __init__(self, build):
        self.library = ctypes.CDLL(os.path.join(build, "src", "libsluice.so"))
        self.library.sluice_last_message.restype = ctypes.c_char_p
        self.store = ctypes.c_void_p()
        end = time.monotonic() + 20
        while self.library.sluice_store_open(None, None, ctypes.byref(self.store)):
            if time.monotonic() > end:
                raise RuntimeError(self.library.sluice_last_message().decode())
            time.sleep(0.01)

    def check(self, rc):
        if rc < 0:
            raise RuntimeError(self.library.sluice_last_message().decode())
        return rc

    def publish(self, name, tensor):
        metadata = Metadata(ctypes.sizeof(Metadata), FLOAT32, 1)
        metadata.shape[0] = tensor.numel()
        options = Options(ctypes.sizeof(Options), 0, ctypes.pointer(metadata))
        blob = ctypes.c_void_p()
        self.check(self.library.sluice_blob_publish(
            self.store, name, ctypes.c_void_p(tensor.data_ptr()),
            ctypes.c_size_t(tensor.numel() * tensor.element_size()), ctypes.byref(options), ctypes.byref(blob)))
        return blob

    def get(self, name):
        blob = ctypes.c_void_p()
        self.check(self.library.sluice_blob_get(self.store, name, 20000, ctypes.byref(blob)))
        return blob

    def tensor(self, torch, blob):
        out = ctypes.c_void_p()
        self.check(self.library.sluice_blob_to_dlpack(blob, 0, ctypes.byref(out)))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return torch.utils.dlpack.from_dlpack(new(out, b"dltensor", None))

    def release(self, blob):
        self.check(self.library.sluice_blob_release(blob))

    def close(self):
        self.check(self.library.sluice_store_close(self.store))


def numbers(torch):
    return torch.arange(COUNT, dtype=torch.float32, device="cuda") * 3 + 1


def produce(torch, build):
    """Each line of standard input is a step."""
    whole = numbers(torch)
    torch.cuda.synchronize()
    store = Store(build)
    blob = store.publish(b"tensor", whole[BEGIN:])
    print("published", flush=True)
    sys.stdin.readline()
    whole[BEGIN] = -5
    torch.cuda.synchronize()
    print("written", flush=True)
    sys.stdin.readline()
    store.release(blob)
    store.close()


def look(torch, build, producer):
    """What is wrong, or nothing."""
    expected = numbers(torch)[BEGIN:]
    store = Store(build)
    blob = store.get(b"tensor")
    before = torch.cuda.memory_allocated()
    seen = store.tensor(torch, blob)
    store.release(blob)
    if seen.shape != expected.shape or not bool((seen == expected).all()):
        return "the tensor is another one"
    copies = torch.cuda.memory_allocated() - before
    if copies > expected.numel():
        return f"it took {copies} bytes to get it"
    producer.stdin.write("write\n")
    producer.stdin.flush()
    if producer.stdout.readline() != "written\n":
        return "the producer has ended"
    if float(seen[0]) != -5:
        return "what the producer writes is not seen: it is a copy"
    torch.cuda.synchronize()
    del seen
    store.close()
    return ""


def run(build):
    """0 passed, 1 failed, 77 skipped; and why."""
    try:
        import torch
    except ImportError:
        return 77, "PyTorch is not here"
    if not torch.cuda.is_available():
        return 77, "PyTorch finds no GPU"
    with tempfile.TemporaryDirectory(prefix="sluice-torch-", dir="/tmp") as folder:
        os.environ["SLUICE_STORE"] = os.path.join(folder, "socket")
        daemon = subprocess.Popen([os.path.join(build, "sluiced"), "--memory", "64M"])
        producer = subprocess.Popen([sys.executable, __file__, "--produce", build], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, text=True)
        try:
            if producer.stdout.readline() != "published\n":
                return 1, "nothing was published"
            wrong = look(torch, build, producer)
            producer.stdin.close()
            if not wrong and producer.wait(30):
                wrong = f"the producer ended with status {producer.returncode}"
            return int(bool(wrong)), wrong
        except RuntimeError as failure:
            return 1, str(failure)
        finally:
            for process in (producer, daemon):
                process.terminate()
                process.wait()


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--produce":
        import torch
        produce(torch, sys.argv[2])
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    status, why = run(sys.argv[1])
    word = {0: "ok     ", 1: "FAILED ", 77: "skipped"}[status]
    print(f"{word} torch: a tensor of PyTorch's is read by another process without a copy" + (f": {why}" if why else ""))
    print(f"{int(status == 0)} passed, {int(status == 1)} failed, {int(status == 77)} skipped")
    sys.exit(int(status == 1))


if __name__ == "__main__":
    main()
