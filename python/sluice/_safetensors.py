# SPDX-License-Identifier: Apache-2.0
"""A stand-in for safetensors: patch_safetensors() and patched().

What sluice refuses, and what it does not know, is left to safetensors: that raises its own error, or its result is
returned and a warning names what went there. A read that has failed is not tried again.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import sys
import warnings
from typing import Any, Callable

from . import _libraries, _tensor_files, _tensors

_FRAMEWORKS = ("pt", "torch", "pytorch", "np", "numpy")
_OTHERS = ("flax", "jax", "tf", "tensorflow", "paddle", "mlx")
_OURS = ("headers", "context")
_originals: dict[str, Any] = {}  # safe_open, SafetensorError, and load_file of modules
_left: dict[str, str] = {}  # to safetensors, of which a warning was given
_REFUSALS = (KeyError, ValueError, IndexError, TypeError)


@functools.cache
def _error_class(kind: Any) -> type[Exception]:
    error: type[Exception] = type(kind.__name__, (_originals["SafetensorError"], kind), {"__module__": "sluice"})
    return error


def _converted(error: Exception) -> Exception:
    """The error as one of safetensors, too."""
    if isinstance(error, (FileNotFoundError, PermissionError, _originals["SafetensorError"])):
        return error
    kind: Any = type(error)
    return _error_class(kind)(*error.args)


def _leave(what: str, call: Callable[[], Any]) -> Any:
    """Have safetensors make a call, and warn once if it can."""
    result = call()
    if what not in _left:
        _left[what] = "safetensors"
        warnings.warn(f"sluice leaves this to safetensors: {what}", RuntimeWarning, stacklevel=4)
    return result


def _is_local(filename: Any) -> bool:
    if not isinstance(filename, (str, bytes, os.PathLike)):
        return False
    return os.path.exists(filename) or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", os.fsdecode(filename)) is None


class _Slice(_tensors._Slice):
    def __getitem__(self, index: Any) -> Any:
        opened: Any = self._opened
        return opened._or_original(
            f"get_slice() with an index such as {index!r}",
            lambda: super(_Slice, self).__getitem__(self._plain(index)),
            lambda original: original.get_slice(self._name)[index],
        )

    def _plain(self, index: Any) -> Any:
        """Refuse an index that safetensors may refuse."""
        index = slice(0, 0) if isinstance(index, list) and not index else index
        parts = index if isinstance(index, tuple) else (index,)
        before = parts.index(Ellipsis) if any(part is Ellipsis for part in parts) else len(parts)
        after = len(parts) - before - 1
        lengths = self._shape[:before] + ((0,) + self._shape[len(self._shape) - after :] if after >= 0 else ())
        for part, length in zip(parts, lengths, strict=True):
            if isinstance(part, slice):
                start, stop = part.start or 0, length if part.stop is None else part.stop
                if not 0 <= start <= stop <= length or (part.step is not None and part.step < 1):
                    raise IndexError(f"{self._name!r}: {part} is not in a dimension of {length}")
            elif part is not Ellipsis and type(part) is not int:
                raise TypeError(f"{self._name!r}: {part!r} is no index")
        return parts


class safe_open(_tensors.safe_open):
    """A file of tensors that sluice reads, with the calls of safetensors.safe_open."""

    _given: tuple[Any, ...]
    _other: Any

    def __new__(cls, filename: Any, framework: Any, device: Any = "cpu", **options: Any) -> Any:
        return cls._made(filename, framework, "cpu" if device is None else device, options)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    @classmethod
    def _made(cls, filename: Any, framework: Any, device: Any, options: dict[str, Any]) -> Any:
        self = object.__new__(cls)
        self._files, self._other, self._given = None, None, (filename, framework, device, options)
        if framework not in _FRAMEWORKS:
            return self._opened_by_original() if framework in _OTHERS else self._left(f"framework {framework!r}")
        for name in options:
            if name not in ("backend", *_OURS):
                return self._left(f"the option {name!r} of safe_open()")
        if options.get("backend") not in (None, "mmap", "pread"):
            return self._left(f"backend {options['backend']!r}")
        try:
            self._library = _libraries.find(device, framework)
        except (ValueError, RuntimeError, TypeError, ImportError):
            return self._left(f"device {device!r} with framework {framework!r}")
        try:
            self._files = _tensor_files.Files(filename, options.get("context"), options.get("headers"))
        except (OSError, *_REFUSALS) as error:
            if _is_local(filename):
                return self._left(str(error))
            raise _converted(error) from None
        return self

    def _opened_by_original(self) -> Any:
        filename, framework, device, options = self._given
        theirs = {name: value for name, value in options.items() if name not in _OURS}
        return _originals["safe_open"](filename, framework, device, **theirs)

    def _left(self, what: str) -> Any:
        return _leave(what, self._opened_by_original)

    def _opened(self) -> _tensor_files.Files:
        if self._files is None:
            raise _error_class(ValueError)("File is closed")
        return self._files

    def _original(self) -> Any:
        if self._other is None:
            self._other = self._opened_by_original()
        return self._other

    def _or_original(self, what: str, call: Callable[[], Any], again: Callable[[Any], Any]) -> Any:
        try:
            return call()
        except _originals["SafetensorError"]:
            raise
        except OSError as error:
            raise _converted(error) from None
        except _REFUSALS as error:
            if not _is_local(self._given[0]):
                raise _converted(error) from None
            return _leave(what, lambda: again(self._original()))

    def _known(self, kind: str) -> None:
        if isinstance(self._library, _libraries.Numpy) and kind not in _libraries.NUMPY:
            raise TypeError(f"numpy has no type for {kind}")

    def _read(self, name: str, ranges: Any, shape: Any, files: Any = None) -> Any:
        self._known((files or self._opened()).entries[name][1])
        return super()._read(name, ranges, shape, files)

    def get_tensor(self, name: str) -> Any:
        entry = self._opened().entries.get(name)
        return self._or_original(
            f"a tensor of {entry[1] if entry else name!r}",
            lambda: super(safe_open, self).get_tensor(name),
            lambda original: original.get_tensor(name),
        )

    def get_tensors(self) -> dict[str, Any]:
        def call() -> Any:
            kinds = {entry[1] for entry in self._opened().entries.values()}
            for kind in kinds:
                self._known(kind)
            return super(safe_open, self).get_tensors()

        tensors: dict[str, Any] = self._or_original(
            "a file with tensors of types that the framework lacks",
            call,
            lambda original: {name: original.get_tensor(name) for name in original.keys()},
        )
        return tensors

    def get_slice(self, name: str) -> Any:
        return self._or_original(
            f"a slice of {name!r}", lambda: _Slice(self, name), lambda original: original.get_slice(name)
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(_originals["safe_open"], name):
            raise AttributeError(f"'safe_open' object has no attribute {name!r}")
        self._opened()
        return _leave(f"safe_open().{name}", lambda: getattr(self._original(), name))

    def __exit__(self, *error: Any) -> None:
        self._files = self._other = None


def _load_file(framework: str, original: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    @functools.wraps(original)
    def load_file(filename: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        if arguments and framework == "np":
            return original(filename, *arguments, **options)  # which takes none
        opened = safe_open(filename, framework, *arguments, **options)
        if not isinstance(opened, safe_open):
            return original(filename, *arguments, **options)
        with opened:
            return opened.get_tensors()

    return load_file


def patch_safetensors() -> None:
    """Make libraries that call safetensors read by sluice: safe_open, and load_file of torch and numpy.

    Modules that have imported these functions by name before are changed as well. Other frameworks, and what sluice
    does not know, are left to safetensors, with one warning that names it; errors are its SafetensorError.

    >>> sluice.patch_safetensors()  # doctest: +SKIP
    """
    safetensors = importlib.import_module("safetensors")
    modules = {"safetensors.numpy": "np"}
    if importlib.util.find_spec("torch") is not None:
        modules["safetensors.torch"] = "pt"
    if not _originals:
        _originals.update(safe_open=safetensors.safe_open, SafetensorError=safetensors.SafetensorError)
    replaced: list[tuple[Any, Any]] = [(_originals["safe_open"], safe_open)]
    for module, framework in modules.items():
        loaded = importlib.import_module(module)
        original = _originals.setdefault(module, loaded.load_file)
        replaced.append((original, _load_file(framework, original)))
    for module_name, user in list(sys.modules.items()):
        if user is None or module_name.split(".")[0] == "sluice":
            continue
        for name, value in list(vars(user).items()) if hasattr(user, "__dict__") else ():
            for old, new in replaced:
                if value is old:
                    setattr(user, name, new)


def patched() -> dict[str, str]:
    """Say what patch_safetensors() has sluice read ("sluice"), and what is left to safetensors ("safetensors").

    What was left with a warning is among it. Empty before patch_safetensors().

    >>> sluice.patched()
    {}
    """
    if not _originals:
        return {}
    found = {f"{module}.load_file": "sluice" for module in _originals if module.startswith("safetensors.")}
    found.update({f"safetensors.safe_open, framework {name!r}": "sluice" for name in _FRAMEWORKS})
    found.update({f"safetensors.safe_open, framework {name!r}": "safetensors" for name in _OTHERS})
    return {**found, "load, save, save_file, serialize, deserialize": "safetensors", **_left}
