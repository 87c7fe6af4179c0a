"""What checked kernels test: bounds, divisors, and index arithmetic that leaves 64 bits.

A check that holds whatever the arguments are is not emitted, or is removed by `passes/prove.py`.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from cubepy.frontend.tracer import Tracer
from cubepy.frontend.values import Index
from cubepy.ir import ops
from cubepy.ir.core import Value
from cubepy.ir.numbers import limits
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Kind, i64, index

LEAST, LARGEST = limits(index)
SYMBOLS = {ops.ADD: "+", ops.SUB: "-", ops.MUL: "*"}


def check(
    tracer: Tracer, condition: Value, kind: str, argument: str, axis: int, *facts: Index
) -> None:
    """End the unit with a fault of `kind` unless the condition holds; `facts` goes with it."""
    operands = [tracer.index_value(x) for x in facts]
    if tracer.only_where is not None:
        outside = tracer.b.emit(ops.NOT, tracer.only_where)
        condition = tracer.b.emit(ops.OR, outside, condition)
    tracer.b.emit_op(ops.CHECK, condition, *operands, kind=kind, argument=argument, axis=axis)


@contextmanager
def unchecked(tracer: Tracer) -> Generator[None]:
    """A block that computes addresses which nothing accesses."""
    outer, tracer.checked = tracer.checked, False
    try:
        yield
    finally:
        tracer.checked = outer


@contextmanager
def checked_where(tracer: Tracer, condition: Value) -> Generator[None]:
    """A block whose checks may fail where the condition does not hold."""
    outer, tracer.only_where = tracer.only_where, condition
    try:
        yield
    finally:
        tracer.only_where = outer


def check_index(tracer: Tracer, i: Index, extent: Index, argument: str, axis: int) -> None:
    """In checked mode, a fault unless 0 <= i < extent."""
    if not tracer.checked or (isinstance(i, int) and isinstance(extent, int) and 0 <= i < extent):
        return
    position, limit = tracer.index_value(i), tracer.index_value(extent)
    below = tracer.b.emit(ops.LT, position, limit)
    above = tracer.b.emit(ops.GE, position, tracer.b.index(0))
    inside = tracer.b.emit(ops.AND, above, below)
    check(tracer, inside, "bounds", argument, axis, position, limit)


def check_start(tracer: Tracer, i: Index, extent: Index, argument: str, axis: int) -> None:
    """In checked mode, a fault if a slice begins below 0; one that begins late is empty."""
    if tracer.checked and not isinstance(i, int):
        condition = tracer.b.emit(ops.GE, i, tracer.b.index(0))
        check(tracer, condition, "bounds", argument, axis, i, extent)


def check_line(
    tracer: Tracer, i: Index, width: int, extent: Index, argument: str, axis: int
) -> None:
    """In checked mode, a fault unless 0 <= i and i + width <= extent; one test for the line.

    It reports the first lane that does not exist, and computes nothing that can leave 64 bits.
    """
    if not tracer.checked:
        return
    b = tracer.b
    zero, begin, end = b.index(0), tracer.index_value(i), tracer.index_value(extent)
    last = tracer.index_value(tracer.sub(extent, width))
    inside = b.emit(ops.AND, b.emit(ops.GE, begin, zero), b.emit(ops.LE, begin, last))
    beyond = b.emit(ops.MAX, begin, end)
    missing = b.emit(ops.SELECT, b.emit(ops.LT, begin, zero), begin, beyond)
    check(tracer, inside, "bounds", argument, axis, missing, end)


_QUOTIENTS = (ops.FLOORDIV, ops.DIV_TRUNC)
_DIVISIONS = (*_QUOTIENTS, ops.MOD, ops.REM_TRUNC)


def check_operands(tracer: Tracer, row: OpDef, left: Value, right: Value) -> None:
    """In a kernel that is to be checked, faults of operands whose result is one by definition.

    Those of scalar integers: lanes that an array lacks hold any number.
    """
    dtype = right.type
    if not tracer.strict or not isinstance(dtype, DType) or not dtype.is_integer:
        return
    if row in _DIVISIONS:
        _check_divisor(tracer, dtype, right)
    if row in _QUOTIENTS and dtype.kind is Kind.INT:
        _check_quotient(tracer, dtype, left, right)
    if row in (ops.SHL, ops.SHR):
        _check_shift(tracer, dtype, right)


def _check_divisor(tracer: Tracer, dtype: DType, divisor: Value) -> None:
    zero = tracer.b.const(0, dtype)
    check(tracer, tracer.b.emit(ops.NE, divisor, zero), "division", "", 0)


def _check_quotient(tracer: Tracer, dtype: DType, left: Value, right: Value) -> None:
    b, least = tracer.b, limits(dtype)[0]
    is_other = b.emit(ops.NE, left, b.const(least, dtype))
    is_inside = b.emit(ops.OR, is_other, b.emit(ops.NE, right, b.const(-1, dtype)))
    check(tracer, is_inside, "quotient", dtype.name, 0, tracer.index(left))


def _check_shift(tracer: Tracer, dtype: DType, count: Value) -> None:
    b = tracer.b
    is_inside = b.emit(ops.LT, count, b.const(dtype.bits, dtype))
    if dtype.kind is Kind.INT:
        is_inside = b.emit(ops.AND, is_inside, b.emit(ops.GE, count, b.const(0, dtype)))
    check(tracer, is_inside, "shift", dtype.name, dtype.bits - 1, tracer.index(count))


def check_range(tracer: Tracer, row: OpDef, left: int | Value, right: int | Value) -> None:
    """A fault where an index sum, difference or product would leave 64 bits."""
    condition = _stays(tracer, row, left, right)
    if condition is not None:
        check(tracer, condition, "overflow", SYMBOLS[row], 0, left, right)


def _stays(tracer: Tracer, row: OpDef, left: int | Value, right: int | Value) -> Value | None:
    """Whether the exact result fits; None where it always does.

    It is computed in i64, whose arithmetic wraps: compilers may rely on that of indices not to.
    """
    if row is ops.MUL and isinstance(left, int):
        left, right = right, left
    if isinstance(right, int) and isinstance(left, Value):
        return _between(tracer, left, *_range_of_left(row, right))
    b, zero = tracer.b, tracer.b.const(0, i64)
    x, y = (tracer.cast(tracer.index_value(v), i64) for v in (left, right))
    result = b.emit(row, x, y)
    if row is ops.MUL:
        sign = b.emit(ops.SHR, result, b.const(63, i64))
        return b.emit(ops.EQ, b.emit(ops.MUL_HI, x, y), sign)
    moved = b.emit(ops.GE if row is ops.ADD else ops.LE, result, x)
    return b.emit(ops.EQ, b.emit(ops.GE, y, zero), moved)


def _range_of_left(row: OpDef, constant: int) -> tuple[int, int]:
    """For which left operands an operation with a constant right one fits."""
    if row is ops.ADD:
        return LEAST - constant, LARGEST - constant
    if row is ops.SUB:
        return LEAST + constant, LARGEST + constant
    if constant == 0:
        return LEAST, LARGEST
    low, high = (LEAST, LARGEST) if constant > 0 else (LARGEST, LEAST)
    return -(-low // constant), high // constant


def _between(tracer: Tracer, value: Value, low: int, high: int) -> Value | None:
    """Whether an index lies in a range; None where every index does."""
    b = tracer.b
    parts: list[Value] = []
    if low > LEAST:
        parts.append(b.emit(ops.GE, value, b.index(low)))
    if high < LARGEST:
        parts.append(b.emit(ops.LE, value, b.index(high)))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else b.emit(ops.AND, *parts)
