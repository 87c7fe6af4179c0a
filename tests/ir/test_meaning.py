"""The op table's meanings against NumPy: random and special values, each exact row and type."""

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

from cubepy.ir import ops
from cubepy.ir.evaluate import evaluate, halves
from cubepy.ir.meaning import floordiv
from cubepy.ir.numbers import Number, convert, from_bits, limits, to_bits
from cubepy.ir.opdef import OpDef, TypingError
from cubepy.ir.types import (
    DTYPES,
    DType,
    Kind,
    bf16,
    f16,
    f32,
    f64,
    i8,
    i32,
    index,
    make_line,
    u8,
    u32,
)
from tests.floors import floor_pairs
from tests.ir.strategies import special_numbers

Reference = Callable[..., Any]
NUMPY: dict[DType, Any] = {
    d: np.dtype(getattr(ml_dtypes, d.numpy_name, None) or d.numpy_name or "int64") for d in DTYPES
}


def _in_range(dtype: DType, count: Any) -> Any:
    return (count >= 0) & (count < dtype.bits)


def _shl(dtype: DType, a: Any, b: Any) -> Any:
    ok = _in_range(dtype, b)
    return np.where(ok, np.left_shift(a, np.where(ok, b, 0).astype(a.dtype)), 0)


def _shr(dtype: DType, a: Any, b: Any) -> Any:
    ok = _in_range(dtype, b)
    sign = np.where(a < 0, -1, 0).astype(a.dtype)
    return np.where(ok, np.right_shift(a, np.where(ok, b, 0).astype(a.dtype)), sign)


def _each(function: Callable[..., int]) -> Reference:
    """A reference on Python integers."""

    def reference(dtype: DType, *arrays: Any) -> Any:
        results = [function(dtype, *xs) for xs in zip(*(a.tolist() for a in arrays), strict=True)]
        return np.array([convert(x, dtype) for x in results], NUMPY[dtype])

    return reference


def _bit_string(dtype: DType, a: int) -> str:
    return format(a & ((1 << dtype.bits) - 1), f"0{dtype.bits}b")


def _numpy(function: Any, logical: Any = None) -> Reference:
    def reference(dtype: DType, *arrays: Any) -> Any:
        return (logical if logical and dtype.kind is Kind.BOOL else function)(*arrays)

    return reference


REFERENCES: dict[OpDef, Reference] = {
    ops.ADD: _numpy(np.add),
    ops.SUB: _numpy(np.subtract),
    ops.MUL: _numpy(np.multiply),
    ops.DIV: _numpy(np.divide),
    ops.FLOORDIV: _numpy(np.floor_divide),
    ops.MOD: _numpy(np.mod),
    ops.DIV_TRUNC: _each(lambda d, a, b: math.trunc(Fraction(a, b)) if b else 0),
    ops.REM_TRUNC: _numpy(np.fmod),
    ops.MUL_HI: _each(lambda d, a, b: (a * b) >> d.bits),
    ops.NEG: _numpy(np.negative),
    ops.ABS: _numpy(np.abs),
    ops.MIN: _numpy(np.minimum),
    ops.MAX: _numpy(np.maximum),
    ops.COPYSIGN: _numpy(np.copysign),
    ops.SQRT: _numpy(np.sqrt),
    ops.FLOOR: _numpy(np.floor),
    ops.CEIL: _numpy(np.ceil),
    ops.TRUNC: _numpy(np.trunc),
    ops.RINT: _numpy(np.rint),
    ops.AND: _numpy(np.bitwise_and),
    ops.OR: _numpy(np.bitwise_or),
    ops.XOR: _numpy(np.bitwise_xor),
    ops.NOT: _numpy(np.bitwise_not, np.logical_not),
    ops.SHL: _shl,
    ops.SHR: _shr,
    ops.POPCOUNT: _each(lambda d, a: _bit_string(d, a).count("1")),
    ops.CLZ: _each(lambda d, a: len((_bit_string(d, a) + "1").split("1")[0])),
    ops.CTZ: _each(lambda d, a: len((_bit_string(d, a)[::-1] + "1").split("1")[0])),
    ops.EQ: _numpy(operator.eq),
    ops.NE: _numpy(operator.ne),
    ops.LT: _numpy(operator.lt),
    ops.LE: _numpy(operator.le),
    ops.GT: _numpy(operator.gt),
    ops.GE: _numpy(operator.ge),
}
EXACT = [row for row in ops.TABLE.values() if row.meaning and row.exact]


