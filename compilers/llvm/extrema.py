"""Minima and maxima of floats on x86, whose instructions order neither zeros nor NaN.

`minps a, b` is b where an operand is NaN and where both are zeros. Taken in both orders, its
results differ nowhere else: `or` of their bits is a NaN there, and of zeros one with a sign. `and`
is the zero that a maximum is, and NaN is put in by a comparison. LLVM orders the operands by the
sign of one of them instead, on which a scalar branches, and each sign that changes is mispredicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cubepy.compilers.llvm import ops as spell
from cubepy.compilers.llvm.literals import literal, splat
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Line, Type, element_of, f16, f32, width_of, with_element
from cubepy.targets import Target

if TYPE_CHECKING:
    from cubepy.compilers.llvm.emit import Emitter

EXTREMA = (ops.MIN, ops.MAX)


def orders_by_hand(target: Target, t: Type) -> bool:
    """Whether a minimum of a type takes more than one instruction of the target."""
    return target.family == "x86-64" and element_of(t).is_float


def extreme_text(e: Emitter, row: OpDef, t: Type, a: str, b: str) -> str:
    """The minimum or maximum of two registers or constants; gives the register."""
    if element_of(t) is f16:
        return _of_halves(e, row, t, a, b)
    w, name, word = e.w, spell.type_name(t), "olt" if row is ops.MIN else "ogt"
    mask = spell.vector_name("i1", width_of(t), t)
    bits = spell.vector_name(f"i{element_of(t).bits}", width_of(t), t)
    found = []
    for first, second in ((a, b), (b, a)):
        goes_first = w.value(f"fcmp {word} {name} {first}, {second}")
        chosen = w.value(f"select {mask} {goes_first}, {name} {first}, {name} {second}")
        found.append(w.value(f"bitcast {name} {chosen} to {bits}"))
    one, other = found
    if row is ops.MIN:
        either = w.value(f"or {bits} {one}, {other}")
        return w.value(f"bitcast {bits} {either} to {name}")
    both = w.value(f"and {bits} {one}, {other}")
    is_nan = w.value(f"fcmp uno {name} {a}, {b}")
    if isinstance(t, Line):  # masks are lines of ones
        ones = splat("-1", t, f"i{element_of(t).bits}")
        both = w.value(f"select {mask} {is_nan}, {bits} {ones}, {bits} {both}")
        return w.value(f"bitcast {bits} {both} to {name}")
    number = w.value(f"bitcast {bits} {both} to {name}")
    nan = literal(float("nan"), t)
    return w.value(f"select {mask} {is_nan}, {name} {nan}, {name} {number}")


def extreme_beside(e: Emitter, row: OpDef, t: Type, a: str, number: float, b: str) -> str:
    """The same of a register and a constant, which is `number`: LLVM needs one instruction, but for
    the zeros that a result may not be."""
    if row is not ops.MAX or str(float(number)) != "0.0":
        return e.intrinsic(spell.FLOAT_INTRINSICS[row], t, a, b)
    name, mask = spell.type_name(t), spell.vector_name("i1", width_of(t), t)
    is_zero = e.w.value(f"fcmp ole {name} {a}, {b}")
    return e.w.value(f"select {mask} {is_zero}, {name} {b}, {name} {a}")


def _of_halves(e: Emitter, row: OpDef, t: Type, a: str, b: str) -> str:
    """Processors compare halves as f32."""
    wide = with_element(t, f32)
    name, wide_name = spell.type_name(t), spell.type_name(wide)
    one, other = (e.w.value(f"fpext {name} {v} to {wide_name}") for v in (a, b))
    found = extreme_text(e, row, wide, one, other)
    return e.w.value(f"fptrunc {wide_name} {found} to {name}")


def left_to_llvm(kernel: Kernel) -> frozenset[Op]:
    """Extremes of scalars that an innermost `for` carries and nothing in it reads otherwise, and
    those that they take: LLVM makes lines of its own extremes there, and of no others."""
    found: set[Op] = set()
    for loop in kernel.body.walk():
        if loop.row is not ops.FOR:
            continue
        (body,) = loop.regions
        if any(op.row in (ops.FOR, ops.LOOP) for op in body.walk()):
            continue
        for arg, end in zip(body.args[1:], body.terminator.operands, strict=True):
            if isinstance(arg.type, DType) and arg.type.is_float:
                found.update(_Fold(arg).extremes(body, end))
    made = {op.result: op for op in kernel.body.walk() if op.row in EXTREMA} if found else {}
    waiting = list(found)
    while waiting:
        taken = {made[v] for v in waiting.pop().operands if v in made} - found
        found |= taken
        waiting += taken
    return frozenset(found)


class _Fold:
    """What a body makes of a carried value by extremes of one kind and choices among them."""

    def __init__(self, arg: Value) -> None:
        self._values = {arg}
        self._extremes: list[Op] = []
        self._is_read = False

    def extremes(self, body: Region, end: Value) -> list[Op]:
        """The extremes that make `end`; none if anything else reads what they make."""
        self._follow(body)
        is_fold = end in self._values and not self._is_read
        return self._extremes if is_fold and body.terminator.operands.count(end) == 1 else []

    def _follow(self, region: Region) -> None:
        for op in region.ops:
            for inner in op.regions:
                self._follow(inner)
            ends = [inner.terminator for inner in op.regions]
            if any(end.row is not ops.YIELD for end in ends):
                self._is_read = True
            elif ends:
                given = zip(*(end.operands for end in ends), strict=True)
                for result, values in zip(op.results, given, strict=True):
                    self._choose(result, values)
            elif op.row is ops.SELECT:
                self._choose(op.result, op.operands[1:])
            elif not op.row.is_terminator and not self._values.isdisjoint(op.operands):
                self._extremes.append(op)
                self._values.update(op.results)
                self._is_read |= op.row not in EXTREMA or op.row is not self._extremes[0].row

    def _choose(self, result: Value, given: Sequence[Value]) -> None:
        if not self._values.isdisjoint(given):
            self._values.add(result)
            self._is_read |= not self._values.issuperset(given)
