# SPDX-License-Identifier: Apache-2.0
"""Contexts: settings and threads, which the files of a process share."""

from __future__ import annotations

import functools
import os
import platform
import sys
import threading
import weakref
from typing import Any, Mapping, Sequence, TextIO

from . import _core

# Certificates, where the library's own default may be another system's.
_CA_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")

# Settings that are names in the text `tune`.
_TUNED = (
    "reactors", "reactor_depth", "piece_bytes", "operation_depth", "inline_bytes", "bounce_bytes", "slot_bytes",
    "slots", "cufile_threads", "cufile_streams", "http_reactors", "http_gap_bytes", "http_backoff_max_ms",
    "s3_copy_bytes",
)  # fmt: skip


def _ca_bundle() -> str | None:
    if os.environ.get("SLUICE_CA_BUNDLE"):
        return None
    named = os.environ.get("SSL_CERT_FILE")
    return named or next((path for path in _CA_BUNDLES if os.path.exists(path)), None)


def header_lines(headers: Mapping[str, str] | Sequence[str] | None) -> list[str]:
    """Return the headers of requests as lines."""
    if isinstance(headers, (str, bytes)):
        raise TypeError('headers are a mapping, or a list of lines such as ["Name: value"], and not a text')
    if isinstance(headers, Mapping):
        return [f"{name}: {value}" for name, value in headers.items()]
    return list(headers or ())


class Context(_core.Context):
    """Settings and threads of its own, for files that are opened with it.

    The settings are the fields of struct sluice_config, and the names that its `tune` has: numbers, texts,
    and sizes such as "64 MiB". Those that are not given come from the environment (SLUICE_WORKERS for
    workers), else they have their defaults.
    Raises OSError for a value that is wrong, TypeError for a name that is.

    >>> context = sluice.Context(workers=2, piece_bytes="256 KiB")
    >>> sluice.open(path, context=context).size
    5
    """

    def __init__(self, **settings: int | str | bool | None) -> None:
        given = {"ca_bundle": _ca_bundle(), **settings}
        for name in _TUNED:
            value = given.pop(name, None)
            if value is None or (value == 0 and not isinstance(value, bool)):
                continue  # the default, as for the fields
            number = int(value) if isinstance(value, bool) else value
            if not isinstance(number, (int, str)) or "," in str(number):
                raise TypeError(f"{name} is a number or a text without a comma")
            given["tune"] = f"{given.get('tune') or ''},{name}={number}"
        super().__init__(**given)
        self._given = settings

    def __repr__(self) -> str:
        shown = {**self._given, **({"http_bearer": "..."} if "http_bearer" in self._given else {})}
        return f"sluice.Context({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Context, **self._given), ()


_lock = threading.Lock()
_settings: dict[str, Any] = {}
_default: Context | None = None
_unpickled: weakref.WeakValueDictionary[str, Context] = weakref.WeakValueDictionary()


def configure(**settings: int | str | bool | None) -> None:
    """Set the settings of the context that open() uses by default, as in Context.

    Files that are open keep the settings that they were opened with.

    >>> sluice.configure(workers=4)
    """
    global _default, _settings
    made = Context(**settings)
    with _lock:
        _default, _settings = made, settings


def default() -> Context:
    """Return the context that open() uses, which is made at its first use."""
    global _default
    with _lock:
        if _default is None:
            _default = Context(**_settings)
        return _default


def with_settings(settings: dict[str, Any]) -> Context:
    """Return a context with the settings of another process for a file of it: the default one, if it has them."""
    made = default()
    if made._given != settings:
        made = _unpickled.get(repr(settings)) or Context(**settings)
        _unpickled[repr(settings)] = made
    return made


def doctor(file: TextIO | None = None) -> None:
    """Print the versions, the features of this machine, and the settings that are not defaults.

    >>> sluice.doctor()  # doctest: +ELLIPSIS
    sluice ...
    """
    out = file or sys.stdout
    print(f"sluice {_core.version}, Python {platform.python_version()}, {_core.__file__}", file=out)
    for name, usable, found, effect, remedy in default().features():
        print(f"{'ok' if usable else '--'}  {name}: {found}. {effect}", file=out)
        if remedy:
            print(f"    {remedy}", file=out)
    for variable, value, source, _, _ in default().settings():
        if source != "default":
            print(f"    {variable}={value} ({source})", file=out)


def _after_fork() -> None:
    """The parent's contexts are of no use to a child, which makes its own with the same settings."""
    global _default, _lock
    _default = None
    _unpickled.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
