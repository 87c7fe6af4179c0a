"""Functions of the language that quantise and restore numbers, for elementwise kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.quantisation.problem import Format


def scaled(x: Any, scale: Any, zero: Any, form: Any, kind: Any) -> Any:
    """A number as the format holds it, still a float: rounded half to even, saturated."""
    v = kind(x) / kind(scale)
    if not form.is_float:
        v = cp.rint(v)
        v = v if zero is None else v + kind(zero)
    # Unlike max and min these leave the order of zeros open, which takes half of the instructions.
    v = cp.where(v > form.high, kind(form.high), v)
    return cp.where(v < form.low, kind(form.low), v)


def low_bits(v: Any, kind: Any) -> Any:
    """The bits of a small whole number as an integer, of which the lower half counts; NaN is 0.

    Adding 1.5 * 2**p moves them to the end of a float of p + 1 bits of precision; conversions of
    lines to small integers, with all their cases, take ten times as long.
    """
    v = cp.where(v == v, v, kind(0))  # the payload of a NaN would show
    if kind == cp.f64:
        return cp.bitcast(v + 1.5 * 2.0**52, cp.i64)
    return cp.bitcast(v + 1.5 * 2.0**23, cp.i32)


def stored(v: Any, form: Any, kind: Any) -> Any:
    """A scaled number as it is stored."""
    return form.stored(v) if form.is_float else form.stored(low_bits(v, kind))


def nibble(x: Any, scale: Any, zero: Any, form: Any, kind: Any) -> Any:
    """A number as four bits; NaN is 0."""
    return cp.i32(low_bits(scaled(x, scale, zero, form, kind), kind) & 15)


@lru_cache(maxsize=64)
def quantiser(form: Format, kind: DType, has_zero: bool) -> Callable[..., Any]:
    """The function of a number, its scale and its zero point; `kind` is what it computes in."""

    def one(x: Any, scale: Any) -> Any:
        return stored(scaled(x, scale, None, form, kind), form, kind)

    def shifted(x: Any, scale: Any, zero: Any) -> Any:
        return stored(scaled(x, scale, zero, form, kind), form, kind)

    return shifted if has_zero else one


@lru_cache(maxsize=64)
def packer(form: Format, kind: DType, has_zero: bool) -> Callable[..., Any]:
    """The function of two numbers, with scale and zero point each; the first has the low bits."""

    def two(x: Any, scale: Any, y: Any, other: Any) -> Any:
        low, high = nibble(x, scale, None, form, kind), nibble(y, other, None, form, kind)
        return cp.u8(low | (high << 4))

    def shifted(x: Any, scale: Any, zero: Any, y: Any, other: Any, second: Any) -> Any:
        low, high = nibble(x, scale, zero, form, kind), nibble(y, other, second, form, kind)
        return cp.u8(low | (high << 4))

    return shifted if has_zero else two


@lru_cache(maxsize=64)
def last_packer(form: Format, kind: DType, has_zero: bool) -> Callable[..., Any]:
    """The function of the number that has no second; the high bits are 0."""

    def one(x: Any, scale: Any) -> Any:
        return cp.u8(nibble(x, scale, None, form, kind))

    def shifted(x: Any, scale: Any, zero: Any) -> Any:
        return cp.u8(nibble(x, scale, zero, form, kind))

    return shifted if has_zero else one


def stored_number(q: Any, form: Any, kind: Any, is_high: Any) -> Any:
    """What is stored, as a float; of bytes that hold two numbers, one."""
    if not form.packed:
        return kind(q)
    v = (cp.i32(q) >> 4 if is_high else cp.i32(q)) & 15
    return kind((v ^ 8) - 8 if form.low < 0 else v)


@lru_cache(maxsize=64)
def restorer(
    form: Format, kind: DType, dtype: DType, has_zero: bool, is_high: bool
) -> Callable[..., Any]:
    """The function of what is stored, its scale and its zero point."""

    def one(q: Any, scale: Any) -> Any:
        return dtype(stored_number(q, form, kind, is_high) * kind(scale))

    def shifted(q: Any, scale: Any, zero: Any) -> Any:
        return dtype((stored_number(q, form, kind, is_high) - kind(zero)) * kind(scale))

    return shifted if has_zero else one
