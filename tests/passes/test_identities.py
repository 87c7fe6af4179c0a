"""Folding is right for every row, type and special number, on either side or both."""

from collections.abc import Callable
from itertools import product

import pytest

from cubepy.artifact import Data, Scalar
from cubepy.ir import ops
from cubepy.ir.build import Builder
from cubepy.ir.core import Kernel, Param, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DTYPES, Buffer, DType, bool_, element_of, index, make_line
from cubepy.ir.verify import verify
from cubepy.passes.fold import fold
from tests.ir.machine import Machine, Memory, bits
from tests.ir.strategies import ARITHMETIC, PLAIN_ROWS, special_numbers

Emit = Callable[[Builder, Value], list[Value]]


def kernel_of(dtype: DType, emit: Emit) -> Kernel:
    """A kernel that stores each value that `emit` makes of a parameter."""
    x, b = Value(dtype, "x"), Builder()
    buffers: dict[DType, Value] = {}
    with b.region() as body:
        for offset, value in enumerate(emit(b, x)):
            element = element_of(value.type)
            buffer = buffers.setdefault(element, Value(Buffer(element), element.name))
            b.emit_op(ops.STORE, buffer, b.index(offset), value)
        b.emit_op(ops.RETURN)
    params = [Param(x, "x", Scalar()), *(Param(v, v.name, Data()) for v in buffers.values())]
    return verify(Kernel("k", tuple(params), Region((), tuple(body))))


def final_memory(kernel: Kernel, number: float, size: int) -> list[list[int]]:
    buffers = [p.value for p in kernel.params[1:]]
    memory: Memory = {buffer: [0] * size for buffer in buffers}
    Machine(memory).run(kernel, {kernel.params[0].value: number})
    return [bits(memory[buffer], element_of(buffer.type)) for buffer in buffers]


def check(dtype: DType, emit: Emit) -> None:
    kernel = kernel_of(dtype, emit)
    folded = verify(fold(kernel))
    size = sum(op.row is ops.STORE for op in kernel.body.ops)
    for number in special_numbers(dtype):
        assert final_memory(folded, number, size) == final_memory(kernel, number, size), number


BINARY = [
    (row, dtype)
    for row in ARITHMETIC
    for dtype, count, lines in PLAIN_ROWS[row]
    if count == 2 and not lines
]


@pytest.mark.parametrize(("row", "dtype"), BINARY, ids=lambda x: x.name)
def test_constants_and_equal_operands(row: OpDef, dtype: DType) -> None:
    def emit(b: Builder, x: Value) -> list[Value]:
        constants = [b.const(number, dtype) for number in special_numbers(dtype)]
        made = [b.emit(row, x, x)]
        made += [b.emit(row, x, c) for c in constants] + [b.emit(row, c, x) for c in constants]
        return made + [b.emit(row, c, d) for c, d in product(constants[:4], constants)]

    check(dtype, emit)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_integer], ids=str)
def test_nested_constants(dtype: DType) -> None:
    def emit(b: Builder, x: Value) -> list[Value]:
        constants = [b.const(number, dtype) for number in special_numbers(dtype)]
        made: list[Value] = []
        for c, d in product(constants, constants):
            left, right = b.emit(ops.ADD, c, x), b.emit(ops.SUB, x, c)
            made += [b.emit(ops.SUB, left, d), b.emit(ops.ADD, right, d), b.emit(ops.SUB, right, d)]
            made += [b.emit(ops.MUL, b.emit(ops.MUL, x, c), d), b.emit(ops.SUB, d, left)]
        return made

    check(dtype, emit)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conversions_and_back(dtype: DType) -> None:
    def emit(b: Builder, x: Value) -> list[Value]:
        wide = [b.emit(ops.CAST, x, type=other) for other in DTYPES]
        there = [*wide, *(b.emit(ops.CAST, value, type=dtype) for value in wide)]
        constants = [b.const(number, dtype) for number in special_numbers(dtype)]
        return there + [b.emit(ops.CAST, c, type=other) for c in constants for other in DTYPES]

    check(dtype, emit)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lines_and_selections(dtype: DType) -> None:
    def emit(b: Builder, x: Value) -> list[Value]:
        zero, *rest = [b.const(number, dtype) for number in special_numbers(dtype)]
        line = b.emit(
            ops.INSERT, b.const(special_numbers(dtype)[0], make_line(dtype, 4)), x, lane=1
        )
        line = b.emit(ops.INSERT, line, rest[0], lane=3)
        made = [b.emit(ops.EXTRACT, line, lane=k) for k in range(4)]
        made += [b.emit(ops.EXTRACT, line, b.index(k)) for k in range(4)]
        mixed = b.emit(ops.SHUFFLE, line, b.emit(ops.SPLAT, x, lanes=4), lanes=(3, 0, 7, 1))
        made += [b.emit(ops.EXTRACT, mixed, lane=k) for k in range(4)]
        mask = b.emit(ops.LANE_MASK, b.index(1), b.index(3), lanes=4)
        chosen = b.emit(ops.SELECT, mask, line, mixed)
        made += [b.emit(ops.EXTRACT, chosen, lane=k) for k in range(4)]
        yes, no = b.const(True, bool_), b.const(False, bool_)
        made += [b.emit(ops.SELECT, m, x, zero) for m in (yes, no)]
        truth = b.emit(ops.NE, x, zero)
        made += [b.emit(ops.SELECT, truth, *pair) for pair in ((yes, no), (no, yes), (x, x))]
        made += [b.emit(row, b.emit(row, x)) for row in (ops.NEG, ops.NOT) if _takes(row, dtype)]
        return made

    check(dtype, emit)


def _takes(row: OpDef, dtype: DType) -> bool:
    return any(entry[0] is dtype for entry in PLAIN_ROWS[row])


def test_index_positions_fold() -> None:
    def emit(b: Builder, x: Value) -> list[Value]:
        four = b.index(4)
        return [b.emit(ops.MOD, b.emit(ops.MUL, x, four), b.index(1)), b.emit(ops.SUB, x, x)]

    check(index, emit)
