"""Planes that exchange through shared memory, and the fragments of `cp.cmma`, on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.types import DType, Kind, bf16, f8e4m3, f16, f32, f64, i8, i32, u8
from cubepy.lang.tiles import SUMS
from tests.conformance.operations import numpy_type, skip_absent
from tests.guarded import Guarded


@cp.cube
def turned_rows(x, out):
    """Each plane turns its elements around, twice, by way of shared memory alone."""
    place = cp.shared((cp.PLANE_COUNT, cp.PLANE_DIM), x.dtype)
    lane = cp.UNIT_POS_PLANE
    value = x[cp.ABSOLUTE_POS]
    for shift in range(1, 3):
        place[cp.PLANE_POS, lane] = value
        cp.sync_plane()
        value = place[cp.PLANE_POS, (lane + shift) % cp.PLANE_DIM]
        cp.sync_plane()
    out[cp.ABSOLUTE_POS] = value


def test_planes_meet_where_they_only_synchronise(device: str):
    plane = cp.device(device).target.plane_dim if cp.device(device).target.plane_dim > 1 else 8
    x = np.arange(4 * 2 * plane, dtype=np.int32)
    out = Guarded(x.shape, np.int32)
    turned_rows.configure(device=device, plane_dim=plane)[4, 2 * plane](x, out.array)
    expected = np.roll(x.reshape(-1, plane), -3, axis=1).ravel()
    np.testing.assert_array_equal(out.array, expected)
    out.check(out.array)


@cp.cube
def product(a, b, c, m: cp.Comptime, n: cp.Comptime, k: cp.Comptime, planes: cp.Comptime):
    """Planes beside each other along the columns of a cube's tiles."""
    i, j = cp.CUBE_POS_Y * m, (cp.CUBE_POS_X * planes + cp.PLANE_POS) * n
    left = cp.cmma.fragment("a", m, k, a.dtype)
    right = cp.cmma.fragment("b", k, n, b.dtype)
    total = cp.cmma.fragment("accumulator", m, n, c.dtype, fill=0)
    for start in range(0, a.shape[1], k):
        cp.cmma.load(left, a, (i, start))
        cp.cmma.load(right, b, (start, j))
        cp.cmma.mma(total, left, right)
    cp.cmma.store(c, (i, j), total)


