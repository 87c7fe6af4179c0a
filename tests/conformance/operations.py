"""How every operation of the table is written in the language, and on what it is tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.ir import ops
from cubepy.ir.evaluate import evaluate
from cubepy.ir.numbers import from_bits, to_bits
from cubepy.ir.opdef import OpDef, TypingError
from cubepy.ir.types import DTYPES, DType, Kind, bool_, index
from tests.ir.strategies import special_numbers

WRITTEN: dict[OpDef, Callable[..., Any]] = {
    ops.ADD: lambda a, b: a + b,
    ops.SUB: lambda a, b: a - b,
    ops.MUL: lambda a, b: a * b,
    ops.DIV: lambda a, b: a / b,
    ops.FLOORDIV: lambda a, b: a // b,
    ops.MOD: lambda a, b: a % b,
    ops.DIV_TRUNC: lambda a, b: cp.div_trunc(a, b),
    ops.REM_TRUNC: lambda a, b: cp.rem_trunc(a, b),
    ops.MUL_HI: lambda a, b: cp.mul_hi(a, b),
    ops.MIN: lambda a, b: min(a, b),
    ops.MAX: lambda a, b: max(a, b),
    ops.COPYSIGN: lambda a, b: cp.copysign(a, b),
    ops.AND: lambda a, b: a & b,
    ops.OR: lambda a, b: a | b,
    ops.XOR: lambda a, b: a ^ b,
    ops.SHL: lambda a, b: a << b,
    ops.SHR: lambda a, b: a >> b,
    ops.NEG: lambda a: -a,
    ops.ABS: lambda a: abs(a),
    ops.SQRT: lambda a: cp.sqrt(a),
    ops.FLOOR: lambda a: cp.floor(a),
    ops.CEIL: lambda a: cp.ceil(a),
    ops.TRUNC: lambda a: cp.trunc(a),
    ops.RINT: lambda a: cp.rint(a),
    ops.NOT: lambda a: ~a,
    ops.POPCOUNT: lambda a: cp.popcount(a),
    ops.CLZ: lambda a: cp.clz(a),
    ops.CTZ: lambda a: cp.ctz(a),
    ops.EQ: lambda a, b: a == b,
    ops.NE: lambda a, b: a != b,
    ops.LT: lambda a, b: a < b,
    ops.LE: lambda a, b: a <= b,
    ops.GT: lambda a, b: a > b,
    ops.GE: lambda a, b: a >= b,
    ops.FMA: lambda a, b, c: cp.fma(a, b, c),
}
"""Every exact row with a meaning; elementary functions have their own tests."""
REDUCTIONS: dict[OpDef, Callable[..., Any]] = {
    ops.REDUCE_ADD: lambda v: v.sum(),
    ops.REDUCE_MUL: lambda v: v.prod(),
    ops.REDUCE_MIN: lambda v: v.min(),
    ops.REDUCE_MAX: lambda v: v.max(),
}
SCALARS = tuple(t for t in DTYPES if t is not index)
ELEMENTS = {1: "a", 2: "ab", 3: "abc"}


def numpy_type(dtype: DType) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, dtype.numpy_name, None) or dtype.numpy_name)


def arity(row: OpDef) -> int:
    return WRITTEN[row].__code__.co_argcount


def accepts(row: OpDef, dtype: DType) -> bool:
    try:
        row.rule([dtype] * arity(row), {})
    except TypingError:
        return False
    return not (dtype is bool_ and row in (ops.SHL, ops.SHR))


def rows(dtype: DType, count: int) -> list[OpDef]:
    """The rows of `count` operands that take this type."""
    return [row for row in WRITTEN if arity(row) == count and accepts(row, dtype)]


def result_type(row: OpDef, dtype: DType) -> DType:
    (t,) = row.rule([dtype] * arity(row), {})
    assert isinstance(t, DType)
    return t


def samples(dtype: DType, operands: int, count: int) -> list[tuple[Any, ...]]:
    """All pairs of special numbers, random bits, and random numbers near each other."""
    special = special_numbers(dtype)
    tuples = [
        (a, b, special[(i + k) % len(special)])[:operands]
        for i, a in enumerate(special)
        for k, b in enumerate(special)
    ]
    if dtype.kind is Kind.BOOL:
        return tuples
    mask, generator = (1 << dtype.bits) - 1, np.random.default_rng(dtype.bits)
    for bits in generator.integers(0, 1 << 63, (count, 3), dtype=np.uint64).tolist():
        wild = [from_bits((x ^ x >> 31) & mask, dtype) for x in bits]
        small = [
            from_bits(to_bits(dtype(float(x % 199) - (99 if dtype.is_float else 0)), dtype), dtype)
            for x in bits
        ]
        tuples += [
            tuple(wild[:operands]),
            tuple(small[:operands]),
            (wild[0], small[1], wild[2])[:operands],
        ]
    return tuples


def expected(row: OpDef, dtype: DType, values: tuple[Any, ...]) -> Any:
    """What the table says the operation gives."""
    found = evaluate(row, {}, [dtype] * len(values), [(v,) for v in values])
    assert found is not None
    return found[0]


def arrays(dtype: DType, tuples: list[tuple[Any, ...]]) -> list[np.ndarray]:
    """The operands as arrays of exactly these bits; NaN have one pattern."""
    kind = numpy_type(dtype)
    if dtype.kind is Kind.BOOL:
        return [np.array(column, np.bool_) for column in zip(*tuples, strict=True)]
    unsigned = f"u{kind.itemsize}"
    return [
        np.array([to_bits(v, dtype) for v in column], unsigned).view(kind)
        for column in zip(*tuples, strict=True)
    ]


def bits_of(array: np.ndarray) -> np.ndarray:
    """The bits of an array; all NaN alike."""
    if (
        array.dtype.kind == "f"
        or array.dtype.kind == "V"
        or array.dtype.name.startswith(("bf", "float8"))
    ):
        with np.errstate(invalid="ignore"):  # of NaN that signal
            wide = array.astype(np.float64)
        found = array.view(f"u{array.dtype.itemsize}").astype(np.uint64)
        return np.where(np.isnan(wide), np.uint64(2**64 - 1), found)
    return array.view(f"u{array.dtype.itemsize}").astype(np.uint64)


def skip_absent(dtype: DType, lacks: set[DType]) -> None:
    """Skip the test where the device lacks its type."""
    if dtype in lacks:
        pytest.skip(f"the device has no {dtype}")
