"""What the autotuner may try in place of the bands that the rule chose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cubepy.autotune.space import anchor, variants
from cubepy.kernels.convolution.blocks import Bands
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.strategies import divided

SCRATCH_SHARE = 8
"""Of the memory of a cube on a CPU, how much the array and the sums of one may take, as a divisor;
more would not be right for all."""


def problem_key(problem: Problem) -> tuple[Any, ...]:
    """What problems that share a pick have in common: sizes within a factor of two, and kinds."""
    p = problem
    sizes = (p.batch, p.channels, p.filters, *p.results)
    kinds = (p.has_channels_last, p.puts_channels_last, p.has_dense_rows)
    return (*map(anchor, sizes), p.groups, p.window, p.sums, *kinds)


def others(first: Bands, problem: Problem, scratch_bytes: int) -> Mapping[str, Bands]:
    """Tiles of other widths, bands of other heights and shares of the filters."""

    def made(t: Bands, tile: float, band: float, panels: float) -> Bands:
        pixels = max(1, min(int(t.pixels * tile), problem.results[2]))
        rows = max(1, min(int(t.band * band), problem.results[1]))
        most = t.packing.panels(problem.group_filters)
        share = max(1, min(int(t.panels * panels), most))
        found = divided(problem, t.packing, pixels, rows, t.strip, share, t.wraps)
        elements = found.held + found.sums * t.packing.step
        fits = SCRATCH_SHARE * elements * t.packing.dtype.itemsize <= scratch_bytes
        return found if fits else t

    axes = {"band": (1, 0.5, 2, 0.25, 4), "panels": (1, 0.5, 2), "tile": (1, 0.5)}
    return variants(first, axes, lambda t, band, panels, tile: made(t, tile, band, panels))
