"""Attention by the matrix units of processors (AMX), of bf16.

As in `strips`, scores of a few queries stay in a near cache until they are weights, and a running
maximum and sum rescale what was added so far. Both products are made of the unit's blocks: keys and
values are packed as `matmul.units` packs right factors, and weights are rounded to bf16.
Exponentials bind it: they are powers of two here, as exact as what they are rounded to needs.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.bands import attend_keys, finish_band
from cubepy.kernels.attention.problem import UnitStrips
from cubepy.kernels.attention.weighing import (
    LOWEST,
    highest,
    inverse,
    larger,
    largest,
    masked,
    portion,
)
from cubepy.kernels.attention.weights import LOG2_E
from cubepy.kernels.attention.window import seen_from, seen_to
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.finish import chosen
from cubepy.kernels.matmul.units import (
    PANEL,
    SIDE,
    interleaved,
    pack_columns,
    pack_left,
    put_word,
    row_or_zero,
)
from cubepy.lang import amx

LEAST = -127.0
"""Where `power` ends."""
ROUNDING = 1.5 * 2.0**23
"""A number is rounded to an integer, in the lowest bits, by adding it."""
POWER = (0.05500893, 0.24221096, 0.69328293, 1.0)
"""Factors of a polynomial for 2**x, -0.5 <= x <= 0.5, with an error of 2**-13."""


@cp.cube
def attend_unit_strips(
    q: cp.Tensor,
    k: cp.Tensor,
    v: cp.Tensor,
    out: cp.Tensor,
    logs: Any,
    masks: Any,
    window: Any,
    scale: float,
    t: cp.Comptime[UnitStrips],
) -> None:
    """As `strips.attend_strips`, of bf16."""
    bands = (out.shape[out.rank - 2] + t.height - 1) // t.height
    where = unravelled(cp.CUBE_POS // bands, out.shape[: out.rank - 2])
    first = cp.CUBE_POS % bands * t.height
    x, y, z, result = (chosen(m, where) for m in (q, k, v, out))
    count = min(t.height, x.shape[0] - first)
    seen, noted = (tuple(chosen(m, where) for m in x) for x in (masks, logs))
    packed = cp.shared((t.keys // PANEL, t.deep * PANEL + 1, t.line), t.factors)
    beside = cp.shared((t.wide, t.keys + 1, t.line), t.factors)
    memory = (
        cp.shared((t.deep, PANEL, t.line), t.factors),
        cp.shared((PANEL, t.keys + SIDE), t.dtype),
        cp.shared((t.keys // t.line, PANEL, t.line), t.factors),
        cp.shared((PANEL, PANEL), t.dtype),
        cp.shared((t.height + PANEL, t.wide * PANEL), t.dtype),
        cp.shared((3, t.height + PANEL), t.dtype),
    )
    clear(memory, count, t)

    def pack(j0: Any, now: Any) -> None:
        pack_keys(y, packed, j0, now, t)
        pack_values(z, beside, j0, now, t)

    def attend(place: Any) -> None:
        attend_rows(x, packed, beside, seen, memory, place, window, scale, t)

    attend_keys(pack, attend, first, count, y.shape[0], window, t)
    finish_band(
        lambda row, r: finish_row(memory, row, r, t), result, noted, memory[5], first, count
    )


def clear(memory: Any, count: Any, t: Any) -> None:
    """No key was seen so far."""
    totals, state = memory[4], memory[5]
    for r in range((count + PANEL - 1) // PANEL * PANEL):
        state[0, r] = t.dtype(LOWEST)
        state[1, r] = t.dtype(0)
        for c in range(0, t.wide * PANEL, SIDE):
            cp.store(totals[r], c, cp.Line[t.dtype, SIDE](0), whole=True)


def pack_keys(y: Any, packed: Any, j0: Any, count: Any, t: Any) -> None:
    """Blocks of a right factor whose columns are keys; the last key stands for those behind it."""
    for tile in range((count + PANEL - 1) // PANEL):
        for k in range(t.deep):
            for c in range(2):
                block = packed[tile, k * PANEL + c * SIDE :]
                pack_columns(y, block, j0 + tile * PANEL + c * SIDE, k * t.line, t)


def pack_values(z: Any, beside: Any, j0: Any, count: Any, t: Any) -> None:
    """Blocks of a right factor whose rows are values, of which those 16 apart are side by side, as
    `weigh_lines` stores weights; zeros behind the last one."""
    for k in range((count + t.line - 1) // t.line):
        for p in range(SIDE):
            for tile in range(t.wide):
                pack_pair(z, beside[tile], k * PANEL + p, tile * PANEL, j0 + k * t.line + p, t)


def pack_pair(z: Any, panel: Any, p: Any, c: Any, key: Any, t: Any) -> None:
    """One row of two blocks."""
    if key + SIDE < z.shape[0] and c + PANEL <= z.shape[1]:
        rows = tuple(cp.load(z[key + e], c, line=PANEL, fill=None) for e in (0, SIDE))
        put_word(panel, p, interleaved(rows, 1), t)
    else:
        rows = tuple(row_or_zero(z, key + e, c, PANEL, t) for e in (0, SIDE))
        put_word(panel, p, interleaved(rows, 1), t)


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
    """Add what some keys give to 32 queries."""
    near, scores, weights, added, totals, state = memory
    i, r, j0, count = place
    count = seen_to(i + PANEL - 1, j0 + count, window, t) - j0
    pack_left(q, near, i, 0, (0, t.deep), t)
    for tile in range((count + PANEL - 1) // PANEL):
        multiply(near, packed[tile], t.deep, scores, tile * PANEL, t)
    for u in range(PANEL):
        row = tuple(m[min(i + u, q.shape[0] - 1)] for m in masks)
        weigh_row(scores[u], weights, row, state, (r + u, i + u, u), j0, count, window, scale, t)
    for tile in range(t.wide):
        multiply(weights, beside[tile], (count + t.line - 1) // t.line, added, 0, t)
        for u in range(PANEL):
            for c in cp.unroll(range(0, PANEL, SIDE)):
                old = cp.load(totals[r + u], tile * PANEL + c, line=SIDE, fill=None)
                v = old * state[2, r + u] + cp.load(added[u], c, line=SIDE, fill=None)
                cp.store(totals[r + u], tile * PANEL + c, v, whole=True)


def multiply(left: Any, right: Any, deep: Any, into: Any, column: Any, t: Any) -> None:
    """The products of two panels, stored from a column on."""
    for tile in cp.unroll(range(4)):
        amx.zero(tile)
    for k in range(deep):
        for half in cp.unroll(range(2)):
            amx.load(4 + half, left[k], (half * SIDE, 0))
            amx.load(6 + half, right, (k * PANEL + half * SIDE, 0))
        for tile in cp.unroll(range(4)):
            amx.multiply(tile, 4 + tile // 2, 6 + tile % 2, t.factors)
    for tile in cp.unroll(range(4)):
        amx.store(tile, into, (tile // 2 * SIDE, column + tile % 2 * SIDE))


def weigh_row(
    scores: Any,
    weights: Any,
    masks: Any,
    state: Any,
    place: Any,
    j0: Any,
    count: Any,
    window: Any,
    scale: Any,
    t: Any,
) -> None:
    """Scores of one query become weights, up to a whole block of keys; its maximum, its sum and the
    factor of what was added before follow."""
    r, i, u = place
    ends = seen_from(i, window) - j0, seen_to(i, j0 + count, window, t) - j0
    whole = 0 if len(masks) or len(window) else max(0, ends[1]) // t.line * t.line
    top, number = cp.Line[t.dtype, SIDE](LOWEST), t.dtype(scale)
    for j in range(0, whole, SIDE):
        top = larger(cp.load(scores, j, line=SIDE, fill=None) * number, top)
    end = (count + t.line - 1) // t.line * t.line
    for j in range(whole, end, SIDE):
        s = cp.load(scores, j, line=SIDE, fill=None) * number
        s = masked(s, masks, j0, j, ends, window, t)
        cp.store(scores, j, s, whole=True)
        top = larger(s, top)
    old = state[0, r]
    most = highest(old, largest(top))
    base = t.dtype(0) if most == t.dtype(LOWEST) else most
    total = cp.local(2, cp.Line[t.dtype, SIDE], fill=0)
    weigh_lines(scores, weights, total, u, 0, whole, number * LOG2_E, base * LOG2_E, t)
    weigh_lines(scores, weights, total, u, whole, end, t.dtype(LOG2_E), base * LOG2_E, t)
    factor = power(cp.Line[t.dtype, 1]((old - base) * LOG2_E))[0]
    state[0, r] = most
    state[1, r] = state[1, r] * factor + (total[0] + total[1]).sum()
    state[2, r] = factor


def weigh_lines(
    scores: Any,
    weights: Any,
    total: Any,
    u: Any,
    begin: Any,
    end: Any,
    factor: Any,
    base: Any,
    t: Any,
) -> None:
    """Weights of some keys: each word has those of two that are 16 apart, rounded to nearest."""
    for j in range(begin, end, t.line):
        lines = tuple(
            power(cp.load(scores, j + c * SIDE, line=SIDE, fill=None) * factor - base)
            for c in range(2)
        )
        for c in cp.unroll(range(2)):
            total[c] = total[c] + lines[c]
        low, high = (cp.bitcast(v, cp.u32) + 0x8000 for v in lines)
        words = (low >> 16) | (high & 0xFFFF0000)
        cp.store(weights[j // t.line, u], 0, cp.bitcast(words, t.factors), whole=True)


def power(x: Any) -> Any:
    """2**x of a line of numbers of at most 0, with an error of 2**-12; 0 up to 2**-127."""
    x = cp.where(x < LEAST, cp.Line[cp.f32, x.line_size](LEAST), x)
    shifted = x + ROUNDING
    rest, found = x - (shifted - ROUNDING), cp.Line[cp.f32, x.line_size](POWER[0])
    for factor in cp.unroll(POWER[1:]):
        found = found * rest + factor
    return cp.bitcast(cp.bitcast(found, cp.i32) + (cp.bitcast(shifted, cp.i32) << 23), cp.f32)


def finish_row(memory: Any, row: Any, r: Any, t: Any) -> None:
    """Store one query's sums over the sum of its weights; zeros where it sees no key."""
    totals, state = memory[4], memory[5]
    share = inverse(state[1, r])
    for c in range(0, row.shape[0], SIDE):
        v = cp.load(totals[r], c, line=SIDE, fill=None)
        cp.store(row, c, portion(v, share))
