"""Constant tables that are indexed at run time: tuples of numbers, bytes, and NumPy arrays that a
kernel captures.

Of literals a table has no type until an entry meets one; NumPy arrays and scalars keep theirs. An
index outside is a fault in checked mode, and gives some entry of the table without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any

from cubepy.frontend.checks import check_index
from cubepy.frontend.literals import Look, Number
from cubepy.frontend.promote import NoCommonType, holds, promote, promote_literal
from cubepy.frontend.tracer import Tracer
from cubepy.frontend.values import (
    Index,
    Row,
    Table,
    as_items,
    is_number,
    is_sequence,
    is_slice,
    typed_scalar,
)
from cubepy.frontend.wording import describe
from cubepy.ir import ops
from cubepy.ir.core import Value
from cubepy.ir.types import DType, find_dtype, i32
from cubepy.lang.arrays import is_numpy

MAX_BYTES = 1 << 16
"""Bytes of a table."""
_LONGEST_ROW = 64
"""Entries of a row that can be unpacked; longer ones are indexed."""


def table_of(tracer: Tracer, value: Any, name: str) -> Table | None:
    """A comptime array, bytes or (nested) tuple of numbers as a table; None for anything else.

    E301 for arrays of what is no number, E309 for more than `MAX_BYTES`.
    """
    if isinstance(value, Table):
        return value
    if isinstance(value, Row):
        return value.table
    if is_numpy(value):
        return _of_array(tracer, value, name)
    if isinstance(value, bytes | bytearray | range):
        value = tuple(value)
    shape = _shape(value) if is_sequence(value) else None
    if not shape or 0 in shape:
        return None
    leaves = list(_leaves(value))
    if not all(is_number(x) or typed_scalar(x) for x in leaves):
        return None
    dtype = _common_type(tracer, leaves)
    numbers = tuple([_number(x) for x in leaves])
    return _limited(tracer, Table(name, numbers, dtype, shape))


def _of_array(tracer: Tracer, array: Any, name: str) -> Table:
    dtype = find_dtype(array.dtype)
    if dtype is None or array.size == 0:
        kind = f"an array of {array.dtype}" if array.size else "an empty array"
        suggestion = "tables hold numbers of the types that kernels have"
        raise tracer.error("E301", name=name, type=kind, suggestion=suggestion)
    cast: Any = float if dtype.is_float else dtype
    numbers = tuple([cast(x) for x in array.reshape(-1).tolist()])
    return _limited(tracer, Table(name, numbers, dtype, tuple(array.shape)))


def _limited(tracer: Tracer, table: Table) -> Table:
    nbytes = len(table.numbers) * (table.dtype or i32).itemsize
    if nbytes > MAX_BYTES:
        raise tracer.error("E309", nbytes=nbytes, limit=MAX_BYTES)
    return table


def _shape(value: Any) -> tuple[int, ...] | None:
    """The lengths of nested tuples along each axis; None where they differ."""
    if not is_sequence(value):
        return ()
    inner = {_shape(item) for item in value}
    if len(inner) != 1:
        return None
    (rest,) = inner
    return None if rest is None else (len(value), *rest)


def _leaves(value: Any) -> Iterator[Any]:
    if is_sequence(value):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _number(x: Any) -> Number:
    typed = typed_scalar(x)
    return x if typed is None else typed[1]


def _common_type(tracer: Tracer, leaves: Sequence[Any]) -> DType | None:
    """The common type of typed numbers, which literals beside them take; None of literals alone."""
    types = [typed[0] for x in leaves if not is_number(x) and (typed := typed_scalar(x))]
    if not types:
        return None
    try:
        dtype = reduce(promote, types)
    except NoCommonType:
        left, right = types[0].name, types[-1].name
        raise tracer.error("E202", left=left, right=right, example="u64") from None
    for number in filter(is_number, leaves):
        dtype = promote_literal(number, dtype)
        if not holds(dtype, number):
            raise tracer.error("E203", value=describe(number), type=dtype.name)
    return dtype


def look_up(tracer: Tracer, table: Table, item: Any) -> Any:
    """`TABLE[i]` and `TABLE[i, j]`: an entry, or a row where axes are missing."""
    items = as_items(item)
    if len(items) > len(table.shape):
        raise tracer.error("E104", name=table.name, rank=len(table.shape), given=len(items))
    if any(is_slice(i) for i in items):
        hint = "slice it where the bounds are known, outside of the kernel"
        raise tracer.error("E112", what="the bounds of a slice of a table", hint=hint)
    for axis, i in enumerate(map(tracer.index, items)):
        if isinstance(i, int):
            table = _column(tracer, table, i)
        else:
            check_index(tracer, i, table.shape[0], table.name, axis)
            table = _moved(tracer, table, i)
    return _row(tracer, table) if table.shape else _entry(tracer, table)


def _moved(tracer: Tracer, table: Table, i: Value) -> Table:
    """The part of each row at an index of its first axis, which is only known at run time."""
    extent, position = table.shape[0], table.position
    if position == 0:
        return replace(table, position=i, shape=table.shape[1:])
    inside = i if tracer.checked else tracer.maximum(tracer.minimum(i, extent - 1), 0)
    whole = position if tracer.checked else _clamped(tracer, table)
    position = tracer.add(tracer.mul(whole, extent), inside)
    return replace(table, position=position, shape=table.shape[1:])


def _clamped(tracer: Tracer, table: Table) -> Index:
    """The row that a position means: it is clamped before it is multiplied."""
    last = len(table.numbers) // prod(table.shape) - 1
    return tracer.maximum(tracer.minimum(table.position, last), 0)


def _column(tracer: Tracer, table: Table, k: int) -> Table:
    """The part of each row at an index of its first axis that is known, as Python counts."""
    extent, inner = table.shape[0], prod(table.shape[1:])
    if not -extent <= k < extent:
        error = f"IndexError: {k} is outside an axis of {extent} of `{table.name}`"
        raise tracer.error("E113", error=error)
    starts = range(k % extent * inner, len(table.numbers), extent * inner)
    numbers = tuple([number for start in starts for number in table.numbers[start : start + inner]])
    return replace(table, numbers=numbers, shape=table.shape[1:])


def _row(tracer: Tracer, row: Table) -> Any:
    if row.shape[0] > _LONGEST_ROW:
        return row
    columns = [_column(tracer, row, k) for k in range(row.shape[0])]
    return Row([_row(tracer, c) if c.shape else _entry(tracer, c) for c in columns], row)


def _entry(tracer: Tracer, table: Table) -> Value | Number:
    """The number at a position: a literal of the table's, or a value of its type."""
    position = tracer.index_value(table.position)
    if table.dtype is None:
        return tracer.literal_value(Look(position, table.numbers))
    return tracer.b.emit(ops.LOOKUP, position, type=table.dtype, table=table.numbers)
