# SPDX-License-Identifier: Apache-2.0
"""Frames: arrays that a program stores in an HDF5 file while it computes the next ones."""

from __future__ import annotations

import array as arrays
import atexit
import collections
import importlib
import os
import struct
import sys
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from . import _context, _core, _memory, _stream

if TYPE_CHECKING:
    from types import TracebackType

Attributes = Mapping[str, Any]

_MODES = {"x": 0, "w": _core.WRITER_REPLACE, "a": _core.WRITER_APPEND}
# Their numbers in enum sluice_type.
_NUMBERS = {name: number for number, name in enumerate(
    ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"), 1)}
_TYPES = {**_NUMBERS, "complex64": 13, "complex128": 14, "bool": 15}
_STRING, _STRING_MOST = 24, 1024
_open: weakref.WeakSet[Writer] = weakref.WeakSet()


def _row(owner: str, name: str, value: Any) -> tuple[str, str, bytes, int]:
    if not isinstance(name, str):
        raise TypeError(f"{owner}: the name of an attribute is a str, not {name!r}")
    value = value.tolist() if hasattr(value, "tolist") else value
    items, columns = list(value) if isinstance(value, (list, tuple)) else [value], 0
    if items and all(isinstance(text, str) for text in items):
        if any("\0" in text for text in items):
            raise ValueError(f"{owner}: attribute {name!r} contains a null character")
        if isinstance(value, str):
            return name, "text", value.encode(), 0
        return name, "list", "\0".join(items).encode() + b"\0", len(items)
    if items and all(isinstance(row, (list, tuple)) for row in items):
        columns = len(items[0])
        if any(len(row) != columns for row in items):
            raise ValueError(f"{owner}: the rows of attribute {name!r} differ in their lengths")
        items = [number for row in items for number in row]
    kind, code = ("integers", "q") if all(isinstance(n, int) for n in items) else ("numbers", "d")
    try:
        if not items:
            raise TypeError
        return name, kind, arrays.array(code, items).tobytes(), columns
    except (TypeError, OverflowError) as error:
        raise type(error)(f"{owner}: attribute {name!r} has to be a text, a number of 64 bits, a sequence of texts, or "
                          f"of numbers in one or two dimensions, not {value!r}") from None


def _rows(owner: str, attributes: Attributes | None) -> list[tuple[str, str, bytes, int]]:
    """Return attributes as the extension takes them."""
    return [_row(owner, name, value) for name, value in (attributes or {}).items()]


def _type_of(owner: str, dtype: Any, types: Mapping[str, int] = _TYPES) -> Any:
    """Return the dtype of numpy for a type of numpy or torch."""
    numpy: Any = importlib.import_module("numpy")
    try:
        if dtype is None:  # that is float64 for numpy
            raise TypeError
        found = numpy.dtype(str(dtype)[6:] if str(dtype).startswith("torch.") else dtype).newbyteorder("=")
    except TypeError:  # a type that numpy lacks
        found = None
    if types is _TYPES and found is not None and found.kind in "SU":
        if found.kind == "S" and 0 < found.itemsize <= _STRING_MOST:
            return found
        raise TypeError(f"{owner}: strings have a fixed length of 1 to {_STRING_MOST} bytes, as dtype 'S8' has 8, not "
                        f"{dtype}; numpy.char.encode() makes them of text")
    if found is None or found.name not in types:
        strings = " and bytes such as 'S8'" if types is _TYPES else ""
        raise TypeError(f"{owner}: {dtype} is none of {', '.join(types)}{strings}. Store others as float32 or as "
                        "integers of their bits")
    return found


class _Acquired:
    """A frame that the program has. All views of its array have `root` as their base."""

    __slots__ = ("array", "exporter", "references", "root")

    def __init__(self, series: Series, exporter: Any) -> None:
        numpy: Any = importlib.import_module("numpy")
        self.exporter = exporter
        self.root = numpy.frombuffer(exporter, series.dtype)
        self.array = self.root.reshape(series.shape)
        self.references = sys.getrefcount(self.root)

    def has_views(self) -> bool:
        return sys.getrefcount(self.root) > self.references


class Series(_core.Series):
    """A dataset of frames, made by Writer.series(). Attributes: name, shape and dtype of a frame, scalars."""

    def __init__(self, writer: Writer, name: str, shape: int | Sequence[int], dtype: Any, scalars: Sequence[str],
                 attributes: Attributes | None, drop: bool, options: dict[str, Any]) -> None:
        self.name, self.scalars, self._drop = name, tuple(scalars), drop
        owner = f"series {name!r}"
        for names in (scalars, options["dimensions"]):
            if isinstance(names, str):
                raise TypeError(f"{owner}: a sequence of names is needed, such as [{names!r}], not {names!r}")
        self.shape, options["chunk"] = _memory.lengths(shape), _memory.lengths(options["chunk"])
        if len(options["chunk"]) not in (0, len(self.shape)):
            raise ValueError(f"{owner}: chunk {options['chunk']} and shape {self.shape} differ in their dimensions")
        self.dtype = _type_of(owner, dtype)
        for taken in ("stream", "timeout"):
            if taken in self.scalars:
                raise ValueError(f"{owner}: no scalar can have the name {taken!r}, which append() has")
        flags = (_core.SERIES_DROP if drop else 0) | (_core.SERIES_FLETCHER32 if options.pop("fletcher32") else 0)
        if options["dimensions"] is not None:
            options["dimensions"] = dimensions = list(options["dimensions"])
            if len(dimensions) != len(self.shape) + 1:
                raise ValueError(f"{owner}: {len(self.shape) + 1} dimensions need names, that of the frames first, "
                                 f"not {dimensions}")
        options["depth"] = depth = options["depth"] or 2
        if options["continue_at"] is not None:
            flags |= _core.SERIES_CONTINUE_AT
        given = {option: value for option, value in options.items() if value is not None}
        if self.dtype.kind == "S":
            given["string_bytes"] = self.dtype.itemsize
        super().__init__(writer, name, _TYPES.get(self.dtype.name, _STRING), self.shape, list(scalars),
                         _rows(owner, attributes), flags, **given)
        self._layout = struct.Struct(f"{len(self.scalars)}d")
        self._acquired: dict[int, _Acquired] = {}
        writer._series.add(self)
        self._kept: collections.deque[Any] = collections.deque(maxlen=depth)

    def append(self, array: Any, /, *, timeout: float | None = None, stream: Any = None, **scalars: float) -> None:
        """Copy an array into the next frame. It waits while all frames are on their way, without the GIL.

        array: with the shape and type of the series, in memory of the host or of a GPU; a number for the shape (), and
        shorter strings for strings. That of a GPU is copied in
        the order of a stream: of torch or cupy, a number, or an object with __cuda_stream__; None: the current stream
        of the array's library. Later work of the stream may overwrite the array. scalars: the numbers of this frame.
        timeout: seconds; None waits for ever. A series with drop=True does not wait.

        Raises TypeError or ValueError for another type or shape, TimeoutError, or the writer's first error.

        >>> import numpy
        >>> with sluice.Writer(path + ".h5", "w") as w:
        ...     u = w.series("u", shape=(3, 4), dtype="f4", scalars=["time"])
        ...     u.append(numpy.ones((3, 4), "f4"), time=0.5)
        """
        packed = self._pack(scalars)
        timeout = 0 if self._drop else timeout
        torch = sys.modules.get("torch")
        of_torch = torch is not None and isinstance(array, torch.Tensor)
        if array.device.type == "cuda" if of_torch else hasattr(array, "__cuda_array_interface__"):
            if of_torch:
                self._check(str(array.dtype)[6:], array.shape)
            else:
                numpy: Any = importlib.import_module("numpy")
                interface = array.__cuda_array_interface__
                self._check(numpy.dtype(interface["typestr"]).name, interface["shape"])
            number = _stream.find(array, stream)
            self._append(array, packed, timeout, True, number)
            if stream is not None and not of_torch:
                # The frame that this array is copied to is free again, so copied, when as many others have come.
                self._kept.append(array)
            return
        if stream is not None:
            raise TypeError(f"series {self.name!r}: an array of the host is copied without a stream")
        if of_torch:
            self._check(str(array.dtype)[6:], array.shape)
            array = array.detach()
        numpy = importlib.import_module("numpy")
        if isinstance(array, (int, float, complex)) and numpy.can_cast(numpy.min_scalar_type(array), self.dtype):
            array = numpy.asarray(array, self.dtype)
        array = numpy.asarray(array)
        if self.dtype.kind == array.dtype.kind == "S" and array.dtype.itemsize < self.dtype.itemsize:
            array = array.astype(self.dtype)
        self._check(array.dtype.name, array.shape)
        self._append(numpy.ascontiguousarray(array, self.dtype), packed, timeout, False, 0)

    def acquire(self, timeout: float | None = None) -> Any:
        """Return the next frame as an array of numpy, to be filled and given to submit(). Nothing is copied.

        Its contents are undefined at first: it is recycled. Waits as append().

        >>> with sluice.Writer(path + ".h5", "w") as w:
        ...     u = w.series("u", shape=(3, 4), dtype="f4")
        ...     frame = u.acquire()
        ...     frame[...] = 1
        ...     u.submit(frame)
        """
        held = _Acquired(self, self._acquire(0 if self._drop else timeout))
        self._acquired[id(held.array)] = held
        return held.array

    def submit(self, frame: Any = None, /, **scalars: float) -> None:
        """Hand over an array of acquire(), without a wait; None: the only one.

        The array is read-only from then on, and its contents are undefined, as the memory is used for later frames.
        Raises BufferError if other arrays share its memory: del them first. Those of other libraries, such as
        torch.from_numpy(frame), are not seen, and must not be used afterwards.
        """
        packed = self._pack(scalars)
        held = self._take(frame)
        try:
            self._submit(held.exporter, packed)
        except BaseException:
            self._acquired[id(held.array)] = held
            raise
        held.array.flags.writeable = held.root.flags.writeable = False

    def discard(self, frame: Any = None, /) -> None:
        """Give an array of acquire() back, which will not be stored; None: the only one."""
        held = self._take(frame)
        held.array.flags.writeable = held.root.flags.writeable = False
        self._discard(held.exporter)

    def attributes(self, attributes: Attributes) -> None:
        """Add attributes to the dataset: texts, numbers, sequences of them, and numbers in two dimensions."""
        self._attributes(_rows(f"series {self.name!r}", attributes))

    @property
    def frames(self) -> int:
        """The number of frames of the dataset with those submitted, which is the number of the next frame."""
        counts = self.stats()
        return int(counts["frames_before"] + counts["submitted"])

    def _pack(self, scalars: dict[str, float]) -> bytes:
        if scalars.keys() != set(self.scalars):
            raise TypeError(f"series {self.name!r}: a frame has the scalars {sorted(self.scalars)}, not "
                            f"{sorted(scalars)}")
        try:
            return self._layout.pack(*(scalars[name] for name in self.scalars))
        except struct.error:
            raise TypeError(f"series {self.name!r}: the scalars {scalars} are not all numbers") from None

    def _check(self, name: str, shape: Sequence[int]) -> None:
        if name != self.dtype.name:
            raise TypeError(f"series {self.name!r} has frames of {self.dtype}, not of {name}")
        if tuple(shape) != self.shape:
            raise ValueError(f"series {self.name!r} has frames of shape {self.shape}, not {tuple(shape)}")

    def _take(self, frame: Any) -> _Acquired:
        if frame is None and len(self._acquired) != 1:
            raise ValueError(f"series {self.name!r}: {len(self._acquired)} frames are acquired; give the array of one")
        key = next(iter(self._acquired)) if frame is None else id(frame)
        if key not in self._acquired:
            raise ValueError(f"series {self.name!r}: this is no array of acquire(), or it was submitted; append() "
                             "copies other arrays")
        held = self._acquired.pop(key)
        if held.has_views():
            self._acquired[key] = held
            raise BufferError(f"series {self.name!r}: other arrays share the memory of the frame, which later frames "
                              "get; del them first")
        return held

    def __repr__(self) -> str:
        return f"<sluice.Series {self.name!r}, frames of {self.dtype} {self.shape}>"


class Writer(_core.Writer):
    """A new or continued HDF5 file of frames, which are compressed and stored in the background, on all cores.

    mode: "x" makes a new file; "w" replaces a file of that name when the first frames are flushed; "a" continues one.
    attributes: of the file. durable: flushes reach the disk. options: threads, memory_bytes, checkpoint_frames,
    checkpoint_ms, full_disk_ms, upload_ms, permissions: numbers, as in struct sluice_writer_options. only_hdf5: nothing
    else in the process uses HDF5, if that was built without its lock. path may be s3://bucket/key: then frames come to
    a file in TMPDIR, which close() uploads and removes; after an error it stays, and the error names it.

    A with statement stores the submitted frames and closes the file, after an exception, too: discard() is for a file
    that should not stay. An error of the work in the background is raised by the next call, every later one and
    close(). A writer that is dropped, or open at the end of the program, is closed with a ResourceWarning.

    >>> import numpy
    >>> with sluice.Writer(path + ".h5", "w", attributes={"title": "a test"}) as w:
    ...     u = w.series("u", shape=(3, 4), dtype="f4", codec="deflate")
    ...     for step in range(10):
    ...         u.append(numpy.full((3, 4), step, "f4"))
    """

    def __init__(self, path: str | bytes | os.PathLike[str], mode: str = "x", *, attributes: Attributes | None = None,
                 durable: bool = False, only_hdf5: bool = False, context: _context.Context | None = None,
                 **options: int) -> None:
        self.path, self.mode = os.fsdecode(path), mode
        self._interrupted, self._process = False, os.getpid()
        self._series: weakref.WeakSet[Series] = weakref.WeakSet()
        if mode not in _MODES:
            raise ValueError(f"mode {mode!r} is none of {', '.join(_MODES)}")
        flags = _MODES[mode] | (_core.WRITER_DURABLE if durable else 0) | (_core.WRITER_ONLY_HDF5 if only_hdf5 else 0)
        super().__init__(context or _context.default(), self.path, flags, _rows(repr(self), attributes), **options)
        _open.add(self)

    def series(self, name: str, *, shape: int | Sequence[int], dtype: Any, attributes: Attributes | None = None,
               dimensions: Sequence[str] | None = None, scalars: Sequence[str] = (), codec: str | None = None,
               level: int = 0, shuffle: bool | None = None, precision: int = 0, chunk: int | Sequence[int] = (),
               chunk_frames: int = 0, frames: int = 0, depth: int = 0, drop: bool = False,
               continue_at: int | None = None, fletcher32: bool = False) -> Series:
        """Add a dataset of frames, or continue that of mode "a", and return its Series.

        shape, dtype: of a frame; the shape () is a number for each frame, and a dtype may be bool, complex or bytes,
        such as "S8". dimensions: names, that of the frames first; xarray shows them. scalars: names of numbers that
        come with each frame; the one with the name of the first dimension is its coordinate. codec: "deflate"
        (default), "none" or another that sluice.doctor() lists. precision: bits of the mantissa to keep. depth: frames
        that the program and the writer have together. drop: append() drops a frame that it would have to wait for.
        continue_at: the number of the next frame; later ones that the file has are given up. fletcher32: readers
        verify a checksum of each chunk. The others are as in struct sluice_series_options.

        >>> with sluice.Writer(path + ".h5", "w") as w:
        ...     w.coordinate("x", [0.0, 0.5, 1.0], {"units": "m"})
        ...     w.series("u", shape=(2, 3), dtype="f8", dimensions=("time", "y", "x"), scalars=["time"])
        <sluice.Series 'u', frames of float64 (2, 3)>
        """
        options: dict[str, Any] = {
            "dimensions": dimensions, "codec": codec, "level": level, "chunk": chunk,
            "shuffle": 0 if shuffle is None else 2 if shuffle else 1, "precision": precision,
            "chunk_frames": chunk_frames, "frames": frames, "depth": depth, "continue_at": continue_at,
            "fletcher32": fletcher32,
        }  # fmt: skip
        return Series(self, name, shape, dtype, scalars, attributes, drop, options)

    def coordinate(self, name: str, values: Any, attributes: Attributes | None = None) -> None:
        """Write the values along a dimension, before the series that name it are added.

        values: a sequence of numbers, or an array with one dimension, in memory of the host.
        """
        numpy: Any = importlib.import_module("numpy")
        owner = f"coordinate {name!r}"
        found = numpy.asarray(values)
        dtype = _type_of(owner, found.dtype, _NUMBERS)
        if found.ndim != 1:
            raise ValueError(f"{owner}: its values have the shape {found.shape}, and one dimension is needed")
        data = numpy.ascontiguousarray(found, dtype).tobytes()
        self._coordinate(name, _NUMBERS[dtype.name], len(found), data, _rows(owner, attributes))

    def attributes(self, attributes: Attributes) -> None:
        """Add attributes to the file: texts, numbers, sequences of them, and numbers in two dimensions."""
        self._attributes(_rows(repr(self), attributes))

    def close(self) -> None:
        """Wait until all frames are stored, and close the file.

        Raises the first error of the work in the background; the file is closed all the same. If it is interrupted,
        call it again, or discard() what is not stored yet: a writer that is dropped then is discarded.

        >>> w = sluice.Writer(path + ".h5", "w")
        >>> w.close()
        """
        if not self.closed and self._process == os.getpid():
            for series in self._series:
                if series._acquired:
                    warnings.warn(f"{series!r}: {len(series._acquired)} acquired frames were not submitted, and are "
                                  "not stored", RuntimeWarning, stacklevel=2)
        self._end()

    def _end(self) -> None:
        self._interrupted = True
        self._close()
        self._interrupted = False
        for series in self._series:  # their arrays are the program's alone
            series._acquired.clear()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        try:
            self._end()
        except OSError as failure:  # the exception that ended the block stays the one to be seen
            if str(failure) != str(error):
                error.add_note(f"{self!r} could not store all frames: {failure}")

    def __del__(self) -> None:
        if self.closed or self._process != os.getpid():
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1, source=self)
        if not self._interrupted:  # else its memory goes with a discard
            self._end()

    def __repr__(self) -> str:
        return f"<sluice.Writer {self.path!r}, mode {self.mode!r}{', closed' if self.closed else ''}>"


@atexit.register
def _close_all() -> None:
    for writer in list(_open):
        try:
            writer.__del__()
        except OSError:  # the next one has frames, too
            sys.excepthook(*sys.exc_info())
