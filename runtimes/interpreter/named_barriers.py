"""Barriers of some units of a cube: who has arrived, and what that orders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cubepy.runtimes.interpreter.faults import divergent, place_of
from cubepy.runtimes.interpreter.shadow import Stamp

if TYPE_CHECKING:
    from cubepy.runtimes.interpreter.cubes import Unit


def arrivals(waiting: Sequence[Unit]) -> set[Unit]:
    """The units that go on because all wait at their barrier that it waits for.

    E713 where more have come, or expect another number of units, or where none can go on.
    """
    places: dict[int, list[Unit]] = defaultdict(list)
    for unit in waiting:
        site = unit.site(unit.waiting[0]) if unit.waiting else None
        if site is not None and site.row == "sync_units":
            places[site.facts["barrier"]].append(unit)
    released: set[Unit] = set()
    for units in places.values():
        wanted = _count(units[0])
        other = next((u for u in units if _count(u) != wanted), None)
        if other is not None:
            _report(units[0], f"{_who(other)} waits there for {_count(other)} units, not {wanted}")
        if len(units) > wanted:
            _report(units[0], f"{len(units)} units have come, not {wanted}")
        if len(units) == wanted:
            _order(units)
            released.update(units)
    if places and not released:
        first = next(iter(places.values()))
        _report(first[0], f"{len(first)} of {_count(first[0])} units have come, and no other can")
    return released


def _count(unit: Unit) -> int:
    assert unit.waiting is not None
    return unit.site(unit.waiting[0]).facts["count"]


def _who(unit: Unit) -> str:
    assert unit.waiting is not None
    place = place_of(unit.site(unit.waiting[0]))
    return f"{unit.cube.where(unit.number, unit.cube.number)} at {place}"


def _report(unit: Unit, reason: str) -> None:
    unit.throw(divergent(unit, "barrier", reason))


def _order(units: Sequence[Unit]) -> None:
    """What any of the units did before comes before what each of them does next."""
    known: dict[int, int] = {}
    for unit in units:
        stamp = unit.stamp
        for plane, step in (*stamp.known.items(), (stamp.plane, stamp.step)):
            known[plane] = max(known.get(plane, -1), step)
    for unit in units:
        s = unit.stamp
        unit.stamp = Stamp(s.cube, s.unit, s.plane, s.epoch, s.step + 1, known)
