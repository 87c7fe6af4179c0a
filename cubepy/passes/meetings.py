"""Plane operations on a CPU that emulates planes: through arrays with an entry for each unit.

Each is a meeting point of the plane: units leave their values, and the plane, or each unit of the
next segment, makes the result of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cubepy.ir import ops
from cubepy.ir.core import Attr, Op, Region, Value
from cubepy.ir.numbers import Number, limits
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Kind, Type, bool_, element_of, index, make_line, u64

if TYPE_CHECKING:
    from cubepy.passes.fission import Finder

_REDUCTIONS: dict[OpDef, OpDef] = {
    ops.PLANE_SUM: ops.REDUCE_ADD,
    ops.PLANE_PROD: ops.REDUCE_MUL,
    ops.PLANE_MIN: ops.REDUCE_MIN,
    ops.PLANE_MAX: ops.REDUCE_MAX,
    ops.PLANE_ALL: ops.REDUCE_AND,
    ops.PLANE_ANY: ops.REDUCE_OR,
    ops.PLANE_BALLOT: ops.REDUCE_OR,
}
_SCANS: dict[OpDef, tuple[OpDef, bool]] = {
    ops.PLANE_INCLUSIVE_SUM: (ops.ADD, True),
    ops.PLANE_EXCLUSIVE_SUM: (ops.ADD, False),
    ops.PLANE_INCLUSIVE_PROD: (ops.MUL, True),
    ops.PLANE_EXCLUSIVE_PROD: (ops.MUL, False),
}
_SHUFFLES = (
    ops.PLANE_SHUFFLE,
    ops.PLANE_SHUFFLE_XOR,
    ops.PLANE_SHUFFLE_UP,
    ops.PLANE_SHUFFLE_DOWN,
)
PLANE_OPS: frozenset[OpDef] = frozenset((*_REDUCTIONS, *_SCANS, *_SHUFFLES, ops.PLANE_ELECT))


def lower_plane_op(finder: Finder, op: Op) -> None:
    """Append what stands for a plane operation to the items of the plane."""
    if op.row is ops.SYNC_PLANE:
        finder.flush()
    elif op.row is ops.PLANE_ELECT:
        _elect(finder, op)
    elif op.row in _REDUCTIONS:
        _reduce(finder, op)
    elif op.row in _SCANS:
        _scan(finder, op)
    else:
        _shuffle(finder, op)


class _Plane:
    """Builds operations that run once for the plane."""

    def __init__(self, finder: Finder, op: Op) -> None:
        self._finder = finder
        self._span = op.span
        self.width = finder.kernel.plane_dim

    def emit(self, row: OpDef, *operands: Value, **attrs: Attr) -> Value:
        (t,) = row.rule([v.type for v in operands], attrs)
        result = Value(t)
        self._finder.together(Op(row, operands, attrs, (result,), (), self._span))
        return result

    def effect(self, row: OpDef, *operands: Value) -> None:
        self._finder.together(Op(row, operands, {}, (), (), self._span))

    def const(self, t: DType, value: Number) -> Value:
        return self.emit(ops.CONST, type=t, value=value)

    def base(self) -> Value:
        """The first unit of the plane."""
        return self.emit(ops.MUL, self.emit(ops.PLANE_POS), self.const(index, self.width))

    def lanes(self, array: Value) -> Value:
        """The values of all lanes as a line."""
        t = make_line(element_of(array.type), self.width)
        return self.emit(ops.LOAD, array, self.base(), type=t)


def position_of_plane(finder: Finder, position: Value) -> Value:
    """The unit (or absolute) position of the plane's first unit, once for the plane."""
    op = finder.program.sources[position]
    plane = _Plane(finder, op)
    base = plane.base()
    if op.row is ops.UNIT_POS:
        return base
    cube = plane.emit(ops.CUBE_POS, axis="all")
    units = plane.const(index, finder.program.units)
    return plane.emit(ops.ADD, plane.emit(ops.MUL, cube, units), base)


