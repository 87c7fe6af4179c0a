"""Attention on GPUs in ordinary arithmetic: both products are tiles of sums in registers.

Queries, keys and values pass through shared memory in turns, weights go there with queries side by
side. The running maximum and sum of each query are as in `strips`; units that share queries find
them by shuffles, or through shared memory where planes are smaller.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.problem import Squares
from cubepy.kernels.attention.rows import Rows, band_at
from cubepy.kernels.attention.weighing import LOWEST, highest, inverse, larger, largest, portion
from cubepy.kernels.attention.window import seen_from, seen_to
from cubepy.kernels.calls.cubes import add, over_group
from cubepy.kernels.calls.positions import product, unravelled
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
    tile, c0 = cp.CUBE_POS // across, cp.CUBE_POS % across * t.width
    heads = out.shape[: out.rank - 2]
    if t.is_causal:  # those with most keys first
        head, first = tile % product(heads), (down - 1 - tile // product(heads)) * t.height
    else:
        head, first = tile // down, tile % down * t.height
    where = unravelled(head, heads)
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
    is_guarded: cp.Comptime[bool],
) -> None:
    """A cube for a slot of `t.height` queries of each head by `t.width` elements of values; arrays
    as in `strips.attend_ragged_strips`."""
    heads, width = out.shape[out.rank - 2], out.shape[out.rank - 1]
    across = (width + t.width - 1) // t.width
    slot, head = cp.CUBE_POS // (across * heads), cp.CUBE_POS // across % heads
    c0 = cp.CUBE_POS % across * t.width
    band = band_at(slot, head, (q, k, v, out), marks, window, t.height, is_guarded)
    arrays, first, reach, is_sound = band
    if is_sound and first < arrays[0].shape[0]:
        attend_square(arrays, first, c0, ((), ()), reach, scale, t)


def attend_square(
    arrays: Any, first: Any, c0: Any, beside: Any, window: Any, scale: Any, t: Any
) -> None:
    """Queries from `first` on by elements from `c0` on, with the keys and values of one head, and
    the results; `beside`: logarithms and masks, if there are any."""
    x, y, z, result = arrays
    logs, masks = beside
    queries, keys, width = x.shape[0], y.count, result.shape[1]
    held = cp.shared(t.held, t.dtype)
    weights = cp.shared((t.keys, t.height + t.line), t.dtype)
    parts = cp.shared((t.height, t.side), t.dtype)
    totals = cp.local((t.rows, t.wide // t.line), cp.Line[t.dtype, t.line], fill=0)
    tops = cp.local(t.rows, t.dtype, fill=LOWEST)
    sums = cp.local(t.rows, t.dtype, fill=0)
    begin = max(0, seen_from(first, window))
    for j0 in range(begin, seen_to(first + t.height - 1, keys, window, t), t.keys):
        scores = make_scores(x, y, held, first, j0, scale, t)
        brought = cp.local(-(-t.deep * t.width // (t.side * t.side)), t.dtype)
        fetch_values(z, brought, (j0, c0), width, t)
        hide(scores, masks, (first, j0, keys, queries), window, t)
        weigh(scores, weights, parts, tops, sums, totals, t)
        add_values(z, held, weights, totals, brought, (j0, c0, width), t)
    at, c = unit_of(t)[0] * t.rows, c0 + unit_of(t)[1] * t.line
    for r in cp.unroll(range(t.rows)):
        i, total = first + at + r, over_row(sums[r], parts, at + r, add, t)
        share = inverse(total)
        for w in cp.unroll(range(t.wide // t.line)):
            if i < queries:
                v = portion(totals[r, w], share)
                v = v if result.dtype == t.dtype else result.dtype(v)
                cp.store(result[i], c + w * t.side * t.line, v)
        note_logs(logs, i, tops[r], total, c)


def unit_of(t: Any) -> Any:
    """The row and the column of a unit in its cube."""
    return cp.UNIT_POS // t.side, cp.UNIT_POS % t.side


def over_row(v: Any, parts: Any, row: Any, combine: Any, t: Any) -> Any:
    """One number of all units that share a row of the cube, known to them: by shuffles where these
    lie in one plane."""
    if cp.PLANE_DIM % t.side == 0:
        return over_group(v, t.side, combine)
    cp.sync_cube()
    parts[row, cp.UNIT_POS % t.side] = v
    cp.sync_cube()
    found = parts[row, 0]
    for k in range(1, t.side):
        found = combine(found, parts[row, k])
    return found


def note_logs(logs: Any, i: Any, top: Any, total: Any, column: Any) -> None:
    """Store the logarithm of a query's sum of exponentials, by the unit of its first element."""
    for log in logs:
        if column == 0 and i < log.shape[0]:
            log[i] = top + cp.log(total)


