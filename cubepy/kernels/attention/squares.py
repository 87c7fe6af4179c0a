"""Attention on GPUs: queries, keys and values in shared memory, both products in registers.

The running maximum and sum of each query are as in `strips`. Nothing depends on the size of planes:
what the units of a row know together goes through shared memory.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.problem import Squares
from cubepy.kernels.attention.rows import Rows, band_at
from cubepy.kernels.attention.strips import LOWEST, highest
from cubepy.kernels.attention.window import seen_from, seen_to
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.finish import chosen


@cp.cube
def attend_squares(
    q: cp.Tensor,
    k: cp.Tensor,
    v: cp.Tensor,
    out: cp.Tensor,
    logs: Any,
    masks: Any,
    window: Any,
    scale: float,
    t: cp.Comptime[Squares],
) -> None:
    """A cube for `t.height` queries of each head by `t.width` elements of values. `logs`: as of
    `attend_strips`; `window`: see `window.seen_from`."""
    queries, width = out.shape[out.rank - 2], out.shape[out.rank - 1]
    across, down = (width + t.width - 1) // t.width, (queries + t.height - 1) // t.height
    where = unravelled(cp.CUBE_POS // (across * down), out.shape[: out.rank - 2])
    first, c0 = cp.CUBE_POS // across % down * t.height, cp.CUBE_POS % across * t.width
    rows = Rows(chosen(k, where)), Rows(chosen(v, where))
    arrays = chosen(q, where), *rows, chosen(out, where)
    beside = tuple(chosen(m, where) for m in logs), tuple(chosen(m, where) for m in masks)
    attend_square(arrays, first, c0, beside, window, scale, t)


@cp.cube
def attend_ragged_squares(
    q: cp.Tensor,
    k: cp.Tensor,
    v: cp.Tensor,
    out: cp.Tensor,
    marks: Any,
    window: Any,
    scale: float,
    t: cp.Comptime[Squares],
) -> None:
    """A cube for a slot of `t.height` queries of each head by `t.width` elements of values; arrays
    as in `strips.attend_ragged_strips`."""
    heads, width = out.shape[out.rank - 2], out.shape[out.rank - 1]
    across = (width + t.width - 1) // t.width
    slot, head = cp.CUBE_POS // (across * heads), cp.CUBE_POS // across % heads
    c0 = cp.CUBE_POS % across * t.width
    arrays, first, reach = band_at(slot, head, (q, k, v, out), marks, window, t.height)
    if first < arrays[0].shape[0]:
        attend_square(arrays, first, c0, ((), ()), reach, scale, t)


def attend_square(
    arrays: Any, first: Any, c0: Any, beside: Any, window: Any, scale: Any, t: Any
) -> None:
    """Queries from `first` on by elements from `c0` on, with the keys and values of one head, and
    the results; `beside`: logarithms and masks, if there are any."""
    x, y, z, result = arrays
    logs, seen = beside
    queries, keys, width = x.shape[0], y.count, result.shape[1]
    left = cp.shared((t.depth, t.height + 1), t.dtype)
    right = cp.shared((t.depth, t.keys + 1), t.dtype)
    beside = cp.shared((t.depth, t.width), t.dtype)
    scores = cp.shared((t.height, t.keys + 1), t.dtype)
    parts = cp.shared((t.height, t.side), t.dtype)
    totals = cp.local((t.rows, t.wide), t.dtype, fill=0)
    tops = cp.local(t.rows, t.dtype, fill=LOWEST)
    sums = cp.local(t.rows, t.dtype, fill=0)
    ty, tx = cp.UNIT_POS // t.side, cp.UNIT_POS % t.side
    begin = max(0, seen_from(first, window))
    for j0 in range(begin, seen_to(first + t.height - 1, keys, window, t), t.keys):
        make_scores(x, y, left, right, scores, first, j0, scale, t)
        place = first, j0, keys, queries
        weigh(scores, parts, seen, tops, sums, totals, place, window, t)
        add_values(z, beside, scores, sums, totals, (j0, c0, width), t)
    for r in cp.unroll(range(t.rows)):
        factor = t.dtype(0) if sums[r] == t.dtype(0) else 1 / sums[r]
        for c in cp.unroll(range(t.wide)):
            i, j = first + ty + r * t.side, c0 + tx + c * t.side
            if i < queries and j < width:
                result[i, j] = totals[r, c] * factor
        note_logs(logs, first + ty + r * t.side, tops[r], sums[r], c0 + tx)


def note_logs(logs: Any, i: Any, top: Any, total: Any, column: Any) -> None:
    """Store the logarithm of a query's sum of exponentials, by the unit of its first element."""
    for log in logs:
        if column == 0 and i < log.shape[0]:
            log[i] = top + cp.log(total)


