"""Windows of one element: the pixels that they see, as columns or rows of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from cubepy.array.memory import Memory
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.convolution.copies import copy_dense
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.volumes import VOLUME, channels_last, permuted
from cubepy.kernels.transposition.entry import copy_transposed


def seen(problem: Problem, x: Memory) -> Memory:
    """The elements of [n, channel, depth, row, column] that windows of one element see."""
    steps = zip(x.strides[2:], problem.window.stride, strict=True)
    strides = (*x.strides[:2], *(s * step for s, step in steps))
    return replace(x, shape=(*x.shape[:2], *problem.results), strides=strides)


def is_flat(x: Memory) -> bool:
    """Whether all pixels of an image lie at one distance."""
    return _are_even(x.shape[2:], x.strides[2:])


def flat(x: Memory) -> Memory:
    """[n, channel, pixel] of an array whose pixels lie at one distance."""
    step = _distance(x, x.shape[2:], x.strides[2:])
    return replace(x, shape=(*x.shape[:2], prod(x.shape[2:])), strides=(*x.strides[:2], step))


def dense(planner: Planner, problem: Problem, x: Memory) -> Memory:
    """What windows see, with pixels at one distance; a copy where there is none."""
    found = seen(problem, x)
    if is_flat(found):
        return found
    if not problem.has_channels_last:
        made = planner.scratch(found.shape, x.dtype)
        copy_dense(planner, found, made)
        return made
    last = channels_last(found)
    made = planner.scratch(last.shape, x.dtype)
    copy_dense(planner, last, made)
    return permuted(made, VOLUME)


def can_lie_in_rows(problem: Problem, x: Memory, out: Memory) -> bool:
    """Whether each result depends on the element in the same place, and both have their pixels at
    one distance: rows may then be as long as one likes."""
    is_in_place = problem.window.is_point and problem.window.stride == (1, 1, 1)
    return is_in_place and is_flat(x) and is_flat(out)


def in_rows(x: Memory, columns: int) -> Memory:
    """Such an array in rows of so many pixels."""
    pixels = flat(x)
    count, step = pixels.shape[2], pixels.strides[2]
    shape = (*x.shape[:2], 1, count // columns, columns)
    return replace(x, shape=shape, strides=(*x.strides[:2], count * step, columns * step, step))


def matrix(planner: Planner, x: Memory) -> Memory:
    """[1, pixel, channel] of all images; a copy where their pixels do not lie at one distance."""
    last = channels_last(x)
    if not _are_even(last.shape[:4], last.strides[:4]):
        made = planner.scratch(last.shape, x.dtype)
        copy_transposed(planner, last, made)
        last = made
    step = _distance(x, last.shape[:4], last.strides[:4])
    shape = (1, prod(last.shape[:4]), last.shape[4])
    return replace(last, shape=shape, strides=(0, step, last.strides[4]))


def _are_even(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements lie at one distance, in the order of their axes."""
    step, steps = None, zip(reversed(shape), reversed(strides), strict=True)
    for extent, stride in steps:
        if extent > 1:
            if step is not None and stride != step:
                return False
            step = stride * extent
    return True


def _distance(x: Memory, shape: Sequence[int], strides: Sequence[int]) -> int:
    """The distance of such elements."""
    steps = [s for n, s in zip(shape, strides, strict=True) if n > 1]
    return steps[-1] if steps else x.dtype.itemsize