def make_scores(x: Any, y: Any, held: Any, first: Any, j0: Any, scale: Any, t: Any) -> Any:
    """The products of the cube's queries and some keys: a unit's rows, each in lines of keys."""
    ty, tx = unit_of(t)
    found = cp.local((t.rows, t.columns // t.line), cp.Line[t.dtype, t.line], fill=0)
    behind, size, queries = t.depth * t.pitch, x.shape[1], Rows(x)
    left = cp.local(-(-t.height * t.depth // (t.side * t.side)), t.dtype)
    right = cp.local(-(-t.keys * t.depth // (t.side * t.side)), t.dtype)
    fetch_turned(queries, left, (first, 0), t.height, size, t)
    fetch_turned(y, right, (j0, 0), t.keys, size, t)
    for d0 in range(0, size, t.depth):
        cp.sync_cube()
        put_turned(left, held, 0, t.height, scale, t)
        put_turned(right, held, behind, t.keys, 1, t)
        cp.sync_cube()
        if d0 + t.depth < size:
            fetch_turned(queries, left, (first, d0 + t.depth), t.height, size, t)
            fetch_turned(y, right, (j0, d0 + t.depth), t.keys, size, t)
        for d in cp.unroll(range(t.depth)):
            row = cp.load(held, d * t.pitch + ty * t.rows, line=t.rows, fill=None)
            for c in cp.unroll(range(t.columns // t.line)):
                at = behind + d * t.pitch + (c * t.side + tx) * t.line
                column = cp.load(held, at, line=t.line, fill=None)
                for r in cp.unroll(range(t.rows)):
                    found[r, c] = found[r, c] + column * row[r]
    return found


def fetch_turned(x: Any, brought: Any, place: Any, count: Any, size: Any, t: Any) -> None:
    """Bring a unit's elements of some rows to registers, with zeros outside of them."""
    i0, d0 = place
    for e in cp.unroll(range(brought.size)):
        i, d = element_of(e, t)
        inside = i < count and i0 + i < x.count and d0 + d < size
        brought[e] = t.dtype(x.row(i0 + i)[d0 + d]) if inside else t.dtype(0)


def put_turned(brought: Any, held: Any, begin: Any, count: Any, scale: Any, t: Any) -> None:
    """Store them times a scale, as columns from `begin` on."""
    for e in cp.unroll(range(brought.size)):
        i, d = element_of(e, t)
        if i < count:
            held[begin + d * t.pitch + i] = brought[e] * t.dtype(scale)


def element_of(e: Any, t: Any) -> Any:
    """The row and the column of a unit's e-th element."""
    at = e * (t.side * t.side) + cp.UNIT_POS
    return at // t.depth, at % t.depth


def hide(scores: Any, masks: Any, place: Any, window: Any, t: Any) -> None:
    """Add masks to scores; those of keys that a query does not see become the lowest number."""
    first, j0, keys, queries = place
    if len(window) or len(masks) or j0 + t.keys > seen_to(first, keys, window, t):
        ty, tx = unit_of(t)
        for r in cp.unroll(range(t.rows)):
            i = first + ty * t.rows + r
            for c in cp.unroll(range(t.columns // t.line)):
                line = cp.local(t.line, t.dtype)
                cp.store(line, 0, scores[r, c])
                for e in cp.unroll(range(t.line)):
                    j = j0 + (c * t.side + tx) * t.line + e
                    line[e] = visible(line[e], masks, i, j, keys, queries, window, t)
                scores[r, c] = cp.load(line, 0, line=t.line, fill=None)


def weigh(scores: Any, weights: Any, parts: Any, tops: Any, sums: Any, totals: Any, t: Any) -> None:
    """Scores become weights, [key, query] in shared memory; maxima and the unit's sums follow, and
    rescale what was added before."""
    ty, tx = unit_of(t)
    for r in cp.unroll(range(t.rows)):
        top = scores[r, 0]
        for c in cp.unroll(range(1, t.columns // t.line)):
            top = larger(top, scores[r, c])
        most = highest(tops[r], over_row(largest(top), parts, ty * t.rows + r, highest, t))
        base = t.dtype(0) if most == t.dtype(LOWEST) else most
        factor, tops[r], added = cp.exp(tops[r] - base), most, cp.Line[t.dtype, t.line](0)
        for c in cp.unroll(range(t.columns // t.line)):
            scores[r, c] = cp.exp(scores[r, c] - base)
            added = added + scores[r, c]
        sums[r] = sums[r] * factor + added.sum()
        for w in cp.unroll(range(t.wide // t.line)):
            totals[r, w] = totals[r, w] * factor
    for c in cp.unroll(range(t.columns // t.line)):
        for e in cp.unroll(range(t.line)):
            column = cp.local(t.rows, t.dtype)
            for r in cp.unroll(range(t.rows)):
                column[r] = scores[r, c][e]
            v = cp.load(column, 0, line=t.rows, fill=None)
            cp.store(weights, ((c * t.side + tx) * t.line + e, ty * t.rows), v, whole=True)


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
    z: Any, held: Any, weights: Any, totals: Any, brought: Any, place: Any, t: Any
) -> None:
    """Add the weighted values of some keys, of which the first are `brought`."""
    j0, c0, width = place
    ty, tx = unit_of(t)
    for k0 in range(0, t.keys, t.deep):
        cp.sync_cube()
        for e in cp.unroll(range(brought.size)):
            at = e * (t.side * t.side) + cp.UNIT_POS
            if at < t.deep * t.width:
                held[at] = brought[e]
        cp.sync_cube()
        if k0 + t.deep < t.keys:
            fetch_values(z, brought, (j0 + k0 + t.deep, c0), width, t)
        for k in cp.unroll(range(t.deep)):
            left = cp.load(weights, (k0 + k, ty * t.rows), line=t.rows, fill=None)
            for w in cp.unroll(range(t.wide // t.line)):
                first = k * t.width + (w * t.side + tx) * t.line
                right = cp.load(held, first, line=t.line, fill=None)
                for r in cp.unroll(range(t.rows)):
                    totals[r, w] = totals[r, w] + right * left[r]


def fetch_values(z: Any, brought: Any, place: Any, width: Any, t: Any) -> None:
    """Bring a unit's elements of some rows of values, with zeros outside of them."""
    j0, c0 = place
    for e in cp.unroll(range(brought.size)):
        at = e * (t.side * t.side) + cp.UNIT_POS
        k, c = at // t.width, at % t.width
        inside = j0 + k < z.count and c0 + c < width
        brought[e] = t.dtype(z.row(j0 + k)[c0 + c]) if inside else t.dtype(0)
