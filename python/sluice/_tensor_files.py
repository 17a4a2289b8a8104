# SPDX-License-Identifier: Apache-2.0
"""Open files of tensors, and which of their tensors are meant."""

from __future__ import annotations

import fnmatch
import os
from typing import Any, Callable, Iterable, Mapping, Sequence

from . import _context, _core, _slices

Path = str | bytes | os.PathLike[str]
Names = str | Iterable[str] | Callable[[str], bool] | None


class Files:
    """Open files of tensors; entries: by name (index, type, shape, file, offset, bytes)."""

    ranges: Mapping[str, _slices.Ranges] = {}  # of the tensors that are slices
    together: frozenset[str] = frozenset()  # names that one load reads, for all ranks

    def __init__(self, files: Path | Sequence[Path], context: _context.Context | None, headers: Any) -> None:
        uris = [files] if isinstance(files, (str, bytes, os.PathLike)) else list(files)
        paths, lines = [os.fsencode(uri) for uri in uris], _context.header_lines(headers)
        self.core = _core.Tensors(context or _context.default(), paths, lines)
        self.files = self.core.files()
        self.entries = self.core.entries()

    def chosen(self, names: Names) -> list[str]:
        """Names, in the order of their bytes: given ones, patterns as of fnmatch, or those that a function accepts."""
        if names is None:
            return list(self.entries)
        if callable(names):
            return [name for name in self.entries if names(name)]
        found: dict[str, None] = {}
        for pattern in [names] if isinstance(names, str) else names:
            matches = [pattern] if pattern in self.entries else fnmatch.filter(self.entries, pattern)
            if not matches:
                raise KeyError(f"no tensor is named {pattern!r}")
            found.update(dict.fromkeys(matches))
        return sorted(found, key=lambda name: self.entries[name][0])

    def digests(self, verify: Path | Mapping[str, str] | None) -> list[bytes | None] | None:
        """For each file a digest, from hexadecimal numbers by its name, or from a file as of sha256sum."""
        if verify is None:
            return None
        if not isinstance(verify, Mapping):
            with open(verify, encoding="utf-8") as sums:
                lines = (line.split(maxsplit=1) for line in sums.read().splitlines())
                verify = {words[1].lstrip("*"): words[0] for words in lines if len(words) == 2}
        given = {os.path.basename(name): value for name, value in verify.items()}
        digests: list[bytes | None] = []
        for name, *_ in self.files:
            text = verify.get(name) or given.get(os.path.basename(name))
            if text is None:
                raise KeyError(f"there is no digest of {name!r}")
            digests.append(bytes.fromhex(text))
            if len(text) not in (32, 64):
                raise ValueError(f"{name!r}: a digest has 64 digits (SHA-256) or 32 (XXH3-128), not {len(text)}")
        return digests
