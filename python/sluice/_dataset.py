# SPDX-License-Identifier: Apache-2.0
"""Samples of files for torch.utils.data: each is an extent, and a batch is a single read of each file; or an entry of
the first dimension of datasets of HDF5 files."""

from __future__ import annotations

import bisect
import collections
import importlib
import itertools
import operator
import os
from typing import Any, Callable, Iterator, Mapping, Sequence

from . import _arrays, _context, _libraries
from ._file import File
from ._operation import Operation
from ._tensor_files import Path


def _tensor(raw: Any) -> Any:
    torch = importlib.import_module("torch")
    if not isinstance(raw, bytearray):
        return torch.from_numpy(raw)
    return torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)


class Samples:
    """A map-style dataset for torch.utils.data.DataLoader: sample i is an extent of a file.

    files: a path or URI, or several. extents: for each sample its offset and length in bytes, or, of several files,
    the index of the file, offset and length; a sequence such as a list, or an array of numpy with a row for each.
    transform: makes a sample of a bytearray, which is its own; None: a tensor of bytes. headers: of requests.
    settings: of a Context for the files; None: those of configure().

    Without extents the files are datasets, "FILE#/DATASET", and a sample is an entry of their first dimension, those of
    the first dataset first: transform gets an array of numpy, None makes a tensor of it. Only these have batches().

    Each process opens the files when it reads, so workers may be forked or spawned. A sample that does not lie in its
    file raises ValueError.

    >>> samples = sluice.Samples(path, [(0, 2), (2, 3)], bytes)
    >>> len(samples), samples[1]
    (2, b'llo')
    """

    def __init__(
        self,
        files: Path | Sequence[Path],
        extents: Sequence[Sequence[int]] | None = None,
        transform: Callable[[Any], Any] | None = None,
        *,
        headers: Mapping[str, str] | Sequence[str] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.files = [files] if isinstance(files, (str, bytes, os.PathLike)) else list(files)
        self.extents, self.transform = extents, transform or _tensor
        self._how = headers, settings
        self._opened: dict[tuple[int, int], tuple[Any, int]] = {}  # by process and index of the file
        self._ends: list[int] = []  # of datasets, in the numbers of samples
        if extents is None:
            self._ends = list(itertools.accumulate(self._file(which)[1] for which in range(len(self.files))))
            kinds = {(self._file(which)[0].shape[1:], self._file(which)[0].dtype) for which in range(len(self.files))}
            if len(kinds) > 1:
                raise ValueError(f"the entries of the datasets are of {len(kinds)} types or shapes: {kinds}")

    def __len__(self) -> int:
        return len(self.extents) if self.extents is not None else self._ends[-1] if self._ends else 0

    def __getitem__(self, i: int) -> Any:
        return self.__getitems__([i])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Read a batch."""
        if self.extents is None:
            block = self._block(len(indices))
            _arrays._finish(self._start(block, indices))
            return [self.transform(sample) for sample in block]
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

    def batches(self, size: int, order: Sequence[int] | None = None, *, device: Any = "cpu", ahead: int = 2,
                drop_last: bool = False) -> Iterator[Any]:
        """Yield batches of entries of datasets, each read right into new memory, and some in advance.

        order: the numbers of the samples, such as those of numpy.random.permutation(); None: as they are. device: of
        torch, whose tensors they are then, in pinned memory if it is "cpu" and there is a GPU; or a function that makes
        memory of a shape and a dtype, such as numpy.empty and cupy.empty. ahead: batches that are read meanwhile.
        drop_last: without a last batch that is shorter. transform is not called.

        >>> import numpy
        >>> with sluice.Writer(path + ".h5", "w") as w:
        ...     u = w.series("u", shape=(2,), dtype="i8")
        ...     for i in range(5):
        ...         u.append([i, i])
        >>> [len(batch) for batch in sluice.Samples(path + ".h5#/u").batches(2, device=numpy.empty)]
        [2, 2, 1]
        """
        if self.extents is not None:
            raise TypeError("samples that are extents have no batches(): torch's DataLoader makes batches of them")
        numbers = range(len(self)) if order is None else order
        library: Any = None if callable(device) else _libraries.find(device, None)
        if isinstance(library, _libraries.Numpy):  # there is no torch
            library, device = None, library.numpy.empty
        reads = library.torch.cuda.Stream(library.device) if library and library.device.type == "cuda" else None
        coming: collections.deque[tuple[list[Operation], Any]] = collections.deque()
        try:
            for at in range(0, len(numbers) - (size - 1 if drop_last else 0), size):
                indices = numbers[at : at + size]
                block = self._block(len(indices), library, None if library else device)
                coming.append((self._start(block, indices, reads), block))
                if len(coming) > ahead:
                    _arrays._finish(coming[0][0])
                    yield coming.popleft()[1]
            while coming:
                _arrays._finish(coming[0][0])
                yield coming.popleft()[1]
        finally:
            _arrays._give_up(operation for operations, _ in coming for operation in operations)

    def _block(self, count: int, library: Any = None, make: Any = None) -> Any:
        array = self._file(0)[0]
        shape = (count, *array.shape[1:])
        if library:
            return array._tensor(library, shape, True)
        return (make or importlib.import_module("numpy").empty)(shape, array.dtype)

    def _start(self, block: Any, indices: Sequence[int], reads: Any = None) -> list[Operation]:
        """Start to read entries into a block, those that follow each other in a dataset together."""
        operations: list[Operation] = []
        if reads is not None:  # what still uses the block's memory was given to the current stream
            reads.wait_stream(importlib.import_module("torch").cuda.current_stream(reads.device))
        at = 0
        while at < len(indices):
            number = operator.index(indices[at])
            if not -len(self) <= number < len(self):
                raise IndexError(f"sample {number} is none of {len(self)}")
            number %= len(self)
            which, end = bisect.bisect_right(self._ends, number), at + 1
            while end < len(indices) and indices[end] == number + end - at < self._ends[which]:
                end += 1
            array = self._file(which)[0]
            row = number - (self._ends[which - 1] if which else 0)
            part = block if end - at == len(indices) else block[at:end]
            wanted = slice(row, row + end - at)
            read = array.read_into_async(part, wanted) if reads is None else array.read_on(part, wanted, reads)
            operations.append(read)
            at = end
        return operations

    def _file(self, which: int) -> tuple[Any, int]:
        """Return a file and its size, or an array and its length when it was opened first."""
        key = os.getpid(), which
        if key not in self._opened:
            headers, settings = self._how
            context = None if settings is None else _context.with_settings(settings)
            if self.extents is None:
                options: dict[str, Any] = {"headers": headers} if headers else {}
                array = _arrays.open_array(self.files[which], context=context, **options)
                self._opened[key] = array, len(array)
            else:
                file = File(self.files[which], headers=headers, context=context)
                self._opened[key] = file, file.size
        return self._opened[key]

    def close(self) -> None:
        """Close the files. The next read opens them again."""
        opened, self._opened = self._opened, {}
        for file, _ in opened.values():
            file.discard() if isinstance(file, File) else file._discard()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": {}}

    def __del__(self) -> None:
        if "_opened" in self.__dict__:
            self.close()
