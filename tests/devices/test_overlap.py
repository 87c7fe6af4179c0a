"""Kernels one after another, of which each reads what the one before wrote: launches may overlap,
and caches hold what was there earlier."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp

REACH = 8
"""Elements that are added: of several cubes, and of sectors that others write."""
ROUNDS = 25
BUSY = 2_000
"""Square roots one after another before a GPU writes: what did not wait would have read by then."""


@cp.cube
def add_neighbours(x: cp.Tensor[cp.f32], shift: cp.u32, busy: cp.u32, out: cp.Tensor[cp.f32]):
    i = cp.u32(cp.ABSOLUTE_POS)
    n = cp.u32(out.shape[0])
    if i < n:
        total = cp.f32(0)
        for k in range(REACH):
            total += x[(i + k) % n]
        for _ in range(busy):
            total = cp.sqrt(total * total)
        out[(i + shift) % n] = total


@cp.cube
def step(x: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < x.shape[0]:
        x[i] = (x[i] + 1) % 7


def neighbours(x: np.ndarray, shift: int) -> np.ndarray:
    return np.roll(sum(np.roll(x, -k) for k in range(REACH)), shift)


@pytest.mark.parametrize("cubes", [1, 33, 132, 5000])
def test_each_kernel_sees_what_the_one_before_wrote(device: str, cubes: int):
    is_gpu = device.startswith("cuda")
    n = 256 * (cubes if is_gpu else 1 + cubes % 29) - 3
    busy = BUSY if is_gpu else 2
    wanted = np.arange(n, dtype=np.float32) % 5
    pairs = cp.asarray(np.stack([wanted, 0 * wanted], axis=1), device=device)
    evens, odds = pairs[:, 0], pairs[:, 1]  # of the same sectors
    total = cp.zeros(n, device=device)
    for number in range(ROUNDS):
        shift = number * 977 % n
        add_neighbours.over(n)(evens, shift, busy, odds)
        add_neighbours.over(n)(odds, 0, 0, total)
        step.over(n)(evens)
        if number % 5 == 4:
            found = total.numpy()
            np.testing.assert_array_equal(found, neighbours(neighbours(wanted, shift), 0))
        wanted = (wanted + 1) % 7
    np.testing.assert_array_equal(pairs.numpy()[:, 0], wanted)
