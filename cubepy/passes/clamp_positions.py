"""Positions that are clamped, as in `x[max(i - 1, 0)]` and `x[min(i + 1, n - 1)]` at borders.

A minimum of a moved position and a limit is the position in nearly all of a row. Written as a
choice by a comparison, loops over positions are cut where that turns, and the middle of a row reads
neighbours.
"""

from __future__ import annotations

from typing import TypeAlias

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.opdef import is_speculatable
from cubepy.ir.types import index
from cubepy.passes.rewrite import Rewriter
from cubepy.record import dataclass

_EXTREMES = {ops.MIN: ops.LT, ops.MAX: ops.GT}
"""The comparison by which each takes its first operand."""
_POSITIONS = (ops.ABSOLUTE_POS, ops.UNIT_POS, ops.CUBE_POS)


@dataclass(frozen=True, slots=True)
class _Choice:
    """`then` where the condition holds, else `other`."""

    condition: Value
    then: _Clamped
    other: _Clamped


_Clamped: TypeAlias = "Value | _Choice"
"""A moved position, or a value that all units share, or a choice among such."""


def clamp_positions(kernel: Kernel, axis: str) -> Kernel:
    """The kernel with choices in the place of minima and maxima of moved positions along an axis;
    itself where there are none."""
    return _Clamp(axis).run(kernel)


class _Clamp(Rewriter):
    def __init__(self, axis: str) -> None:
        super().__init__()
        self._axis = axis
        self._constants: set[Value] = set()
        self._own: set[Value] = set()
        """What differs between units."""
        self._clamped: dict[Value, _Clamped] = {}

    def visit(self, op: Op) -> None:
        if op.row is ops.CONST:
            self._constants.add(op.result)
        is_own = op.row in _POSITIONS or not is_speculatable(op)
        if is_own or any(v in self._own for v in op.operands):
            self._own.update(op.results)
        for region in op.regions:
            self._own.update(region.args)
        is_position = op.row is ops.ABSOLUTE_POS and op.attrs["axis"] == self._axis
        if is_position or (op.row in (ops.ADD, ops.SUB) and self._is_moved(op)):
            self._clamped[op.result] = op.result
        elif op.row in _EXTREMES and op.result.type is index:
            made = self._extreme(op)
            if made is not None:
                self._clamped[op.result] = made
                self.replaced[op.result] = self._written(op, made)
                return
        super().visit(op)

    def _is_moved(self, op: Op) -> bool:
        position, distance = op.operands
        return self._clamped.get(position) is position and distance in self._constants

    def _extreme(self, op: Op) -> _Clamped | None:
        """The choice that a minimum or maximum is; None unless one operand is shared."""
        for value, limit in (op.operands, op.operands[::-1]):
            clamped = self._clamped.get(value)
            if clamped is not None and limit not in self._own:
                return self._limited(op, clamped, self.value(limit))
        return None

    def _limited(self, op: Op, clamped: _Clamped, limit: Value) -> _Clamped:
        if isinstance(clamped, _Choice):
            parts = (self._limited(op, part, limit) for part in (clamped.then, clamped.other))
            return _Choice(clamped.condition, *parts)
        if clamped not in self._own:
            return self._emit(op, op.row, clamped, limit)
        return _Choice(self._emit(op, _EXTREMES[op.row], clamped, limit), clamped, limit)

    def _written(self, op: Op, clamped: _Clamped) -> Value:
        if not isinstance(clamped, _Choice):
            return clamped
        then, other = (self._written(op, part) for part in (clamped.then, clamped.other))
        return self._emit(op, ops.SELECT, clamped.condition, then, other)

    def _emit(self, op: Op, row: ops.OpDef, *operands: Value) -> Value:
        return self.emit(row, operands, {}, op.span, op.result.name)