def factors(dtype: DType, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([m, k, n])
    kind = numpy_type(dtype)
    if dtype.is_integer:
        low = 0 if dtype.kind is Kind.UINT else -100
        return rng.integers(low, 100, (m, k)).astype(kind), rng.integers(low, 100, (k, n)).astype(
            kind
        )
    return rng.normal(size=(m, k)).astype(kind), rng.normal(size=(k, n)).astype(kind)


SIZES = [(16, 16, 16), (40, 50, 33), (1, 3, 2)]
TILES = [(16, 16, 16), (32, 8, 32), (5, 7, 9)]
TYPES = [f16, bf16, f32, f64, i8, u8, i32, f8e4m3]
FRAGMENTS = [
    (dtype, tile) for k, dtype in enumerate(TYPES) for tile in (TILES[0], TILES[1 + k % 2])
]


@pytest.mark.parametrize(("dtype", "tile"), FRAGMENTS, ids=str)
def test_products_of_fragments(
    device: str, is_slow: bool, lacks: set[DType], dtype: DType, tile: tuple[int, int, int]
):
    skip_absent(dtype, lacks)
    target = cp.device(device).target
    planes = 2 if target.plane_dim > 1 else 1
    m, n, k = tile
    for rows, depth, columns in ((m + 1, k + 1, n + 1), (1, 3, 2)) if is_slow else SIZES:
        a, b = factors(dtype, rows, depth, columns)
        c = Guarded((rows, columns), numpy_type(SUMS[dtype]))
        grid = (-(-columns // (n * planes)), -(-rows // m))
        launcher = product.configure(device=device)[grid, target.plane_dim * planes]
        launcher(a, b, c.array, m, n, k, planes)
        c.check(c.array)
        check_product(a, b, c.array, dtype)


VIEWS: dict[str, Any] = {
    "columns": lambda whole: whole[:32, :32].T,
    "odd place": lambda whole: whole[1:33, 1:33],
    "odd rows": lambda whole: whole.reshape(-1)[: 32 * 67].reshape(32, 67)[:, :32],
    "every second": lambda whole: whole[:64:2, :64:2],
    "turned around": lambda whole: whole[31::-1, 31::-1],
}


@pytest.mark.parametrize("view", VIEWS)
def test_products_into_views(device: str, view: str):
    """Sums that a unit holds are neighbours in some of them, and some rows begin at any place."""
    target = cp.device(device).target
    a, b = factors(f16, 32, 16, 32)
    whole = np.full((66, 68), np.float32(7.5))
    before, c = whole.copy(), VIEWS[view](whole)
    product.configure(device=device)[2, target.plane_dim](a, b, c, 32, 16, 16, 1)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, expected, atol=1e-4, rtol=1e-4)
    c[...] = VIEWS[view](before)
    np.testing.assert_array_equal(whole, before)


@cp.cube
def staged_product(a, b, c, shift: int):
    """By way of shared memory, whose tiles begin `shift` columns from where rows are aligned."""
    i, j, lane = cp.CUBE_POS_Y * 16, cp.CUBE_POS_X * 16, cp.UNIT_POS_PLANE
    x, y = cp.shared((16, 48), a.dtype), cp.shared((32, 32), b.dtype)
    left = cp.cmma.fragment("a", 16, 32, a.dtype)
    right = cp.cmma.fragment("b", 32, 16, b.dtype)
    total = cp.cmma.fragment("accumulator", 16, 16, c.dtype, fill=0)
    for k in range(0, a.shape[1], 32):
        for e in range(lane, 512, cp.CUBE_DIM):
            r, s = e // 32, e % 32
            inside = i + r < a.shape[0] and k + s < a.shape[1]
            x[r, s + shift] = a[i + r, k + s] if inside else a.dtype(0)
        for e in range(lane, 512, cp.CUBE_DIM):
            r, s = e // 16, e % 16
            inside = k + r < b.shape[0] and j + s < b.shape[1]
            y[r, s + shift] = b[k + r, j + s] if inside else b.dtype(0)
        cp.sync_cube()
        cp.cmma.load(left, x, (0, shift))
        cp.cmma.load(right, y, (0, shift))
        cp.cmma.mma(total, left, right)
        cp.sync_cube()
    cp.cmma.store(c, (i, j), total)


@pytest.mark.parametrize(
    ("dtype", "shift"),
    [
        *((dtype, shift) for dtype in (f16, bf16, f32, i8) for shift in (0, 3, 8, 16)),
        *((f64, shift) for shift in (0, 3)),
    ],
    ids=str,
)
def test_products_of_shared_tiles(device: str, lacks: set[DType], dtype: DType, shift: int):
    skip_absent(dtype, lacks)
    a, b = factors(dtype, 24, 38, 17)
    c = Guarded((24, 17), numpy_type(SUMS[dtype]))
    plane = cp.device(device).target.plane_dim
    staged_product.configure(device=device)[(2, 2), plane](a, b, c.array, shift)
    c.check(c.array)
    check_product(a, b, c.array, dtype)


MOST_DEEP = 64
"""Elements of k, so that 32 KiB hold both tiles."""


@cp.cube
def swizzled_product(a, b, c, span: cp.Comptime[int], column: cp.Comptime[int]):
    """By way of shared memory whose rows of `span` bytes are swizzled, `a` from row 5 on."""
    lane, width = cp.UNIT_POS_PLANE, span // a.dtype.itemsize
    deep = min(width, MOST_DEEP)
    x, y = cp.shared((24, width), a.dtype), cp.shared((deep, 2 * width), b.dtype)
    left = cp.cmma.fragment("a", 16, deep, a.dtype)
    right = cp.cmma.fragment("b", deep, 16, b.dtype)
    total = cp.cmma.fragment("accumulator", 16, 16, c.dtype, fill=0)
    for tile, given in ((x, a), (y, b)):
        for e in range(lane, tile.size, cp.CUBE_DIM):
            r, s = e // tile.shape[1], e % tile.shape[1]
            byte = cp.pipelines.swizzled(r, s * a.dtype.itemsize, span)
            tile[r, byte // a.dtype.itemsize] = given[r, s]
    cp.sync_cube()
    cp.cmma.load(left, x, (5, 0), span)
    cp.cmma.load(right, y, (0, width), span)
    cp.cmma.mma(total, left, right)
    z, size = cp.shared((24, 32), c.dtype), c.dtype.itemsize
    cp.cmma.store(z, (3, column), total, span)
    for e in range(lane, 256, cp.CUBE_DIM):
        r, s = e // 16, e % 16
        c[r, s] = z[3 + r, cp.pipelines.swizzled(3 + r, (column + s) * size, span) // size]


@pytest.mark.parametrize(
    ("dtype", "span"),
    [*((dtype, span) for dtype in (f16, f32, i8) for span in (32, 64, 128)), (bf16, 64)],
    ids=str,
)
def test_products_of_swizzled_tiles(device: str, lacks: set[DType], dtype: DType, span: int):
    skip_absent(dtype, lacks)
    width = span // dtype.itemsize
    a, b = factors(dtype, 24, width, 2 * width)
    deep = min(width, MOST_DEEP)
    plane, seen = cp.device(device).target.plane_dim, min(16, width)
    for column in (16, 15):
        c = Guarded((16, 16), numpy_type(SUMS[dtype]))
        swizzled_product.configure(device=device)[1, plane](a, b, c.array, span, column)
        c.check(c.array)
        expected = b[:deep, width : width + seen]
        check_product(a[5:21, :deep], expected, c.array[:, :seen], dtype)


@cp.cube
def sums_of_columns(b, c, weight: int):
    """A filled factor; the sums are filled between two tiles, which the first one leaves alone."""
    left = cp.cmma.fragment("a", 16, 32, b.dtype)
    right = cp.cmma.fragment("b", 32, 16, b.dtype)
    total = cp.cmma.fragment("accumulator", 16, 16, c.dtype)
    cp.cmma.fill(left, weight)
    for j in range(0, b.shape[1], 16):
        cp.cmma.fill(total, 1)
        cp.cmma.fill(right, 3)
        cp.cmma.load(right, b, (0, j))
        cp.cmma.mma(total, left, right)
        cp.cmma.store(c, (0, j), total)


@pytest.mark.parametrize("dtype", [f16, bf16, f32, f64, i8], ids=str)
def test_filled_fragments(device: str, lacks: set[DType], dtype: DType):
    skip_absent(dtype, lacks)
    _, b = factors(dtype, 1, 32, 40)
    b = np.round(b.astype(np.float64)).astype(b.dtype)
    c = Guarded((16, 40), numpy_type(SUMS[dtype]))
    plane = cp.device(device).target.plane_dim
    sums_of_columns.configure(device=device)[1, plane](b, c.array, 2)
    c.check(c.array)
    expected = 1 + 2 * b.astype(np.float64).sum(0)
    np.testing.assert_array_equal(c.array, np.broadcast_to(expected, (16, 40)))


def check_product(a: Any, b: Any, c: np.ndarray, dtype: DType) -> None:
    """Against float64: a rounding of the sum's type, or its truncation, for each step."""
    wide = np.int64 if dtype.is_integer else np.float64
    exact = a.astype(wide) @ b.astype(wide)
    if dtype.is_integer:
        np.testing.assert_array_equal(c, exact)
        return
    unit = 2.0**-52 if dtype is f64 else 2.0**-22
    bound = (a.shape[1] + 1) * unit * (np.abs(a.astype(wide)) @ np.abs(b.astype(wide)))
    assert (np.abs(c - exact) <= bound).all(), np.abs((c - exact) / bound).max()


@cp.cube
def extrema_of_the_rest(x, least, most):
    i = cp.ABSOLUTE_POS
    if i % 3 == 1:
        return
    least[i], most[i] = cp.plane_min(x[i]), cp.plane_max(x[i])


@cp.cube
def lines_of_the_rest(x: cp.Lines[cp.i32], sums: cp.Lines[cp.i32], before: cp.Lines[cp.i32]):
    i = cp.ABSOLUTE_POS
    if i % 3 == 1:
        return
    sums[i], before[i] = cp.plane_sum(x[i]), cp.plane_exclusive_sum(x[i])


def planes_of(device: str, kernel: Any) -> tuple[int, Any]:
    width = cp.device(device).target.plane_dim
    return (width, kernel) if width > 1 else (8, kernel.configure(plane_dim=8))


@pytest.mark.parametrize("dtype", [f8e4m3, f16, f32, i8, u8], ids=str)
def test_units_that_returned_give_no_extremum(device: str, lacks: set[DType], dtype: DType):
    if dtype in lacks:
        pytest.skip(f"the device has no {dtype}")
    width, kernel = planes_of(device, extrema_of_the_rest)
    rng = np.random.default_rng(5)
    x = rng.integers(1 if dtype.kind is Kind.UINT else -90, 90, 2 * width).astype(numpy_type(dtype))
    least, most = np.zeros_like(x), np.zeros_like(x)
    kernel.configure(device=device)[1, 2 * width](x, least, most)
    left = np.arange(x.size) % 3 != 1
    for k in range(2):
        rows = slice(k * width, (k + 1) * width)
        rest = x[rows][left[rows]].astype(np.float64)
        for out, expected in ((least, rest.min()), (most, rest.max())):
            assert (out[rows][left[rows]].astype(np.float64) == expected).all()
            assert (out[rows][~left[rows]].astype(np.float64) == 0).all()


def test_lines_of_units_that_returned_count_as_nothing(device: str):
    width, kernel = planes_of(device, lines_of_the_rest)
    x = np.random.default_rng(6).integers(-99, 99, (2 * width, 4)).astype(np.int32)
    sums, before = np.zeros_like(x), np.zeros_like(x)
    kernel.configure(device=device, line_size=4)[1, 2 * width](
        x.reshape(-1), sums.reshape(-1), before.reshape(-1)
    )
    left = np.arange(2 * width) % 3 != 1
    for k in range(2):
        rows = slice(k * width, (k + 1) * width)
        rest, there = np.where(left[rows, None], x[rows], 0), left[rows]
        assert (sums[rows][there] == rest.sum(axis=0)).all()
        assert (before[rows][there] == (np.cumsum(rest, axis=0) - rest)[there]).all()
