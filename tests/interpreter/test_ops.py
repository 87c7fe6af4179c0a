"""Every operation of the table on the interpreter, against its evaluation."""

from __future__ import annotations

import math

import pytest

from cubepy.artifact import Data
from cubepy.compilers.python import emit
from cubepy.compilers.python import ops as spell
from cubepy.errors import UnsupportedError
from cubepy.ir import amx, cuda, metal, ops
from cubepy.ir.build import Builder
from cubepy.ir.core import Attr, Kernel, Op, Param, Region, Value
from cubepy.ir.evaluate import evaluate
from cubepy.ir.numbers import Number
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import (
    Buffer,
    DType,
    Type,
    bf16,
    bool_,
    element_of,
    f16,
    f32,
    f64,
    i8,
    i32,
    index,
    make_line,
    u64,
    width_of,
)
from tests.interpreter.harness import Cells, run_ir
from tests.ir.machine import bits
from tests.ir.strategies import PLAIN_ROWS, special_numbers

REFUSED = (
    *(ops.FAULT, ops.UNITS, ops.PLANES, ops.VAR, ops.GET, ops.SET),
    *(*cuda.ROWS, *metal.ROWS, *amx.ROWS),
)
"""Lowerings for other targets, their hardware, and locals, which passes remove."""


def kernel_of(row: OpDef, types: list[Type], attrs: dict[str, Attr]) -> tuple[Kernel, Value]:
    """A kernel that applies a row to what it loads from buffers, and stores the result."""
    b = Builder()
    sources = [Value(Buffer(element_of(t)), f"in{k}") for k, t in enumerate(types)]
    with b.region() as body:
        zero = b.index(0)
        loaded = [b.emit(ops.LOAD, s, zero, type=t) for s, t in zip(sources, types, strict=True)]
        result = b.emit_op(row, *loaded, **attrs).result  # type: ignore[arg-type]
        out = Value(Buffer(element_of(result.type)), "out")
        b.emit_op(ops.STORE, out, zero, result)
        b.emit_op(ops.RETURN)
    params = tuple(Param(v, v.name, Data()) for v in (*sources, out))
    return Kernel("one", params, Region((), tuple(body))), result


def check(row: OpDef, types: list[Type], operands: list[tuple[Number, ...]], **attrs: Attr) -> None:
    kernel, result = kernel_of(row, types, attrs)
    expected = evaluate(row, attrs, types, operands)
    *sources, out = (p.value for p in kernel.params)
    memory: Cells = dict(zip(sources, map(list, operands), strict=True))
    dtype = element_of(result.type)
    memory[out] = [special_numbers(dtype)[0]] * width_of(result.type)
    run_ir(kernel, memory)
    assert expected is not None
    assert bits(memory[out], dtype) == bits(expected, dtype), operands


def columns(t: Type, count: int, step: int) -> list[tuple[Number, ...]]:
    """Operands made of special numbers."""
    special, width = special_numbers(element_of(t)), width_of(t)
    size = len(special)
    return [
        tuple(special[(step * (k + 1) + 5 * operand + lane) % size] for lane in range(width))
        for k, operand in enumerate(range(count))
    ]


CASES = [
    pytest.param(row, dtype, count, lines, id=f"{row.name}-{dtype.name}{'-line' * lines}")
    for row, fitting in PLAIN_ROWS.items()
    if row.meaning is not None or row in spell.REDUCTIONS
    for dtype, count, only_lines in fitting
    if dtype in (bool_, i8, i32, u64, f16, f32, f64)
    for lines in ((True,) if only_lines else (False, True))
]


@pytest.mark.parametrize(("row", "dtype", "count", "lines"), CASES)
def test_a_plain_operation(row: OpDef, dtype: DType, count: int, lines: bool) -> None:
    t = make_line(dtype, 4) if lines else dtype
    for step in range(1 if lines else 4):
        check(row, [t] * count, columns(t, count, step))


def test_operations_with_attributes() -> None:
    line = make_line(i32, 4)
    a, b = (1, -2, 3, 4), (5, 6, 7, -8)
    check(ops.SPLAT, [i32], [(7,)], lanes=4)
    check(ops.EXTRACT, [line], [a], lane=1)
    check(ops.EXTRACT, [line, index], [a, (3,)])
    check(ops.INSERT, [line, i32], [a, (9,)], lane=2)
    check(ops.SHUFFLE, [line, line], [a, b], lanes=(7, 0, 4))
    check(ops.LANE_MASK, [index, index], [(1,), (3,)], lanes=4)
    check(ops.DOT, [make_line(i8, 4), make_line(i8, 4), i32], [a, b, (-(1 << 31),)])
    types: list[Type] = [make_line(i8, 8), make_line(i8, 8), make_line(i32, 2)]
    check(ops.DOT, types, [a + b, b + a, (1, (1 << 31) - 1)])
    types = [make_line(bf16, 4), make_line(bf16, 4), make_line(f32, 2)]
    check(ops.DOT, types, [(1.0, 2.5, -0.0, math.inf), (2.0**24, 3.0, 7.0, 1.0), (1.0, -math.inf)])
    check(
        ops.DOT, [make_line(bf16, 2), make_line(bf16, 2), f32], [(1.0, 1.0), (2.0**24, 1.0), (0.5,)]
    )
    mask = make_line(bool_, 4)
    check(ops.SELECT, [mask, line, line], [(True, False, False, True), a, b])
    check(ops.SELECT, [bool_, line, line], [(False,), a, b])
    check(ops.SELECT, [bool_, i32, i32], [(True,), (1,), (2,)])
    check(ops.BITCAST, [f32], [(-1.5,)], type=i32)
    check(ops.BITCAST, [make_line(f32, 2)], [(1.0, 2.0)], type=make_line(i32, 2))
    check(ops.CAST, [make_line(f64, 2)], [(1e300, -7.9)], type=make_line(i32, 2))


def test_positions() -> None:
    b = Builder()
    out = Value(Buffer(index), "out")
    rows = (ops.UNIT_POS, ops.CUBE_POS, ops.CUBE_COUNT, ops.ABSOLUTE_POS)
    with b.region() as body:
        place = b.emit(ops.ABSOLUTE_POS, axis="all")
        start = b.emit(ops.MUL, place, b.index(16))
        for k, (row, axis) in enumerate((r, a) for r in rows for a in ("all", "x", "y", "z")):
            b.emit_op(ops.STORE, out, b.emit(ops.ADD, start, b.index(k)), b.emit(row, axis=axis))
        b.emit_op(ops.RETURN)
    params = (Param(out, "out", Data()),)
    kernel = Kernel("places", params, Region((), tuple(body)), (2, 3, 1))
    memory: Cells = {out: [0] * (16 * 6 * 2)}
    run_ir(kernel, memory, count=2)
    last = memory[out][-16:]
    assert last == [5, 1, 2, 0, 1, 1, 0, 0, 2, 2, 1, 1, 11, 3, 2, 0]


def test_every_row_is_emitted_or_refused() -> None:
    handled = emit._HANDLERS  # pyright: ignore[reportPrivateUsage]
    plain = (ops.CONST, *spell.POSITIONS)
    missing = [
        row.name
        for row in ops.TABLE.values()
        if row not in handled and row not in plain and row.meaning is None
    ]
    assert sorted(missing) == sorted(row.name for row in REFUSED)


def test_lowerings_of_other_targets_are_refused() -> None:
    body = Region((), (Op(ops.FAULT, (), {"code": 0}), Op(ops.RETURN)))
    with pytest.raises(UnsupportedError, match="`fault` is not available on interpreter"):
        emit.emit(Kernel("k", (), body))
