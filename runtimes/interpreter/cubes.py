"""A cube at work: its units run one after the other up to a barrier, then all go on.

Units of a plane wait at plane operations and `sync_plane`, units of the cube at `sync_cube`; those
that returned count as present, unless they passed the place by.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cubepy.runtimes.interpreter import planes
from cubepy.runtimes.interpreter.faults import divergent, place_of
from cubepy.runtimes.interpreter.memory import Memory
from cubepy.runtimes.interpreter.named_barriers import arrivals
from cubepy.runtimes.interpreter.program import Program, Site
from cubepy.runtimes.interpreter.shadow import NO_PLANES, Shadow, Stamp

if TYPE_CHECKING:
    from cubepy.runtimes.interpreter.launch import Launch

Waiting = tuple[int, tuple[int, ...], tuple[Any, ...]]
"""Where a unit waits: the site, the iterations of its loops, and its operands."""


class Unit:
    """One unit: where it is, and the stamp of its accesses."""

    __slots__ = ("_run", "cube", "ended", "number", "position", "reply", "stamp", "waiting")

    def __init__(self, cube: Cube, number: int) -> None:
        self.cube = cube
        self.number = number
        self.position = cube.unit_position(number)
        self.stamp = Stamp(cube.number, number, number // cube.program.plane_dim, 0, 0, NO_PLANES)
        self.waiting: Waiting | None = None
        self.ended: int | None = None
        """The site of the `return` that ended the unit."""
        self.reply: Any = None
        self._run: Generator[Waiting, Any, int] | None = None

    def start(self) -> Any:
        """Call the kernel: a generator if units wait, else the unit's whole run."""
        return self.cube.program.run(self, *self.cube.arguments(self))

    def resume(self) -> None:
        """Run up to the next barrier or the end."""
        run = self._run = self._run or self.start()
        reply, self.reply, self.waiting = self.reply, None, None
        try:
            self.waiting = run.send(reply)
        except StopIteration as stop:
            self.ended = stop.value

    def throw(self, error: BaseException) -> None:
        """Raise an error where the unit waits."""
        assert self._run is not None
        self._run.throw(error)

    def site(self, number: int) -> Site:
        """A site of the kernel."""
        return self.cube.program.sites[number]

    def shared(self, number: int) -> Memory:
        """The memory of the cube that an allocation names."""
        return self.cube.shared(number)

    def local(self, number: int) -> Memory:
        """New memory of the unit's own."""
        return _allocate(self.site(number), None)

    def fence(self) -> None:
        """Order accesses to global memory: later atomics pass them on to other cubes."""
        self.cube.has_fenced = True


