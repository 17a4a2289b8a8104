# SPDX-License-Identifier: Apache-2.0
"""File objects of fsspec.py: what is read is cached and read ahead, and what is written has its name at a commit."""

from __future__ import annotations

import asyncio
import collections
import functools
import io
from concurrent.futures import Future
from typing import Any, Callable, Iterable, Sequence, TypeVar

from fsspec.caching import BaseCache, register_cache
from fsspec.spec import AbstractBufferedFile

from . import _file, _threads
from ._file import File

T = TypeVar("T")
_LARGE = 1 << 20  # a read of so much goes past the cache
_COPIED = 256 << 10  # bytes that are there already, and that a thread copies rather than the event loop
_MOST_AHEAD = 32 << 20
_SMALL = 16 << 10
_SLACK = 32 << 10  # by which the places of chunks in a row differ
_MOST_STEPS = 15
_MOST_CACHED = 128 << 20  # of a file object


async def _on_thread(call: Callable[..., T], *arguments: Any, **options: Any) -> T:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads.waiting(), functools.partial(call, *arguments, **options))


class _Shared(File):
    """A file that several calls read: the last of them lets go of it."""

    @functools.cached_property
    def found(self) -> _file.Stat:
        return self.stat()

    def _bounds(self, ranges: Iterable[tuple[int | None, int | None]]) -> list[tuple[int, int]]:
        """The place and the length of each."""
        bounds = (slice(*given).indices(self.found.size)[:2] for given in ranges)
        return [(start, max(stop - start, 0)) for start, stop in bounds]

    def ranges(self, ranges: Sequence[tuple[int | None, int | None]]) -> list[bytes]:
        """Read ranges, whose bounds are those of a slice."""
        if self.found.size_unknown:
            with File(self.uri, **self._remade).as_io() as whole:
                data = whole.read()
            return [data[slice(*bounds)] for bounds in ranges]
        bounds = self._bounds(ranges)
        if len(bounds) == 1:
            return [self.read(bounds[0][1], bounds[0][0])]
        parts = [(bytearray(n), start) for start, n in bounds]
        self.readv([part for part in parts if part[0]])
        return [bytes(part) for part, _ in parts]

    async def ranges_async(self, ranges: Sequence[tuple[int | None, int | None]]) -> list[bytes]:
        if self.found.size_unknown:
            return await _on_thread(self.ranges, ranges)
        bounds = self._bounds(ranges)
        if len(bounds) == 1:
            start, n = bounds[0]
            if n >= _COPIED and start + n <= self._remade.get("first_bytes", 0):
                return [await _on_thread(self.read, n, start)]
            return [await self.read_async(n, start)]
        parts = [(bytearray(n), start) for start, n in bounds]
        await self.readv_async([part for part in parts if part[0]])
        return [bytes(part) for part, _ in parts]

    def __del__(self) -> None:
        """Nothing is in flight: the extension lets go of the file."""


class _Pattern:
    """How reads of a kind, small or large, follow each other."""

    def __init__(self, ahead: int) -> None:
        self.next = 0  # where a read follows the last one
        self.ahead = ahead  # bytes
        self.frontier = 0  # up to there has been read ahead
        self.last = self.stride = 0  # where the last read was, and how far from the one before
        self.steps = 0  # that are read ahead in a stride


