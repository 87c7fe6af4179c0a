"""Fragments: a matrix product over tiles of 16, against float64, with planes of one and eight."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp


@cp.cube
def tiled_product(a, b, c):
    i, j = cp.CUBE_POS_Y * 16, cp.CUBE_POS_X * 16
    left = cp.cmma.fragment("a", 16, 16, cp.f16)
    right = cp.cmma.fragment("b", 16, 16, cp.f16)
    total = cp.cmma.fragment("accumulator", 16, 16, cp.f32, fill=0.0)
    for k in range(0, a.shape[1], 16):
        cp.cmma.load(left, a, (i, k))
        cp.cmma.load(right, b, (k, j))
        cp.cmma.mma(total, left, right)
    cp.cmma.store(c, (i, j), total)


@pytest.mark.parametrize("plane_dim", [1, 8])
@pytest.mark.parametrize("shape", [(16, 16, 16), (40, 50, 33), (1, 1, 1)])
def test_product_of_fragments(plane_dim: int, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng([plane_dim, *shape])
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float32)
    grid = (-(-n // 16), -(-m // 16))
    tiled_product.configure(plane_dim=plane_dim)[grid, plane_dim](a, b, c)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    bound = k * 2.0**-23 * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)))
    assert (np.abs(c - expected) <= bound).all()