class Cube:
    """One cube: its units, shared memory, and the cubes that atomics have ordered before it."""

    def __init__(self, launch: Launch, number: int) -> None:
        self.program: Program = launch.program
        self.number = number
        self.has_fenced = False
        self.acquired: set[int] = set()
        self._launch = launch
        self._shared: dict[int, Memory] = {}
        x, y, z = self.program.cube_dim
        self.units = [Unit(self, k) for k in range(x * y * z)]

    def run(self) -> None:
        """Run all units to their ends."""
        if self.program.waits:
            self._run_together()
            return
        for unit in self.units:
            unit.ended = unit.start()

    def _run_together(self) -> None:
        width = self.program.plane_dim
        groups = [self.units[k : k + width] for k in range(0, len(self.units), width)]
        ready, epoch = groups, 0
        while any(unit.ended is None for unit in self.units):
            for group in ready:
                self._run_plane(group)
            waiting = [unit for unit in self.units if unit.ended is None]
            released = arrivals(waiting)
            ready = [group for group in groups if released.intersection(group)]
            if waiting and not released:
                ready = groups
                epoch += 1
                _require_barrier(self.units, waiting, "cube")
                for unit in waiting:
                    plane = unit.stamp.plane
                    unit.stamp = Stamp(self.number, unit.number, plane, epoch, 0, NO_PLANES)

    def _run_plane(self, group: Sequence[Unit]) -> None:
        """Run the units of a plane until all wait for others of the cube or have ended."""
        self._resume(group)
        while True:
            waiting = [unit for unit in group if unit.ended is None]
            rows = {unit.site(unit.waiting[0]).row for unit in waiting if unit.waiting}
            if rows <= {"sync_cube"}:
                return
            _require_barrier(group, waiting, "plane")
            if rows == {"sync_units"}:
                return
            self._exchange(group, waiting, rows.pop())
            self._resume(waiting)

    def _resume(self, group: Iterable[Unit]) -> None:
        for unit in group:
            if unit.ended is None:
                unit.resume()

    def _exchange(self, group: Sequence[Unit], waiting: Sequence[Unit], row: str) -> None:
        """Resume each waiting unit of a plane with its result of the operation."""
        if row == "sync_plane":
            for unit in waiting:
                s = unit.stamp
                unit.stamp = Stamp(s.cube, s.unit, s.plane, s.epoch, s.step + 1, s.known)
            return
        facts = waiting[0].site(waiting[0].waiting[0]).facts  # type: ignore[index]
        operands = [unit.waiting[2] if unit.waiting else None for unit in group]
        if not row.startswith("plane_shuffle"):
            operands = planes.pad(operands, self.program.plane_dim)
        results = planes.exchange(row, facts.get("dtype"), facts.get("combine"), operands)
        for unit, result in zip(group, results, strict=False):
            unit.reply = result

    # What units ask for

    def arguments(self, unit: Unit) -> list[Any]:
        """The positions of a unit, then the launch's arguments."""
        return self._launch.arguments(self.number, unit.number, unit.position)

    def unit_position(self, number: int) -> tuple[int, int, int]:
        """x, y and z of a unit, x fastest."""
        x, y, _ = self.program.cube_dim
        return number % x, number // x % y, number // (x * y)

    def where(self, unit: int, cube: int) -> str:
        """A unit in words."""
        return f"unit {self.unit_position(unit)} of cube {cube}"

    def shared(self, number: int) -> Memory:
        """The memory of an allocation: one for the whole cube."""
        found = self._shared.get(number)
        if found is None:
            found = self._shared[number] = _allocate(self.program.sites[number], Shadow())
        return found

    def note_atomic(self, key: int, unit: Unit) -> None:
        """An atomic after a fence passes on what this cube knows, and takes what others passed."""
        passed = self._launch.passed.get(key)
        if passed:
            self.acquired |= passed
        if self.has_fenced:
            known = self._launch.passed.setdefault(key, set())
            known |= self.acquired
            known.add(self.number)


def _allocate(site: Site, shadow: Shadow | None) -> Memory:
    return Memory(site.facts["argument"], site.facts["dtype"], site.facts["size"], shadow)


def _require_barrier(group: Sequence[Unit], waiting: Sequence[Unit], name: str) -> None:
    """E713 unless all of a group wait at one place in one iteration, or have returned before it."""
    first = waiting[0]
    assert first.waiting is not None
    for unit in group:
        reason = _absence(first, unit)
        if reason:
            who = first.cube.where(unit.number, unit.cube.number)
            first.throw(divergent(first, name, f"{who} {reason}"))


def _absence(first: Unit, unit: Unit) -> str:
    """Why a unit is not where the first one waits; empty where it is."""
    assert first.waiting is not None
    number, iteration, _ = first.waiting
    if unit.ended is not None:
        end, place = unit.site(unit.ended), first.site(number)
        passed = unit.ended > number and not set(end.loops) & set(place.loops)
        return f"ended without it (line {_line(end)})" if passed else ""
    assert unit.waiting is not None
    if unit.waiting[0] != number:
        there = unit.site(unit.waiting[0])
        return f"waits at `{there.row}` at {place_of(there)}"
    return "" if unit.waiting[1] == iteration else "is in another iteration of the loop"


def _line(site: Site) -> str:
    return str(site.span.line) if site.span else "?"
