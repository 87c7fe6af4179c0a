"""A product of matrices as plain data: extents, types, and how the factors lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.errors import fail
from cubepy.ir.types import DType, Kind, f32, f64, i32, u32
from cubepy.kernels.calls.arguments import wrong
from cubepy.kernels.calls.libraries import refused
from cubepy.record import dataclass

ROWS, COLUMNS = "rows", "columns"
"""Which axis of a factor lies densely in memory: the one that rows, or that columns run along."""

RUN_BYTES = 16
"""What a unit copies at once, at most."""
MOST_AXES, BOX_UNIT = 5, 16
"""Axes that a tensor map can have, and what its address and strides are multiples of, in bytes."""
MOST_PLACES, MOST_STEP = (1 << 31) - (1 << 12), 1 << 40
"""The largest extent of which all places of tiles, also those behind the end, are numbers of 32
bits, and the bytes that a stride of a tensor map is less than."""


@dataclass(frozen=True, slots=True)
class Problem:
    """out[..., m, n] = the sum over k of a[..., m, k] * b[..., k, n].

    `batch`: the extents before the last two, as broadcast. `factors`: the type that elements are
    multiplied in, of which it holds every value; `sums`: the type of products and sums; `result`:
    that of the elements of the result. `left` and `right`: along which axis the factors are dense.
    `is_finished`: there is a bias, an epilogue or a conversion after the sum. `elements`: the type
    of the factors in memory, None where that is `factors` or no unit of hardware may multiply them.
    `has_dense_rows`: neighbours in rows of the left factor are neighbours in memory. `has_boxes`:
    tensor maps can describe the factors and the result, `has_factor_boxes`: at least the factors.
    `precision`: what the caller allows. `dtype`: the type of the factors in memory; `runs`:
    elements of each that can be copied at once, see `run_of`; `lies_apart`: the right one is dense
    along no axis.
    """

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    factors: DType
    sums: DType
    result: DType
    left: str
    right: str
    is_finished: bool = False
    elements: DType | None = None
    has_dense_rows: bool = False
    has_boxes: bool = False
    has_factor_boxes: bool = False
    precision: str | None = None
    dtype: DType = f32
    runs: tuple[int, int] = (1, 1)
    lies_apart: bool = False

    @property
    def batches(self) -> int:
        """How many products there are."""
        return prod(self.batch)

    @property
    def work(self) -> int:
        """Multiplications in all."""
        return self.batches * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class Product:
    """The operands of one product, as matrices; `out` has all axes.

    `scales`: what sums are multiplied by, in f32, before anything is added; of the result's shape.
    """

    a: Memory
    b: Memory
    out: Memory
    biases: tuple[Memory, ...]
    epilogue: Callable[..., Any] | None
    extras: tuple[Memory, ...]
    precision: str | None = None
    scales: tuple[Memory, ...] = ()


def sums_of(dtype: DType) -> DType:
    """The type in which products of a type are made and added."""
    if dtype.is_float:
        return f64 if dtype is f64 else f32
    if dtype.bits == 64:
        return dtype
    return i32 if dtype.kind is Kind.INT or dtype.bits == 8 else u32


def result_of(dtype: DType) -> DType:
    """The type of a product's elements: of 8-bit floats f32, of short integers i32, else that of
    the factors."""
    return dtype if dtype.is_float and dtype.bits > 8 else sums_of(dtype)


def check_factors(function: str, a: Memory, b: Memory, names: tuple[str, str] = ("a", "b")) -> None:
    """E602 unless the factors have one type that can be multiplied."""
    first, second = names
    if a.dtype is not b.dtype:
        shown = f"`{first}` is {a.dtype}{_shape(a)} and `{second}` is {b.dtype}{_shape(b)}"
        reason = f"the factors differ in dtype: {shown}"
        raise fail("E602", function=function, reason=reason, suggestion="convert one of them")
    if a.dtype.kind is Kind.BOOL:
        raise refused(function, first, "has dtype bool_", "convert it to u8 or f32")


def _shape(x: Memory) -> str:
    return f"[{','.join(map(str, x.shape))}]"


def product_extents(function: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of `a @ b` by NumPy's rules; E601 names both shapes where they do not fit."""
    if not a or not b:
        raise wrong(function, f"`a` has shape {a} and `b` {b}; both need an axis")
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    inner = list(b)[-2:][0]
    if a[-1] != inner:
        reason = f"`a` has shape {a} and `b` {b}: {a[-1]} and {inner} differ"
        raise wrong(function, reason, "the last axis of `a` is as long as the next-to-last of `b`")
    batch = broadcast(a[:-2], b[:-2])
    if batch is None:
        reason = f"`a` has shape {a} and `b` {b}, whose first axes do not broadcast"
        raise wrong(function, reason)
    return (*batch, *rows, *columns)


def broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    """The common shape of two, None where there is none."""
    rank = max(len(a), len(b))
    one, two = ((1,) * (rank - len(x)) + tuple(x) for x in (a, b))
    if any(m != n and 1 not in (m, n) for m, n in zip(one, two, strict=True)):
        return None
    return tuple(n if m == 1 else m for m, n in zip(one, two, strict=True))


def expanded(x: Memory, extents: tuple[int, ...]) -> Memory:
    """An array as if it had these extents: it stands still along axes that it lacks."""
    missing = len(extents) - len(x.shape)
    shape, strides = (1,) * missing + x.shape, (0,) * missing + x.strides
    steps = tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
    return replace(x, shape=extents, strides=steps)


def turned(x: Memory) -> Memory:
    """The transposed matrices."""
    shape = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    return replace(x, shape=shape, strides=(*x.strides[:-2], x.strides[-1], x.strides[-2]))


def is_dense(x: Memory, axis: int) -> bool:
    """Whether neighbours along an axis are neighbours in memory."""
    return x.strides[axis] == x.dtype.itemsize or x.shape[axis] == 1


def has_boxes(x: Memory) -> bool:
    """Whether a tensor map can describe matrices that are dense along their last axis."""
    fits = len(x.shape) <= MOST_AXES and all(0 < n <= MOST_PLACES for n in x.shape)
    steps = all(0 <= s < MOST_STEP and s % BOX_UNIT == 0 for s in x.strides[:-1])
    return fits and steps and is_dense(x, -1) and x.address % BOX_UNIT == 0


def run_of(x: Memory, axis: int) -> int:
    """How many elements along an axis can be copied at once, up to 16 bytes: runs of so many make
    up the axis, and each begins at a multiple of its size."""
    size, extent = x.dtype.itemsize, x.shape[axis]
    others = [s for k, s in enumerate(x.strides) if k != axis % len(x.shape) and x.shape[k] > 1]
    places = (x.address, extent * size, *others)
    run = 1
    while 2 * run * size <= RUN_BYTES and not any(v % (2 * run * size) for v in places):
        run *= 2
    return run if is_dense(x, axis) else 1


def as_matrices(x: Memory, row: bool) -> Memory:
    """A vector as a matrix of one row, or of one column; others as they are."""
    if len(x.shape) > 1:
        return x
    if row:
        return replace(x, shape=(1, *x.shape), strides=(0, *x.strides))
    return replace(x, shape=(*x.shape, 1), strides=(*x.strides, 0))
