"""Positions along an axis, and those put together by hand, become the linear position.

In a grid of one axis, of cubes of one axis, `x` is all there is. And what users of CUDA write for
the position of a unit, `CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X`, is its absolute position, of which
loops over units know more; so is one that was converted to 32 bits, where all positions fit.
"""

from __future__ import annotations

from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.types import i32, index, u32
from cubepy.passes.rewrite import Rewriter

_NARROW = (i32, u32)
_ORDERS = (ops.LT, ops.LE, ops.GT, ops.GE)
_POSITIONS = (ops.UNIT_POS, ops.CUBE_POS, ops.CUBE_COUNT, ops.ABSOLUTE_POS)


def join_positions(kernel: Kernel) -> Kernel:
    """The kernel with positions as few as there are."""
    return _Join(kernel).run(kernel)


class _Join(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._dims = dict(zip("xyz", kernel.cube_dim, strict=True))
        self._is_line = kernel.flat and kernel.cube_dim[1:] == (1, 1)
        self._fits = kernel.limit < 1 << 31
        self._sources: dict[Value, Op] = {}
        self._converted: dict[Value, Value] = {}
        """Of positions in 32 bits: the positions."""

    def visit(self, op: Op) -> None:
        if op.row in _POSITIONS and self._is_line and op.attrs["axis"] != "all":
            self._of_line(op)
        elif op.row is ops.ADD and (axis := self._axis_of_sum(op)):
            made = self.emit(ops.ABSOLUTE_POS, (), {"axis": axis}, op.span, "absolute_pos")
            self.replaced[op.result] = made
        elif op.row is ops.CAST and op.result.type is index and op.operands[0] in self._converted:
            self.replaced[op.result] = self._converted[op.operands[0]]
        elif op.row in _ORDERS and not self._converted.keys().isdisjoint(op.operands):
            self._compare(op)
        else:
            super().visit(op)
            self._note(op)
        for made_op in self.out[-1:]:
            self._sources.update((result, made_op) for result in made_op.results)

    def _of_line(self, op: Op) -> None:
        if op.attrs["axis"] == "x":
            made = self.emit(op.row, (), {"axis": "all"}, op.span, op.result.name)
        else:
            made = self.emit_const(index, int(op.row is ops.CUBE_COUNT), op.span)
        self.replaced[op.result] = made

    def _note(self, op: Op) -> None:
        """Note a position that is converted to a type that has all positions."""
        if not self._fits or op.row is not ops.CAST or op.result.type not in _NARROW:
            return
        position = self.value(op.operands[0])
        source = self._sources.get(position)
        if source is not None and source.row is ops.ABSOLUTE_POS:
            self._converted[op.result] = position

    def _compare(self, op: Op) -> None:
        """Compare the position itself."""
        operands = [self._converted.get(v) or self._wide(v, op) for v in op.operands]
        made = Op(op.row, tuple(operands), op.attrs, op.results, (), op.span)
        self.out.append(made)

    def _wide(self, value: Value, op: Op) -> Value:
        return self.emit(ops.CAST, (self.value(value),), {"type": index}, op.span, value.name)

    def _axis_of_sum(self, op: Op) -> str:
        """The axis of which a sum is the absolute position; else empty."""
        if op.result.type is not index:
            return ""
        a, b = (self._sources.get(v) for v in self.values(op.operands))
        if a is not None and a.row is ops.UNIT_POS:
            a, b = b, a
        if a is None or b is None or a.row is not ops.MUL or b.row is not ops.UNIT_POS:
            return ""
        axis = str(b.attrs["axis"])
        extent = prod(self._dims.values()) if axis == "all" else self._dims[axis]
        factors = [self._sources.get(v) for v in a.operands]
        cubes = [f for f in factors if f is not None and f.row is ops.CUBE_POS]
        numbers = [f.attrs["value"] for f in factors if f is not None and f.row is ops.CONST]
        found = [f.attrs["axis"] for f in cubes] == [axis] and numbers == [extent]
        return axis if found else ""
