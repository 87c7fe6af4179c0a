"""Numeric functions of Python and NumPy that take several operations: `round`, `clip`, `fmod`."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.intrinsics import common, maximum, minimum
from cubepy.frontend.operators import binary
from cubepy.frontend.promote import holds
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import is_comptime
from cubepy.ir import ops
from cubepy.ir.core import Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, element_of, f32, f64, with_element


def _named(name: str, parameters: str) -> Any:
    """The signature of a function of NumPy, for errors: the frontend does not import NumPy."""

    def function() -> None: ...

    function.__name__ = name
    kind = Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = Signature([Parameter(p, kind) for p in parameters.split()])  # type: ignore[attr-defined]
    return function


# Rounding to digits


@intrinsic(builtins.round)
def _round(frame: Frame, number: Any, ndigits: Any = None) -> Any:
    if is_comptime(number) and is_comptime(ndigits):
        return round(number) if ndigits is None else round(number, ndigits)
    folded = frame.tracer.fold_literals(
        round, *((number,) if ndigits is None else (number, ndigits))
    )
    if folded is not None:
        return folded
    v = frame.tracer.value(number)
    if ndigits is None:
        return frame.tracer.b.emit(ops.RINT, v) if element_of(v.type).is_float else v
    if isinstance(ndigits, bool) or not isinstance(ndigits, int):
        hint = "write a literal, or pass it as a cp.Comptime parameter"
        raise frame.tracer.error("E112", what="the number of digits of round()", hint=hint)
    if element_of(v.type).is_float:
        return _round_float(frame, v, ndigits)
    return v if ndigits >= 0 else _round_integer(frame, v, -ndigits)


@intrinsic(_named("round", "a decimals"), numpy=("round", "around"))
def _round_to_decimals(frame: Frame, a: Any, decimals: Any = 0) -> Any:
    return _round(frame, a, decimals)


_EXACT_POWERS = {f32: 10, f64: 22}
"""The largest power of ten that each type holds exactly."""


def _round_float(frame: Frame, v: Value, digits: int) -> Value:
    """The float closest to the decimal that is closest to `v`, as in Python; ties go to even.

    `p` is `v * 10**digits`, rounded. Where it lies halfway between integers, the sign of what it
    lacks decides. Where it is too large for a fraction, `v` has no more digits than asked for.
    """
    b, t = frame.tracer.b, v.type
    dtype = element_of(t)
    if dtype.bits < f32.bits:
        wide = _round_float(frame, frame.tracer.cast(v, with_element(t, f32)), digits)
        return frame.tracer.cast(wide, with_element(t, dtype))
    limit, power = _EXACT_POWERS[dtype], abs(digits)
    if power > limit:
        raise _too_many(frame, dtype, f"{-limit} to {limit}", digits)

    def number(x: float) -> Value:
        return b.const(x, with_element(t, dtype))

    scale = number(10.0**power)
    p = b.emit(ops.MUL if digits >= 0 else ops.DIV, v, scale)
    minus = b.emit(ops.NEG, p)
    lacking = b.emit(ops.FMA, *((v, scale, minus) if digits >= 0 else (minus, scale, v)))
    whole = b.emit(ops.RINT, p)
    over = b.emit(ops.SUB, p, whole)
    for half, compare, sign, step in (
        (0.5, ops.GE, ops.GT, ops.ADD),
        (-0.5, ops.LE, ops.LT, ops.SUB),
    ):
        is_half = b.emit(compare, over, number(half))
        moves = b.emit(ops.AND, is_half, b.emit(sign, lacking, number(0.0)))
        whole = b.emit(ops.SELECT, moves, b.emit(step, whole, number(1.0)), whole)
    whole = b.emit(ops.COPYSIGN, whole, v)
    found = b.emit(ops.DIV if digits >= 0 else ops.MUL, whole, scale)
    has_fraction = b.emit(ops.LT, b.emit(ops.ABS, p), number(2.0 ** (53 if dtype is f64 else 24)))
    return b.emit(ops.SELECT, has_fraction, found, v)


def _round_integer(frame: Frame, v: Value, digits: int) -> Any:
    """The multiple of `10**digits` closest to an integer; ties go to the even multiple."""
    dtype, step = element_of(v.type), 10**digits
    if not holds(dtype, step):
        least = next(k for k in range(digits) if not holds(dtype, 10 ** (k + 1)))
        raise _too_many(frame, dtype, f"{-least} or more", -digits)
    quotient, rest = binary(frame, ast.FloorDiv, v, step), binary(frame, ast.Mod, v, step)
    left = binary(frame, ast.Sub, step, rest)
    b = frame.tracer.b
    is_odd = frame.tracer.cast(binary(frame, ast.BitAnd, quotient, 1), with_element(v.type, dtype))
    above = b.emit(ops.GT, rest, left)
    at_half = b.emit(ops.EQ, rest, left)
    odd_half = b.emit(ops.AND, at_half, b.emit(ops.NE, is_odd, b.const(0, v.type)))
    rises = b.emit(ops.OR, above, odd_half)
    return binary(
        frame,
        ast.Mult,
        b.emit(ops.SELECT, rises, binary(frame, ast.Add, quotient, 1), quotient),
        step,
    )


def _too_many(frame: Frame, dtype: DType, expected: str, digits: int) -> Exception:
    what = f"the number of digits of round() for {dtype.name}"
    return frame.tracer.error("E207", what=what, expected=expected, given=str(digits))


# Limits


def _ignoring_nan(row: OpDef) -> Callable[..., Any]:
    """NumPy's `fmin` or `fmax`: the other operand where one is NaN."""
    python = min if row is ops.MIN else max

    def handler(frame: Frame, x1: Any, x2: Any) -> Any:
        if is_comptime(x1) and is_comptime(x2):
            return x2 if x1 != x1 else x1 if x2 != x2 else python(x1, x2)
        a, b = common(frame, (x1, x2), f"f{row.name}")
        emit = frame.tracer.b.emit
        if not element_of(a.type).is_float:
            return (minimum if row is ops.MIN else maximum)(frame, a, b)
        number = emit(ops.SELECT, emit(ops.NE, b, b), a, emit(row, a, b))
        return emit(ops.SELECT, emit(ops.NE, a, a), b, number)

    return handler


intrinsic(_named("fmin", "x1 x2"), numpy=("fmin",))(_ignoring_nan(ops.MIN))
intrinsic(_named("fmax", "x1 x2"), numpy=("fmax",))(_ignoring_nan(ops.MAX))


@intrinsic(_named("clip", "a a_min a_max"), numpy=("clip",))
def _clip(frame: Frame, a: Any, a_min: Any = None, a_max: Any = None) -> Any:
    found = a if a_min is None else maximum(frame, a, a_min)
    return found if a_max is None else minimum(frame, found, a_max)


# Remainders


@intrinsic(math.fmod, numpy=("fmod",))
def _fmod(frame: Frame, x: Any, y: Any) -> Any:
    """C's remainder, with the sign of `x`: exact for floats."""
    if is_comptime(x) and is_comptime(y):
        return math.fmod(x, y)
    folded = frame.tracer.fold_literals(math.fmod, x, y)
    if folded is not None:
        return folded
    a, b = common(frame, (x, y), "fmod")
    emit = frame.tracer.b.emit
    if element_of(a.type).is_integer:
        return emit(ops.REM_TRUNC, a, b)
    rest = emit(ops.MOD, emit(ops.ABS, a), emit(ops.ABS, b))
    return emit(ops.COPYSIGN, rest, a)
