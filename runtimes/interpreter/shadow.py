"""Race detection: who accessed each element last, and whether anything came between.

Two accesses are ordered by a barrier of the cube, by a barrier of the plane if one plane made both,
by barriers of some planes that lead from one to the other, or by being one unit's. Cubes are
unordered, except where one passed on an atomic after a fence.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from cubepy.record import dataclass

if TYPE_CHECKING:
    from cubepy.runtimes.interpreter.cubes import Unit


NO_PLANES: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Stamp:
    """A unit between two of its barriers: `epoch` counts those of the cube, `step` of the plane.

    `known`: by plane, how many of its steps named barriers have ordered before this unit, since the
    last barrier of the cube: a vector clock (Mattern 1989).
    """

    cube: int
    unit: int
    plane: int
    epoch: int
    step: int
    known: Mapping[int, int]


Access: TypeAlias = tuple[Stamp, int]
"""An access: when and by whom, and its site."""
History: TypeAlias = dict[int, Access]


def _unordered(a: Stamp, b: Stamp) -> bool:
    """Whether nothing orders two accesses of one cube."""
    if a is b or a.unit == b.unit or a.epoch != b.epoch:
        return False
    if a.plane != b.plane:
        return b.known.get(a.plane, -1) < a.step
    return a.step == b.step


class Shadow:
    """The accesses to memory, by element. Atomic ones count as reads.

    Of the reads of an element it keeps the last, and the last by another unit: if any read
    conflicts with a write, then one of these does.
    """

    def __init__(self) -> None:
        self._writes: History = {}
        self._reads: History = {}
        self._others: History = {}
        self._old_writes: History = {}
        self._old_reads: History = {}

    def read(self, key: int, unit: Unit, site: int) -> Access | None:
        """Note a read; the write that it races with, if there is one."""
        stamp = unit.stamp
        found = self._writes.get(key)
        if found is not None and _unordered(found[0], stamp):
            return found
        found = self._old_writes.get(key)
        if found is not None and found[0].cube not in unit.cube.acquired:
            return found
        last = self._reads.get(key)
        if last is not None and last[0].unit != stamp.unit:
            self._others[key] = last
        self._reads[key] = stamp, site
        return None

    def write(self, key: int, unit: Unit, site: int) -> Access | None:
        """Note a write; the access that it races with, if there is one."""
        stamp = unit.stamp
        for history in (self._writes, self._reads, self._others):
            found = history.get(key)
            if found is not None and _unordered(found[0], stamp):
                return found
        for history in (self._old_writes, self._old_reads):
            found = history.get(key)
            if found is not None and found[0].cube not in unit.cube.acquired:
                return found
        self._writes[key] = stamp, site
        return None

    def end_cube(self) -> None:
        """The cube is done: its accesses are those of another cube from now on."""
        self._old_writes.update(self._writes)
        self._old_reads.update(self._others)
        self._old_reads.update(self._reads)
        for history in (self._writes, self._reads, self._others):
            history.clear()
