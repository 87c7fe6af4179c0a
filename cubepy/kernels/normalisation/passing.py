"""Norms of long rows that pass through cubes that stay: weights are in registers once, and rows
come and go by the copy engine through a ring in shared memory, so that one arrives or leaves while
one is normalised. The last cache evicts what is written before what is read, though neither is
touched again: on an H200 that moves 4.29 TB/s, and no hints 4.15.

Cubes take the next row when they are ready for it: multiprocessors are not equally near to memory,
and equal shares would wait for the last of them.
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
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Ring:
    """Stages of shared memory: `rows[s]` is what is in stage s, `memory[s]` its elements, which
    have arrived when a phase of `full[s]` has ended."""

    memory: Any
    full: Any
    rows: Any


@cp.cube
def begin_passing(ticket: cp.Tensor[cp.i32]) -> None:
    """No row is taken yet."""
    ticket[0] = 0


@cp.cube
def normalise_passing(
    x: cp.Tensor,
    weight: Any,
    bias: Any,
    out: cp.Tensor,
    ticket: cp.Tensor[cp.i32],
    extras: Any,
    eps: cp.Comptime[float],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    places: cp.Comptime[Places],
    op: cp.Comptime[Normalisation],
    t: cp.Comptime[Passing],
) -> None:
    """Layer or RMS norms of rows, the last axis of `x` and `out`; rows consist of whole lines.

    `ticket`: one zero; the rows behind the first `stages` - 1 of each cube are taken from it.
    """
    count, n = cp.i32(product(out.shape[:-1])), x.shape[x.rank - 1]
    first = cp.i32((t.stages - 1) * cp.CUBE_COUNT)
    ring = make_ring(x, count, n, t)
    weights = tuple(held(w, n, op, t) for w in weight)
    biases = tuple(held(b, n, op, t) for b in bias)
    cp.sync_cube()
    stage, free, phase = cp.i32(0), cp.i32(t.stages - 1), cp.i32(0)
    i, ahead = cp.i32(cp.CUBE_POS), cp.i32(0)
    if cp.UNIT_POS == 0:
        ahead = cp.atomic.add(ticket, 0, 1)
    while i < count:
        cp.cuda.barrier_wait(ring.full, stage, phase)
        where = unravelled(i, out.shape[:-1])
        lines = arrived(x[where], ring.memory[stage], n, op, t)
        middle, scale = statistics(lines, n, eps, op, t)
        if cp.UNIT_POS == 0:
            cp.cuda.bulk_wait(0, read=True)  # the row before has left its stage
            take(x, ring, free, first + ahead, count, n)
            ahead = cp.atomic.add(ticket, 0, 1)
        finish = finisher(where, epilogue, extras, places)
        for k in cp.unroll(range(t.held)):
            v = (lines[k] - middle) * scale
            for w in weights:
                v = v * w[k]
            for b in biases:
                v = v + b[k]
            cp.store(ring.memory, (stage, starts(t)[k]), finish(v, starts(t)[k]), whole=True)
        cp.cuda.fence_async()
        cp.sync_cube()
        if cp.UNIT_POS == 0:
            cp.cuda.bulk_store(out[where], 0, ring.memory, (stage, 0), n, hint="evict_first")
            cp.cuda.bulk_commit()
        is_last = stage == t.stages - 1
        stage, phase = cp.i32(0) if is_last else stage + 1, phase ^ 1 if is_last else phase
        free = cp.i32(0) if free == t.stages - 1 else free + 1
        i = ring.rows[stage]
    if cp.UNIT_POS == 0:
        cp.cuda.bulk_wait(0)


def make_ring(x: Any, count: Any, n: Any, t: Any) -> Ring:
    """The ring, whose first rows are on their way; all units meet before they use it."""
    memory = cp.shared((t.stages, t.held * t.units * t.line), x.dtype)
    ring = Ring(memory, cp.shared(t.stages, cp.u64), cp.shared(t.stages, cp.i32))
    if cp.UNIT_POS == 0:
        for s in cp.unroll(range(t.stages)):
            cp.cuda.barrier_init(ring.full, s, 1)
        cp.cuda.fence_barriers()
        for s in cp.unroll(range(t.stages - 1)):
            take(x, ring, s, cp.i32(cp.CUBE_POS + s * cp.CUBE_COUNT), count, n)
    return ring


def take(x: Any, ring: Ring, stage: Any, i: Any, count: Any, n: Any) -> None:
    """Let a stage have row `i`, and start its copy if there is one; by one unit."""
    ring.rows[stage] = i
    if i < count:
        cp.cuda.barrier_expect(ring.full, stage, cp.i32(n * x.dtype.itemsize))
        row = x[unravelled(i, x.shape[:-1])]
        cp.cuda.bulk_load(ring.memory, (stage, 0), row, 0, n, ring.full, stage, hint="evict_last")


def starts(t: Any) -> Any:
    """Where a unit's lines of a row begin."""
    own = cp.UNIT_POS
    return tuple(t.line * (own + k * t.units) for k in range(t.held))


def held(w: Any, n: Any, op: Any, t: Any) -> Any:
    """A unit's lines of the weights."""
    fill = None if t.is_whole else 0
    return tuple(read_line(w, j, op, t, fill) for j in starts(t))


def arrived(row: Any, memory: Any, n: Any, op: Any, t: Any) -> Any:
    """A unit's lines of a row, after the caller's prologue; zeros behind its end."""
    fill, none = None if t.is_whole else 0, cp.Line[row.dtype, t.line](0)
    found = tuple(cp.load(memory, j, line=t.line, fill=None) for j in starts(t))
    if not t.is_whole:
        found = tuple(cp.where(starts(t)[k] < n, found[k], none) for k in range(t.held))
    return tuple(with_prologue(row, starts(t)[k], found[k], op, t, fill) for k in range(t.held))


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
