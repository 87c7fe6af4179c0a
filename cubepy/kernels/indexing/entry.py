"""Reading and writing at computed indices: `gather`, `scatter`."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from cubepy.array.memory import Memory
from cubepy.ir.types import DType, bool_, f32, i64, u8, u16, u32, u64
from cubepy.jit.grid import Over
from cubepy.kernels.calls.arguments import axis_or_dim, normal_axis, refused, wrong
from cubepy.kernels.calls.axes import Axis, in_order, merged, seen
from cubepy.kernels.calls.call import call, run
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.calls.tuned import memory_key
from cubepy.kernels.elementwise.launches import launch_each, same
from cubepy.kernels.elementwise.operands import operands
from cubepy.kernels.indexing.kernel import (
    SliceTiling,
    gather_slices,
    gather_values,
    scatter_anyhow,
    scatter_owned,
)
from cubepy.kernels.indexing.problem import (
    MODES,
    UPDATES,
    Access,
    broadcast_to,
    find_access,
    spread_index,
)
from cubepy.kernels.indexing.sorted import find_targets, scatter_sorted
from cubepy.kernels.indexing.strategies import (
    gather_tiling,
    owned_tiling,
    slice_tilings,
    sorted_tilings,
    takes_any_order,
)
from cubepy.kernels.sorting.entry import sort_keys

_PLANS = Plans()
_BITS: dict[int, DType] = {1: u8, 2: u16, 4: u32, 8: u64}
UNITS = 256
"""Units of a wide cube."""


def gather(
    x: Any, index: Any, axis: int = 0, *, mode: str | None = None, out: Any = None, dim: Any = None
) -> Any:
    """Elements or slices of `x` at the indices along an axis.

    `mode` "elements", as `torch.gather` and `numpy.take_along_axis`: `index` has as many axes as
    `x`, and beside `axis` their extents or 1, which is broadcast; the result has its shape, and
    each element is taken at its own place but for `axis`. "slices", as `numpy.take`: `index` has
    any shape, which stands in the result in place of `axis`. None: elements where `index` has as
    many axes as `x`, else slices (of one axis both mean the same). `index`: integers, but not u64;
    `dim` is the same as `axis`. Gives an array of the library and dtype of `x`, on its device, or
    `out`.

    Negative indices count from the end. One that is out of bounds gives 0; in checked mode it
    raises `OutOfBoundsError`. Raises `LaunchError` for shapes that do not fit and an axis that is
    not there, `LaunchTypeError` for other dtypes.
    """
    if dim is not None:
        axis = axis_or_dim("gather", axis, dim, 0)
    _check_mode("gather", mode)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        x, index = arrays
        which = _indexed_axis("gather", x, axis)
        access = find_access("gather", x, index, which, mode)
        result = planner.result(Shape(access.extents, x.dtype))
        if prod(access.extents):
            _gather(planner, access, _as_bits(x), spread_index(access, index), _as_bits(result))

    return call(_PLANS, "gather", ("x", "index"), (x, index), (axis, mode), make, out)


def scatter(
    x: Any,
    index: Any,
    values: Any,
    axis: int = 0,
    update: str = "assign",
    *,
    mode: str | None = None,
    deterministic: bool = True,
    out: Any = None,
    dim: Any = None,
) -> Any:
    """A copy of `x` with `values` put at the indices along an axis: the inverse of `gather`.

    `index`, `axis` and `mode` are those of `gather`; `values`, of the dtype of `x`, or a number, is
    broadcast to the shape that `gather` gives. `update`: "assign", "add", "mul", "min" or "max"
    says what becomes of the element that is there; several values at one place are applied one
    after the other. `dim` is the same as `axis`. Gives an array of the library and dtype of `x`, or
    `out`, which may be `x`, and then only places that are named are touched.

    `deterministic`: values are applied in row-major order of their indices, on CPUs always; so that
    "assign" keeps the last one. False allows any order, which GPUs do by atomic operations: sums of
    floats then depend on it in their last bits. Sums and products of f16 and bf16 are made in f32
    and rounded once. NaN wins minima and maxima. Negative indices count from the end. A value whose
    index is out of bounds is left out; in checked mode it raises `OutOfBoundsError`, and `out` is
    undefined.

    Raises `LaunchError` for shapes that do not fit, `LaunchTypeError` for other dtypes.
    """
    if dim is not None:
        axis = axis_or_dim("scatter", axis, dim, 0)
    _check_mode("scatter", mode)
    if update not in UPDATES:
        raise wrong("scatter", f"`update` is {update!r}; it is one of {', '.join(UPDATES)}")
    names, given = ("x", "index", "values"), (x, index, values)
    parameters = (axis, mode, update, deterministic)
    key, found = _PLANS.short.known("scatter", names, given, parameters, out)
    if found is not None:
        return found.run(given, 1, out)
    library, arrays = operands("scatter", names, given, of=0)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        x, index, values = arrays
        which = _indexed_axis("scatter", x, axis)
        access = find_access("scatter", x, index, which, mode)
        _check_values(access, x, values, update)
        result = planner.joined(planner.result(Shape(x.shape, x.dtype)), [x])
        if prod(x.shape):
            _scatter(planner, access, (x, index, values, result), update, deterministic)

    short = key, [True] * len(arrays)
    return run(_PLANS, "scatter", library, names, arrays, parameters, make, out, short=short)


def _check_mode(function: str, mode: Any) -> None:
    if mode is not None and mode not in MODES:
        raise wrong(function, f"`mode` is {mode!r}; it is one of {', '.join(MODES)}, or None")


def _indexed_axis(function: str, x: Memory, axis: Any) -> int:
    if not x.shape:
        raise wrong(function, "`x` has no axes, and so none that is indexed")
    return normal_axis(function, len(x.shape), axis)


def _as_bits(x: Memory) -> Memory:
    return replace(x, dtype=_BITS[x.dtype.itemsize])


def _gather(planner: Planner, access: Access, x: Memory, index: Memory, out: Memory) -> None:
    source = access.spread(x)
    strides = zip(out.strides, source.strides[1:], index.strides, strict=True)
    axes = merged([Axis(n, own) for n, own in zip(access.extents, strides, strict=True)])
    axes = axes or [Axis(1, (0, 0, 0))]
    seen_x, seen_index, seen_out = (
        seen(m, axes, k) for m, k in ((source, 1), (index, 2), (out, 0))
    )
    views: dict[str, Any] = {"x": _behind(seen_x, source), "index": seen_index, "out": seen_out}
    rows, columns = prod(a.extent for a in axes[:-1]), axes[-1].extent
    ways = slice_tilings(planner.target, seen_x, seen_index, seen_out)
    if ways:
        key = ("gather", *map(memory_key, views.values()))
        t = planner.pick_among("indexing", key, ways)
        cubes = -(-rows // t.down) * -(-columns // t.columns)
        planner.launch(gather_slices, Over(cubes, "cube", t.units), **views, tiling=t)
        return
    tiling = gather_tiling(planner.target, seen_x, seen_index, seen_out)
    units = -(-rows // tiling.rows) * -(-columns // tiling.columns)
    planner.launch(gather_values, _units(planner, units), **views, tiling=tiling)


def _units(planner: Planner, units: int) -> Over:
    """So many units, in cubes of one on CPUs."""
    if is_wide(planner.target):
        return Over(-(-units // UNITS), "cube", UNITS)
    return Over(units, "cube", 1)


def _behind(x: Memory, source: Memory) -> Memory:
    """Axes of the values behind the indexed axis of `source`."""
    shape, strides = (source.shape[0], *x.shape), (source.strides[0], *x.strides)
    return replace(x, shape=shape, strides=strides)


# Scattering


def _check_values(access: Access, x: Memory, values: Memory, update: str) -> None:
    if values.dtype is not x.dtype:
        what = f"has dtype {values.dtype}, but `x` has {x.dtype}"
        raise refused("scatter", "values", what, "convert one of them")
    if update != "assign" and (x.dtype is bool_ or (x.dtype.is_float and x.dtype.bits == 8)):
        raise refused("scatter", "x", f"has dtype {x.dtype}, which has only update='assign'", "")
    try:
        fits = np.broadcast_shapes(values.shape, access.extents) == access.extents
    except ValueError:
        fits = False
    if not fits:
        reason = f"`values` has shape {values.shape}, but `x` and `index` make {access.extents}"
        raise wrong("scatter", reason)


def _scatter(
    planner: Planner, access: Access, arrays: tuple[Memory, ...], update: str, is_ordered: bool
) -> None:
    """Copy what is updated, in a wider type where sums need it, and update it in place."""
    x, index, values, out = arrays
    index, values = spread_index(access, index), broadcast_to(values, access.extents)
    sums = update in ("add", "mul") and x.dtype.is_float and x.dtype.bits == 16
    if update == "assign":
        x, values, out = _as_bits(x), _as_bits(values), _as_bits(out)
    target = planner.scratch(out.shape, f32) if sums else out
    if target is not x and (target.address, target.strides) != (x.address, x.strides):
        launch_each(planner, f32 if sums else same, [x], target)
    if prod(access.extents):
        anyhow = takes_any_order(planner.target, target.dtype, update, is_ordered)
        _launch_updates(planner, access, (target, index, values), update, anyhow)
    if sums:
        launch_each(planner, out.dtype, [target], out)


def _launch_updates(
    planner: Planner,
    access: Access,
    arrays: tuple[Memory, ...],
    update: str,
    anyhow: bool,
) -> None:
    """Columns, which are all axes but the indexed one, and the updates of each, in their order."""
    out, index, values = arrays
    spread = access.spread(out)
    strides = zip(spread.strides[1:], index.strides, values.strides, strict=True)
    axes = [Axis(n, own) for n, own in zip(access.extents, strides, strict=True)]
    updates = in_order([a for k, a in enumerate(axes) if access.is_indexed(k)])
    *kept, last = merged([a for k, a in enumerate(axes) if not access.is_indexed(k)]) or [
        Axis(1, (0, 0, 0))
    ]
    along = Axis(spread.shape[0], (spread.strides[0], 0, 0))
    seen_out = seen(out, [*kept, along, last])
    seen_index, seen_values = (
        seen(m, [*kept, *updates, last], k + 1) for k, m in enumerate((index, values))
    )
    views = seen_out, seen_index, seen_values
    ways = () if anyhow else sorted_tilings(planner.target, *views, len(kept))
    if ways:
        key = ("scatter", update, *map(memory_key, views))
        t = planner.pick_among("indexing", key, ways)
        _launch_sorted(planner, views, len(kept), update, t)
        return
    tiling = owned_tiling(planner.target, *views)
    bands = -(-last.extent // tiling.columns)
    units = prod(a.extent for a in kept) * bands * tiling.owners
    planner.launch(
        scatter_anyhow if anyhow else scatter_owned,
        _units(planner, prod(access.extents) if anyhow else units),
        out=seen_out,
        index=seen_index,
        values=seen_values,
        kept=len(kept),
        update=update,
        tiling=tiling,
    )


def _launch_sorted(
    planner: Planner, views: tuple[Memory, ...], kept: int, update: str, t: SliceTiling
) -> None:
    """Sort the targets of all updates, and make those of one target together."""
    out, index, values = views
    *outer, columns = out.shape
    own = slice(kept, len(index.shape) - 1)
    index = replace(index, shape=index.shape[own], strides=index.strides[own])
    count, targets = prod(index.shape), outer[-1]
    places, found = (planner.scratch((count,), u32) for _ in range(2))
    order = planner.scratch((count,), i64)
    planner.launch(
        find_targets, Over(count, "unit", UNITS), index=index, out=places, targets=targets
    )
    sort_keys(planner, places, found, order, targets.bit_length())
    cubes = -(-prod(outer[:-1]) * count // t.down) * -(-columns // t.columns)
    planner.launch(
        scatter_sorted,
        Over(cubes, "cube", t.units),
        out=out,
        found=found,
        order=order,
        values=values,
        kept=kept,
        update=update,
        tiling=t,
    )
