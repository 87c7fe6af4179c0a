"""Which type an operation or an assignment has: literals, widening, lines. Rules of design 5.

Pure functions over types; conversions are emitted by the tracer.
"""

from __future__ import annotations

from cubepy.ir.numbers import limits
from cubepy.ir.types import (
    DType,
    Kind,
    Line,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i16,
    i32,
    i64,
    index,
    make_line,
    u64,
)

_LARGEST_FLOAT = 1024
"""Bits of an integer that even f64 does not hold."""
_SIGNED = {8: i16, 16: i32, 32: i64}


INTEGERS = (i32, i64, u64)
"""The types of integer literals that nothing else gives a type: the first that holds one."""


class NoCommonType(Exception):
    """Two types that do not combine."""


def promote(a: DType, b: DType) -> DType:
    """The common type of two typed operands; `NoCommonType` for u64 with a signed type."""
    if a is b:
        return a
    if a.kind is Kind.BOOL or b.kind is Kind.BOOL:
        return b if a.kind is Kind.BOOL else a
    if a.is_float or b.is_float:
        return _promote_float(a, b)
    if index in (a, b):
        return _promote_index(b if a is index else a)
    if a.kind is b.kind:
        return a if a.bits >= b.bits else b
    return _promote_mixed(*((a, b) if a.kind is Kind.INT else (b, a)))


def _promote_float(a: DType, b: DType) -> DType:
    if not (a.is_float and b.is_float):
        return a if a.is_float else b
    if a.bits == b.bits:
        return f32
    wide = a if a.bits > b.bits else b
    return f32 if {a, b} == {f16, bf16} else wide


def _promote_index(other: DType) -> DType:
    if other.kind is Kind.UINT and other.bits == 64:
        raise NoCommonType
    return index


def _promote_mixed(signed: DType, unsigned: DType) -> DType:
    if unsigned.bits == 64:
        raise NoCommonType
    return _SIGNED[unsigned.bits] if unsigned.bits >= signed.bits else signed


def literal_type(value: bool | int | float) -> DType:
    """The type of a literal that nothing else gives a type: bool, f32, or the first of `INTEGERS`.

    One that no type holds has the widest.
    """
    if isinstance(value, bool):
        return bool_
    if isinstance(value, float):
        return f32
    return next((t for t in INTEGERS if fits(value, t)), INTEGERS[-1])


def fits(value: int, dtype: DType) -> bool:
    """Whether an integer type holds `value`."""
    low, high = limits(dtype)
    return low <= value <= high


def holds(dtype: DType, value: bool | int | float) -> bool:
    """Whether a literal can become a value of `dtype`; floats are rounded, integers must fit."""
    if not isinstance(value, int) or isinstance(value, bool):
        return True
    if dtype.is_float:
        return value.bit_length() < _LARGEST_FLOAT
    return not dtype.is_integer or fits(value, dtype)


def promote_literal(value: bool | int | float, dtype: DType) -> DType:
    """The type of an operation between a literal and an operand of type `dtype`."""
    if isinstance(value, bool):
        return dtype
    if isinstance(value, float):
        return dtype if dtype.is_float else f32
    return i32 if dtype.kind is Kind.BOOL else dtype


def zero_of(dtype: DType) -> bool | int | float:
    """The literal zero of a kind of numbers."""
    return 0.0 if dtype.is_float else False if dtype.kind is Kind.BOOL else 0


def convert_literal(x: bool | int | float, dtype: DType) -> bool | int | float:
    """A literal as the constant of a type, converted explicitly; integers wrap around."""
    if dtype.is_float:
        return float(x)
    return dtype(x) if isinstance(x, float) or dtype.kind is Kind.BOOL else dtype(int(x))


def widen_start(kind: Kind, dtype: DType) -> DType:
    """The type of a local that starts as a literal of a kind and is then assigned `dtype`.

    It accumulates in f32 or in 32 bits at least, unless the start was cast.
    """
    if kind is Kind.FLOAT and not dtype.is_float:
        return f32
    if dtype.is_float:
        return f32 if dtype.bits < 32 else dtype
    if dtype.kind is Kind.BOOL:
        return dtype if kind is Kind.BOOL else i32
    return i32 if dtype.bits < 32 else dtype


def promote_types(a: DType | Line, b: DType | Line) -> DType | Line:
    """As `promote`, for scalars and lines; a scalar is repeated to the width of a line."""
    element = promote(_element(a), _element(b))
    widths = {t.width for t in (a, b) if isinstance(t, Line)}
    if len(widths) > 1:
        raise NoCommonType
    return make_line(element, widths.pop()) if widths else element


def _element(t: DType | Line) -> DType:
    return t.element if isinstance(t, Line) else t


def widest_float(dtypes: list[DType]) -> DType:
    """The type of a Python float argument: the widest float among the tensors', else f32."""
    floats = [d for d in dtypes if d.is_float and d.bits >= 32]
    return f64 if f64 in floats else f32