class _Cache(BaseCache):
    """Keeps what was read last, and reads ahead on other threads where reads follow a pattern."""

    name = "sluice"

    def __init__(self, blocksize: int, fetcher: Callable[[int, int], bytes], size: int) -> None:
        super().__init__(blocksize, fetcher, size)
        # By its offset the length and the bytes of each part, the one that was used last at the end.
        self.parts: collections.OrderedDict[int, tuple[int, Future[bytes]]] = collections.OrderedDict()
        self.cached = 0
        # HDF5 looks at small nodes of an index between the chunks that it reads.
        self.patterns = _Pattern(blocksize), _Pattern(blocksize)

    def find(self, at: int) -> int | None:
        """The offset of the part that has a byte."""
        return next((start for start, (n, _) in reversed(self.parts.items()) if start <= at < start + n), None)

    def begin(self, start: int, n: int) -> int:
        """Begin to read a part, and forget the oldest ones. Returns where it ends."""
        n = min(n, self.size - start)
        self.cached += n - self.parts.pop(start, (0,))[0]
        self.parts[start] = n, _threads.waiting().submit(self.fetcher, start, start + n)
        while self.cached > _MOST_CACHED and len(self.parts) > 2:
            self.cached -= self.parts.popitem(last=False)[1][0]
        return start + n

    def passes(self, start: int, n: int) -> bool:
        """Whether a read is so large that it goes past the cache."""
        pattern = self.patterns[1]
        large = n >= (_MOST_AHEAD // 2 if start == pattern.next else _LARGE) and self.find(start) is None
        if large:
            pattern.next = start + n
        return large

    def look_along(self, pattern: _Pattern, at: int, n: int) -> None:
        """Read ahead where reads are about equally far from each other, as the chunks of a column of an array are."""
        stride, pattern.last = at - pattern.last, at
        alike = abs(stride - pattern.stride) <= _SLACK and stride > n + _SLACK
        pattern.steps = min(2 * pattern.steps + 1, _MOST_STEPS) if alike else 0
        pattern.stride = stride
        for _ in range(pattern.steps if n <= _LARGE else 0):
            at += stride
            if at < self.size and self.find(at) is None:
                self.begin(at, max(n + _SLACK, self.blocksize))

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        at, end = start or 0, self.size if stop is None else min(stop, self.size)
        if self.passes(at, end - at):
            return bytes(self.fetcher(at, end))
        pattern = self.patterns[end - at >= _SMALL]
        follows = 0 <= at - pattern.next <= self.blocksize
        pattern.ahead = min(4 * pattern.ahead, _MOST_AHEAD) if follows else self.blocksize
        if at < end and self.find(at) is None:
            pattern.frontier = self.begin(at, max(end - at, self.blocksize))
        self.look_along(pattern, at, end - at)
        pieces = []
        while at < end:
            found = self.find(at)
            if found is None:
                found = at
                pattern.frontier = self.begin(at, max(end - at, self.blocksize))
            try:
                piece = self.parts[found][1].result()[at - found : end - found]
            except BaseException:
                self.cached -= self.parts.pop(found)[0]
                raise
            if not piece:
                break  # the file has become shorter
            self.parts.move_to_end(found)
            pieces.append(piece)
            at += len(piece)
        pattern.next = at
        if follows and at <= pattern.frontier < min(at + pattern.ahead // 2, self.size):
            pattern.frontier = self.begin(pattern.frontier, pattern.ahead)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


register_cache(_Cache, clobber=True)


class BufferedFile(AbstractBufferedFile):
    """A file that is read, with a position and a cache. It may be pickled."""

    def __init__(self, fs: Any, path: str, file: _Shared, block_size: int, cache_type: str = "sluice",
                 cache_options: Any = None, size: int | None = None, **version: Any) -> None:
        self.file = file
        size = file.found.size if size is None else min(size, file.found.size)
        super().__init__(fs, path, "rb", block_size, cache_type=cache_type, size=size,
                         cache_options=cache_options, **version)
        if version:  # fsspec would ask for the newest
            self._details = fs.info(path, **version)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return bytes(self.file.read(end - start, start))

    def close(self) -> None:
        super().close()
        self.__dict__.pop("file", None)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")[: max(self.size - self.loc, 0)]
        if not isinstance(self.cache, _Cache) or not self.cache.passes(self.loc, len(view)):
            return int(super().readinto(view))
        moved: int = self.file.read_into(view, self.loc)
        self.loc += moved
        return moved


class _Pending(_file._RawFile):
    """Whose close() leaves the file open, for the transaction that decides about it."""

    def close(self) -> None:
        io.RawIOBase.close(self)


class _Late(_file._Writer):
    """A file object of a transaction: after close(), commit() gives the object its name, and discard() drops it."""

    def __init__(self, file: File) -> None:
        self._file = file
        super().__init__(_Pending(file))

    def commit(self) -> None:
        if not self._file.closed:
            self._file.close()

    def discard(self) -> None:
        self._file.discard()


class _Whole(io.BytesIO):
    """A file object whose bytes are in memory until close() writes them, for storage that wants the size first."""

    def __init__(self, write: Callable[[bytes], None], autocommit: bool) -> None:
        super().__init__()
        self._write, self._autocommit = write, autocommit
        self._bytes: bytes | None = None  # of commit()

    def close(self) -> None:
        if not self.closed:
            self._bytes = self.getvalue()
            super().close()
            if self._autocommit:
                self.commit()

    def commit(self) -> None:
        value, self._bytes = self._bytes, None
        if value is not None:
            self._write(value)

    def discard(self) -> None:
        self._autocommit, self._bytes = False, None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            super().close()
        self.close()

    def __del__(self) -> None:
        self.discard()
