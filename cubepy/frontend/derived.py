"""Functions of `math` and NumPy that the language itself is enough for: `lang.math.numbers`."""

from __future__ import annotations

import ast
import builtins
import functools
import math
from collections.abc import Callable
from typing import Any

from cubepy.frontend.attributes import node_here
from cubepy.frontend.calls import call, inline
from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.intrinsics import common
from cubepy.frontend.numeric import named
from cubepy.frontend.operators import binary
from cubepy.frontend.running import comptime_result
from cubepy.frontend.sequences import items_of_call
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import is_comptime, is_tuple
from cubepy.ir.core import Value
from cubepy.ir.types import DType, bf16, element_of, f16, f32, i32, with_element
from cubepy.lang import builtins as lang
from cubepy.lang.math import numbers

_ANY: Any = math  # type checkers know the functions of the oldest Python alone


def _inlined(frame: Frame, function: Any, args: list[Any], options: dict[str, Any]) -> Any:
    return inline(frame, node_here(frame), function, args, options)


def _floats(frame: Frame, args: tuple[Any, ...], name: str, narrow: bool) -> list[Value]:
    """Operands of one float type, at least f32 unless `narrow`."""
    values = common(frame, args, name)
    dtype = element_of(values[0].type)
    keeps = dtype.is_float and dtype.bits >= (16 if narrow else 32)
    return values if keeps else [frame.tracer.cast(v, with_element(v.type, f32)) for v in values]


def _narrowed(frame: Frame, found: Any, dtype: DType) -> Any:
    """Results that were computed in f32, in the type of the operands."""
    if is_tuple(found):
        return tuple(_narrowed(frame, part, dtype) for part in found)
    if dtype in (f16, bf16) and element_of(found.type) is f32:
        return frame.tracer.cast(found, with_element(found.type, dtype))
    return found


def _of_floats(
    function: Callable[..., Any], count: int, original: Any = None, narrow: bool = False
) -> Callable[..., Any]:
    """The handler of a function of `count` floats and of options; integers convert to f32."""

    def handler(frame: Frame, *given: Any, **options: Any) -> Any:
        if is_comptime(given) and is_comptime(options):
            return comptime_result(frame, original or function, *given, **options)
        if len(given) < count:
            return _inlined(frame, function, list(given), options)  # which says what is missing
        args, more = given[:count], given[count:]
        kept = [element_of(v.type) for v in common(frame, args, function.__name__)]
        values = _floats(frame, args, function.__name__, narrow)
        return _narrowed(frame, _inlined(frame, function, [*values, *more], options), kept[0])

    return handler


for _function, _count, _original, _numpy in (
    (numbers.split_exponent, 1, math.frexp, "frexp"),
    (numbers.split_fraction, 1, math.modf, "modf"),
    (numbers.nearest_remainder, 2, math.remainder, ""),
    (numbers.is_close, 2, math.isclose, ""),
):
    intrinsic(_original, numpy=(_numpy,))(_of_floats(_function, _count, _original))
for _function, _parameters, _name in (
    (numbers.step_at_zero, "x1 x2", "heaviside"),
    (numbers.log_of_sum, "x1 x2", "logaddexp"),
    (numbers.log2_of_sum, "x1 x2", "logaddexp2"),
    (numbers.sine_cardinal, "x", "sinc"),
    (numbers.is_close_to, "a b rtol atol equal_nan", "isclose"),
):
    _stub, _count = named(_name, _parameters), len(_parameters.split()[:2])
    intrinsic(_stub, numpy=(_name,))(_of_floats(_function, _count))
intrinsic(_ANY.nextafter, numpy=("nextafter",))(
    _of_floats(numbers.next_after, 2, _ANY.nextafter, narrow=True)
)
intrinsic(_ANY.ulp)(_of_floats(numbers.unit_in_last_place, 1, _ANY.ulp, narrow=True))


