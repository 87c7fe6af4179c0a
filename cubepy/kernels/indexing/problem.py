"""What is gathered or scattered: how the axes of index, values and array belong together."""

from __future__ import annotations

from dataclasses import replace

from cubepy.array.memory import Memory
from cubepy.ir.types import bool_, u64
from cubepy.kernels.calls.arguments import refused, wrong
from cubepy.record import dataclass

MODES = ("elements", "slices")
UPDATES = ("assign", "add", "mul", "min", "max")


@dataclass(frozen=True, slots=True)
class Access:
    """The extents of the gathered or scattered values, and which of their axes is what.

    `axis`: the axis of `x` that is indexed; values have `count` axes in its place, all others are
    those of `x`. `by_elements`: the index has all these axes, not only its own.
    """

    extents: tuple[int, ...]
    axis: int
    count: int
    by_elements: bool

    def is_indexed(self, k: int) -> bool:
        """Whether axis k of the values stands in the place of the indexed one."""
        return self.axis <= k < self.axis + self.count

    def spread(self, x: Memory) -> Memory:
        """`x` as the values have its axes, after the indexed one; that is 0 of what they index."""
        inside = (0,) * self.count
        strides = (*x.strides[: self.axis], *inside, *x.strides[self.axis + 1 :])
        shape, along = (x.shape[self.axis], *self.extents), x.strides[self.axis]
        return replace(x, shape=shape, strides=(along, *strides))


def find_access(function: str, x: Memory, index: Memory, axis: int, mode: str | None) -> Access:
    """How `index` indexes `x`; E601 where their shapes do not fit, E602 for other dtypes."""
    if index.dtype.is_float or index.dtype in (bool_, u64):
        what = f"has dtype {index.dtype}; it takes integers up to i64"
        raise refused(function, "index", what, "convert it to int64")
    rank = len(x.shape)
    by_elements = len(index.shape) == rank > 1 if mode is None else mode == "elements"
    if not by_elements:
        around = x.shape[:axis], x.shape[axis + 1 :]
        return Access((*around[0], *index.shape, *around[1]), axis, len(index.shape), False)
    fits = len(index.shape) == rank and all(
        k == axis or m in (1, n) for k, (m, n) in enumerate(zip(index.shape, x.shape, strict=True))
    )
    if not fits:
        reason = (
            f"`index` has shape {index.shape} and `x` {x.shape}, which differ beside axis {axis}"
        )
        raise wrong(function, reason, 'mode="slices" takes indices of whole slices')
    extents = (*x.shape[:axis], index.shape[axis], *x.shape[axis + 1 :])
    return Access(extents, axis, 1, True)


def spread_index(access: Access, index: Memory) -> Memory:
    """`index` with the axes of the values."""
    if access.by_elements:
        return broadcast_to(index, access.extents)
    before = len(access.extents) - access.axis - access.count
    strides = (*(0,) * access.axis, *index.strides, *(0,) * before)
    return replace(index, shape=access.extents, strides=strides)


def broadcast_to(x: Memory, extents: tuple[int, ...]) -> Memory:
    """`x` with axes of these extents; those that it lacks or has one element of stand still."""
    missing = len(extents) - len(x.shape)
    own = tuple(0 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True))
    return replace(x, shape=extents, strides=(*(0,) * missing, *own))
