"""Faulty kernels: checked mode names exactly what is at fault, and nothing outside is touched.

Each combination of an access, a memory and a context is a kernel of its own; each runs with
indices below 0, at the extent and far beyond, given as a number or read from memory.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.checked.accesses import ACCESSES, Access
from tests.checked.contexts import CONTEXTS, GRID, Context
from tests.guarded import Guarded

DEVICES = ["cpu", "interpreter"]
UNITS = GRID[0] * GRID[1]
USUAL = CONTEXTS[0]
EVERYWHERE = [a for a in ACCESSES if a.name in ("read_1d", "write_2d_last", "read_line")]


@cp.cube
def given(number, table):
    return number


@cp.cube
def loaded(number, table):
    return table[1]


@cp.cube
def in_global(shape: cp.Comptime, f: cp.Comptime, context: cp.Comptime, x, bad, who, out):
    context(f, x, bad, who, out)


@cp.cube
def in_shared(shape: cp.Comptime, f: cp.Comptime, context: cp.Comptime, x, bad, who, out):
    s = cp.shared(shape, cp.f32)
    if cp.UNIT_POS == 0:
        for k in range(s.size):
            s.flat[k] = 1.0
    cp.sync_cube()
    context(f, s, bad, who, out)


@cp.cube
def in_local(shape: cp.Comptime, f: cp.Comptime, context: cp.Comptime, x, bad, who, out):
    t = cp.local(shape, cp.f32, fill=1)
    context(f, t, bad, who, out)


@cp.cube
def faulty(
    memory: cp.Comptime,
    shape: cp.Comptime,
    f: cp.Comptime,
    context: cp.Comptime,
    source: cp.Comptime,
    x,
    table,
    number: cp.i64,
    who: cp.i64,
    out,
):
    memory(shape, f, context, x, source(number, table), who, out)


MEMORIES = {in_global: "x", in_shared: "s", in_local: "t"}
SOURCES = [given, loaded]
CASES = [
    *product(ACCESSES, MEMORIES, [USUAL], [given]),
    *product(EVERYWHERE, MEMORIES, CONTEXTS[1:], [loaded]),
]


def bad_indices(access: Access) -> list[tuple[int, int]]:
    """Faulty indices, each with the one that is reported."""
    extent, width = access.extent, access.width
    found = [(i, i) for i in (-1, -(2**40), extent, extent + 1, 2**31 + 5, 2**62)]
    if width > 1:
        found.append((extent - width + 1, extent))
    return found


def describe(case: Any) -> str:
    access, memory, context, source = case
    return f"{access.name}-{memory.__name__}-{context.name}-{context.who}-{source.__name__}"


def test_there_are_many_kernels():
    assert len(set(map(describe, CASES))) == len(CASES) >= 190


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=map(describe, CASES))
def test_fault(case: tuple[Access, Any, Context, Any], device: str):
    access, memory, context, source = case
    x, out = Guarded(access.shape), Guarded(UNITS)
    launcher = faulty.configure(device=device, checked=True)[GRID]
    for bad, reported in bad_indices(access):
        x.array[...], out.array[...] = 1, 0
        table = np.array([0, bad, 0], np.int64)
        comptime = (memory, access.shape, access.function, context.function, source)
        with pytest.raises(cp.OutOfBoundsError) as caught:
            launcher(*comptime, x.array, table, bad, context.who, out.array)
        check(caught.value, access, MEMORIES[memory], context, reported)
        assert x.is_fenced and out.is_fenced, "something outside was touched"
        assert table.tolist() == [0, bad, 0]


def check(error: Any, access: Access, name: str, context: Context, reported: int) -> None:
    found = (error.code, error.kernel, error.line, error.argument, error.axis, error.index)
    assert found == ("E701", "faulty", access.line, name, access.axis, reported), str(error)
    assert error.extent == access.extent, str(error)
    (x, y, z), cube = error.unit, error.cube
    assert (y, z) == (0, 0) and cube * GRID[1] + x in context.faulty, str(error)
    assert f"extent {access.extent}, in unit ({x}, 0, 0) of cube {cube}" in str(error)


def races(case: Any) -> bool:
    """Whether several units write to one element: the interpreter refuses that."""
    access, memory, context, _ = case
    is_write = access.name.startswith("write")
    return is_write and memory is not in_local and len(context.faulty) > 1


LEGAL = [case for case in CASES if not races(case)][::4]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", LEGAL, ids=describe)
def test_the_last_legal_index_is_no_fault(case: tuple[Access, Any, Context, Any], device: str):
    access, memory, context, source = case
    x, out = Guarded(access.shape), Guarded(UNITS)
    comptime = (memory, access.shape, access.function, context.function, source)
    launcher = faulty.configure(device=device, checked=True)[GRID]
    for i in (0, access.extent - access.width):
        x.array[...], out.array[...] = 1, 0
        table = np.array([0, i, 0], np.int64)
        launcher(*comptime, x.array, table, i, context.who, out.array)
        assert x.is_fenced and out.is_fenced
        assert out.array[context.who] > 0
