"""Emulated plane operations on the CPU against NumPy, with planes that are not full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cp

WIDTH = 8


def scan(ufunc: Any, first: int, inclusive: bool) -> Callable[[np.ndarray], np.ndarray]:
    """Results of lanes upwards, from the identity."""
    if inclusive:
        return ufunc.accumulate
    return lambda v: np.concatenate([[first], ufunc.accumulate(v)[:-1]])


WANTED: dict[Any, Callable[[np.ndarray], Any]] = {
    cp.plane_sum: np.sum,
    cp.plane_prod: np.prod,
    cp.plane_min: np.min,
    cp.plane_max: np.max,
    cp.plane_inclusive_sum: scan(np.add, 0, True),
    cp.plane_exclusive_sum: scan(np.add, 0, False),
    cp.plane_inclusive_prod: scan(np.multiply, 1, True),
    cp.plane_exclusive_prod: scan(np.multiply, 1, False),
}


@cp.cube
def apply(f: cp.Comptime, x, out):
    t = cp.UNIT_POS
    out[t] = f(x[t])


@pytest.mark.parametrize("units", [8, 12, 16])
@pytest.mark.parametrize("f", WANTED, ids=lambda f: f.__name__)
def test_plane_operations(f: Any, units: int):
    x = np.array([3, -1, 2, 5, 1, 4, -2, 7] * 2, np.int64)[:units]
    out = np.zeros(units, np.int64)
    apply.configure(plane_dim=WIDTH)[1, units](f, x, out)
    planes = [x[k : k + WIDTH] for k in range(0, units, WIDTH)]
    wanted = [np.broadcast_to(WANTED[f](plane), plane.shape) for plane in planes]
    assert out.tolist() == np.concatenate(wanted).tolist()
