"""Pooling windows: their shape rules, which are torch's, and how rows of them fall into lines.

Data and arithmetic only; kernels take a `Pooling` as a comptime argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from cubepy.ir.types import DType, i32, i64
from cubepy.kernels.calls.arguments import numbers_of, pairs_of, wrong
from cubepy.record import dataclass

Triple = tuple[int, int, int]
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """A pooling window over depth, rows and columns.

    `padding`: elements that are thought before the array along each axis; `after`: behind it.
    """

    kernel: Triple
    stride: Triple
    padding: Triple
    after: Triple
    dilation: Triple

    @property
    def taps(self) -> tuple[Pair, ...]:
        """Where each column of the window lies: lane shift and phase.

        Column k of the window at output column j is the input column (j + shift) * stride + phase:
        one input line serves all columns of equal phase, shifted.
        """
        places = (k * self.dilation[2] - self.padding[2] for k in range(self.kernel[2]))
        return tuple(divmod(place, self.stride[2]) for place in places)

    @property
    def shifts(self) -> tuple[int, ...]:
        """The lane shifts of all taps, each once, ascending."""
        return tuple(sorted({shift for shift, _ in self.taps}))

    @property
    def reach(self) -> int:
        """How far a line of outputs looks into its neighbours."""
        first = -self.padding[2]
        last = first + (self.kernel[2] - 1) * self.dilation[2]
        return max(abs(place // self.stride[2]) for place in (first, last))

    @property
    def phases(self) -> int:
        """How many phases of a line have a tap, counted up to the last."""
        return max(phase for _, phase in self.taps) + 1

    @property
    def spans(self) -> Triple:
        """Elements that the window extends over."""
        a, b, c = ((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        return a, b, c

    @property
    def size(self) -> int:
        """Elements in the window."""
        return prod(self.kernel)

    @property
    def rows(self) -> int:
        """Rows of columns in the window."""
        return self.kernel[0] * self.kernel[1]

    @property
    def before(self) -> int:
        """How many columns before those of its outputs a line of windows sees."""
        return self.padding[2]

    @property
    def behind(self) -> int:
        """How many it sees behind them."""
        last = (self.kernel[2] - 1) * self.dilation[2] - self.padding[2]
        return max(0, last - self.stride[2] + 1)

    @property
    def may_miss(self) -> bool:
        """Whether a window may lie over the edge with all of its rows: gaps are long enough."""
        return self.dilation[0] > 1 or self.dilation[1] > 1


@dataclass(frozen=True, slots=True)
class Pooling:
    """What is made of each window: `name` is "max" or "average".

    `divisor`: what sums are divided by; 0 for the number of elements of each window, with those of
    the padding if `counts_padding`. `is_adaptive`: windows are such that they share an axis evenly,
    and `window` is not read. `position`: a type for indices.
    """

    name: str
    window: Window
    divisor: int = 0
    counts_padding: bool = False
    is_adaptive: bool = False
    position: DType = i64

    @property
    def is_max(self) -> bool:
        """Whether windows give their greatest element."""
        return self.name == "max"


def make_window(
    function: str, axes: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1
) -> Window:
    """The window of torch's parameters, each an int or one for each axis; E601, E602.

    `padding`: also a pair (before, after) for each axis.
    """
    kernel = _triple(function, "kernel_size", axes, kernel_size, 1, 1)
    steps = kernel if _is_default(stride) else _triple(function, "stride", axes, stride, 1, 1)
    pads = [(0, 0)] * (3 - axes) + pairs_of(function, "padding", axes, padding)
    front, top, left = (pad for pad, _ in pads)
    back, bottom, right = (pad for _, pad in pads)
    steps_between = _triple(function, "dilation", axes, dilation, 1, 1)
    window = Window(kernel, steps, (front, top, left), (back, bottom, right), steps_between)
    for pair, span in zip(pads, window.spans, strict=True):
        if max(pair) >= span:
            reason = f"padding {max(pair)} is not less than what the window covers ({span})"
            raise wrong(function, reason, "a window would see nothing but padding")
    return window


def _is_default(stride: Any) -> bool:
    return stride is None or (isinstance(stride, Sequence) and len(stride) == 0)


def _triple(function: str, name: str, axes: int, value: Any, least: int, missing: int) -> Triple:
    """A parameter for depth, rows and columns; `missing` for the axes that there are not."""
    a, b, c = (*[missing] * (3 - axes), *numbers_of(function, name, axes, value, least))
    return a, b, c


def output_extents(function: str, window: Window, extents: Triple, ceil_mode: bool) -> Triple:
    """Depth, rows and columns of the result; E601 where no window fits."""
    sizes = zip(extents, window.spans, window.stride, window.padding, window.after, strict=True)
    depth, rows, columns = (_output_extent(*size, ceil_mode) for size in sizes)
    if min(depth, rows, columns) < 1 or min(extents) < 1:
        reason = f"no window of {window.kernel} fits into {extents}"
        raise wrong(function, reason, "use a smaller window or more padding")
    return depth, rows, columns


def _output_extent(n: int, span: int, stride: int, before: int, after: int, ceil_mode: bool) -> int:
    room = n + before + after - span
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    # A window that starts in the right padding would see nothing.
    return count - 1 if ceil_mode and (count - 1) * stride >= n + before else count


def maximum(window: Window, extents: Triple) -> Pooling:
    """The maximum of each window."""
    return Pooling("max", window, position=_position(extents))


def average(
    window: Window, extents: Triple, results: Triple, counts_padding: bool, divisor: int | None
) -> Pooling:
    """The mean of each window; its sum by `divisor` where that is given."""
    if divisor is None and all(
        (before + after == 0 or counts_padding) and (m - 1) * s + span <= n + before + after
        for n, m, s, span, before, after in zip(
            *(extents, results, window.stride, window.spans, window.padding, window.after),
            strict=True,
        )
    ):
        divisor = window.size
    return Pooling("average", window, divisor or 0, counts_padding, False, _position(extents))


def adaptive(name: str, extents: Triple, results: Triple) -> Pooling:
    """Windows that share the axes evenly: regular ones where they all have one size."""
    if all(n % m == 0 for n, m in zip(extents, results, strict=True)):
        a, b, c = (n // m for n, m in zip(extents, results, strict=True))
        window = Window((a, b, c), (a, b, c), (0, 0, 0), (0, 0, 0), (1, 1, 1))
        regular = maximum(window, extents)
        return regular if name == "max" else average(window, extents, results, True, None)
    one = (1, 1, 1)
    window = Window(one, one, (0, 0, 0), (0, 0, 0), one)
    return Pooling(name, window, 0, False, True, _position(extents))


def adaptive_extents(function: str, axes: int, value: Any, extents: Triple) -> Triple:
    """Depth, rows and columns of an `output_size`, in which None keeps an axis; E601, E602."""
    values = value if isinstance(value, Sequence) else (value,) * axes
    own = extents[3 - axes :]
    if len(values) == 1:
        values = (*values,) * axes
    if len(values) == axes:
        values = [n if v is None else v for v, n in zip(values, own, strict=True)]
    if min(extents) < 1:
        raise wrong(function, f"`x` has no elements to pool: its extents are {own}")
    return _triple(function, "output_size", axes, values, 1, 1)


def _position(extents: Triple) -> DType:
    return i32 if prod(extents) < 2**31 - 2**16 else i64
