"""Numeric functions of Python and NumPy that take several operations, such as `round` and `clip`,
and those of NumPy that are operators by another name, such as `add`."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from cubepy.frontend.checks import check_operands
from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.intrinsics import common, maximum, minimum
from cubepy.frontend.operators import binary, comparison, inverted, unary
from cubepy.frontend.promote import holds
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import is_comptime
from cubepy.ir import ops
from cubepy.ir.core import Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Kind, bool_, element_of, f32, f64, with_element
from cubepy.lang import builtins as lang


def named(name: str, parameters: str) -> Any:
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


@intrinsic(named("round", "a decimals"), numpy=("round", "around"))
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


intrinsic(named("fmin", "x1 x2"), numpy=("fmin",))(_ignoring_nan(ops.MIN))
intrinsic(named("fmax", "x1 x2"), numpy=("fmax",))(_ignoring_nan(ops.MAX))


@intrinsic(named("clip", "a a_min a_max"), numpy=("clip",))
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
        check_operands(frame.tracer, ops.REM_TRUNC, a, b)
        return emit(ops.REM_TRUNC, a, b)
    rest = emit(ops.MOD, emit(ops.ABS, a), emit(ops.ABS, b))
    return emit(ops.COPYSIGN, rest, a)


# Operators by name

_BINARY: dict[str, type[ast.operator]] = {
    "add": ast.Add,
    "subtract": ast.Sub,
    "multiply": ast.Mult,
    "divide": ast.Div,
    "floor_divide": ast.FloorDiv,
    "remainder": ast.Mod,
    "bitwise_and": ast.BitAnd,
    "bitwise_or": ast.BitOr,
    "bitwise_xor": ast.BitXor,
    "left_shift": ast.LShift,
    "right_shift": ast.RShift,
}
_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "equal": ast.Eq,
    "not_equal": ast.NotEq,
    "less": ast.Lt,
    "less_equal": ast.LtE,
    "greater": ast.Gt,
    "greater_equal": ast.GtE,
}
_UNARY: dict[str, type[ast.unaryop]] = {
    "negative": ast.USub,
    "positive": ast.UAdd,
    "invert": ast.Invert,
}
_LOGICAL: dict[str, type[ast.operator]] = {
    "logical_and": ast.BitAnd,
    "logical_or": ast.BitOr,
    "logical_xor": ast.BitXor,
}


def _of_one(kind: type[ast.unaryop]) -> Callable[..., Any]:
    def handler(frame: Frame, x: Any) -> Any:
        return unary(frame, kind, x)

    return handler


def _of_two(kind: Any, apply: Callable[..., Any]) -> Callable[..., Any]:
    def handler(frame: Frame, x1: Any, x2: Any) -> Any:
        return apply(frame, kind, x1, x2)

    return handler


def _truth(frame: Frame, a: Any) -> Any:
    """Whether a number is not 0, for each lane of a line."""
    if is_comptime(a):
        return bool(a)
    v = frame.tracer.value(a)
    return v if element_of(v.type) is bool_ else comparison(frame, ast.NotEq, v, 0)


def _logical(frame: Frame, kind: type[ast.operator], x1: Any, x2: Any) -> Any:
    return binary(frame, kind, _truth(frame, x1), _truth(frame, x2))


for _name, _kind in _UNARY.items():
    intrinsic(named(_name, "x"), numpy=(_name,))(_of_one(_kind))
for _kinds, _apply in ((_BINARY, binary), (_COMPARISONS, comparison), (_LOGICAL, _logical)):
    for _name, _kind in _kinds.items():
        intrinsic(named(_name, "x1 x2"), numpy=(_name,))(_of_two(_kind, _apply))


@intrinsic(named("logical_not", "x"), numpy=("logical_not",))
def _logical_not(frame: Frame, x: Any) -> Any:
    return inverted(frame, _truth(frame, x))


@intrinsic(named("square", "x"), numpy=("square",))
def _square(frame: Frame, x: Any) -> Any:
    return binary(frame, ast.Mult, x, x)


@intrinsic(named("reciprocal", "x"), numpy=("reciprocal",))
def _reciprocal(frame: Frame, x: Any) -> Any:
    """One over a float; of an integer it would be 0, or no number."""
    if not is_comptime(x) and not element_of(frame.tracer.value(x).type).is_float:
        hint = "convert it to a float first, as in cp.f32(x)"
        raise frame.tracer.error("E201", operator="reciprocal", types="integers", suggestion=hint)
    return binary(frame, ast.Div, 1.0, x)


# Kinds of floats, and signs


@intrinsic(lang.isinf, math.isinf, numpy=("isinf",))
def _isinf(frame: Frame, a: Any) -> Any:
    return math.isinf(a) if is_comptime(a) else _compare_magnitude(frame, a, ops.EQ)


@intrinsic(lang.isfinite, math.isfinite, numpy=("isfinite",))
def _isfinite(frame: Frame, a: Any) -> Any:
    return math.isfinite(a) if is_comptime(a) else _compare_magnitude(frame, a, ops.LT)


def _compare_magnitude(frame: Frame, a: Any, row: OpDef) -> Value:
    """`abs(a)` against infinity; all integers are finite."""
    v, b = frame.tracer.value(a), frame.tracer.b
    if not element_of(v.type).is_float:
        return b.const(row is ops.LT, with_element(v.type, bool_))
    if element_of(v.type).bits == 8:
        v = frame.tracer.cast(v, with_element(v.type, f32))  # f8e4m3 has no infinity
    return b.emit(row, b.emit(ops.ABS, v), b.const(math.inf, v.type))


@intrinsic(named("signbit", "x"), numpy=("signbit",))
def _signbit(frame: Frame, x: Any) -> Any:
    """Whether a number is negative, of floats also -0.0."""
    if is_comptime(x):
        return math.copysign(1.0, x) < 0
    v, b = frame.tracer.value(x), frame.tracer.b
    if element_of(v.type).is_float:
        v = b.emit(ops.COPYSIGN, b.const(1.0, v.type), v)
    return comparison(frame, ast.Lt, v, 0)


@intrinsic(named("sign", "x"), numpy=("sign",))
def _sign(frame: Frame, x: Any) -> Any:
    """-1, 0 or 1 in the type of `x`; NaN of NaN."""
    if is_comptime(x):
        return x if x != x else type(x)((x > 0) - (x < 0))
    v, b = frame.tracer.value(x), frame.tracer.b
    if element_of(v.type) is bool_:
        raise frame.tracer.error("E201", operator="sign", types="bool_", suggestion="it is a truth")
    zero, one = b.const(0, v.type), b.const(1, v.type)
    found = b.emit(ops.SELECT, b.emit(ops.GT, v, zero), one, zero)
    if element_of(v.type).is_float:
        found = b.emit(ops.SELECT, b.emit(ops.NE, v, v), v, found)
    if element_of(v.type).kind is Kind.UINT:
        return found
    return b.emit(ops.SELECT, b.emit(ops.LT, v, zero), b.emit(ops.NEG, one), found)


# Angles


def _scaled(factor: float) -> Callable[..., Any]:
    def handler(frame: Frame, x: Any) -> Any:
        return binary(frame, ast.Mult, x, factor)

    return handler


intrinsic(math.degrees, numpy=("degrees", "rad2deg"))(_scaled(180 / math.pi))
intrinsic(math.radians, numpy=("radians", "deg2rad"))(_scaled(math.pi / 180))
