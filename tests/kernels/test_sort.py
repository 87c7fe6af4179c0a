"""Sorting against NumPy's stable sort; NaN is the greatest, zeros are equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.errors import LaunchError, LaunchTypeError
from cubepy.ir.types import f32
from cubepy.kernels import sort, topk
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.calls.libraries import serving
from cubepy.kernels.calls.plans import Plans
from cubepy.kernels.sorting import entry
from cubepy.kernels.sorting.digits import DigitTiling, holders
from cubepy.kernels.sorting.merges import MergeTiling
from cubepy.kernels.sorting.parts import PartTiling
from cubepy.kernels.sorting.problem import make_order
from cubepy.kernels.sorting.radix import RadixTiling
from cubepy.kernels.sorting.selection import SelectTiling
from cubepy.targets import parse_target
from tests.guarded import Guarded

DTYPES = ("f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")


def ordered(x: np.ndarray, axis: int, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    """Values and indices by ranks, which are exact for every dtype."""
    moved = np.moveaxis(x, axis, -1)
    _, ranks = np.unique(moved, return_inverse=True, equal_nan=True)
    ranks = ranks.reshape(moved.shape)
    indices = np.argsort(-ranks if descending else ranks, axis=-1, kind="stable")
    values = np.take_along_axis(moved, indices, -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(indices, -1, axis)


def numbers(draw: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Any bits, many of them equal; for floats zeros of both signs, infinities, NaN."""
    if dtype == "?" or draw.pick.random() < 0.5:
        x = draw.array(shape, dtype, specials=True)
    else:
        x = np.frombuffer(draw.numbers.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype)
        x = x.reshape(shape).copy()
    if x.dtype.kind == "f":
        x[draw.numbers.random(shape) < 0.1] = -0.0
        x[draw.numbers.random(shape) < 0.05] = -np.nan
    return x


