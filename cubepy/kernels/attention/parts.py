"""Parts of the keys of a tile: results over each are noted in memory, and joined behind.

With each result go two numbers, its size: the logarithm to base 2 of the greatest weight, and the
sum of all weights over that. As one number the sum would be lost beside a large logarithm, which
masks of the least floats make.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.problem import CLUSTER
from cubepy.kernels.attention.tiles import head_at, maker, quotient
from cubepy.kernels.attention.weighing import LOWEST, inverse, portion
from cubepy.kernels.attention.weights import LN_2, whole

LEAST_TOP = -(2.0**127)
"""What large scales leave of the least masks, so that they differ from no weight at all."""
AT_ONCE = 8
"""Parts that are read before any is used."""
MOST_JOINING = 256
"""Units of a cube that joins the parts of a row."""


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
                results[8 * j + column] = portion(sums[4 * j + 2 * half], share)
                results[8 * j + column + 1] = portion(sums[4 * j + 2 * half + 1], share)
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
    order: tuple[cp.u32, cp.u32, cp.u32, cp.u32, cp.u32],
    height: cp.Comptime[int],
) -> None:
    """Results of split tiles of `height` queries from those over parts of their keys; a cube for
    each row of `out`."""
    queries, width = cp.u32(out.shape[2]), cp.i32(out.shape[3])
    above = quotient(cp.u32(cp.CUBE_POS), queries)
    row = cp.u32(cp.CUBE_POS) - above * queries
    down = (queries + cp.u32(height - 1)) // cp.u32(height)
    tile, within = above * down + row // cp.u32(height), row % cp.u32(height)
    ends = tile * order[2], tile * order[2] + order[2] - cp.u32(1)
    first, last = (maker(step, order[3], order[4]) for step in ends)
    parts = cp.i32(last - first) + 1
    batch, head = head_at(above, cp.u32(out.shape[0]), cp.u32(out.shape[1]))
    top = cp.f32(LOWEST)
    for n in range(cp.i32(cp.UNIT_POS_PLANE), parts, cp.PLANE_DIM):
        top = max(top, sizes[n, tile, within, 0])
    top = cp.plane_max(top)
    base = cp.f32(0) if top == cp.f32(LOWEST) else top
    for start in range(0, width, cp.CUBE_DIM):
        column = cp.i32(start) + cp.i32(cp.UNIT_POS)
        place = tile, within, min(column, width - 1)
        found, total = weighted(results, sizes, parts, place, base)
        if column < width:
            out[batch, head, row, column] = found * inverse(total)
        for log in logs:
            if column == 0:
                log[batch, head, row, 0] = (top + cp.log2(total)) * LN_2


def weighted(results: Any, sizes: Any, parts: Any, place: Any, base: Any) -> Any:
    """One element of all parts times their weights, and the sum of these. Each unit of a plane has
    the weight of another part. `place`: tile, row, column."""
    tile, row, column = place
    found, total, count = cp.f32(0), cp.f32(0), min(AT_ONCE, cp.PLANE_DIM)
    for first in range(0, parts, cp.PLANE_DIM):
        own, weight = first + cp.i32(cp.UNIT_POS_PLANE), cp.f32(0)
        if own < parts:
            weight = cp.exp2(sizes[own, tile, row, 0] - base) * sizes[own, tile, row, 1]
        total += cp.plane_sum(weight)
        for m in range(0, min(cp.PLANE_DIM, parts - first), count):
            values = tuple(
                results[min(first + m + n, parts - 1), tile, row, column] for n in range(count)
            )
            for n in cp.unroll(range(count)):
                share = cp.plane_shuffle(weight, m + n)
                if first + m + n < parts:
                    found += share * values[n]
    return found, total


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
