"""Kernels that a version of a vendor's compiler got wrong, each with its right results in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.jit.kernel import CubeKernel, cube
from cubepy.lang.builtins import UNIT_POS, f32, i16, i32, local, u16, u32

Expected = Callable[[Any, Any], Any]


@cube
def three_way_minimum(x: Any, y: Any, out: Any):
    """ptxas 13.0 loses the sign of -x in VIMNMX3 on sm_90."""
    i = UNIT_POS
    out[i] = min(i32(y[i]), min(-x[i], x[i] + x[i]))


@cube
def three_way_maximum_of_shorts(x: Any, y: Any, out: Any):
    """The same in the form for 16 bits."""
    i = UNIT_POS
    out[i] = max(max(i16(-x[i]), y[i] % (y[i] | 7)), y[i] >> 3)


@cube
def chosen_by_comparison(x: Any, y: Any, out: Any):
    """The same where comparisons choose."""
    i = UNIT_POS
    found = i32(y[i])
    if -x[i] < found:
        found = -x[i]
    out[i] = min(found, x[i] ^ 255)


@cube
def negated_short(x: Any, y: Any, out: Any):
    """ptxas 13.0 takes -(-32768) of 16 bits for 32768 where it is widened."""
    i = UNIT_POS
    out[i] = i32(-y[i])


@cube
def difference_of_shorts(x: Any, y: Any, out: Any):
    """The same where the compiler before it makes the negation of a sum."""
    i = UNIT_POS
    short = i16(x[i])
    out[i] = i32(short - (short + y[i]))


@cube
def narrowed_negation(x: Any, y: Any, out: Any):
    """The same where it makes it of a negation in 32 bits."""
    i = UNIT_POS
    out[i] = i32(i16(x[i] - (x[i] + y[i]))) + i32(i16(~i32(y[i]) + 1))


@cube
def signed_negation(x: Any, y: Any, out: Any):
    """The same where unsigned numbers are negated."""
    i = UNIT_POS
    word = u16(y[i])
    out[i] = i32(i16(word - (word + u16(y[i]))))


@cube
def remainder_of_absolute(x: Any, y: Any, out: Any):
    """ptxas 13.0 takes the absolute value of the least integer for a positive number."""
    i = UNIT_POS
    out[i] = abs(x[i]) % (i32(y[i]) & 255 | 1)


@cube
def guarded_steps(x: Any, y: Any, out: Any):
    """NVVM of CUDA 13.0 and 13.5 takes a negative y for a large one where it splits the loop."""
    i = UNIT_POS
    found, limit = x[i], i32(y[i])
    if found != 5:
        for k in range(i & 7):
            if k <= limit:
                continue
            found = found % 7 * 3 + i32(k)
    out[i] = found


@cube
def ended_by_wrapping(x: Any, y: Any, out: Any):
    """NVVM of both ends a loop in its second step where a sum is compared with its term."""
    i = UNIT_POS
    found = i32(y[i])
    for k in range(i & 7):
        found = found * 3 + i32(k)
        if u32(k) + u32(x[i]) < u32(x[i]):
            break
    out[i] = found


@cube
def chosen_zero(x: Any, y: Any, out: Any):
    """ptxas of CUDA 13.0 and 13.5 chooses of -1 and -0, in f32, as if they were integers."""
    i = UNIT_POS
    found = -(f32(1) if x[i] > y[i] else f32(0))
    if y[i] & 1 == 1:
        found = -1.0 if x[i] > 5 else -0.0
    out[i] = i32(1 / (found + found) < 0)


@cube
def maximum_of_first_steps(x: Any, y: Any, out: Any):
    """ptxas 13.0 to 13.3 lose the sign of -x in VIMNMX3, as k - x is in the first step."""
    i = UNIT_POS
    found, is_later, second = i32(1), False, i32(y[i])
    for k in range(i & 3):
        steps = i32(k)
        top = max(max(steps - x[i], steps - (x[i] ^ second)), steps - second)
        found = max(found, top) if is_later else top
        is_later = True
    out[i] = found


@cube
def compared_maximum(x: Any, y: Any, out: Any):
    """ptxas of CUDA 13.0 to 13.3 asks of the wrong half of a register whether a maximum is 3."""
    i = UNIT_POS
    three = local(1, u32, 3)
    greatest = max(y[i], 3)
    out[i] = x[i] if greatest == i16(three[0]) else i32(greatest)


def _negated(x: Any) -> Any:
    return (0 - x.astype(np.int64)).astype(np.int32)


def _three_way_minimum(x: Any, y: Any) -> Any:
    doubled = (2 * x.astype(np.int64)).astype(np.int32)
    return np.minimum(y.astype(np.int32), np.minimum(_negated(x), doubled))


def _three_way_maximum(x: Any, y: Any) -> Any:
    remainder = np.mod(y.astype(np.int32), (y | 7).astype(np.int32)).astype(np.int16)
    return np.maximum(np.maximum(_negated(x).astype(np.int16), remainder), y >> 3).astype(np.int32)


def _chosen(x: Any, y: Any) -> Any:
    return np.minimum(np.minimum(_negated(x), y.astype(np.int32)), x ^ 255)


def _negated_short(x: Any, y: Any) -> Any:
    return (0 - y.astype(np.int32)).astype(np.int16).astype(np.int32)


def _remainder(x: Any, y: Any) -> Any:
    absolute = np.abs(x.astype(np.int64)).astype(np.int32)
    return np.mod(absolute, y.astype(np.int32) & 255 | 1)


def _ended_by_wrapping(x: Any, y: Any) -> Any:
    found = y.astype(np.int32)
    for i in range(len(x)):
        first = int(x[i]) % 2**32
        steps = (k for k in range(i & 7) if k <= 2**32 - first or first == 0)
        for k in steps:
            found[i] = np.int32((int(found[i]) * 3 + k + 2**31) % 2**32 - 2**31)
    return found


def _guarded_steps(x: Any, y: Any) -> Any:
    found = x.astype(np.int64)
    for k in range(7):
        takes = (k < np.arange(len(x)) % 8) & (k > y) & (x != 5)
        found = np.where(takes, found % 7 * 3 + k, found)
    return found.astype(np.int32)


def _chosen_zero(x: Any, y: Any) -> Any:
    return np.ones_like(x)  # all numbers and zeros are negative


def _compared_maximum(x: Any, y: Any) -> Any:
    return np.where(y <= 3, x, y.astype(np.int32))


def _maximum_of_first_steps(x: Any, y: Any) -> Any:
    found = np.ones_like(x)
    for k in range(3):
        differences = [(k - v.astype(np.int64)).astype(np.int32) for v in (x, x ^ y, y)]
        top = np.max(differences, axis=0)
        places = np.arange(len(x)) & 3
        found = np.where(places > k, top if k == 0 else np.maximum(found, top), found)
    return found


CASES: dict[str, tuple[CubeKernel, Expected]] = {
    "three-way minimum": (three_way_minimum, _three_way_minimum),
    "three-way maximum of 16 bits": (three_way_maximum_of_shorts, _three_way_maximum),
    "minimum by comparison": (chosen_by_comparison, _chosen),
    "negation of 16 bits": (negated_short, _negated_short),
    "difference of 16 bits": (difference_of_shorts, _negated_short),
    "negation of unsigned 16 bits": (signed_negation, _negated_short),
    "remainder of an absolute value": (remainder_of_absolute, _remainder),
    "guard in a loop": (guarded_steps, _guarded_steps),
    "sign of a zero": (chosen_zero, _chosen_zero),
    "loop that a wrapped sum ends": (ended_by_wrapping, _ended_by_wrapping),
    "maximum of first steps": (maximum_of_first_steps, _maximum_of_first_steps),
    "maximum that is compared": (compared_maximum, _compared_maximum),
    "negation cut to 16 bits": (narrowed_negation, lambda x, y: 2 * _negated_short(x, y)),
}
