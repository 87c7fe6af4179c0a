"""What operations give, on Python's numbers: exact arithmetic, rounded once.

f64 is Python's own float. Sums, products, quotients and roots of narrower floats are computed in
f64 and rounded again, which gives the same as rounding once: 53 digits are at least twice those of
the narrow type and two more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from tests.fuzz.typed.rules import FLOATS, INTEGERS, SIGNED, Number, limits


class Unspecified(Exception):
    """The language leaves this value open, or other tests judge it; it is compared with nothing."""


DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8, "f8e4m3": 4, "f8e5m2": 3}
LEAST = {"f64": -1022, "f32": -126, "f16": -14, "bf16": -126, "f8e4m3": -6, "f8e5m2": -14}
"""Exponents of the smallest normal numbers."""
GREATEST = {
    "f64": Fraction(2**53 - 1) * 2**971,
    "f32": Fraction(2**24 - 1) * 2**104,
    "f16": Fraction(65504),
    "bf16": Fraction(2**8 - 1) * 2**120,
    "f8e4m3": Fraction(448),
    "f8e5m2": Fraction(57344),
}


def rounded(x: Number | Fraction, t: str) -> float:
    """The nearest number of a float type, ties to even; too large is infinite (f8e4m3: NaN)."""
    if isinstance(x, float) and (t == "f64" or x == 0 or not math.isfinite(x)):
        return math.nan if t == "f8e4m3" and math.isinf(x) else x
    exact = Fraction(x)
    if exact == 0:
        return 0.0
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** (max(exponent, LEAST[t]) - DIGITS[t] + 1)
    whole, rest = divmod(size, step)
    whole += rest * 2 > step or (rest * 2 == step and whole % 2 == 1)
    size = whole * step
    if size > GREATEST[t]:
        infinite = math.inf if exact > 0 else -math.inf
        return math.nan if t == "f8e4m3" else infinite
    return math.copysign(float(size), exact)


def wrapped(x: int, t: str) -> int:
    """The integer of a type with the same low bits."""
    bits = INTEGERS[t]
    x %= 2**bits
    return x - 2**bits if t in SIGNED and x >= 2 ** (bits - 1) else x


def converted(x: Number, t: str) -> Number:
    """An explicit conversion."""
    if t == "bool":
        return x != 0
    if t in INTEGERS and isinstance(x, float):
        low, high = limits(t)
        if math.isnan(x):
            return 0
        return (high if x > 0 else low) if math.isinf(x) else min(max(math.trunc(x), low), high)
    if t in INTEGERS:
        return wrapped(int(x), t)
    return int(x) if t == "index" else rounded(x, t)


def _wrap(function: Callable[[int, int], int]) -> Callable[[Number, Number, str], Number]:
    def meaning(a: Number, b: Number, t: str) -> Number:
        found = function(int(a), int(b))
        if t == "index" and not -(2**63) <= found < 2**63:
            raise Unspecified
        return bool(found) if t == "bool" else found if t == "index" else wrapped(found, t)

    return meaning


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _shift(left: bool) -> Callable[[Number, Number, str], Number]:
    def meaning(a: Number, b: Number, t: str) -> Number:
        inside = 0 <= b < INTEGERS[t]
        if left:
            return wrapped(int(a) << int(b), t) if inside else 0
        return int(a) >> int(b) if inside else -1 if a < 0 else 0

    return meaning


def _least(a: Number, b: Number, greatest: bool) -> Number:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    if a == b == 0 and isinstance(a, float):
        signs = (math.copysign(1, a), math.copysign(1, b))
        return math.copysign(0.0, max(signs) if greatest else min(signs))
    return max(a, b) if greatest else min(a, b)


WHOLE: dict[str, Callable[[Number, Number, str], Number]] = {
    "+": _wrap(lambda a, b: a + b),
    "-": _wrap(lambda a, b: a - b),
    "*": _wrap(lambda a, b: a * b),
    "//": _wrap(lambda a, b: a // b if b else 0),
    "%": _wrap(lambda a, b: a % b if b else 0),
    "&": _wrap(lambda a, b: a & b),
    "|": _wrap(lambda a, b: a | b),
    "^": _wrap(lambda a, b: a ^ b),
    "<<": _shift(True),
    ">>": _shift(False),
    "cp.div_trunc": _wrap(lambda a, b: _truncated(a, b) if b else 0),
    "cp.rem_trunc": _wrap(lambda a, b: a - b * _truncated(a, b) if b else 0),
    "min": lambda a, b, t: _least(a, b, False),
    "max": lambda a, b, t: _least(a, b, True),
}
"""Operations on integers; those on bools are & | ^."""


def quotient(a: float, b: float, t: str) -> float:
    """IEEE 754 division."""
    if b == 0:
        nan = a == 0 or math.isnan(a)
        return (
            math.nan if nan else math.copysign(math.inf, math.copysign(1, a) * math.copysign(1, b))
        )
    return rounded(a / b, t)


def floored(a: float, b: float, t: str) -> float:
    """Python's `//` in f64; in narrower types the floor of the quotient, unless it is large."""
    if b == 0 or not (math.isfinite(a) and math.isfinite(b)):
        raise Unspecified
    if t == "f64" or a == 0:
        return a // b
    whole = math.floor(Fraction(a) / Fraction(b))
    if abs(whole) > 2**22:
        raise Unspecified
    return rounded(whole, t) if whole else math.copysign(0.0, a // b)


def remainder(a: float, b: float, t: str) -> float:
    """Python's `%`."""
    if b == 0 or not (math.isfinite(a) and math.isfinite(b)):
        raise Unspecified
    found = Fraction(a) % Fraction(b)
    return rounded(found, t) if found else math.copysign(0.0, b)


REAL: dict[str, Callable[[float, float, str], Number]] = {
    "+": lambda a, b, t: rounded(a + b, t),
    "-": lambda a, b, t: rounded(a - b, t),
    "*": lambda a, b, t: rounded(a * b, t),
    "/": quotient,
    "//": floored,
    "%": remainder,
    "min": lambda a, b, t: _least(a, b, False),
    "max": lambda a, b, t: _least(a, b, True),
}
"""Operations on floats."""


def fused(a: float, b: float, c: float, t: str) -> float:
    """a * b + c, rounded once."""
    if not all(map(math.isfinite, (a, b))) or 0 in (a, b):
        return rounded(a * b + c, t)
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    return rounded(exact, t) if exact else 0.0


def negated(a: Number, t: str) -> Number:
    """`-a`."""
    return -a if t in FLOATS else wrapped(-int(a), t) if t in INTEGERS else -int(a)


def absolute(a: Number, t: str) -> Number:
    """`abs(a)`; that of the least integer is itself."""
    return abs(a) if t in FLOATS else wrapped(abs(int(a)), t)


def inverted(a: Number, t: str) -> Number:
    """`~a`; of bools: `not`."""
    return not a if t == "bool" else wrapped(~int(a), t)


def _whole_float(function: Callable[[float], int]) -> Callable[[Number, str], Number]:
    def meaning(a: Number, t: str) -> Number:
        return math.copysign(float(abs(function(a))), a) if math.isfinite(a) else a

    return meaning


ROUNDING: dict[str, Callable[[Number, str], Number]] = {
    "cp.floor": _whole_float(math.floor),
    "cp.ceil": _whole_float(math.ceil),
    "cp.trunc": _whole_float(math.trunc),
    "cp.rint": _whole_float(round),
}
