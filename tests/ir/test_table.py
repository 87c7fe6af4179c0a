"""The op table itself: every row is complete, and says of its effects what the others rely on."""

import inspect

import pytest

from cubepy.ir import amx, cuda, metal, ops
from cubepy.ir.build import Builder
from cubepy.ir.core import Op, Value
from cubepy.ir.numbers import Number
from cubepy.ir.opdef import Group, OpDef, Resource, TypingError, effects, is_speculatable
from cubepy.ir.types import DTYPES, Buffer, Space, bool_, f32, f64, i32, index, make_line, u8
from cubepy.lang import atomic
from cubepy.lang.builtins import BUILTINS
from tests.ir.strategies import special_numbers

ROWS = [pytest.param(row, id=row.name) for row in ops.TABLE.values()]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_complete(row: OpDef) -> None:
    assert row.doc.strip().endswith(".")
    assert row.surface
    has_value = row.meaning is not None or row.evaluation is not None
    assert has_value != bool(row.unknown), "a meaning, or the reason why there is none"
    assert not (row.is_pure and row.is_terminator)


@pytest.mark.parametrize("row", ROWS)
def test_its_surface_exists(row: OpDef) -> None:
    """What looks like a function of CubePy is one."""
    for word in row.surface.split():
        name = word.partition("(")[0].rstrip(",")
        if name.startswith("cp.atomic."):
            assert name.removeprefix("cp.atomic.") in atomic.NAMES
        elif name.startswith("cp.") and name.count(".") == 1 and "(" in word:
            assert name.removeprefix("cp.").partition("[")[0] in {*BUILTINS, "Line", "f32"}


def test_rows_of_one_kind_of_hardware_name_it() -> None:
    kinds = {row.name.partition("_")[0]: row.kind for row in (*cuda.ROWS, *metal.ROWS, *amx.ROWS)}
    assert kinds == {"cuda": "cuda", "metal": "metal", "amx": "cpu"}


BINARY = [row for row in ops.TABLE.values() if row.is_pure and (row.identity or row.absorbing)]


@pytest.mark.parametrize("row", BINARY, ids=lambda row: row.name)
def test_identities_and_absorbing_elements_are_right(row: OpDef) -> None:
    assert row.meaning is not None
    for dtype in DTYPES:
        try:
            row.rule((dtype, dtype), {})
        except TypingError:
            continue
        identity = row.identity(dtype) if row.identity else None
        absorbing = row.absorbing(dtype) if row.absorbing else None
        for x in special_numbers(dtype):
            if identity is not None:
                assert repr(row.meaning(dtype, x, identity)) == repr(x), (dtype, x)
            if absorbing is not None:
                assert row.meaning(dtype, x, absorbing) == absorbing, (dtype, x)


@pytest.mark.parametrize(
    "row", [*ops.REDUCTIONS, *(r for r in ops.PLANE_ROWS if r.step)], ids=lambda row: row.name
)
def test_reductions_start_from_what_changes_nothing(row: OpDef) -> None:
    assert row.step is not None and row.step.meaning is not None
    for dtype in DTYPES:
        try:
            row.rule((make_line(dtype, 2) if row in ops.REDUCTIONS else dtype,), {})
        except TypingError:
            continue
        start = row.start(dtype)
        assert start is not None
        for x in special_numbers(dtype):
            assert _same(row.step.meaning(dtype, x, start), x), (dtype, x)


def _same(a: Number, b: Number) -> bool:
    """Zeros of either sign are alike: a sum starts from +0.0, so that an empty one is that."""
    return a == b or (a != a and b != b)


def test_plane_operations_and_products_of_matrices_are_convergent_without_effects() -> None:
    for row in (*ops.PLANE_ROWS, cuda.MMA, metal.MULTIPLY_ACCUMULATE):
        assert row.convergent is Group.PLANE
        assert not row.reads and not row.writes
        assert row.is_removable and not row.is_pure


def test_barriers_order_memory() -> None:
    assert ops.SYNC_CUBE.convergent is Group.CUBE
    assert cuda.CLUSTER_SYNC.convergent is Group.CLUSTER
    for row in (ops.SYNC_CUBE, ops.SYNC_PLANE, cuda.CLUSTER_SYNC):
        assert {Resource.GLOBAL, Resource.SHARED} <= row.reads & row.writes


def test_effects_name_the_space_of_the_buffer() -> None:
    b = Builder()
    offset, value = b.index(0), b.const(1.0, f32)
    for space in (Space.GLOBAL, Space.SHARED, Space.LOCAL):
        buffer = Value(Buffer(f32, space))
        resource = frozenset((Resource[space.name],))
        load = b.emit_op(ops.LOAD, buffer, offset, type=f32)
        store = b.emit_op(ops.STORE, buffer, offset, value)
        add = b.emit_op(ops.ATOMIC_ADD, buffer, offset, value)
        assert effects(load) == (resource, frozenset())
        assert effects(store) == (frozenset(), resource)
        assert effects(add) == (resource, resource)
    assert effects(b.emit_op(ops.ADD, value, value)) == (frozenset(), frozenset())


def test_only_total_operations_may_run_speculatively() -> None:
    b = Builder()
    line, k = Value(make_line(f32, 4)), b.index(2)
    assert is_speculatable(b.emit_op(ops.EXTRACT, line, lane=2))
    assert not is_speculatable(b.emit_op(ops.EXTRACT, line, k))
    assert not is_speculatable(b.emit_op(ops.LOAD, Value(Buffer(f32)), k, type=f32))
    assert is_speculatable(b.emit_op(ops.FLOORDIV, k, k))  # x // 0 is 0


def test_atomics_take_the_types_that_their_step_takes() -> None:
    def rule(row: OpDef, element: object, count: int = 1) -> None:
        row.rule([Buffer(element), index, *[element] * count], {})  # type: ignore[arg-type]

    for dtype in (i32, u8, f32, f64):
        rule(ops.ATOMIC_ADD, dtype)
    rule(ops.ATOMIC_OR, bool_)
    rule(ops.ATOMIC_CAS, bool_, 2)
    for row, dtype in ((ops.ATOMIC_AND, f32), (ops.ATOMIC_ADD, bool_), (ops.ATOMIC_MIN, bool_)):
        with pytest.raises(TypingError):
            rule(row, dtype)


def test_every_atomic_of_the_language_has_its_row() -> None:
    for name, function in atomic.NAMES.items():
        row = ops.TABLE.get(f"atomic_{name.rstrip('_')}")
        assert row is not None or name in ("sub", "store")
        assert inspect.getdoc(function)


def test_building_an_operation_reads_no_table() -> None:
    """Rows carry their properties: what construction asks for is computed once."""
    op = Op(ops.ADD)
    assert op.row.is_pure is True
    assert "is_pure" in OpDef.__slots__
