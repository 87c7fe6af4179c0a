"""How rows are divided: whole ones for tasks of a CPU, the lines of one for the units of a GPU."""

from __future__ import annotations

from cubepy.array.memory import Memory
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.normalisation.problem import Normalisation, RowTiling
from cubepy.targets import Target

MOST_HELD = 16
"""Lines of a row that the registers of a unit hold."""


def row_tilings(
    target: Target, op: Normalisation, x: Memory, out: Memory, n: int, rows: int
) -> tuple[RowTiling, ...]:
    """The tilings for rows of `n` elements, the preferred one first."""
    dense = all(m.strides[-1] == m.dtype.itemsize for m in (x, out)) or n == 1
    if not is_wide(target):
        line = target.line_bytes // op.dtype.itemsize if dense else 8
        band = max(1, min(1 << 16, max(1, rows * n // 64)) // max(1, n))
        return (RowTiling(line, 1, band, 4 if n >= 4 * line else 1),)
    line = max(1, target.line_bytes // x.dtype.itemsize) if dense else 1
    units = target.plane_dim
    while units < min(512, -(-n // line)):
        units *= 2
    share = -(-n // (line * units))
    held = share if share <= MOST_HELD else 0
    return (RowTiling(line, units, 1, held=held, is_whole=n % (line * units) == 0),)


def column_tilings(
    target: Target, op: Normalisation, x: Memory, out: Memory
) -> tuple[RowTiling, ...]:
    """The tilings for rows across memory, whose columns lie side by side."""
    if not is_wide(target):
        line = target.line_bytes // op.dtype.itemsize
        return (RowTiling(line, 1, 1, 4 if x.shape[-1] >= 4 * line else 1),)
    dense = x.strides[-1] == x.dtype.itemsize and out.strides[-1] == out.dtype.itemsize
    return (RowTiling(target.line_bytes // x.dtype.itemsize if dense else 1, 128, 1),)
