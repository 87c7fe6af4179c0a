"""Emission of operations that compute values: constants, arithmetic, conversions, lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.cstyle.lines import tag
from cubepy.compilers.cstyle.literals import literal, short_index
from cubepy.compilers.cstyle.spelling import POSTFIX, UNARY, Expr, Spelling, cast
from cubepy.ir import ops
from cubepy.ir.core import Op, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Line, element_of, index
from cubepy.passes.legalise.check_target import refusal
from cubepy.passes.legalise.lower_lookups import table_of

if TYPE_CHECKING:
    from cubepy.compilers.cstyle.emit import Emitter

Emit = Callable[["Emitter", Op], Expr]
_SHORT = (
    *(ops.ADD, ops.SUB, ops.MUL, ops.DIV_TRUNC, ops.REM_TRUNC),
    *(ops.EQ, ops.NE, ops.LT, ops.LE, ops.GT, ops.GE),
    ops.LOOKUP,
    *(ops.PLANE_SHUFFLE, ops.PLANE_SHUFFLE_XOR, ops.PLANE_SHUFFLE_UP, ops.PLANE_SHUFFLE_DOWN),
)
"""Operations in which a constant index needs no suffix."""
_WIDENING = (ops.ADD, ops.MUL)
"""Operations that convert the second operand to the type of the first."""


def emit_const(e: Emitter, op: Op) -> Expr:
    value = op.attrs["value"]
    assert isinstance(value, int | float)
    return literal(value, element_of(op.result.type), e.dialect)


def scalar_text(e: Emitter, op: Op, types: list[DType], t: DType, operands: list[Expr]) -> Expr:
    """An operation on scalars by the dialect's spelling."""
    source = types[0] if types else t
    spelling = _spelling(e.dialect, op.row, source, t)
    if spelling is None:
        raise refusal(op, e.dialect.can.target, f"there is no form of it for {source.name}")
    e.use_helpers(spelling.text)
    return spelling.fill(operands, t=e.lines.scalar(t))


def _spelling(d: Dialect, row: OpDef, source: DType, target: DType) -> Spelling | None:
    """Conversions are looked up by both types, selections by the result's, others by the first."""
    if row in (ops.CAST, ops.BITCAST):
        pair = d.conversions.get((row, source, target))
        if pair is not None or row is ops.BITCAST:
            return pair or (d.bitcast if _is_native(d, source, target) else cast())
        return d.spelling(row, target)
    return d.spelling(row, target if row is ops.SELECT else source)


def _is_native(d: Dialect, *dtypes: DType) -> bool:
    """Whether a float that is more than its bits takes part."""
    return any(dtype.is_float and dtype not in d.can.stored for dtype in dtypes)


def emit_elementwise(e: Emitter, op: Op) -> Expr:
    """An operation that works lane by lane."""
    types = [v.type for v in op.operands]
    lanes = [element_of(x) for x in types]
    t = op.result.type
    if _keeps_bits(op, lanes[0] if lanes else None) and e.lines.type(types[0]) == e.lines.type(t):
        return _same(e, op.operands[0])
    if not isinstance(t, Line):
        return scalar_text(e, op, lanes, element_of(t), operands_of(e, op))
    if op.row in e.dialect.vector_calls and e.lines.is_native(t):
        return scalar_text(e, op, lanes, t.element, [e.value(v) for v in op.operands])

    if _is_line_bitcast(e, op):
        spelling = e.dialect.line_bitcast
        assert spelling is not None
        return spelling.fill([e.value(op.operands[0])], t=e.lines.type(t))

    def by_lane(operands: list[Expr]) -> Expr:
        return scalar_text(e, op, lanes, t.element, operands)

    return e.lines.apply(op.row, t, types, [e.value(v) for v in op.operands], by_lane)


def _is_line_bitcast(e: Emitter, op: Op) -> bool:
    """Whether the dialect keeps the bits of all lanes at once."""
    if op.row is not ops.BITCAST or e.dialect.line_bitcast is None:
        return False
    return e.lines.is_native(op.operands[0].type) and e.lines.is_native(op.result.type)


def _keeps_bits(op: Op, source: DType | None) -> bool:
    """Whether types that are spelled alike need no conversion; one to bool compares with 0."""
    if op.row is ops.BITCAST:
        return True
    target = element_of(op.result.type)
    return op.row is ops.CAST and source is not None and source.is_integer and target.is_integer


def _same(e: Emitter, value: Value) -> Expr:
    """The expression of a value under another type; of a mutable local it is not its name alone."""
    expr = e.value(value)
    return Expr(expr.whole, POSTFIX) if e.is_mutable(value) else expr


def operands_of(e: Emitter, op: Op) -> list[Expr]:
    """Scalar operands; constant indices without a suffix where the other operand has the type."""
    found = [_operand(e, v, op.row in _SHORT) for v in op.operands]
    if op.row in _WIDENING and not any(v in e.constants for v in op.operands):
        found[1] = _without_cast(e, op.operands[1], found[1])
    return found


