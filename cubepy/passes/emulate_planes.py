"""Plane operations on a CPU that emulates planes: through arrays with an entry for each unit.

Each is a barrier of the plane: units leave their values, and the plane, or each unit of the
next segment, makes the result of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.numbers import Number
from cubepy.ir.opdef import OpDef, Scan, Uniformity
from cubepy.ir.types import DType, Line, Type, bool_, element_of, index, make_line, u64
from cubepy.passes.rewrite import Rewriter

if TYPE_CHECKING:
    from cubepy.passes.fission import Finder

_OF_LINES: dict[OpDef | None, OpDef] = {row.step: row for row in ops.REDUCTIONS}
"""The reduction of a line by its step."""
_RELATIVE: dict[OpDef, OpDef] = {
    ops.PLANE_SHUFFLE_XOR: ops.XOR,
    ops.PLANE_SHUFFLE_UP: ops.SUB,
    ops.PLANE_SHUFFLE_DOWN: ops.ADD,
}
"""How a shuffle finds the other lane from the own one."""
PLANE_OPS: frozenset[OpDef] = frozenset(ops.PLANE_ROWS)


def lower_plane_op(finder: Finder, op: Op) -> None:
    """Append what stands for a plane operation to the items of the plane."""
    if op.row is ops.SYNC_PLANE:
        finder.flush()
    elif op.row is ops.PLANE_ELECT:
        _elect(finder, op)
    elif op.row.scan is not None:
        _scan(finder, op)
    elif op.row.uniformity is Uniformity.PLANE:
        _reduce(finder, op)
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
    """What the plane's first unit has of a unit (or absolute) position, or of what was made of one
    by casts, remainders and sums with constants; once for the plane."""
    op = finder.program.sources[position]
    plane = _Plane(finder, op)
    if op.row not in (ops.UNIT_POS, ops.ABSOLUTE_POS):
        first = position_of_plane(finder, op.operands[0])
        return plane.emit(op.row, first, *op.operands[1:], **op.attrs)
    axis, base = str(op.attrs["axis"]), plane.base()
    units = plane.const(index, finder.program.units)
    if axis == "x":
        units = plane.const(index, finder.kernel.cube_dim[0])
        base = plane.emit(ops.MOD, base, units)
    if op.row is ops.UNIT_POS:
        return base
    cube = plane.emit(ops.CUBE_POS, axis=axis)
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
    start = row.start(dtype)
    assert start is not None
    return start


def _leave(finder: Finder, op: Op, plane: _Plane, value: Value) -> Value:
    """Each unit's value in an array; lanes without a unit hold the identity."""
    program = finder.program
    array = program.new_array(value.type, value.name)
    if program.active is not None or program.padding:
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
    lanes, row = plane.lanes(array), _OF_LINES.get(op.row.step)
    if op.row is ops.PLANE_BALLOT:
        lanes, row = _bits(plane, lanes), ops.REDUCE_OR
    assert row is not None
    reduction = Op(row, (lanes,), {}, op.results, (), op.span)
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
    row, inclusive = op.row.step, op.row.scan is Scan.INCLUSIVE
    assert row is not None
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
    row = _RELATIVE.get(op.row)
    lane = chosen if row is None else alone.emit(row, own, chosen)
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
    active = finder.program.active
    finder.flush()
    base = plane.base()
    first = base
    if active is not None:
        first = plane.emit(ops.ADD, base, _first_lane(plane, plane.lanes(active)))
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
    if op.row.scan is Scan.EXCLUSIVE:
        dtype = element_of(op.result.type)
        attrs: dict[str, Attr] = {"type": dtype, "value": identity(op.row, dtype)}
        return Op(ops.CONST, (), attrs, op.results, (), op.span)
    if op.row is ops.PLANE_ELECT:
        return Op(ops.CONST, (), {"type": bool_, "value": True}, op.results, (), op.span)
    return op.operands[0] if op.row in PLANE_OPS else None


def split_lines(kernel: Kernel) -> Kernel:
    """The kernel with plane operations on lines as one on each of their lanes."""
    return _Split().run(kernel)


class _Split(Rewriter):
    def visit(self, op: Op) -> None:
        if op.row not in PLANE_OPS or not isinstance(op.result.type, Line):
            self.out.append(self.renew(op))
            return
        (line, *rest), t = self.values(op.operands), op.result.type
        result = line
        for lane in range(t.width):
            attrs: dict[str, Attr] = {"lane": lane}
            scalar = self.emit(ops.EXTRACT, (line,), attrs, op.span)
            value = self.emit(op.row, (scalar, *rest), {}, op.span)
            result = self.emit(ops.INSERT, (result, value), attrs, op.span)
        self.replaced[op.result] = result
