"""Positions of units and cubes in terms of those along the axes, which all targets have."""

from __future__ import annotations

from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, element_of, index
from cubepy.passes.legalise.rows import NOTE
from cubepy.passes.rewrite import Rewriter

_AXES = ("x", "y", "z")
_NAMES = {ops.UNIT_POS: "unit", ops.CUBE_POS: "cube", ops.CUBE_COUNT: "count"}


def lower_positions(kernel: Kernel) -> Kernel:
    """The kernel with positions along single axes only."""
    return _Positions(kernel).run(kernel)


class _Positions(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._dims: dict[str, int] = dict(zip(_AXES, kernel.cube_dim, strict=True))
        self._units = prod(kernel.cube_dim)
        self._flat = kernel.flat
        self._op: Op = kernel.body.terminator
        self._type: DType = index

    def visit(self, op: Op) -> None:
        axis = str(op.attrs.get("axis"))
        self._op = op
        self._type = element_of(op.results[0].type) if op.results else index
        if op.row is ops.ABSOLUTE_POS:
            self.replaced[op.result] = self._absolute(axis)
        elif op.row is ops.UNIT_POS:
            self.replaced[op.result] = self._unit(axis)
        elif op.row in (ops.CUBE_POS, ops.CUBE_COUNT) and axis == "all":
            self.replaced[op.result] = self._cube(op.row)
        elif op.row is ops.FAULT:
            self._fault(op)
        else:
            self.out.append(self.renew(op))

    def _fault(self, op: Op) -> None:
        """A fault has the positions of the unit and of the cube, then its own indices."""
        places = (self._unit("all"), self._cube(ops.CUBE_POS))
        noted = self.values(op.operands)
        self.out.append(Op(NOTE, (*places, *noted), op.attrs, (), (), op.span))

    def _e(self, row: OpDef, *operands: Value, name: str = "") -> Value:
        return self.emit(row, operands, {}, self._op.span, name)

    def _index(self, number: int) -> Value:
        return self.emit_const(self._type, number, self._op.span)

    def _axis(self, row: OpDef, axis: str) -> Value:
        attrs: dict[str, Attr] = {"axis": axis, "type": self._type}
        return self.emit(row, (), attrs, self._op.span, f"{_NAMES[row]}_{axis}")

    def _absolute(self, axis: str) -> Value:
        if axis == "all":
            cube, count = self._cube(ops.CUBE_POS), self._index(self._units)
            first = self._e(ops.MUL, cube, count)
            return self._e(ops.ADD, first, self._unit("all"), name="absolute_pos")
        first = self._e(ops.MUL, self._axis(ops.CUBE_POS, axis), self._index(self._dims[axis]))
        return self._e(ops.ADD, first, self._unit(axis), name=f"absolute_{axis}")

    def _unit(self, axis: str) -> Value:
        """(z * dim_y + y) * dim_x + x; axes of extent one are 0."""
        if axis != "all":
            return self._index(0) if self._dims[axis] == 1 else self._axis(ops.UNIT_POS, axis)
        position: Value | None = None
        for name in reversed(_AXES):
            own = self._unit(name)
            if position is None:
                position = own
            else:
                row = self._e(ops.MUL, position, self._index(self._dims[name]))
                position = self._e(ops.ADD, row, own)
        assert position is not None
        return position

    def _cube(self, row: OpDef) -> Value:
        """(z * count_y + y) * count_x + x; the count is the product. A flat grid has x alone."""
        if self._flat:
            return self._axis(row, "x")
        x, y, z = (self._axis(row, axis) for axis in _AXES)
        count_x, count_y = (self._axis(ops.CUBE_COUNT, axis) for axis in ("x", "y"))
        if row is ops.CUBE_COUNT:
            return self._e(ops.MUL, self._e(ops.MUL, x, y), z)
        plane = self._e(ops.ADD, self._e(ops.MUL, z, count_y), y)
        return self._e(ops.ADD, self._e(ops.MUL, plane, count_x), x, name="cube_pos")
