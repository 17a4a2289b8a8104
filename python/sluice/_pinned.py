# SPDX-License-Identifier: Apache-2.0
"""Collections on the host that are registered with devices, for load_into(pin=True)."""

from __future__ import annotations

import os
import sys
from typing import Any, Mapping, NamedTuple

from . import _collection, _core, _memory, _stream


class Pinned(NamedTuple):
    """A collection that load_into(pin=True) has registered with a device, or could not."""

    name: str
    device: str
    version: int
    nbytes: int
    seconds: float  # that the registration took
    reason: str | None  # why the loads go through the ring instead


class _Pin:
    """A registration, which ends when nothing has this object: a thread may copy while another unpins."""

    def __init__(self, store: Any, name: str, device: str) -> None:
        self.version = store.stat(name).id
        self.collection: _collection.Collection | None = None
        self.entries: dict[str, Any] = {}
        self.nbytes, self.seconds, self.reason = 0, 0.0, None
        try:
            self.collection = found = _collection.Collection(store, name, 0, None, "dlpack", register=device)
            self.version, self.entries = found.version, {key: found._entry(key) for key in found}
            self.nbytes, ns = found._registered(device)
            self.seconds = ns / 1e9
        except FileNotFoundError:
            raise
        except OSError as error:
            self.reason, self.collection = str(error), None

    def serves(self, device: str) -> bool:
        try:
            return self.collection is None or bool(self.collection._registered(device))
        except (OSError, ValueError):
            return False


_pins: dict[tuple[int, str | None, str, str], _Pin] = {}  # by process, daemon, name and device


def _here() -> tuple[int, str | None]:
    return os.getpid(), os.environ.get("SLUICE_STORE")


def _find(store: Any, name: str, device: str) -> _Pin:
    """The pin of a collection for a device; drops those of collections that have been replaced or deleted."""
    for key, pin in list(_pins.items()):
        if key[:2] == _here():
            try:
                current = store.stat(key[2]).id == pin.version
            except FileNotFoundError:
                current = False
            if not current:
                _pins.pop(key, None)
    for key, pin in list(_pins.items()):
        if key[:3] == (*_here(), name) and pin.serves(device):
            return pin
    pin = _pins[(*_here(), name, device)] = _Pin(store, name, device)
    return pin


def load_into(tensors: Mapping[str, Any], uri: Any, stream: Any, match: Any) -> list[str] | None:
    """Copy straight from a collection on the host; None: that cannot be, and pinned() says why."""
    name = uri[8:] if isinstance(uri, str) and uri.startswith("store://") else ""
    if not name or "?" in name:
        raise ValueError(f"pin=True is for a collection, 'store://NAME', not {uri!r}")
    store = _collection._store_of(None)
    found = {key: _core.find_memory(tensor) for key, tensor in tensors.items()}
    devices = {device for _, size, device in found.values() if size}
    pins = {device: _find(store, name, device) for device in devices - {"cpu"}}
    if not pins or "cpu" in devices or any(pin.collection is None for pin in pins.values()):
        return None
    entries = next(iter(pins.values())).entries
    names: list[str] = match(tensors, entries)
    number = None if stream is None else max((_stream.find(tensors[key], stream) for key in names), default=0)
    torch = sys.modules.get("torch")
    for key in names:
        if found[key][1] and (torch is None or not isinstance(tensors[key], torch.Tensor)):
            _memory.find(tensors[key], True)  # which refuses what is read-only
        if found[key][1] != entries[key][5]:
            raise ValueError(f"{key!r} has {entries[key][5]} bytes, its destination {found[key][1]}")
    for device, pin in pins.items():
        rows = [(entries[key][0], found[key][0]) for key in names if found[key][2] == device]
        if pin.collection is not None:
            pin.collection._copy_to(rows, number)
    return names


def pinned() -> list[Pinned]:
    """What load_into(pin=True) has registered, and what it could not."""
    return [Pinned(key[2], key[3], pin.version, pin.nbytes, pin.seconds, pin.reason)
            for key, pin in list(_pins.items()) if key[:2] == _here()]


def unpin(name: str | None = None) -> None:
    """Let go of what load_into(pin=True) has registered: of a collection, "m" or "store://m", or of all."""
    for key in list(_pins):
        if key[:2] == _here() and name in (None, key[2], f"store://{key[2]}"):
            _pins.pop(key, None)
