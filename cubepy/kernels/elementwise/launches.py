"""Launches that apply a function to each element; other families end here too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from cubepy.array.memory import Memory
from cubepy.errors import CompileError
from cubepy.jit.grid import Over
from cubepy.kernels.calls.arguments import wrong
from cubepy.kernels.calls.axes import Axis, merged, seen
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.elementwise.kernel import MapTiling, map_lines, map_rows
from cubepy.kernels.elementwise.strategies import tiling_for

LINES = 256
"""Lines of a wide cube, one or two of each unit."""


def broadcast(function: str, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to; E601 where there is none."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        reason = f"the shapes {', '.join(str(s) for s in shapes)} do not broadcast"
        raise wrong(function, reason) from None


def _stride(x: Memory, axis: int) -> int:
    """The stride of an axis counted from the end; 0 where it is broadcast."""
    return x.strides[axis] if -axis <= len(x.shape) and x.shape[axis] != 1 else 0


def same(v: Any) -> Any:
    """For `launch_each`: a copy, converted to the type of the result."""
    return v


def launch_each(planner: Planner, function: Any, inputs: Sequence[Memory], out: Memory) -> None:
    """`function` of the elements of `inputs`, broadcast to `out`; nothing where that is empty."""
    if not prod(out.shape):
        return
    axes = [
        Axis(n, (out.strides[k], *(_stride(x, k - len(out.shape)) for x in inputs)))
        for k, n in enumerate(out.shape)
    ]
    _launch(planner, function, inputs, out, axes)


def _launch(
    planner: Planner, function: Any, inputs: Sequence[Memory], out: Memory, axes: Sequence[Axis]
) -> None:
    """Lines where the function takes them, else one element after the other."""
    arrays = [out, *inputs]
    walked = merged(axes) or [Axis(1, tuple(a.dtype.itemsize for a in arrays))]
    views = [seen(a, walked, k) for k, a in enumerate(arrays)]
    tiling = tiling_for(planner.target, views)
    try:
        _launch_tiled(planner, function, views, tiling)
    except CompileError as error:
        if error.code not in ("E201", "E204", "E207", "E208"):
            raise
        _launch_tiled(planner, function, views, replace(tiling, line=1, ahead=0))


def _launch_tiled(
    planner: Planner, function: Any, views: Sequence[Memory], tiling: MapTiling
) -> None:
    out, *inputs = views
    line, columns = tiling.line, tiling.columns
    if is_wide(planner.target):
        lines = prod(out.shape[:-1]) * -(-out.shape[-1] // line)
        grid = Over(-(-lines // LINES), "cube", LINES // tiling.unroll)
        planner.launch(
            map_lines, grid, function=function, inputs=tuple(inputs), out=out, tiling=tiling
        )
        return
    bands = -(-(out.shape[-1] + line - 1) // columns)
    planner.launch(
        map_rows,
        bands * -(-prod(out.shape[:-1]) // tiling.rows),
        function=function,
        inputs=tuple(inputs),
        out=out,
        tiling=tiling,
    )
