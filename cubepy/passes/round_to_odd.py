"""Values on their way to a small float: in f32, rounded to odd, so that they round once in all."""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Op, Value
from cubepy.ir.types import Kind, Type, element_of, f32, f64, i32, i64, u32, u64, with_element
from cubepy.lang.math.small_floats import (
    f64_to_odd_f32,
    int_to_odd_f32,
    odd_fma_f32,
    odd_fma_f64,
    uint_to_odd_f32,
)
from cubepy.passes.inline import inlined
from cubepy.span import Span

_WIDE = {i32: int_to_odd_f32, i64: int_to_odd_f32, u32: uint_to_odd_f32, u64: uint_to_odd_f32}
"""Integers with more digits than f32."""


def odd_f32(value: Value, span: Span | None, out: list[Op]) -> Value:
    """The f32 of a number: exact, or rounded to odd."""
    dtype, wide = element_of(value.type), with_element(value.type, f32)
    if dtype is f64:
        return inlined(f64_to_odd_f32, (value,), wide, span, out)
    if dtype.kind in (Kind.INT, Kind.UINT) and dtype.bits > 16:
        named = next(d for d in _WIDE if (d.kind, d.bits) == (dtype.kind, dtype.bits))
        plain = cast(value, with_element(value.type, named), span, out)
        return inlined(_WIDE[named], (plain,), wide, span, out)
    return cast(value, wide, span, out)


def odd_fma(operands: tuple[Value, ...], in_f64: bool, span: Span | None, out: list[Op]) -> Value:
    """The f32 of a * b + c for operands in f32 whose digits are those of small floats."""
    narrow = operands[0].type
    if not in_f64:
        return inlined(odd_fma_f32, operands, narrow, span, out)  # type: ignore[arg-type]
    wide = with_element(narrow, f64)
    longer = tuple(cast(v, wide, span, out) for v in operands)
    return odd_f32(inlined(odd_fma_f64, longer, wide, span, out), span, out)


def cast(value: Value, t: Type, span: Span | None, out: list[Op]) -> Value:
    """Append a conversion where there is anything to convert."""
    if value.type == t:
        return value
    result = Value(t)
    out.append(Op(ops.CAST, (value,), {"type": t}, (result,), (), span))  # type: ignore[dict-item]
    return result
