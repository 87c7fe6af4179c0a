"""Emission of number operations: arithmetic, comparisons, conversions, lanes."""

from __future__ import annotations

from collections.abc import Callable
from math import isinf
from typing import TYPE_CHECKING

from cubepy.compilers.llvm import ops as spell
from cubepy.compilers.llvm.conversions import convert
from cubepy.compilers.llvm.extrema import (
    EXTREMA,
    extreme_beside,
    extreme_text,
    orders_by_hand,
)
from cubepy.compilers.llvm.literals import literal, splat
from cubepy.compilers.llvm.writer import IN_PARALLEL, Writer, constant
from cubepy.ir import ops
from cubepy.ir.core import Op
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import (
    INDICES,
    Kind,
    Line,
    Type,
    bool_,
    element_of,
    f32,
    f64,
    width_of,
    with_element,
)
from cubepy.passes.legalise.lower_lookups import table_of

if TYPE_CHECKING:
    from cubepy.compilers.llvm.emit import Emitter

Emit = Callable[["Emitter", Op], str]


def _const(e: Emitter, op: Op) -> str:
    value, t = op.attrs["value"], op.result.type
    assert isinstance(value, int | float)
    text = literal(value, t)
    if t in (f32, f64) and isinf(value) and orders_by_hand(e.target, t) and e.folds:
        # else a choice of it in a fold becomes a choice of the fold, see `passes/plain_folds`
        return e.w.hide(text, spell.type_name(t), spell.suffix(t))
    return text


def binary_text(e: Emitter, row: OpDef, t: Type, a: str, b: str, strict: bool = False) -> str:
    """One of the simple two-operand rows; gives the register. `strict`: see `ops`."""
    dtype = element_of(t)
    name = spell.type_name(t)
    if dtype.is_float and row in spell.FLOAT_BINARY:
        return e.w.value(f"{spell.FLOAT_BINARY[row]} {'' if strict else e.fast}{name} {a}, {b}")
    if not dtype.is_float and row in spell.INTEGER_BINARY:
        wrap = "nsw " if dtype in INDICES and row in (ops.ADD, ops.SUB, ops.MUL) else ""
        return e.w.value(f"{spell.INTEGER_BINARY[row]} {wrap}{name} {a}, {b}")
    if row in EXTREMA and orders_by_hand(e.target, t):
        return extreme_text(e, row, t, a, b)
    table = (
        spell.FLOAT_INTRINSICS
        if dtype.is_float
        else (spell.SIGNED_INTRINSICS if dtype.kind is Kind.INT else spell.UNSIGNED_INTRINSICS)
    )
    return e.intrinsic(table[row], t, a, b)


def _binary(e: Emitter, op: Op) -> str:
    a, b = e.operands(op)
    return binary_text(e, op.row, op.result.type, a, b, bool(op.attrs.get("strict")))


def _extreme(e: Emitter, op: Op) -> str:
    t, (a, b) = op.result.type, e.operands(op)
    if not orders_by_hand(e.target, t):
        return binary_text(e, op.row, t, a, b)
    numbers = [e.constant_of(v) for v in op.operands]
    if numbers[1] is not None:
        return extreme_beside(e, op.row, t, a, numbers[1], b)
    if numbers[0] is not None:
        return extreme_beside(e, op.row, t, b, numbers[0], a)
    if op in e.folds:
        return e.intrinsic(spell.FLOAT_INTRINSICS[op.row], t, a, b)
    return extreme_text(e, op.row, t, a, b)


def _unary_float(e: Emitter, op: Op) -> str:
    return e.intrinsic(spell.FLOAT_INTRINSICS[op.row], op.result.type, *e.operands(op))


def _neg(e: Emitter, op: Op) -> str:
    t = op.result.type
    (a,) = e.operands(op)
    if element_of(t).is_float:
        return e.w.value(f"fneg {spell.type_name(t)} {a}")
    return e.w.value(f"sub {spell.type_name(t)} {literal(0, t)}, {a}")


