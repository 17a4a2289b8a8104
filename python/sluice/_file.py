# SPDX-License-Identifier: Apache-2.0
"""Files: open(), and what File adds to the calls of the extension."""

from __future__ import annotations

import atexit
import contextlib
import copy as copies
import io
import operator
import os
import time
import warnings
import weakref
from typing import Any, Mapping, NamedTuple, Sequence, Union

from . import _context, _core, _stream
from ._operation import Call, Operation

_MODES = {
    "r": _core.READ,
    "r+": _core.READ | _core.WRITE,
    "w": _core.WRITE | _core.REPLACE,
    "x": _core.WRITE | _core.REPLACE | _core.EXCLUSIVE,
    "a": _core.READ | _core.WRITE | _core.CREATE,
}
_FLAGS = {
    "durable": _core.DURABLE,
    "nonblock": _core.NONBLOCK,
    "http2": _core.HTTP2,
    "as_stored": _core.AS_STORED,
    "uncached": _core.UNCACHED,
}
_OPTIONS = ("permissions", "expected_size", "first_bytes", "backend", "part", "s3", "dataset")
_Headers = Union[Mapping[str, str], Sequence[str], None]
_made: weakref.WeakSet[File] = weakref.WeakSet()  # of modes "w" and "x"


class Stat(NamedTuple):
    """A file as File.stat() found it. Sizes in bytes."""

    size: int  # 0 if unknown
    mode: int  # as os.stat_result.st_mode; 0: there is none
    allocated: int
    modified_ns: int  # nanoseconds since 1970; 0: unknown
    etag: str  # of a remote object, else ""
    final_uri: str | None  # where a server's redirection led
    backend: str
    size_unknown: bool
    whole_only: bool  # a server without ranges


def copy(source: str, target: str, *, exclusive: bool = False, headers: _Headers = None,
         s3: Mapping[str, Any] | None = None, context: _context.Context | None = None) -> None:
    """Has the server of S3 copy an object to another name, so that no byte of it comes here.

    The copy takes its name when it is complete. Its metadata are those of the source, unless headers give other. The
    version of s3 is that of the source. Raises FileExistsError if exclusive, and OSError with ENOTSUP if the server
    cannot copy, or an end is not s3://BUCKET/KEY.
    """
    _core.copy_object(context or _context.default(), source, target, _context.header_lines(headers),
                      None if s3 is None else dict(s3), exclusive)


def presign(uri: str, *, method: str = "GET", expires: int = 3600, headers: _Headers = None,
            s3: Mapping[str, Any] | None = None, context: _context.Context | None = None) -> str:
    """Make a URL by which anybody may get an object of S3 without keys, or put it, look for it or remove it.

    method: "GET", "PUT", "HEAD" or "DELETE". expires: seconds from now on, up to 604800. headers are signed: a request
    by the URL has to have them. The URL is a secret. S3 is not asked. Warns if the keys that sign it end before.

    >>> sluice.presign("s3://bucket/key", s3={"access_key": "A", "secret_key": "S"}).partition("?")[0]
    'https://bucket.s3.us-east-1.amazonaws.com/key'
    """
    url, end_ns = _core.presign(context or _context.default(), uri, method, _context.header_lines(headers),
                                None if s3 is None else dict(s3), expires)
    left = end_ns // 1_000_000_000 - int(time.time())
    if left < expires - 1:
        warnings.warn(f"the URL of {uri!r} ends in {left} seconds, with the keys that signed it", stacklevel=2)
    return url


