"""Results over parts of the keys are joined as their weights say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy.kernels.attention.parts import AT_ONCE, join_parts, join_sequences
from cubepy.kernels.attention.problem import Order

RNG = np.random.default_rng(4)


def parts_of(shape: tuple[int, ...], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Results and sizes, of which some are of no keys."""
    results = RNG.standard_normal((*shape, width)).astype(np.float32)
    sizes = (RNG.standard_normal(shape) * 5).astype(np.float32)
    sizes[RNG.random(shape) < 0.2] = -np.inf
    sizes[:, 0, 0] = -np.inf
    return results, sizes


def joined(results: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum over the first axis, and the logarithms to base 2 of all weights."""
    weights = np.exp2(sizes.astype(np.float64))
    total = weights.sum(0)
    found = (results * weights[..., None]).sum(0)
    with np.errstate(divide="ignore"):
        return found / np.where(total == 0, 1, total)[..., None], np.log2(total)


@pytest.mark.parametrize("sharers", [3, 20, 132])
def test_parts_of_tiles(sharers: int):
    heads, queries, height, width, steps = 4, 70, 64, 8, 40
    dealt = Order(1, 0, heads * 2, sharers, steps)
    results, sizes = parts_of((dealt.parts, dealt.rest, height), width)
    out = np.full((2, 2, queries, width), np.nan, np.float32)
    log = np.full((2, 2, queries, 1), np.nan, np.float32)
    join_parts.over(results[0])(results, sizes, out, (log,), dealt.numbers)
    for tile in range(dealt.rest):
        first = dealt.maker(tile * steps)
        count = dealt.maker((tile + 1) * steps - 1) - first + 1
        band = slice(tile % 2 * height, min(queries, (tile % 2 + 1) * height))
        found, logs = joined(results[:count, tile], sizes[:count, tile])
        rows = band.stop - band.start
        where = tile // 2 // 2, tile // 2 % 2, band
        np.testing.assert_allclose(out[where], found[:rows], 1e-5, 1e-5)
        np.testing.assert_allclose(log[where][:, 0], logs[:rows] * np.log(2), 1e-5, 1e-5)


@pytest.mark.parametrize("parts", [1, AT_ONCE - 1, 2 * AT_ONCE + 3])
def test_parts_of_sequences(parts: int):
    sequences, queries, heads, packed, width = 3, 2, 6, 2, 24
    results, sizes = parts_of((parts, sequences * heads // packed, 64), width)
    out: Any = np.full((sequences * queries, heads, width), np.nan, np.float32)
    join_sequences.over(out.size)(results, sizes, out, queries, packed)
    found, _ = joined(results, sizes)
    rows = found[:, : queries * packed].reshape(sequences, heads // packed, queries, packed, width)
    expected = rows.transpose(0, 2, 1, 3, 4).reshape(out.shape)
    np.testing.assert_allclose(out, expected, 1e-5, 1e-5)
