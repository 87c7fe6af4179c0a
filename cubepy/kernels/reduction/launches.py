"""The launches of a reduction over merged axes: kernels, views and stages."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from cubepy.array.memory import Memory
from cubepy.autotune.space import anchor
from cubepy.ir.types import Kind, bool_, i32, u8, u32
from cubepy.jit.grid import Over
from cubepy.kernels.calls.axes import Axis, ascending, merged, seen
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.reduction.kernel import (
    BLOCK,
    accumulate_columns,
    reduce_columns,
    reduce_rows,
)
from cubepy.kernels.reduction.problem import Reduction
from cubepy.kernels.reduction.strategies import (
    Division,
    columns_tiling,
    compensated,
    count_of,
    divisions,
    in_order_tiling,
    is_across,
    is_read_in_order,
    is_small,
    lanes,
    rows_tiling,
    shared_columns_tiling,
    stages,
    wide_columns_tiling,
    wide_rows_tiling,
)
from cubepy.kernels.reduction.wide_kernel import (
    reduce_shared_columns,
    reduce_short_rows,
    reduce_wide_columns,
    reduce_wide_rows,
)


class Reducer:
    """Plans the launches of one reduction of `x` into `out`.

    `kept` axes have strides in the array, in the result and, if there is one, in the centre;
    reduced `axes` in the array. `count` is what means divide by.
    """

    def __init__(
        self,
        planner: Planner,
        op: Reduction,
        count: int,
        centre: Memory | None = None,
        way: Division | None = None,
    ) -> None:
        """`way`: how the whole of which this is a part is divided."""
        self._planner = planner
        self._target = planner.target
        self._given = way
        self._way = way or divisions(self._target)[0]
        self._op = op
        self._count = count
        self._centre = centre

    def launch(self, x: Memory, out: Memory, kept: list[Axis], axes: list[Axis]) -> None:
        """Reduce along lines where a reduced axis is dense, across where a kept one is."""
        x, out = _as_numbers(x), _as_numbers(out)
        size = x.dtype.itemsize
        x, axes = ascending(x, axes)
        axes = merged(axes) or [Axis(1, (size,))]
        kept = merged(kept)
        if self._given is None:
            shape = [(anchor(a.extent), a.strides[0] == size) for a in (*kept, *axes)]
            key = (self._op.key, x.dtype, len(kept), shape, bool(self._centre))
            self._way = self._planner.pick_among("reduction", key, divisions(self._target))
        if is_wide(self._target):
            self._launch_wide(x, out, kept, axes)
            return
        inner, outer = stages(self._way, kept, axes, size)
        if outer:
            self._launch_stages(x, out, kept, inner, outer)
        elif kept and is_across(self._way, self._target, self._op, kept, axes, size):
            self._launch_columns(x, out, kept, axes)
        else:
            self._launch_rows(x, out, kept, axes)

    def _part(self, **changes: None) -> Reducer:
        """The reduction without its function on read or on write."""
        op = replace(self._op, is_compensated=False, **changes)
        centre = self._centre if op.read or op.write else None
        return Reducer(self._planner, op, self._count, centre, self._way)

    def _views(self, kept: list[Axis]) -> tuple[Memory, ...]:
        """The centre as kernels see it."""
        return () if self._centre is None else (seen(self._centre, kept, 2),)

    def _middle(self, axis: Axis) -> tuple[int, ...]:
        """The stride of an axis in the centre, if there is one; that of a reduced axis is 0."""
        if self._centre is None:
            return ()
        return axis.strides[2:] if len(axis.strides) > 1 else (0,)

    def _launch_stages(
        self, x: Memory, out: Memory, kept: list[Axis], inner: list[Axis], outer: list[Axis]
    ) -> None:
        """Reduce the inner axes first, as if the outer ones were kept, in the order of memory."""
        order = sorted([*kept, *outer], key=lambda a: -a.strides[0])
        partial = self._planner.scratch(tuple(a.extent for a in order), self._op.dtype)
        between = dict(zip(order, partial.strides, strict=True))
        first = [Axis(a.extent, (a.strides[0], between[a], *self._middle(a))) for a in order]
        self._part(write=None, epilogue=None).launch(x, partial, first, inner)
        rest = [Axis(a.extent, (between[a], *a.strides[1:])) for a in kept]
        reduced = [Axis(a.extent, (between[a],)) for a in outer]
        self._part(read=None, prologue=None).launch(partial, out, rest, reduced)

    def _launch_rows(self, x: Memory, out: Memory, kept: list[Axis], axes: list[Axis]) -> None:
        tiling = rows_tiling(self._way, self._target, self._op, x, kept, axes)
        is_long = tiling.read(axes) > BLOCK * tiling.unroll * tiling.line
        chunks = max(1, -(-axes[0].extent // tiling.chunk))
        written = seen(out, [*kept, Axis(1, (0, 0))], 1)
        part = self
        if chunks > 1:
            written = self._planner.scratch((*(a.extent for a in kept), chunks), self._op.dtype)
            part = self._part(write=None, epilogue=None)
        self._planner.launch(
            reduce_rows,
            chunks * -(-count_of(kept) // tiling.band),
            x=seen(x, [*kept, *axes]),
            centre=part._views(kept),
            out=written,
            count=self._count,
            op=compensated(part._op, is_long),
            tiling=tiling,
        )
        if chunks > 1:
            self._launch_rest(written, out, kept, len(kept))

    def _launch_columns(self, x: Memory, out: Memory, kept: list[Axis], axes: list[Axis]) -> None:
        way, target, op = self._way, self._target, self._op
        line = lanes(target, op)
        in_order = is_read_in_order(way, target, op, x, kept[-1], axes)
        tiling = columns_tiling(way, target, line, kept, axes)
        if in_order:
            tiling = in_order_tiling(way, target, op, x, line, kept, axes)
        chunks = max(1, -(-axes[0].extent // tiling.chunk))
        is_final = chunks == 1 and not (in_order and (out.dtype is not op.dtype or op.writes))
        written, part = self._columns_result(out, kept, chunks, is_final)
        is_long = not in_order and tiling.read(axes) > 2 * way.chunk_rows
        place = len(kept) - 1
        arguments = {} if in_order else {"count": self._count}
        self._planner.launch(
            accumulate_columns if in_order else reduce_columns,
            prod(written.shape[:-1]) * -(-written.shape[-1] // tiling.band),
            x=seen(x, [*kept[:place], *axes, kept[place]]),
            centre=part._views(kept),
            out=written,
            op=compensated(part._op, is_long),
            tiling=tiling,
            **arguments,
        )
        if not is_final:
            self._launch_rest(written, out, kept, place)

    def _columns_result(
        self, out: Memory, kept: list[Axis], chunks: int, is_final: bool
    ) -> tuple[Memory, Reducer]:
        """What the kernel of columns writes, whose last but one axis counts chunks, and how."""
        place = len(kept) - 1
        if is_final:
            return seen(out, [*kept[:place], Axis(1, (0, 0)), kept[place]], 1), self
        extents = (*(a.extent for a in kept[:place]), chunks, kept[place].extent)
        return self._planner.scratch(extents, self._op.dtype), self._part(write=None, epilogue=None)

    def _launch_rest(self, partial: Memory, out: Memory, kept: list[Axis], place: int) -> None:
        """Reduce partial results, whose chunks lie on the axis `place`."""
        strides = list(partial.strides)
        chunks = Axis(partial.shape[place], (strides.pop(place),))
        rest = [Axis(a.extent, (s, *a.strides[1:])) for a, s in zip(kept, strides, strict=True)]
        self._part(read=None, prologue=None).launch(partial, out, rest, [chunks])

    # Cubes of many units

    def _launch_wide(self, x: Memory, out: Memory, kept: list[Axis], axes: list[Axis]) -> None:
        """Units share a result, or take a line of columns each where a kept axis is dense."""
        size = x.dtype.itemsize
        op = self._op
        if op.dtype.is_integer and op.dtype.bits < 32:  # planes work on words
            self._op = replace(op, dtype=u32 if op.dtype.kind is Kind.UINT else i32)
        columns = kept and kept[-1].strides[0] == size and axes[-1].strides[0] != size
        if columns and not is_small(kept, axes):
            self._launch_wide_columns(x, out, kept, axes)
        else:
            self._launch_wide_rows(x, out, kept, axes)

    def _launch_wide_rows(self, x: Memory, out: Memory, kept: list[Axis], axes: list[Axis]) -> None:
        tiling = wide_rows_tiling(self._way, self._target, self._op, x, kept, axes)
        if tiling.across:
            self._planner.launch(
                reduce_short_rows,
                Over(-(-count_of(kept) * tiling.across // tiling.units), "cube", tiling.units),
                x=seen(x, [*kept, *axes]),
                centre=self._views(kept),
                out=seen(out, [*kept, Axis(1, (0, 0))], 1),
                count=self._count,
                op=self._op,
                tiling=tiling,
            )
            return
        lines = count_of(axes[:-1]) * -(-axes[-1].extent // tiling.line)
        chunks = max(1, -(-lines // tiling.chunk))
        written, part = seen(out, [*kept, Axis(1, (0, 0))], 1), self
        if chunks > 1:
            written = self._planner.scratch((*(a.extent for a in kept), chunks), self._op.dtype)
            part = self._part(write=None, epilogue=None)
        self._planner.launch(
            reduce_wide_rows,
            Over(chunks * count_of(kept), "cube", tiling.units),
            x=seen(x, [*kept, *axes]),
            centre=part._views(kept),
            out=written,
            count=self._count,
            op=part._op,
            tiling=tiling,
        )
        if chunks > 1:
            self._launch_rest(written, out, kept, len(kept))

    def _launch_wide_columns(
        self, x: Memory, out: Memory, kept: list[Axis], axes: list[Axis]
    ) -> None:
        tiling = wide_columns_tiling(self._way, self._target, x, kept, axes)
        chunks = max(1, -(-axes[0].extent // tiling.chunk))
        if chunks > 1 and self._launch_shared_columns(x, out, kept, axes):
            return
        written, part = self._columns_result(out, kept, chunks, chunks == 1)
        lines = -(-written.shape[-1] // tiling.line)
        place = len(kept) - 1
        self._planner.launch(
            reduce_wide_columns,
            Over(-(-prod(written.shape[:-1]) * lines // tiling.units), "cube", tiling.units),
            x=seen(x, [*kept[:place], *axes, kept[place]]),
            centre=part._views(kept),
            out=written,
            count=self._count,
            op=part._op,
            tiling=tiling,
        )
        if chunks > 1:
            self._launch_rest(written, out, kept, place)

    def _launch_shared_columns(
        self, x: Memory, out: Memory, kept: list[Axis], axes: list[Axis]
    ) -> bool:
        """Reduce columns by units above each other, if these have few rows each then."""
        tiling = shared_columns_tiling(self._target, self._op, x, kept, axes)
        if tiling is None:
            return False
        written, _ = self._columns_result(out, kept, 1, True)
        lines = prod(written.shape[:-1]) * -(-written.shape[-1] // tiling.line)
        self._planner.launch(
            reduce_shared_columns,
            Over(-(-lines // tiling.beside), "cube", tiling.units),
            x=seen(x, [*kept[:-1], *axes, kept[-1]]),
            centre=self._views(kept),
            out=written,
            count=self._count,
            op=self._op,
            tiling=tiling,
        )
        return True


def _as_numbers(x: Memory) -> Memory:
    """Bools are the bytes 0 and 1."""
    return replace(x, dtype=u8) if x.dtype is bool_ else x
