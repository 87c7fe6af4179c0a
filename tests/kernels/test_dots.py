"""Few filters over pixels whose channels lie side by side, against NumPy in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.convolution.dots import Dots
from cubepy.lang.annotations import spec
from cubepy.targets import parse_target
from tests.guarded import Guarded
from tests.kernels.test_convolution import channels_last, check, numbers, reference

CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 9, 14), (3, 3, 3, 3), {"padding": 1}),
    ((1, 64, 7, 7), (4, 64, 3, 3), {"padding": 1, "stride": 2}),
    ((1, 33, 6, 11), (2, 33, 2, 5), {"padding": ((1, 0), (3, 2)), "stride": (1, 3)}),
    ((1, 16, 8, 9), (1, 16, 3, 3), {"dilation": (2, 1)}),
    ((1, 16, 8, 9), (1, 16, 3, 3), {"dilation": (1, 2)}),  # runs are not dense
    ((2, 5, 3, 2), (3, 5, 4, 5), {"padding": 4}),  # larger than the image
    ((1, 2, 5, 40), (4, 2, 1, 9), {}),
)


# All cases with one dtype, and half of them with each of the others.
@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        *((k, "f4") for k in range(len(CASES))),
        *((k, "f8") for k in range(0, len(CASES), 2)),
        *((k, "f2") for k in range(1, len(CASES), 2)),
    ],
)
def test_every_window(number: int, dtype: str):
    shape, weights, options = CASES[number]
    x, w, bias = (numbers(*s, dtype=dtype) for s in (shape, weights, weights[:1]))
    for by in (None, bias):
        check(kernels.conv2d(channels_last(x), w, by, **options), x, w, by, **options)
    wide = channels_last(numbers(*shape[:3], shape[3] + 3, dtype=dtype))
    wide[..., shape[3] :] = np.nan  # beside the view
    wide[..., : shape[3]] = x
    found = kernels.conv2d(wide[..., : shape[3]], w, **options)
    check(found, x, w, **options)


def moved(v: Any, index: Any, by: Any) -> Any:
    return v * 2 + by[index]


def test_results_are_written_where_they_belong(draw: Any):
    x, w, by = numbers(2, 9, 8, 11), numbers(3, 9, 3, 3), numbers(2, 3, 8, 11)
    out = Guarded((2, 8, 11, 3), offset=draw.pick.randrange(20))
    result = np.moveaxis(out.array, -1, 1)
    kernels.conv2d(channels_last(x), w, padding=1, epilogue=(moved, by), out=result)
    np.testing.assert_allclose(result, reference(x, w, padding=1) * 2 + by, 1e-4, 1e-4)
    assert out.is_fenced
    with cp.settings(checked=True):
        check(kernels.conv2d(channels_last(x), w, padding=1), x, w, padding=1)


def test_padding_and_neighbours_are_not_multiplied():
    x, w = np.ones((1, 3, 4, 40), "f4"), np.ones((2, 3, 3, 3), "f4")
    w[:, :, 0, 0] = np.inf
    found = kernels.conv2d(channels_last(x), w, padding=1)
    assert not np.isnan(found).any() and np.isinf(found[:, :, 1:, 1:]).all()
    x[..., 20] = np.inf
    found = kernels.conv2d(channels_last(x), np.ones((2, 3, 3, 3), "f4"))
    assert np.isfinite(found[..., :18]).all() and np.isfinite(found[..., 21:]).all()


def test_integers_and_volumes():
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-9, 9, shape).astype("i4") for shape in ((2, 6, 5, 9), (2, 6, 3, 3)))
    np.testing.assert_array_equal(kernels.conv2d(channels_last(x), w), reference(x, w))
    v, u = numbers(1, 5, 4, 5, 6), numbers(2, 5, 2, 3, 3)
    check(kernels.conv3d(channels_last(v), u, padding=(1, 0, 1)), v, u, padding=(1, 0, 1))


def test_they_are_chosen_for_few_filters():
    target = parse_target("cpu:znver3")
    for filters, chosen in ((3, True), (4, True), (5, False)):
        x, w = numbers(1, 8, 6, 6), numbers(filters, 8, 3, 3)
        given = {"x": spec("f32[1,6,6,8]"), "weight": spec(f"f32[{filters},8,3,3]")}
        launch = record(kernels.conv2d, given, {"layout": "NHWC"}, target)[-1]
        assert isinstance(launch.arguments["t"], Dots) is chosen
        check(kernels.conv2d(channels_last(x), w), x, w)
