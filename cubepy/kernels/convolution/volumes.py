"""Arrays of any rank and layout as the kernels of convolutions see them: [n, channel, depth, row,
column], with any strides."""

from __future__ import annotations

from dataclasses import replace

from cubepy.array.memory import Memory
from cubepy.kernels.convolution.problem import Problem, Window, triple
from cubepy.kernels.matmul.problem import sums_of

LAYOUTS = {1: ("NCL", "NLC", "NCHW", "NHWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC", "NCHW")}
VOLUME = (0, 4, 1, 2, 3)
"""The axes of [n, depth, row, column, channel] as [n, channel, depth, row, column]."""


def as_volumes(x: Memory, axes: int, channels_last: bool) -> Memory:
    """An array as [n, channel, depth, row, column]."""
    shape, strides = x.shape, x.strides
    if len(shape) == axes + 1:
        shape, strides = (1, *shape), (0, *strides)
    if channels_last:
        shape = (shape[0], shape[-1], *shape[1:-1])
        strides = (strides[0], strides[-1], *strides[1:-1])
    missing = 3 - axes
    shape = (*shape[:2], *[1] * missing, *shape[2:])
    return replace(x, shape=shape, strides=(*strides[:2], *[0] * missing, *strides[2:]))


def has_channels_last(x: Memory) -> bool:
    """Whether channels, and not columns, lie densely in memory."""
    size = x.dtype.itemsize
    dense = x.strides[1] == size or x.shape[1] == 1
    return dense and (x.strides[4] != size or x.shape[4] == 1) and x.shape[1] > 1


def channels_last(x: Memory) -> Memory:
    """[n, channel, depth, row, column] as [n, depth, row, column, channel]."""
    return permuted(x, (0, 2, 3, 4, 1))


def permuted(x: Memory, order: tuple[int, ...]) -> Memory:
    """The axes in another order."""
    shape, strides = (tuple(part[k] for k in order) for part in (x.shape, x.strides))
    return replace(x, shape=shape, strides=strides)


def order_of(x: Memory, rank: int, axes: int) -> tuple[int, ...] | None:
    """The order in memory of a result [..., channel, *axes]: channels last where `x` has them."""
    if not has_channels_last(x):
        return None
    at = rank - axes - 1
    return (*(k for k in range(rank) if k != at), at)


def problem_of(window: Window, groups: int, x: Memory, out: Memory) -> Problem:
    """The convolution of a volume that gives another."""
    last = has_channels_last(x)
    return Problem(
        window=window,
        batch=x.shape[0],
        channels=x.shape[1],
        filters=out.shape[1],
        groups=groups,
        extents=triple(x.shape[2:]),
        results=triple(out.shape[2:]),
        sums=sums_of(x.dtype),
        has_channels_last=last,
        puts_channels_last=has_channels_last(out),
        has_dense_rows=last and (x.shape[4] == 1 or x.strides[4] == x.shape[1] * x.dtype.itemsize),
    )
