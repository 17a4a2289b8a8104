# SPDX-License-Identifier: Apache-2.0
"""Datasets of HDF5 files as arrays, which all cores decode."""

from __future__ import annotations

import ast
import collections
import contextlib
import importlib
import itertools
import math
import operator
import os
import pickle
import sys
import threading
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from . import _context, _core, _libraries, _stream
from ._file import File
from ._operation import Call, Operation

if TYPE_CHECKING:
    from types import TracebackType

# Bytes of a read through memory of its own, and of those in flight.
_BLOCK, _WINDOW = 16 << 20, 64 << 20
_lock = threading.Lock()  # texts of a dataset change with its refresh
_READS = 64  # in flight, at most
_GAP = 64 << 10  # bytes without a wanted element that are read, or decoded, in place of a read more,
_GAP_CHUNKS = 8  # unless they have many chunks
_ALL = slice(None)


def _type_of(text: str) -> Any:
    """Return the dtype of numpy for a type of the library."""
    numpy: Any = importlib.import_module("numpy")
    if text.startswith("bfloat16"):
        return numpy.dtype(">u2") if "big" in text else _libraries.Numpy().dtype("BF16")
    return numpy.lib.format.descr_to_dtype(ast.literal_eval(text)) if text[0] == "[" else numpy.dtype(text)


