"""Faults that checked kernels report: the record of a launch, and the error that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.artifact import CHECKS, Artifact, Fault
from cubepy.errors import Error, bounds_advice, fail, shift_count


def fault_of(artifact: Artifact, record: Sequence[int]) -> Error | None:
    """The error that the words of a record describe; None if no check has failed."""
    if not record[0]:
        return None
    fault = artifact.faults[record[1]]
    unit, cube = unit_position(record[2], artifact.cube_dim), record[3]
    found = fields_of(fault, list(record[4:]))
    where = f"unit {unit} of cube {cube}"
    error: Any = fail(CHECKS[fault.kind], fault.span, kernel=artifact.entry, where=where, **found)
    error.kernel, error.unit, error.cube = artifact.entry, unit, cube
    error.line = fault.span.line if fault.span else 0
    for name in ("argument", "axis", "index", "extent"):
        if name in found:
            setattr(error, name, found[name])
    return error


def fields_of(fault: Fault, found: list[int]) -> dict[str, Any]:
    """What the message of a fault says besides kernel and place."""
    first, second = found[:2]
    if fault.kind == "bounds":
        return {
            "argument": fault.argument,
            "axis": fault.axis,
            "index": first,
            "extent": second,
            "advice": bounds_advice(fault.argument, fault.axis, first),
        }
    if fault.kind == "overflow":
        return {"operator": fault.argument, "left": first, "right": second}
    if fault.kind == "shift":
        return {
            "type": fault.argument,
            "count": shift_count(fault.argument, first),
            "last": fault.axis,
        }
    if fault.kind == "quotient":
        return {"type": fault.argument, "dividend": first}
    return {"message": fault.argument}


def unit_position(linear: int, cube_dim: tuple[int, int, int]) -> tuple[int, int, int]:
    """x, y and z of a unit that is counted with x fastest."""
    x, y, _ = cube_dim
    return linear % x, linear // x % y, linear // (x * y)
