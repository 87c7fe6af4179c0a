"""One launch: the argument block becomes numbers and buffers, and the cubes run in order."""

from __future__ import annotations

from math import prod
from typing import Any

from cubepy.artifact import Data, Extent, Slot, Stride
from cubepy.errors import Error
from cubepy.ir.numbers import from_bits
from cubepy.ir.types import find_dtype, index
from cubepy.runtimes.interpreter.cubes import Cube
from cubepy.runtimes.interpreter.faults import user_frames
from cubepy.runtimes.interpreter.memory import Argument
from cubepy.runtimes.interpreter.program import Program
from cubepy.runtimes.interpreter.shadow import Shadow


class Launch:
    """A program with its arguments. `passed`: cubes that an atomic has ordered, by element."""

    def __init__(self, program: Program, block: Any) -> None:
        self.program = program
        self.passed: dict[int, set[int]] = {}
        self._shadows: dict[int, Shadow] = {}
        words = [int(word) for word in block]
        count = len(program.slots)
        self._counts = tuple(words[count : count + 3])
        self._arguments = self._read(words)

    def run(self, count: int) -> None:
        """Run cubes 0 to `count`; errors of a kernel show the user's frames alone."""
        for number in range(count):
            try:
                Cube(self, number).run()
            except Error as error:
                raise error.with_traceback(user_frames(error)) from None
            for shadow in self._shadows.values():
                shadow.end_cube()

    # Arguments

    def _read(self, words: list[int]) -> list[Any]:
        slots = self.program.slots
        extents = _extents(slots, words)
        return [
            self._argument(slot, word, extents) for slot, word in zip(slots, words, strict=False)
        ]

    def _argument(self, slot: Slot, word: int, extents: dict[str, tuple[int, int]]) -> Any:
        if not slot.kind.is_address:
            scalar = find_dtype(slot.dtype)
            assert scalar is not None
            return from_bits(word & ((1 << scalar.bits) - 1), scalar)
        dtype = self.program.elements[slot.argument]
        shadow = self._shadows.setdefault(dtype.itemsize, Shadow())
        return Argument(slot.argument, dtype, word, *extents[slot.argument], shadow)

    def arguments(self, cube: int, unit: int, at: tuple[int, int, int]) -> list[Any]:
        """The positions of a unit in the program's order, then the parameters."""
        dims, counts = self.program.cube_dim, self._counts
        place = cube % counts[0], cube // counts[0] % counts[1], cube // (counts[0] * counts[1])
        absolute = [p * d + u for p, d, u in zip(place, dims, at, strict=True)]
        return [
            *(unit, *at),
            *(cube, *place),
            *(prod(counts), *counts),
            *(cube * prod(dims) + unit, *absolute),
            *self._arguments,
        ]


def _extents(slots: tuple[Slot, ...], words: list[int]) -> dict[str, tuple[int, int]]:
    """The first element of each tensor, and the one behind its last, counted from its address."""
    found: dict[str, tuple[int, int]] = {}
    for slot in slots:
        if isinstance(slot.kind, Data):
            own = [
                (s, from_bits(w, index))
                for s, w in zip(slots, words, strict=False)
                if s.argument == slot.argument
            ]
            shape = {s.kind.axis: int(n) for s, n in own if isinstance(s.kind, Extent)}
            strides = {s.kind.axis: int(n) for s, n in own if isinstance(s.kind, Stride)}
            found[slot.argument] = _extent(shape, strides)
    return found


def _extent(shape: dict[int, int], strides: dict[int, int]) -> tuple[int, int]:
    """A tensor without strides is linear; an axis without one has stride one."""
    if 0 in shape.values():
        return 0, 0
    if not strides:
        return 0, prod(shape.values())
    reaches = [(n - 1) * strides.get(axis, 1) for axis, n in shape.items()]
    return sum(min(0, r) for r in reaches), 1 + sum(max(0, r) for r in reaches)