def _without_cast(e: Emitter, value: Value, expr: Expr) -> Expr:
    """A position of 32 bits without its cast: the other operand, an index, widens it."""
    cast_text = f"({e.lines.scalar(element_of(value.type))})"
    is_bare = e.dialect.bare_positions and value.type is index and value in e.positions
    if not is_bare or not expr.whole.startswith(cast_text):
        return expr
    return Expr(expr.whole.removeprefix(cast_text), POSTFIX)


def _operand(e: Emitter, value: Value, is_short: bool) -> Expr:
    number = e.constants.get(value)
    if is_short and value.type is index and isinstance(number, int):
        return short_index(number, e.dialect)
    return e.value(value)


def emit_splat(e: Emitter, op: Op) -> Expr:
    t = op.result.type
    assert isinstance(t, Line)
    return e.lines.splat(t, e.value(op.operands[0]))


def emit_extract(e: Emitter, op: Op) -> Expr:
    """A lane; one that is only known at run time by way of an array."""
    t = op.operands[0].type
    assert isinstance(t, Line)
    line = e.name(op.operands[0])
    if "lane" in op.attrs:
        return e.lines.lane(line, t, _integer(op, "lane"))
    lane = e.value(op.operands[1]).whole
    if not e.lines.is_native(t):
        return e.lines.lane(line, t, lane)
    name, scalar, position = f"extract_{tag(t)}", e.lines.scalar(t.element), e.lines.scalar(index)
    lanes = ", ".join(e.lines.lane("line", t, k).whole for k in range(t.width))
    head = f"{e.dialect.function}{scalar} {name}({e.lines.type(t)} line, {position} lane)"
    body = f"    const {scalar} lanes[{t.width}] = {{{lanes}}};\n    return lanes[lane];"
    e.lines.declare(name, f"{head} {{\n{body}\n}}")
    return Expr(f"{name}({line}, {lane})", POSTFIX)


def emit_lookup(e: Emitter, op: Op) -> Expr:
    """An entry of an array in the prelude, inside of which legalisation has kept the index."""
    t, numbers = element_of(op.result.type), table_of(op)
    entries = ", ".join([literal(number, t, e.dialect).whole for number in numbers])
    name = e.lines.table(t, entries, len(numbers))
    position = operands_of(e, op)[0].whole
    return Expr(f"{name}[{position}]", POSTFIX)


def emit_insert(e: Emitter, op: Op) -> Expr:
    """A copy of a line with one lane replaced, by a helper."""
    t, lane = op.result.type, _integer(op, "lane")
    assert isinstance(t, Line)
    name, kind = f"insert_{tag(t)}_{lane}", e.lines.type(t)
    params = f"{kind} line, {e.lines.scalar(t.element)} value"
    target = e.lines.lane("line", t, lane).whole
    body = f"    {target} = value;\n    return line;"
    e.lines.declare(name, f"{e.dialect.function}{kind} {name}({params}) {{\n{body}\n}}")
    line, value = (e.value(v).whole for v in op.operands)
    return Expr(f"{name}({line}, {value})", POSTFIX)


def emit_shuffle(e: Emitter, op: Op) -> Expr:
    """Lanes of two lines, gathered."""
    t, source = op.result.type, op.operands[0].type
    assert isinstance(t, Line) and isinstance(source, Line)
    names = [e.name(v) for v in op.operands]
    chosen = op.attrs["lanes"]
    assert isinstance(chosen, tuple)
    lanes = [
        e.lines.lane(names[k // source.width], source, k % source.width)
        for k in chosen
        if isinstance(k, int)
    ]
    return e.lines.build(t, lanes)


def emit_lane_mask(e: Emitter, op: Op) -> Expr:
    """Which lanes lie in a range."""
    t = op.result.type
    assert isinstance(t, Line)
    name, position = f"lane_mask_{t.width}", e.lines.scalar(index)
    lanes = [Expr(f"first <= {k} && {k} < end", 0) for k in range(t.width)]
    body = e.lines.build(t, lanes).whole
    head = f"{e.dialect.function}{e.lines.type(t)} {name}({position} first, {position} end)"
    e.lines.declare(name, f"{head} {{\n    return {body};\n}}")
    first, end = (e.value(v).whole for v in op.operands)
    return Expr(f"{name}({first}, {end})", POSTFIX)


def _integer(op: Op, name: str) -> int:
    value = op.attrs[name]
    assert isinstance(value, int)
    return value


def emit_position(e: Emitter, op: Op) -> Expr:
    """A position along an axis, as an index of the operation's type."""
    e.positions.add(op.result)
    kind = e.lines.scalar(element_of(op.result.type))
    return Expr(f"({kind}){e.dialect.positions[op.row, str(op.attrs['axis'])]}", UNARY)


HANDLERS: dict[OpDef, Emit] = {
    ops.UNIT_POS: emit_position,
    ops.CUBE_POS: emit_position,
    ops.CUBE_COUNT: emit_position,
    ops.CONST: emit_const,
    ops.SPLAT: emit_splat,
    ops.EXTRACT: emit_extract,
    ops.INSERT: emit_insert,
    ops.LOOKUP: emit_lookup,
    ops.SHUFFLE: emit_shuffle,
    ops.LANE_MASK: emit_lane_mask,
}
"""Everything else that is pure works lane by lane."""
