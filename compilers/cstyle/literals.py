"""Constants of C: exact in every parser, also in those that read floats by way of doubles."""

from __future__ import annotations

import math
from fractions import Fraction

from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.cstyle.spelling import ATOM, POSTFIX, UNARY, Expr
from cubepy.ir.numbers import Number, round_to, to_bits
from cubepy.ir.types import DType, bool_, f64, index, u16, u32, u64


def literal(value: Number, dtype: DType, dialect: Dialect) -> Expr:
    """A typed constant; types below 32 bits have none of their own and are `int`."""
    if dtype is bool_:
        return Expr("true" if value else "false")
    if dtype.is_float:
        return _float(float(value), dtype, dialect)
    return _integer(int(value), dialect.suffixes.get(dtype, ""))


def short_index(value: int, dialect: Dialect) -> Expr:
    """A constant index beside operands that make the type clear."""
    return _integer(value, "" if abs(value) < 1 << 31 else dialect.suffixes[index])


def _integer(value: int, suffix: str) -> Expr:
    if value in (-(1 << 31), -(1 << 63)):
        return Expr(f"({value + 1}{suffix} - 1)")
    return Expr(f"{value}{suffix}", UNARY if value < 0 else ATOM)


def _float(value: float, dtype: DType, dialect: Dialect) -> Expr:
    if dtype in dialect.can.stored:
        return Expr(f"0x{to_bits(value, dtype):0{dtype.bits // 4}x}")
    if not math.isfinite(value):
        return _from_bits(value, dtype, dialect)
    text = _decimal(value, dtype)
    return Expr(text + dialect.float_suffixes[dtype], UNARY if text.startswith("-") else ATOM)


def _from_bits(value: float, dtype: DType, dialect: Dialect) -> Expr:
    word = {16: u16, 32: u32, 64: u64}[dtype.bits]
    bits = f"0x{to_bits(value, dtype):0{dtype.bits // 4}x}{dialect.suffixes.get(word, '')}"
    return Expr(dialect.from_bits[dtype].format(bits), POSTFIX)


def _decimal(value: float, dtype: DType) -> str:
    """The shortest decimal that every parser reads as `value`, else its hexadecimal digits."""
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        if _reads_as(text, value, dtype):
            return text if any(c in text for c in ".e") else f"{text}.0"
    return value.hex()


def _reads_as(text: str, value: float, dtype: DType) -> bool:
    """Whether parsers that round once read `value`, and also those that round to f64 first."""
    if value == 0 or dtype is f64:
        return float(text) == value
    direct = round_to(dtype, Fraction(text))
    return direct == value and round_to(dtype, Fraction(float(text))) == value
