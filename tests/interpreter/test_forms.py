"""The Python spellings of operations equal their meanings, bit for bit."""

import itertools
import math
import random

import pytest

from cubepy.compilers.python import ops as spell
from cubepy.ir import ops
from cubepy.ir.numbers import Number, convert, from_bits, to_bits
from cubepy.ir.opdef import TypingError
from cubepy.ir.types import DTYPES, DType, bool_, f32
from cubepy.runtimes.interpreter.words import WORDS, fma_f32
from tests.ir.strategies import special_numbers

COUNT = 3000


def operand_count(row: ops.OpDef, dtype: DType) -> int:
    """How many scalars of this type a row takes; 0 if it does not."""
    for count in (1, 2, 3):
        try:
            row.rule([dtype] * count, {})
            return count
        except TypingError:
            continue
    return 0


FORMS = [
    pytest.param(row, dtype, text, id=f"{row.name}-{dtype.name}")
    for row in ops.TABLE.values()
    if row.is_pure and row.meaning is not None and row.exact
    for dtype in DTYPES
    if operand_count(row, dtype) and (text := spell.form(row, dtype)) is not None
]


def random_numbers(dtype: DType, count: int, seed: int) -> list[Number]:
    """Random bit patterns, and floats near each other, whose sums cancel."""
    source = random.Random(seed)
    bits = [from_bits(source.getrandbits(dtype.bits), dtype) for _ in range(count)]
    if not dtype.is_float:
        return bits
    near = [convert(source.uniform(-2, 2), dtype) for _ in range(count)]
    return [source.choice(pair) for pair in zip(bits, near, strict=True)]


def same(a: Number, b: Number, dtype: DType) -> bool:
    if a != a or b != b:
        return a != a and b != b
    return type(a) is type(b) and to_bits(a, dtype) == to_bits(b, dtype)


@pytest.mark.parametrize(("row", "dtype", "text"), FORMS)
def test_a_form_equals_the_meaning(row: ops.OpDef, dtype: DType, text: str) -> None:
    count = operand_count(row, dtype)
    names = "abc"[:count]
    form = eval(f"lambda {', '.join(names)}: {text.format(*names)}", dict(WORDS))
    (result,) = row.rule([dtype] * count, {})
    assert isinstance(result, DType) and row.meaning is not None
    cases = list(itertools.product(special_numbers(dtype), repeat=count))
    columns = [random_numbers(dtype, COUNT, seed) for seed in range(count)]
    cases += zip(*columns, strict=True)
    for case in cases:
        expected, found = row.meaning(dtype, *case), form(*case)
        assert same(expected, found, result), f"{case}: {found!r}, not {expected!r}"


CASTS = [
    pytest.param(a, b, text, id=f"{a.name}-{b.name}")
    for a in DTYPES
    for b in DTYPES
    if (text := spell.cast_form(a, b)) is not None
]


@pytest.mark.parametrize(("source", "target", "text"), CASTS)
def test_a_cast_equals_the_conversion(source: DType, target: DType, text: str) -> None:
    form = eval(f"lambda a: {text.format('a')}", dict(WORDS))
    for number in (*special_numbers(source), *random_numbers(source, 300, 1)):
        assert same(convert(number, target), form(number), target), number


def test_a_fused_multiply_add_of_f32_is_rounded_once() -> None:
    """Among others, products that fall on the middle between two f32, but for the addend."""
    half_way = [1 + 2.0**-12, 1 - 2.0**-12, 1 + 2.0**-23, 2.0**-140, 2.0**-149, -1.0, 1.5, 2.0**127]
    tiny = [2.0**-80, -(2.0**-80), 2.0**-149, -(2.0**-149), 0.0, -0.0, 2.0**-24, -(2.0**-24)]
    assert ops.FMA.meaning is not None
    for a, b, c in itertools.product(half_way, half_way, half_way + tiny):
        expected, found = ops.FMA.meaning(f32, a, b, c), fma_f32(a, b, c)
        assert same(expected, found, f32), (a, b, c)


def test_division_of_floats_follows_ieee_754() -> None:
    divide = WORDS["_div"]
    assert divide(1.0, -0.0) == -math.inf and math.isnan(divide(0.0, 0.0))
    assert math.isnan(divide(math.nan, 0.0)) and divide(-math.inf, 0.0) == -math.inf


def test_bools_stay_bools() -> None:
    assert spell.form(ops.AND, bool_) == "{0} & {1}"
    assert (True & False) is False
