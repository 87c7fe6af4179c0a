"""Sorting: `sort`, `topk`."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from operator import index
from typing import Any

from cubepy.array.memory import Memory
from cubepy.autotune.space import anchor
from cubepy.ir.types import bool_, i64, u8
from cubepy.jit.grid import Over
from cubepy.kernels.calls.arguments import axis_or_dim, normal_axis, refused, shown, wrong
from cubepy.kernels.calls.axes import Axis, merged, seen
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.calls.tuned import memory_key
from cubepy.kernels.scan.entry import running_sums
from cubepy.kernels.sorting.digits import (
    DigitTiling,
    count_digits,
    move_digits,
    sort_whole,
)
from cubepy.kernels.sorting.merges import MergeTiling, merge_runs, sort_blocks
from cubepy.kernels.sorting.parts import PartTiling, count_part, move_part
from cubepy.kernels.sorting.problem import Order, make_order
from cubepy.kernels.sorting.radix import RadixTiling, sort_rows
from cubepy.kernels.sorting.selection import SelectTiling, select_rows
from cubepy.kernels.sorting.strategies import tilings

_PLANS = Plans()


def sort(
    x: Any,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,
    *,
    out: Any = None,
    dim: Any = None,
) -> tuple[Any, Any]:
    """The elements in order along an axis, and where they were; as `torch.sort`.

    `x`: any shape with at least one axis, any strides and dtype but 8-bit floats; `dim` is the same
    as `axis`. Gives (values, indices) in the library of `x`, on its device, with its order of axes
    in memory, values of its dtype and indices of i64; or `out`, a pair. Elements ascend, or descend
    if `descending`; NaN is greater than any number. Equal elements, and all NaN, keep their order,
    whatever `stable` says.

    Method: on CPUs radix sort of each row by one thread, or by several of few long rows, or
    insertion of short ones; on GPUs blocks in shared memory by a bitonic network, which are merged,
    or radix sort of long rows by all cubes. Scratch is two arrays of a row for each thread, or two
    of the size of `x`. Raises `LaunchError` for an axis that is not there, and `LaunchTypeError`
    for what is no array.
    """
    if dim is not None:
        axis = axis_or_dim("sort", axis, dim, -1)
    return _sort("sort", x, axis, None, bool(descending), out)


def topk(
    x: Any,
    k: int,
    axis: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: Any = None,
    dim: Any = None,
) -> tuple[Any, Any]:
    """The `k` greatest elements along an axis, and where they are; as `torch.topk`.

    The greatest comes first, or of the least with `largest` False the least, whatever `sorted`
    says; of equal elements the first is taken and comes first. All else is as in `sort`; on CPUs
    few elements are kept while a row is read, in order or to select from them by digits; on
    GPUs few elements of long rows are selected by a bound that is found first. Raises `LaunchError`
    also where `k` is negative or more than the axis has.
    """
    if dim is not None:
        axis = axis_or_dim("topk", axis, dim, -1)
    try:
        wanted = index(k)
    except TypeError:
        raise refused("topk", "k", f"is {shown(k)}; it takes an int", "") from None
    return _sort("topk", x, axis, wanted, bool(largest), out)


def _sort(function: str, x: Any, axis: Any, wanted: int | None, descends: bool, out: Any) -> Any:

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan(planner, arrays[0], axis, wanted, descends)

    key = (axis, wanted, descends)
    return call(_PLANS, function, ("x",), (x,), key, make, out, 2)


# What is done for one signature


def _plan(planner: Planner, x: Memory, axis: Any, wanted: int | None, descends: bool) -> None:
    function, rank = planner.function, len(x.shape)
    if x.dtype.is_float and x.dtype.bits == 8:
        raise refused(function, "x", f"has dtype {x.dtype}", "convert it to f16")
    along = normal_axis(function, rank, axis)
    n = x.shape[along]
    count = n if wanted is None else wanted
    if not 0 <= count <= n:
        raise wrong(function, f"`k` is {count}, and axis {along} of `x` has {n} elements")
    extents = (*x.shape[:along], count, *x.shape[along + 1 :])
    order = tuple(sorted(range(rank), key=lambda a: -abs(x.strides[a])))
    values = planner.result(Shape(extents, x.dtype, order))
    indices = planner.result(Shape(extents, i64, order))
    if not prod(extents):
        return
    if x.dtype is bool_:
        x, values = replace(x, dtype=u8), replace(values, dtype=u8)
    arrays = (x, values, indices)
    rest = merged(
        [Axis(m, tuple(a.strides[k] for a in arrays)) for k, m in enumerate(x.shape) if k != along]
    )
    sizes = (n, count, count)
    views = [
        seen(a, [*rest, Axis(size, tuple(b.strides[along] for b in arrays))], number)
        for number, (a, size) in enumerate(zip(arrays, sizes, strict=True))
    ]
    _launch(planner, make_order(x.dtype, descends, n), views)


def sort_keys(planner: Planner, x: Memory, values: Memory, indices: Memory, bits: int) -> None:
    """Sort unsigned integers of one axis, of which the lowest `bits` differ."""
    _launch(planner, make_order(x.dtype, False, x.shape[0]), [x, values, indices], bits)


def _launch(planner: Planner, how: Order, views: list[Memory], bits: int | None = None) -> None:
    """`bits`: how many of a key's differ, if that is known."""
    x, values, indices = views
    rows, n = prod(x.shape[:-1]), x.shape[-1]
    dense = x.strides[-1] == x.dtype.itemsize
    ways = tilings(planner.target, how, n, rows, values.shape[-1], dense)
    key = (how, memory_key(x), anchor(values.shape[-1]))
    tiling = planner.pick_among("sorting", key, ways)
    if isinstance(tiling, RadixTiling):
        _launch_radix(planner, how, views, tiling)
    elif isinstance(tiling, SelectTiling):
        grid = Over(rows, "cube", tiling.units)
        results: dict[str, Any] = {"values": values, "indices": indices}
        planner.launch(select_rows, grid, x=x, **results, how=how, tiling=tiling)
    elif isinstance(tiling, DigitTiling) and tiling.is_whole:
        grid, results = Over(rows, "cube", tiling.units), {"values": values, "indices": indices}
        planner.launch(sort_whole, grid, x=x, **results, how=how, t=tiling)
    elif isinstance(tiling, DigitTiling | PartTiling):
        _launch_digits(planner, how, views, tiling, how.dtype.bits if bits is None else bits)
    else:
        _launch_merges(planner, how, views, tiling)