class Array:
    """A dataset of an HDF5 file, which is read when it is indexed. Made by open_array().

    Attributes: shape, dtype, ndim, size and nbytes as of numpy; chunks: the shape of a chunk, or None; filters: their
    names, in the order in which a chunk was packed; uri, dataset and closed.

    The file belongs to the object: close it, or use a with statement. Any thread may read at any time. A child of
    fork(), and a process that gets it by pickle, opens the file for itself.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...] | None
    filters: tuple[str, ...]

    def __init__(self, file: File) -> None:
        self._files = {os.getpid(): file}  # by process
        self.uri, self.dataset = file.uri, str(file._remade["dataset"])
        self._describe()

    @property
    def _file(self) -> File:
        pid = os.getpid()
        if pid not in self._files:
            self._files[pid] = pickle.loads(pickle.dumps(next(iter(self._files.values()))))
        return self._files[pid]

    def _describe(self) -> None:
        self._kind, self.shape, self.chunks, filters = self._file._array()
        self.filters, self.dtype = tuple(filters.split()), _type_of(self._kind)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * int(self.dtype.itemsize)

    @property
    def closed(self) -> bool:
        return next(reversed(self._files.values())).closed

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self!r} has no dimensions, and so no length")
        return self.shape[0]

    def refresh(self) -> None:
        """Take the shape that the dataset has by now, and the file as it is, if another program has changed it."""
        with _lock:
            self._file._refresh()
            self._describe()

    def __getitem__(self, key: Any) -> Any:
        """Read a part as an array of numpy: integers, slices of any step, an ellipsis, and in one dimension a list of
        integers, or a mask. A chunk of which only some rows are wanted is decoded as a whole.

        Steps and lists are read through blocks of 16 MiB, or of a chunk, so that memory is bounded.
        """
        numpy: Any = importlib.import_module("numpy")
        axes, kept = self._select(key)
        out = numpy.empty([len(axis) for axis in axes], self.dtype)
        self._read(axes, out)
        dots = any(part is Ellipsis for part in key) if isinstance(key, tuple) else key is Ellipsis
        out = out[tuple(_ALL if keep else 0 for keep in kept) + (...,)]
        return out if out.ndim or dots else out[()]

    def read_into(self, out: Any, selection: Any = ()) -> int:
        """Read a part into memory that is there, and return the number of bytes.

        out: an array of numpy with the type and shape of the selection; or, if that has neither a step nor a list, any
        C-contiguous buffer with as many bytes, such as a tensor. selection: as of [], () is all.
        """
        axes, kept = self._select(selection)
        view = self._view(axes, kept, out)
        if view is None:
            return int(self._box(axes, out, False))
        self._read(axes, view)
        return int(out.nbytes)

    def read_into_async(self, out: Any, selection: Any = ()) -> Operation:
        """As read_into(), but returns an Operation at once: a thread's, if the selection has steps or a list."""
        axes, kept = self._select(selection)
        view = self._view(axes, kept, out)
        if view is not None and not (_is_box(axes) and out.flags.c_contiguous and out.size):
            return Call(lambda: self.read_into(out, selection))
        operation: Operation = self._box(axes, out, True)
        return operation

    def read_on(self, out: Any, selection: Any = (), stream: Any = None) -> Operation:
        """Read a part without steps and lists into memory of a GPU in the order of a stream, as File.read_on().

        out: with as many bytes. Ask the Operation before the result is used: an error, such as that of a damaged chunk,
        is its error, and the stream goes on.
        """
        operation: Operation = self._box(self._select(selection)[0], out, True, _stream.find(out, stream))
        return operation

    def read(self, selection: Any = (), device: Any = "cpu", *, framework: str | None = None) -> Any:
        """Read a part into a new tensor of torch on a device, in the machine's order of bytes, or an array of numpy.

        device, framework: as of load(). Parts with steps or a list are read into memory of the host first.
        """
        library = _libraries.find(device, framework)
        axes, kept = self._select(selection)
        if isinstance(library, _libraries.Numpy):
            return self[selection]
        shape = [len(axis) for axis, keep in zip(axes, kept, strict=True) if keep]
        found = self._tensor(library, shape)
        if self.dtype.isnative and _is_box(axes):
            # Memory of torch's allocator may still be used by what its stream was given before.
            self._box(axes, found, True, _stream.find(found, None) if found.is_cuda else None).wait()
            return found
        numpy: Any = importlib.import_module("numpy")
        part = numpy.empty([len(axis) for axis in axes], self.dtype)
        self._read(axes, part)
        part = part.astype(part.dtype.newbyteorder("="), copy=False)
        part = part.view("i2") if part.dtype.name == "bfloat16" else part
        return found.copy_(library.torch.from_numpy(part).view(found.dtype).reshape(shape))

    def frames(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """Read the entries of the first dimension one after the other. Those of a row of chunks are read together, and
        64 MiB in advance, or two such rows. Memory of those that the program has let go is used again.

        >>> with sluice.Writer(path + ".h5", "w") as w:
        ...     w.series("u", shape=(2,), dtype="i8", codec="none").append([1, 2])
        >>> with sluice.open_array(path + ".h5#/u") as u:
        ...     [int(frame.sum()) for frame in u.frames()]
        [3]
        """
        numpy: Any = importlib.import_module("numpy")
        wanted = range(len(self))[start:stop]
        bytes_each = self.nbytes // max(len(self), 1)
        rows = self.chunks[0] if self.chunks else 1
        rows *= max(_GAP // max(rows * bytes_each, 1), 1)
        most = max(min(rows, _BLOCK // max(bytes_each, 1)), 1)
        coming: collections.deque[tuple[Operation, Any]] = collections.deque()
        used: collections.deque[Any] = collections.deque(maxlen=2)
        at, ahead = wanted.start, 0
        try:
            while coming or at < wanted.stop:
                while at < wanted.stop and (
                    len(coming) < 2 or (ahead + most * bytes_each <= _WINDOW and len(coming) < _READS)
                ):
                    end = min(at + most, (at // rows + 1) * rows, wanted.stop)
                    block = _unused(used, end - at)
                    if block is None:
                        block = numpy.empty((end - at, *self.shape[1:]), self.dtype)
                    coming.append((self.read_into_async(block, slice(at, end)), block))
                    at, ahead = end, ahead + block.nbytes
                operation, block = coming[0]
                operation.wait()
                coming.popleft()
                ahead -= block.nbytes
                yield from block
                used.append(block)
                del block
        finally:
            _give_up(operation for operation, _ in coming)

    def __iter__(self) -> Iterator[Any]:
        return self.frames()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("an array of a file is read into new memory, which is a copy")
        found = self[...]
        return found if dtype is None else found.astype(dtype, copy=False)

    # ------------------------------------------------------------------------------------------ selections

    def _select(self, key: Any) -> tuple[list[Any], list[bool]]:
        """Return the indices in each dimension, as a range or an array, and whether the result has the dimension."""
        given = key if isinstance(key, tuple) else (key,)
        dots = [place for place, part in enumerate(given) if part is Ellipsis]
        missing = self.ndim - len(given) + len(dots)
        if missing < 0 or len(dots) > 1:
            raise IndexError(f"{self!r} has {self.ndim} dimensions: {len(given) - len(dots)} are too many"
                             if missing < 0 else "a selection has one ellipsis at most")
        place = dots[0] if dots else len(given)
        given = (*given[:place], *itertools.repeat(_ALL, missing), *given[place + len(dots) :])
        chosen = [self._axis(number, part) for number, part in enumerate(given)]
        if sum(not isinstance(axis, range) for axis, _ in chosen) > 1:
            raise IndexError("a selection has a list or a mask in one dimension at most: index twice")
        return [axis for axis, _ in chosen], [keep for _, keep in chosen]

    def _axis(self, number: int, part: Any) -> tuple[Any, bool]:
        length = self.shape[number]
        if isinstance(part, slice):
            return range(length)[part], True
        with contextlib.suppress(TypeError):
            index = operator.index([] if isinstance(part, bool) else part)
            if not -length <= index < length:
                raise IndexError(f"index {index} is not in dimension {number}, which has {length} elements")
            return range(index % length, index % length + 1), False
        numpy: Any = importlib.import_module("numpy")
        found = numpy.asarray(part)
        found = found if found.size else found.astype("i8")
        if isinstance(part, str) or found.ndim != 1 or found.dtype.kind not in "biu":
            raise IndexError(f"dimension {number} is indexed by integers, slices, a list of integers or a mask, not by "
                             f"{part!r}")
        if found.dtype.kind == "b":
            if len(found) != length:
                raise IndexError(f"a mask of {len(found)} is not of dimension {number}, which has {length} elements")
            return found.nonzero()[0], True
        if found.size and not -length <= found.min() <= found.max() < length:
            raise IndexError(f"an index is not in dimension {number}, which has {length} elements")
        return numpy.where(found < 0, found + length, found).astype("i8"), True

    def _view(self, axes: Sequence[Any], kept: Sequence[bool], out: Any) -> Any:
        """Return an array of numpy in as many dimensions as the dataset has; None: it is another buffer."""
        numpy: Any = importlib.import_module("numpy")
        if not isinstance(out, numpy.ndarray):
            return None
        shape = tuple(len(axis) for axis, keep in zip(axes, kept, strict=True) if keep)
        if out.dtype != self.dtype or out.shape != shape:
            raise ValueError(f"{self!r}: the selection is {self.dtype} {list(shape)}, and the array {out.dtype} "
                             f"{list(out.shape)}")
        return out[(*(_ALL if keep else None for keep in kept), ...)]

    def _tensor(self, library: Any, shape: Sequence[int], pinned: bool = False) -> Any:
        """Make a tensor for elements. pinned: on the host, if there is a GPU."""
        torch = library.torch
        kind = "bfloat16" if self._kind == "bfloat16" else self.dtype.name
        if not hasattr(torch, kind) or (pinned and not self.dtype.isnative):
            raise TypeError(f"{self!r}: torch {torch.__version__} has no type for {self.dtype}")
        pinned = pinned and library.device.type == "cpu" and torch.cuda.is_available()
        return torch.empty(shape, dtype=getattr(torch, kind), device=library.device, pin_memory=pinned)

    def _box(self, axes: Sequence[Any], out: Any, as_operation: bool, stream: int | None = None) -> Any:
        size = math.prod(map(len, axes)) * int(self.dtype.itemsize)
        if not _is_box(axes):
            raise TypeError(f"{self!r}: a selection with steps or a list is read into an array of numpy")
        if _core.find_memory(out)[1] != size:
            raise ValueError(f"{self!r}: the selection has {size} bytes, and the buffer {_core.find_memory(out)[1]}")
        place = tuple(axis.start for axis in axes), tuple(map(len, axes))
        return self._file._box(out, *place, as_operation, *([] if stream is None else [stream]))

    def _read(self, axes: list[Any], out: Any) -> None:
        if not out.size:
            return
        if _is_box(axes) and out.flags.c_contiguous:
            self._box(axes, out, False)
            return
        numpy: Any = importlib.import_module("numpy")
        for number, axis in enumerate(axes):  # all ascend from here on
            if isinstance(axis, range) and axis.step < 0:
                axes[number], out = axis[::-1], numpy.flip(out, number)
        coming: collections.deque[tuple[Operation, Any, Any, Any]] = collections.deque()
        ahead = 0
        try:
            for start, count, pick, place in self._blocks(axes):
                target: Any = out[place] if all(isinstance(part, slice) for part in place) else None
                direct = pick is None and target is not None and target.flags.c_contiguous
                block: Any = target if direct else numpy.empty(count, self.dtype)
                operation = self._file._box(block, start, count, True)
                coming.append((operation, block, pick, None if direct else place))
                ahead += block.nbytes
                while ahead > _WINDOW or len(coming) > _READS:
                    ahead -= _place(out, *coming[0])
                    coming.popleft()
            while coming:
                _place(out, *coming[0])
                coming.popleft()
        finally:
            _give_up(entry[0] for entry in coming)

    def _blocks(self, axes: Sequence[Any]) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Yield boxes: start and count, what is picked of each (None: all), and its place in the result."""
        groups: list[list[tuple[int, int, Any, Any]]] = []
        inner = decoded = int(self.dtype.itemsize)  # bytes of the axes behind: of the box, of its chunks
        if self.chunks:
            decoded *= math.prod(self.chunks)
        for axis, chunk in zip(reversed(axes), reversed(self.chunks or [1] * self.ndim), strict=True):
            most = max(_BLOCK // inner // chunk, 1) * chunk
            gap = min(_GAP // decoded, _GAP_CHUNKS) * chunk if self.chunks else _GAP // inner
            groups.insert(0, list(_groups(axis, max(chunk, gap), most)))
            longest = max(group[1] for group in groups[0])
            inner *= longest
            decoded *= -(-longest // chunk)
        for chosen in itertools.product(*groups):
            start, count, pick, place = zip(*chosen, strict=True)
            yield start, count, None if all(part is _ALL for part in pick) else pick, place

    # ------------------------------------------------------------------------------------------ the object

    def close(self) -> None:
        """Wait for the reads, and close the file."""
        self._file.close()

    def _discard(self) -> None:
        for file in self._files.values():
            file.discard()

    def __enter__(self) -> Array:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._file.__exit__(kind, error, trace)

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (self._file,)

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        return f"<sluice.Array {f'{self.uri}#{self.dataset}'!r}, {self.dtype} {list(self.shape)}{closed}>"


def _unused(blocks: collections.deque[Any], length: int) -> Any:
    """Take a block of which no array is in use, as its memory is there already; or return None."""
    alone = object()  # its count shows whether the interpreter counts the argument, too
    for _ in range(len(blocks)):
        block = blocks.popleft()
        if len(block) == length and sys.getrefcount(block) == sys.getrefcount(alone):
            return block
        blocks.append(block)
    return None


def _is_box(axes: Sequence[Any]) -> bool:
    return all(isinstance(axis, range) and axis.step == 1 for axis in axes)


def _groups(axis: Any, gap: int, most: int) -> Iterator[tuple[int, int, Any, Any]]:
    """Yield what is read at a time of ascending indices, or a list: start and count, the indices in it, places."""
    if not isinstance(axis, range):
        order = axis.argsort(kind="stable")
        axis = axis[order]
    at = 0
    while at < len(axis):
        first, end = int(axis[at]), at + 1
        limit = (first // most + 1) * most
        if isinstance(axis, range):
            if axis.step <= gap:
                end = at + min(-(-(limit - first) // axis.step), len(axis) - at)
            pick = _ALL if axis.step == 1 or end == at + 1 else slice(None, None, axis.step)
            yield first, axis[end - 1] + 1 - first, pick, slice(at, end)
        else:
            while end < len(axis) and axis[end] < limit and axis[end] - axis[end - 1] <= gap:
                end += 1
            yield first, int(axis[end - 1]) + 1 - first, axis[at:end] - first, order[at:end]
        at = end


def _place(out: Any, operation: Operation, block: Any, pick: Any, place: Any) -> int:
    """Wait for a block, and copy what is picked of it. Returns its bytes."""
    operation.wait()
    if place is not None:
        out[place] = block if pick is None else block[pick]
    return int(block.nbytes)


def _finish(operations: list[Operation]) -> None:
    for operation in operations:
        operation.wait()


def _give_up(operations: Iterator[Operation]) -> None:
    """End reads into memory that the caller is about to get back."""
    for operation in list(operations):
        operation.cancel()
        with contextlib.suppress(OSError):
            operation.wait()


def open_array(name: str | bytes | os.PathLike[str], dataset: str | None = None, *,
               context: _context.Context | None = None) -> Array:
    """Open a dataset of an HDF5 file, and return an Array. docs/arrays.md lists types, layouts and filters.

    name: "FILE#/DATASET", which is split at its last "#/", unless there is a local file of the whole name; or a path or
    URI, with dataset. FILE is local, or an http, https or s3 URI. No lock is taken, so a Writer, or another program,
    may be writing the file; see refresh().

    Raises OSError: of a dataset that is not there, or is damaged, and of a type, layout or filter that is not read.

    >>> with sluice.Writer(path + ".h5", "w") as w:
    ...     w.series("u", shape=(2, 3), dtype="i8").append([[1, 2, 3], [4, 5, 6]])
    >>> with sluice.open_array(path + ".h5#/u") as u:
    ...     u.shape, u[0, :, ::2]
    ((1, 2, 3), array([[1, 3],
           [4, 6]]))
    """
    path = os.fsdecode(name)
    if dataset is None:
        path, dataset = _core.split_array(path)
    if not dataset:
        raise ValueError(f"{path!r} names no dataset, as 'FILE#/DATASET' does")
    return Array(File(path, dataset=dataset, context=context))


def load(path: str, dataset: str, device: Any, *, framework: str | None = None, dtype: Any = None,
         context: _context.Context | None = None) -> Any:
    """Read a dataset as load_array() does."""
    library = _libraries.find(device, framework)
    with open_array(path, dataset, context=context) as array:
        found = array.read((), device, framework=framework)
    loaded = {"": found}
    if dtype is not None:
        library.convert(loaded, dtype, None)
    return loaded[""]


def open_array_async(name: str | bytes | os.PathLike[str], dataset: str | None = None, *,
                     context: _context.Context | None = None) -> Operation:
    """As open_array(), but returns an Operation at once, whose result is the Array."""
    return Call(lambda: open_array(name, dataset, context=context))


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
