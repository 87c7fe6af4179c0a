"""Minima and maxima of short integers, for a compiler that compares them wrongly.

ptxas (CUDA 13.0 to 13.3) makes one instruction of `m = max(x, 3)` and `m == 3`, where both are of
16 bits or fewer and NVVM did not know that the numbers are the same. The instruction (VIMNMX.S16x2)
compares both halves of a register, and its answer for the upper half, which holds no number,
replaces that for the lower one. NVVM makes such a maximum of a choice by an order as well, and of
wider integers that were short ones before; and it makes an equality of two orders. It does not know
constants that went through what other passes and spellings hide from it. So in a kernel with any of
these, minima, maxima and orders of short integers are those of 32 bits, and one operand is
`HIDDEN`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.cuda import PTX, PTX_UPDATE
from cubepy.ir.types import element_of, i16, i32, with_element
from cubepy.passes.legalise.hide_operands import HideOperands
from cubepy.passes.legalise.linear_forms import is_integer
from cubepy.passes.legalise.rows import HIDDEN, HIDDEN_NEG
from cubepy.passes.origins import Origins

_EXTREMA = (ops.MIN, ops.MAX)
_ORDERS = (ops.LT, ops.LE, ops.GT, ops.GE)
_MOVES = (
    *(ops.CAST, ops.BITCAST, ops.SPLAT, ops.EXTRACT, ops.INSERT, ops.SHUFFLE),
    *(ops.SELECT, ops.IF, ops.FOR, ops.LOOP, *_EXTREMA),
)
"""Operations that hand on the number of an operand."""
_HIDING = (HIDDEN, HIDDEN_NEG, PTX, PTX_UPDATE)
_HIDING_I16 = (ops.NEG, ops.ADD, ops.SUB, ops.MUL)
"""Of these, and of integers that become i16, the results are narrowed out of NVVM's sight."""


def hide_extrema(kernel: Kernel) -> Kernel:
    """The kernel in which a compiler sees no minimum of short integers that may be compared."""
    if not any(map(_hides, kernel.body.walk())):
        return kernel
    found = dict(_of_short(kernel))
    return _Hide(found).run(kernel) if found else kernel


def _hides(op: Op) -> bool:
    """Whether NVVM does not know the result of an operation where ptxas may."""
    if op.row in _HIDING:
        return True
    if op.row not in (ops.CAST, *_HIDING_I16) or element_of(op.result.type) is not i16:
        return False
    source = op.operands[0]
    return op.row is not ops.CAST or (is_integer(source) and not _is_short(source))


def _of_short(kernel: Kernel) -> Iterator[tuple[Op, int]]:
    """The minima, maxima and orders of integers that are short, or were, each with the operand."""
    once_short = _once_short(kernel)
    for op in kernel.body.walk():
        if op.row in (*_EXTREMA, *_ORDERS):
            short = [k for k, v in enumerate(op.operands) if v in once_short]
            if short:
                yield op, short[0]


def _is_short(value: Value) -> bool:
    return is_integer(value) and element_of(value.type).bits <= 16


def _once_short(kernel: Kernel) -> set[Value]:
    """Short integers, and those that may be one that became wider."""
    origins = Origins(kernel)
    handed: dict[Value, list[Value]] = defaultdict(list)
    found: set[Value] = set()
    for op in kernel.body.walk():
        for value in (*op.results, *(arg for region in op.regions for arg in region.args)):
            if not is_integer(value):
                continue
            if _is_short(value):
                found.add(value)
            elif op.row in _MOVES:
                for source in origins.of(value):
                    handed[source].append(value)
    waiting = list(found)
    while waiting:
        more = [v for v in handed[waiting.pop()] if v not in found]
        found.update(more)
        waiting += more
    return found


class _Hide(HideOperands):
    """Computes in 32 bits, and narrows minima again."""

    def prepared(self, value: Value, op: Op) -> Value:
        """A short integer in 32 bits."""
        if not _is_short(value):
            return value
        return self.emit(ops.CAST, (value,), {"type": with_element(value.type, i32)}, op.span)

    def build(self, op: Op, operands: tuple[Value, ...]) -> None:
        """The order, or the minimum as the type that it has."""
        if op.row in _ORDERS or not _is_short(op.result):
            super().build(op, operands)
            return
        wide = self.emit(op.row, operands, dict(op.attrs), op.span)
        self.out.append(Op(ops.CAST, (wide,), {"type": op.result.type}, op.results, (), op.span))
