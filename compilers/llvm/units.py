"""How a cube's units become loops: which operations are uniform, and how far the loops run.

Analysis of the kernel's outermost region; the emitter follows the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import is_speculatable
from cubepy.ir.types import index
from cubepy.record import dataclass

AXES = ("x", "y", "z")


@dataclass(frozen=True, slots=True)
class Bound:
    """Units (along `axis`) whose absolute position is not below `limit` do nothing."""

    axis: str
    limit: Value


@dataclass(slots=True)
class UnitPlan:
    """`launch` and `cube`: operations to emit once, and once for each cube; `body`: for each unit.

    `bounds` cut the loops over units; `axes` says whether units are counted along x, y and z.
    """

    launch: list[Op] = field(default_factory=list[Op])
    cube: list[Op] = field(default_factory=list[Op])
    body: list[Op] = field(default_factory=list[Op])
    bounds: list[Bound] = field(default_factory=list[Bound])
    axes: bool = False
    is_flat: bool = False
    """Whether units use their absolute position alone, so that one loop serves all cubes."""


def is_cube_program(kernel: Kernel) -> bool:
    """Whether the kernel's body runs once for the cube, with loops over units inside."""
    return any(op.row in (ops.UNITS, ops.PLANES) for op in kernel.body.walk())


def plan_units(kernel: Kernel) -> UnitPlan:
    """Sort the operations of the outermost region, and take its guards as bounds of the loops."""
    if is_cube_program(kernel):
        return UnitPlan(body=list(kernel.body.ops), axes=uses_axes(kernel.body))
    plan = UnitPlan(axes=uses_axes(kernel.body))
    levels: dict[Value, int] = {p.value: 0 for p in kernel.params}
    _distribute(kernel.body, plan, levels)
    plan.is_flat = not plan.axes and not plan.cube and not _asks_for_cube(kernel.body)
    return plan


def _asks_for_cube(body: Region) -> bool:
    """A fault names the cube and the unit."""
    rows = (ops.UNIT_POS, ops.CUBE_POS, ops.FAULT)
    return any(op.row in rows for op in body.walk())


def uses_axes(body: Region) -> bool:
    """Whether units use their position along an axis."""
    positions = (ops.UNIT_POS, ops.ABSOLUTE_POS)
    return any(op.row in positions and op.attrs["axis"] != "all" for op in body.walk())


def guarded_segment(body: Sequence[Op]) -> tuple[Value, list[Op]] | None:
    """The limit and the work of a segment that is `if unit_pos < limit: work`; else None.

    A loop over the units below the limit needs no test of each.
    """
    sources: dict[Value, Op] = {}
    for k, op in enumerate(body):
        if op.row is ops.IF:
            then, otherwise = op.regions
            ends = [o.row for o in (then.ops[-1], *body[k + 1 :])]
            if op.results or not _is_empty(otherwise) or ends != [ops.YIELD, ops.YIELD]:
                return None
            limit = _limit_of_units(sources.get(op.operands[0]), sources)
            return None if limit is None else (limit, [*body[:k], *then.ops[:-1], body[-1]])
        if not op.row.is_pure:
            return None
        sources.update((result, op) for result in op.results)
    return None


def _limit_of_units(test: Op | None, sources: dict[Value, Op]) -> Value | None:
    """The limit in `unit_pos < limit`: an index from before the segment, as constants are."""
    if test is None or test.row not in (ops.LT, ops.GT):
        return None
    left, right = test.operands if test.row is ops.LT else reversed(test.operands)
    position = sources.get(left)
    if position is None or position.row is not ops.UNIT_POS or position.attrs["axis"] != "all":
        return None
    return right if right not in sources and right.type is index else None


def _distribute(region: Region, plan: UnitPlan, levels: dict[Value, int]) -> None:
    kept = list(region.ops)
    sources: dict[Value, Op] = {}
    while kept:
        op = kept.pop(0)
        level = _level(op, levels)
        for result in op.results:
            levels[result] = level
            sources[result] = op
        guarded = _guarded(op, kept, levels, sources)
        if guarded is not None and not _effects(plan.body) and _countable(guarded[0], plan):
            bounds, inner = guarded
            plan.bounds += bounds
            kept = inner
        elif level < 2 and is_speculatable(op):
            (plan.launch if level == 0 else plan.cube).append(op)
        else:
            plan.body.append(op)


def _countable(bounds: list[Bound], plan: UnitPlan) -> bool:
    """Loops over axes cannot be cut by the linear position."""
    return not plan.axes or all(b.axis != "all" for b in bounds)


def _effects(body: list[Op]) -> list[Op]:
    return [op for op in body if not op.row.is_pure]


def _level(op: Op, levels: dict[Value, int]) -> int:
    """0: the same in the whole launch, 1: in the cube, 2: differs between units."""
    if op.row in (ops.UNIT_POS, ops.ABSOLUTE_POS) or not is_speculatable(op):
        return 2
    if op.row is ops.CUBE_POS:
        return 1
    return max((levels.get(v, 2) for v in op.operands), default=0)


def _guarded(
    op: Op, after: list[Op], levels: dict[Value, int], sources: dict[Value, Op]
) -> tuple[list[Bound], list[Op]] | None:
    """`if absolute_pos < n: rest` and `if absolute_pos >= n: return` as bounds, and the rest."""
    if op.row is not ops.IF or op.results:
        return None
    then, otherwise = op.regions
    if _is_empty(otherwise) and all(o.row is ops.RETURN for o in after):
        bounds = _bounds(op.operands[0], ops.LT, ops.AND, levels, sources)
        return (bounds, _without_yield(then, after)) if bounds is not None else None
    if len(then.ops) == 1 and then.ops[0].row is ops.RETURN and _is_empty(otherwise):
        bounds = _bounds(op.operands[0], ops.GE, ops.OR, levels, sources)
        return (bounds, after) if bounds is not None else None
    return None


def _is_empty(region: Region) -> bool:
    return len(region.ops) == 1 and region.ops[0].row is ops.YIELD


def _without_yield(region: Region, after: list[Op]) -> list[Op]:
    body = list(region.ops)
    return [*body[:-1], *after] if body[-1].row is ops.YIELD else body


_MIRRORED = {ops.LT: ops.GT, ops.GE: ops.LE}


def _bounds(
    condition: Value,
    row: ops.OpDef,
    joint: ops.OpDef,
    levels: dict[Value, int],
    sources: dict[Value, Op],
) -> list[Bound] | None:
    """The conjunction of `absolute_pos < limit` that a condition is; None for anything else."""
    op = sources.get(condition)
    if op is None:
        return None
    if op.row is joint:
        parts = [_bounds(v, row, joint, levels, sources) for v in op.operands]
        found = [b for p in parts if p is not None for b in p]
        return found if all(p is not None for p in parts) else None
    if op.row not in (row, _MIRRORED[row]):
        return None
    left, right = op.operands if op.row is row else reversed(op.operands)
    position = sources.get(left)
    if position is None or position.row is not ops.ABSOLUTE_POS or levels.get(right, 2) > 1:
        return None
    return [Bound(str(position.attrs["axis"]), right)]
