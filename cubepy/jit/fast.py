"""The short way of repeated launches: equal metadata finds the prepared launch in one look-up.

Everything that was checked for that metadata remains true; only addresses and numbers are new, and
overlaps of addresses and captured names are checked again.
"""

from __future__ import annotations

import ctypes
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from cubepy.array.interop import address_of_tensor, queue_of_tensor, read_memory, records_gradients
from cubepy.array.memory import Memory, pointer
from cubepy.array.order import Ordered
from cubepy.jit.ahead import is_ahead
from cubepy.jit.arguments import ALIGNMENT, Matcher
from cubepy.jit.bounded import make_room
from cubepy.jit.classes import is_small
from cubepy.jit.grid import Fixed, Grid
from cubepy.jit.launch import Prepared, pack
from cubepy.jit.observe import is_observed
from cubepy.lang.annotations import is_comptime_annotation
from cubepy.lang.containers import listed

if TYPE_CHECKING:
    from cubepy.jit.kernel import CubeKernel

_BITS = Struct("d")
"""Numbers that are equal and others, as zeros are, and signs of NaN, have bits of their own."""
LIMIT = 1024
"""Prepared launches kept for a kernel; the oldest go first."""


class _Entry:
    """A prepared launch whose arguments are all arrays, in one place, and numbers."""

    def __init__(self, prepared: Prepared, matcher: Matcher, names: tuple[str, ...]) -> None:
        position = {name: k for k, name in enumerate(names)}
        self.prepared = prepared
        self.block_type = ctypes.c_uint64 * len(prepared.template)
        self.arrays = [(slot, position[name]) for slot, name in prepared.addresses]
        self.numbers = [(slot, position[name], name, t) for slot, name, t in prepared.numbers]
        written = prepared.plan.written
        self.written = frozenset(k for name, k in position.items() if name in written)
        self.extents = [
            (position[name], *_reach(memory), name in written)
            for name, memory in matcher.memories.items()
        ]


def _reach(memory: Memory) -> tuple[int, int]:
    """Bytes from the first element down to the lowest, and up past the highest."""
    low, high = memory.extent()
    return low - memory.address, high - memory.address


class _Arguments:
    """What a launch passes: `key` is everything that `prepare` looks at, or None where an argument
    is not simple. Arrays that are not NumPy's are torch's tensors or have `memories`."""

    def __init__(self, grid: Grid | None, args: tuple[Any, ...], is_comptime: tuple[bool, ...]):
        self._args = args
        self._addresses: dict[int, int] = {}
        self._tensors: list[Any] = []
        self._memories: dict[int, Memory] = {}
        self.key = self._key(grid, is_comptime) if len(args) <= len(is_comptime) else None

    def address(self, k: int) -> int:
        """Where the array at a position is."""
        found = self._addresses.get(k)
        return pointer(self._args[k]) if found is None else found

    def launch(self, prepared: Prepared, block: Any, written: frozenset[int]) -> None:
        """Launch in the order of what works on the arrays; those at `written` are outputs."""
        if not self._memories and prepared.queue is None:
            prepared.launch(block, queue_of_tensor(self._tensors[0]) if self._tensors else None)
            return
        tensors = [m for m in map(read_memory, self._tensors) if m is not None]
        memories = [*self._memories.values(), *tensors]
        outputs = [m for k, m in self._memories.items() if k in written]
        with Ordered(prepared.device, prepared.queue, memories, outputs) as queue:
            prepared.launch(block, queue)

    def _key(self, grid: Grid | None, is_comptime: tuple[bool, ...]) -> Any:
        parts: list[Any] = [] if grid is None else [self._of_grid(grid)]
        for k, a in enumerate(self._args):
            kind = type(a)
            if kind is np.ndarray:
                parts.append((a.dtype, a.shape, a.strides, a.flags.num, pointer(a) % ALIGNMENT))
            elif kind is int or kind is float or kind is bool:
                if is_comptime[k]:
                    parts.append((kind, _BITS.pack(a) if kind is float else a))
                else:
                    parts.append((kind, is_small(a)) if kind is int else kind)
            elif is_comptime[k]:
                return None
            elif kind.__module__ == "torch" and kind.__name__ == "Tensor":
                parts.append(self._of_tensor(k, a))
            else:
                parts.append(self._of_foreign(k, a))
        return None if None in parts else tuple(parts)

    def _of_grid(self, grid: Grid) -> Any:
        if isinstance(grid, Fixed):
            return grid.count, grid.dim
        what = grid.what
        if not isinstance(what, int | tuple):
            what = next((("argument", k) for k, a in enumerate(self._args) if a is what), None)
        return None if what is None else (what, type(what), grid.per, grid.cube_dim)

    def _of_tensor(self, k: int, a: Any) -> Any:
        """What `read_memory` finds in a tensor, without making it: this is the way of most."""
        try:
            address, strides = address_of_tensor(a), a.stride()
        except Exception:  # as of sparse ones; the general way reports what is wrong with it
            return None
        self._addresses[k] = address
        self._tensors.append(a)
        flags = a.is_neg(), a.is_conj(), records_gradients(a)
        return a.device, a.dtype, a.shape, strides, *flags, address % ALIGNMENT

    def _of_foreign(self, k: int, a: Any) -> Any:
        """Another library's array, or one of CubePy's."""
        try:
            m = read_memory(a)
        except Exception:  # the general way reports what is wrong with it
            return None
        if m is None:
            return None
        self._addresses[k] = m.address
        self._memories[k] = m
        flags = m.is_writeable, m.is_native, m.address % ALIGNMENT
        return m.device, m.dtype, m.shape, m.strides, flags


