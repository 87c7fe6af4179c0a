"""Minima and maxima of short integers, for a compiler that compares them wrongly.

ptxas (CUDA 13.0 to 13.3) makes one instruction of `m = max(x, 3)` and `m == 3`, where both are of
16 bits or fewer and NVVM did not know that the numbers are the same. The instruction (VIMNMX.S16x2)
compares both halves of a register, and its answer for the upper half, which holds no number,
replaces that for the lower one. NVVM makes such a maximum of a choice by an order as well, and of
wider integers that were short ones before. So in a kernel that asks whether integers are equal,
minima, maxima and orders of short ones are those of 32 bits, of which one operand is `HIDDEN`; on a
GPU that is at most one instruction more.
"""

from __future__ import annotations

from collections.abc import Iterator

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.types import bool_, element_of, i32, with_element
from cubepy.passes.legalise.linear_forms import is_integer
from cubepy.passes.legalise.rows import HIDDEN
from cubepy.passes.origins import Origins
from cubepy.passes.rewrite import Rewriter

_EXTREMA = (ops.MIN, ops.MAX)
_ORDERS = (ops.LT, ops.LE, ops.GT, ops.GE)
_MOVES = (
    *(ops.CAST, ops.BITCAST, ops.SPLAT, ops.EXTRACT, ops.INSERT, ops.SHUFFLE),
    *(ops.SELECT, ops.IF, ops.FOR, ops.LOOP, *_EXTREMA),
)
"""Operations that hand on the number of an operand."""


def hide_extrema(kernel: Kernel) -> Kernel:
    """The kernel in which a compiler sees no minimum of short integers that may be compared."""
    if not any(map(_asks_equality, kernel.body.walk())):
        return kernel
    found = dict(_of_short(kernel))
    return _Hide(found).run(kernel) if found else kernel


def _asks_equality(op: Op) -> bool:
    is_truth = op.row is ops.CAST and element_of(op.result.type) is bool_
    return (is_truth or op.row in (ops.EQ, ops.NE)) and is_integer(op.operands[0])


def _of_short(kernel: Kernel) -> Iterator[tuple[Op, int]]:
    """The minima, maxima and orders of integers that are short, or were, each with the operand."""
    origins = Origins(kernel)
    for op in kernel.body.walk():
        if op.row in (*_EXTREMA, *_ORDERS) and is_integer(op.operands[0]):
            short = [k for k, v in enumerate(op.operands) if _was_short(v, origins)]
            if short:
                yield op, short[0]


def _is_short(value: Value) -> bool:
    return is_integer(value) and element_of(value.type).bits <= 16


def _was_short(value: Value, origins: Origins) -> bool:
    """Whether a value is a short integer, or may be one that became wider."""
    seen: set[Value] = set()
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if _is_short(value):
            return True
        op = origins.owner(value)
        if op is not None and op.row in _MOVES:
            waiting += filter(is_integer, origins.of(value))
    return False


class _Hide(Rewriter):
    def __init__(self, found: dict[Op, int]) -> None:
        super().__init__()
        self._found = found

    def visit(self, op: Op) -> None:
        place = self._found.get(op)
        if place is None:
            self.out.append(self.renew(op))
            return
        operands = [self._widened(value, op) for value in self.values(op.operands)]
        operands[place] = self.emit(HIDDEN, (operands[place],), {}, op.span)
        if op.row in _ORDERS or not _is_short(op.result):
            self.out.append(Op(op.row, tuple(operands), op.attrs, op.results, (), op.span))
            return
        wide = self.emit(op.row, operands, dict(op.attrs), op.span)
        self.out.append(Op(ops.CAST, (wide,), {"type": op.result.type}, op.results, (), op.span))

    def _widened(self, value: Value, op: Op) -> Value:
        """A short integer in 32 bits."""
        if not _is_short(value):
            return value
        return self.emit(ops.CAST, (value,), {"type": with_element(value.type, i32)}, op.span)
