# SPDX-License-Identifier: Apache-2.0
"""The memory of arrays and tensors that have no buffer protocol."""

from __future__ import annotations

import operator
import sys
from typing import Any

from . import _core

_HOST_DEVICES = (1, 2, 3, 13)  # DLPack's kDLCPU, kDLCUDA, kDLCUDAHost, kDLCUDAManaged


def _of_torch(tensor: Any, torch: Any) -> tuple[int, int, Any]:
    tensor = tensor.detach()
    if tensor.layout != torch.strided or tensor.device.type not in ("cpu", "cuda"):
        raise BufferError(f"a tensor of {tensor.layout} on {tensor.device} has no memory that can be read or written")
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        raise BufferError("the tensor is not C-contiguous; .contiguous() makes a copy that is")
    return tensor.data_ptr(), tensor.numel() * tensor.element_size(), tensor


def _of_interface(array: Any, interface: dict[str, Any], writable: bool) -> tuple[int, int, Any]:
    """Of __cuda_array_interface__, version 3."""
    address, read_only = interface["data"]
    count = item = int(interface["typestr"][2:])
    for length in interface["shape"]:
        count *= length
    strides = interface.get("strides")
    if strides is not None and count:
        for length, stride in zip(reversed(interface["shape"]), reversed(strides), strict=True):
            if length > 1 and stride != item:
                raise BufferError("the array is not C-contiguous")
            item *= length
    if writable and read_only:
        raise BufferError("the array is read-only")
    return address, count, array


def _of_dlpack(array: Any, writable: bool) -> tuple[int, int, Any]:
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:  # of a version before 1.0
        capsule = array.__dlpack__()
    address, length, device, read_only = _core.parse_dlpack(capsule)
    if device not in _HOST_DEVICES:
        raise BufferError(f"the array is on a device of DLPack's kind {device}")
    if writable and read_only:
        raise BufferError("the array is read-only")
    return address, length, (array, capsule)


def find(buffer: Any, writable: bool) -> tuple[int, int, Any]:
    """Return the address and the length in bytes of a buffer, and an object that keeps its memory."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(buffer, torch.Tensor):
        return _of_torch(buffer, torch)
    interface = getattr(buffer, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(buffer, interface, writable)
    if hasattr(buffer, "__dlpack__"):
        return _of_dlpack(buffer, writable)
    raise TypeError(
        f"a buffer is needed: bytes, bytearray, an array or a tensor, not {type(buffer).__name__}"
    )


def lengths(shape: Any) -> tuple[int, ...]:
    """Return a shape, or a single length, as a tuple."""
    try:
        return (operator.index(shape),)
    except TypeError:
        return tuple(map(operator.index, shape))
