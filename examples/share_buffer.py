#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes share a NumPy array without a copy, from Python with nothing but ctypes and NumPy:

    sluiced &
    share_buffer.py consume squares &
    share_buffer.py produce squares 1000

What the producer writes is a blob with a type and a shape, for C as well; it can be read as
share_buffer.c does. SLUICE_LIBRARY is the library to load, if it is not where the system looks.
"""

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p

import numpy as np

sluice = ctypes.CDLL(os.environ.get("SLUICE_LIBRARY", "libsluice.so.0.2"))

# Of <sluice/type.h>.
TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
         "float32", "float64", None, "complex64", "complex128", "bool"]


class Metadata(ctypes.Structure):  # struct sluice_blob_metadata
    _fields_ = [("size", c_size_t), ("type", c_int), ("rank", c_uint), ("shape", c_int64 * 8),
                ("strides", c_int64 * 8), ("offset", c_uint64), ("note", c_void_p),
                ("note_bytes", c_size_t)]


class Options(ctypes.Structure):  # struct sluice_blob_options
    _fields_ = [("size", c_size_t), ("flags", c_uint), ("metadata", POINTER(Metadata))]


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

    return checked if result is c_int else function


handle = POINTER(c_void_p)
sluice_last_message = call("sluice_last_message", c_char_p)
store_open = call("sluice_store_open", c_int, c_char_p, c_void_p, handle)
store_close = call("sluice_store_close", c_int, c_void_p)
blob_create = call("sluice_blob_create", c_int, c_void_p, c_char_p, c_size_t, c_int,
                   POINTER(Options), handle)
blob_mutable_data = call("sluice_blob_mutable_data", c_void_p, c_void_p)
blob_seal = call("sluice_blob_seal", c_int, c_void_p)
blob_get = call("sluice_blob_get", c_int, c_void_p, c_char_p, c_int, handle)
blob_release = call("sluice_blob_release", c_int, c_void_p)
blob_delete = call("sluice_blob_delete", c_int, c_void_p, c_char_p)
blob_to_dlpack = call("sluice_blob_to_dlpack", c_int, c_void_p, c_uint, handle)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [c_void_p, c_char_p, c_void_p]


def made(function, *arguments):
    out = c_void_p()
    function(*arguments, byref(out))
    return out


class Tensor:
    """A blob for from_dlpack() of any library, which calls it once; the array holds the blob then."""

    def __init__(self, blob):
        self.blob = blob

    def __dlpack_device__(self):
        return 1, 0  # the host

    def __dlpack__(self, *, max_version=None, **_):
        version = 1 if max_version and max_version[0] >= 1 else 0
        name = b"dltensor_versioned" if version else b"dltensor"
        return new_capsule(made(blob_to_dlpack, self.blob, version), name, None)


def create(store, name, shape, dtype):
    """A blob to be, and its memory as an array, to be filled; not to be used any more after the seal."""
    dtype = np.dtype(dtype)
    metadata = Metadata(ctypes.sizeof(Metadata), TYPES.index(dtype.name) + 1, len(shape))
    metadata.shape[:len(shape)] = shape
    options = Options(ctypes.sizeof(Options), 0, ctypes.pointer(metadata))
    n = int(np.prod(shape)) * dtype.itemsize
    blob = made(blob_create, store, name.encode(), n, -1, byref(options))
    memory = (ctypes.c_char * n).from_address(blob_mutable_data(blob))
    return blob, np.frombuffer(memory, dtype).reshape(shape)


def get(store, name, timeout_ms):
    """The array of a blob, read-only, where the producer wrote it. It holds the blob while it lives."""
    blob = made(blob_get, store, name.encode(), timeout_ms)
    try:
        return np.from_dlpack(Tensor(blob))
    finally:
        blob_release(blob)


def produce(store, name, count):
    blob, array = create(store, name, (2, count // 2), "float64")
    np.square(np.arange(count).reshape(array.shape), out=array)
    blob_seal(blob)
    blob_release(blob)


def consume(store, name):
    array = get(store, name, 60000)  # waits for the producer
    assert not array.flags.writeable and not array.flags.owndata
    print(f"{array.sum():.0f}")
    del array
    blob_delete(store, name.encode())


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] != ("consume", "produce")[len(sys.argv) - 3]:
        sys.exit(__doc__)
    store = made(store_open, None, None)
    if sys.argv[1] == "produce":
        produce(store, sys.argv[2], int(sys.argv[3]))
    else:
        consume(store, sys.argv[2])
    store_close(store)