def _abs(e: Emitter, op: Op) -> str:
    t = op.result.type
    (a,) = e.operands(op)
    if element_of(t).is_float:
        return e.intrinsic("fabs", t, a)
    if element_of(t).kind is Kind.UINT:
        return a
    name = spell.type_name(t)
    return e.w.call(f"llvm.abs.{spell.suffix(t)}", name, (name, a), ("i1", "false"))


def _not(e: Emitter, op: Op) -> str:
    t = op.result.type
    (a,) = e.operands(op)
    ones = literal(True, t) if element_of(t) is bool_ else literal(-1, t)
    return e.w.value(f"xor {spell.type_name(t)} {a}, {ones}")


def _count_bits(e: Emitter, op: Op) -> str:
    t = op.result.type
    (a,) = e.operands(op)
    name = spell.type_name(t)
    extra = () if op.row is ops.POPCOUNT else (("i1", "false"),)
    return e.w.call(f"llvm.{spell.COUNTING[op.row]}.{spell.suffix(t)}", name, (name, a), *extra)


def _mul_hi(e: Emitter, op: Op) -> str:
    t = op.result.type
    dtype = element_of(t)
    name = spell.type_name(t)
    wide = spell.vector_name(f"i{2 * dtype.bits}", width_of(t), t)
    extend = "sext" if dtype.kind is Kind.INT else "zext"
    a, b = (e.w.value(f"{extend} {name} {x} to {wide}") for x in e.operands(op))
    product = e.w.value(f"mul {wide} {a}, {b}")
    shift = splat(str(dtype.bits), t, f"i{2 * dtype.bits}")
    high = e.w.value(f"lshr {wide} {product}, {shift}")
    return e.w.value(f"trunc {wide} {high} to {name}")


# Division


def _divide(e: Emitter, op: Op) -> str:
    """`//`, `%` and their truncating forms, which are total on integers."""
    t = op.result.type
    if element_of(t).is_float:
        return _divide_float(e, op)
    a, b = e.operands(op)
    divisor = e.constant_of(op.operands[1])
    dtype = element_of(t)
    nonnegative = dtype.kind is Kind.UINT or bool(op.attrs.get("nonnegative"))
    if nonnegative and op.attrs.get("nonzero"):
        word = "udiv" if op.row in (ops.FLOORDIV, ops.DIV_TRUNC) else "urem"
        return e.w.value(f"{word} {spell.type_name(t)} {a}, {b}")
    if divisor is not None and divisor > 0:
        return _divide_by_constant(e, op.row, t, a, int(divisor), nonnegative)
    if divisor is None and op.operands[1] not in e.parameters:
        # where it runs before what guards it, index arithmetic may have overflown, and LLVM takes
        # such a number for anything, also behind a test for 0
        b = e.w.once(f"freeze {spell.type_name(t)} {b}")
    return _divide_guarded(e, op.row, t, a, b, nonnegative)


def _divide_by_constant(
    e: Emitter, row: OpDef, t: Type, a: str, divisor: int, unsigned: bool
) -> str:
    w, name, power = e.w, spell.type_name(t), divisor & (divisor - 1) == 0
    is_quotient = row in (ops.FLOORDIV, ops.DIV_TRUNC)
    floors = row in (ops.FLOORDIV, ops.MOD)
    by, mask = literal(divisor, t), spell.vector_name("i1", width_of(t), t)
    if unsigned:
        return w.value(f"{'udiv' if is_quotient else 'urem'} {name} {a}, {by}")
    if power and floors:
        shift, rest = literal(divisor.bit_length() - 1, t), literal(divisor - 1, t)
        return w.value(f"ashr {name} {a}, {shift}" if is_quotient else f"and {name} {a}, {rest}")
    found = w.once(f"{'sdiv' if is_quotient else 'srem'} {name} {a}, {by}")
    if not floors:
        return found
    remainder = w.once(f"srem {name} {a}, {by}")
    negative = w.once(f"icmp slt {name} {remainder}, {literal(0, t)}")
    floored = _lowered(w, t, by, found, is_quotient)
    return w.value(f"select {mask} {negative}, {name} {floored}, {name} {found}")


