"""The gradient of a convolution by its weights as products of matrices, on CPUs.

For each tap, gradients [pixels, filters] are multiplied by the elements [pixels, channels] that the
tap met: a few filters by lines of channels have sums in registers while pixels are walked. Both
arrays have their channels last in memory, in whole lines and blocks, so that no load is masked.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.convolution.problem import Window
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Products:
    """`filters` filters by `lines` lines of `line` channels have sums in registers."""

    filters: int
    lines: int
    line: int
    dtype: DType

    @property
    def step(self) -> int:
        """Channels of a cube."""
        return self.lines * self.line


@cp.cube
def multiply_pixels(
    x: cp.Tensor,
    grad: cp.Tensor,
    out: cp.Tensor,
    groups: int,
    band: int,
    window: cp.Comptime[Window],
    t: cp.Comptime[Products],
) -> None:
    """A cube for some filters, some channels, and the taps of one row of the window.

    `x` and `grad`: [batch, depth, rows, columns, channels or filters], which end in whole blocks
    if there is one group; `out`: [filter, channel, ...]. `band` rows are walked for one tap before
    the next.
    """
    own, channels = out.shape[0] // groups, out.shape[1]
    blocks, parts = (own + t.filters - 1) // t.filters, (channels + t.step - 1) // t.step
    c0, rest = cp.CUBE_POS % parts * t.step, cp.CUBE_POS // parts
    b, rest = rest % window.kernel[1], rest // window.kernel[1]
    a, rest = rest % window.kernel[0], rest // window.kernel[0]
    group, f0 = rest // blocks, rest % blocks * t.filters
    corner = group * own + f0, group * channels + c0
    taps = window.kernel[2]
    found = cp.local((taps, t.filters, t.lines), cp.Line[t.dtype, t.line], fill=0)
    for n in range(grad.shape[0]):
        for z in range(grad.shape[1]):
            depth = z * window.stride[0] + a * window.dilation[0] - window.before[0]
            if depth >= 0 and depth < x.shape[1]:
                for first in range(0, grad.shape[2], band):
                    rows = first, min(first + band, grad.shape[2]), b
                    for e in cp.unroll(range(taps)):
                        add_rows(x[n, depth], grad[n, z], found, rows, corner, e, window, t)
    for u in range(min(t.filters, own - f0)):
        for e in range(taps):
            row = out[corner[0] + u, :, a, b, e]
            for k in range(t.lines):
                cp.store(row, c0 + k * t.line, found[e, u, k])


def add_rows(
    x: Any, grad: Any, found: Any, rows: Any, corner: Any, e: Any, window: Any, t: Any
) -> None:
    """Add the products of a band of rows for one tap; `rows`: first, end, and the tap's row."""
    begin, end, b = rows
    shift = e * window.dilation[2] - window.before[2]
    low = max(0, -(shift // window.stride[2]))
    high = min((x.shape[1] - 1 - shift) // window.stride[2] + 1, grad.shape[1])
    sums = cp.local((t.filters, t.lines), cp.Line[t.dtype, t.line])
    for u in cp.unroll(range(t.filters)):
        for k in cp.unroll(range(t.lines)):
            sums[u, k] = found[e, u, k]
    for y in range(begin, end):
        row = y * window.stride[1] + b * window.dilation[1] - window.before[1]
        if row >= 0 and row < x.shape[0]:
            for i in range(low, high):
                seen = x[row, i * window.stride[2] + shift]
                lines = tuple(
                    cp.load(seen, corner[1] + k * t.line, line=t.line, fill=None)
                    for k in range(t.lines)
                )
                for u in cp.unroll(range(t.filters)):
                    g = grad[y, i, corner[0] + u]
                    for k in cp.unroll(range(t.lines)):
                        sums[u, k] = sums[u, k] + lines[k] * g
    for u in cp.unroll(range(t.filters)):
        for k in cp.unroll(range(t.lines)):
            found[e, u, k] = sums[u, k]
