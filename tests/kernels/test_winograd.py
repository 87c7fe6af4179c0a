"""Convolutions in Winograd's forms against f64, the derived bound of their errors, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.llvm.compiler import LlvmCompiler
from cubepy.errors import LaunchError
from cubepy.ir.types import f32
from cubepy.kernels.convolution import strategies, winograd
from cubepy.kernels.convolution.problem import Problem, Window
from cubepy.runtimes.registry import find_device
from cubepy.targets import parse_target
from tests.winograd_errors import INPUTS, PRECISIONS, bound, constant, direct_bound, exact

RNG = np.random.default_rng()
SCRATCH = 1 << 26
SIZES = pytest.mark.parametrize("size", [2, 4])


def channels_last(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def convolved(x: np.ndarray, w: np.ndarray, size: int, *rest: Any, **options: Any) -> np.ndarray:
    packed = cp.kernels.prepack(w, precision=PRECISIONS[size])
    return cp.kernels.conv2d(x, packed, *rest, **{"padding": 1, **options})


@SIZES
@pytest.mark.parametrize("kind", INPUTS)
def test_errors_are_bounded(kind: str, size: int):
    n, channels, filters, rows, columns = RNG.integers((1, 1, 1, 1, 1), (3, 90, 70, 24, 24))
    x, w = INPUTS[kind](RNG, n, channels, rows, columns), INPUTS[kind](RNG, filters, channels, 3, 3)
    found = convolved(channels_last(x) if RNG.random() < 0.5 else x, w, size)
    assert (abs(found - exact(x, w)) <= bound(x, w, size) + 1e-30).all(), (x.shape, w.shape)


@SIZES
def test_bound_of_the_docstring_holds_that_of_matrices(size: int):
    assert round(constant(size)) == {2: 16, 4: 860}[size]
    x, w = INPUTS["mixed"](RNG, 1, 3, 8, 8), INPUTS["mixed"](RNG, 2, 3, 3, 3)
    sums = abs(w.astype("f8")).sum((2, 3)) @ abs(x[0].astype("f8")).max((1, 2))
    factor = {2: 16 * 14, 4: 861 * 24}[size] * 2.0**-24
    assert (bound(x, w, size)[0].max((1, 2)) <= factor * sums).all()


@SIZES
def test_padding_bias_epilogue_and_out(size: int):
    x, w, bias = (INPUTS["normal"](RNG, *s) for s in ((2, 20, 9, 13), (37, 20, 3, 3), (37,)))
    more = INPUTS["normal"](RNG, 2, 37, 8, 14)
    out = np.full((2, 37, 8, 14), np.nan, np.float32)
    pads = ((0, 1), (3, 0))

    @cp.cube
    def added(v, index, other):
        _, f, y, i = index
        return (
            v + other[index[0], f, y, i]
            if v.line_size == 1
            else v + cp.load(other[index[0], f, y], i, line=v.line_size)
        )

    packed = cp.kernels.prepack(w, precision=PRECISIONS[size])
    found = cp.kernels.conv2d(x, packed, bias, padding=pads, epilogue=(added, more), out=out)
    assert found is out
    wide = exact(np.pad(x, ((0, 0), (0, 0), *pads)), w)[:, :, 1:-1, 1:-1]
    np.testing.assert_allclose(out, wide + bias[:, None, None] + more, 1e-3, 2e-3)


@SIZES
@pytest.mark.parametrize("dtype", ["f2", "f8"])
def test_other_floats(dtype: str, size: int):
    x, w = (INPUTS["normal"](RNG, *s).astype(dtype) for s in ((1, 18, 7, 7), (5, 18, 3, 3)))
    found = convolved(x, w, size)
    np.testing.assert_allclose(found, exact(x, w), *((1e-3, 1e-2) if dtype == "f2" else (0, 1e-11)))


@SIZES
def test_one_image_and_layouts(size: int):
    x, w = INPUTS["normal"](RNG, 6, 10, 5), INPUTS["normal"](RNG, 4, 6, 3, 3)
    one = convolved(x, w, size)
    np.testing.assert_allclose(one, exact(x[None], w)[0], 1e-3, 1e-3)
    last = convolved(np.ascontiguousarray(np.moveaxis(x, 0, -1)), w, size, layout="NHWC")
    np.testing.assert_array_equal(np.moveaxis(last, -1, 0), one)


LAYOUTS = pytest.mark.parametrize("last", [False, True])


def placed(x: np.ndarray, last: bool) -> np.ndarray:
    return channels_last(x) if last else x


@SIZES
@LAYOUTS
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_no_infinity_reaches_what_does_not_see_it(value: float, last: bool, size: int):
    x, w = INPUTS["normal"](RNG, 2, 20, 12, 13), INPUTS["normal"](RNG, 33, 20, 3, 3)
    x[1, 7, 5, 6] = value
    found = convolved(placed(x, last), w, size)
    right = exact(x, w)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(right))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(right))
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(right))
    with np.errstate(invalid="ignore"):
        near = np.isfinite(right)
    np.testing.assert_allclose(found[near], right[near], 1e-3, 1e-3)


@SIZES
@LAYOUTS
@pytest.mark.parametrize("large", [1e4, 1e9, 1e30, 3e38])
def test_no_large_number_reaches_what_does_not_see_it(large: float, last: bool, size: int):
    """Errors are in proportion to what a result sees, and the filter's weights."""
    x, w = INPUTS["normal"](RNG, 1, 20, 14, 15), INPUTS["normal"](RNG, 33, 20, 3, 3) / 40
    for c, y, i in RNG.integers((0, 0, 0), (20, 14, 15), (4, 3)):
        x[0, c, y, i] = large
    found = convolved(placed(x, last), w, size)
    seen = exact(abs(x), np.ones_like(w[:1]))
    most = abs(w.astype("f8")).sum((2, 3)).max(1)[:, None, None]
    factor = {2: 16 * 31, 4: 861 * 41}[size] * 2.0**-24 * 16
    assert (abs(found - exact(x, w)) <= factor * most * seen).all()