def accepted(row: OpDef) -> list[tuple[DType, int]]:
    """The scalar types and operand counts that a row takes."""
    found = []
    for dtype in DTYPES:
        for count in (1, 2, 3):
            try:
                row.rule([dtype] * count, {})
            except TypingError:
                continue
            found.append((dtype, count))
    return found


def samples(dtype: DType, count: int) -> list[tuple[Number, ...]]:
    """All pairs of special numbers, then random ones; bits are uniform, some operands equal."""
    generator = np.random.default_rng(dtype.bits + count)
    special = special_numbers(dtype)
    tuples = [(a, b, special[0])[:count] for a in special for b in special]
    if dtype.kind is Kind.BOOL:
        return tuples
    for bits in generator.integers(0, 1 << 63, (120, count), dtype=np.uint64).tolist():
        numbers = [from_bits((x ^ x >> 31) & ((1 << dtype.bits) - 1), dtype) for x in bits]
        tuples += [tuple(numbers), (numbers[0],) * count]
        tuples.append(tuple(convert(x, dtype) for x in (bits[0] % 99, bits[-1] % 7, 3)[:count]))
    return tuples


def same_bits(a: Number, b: Number, dtype: DType) -> bool:
    return (a != a and b != b) or to_bits(a, dtype) == to_bits(b, dtype)


CASES = [(row, *types) for row in EXACT if row is not ops.FMA for types in accepted(row)]


@pytest.mark.parametrize(("row", "dtype", "count"), CASES, ids=lambda x: getattr(x, "name", str(x)))
def test_exact_rows_agree_with_numpy(row: OpDef, dtype: DType, count: int) -> None:
    tuples = samples(dtype, count)
    narrow = dtype.is_float and dtype.bits < 32
    # ml_dtypes compute in f32 and round; for these widths that equals rounding once.
    wide = np.dtype("float32") if narrow else NUMPY[dtype]
    arrays = [np.array(column, NUMPY[dtype]).astype(wide) for column in zip(*tuples, strict=True)]
    with np.errstate(all="ignore"):
        expected = REFERENCES[row](dtype, *arrays)
        if expected.dtype != np.bool_:
            expected = expected.astype(NUMPY[dtype])
    (result,) = row.rule([dtype] * count, {})
    assert isinstance(result, DType)
    assert row.meaning is not None
    for values, wanted in zip(tuples, expected.tolist(), strict=True):
        if row in (ops.MIN, ops.MAX) and dtype.is_float and values[0] == values[1] == 0:
            continue  # NumPy does not order zeros: see below
        found = row.meaning(dtype, *values)
        assert same_bits(found, wanted, result), (values, found, wanted)


def test_every_exact_row_has_a_reference() -> None:
    assert {*REFERENCES, ops.FMA} == set(EXACT)


