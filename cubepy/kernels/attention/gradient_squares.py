"""Gradients of attention on any device: weights are made again from the logarithms of their sums.

A cube has some rows of which it sums the gradient: queries, or keys with their values. It goes
through all rows of the other kind in steps, makes the scores and the gradients of weights of each
step in registers, and multiplies what comes of them with the rows of the step (Dao,
"FlashAttention-2", 2023, algorithm 2, but with one pass for queries and one for keys, so that
nothing is added by several cubes).
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.problem import GradientSquares
from cubepy.kernels.attention.rows import Rows
from cubepy.kernels.attention.squares import with_mask
from cubepy.kernels.attention.weighing import LOWEST
from cubepy.kernels.attention.window import asked_from, asked_to, has_ends, seen_from, seen_to
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.matmul.finish import chosen


@cp.cube
def sum_gradients(
    own: Any,
    others: Any,
    logs: cp.Tensor,
    deltas: cp.Tensor,
    masks: Any,
    outs: Any,
    window: Any,
    scale: float,
    t: cp.Comptime[GradientSquares],
) -> None:
    """A cube for `t.height` rows by `t.width` elements of gradients.

    `own`: queries and gradients of results, or keys and values; `others`: the other two. All are
    [..., rows, elements] with equal axes before the last two. `logs`, `deltas`: [..., queries].
    `outs`: a tuple of one tensor or none for each of the two of `own`, with one element along axes
    that gradients are summed over. `window`: see `window.seen_from`.
    """
    out = outs[0][0] if len(outs[0]) else outs[1][0]
    kept, whole = out.shape[: out.rank - 2], deltas.shape[: deltas.rank - 1]
    across, down = (
        (wider(outs) + t.width - 1) // t.width,
        (out.shape[out.rank - 2] + t.height - 1) // t.height,
    )
    first, c0 = cp.CUBE_POS // across % down * t.height, cp.CUBE_POS % across * t.width
    begin = unravelled(cp.CUBE_POS // (across * down), kept)
    memory = (
        cp.shared((t.depth, t.height + 1), t.dtype),
        cp.shared((t.depth, t.step + 1), t.dtype),
        cp.shared((t.height, t.step + 1), t.dtype),
        cp.shared((t.height, t.step + 1), t.dtype),
        cp.shared((t.depth, t.width), t.dtype),
    )
    totals = tuple(cp.local((t.rows, t.wide), t.dtype, fill=0) for _ in outs)
    turns = tuple(whole[n] // kept[n] for n in range(len(kept)))
    for turn in range(product(turns)):
        beyond = unravelled(turn, turns)
        where = tuple(begin[n] + beyond[n] for n in range(len(kept)))
        mine = tuple(chosen(x, where) for x in own)
        theirs = tuple(chosen(x, where) for x in others)
        seen = tuple(chosen(m, where) for m in masks)
        sums = chosen(logs, where), chosen(deltas, where)
        start, end = range_of_others(first, theirs[0].shape[0], window, t)
        for j0 in range(start, end, t.step):
            weigh(mine, theirs, memory, sums, (seen, window), (first, j0), scale, t)
            for n in cp.unroll(range(2)):
                if len(outs[n]):
                    add_rows(theirs[n], memory[4], memory[2 + n], totals[n], j0, c0, t)
    for n in cp.unroll(range(2)):
        for result in outs[n]:
            store(chosen(result, begin), totals[n], first, c0, t)


def range_of_others(first: Any, others: Any, window: Any, t: Any) -> Any:
    """The range, of `others` rows of the other kind, that the window leaves to the cube's rows."""
    last = first + t.height - 1
    if t.is_of_keys:
        return max(0, asked_from(first, window, t)), asked_to(last, others, window)
    return max(0, seen_from(first, window)), seen_to(last, others, window, t)


def wider(outs: Any) -> Any:
    """The elements of the wider of the results."""
    widths = tuple(x[0].shape[x[0].rank - 1] for x in outs if len(x))
    return widths[0] if len(widths) == 1 else max(widths[0], widths[1])