class File(_core.File):
    """A file, by a path or a URI. Made by open(); closed by close(), discard() or a with statement.

    A with statement that ends by an exception discards the file: with modes "w" and "x" the name keeps its
    old contents. Attributes: uri, mode, context, size, closed.
    """

    uri: str
    mode: str
    context: _context.Context
    _left = False  # its task was cancelled before it got the file

    def __init__(self, uri: str | bytes | os.PathLike[str], mode: str = "r", *, headers: _Headers = None,
                 context: _context.Context | None = None, **options: Any) -> None:
        super().__init__(**self._prepare(uri, mode, headers, context, options))
        if self.mode in ("w", "x"):
            _made.add(self)

    @classmethod
    def _open_async(cls, uri: str | bytes | os.PathLike[str], mode: str = "r", *, headers: _Headers = None,
                    context: _context.Context | None = None, **options: Any) -> Operation:
        file = cls.__new__(cls)
        operation = file._start(**file._prepare(uri, mode, headers, context, options))
        if file.mode in ("w", "x"):
            _made.add(file)
        return operation

    def _prepare(self, uri: str | bytes | os.PathLike[str], mode: str, headers: _Headers,
                 context: _context.Context | None,
                 options: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the extension."""
        self.uri, self.mode = os.fsdecode(uri), str(mode).replace("b", "", 1)
        if self.mode not in _MODES:
            raise ValueError(f"mode {mode!r} is none of {', '.join(_MODES)}")
        flags = _MODES[self.mode]
        fields = {}
        for name, value in options.items():
            if name in _FLAGS:
                flags |= _FLAGS[name] if value else 0
            elif name in _OPTIONS:
                fields[name] = copies.copy(value)
            else:
                raise TypeError(f"there is no option {name!r}")
        lines = _context.header_lines(headers)
        self._remade = {**options, **fields, "headers": lines, "context": context}
        self.context = context or _context.default()
        return {"context": self.context, "uri": self.uri, "flags": flags, "headers": lines, **fields}

    def read_on(self, buffer: Any, offset: int = 0, stream: Any = None) -> Operation:
        """Read into memory of a GPU in the order of a stream: after the work that the stream was given before,
        and before the work that it is given later. Nothing is synchronised.

        buffer: as for read_into(); the file must have all of its bytes. stream: of torch or cupy, a number, or an
        object with __cuda_stream__; None: the current stream of the buffer's library. Returns an Operation: ask it
        before the result is used for anything that matters.
        """
        return self._on(buffer, offset, _stream.find(buffer, stream), False)

    def write_on(self, buffer: Any, offset: int = 0, stream: Any = None) -> Operation:
        """Write memory of a GPU in the order of a stream, as read_on() reads. Work that the stream is given later
        may change the buffer."""
        return self._on(buffer, offset, _stream.find(buffer, stream), True)

    def stat(self) -> Stat:
        """Return the size and other attributes, as they are now.

        >>> with sluice.open(path) as f:
        ...     f.stat().size, f.stat_async().wait().size
        (5, 5)
        """
        return Stat(*self._stat())

    def stat_async(self) -> Operation:
        """As stat(), but returns an Operation at once."""
        return Call(self.stat)

    def sync_async(self) -> Operation:
        """As sync(), but returns an Operation at once."""
        return Call(self.sync)

    def close_async(self) -> Operation:
        """As close(), but returns an Operation at once."""
        return Call(self.close)

    @property
    def size(self) -> int:
        """The size in bytes, as it is now."""
        return self.stat().size

    def as_io(self, buffer_size: int = 1 << 20) -> io.BufferedIOBase:
        """Return a binary file object over this file, as of the built-in open(); an S3 object is written front to back.

        Closing it closes this file; a with statement that ends by an exception, or its collection, discards it.
        With mode "a" it begins at the end of the file.

        >>> with sluice.open(path).as_io() as f:
        ...     f.seek(1), f.read(2)
        (1, b'el')
        """
        raw = _RawFile(self)
        if self.mode == "r":
            return io.BufferedReader(raw, buffer_size)
        return _Random(raw, buffer_size) if raw.readable() else _Writer(raw, buffer_size)

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        if not self.closed:
            if not self._left:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1, source=self)
            self.discard()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<sluice.File {_core.uri_name(self.uri)!r}, mode {self.mode!r}{state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.closed:
            raise ValueError("the file is closed")
        if self.mode in ("w", "x"):
            raise TypeError("a file that is being made cannot be pickled")
        return _open_again, (self.uri, self.mode, self._remade, self.context._given)


@atexit.register
def _discard_all() -> None:
    """An operation in flight keeps its file beyond the end of the interpreter, with what it has written."""
    for file in list(_made):
        file.__del__()


def _open_again(uri: str, mode: str, options: dict[str, Any], settings: dict[str, Any]) -> File:
    if options["context"] is None:
        options["context"] = _context.with_settings(settings)
    return File(uri, mode, **options)


def open(uri: str | bytes | os.PathLike[str], mode: str = "r", *, headers: _Headers = None,
         context: _context.Context | None = None, **options: Any) -> File:
    """Open a path, or a URI of file:, http:, https: or store:, and return a File.

    mode: "r" reads; "r+" reads and writes in place; "w" makes a new file, which takes the name when it is
    closed; "x" does so only if there is no file of that name; "a" reads and writes, and makes the file if
    it is missing. Offsets are explicit in every mode.
    headers: of requests to the origin of a URI. context: a Context, in place of the one of configure().
    options: durable, nonblock, http2, as_stored, uncached:
    bool; permissions, expected_size (without which http and store write no
    bytes), first_bytes (of an object, which come with its opening): int;
    backend, part: str; s3: a dict of fields of struct sluice_s3_options; dataset: str, of an HDF5 file that
    is read, whose elements are the bytes of this file then.

    Raises OSError or its subclass for the errno, such as FileNotFoundError.

    >>> with sluice.open(path + ".new", "w") as f:
    ...     f.write(b"new")
    3
    """
    return File(uri, mode, headers=headers, context=context, **options)


def open_async(uri: str | bytes | os.PathLike[str], mode: str = "r", **options: Any) -> Operation:
    """As open(), but returns an Operation at once, whose result is the File.

    >>> with sluice.open_async(path).wait() as f:
    ...     f.read(2)
    b'he'
    """
    return File._open_async(uri, mode, **options)


class _RawFile(io.RawIOBase):
    """A position in a File."""

    def __init__(self, file: File) -> None:
        self.file, self.name = file, _core.uri_name(file.uri)
        self.mode = {"r": "rb", "w": "wb", "x": "xb", "r+": "rb+", "a": "ab+"}[file.mode]  # of io.FileIO
        self.position = file.size if file.mode == "a" else 0
        self.discarded = False

    def readable(self) -> bool:
        return self.file.mode in ("r", "r+", "a")

    def writable(self) -> bool:
        return self.file.mode != "r"

    def seekable(self) -> bool:
        # Bytes of an object are written once. numpy and zipfile then write front to back.
        return self.readable() or not self.file.uri.lower().startswith("s3:")

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.tell()
        if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            raise ValueError(f"whence is {whence}, not 0, 1 or 2")
        found = self.file.stat() if whence == os.SEEK_END else None
        if found and found.size_unknown:
            raise io.UnsupportedOperation("the file has no length that is known before it is read")
        position = operator.index(offset) + (0, self.position, found.size if found else 0)[whence]
        if position < 0:
            raise ValueError(f"position {position} is before the start of the file")
        self.position = position
        return position

    def tell(self) -> int:
        if self.closed:
            raise ValueError("the file is closed")
        return self.position

    def readinto(self, buffer: Any) -> int:
        n: int = self.file.read_into(buffer, self.position)
        self.position += n
        return n

    def readall(self) -> bytes:
        found = self.file.stat()
        if found.size_unknown:
            return super().readall()
        data = self.file.read(max(found.size - self.position, 0), self.position)
        self.position += len(data)
        return data

    def write(self, buffer: Any) -> int:
        if self.discarded:  # what the buffer of the file object still has goes with it
            return len(buffer)
        n: int = self.file.write(buffer, self.position)
        self.position += n
        return n

    def truncate(self, size: int | None = None) -> int:
        size = self.position if size is None else size
        self.file.truncate(size)
        return size

    def discard(self) -> None:
        self.discarded = True
        self.file.discard()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.file.close()


class _Discards(io.IOBase):
    """Commits by close() alone, as a File."""

    raw: Any

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.raw.discard()
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(ValueError):  # it is detached, or was not made
            if not self.closed:
                self.raw.discarded = True
                self.raw.file.__del__()
            super().__del__()


class _Writer(_Discards, io.BufferedWriter): ...


class _Random(_Discards, io.BufferedRandom): ...
