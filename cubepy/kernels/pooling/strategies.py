"""How pooling divides its work: kernels by layout and window, tilings by target."""

from __future__ import annotations

from cubepy.array.memory import Memory
from cubepy.kernels.pooling.kernel import PoolTiling, compared
from cubepy.kernels.pooling.problem import Window
from cubepy.targets import Target

BAND_BYTES = 1 << 17
"""Input of one cube: enough to hide its start, little enough to spread over many threads."""
AHEAD_BYTES = 1 << 14
"""How far the input is prefetched, at least."""
MOST_BLOCK = 8
"""Lines of channels that registers hold for all columns of a window."""
STREAMED = 16
"""Caches that arrays must exceed before results bypass them."""
MOST_LANES = 128
"""Elements of the widest line that is loaded at once."""


def has_channels_last(x: Memory) -> bool:
    """Whether the channels of [n, c, row, column] lie side by side, and the columns do not."""
    size = x.dtype.itemsize
    return x.shape[1] > 1 and x.strides[1] == size and (x.strides[3] != size or x.shape[3] == 1)


def is_unit(x: Memory, axis: int) -> bool:
    """Whether the elements along an axis lie side by side."""
    return x.strides[axis] == x.dtype.itemsize or x.shape[axis] == 1


def lanes(target: Target, x: Memory) -> int:
    """Elements of a line, as they are compared."""
    return target.line_bytes // compared(x.dtype).itemsize


def _power_above(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _is_streamed(target: Target, x: Memory, out: Memory) -> bool:
    """Whether input and output are so large that no cache holds the output for its reader."""
    nbytes = sum(m.dtype.itemsize * _count(m.shape) for m in (x, out))
    return nbytes > STREAMED * target.cache_bytes


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def rows_tiling(target: Target, window: Window, x: Memory, out: Memory) -> PoolTiling | None:
    """Lines of columns; None for windows that are too large to be named tap by tap."""
    line = min(lanes(target, x), max(2, _power_above(max(out.shape[3], window.reach))))
    if window.reach > line or line * window.stride[1] > MOST_LANES or max(window.kernel) > 16:
        return None
    row_bytes = max(1, x.shape[3] * x.dtype.itemsize)
    band = min(max(out.shape[2], 1), max(4, BAND_BYTES // row_bytes))
    streamed = _is_streamed(target, x, out)
    ahead = max(1, AHEAD_BYTES // row_bytes) if streamed else 0
    return PoolTiling(line, band, ahead, streamed)


def pixels_tiling(target: Target, window: Window, x: Memory, out: Memory) -> PoolTiling:
    """Lines of channels; the results of a pixel are streamed where they are whole lines.

    Windows that overlap go along rows of pixels (`block` is not 0) where registers hold all
    channels of some columns, the others pixel by pixel.
    """
    line = min(lanes(target, x), max(2, _power_above(x.shape[1])))
    row_bytes = x.shape[1] * x.shape[3] * x.dtype.itemsize
    band = min(max(out.shape[2], 1), max(1, BAND_BYTES // max(1, row_bytes)))
    streamed = _is_streamed(target, x, out)
    block = -(-x.shape[1] // line)
    overlap = window.dilation[1] == 1 and window.kernel[1] > window.stride[1]
    along = overlap and not window.may_miss and max(window.kernel) <= 4 and block <= MOST_BLOCK
    whole = streamed and x.shape[1] % line == 0
    return PoolTiling(line, band, 1 if streamed else 0, whole, block if along else 0)


def windows_tiling(target: Target, window: Window, x: Memory) -> PoolTiling:
    """Outputs one after the other, with lines along the columns of large windows."""
    line = lanes(target, x) if window.dilation[1] == 1 and is_unit(x, 3) else 1
    line = line if window.kernel[1] >= line else 1
    return PoolTiling(line, max(1, BAND_BYTES // x.dtype.itemsize // window.size))
