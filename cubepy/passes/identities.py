"""Algebraic identities: what an operation equals when something is known about its operands.

Only what IEEE 754 allows, unless `fast_math`. A rule gives the value that stands for the result,
or operations that replace the operation (none: it vanishes), or None where it does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from cubepy.ir import ops
from cubepy.ir.core import Op, Value
from cubepy.ir.evaluate import Lanes
from cubepy.ir.numbers import Number, wrap
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, element_of, f32, f64
from cubepy.passes.rewrite import Rewriter, constant


class Facts(Rewriter):
    """A rewriter that knows how values are defined, and the numbers of constants."""

    def __init__(self, fast_math: bool = False) -> None:
        super().__init__()
        self.fast_math = fast_math
        self.known: dict[Value, Lanes] = {}
        self.definitions: dict[Value, Op] = {}

    def is_fast(self, op: Op) -> bool:
        """Whether the floats of an operation are taken for reals."""
        return self.fast_math and not op.attrs.get("strict")

    def number(self, value: Value) -> Number | None:
        """The number that is in every lane of a constant; None if it is no such constant."""
        lanes = self.known.get(value)
        return lanes[0] if lanes is not None and is_uniform(lanes) else None

    def defined_by(self, value: Value, row: OpDef) -> Op | None:
        """The operation that defines `value`, if it is of this row."""
        op = self.definitions.get(value)
        return op if op is not None and op.row is row else None

    def constant(self, value: Value, number: Number) -> Value:
        """A new constant of the type of `value`."""
        before = len(self.out)
        result = self.emit_const(value.type, number)
        for op in self.out[before:]:
            self.known[op.results[0]] = (number,) * getattr(op.results[0].type, "width", 1)
        return result


Replacement: TypeAlias = Value | Sequence[Op] | None
Rule = Callable[[Facts, Op], Replacement]


def is_uniform(lanes: Lanes) -> bool:
    """Whether all lanes have the same bits."""
    first = lanes[0]
    return all(lane is first or same_number(lane, first) for lane in lanes)


def same_number(a: Number, b: Number) -> bool:
    """Equal, with equal signs of zeros; NaN differs from all."""
    return a == b and (a != 0 or math.copysign(1.0, a) == math.copysign(1.0, b))


# x op 1 == 0, for integers.
_ONE_GIVES_ZERO = (ops.MOD, ops.REM_TRUNC)
# 0 op x == 0, for integers.
_ZERO_STAYS = (ops.FLOORDIV, ops.DIV_TRUNC, ops.MOD, ops.REM_TRUNC, ops.SHL, ops.SHR)
# x op x == x, for all types.
_IDEMPOTENT = (ops.AND, ops.OR, ops.MIN, ops.MAX)
# x op x == c, for all but floats (NaN, infinities). x // x is not 1 for x == 0.
_OF_ITSELF: dict[OpDef, Number] = {
    ops.SUB: 0,
    ops.XOR: 0,
    ops.MOD: 0,
    ops.REM_TRUNC: 0,
    ops.EQ: True,
    ops.LE: True,
    ops.GE: True,
    ops.NE: False,
    ops.LT: False,
    ops.GT: False,
}
_INVOLUTIONS = (ops.NEG, ops.NOT)


def neutral(facts: Facts, op: Op) -> Replacement:
    """x + 0 == x, x * 1 == x, x >> 0 == x, x & -1 == x, ..."""
    assert op.row.identity is not None
    wanted = op.row.identity(element_of(op.operands[0].type))
    if wanted is None:
        return None
    for value, number in _constant_side(facts, op):
        if same_number(number, wanted) or (facts.is_fast(op) and number == wanted == 0):
            return value
    return None


def absorbing(facts: Facts, op: Op) -> Replacement:
    """x * 0 == 0, x | -1 == -1, x // 0 == 0, ...; with `fast_math` x * 0 also for floats."""
    assert op.row.absorbing is not None
    element = element_of(op.operands[0].type)
    is_product = facts.is_fast(op) and op.row is ops.MUL and element.is_float
    wanted = 0.0 if is_product else op.row.absorbing(element)
    for _, number in _constant_side(facts, op):
        if wanted is not None and number == wanted:
            return constant_ops(op, wanted)
    return None


