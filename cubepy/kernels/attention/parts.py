"""Parts of the keys of a tile: results over each are noted in memory, and joined behind."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.strips import LOWEST
from cubepy.kernels.attention.weights import LN_2, inverse, whole
from cubepy.kernels.calls.positions import unravelled

AT_ONCE = 8
"""Parts that are read before any is used."""


def note(parts: Any, place: Any, g: Any, sums: Any, state: Any, count: Any, t: Any) -> None:
    """Store the results over a part of the keys in f32, of so many rows of a tile. `place`: the
    part and the tile."""
    column = g.unit % 4 * 2
    for half in cp.unroll(range(2)):
        row = g.row + 8 * half
        total = whole(state[2 + half])
        share = inverse(total)
        if row < count:
            results = parts[0][place[0], place[1], row]
            for j in cp.unroll(range(t.width // 8)):
                results[8 * j + column] = sums[4 * j + 2 * half] * share
                results[8 * j + column + 1] = sums[4 * j + 2 * half + 1] * share
            if column == 0:
                size = state[half] * g.factor + cp.log2(total) - t.shift
                parts[1][place[0], place[1], row] = size if total != cp.f32(0) else cp.f32(LOWEST)


def joined(results: Any, sizes: Any, parts: Any, where: Any) -> Any:
    """One element of a result over parts of the keys, weighted by their sums of weights, whose
    logarithms to base 2 are `sizes`; the greatest of these, and the sum over it. `where`: tile,
    row, column."""
    tile, row, column = where
    top = cp.f32(LOWEST)
    for first in range(0, parts, AT_ONCE):
        own = tuple(sizes[min(first + n, parts - 1), tile, row] for n in range(AT_ONCE))
        for size in own:
            top = max(top, size)
    base = cp.f32(0) if top == cp.f32(LOWEST) else top
    found, total = cp.f32(0), cp.f32(0)
    for first in range(0, parts, AT_ONCE):
        own = tuple(sizes[min(first + n, parts - 1), tile, row] for n in range(AT_ONCE))
        values = tuple(
            results[min(first + n, parts - 1), tile, row, column] for n in range(AT_ONCE)
        )
        for n in cp.unroll(range(AT_ONCE)):
            weight = cp.exp2(own[n] - base) if first + n < parts else cp.f32(0)
            found += weight * values[n]
            total += weight
    return found * inverse(total), top, total


@cp.cube
def join_parts(
    results: cp.Tensor,
    sizes: cp.Tensor,
    out: cp.Tensor,
    logs: Any,
    order: tuple[int, int, int, int, int],
) -> None:
    """Results of split tiles from those over parts of their keys; a unit for each element."""
    extents = results.shape[1:]
    i, count = cp.ABSOLUTE_POS, extents[0] * extents[1] * extents[2]
    if i < count:
        index, within, column = unravelled(i, extents)
        down = (out.shape[2] + extents[1] - 1) // extents[1]
        tile = order[1] + index
        head, row = tile // down, tile % down * extents[1] + within
        if row < out.shape[2] and column < out.shape[3]:
            steps = order[2] * order[4]
            first = ((index * order[4] + 1) * order[3] - 1) // steps
            parts = ((index + 1) * order[4] * order[3] - 1) // steps - first + 1
            value, top, total = joined(results, sizes, parts, (index, within, column))
            heads = out.shape[1]
            out[head // heads, head % heads, row, column] = value
            for log in logs:
                if column == 0:
                    log[head // heads, head % heads, row, 0] = (top + cp.log2(total)) * LN_2


@cp.cube
def join_sequences(
    results: cp.Tensor, sizes: cp.Tensor, out: cp.Tensor, queries: int, packed: int
) -> None:
    """As `join_parts`, of [tokens, heads, elements]: tiles are heads of sequences with `queries`
    tokens each, rows their tokens by `packed` heads."""
    heads, width = out.shape[1] // packed, out.shape[2]
    rows = queries * packed
    i = cp.ABSOLUTE_POS
    if i < results.shape[1] * rows * width:
        tile, row, column = unravelled(i, (results.shape[1], rows, width))
        value, _, _ = joined(results, sizes, results.shape[0], (tile, row, column))
        token = tile // heads * queries + row // packed
        out[token, tile % heads * packed + row % packed, column] = value
