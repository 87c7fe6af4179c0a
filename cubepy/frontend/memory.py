"""Memory by name: `cp.load`, `cp.store`, prefetches, and allocations of cubes and units."""

from __future__ import annotations

import math
from typing import Any

from cubepy.frontend.checks import unchecked
from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.tensors import Place, line_place, load, load_line, locate, store, store_line
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import FlatRef, TensorRef, as_integer, as_items, is_comptime
from cubepy.frontend.wording import describe
from cubepy.ir import ops
from cubepy.ir.core import SHARED_ALIGNMENT, Region, Value
from cubepy.ir.types import Buffer, Line, Space, find_dtype, index
from cubepy.lang import builtins as lang


def _tensor(frame: Frame, x: Any, what: str) -> TensorRef | FlatRef:
    if not isinstance(x, TensorRef | FlatRef):
        hint = f"give tensor and index apart, as in {what}(x, i)" if isinstance(x, Value) else None
        raise frame.tracer.error(
            "E207", what=what, expected="a tensor", given=describe(x), hint=hint
        )
    return x


def _place(frame: Frame, x: TensorRef | FlatRef, index: Any) -> Place:
    place = locate(frame.tracer, x, index)
    if not isinstance(place, Place):
        raise frame.tracer.error("E303", name=place.name, rank=place.rank)
    return place


@intrinsic(lang.load)
def _load(
    frame: Frame,
    x: Any,
    index: Any,
    line: int | None = None,
    fill: Any = 0,
    hint: str | None = None,
) -> Value:
    tensor = _tensor(frame, x, "cp.load")
    if line is None:
        return load(frame.tracer, _place(frame, tensor, index), fill, hint or "")
    width = _width(frame, line)
    place = line_place(frame.tracer, tensor, index, width)
    return load_line(frame.tracer, place, width, fill, hint or "")


def _width(frame: Frame, line: Any) -> int:
    line = as_integer(line)
    if not isinstance(line, int) or line < 1:
        raise frame.tracer.error(
            "E207",
            what="line=",
            expected="a positive comptime integer",
            given=describe(line),
            hint="use a literal or a cp.Comptime parameter",
        )
    return line


@intrinsic(lang.store)
def _store(
    frame: Frame,
    x: Any,
    index: Any,
    value: Any,
    hint: str | None = None,
    whole: bool = False,
    mask: Any = None,
) -> None:
    tensor = _tensor(frame, x, "cp.store")
    base = tensor.tensor if isinstance(tensor, FlatRef) else tensor
    if isinstance(value, Value) and isinstance(value.type, Line) and not base.is_line:
        place = line_place(frame.tracer, tensor, index, value.type.width)
        store_line(frame.tracer, place, value, hint or "", mask, whole)
    else:
        store(frame.tracer, _place(frame, tensor, index), value, hint or "")


@intrinsic(lang.prefetch)
def _prefetch(frame: Frame, x: Any, index: Any, level: Any = 1) -> None:
    if level not in (1, 2, 3):
        raise frame.tracer.error("E207", what="level=", expected="1, 2 or 3", given=describe(level))
    tracer = frame.tracer
    with unchecked(tracer):
        place = _place(frame, _tensor(frame, x, "cp.prefetch"), index)
    offset = tracer.index_value(place.offset)
    tracer.b.emit_op(ops.PREFETCH, place.tensor.buffer, offset, level=level)


@intrinsic(lang.misalignment)
def _misalignment(frame: Frame, x: Any, index: Any, line: int) -> Value:
    tensor = _tensor(frame, x, "cp.misalignment")
    tracer = frame.tracer
    with unchecked(tracer):
        place = _place(frame, tensor, index)
    width, offset = _width(frame, line), tracer.index_value(place.offset)
    buffer, size = place.tensor.buffer, width * place.tensor.element.itemsize
    is_shared = buffer.type == Buffer(place.tensor.element, Space.SHARED)
    if is_shared and size <= SHARED_ALIGNMENT:
        return tracer.b.emit(ops.MOD, offset, tracer.index_value(width))
    return tracer.b.emit(ops.MISALIGNMENT, buffer, offset, bytes=size)


def _allocate(frame: Frame, shape: Any, dtype: Any, space: Space) -> TensorRef:
    extents = tuple(map(as_integer, as_items(shape)))
    wrong = [n for n in extents if is_comptime(n) and not (isinstance(n, int) and n >= 0)]
    if wrong:
        what, given = f"the shape of cp.{space.value}", describe(wrong[0])
        raise frame.tracer.error("E207", what=what, expected="integers from 0 on", given=given)
    if not all(isinstance(n, int) and n >= 0 for n in extents):
        hint = "shapes of arguments are runtime values; take the size from a cp.Comptime parameter"
        raise frame.tracer.error("E112", what=f"the shape of cp.{space.value}", hint=hint)
    line = dtype if isinstance(dtype, Line) else None
    element = line.element if line else find_dtype(dtype)
    if element is None:
        raise frame.tracer.error(
            "E207", what=f"cp.{space.value}", expected="a dtype", given=describe(dtype)
        )
    width = line.width if line else 1
    counted = (*extents[:-1], extents[-1] * width) if extents else ()
    buffer = frame.tracer.b.emit(
        ops.ALLOC,
        type=element,
        size=math.prod(counted) if counted else 1,
        space=space.value,
        name=space.value,
    )
    strides = tuple(math.prod(counted[k + 1 :]) for k in range(len(counted)))
    return TensorRef(
        space.value,
        buffer,
        element,
        0,
        counted,
        strides,
        line is not None,
        width,
        len(counted) - 1,
        is_linear=True,
        alignment=64,
    )


@intrinsic(lang.shared)
def _shared(frame: Frame, shape: Any, dtype: Any) -> TensorRef:
    return _allocate(frame, shape, dtype, Space.SHARED)


@intrinsic(lang.local)
def _local(frame: Frame, shape: Any, dtype: Any, fill: Any = None) -> TensorRef:
    x = _allocate(frame, shape, dtype, Space.LOCAL)
    if fill is not None:
        _fill(frame, x, fill, math.prod(n for n in x.shape if isinstance(n, int)) // x.width)
    return x


_MOST_REGISTERS = 128
"""Elements that are filled one by one, so that they may live in registers."""


def _fill(frame: Frame, x: TensorRef, fill: Any, count: int) -> None:
    """Store `fill` in all elements; a loop does so in arrays that no registers hold."""
    tracer = frame.tracer
    if count <= _MOST_REGISTERS:
        for k in range(count):
            store(tracer, _place(frame, FlatRef(x), k), fill)
        return
    bounds = [tracer.index_value(k) for k in (0, count, 1)]
    position = Value(index, "k")
    with tracer.b.region() as body, unchecked(tracer):
        store(tracer, _place(frame, FlatRef(x), position), fill)
        tracer.close(ops.CONTINUE)
    tracer.b.emit_op(ops.FOR, *bounds, regions=(Region((position,), tuple(body)),))