def weigh(
    own: Any,
    others: Any,
    memory: Any,
    sums: Any,
    seen: Any,
    corner: Any,
    scale: Any,
    t: Any,
) -> None:
    """The gradients of scores and the weights of a step, in shared memory. `seen`: masks and the
    window; `corner`: the first rows of the cube and of the step."""
    (masks, window), (first, j0) = seen, corner
    ty, tx = cp.UNIT_POS // t.side, cp.UNIT_POS % t.side
    scores = multiplied(own[0], others[0], memory, first, j0, t)
    changes = multiplied(own[1], others[1], memory, first, j0, t)
    extents = own[0].shape[0], others[0].shape[0]
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.columns)):
            i, j = ty + r * t.side, tx + c * t.side
            weight, change = t.dtype(0), t.dtype(0)
            place = first + i, j0 + j
            query, key = (place[1], place[0]) if t.is_of_keys else place
            inside = place[0] < extents[0] and place[1] < extents[1]
            if has_ends(window, t):
                keys = extents[0] if t.is_of_keys else extents[1]
                inside = inside and key >= seen_from(query, window)
                inside = inside and key < seen_to(query, keys, window, t)
            if inside:
                score = scores[r, c] * t.dtype(scale)
                if len(masks):
                    score = with_mask(score, masks[0][query, key], t)
                # A query that sees no key has a sum of 0.
                if sums[0][query] != t.dtype(LOWEST):
                    weight = cp.exp(score - sums[0][query])
                change = weight * (changes[r, c] - sums[1][query]) * t.dtype(scale)
            memory[2][i, j] = change
            memory[3][i, j] = weight
    cp.sync_cube()


def multiplied(x: Any, y: Any, memory: Any, first: Any, j0: Any, t: Any) -> Any:
    """The products of the cube's rows and those of a step, in registers."""
    ty, tx = cp.UNIT_POS // t.side, cp.UNIT_POS % t.side
    left, right = memory[0], memory[1]
    found = cp.local((t.rows, t.columns), t.dtype, fill=0)
    for d0 in range(0, x.shape[1], t.depth):
        bring(Rows(x), left, first, d0, t.height, x.shape[1], t)
        bring(Rows(y), right, j0, d0, t.step, x.shape[1], t)
        cp.sync_cube()
        for d in range(t.depth):
            row = tuple(right[d, tx + c * t.side] for c in range(t.columns))
            for r in cp.unroll(range(t.rows)):
                a = left[d, ty + r * t.side]
                for c in cp.unroll(range(t.columns)):
                    found[r, c] = found[r, c] + a * row[c]
        cp.sync_cube()
    return found


def add_rows(z: Any, beside: Any, factors: Any, totals: Any, j0: Any, c0: Any, t: Any) -> None:
    """Add the rows of a step times their factors."""
    ty, tx = cp.UNIT_POS // t.side, cp.UNIT_POS % t.side
    units = t.side * t.side
    for k0 in cp.unroll(range(0, t.step, t.depth)):
        for e in cp.unroll(range(0, t.depth * t.width, units)):
            k, c = (e + cp.UNIT_POS) // t.width, (e + cp.UNIT_POS) % t.width
            inside = j0 + k0 + k < z.shape[0] and c0 + c < z.shape[1]
            beside[k, c] = t.dtype(z[j0 + k0 + k, c0 + c]) if inside else t.dtype(0)
        cp.sync_cube()
        for k in range(t.depth):
            row = tuple(beside[k, tx + c * t.side] for c in range(t.wide))
            for r in cp.unroll(range(t.rows)):
                factor = factors[ty + r * t.side, k0 + k]
                for c in cp.unroll(range(t.wide)):
                    totals[r, c] = totals[r, c] + factor * row[c]
        cp.sync_cube()


def store(out: Any, totals: Any, first: Any, c0: Any, t: Any) -> None:
    """Store the sums of a unit."""
    ty, tx = cp.UNIT_POS // t.side, cp.UNIT_POS % t.side
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.wide)):
            i, j = first + ty + r * t.side, c0 + tx + c * t.side
            if i < out.shape[0] and j < out.shape[1]:
                out[i, j] = totals[r, c]


@cp.cube
def multiply_rows(x: cp.Tensor, y: cp.Tensor, out: cp.Tensor) -> None:
    """The sum of the products of two rows, `x` and `y` [..., rows, elements]; a unit for each."""
    i = cp.ABSOLUTE_POS
    if i < product(out.shape):
        where = unravelled(i, out.shape)
        left, right, total = x[where], y[where], out.dtype(0)
        for c in range(left.shape[0]):
            total += out.dtype(left[c]) * out.dtype(right[c])
        out[where] = total


def bring(x: Any, held: Any, i0: Any, d0: Any, count: Any, size: Any, t: Any) -> None:
    """Some elements of some rows, turned, with zeros outside of them."""
    units = t.side * t.side
    for e in cp.unroll(range(0, count * t.depth, units)):
        i, d = (e + cp.UNIT_POS) // t.depth, (e + cp.UNIT_POS) % t.depth
        inside = i0 + i < x.count and d0 + d < size
        held[d, i] = t.dtype(x.row(i0 + i)[d0 + d]) if inside else t.dtype(0)
