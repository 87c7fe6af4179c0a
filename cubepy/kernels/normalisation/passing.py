"""Norms of long rows that pass through cubes that stay: weights are in registers once, and rows
arrive in a ring in shared memory, so that the next ones are on their way while one is normalised.

Each unit copies what it reads itself, so that nobody waits at a barrier for data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.kernels.calls.cubes import cube_sum
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.normalisation.functions import finisher
from cubepy.kernels.normalisation.problem import Normalisation, Passing, Places
from cubepy.kernels.normalisation.reading import read_line, with_prologue


@cp.cube
def normalise_passing(
    x: cp.Tensor,
    weight: Any,
    bias: Any,
    out: cp.Tensor,
    extras: Any,
    eps: cp.Comptime[float],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    places: cp.Comptime[Places],
    op: cp.Comptime[Normalisation],
    t: cp.Comptime[Passing],
) -> None:
    """Layer or RMS norms of rows, the last axis of `x` and `out`; a cube takes every
    CUBE_COUNT-th row. Rows consist of whole lines."""
    count, n = product(out.shape[:-1]), x.shape[x.rank - 1]
    ring = cp.shared((t.stages, t.held * t.units * t.line), x.dtype)
    weights = tuple(held(w, n, op, t) for w in weight)
    biases = tuple(held(b, n, op, t) for b in bias)
    for s in cp.unroll(range(t.stages - 1)):
        start(x, ring, s, cp.CUBE_POS + s * cp.CUBE_COUNT, count, n, t)
    stage, free = cp.i32(0), cp.i32(t.stages - 1)
    for i in range(cp.CUBE_POS, count, cp.CUBE_COUNT):
        cp.cuda.async_wait(t.stages - 2)
        where = unravelled(i, out.shape[:-1])
        lines = arrived(x[where], ring[stage], op, t)
        start(x, ring, free, i + (t.stages - 1) * cp.CUBE_COUNT, count, n, t)
        middle, scale = statistics(lines, n, eps, op, t)
        finish = finisher(where, epilogue, extras, places)
        for k in cp.unroll(range(t.held)):
            j = starts(t)[k]
            v = (lines[k] - middle) * scale
            for w in weights:
                v = v * w[k]
            for b in biases:
                v = v + b[k]
            if t.is_whole or j < n:
                cp.store(out[where], j, finish(v, j), whole=True)
        stage = cp.i32(0) if stage == t.stages - 1 else stage + 1
        free = cp.i32(0) if free == t.stages - 1 else free + 1


def starts(t: Any) -> Any:
    """Where a unit's lines of a row begin."""
    own = cp.UNIT_POS
    return tuple(t.line * (own + k * t.units) for k in range(t.held))


def held(w: Any, n: Any, op: Any, t: Any) -> Any:
    """A unit's lines of the weights."""
    fill = None if t.is_whole else 0
    return tuple(read_line(w, j, op, t, fill) for j in starts(t))


def start(x: Any, ring: Any, stage: Any, i: Any, count: Any, n: Any, t: Any) -> None:
    """Start the copies of a unit's lines of row `i`, if there is one; zeros stand for others."""
    row = x[unravelled(min(i, count - 1), x.shape[:-1])]
    for k in cp.unroll(range(t.held)):
        j = starts(t)[k]
        is_there = i < count if t.is_whole else i < count and j < n
        cp.cuda.async_copy(ring, (stage, j), row, j, t.line, is_there)
    cp.cuda.async_commit()


def arrived(row: Any, memory: Any, op: Any, t: Any) -> Any:
    """A unit's lines of a row, after the caller's prologue; zeros behind its end."""
    fill = None if t.is_whole else 0
    return tuple(
        with_prologue(row, j, cp.load(memory, j, line=t.line, fill=None), op, t, fill)
        for j in starts(t)
    )


def statistics(lines: Any, n: Any, eps: Any, op: Any, t: Any) -> Any:
    """What is subtracted from a row, and what the rest is multiplied by."""
    middle, count = op.dtype(0), op.dtype(n)
    if op.name == "layer_norm":
        middle = total(lines, t) / count
    squares = tuple((v - middle) * (v - middle) for v in lines)
    if not t.is_whole:
        there, none = starts(t), cp.Line[op.dtype, t.line](0)
        squares = tuple(cp.where(there[k] < n, squares[k], none) for k in range(t.held))
    return middle, 1 / cp.sqrt(total(squares, t) / count + op.dtype(eps))


def total(lines: Any, t: Any) -> Any:
    """The sum of all elements of a row."""
    found = lines[0]
    for v in lines[1:]:
        found = found + v
    return cube_sum(found.sum())
