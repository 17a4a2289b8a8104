# SPDX-License-Identifier: Apache-2.0
"""The store: named arrays that processes of a machine share without a copy."""

from __future__ import annotations

import collections
import contextlib
import errno
import importlib
import math
import mmap
import numbers
import operator
import os
import re
import select
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

from . import _context, _core, _libraries, _memory, _stream
from ._operation import Call

if TYPE_CHECKING:
    import asyncio

_REPLACE, _TRANSIENT = 1 << 5, 1 << 6  # of enum sluice_blob_flags
_STATES = {1: "created", 2: "sealed", 3: "dying", 4: "spilled"}
_KINDS = {1: "created", 2: "sealed", 3: "deleted", 4: "lost"}
_WORDS = {name: word for word, name in _libraries.TORCH.items()}


def _replacing(replace: bool | int) -> tuple[int, int]:
    """Flags and the id that is to be replaced, for False, True (of numpy, too) or an id."""
    is_id = isinstance(replace, numbers.Integral) and not isinstance(replace, bool)
    if isinstance(replace, str) or (is_id and replace <= 0):
        raise ValueError(f"replace is False, True or the id of a blob, and not {replace!r}")
    return (0, operator.index(replace)) if is_id else (bool(replace) * _REPLACE, 0)


def _origin(origin: str | None, context: _context.Context | None, needed: bool, device: Any = None) -> Any:
    """What _core takes as an origin; None: there is none."""
    uri = os.environ.get("SLUICE_STORE_ORIGIN") if origin is None else os.fsdecode(origin)
    if not uri and needed:
        raise ValueError("there is no origin: origin='s3://bucket/prefix', or $SLUICE_STORE_ORIGIN")
    return (context or _context.default(), origin and uri, place(device)) if uri else None


class BlobInfo(NamedTuple):
    """A blob that is not held, as list() and stat() describe it.

    state: "created", "sealed", "dying" or "spilled". holders: processes that hold it, in stat(); 0 in list().
    device: as in Blob. user, process: of its maker. made_ns: time of the seal, nanoseconds since 1970.
    """

    name: str
    id: int
    nbytes: int
    device: str
    state: str
    transient: bool
    holders: int
    user: int
    process: int
    made_ns: int


_Infos = list[BlobInfo]


class Event(NamedTuple):
    """An event of a watch. kind: "created", "sealed", "deleted", or "lost": events are missing, so list again."""

    kind: str
    name: str
    id: int
    nbytes: int


def _word(dtype: Any, name: str) -> str:
    """The word of safetensors for a type of torch, numpy or ml_dtypes, or a name of one."""
    text = dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.")
    if text in _libraries.TORCH:
        return text
    if text not in _WORDS and dtype is not None:  # that is float64 for numpy
        with contextlib.suppress(TypeError):
            found = importlib.import_module("numpy").dtype(dtype)
            text = found.name if found.isnative else found.str
    if text not in _WORDS:
        raise TypeError(f"blob {name!r}: elements of a blob are not {dtype!r}")
    return _WORDS[text]


def _milliseconds(timeout: float | None) -> int:
    if timeout is None:
        return -1
    if not timeout >= 0:
        raise ValueError(f"a timeout is seconds from 0, or None, and not {timeout!r}")
    return math.ceil(min(timeout * 1000, 2**31 - 1))


def place(device: Any) -> str:
    """The name of a device that is a number, a name, of torch, or None."""
    return f"cuda:{device}" if isinstance(device, int) else str(device or "cpu")