@SIZES
@LAYOUTS
def test_what_sees_zeros_alone_is_zero(last: bool, size: int):
    """Of the positive sign, beside large elements too; this needs no sum as it is defined."""
    x, w = INPUTS["positive"](RNG, 1, 24, 16, 16), INPUTS["normal"](RNG, 40, 24, 3, 3)
    x[:, :, 5:11, 3:9] = 0
    found = convolved(placed(x, last), w, size)[:, :, 6:10, 4:8]
    assert (found == 0).all()
    assert not np.signbit(found).any()


@SIZES
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_weights_that_are_not_finite(value: float, size: int):
    x, w = INPUTS["normal"](RNG, 1, 9, 8, 8), INPUTS["normal"](RNG, 20, 9, 3, 3)
    w[3, 4, 1, 1], x[:, :, 2:6, 2:6] = value, 0
    found, right = convolved(x, w, size), exact(x, w)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
    near = np.isfinite(right)
    np.testing.assert_allclose(found[near], right[near], 1e-3, 1e-3)
    np.testing.assert_array_equal(found[~near], right[~near])


@SIZES
def test_sums_that_would_overflow(size: int):
    """Elements whose sums in the other basis do, and results that do not."""
    x, w = INPUTS["striped"](RNG, 1, 4, 9, 9), INPUTS["positive"](RNG, 17, 4, 3, 3)
    found = convolved(x * np.float32(1.2e38), w * np.float32(1e-3), size)
    right = exact(x * np.float32(1.2e38), w * np.float32(1e-3))
    np.testing.assert_allclose(found, right, 0, 1e-3 * abs(right).max())


@SIZES
@LAYOUTS
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_squares_in_doubt_are_summed_as_defined(
    dtype: str, last: bool, size: int, monkeypatch: pytest.MonkeyPatch
):
    """All of them, as if each were in doubt, so that they keep the bound of the direct form."""
    monkeypatch.setattr(winograd, "SPREAD", 0)
    shapes = (2, 70, 9, 11), (37, 70, 3, 3)
    x, w = (INPUTS["mixed"](RNG, *s).astype(dtype) for s in shapes)
    unit = 1 if dtype == "f4" else 2.0**-29
    for pads in (((1, 1), (1, 1)), ((0, 1), (3, 0)), ((0, 0), (0, 0))):
        found = convolved(placed(x, last), w, size, padding=pads)
        wide = np.pad(x, ((0, 0), (0, 0), *pads))
        right, most = (f(wide, w)[:, :, 1:-1, 1:-1] for f in (exact, direct_bound))
        assert (abs(found - right) <= most * unit + abs(right) * 2.0**-50).all()


