"""Weights of convolutions in every order in memory, as they are and packed, against f64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels
from tests.kernels.test_convolution import check, reference

ORDERS = {
    "taps": (0, 1, 2, 3),
    "channels": (0, 2, 3, 1),
    "filters": (2, 3, 1, 0),
    "filters, taps last": (1, 2, 3, 0),
    "rows": (0, 1, 3, 2),
}
"""Axes [filter, channel, row, column] in the order of memory, the last one side by side."""
CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 5, 7, 6), (35, 5, 2, 2), {"padding": 1}),
    ((1, 131, 3, 4), (18, 131, 3, 2), {"padding": 1}),
    ((1, 12, 5, 6), (69, 4, 3, 3), {"padding": 1, "groups": 3}),
    ((1, 3, 6, 5), (2, 3, 1, 3), {}),
    ((1, 20, 5, 6), (17, 20, 1, 1), {}),
)


def laid(w: np.ndarray, order: tuple[int, ...], is_reversed: bool) -> np.ndarray:
    """The same numbers in another order, taps backwards in memory where asked, among NaN or the
    largest number."""
    given = w[:, :, ::-1, ::-1] if is_reversed else w
    moved = given.transpose(order)
    poison = np.iinfo(w.dtype).max if w.dtype.kind in "iu" else np.nan
    around = np.full(moved.size + 64, poison, w.dtype)
    around[32:-32] = moved.ravel()
    found = around[32:-32].reshape(moved.shape).transpose(np.argsort(order))
    return found[:, :, ::-1, ::-1] if is_reversed else found


def numbers(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng()
    if dtype in ("i1", "u1"):
        return rng.integers(*((-128, 128) if dtype == "i1" else (0, 256)), shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "u1"])
@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_orders(case: Any, order: tuple[int, ...], is_reversed: bool, dtype: str):
    shape, weights, options = case
    x, w = numbers(dtype, shape), numbers(dtype, weights)
    given = laid(w, order, is_reversed)
    np.testing.assert_array_equal(given, w)
    packed = kernels.prepack(given, groups=options.get("groups", 1), precision="direct")
    for weight in (given, packed):
        found = kernels.conv2d(x, weight, **options)
        if dtype in ("i1", "u1"):
            np.testing.assert_array_equal(found, reference(x, w, **options))
        else:
            check(found, x, w, **options)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_orders_of_bfloat16(order: tuple[int, ...]):
    x, w = (numbers(ml_dtypes.bfloat16, s) for s in ((2, 21, 5, 6), (35, 21, 3, 2)))
    given = laid(w, order, is_reversed=False)
    for weight in (given, kernels.prepack(given, precision="direct")):
        found = kernels.conv2d(x, weight, padding=1).astype("f8")
        exact = reference(x, w, padding=1)
        assert (abs(found - exact) <= 2.0**-8 * abs(exact) + 1e-3).all()


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_orders_of_transposed_windows(order: tuple[int, ...], stride: int):
    x, w = numbers("f4", (2, 7, 5, 6)), numbers("f4", (7, 34, 4, 5))
    found = kernels.conv_transpose2d(x, laid(w, order, is_reversed=False), stride=stride)
    stuffed = np.zeros((2, 7, 4 * stride + 1, 5 * stride + 1), "f4")
    stuffed[:, :, ::stride, ::stride] = x
    turned = w.swapaxes(0, 1)[:, :, ::-1, ::-1]
    check(found, stuffed, turned, padding=(3, 4))
