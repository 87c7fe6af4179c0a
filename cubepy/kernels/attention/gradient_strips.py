"""Gradients of attention on CPUs: five products in registers for each block of weights.

A cube has some keys of a head, in blocks whose gradients and packed forms stay in a near cache. For
each block of queries it makes weights again from the logarithms of their sums, and the gradients of
scores from those of weights; both serve all sums at once (Dao, "FlashAttention-2", 2023, algorithm
2). What several cubes add to gradients of queries they store apart, which fixes the order of sums.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.gradient_squares import product
from cubepy.kernels.attention.problem import GradientStrips
from cubepy.kernels.attention.rows import Rows
from cubepy.kernels.attention.strips import pack_lines, pack_rows
from cubepy.kernels.attention.weighing import LOWEST, with_mask
from cubepy.kernels.attention.window import has_ends, seen_from, seen_to
from cubepy.kernels.calls.positions import count_up, unravelled
from cubepy.kernels.matmul.finish import chosen

AHEAD = 16
"""How many packed lines are asked for before they are needed."""


@cp.cube
def sum_gradients_by_strips(
    rows: Any,
    keys: Any,
    logs: cp.Tensor,
    deltas: cp.Tensor,
    masks: Any,
    window: Any,
    sums: cp.Tensor,
    outs: Any,
    length: int,
    scale: float,
    t: cp.Comptime[GradientStrips],
) -> None:
    """A cube for `length` keys of each head. `rows`: queries and gradients of results, `keys`: keys
    and values, `outs`: their gradients, all [..., rows, elements] with equal axes before the last
    two, of which `outs` have one element along axes that gradients are summed over. `logs`,
    `deltas`: [..., queries]. `sums`: what each part adds to gradients of queries, [part, ...,
    queries, elements in whole tiles]. `window`: see `window.seen_from`.
    """
    kept, whole = outs[0].shape[: outs[0].rank - 2], deltas.shape[: deltas.rank - 1]
    count = keys[0].shape[keys[0].rank - 2]
    parts = (count + length - 1) // length
    part, begin = cp.CUBE_POS % parts, unravelled(cp.CUBE_POS // parts, kept)
    start, turns = part * length, tuple(whole[n] // kept[n] for n in range(len(kept)))
    packed = (
        cp.shared((t.keys // t.step, t.size, t.step), t.dtype),
        cp.shared((t.keys // t.step, t.width, t.step), t.dtype),
        cp.shared((t.size // t.step, t.keys, t.step), t.dtype),
    )
    totals = (
        cp.shared((t.keys + t.rows, t.size), t.dtype),
        cp.shared((t.keys + t.rows, t.width), t.dtype),
    )
    memory = (
        cp.shared((t.queries + t.rows, t.size + t.line), t.dtype),
        cp.shared((t.queries + t.rows, t.width + t.line), t.dtype),
        cp.shared((t.size // t.step, t.queries, t.step), t.dtype),
        cp.shared((t.width // t.step, t.queries, t.step), t.dtype),
        cp.shared((t.queries + t.rows, t.row), t.dtype),
        cp.shared((t.queries + t.rows, t.row), t.dtype),
    )
    for turn in range(product(turns)):
        clear(chosen(sums[part], shifted(begin, turn, turns)), t)
    for j0 in range(start, min(start + length, count), t.keys):
        now = min(t.keys, count - j0, start + length - j0)
        pack_block(tuple(Rows(chosen(x, begin)) for x in keys), packed, j0, now, t)
        for x in totals:
            clear(x, t)
        for turn in range(product(turns)):
            where = shifted(begin, turn, turns)
            arrays = tuple(chosen(x, where) for x in rows)
            numbers = chosen(logs, where), chosen(deltas, where)
            seen = tuple(chosen(m, where) for m in masks)
            into, queries = chosen(sums[part], where), arrays[0].shape[0]
            for i0 in range(first_block(j0, window, t), last(j0 + now, queries, window), t.queries):
                place = i0, min(t.queries, queries - i0), j0, now
                bring_rows(arrays, memory, place, t)
                depths = arrays[0].shape[1], arrays[1].shape[1]
                weigh_block(memory, packed, numbers, seen, place, depths, window, scale, t)
                add_block(memory, packed, totals, into, place, window, t)
        for n in cp.unroll(range(2)):
            store_rows(totals[n], chosen(outs[n], begin), j0, now, t)


@cp.cube
def add_gradients(sums: cp.Tensor, out: cp.Tensor, line: cp.Comptime[int]) -> None:
    """The gradients of queries: the sums of what parts of keys add, by a cube for each row."""
    where = unravelled(cp.CUBE_POS, out.shape[: out.rank - 1])
    row = chosen(out, where)
    for c in range(0, row.shape[0], line):
        v = cp.load(sums[(0, *where)], c, line=line, fill=None)
        for part in range(1, sums.shape[0]):
            v = v + cp.load(sums[(part, *where)], c, line=line, fill=None)
        cp.store(row, c, cp.Line[out.dtype, line](v))


def shifted(begin: Any, turn: Any, turns: Any) -> Any:
    """The position of one of the heads that share a gradient."""
    beyond = unravelled(turn, turns)
    return tuple(begin[n] + beyond[n] for n in range(len(turns)))


def first_block(j0: Any, window: Any, t: Any) -> Any:
    """The first query of the first block that sees one of the keys from `j0` on."""
    return max(0, first(j0, window, t)) // t.queries * t.queries


def first(j: Any, window: Any, t: Any) -> Any:
    """The first query that sees a key by its position; it may lie before all queries."""
    if len(window):
        return j - window[1]
    return j if t.is_causal else 0


def last(end: Any, queries: Any, window: Any) -> Any:
    """The query behind the last that sees keys before `end`."""
    return min(queries, end + window[0]) if len(window) else queries


def clear(x: Any, t: Any) -> None:
    """Zeros in all of a matrix whose rows are whole lines."""
    for r in range(x.shape[0]):
        for c in range(0, x.shape[1], t.line):
            cp.store(x[r], c, cp.Line[t.dtype, t.line](0), whole=True)


def pack_block(keys: Any, packed: Any, j0: Any, count: Any, t: Any) -> None:
    """Keys and values as lines across keys, keys also as lines of their elements."""
    for n in cp.unroll(range(2)):
        pack_lines(keys[n], packed[n], j0, count, keys[n].matrix.shape[1], t)
    pack_rows(keys[0], packed[2], j0, count, t)


def bring_rows(arrays: Any, memory: Any, place: Any, t: Any) -> None:
    """Queries and gradients of results of a block, row by row and as lines of their elements; the
    last row stands for those behind it."""
    i0, count = place[0], place[1]
    for n in cp.unroll(range(2)):
        x, near = arrays[n], memory[n]
        for r in range((count + t.rows - 1) // t.rows * t.rows):
            row = x[i0 + min(r, count - 1)]
            for c in range(0, x.shape[1], t.line):
                v = cp.Line[t.dtype, t.line](cp.load(row, c, line=t.line))
                cp.store(near[r], c, v, whole=True)
        pack_rows(Rows(x), memory[2 + n], i0, count, t)


def weigh_block(
    memory: Any,
    packed: Any,
    numbers: Any,
    masks: Any,
    place: Any,
    depths: Any,
    window: Any,
    scale: Any,
    t: Any,
) -> None:
    """The weights of a block, and the gradients of its scores; `depths`: elements of a query and of
    a value."""
    i0, count, j0, now = place
    left, weights = (memory[0], memory[1]), (memory[4], memory[5])
    for r0 in range(0, count, t.rows):
        end = shown(i0 + r0 + t.rows - 1, j0, now, window, t)
        for tile in range((end + t.step - 1) // t.step):
            for n in cp.unroll(range(2)):
                found = multiplied(left[n], r0, packed[n][tile], 0, depths[n], False, t)
                put(found, weights[n], r0, tile * t.step, False, t)
        for u in range(r0, min(r0 + t.rows, count)):
            row = tuple(m[i0 + u] for m in masks)
            log, delta = numbers[0][i0 + u], numbers[1][i0 + u]
            place = i0 + u, u, j0, end
            weigh_row(weights, row, place, log, delta, window, scale, t)


def shown(i: Any, j0: Any, now: Any, window: Any, t: Any) -> Any:
    """How many keys of a block end with the last that query `i` sees by its position."""
    return max(0, seen_to(i, j0 + now, window, t) - j0)


def weigh_row(
    weights: Any,
    masks: Any,
    place: Any,
    log: Any,
    delta: Any,
    window: Any,
    scale: Any,
    t: Any,
) -> None:
    """Scores of a query become weights, and gradients of its weights those of its scores."""
    i, u, j0, end = place
    # A query that sees no key has a sum of 0.
    empty = log == t.dtype(LOWEST)
    base = t.dtype(0) if empty else log
    none = cp.Line[t.dtype, t.line](0)
    for j in range(0, end, t.line):
        score = cp.load(weights[0][u], j, line=t.line, fill=None) * t.dtype(scale)
        score = with_mask(score, masks, j0 + j, t)
        weight = none if empty else cp.exp(score - base)
        change = cp.load(weights[1][u], j, line=t.line, fill=None) - delta
        slope = weight * change * t.dtype(scale)
        if has_ends(window, t):
            lanes = cp.i32(j) + count_up(t.line, cp.i32)
            inside = lanes < cp.i32(seen_to(i, j0 + end, window, t) - j0)
            inside = inside & (lanes >= cp.i32(seen_from(i, window) - j0))
            weight, slope = cp.where(inside, weight, none), cp.where(inside, slope, none)
        cp.store(weights[0][u], j, weight, whole=True)
        cp.store(weights[1][u], j, slope, whole=True)
    # Columns are read in whole tiles of rows, also those that only later queries see.
    for j in range((end + t.line - 1) // t.line * t.line, end + t.rows, t.line):
        cp.store(weights[0][u], j, none, whole=True)
        cp.store(weights[1][u], j, none, whole=True)


def add_block(
    memory: Any, packed: Any, totals: Any, into: Any, place: Any, window: Any, t: Any
) -> None:
    """Add what a block of weights gives to the gradients of keys, values and queries."""
    i0, count, j0, now = place
    weights, slopes = memory[4], memory[5]
    for r0 in range(0, count, t.rows):
        end = shown(i0 + r0 + t.rows - 1, j0, now, window, t)
        for tile in range(t.size // t.step):
            found = multiplied(slopes, r0, packed[2][tile], 0, end, False, t)
            add_rows(found, into, i0 + r0, tile * t.step, min(t.rows, count - r0), t)
    for r0 in range(0, now, t.rows):
        begin = max(0, first(j0 + r0, window, t) - i0)
        for n in cp.unroll(range(2)):
            factors = slopes if n == 0 else weights
            for tile in range(memory[2 + n].shape[0]):
                found = multiplied(factors, r0, memory[2 + n][tile], begin, count, True, t)
                put(found, totals[n], r0, tile * t.step, True, t)


def multiplied(left: Any, first: Any, panel: Any, begin: Any, end: Any, turned: Any, t: Any) -> Any:
    """The products of some rows from `first` on, or columns, and one packed tile, in registers."""
    found = cp.local(t.rows, cp.Line[t.dtype, t.step], fill=0)
    for k in range(begin, end):
        for c in cp.unroll(range(0, t.step, t.line)):
            cp.prefetch(panel, (k + AHEAD, c))
        v = cp.load(panel[k], 0, line=t.step, fill=None)
        for u in cp.unroll(range(t.rows)):
            found[u] = found[u] + v * (left[k, first + u] if turned else left[first + u, k])
    return found


def put(found: Any, x: Any, r0: Any, c0: Any, adds: Any, t: Any) -> None:
    """Store a tile, or add it to what was there."""
    for u in cp.unroll(range(t.rows)):
        put_row(found[u], x[r0 + u], c0, adds, t)


def put_row(found: Any, row: Any, c0: Any, adds: Any, t: Any) -> None:
    """One row of a tile."""
    v = found + cp.load(row, c0, line=t.step, fill=None) if adds else found
    cp.store(row, c0, v, whole=True)


def add_rows(found: Any, into: Any, i0: Any, c0: Any, count: Any, t: Any) -> None:
    """Add those rows of a tile that exist."""
    for u in cp.unroll(range(t.rows)):
        if u < count:
            put_row(found[u], into[i0 + u], c0, True, t)


def store_rows(totals: Any, out: Any, j0: Any, count: Any, t: Any) -> None:
    """Store the gradients of a block of keys, or of values."""
    for r in range(count):
        for c in range(0, out.shape[1], t.line):
            v = cp.load(totals[r], c, line=t.line, fill=None)
            cp.store(out[j0 + r], c, cp.Line[out.dtype, t.line](v))