@pytest.mark.parametrize("precision", [None, "winograd2x2", "winograd4x4"])
@pytest.mark.parametrize("options", [{"stride": 2}, {"dilation": 2}, {"stride": (1, 3)}])
def test_other_windows_are_direct(options: dict[str, Any], precision: str | None):
    x, w = INPUTS["normal"](RNG, 1, 20, 9, 11), INPUTS["normal"](RNG, 37, 20, 3, 3)
    one, two = (
        cp.kernels.conv2d(x, cp.kernels.prepack(w, precision=p), padding=1, **options)
        for p in (precision, "direct")
    )
    np.testing.assert_array_equal(one, two)


def test_it_is_chosen_where_it_is_faster():
    target = parse_target("cpu:x86-64-v4")
    window = Window((1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1))

    def chosen(batch: int, channels: int, filters: int, extent: int) -> bool:
        extents = 1, extent, extent
        problem = Problem(window, batch, channels, filters, 1, extents, extents, f32, *[False] * 3)
        direct = strategies.packing(target, filters, channels, 1, 9, f32, f32)
        return strategies.squares_for(target, problem, direct, None, SCRATCH) is not None

    layers = (64, 56), (128, 28), (256, 14)
    assert all(chosen(batch, n, n, extent) for n, extent in layers for batch in (1, 16))
    assert not any(
        chosen(1, n, m, extent) for n, m, extent in ((3, 64, 99), (8, 8, 28), (64, 64, 3))
    )


@SIZES
def test_rows_that_are_cut(size: int, monkeypatch: pytest.MonkeyPatch):
    x, w = INPUTS["normal"](RNG, 1, 20, 5, 75), INPUTS["normal"](RNG, 9, 20, 3, 3)
    target = find_device("cpu").target
    small = replace(target, cache_bytes=1 << 12)
    squares = strategies.squares
    monkeypatch.setattr(strategies, "squares", lambda _, *rest: squares(small, *rest))
    for seen in (x, channels_last(x)):
        found = convolved(seen, w, size)
        assert (abs(found - exact(x, w)) <= bound(x, w, size)).all()


@SIZES
@LAYOUTS
@pytest.mark.parametrize("images", [2, 3, 7])
def test_images_that_are_made_together(
    images: int, last: bool, size: int, monkeypatch: pytest.MonkeyPatch
):
    """The last cube may have fewer, and each image its squares in doubt."""
    x, w = INPUTS["normal"](RNG, 7, 20, 5, 7), INPUTS["normal"](RNG, 37, 20, 3, 3) / 40
    for n, value in zip(RNG.permutation(7)[:3], (np.inf, 1e9, 3e38), strict=True):
        x[n, RNG.integers(20), RNG.integers(5), RNG.integers(7)] = value
    squares = strategies.squares

    def together(*given: Any) -> Any:
        t = squares(*given)
        assert t.down * size >= 5 and t.across * size >= 7
        return replace(t, images=images)

    monkeypatch.setattr(strategies, "squares", together)
    found, right = convolved(placed(x, last), w, size), exact(x, w)
    near = np.isfinite(right)
    np.testing.assert_array_equal(np.isfinite(found), near)
    seen = exact(abs(x), np.ones_like(w[:1]))
    most = abs(w.astype("f8")).sum((2, 3)).max(1)[:, None, None]
    with np.errstate(invalid="ignore"):
        wrong = abs(found - right) > {2: 16 * 31, 4: 861 * 41}[size] * 2.0**-20 * most * seen
    assert not wrong[near].any()


