# SPDX-License-Identifier: Apache-2.0
"""Torch and numpy: their types, and the tensors and arrays that they make."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from typing import Any, Iterable, Sequence

from . import _stream

# Types of elements in torch and numpy, by the names of safetensors.
TORCH = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32",
    "F64": "float64", "C64": "complex64", "C128": "complex128", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F4": "float4_e2m1fn_x2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip
NUMPY = {
    **{name: kind for name, kind in TORCH.items() if name[0] in "BUIC" and name != "BF16"},
    "F16": "float16", "F32": "float32", "F64": "float64",
}  # fmt: skip
_ML_DTYPES = {name: kind for name, kind in TORCH.items() if name.startswith(("BF16", "F8_"))}
# Torch's allocator takes tensors of more than 1 MiB from segments of this length.
_SEGMENT = 20 << 20


class Torch:
    def __init__(self, device: Any) -> None:
        try:
            self.torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise ImportError(f"tensors on {device!r} need torch: {error}", name="torch") from error
        self.device = self.torch.device("cuda", device) if isinstance(device, int) else self.torch.device(device)
        if self.device.type not in ("cpu", "cuda"):
            raise ValueError(f"device {device!r} is not a CPU and not a CUDA device")

    def dtype(self, kind: str) -> Any:
        dtype = getattr(self.torch, TORCH.get(kind, ""), None)
        if dtype is None:
            raise TypeError(f"torch {self.torch.__version__} has no type for {kind}")
        return dtype

    def empty(self, kind: str, shape: Sequence[int]) -> Any:
        return self.torch.empty(self.shape(kind, shape), dtype=self.dtype(kind), device=self.device)

    def reserve(self, sizes: Iterable[int]) -> None:
        """Let torch's allocator have one allocation of the driver to divide, for what would take many."""
        size = sum(-(-size // 512) * 512 for size in sizes)
        if self.device.type != "cuda" or size < 2 * _SEGMENT:
            return
        with contextlib.suppress(self.torch.cuda.OutOfMemoryError):
            self.block(size)

    def shape(self, kind: str, shape: Sequence[int]) -> Sequence[int]:
        if kind != "F4":
            return shape
        if not shape or shape[-1] % 2:
            raise ValueError(f"F4 {list(shape)}: an element of torch is two of F4, and the last dimension is not even")
        return (*shape[:-1], shape[-1] // 2)

    def block(self, size: int) -> Any:
        return self.torch.empty(size, dtype=self.torch.uint8, device=self.device)

    def place(self, tensor: Any) -> tuple[int, int]:
        """The address and the bytes of a tensor."""
        return tensor.data_ptr(), tensor.numel() * tensor.element_size()

    def convert(self, tensors: dict[str, Any], dtype: Any, stream: Any) -> None:
        """Convert tensors in place of the dict, in the order of the stream."""
        dtype = getattr(self.torch, dtype) if isinstance(dtype, str) else dtype
        on = None if stream is None else self.torch.cuda.ExternalStream(_stream.number(stream), self.device)
        with self.torch.cuda.stream(on):
            for name, tensor in tensors.items():
                if tensor.is_floating_point():
                    tensors[name] = tensor.to(dtype)

    def check_room(self, size: int) -> None:
        if self.device.type != "cuda":
            return
        cuda = self.torch.cuda
        found = cuda.memory_stats_as_nested_dict(self.device)  # two flat ones would take longer than a small snapshot
        of = [found[key]["all"]["current"] if found else 0 for key in ("reserved_bytes", "allocated_bytes")]
        free = of[0] - of[1]
        if size > free:  # of the allocator; the driver takes a millisecond to answer
            free += cuda.mem_get_info(self.device)[0]
        if size > free:
            raise MemoryError(f"the tensors have {size} bytes, and {self.device} has {free} free")

    def stream(self, tensors: Iterable[Any], stream: Any) -> int | None:
        if stream is None:
            return None
        return max((_stream.find(tensor, stream) for tensor in tensors), default=_stream.number(stream))


class Numpy:
    def __init__(self) -> None:
        self.numpy: Any = importlib.import_module("numpy")

    def dtype(self, kind: str) -> Any:
        """Types that numpy lacks are those of ml_dtypes, if it is there, else their bits as unsigned integers."""
        if kind in NUMPY:
            return self.numpy.dtype(NUMPY[kind])
        if kind not in _ML_DTYPES:
            raise TypeError(f"numpy has no type for {kind}")
        try:
            return self.numpy.dtype(getattr(importlib.import_module("ml_dtypes"), _ML_DTYPES[kind]))
        except (ImportError, AttributeError):
            return self.numpy.dtype("uint16" if kind == "BF16" else "uint8")

    def empty(self, kind: str, shape: Sequence[int]) -> Any:
        return self.numpy.empty(shape, self.dtype(kind))

    def reserve(self, sizes: Iterable[int]) -> None:
        pass

    def place(self, array: Any) -> tuple[int, int]:
        return array.ctypes.data, array.nbytes

    def convert(self, arrays: dict[str, Any], dtype: Any, stream: Any) -> None:
        for name, array in arrays.items():
            if array.dtype.kind == "f":
                arrays[name] = array.astype(dtype, copy=False)

    def check_room(self, size: int) -> None:
        pass

    def stream(self, tensors: Iterable[Any], stream: Any) -> int | None:
        if stream is not None:
            raise TypeError("arrays of numpy are read without a stream")
        return None


Library = Torch | Numpy


def find(device: Any, framework: str | None) -> Library:
    """The library that has tensors of the device; None: torch, or numpy where there is no torch."""
    if framework in ("np", "numpy"):
        if str(device) != "cpu":
            raise ValueError(f"arrays of numpy are not on {device!r}")
        return Numpy()
    if framework not in (None, "pt", "torch", "pytorch"):
        raise ValueError(f"framework {framework!r} is not 'pt' and not 'np'")
    if framework is None and str(device) == "cpu" and importlib.util.find_spec("torch") is None:
        return Numpy()
    return Torch(device)
