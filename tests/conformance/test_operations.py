"""Every exact operation of the table, on every type and line width, against its meaning."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir import ops
from cubepy.ir.evaluate import evaluate
from cubepy.ir.numbers import convert
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Kind, bool_, f64, make_line
from tests.conformance.operations import (
    REDUCTIONS,
    SCALARS,
    WRITTEN,
    arrays,
    bits_of,
    expected,
    numpy_type,
    result_type,
    rows,
    samples,
    skip_absent,
)
from tests.guarded import Guarded

ALL_WIDTHS = (1, 3, 4, 16, 64)
FEW_WIDTHS = (1, 3, 16)
EVERY_WIDTH = ("f32", "i32", "u8", "f16")


def widths(dtype: DType, is_slow: bool, is_text: bool, longest: int) -> list[int]:
    """All widths for a type of each kind; on devices of text for one type."""
    every, few = (EVERY_WIDTH[:1], FEW_WIDTHS[:2]) if is_text else (EVERY_WIDTH, FEW_WIDTHS)
    chosen = (1, 4) if is_slow else ALL_WIDTHS if dtype.name in every else few
    return [width for width in chosen if width <= longest]


@cp.cube
def apply_2(functions: cp.Comptime, a: cp.Lines, b: cp.Lines, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < a.size:
        for k, f in enumerate(functions):
            out[k, i] = f(a[i], b[i])


@cp.cube
def apply_3(functions: cp.Comptime, a: cp.Lines, b: cp.Lines, c: cp.Lines, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < a.size:
        for k, f in enumerate(functions):
            out[k, i] = f(a[i], b[i], c[i])


@cp.cube
def apply_one(functions: cp.Comptime, a: cp.Lines, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < a.size:
        for k, f in enumerate(functions):
            out[k, i] = f(a[i])


KERNELS = {1: apply_one, 2: apply_2, 3: apply_3}


def run(device: str, width: int, functions: Any, inputs: list[np.ndarray], kind: Any) -> np.ndarray:
    out = Guarded((len(functions), inputs[0].size), kind)
    kernel = KERNELS[len(inputs)].configure(device=device, line_size=width)
    kernel.over(-(-inputs[0].size // width))(tuple(functions), *inputs, out.array)
    out.check(out.array)
    return out.array


@pytest.mark.parametrize("operands", [1, 2, 3])
@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_exact_rows(
    device: str,
    is_slow: bool,
    is_text: bool,
    longest: int,
    lacks: set[DType],
    dtype: DType,
    operands: int,
):
    skip_absent(dtype, lacks)
    every = rows(dtype, operands)
    if not every:
        pytest.skip("no operation of so many operands takes this type")
    tuples = samples(dtype, operands, 15 if is_slow else 120)
    inputs = arrays(dtype, tuples)
    for result in dict.fromkeys(result_type(row, dtype) for row in every):
        chosen = [row for row in every if result_type(row, dtype) is result]
        kind = numpy_type(result)
        wanted = [arrays(result, [(expected(row, dtype, v),) for v in tuples])[0] for row in chosen]
        for width in widths(dtype, is_slow, is_text, longest):
            found = run(device, width, [WRITTEN[row] for row in chosen], inputs, kind)
            for k, row in enumerate(chosen):
                compare(row, dtype, width, found[k], wanted[k], tuples)


def compare(row: OpDef, dtype: DType, width: int, found: Any, wanted: Any, tuples: Any) -> None:
    differ = np.flatnonzero(bits_of(found) != bits_of(wanted))
    if len(differ):
        k = differ[0]
        raise AssertionError(
            f"{row.name} on {dtype}, {width} lanes, {tuples[k]}: {found[k]}, not {wanted[k]}; "
            f"{len(differ)} of {len(tuples)} differ"
        )


def test_every_exact_row_is_written():
    exact = {row for row in ops.TABLE.values() if row.meaning and row.exact}
    assert exact <= set(WRITTEN), {row.name for row in exact - set(WRITTEN)}


# Conversions


Targets = NamedTuple("Targets", [(t.name, cp.Lines) for t in SCALARS])  # pyright: ignore[reportArgumentType]
"""One output of each type."""
NARROW = [t for t in SCALARS if t is not f64]
NarrowTargets = NamedTuple("NarrowTargets", [(t.name, cp.Lines) for t in NARROW])  # pyright: ignore[reportArgumentType]


@cp.cube
def convert_all(a: cp.Lines, outs: Targets):
    i = cp.ABSOLUTE_POS
    if i < a.size:
        for t, out in zip(SCALARS, outs):
            out[i] = t(a[i])


@cp.cube
def convert_narrow(a: cp.Lines, outs: NarrowTargets):
    i = cp.ABSOLUTE_POS
    if i < a.size:
        for t, out in zip(NARROW, outs):
            out[i] = t(a[i])


def inputs_of_conversions(source: DType, count: int) -> list[Any]:
    numbers = [v for (v,) in samples(source, 1, count)]
    if source.is_float:
        edges = [2.0**k + d for k in (7, 8, 15, 16, 31, 32, 63, 64) for d in (0, -1, -0.5)]
        numbers += [convert(s * e, source) for e in edges for s in (1.0, -1.0)]
    return numbers


@pytest.mark.parametrize("source", SCALARS, ids=str)
def test_conversions(device: str, is_slow: bool, is_text: bool, lacks: set[DType], source: DType):
    skip_absent(source, lacks)
    targets, kinds, every = SCALARS, Targets, convert_all
    if f64 in lacks:
        targets, kinds, every = NARROW, NarrowTargets, convert_narrow
    numbers = inputs_of_conversions(source, 10 if is_slow else 100)
    (x,) = arrays(source, [(v,) for v in numbers])
    for width in (1, 4) if is_slow else FEW_WIDTHS[:2] if is_text else FEW_WIDTHS:
        outs = [Guarded(x.shape, numpy_type(t)) for t in targets]
        kernel = every.configure(device=device, line_size=width)
        kernel.over(-(-x.size // width))(x, kinds(*(o.array for o in outs)))
        for target, out in zip(targets, outs, strict=True):
            wanted = arrays(target, [(convert(v, target),) for v in numbers])[0]
            out.check(out.array)
            differ = np.flatnonzero(bits_of(out.array) != bits_of(wanted))
            k = differ[0] if len(differ) else 0
            assert not len(differ), (source, target, width, numbers[k], out.array[k], wanted[k])


@pytest.mark.parametrize("source", [t for t in SCALARS if t is not bool_], ids=str)
def test_bitcasts(device: str, lacks: set[DType], source: DType):
    skip_absent(source, lacks)
    bits = np.random.default_rng(4).integers(0, 256, 64 * source.itemsize, np.uint8)
    x = bits.view(numpy_type(source))
    for target in SCALARS:
        if target.bits != source.bits or target in lacks:
            continue
        found = run(device, 4, [lambda a, t=target: cp.bitcast(a, t)], [x], numpy_type(target))
        numbers = (bits_of(found[0]) != 2**64 - 1) & (bits_of(x) != 2**64 - 1)
        np.testing.assert_array_equal(
            bits_of(found[0])[numbers], bits_of(x.view(found.dtype))[numbers]
        )


WORDS = [t for t in SCALARS if t is not bool_]


@cp.cube
def rewrite_bits(x: cp.Tensor, outs, factor: cp.Comptime[int]):
    """Each `out` gets `x` in its type, by lines of `factor` times the larger of both types."""
    for out in outs:
        lanes = cp.comptime(factor * max(out.dtype.itemsize // x.dtype.itemsize, 1))
        count = cp.comptime(lanes * x.dtype.itemsize // out.dtype.itemsize)
        for i in range(cp.ABSOLUTE_POS, x.size // lanes, cp.CUBE_DIM):
            found = cp.bitcast(cp.load(x, lanes * i, line=lanes), out.dtype)
            if cp.comptime(count == 1):
                out[i] = found
            else:
                cp.store(out, count * i, found)


@pytest.mark.parametrize("source", WORDS, ids=str)
def test_bitcasts_to_lanes_of_another_size(
    device: str, is_slow: bool, lacks: set[DType], source: DType
):
    """Elements are small numbers, of which no part is a NaN; one of both types is unsigned."""
    skip_absent(source, lacks)
    x = np.random.default_rng(5).integers(0, 100, 64 * 8, np.uint8).view(numpy_type(source))
    targets = [
        numpy_type(t)
        for t in WORDS
        if t.bits != source.bits and t not in lacks and Kind.UINT in (source.kind, t.kind)
    ]
    for factor in (1,) if is_slow else (1, 2):
        outs = [Guarded((x.nbytes // np.dtype(t).itemsize,), t) for t in targets]
        rewrite_bits.configure(device=device)[1, 64](x, tuple(o.array for o in outs), factor)
        for out in outs:
            out.check(out.array)
            np.testing.assert_array_equal(bits_of(out.array), bits_of(x.view(out.array.dtype)))


def test_bitcasts_of_one_number_to_lanes(device: str):
    @cp.cube
    def halves(x: cp.Tensor[cp.u32], out: cp.Tensor[cp.u16]):
        pair = cp.bitcast(x[0], cp.u16)
        back = cp.bitcast(cp.Line[cp.u16, 2](pair[1], pair[0]), cp.Line[cp.u32, 1])
        cp.store(out, 0, cp.bitcast(back, cp.u16))

    x, out = np.array([0x12345678], np.uint32), np.zeros(2, np.uint16)
    halves.configure(device=device)[1, 1](x, out)
    np.testing.assert_array_equal(out, [0x1234, 0x5678])


def test_lines_of_their_lanes(device: str):
    @cp.cube
    def ramp(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
        cp.store(out, 0, cp.Line[cp.f32, 4](x[1], 2, cp.i32(3), x[0]))

    x, out = np.array([4.5, 1.5], np.float32), np.zeros(4, np.float32)
    ramp.configure(device=device)[1, 1](x, out)
    np.testing.assert_array_equal(out, [1.5, 2, 3, 4.5])


# Lanes


@cp.cube
def reduce(functions: cp.Comptime, a: cp.Lines, out: cp.Tensor):
    i = cp.ABSOLUTE_POS
    if i < a.size:
        for k, f in enumerate(functions):
            out[k, i] = f(a[i])


@pytest.mark.parametrize("dtype", [t for t in SCALARS if t is not bool_], ids=str)
def test_reductions(device: str, is_slow: bool, is_text: bool, lacks: set[DType], dtype: DType):
    skip_absent(dtype, lacks)
    few = is_text and dtype.name != EVERY_WIDTH[0]
    for width in (2, 3, 4) if is_slow else (3, 8) if few else (2, 3, 4, 5, 7, 8, 16):
        numbers = [v for (v,) in samples(dtype, 1, 60)]
        numbers = numbers[: len(numbers) // width * width]
        (x,) = arrays(dtype, [(v,) for v in numbers])
        lines = [tuple(numbers[k : k + width]) for k in range(0, len(numbers), width)]
        t = make_line(dtype, width)
        wanted = np.stack(
            [
                arrays(
                    dtype,
                    [(found[0],) for line in lines if (found := evaluate(row, {}, [t], [line]))],
                )[0]
                for row in REDUCTIONS
            ]
        )
        out = Guarded(wanted.shape, x.dtype)
        kernel = reduce.configure(device=device, line_size=width)
        kernel.over(len(lines))(tuple(REDUCTIONS.values()), x, out.array)
        for k, row in enumerate(REDUCTIONS):
            assert (bits_of(out.array[k]) == bits_of(wanted[k])).all(), (row.name, width)


@cp.cube
def masks(a: cp.Lines, out: cp.Tensor):
    i = cp.ABSOLUTE_POS
    if i < a.size:
        m = a[i] > 3
        out[i, 0], out[i, 1] = m.any(), m.all()


@pytest.mark.parametrize("width", [2, 3, 4, 7, 16, 64])
def test_masks(device: str, width: int):
    x = (
        np.array([[k >> b & 1 for b in range(width)] for k in range(min(2**width, 64))], np.int32)
        * 5
    )
    out = Guarded((len(x), 2), np.bool_)
    masks.configure(device=device, line_size=width).over(len(x))(x.ravel(), out.array)
    out.check(np.stack([(x > 3).any(1), (x > 3).all(1)], 1))


@cp.cube
def lanes(a: cp.Lines, b: cp.Lines, out: cp.Lines, k: int):
    """Extract, insert by parts, shuffle, concatenate, splat and select."""
    i = cp.ABSOLUTE_POS
    if i < a.size:
        v, w = a[i], b[i]
        n = v.line_size
        both = cp.concat(v, w)
        out[0, i] = both[::2]
        out[1, i] = both[n - 1 : 2 * n - 1]
        out[2, i] = v[::-1]
        out[3, i] = cp.Line[a.dtype, n](w[n - 1])
        out[4, i] = cp.Line[a.dtype, n](v[k % n])
        out[5, i] = cp.where(v > w, v, w)
        out[6, i] = v if v[0] > w[0] else w
        out[7, i] = cp.where(v > w, 1, w)
        out[8, i] = both[(n, n, *range(2, n))]


@pytest.mark.parametrize("width", [2, 3, 4, 8, 16])
@pytest.mark.parametrize(
    "kind", [np.float32, np.int8, np.float64, np.uint16], ids=lambda k: k.__name__
)
def test_lanes(device: str, lacks: set[DType], width: int, kind: Any):
    if kind is np.float64:
        skip_absent(f64, lacks)
    a, b = np.random.default_rng(7).integers(0, 100, (2, 5, width)).astype(kind)
    out = Guarded((9, 5 * width), kind)
    lanes.configure(device=device, line_size=width).over(5)(a.ravel(), b.ravel(), out.array, 11)
    both = np.concatenate([a, b], 1)
    splat = [np.repeat(c[:, None], width, 1) for c in (b[:, -1], a[:, 11 % width])]
    chosen = np.where(a[:, :1] > b[:, :1], a, b)
    rows = [
        both[:, ::2],
        both[:, width - 1 : 2 * width - 1],
        a[:, ::-1],
        *splat,
        np.where(a > b, a, b),
        chosen,
        np.where(a > b, 1, b),
        both[:, [width, width, *range(2, width)]],
    ]
    out.check(np.stack([r.ravel() for r in rows]))


@cp.cube
def partial_lines(x, out, start: int, fill: cp.f32, width: cp.Comptime[int]):
    """Lines of a scalar tensor from any offset, stored to any offset."""
    i = cp.ABSOLUTE_POS
    if i < 9:
        v = cp.load(x, start + i * width, line=width, fill=fill)
        cp.store(out, start + i * width, v)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_lines_of_scalar_tensors(device: str, width: int, step: int):
    x = np.arange(60, dtype=np.float32)[::step]
    for start in (-5, 0, 3, len(x) - 7):
        for fill in (0.0, -1.5):
            out = Guarded(x.shape)
            before = out.array.copy()
            partial_lines.configure(device=device)[1, 9](x, out.array, start, fill, width)
            inside = [p for p in range(start, start + 9 * width) if 0 <= p < len(x)]
            before[inside] = x[inside]
            out.check(before)


@cp.cube
def filled(x: cp.Lines[cp.f32], out, fill: cp.f32):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        v = cp.load(x, i, fill=fill)
        out[i, 0], out[i, 1] = v.sum(), v.min()
        mask = x.lane_mask(i)
        out[i, 2] = cp.where(mask, 1.0, 0.0).sum()


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17])
def test_missing_lanes(device: str, count: int):
    x = np.arange(1, count + 1, dtype=np.float32)
    n = -(-count // 8)
    for fill in (0.0, 2.0, -9.0):
        padded = np.concatenate([x, np.full(8 * n - count, fill, np.float32)]).reshape(n, 8)
        there = np.concatenate([np.ones(count), np.zeros(8 * n - count)]).reshape(n, 8)
        out = Guarded((n, 3))
        filled.configure(device=device, line_size=8).over(x)(x, out.array, fill)
        out.check(np.stack([padded.sum(1), padded.min(1), there.sum(1)], 1))


@cp.cube
def dots(a: cp.Lines, b: cp.Lines, c, out, n: cp.Comptime[int]):
    """Sums of products of four neighbouring lanes: lines of sums, and one sum."""
    i = cp.ABSOLUTE_POS
    if i < a.size:
        v, w = a[i], b[i]
        cp.store(out[0], i * n, cp.dot(v, w, cp.load(c, i * n, line=n)))
        if i == 0:
            out[1, 0] = cp.dot(v[:4], w[:4], c[0])


@pytest.mark.parametrize("n", [1, 3, 4, 8, 16])
@pytest.mark.parametrize(
    ("left", "right"), [("i1", "i1"), ("u1", "i1"), ("i1", "u1"), ("u1", "u1")]
)
def test_dots(device: str, n: int, left: str, right: str):
    rng = np.random.default_rng(n)
    a, b = (
        rng.choice([np.iinfo(t).min, np.iinfo(t).max, 1, 77], (5, 4 * n)).astype(t)
        for t in (left, right)
    )
    c = rng.integers(-(1 << 31), 1 << 31, 5 * n).astype("i4")
    out = np.full((2, 5 * n), 5, "i4")
    dots.configure(device=device, line_size=4 * n).over(5)(a.ravel(), b.ravel(), c, out, n)
    exact = (a.astype("i8") * b).reshape(-1, 4).sum(1) + c
    np.testing.assert_array_equal(out[0], exact.astype("i4"))
    assert out[1, 0] == exact[:1].astype("i4")
    assert (out[1, 1:] == 5).all()


@cp.cube
def dots_of_bf16(a: cp.Lines, b: cp.Lines, c, out, n: cp.Comptime[int]):
    """Sums of products of two neighbouring lanes: lines of sums, and one sum."""
    i = cp.ABSOLUTE_POS
    if i < a.size:
        v, w = cp.bitcast(a[i], cp.bf16), cp.bitcast(b[i], cp.bf16)
        cp.store(out[0], i * n, cp.dot(v, w, cp.load(c, i * n, line=n)))
        if i == 0:
            out[1, 0] = cp.dot(v[:2], w[:2], c[0])


@pytest.mark.parametrize("n", [1, 3, 4, 8, 16])
def test_dots_of_bf16(device: str, n: int):
    """First the odd lane's product, then the even one's: each sum is rounded once."""
    rng = np.random.default_rng(n)
    a, b = (
        (rng.standard_normal((40, 2 * n)) * 2.0 ** rng.integers(-9, 9, (40, 2 * n)))
        .astype("f4")
        .view("u4")
        >> 16
        for _ in range(2)
    )
    c = (rng.standard_normal(40 * n) * 2.0 ** rng.integers(-9, 20, 40 * n)).astype("f4")
    c[0] = -np.inf
    out = np.full((2, 40 * n), 5, "f4")
    bits = (x.ravel().astype("u2") for x in (a, b))
    dots_of_bf16.configure(device=device, line_size=2 * n).over(40)(*bits, c, out, n)
    left, right = ((x << 16).view("f4").astype(np.longdouble).reshape(-1, 2) for x in (a, b))
    product = left * right  # 16 bits, and sums of less than 64 besides: exact
    expected = (c + product[:, 1]).astype("f4")
    expected = (expected + product[:, 0]).astype("f4")
    np.testing.assert_array_equal(out[0], expected)
    assert out[1, 0] == expected[0]
    assert (out[1, 1:] == 5).all()


def test_dots_of_bf16_that_are_tiny_or_special(device: str):
    """What lies below 2**-126 counts as itself or as 0; infinities and NaN stay what they are."""
    a = np.array([1.0, 2.0**-130, np.inf, 0.0, np.inf, 1.0, np.nan, 0.0], "f4")
    b = np.array([0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0], "f4")
    c, out = np.array([0.0, 3.0, 1.0, 1.0], "f4"), np.full((2, 4), 5, "f4")
    bits = ((x.view("u4") >> 16).astype("u2") for x in (a, b))
    dots_of_bf16.configure(device=device, line_size=8).over(1)(*bits, c, out, 4)
    assert out[0, 0] in (0.0, np.float32(2.0**-130))
    assert out[0, 1] == np.inf
    assert np.isnan(out[0, 2:]).all()