def test_small_images_are_made_together():
    target = replace(parse_target("cpu:x86-64-v4"), cores=2)
    window = Window((1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1))
    extents = 1, 7, 7
    problem = Problem(window, 16, 512, 512, 1, extents, extents, f32, *[False] * 3)
    packing = strategies.packing(target, 512, 512, 1, 9, f32, f32)
    t = strategies.squares_for(target, problem, packing, None, SCRATCH)
    assert t is not None and t.images > 1
    one = replace(problem, batch=1)
    assert strategies.squares_for(target, one, packing, None, SCRATCH) is None
    slow = replace(target, arch="znver4")  # where products take longer than changes of basis
    assert strategies.squares_for(slow, one, packing, None, SCRATCH) is not None


def test_extents_share_a_kernel(monkeypatch: pytest.MonkeyPatch):
    """Two at most: for many squares and for few of them."""
    w = cp.kernels.prepack(INPUTS["normal"](RNG, 40, 72, 3, 3), precision="winograd2x2")
    built, build = list[str](), LlvmCompiler.build

    def counted(*given: Any, **options: Any) -> Any:
        built.append("")
        return build(*given, **options)

    monkeypatch.setattr(LlvmCompiler, "build", counted)
    for shape in ((1, 28, 28), (2, 28, 28), (9, 28, 28), (1, 56, 60), (3, 44, 40), (1, 100, 99)):
        n, rows, columns = shape
        cp.kernels.conv2d(INPUTS["normal"](RNG, n, 72, rows, columns), w, padding=1)
    assert len(built) <= 2


@pytest.mark.parametrize("precision", [None, "winograd2x2", "winograd4x4"])
def test_where_a_cube_may_have_little_memory(precision: str | None):
    """Squares are made if they fit, for all channels, and else the definition."""
    w = INPUTS["normal"](RNG, 64, 64, 3, 3)
    direct, packed = (cp.kernels.prepack(w, precision=p) for p in ("direct", precision))
    cache = find_device("cpu").target.cache_bytes
    for batch, share in enumerate((3, 4, 6, 8, 12, 16, 64), 1):
        x = INPUTS["normal"](RNG, batch, 64, 30, 30)  # of another plan
        with cp.settings(scratch_bytes=share * cache // 4):
            try:
                cp.kernels.conv2d(x, direct, padding=1)
            except cp.CompileError:  # too little for any form
                assert share < 16
                continue
            found = cp.kernels.conv2d(x, packed, padding=1)
        np.testing.assert_allclose(found, exact(x, w), 1e-3, 1e-3)


def test_where_it_does_not_serve_weights_are_packed_as_ever():
    w = INPUTS["normal"](RNG, 8, 4, 5, 5)
    x = INPUTS["normal"](RNG, 1, 4, 9, 9)
    plain, allowed = (cp.kernels.prepack(w, precision=p) for p in (None, "winograd2x2"))
    one, two = (cp.kernels.conv2d(x, p, padding=2) for p in (plain, allowed))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda w: cp.kernels.prepack(w, precision="winograd3x3"), "'winograd2x2'"),
        (lambda w: convolved(np.ones((1, 8, 8, 8), "f4"), w, 4, groups=2), "packed for 1 groups"),
    ],
)
def test_errors(call: Any, words: str):
    with pytest.raises(LaunchError) as raised:
        call(np.ones((8, 4, 3, 3), "f4"))
    assert words in str(raised.value)


def test_all_rows_and_panels_are_divided_among_cubes():
    target = parse_target("cpu:x86-64-v4")
    for _ in range(50):
        size = int(RNG.choice([2, 4]))
        most = 40, 2000, 600, 90, 3000
        batch, channels, filters, rows, columns = map(int, RNG.integers(1, most))
        window = Window((1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1))
        extents = (1, rows, columns)
        problem = Problem(window, batch, channels, filters, 1, extents, extents, f32, *[False] * 3)
        direct = strategies.packing(target, filters, channels, 1, 9, f32, f32)
        t = strategies.squares_for(target, problem, direct, size, SCRATCH)
        assert t is not None
        assert 1 <= t.tile <= t.images * t.down * t.across <= t.room
        assert t.width >= columns or t.width % t.bands.pixels == 0
        assert t.room * t.pitch * t.basis.positions * 4 <= max(target.cache_bytes, 1 << 23)
        assert t.bands.band == t.down * size and 1 <= t.panels <= direct.panels(filters)
