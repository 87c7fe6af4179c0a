"""The launches of norms whose statistics are made over any axes, or are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import DType
from cubepy.jit.grid import Over
from cubepy.kernels.calls.axes import Axis, merged, seen
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.calls.tuned import memory_key
from cubepy.kernels.normalisation.beside import (
    blocks_of,
    describe_channels,
    finish_channels,
    normalise_channels,
)
from cubepy.kernels.normalisation.problem import Places
from cubepy.kernels.normalisation.shared_slabs import (
    SharedSlabs,
    describe_slabs,
    normalise_shared,
)
from cubepy.kernels.normalisation.slabs import (
    column_statistics,
    finish_columns,
    normalise_given,
    normalise_slabs,
)
from cubepy.kernels.normalisation.strategies import (
    beside,
    column_parts,
    given_slabs,
    shared_slabs,
    slabs,
)
from cubepy.record import dataclass

DESCRIBING, NORMALISING = (3, 6, 2), (8, 4, 16)
"""Cubes of a multiprocessor that make statistics of channels, and that use them; the preferred
number first."""
JOINING = 128
"""Units that join the parts of a channel."""


@dataclass(frozen=True, slots=True)
class Norm:
    """The operands of one norm, computed in `dtype`.

    All arrays have the axes of `x`, with strides of 0 where they do not vary; `running` are the
    means and variances that are updated, and have the kept axes alone. `places`: where an index of
    the result comes from, for the epilogue.
    """

    x: Memory
    out: Memory
    weights: tuple[Memory, ...]
    biases: tuple[Memory, ...]
    dtype: DType
    eps: float
    places: Places
    epilogue: Callable[..., Any] | None = None
    extras: tuple[Memory, ...] = ()
    prologue: Callable[..., Any] | None = None
    is_centred: bool = True
    running: tuple[Memory, ...] = ()
    momentum: float = 0.0

    @property
    def operands(self) -> tuple[Memory, ...]:
        """The arrays that are walked together."""
        return (self.x, self.out, *self.weights, *self.biases)


def launch_norm(planner: Planner, n: Norm, reduced: tuple[int, ...]) -> None:
    """Normalise over the axes `reduced`: slab by slab, or by columns of memory."""
    kept = [k for k in range(len(n.x.shape)) if k not in reduced]
    if len(kept) == 1 and n.is_centred and _is_across(n, kept[0], reduced):
        _launch_columns(planner, n, kept[0], reduced)
        return
    order, axes, places = _arranged(n, kept, reduced)
    views = _views(n.operands, axes)
    length, rows = axes[-1].extent, prod(a.extent for a in axes[len(order) : -1])
    size, along = (len(order), rows, length), any(axes[-1].strides[2:])
    shared = shared_slabs(planner.target, n.dtype, views[0], views[1], *size)
    if shared is not None and n.is_centred:
        shared = replace(shared, is_along=along, prologue=n.prologue)
        _launch_shared(planner, n, views, places, rows, shared)
        return
    t = slabs(planner.target, n.dtype, views[0], views[1], *size)
    planner.launch(
        normalise_slabs,
        Over(prod(a.extent for a in axes[: len(order)]), "cube", t.units),
        x=views[0],
        weight=tuple(views[2 : 2 + len(n.weights)]),
        bias=tuple(views[2 + len(n.weights) :]),
        running=n.running,
        out=views[1],
        extras=n.extras,
        eps=n.eps,
        momentum=n.momentum,
        epilogue=n.epilogue,
        places=places,
        t=replace(t, is_along=along, is_centred=n.is_centred, prologue=n.prologue),
    )


def _launch_shared(
    planner: Planner, n: Norm, views: list[Memory], places: Places, rows: int, t: SharedSlabs
) -> None:
    """Statistics of parts of slabs by a cube each, and then the norm."""
    x, out = views[:2]
    items, parts = x.shape[: t.items], -(-rows // t.rows) * -(-x.shape[-1] // t.span)
    means, spreads = (planner.scratch((*items, parts), n.dtype) for _ in range(2))
    cubes = Over(prod(items) * parts, "cube", t.units)
    planner.launch(describe_slabs, cubes, x=x, means=means, spreads=spreads, t=t)
    planner.launch(
        normalise_shared,
        cubes,
        x=x,
        means=means,
        spreads=spreads,
        weight=tuple(views[2 : 2 + len(n.weights)]),
        bias=tuple(views[2 + len(n.weights) :]),
        running=n.running,
        out=out,
        extras=n.extras,
        eps=n.eps,
        momentum=n.momentum,
        epilogue=n.epilogue,
        places=places,
        t=t,
    )


def launch_given(planner: Planner, n: Norm, mean: Memory, variance: Memory) -> None:
    """Normalise by means and variances of the axes of `x`."""
    operands = (*n.operands, mean, variance)
    number = len(operands)
    _, axes, places = _arranged(n, [], tuple(range(len(n.x.shape))), operands)
    views = _views(operands, axes)
    is_along = any(axes[-1].strides[2:])
    if is_wide(planner.target) and is_along and not any(any(a.strides[2:]) for a in axes[:-1]):
        _launch_beside(planner, n, views, places)
        return
    length, rows = axes[-1].extent, prod(a.extent for a in axes[:-1])
    t = given_slabs(planner.target, n.dtype, views[0], views[1], rows, length)
    planner.launch(
        normalise_given,
        Over(-(-rows // t.rows), "cube", t.units),
        x=views[0],
        mean=views[number - 2],
        variance=views[number - 1],
        weight=tuple(views[2 : 2 + len(n.weights)]),
        bias=tuple(views[2 + len(n.weights) : number - 2]),
        out=views[1],
        extras=n.extras,
        eps=n.eps,
        epilogue=n.epilogue,
        places=places,
        t=replace(t, is_along=is_along, prologue=n.prologue),
    )


def _launch_beside(planner: Planner, n: Norm, views: Sequence[Memory], places: Places) -> None:
    """Normalise by numbers that lie along the last axis of the views, the same for all rows."""
    x, out, *rest = views
    weights, biases, (mean, variance) = (
        tuple(rest[: len(n.weights)]),
        tuple(rest[len(n.weights) : -2]),
        rest[-2:],
    )
    ways = beside(planner.target, n.dtype, x, out, NORMALISING)
    key = ("channels", n.dtype, memory_key(x), memory_key(out))
    t = planner.pick_among("normalisation", key, ways)
    rows, blocks = prod(x.shape[:-1]), blocks_of(x.shape[-1], t)
    planner.launch(
        normalise_channels,
        Over(-(-rows // t.rows) * blocks, "cube", t.units),
        x=x,
        mean=mean,
        variance=variance,
        weight=weights,
        bias=biases,
        out=out,
        extras=n.extras,
        eps=n.eps,
        epilogue=n.epilogue,
        places=places,
        t=replace(t, prologue=n.prologue),
    )


def _is_across(n: Norm, kept: int, reduced: tuple[int, ...]) -> bool:
    """Whether channels lie side by side, and the elements of a slab do not."""
    size, x = n.x.dtype.itemsize, n.x
    beside = [k for k in reduced if x.shape[k] > 1 and abs(x.strides[k]) == size]
    return x.shape[kept] > 1 and x.strides[kept] == size and not beside


def _launch_columns(planner: Planner, n: Norm, kept: int, reduced: tuple[int, ...]) -> None:
    """Statistics of parts of all rows, those of all parts, and then the norm."""
    own = [Axis(n.x.shape[k], (n.x.strides[k],)) for k in reduced]
    channels = Axis(n.x.shape[kept], (n.x.strides[kept],))
    x = seen(n.x, [*merged(own), channels])
    if is_wide(planner.target):
        mean, variance = (along_axis(m, n.x.shape, kept) for m in _describe(planner, n, x))
        launch_given(planner, n, mean, variance)
        return
    rows = prod(x.shape[:-1])
    t, width = column_parts(planner.target, n.dtype, x, rows)
    parts = -(-rows // t.rows)
    partial = [planner.scratch((parts, channels.extent), n.dtype) for _ in range(2)]
    found = [planner.scratch((channels.extent,), n.dtype) for _ in range(2)]
    planner.launch(
        column_statistics,
        Over(parts * -(-channels.extent // width), "cube", t.units),
        x=x,
        means=partial[0],
        spreads=partial[1],
        width=width,
        t=replace(t, prologue=n.prologue),
    )
    planner.launch(
        finish_columns,
        Over(channels.extent, "cube", 1),
        means=partial[0],
        spreads=partial[1],
        mean=found[0],
        variance=found[1],
        running=n.running,
        rows=rows,
        momentum=n.momentum,
        t=t,
    )
    mean, variance = (along_axis(m, n.x.shape, kept) for m in found)
    launch_given(planner, n, mean, variance)


def _describe(planner: Planner, n: Norm, x: Memory) -> tuple[Memory, Memory]:
    """Means and variances of the columns of `x`, which lie side by side."""
    rows, channels = prod(x.shape[:-1]), x.shape[-1]
    key = ("statistics", n.dtype, memory_key(x))
    ways = beside(planner.target, n.dtype, x, x, DESCRIBING)
    t = replace(planner.pick_among("normalisation", key, ways), prologue=n.prologue)
    parts = -(-rows // t.rows)
    means, spreads = (planner.scratch((parts, channels), n.dtype) for _ in range(2))
    mean, variance = (planner.scratch((channels,), n.dtype) for _ in range(2))
    planner.launch(
        describe_channels,
        Over(parts * blocks_of(channels, t), "cube", t.units),
        x=x,
        means=means,
        spreads=spreads,
        t=t,
    )
    planner.launch(
        finish_channels,
        Over(channels, "cube", JOINING),
        x=x,
        means=means,
        spreads=spreads,
        mean=mean,
        variance=variance,
        running=n.running,
        momentum=n.momentum,
        t=t,
    )
    return mean, variance


def along_axis(x: Memory, shape: Sequence[int], axis: int) -> Memory:
    """An array of one axis as if it had this shape, of which it is one axis."""
    strides = tuple(x.strides[0] if k == axis else 0 for k in range(len(shape)))
    return replace(x, shape=tuple(shape), strides=strides)


def _arranged(
    n: Norm,
    kept: Sequence[int],
    reduced: Sequence[int],
    operands: Sequence[Memory] | None = None,
) -> tuple[Sequence[int], list[Axis], Places]:
    """The kept axes, then the others from the slowest to the fastest: as few as there can be, or
    each for itself where an epilogue asks for an index."""
    operands = n.operands if operands is None else operands
    x = n.x
    own = {k: Axis(x.shape[k], tuple(m.strides[k] for m in operands)) for k in range(len(x.shape))}
    first = [own[k] for k in kept]
    if n.epilogue is None:
        last = merged([own[k] for k in reduced])
        empty = Axis(1, tuple(m.dtype.itemsize if k < 2 else 0 for k, m in enumerate(operands)))
        return kept, [*first, *(last or [empty])], Places()
    order = sorted(reduced, key=lambda k: (x.shape[k] > 1, -abs(x.strides[k])))
    walked = [*kept, *order]
    terms = tuple(
        tuple((walked.index(axis), times) for axis, times in term) for term in n.places.terms
    )
    return kept, [own[k] for k in walked], Places(terms)


def _views(operands: Sequence[Memory], axes: Sequence[Axis]) -> list[Memory]:
    return [seen(m, axes, k) for k, m in enumerate(operands)]
