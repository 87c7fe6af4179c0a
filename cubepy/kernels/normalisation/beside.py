"""Norms of channels that lie side by side in memory, for cubes of many units.

A unit has a line of channels, and walks down rows: what belongs to its channels is in registers
once. Statistics are made of blocks of rows that are combined (Chan, Golub and LeVeque, see
`reduction/moments.py`), less the first row, so that numbers far from 0 lose nothing: of a unit, of
those of a cube, and of all cubes. Results are made from the last rows on, which caches still have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.cubes import cube_sum
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.normalisation.functions import finisher
from cubepy.kernels.normalisation.problem import Places
from cubepy.kernels.normalisation.reading import read_element, read_input, read_line
from cubepy.kernels.normalisation.slabs import row_count, row_of, update
from cubepy.kernels.reduction.moments import finite_or_zero, lane_moments, no_lines, with_part
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Beside:
    """How cubes go through rows of channels, in `dtype`: `across` units side by side with lines of
    `line` channels, `down` units below each other; `rows` rows for a cube, of which a unit has
    `together` under way."""

    dtype: DType
    line: int
    across: int
    down: int
    rows: int
    together: int
    prologue: Callable[..., Any] | None = None

    @property
    def units(self) -> int:
        """Units of a cube."""
        return self.across * self.down

    @property
    def width(self) -> int:
        """Channels of a cube."""
        return self.across * self.line


def blocks_of(channels: Any, t: Any) -> Any:
    """Cubes side by side."""
    return (channels + t.width - 1) // t.width


# Statistics


@cp.cube
def describe_channels(
    x: cp.Tensor, means: cp.Tensor, spreads: cp.Tensor, t: cp.Comptime[Beside]
) -> None:
    """A cube describes some rows: their means less the first row of all, and their squared
    distances from these, [part, channel]."""
    channels = x.shape[x.rank - 1]
    blocks = blocks_of(channels, t)
    part, first = cp.CUBE_POS // blocks, cp.CUBE_POS % blocks * t.width
    begin = part * t.rows
    end = min(begin + t.rows, row_count(x))
    held = tuple(cp.shared((t.down, t.width), t.dtype) for _ in range(2))
    j = first + cp.UNIT_POS % t.across * t.line
    if j + t.line <= channels:
        describe_lines(x, held, j, begin, end, None, t)
    else:
        describe_lines(x, held, j, begin, end, 0, t)
    cp.sync_cube()
    for c in range(cp.UNIT_POS, min(t.width, channels - first), cp.CUBE_DIM):
        count, state = t.dtype(0), (t.dtype(0), t.dtype(0))
        for d in cp.unroll(range(t.down)):
            number = t.dtype((end - begin - d + t.down - 1) // t.down)
            if number > 0:
                state = with_part(state, count, (held[0][d, c], held[1][d, c]), number)
                count = count + number
        means[part, first + c], spreads[part, first + c] = state


def describe_lines(x: Any, held: Any, j: Any, begin: Any, end: Any, fill: Any, t: Any) -> None:
    """The moments of a unit's rows, for its line of channels."""
    below, at = cp.UNIT_POS // t.across, cp.UNIT_POS % t.across * t.line
    pivot = finite_or_zero(read_input(row_of(x, 0), j, t, t, fill))
    _, mean, spread = lane_moments(
        lambda r: read_input(row_of(x, r), j, t, t, fill) - pivot,
        (begin + below, t.down, end),
        no_lines(t.dtype, t.line),
        t.together,
    )
    cp.store(held[0], (below, at), mean, whole=True)
    cp.store(held[1], (below, at), spread, whole=True)


@cp.cube
def finish_channels(
    x: cp.Tensor,
    means: cp.Tensor,
    spreads: cp.Tensor,
    mean: cp.Tensor,
    variance: cp.Tensor,
    running: Any,
    momentum: cp.Comptime[float],
    t: cp.Comptime[Beside],
) -> None:
    """A cube joins the parts of one channel."""
    c, rows = cp.CUBE_POS, row_count(x)
    count, total, around = t.dtype(rows), t.dtype(0), t.dtype(0)
    for k in range(cp.UNIT_POS, means.shape[0], cp.CUBE_DIM):
        total += means[k, c] * t.dtype(min(t.rows, rows - k * t.rows))
    middle = cube_sum(total) / count
    for k in range(cp.UNIT_POS, means.shape[0], cp.CUBE_DIM):
        away = means[k, c] - middle
        around += spreads[k, c] + away * away * t.dtype(min(t.rows, rows - k * t.rows))
    spread = cube_sum(around)
    middle = middle + finite_or_zero(read_element(row_of(x, 0), c, t)[0])
    if cp.UNIT_POS == 0:
        mean[c] = middle
        variance[c] = spread / count
    update(running, (c,), middle, spread, count, momentum)


# Results


@cp.cube
def normalise_channels(
    x: cp.Tensor,
    mean: cp.Tensor,
    variance: cp.Tensor,
    weight: Any,
    bias: Any,
    out: cp.Tensor,
    extras: Any,
    eps: cp.Comptime[float],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    places: cp.Comptime[Places],
    t: cp.Comptime[Beside],
) -> None:
    """A cube normalises some rows by numbers for each channel, which are the same for all rows."""
    channels, rows = out.shape[out.rank - 1], row_count(out)
    blocks, parts = blocks_of(channels, t), (rows + t.rows - 1) // t.rows
    part, first = parts - 1 - cp.CUBE_POS // blocks, cp.CUBE_POS % blocks * t.width
    j = first + cp.UNIT_POS % t.across * t.line
    span = part * t.rows + cp.UNIT_POS // t.across, min((part + 1) * t.rows, rows)
    ends = epilogue, extras, places
    given = mean, variance, weight, bias
    if j + t.line <= channels:
        normalise_lines(x, out, given, j, span, None, eps, ends, t)
    elif j < channels:
        normalise_lines(x, out, given, j, span, 0, eps, ends, t)


def normalise_lines(
    x: Any, out: Any, given: Any, j: Any, span: Any, fill: Any, eps: Any, ends: Any, t: Any
) -> None:
    """A unit's rows [first, end), for its line of channels."""
    middle, variance = (read_line(row_of(v, 0), j, t, t, fill) for v in given[:2])
    scale, shift = 1 / cp.sqrt(variance + t.dtype(eps)), t.dtype(0)
    for w in given[2]:
        scale = scale * read_line(row_of(w, 0), j, t, t, fill)
    for b in given[3]:
        shift = read_line(row_of(b, 0), j, t, t, fill)
    first, end = span
    whole = first + (end - first) // (t.down * t.together) * (t.down * t.together)
    for r in range(first, whole, t.down * t.together):
        lines = tuple(
            read_input(row_of(x, r + k * t.down), j, t, t, fill) for k in range(t.together)
        )
        for k in cp.unroll(range(t.together)):
            put(out, r + k * t.down, j, (lines[k] - middle) * scale + shift, fill, ends)
    for r in range(max(whole, first), end, t.down):
        v = read_input(row_of(x, r), j, t, t, fill)
        put(out, r, j, (v - middle) * scale + shift, fill, ends)


def put(out: Any, r: Any, j: Any, v: Any, fill: Any, ends: Any) -> None:
    """Store a line of a row, after the caller's epilogue."""
    at = unravelled(r, out.shape[:-1])
    epilogue, extras, places = ends
    finish = finisher(at, epilogue, extras, places)
    cp.store(out[at], j, finish(v, j), whole=fill is None)