def position_of_row(finder: Finder, op: Op) -> Op:
    """The unit (or absolute) position along y or z that the units of a plane share."""
    plane, axis = _Plane(finder, op), str(op.attrs["axis"])
    dims, k = finder.kernel.cube_dim, "xyz".index(axis)
    inner, extent = (plane.const(index, n) for n in (math.prod(dims[:k]), dims[k]))
    row = plane.emit(ops.MOD, plane.emit(ops.FLOORDIV, plane.base(), inner), extent)
    start = plane.const(index, 0)
    if op.row is ops.ABSOLUTE_POS:
        start = plane.emit(ops.MUL, plane.emit(ops.CUBE_POS, axis=axis), extent)
    return Op(ops.ADD, (start, row), {}, op.results, (), op.span)


def identity(row: OpDef, dtype: DType) -> Number:
    """What units that returned contribute."""
    if row in (ops.PLANE_PROD, ops.PLANE_INCLUSIVE_PROD, ops.PLANE_EXCLUSIVE_PROD):
        return 1.0 if dtype.is_float else 1
    if row in (ops.PLANE_MIN, ops.PLANE_MAX):
        lowest = row is ops.PLANE_MAX
        if dtype.is_float:
            return -math.inf if lowest else math.inf
        return limits(dtype)[0 if lowest else 1]
    if dtype.kind is Kind.BOOL:
        return row is ops.PLANE_ALL
    return 0.0 if dtype.is_float else 0


def _leave(finder: Finder, op: Op, plane: _Plane, value: Value) -> Value:
    """Each unit's value in an array; lanes without a unit hold the identity."""
    program = finder.program
    array = program.new_array(value.type, value.name)
    if program.alive is not None or program.padding:
        finder.flush()
        dtype = element_of(value.type)
        filler = plane.const(dtype, identity(op.row, dtype))
        line = plane.emit(ops.SPLAT, filler, lanes=plane.width)
        plane.effect(ops.STORE, array, plane.base(), line)
    finder.keep(array, value)
    finder.flush()
    return array


def _reduce(finder: Finder, op: Op) -> None:
    plane = _Plane(finder, op)
    array = _leave(finder, op, plane, op.operands[0])
    lanes = plane.lanes(array)
    if op.row is ops.PLANE_BALLOT:
        lanes = _bits(plane, lanes)
    reduction = Op(_REDUCTIONS[op.row], (lanes,), {}, op.results, (), op.span)
    finder.together(reduction)


def _bits(plane: _Plane, mask: Value) -> Value:
    """Bit k for lane k of a mask."""
    line = plane.emit(ops.SPLAT, plane.const(u64, 0), lanes=plane.width)
    zero = line
    for lane in range(plane.width):
        line = plane.emit(ops.INSERT, line, plane.const(u64, 1 << lane), lane=lane)
    return plane.emit(ops.SELECT, mask, line, zero)


def _scan(finder: Finder, op: Op) -> None:
    """One lane after the other, in a loop of the plane."""
    plane = _Plane(finder, op)
    row, inclusive = _SCANS[op.row]
    t = op.result.type
    array = _leave(finder, op, plane, op.operands[0])
    out = finder.program.new_array(t, op.result.name)
    start = plane.const(element_of(t), identity(op.row, element_of(t)))
    zero, width, one = (plane.const(index, n) for n in (0, plane.width, 1))
    body = _scan_body(plane.base(), array, out, row, inclusive, t)
    last = Value(t)
    loop = Op(ops.FOR, (zero, width, one, start), {}, (last,), (body,), op.span)
    finder.together(loop)
    finder.program.places[op.result] = out


def _scan_body(
    base: Value, array: Value, out: Value, row: OpDef, inclusive: bool, t: Type
) -> Region:
    lane, sofar = Value(index, "lane"), Value(t)
    place, value, total = Value(index), Value(t), Value(t)
    assert isinstance(t, DType)
    return Region(
        (lane, sofar),
        (
            Op(ops.ADD, (base, lane), {}, (place,)),
            Op(ops.LOAD, (array, place), {"type": t}, (value,)),
            Op(row, (sofar, value), {}, (total,)),
            Op(ops.STORE, (out, place, total if inclusive else sofar)),
            Op(ops.CONTINUE, (total,)),
        ),
    )


