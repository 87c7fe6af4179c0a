"""Kernels that normalise few large slabs on GPUs, each of which several cubes share.

First each cube describes its part of a slab; then it joins what all parts of that have (Chan, Golub
and LeVeque, see `reduction/moments.py`), and normalises one. That goes backwards, from the last
part to the first and from the end of each, as what was read last is still in a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.normalisation.functions import finisher
from cubepy.kernels.normalisation.problem import Places
from cubepy.kernels.normalisation.reading import read_element
from cubepy.kernels.normalisation.slabs import (
    change_of,
    line_moments,
    put_lines,
    rest_moments,
    row_count,
    row_of,
    starts_of,
    update,
)
from cubepy.kernels.reduction.moments import finite_or_zero, no_lines, over_units, with_part
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class SharedSlabs:
    """How cubes go through slabs, in `dtype`; see `problem.Slabs`. A cube has `rows` rows, and
    `span` elements of each, of which a unit stores `unroll` lines at a time; `stream`: results are
    too large for the caches."""

    dtype: DType
    items: int
    line: int
    units: int
    across: int
    unroll: int
    rows: int
    span: int
    stream: bool
    is_along: bool = False
    prologue: Callable[..., Any] | None = None


def part_of(slab: Any, part: Any, t: Any) -> Any:
    """The first and the last row of a part of a slab, and its elements of each."""
    length = slab.shape[slab.rank - 1]
    chunks = (length + t.span - 1) // t.span
    band, chunk = part // chunks, part % chunks
    below = min((band + 1) * t.rows, row_count(slab))
    return (band * t.rows, below), (chunk * t.span, min((chunk + 1) * t.span, length))


def size_of(slab: Any, part: Any, t: Any) -> Any:
    """How many elements a part has."""
    rows, span = part_of(slab, part, t)
    return t.dtype((rows[1] - rows[0]) * (span[1] - span[0]))


@cp.cube
def describe_slabs(
    x: cp.Tensor, means: cp.Tensor, spreads: cp.Tensor, t: cp.Comptime[SharedSlabs]
) -> None:
    """A cube describes a part of a slab: its mean, and the squared distances from it; both are
    [*items, part]."""
    *where, part = unravelled(cp.CUBE_POS, means.shape)
    slab = x[tuple(where)]
    rows, span = part_of(slab, part, t)
    pivot = finite_or_zero(read_element(row_of(slab, rows[0]), span[0], t)[0])
    state, few = no_lines(t.dtype, t.line), no_lines(t.dtype, 1)
    down = cp.CUBE_DIM // t.across
    for r in range(rows[0] + cp.UNIT_POS // t.across, rows[1], down):
        row = row_of(slab, r)[span[0] : span[1]]
        state = line_moments(row, pivot, state, t)
        few = rest_moments(row, pivot, few, t)
    found, spread = over_units(state, few, size_of(slab, part, t))
    if cp.UNIT_POS == 0:
        means[(*where, part)] = pivot + found
        spreads[(*where, part)] = spread


def joined(slab: Any, means: Any, spreads: Any, t: Any) -> Any:
    """The mean of a slab and the squared distances from it, of those of its parts."""
    pivot = finite_or_zero(means[0])
    state = no_lines(t.dtype, 1)
    for k in range(cp.UNIT_POS, means.shape[0], cp.CUBE_DIM):
        count, mean, spread = state
        number = size_of(slab, k, t)
        own = tuple(cp.Line[t.dtype, 1](v) for v in (means[k] - pivot, spreads[k]))
        mean, spread = with_part((mean, spread), count, own, number)
        state = count + number, mean, spread
    total = t.dtype(row_count(slab) * slab.shape[slab.rank - 1])
    found, spread = over_units(state, no_lines(t.dtype, 1), total)
    return pivot + found, spread, total


def finisher_behind(finish: Any, begin: Any) -> Any:
    """What finishes lines of a part of a row that begins at `begin`."""
    return lambda v, j: finish(v, begin + j)


@cp.cube
def normalise_shared(
    x: cp.Tensor,
    means: cp.Tensor,
    spreads: cp.Tensor,
    weight: Any,
    bias: Any,
    running: Any,
    out: cp.Tensor,
    extras: Any,
    eps: cp.Comptime[float],
    momentum: cp.Comptime[float],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    places: cp.Comptime[Places],
    t: cp.Comptime[SharedSlabs],
) -> None:
    """A cube normalises its part of a slab; arrays are those of `normalise_slabs`."""
    *where, part = unravelled(cp.CUBE_COUNT - 1 - cp.CUBE_POS, means.shape)
    where = tuple(where)
    slab, into = x[where], out[where]
    middle, spread, total = joined(slab, means[where], spreads[where], t)
    if part == 0:
        update(running, where, middle, spread, total, momentum)
    scale = 1 / cp.sqrt(spread / total + t.dtype(eps))
    rows, (begin, end) = part_of(slab, part, t)
    down = cp.CUBE_DIM // t.across
    for r in reversed(range(rows[0] + cp.UNIT_POS // t.across, rows[1], down)):
        at = unravelled(r, slab.shape[:-1])
        finish = finisher((*where, *at), epilogue, extras, places)
        weights = tuple(w[where][at][begin:end] for w in weight)
        biases = tuple(b[where][at][begin:end] for b in bias)
        change = change_of(weights, biases, middle, scale, finisher_behind(finish, begin), t)
        write_backwards(slab[at][begin:end], into[at][begin:end], change, t)


def write_backwards(row: Any, out: Any, change: Any, t: Any) -> None:
    """As `write_row`, from the end to the beginning."""
    hint = "stream" if t.stream else None
    blocks, rest = starts_of(out.shape[0], t)
    for j in reversed(rest):
        put_lines(row, out, j, 1, change, 0, t, hint)
    for j in reversed(blocks):
        put_lines(row, out, j, t.unroll, change, None, t, hint)
