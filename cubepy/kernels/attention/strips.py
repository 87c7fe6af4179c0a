"""Attention on CPUs: scores of a few queries stay in a near cache until they are weights.

Scores are never stored as a whole: a running maximum and a running sum of each query rescale what
was added so far (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao,
"FlashAttention-2", 2023). Both products stay in registers by tiles, as those of matrices do: keys
are packed as lines across keys, values as lines along their elements.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.bands import attend_keys, finish_band, finish_row
from cubepy.kernels.attention.weighing import LOWEST, weigh_row
from cubepy.kernels.attention.window import seen_to
from cubepy.kernels.matmul.blocks import transposed

AHEAD = 16
"""How many packed lines are asked for before they are needed."""


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
    totals, state = memory[2:4]
    finish_band(
        lambda row, r: finish_row(totals, state, row, r, t), result, logs, state, first, count
    )


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