def one_gives_zero(facts: Facts, op: Op) -> Replacement:
    """x % 1 == 0 (integers)."""
    left, right = op.operands
    return constant_ops(op, 0) if not _is_float(left) and facts.number(right) == 1 else None


def zero_stays(facts: Facts, op: Op) -> Replacement:
    """0 // x == 0, 0 % x == 0, 0 << x == 0, ... (integers)."""
    left = op.operands[0]
    return left if not _is_float(left) and facts.number(left) == 0 else None


def of_itself(facts: Facts, op: Op) -> Replacement:
    """min(x, x) == x, x - x == 0, x == x, ...; the latter not for floats, which may be NaN."""
    left, right = op.operands
    if left is not right:
        return None
    if op.row in _IDEMPOTENT:
        return left
    fast = facts.is_fast(op) and op.row is ops.SUB
    return None if _is_float(left) and not fast else constant_ops(op, _OF_ITSELF[op.row])


def involution(facts: Facts, op: Op) -> Replacement:
    """-(-x) == x, ~~x == x."""
    inner = facts.defined_by(op.operands[0], op.row)
    return inner.operands[0] if inner else None


def nested_sum(facts: Facts, op: Op) -> Replacement:
    """(x + a) + b == x + (a + b) for integers, which wrap."""
    outer = _offset(facts, op)
    inner_op = facts.definitions.get(outer[0]) if outer else None
    if not outer or inner_op is None or inner_op.row not in (ops.ADD, ops.SUB):
        return None
    inner = _offset(facts, inner_op)
    if not inner:
        return None
    dtype = element_of(op.results[0].type)
    return _sum(facts, op, inner[0], wrap(inner[1] + outer[1], dtype))


def _offset(facts: Facts, op: Op) -> tuple[Value, int] | None:
    """The integer sum `op` as a value and a constant."""
    for value, number in _constant_side(facts, op):
        if isinstance(number, int):
            return value, -number if op.row is ops.SUB else number
    return None


def _sum(facts: Facts, op: Op, value: Value, number: int) -> Replacement:
    dtype = element_of(value.type)
    half = 1 << (dtype.bits - 1)
    signed = number - 2 * half if number >= half else number
    if signed == 0:
        return value
    row = ops.SUB if -half < signed < 0 else ops.ADD
    right = facts.constant(value, wrap(abs(signed) if row is ops.SUB else signed, dtype))
    return (_instead(op, row, value, right),)


def nested_product(facts: Facts, op: Op) -> Replacement:
    """(x * a) * b == x * (a * b) for integers, which wrap."""
    for value, number in _constant_side(facts, op):
        inner_op = facts.defined_by(value, ops.MUL)
        if inner_op is None or not isinstance(number, int):
            return None
        for inner, factor in _constant_side(facts, inner_op):
            dtype = element_of(value.type)
            right = facts.constant(value, wrap(int(factor) * number, dtype))
            return (_instead(op, ops.MUL, inner, right),)
    return None


