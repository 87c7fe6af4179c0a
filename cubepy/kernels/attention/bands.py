"""A band of queries and the keys that it sees: what all kernels of CPUs share."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.weighing import inverse, portion
from cubepy.kernels.attention.window import has_ends, seen_from, seen_to


def attend_keys(
    pack: Any, attend: Any, first: Any, count: Any, number: Any, window: Any, t: Any
) -> None:
    """Add what the keys give to `count` queries from `first` on, step by step of `t.keys` keys out
    of `number`. `pack`: a function of the first key of a step and how many it has; `attend`: one of
    the first of `t.rows` queries, its place in the band, and the same, where they see some."""
    begin = max(0, seen_from(first, window))
    for j0 in range(begin, seen_to(first + count - 1, number, window, t), t.keys):
        now = min(t.keys, number - j0)
        pack(j0, now)
        for r in range(0, count, t.rows):
            i = first + r
            if not has_ends(window, t) or (
                j0 < seen_to(i + t.rows - 1, number, window, t) and j0 + now > seen_from(i, window)
            ):
                attend((i, r, j0, now))


def finish_band(
    finish_row: Any, result: Any, logs: Any, state: Any, first: Any, count: Any
) -> None:
    """Store the results of a band, and the logarithms of its sums of exponentials. `state`: the
    greatest score of each query, and its sum; `finish_row`: a function of a row and its place."""
    for r in range(count):
        finish_row(result[first + r], r)
        for log in logs:
            log[first + r] = state[0, r] + cp.log(state[1, r])


def finish_row(totals: Any, state: Any, row: Any, r: Any, t: Any) -> None:
    """Store one query's sums over the sum of its weights; zeros where it sees no key."""
    share = inverse(state[1, r])
    for c in range((t.width + t.line - 1) // t.line):
        v = cp.load(totals[r], c * t.line, line=t.line, fill=None)
        cp.store(row, c * t.line, portion(v, share))
