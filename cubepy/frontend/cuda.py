"""What the names of `cp.cuda` become: one operation each, see `ir/cuda.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.frontend.checks import check, checked_where, unchecked
from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.tensors import Place, locate
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import FlatRef, Index, TensorMapRef, TensorRef, as_items
from cubepy.frontend.wording import describe
from cubepy.ir import cuda, ops
from cubepy.ir.core import Value
from cubepy.ir.numbers import limits
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Line, Space, bool_, find_dtype, i32, index, u16, u32, width_of
from cubepy.lang import cuda as lang

Handler = Callable[..., Any]
_MOST_AWAITED = (1 << 20) - 1
"""Bytes of bulk copies that a barrier counts."""


# Arguments


def _wrong(frame: Frame, what: str, expected: str, given: Any) -> Exception:
    return frame.tracer.error("E207", what=what, expected=expected, given=describe(given))


def _tensor(frame: Frame, what: str, x: Any, space: Space | None) -> TensorRef:
    base = x.tensor if isinstance(x, FlatRef) else x
    expected = f"a tensor in {space.value} memory" if space else "a tensor"
    if not isinstance(base, TensorRef):
        raise _wrong(frame, what, expected, x)
    buffer = base.buffer.type
    if space is not None and getattr(buffer, "space", None) is not space:
        raise _wrong(frame, what, expected, x)
    return base


def _address(
    frame: Frame, what: str, x: Any, item: Any, space: Space | None, elements: Any = 1
) -> tuple[Value, Value]:
    """Buffer and offset of `x[item]`; in checked mode the last of the elements is checked too, and
    where their number is of run time and may be 0 both only for others."""
    _tensor(frame, what, x, space)
    tracer = frame.tracer
    count = tracer.index(elements) if tracer.checked else 1
    if isinstance(count, int):
        place = _place(frame, x, item)
        if count > 1:
            _check_last(frame, x, item, count)
    else:
        with unchecked(tracer):
            place = _place(frame, x, item)
        _check_where(frame, tracer.b.emit(ops.GT, count, tracer.b.index(0)), x, item, count)
    return place.tensor.buffer, tracer.index_value(place.offset)


def _check_last(frame: Frame, x: Any, item: Any, elements: Index) -> None:
    """Check the last of the elements from `x[item]` on along the last axis."""
    *outer, first = as_items(item)
    tracer = frame.tracer
    last = tracer.add(tracer.index(first), tracer.sub(elements, 1))
    _place(frame, x, (*outer, last) if outer else last)


def _check_where(frame: Frame, condition: Value, x: Any, item: Any, elements: Index) -> None:
    """In checked mode, check both ends of a run of elements where the condition holds."""
    if frame.tracer.checked:
        with checked_where(frame.tracer, condition):
            _place(frame, x, item)
            _check_last(frame, x, item, elements)


def _place(frame: Frame, x: Any, item: Any) -> Place:
    place = locate(frame.tracer, x, item)
    if not isinstance(place, Place):
        raise frame.tracer.error("E303", name=place.name, rank=place.rank)
    return place


def _shared(frame: Frame, what: str, x: Any, item: Any, elements: Any = 1) -> tuple[Value, Value]:
    return _address(frame, what, x, item, Space.SHARED, elements)


def _read(frame: Frame, what: str, x: Any, item: Any, elements: Any) -> tuple[Value, Value]:
    frame.tracer.facts.read.add(_tensor(frame, what, x, Space.GLOBAL).name)
    return _address(frame, what, x, item, Space.GLOBAL, elements)


def _written(frame: Frame, what: str, x: Any, item: Any, elements: Any) -> tuple[Value, Value]:
    frame.tracer.facts.written.add(_tensor(frame, what, x, Space.GLOBAL).name)
    return _address(frame, what, x, item, Space.GLOBAL, elements)


def _number(frame: Frame, x: Any, dtype: DType) -> Value:
    """An integer as a type of the instruction; E207 for anything else, E203 where it cannot be."""
    if isinstance(x, Value) and x.type is dtype:
        return x
    number = frame.tracer.index(x, "this argument")
    if isinstance(number, int):
        return frame.tracer.literal(number, dtype)
    return frame.tracer.cast(number, dtype)


def _comptime(frame: Frame, what: str, x: Any) -> int:
    if isinstance(x, bool) or not isinstance(x, int):
        raise _wrong(frame, what, "a comptime integer", x)
    return x


def _flag(frame: Frame, what: str, x: Any) -> bool:
    if not isinstance(x, bool):
        raise _wrong(frame, what, "True or False", x)
    return x


def _line(frame: Frame, what: str, x: Any) -> Value:
    if not isinstance(x, Value) or not isinstance(x.type, Line):
        raise _wrong(frame, what, "a line", x)
    return x


def _number_or_line(frame: Frame, what: str, x: Any) -> Value:
    if not isinstance(x, Value) or not isinstance(x.type, DType | Line):
        raise _wrong(frame, what, "a number or a line", x)
    return x


def _elements(frame: Frame, what: str, given: Any) -> str:
    """The kind of the elements of a product, by the name that PTX has for it."""
    if given == "tf32":
        return "tf32"
    dtype = None if isinstance(given, str) else find_dtype(given)
    if dtype is None:
        raise _wrong(frame, f"elements= of {what}", 'a dtype or "tf32"', given)
    return dtype.name


def _emit(frame: Frame, row: OpDef, *operands: Value, **attrs: Any) -> None:
    frame.tracer.b.emit_op(row, *operands, **attrs)


def _without_arguments(stub: Any, row: OpDef) -> None:
    def handler(frame: Frame) -> None:
        _emit(frame, row)

    intrinsic(stub)(handler)


for _row in (
    *(cuda.COMMIT_COPIES, cuda.FENCE_BARRIERS, cuda.FENCE_ASYNC, cuda.COMMIT_BULK),
    *(cuda.CLUSTER_SYNC, cuda.WGMMA_FENCE, cuda.WGMMA_COMMIT),
):
    _without_arguments(lang.NAMES[_row.name.removeprefix("cuda_")], _row)

# Any architecture


@intrinsic(lang.ptx)
def _ptx(
    frame: Frame, template: Any, *operands: Any, result: Any = None, update: Any = None
) -> Value | None:
    if not isinstance(template, str):
        raise _wrong(frame, "cp.cuda.ptx", "the text of PTX", template)
    t = result if isinstance(result, Line) or result is None else find_dtype(result)
    if result is not None and t is None:
        raise _wrong(frame, "result= of cp.cuda.ptx", "a dtype or a line", result)
    values = [frame.tracer.value(x) for x in operands]
    if update is not None:
        if result is not None:
            raise _wrong(frame, "result= of cp.cuda.ptx with update=", "nothing", result)
        first = frame.tracer.value(update)
        return frame.tracer.b.emit(cuda.PTX_UPDATE, first, *values, template=template)
    attrs: dict[str, Any] = {"template": template} | ({} if t is None else {"type": t})
    op = frame.tracer.b.emit_op(cuda.PTX, *values, **attrs)
    return op.result if op.results else None


@intrinsic(lang.address)
def _address_of(frame: Frame, x: Any, index: Any) -> Value:
    place = _address(frame, "cp.cuda.address", x, index, None)
    tensor = _tensor(frame, "cp.cuda.address", x, None)
    if tensor.is_argument:  # what is done with the address is not known
        frame.tracer.facts.read.add(tensor.name)
        frame.tracer.facts.written.add(tensor.name)
    return frame.tracer.b.emit(cuda.ADDRESS, *place)


# Asynchronous copies and matrices


@intrinsic(lang.async_copy)
def _async_copy(
    frame: Frame,
    shared: Any,
    index: Any,
    x: Any,
    x_index: Any,
    elements: Any,
    present: Any = None,
) -> None:
    what = "cp.cuda.async_copy"
    count = _comptime(frame, f"elements= of {what}", elements)
    target = _shared(frame, what, shared, index, count)
    size = count * _tensor(frame, what, shared, None).element.itemsize
    if present is None:
        source = _read(frame, what, x, x_index, count)
        _emit(frame, cuda.COPY_ASYNC, *target, *source, bytes=size)
    else:
        with unchecked(frame.tracer):  # what is not present may lie outside
            source = _read(frame, what, x, x_index, count)
        condition = frame.tracer.convert(present, bool_)
        _check_where(frame, condition, x, x_index, count)
        _emit(frame, cuda.COPY_ASYNC, *target, *source, condition, bytes=size)


@intrinsic(lang.async_wait)
def _async_wait(frame: Frame, count: Any = 0) -> None:
    _emit(frame, cuda.WAIT_COPIES, count=_comptime(frame, "cp.cuda.async_wait", count))


@intrinsic(lang.ldmatrix)
def _ldmatrix(
    frame: Frame, shared: Any, index: Any, count: Any = 4, transposed: Any = False
) -> Value:
    what = "cp.cuda.ldmatrix"
    attrs: dict[str, Any] = {
        "count": _comptime(frame, f"count= of {what}", count),
        "transposed": _flag(frame, f"transposed= of {what}", transposed),
    }
    row = 16 // _tensor(frame, what, shared, Space.SHARED).element.itemsize
    place = _shared(frame, what, shared, index, max(1, row))
    return frame.tracer.b.emit(cuda.LDMATRIX, *place, **attrs)


@intrinsic(lang.stmatrix)
def _stmatrix(frame: Frame, shared: Any, index: Any, value: Any, transposed: Any = False) -> None:
    what = "cp.cuda.stmatrix"
    place = _shared(frame, what, shared, index, 8)
    flag = _flag(frame, f"transposed= of {what}", transposed)
    _emit(frame, cuda.STMATRIX, *place, _line(frame, what, value), transposed=flag)


@intrinsic(lang.mma)
def _mma(frame: Frame, a: Any, b: Any, c: Any, elements: Any) -> Value:
    kind = _elements(frame, "cp.cuda.mma", elements)
    if kind == "f64":
        operands = [_number_or_line(frame, "cp.cuda.mma", x) for x in (a, b, c)]
        square = width_of(operands[2].type) == 2
        return frame.tracer.b.emit(cuda.MMA_F64_SQUARE if square else cuda.MMA_F64, *operands)
    operands = [_line(frame, "cp.cuda.mma", x) for x in (a, b, c)]
    return frame.tracer.b.emit(cuda.MMA, *operands, elements=kind)


# Barriers and bulk copies


@intrinsic(lang.barrier_init)
def _barrier_init(frame: Frame, barrier: Any, index: Any, count: Any) -> None:
    place = _shared(frame, "cp.cuda.barrier_init", barrier, index)
    _emit(frame, cuda.BARRIER_INIT, *place, _number(frame, count, u32))


@intrinsic(lang.barrier_arrive)
def _barrier_arrive(frame: Frame, barrier: Any, index: Any) -> None:
    _emit(frame, cuda.BARRIER_ARRIVE, *_shared(frame, "cp.cuda.barrier_arrive", barrier, index))


@intrinsic(lang.barrier_expect)
def _barrier_expect(frame: Frame, barrier: Any, index: Any, nbytes: Any) -> None:
    what = "cp.cuda.barrier_expect"
    place = _shared(frame, what, barrier, index)
    _check_most(frame, what, nbytes, _MOST_AWAITED, "bytes")
    _emit(frame, cuda.BARRIER_EXPECT, *place, _number(frame, nbytes, u32))


@intrinsic(lang.barrier_try_wait)
def _barrier_try_wait(frame: Frame, barrier: Any, index: Any, parity: Any) -> Value:
    place = _shared(frame, "cp.cuda.barrier_try_wait", barrier, index)
    return frame.tracer.b.emit(cuda.BARRIER_TRY_WAIT, *place, _number(frame, parity, u32))


def _nbytes(frame: Frame, x: Any, what: str, elements: Any) -> Value:
    """The bytes of so many elements."""
    size = _tensor(frame, what, x, None).element.itemsize
    return _number(frame, frame.tracer.mul(frame.tracer.index(elements), size), u32)


def _check_count(frame: Frame, x: Any, what: str, elements: Any) -> None:
    """The bytes of so many elements are a u32, see `_check_most`."""
    most = limits(u32)[1] // _tensor(frame, what, x, None).element.itemsize
    _check_most(frame, what, elements, most, "elements")


def _check_most(frame: Frame, what: str, given: Any, most: int, unit: str) -> None:
    """E207 unless a number of comptime is from 0 to `most`, in checked mode a fault for others."""
    tracer, taken = frame.tracer, f"0 to {most} {unit}"
    if isinstance(given, int) and not 0 <= given <= most:
        raise tracer.error("E207", what=what, expected=taken, given=str(given))
    number = tracer.index(given) if tracer.checked else 0
    if isinstance(number, Value):
        b = tracer.b
        not_less = b.emit(ops.GE, number, b.index(0))
        fits = b.emit(ops.AND, not_less, b.emit(ops.LE, number, b.index(most)))
        check(tracer, fits, "assert", f"{what} takes {taken}", 0)


@intrinsic(lang.bulk_load)
def _bulk_load(
    frame: Frame,
    shared: Any,
    index: Any,
    x: Any,
    x_index: Any,
    elements: Any,
    barrier: Any,
    barrier_index: Any,
    hint: Any = None,
) -> None:
    what = "cp.cuda.bulk_load"
    attrs = _hint(frame, what, hint)
    _check_count(frame, shared, what, elements)
    target = _shared(frame, what, shared, index, elements)
    source = _read(frame, what, x, x_index, elements)
    nbytes = _nbytes(frame, shared, what, elements)
    arrival = _shared(frame, what, barrier, barrier_index)
    _emit(frame, cuda.BULK_LOAD, *target, *source, nbytes, *arrival, **attrs)


@intrinsic(lang.bulk_store)
def _bulk_store(
    frame: Frame,
    x: Any,
    x_index: Any,
    shared: Any,
    index: Any,
    elements: Any,
    hint: Any = None,
) -> None:
    what = "cp.cuda.bulk_store"
    attrs = _hint(frame, what, hint)
    _check_count(frame, shared, what, elements)
    target = _written(frame, what, x, x_index, elements)
    source = _shared(frame, what, shared, index, elements)
    nbytes = _nbytes(frame, shared, what, elements)
    _emit(frame, cuda.BULK_STORE, *target, *source, nbytes, **attrs)


def _box(frame: Frame, what: str, tensor: Any, origin: Any) -> tuple[TensorMapRef, list[Value]]:
    """A tensor map, and the coordinates of the first element of a box, the innermost first."""
    if not isinstance(tensor, TensorMapRef):
        raise _wrong(frame, what, "a parameter annotated as cp.cuda.TensorMap", tensor)
    axes = tensor.axes or len(tensor.box)
    return tensor, _coordinates(frame, what, "an origin", origin, axes, i32)


def _coordinates(
    frame: Frame, what: str, noun: str, given: Any, count: int, dtype: DType
) -> list[Value]:
    """So many numbers, the innermost first."""
    items = as_items(given)
    if len(items) != count:
        expected = f"{noun} of {count} coordinates"
        raise frame.tracer.error("E207", what=what, expected=expected, given=str(len(items)))
    return [_number(frame, x, dtype) for x in reversed(items)]


def _hint(frame: Frame, what: str, given: Any) -> dict[str, Any]:
    if given not in (None, *cuda.HINTS):
        raise _wrong(frame, f"hint= of {what}", " or ".join(map(repr, cuda.HINTS)), given)
    return {} if given is None else {"hint": given}


@intrinsic(lang.tensor_load)
def _tensor_load(
    frame: Frame,
    shared: Any,
    index: Any,
    tensor: Any,
    origin: Any,
    barrier: Any,
    barrier_index: Any,
    multicast: Any = None,
    offsets: Any = None,
    hint: Any = None,
) -> None:
    what = "cp.cuda.tensor_load"
    attrs = _hint(frame, what, hint)
    found, coordinates = _box(frame, what, tensor, origin)
    if found.axes:
        given = () if offsets is None else offsets
        coordinates += _coordinates(frame, what, "offsets", given, found.axes - 2, u16)
    elif offsets is not None:
        raise _wrong(frame, f"offsets= of {what}", "a map of cp.cuda.tensor_map_im2col", tensor)
    target = _shared(frame, what, shared, index)
    arrival = _shared(frame, what, barrier, barrier_index)
    frame.tracer.facts.read.add(found.name)
    operands = (*target, found.value, *arrival)
    if multicast is None:
        row = cuda.IM2COL_LOAD if found.axes else cuda.TENSOR_LOAD
        _emit(frame, row, *operands, *coordinates, **attrs)
    else:
        row = cuda.IM2COL_MULTICAST if found.axes else cuda.TENSOR_MULTICAST
        _emit(frame, row, *operands, _number(frame, multicast, u16), *coordinates, **attrs)


def _stored_box(
    frame: Frame, what: str, tensor: Any, origin: Any, shared: Any, index: Any
) -> tuple[Value, ...]:
    """The operands of what changes a box of global memory: the map, the source, the coordinates."""
    found, coordinates = _box(frame, what, tensor, origin)
    if found.axes:
        raise _wrong(frame, what, "a map of cp.cuda.tensor_map", tensor)
    frame.tracer.facts.written.add(found.name)
    return (found.value, *_shared(frame, what, shared, index), *coordinates)


@intrinsic(lang.tensor_store)
def _tensor_store(
    frame: Frame, tensor: Any, origin: Any, shared: Any, index: Any, hint: Any = None
) -> None:
    what = "cp.cuda.tensor_store"
    attrs = _hint(frame, what, hint)
    operands = _stored_box(frame, what, tensor, origin, shared, index)
    _emit(frame, cuda.TENSOR_STORE, *operands, **attrs)


@intrinsic(lang.tensor_reduce)
def _tensor_reduce(
    frame: Frame,
    tensor: Any,
    origin: Any,
    shared: Any,
    index: Any,
    operation: Any = "add",
    hint: Any = None,
) -> None:
    what = "cp.cuda.tensor_reduce"
    if not isinstance(operation, str) or operation not in cuda.REDUCTIONS:
        raise _wrong(frame, f"operation= of {what}", ", ".join(cuda.REDUCTIONS), operation)
    attrs = _hint(frame, what, hint)
    operands = _stored_box(frame, what, tensor, origin, shared, index)
    frame.tracer.facts.read.add(tensor.name)
    _emit(frame, cuda.TENSOR_REDUCE, *operands, operation=operation, **attrs)


@intrinsic(lang.bulk_wait)
def _bulk_wait(frame: Frame, count: Any = 0, read: Any = False) -> None:
    what = "cp.cuda.bulk_wait"
    flag = _flag(frame, f"read= of {what}", read)
    _emit(frame, cuda.WAIT_BULK, count=_comptime(frame, what, count), read=flag)


# Clusters


@intrinsic(lang.cluster_rank)
def _cluster_rank(frame: Frame) -> Value:
    return frame.tracer.cast(frame.tracer.b.emit(cuda.CLUSTER_RANK), index)


@intrinsic(lang.cluster_load)
def _cluster_load(frame: Frame, shared: Any, index: Any, rank: Any) -> Value:
    place = _shared(frame, "cp.cuda.cluster_load", shared, index)
    return frame.tracer.b.emit(cuda.CLUSTER_LOAD, *place, _number(frame, rank, u32))


@intrinsic(lang.cluster_store)
def _cluster_store(frame: Frame, shared: Any, index: Any, rank: Any, value: Any) -> None:
    place = _shared(frame, "cp.cuda.cluster_store", shared, index)
    element = _tensor(frame, "cp.cuda.cluster_store", shared, None).element
    number = frame.tracer.convert(value, element)
    _emit(frame, cuda.CLUSTER_STORE, *place, _number(frame, rank, u32), number)


@intrinsic(lang.cluster_arrive)
def _cluster_arrive(frame: Frame, barrier: Any, index: Any, rank: Any, fence: Any = True) -> None:
    what = "cp.cuda.cluster_arrive"
    place = _shared(frame, what, barrier, index)
    flag = _flag(frame, f"fence= of {what}", fence)
    _emit(frame, cuda.CLUSTER_ARRIVE, *place, _number(frame, rank, u32), fence=flag)


# Warpgroups


@intrinsic(lang.increase_registers)
def _increase_registers(frame: Frame, count: Any) -> None:
    number = _comptime(frame, "cp.cuda.increase_registers", count)
    _emit(frame, cuda.SET_REGISTERS, count=number, grow=True)


@intrinsic(lang.decrease_registers)
def _decrease_registers(frame: Frame, count: Any) -> None:
    number = _comptime(frame, "cp.cuda.decrease_registers", count)
    _emit(frame, cuda.SET_REGISTERS, count=number, grow=False)


@intrinsic(lang.wgmma)
def _wgmma(
    frame: Frame,
    sums: Any,
    a: Any,
    b: Any,
    elements: Any,
    a_transposed: Any = False,
    b_transposed: Any = False,
    accumulate: Any = True,
) -> Value:
    what = "cp.cuda.wgmma"
    operands = [_line(frame, what, sums), frame.tracer.value(a), frame.tracer.value(b)]
    is_known = isinstance(accumulate, bool)
    if not is_known:
        operands.append(frame.tracer.truth(accumulate))
    kinds = as_items(elements)
    if len(kinds) not in (1, 2):
        raise _wrong(frame, f"elements= of {what}", "one dtype, or two", elements)
    of_a, of_b = kinds[0], kinds[-1]
    attrs: dict[str, Any] = {
        "a_elements": _elements(frame, what, of_a),
        "b_elements": _elements(frame, what, of_b),
        "a_transposed": _flag(frame, f"a_transposed= of {what}", a_transposed),
        "b_transposed": _flag(frame, f"b_transposed= of {what}", b_transposed),
        "accumulate": accumulate if is_known else True,
    }
    return frame.tracer.b.emit(cuda.WGMMA, *operands, **attrs)


@intrinsic(lang.wgmma_wait)
def _wgmma_wait(frame: Frame, sums: Any, count: Any = 0) -> Value:
    what = "cp.cuda.wgmma_wait"
    line = _line(frame, what, sums)
    return frame.tracer.b.emit(cuda.WGMMA_WAIT, line, count=_comptime(frame, what, count))
