"""Indexing, views, loads and stores of tensors, in elements and in lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cubepy.frontend.checks import check_index, check_line, check_range, check_start
from cubepy.frontend.tracer import Tracer
from cubepy.frontend.values import (
    FlatRef,
    Index,
    TensorRef,
    as_integer,
    as_items,
    is_number,
    is_slice,
)
from cubepy.frontend.wording import describe, spell
from cubepy.ir import ops
from cubepy.ir.core import Attr, Value
from cubepy.ir.types import DType, Kind, Line, bool_, element_of, make_line, with_element
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where an access goes: an element offset, and where a line lies on its axis.

    A line begins at element `start` of an axis of `extent` elements, and lanes outside do not
    exist; `extent` None means that all do. `is_counted`: whole lines are counted from the first
    element, so that none begins before it. `axis` is how errors call the axis.
    """

    tensor: TensorRef
    offset: Index
    start: Index = 0
    extent: Index | None = None
    alignment: int = 0
    is_counted: bool = False
    axis: int = 0


# Indexing


def load_item(tracer: Tracer, owner: TensorRef | FlatRef, item: Any) -> Any:
    """`x[i, j]`, `x[i]` (a view where axes are missing), `x.flat[i]`."""
    found = locate(tracer, owner, item)
    return load(tracer, found) if isinstance(found, Place) else found


def owner_name(owner: TensorRef | FlatRef) -> str:
    """The name of a tensor, or of what a flat form belongs to."""
    return owner.name if isinstance(owner, TensorRef) else owner.tensor.name


def store_item(tracer: Tracer, owner: TensorRef | FlatRef, item: Any, value: Any) -> None:
    """`x[i, j] = value`."""
    found = locate(tracer, owner, item)
    if not isinstance(found, Place):
        raise tracer.error("E303", name=owner_name(owner), rank=found.rank)
    store(tracer, found, value)


def locate(tracer: Tracer, owner: TensorRef | FlatRef, item: Any) -> Place | TensorRef:
    """What an index means: the place of an element (or line), or a view."""
    if isinstance(owner, FlatRef):
        return _locate_flat(tracer, owner.tensor, item)
    items = as_items(item)
    if len(items) == 1 and items[0] is Ellipsis:
        items = ()
    if len(items) > owner.rank:
        raise tracer.error("E104", name=owner.name, rank=owner.rank, given=len(items))
    if owner.rank > 1 or owner.is_line:
        tracer.facts.shaped.add(owner.name)
    if len(items) < owner.rank or any(isinstance(i, slice) for i in items):
        return _view(tracer, owner, items)
    return _element(tracer, owner, [_index(tracer, i) for i in items])


def _index(tracer: Tracer, item: Any) -> Index:
    found = tracer.index(item)
    if isinstance(found, int) and found < 0:
        raise tracer.error(
            "E207",
            what="an index",
            expected="0 or more",
            given=str(found),
            hint="negative indices do not count from the end; write x.shape[0] - 1 for the last",
        )
    return found


def _element(
    tracer: Tracer, x: TensorRef, indices: Sequence[Index], is_inside: bool = False
) -> Place:
    """The place of an element or line; `is_inside`: the indices have been checked."""
    offset, start = x.offset, 0
    for axis, i in enumerate(indices):
        if not is_inside:
            _check_known(tracer, x, axis, i)
            if tracer.checked:
                check_index(tracer, i, _counted_extent(tracer, x, axis), x.name, x.named_axis(axis))
        if x.is_line and axis == x.axis:
            start = tracer.mul(i, x.width)
            offset = tracer.add(offset, tracer.mul(start, x.strides[axis]))
        else:
            offset = tracer.add(offset, tracer.mul(i, x.strides[axis]))
    return _counted(x, offset, start)


def _counted(x: TensorRef, offset: Index, start: Index) -> Place:
    """The place of an element, or of a whole line that begins at element `start` of its axis."""
    extent = None if x.is_divisible or not x.is_line else x.shape[x.axis]
    return Place(x, offset, start, extent, x.alignment, is_counted=True)


