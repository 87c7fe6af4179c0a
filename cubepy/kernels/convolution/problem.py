"""A convolution as plain data: its window, extents and types; the parameters are torch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.errors import fail
from cubepy.ir.types import DType
from cubepy.kernels.calls.arguments import numbers_of, pairs_of, wrong
from cubepy.record import dataclass

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """A window over depth, rows and columns; axes that an array lacks have extent 1.

    `before`, `after`: zeros that are thought around the array.
    """

    kernel: Triple
    stride: Triple
    before: Triple
    after: Triple
    dilation: Triple

    @property
    def taps(self) -> int:
        """Elements of the window."""
        return self.kernel[0] * self.kernel[1] * self.kernel[2]

    @property
    def spans(self) -> Triple:
        """Elements that the window extends over."""
        a, b, c = ((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        return a, b, c

    @property
    def is_point(self) -> bool:
        """Whether it is one element, inside of the array."""
        return self.taps == 1 and self.before == self.after == (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Problem:
    """`batch` arrays of `channels` by `extents`, convolved to `filters` by `results`, in `groups`.

    `has_channels_last`: channels lie densely in memory in the array, `puts_channels_last`: in the
    result; `has_dense_rows`: so do the pixels of a row. `sums`: the type that elements are
    multiplied and added in.
    """

    window: Window
    batch: int
    channels: int
    filters: int
    groups: int
    extents: Triple
    results: Triple
    sums: DType
    has_channels_last: bool
    puts_channels_last: bool
    has_dense_rows: bool

    @property
    def group_channels(self) -> int:
        """Channels that a result depends on."""
        return self.channels // self.groups

    @property
    def group_filters(self) -> int:
        """Filters that read the same channels."""
        return self.filters // self.groups


def make_window(
    function: str, axes: int, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any
) -> Window:
    """The window of torch's parameters; E601, E602.

    `padding`: also "valid", "same", or a pair (before, after) for each axis.
    """
    strides = numbers_of(function, "stride", axes, stride, 1)
    dilations = numbers_of(function, "dilation", axes, dilation, 1)
    if isinstance(padding, str):
        pairs = _named(function, padding, kernel, strides, dilations)
    else:
        pairs = pairs_of(function, "padding", axes, padding)
    return Window(
        _three(kernel, 1),
        _three(strides, 1),
        _three([before for before, _ in pairs], 0),
        _three([after for _, after in pairs], 0),
        _three(dilations, 1),
    )


def _named(
    function: str, name: str, kernel: Sequence[int], strides: Sequence[int], steps: Sequence[int]
) -> list[tuple[int, int]]:
    """The padding that torch calls "valid" or "same"; of an odd one the larger part is behind."""
    if name == "valid":
        return [(0, 0) for _ in kernel]
    if name != "same":
        raise wrong(function, f"`padding` is {name!r}", 'it may be "valid" or "same"')
    if any(s != 1 for s in strides):
        raise wrong(function, '`padding` is "same" with a stride', "give it as numbers")
    totals = [(k - 1) * d for k, d in zip(kernel, steps, strict=True)]
    return [(n // 2, n - n // 2) for n in totals]


def _three(values: Sequence[int], missing: int) -> Triple:
    a, b, c = (*[missing] * (3 - len(values)), *values)
    return a, b, c


def triple(values: tuple[int, ...]) -> Triple:
    """Extents of depth, rows and columns."""
    a, b, c = values
    return a, b, c


def result_extents(function: str, window: Window, extents: Triple) -> Triple:
    """The extents of the result; E601 where no window fits."""
    a, b, c = (
        (n + before + after - span) // step + 1
        for n, before, after, span, step in zip(
            extents, window.before, window.after, window.spans, window.stride, strict=True
        )
    )
    if min(a, b, c) < 1:
        reason = f"a window of {window.spans} does not fit into {extents}"
        raise fail("E601", function=function, reason=reason, suggestion="add padding")
    return a, b, c
