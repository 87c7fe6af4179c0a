"""Convolutions of bytes against NumPy: results are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.errors import LaunchTypeError
from cubepy.kernels.calls.inspection import record
from cubepy.lang.annotations import spec
from cubepy.targets import parse_target
from tests.guarded import Guarded
from tests.kernels import test_convolution, test_convolution_on_units
from tests.kernels.test_convolution import channels_last, reference

CASES = (
    *test_convolution.CASES,
    *test_convolution_on_units.CASES,
    ((1, 1, 9, 20), (33, 1, 3, 3), {"padding": 1}),
    ((2, 6, 9, 7), (6, 2, 3, 3), {"padding": 1, "groups": 3}),
    ((1, 130, 1, 1), (40, 130, 3, 3), {"padding": 1}),
)


def numbers(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng().integers(info.min, info.max, shape, dtype, endpoint=True)


def check(x: np.ndarray, w: np.ndarray, last: bool, bias: Any = None, **options: Any) -> None:
    """Results of weights as they are and packed, into memory between guard bands."""
    function = {3: kernels.conv1d, 4: kernels.conv2d, 5: kernels.conv3d}[x.ndim]
    exact = reference(x, w, **options)
    if bias is not None:
        exact = exact + bias.reshape(-1, *[1] * (x.ndim - 2))
    given = channels_last(x) if last else x
    packed = kernels.prepack(w, groups=options.get("groups", 1))
    for weight in (w, channels_last(w), packed):
        out = Guarded(np.moveaxis(exact, 1, -1).shape if last else exact.shape, np.dtype("i4"))
        found = np.moveaxis(out.array, -1, 1) if last else out.array
        function(given, weight, bias, out=found, **options)
        assert out.is_fenced
        assert (found == exact).all()


@pytest.mark.parametrize("number", range(len(CASES)))
def test_windows(number: int):
    """Signed bytes or others, in either layout: cases in a row have all four."""
    shape, weights, options = CASES[number]
    dtype, last = "i1" if number % 2 else "u1", number // 2 % 2 == 0
    bias = numbers(dtype if last else "i2", weights[0]).astype(dtype if last else "i4")
    check(numbers(dtype, *shape), numbers(dtype, *weights), last, bias, **options)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["i1", "u1"])
@pytest.mark.parametrize("end", ["min", "max"])
def test_the_largest_numbers(dtype: str, end: str, last: bool):
    """Moved bytes and pairs of products of 16 bits, as older instructions had, would overflow."""
    number = getattr(np.iinfo(dtype), end)
    x, w = (np.full(shape, number, dtype) for shape in ((1, 70, 9, 20), (40, 70, 3, 3)))
    check(x, w, last, padding=1)


def test_biases_have_the_dtype_of_arrays_or_sums():
    x, w = numbers("i1", 1, 8, 5, 5), numbers("i1", 4, 8, 3, 3)
    with pytest.raises(LaunchTypeError, match="`bias` is f32.*") as raised:
        kernels.conv2d(x, w, np.ones(4, "f4"))
    assert "convert `bias` to i8 or i32" in str(raised.value)
    with pytest.raises(LaunchTypeError, match="`x` is i8, `weight` is u8"):
        kernels.conv2d(x, w.view("u1"))
    with pytest.raises(LaunchTypeError, match="`bias` is f64"):
        kernels.conv_transpose2d(x.astype("f4"), w.astype("f4").swapaxes(0, 1), np.ones(4))


def test_biases_of_sums_beside_short_floats():
    rng = np.random.default_rng()
    x, w = (rng.standard_normal(shape).astype("f2") for shape in ((2, 9, 7, 8), (9, 20, 3, 3)))
    bias = rng.standard_normal(20).astype("f4")
    swapped = w.swapaxes(0, 1)
    for found, taken in (
        (kernels.conv2d(x, swapped, bias), swapped),
        (kernels.conv_transpose2d(x, w, bias, padding=2), swapped[:, :, ::-1, ::-1]),
    ):
        exact = reference(x, taken) + bias.reshape(-1, 1, 1)
        np.testing.assert_allclose(found.astype("f8"), exact, 2.0**-10, 2.0**-8)


@pytest.mark.parametrize(
    ("dtype", "target", "used"),
    [
        ("i8", "cpu:sapphirerapids", "tdpbssd"),
        ("u8", "cpu:sapphirerapids", "tdpbuud"),
        ("i8", "cpu:znver4", "vpdpbusd"),
        ("u8", "cpu:znver4", "vpdpbusd"),
    ],
)
def test_instructions(dtype: str, target: str, used: str):
    specs = {"x": spec(f"{dtype}[1,64,20,20]"), "weight": spec(f"{dtype}[64,64,3,3]")}
    last = record(kernels.conv2d, specs, {"padding": 1}, parse_target(target))[-1]
    text = last.launcher.inspect(target=target, stage="asm", comptime=dict(last.arguments))
    assert used in str(text)
