"""The reports of the interpreter: each an error with kernel, line, unit and cube."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from cubepy.artifact import CHECKS
from cubepy.errors import Error, bounds_advice, fail, shift_count

if TYPE_CHECKING:
    from cubepy.runtimes.interpreter.cubes import Unit
    from cubepy.runtimes.interpreter.program import Site
    from cubepy.runtimes.interpreter.shadow import Access

_GENERATED = "cubepy.kernel."


def check_failed(unit: Unit, number: int, *reported: int) -> None:
    """Raise the error of a check whose condition does not hold."""
    facts = unit.site(number).facts
    kind, argument = str(facts["kind"]), facts["argument"]
    code = CHECKS.get(kind, "E715")
    if kind == "overflow":
        left, right = reported
        raise _report(code, unit, number, operator=argument, left=left, right=right)
    if kind == "shift":
        count = shift_count(str(argument), reported[0])
        raise _report(code, unit, number, type=argument, count=count, last=facts["axis"])
    if kind == "quotient":
        raise _report(code, unit, number, type=argument, dividend=reported[0])
    if kind != "bounds":
        raise _report(code, unit, number, message=argument, kind=kind)
    raise _beyond(unit, number, argument, facts["axis"], *reported[:2])


def _beyond(unit: Unit, number: int, argument: Any, axis: Any, index: int, extent: int) -> Error:
    advice = bounds_advice(argument, axis, index)
    fields = {"argument": argument, "axis": axis, "index": index, "extent": extent}
    return _report("E701", unit, number, advice=advice, **fields)


def outside(unit: Unit, number: int, index: int) -> Error:
    """An access beyond the memory of a buffer, which no check of indices caught."""
    argument = unit.site(number).facts["argument"]
    return _report("E714", unit, number, argument=argument, index=index)


def lane_outside(unit: Unit, number: int, lane: int, width: int) -> Error:
    """A lane chosen at run time that the line does not have."""
    return _beyond(unit, number, "line", 0, lane, width)


def unwritten(unit: Unit, number: int, index: int, is_shared: bool) -> Error:
    """A read of shared or local memory that nothing wrote."""
    argument = unit.site(number).facts["argument"]
    suggestion = _SHARED if is_shared else _LOCAL
    return _report("E712", unit, number, argument=argument, index=index, suggestion=suggestion)


_SHARED = "write it first, with cp.sync_cube() between one unit's write and another's read"
_LOCAL = "write it first; cp.local(..., fill=0) starts with zeros"


def race(unit: Unit, number: int, index: int, other: Access) -> Error:
    """Two accesses that nothing orders, of which one writes and is not atomic."""
    stamp, there = other
    mine, its = unit.site(number), unit.site(there)
    elsewhere = stamp.cube != unit.cube.number
    return _report(
        "E711",
        unit,
        number,
        argument=mine.facts["argument"],
        index=index,
        verb=_verb(mine),
        other=unit.cube.where(stamp.unit, stamp.cube),
        other_verb=_verb(its),
        place=place_of(its),
        suggestion=_ACROSS_CUBES if elsewhere else _IN_A_CUBE,
    )


_IN_A_CUBE = "put cp.sync_cube() between the two, or use cp.atomic"
_ACROSS_CUBES = "let one cube own the element, or use cp.atomic: nothing else orders cubes"


def divergent(unit: Unit, group: str, other: str) -> Error:
    """Units of a group wait at different barriers."""
    assert unit.waiting is not None
    number = unit.waiting[0]
    return _report("E713", unit, number, op=unit.site(number).row, group=group, other=other)


def place_of(site: Site) -> str:
    """File and line of a site."""
    return f"{site.span.file}:{site.span.line}" if site.span else "an unknown line"


def _verb(site: Site) -> str:
    if site.facts.get("atomic"):
        return "updates"
    return "writes" if site.facts.get("writes") else "reads"


def _report(code: str, unit: Unit, number: int, **fields: Any) -> Error:
    site, kernel = unit.site(number), unit.cube.program.kernel
    where = unit.cube.where(unit.number, unit.cube.number)
    error: Any = fail(code, site.span, kernel=kernel, where=where, **fields)
    error.kernel, error.line = kernel, site.span.line if site.span else 0
    error.unit, error.cube = unit.position, unit.cube.number
    for name in ("argument", "axis", "index", "extent"):
        if name in fields:
            setattr(error, name, fields[name])
    return error


def user_frames(error: BaseException) -> TracebackType | None:
    """The traceback of an error without our own frames below the user's kernel."""
    entry, kept = error.__traceback__, list[TracebackType]()
    while entry is not None:
        if entry.tb_frame.f_globals.get("__name__", "").startswith(_GENERATED):
            kept.append(entry)
        entry = entry.tb_next
    chain: TracebackType | None = None
    for entry in reversed(kept):
        chain = TracebackType(chain, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return chain
