"""Parts of the keys of a tile: results over each are noted in memory, and joined behind.

With each result go two numbers, its size: the logarithm to base 2 of the greatest weight, and the
sum of all weights over that. As one number the sum would be lost beside a large logarithm, which
masks of the least floats make.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.problem import CLUSTER
from cubepy.kernels.attention.strips import LOWEST
from cubepy.kernels.attention.weights import LN_2, inverse, whole
from cubepy.kernels.calls.positions import unravelled

LEAST_TOP = -(2.0**127)
"""What large scales leave of the least masks, so that they differ from no weight at all."""
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
                size = parts[1][place[0], place[1], row]
                top = max(state[half] * g.factor - t.shift, cp.f32(LEAST_TOP))
                size[0] = top if total != cp.f32(0) else cp.f32(LOWEST)
                size[1] = total


def joined(results: Any, sizes: Any, parts: Any, place: Any, where: Any) -> Any:
    """One element of a result over parts of the keys, weighted by their `sizes`, and the size of
    all. `place`: where the n-th part lies, a function; `where`: tile, row, column."""
    tile, row, column = where
    top = cp.f32(LOWEST)
    for first in range(0, parts, AT_ONCE):
        own = tuple(sizes[place(min(first + n, parts - 1)), tile, row, 0] for n in range(AT_ONCE))
        for size in own:
            top = max(top, size)
    base = cp.f32(0) if top == cp.f32(LOWEST) else top
    found, total = cp.f32(0), cp.f32(0)
    for first in range(0, parts, AT_ONCE):
        own = tuple(sizes[place(min(first + n, parts - 1)), tile, row] for n in range(AT_ONCE))
        tops, sums = (tuple(size[i] for size in own) for i in range(2))
        values = tuple(
            results[place(min(first + n, parts - 1)), tile, row, column] for n in range(AT_ONCE)
        )
        for n in cp.unroll(range(AT_ONCE)):
            if first + n < parts:
                weight = cp.exp2(tops[n] - base) * sums[n]
                found += weight * values[n]
                total += weight
    return found * inverse(total), top, total


@cp.cube
def shared_parts(t: Any) -> Any:
    """Shared memory for the part of a cube of a cluster, as `note` takes it."""
    return cp.shared((1, 1, t.height, t.width), cp.f32), cp.shared((1, 1, t.height, 2), cp.f32)


def join_cluster(parts: Any, out: Any, logs: Any, where: Any, first: Any, queries: Any) -> None:
    """The results of a tile from the parts that the cubes of a cluster have of it, each an equal
    share; by all their units. Elements of `logs` and `out` are [batches, heads, rows, elements]."""
    results, sizes = parts
    rows, width = min(results.shape[2], queries - first), results.shape[3]
    begin = cp.i32(cp.cuda.cluster_rank()) * cp.CUBE_DIM + cp.i32(cp.UNIT_POS)
    for e in range(begin, rows * width, CLUSTER * cp.CUBE_DIM):
        row, column = cp.i32(e) // width, cp.i32(e) % width
        own, sums = (
            tuple(cp.cuda.cluster_load(sizes, (0, 0, row, i), n) for n in range(CLUSTER))
            for i in range(2)
        )
        values = tuple(
            cp.cuda.cluster_load(results, (0, 0, row, column), n) for n in range(CLUSTER)
        )
        top = cp.f32(LOWEST)
        for size in own:
            top = max(top, size)
        base = cp.f32(0) if top == cp.f32(LOWEST) else top
        found, total = cp.f32(0), cp.f32(0)
        for n in cp.unroll(range(CLUSTER)):
            weight = cp.exp2(own[n] - base) * sums[n]
            found += weight * values[n]
            total += weight
        if column < out.shape[3]:
            out[where[0], where[1], first + row, column] = found * inverse(total)
        for log in logs:
            if column == 0:
                log[where[0], where[1], first + row, 0] = (top + cp.log2(total)) * LN_2


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
            value, top, total = joined(results, sizes, parts, lambda n: n, (index, within, column))
            heads = out.shape[1]
            out[head // heads, head % heads, row, column] = value
            for log in logs:
                if column == 0:
                    log[head // heads, head % heads, row, 0] = (top + cp.log2(total)) * LN_2


@cp.cube
def join_sequences(
    results: cp.Tensor,
    sizes: cp.Tensor,
    makers: cp.Tensor,
    out: cp.Tensor,
    starts: Any,
    queries: int,
    packed: int,
    height: int,
) -> None:
    """Results of the tiles of sequences that several cubes made, see `dealing.note_makers`; a plane
    for each row of `out`, [tokens, heads, elements]. Tiles have `height` queries of `packed`
    heads, and sequences as many tokens as `starts` says, or `queries` each."""
    row, heads = cp.ABSOLUTE_POS // cp.PLANE_DIM, out.shape[1] // packed
    if row < out.shape[0] * out.shape[1]:
        token, head = row // out.shape[1], row % out.shape[1]
        slot, within, is_there = band_with(token, starts, queries, height)
        if is_there:
            tile = slot * heads + head // packed
            begin, row = makers[tile, 0], within * packed + head % packed
            if begin >= 0:
                parts = makers[tile, 1] - begin // 2 // heads + 1
                for column in range(cp.UNIT_POS_PLANE, out.shape[2], cp.PLANE_DIM):
                    value, _, _ = joined(
                        results,
                        sizes,
                        parts,
                        lambda n: begin if n == 0 else (begin // 2 + n * heads) * 2,
                        (0, row, column),
                    )
                    out[token, head, column] = value


def band_with(token: Any, starts: Any, queries: Any, height: Any) -> Any:
    """The slot that has a token, its place in the band, and whether it belongs to a sequence."""
    if len(starts) == 0:
        within = token % queries
        bands = (queries + height - 1) // height
        return token // queries * bands + within // height, within % height, True
    low, high = 0, starts[0].shape[0] - 1
    while high - low > 1:
        middle = (low + high) // 2
        if starts[0][middle] <= token:
            low = middle
        else:
            high = middle
    within = token - starts[0][low]
    slot = starts[0][low] // height + low + within // height
    return slot, within % height, token < starts[0][starts[0].shape[0] - 1]
