"""The positions of the launch as values: comptime for dims, indices for the rest."""

from __future__ import annotations

from math import prod
from typing import Any

from cubepy.frontend.tracer import Tracer
from cubepy.ir import ops
from cubepy.ir.opdef import OpDef
from cubepy.lang.builtins import Position

_ROWS: dict[str, OpDef] = {
    "ABSOLUTE_POS": ops.ABSOLUTE_POS,
    "UNIT_POS": ops.UNIT_POS,
    "CUBE_POS": ops.CUBE_POS,
    "CUBE_COUNT": ops.CUBE_COUNT,
}


def position(tracer: Tracer, which: Position) -> Any:
    """The value of `cp.UNIT_POS_X` and the like."""
    name = which.name
    if name == "PLANE_DIM":
        return tracer.plane_dim
    if name == "PLANE_COUNT":
        return -(-prod(tracer.cube_dim) // tracer.plane_dim)
    if name in ("PLANE_POS", "UNIT_POS_PLANE"):
        return _plane(tracer, name)
    axis = name[-1].lower() if name[-2] == "_" else "all"
    if axis != "all":
        tracer.facts.uses_axes = True
    if name.startswith("CUBE_DIM"):
        return prod(tracer.cube_dim) if axis == "all" else tracer.cube_dim["xyz".index(axis)]
    row = _ROWS[name if axis == "all" else name[:-2]]
    return tracer.b.emit(row, axis=axis, name=name.lower())


def _plane(tracer: Tracer, name: str) -> Any:
    unit = tracer.b.emit(ops.UNIT_POS, axis="all", name="unit_pos")
    if name == "PLANE_POS":
        return tracer.floordiv(unit, tracer.plane_dim)
    if tracer.plane_dim == 1:
        return 0
    return tracer.b.emit(ops.MOD, unit, tracer.b.index(tracer.plane_dim))
