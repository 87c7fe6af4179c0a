"""Divisibility of integers: a number that divides the result of an operation.

0 stands for the number 0, which all divide. Sums of indices do not wrap; other integers do, which
keeps divisors that are powers of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from cubepy.ir import ops
from cubepy.ir.core import Op
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import INDICES, DType, element_of

LARGEST = 1 << 40
"""Larger divisors are of no use."""


def result_multiple(op: Op, operands: Sequence[int]) -> int:
    """A number that divides the result of an operation, from those of its operands."""
    if op.row is ops.CONST:
        value = op.attrs["value"]
        return _useful(abs(value)) if isinstance(value, int) else 1
    rule = _RULES.get(op.row)
    if rule is None:
        return 1
    found = _useful(rule(op, operands))
    t = op.results[0].type
    return found if t in INDICES or found == 0 else _power_of_two(found, element_of(t))


def _useful(found: int) -> int:
    return found if found <= LARGEST else min(found & -found, LARGEST)


def _power_of_two(found: int, dtype: DType) -> int:
    """What wrapping keeps."""
    return min(found & -found, 1 << (dtype.bits - 1))


def _common(op: Op, operands: Sequence[int]) -> int:
    return gcd(*operands)


def _chosen(op: Op, operands: Sequence[int]) -> int:
    return gcd(*operands[1:])


def _product(op: Op, operands: Sequence[int]) -> int:
    return operands[0] * operands[1]


def _shared_bits(op: Op, operands: Sequence[int]) -> int:
    """Low bits that are 0 in one of the two."""
    if 0 in operands:
        return 0
    return max(m & -m for m in operands)


def _same(op: Op, operands: Sequence[int]) -> int:
    """Of a number whose sign or type changes; floats divide nothing."""
    dtype = element_of(op.operands[0].type)
    return operands[0] if dtype.is_integer else 1


def _any_bit(op: Op, operands: Sequence[int]) -> int:
    """Low bits that are 0 in both."""
    return min((m & -m for m in operands if m), default=0)


_RULES: dict[OpDef, Callable[[Op, Sequence[int]], int]] = {
    **dict.fromkeys((ops.ADD, ops.SUB, ops.MIN, ops.MAX), _common),
    **dict.fromkeys((ops.MOD, ops.REM_TRUNC), _common),
    **dict.fromkeys((ops.OR, ops.XOR), _any_bit),
    **dict.fromkeys((ops.NEG, ops.ABS, ops.CAST), _same),
    ops.SELECT: _chosen,
    ops.MUL: _product,
    ops.AND: _shared_bits,
}
