"""Scores of a query become weights, on CPUs: exponentials over a running maximum."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.window import seen_from, seen_to
from cubepy.kernels.calls.positions import count_up

LOWEST = float("-inf")


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


def inverse(total: Any) -> Any:
    """1 over a sum of weights; 0 of 0."""
    return total.dtype(0) if total == total.dtype(0) else 1 / total


def portion(sums: Any, share: Any) -> Any:
    """Sums times the `inverse` of the sum of weights; zeros where a query sees no key, whatever
    numbers the values hold."""
    return cp.where(share == 0, 0, sums * share)


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
