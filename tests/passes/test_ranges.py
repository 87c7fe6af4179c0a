"""Ranges hold every result, and the tightest ones are exact: all pairs of small ranges."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.evaluate import evaluate
from cubepy.ir.types import index
from cubepy.passes.ranges import result_range

BINARY = (ops.ADD, ops.SUB, ops.MUL, ops.MIN, ops.MAX, ops.FLOORDIV, ops.MOD, ops.DIV_TRUNC)
BINARY += (ops.REM_TRUNC, ops.AND, ops.OR, ops.XOR, ops.SHL, ops.SHR)
UNARY = (ops.NEG, ops.ABS, ops.POPCOUNT, ops.CLZ, ops.CTZ)
TIGHT = (ops.ADD, ops.SUB, ops.MUL, ops.MIN, ops.MAX, ops.NEG, ops.ABS)
KERNEL = Kernel("k", (), Region((), (Op(ops.RETURN),)))
RANGES = [(a, b) for a in range(-4, 5) for b in range(a, 5)]


def check(row: ops.OpDef, *ranges: tuple[int, int]) -> None:
    operands = tuple(Value(index) for _ in ranges)
    op = Op(row, operands, {}, (Value(index),), (), None)
    found = result_range(op, list(ranges), KERNEL)
    assert found is not None
    values = [
        evaluate(row, {}, [index] * len(ranges), [(v,) for v in chosen])
        for chosen in product(*(range(a, b + 1) for a, b in ranges))
    ]
    numbers = [int(lanes[0]) for lanes in values if lanes is not None]
    assert found[0] <= min(numbers) and max(numbers) <= found[1], (row.name, ranges)
    if row in TIGHT:
        assert found == (min(numbers), max(numbers)), (row.name, ranges)


@pytest.mark.parametrize("row", BINARY, ids=lambda row: row.name)
def test_two_operands(row: ops.OpDef) -> None:
    for a, b in product(RANGES[::2], RANGES[1::2]):
        check(row, a, b)


@pytest.mark.parametrize("row", UNARY, ids=lambda row: row.name)
def test_one_operand(row: ops.OpDef) -> None:
    for a in RANGES:
        check(row, a)


def test_positions_are_below_the_cube_dim() -> None:
    for axis, extent in (("x", 4), ("y", 3), ("z", 2), ("all", 24)):
        op = Op(ops.UNIT_POS, (), {"axis": axis}, (Value(index),), (), None)
        assert result_range(op, [], replace(KERNEL, cube_dim=(4, 3, 2))) == (0, extent - 1)
