# SPDX-License-Identifier: Apache-2.0
"""Saving tensors while the program goes on: save()."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from . import _context, _core, _file, _libraries, _store, _stream
from ._operation import Call

_running: set[Save] = set()  # that the end of the interpreter awaits


class Save(Call):
    """A save in flight: wait(), done, cancel(), add_done_callback(), or await it. Its result: bytes of all files.

    If it is dropped it goes on, and the end of the interpreter waits for it.
    """

    def __init__(self, keep: list[Any], digests: str | os.PathLike[str] | None, *begin: Any) -> None:
        from . import _threads

        self._keep, self._digests = keep, digests
        calls = _threads.calls()
        calls.reserve()  # what has no thread does not begin
        try:
            self._core = _core.Save(*begin)
        except BaseException:
            calls.put(lambda: None)
            raise
        _running.add(self)
        self._future = calls.put(self._run)

    def _run(self) -> int:
        try:
            self._core.wait(-1, True)
            self._keep.clear()
            written = self._core.wait(-1, False)
            assert written is not None
            if self._digests is not None:
                text = "".join(f"{digest.hex()}  {uri}\n" for uri, digest in self._core.digests())
                with _file.open(self._digests, "w") as f:
                    f.write(text.encode())
            return written
        finally:
            self._keep.clear()
            _running.discard(self)

    def fence(self) -> None:
        """Wait until the tensors are read no more, so that they may change. Raises the error of the save."""
        while self._core.wait(50, True) is None:  # between which signals are seen
            pass

    def cancel(self) -> bool:
        """End the save early, and remove what it made; what was saved before stays. False if it is over."""
        running = not self.done
        self._core.cancel()
        return running

    def progress(self) -> tuple[int, int]:
        """The bytes that were written, and those that will be."""
        return self._core.progress()

    def __repr__(self) -> str:
        written, size = self.progress()
        return f"<sluice.Save, {written} of {size} bytes{', done' if self.done else ''}>"


os.register_at_fork(after_in_child=_running.clear)  # the threads of these are the parent's


@atexit.register
def _await_all() -> None:
    for save in list(_running):
        with contextlib.suppress(Exception):  # which nobody asked for
            save.wait()


def _snapshot(tensors: Mapping[str, Any], torch: Any) -> dict[str, Any]:
    """Return copies of tensors where they are, on their current streams, one memory once; after a look at the room."""
    index, values, where = dict[Any, int](), list[Any](), list[int]()  # by memory and layout; of each name
    sizes, groups = dict[Any, int](), dict[Any, tuple[list[Any], list[Any]]]()
    for value in tensors.values():
        plain = torch is None or not isinstance(value, torch.Tensor)
        key: Any = id(value) if plain else (value.data_ptr(), value.dtype, value.device, value.shape, value.stride(),
                                            value.is_conj(), value.is_neg())
        where.append(index.setdefault(key, len(values)))
        if where[-1] == len(values):
            values.append(value)
            if not plain and value.is_cuda:
                sizes[key[2]] = sizes.get(key[2], 0) + value.nbytes
    for device, size in sizes.items():
        _libraries.Torch(device).check_room(size)
    copies = list(values)
    for at, key in enumerate(index):
        value = values[at]
        if not isinstance(key, tuple):
            if not isinstance(value, bytes):
                copies[at] = value.copy() if hasattr(value, "copy") else importlib.import_module("numpy").array(value)
        elif value.is_cuda and value.is_contiguous() and not (key[5] or key[6]):
            copies[at] = torch.empty_like(value)
            group = groups.setdefault(key[1:3], ([], []))
            group[0].append(copies[at])
            group[1].append(value)
        else:
            copies[at] = value.detach().clone(memory_format=torch.contiguous_format)
    for group in groups.values():
        with torch.no_grad():
            torch._foreach_copy_(*group)  # few kernels for many tensors
    return {name: copies[where[i]] for i, name in enumerate(tensors)}


def _joined(streams: Mapping[str, int], torch: Any) -> Any:
    """Return a stream that waits for the work that streams of several devices have now; the host does not."""
    joined = torch.cuda.Stream(next(place for place in streams if place.startswith("cuda")))
    for place in streams:
        if place.startswith("cuda"):
            joined.wait_stream(torch.cuda.current_stream(place))
    return joined


def save(tensors: Mapping[str, Any], uri: str | bytes | os.PathLike[str], *, metadata: Mapping[str, str] | None = None,
         stream: Any = None, snapshot: str | None = None, durable: bool = True, shard_bytes: int | str = "2 GiB",
         digests: str | os.PathLike[str] | None = None, shared: str = "alias", headers: Any = None,
         context: _context.Context | None = None) -> Save:
    """Save tensors as safetensors, to a path or s3://, and return at once; the Save tells when they are stored.

    A uri that ends in ".safetensors" is one file; any other a folder, or prefix, with files of about shard_bytes and
    model.safetensors.index.json, which is replaced last: load() of it finds the old tensors or the new, all of them.

    Values, of torch or with a protocol of arrays, are read behind the work that their current stream, or the given one,
    has now; they must not change before Save.fence(). With snapshot="device" they are copied first, where they are, on
    that stream, and may change at once. durable=False: without fsync. metadata: texts, for each file. Names with the
    same memory are written once, with an alias in the metadata; shared="error" refuses them. digests: a file to be made
    at last, with the SHA-256 of each file, computed on the way, for load(verify=) and `sluice verify --check`.

    Raises MemoryError with both numbers if there is no room for a snapshot, and TypeError or ValueError that names the
    tensor: DTensor, sparse, quantized and meta tensors are refused.

    >>> sluice.save({"w": numpy.ones(3)}, folder / "w.safetensors").wait()  # doctest: +SKIP
    4120
    """
    if snapshot not in (None, "device"):
        raise ValueError(f"snapshot is None or 'device', and not {snapshot!r}")
    if shared not in ("alias", "error"):
        raise ValueError(f"shared is 'alias' or 'error', and not {shared!r}")
    torch: Any = sys.modules.get("torch")
    tensors = dict(tensors)  # a Mapping may make its values: all of them have to be there at once
    pairs = [text for pair in (metadata or {}).items() for text in pair]
    for name, value in tensors.items() if snapshot and torch is not None else ():
        if isinstance(value, torch.Tensor):
            _store.check_tensor(name, value, torch)
    with contextlib.ExitStack() as on:
        if stream is not None and torch is not None and torch.cuda.is_available():  # copies are made there
            on.enter_context(torch.cuda.stream(stream if isinstance(stream, torch.cuda.Stream) else
                                               torch.cuda.ExternalStream(_stream.number(stream))))
        rows, keep, streams = _store.rows(_snapshot(tensors, torch) if snapshot else tensors)
        if stream is not None:
            streams = dict.fromkeys(streams, _stream.number(stream))
        elif len(streams) > 1 and torch is not None:
            joined = _joined(streams, torch)  # kept until its event is recorded
            streams = {str(joined.device): joined.cuda_stream}
    place, number = next(iter(streams.items()), ("cpu", None))
    return Save(keep, digests, context or _context.default(), os.fsdecode(uri), _context.header_lines(headers), rows,
                keep, shard_bytes, pairs, shared == "alias", durable, digests is not None, place, number)
