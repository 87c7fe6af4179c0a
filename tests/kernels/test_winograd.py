"""Convolutions in Winograd's forms against f64, the derived bound of their errors, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.errors import LaunchError
from cubepy.ir.types import f32
from cubepy.kernels.convolution import strategies
from cubepy.kernels.convolution.problem import Problem, Window
from cubepy.runtimes.registry import find_device
from cubepy.targets import parse_target
from tests.winograd_errors import INPUTS, PRECISIONS, bound, constant, exact

RNG = np.random.default_rng()
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
    factor = {2: 16 * 11, 4: 861 * 17}[size] * 2.0**-24
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


@SIZES
def test_infinity_stays_in_its_squares(size: int):
    x, w = INPUTS["normal"](RNG, 1, 3, 12, 12), INPUTS["normal"](RNG, 2, 3, 3, 3)
    x[0, 1, 5, 5] = np.inf
    finite = np.isfinite(convolved(x, w, size))
    assert not finite[:, :, 4:7, 4:7].any()
    near = slice(5 // size * size - size, 5 // size * size + 2 * size)
    finite[:, :, near, near] = True
    assert finite.all()


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
        (lambda w: convolved(np.ones((1, 4, 8, 8), "f4"), w, 2, stride=2), "`stride`"),
        (lambda w: convolved(np.ones((1, 4, 8, 8), "f4"), w, 4, dilation=2), "`dilation`"),
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
        basis = strategies.basis(target, size, filters, f32)
        t = strategies.squares(target, problem, basis)
        assert 1 <= t.tile <= t.count
        assert t.width >= columns or t.width % t.bands.pixels == 0
        assert t.count * t.pitch * basis.positions * 4 <= max(target.cache_bytes, 1 << 23)
        assert t.bands.band == t.down * size and 1 <= t.panels <= basis.panels(filters)
