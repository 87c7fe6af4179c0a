"""Windows that lie side by side, as those of the first layers of vision transformers, on GPUs.

Each element is seen by one window, so that a copy in the order of windows is no larger than the
array, and the convolution is a product of matrices.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from cubepy.array.memory import Memory, contiguous_strides
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.convolution import points
from cubepy.kernels.convolution.launches import Convolution
from cubepy.kernels.matmul.entry import multiply
from cubepy.kernels.matmul.problem import Product, turned
from cubepy.kernels.transposition.entry import copy_transposed

MOST_CHANNELS, LEAST_TAPS = 16, 16
"""The most channels, and the least elements of a window: others read arrays as they lie, and lose
little."""
ROW_UNIT = 16
"""Bytes of which rows of matrices are multiples, for the engine that copies boxes of them."""


def takes_patches(c: Convolution) -> bool:
    """Whether windows share no element, and nothing comes behind but a bias."""
    p, w = c.problem, c.problem.window
    beside = w.kernel == w.stride and w.dilation == (1, 1, 1)
    inside = w.before == (0, 0, 0) and max(w.after) <= 0
    is_few = p.groups == 1 and 0 < p.channels <= MOST_CHANNELS and w.taps >= LEAST_TAPS
    return beside and inside and is_few and c.epilogue is None and points.is_flat(c.out)


def launch_patches(planner: Planner, c: Convolution) -> None:
    """A copy of the array, of the weights where they lie otherwise, and the product."""
    p, kernel = c.problem, c.problem.window.kernel
    order = (2, 3, 4, 1) if p.has_channels_last else (1, 2, 3, 4)
    n, _, *axes = c.x.strides
    outer = n, *(s * k for s, k in zip(axes, kernel, strict=True))
    seen = _in_rows((p.batch, *p.results), outer, c.x, (p.channels, *kernel), order)
    pixels = _matrix(planner, seen, p.batch)
    w = c.weights.volume
    rows = _in_rows((w.shape[0],), w.strides[:1], w, w.shape[1:], order)
    weights = _matrix(planner, rows, 1)
    weights = replace(
        weights, shape=(p.batch, *weights.shape[1:]), strides=(0, *weights.strides[1:])
    )
    out = points.flat(c.out)
    biases = tuple(replace(b, shape=out.shape, strides=(0, b.strides[0], 0)) for b in c.biases)
    if p.puts_channels_last:
        ends = tuple(map(turned, biases))
        multiply(planner, Product(pixels, turned(weights), turned(out), ends, None, ()))
    else:
        multiply(planner, Product(weights, turned(pixels), out, biases, None, ()))


def _in_rows(
    extents: tuple[int, ...],
    strides: tuple[int, ...],
    x: Memory,
    shape: tuple[int, ...],
    order: tuple[int, ...],
) -> Memory:
    """An array as rows, one for each of the `extents`, of the elements that one window sees:
    `shape` has their channels, depth, rows and columns, the axes of `x` from 1 on, which follow
    each other in an `order`."""
    inner = tuple(shape[k - 1] for k in order)
    steps = tuple(x.strides[k] for k in order)
    return replace(x, shape=(*extents, *inner), strides=(*strides, *steps))


def _matrix(planner: Planner, x: Memory, batch: int) -> Memory:
    """[batch, row, element] of rows of elements along the last four axes, in a copy."""
    size, length = x.dtype.itemsize, prod(x.shape[-4:])
    pitch = -(-length * size // ROW_UNIT) * ROW_UNIT
    count = prod(x.shape[:-4])
    made = planner.scratch((count * pitch // size,), x.dtype)
    strides = *contiguous_strides(x.shape[:-4], pitch), *contiguous_strides(x.shape[-4:], size)
    copy_transposed(planner, x, replace(made, shape=x.shape, strides=strides))
    shape = (batch, count // batch, length)
    return replace(made, shape=shape, strides=(count // batch * pitch, pitch, size))
