"""Permutations of axes: `transpose`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import DType, u8, u16, u32, u64
from cubepy.jit.grid import Over
from cubepy.kernels.calls.arguments import normal_axes, wrong
from cubepy.kernels.calls.axes import Axis, merged, seen
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.elementwise.launches import launch_each, same
from cubepy.kernels.transposition.kernel import transpose_shared, transpose_tiles
from cubepy.kernels.transposition.strategies import transpose_tiling

_PLANS = Plans()
_BITS: dict[int, DType] = {1: u8, 2: u16, 4: u32, 8: u64}
"""Elements are moved as bits; the types by their bytes."""
UNITS = 256
"""Units of a wide cube."""


def transpose(x: Any, axes: Sequence[int] | None = None, *, out: Any = None) -> Any:
    """The elements of `x` with its axes in another order, in new memory.

    `x`: any shape, strides and dtype. `axes`: for each axis of the result the axis of `x` that it
    is, as in `numpy.transpose`; None: the reverse order. Gives a row-major array of the library and
    dtype of `x`, on its device, or `out`, which shares no memory with `x`. Use the transpose of the
    library itself where a view is enough; this is for kernels that need rows in memory.

    Bits are kept, those of NaN also. Raises `LaunchError` unless `axes` names each axis once,
    `LaunchTypeError` for what is no array.
    """

    def make(planner: Planner, arrays: list[Memory]) -> None:
        (x,) = arrays
        order = _order(len(x.shape), axes)
        result = planner.result(Shape(tuple(x.shape[k] for k in order), x.dtype))
        turned = replace(x, shape=result.shape, strides=tuple(x.strides[k] for k in order))
        copy_transposed(planner, turned, result)

    return call(_PLANS, "transpose", ("x",), (x,), (axes,), make, out)


def _order(rank: int, axes: Any) -> tuple[int, ...]:
    if axes is None:
        return tuple(reversed(range(rank)))
    given = axes if isinstance(axes, tuple | list) else (axes,)
    if len(given) != rank:
        raise wrong("transpose", f"`axes` is {axes!r}, but `x` has {rank} axes")
    return normal_axes("transpose", rank, given, "axes")


def _in_words(x: Memory, out: Memory) -> tuple[Memory, Memory]:
    """Arrays of one shape as bits; elements that lie beside each other in both are one word, where
    the extent of their axis allows."""
    size = x.dtype.itemsize
    for axis, n in enumerate(x.shape):
        wide, pair = n * size, (x, out)
        dense = n > 1 and all(m.strides[axis] == size for m in pair)
        if dense and wide in _BITS and all(_is_of(m, axis, wide) for m in pair):
            return _in_words(_of_words(x, axis), _of_words(out, axis))
    return (replace(x, dtype=_BITS[size]), replace(out, dtype=_BITS[size]))


def _is_of(x: Memory, axis: int, nbytes: int) -> bool:
    """Whether all elements beside an axis are aligned to so many bytes."""
    steps = (
        s for k, (n, s) in enumerate(zip(x.shape, x.strides, strict=True)) if k != axis and n > 1
    )
    return x.address % nbytes == 0 and all(s % nbytes == 0 for s in steps)


def _of_words(x: Memory, axis: int) -> Memory:
    """Whole axes of elements as words."""
    n = x.shape[axis]
    strides = tuple(0 if k == axis else s for k, s in enumerate(x.strides))
    shape = tuple(1 if k == axis else e for k, e in enumerate(x.shape))
    return replace(x, dtype=_BITS[n * x.dtype.itemsize], shape=shape, strides=strides)


def copy_transposed(planner: Planner, x: Memory, out: Memory) -> None:
    """A copy between arrays of one shape, in tiles where each has a dense axis of its own, which is
    the last of `out`; else element by element."""
    if not prod(out.shape):
        return
    x, out = _in_words(x, out)
    size = x.dtype.itemsize
    axes = merged(
        [
            Axis(n, pair)
            for n, pair in zip(out.shape, zip(out.strides, x.strides, strict=True), strict=True)
        ]
    )
    own = next((a for a in axes[:-1] if a.strides[1] == size), None)
    if own is None or axes[-1].strides[0] != size:
        launch_each(planner, same, [x], out)
        return
    rest = [a for a in axes[:-1] if a is not own]
    read = seen(x, [*rest, axes[-1], own], 1)
    written = seen(out, [*rest, own, axes[-1]])
    tiling = transpose_tiling(planner.target, read)
    height, width = read.shape[-2:]
    blocks = -(-height // tiling.band) * -(-width // tiling.columns) * prod(read.shape[:-2])
    wide = is_wide(planner.target)
    planner.launch(
        transpose_shared if wide else transpose_tiles,
        Over(blocks, "cube", UNITS if wide else 1),
        x=read,
        out=written,
        tiling=tiling,
    )
