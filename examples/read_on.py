#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a file into memory of a device in stream order, from Python with nothing but ctypes.

usage: read_on.py FILE [DEVICE]    DEVICE: "emulated" (the default), "device" for a GPU

A pointer is a number and a stream is a number. So memory and streams of other libraries go as they
are: array.data.ptr and stream.ptr of CuPy, tensor.data_ptr() and stream.cuda_stream of PyTorch.
SLUICE_LIBRARY is the library to load, if it is not where the system looks.
"""

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p

sluice = ctypes.CDLL(os.environ.get("SLUICE_LIBRARY", "libsluice.so.0.2"))


def call(name, result, *arguments):
    """A function of the library, whose negative results become exceptions."""
    function = getattr(sluice, name)
    function.restype = result
    function.argtypes = arguments

    def checked(*values):
        rc = function(*values)
        if rc < 0:
            raise OSError(-rc, sluice_last_message().decode())
        return rc

    return checked if result in (c_int, c_int64) else function


handle = POINTER(c_void_p)
sluice_last_message = call("sluice_last_message", c_char_p)
context_new = call("sluice_context_new", c_int, c_void_p, handle)
context_free = call("sluice_context_close", c_int, c_void_p)
file_open = call("sluice_open", c_int, c_void_p, c_char_p, c_void_p, handle)
file_close = call("sluice_close", c_int, c_void_p)
read_on = call("sluice_read_on", c_int, c_void_p, c_void_p, c_size_t, c_uint64, c_void_p, handle)
op_message = call("sluice_op_message", c_char_p, c_void_p)
op_free = call("sluice_op_free", None, c_void_p)
device_find = call("sluice_device_find", c_int, c_char_p, POINTER(c_int))
device_alloc = call("sluice_device_alloc", c_int, c_int, c_size_t, handle)
device_free = call("sluice_device_free", c_int, c_void_p)
stream_new = call("sluice_stream_new", c_int, c_int, handle)
stream_free = call("sluice_stream_free", c_int, c_void_p)
stream_synchronize = call("sluice_stream_synchronize", c_int, c_int, c_void_p)
copy = call("sluice_copy", c_int, c_void_p, c_void_p, c_size_t)
sluice.sluice_wait.restype = c_int64
sluice.sluice_wait.argtypes = [c_void_p, c_int]


def made(function, *arguments):
    out = c_void_p()
    function(*arguments, byref(out))
    return out


def main(path, name):
    n = os.path.getsize(path)
    device = c_int()
    device_find(name.encode(), byref(device))
    context = made(context_new, None)
    file = made(file_open, context, os.fsencode(path), None)
    stream = made(stream_new, device)
    memory = made(device_alloc, device, n + 1)

    op = made(read_on, file, memory, n, 0, stream)
    # ... kernels that use the memory are given to the stream here; nothing has waited yet ...
    stream_synchronize(device, stream)
    if sluice.sluice_wait(op, -1) < 0:  # the stream goes on even if the read failed
        raise OSError(op_message(op).decode())
    data = ctypes.create_string_buffer(n + 1)
    copy(data, memory, n)
    print(f"{sum(data.raw[:n])} is the sum of the {n} bytes of {path}")

    op_free(op)
    file_close(file)
    device_free(memory)
    stream_free(stream)
    context_free(context)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "emulated")
