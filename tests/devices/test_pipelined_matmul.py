"""Products by `wgmma` on Hopper, against f64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.kernels.matmul import waves
from cubepy.kernels.matmul.entry import _PLANS
from cubepy.kernels.matmul.problem import Problem
from cubepy.targets import Target

RNG = np.random.default_rng(11)
DTYPES = {"bf16": (ml_dtypes.bfloat16, 2.0**-8), "f16": (np.float16, 2.0**-10)}


def factor(shape: tuple[int, ...], dtype: Any, is_turned: bool, device: str) -> tuple[Any, Any]:
    """A random matrix on the device, dense along columns if turned, and its values."""
    stored = (*shape[:-2], shape[-1], shape[-2]) if is_turned else shape
    values = RNG.standard_normal(stored).astype(dtype)
    placed = cp.asarray(values, device=device)
    exact = values.astype(np.float64)
    return (turned(placed), exact.swapaxes(-1, -2)) if is_turned else (placed, exact)


def turned(x: Any) -> Any:
    """The same memory with the last two axes exchanged."""
    m = type(x).__cubepy_memory__(x)
    shape = (*m.shape[:-2], m.shape[-1], m.shape[-2])
    strides = (*m.strides[:-2], m.strides[-1], m.strides[-2])
    return type(x)(replace(m, shape=shape, strides=strides))


def check(
    device: str,
    extents: tuple[int, int, int],
    *,
    dense: tuple[bool, bool] = (False, True),
    batch: tuple[int, ...] = (),
    dtype: str = "bf16",
    bias: bool = False,
    epilogue: Any = None,
) -> None:
    m, n, k = extents
    kind, rounding = DTYPES[dtype]
    x, a = factor((*batch, m, k), kind, dense[0], device)
    y, b = factor((*batch, k, n), kind, dense[1], device)
    added = RNG.standard_normal(n).astype(np.float32).astype(kind)
    poison = np.full((*batch, m, n), np.nan, kind)
    out = cp.asarray(poison, device=device)
    options = {"bias": cp.asarray(added, device=device)} if bias else {}
    cp.kernels.matmul(x, y, out=out, epilogue=epilogue, **options)
    expected = a @ b + (added.astype(np.float64) if bias else 0)
    expected = np.maximum(expected, 0) if epilogue is not None else expected
    allowed = rounding * np.abs(expected) + 2.0**-22 * k * (np.abs(a) @ np.abs(b)) + 1e-7
    assert np.all(np.abs(out.numpy().astype(np.float64) - expected) <= allowed)


@pytest.fixture
def tiling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the strategy choose the tiles of this height and width."""

    def chosen(target: Target, problem: Problem) -> Any:
        found = waves.tilings(target, problem)
        return next(t for t in found if (t.height, t.width) == request.param)

    _PLANS._made.clear()
    monkeypatch.setattr(waves, "pipelined", chosen)
    yield request.param
    _PLANS._made.clear()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the strategy make clusters of so many cubes, whose tiles have this height and width."""

    def chosen(target: Target, problem: Problem) -> Any:
        *tile, cubes = request.param
        found = waves.tilings(target, problem)
        return replace(next(t for t in found if [t.height, t.width] == tile), cluster=cubes)

    _PLANS._made.clear()
    monkeypatch.setattr(waves, "pipelined", chosen)
    yield request.param
    _PLANS._made.clear()


@pytest.mark.parametrize("cluster", [(64, 128, 2), (64, 128, 4), (128, 256, 2)], indirect=True)
@pytest.mark.parametrize("extents", [(300, 520, 328), (130, 264, 1000), (1, 8, 72)])
def test_clusters(hopper: str, cluster: Any, extents: tuple[int, int, int]):
    check(hopper, extents, batch=(3,), bias=True)


@pytest.mark.parametrize("tiling", waves.TILES, indirect=True, ids=str)
def test_every_tiling(hopper: str, tiling: Any):
    check(hopper, (300, 520, 328))
    check(hopper, (64, 72, 1000), bias=True)
    check(hopper, (409, 331, 120), bias=True, epilogue=relu)
    if tiling[1] % waves.ROW_ELEMENTS == 0:
        check(hopper, (392, 456, 264), dense=(True, False), batch=(2,))


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_layout(hopper: str, left: bool, right: bool, dtype: str):
    check(hopper, (520, 392, 264), dense=(left, right), dtype=dtype)


@pytest.mark.parametrize("extents", [(128, 264, 8), (1, 8, 8), (2049, 1032, 72), (129, 257, 65)])
def test_odd_extents(hopper: str, extents: tuple[int, int, int]):
    check(hopper, extents)


def residual(v: Any, index: Any, c: Any, rows: Any, columns: Any) -> Any:
    line = v.line_size
    scale = rows[index[0]] * cp.load(columns, index[1], line=line)
    return 0.5 * v * scale + 2.0 * cp.load(c[index[0]], index[1], line=line)


@pytest.mark.parametrize("extents", [(8, 136, 72), (300, 520, 328), (136, 257, 72), (130, 70, 33)])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_residuals_and_scales(cuda: str, extents: tuple[int, int, int], dtype: str):
    m, n, k = extents
    kind, rounding = (np.float32, 2.0**-22) if dtype == "f32" else DTYPES[dtype]
    x, a = factor((m, k), kind, False, cuda)
    y, b = factor((k, n), kind, True, cuda)
    more = [RNG.standard_normal(s).astype(np.float32) for s in ((m, n), (m,), (n,))]
    out = cp.asarray(np.full((m, n), np.nan, kind), device=cuda)
    arrays = [cp.asarray(v, device=cuda) for v in more]
    cp.kernels.matmul(x, y, epilogue=(residual, *arrays), out=out)
    c, rows, columns = (v.astype(np.float64) for v in more)
    scale = 0.5 * rows[:, None] * columns
    exact, largest = a @ b * scale + 2 * c, np.abs(a) @ np.abs(b) * np.abs(scale)
    allowed = rounding * np.abs(exact) + 2.0**-20 * (k * largest + np.abs(c)) + 1e-7
    assert np.all(np.abs(out.numpy().astype(np.float64) - exact) <= allowed)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_rows_that_boxes_cannot_describe(hopper: str, left: bool, right: bool):
    check(hopper, (2049, 2051, 2053), dense=(left, right))
    check(hopper, (136, 257, 72), dense=(left, False), bias=True, epilogue=relu)
    check(hopper, (136, 250, 72), batch=(2,), dtype="f16")


@pytest.mark.parametrize("batch", [(3,), (2, 3), (2, 1, 3)])
def test_stacks(hopper: str, batch: tuple[int, ...]):
    check(hopper, (200, 136, 72), batch=batch)


def test_stacks_that_are_broadcast_and_results_that_are_parts(hopper: str):
    kind, rounding = DTYPES["bf16"]
    x, a = factor((2, 1, 72, 64), kind, False, hopper)
    y, b = factor((3, 64, 136), kind, True, hopper)
    whole = cp.asarray(np.full((2, 3, 80, 160), np.nan, kind), device=hopper)
    m = type(whole).__cubepy_memory__(whole)
    part = type(whole)(replace(m, shape=(2, 3, 72, 136)))
    cp.kernels.matmul(x, y, out=part)
    expected, found = a @ b, whole.numpy().astype(np.float64)
    error = np.abs(found[:, :, :72, :136] - expected)
    assert np.all(error <= rounding * np.abs(expected) + 1e-4)
    found[:, :, :72, :136] = np.nan
    assert np.isnan(found).all()


def relu(v: Any, index: Any) -> Any:
    return max(v, 0.0)


def test_what_follows_the_sum(hopper: str):
    check(hopper, (300, 520, 328), bias=True)
    check(hopper, (300, 520, 328), epilogue=relu)
    check(hopper, (300, 136, 328), bias=True, epilogue=relu, dense=(True, False))


NARROW = {
    "f8e4m3": (ml_dtypes.float8_e4m3fn, np.float32, 2.0**-11),
    "f8e5m2": (ml_dtypes.float8_e5m2, np.float32, 2.0**-11),
    "i8": (np.int8, np.int32, 0.0),
    "u8": (np.uint8, np.int32, 0.0),
    "f32": (np.float32, np.float32, 2.0**-9),
}
"""Types of factors and of results, and the error as a share of the sum of absolute products."""


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("extents", [(300, 520, 336), (64, 72, 1008), (129, 264, 16)])
def test_other_elements(hopper: str, name: str, extents: tuple[int, int, int]):
    kind, result, share = NARROW[name]
    (m, n, k), precision = extents, "tf32" if name == "f32" else None
    a, b = (RNG.standard_normal(shape) * 16 for shape in ((m, k), (n, k)))
    a, b = ((np.abs(v) if name == "u8" else v).astype(kind) for v in (a, b))
    x, y = cp.asarray(a, device=hopper), turned(cp.asarray(b, device=hopper))
    out = cp.asarray(np.full((m, n), 0x5C, result), device=hopper)
    cp.kernels.matmul(x, y, out=out, precision=precision)
    left, right = a.astype(np.float64), b.astype(np.float64).T
    bound = share * (np.abs(left) @ np.abs(right))
    assert np.all(np.abs(out.numpy().astype(np.float64) - left @ right) <= bound)


def check_groups(
    device: str, extents: tuple[int, int, int], ends: list[int], kind: Any, is_turned: bool = False
) -> None:
    m, n, k = extents
    x, a = factor((m, k), kind, False, device)
    weights, b = factor((len(ends), k, n), kind, is_turned, device)
    wide = np.dtype(kind).itemsize == 2
    poison = np.full((m, n), np.nan, kind if wide else np.float32)
    out = cp.asarray(poison, device=device)
    where = cp.asarray(np.array(ends, np.int32), device=device)
    cp.kernels.grouped_matmul(x, weights, where, out=out)
    expected, largest, begin = np.zeros((m, n)), np.zeros((m, n)), 0
    for group, end in enumerate(ends):
        rows = slice(begin, max(begin, min(end, m)))
        expected[rows] = a[rows] @ b[group]
        largest[rows] = np.abs(a[rows]) @ np.abs(b[group])
        begin = rows.stop
    allowed = 2.0**-8 * np.abs(expected) + (2.0**-22 * k if wide else 2.0**-9) * largest
    assert np.all(np.abs(out.numpy().astype(np.float64) - expected) <= allowed)


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("ends", [[70, 70, 300], [0, 129, 200], [500, 1, 999]])
def test_groups(hopper: str, is_turned: bool, ends: list[int]):
    check_groups(hopper, (300, 264, 136), ends, ml_dtypes.bfloat16, is_turned)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize(
    "sizes", [[1, 0, 32, 33, 65, 256], [513, 300, 128, 191, 2], [3] * 40, [1500, 0, 1200]]
)
def test_groups_of_all_sizes(hopper: str, kind: Any, sizes: list[int]):
    """Some rows are in no group; turns go back and forth over more tiles than cubes."""
    ends = np.cumsum(sizes).tolist()
    check_groups(hopper, (ends[-1] + 7, 1040, 272), ends, kind, kind is not np.float16)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "f8e4m3"])
@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("m", [1, 8, 200])
def test_the_dtype_of_the_result(hopper: str, dtype: str, kind: Any, m: int):
    x, a = factor((m, 144), kind, False, hopper)
    y, b = factor((144, 272), kind, True, hopper)
    found = cp.kernels.matmul(x, y, dtype=dtype).numpy().astype(np.float64)
    rounding = {"float32": 2**-20, "float64": 2**-20, "bfloat16": 2**-8, "float16": 2**-10}
    allowed = rounding.get(dtype, 2**-3) * np.abs(a @ b) + 2**-11 * (np.abs(a) @ np.abs(b))
    assert np.all(np.abs(found - a @ b) <= allowed + 2**-9)