def _check_known(tracer: Tracer, x: TensorRef, axis: int, i: Index) -> None:
    """E207 for an index that is known to lie outside; in an unrolled loop a branch may guard it."""
    extent = x.shape[axis]
    if not isinstance(i, int) or not isinstance(extent, int):
        return
    if tracer.unrolling and tracer.branches > tracer.unrolling[0]:
        return
    if x.is_line and axis == x.axis:
        extent = -(-extent // x.width)
    if i >= extent:
        raise tracer.error(
            "E207",
            what=f"an index of `{x.name}`",
            expected=f"less than {extent}",
            given=str(i),
            hint=f"axis {axis} has the indices from 0 to {extent - 1}" if extent else None,
        )


def _counted_extent(tracer: Tracer, x: TensorRef, axis: int) -> Index:
    """The extent of an axis in elements, or lines of a line tensor; for checked mode alone."""
    if not tracer.checked or not x.is_line or axis != x.axis:
        return x.shape[axis]
    return tracer.lines(x.shape[axis], x.width)


def _locate_flat(tracer: Tracer, x: TensorRef, item: Any) -> Place:
    if isinstance(item, slice):
        hint = f"slice `{x.name}`, or loop over `{x.name}.flat`"
        what, expected = f"an index of `{x.name}.flat`", "a number"
        raise tracer.error("E207", what=what, expected=expected, given="a slice", hint=hint)
    if isinstance(item, tuple):
        given = len(as_items(item))
        hint = "it counts the elements in row-major order, from 0 to x.size - 1"
        raise tracer.error("E104", name=f"{x.name}.flat", rank=1, given=given, hint=hint)
    i = _index(tracer, item)
    if tracer.checked:
        extents = tuple(_counted_extent(tracer, x, axis) for axis in range(x.rank))
        check_index(tracer, i, tracer.product(extents), x.name, 0)
    if x.rank == 0:
        return Place(x, x.offset)
    simple = not x.is_line or x.width == 1 or x.is_divisible or x.rank == 1
    if x.is_linear and simple:
        start = tracer.mul(i, x.width)
        return _counted(x, tracer.add(x.offset, start), start)
    return _element(tracer, x, _unravel(tracer, x, i), is_inside=True)


def _unravel(tracer: Tracer, x: TensorRef, i: Index) -> tuple[Index, ...]:
    """The indices of the i-th element (or line) in row-major order."""
    indices: list[Index] = []
    for axis in range(x.rank - 1, 0, -1):
        extent = x.shape[axis]
        if x.is_line and axis == x.axis:
            extent = tracer.lines(extent, x.width)
        quotient = tracer.floordiv(i, extent)
        indices.append(tracer.sub(i, tracer.mul(quotient, extent)))
        i = quotient
    return (i, *reversed(indices))


def _view(tracer: Tracer, x: TensorRef, items: tuple[Any, ...]) -> TensorRef:
    offset, shape, strides = x.offset, list[Index](), list[Index]()
    axis_map: dict[int, int] = {}
    axes: list[int] = []
    leading = all(not isinstance(i, slice) for i in items)
    for axis in range(x.rank):
        item: Any = items[axis] if axis < len(items) else slice(None)
        scale = x.width if x.is_line and axis == x.axis else 1
        if is_slice(item):
            axis_map[axis] = len(shape)
            axes.append(x.named_axis(axis))
            start, extent, step = _bounds(tracer, x, axis, item, scale)
            shape.append(extent)
            strides.append(tracer.mul(x.strides[axis], step))
        else:
            i = _index(tracer, item)
            check_index(tracer, i, _counted_extent(tracer, x, axis), x.name, x.named_axis(axis))
            start = tracer.mul(i, scale)
            leading = leading and not (x.is_line and axis == x.axis)
        offset = tracer.add(offset, tracer.mul(start, x.strides[axis]))
    if x.is_line and x.axis not in axis_map:
        raise tracer.error("E305", what="the axis of the lines; index it last")
    return replace(
        x,
        offset=offset,
        shape=tuple(shape),
        strides=tuple(strides),
        axis=axis_map.get(x.axis, len(shape) - 1),
        axes=tuple(axes),
        is_linear=x.is_linear and leading,
        is_divisible=x.is_divisible and (leading or not x.is_line),
    )


def _bounds(
    tracer: Tracer, x: TensorRef, axis: int, item: slice[Any, Any, Any], scale: int
) -> tuple[Index, Index, int]:
    """Start and extent in elements, and the step of a slice; the end is cut at the extent."""
    step = 1 if item.step is None else as_integer(item.step)
    if not isinstance(step, int) or step < 1 or (scale > 1 and step != 1):
        hint = "count backwards in the index, as in x[n - 1 - i]"
        raise tracer.error("E305", what="a positive comptime step (1 along lines)", hint=hint)
    first = 0 if item.start is None else _slice_end(tracer, x, axis, item.start)
    check_start(tracer, first, _counted_extent(tracer, x, axis), x.name, x.named_axis(axis))
    start = tracer.mul(first, scale)
    stop = x.shape[axis]
    if item.stop is not None:
        stop = tracer.minimum(stop, tracer.mul(_slice_end(tracer, x, axis, item.stop), scale))
    extent = stop if start == 0 else tracer.maximum(tracer.sub(stop, start), 0)
    return start, tracer.floordiv(tracer.add(extent, step - 1), step), step


def _slice_end(tracer: Tracer, x: TensorRef, axis: int, item: Any) -> Index:
    """Where a slice begins or ends; in checked mode cut, so that no product leaves 64 bits."""
    i = _index(tracer, item)
    if isinstance(i, int) or not tracer.checked:
        return i
    return tracer.maximum(tracer.minimum(i, _counted_extent(tracer, x, axis)), -1)


# Loads


def load(tracer: Tracer, place: Place, fill: Any = 0, hint: str = "") -> Value:
    """The element or line at a place; missing lanes give `fill`."""
    x = place.tensor
    tracer.facts.read.add(x.name)
    if not x.is_line:
        return _emit_load(tracer, place, x.element, hint)
    t = make_line(x.element, x.width)
    if place.extent is None:
        return _emit_load(tracer, place, t, hint)
    return _load_partly(tracer, place, t, fill, hint)


def _emit_load(
    tracer: Tracer,
    place: Place,
    t: DType | Line,
    hint: str,
    mask: Value | None = None,
    fill: Value | None = None,
) -> Value:
    operands = [place.tensor.buffer, tracer.index_value(place.offset)]
    if mask is not None and fill is not None:
        operands += [mask, fill]
    attrs = _attrs(place, t, hint)
    return tracer.b.emit(ops.LOAD, *operands, type=t, name=place.tensor.name, **attrs)


def _attrs(place: Place, t: DType | Line, hint: str) -> dict[str, Attr]:
    attrs: dict[str, Attr] = {}
    size = element_of(t).itemsize * (t.width if isinstance(t, Line) else 1)
    align = min(place.alignment, size & -size)  # lines begin at multiples of their size
    if isinstance(t, Line) and align > t.element.itemsize:
        attrs["align"] = align
    if hint:
        attrs["hint"] = hint
    return attrs


def _load_partly(tracer: Tracer, place: Place, t: Line, fill: Any, hint: str) -> Value:
    """A whole line where all lanes exist, else a masked one; decided at run time."""
    lanes = _lanes(tracer, place, t.width)
    slot = tracer.new_local(t, place.tensor.name)
    with tracer.b.region() as whole:
        tracer.set_number(slot, _emit_load(tracer, place, t, hint))
        tracer.close(ops.YIELD)
    with tracer.b.region() as part:
        mask = _mask(tracer, lanes, t.width)
        filler = tracer.convert(fill, t)
        tracer.set_number(slot, _emit_load(tracer, place, t, "", mask, filler))
        tracer.close(ops.YIELD)
    tracer.if_(_is_whole(tracer, lanes, t.width), whole, part)
    return tracer.read(slot)


def _lanes(tracer: Tracer, place: Place, width: int) -> tuple[Index, Index]:
    """The first lane of the place that exists, and the one behind the last."""
    if place.extent is None:
        return 0, width
    start = place.start
    if place.is_counted:
        first: Index = 0
    else:
        first = max(0, -start) if isinstance(start, int) else tracer.sub(0, start)
    return first, tracer.sub(place.extent, start)


def _is_whole(tracer: Tracer, lanes: tuple[Index, Index], width: int) -> Value:
    """Whether all lanes exist."""
    b, (first, end) = tracer.b, lanes
    fits = b.emit(ops.GE, tracer.index_value(end), b.index(width))
    if first == 0:
        return fits
    starts = b.emit(ops.LE, tracer.index_value(first), b.index(0))
    return b.emit(ops.AND, fits, starts)


def _mask(tracer: Tracer, lanes: tuple[Index, Index], width: int) -> Value:
    """Which lanes exist, as a line of bools."""
    first, end = map(tracer.index_value, lanes)
    return tracer.b.emit(ops.LANE_MASK, first, end, lanes=width)


def lane_mask(tracer: Tracer, place: Place, width: int) -> Value:
    """Which lanes of the place exist."""
    return _mask(tracer, _lanes(tracer, place, width), width)


def line_place(tracer: Tracer, x: TensorRef | FlatRef, item: Any, width: int) -> Place:
    """`width` elements of a scalar tensor from an index on, along its unit-stride axis."""
    tracer.facts.lined.add(owner_name(x))
    if isinstance(x, FlatRef):
        return _flat_line_place(tracer, x.tensor, item)
    items = as_items(item)
    if len(items) != x.rank:
        raise tracer.error("E104", name=x.name, rank=x.rank, given=len(items))
    if x.rank > 1:
        tracer.facts.shaped.add(x.name)
    indices = tuple(tracer.index(i) for i in items)
    offset = x.offset
    for axis, (i, stride) in enumerate(zip(indices, x.strides, strict=True)):
        if axis != x.axis:
            check_index(tracer, i, x.shape[axis], x.name, x.named_axis(axis))
        offset = tracer.add(offset, tracer.mul(i, stride))
    return _lanes_from(tracer, x, offset, indices[x.axis], x.shape[x.axis], x.named_axis(x.axis))


def _flat_line_place(tracer: Tracer, x: TensorRef, item: Any) -> Place:
    if isinstance(item, slice | tuple):
        raise tracer.error("E305", what="axes; .flat takes one index")
    if not x.is_linear:
        raise tracer.error("E305", what="a contiguous tensor for lines of .flat")
    i = tracer.index(item)
    return _lanes_from(tracer, x, tracer.add(x.offset, i), i, tracer.product(x.shape))


def _lanes_from(
    tracer: Tracer, x: TensorRef, offset: Index, i: Index, extent: Index, axis: int = 0
) -> Place:
    """The place of a line that begins at index `i` of an axis, inside or not."""
    if tracer.strict and isinstance(i, Value):
        check_range(tracer, ops.SUB, extent, i)
    return Place(x, offset, i, extent, axis=axis)


def check_lanes(tracer: Tracer, place: Place, width: int) -> None:
    """In checked mode, a fault unless all lanes of a line of a scalar tensor exist."""
    assert place.extent is not None
    check_line(tracer, place.start, width, place.extent, place.tensor.name, place.axis)


def load_line(tracer: Tracer, place: Place, width: int, fill: Any, hint: str) -> Value:
    """Lanes of a scalar tensor as a line; `fill` None promises that all lanes exist."""
    x = place.tensor
    tracer.facts.read.add(x.name)
    t = make_line(x.element, width)
    if fill is None:
        check_lanes(tracer, place, width)
    if x.strides[x.axis] != 1:
        return _gather(tracer, place, t, fill)
    if fill is None:
        return _emit_load(tracer, place, t, hint)
    return _load_partly(tracer, place, t, fill, hint)


def _gather(tracer: Tracer, place: Place, t: Line, fill: Any) -> Value:
    """Lane by lane, where the stride is not one."""
    x, b = place.tensor, tracer.b
    line = tracer.convert(0 if fill is None else fill, t)
    mask = None if fill is None else lane_mask(tracer, place, t.width)
    for lane in range(t.width):
        offset = tracer.add(place.offset, tracer.mul(lane, x.strides[x.axis]))
        there = replace(place, offset=offset)
        exists = None if mask is None else b.emit(ops.EXTRACT, mask, lane=lane)
        filler = b.emit(ops.EXTRACT, line, lane=lane)
        value = _emit_load(tracer, there, t.element, "", exists, filler)
        line = b.emit(ops.INSERT, line, value, lane=lane)
    return line


# Stores


def store(tracer: Tracer, place: Place, value: Any, hint: str = "") -> None:
    """Write an element or line; missing lanes are not written."""
    x = place.tensor
    tracer.facts.written.add(x.name)
    v = stored_value(tracer, x, value, x.value_type)
    if place.extent is None:
        _emit_store(tracer, place, v, hint)
    else:
        _store_partly(tracer, place, v, hint)


def stored_value(tracer: Tracer, x: TensorRef, value: Any, t: DType | Line) -> Value:
    """`value` as it is stored: converted within its kind, to a float from an integer."""
    if not (isinstance(value, Value) or is_number(value) or hasattr(value, "item")):
        raise tracer.error(
            "E205",
            value=describe(value),
            name=x.name,
            type=spell(t),
            example="f32",
            hint="store a number, such as one element: x[i]",
        )
    if is_number(value):
        _check_literal(tracer, x, value)
        return tracer.convert(value, t)
    v = tracer.value(value)
    tree = tracer.literal_of(v)
    source, target = element_of(v.type), element_of(t)
    if source.is_float and not target.is_float:
        raise tracer.error(
            "E205",
            value=f"a value of type {source.name}",
            name=x.name,
            type=spell(t),
            example=target.name,
        )
    if isinstance(v.type, Line) and not isinstance(t, Line):
        raise tracer.error(
            "E205",
            value=f"a {spell(v.type)}",
            name=x.name,
            type=spell(t),
            example="",
            hint="index a lane, as in line[0], or store all with cp.store(x, index, line)",
        )
    if tree is not None:
        tracer.check_fit(tree, target)
    return tracer.cast(v, t)


def _check_literal(tracer: Tracer, x: TensorRef, value: Any) -> None:
    if isinstance(value, float) and not x.element.is_float and x.element.kind is not Kind.BOOL:
        raise tracer.error(
            "E205",
            value=f"the literal {value}",
            name=x.name,
            type=x.element.name,
            example=x.element.name,
        )
    wide = f"store a value that fits, or give `{x.name}` a wider dtype"
    if not isinstance(value, float) and value < 0:
        wide = (
            f"write cp.{x.element.name}({value}) to wrap around, or give `{x.name}` a signed dtype"
        )
    tracer.check_literal(value, x.element, wide)


def _emit_store(
    tracer: Tracer, place: Place, v: Value, hint: str, mask: Value | None = None
) -> None:
    operands = [place.tensor.buffer, tracer.index_value(place.offset), v]
    if mask is not None:
        operands.append(mask)
    assert isinstance(v.type, DType | Line)
    tracer.b.emit_with(ops.STORE, operands, _attrs(place, v.type, hint))


def _store_partly(tracer: Tracer, place: Place, v: Value, hint: str) -> None:
    assert isinstance(v.type, Line)
    width = v.type.width
    lanes = _lanes(tracer, place, width)
    with tracer.b.region() as whole:
        _emit_store(tracer, place, v, hint)
        tracer.close(ops.YIELD)
    with tracer.b.region() as part:
        _emit_store(tracer, place, v, "", _mask(tracer, lanes, width))
        tracer.close(ops.YIELD)
    tracer.if_(_is_whole(tracer, lanes, width), whole, part)


def store_line(
    tracer: Tracer,
    place: Place,
    value: Value,
    hint: str,
    mask: Value | None,
    whole: bool = False,
) -> None:
    """Write the lanes of a line to a scalar tensor; lanes outside the axis are not written.

    `whole` promises that there are none such.
    """
    x = place.tensor
    tracer.facts.written.add(x.name)
    assert isinstance(value.type, Line)
    v = stored_value(tracer, x, value, with_element(value.type, x.element))
    if whole:
        check_lanes(tracer, place, value.type.width)
    if x.strides[x.axis] != 1:
        _scatter(tracer, place, v, mask)
    elif mask is not None:
        exists = lane_mask(tracer, place, value.type.width)
        _emit_store(tracer, place, v, hint, tracer.b.emit(ops.AND, mask, exists))
    elif whole:
        _emit_store(tracer, place, v, hint)
    else:
        _store_partly(tracer, place, v, hint)


def _scatter(tracer: Tracer, place: Place, v: Value, mask: Value | None) -> None:
    x, b = place.tensor, tracer.b
    assert isinstance(v.type, Line)
    exists = lane_mask(tracer, place, v.type.width)
    if mask is not None:
        exists = b.emit(ops.AND, exists, mask)
    for lane in range(v.type.width):
        offset = tracer.add(place.offset, tracer.mul(lane, x.strides[x.axis]))
        there = replace(place, offset=offset)
        value = b.emit(ops.EXTRACT, v, lane=lane)
        _emit_store(tracer, there, value, "", b.emit(ops.EXTRACT, exists, lane=lane))


def mask_of_lanes(tracer: Tracer, x: TensorRef, item: Any) -> Value:
    """`x.lane_mask(index)`: which lanes of that line exist."""
    if not x.is_line:
        return tracer.b.const(True, bool_)
    place = locate(tracer, x, item)
    if not isinstance(place, Place):
        raise tracer.error("E303", name=x.name, rank=place.rank)
    return lane_mask(tracer, place, x.width)