def _divide_guarded(e: Emitter, row: OpDef, t: Type, a: str, b: str, unsigned: bool) -> str:
    """Any divisor: 0 gives 0, and -1 negates, without the processor's trap."""
    w, name = e.w, spell.type_name(t)
    mask = spell.vector_name("i1", width_of(t), t)
    zero, one = literal(0, t), literal(1, t)
    is_zero = w.once(f"icmp eq {name} {b}, {zero}")
    safe = w.once(f"select {mask} {is_zero}, {name} {one}, {name} {b}")
    is_quotient = row in (ops.FLOORDIV, ops.DIV_TRUNC)
    if unsigned:
        found = w.value(f"{'udiv' if is_quotient else 'urem'} {name} {a}, {safe}")
        return w.value(f"select {mask} {is_zero}, {name} {zero}, {name} {found}")
    minus = w.once(f"icmp eq {name} {b}, {literal(-1, t)}")
    safer = w.once(f"select {mask} {minus}, {name} {one}, {name} {safe}")
    found = w.once(f"{'sdiv' if is_quotient else 'srem'} {name} {a}, {safer}")
    if row in (ops.FLOORDIV, ops.MOD):
        remainder = w.once(f"srem {name} {a}, {safer}")
        found = _floor(w, t, b, found, remainder, is_quotient)
    if is_quotient:
        negated = w.value(f"sub {name} {zero}, {a}")
        found = w.value(f"select {mask} {minus}, {name} {negated}, {name} {found}")
    return w.value(f"select {mask} {is_zero}, {name} {zero}, {name} {found}")


def _floor(w: Writer, t: Type, b: str, found: str, remainder: str, is_quotient: bool) -> str:
    """A quotient or remainder from truncation to floor: another where the remainder's sign is not
    the divisor's."""
    name, mask, zero = spell.type_name(t), spell.vector_name("i1", width_of(t), t), literal(0, t)
    inexact = w.once(f"icmp ne {name} {remainder}, {zero}")
    mixed = w.once(f"xor {name} {remainder}, {b}")
    differ = w.once(f"icmp slt {name} {mixed}, {zero}")
    adjust = w.once(f"and {mask} {inexact}, {differ}")
    floored = _lowered(w, t, b, found, is_quotient)
    return w.value(f"select {mask} {adjust}, {name} {floored}, {name} {found}")


def _lowered(w: Writer, t: Type, b: str, found: str, is_quotient: bool) -> str:
    """The quotient below a quotient, or the remainder that belongs to that."""
    name = spell.type_name(t)
    if is_quotient:
        return w.value(f"sub {name} {found}, {literal(1, t)}")
    return w.value(f"add {name} {found}, {b}")


def _divide_float(e: Emitter, op: Op) -> str:
    """Python's `//` and `%` from the exact `frem`; `//` of types below f32 is computed in f32."""
    t = op.result.type
    is_narrow = element_of(t).bits < f32.bits
    wide = with_element(t, f32) if op.row is ops.FLOORDIV and is_narrow else t
    a, b = (x if wide == t else convert(e, x, t, wide) for x in e.operands(op))
    found = _floor_or_rest(e, op.row, wide, a, b)
    return found if wide == t else convert(e, found, wide, t)


