"""Pooling windows: their shape rules, which are torch's, and how rows of them fall into lines.

Data and arithmetic only; kernels take a `Window` as a comptime argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any

from cubepy.errors import fail
from cubepy.record import dataclass

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """A pooling window over rows and columns."""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair

    @property
    def taps(self) -> tuple[Pair, ...]:
        """Where each column of the window lies: lane shift and phase.

        Column k of the window at output column j is the input column (j + shift) * stride + phase:
        one input line serves all columns of equal phase, shifted.
        """
        places = (k * self.dilation[1] - self.padding[1] for k in range(self.kernel[1]))
        return tuple(divmod(place, self.stride[1]) for place in places)

    @property
    def shifts(self) -> tuple[int, ...]:
        """The lane shifts of all taps, each once, ascending."""
        return tuple(sorted({shift for shift, _ in self.taps}))

    @property
    def reach(self) -> int:
        """How far a line of outputs looks into its neighbours."""
        return max(abs(shift) for shift in self.shifts)

    @property
    def phases(self) -> int:
        """How many phases of a line have a tap, counted up to the last."""
        return max(phase for _, phase in self.taps) + 1

    @property
    def size(self) -> int:
        """Elements in the window."""
        return prod(self.kernel)

    @property
    def may_miss(self) -> bool:
        """Whether a window may lie over the edge with all of its rows: gaps are long enough."""
        return self.dilation[0] > 1


def make_window(
    function: str, axes: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> Window:
    """The window of torch's parameters, each an int or one for each axis; E601, E602."""
    kernel = _pair(function, "kernel_size", axes, kernel_size, 1)
    strides = kernel if stride is None else _pair(function, "stride", axes, stride, 1)
    pads = _pair(function, "padding", axes, padding, 0)
    window = Window(kernel, strides, pads, _pair(function, "dilation", axes, dilation, 1))
    for k, pad, step in zip(kernel, pads, window.dilation, strict=True):
        if pad > ((k - 1) * step + 1) // 2:
            raise fail(
                "E601",
                function=function,
                suggestion="pad the array itself",
                reason=f"padding {pad} is more than half of the window ({k})",
            )
    return window


def _pair(function: str, name: str, axes: int, value: Any, least: int) -> Pair:
    """A parameter for rows and columns; one-dimensional windows have one row."""
    values = value if isinstance(value, Sequence) else (value,) * axes
    try:
        numbers = [index(v) for v in values]
    except TypeError:
        raise fail(
            "E602",
            function=function,
            suggestion="",
            reason=f"`{name}` is {value!r}; it takes integers",
        ) from None
    if len(numbers) == 1:
        numbers *= axes
    if len(numbers) != axes or min(numbers) < least:
        reason = f"`{name}` is {value!r}; it takes 1 or {axes} integers, each {least} or more"
        raise fail("E601", function=function, reason=reason, suggestion="")
    return (numbers[0], numbers[1]) if axes == 2 else (1 if least else 0, numbers[0])


def output_extents(function: str, window: Window, extents: Pair, ceil_mode: bool) -> Pair:
    """Rows and columns of the result; E601 where no window fits."""
    rows, columns = (
        _output_extent(*sizes, ceil_mode)
        for sizes in zip(
            extents, window.kernel, window.stride, window.padding, window.dilation, strict=True
        )
    )
    if min(rows, columns) < 1 or min(extents) < 1:
        raise fail(
            "E601",
            function=function,
            suggestion="use a smaller window or more padding",
            reason=f"no window of {window.kernel} fits into {extents}",
        )
    return rows, columns


def _output_extent(n: int, kernel: int, stride: int, pad: int, step: int, ceil_mode: bool) -> int:
    room = n + 2 * pad - step * (kernel - 1) - 1
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    # A window that starts in the right padding would see nothing.
    return count - 1 if ceil_mode and (count - 1) * stride >= n + pad else count
