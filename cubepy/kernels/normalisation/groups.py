"""Kernels that normalise groups of channels that lie side by side, for CPUs.

A group of few channels fills few lanes of a line, so lines hold channels of any groups: each
channel's mean and squared distances are made of parts of the pixels, and combined (Chan, Golub and
LeVeque 1979), first of a channel and then of its group. Each line of channels then goes down the
pixels with its numbers in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.normalisation.functions import finisher
from cubepy.kernels.normalisation.problem import Places
from cubepy.kernels.normalisation.reading import read_input, read_line
from cubepy.kernels.normalisation.slabs import row_count, row_of
from cubepy.kernels.reduction.moments import mended, with_part
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Groups:
    """How kernels go through pixels of `channels`, in `dtype`.

    `wide` lines of `line` channels go down together, `unroll` pixels side by side; statistics are
    made of `part` pixels, and a cube normalises `band` of them. `each`: channels of a group.
    """

    dtype: DType
    channels: int
    each: int
    line: int
    wide: int
    unroll: int
    part: int
    band: int
    prologue: Callable[..., Any] | None = None


def fill_of(t: Any) -> Any:
    """What stands behind the last channel of a line, or None where all lines are whole."""
    return None if t.channels % t.line == 0 else 0


def pixels_total(x: Any, span: Any, c: Any, step: Any, t: Any) -> Any:
    """The sums of `step(line, k)` along some pixels, for the k-th of `t.wide` lines of channels."""
    begin, end = span
    totals = tuple(cp.Line[t.dtype, t.line](0) for _ in range(t.wide * t.unroll))
    whole = begin + (end - begin) // t.unroll * t.unroll
    for r in range(begin, whole, t.unroll):
        totals = tuple(
            totals[k] + step(channels_of(x, r + k // t.wide, c, k % t.wide, t), k % t.wide)
            for k in range(t.wide * t.unroll)
        )
    for u in cp.unroll(range(1, t.unroll)):
        totals = tuple(
            totals[k] + totals[u * t.wide + k] if k < t.wide else totals[k]
            for k in range(t.wide * t.unroll)
        )
    totals = totals[: t.wide]
    for r in range(whole, end):
        totals = tuple(totals[k] + step(channels_of(x, r, c, k, t), k) for k in range(t.wide))
    return totals


def moments_of(x: Any, span: Any, c: Any, t: Any) -> Any:
    """The means of some pixels and the sums of squared distances from them, `t.wide` lines each."""
    count = t.dtype(span[1] - span[0])
    mean = tuple(v / count for v in pixels_total(x, span, c, lambda v, k: v, t))
    off = pixels_total(x, span, c, lambda v, k: v - mean[k], t)
    mean = tuple(mended(mean[k], off[k] / count) for k in range(t.wide))
    return mean, pixels_total(x, span, c, lambda v, k: (v - mean[k]) * (v - mean[k]), t)


def channels_of(x: Any, r: Any, c: Any, k: Any, t: Any) -> Any:
    """A line of channels of one pixel."""
    return read_input(row_of(x, r), c + k * t.line, t, t, fill_of(t))


def line_of(v: Any, c: Any, k: Any, t: Any) -> Any:
    """A line of numbers of channels."""
    return read_line(v, c + k * t.line, t, t, fill_of(t))


@cp.cube
def group_parts(x: cp.Tensor, means: cp.Tensor, spreads: cp.Tensor, t: cp.Comptime[Groups]) -> None:
    """Means and squared distances of `t.part` pixels of an item of `x`, which is [item, ...,
    channel]; those are [item, part, channel]."""
    item, part = unravelled(cp.CUBE_POS, means.shape[:2])
    own = x[item]
    begin = part * t.part
    end = min(begin + t.part, row_count(own))
    for c in range(0, t.channels, t.line * t.wide):
        mean, around = moments_of(own, (begin, end), c, t)
        for k in cp.unroll(range(t.wide)):
            cp.store(means[item, part], c + k * t.line, mean[k])
            cp.store(spreads[item, part], c + k * t.line, around[k])


@cp.cube
def join_groups(
    means: cp.Tensor,
    spreads: cp.Tensor,
    mean: cp.Tensor,
    scale: cp.Tensor,
    pixels: int,
    eps: cp.Comptime[float],
    t: cp.Comptime[Groups],
) -> None:
    """A cube makes the mean of each channel's group, and one over the root of its variance, of an
    item; `mean` and `scale` are [item, channel]."""
    item = cp.CUBE_POS
    for c in range(0, t.channels, t.line):
        state = tuple(line_of(v[item, 0], c, 0, t) for v in (means, spreads))
        for part in range(1, means.shape[1]):
            begin = part * t.part
            found = tuple(line_of(v[item, part], c, 0, t) for v in (means, spreads))
            count = t.dtype(min(t.part, pixels - begin))
            state = with_part(state, t.dtype(begin), found, count)
        cp.store(mean[item], c, state[0])
        cp.store(scale[item], c, state[1])
    for first in range(0, t.channels, t.each):
        middle, spread = mean[item, first], scale[item, first]
        for k in range(1, t.each):
            found = mean[item, first + k], scale[item, first + k]
            before = t.dtype(pixels) * t.dtype(k)
            middle, spread = with_part((middle, spread), before, found, t.dtype(pixels))
        factor = 1 / cp.sqrt(spread / (t.dtype(pixels) * t.dtype(t.each)) + t.dtype(eps))
        for k in range(t.each):
            mean[item, first + k] = middle
            scale[item, first + k] = factor


@cp.cube
def normalise_groups(
    x: cp.Tensor,
    mean: cp.Tensor,
    scale: cp.Tensor,
    weight: Any,
    bias: Any,
    out: cp.Tensor,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    places: cp.Comptime[Places],
    t: cp.Comptime[Groups],
) -> None:
    """A cube normalises `t.band` pixels of an item; weights and biases are [channel]."""
    pixels = row_count(out[0])
    bands = (pixels + t.band - 1) // t.band
    item, begin = cp.CUBE_POS // bands, cp.CUBE_POS % bands * t.band
    end = min(begin + t.band, pixels)
    own, into, lanes = x[item], out[item], range(t.wide)
    for c in range(0, t.channels, t.line * t.wide):
        middles = tuple(line_of(mean[item], c, k, t) for k in lanes)
        factors = tuple(line_of(scale[item], c, k, t) for k in lanes)
        for w in weight:
            factors = tuple(factors[k] * line_of(w, c, k, t) for k in lanes)
        added = tuple(tuple(line_of(b, c, k, t) for k in lanes) for b in bias)
        for r in range(begin, end):
            at = unravelled(r, into.shape[:-1])
            finish = finisher((item, *at), epilogue, extras, places)
            for k in cp.unroll(lanes):
                v = (channels_of(own, r, c, k, t) - middles[k]) * factors[k]
                for b in added:
                    v = v + b[k]
                j = c + k * t.line
                cp.store(into[at], j, finish(v, j), whole=t.channels % t.line == 0)