def _floor_or_rest(e: Emitter, row: OpDef, t: Type, a: str, b: str) -> str:
    w, name = e.w, spell.type_name(t)
    mask = spell.vector_name("i1", width_of(t), t)
    remainder = w.value(f"frem {name} {a}, {b}")
    zero = literal(0.0, t)
    inexact = w.value(f"fcmp une {name} {remainder}, {zero}")
    left = w.value(f"fcmp olt {name} {remainder}, {zero}")
    right = w.value(f"fcmp olt {name} {b}, {zero}")
    differ = w.value(f"xor {mask} {left}, {right}")
    adjust = w.value(f"and {mask} {inexact}, {differ}")
    if row is ops.MOD:
        raised = w.value(f"fadd {name} {remainder}, {b}")
        signed = e.intrinsic("copysign", t, remainder, b)
        exact = w.value(f"select {mask} {inexact}, {name} {remainder}, {name} {signed}")
        return w.value(f"select {mask} {adjust}, {name} {raised}, {name} {exact}")
    rest = w.value(f"fsub {name} {a}, {remainder}")
    rounded = w.value(f"fdiv {name} {rest}, {b}")
    less = w.value(f"fsub {name} {rounded}, {literal(1.0, t)}")
    quotient = w.value(f"select {mask} {adjust}, {name} {less}, {name} {rounded}")
    below = e.intrinsic("floor", t, quotient)
    over = w.value(f"fsub {name} {quotient}, {below}")
    is_over = w.value(f"fcmp ogt {name} {over}, {literal(0.5, t)}")
    next_one = w.value(f"fadd {name} {below}, {literal(1.0, t)}")
    whole = w.value(f"select {mask} {is_over}, {name} {next_one}, {name} {below}")
    plain = w.value(f"fdiv {name} {a}, {b}")
    is_zero = w.value(f"fcmp oeq {name} {quotient}, {zero}")
    signed = e.intrinsic("copysign", t, zero, plain)
    found = w.value(f"select {mask} {is_zero}, {name} {signed}, {name} {whole}")
    by_zero = w.value(f"fcmp oeq {name} {b}, {zero}")
    return w.value(f"select {mask} {by_zero}, {name} {plain}, {name} {found}")


# Shifts


def _shift(e: Emitter, op: Op) -> str:
    t = op.result.type
    dtype = element_of(t)
    name = spell.type_name(t)
    mask = spell.vector_name("i1", width_of(t), t)
    a, b = e.operands(op)
    word = "shl" if op.row is ops.SHL else "ashr" if dtype.kind is Kind.INT else "lshr"
    constant_count = e.constant_of(op.operands[1])
    if constant_count is not None and 0 <= constant_count < dtype.bits:
        return e.w.value(f"{word} {name} {a}, {b}")
    inside = e.w.value(f"icmp ult {name} {b}, {literal(dtype.bits, t)}")
    if word == "ashr":
        last = literal(dtype.bits - 1, t)
        count = e.w.value(f"select {mask} {inside}, {name} {b}, {name} {last}")
        return e.w.value(f"ashr {name} {a}, {count}")
    # `freeze`: LLVM 22 takes a shift of nonzero bits for nonzero, poison or not, and divides by it
    frozen = e.w.value(f"freeze {name} " + e.w.value(f"{word} {name} {a}, {b}"))
    return e.w.value(f"select {mask} {inside}, {name} {frozen}, {name} {literal(0, t)}")


# Comparisons and conversions


def _compare(e: Emitter, op: Op) -> str:
    t = op.operands[0].type
    a, b = e.operands(op)
    word = spell.compare_word(op.row, element_of(t))
    return e.w.value(f"{word} {spell.type_name(t)} {a}, {b}")


def _select(e: Emitter, op: Op) -> str:
    mask, a, b = e.operands(op)
    t = op.result.type
    condition = spell.type_name(op.operands[0].type)
    name = spell.type_name(t)
    return e.w.value(f"select {condition} {mask}, {name} {a}, {name} {b}", op.result.name)


def _cast(e: Emitter, op: Op) -> str:
    if op.attrs.get("nonnegative"):  # LLVM sees powers of two through an extension without sign
        (value,), name = e.operands(op), spell.type_name(op.operands[0].type)
        return e.w.value(f"zext {name} {value} to {spell.type_name(op.result.type)}")
    return convert(e, e.operands(op)[0], op.operands[0].type, op.result.type)


def _bitcast(e: Emitter, op: Op) -> str:
    (a,) = e.operands(op)
    source, target = spell.type_name(op.operands[0].type), spell.type_name(op.result.type)
    return a if source == target else e.w.value(f"bitcast {source} {a} to {target}")


