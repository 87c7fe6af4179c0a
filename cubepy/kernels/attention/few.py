"""Attention of few queries on CPUs: keys and values are read once, as they lie.

Nothing is packed, which would take longer than the products: scores are dot products along the rows
of several keys, and the rows of several values are added at a time. As much as the queries need of
both stays in a near cache, for the next of their rows.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.bands import attend_keys, finish_band, finish_row
from cubepy.kernels.attention.weighing import LOWEST, weigh_row
from cubepy.kernels.attention.window import seen_to


def attend_few(arrays: Any, first: Any, extras: Any, window: Any, scale: Any, t: Any) -> None:
    """Queries from `first` on, as `strips.attend_band` takes them."""
    queries, keys, values, result = arrays
    logs, masks = extras
    count = min(t.height, queries.shape[0] - first)
    near = cp.shared((t.height, t.pitch), t.dtype)
    scores = cp.shared((t.height, t.keys + t.line), t.dtype)
    totals = cp.shared((t.height, t.tiles * t.step), t.dtype)
    added = cp.shared((t.rows, t.tiles * t.step), t.dtype)
    state = cp.shared((3, t.height), t.dtype)
    for r in range((count + t.rows - 1) // t.rows * t.rows):
        bring_query(queries, near[r], min(first + r, queries.shape[0] - 1), scale, t)
        state[0, r], state[1, r] = t.dtype(LOWEST), t.dtype(0)
        for c in range(0, t.tiles * t.step, t.step):
            cp.store(totals[r], c, cp.Line[t.dtype, t.step](0), whole=True)
            cp.store(added[r % t.rows], c, cp.Line[t.dtype, t.step](0), whole=True)

    def pack(j0: Any, now: Any) -> None:
        """Keys and values are read as they lie."""

    def attend(place: Any) -> None:
        i, r, j0, now = place
        seen = seen_to(i + t.rows - 1, j0 + now, window, t) - j0
        score_keys(near[r:], keys, scores[r:], j0, seen, t)
        for u in range(t.rows):
            mask = tuple(m[min(i + u, queries.shape[0] - 1)] for m in masks)
            weigh_row(scores[r + u], mask, state, r + u, i + u, j0, seen, window, t)
        add_values(scores[r:], values, added, j0, seen, t)
        keep(added, totals[r:], state[2, r:], t)

    attend_keys(pack, attend, first, count, keys.count, window, t)
    finish_band(
        lambda row, r: finish_row(totals, state, row, r, t), result, logs, state, first, count
    )


def bring_query(q: Any, near: Any, i: Any, scale: Any, t: Any) -> None:
    """A query times the scale."""
    for d in range(0, t.size, t.line):
        v = cp.Line[t.dtype, t.line](cp.load(q[i], d, line=t.line))
        cp.store(near, d, v * t.dtype(scale), whole=True)


def in_groups(do: Any, count: Any, t: Any) -> None:
    """Go through `count` keys, several together, the last ones one by one. `do`: a function of the
    first of some and how many they are."""
    whole = count // t.together * t.together
    for j in range(0, whole, t.together):
        do(j, t.together)
    for j in range(whole, count):
        do(j, 1)


# Scores


def score_keys(near: Any, keys: Any, scores: Any, j0: Any, count: Any, t: Any) -> None:
    """The scores of `count` keys from `j0` on, with zeros up to the end of the last line."""

    def score(j: Any, together: Any) -> None:
        score_some(near, keys, scores, j0, j, together, t)

    in_groups(score, count, t)
    for u in cp.unroll(range(t.rows)):
        for j in range(count, (count + t.line - 1) // t.line * t.line):
            scores[u, j] = t.dtype(0)


def score_some(near: Any, keys: Any, scores: Any, j0: Any, j: Any, together: Any, t: Any) -> None:
    """The scores of keys side by side, whose sums are in registers."""
    rows = tuple(keys.row(j0 + j + n) for n in range(together))
    found = cp.local((t.rows, together), cp.Line[t.dtype, t.line], fill=0)
    whole = t.size // t.line * t.line
    for d in range(0, whole, t.line):
        add_products(near, rows, found, d, None, t)
    if whole < t.size:
        add_products(near, rows, found, whole, 0, t)
    for u in cp.unroll(range(t.rows)):
        for n in cp.unroll(range(together)):
            scores[u, j + n] = found[u, n].sum()


def add_products(near: Any, rows: Any, found: Any, d: Any, fill: Any, t: Any) -> None:
    """Add the products of one line of queries and keys."""
    own = tuple(cp.load(near[u], d, line=t.line, fill=None) for u in range(t.rows))
    for n in cp.unroll(range(len(rows))):
        v = cp.Line[t.dtype, t.line](cp.load(rows[n], d, line=t.line, fill=fill))
        for u in cp.unroll(range(t.rows)):
            found[u, n] = found[u, n] + own[u] * v


# Values


def add_values(weights: Any, values: Any, added: Any, j0: Any, count: Any, t: Any) -> None:
    """Add `count` values from `j0` on, times their weights."""

    def add(j: Any, together: Any) -> None:
        add_some(weights, values, added, j0, j, together, t)

    in_groups(add, count, t)


def add_some(weights: Any, values: Any, added: Any, j0: Any, j: Any, together: Any, t: Any) -> None:
    """Add the values of some keys, a few lines at a time, whose sums are in registers."""
    rows = tuple(values.row(j0 + j + n) for n in range(together))
    whole = t.width // t.step * t.step
    for c in range(0, whole, t.step):
        add_lines(weights, rows, added, j, c, None, t)
    if whole < t.width:
        add_lines(weights, rows, added, j, whole, 0, t)


def add_lines(weights: Any, rows: Any, added: Any, j: Any, c: Any, fill: Any, t: Any) -> None:
    """Add the lines of values from element `c` on."""
    found = cp.local(t.rows, cp.Line[t.dtype, t.step])
    for u in cp.unroll(range(t.rows)):
        found[u] = cp.load(added[u], c, line=t.step, fill=None)
    for n in cp.unroll(range(len(rows))):
        v = cp.Line[t.dtype, t.step](cp.load(rows[n], c, line=t.step, fill=fill))
        for u in cp.unroll(range(t.rows)):
            found[u] = found[u] + v * weights[u, j + n]
    for u in cp.unroll(range(t.rows)):
        cp.store(added[u], c, found[u], whole=True)


def keep(added: Any, totals: Any, factors: Any, t: Any) -> None:
    """Bring the sums of a step to those so far, which are over the new greatest score now. Sums of
    sums round less often than one sum of all keys."""
    for u in cp.unroll(range(t.rows)):
        for c in range(0, t.tiles * t.step, t.step):
            old = cp.load(totals[u], c, line=t.step, fill=None)
            new = cp.load(added[u], c, line=t.step, fill=None)
            cp.store(totals[u], c, old * factors[u] + new, whole=True)
            cp.store(added[u], c, cp.Line[t.dtype, t.step](0), whole=True)