@intrinsic(math.ldexp, numpy=("ldexp",))
def _ldexp(frame: Frame, x: Any, i: Any, /) -> Any:
    """`x * 2**i`, rounded once."""
    if is_comptime(x) and is_comptime(i):
        return comptime_result(frame, math.ldexp, x, i)
    power = frame.tracer.value(i)
    if not element_of(power.type).is_integer:
        raise frame.tracer.error(
            "E201", operator="ldexp", types="a float exponent", suggestion="it takes an integer"
        )
    bound = 1 << 14  # beyond it all is zero or infinite
    power = lang_call(frame, builtins.min, lang_call(frame, builtins.max, power, -bound), bound)
    power = frame.tracer.cast(power, with_element(power.type, i32))
    kept = element_of(common(frame, (x,), "ldexp")[0].type)
    (value,) = _floats(frame, (x,), "ldexp", narrow=False)
    return _narrowed(frame, _inlined(frame, numbers.scale_by_power, [value, power], {}), kept)


def lang_call(frame: Frame, function: Any, *args: Any) -> Any:
    """A call of a built-in function."""
    return call(frame, node_here(frame), function, list(args), {})


# Integers


def _of_integers(function: Callable[..., Any], original: Any) -> Callable[..., Any]:
    """The handler of a function of integers, applied from the left to more than two."""

    def handler(frame: Frame, *args: Any) -> Any:
        if is_comptime(args):
            return comptime_result(frame, original, *args)
        values = common(frame, args, original.__name__)
        if not element_of(values[0].type).is_integer:
            hint = "it takes integers"
            types = element_of(values[0].type).name
            raise frame.tracer.error(
                "E201", operator=original.__name__, types=types, suggestion=hint
            )
        if len(values) == 1 and function is not numbers.integer_root:
            return lang_call(frame, builtins.abs, values[0])
        if function is numbers.integer_root:
            return _inlined(frame, function, list(values), {})
        return functools.reduce(lambda a, b: _inlined(frame, function, [a, b], {}), values)

    return handler


intrinsic(math.gcd, numpy=("gcd",))(_of_integers(numbers.greatest_divisor, math.gcd))
intrinsic(_ANY.lcm, numpy=("lcm",))(_of_integers(numbers.least_multiple, _ANY.lcm))
intrinsic(math.isqrt)(_of_integers(numbers.integer_root, math.isqrt))


# Several numbers


@intrinsic(math.hypot)
def _hypot(frame: Frame, *coordinates: Any) -> Any:
    """The length of a vector: hypot of two at a time, which neither overflows nor underflows."""
    if is_comptime(coordinates):
        return comptime_result(frame, math.hypot, *coordinates)
    if len(coordinates) == 1:
        return lang_call(frame, math.fabs, *_floats(frame, coordinates, "hypot", narrow=True))
    return functools.reduce(lambda a, b: lang_call(frame, lang.hypot, a, b), coordinates)


@intrinsic(_ANY.dist)
def _dist(frame: Frame, p: Any, q: Any, /) -> Any:
    """The distance of two points, tuples of as many coordinates."""
    first, second = items_of_call(frame, p, "dist"), items_of_call(frame, q, "dist")
    if len(first) != len(second):
        given = f"{len(first)} and {len(second)}"
        raise frame.tracer.error(
            "E207", what="dist()", expected="points of as many coordinates", given=given
        )
    apart = [binary(frame, ast.Sub, a, b) for a, b in zip(first, second, strict=True)]
    return _hypot(frame, *apart)


# NumPy's other names


@intrinsic(named("fix", "x"), numpy=("fix",))
def _fix(frame: Frame, x: Any) -> Any:
    return lang_call(frame, lang.trunc, x)


@intrinsic(named("isposinf", "x"), numpy=("isposinf",))
def _isposinf(frame: Frame, x: Any) -> Any:
    return lang_call(frame, _is_infinity, x, math.inf)


@intrinsic(named("isneginf", "x"), numpy=("isneginf",))
def _isneginf(frame: Frame, x: Any) -> Any:
    return lang_call(frame, _is_infinity, x, -math.inf)


def _is_infinity(x: Any, wanted: Any) -> Any:
    return x == wanted