def _shuffle(finder: Finder, op: Op) -> None:
    """Each unit reads the entry of the lane that it wants, or its own."""
    plane = _Plane(finder, op)
    value, chosen = op.operands
    array = _leave(finder, op, plane, value)
    base = plane.base()
    width, zero = plane.const(index, plane.width), plane.const(index, 0)
    units = plane.const(index, finder.program.units)
    alone = _Alone(finder, op)
    unit = alone.emit(ops.UNIT_POS, axis="all")
    own = alone.emit(ops.SUB, unit, base)
    if op.row is ops.PLANE_SHUFFLE:
        lane = chosen
    else:
        row = {
            ops.PLANE_SHUFFLE_XOR: ops.XOR,
            ops.PLANE_SHUFFLE_UP: ops.SUB,
            ops.PLANE_SHUFFLE_DOWN: ops.ADD,
        }[op.row]
        lane = alone.emit(row, own, chosen)
    there = alone.emit(ops.ADD, base, lane)
    inside = alone.emit(
        ops.AND,
        alone.emit(ops.AND, alone.emit(ops.GE, lane, zero), alone.emit(ops.LT, lane, width)),
        alone.emit(ops.LT, there, units),
    )
    place = alone.emit(ops.SELECT, inside, there, unit)
    t = op.result.type
    assert isinstance(t, DType)
    finder.alone(Op(ops.LOAD, (array, place), {"type": t}, op.results, (), op.span))


class _Alone:
    """Builds operations of each unit in the open segment."""

    def __init__(self, finder: Finder, op: Op) -> None:
        self._finder = finder
        self._span = op.span

    def emit(self, row: OpDef, *operands: Value, **attrs: Attr) -> Value:
        (t,) = row.rule([v.type for v in operands], attrs)
        result = Value(t)
        self._finder.alone(Op(row, operands, attrs, (result,), (), self._span))
        return result


def _elect(finder: Finder, op: Op) -> None:
    """The first unit that has not returned."""
    plane = _Plane(finder, op)
    alive = finder.program.alive
    finder.flush()
    base = plane.base()
    first = base
    if alive is not None:
        first = plane.emit(ops.ADD, base, _first_lane(plane, plane.lanes(alive)))
    unit = _Alone(finder, op).emit(ops.UNIT_POS, axis="all")
    finder.alone(Op(ops.EQ, (unit, first), {}, op.results, (), op.span))


def _first_lane(plane: _Plane, mask: Value) -> Value:
    """The number of the first lane that is on; the width if none is."""
    none = plane.emit(ops.SPLAT, plane.const(index, plane.width), lanes=plane.width)
    line = none
    for lane in range(plane.width):
        line = plane.emit(ops.INSERT, line, plane.const(index, lane), lane=lane)
    return plane.emit(ops.REDUCE_MIN, plane.emit(ops.SELECT, mask, line, none))


def lower_planes_of_one(op: Op) -> Op | Value | None:
    """A plane operation where the plane is one unit: its operand, or an operation without one."""
    if op.row is ops.PLANE_BALLOT:
        return Op(ops.CAST, op.operands, {"type": u64}, op.results, (), op.span)
    if op.row in (ops.PLANE_EXCLUSIVE_SUM, ops.PLANE_EXCLUSIVE_PROD):
        dtype = element_of(op.result.type)
        attrs: dict[str, Attr] = {"type": dtype, "value": identity(op.row, dtype)}
        return Op(ops.CONST, (), attrs, op.results, (), op.span)
    if op.row is ops.PLANE_ELECT:
        return Op(ops.CONST, (), {"type": bool_, "value": True}, op.results, (), op.span)
    return op.operands[0] if op.row in PLANE_OPS else None