class FastPath:
    """The prepared launches of one kernel."""

    def __init__(self, kernel: CubeKernel) -> None:
        self._entries: dict[Any, _Entry] = {}
        self._name = kernel.__name__
        self._options = kernel.options
        self._made = kernel.made
        self._retired = 0
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

    def _key(self, given: _Arguments) -> Any:
        key = given.key
        return None if key is None else (self._options.by_settings(), key)

    def launch(self, grid: Grid | None, args: tuple[Any, ...]) -> bool:
        """Launch if this metadata is known and nothing speaks against it; whether it did."""
        given = _Arguments(grid, args, self._is_comptime)
        key = self._key(given)
        entry = self._entries.get(key) if key is not None else None
        if entry is None or is_observed() or is_ahead():
            return False
        prepared = entry.prepared
        prepared.compiled.is_used = True
        addresses = {k: given.address(k) for _, k in entry.arrays}
        if _overlap(entry, addresses) or not prepared.compiled.is_current():
            return False
        block = entry.block_type(*prepared.template)
        for slot, k in entry.arrays:
            block[slot] = addresses[k]
        for slot, k, name, dtype in entry.numbers:
            block[slot] = pack(self._name, name, args[k], dtype)
        given.launch(prepared, block, entry.written)
        return True

    def remember(
        self, grid: Grid | None, args: tuple[Any, ...], prepared: Prepared, matcher: Matcher
    ) -> None:
        """Keep a launch whose arguments are simple enough."""
        given = _Arguments(grid, args, self._is_comptime)
        key = self._key(given)
        if key is None or len(args) != len(self._names) or prepared.is_staged(matcher.memories):
            return
        if any("." in name for name in (*matcher.memories, *matcher.scalars)):
            return
        entry = _Entry(prepared, matcher, self._names)
        if _overlap(entry, {k: given.address(k) for _, k in entry.arrays}):
            return
        retired = sum(made.retired for made in list(self._made.values()))
        if retired != self._retired:
            self._retired = retired
            self._forget_retired()
        make_room(self._entries, LIMIT)
        self._entries[key] = entry

    def _forget_retired(self) -> None:
        """Keep no code that the kernel does not keep."""
        for key, entry in listed(self._entries.items()):
            if entry.prepared.compiled.is_retired:
                self._entries.pop(key, None)


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
