# SPDX-License-Identifier: Apache-2.0
"""Streams of torch, cupy and other libraries, as numbers."""
from __future__ import annotations

import sys
from typing import Any


def number(stream: Any) -> int:
    """Return the number of a stream: of torch or cupy, an int, or with __cuda_stream__."""
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr"):  # of torch, of cupy
        if isinstance(getattr(stream, name, None), int):
            return int(getattr(stream, name))
    if hasattr(stream, "__cuda_stream__"):
        found = stream.__cuda_stream__
        return int((found() if callable(found) else found)[1])
    raise TypeError(f"a stream is needed: of torch or cupy, an int, or __cuda_stream__, not {type(stream).__name__}")


def _of_torch(tensor: Any, stream: Any, torch: Any) -> int:
    device = tensor.device if tensor.device.type == "cuda" else None
    if stream is None:
        stream = torch.cuda.current_stream(device)
    found = number(stream)
    if device is not None:
        if not isinstance(stream, torch.cuda.Stream):
            stream = torch.cuda.ExternalStream(found, device)
        # The caching allocator gives the memory to no other stream before this one has passed.
        tensor.record_stream(stream)
    return found


def find(buffer: Any, stream: Any) -> int:
    """Return the number of a stream, and tell the allocator of the buffer; None: the library's current stream."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(buffer, torch.Tensor):
        return _of_torch(buffer, stream, torch)
    cupy = sys.modules.get("cupy")
    if stream is None and cupy is not None and isinstance(buffer, cupy.ndarray):
        stream = cupy.cuda.get_current_stream()
    return number(stream)
