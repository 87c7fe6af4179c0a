"""Epilogues of transposed convolutions, which are given the indices of the result."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from tests.kernels.test_convolution import channels_last
from tests.kernels.test_finished_groups import made
from tests.kernels.test_phases import CASES, TRANSPOSED, transposed

LAYOUTS = {1: "NLC", 2: "NHWC", 3: "NDHWC"}


def clipped(v: Any, index: Any) -> Any:
    """Without its index: lines."""
    return max(v, 0.25) * 2


def weighed(v: Any, index: Any, residual: Any) -> Any:
    """A number of the result's own place."""
    return v * 0.5 + residual[index]


def numbered(v: Any, index: Any) -> Any:
    """Every axis matters, and lines have one element."""
    found = v * v.line_size
    for axis in cp.unroll(range(len(index))):
        found += index[axis] * 10.0 ** -(axis + 1)
    return found


def by_numbers(exact: np.ndarray) -> np.ndarray:
    """What `numbered` makes of a result."""
    places = np.indices(exact.shape)
    return exact + sum(places[a] * 10.0 ** -(a + 1) for a in range(exact.ndim))


def check(case: Any, dtype: Any, last: bool, device: str, layout: bool = False) -> None:
    """Three epilogues of one convolution. `last`: channels of the array are last in memory;
    `layout`: they are in the layout, of the result too."""
    shape, weights, options = case
    rng = np.random.default_rng()
    x, w, bias = (rng.standard_normal(s).astype(dtype) for s in (shape, weights, weights[1:2]))
    axes = x.ndim - 2
    more = bias.astype("f8").reshape(-1, *[1] * axes)
    exact = transposed(x, w, **options) + more
    largest = transposed(abs(x), abs(w), **options) + abs(more)
    given = channels_last(x) if last else x
    if layout:
        given, exact, largest = (np.moveaxis(v, 1, -1) for v in (x, exact, largest))
        options = {**options, "layout": LAYOUTS[axes]}
    residual = rng.standard_normal(exact.shape).astype("f4")
    after: list[tuple[Any, np.ndarray]] = [
        (clipped, np.maximum(exact, 0.25) * 2),
        ((weighed, residual), exact * 0.5 + residual),
        (numbered, by_numbers(exact)),
    ]
    for epilogue, expected in after:
        more = {**options, "epilogue": epilogue}
        found = made(device, TRANSPOSED[axes], (given, w, bias), more, expected.shape, x.dtype)
        unit = {2: 2.0**-8 if dtype is ml_dtypes.bfloat16 else 2.0**-11, 4: 2.0**-23}[
            x.dtype.itemsize
        ]
        step = 2.0**-24 if device in ("cpu", "interpreter") else 2.0**-22  # of tensor cores
        bound = 2 * (w[:, 0].size + 4) * step * largest + 2 * unit * abs(expected) + 1e-5
        assert (abs(found.astype("f8") - expected) <= bound).all()


@pytest.mark.parametrize("number, last", [(k, k % 2 == 0) for k in range(len(CASES))])
def test_the_index_is_that_of_the_result(number: int, last: bool):
    check(CASES[number], np.float32, last, "cpu")


@pytest.mark.parametrize("number", [0, 3, 5, 7])
def test_layouts_and_halves(number: int):
    check(CASES[number], ml_dtypes.bfloat16, False, "cpu", layout=True)


@pytest.mark.parametrize("number", [0, 8])
def test_on_the_interpreter(number: int):
    check(CASES[number], np.float32, False, "interpreter")


def test_groups_and_one_image():
    x, w = np.ones((4, 3, 3), "f4"), np.ones((4, 2, 2, 2), "f4")
    plain = cp.kernels.conv_transpose2d(x, w, stride=2, groups=2)
    found = cp.kernels.conv_transpose2d(x, w, stride=2, groups=2, epilogue=numbered)
    np.testing.assert_allclose(found, by_numbers(plain), rtol=1e-6)


def test_what_is_refused():
    x, w = np.ones((1, 4, 3, 3), "f4"), np.ones((4, 2, 2, 2), "f4")
    with pytest.raises(cp.LaunchError, match="signature"):
        cp.kernels.conv_transpose2d(x, w, epilogue=lambda v: v)
    with pytest.raises(cp.LaunchError, match="a tuple, no function"):
        cp.kernels.conv_transpose2d(x, w, epilogue=())
    with pytest.raises(cp.LaunchError, match="`epilogue\\[1\\]`"):
        cp.kernels.conv_transpose2d(x, w, epilogue=(weighed, None))
