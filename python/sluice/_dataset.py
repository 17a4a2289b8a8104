# SPDX-License-Identifier: Apache-2.0
"""Samples of files for torch.utils.data: each is an extent, and a batch is a single read of each file."""

from __future__ import annotations

import importlib
import os
from typing import Any, Callable, Mapping, Sequence

from . import _context
from ._file import File


def _tensor(raw: bytearray) -> Any:
    torch = importlib.import_module("torch")
    return torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)


class Samples:
    """A map-style dataset for torch.utils.data.DataLoader: sample i is an extent of a file.

    files: a path or URI, or several. extents: for each sample its offset and length in bytes, or, of several files,
    the index of the file, offset and length; a sequence such as a list, or an array of numpy with a row for each.
    transform: makes a sample of a bytearray, which is its own; None: a tensor of bytes. headers: of requests.
    settings: of a Context for the files; None: those of configure().

    Each process opens the files when it reads, so workers may be forked or spawned. A sample that does not lie in its
    file raises ValueError.

    >>> samples = sluice.Samples(path, [(0, 2), (2, 3)], bytes)
    >>> len(samples), samples[1]
    (2, b'llo')
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        extents: Sequence[Sequence[int]],
        transform: Callable[[bytearray], Any] | None = None,
        *,
        headers: Mapping[str, str] | Sequence[str] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.files = [files] if isinstance(files, (str, os.PathLike)) else list(files)
        self.extents, self.transform = extents, transform or _tensor
        self._how = headers, settings
        self._opened: dict[tuple[int, int], tuple[File, int]] = {}  # by process and index of the file

    def __len__(self) -> int:
        return len(self.extents)

    def __getitem__(self, i: int) -> Any:
        return self.__getitems__([i])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Read a batch."""
        places: dict[int, list[tuple[bytearray, int]]] = {}
        buffers = []
        for i in indices:
            row = [int(n) for n in self.extents[i]]
            if len(row) == 2 and len(self.files) == 1:
                row = [0, *row]
            if len(row) != 3 or not 0 <= row[0] < len(self.files):  # an IndexError would end a loop over the samples
                raise ValueError(f"sample {i} is {row}, which is no extent of {len(self.files)} files")
            which, offset, length = row
            size = self._file(which)[1]
            if offset < 0 or length < 0 or offset + length > size:
                raise ValueError(f"sample {i} has {length} bytes at {offset}, and {self.files[which]!r} ends at {size}")
            buffers.append(bytearray(length))
            places.setdefault(which, []).append((buffers[-1], offset))
        reads = [(self._file(which)[0], pairs) for which, pairs in places.items()]
        operations = [(file, file.readv_async(pairs), pairs) for file, pairs in reads]
        for file, operation, pairs in operations:
            if operation.wait() != sum(len(buffer) for buffer, _ in pairs):
                raise ValueError(f"{file.uri!r} has become shorter")
        return [self.transform(buffer) for buffer in buffers]

    def _file(self, which: int) -> tuple[File, int]:
        key = os.getpid(), which
        if key not in self._opened:
            headers, settings = self._how
            context = None if settings is None else _context.with_settings(settings)
            file = File(self.files[which], headers=headers, context=context)
            self._opened[key] = file, file.size
        return self._opened[key]

    def close(self) -> None:
        """Close the files. The next read opens them again."""
        opened, self._opened = self._opened, {}
        for file, _ in opened.values():
            file.discard()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": {}}

    def __del__(self) -> None:
        if "_opened" in self.__dict__:
            self.close()
