"""What the functions of `lang/amx.py` become: one operation each."""

from __future__ import annotations

from typing import Any

from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.tensors import Place, locate
from cubepy.frontend.tracer import Frame, Tracer
from cubepy.frontend.values import Index, TensorRef, as_items
from cubepy.frontend.wording import describe
from cubepy.ir import amx
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Space, find_dtype
from cubepy.lang import amx as lang


@intrinsic(lang.zero)
def _zero(frame: Frame, tile: int) -> None:
    frame.tracer.b.emit_op(amx.ZERO, tile=tile)


@intrinsic(lang.load)
def _load(frame: Frame, tile: int, x: Any, index: Any, step: Any = None) -> None:
    _move(frame, amx.LOAD, tile, x, index, step)


@intrinsic(lang.store)
def _store(frame: Frame, tile: int, x: Any, index: Any, step: Any = None) -> None:
    _move(frame, amx.STORE, tile, x, index, step)


def _move(frame: Frame, row: OpDef, tile: int, x: Any, index: Any, step: Any) -> None:
    """In checked mode the last element is checked too."""
    tracer = frame.tracer
    if not isinstance(x, TensorRef) or x.rank not in (1, 2) or x.is_line:
        expected = "a tensor of one or two axes of scalars"
        raise tracer.error("E207", what="x", expected=expected, given=describe(x))
    width = amx.ROW_BYTES // x.element.itemsize
    step = x.strides[0] if x.rank == 2 else tracer.index(width if step is None else step)
    place = locate(tracer, x, index)
    assert isinstance(place, Place)
    if tracer.checked:
        locate(tracer, x, _end(tracer, index, step, width))
    if getattr(x.buffer.type, "space", None) is Space.GLOBAL:
        known = tracer.facts.read if row is amx.LOAD else tracer.facts.written
        known.add(x.name)
    offset = tracer.index_value(place.offset)
    tracer.b.emit_op(row, x.buffer, offset, tracer.index_value(step), tile=tile)


def _end(tracer: Tracer, index: Any, step: Index, width: int) -> Any:
    """The index of the last element of a tile."""
    last = amx.TILE_ROWS - 1
    items = as_items(index)
    if len(items) == 1:
        rows = tracer.mul(step, last)
        return tracer.add(tracer.add(tracer.index(items[0]), rows), width - 1)
    i, j = map(tracer.index, items)
    return tracer.add(i, last), tracer.add(j, width - 1)


@intrinsic(lang.multiply)
def _multiply(frame: Frame, sums: int, left: int, right: int, dtype: Any) -> None:
    element = find_dtype(dtype)
    assert element is not None
    name = element.name
    frame.tracer.b.emit_op(amx.MULTIPLY, sums=sums, left=left, right=right, elements=name)