class Exported:
    """Memory in the store, for libraries that take it by DLPack or, as bytes, by interfaces of arrays."""

    if TYPE_CHECKING:

        @property
        def device(self) -> str: ...
        def _dlpack(self, versioned: bool) -> Any: ...
        def _interface(self) -> dict[str, Any]: ...

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError(f"{self!r} stays where it is, and is not copied")
        return self._dlpack(max_version is not None and max_version[0] >= 1)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, _, number = self.device.partition(":")
        return {"cpu": 1, "cuda": 2}.get(kind, 12), int(number or 0)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The bytes, for libraries of GPUs."""
        if self.device == "cpu":
            raise AttributeError(f"{self!r} is in the memory of the host")
        return self._interface()


class _Private(mmap.mmap):
    """Memory of a blob, copied page by page when it is written to."""

    blob: memoryview


class Blob(_core.Blob, Exported):
    """An array in the store, made by Store.create(), put() or get().

    On the host it is a buffer of bytes, writable until seal() and read-only then. numpy(), torch(), __dlpack__ and,
    on a device, __cuda_array_interface__ give its elements without a copy. The bytes live as long as this object
    and each view of them.

    A sealed blob is mapped for reading only: a library that ignores this and writes to its memory in place, as torch
    does, ends the process (SIGSEGV). Pass copy=True to write to an array of your own, or copy="on-write", which
    copies a page when it is first written to.

    With a `with` statement it is sealed at the end, if it was not, and released; after an exception it disappears.

    >>> with store.create("squares", (2, 2), "int64") as blob:  # doctest: +SKIP
    ...     blob.numpy()[:] = [[0, 1], [4, 9]]
    """

    @property
    def nbytes(self) -> int:
        """Its bytes; those of an array without elements have 1."""
        return self._describe()[1]

    @property
    def id(self) -> int:
        """Its number, the same in each process and never used again; 0 before the seal."""
        return self._describe()[2]

    @property
    def sealed(self) -> bool:
        return self._describe()[3]

    @property
    def device(self) -> str:
        """Where it is: "cpu", or a device such as "cuda:0"."""
        return self._describe()[4]

    @property
    def dtype(self) -> str | None:
        """The type of its elements, as of torch ("float32"); None: it is bytes that another program has put."""
        word = self._describe()[5]
        return None if word is None else _libraries.TORCH[word]

    @property
    def shape(self) -> tuple[int, ...]:
        found = self._describe()
        return found[6] if found[5] else (found[1],)

    def _layout(self) -> tuple[str, tuple[int, ...], tuple[int, ...], int]:
        """Type, shape, strides in elements, and offset in bytes."""
        _, size, _, _, _, word, shape, strides, offset = self._describe()
        return ("U8", (size,), (1,), 0) if word is None else (word, shape, strides, offset)

    def _memory(self, copy: Any) -> Any:
        if copy not in (False, True, "on-write"):
            raise ValueError(f'copy is False, True or "on-write", and not {copy!r}')
        if copy != "on-write":
            return memoryview(self)
        fd, offset = self._open()
        try:
            private = _Private(fd, self.nbytes, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE, offset=offset)
        finally:
            os.close(fd)
        private.blob = memoryview(self)
        return private

    def numpy(self, copy: bool | str = False) -> Any:
        """An array of numpy on the bytes of a blob on the host; copy: see the class.

        Types that numpy lacks are those of ml_dtypes, or unsigned integers.

        >>> store.get("squares").numpy()  # doctest: +SKIP
        array([[0, 1],
               [4, 9]])
        """
        library = _libraries.Numpy()
        word, shape, strides, offset = self._layout()
        dtype = library.dtype(word)
        exported = library.numpy.frombuffer(self._memory(copy), "u1")  # ndarray() would not keep the export
        array = library.numpy.ndarray(shape, dtype, exported, offset, [n * dtype.itemsize for n in strides])
        return array.copy() if copy is True else array

    def torch(self, copy: bool | str = False) -> Any:
        """A tensor of torch on the bytes of the blob; copy: see the class.

        >>> store.get("squares").torch(copy=True).add_(1)  # doctest: +SKIP
        tensor([[ 1,  2],
                [ 5, 10]])
        """
        torch, on_host = _libraries.Torch("cpu"), self.device == "cpu"
        if copy == "on-write" and not on_host:
            raise BufferError(f"blob {self.name!r} is on {self.device}, where no memory is copied on a write")
        if self.sealed and copy != "on-write" and self.dtype is not None:
            tensor = torch.torch.from_dlpack(self)
        else:
            word, shape, strides, offset = self._layout()
            size = 0 if 0 in shape else 1 + sum((n - 1) * m for n, m in zip(shape, strides, strict=True))
            tensor = torch.torch.frombuffer(self._memory(copy), dtype=torch.dtype("U8")) if on_host else (
                torch.torch.as_tensor(self, device=self.device))
            tensor = tensor[offset : offset + size * torch.dtype(word).itemsize]
            tensor = tensor.view(torch.dtype(word)).as_strided(shape, strides)
        return tensor.clone() if copy is True else tensor

    def _interface(self) -> dict[str, Any]:
        address, size, _, sealed, *_ = self._describe()
        return {"shape": (size,), "typestr": "|u1", "data": (address, sealed), "version": 3}

    def __len__(self) -> int:
        return self.nbytes

    def __enter__(self) -> Blob:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None and not self.sealed:
                self.seal()
        finally:
            self.release()

    def __reduce__(self) -> Any:
        raise TypeError(f"blob {self.name!r} cannot be pickled: send its name, and get() it there")

    def __repr__(self) -> str:
        try:
            _, size, _, sealed, device, *_ = self._describe()
        except (TypeError, ValueError) as error:
            return f"<sluice.Blob: {error}>"
        state = "" if sealed else ", not sealed"
        return f"<sluice.Blob {self.name!r}: {self.dtype} {list(self.shape)}, {size} bytes on {device}{state}>"


class Watch(_core.Watch):
    """Events of blobs, from Store.watch(): an async iterator, for a task at a time, and next() without asyncio."""

    def __init__(self, store: _core.Store, prefix: str) -> None:
        super().__init__(store, prefix)
        self._events: collections.deque[Event] = collections.deque()
        # A drain whose task was cancelled goes on in its thread, beside that of the next task.
        self._draining = threading.Lock()
        self._closed = False
        self._woken: asyncio.Future[None] | None = None

    def _drain(self) -> None:
        """Take the events that are there; waits only while a server that is gone is looked for."""
        with self._draining:
            while (event := self._take()) is not None:
                self._events.append(Event(_KINDS[event[0]], *event[1:]))

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def next(self, timeout: float | None = None) -> Event:
        """Wait for the next event, timeout seconds at most; None: for ever. Raises TimeoutError."""
        return self._next(timeout)

    def _next(self, timeout: float | None, stop: int | None = None) -> Event:
        """As next(); ECANCELED when the descriptor `stop` is readable."""
        poll = select.poll()
        for fd in (self.fileno(), stop):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        if not self._events:
            self._drain()
        while not self._events:
            ready = poll.poll(_milliseconds(timeout))
            if not ready:
                raise TimeoutError("no event came in time")
            if (stop, select.POLLIN) in ready:
                raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
            self._drain()
        return self._events.popleft()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Event:
        import asyncio

        loop = asyncio.get_running_loop()
        while not self._events and not self._closed:
            await Call(self._drain)
            if self._events or self._closed:
                break
            if self._woken is not None:
                raise RuntimeError("another task waits for the next event of this watch")
            self._woken = loop.create_future()
            loop.add_reader(self.fileno(), self._wake)
            try:
                await self._woken
            finally:
                self._woken = None
                loop.remove_reader(self.fileno())
        if self._closed:
            self._close()
            raise StopAsyncIteration
        return self._events.popleft()

    def close(self) -> None:
        """End the iteration, in the thread of its event loop, and the watch."""
        self._closed = True
        if self._woken is None:
            self._close()
        self._wake()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()


class Store(_core.Store):
    """Named arrays in memory that the processes of a machine share; the daemon sluiced keeps it.

    path: of the daemon's socket; None: $SLUICE_STORE, or $XDG_RUNTIME_DIR/sluice.sock. Raises FileNotFoundError or
    ConnectionRefusedError if no daemon listens there. Any thread may use a store. A child of fork() opens its own.

    device: "cpu" (None, too), or a device, such as "cuda:0" or a device of torch. replace: the blob takes the name
    from another; with an id (Blob.id) from that blob alone: if another or none has the name when it is sealed, nothing
    changes, and OSError is raised (errno.ESTALE). transient: the blob lives as long as a process holds it. An error
    names the blob.

    >>> store = sluice.Store()  # doctest: +SKIP
    >>> store.put("squares", numpy.square(numpy.arange(4)))  # doctest: +SKIP
    <sluice.Blob 'squares': int64 [4], 32 bytes on cpu>
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(None if path is None else os.fsdecode(path))
        self._path = path

    def create(self, name: str, shape: int | Sequence[int], dtype: Any, device: Any = None, *,
               replace: bool | int = False, transient: bool = False) -> Blob:
        """Make a blob with undefined contents, to be filled and sealed; others see it from its seal on.

        dtype: of numpy, torch or ml_dtypes, or a name such as "bfloat16". The seal raises FileExistsError if the name
        is taken then.
        """
        if name == "":
            raise ValueError("the name of a blob is empty")
        lengths = _memory.lengths(shape)
        if min(lengths, default=0) < 0:
            raise ValueError(f"blob {name!r}: a length of {lengths} is negative")
        word = _word(dtype, name)
        where = place(device)
        size = math.prod(lengths) * (int(re.sub(r"^\D+|_.*", "", word) or 8) // 8)
        flags, replaced = _replacing(replace)
        flags |= transient * _TRANSIENT
        return Blob(self, name, 0, (max(size, 1), None if where == "cpu" else where, flags, replaced, word, lengths))

    def put(self, name: str, array: Any, device: Any = None, *,
            replace: bool | int = False, transient: bool = False) -> Blob:
        """Copy an array, a tensor or bytes into a new blob, where it is or to a device, and seal it."""
        word, shape, array, stream = _array(array, name)
        device = _core.find_memory(array)[2] if device is None else device
        blob = self.create(name, shape, word, device, replace=replace, transient=transient)
        try:
            blob._fill(array, stream)
            blob.seal()
        except BaseException:
            blob.release()
            raise
        return blob

    def get(self, name: str, timeout: float | None = 0) -> Blob:
        """Get a sealed blob; wait until it is made and sealed, timeout seconds at most, or for ever (None).

        Raises FileNotFoundError (timeout=0) or TimeoutError.
        """
        return Blob(self, name, _milliseconds(timeout), None)

    def push(self, name: str, origin: str | None = None, *, exclusive: bool = False,
             context: _context.Context | None = None) -> None:
        """Upload a blob, or a collection as one .safetensors file, as the object origin/name, "s3://bucket/name".

        origin: None: $SLUICE_STORE_ORIGIN. exclusive: FileExistsError is raised if the object exists.
        """
        self._push(name, _origin(origin, context, True), exclusive)

    def refresh(self, name: str, origin: str | None = None, *, context: _context.Context | None = None) -> int:
        """Ask once whether the object that a blob or a collection was fetched from has changed, and fetch it if so.

        Returns the id of what has the name then. What was published here, or fetched from another origin, stays.
        origin: None: the one that it was fetched from. Raises FileNotFoundError.
        """
        return self._refresh(name, (context or _context.default(), origin, "cpu"))

    def stat(self, name: str) -> BlobInfo:
        """Describe a blob without getting it. Raises FileNotFoundError."""
        return _info(self._rows(name)[0][0])

    def list(self, prefix: str = "") -> _Infos:
        """Describe the blobs with names that begin with prefix, in no order."""
        found: list[BlobInfo] = []
        rows, cursor = self._rows(prefix, 0)
        while rows:
            found += map(_info, rows)
            rows, cursor = self._rows(prefix, cursor)
        return found

    def watch(self, prefix: str = "") -> Watch:
        """Watch blobs with names that begin with prefix, from now on.

        >>> async for event in store.watch("camera/"):  # doctest: +SKIP
        ...     print(event.kind, event.name)
        """
        return Watch(self, prefix)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return Store, (self._path,)


def _info(row: tuple[Any, ...]) -> BlobInfo:
    name, number, size, device, state, flags, *rest = row
    return BlobInfo(name, number, size, device, _STATES[state], bool(flags & _TRANSIENT), *rest)


def _row(name: str, value: Any, streams: dict[str, int]) -> tuple[Any, ...]:
    """Type, shape, place and address of an array, and what keeps it; adds the stream of its device."""
    word, shape, array, found = _array(value, name)
    address, _, place = _core.find_memory(array)
    if found is not None:
        streams[place] = found
    return word, tuple(shape), place, address, array


def check_tensor(name: str, value: Any, torch: Any) -> None:
    """Raise TypeError for a tensor of torch that has no plain memory."""
    distributed, what = sys.modules.get("torch.distributed.tensor"), ""
    if distributed is not None and isinstance(value, distributed.DTensor):
        what = "a DTensor: save its local part, value.to_local(), or all of it, value.full_tensor()"
    elif value.is_nested:
        what = "nested"
    elif value.layout != torch.strided:
        what = f"sparse ({value.layout})"
    elif value.is_quantized:
        what = "quantized"
    elif not (value.is_cuda or value.is_cpu):
        what = f"on {value.device}"
    if what:
        raise TypeError(f"tensor {name!r} is {what}")


def rows(tensors: dict[str, Any], place: str | None = None) -> tuple[bytearray, list[Any], dict[str, int]]:
    """Rows of tensors, what keeps their memory, and streams with work on them, by place. place: for all rows."""
    torch: Any = sys.modules.get("torch")
    found, keep, streams = bytearray(), list[Any](), dict[str, int]()
    kinds, capsule = dict[type, Any](), getattr(getattr(torch, "_C", None), "_to_dlpack", None)
    if capsule is not None:  # there may be thousands of these
        kinds = {kind: getattr(kind, "__dlpack_c_exchange_api__", None) for kind in (torch.Tensor, torch.nn.Parameter)}
    at = 0
    while left := _core.plain_rows(tensors, at, kinds, capsule, streams, place, found, keep):
        at, name, value = left
        if torch is None or not isinstance(value, torch.Tensor):
            word, shape, there, address, array = _row(name, value, streams)
        else:
            check_tensor(name, value, torch)
            array = value.detach()
            if not array.is_contiguous() or array.is_conj() or array.is_neg():
                array = array.resolve_conj().resolve_neg().contiguous()
            (word, shape), there, address = _elements(array, name), str(array.device), array.data_ptr()
            if array.is_cuda and there not in streams:
                streams[there] = torch.cuda.current_stream(array.device).cuda_stream
        keep.append(array)
        _core.add_row(found, name, word, shape, place or there, address)
    return found, keep, streams


def settle(streams: dict[str, int]) -> dict[str, int]:
    """The same if there is one stream; the work of several devices is waited for, where it is torch's."""
    torch = sys.modules.get("torch")
    if len(streams) < 2 or torch is None:
        return streams
    for place in streams:
        if place.startswith("cuda"):
            torch.cuda.current_stream(place).synchronize()
    return {}


def _elements(tensor: Any, name: str) -> tuple[str, tuple[int, ...]]:
    """Type and shape of a tensor of torch, whose element of 4 bits is two of F4."""
    word, shape = _word(tensor.dtype, name), tuple(tensor.shape)
    return word, (*shape[:-1], 2 * shape[-1]) if word == "F4" and shape else shape


def _array(array: Any, name: str) -> tuple[str, tuple[int, ...], Any, int | None]:
    """Type, shape, the array C-contiguous, and the stream that has been given work on it, or None."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        array = array.detach().resolve_conj().resolve_neg().contiguous()
        return *_elements(array, name), array, _stream.find(array, None) if array.is_cuda else None
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _word(interface["typestr"], name), tuple(interface["shape"]), array, interface.get("stream")
    if isinstance(array, (bytes, bytearray, memoryview)):
        view = memoryview(array)
        if view.format == "B":
            return "U8", view.shape or (), view if view.c_contiguous else view.tobytes(), None
    numpy = importlib.import_module("numpy")
    array = numpy.asarray(array, order="C")
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return _word(native.dtype, name), native.shape, native, None
