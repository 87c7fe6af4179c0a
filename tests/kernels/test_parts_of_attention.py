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
    sizes = np.empty((*shape, 2), np.float32)
    sizes[..., 0] = RNG.standard_normal(shape) * 5
    sizes[:, 0, 1, 0] = -(2.0**117)  # beside which the logarithm of a sum is nothing
    sizes[..., 1] = RNG.integers(1, 100, shape)
    empty = RNG.random(shape) < 0.2
    empty[:, 0, 0] = True
    sizes[empty] = -np.inf, 0
    results[:, 0, 2, 0], sizes[:, 0, 2] = np.inf, (0, 1)
    return results, sizes


def joined(results: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum over the first axis, and the logarithms to base 2 of all weights."""
    tops, sums = sizes[..., 0].astype(np.float64), sizes[..., 1].astype(np.float64)
    base = np.where(tops.max(0) == -np.inf, 0, tops.max(0))
    weights = np.exp2(tops - base) * sums
    total = weights.sum(0)
    found = (results * weights[..., None]).sum(0)
    with np.errstate(divide="ignore"):
        return found / np.where(total == 0, 1, total)[..., None], np.log2(total) + base


@pytest.mark.parametrize(("units", "plane", "width"), [(1, 1, 8), (32, 8, 40), (16, 16, 8)])
@pytest.mark.parametrize("sharers", [9, 20, 132])
def test_parts_of_tiles(sharers: int, units: int, plane: int, width: int):
    heads, queries, height, steps = 4, 70, 64, 40
    dealt = Order(1, heads * 2, steps, sharers)
    results, sizes = parts_of((dealt.parts, dealt.tiles, height), width)
    out = np.full((2, 2, queries, width), np.nan, np.float32)
    log = np.full((2, 2, queries, 1), np.nan, np.float32)
    join = join_parts.configure(plane_dim=plane)[heads * queries, units]
    join(results, sizes, out, (log,), dealt.numbers, height)
    for tile in range(dealt.tiles):
        first = dealt.maker(tile * steps)
        count = dealt.maker((tile + 1) * steps - 1) - first + 1
        band = slice(tile % 2 * height, min(queries, (tile % 2 + 1) * height))
        found, logs = joined(results[:count, tile], sizes[:count, tile])
        rows = band.stop - band.start
        where = tile // 2 // 2, tile // 2 % 2, band
        np.testing.assert_allclose(out[where], found[:rows], 1e-5, 1e-5)
        np.testing.assert_allclose(log[where][:, 0], logs[:rows] * np.log(2), 1e-5, 1e-5)


@pytest.mark.parametrize("is_ragged", [False, True])
@pytest.mark.parametrize("parts", [2, AT_ONCE - 1, 2 * AT_ONCE + 3])
def test_parts_of_sequences(parts: int, is_ragged: bool):
    """Tiles of two queries; every fourth was made by one cube, and is not touched."""
    lengths, height, heads, packed, width = (2, 3, 0, 2), 2, 6, 2, 24
    lengths = lengths if is_ragged else (3, 3, 3)
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    slots = starts[-1] // height + len(lengths) if is_ragged else len(lengths) * 2
    tiles = int(slots) * heads // packed
    results, sizes = parts_of((2 * parts * tiles, 1, height * packed), width)
    makers = np.full((tiles, 2), -1, np.int32)
    own: dict[int, list[int]] = {}
    for tile in range(tiles):
        if tile % 4:
            team, head = parts * (tile // 3), tile % 3
            cubes = [(team + n) * 3 + head for n in range(parts)]
            makers[tile] = 2 * cubes[0] + tile % 2, team + parts - 1
            own[tile] = [2 * cubes[0] + tile % 2, *(2 * cube for cube in cubes[1:])]
    out: Any = np.full((starts[-1], heads, width), np.nan, np.float32)
    begins = (starts,) if is_ragged else ()
    join_sequences.over(starts[-1] * heads, per="plane")(
        results, sizes, makers, out, begins, 0 if is_ragged else 3, packed, height
    )
    bands = [-(-n // height) for n in lengths]
    for s, n in enumerate(lengths):
        slot = starts[s] // height + s if is_ragged else sum(bands[:s])
        for i, head in np.ndindex(n, heads):
            tile = (slot + i // height) * (heads // packed) + head // packed
            value = out[starts[s] + i, head]
            if tile not in own:
                assert np.isnan(value).all()
                continue
            row = i % height * packed + head % packed
            found, _ = joined(results[own[tile], :, row], sizes[own[tile], :, row])
            np.testing.assert_allclose(value, found[0], 1e-5, 1e-5)