# Lanes


def _splat(e: Emitter, op: Op) -> str:
    (a,) = e.operands(op)
    t = op.result.type
    scalar, name = spell.scalar_name(element_of(t)), spell.type_name(t)
    if not a.startswith("%"):
        return splat(a, t, scalar)
    first = e.w.value(f"insertelement {name} poison, {scalar} {a}, i64 0")
    return e.w.value(
        f"shufflevector {name} {first}, {name} poison, <{width_of(t)} x i32> zeroinitializer"
    )


def _extract(e: Emitter, op: Op) -> str:
    line, *lane = e.operands(op)
    name = spell.type_name(op.operands[0].type)
    return e.w.value(f"extractelement {name} {line}, i64 {lane[0] if lane else op.attrs['lane']}")


def _lookup(e: Emitter, op: Op) -> str:
    """A load from a constant array, inside of which legalisation has kept the index."""
    t, table = element_of(op.result.type), table_of(op)
    name = spell.scalar_name(t)
    numbers = ", ".join([f"{name} {constant(number, t)}" for number in table])
    array = f"[{len(table)} x {name}]"
    address = e.w.table(f"{array} [{numbers}]")
    (index,) = e.operands(op)
    position = f"{spell.type_name(op.operands[0].type)} {index}"
    place = e.w.value(f"getelementptr inbounds {array}, ptr {address}, i64 0, {position}")
    if isinstance(op.result.type, Line):
        return _gathered(e, place, op.result.type)
    return e.w.value(f"load {name}, ptr {place}{IN_PARALLEL}")


def _gathered(e: Emitter, places: str, t: Line) -> str:
    vector, width = spell.type_name(t), t.width
    return e.w.call(
        f"llvm.masked.gather.{spell.suffix(t)}.v{width}p0",
        vector,
        (f"<{width} x ptr> align {t.element.itemsize}", places),
        (f"<{width} x i1>", "splat (i1 true)"),
        (vector, "poison"),
    )


def _insert(e: Emitter, op: Op) -> str:
    line, scalar = e.operands(op)
    name, element = spell.type_name(op.result.type), spell.scalar_name(element_of(op.result.type))
    return e.w.value(f"insertelement {name} {line}, {element} {scalar}, i64 {op.attrs['lane']}")


def shuffle_text(name: str, a: str, b: str, lanes: tuple[int, ...]) -> str:
    """A shufflevector with a constant mask."""
    mask = ", ".join(f"i32 {k}" for k in lanes)
    return f"shufflevector {name} {a}, {name} {b}, <{len(lanes)} x i32> <{mask}>"


def _shuffle(e: Emitter, op: Op) -> str:
    a, b = e.operands(op)
    lanes = op.attrs["lanes"]
    assert isinstance(lanes, tuple)
    plain = tuple(k for k in lanes if isinstance(k, int))
    return e.w.value(shuffle_text(spell.type_name(op.operands[0].type), a, b, plain))


def _reduce(e: Emitter, op: Op) -> str:
    """Halves are combined until one lane is left; an odd one waits behind them."""
    (value,) = e.operands(op)
    t = op.operands[0].type
    assert isinstance(t, Line)
    row = spell.REDUCTIONS[op.row]
    if t.element is bool_ and row in (ops.AND, ops.OR):
        return _any_or_all(e, row, t, value)
    while t.width > 1:
        half = t.width // 2
        name, low_type = spell.type_name(t), Line[t.element, half]
        low = e.w.value(shuffle_text(name, value, "poison", tuple(range(half))))
        high = e.w.value(shuffle_text(name, value, "poison", tuple(range(half, 2 * half))))
        combined = binary_text(e, row, low_type, low, high)
        value = combined if t.width % 2 == 0 else _append(e, t, value, combined, half)
        t = Line[t.element, t.width - half]
    return e.w.value(f"extractelement {spell.type_name(t)} {value}, i64 0")


