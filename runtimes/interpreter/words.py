"""The names that generated Python uses: rounding, conversions, lines; and the meanings of rows.

Python floats hold every float type: the values of narrower ones are kept rounded.
"""

from __future__ import annotations

import builtins
import ctypes
import math
import struct
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from cubepy.ir.dot import dot
from cubepy.ir.evaluate import halves
from cubepy.ir.numbers import Number, convert, from_bits, round_to, to_bits
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DTYPES, DType, bf16, f8e4m3, f8e5m2, f32, i32, index32
from cubepy.runtimes.interpreter.faults import check_failed, lane_outside
from cubepy.runtimes.interpreter.memory import Tensor

_F16 = struct.Struct("<e")


def meaning_of(row: OpDef, dtype: DType) -> Callable[..., Number]:
    """The meaning of a row on scalars of a type."""
    assert row.meaning is not None
    return partial(row.meaning, dtype)


def round_f16(value: float) -> float:
    """The nearest f16, ties to even; infinity beyond the largest."""
    try:
        return _F16.unpack(_F16.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def divide(a: float, b: float) -> float:
    """IEEE 754 division of f64."""
    if b:
        return a / b
    if a == 0 or a != a or b != b:
        return math.nan
    return math.copysign(math.inf, math.copysign(1.0, a) * math.copysign(1.0, b))


def square_root(a: float) -> float:
    """The correctly rounded root; NaN below zero."""
    return math.sqrt(a) if a >= 0 else math.nan


def fma_f32(a: float, b: float, c: float) -> float:
    """a * b + c of f32, rounded once: the product is exact in f64, the sum is rounded to odd.

    After S. Boldo and G. Melquiond, "Emulation of FMA and correctly rounded sums" (2008).
    """
    product = a * b
    total = product + c
    if not math.isfinite(total):
        return ctypes.c_float(total).value
    part = total - product
    error = (product - (total - part)) + (c - part)
    if error and not to_odd(total) & 1:
        total = math.nextafter(total, math.inf if error > 0 else -math.inf)
    return ctypes.c_float(total).value


def to_odd(value: float) -> int:
    """The bits of an f64, whose last one says whether its significand is odd."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


def bitcast(value: Number, source: DType, target: DType) -> Number:
    """The same bits as another type."""
    return from_bits(to_bits(value, source), target)


def select_lanes(mask: Any, yes: Any, no: Any) -> tuple[Number, ...]:
    """Lane by lane, `yes` where the mask is true."""
    return tuple([a if chosen else b for chosen, a, b in zip(mask, yes, no, strict=True)])


def lane_mask(first: int, end: int, lanes: int) -> tuple[bool, ...]:
    """True in lanes k with first <= k < end."""
    return tuple([first <= lane < end for lane in range(lanes)])


def lane_of(line: tuple[Number, ...], lane: int, unit: Any, site: int) -> Number:
    """A lane that is chosen at run time."""
    if not 0 <= lane < len(line):
        raise lane_outside(unit, site, lane, len(line))
    return line[lane]


def positions(start: int, stop: int, step: int) -> range:
    """What a `for` counts; nothing with a step of 0."""
    return range(start, stop, step) if step else range(0)


def write(text: str, end: str, *values: Any) -> None:
    """`print` of a kernel."""
    print(text.format(*values), end=end)


def second(_: Number, new: Number) -> Number:
    """What an exchange leaves in memory."""
    return new


WORDS: dict[str, Any] = {
    "_f32": ctypes.c_float,
    "_round_f16": round_f16,
    **{f"_round_{t.name}": partial(round_to, t) for t in (bf16, f8e4m3, f8e5m2)},
    **{f"_t_{t.name}": t for t in (*DTYPES, index32)},
    "_nan": math.nan,
    "_inf": math.inf,
    "_div": divide,
    "_sqrt": square_root,
    "_fma_f32": fma_f32,
    "_abs": abs,
    "_float": float,
    "_convert": convert,
    "_bitcast": bitcast,
    "_tuple": tuple,
    "_map": map,
    "_min": min,
    "_max": max,
    "_select": select_lanes,
    "_lane_mask": lane_mask,
    "_lane": lane_of,
    "_halves": halves,
    "_dot_i32": lambda *lanes: dot({}, (i32,) * 3, lanes),
    "_dot_f32": lambda *lanes: dot({}, (f32,) * 3, lanes),
    "_range": positions,
    "_second": second,
    "_print": write,
    "_fault": check_failed,
    "_breakpoint": builtins.breakpoint,
    "_ONCE": (0,),
    "_Tensor": Tensor,
    "_Record": SimpleNamespace,
}
