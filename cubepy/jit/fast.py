"""The short way of repeated launches: equal metadata finds the prepared launch in one look-up.

Everything that was checked for that metadata stays true; only addresses and numbers are new, and
overlaps of addresses and captured names are checked again.
"""

from __future__ import annotations

import ctypes
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from cubepy.array.memory import pointer
from cubepy.config import get
from cubepy.frontend.calls import is_comptime_annotation
from cubepy.jit.arguments import ALIGNMENT, Matcher
from cubepy.jit.grid import Fixed, Grid
from cubepy.jit.launch import Prepared, pack

if TYPE_CHECKING:
    from cubepy.jit.kernel import CubeKernel

LIMIT = 1024
"""Prepared launches kept for a kernel; the oldest go first."""


class _Entry:
    """A prepared launch whose arguments are all NumPy arrays and numbers."""

    def __init__(self, prepared: Prepared, args: tuple[Any, ...], names: tuple[str, ...]) -> None:
        position = {name: k for k, name in enumerate(names)}
        self.prepared = prepared
        self.block_type = ctypes.c_uint64 * len(prepared.template)
        self.arrays = [(slot, position[name]) for slot, name in prepared.addresses]
        self.numbers = [(slot, position[name], name, t) for slot, name, t in prepared.numbers]
        written = prepared.compiled.facts.written
        self.extents = [
            (position[name], *_reach(args[position[name]]), name in written)
            for name in names
            if isinstance(args[position[name]], np.ndarray)
        ]


def _reach(array: np.ndarray) -> tuple[int, int]:
    """Bytes from the first element down to the lowest, and up past the highest."""
    if array.size == 0:
        return 0, 0
    spans = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    return sum(min(0, s) for s in spans), sum(max(0, s) for s in spans) + array.itemsize


class FastPath:
    """The prepared launches of one kernel."""

    def __init__(self, kernel: CubeKernel) -> None:
        self._entries: dict[Any, _Entry] = {}
        self._lock = Lock()
        self._name = kernel.__name__
        self._settings = kernel.settings
        self._names = tuple(kernel.parameters)
        self._is_comptime = tuple(
            is_comptime_annotation(kernel.annotations.get(name)) for name in self._names
        )

    @classmethod
    def of(cls, kernel: CubeKernel) -> FastPath:
        """The prepared launches of `kernel`."""
        found = kernel.fast
        if found is None:
            found = kernel.fast = cls(kernel)
        return found

    def _key(self, grid: Grid | None, args: tuple[Any, ...]) -> Any:
        key = _key(grid, args, self._is_comptime)
        return None if key is None else (self._settings.is_checked, get("opt_level"), key)

    def launch(self, grid: Grid | None, args: tuple[Any, ...]) -> bool:
        """Launch if this metadata is known and nothing speaks against it; tell whether."""
        key = self._key(grid, args)
        entry = self._entries.get(key) if key is not None else None
        if entry is None:
            return False
        prepared = entry.prepared
        addresses = {k: pointer(args[k]) for _, k in entry.arrays}
        if _overlap(entry, addresses) or not prepared.compiled.is_current():
            return False
        block = entry.block_type(*prepared.template)
        for slot, k in entry.arrays:
            block[slot] = addresses[k]
        for slot, k, name, dtype in entry.numbers:
            block[slot] = pack(self._name, name, args[k], dtype)
        prepared.launch(block)
        return True

    def remember(
        self, grid: Grid | None, args: tuple[Any, ...], prepared: Prepared, matcher: Matcher
    ) -> None:
        """Keep a launch whose arguments are simple enough."""
        key = self._key(grid, args)
        if key is None or len(args) != len(self._names):
            return
        if any("." in name for name in (*matcher.memories, *matcher.scalars)):
            return
        entry = _Entry(prepared, args, self._names)
        if _overlap(entry, {k: pointer(args[k]) for _, k in entry.arrays}):
            return
        with self._lock:
            if len(self._entries) >= LIMIT:
                self._entries.pop(next(iter(self._entries)))
            self._entries[key] = entry


def _overlap(entry: _Entry, addresses: dict[int, int]) -> bool:
    """Whether a written array may share memory with another argument."""
    for k, low, high, is_written in entry.extents:
        if not is_written:
            continue
        start, end = addresses[k] + low, addresses[k] + high
        for other, other_low, other_high, _ in entry.extents:
            base = addresses.get(other)
            if (
                other != k
                and base is not None
                and base + other_low < end
                and base + other_high > start
            ):
                return True
    return False


def _key(grid: Grid | None, args: tuple[Any, ...], is_comptime: tuple[bool, ...]) -> Any:
    """Everything that `prepare` looks at, or None where an argument is not simple."""
    if len(args) > len(is_comptime):
        return None
    parts: list[Any] = []
    if isinstance(grid, Fixed):
        parts.append((grid.count, grid.dim))
    elif grid is not None:
        what = grid.what
        if isinstance(what, np.ndarray):
            place = next((k for k, a in enumerate(args) if a is what), None)
            if place is None:
                return None
            what = ("argument", place)
        parts.append((what, type(what), grid.per, grid.cube_dim))
    first = len(parts)
    for a in args:
        kind = type(a)
        if kind is np.ndarray:
            parts.append((a.dtype, a.shape, a.strides, a.flags.num, pointer(a) % ALIGNMENT))
        elif kind is int or kind is float or kind is bool:
            parts.append((kind, repr(a)) if is_comptime[len(parts) - first] else kind)
        else:
            return None
    return tuple(parts)
