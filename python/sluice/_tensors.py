# SPDX-License-Identifier: Apache-2.0
"""Tensors in files: load(), load_into(), and a stand-in for safe_open() of safetensors."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import itertools
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence, overload

from . import _arrays, _blocks, _context, _core, _libraries, _pinned, _slices, _stream, _tensor_files
from ._tensor_files import Names, Path

if TYPE_CHECKING:
    from types import TracebackType

# Bytes that are on their way while memory for the next ones is allocated: at first, and later.
_FIRST_BATCH, _BATCH = 64 << 20, 1 << 30
_ATTEMPTS = 3  # to load what an index names
_Places = Mapping[str, tuple[int, int]]  # addresses and bytes of tensors by name


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Make thousands of tensors without the collector of cycles, which would look at all objects for them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# ----------------------------------------------------------------------------------------------- load

def _finish(loads: list[_core.Load], on_stream: bool) -> None:
    """Wait for loads; those in stream order on a thread, on which threading.excepthook reports a failure."""
    if on_stream:
        threading.Thread(target=_finish, args=(loads, False), name="sluice-load", daemon=True).start()
        return
    for load in loads:
        load.wait(-1)


def _allocate(
    files: _tensor_files.Files, names: list[str], library: _libraries.Library, blocks: bool
) -> Iterator[tuple[dict[str, Any], _Places, list[Any]]]:
    """Batches of tensors by name, each with their places and the tensors that have its memory."""
    entries = files.entries
    for some in _batches(names, entries):
        divided = list(_blocks.divided(some, entries)) if blocks and isinstance(library, _libraries.Torch) else []
        small = {name for block, _ in divided for name in block}
        alone = [name for name in some if name not in small]
        sizes = [entries[name][5] for name in alone] + [size for _, size in divided]
        library.reserve(size for size in sizes if size > _blocks.SMALL)
        batch, places, owners = dict.fromkeys(some), {}, []
        for block, size in divided:
            found, at, owner = _blocks.tensors(library, block, size, entries)
            batch.update(found)
            places.update(at)
            owners.append(owner)
        for name in alone:
            try:
                batch[name] = library.empty(*entries[name][1:3])
            except ValueError as error:
                raise ValueError(f"{name!r}: {error}") from None
            places[name] = library.place(batch[name])
            owners.append(batch[name])
        yield batch, places, owners


def _batches(names: list[str], entries: Mapping[str, Any]) -> Iterator[list[str]]:
    batch: list[str] = []
    taken, limit = 0, _FIRST_BATCH
    for name in names:
        batch.append(name)
        taken += -(-entries[name][5] // 512) * 512
        if taken >= limit:
            yield batch
            batch, taken, limit = [], 0, min(2 * limit, _BATCH)
    yield batch


@overload
def load(files: Path | Sequence[Path], device: Mapping[int, Any], **options: Any) -> dict[int, dict[str, Any]]: ...
@overload
def load(
    files: Path | Sequence[Path],
    device: Any = "cpu",
    *,
    stream: Any = None,
    names: Names = None,
    dtype: Any = None,
    verify: Path | Mapping[str, str] | None = None,
    allocate: str = "blocks",
    framework: str | None = None,
    slices: _slices.Slices = None,
    even: bool = False,
    rank: int | None = None,
    ranks: int | None = None,
    headers: Mapping[str, str] | Sequence[str] | None = None,
    context: _context.Context | None = None,
) -> dict[str, Any]: ...
def load(  # type: ignore[misc]
    files: Path | Sequence[Path],
    device: Any = "cpu",
    *,
    stream: Any = None,
    names: Names = None,
    dtype: Any = None,
    verify: Path | Mapping[str, str] | None = None,
    allocate: str = "blocks",
    framework: str | None = None,
    slices: _slices.Slices = None,
    even: bool = False,
    rank: int | None = None,
    ranks: int | None = None,
    headers: Mapping[str, str] | Sequence[str] | None = None,
    context: _context.Context | None = None,
) -> Any:
    """Read tensors from safetensors, .npy or .npz files, or an index of files, and return them by name.

    files: a path or URI (file:, http:, https:, store:), or several. device: of torch, such as "cuda:0"; without
    torch the tensors are arrays of numpy. names: those to read, patterns as of fnmatch, or a function.
    stream: a stream of torch on which they are read, without waiting; None: they are there on return. If a read on
    a stream fails, the tensors have undefined contents, and threading.excepthook reports the error.
    dtype: that floating-point tensors are converted to. allocate: "blocks", tensors of torch of less than 1 MiB
    in blocks of 20 MiB, of which each goes with its last tensor, and all others in memory of their own; or "torch",
    all in memory of their own. verify: digests by file name, or a file of them as of sha256sum; each
    file is read as a whole and checked. headers: of requests.
    slices: for a model on several GPUs, the dimension that each tensor is divided along, by patterns of names as of
    fnmatch; the first that matches counts, None or no match is the whole tensor, and a warning names patterns that
    match no name of the files. Rank r of n has the elements from
    length * r // n to length * (r + 1) // n of it; even=True refuses lengths that n does not divide. device is a
    mapping from each rank to its device, such as {0: "cuda:0", 1: "cuda:1"}; then the result is a dict for each
    rank, and what several ranks need is read once. Or rank and ranks are given, for a process with one of them.

    Raises OSError for files that are damaged, or differ from their digest; KeyError for a name that is in no
    file; ValueError for a slice that cannot be; MemoryError if the GPU has not so much memory, before anything is read.

    >>> import numpy
    >>> numpy.savez(path + ".npz", a=numpy.arange(3))
    >>> sluice.load(path + ".npz", framework="np")
    {'a': array([0, 1, 2])}
    """
    if allocate not in ("blocks", "torch"):
        raise ValueError(f"allocate is 'blocks' or 'torch', not {allocate!r}")
    of = _slices.Ranks(device, isinstance(device, Mapping), slices, even, rank, ranks)
    libraries = [_libraries.find(where, framework) for where in of.given.values()]
    if stream is not None and not of.one:
        raise ValueError("stream= is for one device; a load for several ranks is awaited")
    for left in range(_ATTEMPTS)[::-1]:
        try:
            with _uncollected():
                opened = _tensor_files.Files(files, context, headers)
                parts = list(zip(of.views(opened, opened.chosen(names)), libraries, strict=True))
                tensors, loads = _load(parts, stream, opened.digests(verify), allocate == "blocks")
                _finish(loads, stream is not None)
            break
        except OSError as error:  # a save has replaced the index, whose name may be bytes, and removed the old files
            index = str(files).rstrip("'").endswith(".json")
            if not left or not index or error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
    if dtype is not None:
        for library, some in zip(libraries, tensors, strict=True):
            library.convert(some, dtype, stream)
    return tensors[0] if of.one else dict(zip(of.given, tensors, strict=True))


def _load(
    parts: Sequence[tuple[_tensor_files.Files, _libraries.Library]], stream: Any, digests: Any, blocks: bool
) -> tuple[list[dict[str, Any]], list[_core.Load]]:
    """Start to read tensors for each part, the first while memory for the next is allocated."""
    needs: dict[str, int] = {}
    for files, library in parts:
        where = str(getattr(library, "device", "cpu"))
        needs[where] = needs.get(where, 0) + sum(entry[5] for entry in files.entries.values())
        library.check_room(needs[where])
    tensors: list[dict[str, Any]] = [{} for _ in parts]
    places: list[dict[str, tuple[int, int]]] = [{} for _ in parts]
    kept: list[Any] = []
    loads: list[_core.Load] = []
    batches = (_allocate(files, list(files.entries), library, blocks) for files, library in parts)
    for some in itertools.zip_longest(*batches):
        for (files, library), made, all_at, given in zip(parts, tensors, places, some, strict=True):
            batch, at, owners = given or ({}, {}, [])
            made.update(batch)
            all_at.update(at)
            kept += owners
            alone = {name: place for name, place in at.items() if name not in files.together} if files.together else at
            if digests is None and alone:
                loads.append(_start([(files, library, alone)], owners, stream))
    rest = [
        (files, library, {name: at[name] for name in (files.together if digests is None else at)})
        for (files, library), at in zip(parts, places, strict=True)
    ]
    if digests is not None or any(batch for *_, batch in rest):
        loads.append(_start(rest, kept, stream, digests))
    return tensors, loads


def load_array(file: Path, device: Any = "cpu", **options: Any) -> Any:
    """Read the array of an .npy file, or of a file with a single tensor. The rest is as for load(). Or of a dataset of
    an HDF5 file, "FILE#/DATASET"; then framework, dtype and context are all options.

    >>> import numpy
    >>> numpy.save(path + ".npy", numpy.arange(3))
    >>> sluice.load_array(path + ".npy", framework="np")
    array([0, 1, 2])
    """
    path, dataset = _core.split_array(os.fsdecode(file))
    if dataset:
        return _arrays.load(path, dataset, device, **options)
    found = load(file, device, **options)
    if len(found) != 1:
        raise ValueError(f"{path!r} has {len(found)} arrays, not one: {', '.join(list(found)[:5])}")
    return found.popitem()[1]


def _start(
    parts: Sequence[tuple[_tensor_files.Files, _libraries.Library, _Places]],
    owners: list[Any],
    stream: Any,
    digests: Any = None,
) -> _core.Load:
    """Start to read batches; the owners have their memory, which they keep until it is read."""
    wants = [
        (files.entries[name][0], files.ranges.get(name), place)
        for files, _, places in parts
        for name, place in places.items()
    ]
    files, library, _ = parts[0]
    return _core.Load(files.core, wants, owners, library.stream(owners, stream), digests)


def load_into(
    tensors: Mapping[str, Any] | Mapping[int, Mapping[str, Any]],
    files: Path | Sequence[Path],
    *,
    strict: bool = True,
    tied: bool = False,
    stream: Any = None,
    pin: bool = False,
    verify: Path | Mapping[str, str] | None = None,
    slices: _slices.Slices = None,
    even: bool = False,
    rank: int | None = None,
    ranks: int | None = None,
    headers: Mapping[str, str] | Sequence[str] | None = None,
    context: _context.Context | None = None,
) -> list[str]:
    """Read tensors into memory that is there, such as a state_dict, and return the names that were read.

    Each destination is a tensor of torch, or an array or buffer, with as many bytes as the tensor in the file;
    types and shapes of torch's and numpy's are compared. strict: a name that is on one side only raises KeyError.
    tied: a name that is in no file is not missed if its tensor of torch, or array, is the memory of one that is read.
    pin: of a collection on the host, "store://name": the first such call of a process registers its memory with the
    device of the tensors, which copies from there, without work of a processor. pinned() tells the time that took, or
    why it failed: then the load goes through the ring, as without pin. A registration ends with unpin(), and with the
    next such call once the collection was replaced or deleted. For several ranks tensors is a mapping from each rank to
    its tensors. The rest is as for load().

    >>> import numpy
    >>> numpy.savez(path + ".npz", a=numpy.arange(3))
    >>> array = numpy.zeros(3, int)
    >>> sluice.load_into({"a": array}, path + ".npz"), array
    (['a'], array([0, 1, 2]))
    """
    by_rank = bool(tensors) and not any(isinstance(key, str) for key in tensors)
    of = _slices.Ranks(tensors, by_rank, slices, even, rank, ranks)
    if stream is not None and not of.one:
        raise ValueError("stream= is for one device; a load for several ranks is awaited")
    if pin:
        if verify is not None or slices or not of.one:
            raise ValueError("with pin=True whole tensors of one rank are copied, and no digests checked")

        def match(tensors: Mapping[str, Any], entries: Mapping[str, Any]) -> list[str]:
            return _match(tensors, entries, strict, tied)

        found = _pinned.load_into(of.given[rank or 0], files, stream, match)
        if found is not None:
            return list(found)
    opened = _tensor_files.Files(files, context, headers)
    known = [name for name in opened.entries if strict or any(name in some for some in of.given.values())]
    wants, names, number = [], set(), None if stream is None else 0
    for view, some in zip(of.views(opened, known), of.given.values(), strict=True):
        for name in _match(some, view.entries, strict, tied):
            names.add(name)
            wants.append((view.entries[name][0], view.ranges.get(name), some[name]))
            number = None if number is None else max(number, _stream.find(some[name], stream))
    _finish([_core.Load(opened.core, wants, None, number, opened.digests(verify))], stream is not None)
    return [name for name in opened.entries if name in names]


def _match(tensors: Mapping[str, Any], entries: Mapping[str, Any], strict: bool, tied: bool) -> list[str]:
    """The names on both sides, if the tensors are alike."""
    names = [name for name in entries if name in tensors]
    odd = sorted(set(entries) ^ set(tensors)) if strict else []
    if odd and tied:
        places = {_memory_of(tensors[name]) for name in names}
        odd = [name for name in odd if name not in tensors or _memory_of(tensors[name]) not in places]
    if odd:
        raise KeyError(f"{len(odd)} names are not both in the files and among the tensors: {', '.join(odd[:5])}")
    for name in names:
        _check_alike(name, tensors[name], entries[name])
    return names


def _memory_of(tensor: Any) -> tuple[Any, ...]:
    """The same for tensors that are one memory, read as one type and shape."""
    if hasattr(tensor, "data_ptr"):
        return tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()
    if hasattr(tensor, "ctypes"):
        return tensor.ctypes.data, tensor.dtype, tensor.shape, tensor.strides
    return (id(tensor),)


@functools.lru_cache(16)
def _torch_on(device: str) -> _libraries.Torch:
    return _libraries.Torch(device)


def _check_alike(name: str, tensor: Any, entry: tuple[Any, ...]) -> None:
    _, kind, shape, *_ = entry
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        of_torch = _torch_on(str(tensor.device))
        dtype, shape = of_torch.dtype(kind), tuple(of_torch.shape(kind, shape))
    elif type(tensor).__module__ == "numpy":
        dtype = _libraries.Numpy().dtype(kind)
    else:
        return
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        raise ValueError(
            f"{name!r} is {kind} {list(shape)} in the file, and {tensor.dtype} {list(tensor.shape)} in memory"
        )


# ------------------------------------------------------------------------------------------ safe_open


class _Slice:
    """A tensor of which a part is to be read: slice[1:3, ::2]."""

    def __init__(self, opened: safe_open, name: str) -> None:
        self._opened = opened
        self._files = opened._opened()
        self._name = name
        self._kind, self._shape = opened._entry(name)[1:3]

    def get_shape(self) -> list[int]:
        return list(self._shape)

    def get_dtype(self) -> str:
        return str(self._kind)

    def __getitem__(self, index: Any) -> Any:
        index = slice(0, 0) if isinstance(index, list) and not index else index
        given = index if isinstance(index, tuple) else (index,)
        if any(part is Ellipsis for part in given):
            at = given.index(Ellipsis)
            given = given[:at] + (slice(None),) * (len(self._shape) - len(given) + 1) + given[at + 1 :]
        if len(given) > len(self._shape):
            raise IndexError(f"{self._name!r} has {len(self._shape)} dimensions, not {len(given)}")
        ranges, shape, steps = [], [], []
        for length, part in zip(self._shape, given + (slice(None),) * (len(self._shape) - len(given)), strict=True):
            if isinstance(part, slice):
                start, stop, step = part.indices(length)
                if step < 1:
                    raise ValueError(f"{self._name!r}: a step of {step} is not read; slice the tensor instead")
                ranges.append((start, max(start, stop)))
                shape.append(max(0, stop - start))
                steps.append(slice(None, None, step))
            else:
                at = range(length)[part]
                ranges.append((at, at + 1))
        found = self._opened._read(self._name, tuple(ranges), shape, self._files)
        if all(part.step == 1 for part in steps):
            return found
        found = found[tuple(steps)]  # the rows and columns between are read, too
        return found.copy() if isinstance(self._opened._library, _libraries.Numpy) else found.contiguous()


class safe_open:
    """A file of tensors, with the calls of safetensors.safe_open.

    framework: "pt" or "np". device: as of load(). files: as of load(), also several.
    backend: of safetensors, is ignored.

    >>> with sluice.safe_open(path + ".safetensors", "np") as f:  # doctest: +SKIP
    ...     f.keys(), f.get_tensor("a"), f.get_slice("a")[:2]
    """

    def __init__(
        self,
        filename: Path | Sequence[Path],
        framework: str = "pt",
        device: Any = "cpu",
        *,
        backend: str | None = None,
        headers: Any = None,
        context: _context.Context | None = None,
    ) -> None:
        self._library = _libraries.find(device, framework)
        self._files: _tensor_files.Files | None = _tensor_files.Files(filename, context, headers)

    def _opened(self) -> _tensor_files.Files:
        if self._files is None:
            raise ValueError("the file is closed")
        return self._files

    def _entry(self, name: str) -> tuple[Any, ...]:
        try:
            return self._opened().entries[name]
        except KeyError:
            raise KeyError(f"no tensor is named {name!r}") from None

    def _read(
        self, name: str, ranges: _slices.Ranges | None, shape: Sequence[int], files: _tensor_files.Files | None = None
    ) -> Any:
        files = files or self._opened()
        index, kind, *_ = files.entries[name]
        tensor = self._library.empty(kind, shape)
        wants = [(index, ranges, self._library.place(tensor))]
        _core.Load(files.core, wants, tensor, None, None).wait(-1)
        return tensor

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return sorted(self._opened().entries)

    def offset_keys(self) -> list[str]:
        """The names of the tensors, in the order of their bytes."""
        return list(self._opened().entries)

    def metadata(self) -> dict[str, str] | None:
        """The texts in the file's header, or None."""
        merged: dict[str, str] = {}
        for *_, pairs in self._opened().files:
            merged.update(pairs)
        return merged or None

    def get_tensor(self, name: str) -> Any:
        """Read a tensor."""
        return self._read(name, None, self._entry(name)[2])

    def get_tensors(self) -> dict[str, Any]:
        """Read all tensors, and return them by name."""
        with _uncollected():
            tensors, loads = _load([(self._opened(), self._library)], None, None, False)
            _finish(loads, False)
        return tensors[0]

    def get_slice(self, name: str) -> _Slice:
        """Return an object that reads a part of a tensor when it is indexed."""
        return _Slice(self, name)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files = None
