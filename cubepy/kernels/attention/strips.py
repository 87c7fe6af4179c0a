"""Attention on CPUs: scores of a few queries stay in a near cache until they are weights.

Scores are never stored as a whole: a running maximum and a running sum of each query rescale what
was added so far (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao,
"FlashAttention-2", 2023). Both products stay in registers by tiles, as those of matrices do: keys
are packed as lines across keys, values as lines along their elements.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.bands import attend_keys, finish_band
from cubepy.kernels.attention.problem import Strips
from cubepy.kernels.attention.rows import Rows, band_at
from cubepy.kernels.attention.window import seen_from, seen_to
from cubepy.kernels.calls.positions import count_up, unravelled
from cubepy.kernels.matmul.blocks import transposed
from cubepy.kernels.matmul.finish import chosen

LOWEST = float("-inf")
AHEAD = 16
"""How many packed lines are asked for before they are needed."""


@cp.cube
def attend_strips(
    q: cp.Tensor,
    k: cp.Tensor,
    v: cp.Tensor,
    out: cp.Tensor,
    logs: Any,
    masks: Any,
    window: Any,
    scale: float,
    t: cp.Comptime[Strips],
) -> None:
    """A cube for `t.height` queries of each head: `q` is [..., queries, size], `k` [..., keys,
    size], `v` [..., keys, width], masks [..., queries, keys]; `logs`: perhaps what the logarithms
    of the sums of exponentials are stored to, [..., queries]. `window`: see `window.seen_from`."""
    bands = (out.shape[out.rank - 2] + t.height - 1) // t.height
    where = unravelled(cp.CUBE_POS // bands, out.shape[: out.rank - 2])
    first = cp.CUBE_POS % bands * t.height
    rows = Rows(chosen(k, where)), Rows(chosen(v, where))
    arrays = chosen(q, where), *rows, chosen(out, where)
    beside = tuple(chosen(m, where) for m in logs), tuple(chosen(m, where) for m in masks)
    attend_band(arrays, first, beside, window, scale, t)


@cp.cube
def attend_ragged_strips(
    q: cp.Tensor,
    k: cp.Tensor,
    v: cp.Tensor,
    out: cp.Tensor,
    marks: Any,
    window: Any,
    scale: float,
    t: cp.Comptime[Strips],
    is_guarded: cp.Comptime[bool],
) -> None:
    """A cube for a slot of `t.height` queries of each head, see `rows.band_at`: `q` is [tokens,
    heads, size] or [sequences, tokens, heads, size], `k` [tokens, heads, size] or [pages, tokens,
    heads, size]."""
    heads = out.shape[out.rank - 2]
    slot, head = cp.CUBE_POS // heads, cp.CUBE_POS % heads
    band = band_at(slot, head, (q, k, v, out), marks, window, t.height, is_guarded)
    arrays, first, reach, is_sound = band
    if is_sound and first < arrays[0].shape[0]:
        attend_band(arrays, first, ((), ()), reach, scale, t)


def attend_band(arrays: Any, first: Any, extras: Any, window: Any, scale: Any, t: Any) -> None:
    """Queries from `first` on, with the keys and values of one head, and the results; `extras`:
    logarithms and masks, if there are any."""
    queries, keys, values, result = arrays
    logs, seen = extras
    count = min(t.height, queries.shape[0] - first)
    packed = cp.shared((t.keys // t.step, t.pitch, t.step), t.dtype)
    beside = cp.shared((t.tiles, t.keys, t.step), t.dtype)
    memory = (
        cp.shared((t.rows, t.pitch + t.line), t.dtype),
        cp.shared((t.rows, t.keys + t.line), t.dtype),
        cp.shared((t.height + t.rows, t.tiles * t.step), t.dtype),
        cp.shared((3, t.height + t.rows), t.dtype),
        cp.shared((t.rows, t.step), t.dtype),
    )
    clear(memory, count, t)

    def pack(j0: Any, now: Any) -> None:
        pack_lines(keys, packed, j0, now, t.size, t)
        pack_rows(values, beside, j0, now, t)

    def attend(place: Any) -> None:
        attend_rows(queries, packed, beside, seen, memory, place, window, scale, t)

    attend_keys(pack, attend, first, count, keys.count, window, t)
    finish_band(lambda row, r: finish_row(memory, row, r, t), result, logs, memory[3], first, count)


def clear(memory: Any, count: Any, t: Any) -> None:
    """No key was seen so far."""
    totals, state = memory[2], memory[3]
    for r in range((count + t.rows - 1) // t.rows * t.rows):
        state[0, r] = t.dtype(LOWEST)
        state[1, r] = t.dtype(0)
        for c in range(0, t.tiles * t.step, t.step):
            cp.store(totals[r], c, cp.Line[t.dtype, t.step](0), whole=True)


def pack_lines(keys: Any, packed: Any, j0: Any, count: Any, size: Any, t: Any) -> None:
    """Lines across keys, for each of `size` elements; the last key stands for those behind it."""
    square = cp.shared((t.line, t.line), t.dtype)
    for c in range((count + t.step - 1) // t.step * t.lines):
        panel, column = packed[c // t.lines], c % t.lines * t.line
        for d in range(0, size // t.line * t.line, t.line):
            pack_square(keys, panel[d:], square, column, j0 + c * t.line, d, None, t)
        if size % t.line:
            d = size // t.line * t.line
            pack_square(keys, panel[d:], square, column, j0 + c * t.line, d, 0, t)


def pack_square(
    keys: Any, panel: Any, square: Any, column: Any, j: Any, d: Any, fill: Any, t: Any
) -> None:
    """One square of keys by elements, from key `j` and element `d` on."""
    # a bound of run time, so that rows are not unrolled, which takes long to compile
    for lane in range(min(t.line, keys.count + t.line)):
        v = cp.load(keys.row(min(j + lane, keys.count - 1)), d, line=t.line, fill=fill)
        cp.store(square[lane], 0, cp.Line[t.dtype, t.line](v), whole=True)
    found = transposed(tuple(cp.load(square[k], 0, line=t.line, fill=None) for k in range(t.line)))
    for lane in cp.unroll(range(t.line)):
        cp.store(panel[lane], column, found[lane], whole=True)


def pack_rows(values: Any, beside: Any, j0: Any, count: Any, t: Any) -> None:
    """Lines along the elements of rows, tile by tile."""
    for k in range(count):
        row = values.row(j0 + k)
        for tile in range(beside.shape[0]):
            v = cp.load(row, tile * t.step, line=t.step)
            cp.store(beside[tile, k], 0, cp.Line[t.dtype, t.step](v), whole=True)


def attend_rows(
    q: Any,
    packed: Any,
    beside: Any,
    masks: Any,
    memory: Any,
    place: Any,
    window: Any,
    scale: Any,
    t: Any,
) -> None:
    """Add what some keys give to some queries."""
    near, scores, totals, state, added = memory
    i, r, j0, count = place
    count = seen_to(i + t.rows - 1, j0 + count, window, t) - j0
    bring_queries(q, near, i, scale, t)
    for tile in range((count + t.step - 1) // t.step):
        spill(multiplied(near, packed[tile], t.size, t), scores, tile * t.step, t)
    for u in range(t.rows):
        mask = tuple(m[min(i + u, q.shape[0] - 1)] for m in masks)
        weigh_row(scores[u], mask, state, r + u, i + u, j0, count, window, t)
    for tile in range(t.tiles):
        spill(multiplied(scores, beside[tile], count, t), added, 0, t)
        for u in range(t.rows):
            old = cp.load(totals[r + u], tile * t.step, line=t.step, fill=None)
            v = old * state[2, r + u] + cp.load(added[u], 0, line=t.step, fill=None)
            cp.store(totals[r + u], tile * t.step, v, whole=True)


def bring_queries(q: Any, near: Any, i: Any, scale: Any, t: Any) -> None:
    """Some queries times the scale; the last one stands for those behind it."""
    for u in range(t.rows):
        row = q[min(i + u, q.shape[0] - 1)]
        for d in range(0, t.size, t.line):
            v = cp.Line[t.dtype, t.line](cp.load(row, d, line=t.line))
            cp.store(near[u], d, v * t.dtype(scale), whole=True)


def multiplied(left: Any, panel: Any, count: Any, t: Any) -> Any:
    """The products of some rows and one packed tile, in registers."""
    found = cp.local(t.rows, cp.Line[t.dtype, t.step], fill=0)
    for k in range(count):
        for c in cp.unroll(range(0, t.step, t.line)):
            cp.prefetch(panel, (k + AHEAD, c))
        v = cp.load(panel[k], 0, line=t.step, fill=None)
        for u in cp.unroll(range(t.rows)):
            found[u] = found[u] + v * left[u, k]
    return found


def spill(found: Any, into: Any, column: Any, t: Any) -> None:
    """Bring a tile from registers to memory."""
    for u in cp.unroll(range(t.rows)):
        cp.store(into[u], column, found[u], whole=True)


def weigh_row(
    scores: Any,
    masks: Any,
    state: Any,
    r: Any,
    i: Any,
    j0: Any,
    count: Any,
    window: Any,
    t: Any,
) -> None:
    """Scores of one query become exponentials; its maximum, its sum and the factor of what was
    added before follow."""
    lowest = cp.Line[t.dtype, t.line](LOWEST)
    top = lowest
    ends = seen_from(i, window) - j0, seen_to(i, j0 + count, window, t) - j0
    whole = 0 if len(masks) or len(window) else max(0, ends[1]) // t.line * t.line
    for j in range(0, whole, t.line):
        top = greater(top, cp.load(scores, j, line=t.line, fill=None))
    for j in range(whole, count, t.line):
        s = masked(cp.load(scores, j, line=t.line, fill=None), masks, j0, j, ends, window, t)
        cp.store(scores, j, s, whole=True)
        top = greater(top, s)
    old = state[0, r]
    most = highest(old, top.max())
    base = t.dtype(0) if most == t.dtype(LOWEST) else most
    total = cp.Line[t.dtype, t.line](0)
    for j in range(0, count, t.line):
        e = cp.exp(cp.load(scores, j, line=t.line, fill=None) - base)
        cp.store(scores, j, e, whole=True)
        total = total + e
    factor = cp.exp(old - base)
    state[0, r] = most
    state[1, r] = state[1, r] * factor + total.sum()
    state[2, r] = factor


def greater(a: Any, b: Any) -> Any:
    """The greater of each pair of lanes, NaN if either is; unlike `max` it orders no zeros."""
    return cp.where(a != a, a, cp.where(a > b, a, b))


def highest(a: Any, b: Any) -> Any:
    """The same for two numbers."""
    return a if a != a or a > b else b


def larger(a: Any, b: Any) -> Any:
    """The larger of each pair of lanes; the second where one is NaN, which sums report."""
    return cp.where(a > b, a, b)


def largest(v: Any) -> Any:
    """The largest of the lanes of a line."""
    if v.line_size == 1:
        return v[0]
    half = v.line_size // 2
    return largest(larger(v[:half], v[half:]))


def masked(s: Any, masks: Any, j0: Any, j: Any, ends: Any, window: Any, t: Any) -> Any:
    """A line of scores from key `j0 + j` on, without those that the query does not see, which sees
    those between `ends`, counted from `j0` on."""
    lanes = cp.i32(j) + count_up(s.line_size, cp.i32)
    s = with_mask(s, masks, j0 + j, t)
    s = cp.where(lanes < cp.i32(ends[1]), s, cp.Line[t.dtype, s.line_size](LOWEST))
    if len(window) == 0:
        return s
    return cp.where(lanes < cp.i32(ends[0]), cp.Line[t.dtype, s.line_size](LOWEST), s)


def with_mask(s: Any, masks: Any, j: Any, t: Any) -> Any:
    """Scores plus the mask, or only those where it is true."""
    if len(masks) == 0:
        return s
    mask = cp.load(masks[0], j, line=s.line_size)
    if mask.dtype == cp.bool_:
        return cp.where(mask, s, cp.Line[t.dtype, s.line_size](LOWEST))
    return s + cp.Line[t.dtype, s.line_size](mask)


def finish_row(memory: Any, row: Any, r: Any, t: Any) -> None:
    """Store one query's sums over the sum of its weights; zeros where it sees no key."""
    totals, state = memory[2], memory[3]
    total = state[1, r]
    factor = t.dtype(0) if total == t.dtype(0) else 1 / total
    for c in range((t.width + t.line - 1) // t.line):
        v = cp.load(totals[r], c * t.line, line=t.line, fill=None)
        cp.store(row, c * t.line, v * factor)