def _launch_radix(planner: Planner, how: Order, views: list[Memory], tiling: RadixTiling) -> None:
    x, values, indices = views
    n = x.shape[-1]
    held = values.shape[-1] if tiling.keeps else min(n, tiling.room or n)
    extents = (tiling.slots, 2, held)
    planner.launch(
        sort_rows,
        tiling.slots,
        x=x,
        keys=planner.scratch(extents, how.key),
        order=planner.scratch(extents, how.position),
        values=values,
        indices=indices,
        how=how,
        tiling=tiling,
    )


def _launch_digits(
    planner: Planner, how: Order, views: list[Memory], t: DigitTiling | PartTiling, bits: int
) -> None:
    """Sort rows digit by digit, between two places for keys and positions."""
    x, values, indices = views
    rows, n = prod(x.shape[:-1]), x.shape[-1]
    count, move = count_digits, move_digits
    if isinstance(t, PartTiling):
        count, move = count_part, move_part
    tiles, shifts = t.tiles(n), range(0, max(1, bits), t.digit)
    counts, sums = (planner.scratch((rows, tiles << t.digit), how.position) for _ in range(2))
    flat = replace(x, shape=(rows, n))
    halves = [_runs(planner, how, flat) for _ in range(min(2, len(shifts) - 1))]
    grid = Over(rows * tiles, "cube", t.units)
    source: tuple[Memory, ...] = ()
    for number, shift in enumerate(shifts):
        into = halves[number % 2] if number + 1 < len(shifts) else ()
        more: dict[str, Any] = {"x": x, "source": source, "shift": shift, "how": how, "t": t}
        planner.launch(count, grid, counts=counts, **more)
        running_sums(planner, counts, sums)
        results = {"into": into, "values": values, "indices": indices}
        planner.launch(move, grid, sums=sums, **results, **more)
        source = into


def _launch_merges(planner: Planner, how: Order, views: list[Memory], tiling: MergeTiling) -> None:
    x, values, indices = views
    rows, n = prod(x.shape[:-1]), x.shape[-1]
    is_one = n <= tiling.block
    halves = [
        () if is_one else _runs(planner, how, x) for _ in range(1 if n <= 2 * tiling.block else 2)
    ]
    results: dict[str, Any] = {"values": values, "indices": indices, "how": how}
    grid = Over(rows * -(-n // tiling.block), "cube", tiling.units)
    planner.launch(sort_blocks, grid, x=x, runs=halves[0], tiling=tiling, **results)
    run, source = tiling.block, 0
    units = Over(rows * n, "unit", 256)
    while run < n:
        target = () if 2 * run >= n else halves[1 - source]
        arguments = {"source": halves[source], "target": target, "run": run}
        planner.launch(merge_runs, units, x=x, **arguments, **results)
        run, source = 2 * run, 1 - source


def _runs(planner: Planner, how: Order, x: Memory) -> tuple[Memory, ...]:
    """Scratch for the keys and positions of all elements."""
    return planner.scratch(x.shape, how.key), planner.scratch(x.shape, how.position)
