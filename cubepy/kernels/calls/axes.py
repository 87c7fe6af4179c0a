"""Axes of arrays that are walked together: sorted, merged where they follow each other, turned.

Metadata only: kernels get views whose few axes are as long as they can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cubepy.array.memory import Memory
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis and its stride, in bytes, in each of the arrays that share it."""

    extent: int
    strides: tuple[int, ...]

    def ends_on(self, outer: Axis) -> bool:
        """Whether a step of `outer` is one past the end of this axis, in all arrays."""
        return outer.strides == tuple(self.extent * s for s in self.strides)


def merged(axes: Sequence[Axis]) -> list[Axis]:
    """The axes from the slowest to the fastest of the first array, as few as there can be."""
    return in_order(sorted(axes, key=lambda a: -abs(a.strides[0])))


def in_order(axes: Sequence[Axis]) -> list[Axis]:
    """The axes as they follow each other, as few as there can be; those of one element are none."""
    found: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if found and axis.ends_on(found[-1]):
            found[-1] = replace(axis, extent=found[-1].extent * axis.extent)
        else:
            found.append(axis)
    return found


def ascending(x: Memory, axes: Sequence[Axis]) -> tuple[Memory, list[Axis]]:
    """`x` and its axes, turned so that they ascend in memory; for axes whose order is no matter."""
    back = sum((a.extent - 1) * min(0, a.strides[0]) for a in axes if a.extent)
    turned = [replace(a, strides=(abs(a.strides[0]),)) for a in axes]
    return replace(x, address=x.address + back), turned


def seen(x: Memory, axes: Sequence[Axis], number: int = 0) -> Memory:
    """`x`, which is array `number` of the axes, with these axes for its own."""
    strides = tuple(a.strides[number] for a in axes)
    return replace(x, shape=tuple(a.extent for a in axes), strides=strides)


def with_last(x: Memory, axis: int) -> Memory:
    """An array whose axis `axis` comes behind the others."""
    order = [*(k for k in range(len(x.shape)) if k != axis), axis]
    return seen(x, [Axis(x.shape[k], (x.strides[k],)) for k in order])