def cast_away(facts: Facts, op: Op) -> Replacement:
    """A conversion to the same type, or back from a type that holds all values."""
    value, target = op.operands[0], op.results[0].type
    if value.type == target:
        return value
    inner = facts.defined_by(value, op.row)
    if inner is None:
        return None
    if op.row is ops.BITCAST and inner.operands[0].type != target:
        return (Op(op.row, inner.operands, op.attrs, op.results, (), op.span),)
    if inner.operands[0].type != target:
        return None
    back = op.row is ops.BITCAST or _holds(element_of(value.type), element_of(target))
    return inner.operands[0] if back else None


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether narrow -> wide -> narrow gives the same value back."""
    if wide.is_float:
        return narrow.is_float and narrow.bits < wide.bits and wide in (f32, f64)
    both = wide.is_integer and narrow.is_integer
    return both and narrow.bits <= wide.bits  # wrapping keeps the low bits


def chosen(facts: Facts, op: Op) -> Replacement:
    """select(true, a, b) == a, select(m, a, a) == a, select(m, true, false) == m."""
    mask, yes, no = op.operands
    if yes is no:
        return yes
    number = facts.number(mask)
    if number is not None:
        return yes if number else no
    is_mask = mask.type == yes.type and facts.number(yes) is True and facts.number(no) is False
    return mask if is_mask else None


def agreed(facts: Facts, op: Op) -> Replacement:
    """Units of a plane agree on a constant."""
    return op.operands[0] if op.operands[0] in facts.known else None


def extracted(facts: Facts, op: Op) -> Replacement:
    """A lane of a splat is the scalar; a lane of an insertion is one side of it."""
    lane = _lane(facts, op)
    line = op.operands[0]
    while inner := facts.definitions.get(line):
        if inner.row is ops.SPLAT:
            return inner.operands[0]
        if inner.row is not ops.INSERT or lane is None:
            break
        if inner.attrs["lane"] == lane:
            return inner.operands[1]
        line = inner.operands[0]
    if lane is None or (line is op.operands[0] and "lane" in op.attrs):
        return None
    return (Op(ops.EXTRACT, (line,), {"lane": lane}, op.results, (), op.span),)


def _lane(facts: Facts, op: Op) -> int | None:
    lane = op.attrs["lane"] if "lane" in op.attrs else facts.number(op.operands[1])
    width = getattr(op.operands[0].type, "width", 0)
    return lane if isinstance(lane, int) and 0 <= lane < width else None


def unmasked_load(facts: Facts, op: Op) -> Replacement:
    """A load whose mask is true needs none; one whose mask is false is the fill."""
    if len(op.operands) == 2:
        return None
    buffer, offset, mask, fill = op.operands
    number = facts.number(mask)
    if number is None:
        return None
    return (Op(op.row, (buffer, offset), op.attrs, op.results, (), op.span),) if number else fill


def unmasked_store(facts: Facts, op: Op) -> Replacement:
    """A store whose mask is true needs none; one whose mask is false does nothing."""
    if len(op.operands) == 3:
        return None
    *address_and_value, mask = op.operands
    number = facts.number(mask)
    if number is None:
        return None
    return (Op(op.row, tuple(address_and_value), op.attrs, (), (), op.span),) if number else ()


def _is_float(value: Value) -> bool:
    return element_of(value.type).is_float


def _constant_side(facts: Facts, op: Op) -> list[tuple[Value, Number]]:
    """The other operand and the number, where the right one (or either, if the op commutes) has."""
    left, right = op.operands
    number = facts.number(right)
    if number is not None:
        return [(left, number)]
    number = facts.number(left) if op.row.is_commutative else None
    return [(right, number)] if number is not None else []


def constant_ops(op: Op, number: Number) -> list[Op]:
    """Operations that give the result of `op` this number in every lane."""
    return list(constant(op.results[0], number, op.span))


def _instead(op: Op, row: OpDef, *operands: Value) -> Op:
    return Op(row, operands, {}, op.results, (), op.span)


def _table() -> dict[OpDef, tuple[Rule, ...]]:
    rules: dict[OpDef, list[Rule]] = {}

    def use(rule: Rule, *rows: OpDef) -> None:
        for row in rows:
            rules.setdefault(row, []).append(rule)

    use(neutral, *(row for row in ops.TABLE.values() if row.identity and row.is_pure))
    use(absorbing, *(row for row in ops.TABLE.values() if row.absorbing))
    use(one_gives_zero, *_ONE_GIVES_ZERO)
    use(zero_stays, *_ZERO_STAYS)
    use(of_itself, *_IDEMPOTENT, *_OF_ITSELF)
    use(involution, *_INVOLUTIONS)
    use(nested_sum, ops.ADD, ops.SUB)
    use(nested_product, ops.MUL)
    use(cast_away, ops.CAST, ops.BITCAST)
    use(chosen, ops.SELECT)
    use(agreed, ops.PLANE_ALL, ops.PLANE_ANY)
    use(extracted, ops.EXTRACT)
    use(unmasked_load, ops.LOAD)
    use(unmasked_store, ops.STORE)
    return {row: tuple(found) for row, found in rules.items()}


RULES = _table()
"""The rules of each row, in the order in which they are tried."""
