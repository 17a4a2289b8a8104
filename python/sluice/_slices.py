# SPDX-License-Identifier: Apache-2.0
"""Slices of tensors for ranks: which part of each tensor a rank has, and what the ranks of a process read together."""

from __future__ import annotations

import copy
import fnmatch
import operator
import re
import warnings
from typing import Any, Iterable, Mapping

Slices = Mapping[str, "int | None"] | None
Ranges = tuple[tuple[int, int], ...]


class Ranks:
    """The ranks of this process, each with what the caller gave for it: a device, or tensors."""

    def __init__(
        self, given: Any, by_rank: bool, slices: Slices, even: bool, rank: int | None, ranks: int | None
    ) -> None:
        self.one = not by_rank
        if by_rank and rank is not None:
            raise ValueError("rank= is for a process with one rank, and there is a mapping by rank")
        if not by_rank and (rank is None) != (ranks is None):
            raise ValueError("rank= and ranks= go together")
        if slices is not None and not isinstance(slices, Mapping):
            raise TypeError(f"slices is a mapping from patterns of names to dimensions, and not {slices!r}")
        if not by_rank and rank is None and slices:
            raise ValueError("slices= is for ranks: a mapping from each rank to its device, or rank= and ranks=")
        self.given = {operator.index(key): value for key, value in (given if by_rank else {rank or 0: given}).items()}
        self.all = operator.index(ranks) if ranks is not None else len(self.given)
        for key in self.given:
            if not 0 <= key < self.all < 1 << 32:
                raise ValueError(f"there is no rank {key} of {self.all}")
        if not self.given:
            raise ValueError("there are no ranks")
        self._even = even
        self._patterns = []
        for pattern, dimension in (slices or {}).items():
            number = None if dimension is None else operator.index(dimension)
            if number is not None and not -(1 << 31) <= number < 1 << 31:
                raise ValueError(f"slices: no tensor has a dimension {number}, as {pattern!r} says")
            self._patterns.append((re.compile(fnmatch.translate(pattern)).match, number, pattern))

    def _dimension(self, name: str) -> int | None:
        return next((dimension for match, dimension, _ in self._patterns if match(name)), None)

    def views(self, opened: Any, names: Iterable[str]) -> list[Any]:
        """Views of open files, one for each rank, whose entries have the shapes and bytes of its slices."""
        unknown = [repr(pattern) for match, _, pattern in self._patterns if not any(map(match, opened.entries))]
        if unknown:
            warnings.warn(f"slices: no tensor is named {', '.join(unknown[:5])}", stacklevel=3)
        if not self._patterns and len(self.given) == 1:
            view = copy.copy(opened)
            view.entries = {name: opened.entries[name] for name in names}
            return [view]
        dimensions = {name: self._dimension(name) for name in names}
        return [self._view(opened, rank, dimensions) for rank in self.given]

    def _view(self, opened: Any, rank: int, dimensions: Mapping[str, int | None]) -> Any:
        view = copy.copy(opened)
        view.entries, view.ranges, view.together = {}, {}, set()
        for name, dimension in dimensions.items():
            index, kind, shape, file, offset, size = entry = opened.entries[name]
            if dimension is not None:
                view.ranges[name] = ranges = opened.core.slice(index, dimension, rank, self.all, self._even)
                length, at = shape[dimension], range(len(shape))[dimension]
                sliced = tuple(stop - start for start, stop in ranges)
                entry = (index, kind, sliced, file, offset, size * sliced[at] // length if length else 0)
                if at:
                    view.together.add(name)
            elif len(self.given) > 1:
                view.together.add(name)
            view.entries[name] = entry
        return view