def _any_or_all(e: Emitter, row: OpDef, t: Line, mask: str) -> str:
    """The mask as one integer, which processors compare at once."""
    word = f"i{t.width}"
    bits = e.w.value(f"bitcast {spell.type_name(t)} {mask} to {word}")
    return e.w.value(f"icmp {'ne' if row is ops.OR else 'eq'} {word} {bits}, {-(row is ops.AND)}")


def _append(e: Emitter, t: Line, value: str, combined: str, half: int) -> str:
    """The combined lanes, then the last lane of `value`."""
    scalar = spell.scalar_name(t.element)
    last = e.w.value(f"extractelement {spell.type_name(t)} {value}, i64 {2 * half}")
    narrow, wide = Line[t.element, half], Line[t.element, half + 1]
    lanes = (*range(half), 0)
    widened = e.w.value(shuffle_text(spell.type_name(narrow), combined, "poison", lanes))
    text = f"insertelement {spell.type_name(wide)} {widened}, {scalar} {last}, i64 {half}"
    return e.w.value(text)


def _lane_mask(e: Emitter, op: Op) -> str:
    first, end = e.operands(op)
    width = width_of(op.result.type)
    bits = 32 if width <= 16 else 8 if width < 128 else 16
    name = f"<{width} x i{bits}>"
    iota = "<" + ", ".join(f"i{bits} {k}" for k in range(width)) + ">"
    mask = e.w.value(f"icmp slt {name} {iota}, {_clamped(e, end, width, bits)}")
    if e.constant_of(op.operands[0]) == 0:
        return mask
    after = e.w.value(f"icmp sge {name} {iota}, {_clamped(e, first, width, bits)}")
    return e.w.value(f"and <{width} x i1> {mask}, {after}")


def _clamped(e: Emitter, lane: str, width: int, bits: int) -> str:
    """A lane number cut to 0..width, in every lane of a vector."""
    low = e.w.call("llvm.smax.i64", "i64", ("i64", lane), ("i64", "0"))
    both = e.w.call("llvm.smin.i64", "i64", ("i64", low), ("i64", str(width)))
    narrow = e.w.value(f"trunc i64 {both} to i{bits}")
    name = f"<{width} x i{bits}>"
    first = e.w.value(f"insertelement {name} poison, i{bits} {narrow}, i64 0")
    return e.w.value(
        f"shufflevector {name} {first}, {name} poison, <{width} x i32> zeroinitializer"
    )


HANDLERS: dict[OpDef, Emit] = {
    ops.CONST: _const,
    ops.CAST: _cast,
    ops.BITCAST: _bitcast,
    ops.SELECT: _select,
    ops.NEG: _neg,
    ops.ABS: _abs,
    ops.NOT: _not,
    ops.MUL_HI: _mul_hi,
    ops.SHL: _shift,
    ops.SHR: _shift,
    ops.SPLAT: _splat,
    ops.EXTRACT: _extract,
    ops.INSERT: _insert,
    ops.LOOKUP: _lookup,
    ops.SHUFFLE: _shuffle,
    ops.LANE_MASK: _lane_mask,
}
HANDLERS |= dict.fromkeys((ops.ADD, ops.SUB, ops.MUL, ops.DIV, ops.AND, ops.OR, ops.XOR), _binary)
HANDLERS |= dict.fromkeys(EXTREMA, _extreme)
HANDLERS |= dict.fromkeys(
    (ops.SQRT, ops.FLOOR, ops.CEIL, ops.TRUNC, ops.RINT, ops.COPYSIGN, ops.FMA), _unary_float
)
HANDLERS |= dict.fromkeys((ops.FLOORDIV, ops.MOD, ops.DIV_TRUNC, ops.REM_TRUNC), _divide)
HANDLERS |= dict.fromkeys(spell.COUNTING, _count_bits)
HANDLERS |= dict.fromkeys((ops.EQ, ops.NE, ops.LT, ops.LE, ops.GT, ops.GE), _compare)
HANDLERS |= dict.fromkeys(spell.REDUCTIONS, _reduce)
