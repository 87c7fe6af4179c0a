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
    return normal_axes("transpose", rank, given)


def _as_bits(x: Memory) -> Memory:
    return replace(x, dtype=_BITS[x.dtype.itemsize])


def copy_transposed(planner: Planner, x: Memory, out: Memory) -> None:
    """A copy between arrays of one shape, in tiles where each has a dense axis of its own, which is
    the last of `out`; else element by element."""
    if not prod(out.shape):
        return
    x, out = _as_bits(x), _as_bits(out)
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
