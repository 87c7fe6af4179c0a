"""Loops that stride over a grid run once for the cube, with its units side by side inside.

`for k in range(ABSOLUTE_POS, n, CUBE_COUNT * CUBE_DIM)` suits units that run at once. Where loops
run them in turn, each would stride over all memory. So such a loop becomes one over the
places of the cube's first unit, with a barrier in it, at which fission cuts: the loop over units is
then the inner one and goes along memory.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.types import Type, bool_, index
from cubepy.passes.rewrite import copy_op
from cubepy.passes.uniformity import Uniform

MIN_UNITS = 16


def interleave_units(kernel: Kernel) -> Kernel:
    """The kernel with its outermost loops over the grid's stride turned inside out."""
    rows = {op.row for op in kernel.body.walk()}
    locals_ = (o for o in kernel.body.walk() if o.row is ops.ALLOC and o.attrs["space"] == "local")
    if ops.FOR not in rows or prod(kernel.cube_dim) < MIN_UNITS or any(locals_):
        return kernel
    if kernel.plane_dim > 1 or any(_returns(op) for op in kernel.body.ops):
        return kernel
    strides = _Strides(kernel)
    body: list[Op] = []
    for op in kernel.body.ops:
        body += strides.turned(op)
    return replace(kernel, body=Region((), tuple(body))) if strides.found else kernel


def _returns(op: Op) -> bool:
    return any(o.row is ops.RETURN for region in op.regions for o in region.walk())


class _Strides:
    def __init__(self, kernel: Kernel) -> None:
        self._units = prod(kernel.cube_dim)
        self._sources = {v: op for op in kernel.body.ops for v in op.results}
        self._uniform = Uniform(kernel)
        self.found = False

    def turned(self, op: Op) -> list[Op]:
        """The operations that stand for one of the kernel's body."""
        if op.row is not ops.FOR or len(op.operands) > 3:
            return [op]
        start, stop, step = (op.operands[k] for k in range(3))
        if start.type is not index:
            return [op]
        known = not self._uniform.is_varying(stop) and self._strides(step)
        if not known or not _is_plain(op.regions[0]):
            return [op]
        before: list[Op] = []
        first = self._first(start, before)
        if first is None:
            return [op]
        self.found = True
        return [*before, self._loop(op, first, stop, step)]

    def _strides(self, step: Value) -> bool:
        """Whether a step is positive and goes beyond the cube: a product with the cube count, or
        the number of units."""
        op = self._sources.get(step)
        if op is None:
            return False
        if op.row is ops.CONST:
            value = op.attrs["value"]
            return isinstance(value, int) and value >= self._units
        if op.row is ops.CUBE_COUNT:
            return True
        return op.row is ops.MUL and all(self._is_factor(v) for v in op.operands)

    def _is_factor(self, value: Value) -> bool:
        op = self._sources.get(value)
        if op is not None and op.row is ops.CONST:
            number = op.attrs["value"]
            return isinstance(number, int) and number > 0
        return self._strides(value)

    def _first(self, start: Value, out: list[Op]) -> Value | None:
        """Where the cube's first unit starts, if the others follow it one by one."""
        op = self._sources.get(start)
        if op is None or op.attrs.get("axis") != "all":
            return None
        if op.row is ops.UNIT_POS:
            return _emit(ops.CONST, (), index, out, type=index, value=0)
        if op.row is not ops.ABSOLUTE_POS:
            return None
        cube = _emit(ops.CUBE_POS, (), index, out, axis="all")
        units = _emit(ops.CONST, (), index, out, type=index, value=self._units)
        return _emit(ops.MUL, (cube, units), index, out)

    def _loop(self, op: Op, first: Value, stop: Value, step: Value) -> Op:
        """Whole cubes run without a test for each unit."""
        base, out = Value(index, "base"), list[Op]()
        units = _emit(ops.CONST, (), index, out, type=index, value=self._units)
        rest = _emit(ops.SUB, (stop, base), index, out)
        whole = _emit(ops.LE, (units, rest), bool_, out)
        parts = (self._part(op, base, None), self._part(op, base, rest))
        regions = tuple(Region((), (*part, Op(ops.YIELD))) for part in parts)
        out.append(Op(ops.IF, (whole,), {}, (), regions, op.span))
        out.append(Op(ops.CONTINUE, span=op.span))
        body = Region((base,), tuple(out))
        return Op(ops.FOR, (first, stop, step), op.attrs, (), (body,), op.span)

    def _part(self, op: Op, base: Value, rest: Value | None) -> list[Op]:
        """The body for all units, or for those below `rest`."""
        (body,) = op.regions
        out: list[Op] = [Op(ops.SYNC_CUBE, span=op.span)]
        unit = _emit(ops.UNIT_POS, (), index, out, axis="all")
        work: list[Op] = []
        copies = {body.args[0]: _emit(ops.ADD, (base, unit), index, work)}
        work += [copy_op(inner, copies) for inner in body.ops[:-1]]
        if rest is None:
            return [*out, *work]
        inside = _emit(ops.LT, (unit, rest), bool_, out)
        sides = (Region((), (*work, Op(ops.YIELD))), Region((), (Op(ops.YIELD),)))
        return [*out, Op(ops.IF, (inside,), {}, (), sides, op.span)]


def _is_plain(body: Region) -> bool:
    """Whether a loop's body neither waits nor jumps, but to its end."""
    return body.terminator.row is ops.CONTINUE and not any(
        _stops(op, inside=False) for op in body.ops[:-1]
    )


def _stops(op: Op, inside: bool) -> bool:
    if op.row in (ops.SYNC_CUBE, ops.SYNC_PLANE, ops.SYNC_STORAGE, ops.RETURN, ops.PRINT):
        return True
    if op.row in (ops.BREAK, ops.CONTINUE):
        return not inside
    inner = inside or op.row in (ops.FOR, ops.LOOP)
    return any(_stops(o, inner) for region in op.regions for o in region.ops)


def _emit(
    row: ops.OpDef, operands: tuple[Value, ...], t: Type, out: list[Op], **attrs: Attr
) -> Value:
    result = Value(t)
    out.append(Op(row, operands, attrs, (result,)))
    return result
