"""Operations whose edge cases C leaves open, written in the language on operations that C defines.

`div_trunc` and `rem_trunc` stand for C's `/` and `%` here, and shifts for C's shifts: the functions
see to it that divisors are not zero, quotients fit and counts are in range.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import (
    bitcast,
    copysign,
    div_trunc,
    f16,
    f32,
    f64,
    floor,
    i16,
    i32,
    i64,
    rem_trunc,
    where,
)

INTEGERS = {f16: i16, f32: i32, f64: i64}


def floordiv_signed(a: Any, b: Any) -> Any:
    """Python's a // b; 0 where b is 0, and MIN where MIN // -1 does not fit."""
    special = (b == 0) | (b == -1)
    safe = where(special, b.dtype(1), b)
    quotient, remainder = div_trunc(a, safe), rem_trunc(a, safe)
    lower = (remainder != 0) & ((remainder ^ safe) < 0)
    found = where(lower, quotient - 1, quotient)
    return where(b == 0, a.dtype(0), where(b == -1, -a, found))


def mod_signed(a: Any, b: Any) -> Any:
    """Python's a % b; 0 where b is 0."""
    special = (b == 0) | (b == -1)
    safe = where(special, b.dtype(1), b)
    remainder = rem_trunc(a, safe)
    lower = (remainder != 0) & ((remainder ^ safe) < 0)
    return where(special, a.dtype(0), where(lower, remainder + b, remainder))


def div_trunc_signed(a: Any, b: Any) -> Any:
    """C's a / b; 0 where b is 0, and MIN where MIN / -1 does not fit."""
    special = (b == 0) | (b == -1)
    quotient = div_trunc(a, where(special, b.dtype(1), b))
    return where(b == 0, a.dtype(0), where(b == -1, -a, quotient))


def rem_trunc_signed(a: Any, b: Any) -> Any:
    """C's a % b; 0 where b is 0."""
    special = (b == 0) | (b == -1)
    return where(special, a.dtype(0), rem_trunc(a, where(special, b.dtype(1), b)))


def div_unsigned(a: Any, b: Any) -> Any:
    """a / b of numbers that are not negative; 0 where b is 0."""
    return where(b == 0, a.dtype(0), div_trunc(a, where(b == 0, b.dtype(1), b)))


def rem_unsigned(a: Any, b: Any) -> Any:
    """a % b of numbers that are not negative; 0 where b is 0."""
    return where(b == 0, a.dtype(0), rem_trunc(a, where(b == 0, b.dtype(1), b)))


def floordiv_positive(a: Any, b: Any) -> Any:
    """Python's a // b for a constant b > 0."""
    quotient = div_trunc(a, b)
    return where(rem_trunc(a, b) < 0, quotient - 1, quotient)


def mod_positive(a: Any, b: Any) -> Any:
    """Python's a % b for a constant b > 0."""
    remainder = rem_trunc(a, b)
    return where(remainder < 0, remainder + b, remainder)


def floordiv_float(a: Any, b: Any, remainder: Any) -> Any:
    """Python's a // b from C's fmod, by the steps of `ir/meaning.py`; a / b where b is 0."""
    lower = (remainder != 0) & ((remainder < 0) ^ (b < 0))
    rounded = (a - remainder) / b
    quotient = where(lower, rounded - 1, rounded)
    below = floor(quotient)
    whole = where(quotient - below > 0.5, below + 1, below)
    plain = a / b
    return where(b == 0, plain, where(quotient == 0, copysign(quotient, plain), whole))


def mod_float(a: Any, b: Any, remainder: Any) -> Any:
    """Python's a % b from C's fmod: the sign of the divisor."""
    inexact = remainder != 0
    lower = inexact & ((remainder < 0) ^ (b < 0))
    return where(lower, remainder + b, where(inexact, remainder, copysign(remainder, b)))


def shl_total(a: Any, count: Any) -> Any:
    """a << count; 0 for counts out of range, which are large as unsigned numbers."""
    inside = (count >= 0) & (count < a.dtype.bits)
    return where(inside, a << where(inside, count, count.dtype(0)), a.dtype(0))


def shr_unsigned(a: Any, count: Any) -> Any:
    """a >> count; 0 for counts out of range."""
    inside = count < a.dtype.bits
    return where(inside, a >> where(inside, count, count.dtype(0)), a.dtype(0))


def shr_signed(a: Any, count: Any) -> Any:
    """a >> count; the sign for counts out of range."""
    inside = (count >= 0) & (count < a.dtype.bits)
    return a >> where(inside, count, count.dtype(a.dtype.bits - 1))


def minimum(a: Any, b: Any) -> Any:
    """IEEE 754 minimum; of equal numbers, which zeros are, one that has a sign."""
    equal = where(bitcast(a, INTEGERS[a.dtype]) < 0, a, b)
    return where(a != a, a, where(a == b, equal, where(a < b, a, b)))


def maximum(a: Any, b: Any) -> Any:
    """IEEE 754 maximum; of equal numbers, which zeros are, one without a sign."""
    equal = where(bitcast(a, INTEGERS[a.dtype]) < 0, b, a)
    return where(a != a, a, where(a == b, equal, where(a > b, a, b)))


def absolute(a: Any) -> Any:
    """|a|; MIN stays MIN."""
    return where(a < 0, -a, a)