@pytest.mark.parametrize("dtype", [i8, u8], ids=str)
@pytest.mark.parametrize("row", [ops.FLOORDIV, ops.MOD, ops.SHL, ops.SHR], ids=lambda row: row.name)
def test_all_bytes(row: OpDef, dtype: DType) -> None:
    low, high = limits(dtype)
    numbers = np.arange(low, high + 1, dtype=NUMPY[dtype])
    a, b = np.repeat(numbers, 256), np.tile(numbers, 256)
    with np.errstate(all="ignore"):
        expected = REFERENCES[row](dtype, a, b).tolist()
    assert row.meaning is not None
    found = [row.meaning(dtype, x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert found == expected


def _divided(a: float, b: float) -> Any:
    with np.errstate(all="ignore"):
        return np.divide(a, b)


def test_floor_division_of_floats_is_that_of_python() -> None:
    for a, b in floor_pairs(np.float64, 20_000):
        wanted = a // b if b else float(_divided(a, b))
        assert same_bits(floordiv(f64, a, b), wanted, f64), (a, b)


def test_zeros_are_ordered() -> None:
    def minimum(a: float, b: float) -> str:
        return str(evaluate(ops.MIN, {}, [f32, f32], [(a,), (b,)]))

    assert minimum(0.0, -0.0) == minimum(-0.0, 0.0) == "(-0.0,)"
    assert str(evaluate(ops.MAX, {}, [f32, f32], [(-0.0,), (0.0,)])) == "(0.0,)"


@pytest.mark.parametrize("dtype", [f16, f32, f64], ids=str)
def test_fma_rounds_once(dtype: DType) -> None:
    generator = np.random.default_rng(3)
    precision = {f16: 11, f32: 24, f64: 53}[dtype]
    for _ in range(500):
        a, b = (convert(float(x), dtype) for x in generator.uniform(1, 8, 2))
        c = convert(-a * b * float(generator.choice([1, 1 + 2.0**-precision, 0.3, 1e-2])), dtype)
        with mpmath.workprec(400):
            exact = mpmath.mpf(a) * b + c
        if exact and abs(exact) < 2**-9:
            continue  # might be subnormal in f16
        with mpmath.workprec(precision):
            expected = float(+exact)
        assert ops.FMA.meaning is not None
        assert ops.FMA.meaning(dtype, a, b, c) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1e300, 1e300, -math.inf), "-inf"),
        ((1e300, 1e300, -1e300), "inf"),
        ((0.0, -1.0, 0.0), "0.0"),
        ((0.0, -1.0, -0.0), "-0.0"),
        ((2.0, 3.0, -6.0), "0.0"),
        ((math.inf, 0.0, 1.0), "nan"),
        ((math.inf, 1.0, -math.inf), "nan"),
        ((1e-200, -1e-200, 0.0), "-0.0"),
        ((1.0, 1.0, math.nan), "nan"),
    ],
)
def test_fma_of_special_numbers(values: tuple[float, ...], expected: str) -> None:
    assert ops.FMA.meaning is not None
    assert str(ops.FMA.meaning(f64, *values)) == expected


@pytest.mark.parametrize(
    ("row", "values", "expected"),
    [
        (ops.LOG, (0.0,), "-inf"),
        (ops.LOG, (-1.0,), "nan"),
        (ops.EXP, (1000.0,), "inf"),
        (ops.POW, (0.0, -1.0), "inf"),
        (ops.POW, (-0.0, -3.0), "-inf"),
        (ops.POW, (-0.0, -2.0), "inf"),
        (ops.POW, (-10.0, 401.0), "-inf"),
        (ops.POW, (-10.0, 402.0), "inf"),
        (ops.POW, (-8.0, 0.5), "nan"),
        (ops.SINH, (-1000.0,), "-inf"),
        (ops.COSH, (-1000.0,), "inf"),
        (ops.ATANH, (-1.0,), "-inf"),
        (ops.RSQRT, (-0.0,), "-inf"),
        (ops.SIN, (math.inf,), "nan"),
        (ops.SIGMOID, (-1000.0,), "0.0"),
        (ops.EXP10, (400.0,), "inf"),
        (ops.LOG1P, (-1.0,), "-inf"),
        (ops.EXP, (math.nan,), "nan"),
    ],
)
def test_edges_of_elementary_functions(
    row: OpDef, values: tuple[float, ...], expected: str
) -> None:
    assert row.meaning is not None
    assert str(row.meaning(f64, *values)) == expected


def run(row: OpDef, types: list[Any], *values: tuple[Number, ...], **attrs: Any) -> Any:
    return evaluate(row, attrs, types, values)