def make_scores(
    x: Any,
    y: Any,
    left: Any,
    right: Any,
    scores: Any,
    first: Any,
    j0: Any,
    scale: Any,
    t: Any,
) -> None:
    """The products of the cube's queries and some keys, in shared memory."""
    ty, tx = cp.UNIT_POS // t.side, cp.UNIT_POS % t.side
    found = cp.local((t.rows, t.columns), t.dtype, fill=0)
    for d0 in range(0, x.shape[1], t.depth):
        bring(Rows(x), left, first, d0, t.height, x.shape[1], t)
        bring(y, right, j0, d0, t.keys, x.shape[1], t)
        cp.sync_cube()
        for d in range(t.depth):
            row = tuple(right[d, tx + c * t.side] for c in range(t.columns))
            for r in cp.unroll(range(t.rows)):
                a = left[d, ty + r * t.side] * t.dtype(scale)
                for c in cp.unroll(range(t.columns)):
                    found[r, c] = found[r, c] + a * row[c]
        cp.sync_cube()
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.columns)):
            scores[ty + r * t.side, tx + c * t.side] = found[r, c]


def bring(x: Any, held: Any, i0: Any, d0: Any, count: Any, size: Any, t: Any) -> None:
    """Some elements of some rows, turned, with zeros outside of them."""
    units = t.side * t.side
    for e in cp.unroll(range(0, count * t.depth, units)):
        i, d = (e + cp.UNIT_POS) // t.depth, (e + cp.UNIT_POS) % t.depth
        inside = i0 + i < x.count and d0 + d < size
        held[d, i] = t.dtype(x.row(i0 + i)[d0 + d]) if inside else t.dtype(0)


def weigh(
    scores: Any,
    parts: Any,
    masks: Any,
    tops: Any,
    sums: Any,
    totals: Any,
    place: Any,
    window: Any,
    t: Any,
) -> None:
    """Scores become exponentials; maxima and sums follow, and rescale what was added before.

    A unit works on the scores that it has made.
    """
    ty, tx = cp.UNIT_POS // t.side, cp.UNIT_POS % t.side
    first, j0, keys, queries = place
    for r in cp.unroll(range(t.rows)):
        at = ty + r * t.side
        top = t.dtype(LOWEST)
        for c in cp.unroll(range(t.columns)):
            j = tx + c * t.side
            s = visible(scores[at, j], masks, first + at, j0 + j, keys, queries, window, t)
            scores[at, j] = s
            top = highest(top, s)
        parts[at, tx] = top
    cp.sync_cube()
    for r in cp.unroll(range(t.rows)):
        at = ty + r * t.side
        most = tops[r]
        for c in range(t.side):
            most = highest(most, parts[at, c])
        base = t.dtype(0) if most == t.dtype(LOWEST) else most
        factor = cp.exp(tops[r] - base)
        tops[r] = most
        sums[r] = sums[r] * factor
        for c in cp.unroll(range(t.wide)):
            totals[r, c] = totals[r, c] * factor
        for c in cp.unroll(range(t.columns)):
            j = tx + c * t.side
            scores[at, j] = cp.exp(scores[at, j] - base)
    cp.sync_cube()


def visible(
    s: Any, masks: Any, i: Any, j: Any, keys: Any, queries: Any, window: Any, t: Any
) -> Any:
    """A score with its mask; the lowest number where the query does not see the key."""
    inside = i < queries and j < seen_to(i, keys, window, t)
    if len(window):
        inside = inside and j >= seen_from(i, window)
    if len(masks) == 0:
        return s if inside else t.dtype(LOWEST)
    found = t.dtype(LOWEST)
    if inside:
        found = with_mask(s, masks[0][i, j], t)
    return found


def with_mask(s: Any, mask: Any, t: Any) -> Any:
    """A score plus the mask, or only where it is true."""
    if mask.dtype == cp.bool_:
        return s if mask else t.dtype(LOWEST)
    return s + t.dtype(mask)


def add_values(
    z: Any, beside: Any, scores: Any, sums: Any, totals: Any, place: Any, t: Any
) -> None:
    """Add the weighted values of some keys, and their weights to the sums."""
    j0, c0, width = place
    ty, tx = cp.UNIT_POS // t.side, cp.UNIT_POS % t.side
    units = t.side * t.side
    for k0 in cp.unroll(range(0, t.keys, t.depth)):
        for e in cp.unroll(range(0, t.depth * t.width, units)):
            k, c = (e + cp.UNIT_POS) // t.width, (e + cp.UNIT_POS) % t.width
            inside = j0 + k0 + k < z.count and c0 + c < width
            beside[k, c] = t.dtype(z.row(j0 + k0 + k)[c0 + c]) if inside else t.dtype(0)
        cp.sync_cube()
        for k in range(t.depth):
            row = tuple(beside[k, tx + c * t.side] for c in range(t.wide))
            for r in cp.unroll(range(t.rows)):
                weight = scores[ty + r * t.side, k0 + k]
                sums[r] = sums[r] + weight
                for c in cp.unroll(range(t.wide)):
                    totals[r, c] = totals[r, c] + weight * row[c]
        cp.sync_cube()