def same(found: Any, x: np.ndarray, axis: int, descending: bool, k: int | None = None) -> None:
    """Compare bit for bit, but for NaN; the indices of the elements are exact."""
    values, indices = ordered(x, axis, descending)
    if k is not None:
        first = (slice(None),) * (axis % x.ndim) + (slice(0, k),)
        values, indices = values[first], indices[first]
    assert found[0].dtype == x.dtype and found[1].dtype == np.int64
    np.testing.assert_array_equal(found[1], indices)
    np.testing.assert_array_equal(found[0], values)
    if x.dtype.kind == "f":
        np.testing.assert_array_equal(
            np.signbit(found[0][values == 0]), np.signbit(values[values == 0])
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_axis_and_strides(draw: Any, dtype: str):
    shape = draw.pick.choice(((3, 4, 37), (2, 65, 9), (70, 1, 8)))
    x = numbers(draw, shape, dtype)
    y = draw.pick.choice((x, draw.layout(x)))
    axis, descending = draw.pick.choice((0, 1, -1)), draw.pick.random() < 0.5
    same(sort(y, axis, descending), y, axis, descending)
    for k in (1, y.shape[axis] // 2):
        same(topk(y, k, axis, descending), y, axis, descending, k)


WAYS = (
    RadixTiling(2, 8, 0),
    RadixTiling(3, 11, 0, 64),
    RadixTiling(2, 8, 24, 16, line=8),
    RadixTiling(2, 8, 24, 64, True, 8),
    RadixTiling(1, 8, 1 << 20),
    MergeTiling(16, 1),
    MergeTiling(64, 1),
    DigitTiling(1, 8),
    DigitTiling(16, 3),
    DigitTiling(32, 10, True),
    PartTiling(2, 8),
    PartTiling(5, 11),
)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_way_gives_the_same(draw: Any, monkeypatch: Any, way: Any):
    monkeypatch.setattr(entry, "tilings", lambda *arguments: (way,))
    monkeypatch.setattr(entry, "_PLANS", Plans())
    dtype = draw.pick.choice(("f4", "i8", "u2"))
    for n in (draw.pick.choice((1, 2, 16)), 17, draw.pick.randrange(65, 300)):
        x = numbers(draw, (3, n), dtype)
        descending = draw.pick.random() < 0.5
        most = min(n, way.room - way.line) if isinstance(way, RadixTiling) and way.room else n
        k = draw.pick.randrange(1, most + 1)
        same(topk(x, k, 1, descending), x, 1, descending, k)
        if not (isinstance(way, RadixTiling) and way.room):
            same(sort(x, 1, descending), x, 1, descending)


def test_one_long_row_is_shared_by_threads(draw: Any):
    target, how = parse_target("cpu:x86-64-v3"), make_order(f32, False, 80_000)
    for cores, rows, parts in ((4, 1, 4), (4, 3, 2), (4, 4, None), (1, 1, None)):
        way = entry.tilings(replace(target, cores=cores), how, 80_000, rows, 80_000, True)[0]
        assert (way.parts if isinstance(way, PartTiling) else None) == parts
    for dtype in ("f4", "i8", "u1"):
        x = numbers(draw, (1, 80_000), dtype)
        descending = draw.pick.random() < 0.5
        same(sort(x, -1, descending), x, -1, descending)
        same(topk(x, 70_000, -1, descending), x, -1, descending, 70_000)


def test_long_rows(draw: Any):
    for dtype in ("f4", "i1"):
        x = numbers(draw, (2, 40_000), dtype)
        same(sort(x), x, -1, False)
        same(topk(x, 1000), x, -1, True, 1000)
        same(topk(x, 7, largest=False), x, -1, False, 7)
        # The order in which every element displaces the ones before it.
        ascending = sort(x)[0]
        for k in (9, 100):
            same(topk(ascending, k), ascending, -1, True, k)


def test_interpreter(draw: Any):
    x = numbers(draw, (2, 30), "f4")
    with serving("interpreter"):
        same(sort(x, 1, True), x, 1, True)
        same(topk(x, 3), x, -1, True, 3)


def test_results(draw: Any):
    x = draw.array((6, 50), np.float32)
    out = Guarded((6, 4)), Guarded((6, 4), np.int64)
    given = (out[0].array, out[1].array)
    assert topk(x, 4, dim=1, out=given) is given
    values, indices = ordered(x, 1, True)
    out[0].check(values[:, :4])
    out[1].check(indices[:, :4])
    assert sort(np.asfortranarray(x), 0)[0].flags.f_contiguous
    for shape in ((0, 5), (5, 0)):
        values, indices = sort(np.zeros(shape, np.int16), 1)
        assert values.shape == indices.shape == shape
    assert topk(x, 0)[0].shape == (6, 0)
    assert isinstance(sort(cp.asarray(x))[0], cp.Array)


def test_refusals():
    x = np.zeros((4, 6), np.float32)
    odd: tuple[Any, Any] = (1.5, [0])
    for call, kind, message in (
        (lambda: sort(x, 2), LaunchError, "axis 2"),
        (lambda: sort(x, odd[1]), LaunchTypeError, "`axis`"),
        (lambda: topk(x, 7), LaunchError, "`k` is 7, and axis 1 of `x` has 6"),
        (lambda: topk(x, -1), LaunchError, "`k` is -1"),
        (lambda: topk(x, odd[0]), LaunchTypeError, "`k` is 1.5"),
        (lambda: sort(x, 1, dim=0), LaunchError, "both `axis` and `dim`"),
        (lambda: sort(x, out=x), LaunchTypeError, "tuple of 2"),
        (lambda: sort(x, out=(x, np.zeros((4, 6), np.int64))), LaunchError, "overlaps"),
        (lambda: sort(x, out=(x.copy(), x.copy())), LaunchError, r"out\[1\]"),
        (lambda: sort(odd), LaunchTypeError, "`x`"),
    ):
        with pytest.raises(kind, match=message):
            call()


@pytest.mark.optional("torch")
def test_torch(draw: Any, require_package: Any):
    torch = require_package("torch")
    for dtype in (torch.bfloat16, torch.float32, torch.int16):
        x = torch.from_numpy(draw.array((5, 70), np.float32, specials=True)).nan_to_num(7.0)
        x = x.clamp(-100, 100).to(dtype)
        x[0, 3] = float("nan") if dtype.is_floating_point else 3
        for axis in (0, 1):
            for descending in (False, True):
                expected = torch.sort(x, dim=axis, descending=descending, stable=True)
                found = sort(x, axis, descending)
                assert torch.equal(found[1], expected.indices)
                torch.testing.assert_close(
                    found[0], expected.values, rtol=0, atol=0, equal_nan=True
                )
                best = torch.topk(x, 3, axis, descending).values
                torch.testing.assert_close(topk(x, 3, axis, descending)[0], best, equal_nan=True)


@cp.cube
def held_alike(x, out):
    i = cp.ABSOLUTE_POS
    out[i] = cp.u64(holders(x[i]))


@pytest.mark.parametrize("plane", [1, 2, 8, 16, 32, 64])
def test_units_of_a_plane_find_who_holds_the_same_digit(plane: int):
    x = np.random.default_rng().integers(0, 6, 64).astype(np.int32)
    out = np.zeros(64, np.uint64)
    held_alike.configure(plane_dim=plane)[1, 64](x, out)
    rows = x.reshape(-1, plane)
    bits = np.uint64(1) << np.arange(plane, dtype=np.uint64)
    same = rows[:, :, None] == rows[:, None, :]
    np.testing.assert_array_equal(out, (same * bits).sum(2, dtype=np.uint64).reshape(-1))


@pytest.mark.parametrize("k", [3, 200, 20_000])
def test_scratch_of_few_elements_is_small(k: int):
    """A row of millions is read, not copied."""
    specs = {"x": cp.spec("f32[1,4000000]")}
    (launch,) = record(cp.kernels.topk, specs, {"k": k}, parse_target("cpu:x86-64-v3"))
    assert launch.arguments["keys"].shape[-1] <= max(16 * k, 1 << 12)


def test_selection_counts_all_elements():
    target, wanted = parse_target("cuda:sm_90a"), {"n": 1 << 33, "rows": 1, "wanted": 5}
    how = make_order(f32, False, wanted["n"])
    ways = entry.tilings(target, how, is_dense=True, **wanted)
    assert not any(isinstance(way, SelectTiling) for way in ways)
    ways = entry.tilings(target, how, (1 << 32) - 1, 1, 5, True)
    assert isinstance(ways[0], SelectTiling)
