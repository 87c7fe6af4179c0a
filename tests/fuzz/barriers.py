"""Kernels whose barriers are of some units, `cp.sync_units`: a third generator on top of `wide`.

Each seed gives two kernels that leave the same memory: one with barriers of units, and its *twin*,
in which the same data passes by barriers of the cube alone. What a device that has only those must
refuse is known from the rules, not from the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz.generator import PLANES, Chooser, Program
from tests.fuzz.wide import TYPES, WideGenerator

NUMBERS = tuple(range(1, 16))
NOT_ALL = "a barrier there is one of"
NOT_TOGETHER = "all units of the cube must reach a barrier together there"
RETURNED = "units that returned do not reach a barrier of units"


@dataclass
class BarrierProgram(Program):
    """A generated kernel with barriers of units."""

    refusals: tuple[str, ...] = ()
    """Why a device that has barriers of whole cubes alone refuses it; empty: it must not."""
    lacks_units: bool = False
    """Whether a barrier waits for units that may have returned: an error on the interpreter."""


class BarrierGenerator(WideGenerator):
    """Writes the kernel of a seed, or its `twin`: both make the same decisions.

    Without `returns` no unit ends early.
    """

    def __init__(
        self,
        chooser: Chooser,
        types: tuple[str, ...] = TYPES,
        planes: tuple[int, ...] = PLANES,
        returns: bool = True,
        twin: bool = False,
    ) -> None:
        super().__init__(chooser, types, planes, returns)
        self._twin = twin
        self._some_returned = False
        self._refusals: list[str] = []
        self._lacks_units = False
        self.plane_dim = chooser.choose(planes)
        self._planes = chooser.choose((2, 3, 4)) * (1 if self.plane_dim > 1 else 3)
        self.cube_dim = self.plane_dim * self._planes

    def program(self) -> BarrierProgram:
        """The whole kernel, and what is known of it."""
        made = super().program()
        refusals = tuple(dict.fromkeys(self._refusals))
        return BarrierProgram(**vars(made), refusals=refusals, lacks_units=self._lacks_units)

    # Barriers

    def _units(self, number: int, count: int) -> None:
        self._line(f"cp.sync_units({number}, {count})")

    def _all_units(self) -> None:
        """A barrier of all units, named or not."""
        number, late = self._c.choose(NUMBERS), self._c.number(0, 9) == 0
        is_named = self._c.number(0, 1) and (late or not self._some_returned)
        if not is_named or self._twin:
            self._line("cp.sync_cube()")
        else:
            self._units(number, self.cube_dim)
        if is_named and self._some_returned:
            self._refusals.append(RETURNED)
            self._lacks_units = True

    # Statements that all units reach

    def _together(self) -> None:
        if self._c.number(0, 2) or self._some_returned:
            super()._together()
        else:
            self._c.choose((self._parts, self._parts, self._two_places))()

    def _exchange(self) -> None:
        t = self._c.choose(self.types)
        self._all_units()
        self._line(f"s_{t}[t] = cp.{t}({self._value(t, 2)})")
        self._all_units()
        shift = self._c.number(0, 7)
        self._declare(t, f"s_{t}[(t + {shift}) % {self.cube_dim}]")

    def _leave(self) -> None:
        super()._leave()
        self._some_returned = self._some_returned or self.returns

    def _tail_return(self) -> None:
        super()._tail_return()
        self._some_returned = True

    def _parts(self) -> None:
        """Two parts of the cube, of whole planes, exchange values each for itself."""
        t = self._c.choose(self.types)
        name = self._c.choose(self._scope.of(t))
        first = self._c.number(1, self._planes - 1)
        low = first * self.plane_dim
        sizes = (low, self.cube_dim - low)
        one = self._c.choose(NUMBERS)
        numbers = (one, one % 15 + 1)
        trips, shift = self._c.number(1, 3), self._c.number(0, 7)
        values = [self._value(t, 2) for _ in sizes]
        places = (f"(t + {shift}) % {sizes[0]}", f"{low} + (t - {low} + {shift}) % {sizes[1]}")
        writes = [f"s_{t}[t] = cp.{t}({value})" for value in values]
        reads = [f"{name} = s_{t}[{place}]" for place in places]
        self._refusals.append(NOT_ALL)
        self._all_units()
        if self._twin:
            with self._block(f"for r{self._fresh('r')} in range({trips}):"):
                for parts in (writes, reads):
                    self._either(first, *((part,) for part in parts))
                    self._line("cp.sync_cube()")
            return
        loop = f"for r{self._fresh('r')} in range({trips}):"
        bodies = []
        for write, read, number, size in zip(writes, reads, numbers, sizes, strict=True):
            wait = f"cp.sync_units({number}, {size})"
            bodies.append((loop, *(f"    {line}" for line in (write, wait, read, wait))))
        self._either(first, *bodies)
        self._line("cp.sync_cube()")

    def _two_places(self) -> None:
        """All units wait for each other, but the parts of the cube in different places."""
        t = self._c.choose(self.types)
        name = self._c.choose(self._scope.of(t))
        first = self._c.number(1, self._planes - 1)
        number, shift = self._c.choose(NUMBERS), self._c.number(0, 7)
        values = [self._value(t, 2) for _ in range(2)]
        writes = [f"s_{t}[t] = cp.{t}({value})" for value in values]
        read = f"{name} = s_{t}[(t + {shift}) % {self.cube_dim}]"
        self._refusals.append(NOT_TOGETHER)
        self._all_units()
        if self._twin:
            self._either(first, *((write,) for write in writes))
            self._line("cp.sync_cube()")
        else:
            wait = f"cp.sync_units({number}, {self.cube_dim})"
            self._either(first, *((write, wait) for write in writes))
        self._line(read)

    def _either(self, first: int, low: tuple[str, ...], high: tuple[str, ...]) -> None:
        """Lines of the first planes, and those of the others."""
        for head, body in ((f"if cp.PLANE_POS < {first}:", low), ("else:", high)):
            with self._block(head):
                for line in body:
                    self._line(line)
