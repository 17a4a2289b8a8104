# SPDX-License-Identifier: Apache-2.0
"""Blocks: memory of torch that small tensors share, each with a storage of its own length."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

from . import _core

# Tensors of less than SMALL bytes lie in blocks of at most BLOCK bytes, at multiples of ALIGNED.
SMALL, BLOCK, ALIGNED = 1 << 20, 20 << 20, 256
# DLPack's numbers of types that every torch takes; others come as bytes, of which torch makes a view.
_CODES = {
    "BOOL": (6, 8), "U8": (1, 8), "I8": (0, 8), "I16": (0, 16), "I32": (0, 32), "I64": (0, 64),
    "F16": (2, 16), "BF16": (4, 16), "F32": (2, 32), "F64": (2, 64), "C64": (5, 64), "C128": (5, 128),
}  # fmt: skip


def divided(names: Sequence[str], entries: Mapping[str, Any]) -> Iterator[tuple[list[str], int]]:
    """Yield the names of the small tensors of each block, and its bytes."""
    some: list[str] = []
    size = 0
    for name in names:
        length = entries[name][5]
        if not 0 < length < SMALL:
            continue
        length = -(-length // ALIGNED) * ALIGNED
        if size + length > BLOCK:
            yield some, size
            some, size = [], 0
        some.append(name)
        size += length
    if some:
        yield some, size


def tensors(
    library: Any, names: Sequence[str], size: int, entries: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, tuple[int, int]], Any]:
    """Return new tensors of torch by name, their addresses and bytes, and the block that they lie in, which goes with
    the last of them."""
    block = library.block(size)
    base, _ = library.place(block)
    dlpack = library.torch.utils.dlpack
    parts: list[tuple[int, int, int, Sequence[int]]] = []
    places: dict[str, tuple[int, int]] = {}
    views, place = [], 0
    for name in names:
        _, kind, shape, _, _, length = entries[name]
        if kind not in _CODES:
            try:
                views.append((name, library.dtype(kind), library.shape(kind, shape)))
            except ValueError as error:
                raise ValueError(f"{name!r}: {error}") from None
            kind, shape = "U8", (length,)
        parts.append((place, *_CODES[kind], shape))
        places[name] = base + place, length
        place += -(-length // ALIGNED) * ALIGNED
    capsules = _core.divide_dlpack(dlpack.to_dlpack(block), parts)
    found = dict(zip(names, map(dlpack.from_dlpack, capsules), strict=True))
    for name, dtype, shape in views:
        found[name] = found[name].view(dtype).view(shape)
    return found, places, block
