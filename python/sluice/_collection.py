# SPDX-License-Identifier: Apache-2.0
"""Collections: the tensors of a model in the store, by one name."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Mapping
from typing import Any, Iterator, Sequence

from . import _context, _core, _libraries, _memory, _store, _stream, _tensor_files
from ._operation import Call

_stores: dict[tuple[int, str | None], _store.Store] = {}


def _store_of(store: _store.Store | None) -> _store.Store:
    """The given store, or one of this process for the usual daemon."""
    key = os.getpid(), os.environ.get("SLUICE_STORE")
    return store or _stores.get(key) or _stores.setdefault(key, _store.Store())


class _View(_store.Exported):
    """A tensor of a collection, for libraries that take memory."""

    def __init__(self, collection: Collection, entry: tuple[Any, ...]) -> None:
        self._collection, self._entry = collection, entry
        self._keeper = collection._dlpack(entry[0], False)  # the memory stays as long as this object

    @property
    def device(self) -> str:
        return str(self._entry[3])

    def _dlpack(self, versioned: bool) -> Any:
        return self._collection._dlpack(self._entry[0], versioned)

    def _interface(self) -> dict[str, Any]:
        _, _, _, _, address, size, sealed = self._entry
        return {"shape": (size,), "typestr": "|u1", "data": (address, sealed), "version": 3}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.device != "cpu":
            raise AttributeError(f"the tensor is on {self.device}")
        return self._interface()


class Collection(_core.Collection, Mapping[str, Any]):
    """Tensors by one name in the store, from publish(), collection() or attach(): a mapping from their names.

    Its values are views without a copy, of torch, numpy, or, with framework="dlpack", objects for any library.
    They keep the memory. It is mapped for reading only: a library that ignores this and writes in place, as torch does,
    ends the process (SIGSEGV), or stops the device. With copy=True each value is a copy of its own.
    """

    def __init__(self, store: _store.Store, name: str, timeout_ms: int, made: tuple[Any, ...] | None,
                 framework: str | None = None, copy: bool = False, origin: tuple[Any, ...] | None = None,
                 register: str = "cpu", at: Collection | None = None) -> None:
        if framework not in (None, "pt", "torch", "np", "numpy", "dlpack"):
            raise ValueError(f"framework {framework!r} is not 'pt', 'np' or 'dlpack'")
        super().__init__(store, name, timeout_ms, made, origin, register, at)
        self._context: _context.Context | None = origin[0] if origin else None
        self._store, self._framework, self._copy = store, framework, copy
        self._libraries: dict[str, Any] = {}
        self._dtypes: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return self._describe()[1]

    @property
    def version(self) -> int:
        """The number of what is published: another for each, never used again; 0 before the seal."""
        return self._describe()[0]

    @property
    def files(self) -> dict[str, bytes]:
        """Small files that were published with the tensors."""
        return self._files()

    def __getitem__(self, name: str) -> Any:
        entry = self._entry(name)
        if self._framework == "dlpack":
            return _View(self, entry)
        _, kind, shape, device, _, size, _ = entry
        library = self._libraries.get(device)
        if library is None:
            library = self._libraries[device] = _libraries.find(device, self._framework)
        if not size:
            return library.empty(kind, shape)
        if not isinstance(library, _libraries.Numpy):
            library.shape(kind, shape)  # raises ValueError if an element would be half of one of torch's
            tensor = library.torch.from_dlpack(self._dlpack(entry[0], False))
            return tensor.clone() if self._copy else tensor
        dtype = self._dtypes.get(kind)
        if dtype is None:
            dtype = self._dtypes[kind] = library.dtype(kind)
        array = library.numpy.asarray(_View(self, entry)).view(dtype).reshape(shape)
        return array.copy() if self._copy else array

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and bool(self._entry(name))
        except KeyError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return self._describe()[2]

    def close(self, keep: bool = False) -> None:
        """Give the collection back; arrays and tensors of it keep its memory. One that is not sealed disappears with
        the last of them.

        keep: unmap it from its device at once, whatever tensors there are, but keep the addresses, for attach(at=): the
        tensors, and graphs that were captured with them, must not be used before that. The device has to be done with
        them; this call may wait for it. Raises OSError with errno.EBUSY if this process has another Collection of the
        same memory, with errno.ENOTSUP if a part of it is on the host, or it is sealed here and not attached to.
        """
        if keep:
            self._keep()
        else:
            self._close()

    def seal(self, stream: Any = None) -> None:
        """Publish a collection that was made by collection(), behind the work of a stream if it is given.

        Raises FileExistsError if another has taken the name, and OSError as publish() does.
        """
        self._seal(None if stream is None else _stream.number(stream))

    def newer(self, timeout: float | None = None, *, origin: bool = False) -> Call:
        """Wait until another collection has the name: `await m.newer()`, or m.newer().wait(), is that one.

        timeout: seconds, or None; then TimeoutError is raised. cancel() ends the wait, and so does a program that drops
        the call, unless it has a callback. origin: ask the origin once, and fetch the object if it is another than that
        from which the collection of this name was fetched; the result is None if there is no newer.
        """
        return Call(self._refreshed) if origin else _Newer(self, timeout)

    def _refreshed(self) -> Collection | None:
        version = self._store.refresh(self.name, context=self._context)
        if version == self.version:
            return None
        found = Collection(self._store, self.name, 0, None, self._framework, self._copy)
        found._context = self._context
        return found

    def _newer(self, timeout: float | None, stop: int) -> Collection:
        name, version, end = self.name, self.version, None if timeout is None else time.monotonic() + timeout
        with self._store.watch(name) as watch:
            while True:
                with contextlib.suppress(FileNotFoundError):
                    found = Collection(self._store, name, 0, None, self._framework, self._copy)
                    found._context = self._context
                    if found.version != version:
                        return found
                    found.close()
                watch._next(None if end is None else max(end - time.monotonic(), 0), stop)

    def __enter__(self) -> Collection:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a collection cannot be pickled: send its name, and attach() to it there")

    def __repr__(self) -> str:
        try:
            number, name, _ = self._describe()
        except ValueError as error:
            return f"<sluice.Collection: {error}>"
        return f"<sluice.Collection {name!r}: {len(self)} tensors, {f'version {number}' if number else 'not sealed'}>"


class _Newer(Call):
    """A wait for another collection of a name, by a thread with a watch, until cancel() or the end of this object."""

    _process = 0  # of the thread

    def __init__(self, held: Collection, timeout: float | None) -> None:
        self._stop = stop = os.eventfd(0)
        self._call = lambda: held._newer(timeout, stop)  # the thread keeps it, too, until it is over
        weakref.finalize(self._call, os.close, stop).atexit = False
        super().__init__(self._call)
        self._process = os.getpid()

    def __del__(self) -> None:
        if self._process == os.getpid() and not self.done:  # once it is done, the descriptor may be closed
            self.cancel()

    def cancel(self) -> bool:
        running = not self.done
        os.eventfd_write(self._stop, 1)
        return running


def _make(store: _store.Store, name: str, replace: bool | int | str, files: Mapping[str, Any] | None,
          framework: str | None, device: Any = None, stream: int | None = None, copies: bool = False,
          rows: bytearray | None = None, opened: Any = None) -> Collection:
    """A collection of rows of tensors, of which the data is copied or not, or of files."""
    if isinstance(replace, str) and replace != "delete-first":
        raise ValueError(f"replace is False, True, an id or 'delete-first', and not {replace!r}")
    flags, replaced = _store._replacing(False if isinstance(replace, str) else replace)
    if not name:
        raise ValueError("a collection needs a name, by which others attach to it")
    contents = [(key, value.encode() if isinstance(value, str) else bytes(memoryview(value)))
                for key, value in (files or {}).items()]
    if isinstance(replace, str):
        with contextlib.suppress(FileNotFoundError):
            store.delete(name)
    made = flags, replaced, _store.place(device), contents, stream, copies, rows or bytearray(), opened
    return Collection(store, name, 0, made, framework)


def publish(name: str, what: Any, device: Any = None, *, replace: bool | int | str = False,
            files: Mapping[str, bytes | str] | None = None, framework: str | None = None,
            push: bool = False, origin: str | None = None, exclusive: bool = False,
            context: _context.Context | None = None, store: _store.Store | None = None) -> Collection:
    """Publish tensors in the store by one name, and return them as they are there.

    what: a mapping from names to tensors or arrays, which are copied, where they are or to a device; or files of
    tensors, as for load(), which are read straight into the store. device: "cpu" (None), or as of torch, "cuda:0".
    files: small files that go with them, such as {"config.json": text}. replace: True takes the name from the
    collection that has it, in one step, and needs memory for both; a number from version does so with that collection
    alone; "delete-first" deletes it before. push: then upload them as one .safetensors object, as Store.push() does,
    without the small files; if that fails they stay published here.

    Raises FileExistsError if the name is taken, and OSError with the numbers if there is not so much memory, or with
    errno.ESTALE if another collection than `replace` says has the name, or none: then nothing has changed.
    """
    store = _store_of(store)
    if push:
        _store._origin(origin, context, True)  # before anything is published
    if not isinstance(what, Mapping):
        opened = _tensor_files.Files(what, context, None).core
        made = _make(store, name, replace, files, framework, device, opened=opened)
    else:
        rows, keep, streams = _store.rows(dict(what), None if device is None else _store.place(device))
        stream = next(iter(_store.settle(streams).values()), None)
        made = _make(store, name, replace, files, framework, None, stream, True, rows)
        del keep  # what the addresses are of
    if push:
        store.push(name, origin, exclusive=exclusive, context=context)
    return made


def collection(name: str, tensors: Mapping[str, tuple[int | Sequence[int], Any]], device: Any = "cpu", *,
               replace: bool | int | str = False, files: Mapping[str, bytes | str] | None = None,
               framework: str | None = None, store: _store.Store | None = None) -> Collection:
    """Make a collection in the store to be written in place, and published by its seal().

    tensors: a mapping from names to (shape, dtype), with types as for Store.create(). The rest is as for publish().
    """
    rows = bytearray()
    for key, (shape, dtype) in tensors.items():
        _core.add_row(rows, key, _store._word(dtype, key), tuple(_memory.lengths(shape)), _store.place(device), 0)
    return _make(_store_of(store), name, replace, files, framework, rows=rows)


def attach(name: str, timeout: float | None = 0, *, framework: str | None = None, copy: bool = False,
           origin: str | None = None, device: Any = None, context: _context.Context | None = None,
           store: _store.Store | None = None, at: Collection | None = None) -> Collection:
    """Attach to a collection that a process has published; wait for it, timeout seconds at most, or for ever (None).

    origin: "s3://bucket/prefix"; None: $SLUICE_STORE_ORIGIN, or none. If there is one, no collection of this name, and
    timeout is not 0, the object prefix/name, a .safetensors file or an .index.json of such files, is fetched into
    memory of device, by one process of this machine; others wait for it. FileNotFoundError is raised if there is no
    object.
    framework: as for load(), or "dlpack". copy: see Collection. store: None: of the usual daemon.
    at: a Collection after close(keep=True): this one is mapped at its addresses, so that its tensors, and graphs that
    were captured with them, are those of the new one. OSError with errno.EINVAL is raised if the tensors differ in
    name, type, shape or place; then nothing has changed.
    Raises FileNotFoundError (timeout=0) or TimeoutError.

    >>> model = sluice.attach("model")  # doctest: +SKIP
    >>> model["embed.weight"].shape  # doctest: +SKIP
    torch.Size([32000, 4096])
    """
    if at is not None and (origin is not None or device is not None):
        raise ValueError("an attach at kept addresses has no origin")
    found = None if at is not None else _store._origin(origin, context, False, device)
    return Collection(_store_of(store), name, _store._milliseconds(timeout), None, framework, copy, found, at=at)
