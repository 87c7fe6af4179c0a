"""Convolutions of few channels on tensor cores, which take channels in eights.

Pixels are copied with their padding, to as many channels as let rows of them begin at any result's
window. Where taps of a row follow each other in memory, a window's row is then one pixel of all
their channels: the view of these overlaps itself, which the copy engine does not mind. What fills
channels up is zero in both factors, so that no infinity meets a zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod
from typing import Any

import cubepy as cp
from cubepy.array.memory import Memory
from cubepy.ir.types import DType
from cubepy.jit.grid import Over
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.convolution.problem import Problem, Triple
from cubepy.kernels.convolution.tensor_cores import PIECE
from cubepy.kernels.convolution.volumes import VOLUME, permuted
from cubepy.record import dataclass

UNITS = 256
"""The most units of a wide cube."""
SHARE = 4 * UNITS
"""The most lines that a cube copies."""


@dataclass(frozen=True, slots=True)
class Filling:
    """How pixels are filled up: to `channels` channels; `is_joined`: those of a row of the window
    are one pixel."""

    channels: int
    is_joined: bool

    @property
    def line(self) -> int:
        """Channels that are stored at a time."""
        return gcd(self.channels, PIECE)


def fillings(problem: Problem) -> list[Filling]:
    """The ways for a problem, where its channels are not in eights, and filters not too few."""
    if problem.channels % PIECE == 0 or problem.groups > 1 or problem.filters < PIECE:
        return []
    found = [Filling(_multiple(problem.channels, PIECE), False)]
    w = problem.window
    if w.dilation[2] == 1 and w.kernel[2] > 1:
        unit = PIECE // gcd(PIECE, w.stride[2])
        found.append(Filling(_multiple(problem.channels, unit), True))
    return found


def filled(problem: Problem, f: Filling) -> Problem:
    """The convolution of pixels that are filled up, which has no padding."""
    w, results = problem.window, problem.results
    if f.is_joined:
        one = {name: (*getattr(w, name)[:2], 1) for name in ("kernel", "stride", "dilation")}
        w = replace(w, **one)
    w = replace(w, before=(0, 0, 0), after=(0, 0, 0))
    a, b, c = (
        (n - 1) * step + span for n, step, span in zip(results, w.stride, w.spans, strict=True)
    )
    channels = row_of(problem, f) * f.channels if f.is_joined else f.channels
    return replace(problem, window=w, channels=channels, extents=(a, b, c))


def row_of(problem: Problem, f: Filling) -> int:
    """Taps that a row of the weights has room for: whole eights of channels."""
    return _multiple(problem.window.kernel[2], PIECE // gcd(PIECE, f.channels))


def _multiple(n: int, unit: int) -> int:
    return -(-n // unit) * unit


@cp.cube
def fill_rows(
    x: cp.Tensor,
    out: cp.Tensor,
    before: cp.Comptime[Triple],
    f: cp.Comptime[Filling],
    share: cp.Comptime[int],
) -> None:
    """A cube copies a row of pixels of `x`, [n, channel, depth, row, column], or `share` lines of
    it, to `out`, [n, depth, row, column, channel], which begins `before` it; zeros stand for what
    is not there.
    """
    lines = f.channels // f.line
    total = out.shape[3] * lines
    n, z, y, part = unravelled(cp.CUBE_POS, (*out.shape[:3], (total + share - 1) // share))
    source, depth, row = x[n], z - before[0], y - before[1]
    is_there = depth >= 0 and depth < x.shape[2] and row >= 0 and row < x.shape[3]
    for k in range(part * share + cp.UNIT_POS, min((part + 1) * share, total), cp.CUBE_DIM):
        place, first = k // lines, k % lines * f.line
        column = place - before[2]
        held = cp.local(f.line, out.dtype, fill=0)
        if is_there and column >= 0 and column < x.shape[4]:
            for c in cp.unroll(range(f.line)):
                if first + c < x.shape[1]:
                    held[c] = source[first + c, depth, row, column]
        cp.store(out, (n, z, y, place, first), cp.load(held, 0, line=f.line), whole=True)


def fill_pixels(planner: Planner, problem: Problem, x: Memory, f: Filling) -> Memory:
    """`x`, [n, channel, depth, row, column], as the filled problem sees it."""
    w, results = problem.window, problem.results
    a, b, c = (
        (n - 1) * step + span for n, step, span in zip(results, w.stride, w.spans, strict=True)
    )
    made = _room(planner, (problem.batch, a, b, c), x.dtype, f)
    _fill(planner, x, made, w.before, f)
    seen = permuted(made, VOLUME)
    if not f.is_joined:
        return replace(seen, shape=(*seen.shape[:4], c))
    shape = (seen.shape[0], w.kernel[2] * f.channels, a, b, results[2])
    return replace(seen, shape=shape, strides=(*seen.strides[:4], seen.strides[4] * w.stride[2]))


def fill_weights(planner: Planner, problem: Problem, weight: Memory, f: Filling) -> Memory:
    """[filter, channel, depth, row, column] as the filled problem has them."""
    made = weights_room(planner, problem, weight.dtype, f)
    _fill(planner, weight, made, (0, 0, 0), f)
    return joined(made, f)


def weights_room(planner: Planner, problem: Problem, dtype: DType, f: Filling) -> Memory:
    """Scratch for weights, [filter, depth, row, column, channel]."""
    kernel = problem.window.kernel
    columns = row_of(problem, f) if f.is_joined else kernel[2]
    return _room(planner, (problem.filters, kernel[0], kernel[1], columns), dtype, f)


def joined(made: Memory, f: Filling) -> Memory:
    """Weights in their room as the filled problem has them."""
    if f.is_joined:
        shape = (*made.shape[:3], 1, made.shape[3] * f.channels)
        made = replace(made, shape=shape)
    return permuted(made, VOLUME)


def _room(planner: Planner, extents: Sequence[int], dtype: DType, f: Filling) -> Memory:
    """Scratch for pixels, in rows that begin at addresses that the copy engine takes."""
    *outer, columns = extents
    columns = _multiple(columns, PIECE // gcd(PIECE, f.channels))
    return planner.scratch((*outer, columns, f.channels), dtype)


def _fill(planner: Planner, x: Memory, made: Memory, before: Triple, f: Filling) -> None:
    stores = made.shape[3] * f.channels // f.line
    units = min(UNITS, _multiple(stores, 32)) if is_wide(planner.target) else 1
    parts: Any = Over(prod(made.shape[:3]) * -(-stores // SHARE), "cube", units)
    planner.launch(fill_rows, parts, x=x, out=made, before=before, f=f, share=SHARE)