def test_lines() -> None:
    four = make_line(i32, 4)
    assert run(ops.ADD, [four, four], (1, 2, 3, 4), (10, 20, 30, 40)) == (11, 22, 33, 44)
    assert run(ops.SPLAT, [i32], (7,), lanes=3) == (7, 7, 7)
    assert run(ops.EXTRACT, [four], (1, 2, 3, 4), lane=2) == (3,)
    assert run(ops.EXTRACT, [four, index], (1, 2, 3, 4), (3,)) == (4,)
    assert run(ops.EXTRACT, [four, index], (1, 2, 3, 4), (4,)) is None
    assert run(ops.INSERT, [four, i32], (1, 2, 3, 4), (9,), lane=1) == (1, 9, 3, 4)
    assert run(ops.SHUFFLE, [four, four], (1, 2, 3, 4), (5, 6, 7, 8), lanes=(7, 0, 4)) == (8, 1, 5)
    assert run(ops.LANE_MASK, [index, index], (1,), (3,), lanes=4) == (False, True, True, False)
    assert run(
        ops.SELECT, [four, four, four], (True, False, True, False), (1, 2, 3, 4), (5, 6, 7, 8)
    ) == (1, 6, 3, 8)
    assert run(ops.SELECT, [four, four, four], (False,), (1, 2, 3, 4), (5, 6, 7, 8)) == (5, 6, 7, 8)


def test_sums_of_products_wrap() -> None:
    types = [make_line(u8, 8), make_line(i8, 8), make_line(i32, 2)]
    a, b = (255, 255, 255, 255, 1, 2, 3, 4), (-128, -128, -128, -128, 127, -1, 0, 5)
    assert run(ops.DOT, types, a, b, (-(1 << 31), 7)) == ((1 << 31) - 4 * 255 * 128, 152)
    assert run(ops.DOT, [make_line(i8, 4)] * 2 + [i32], b[4:], b[:4], (0,)) == (-128 * 131,)


def test_sums_of_products_of_bf16_round_each_step() -> None:
    types = [make_line(bf16, 4), make_line(bf16, 4), make_line(f32, 2)]
    a, b = (1.0, 1.0, 1.5, 2.0**-20), (-1.0, 2.0**24, 1.5, 2.0**-20)
    assert run(ops.DOT, types, a, b, (1.0, 2.0**-24)) == (2.0**24 - 1, 2.25)
    inner = [make_line(bf16, 2)] * 2 + [f32]
    assert run(ops.DOT, inner, (2.0**-12, 1.0), (2.0**-12, 1.0), (2.0**-24,)) == (1.0,)
    assert run(ops.DOT, inner, (math.inf, 1.0), (1.0, 1.0), (-math.inf,)) is not None


def test_conversions() -> None:
    assert run(ops.CAST, [f32], (-1.5,), type=u8) == (0,)
    assert run(ops.CONST, [], type=f32, value=0.1) == (float(np.float32(0.1)),)
    assert run(ops.BITCAST, [f32], (1.0,), type=u32) == (0x3F800000,)
    assert run(ops.BITCAST, [u32], (0x7FC00001,), type=f32) is None


def test_reductions_combine_halves() -> None:
    four = make_line(f32, 4)
    assert halves((1, 2, 3, 4, 5), lambda a, b: int(f"{a}{b}")) == 13245
    assert run(ops.REDUCE_ADD, [four], (1e8, 1.0, -1e8, 1.0)) == (2.0,)
    assert run(ops.REDUCE_MUL, [four], (1.0, 2.0, 3.0, 4.0)) == (24.0,)
    assert math.isnan(run(ops.REDUCE_MAX, [four], (1.0, math.nan, 3.0, 4.0))[0])
    assert run(ops.REDUCE_MIN, [four], (1.0, 2.0, -3.0, 4.0)) == (-3.0,)
    assert run(ops.REDUCE_AND, [make_line(i32, 2)], (6, 3)) == (2,)
    assert run(ops.REDUCE_OR, [make_line(i32, 2)], (6, 3)) == (7,)
