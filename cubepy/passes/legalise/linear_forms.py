"""Integers as sums of multiples of other values, modulo the number of their bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.types import Buffer, element_of
from cubepy.passes.origins import Origins
from cubepy.record import dataclass

MOST_SUMS, MOST_VALUES, MOST_LEVELS = 32, 6, 4
"""Sums within sums that a form looks through, values that it may have, and levels of sums in which
a negation's operand is looked for."""
_ROWS = (ops.NEG, ops.NOT, ops.ADD, ops.SUB, ops.MUL, ops.SHL, ops.CAST, ops.BITCAST)


@dataclass(frozen=True, slots=True)
class LinearForm:
    """`number` + the sum of value * factor, in `bits` bits; no factor is 0."""

    bits: int
    number: int = 0
    factors: Mapping[Value, int] = field(default_factory=dict[Value, int])

    def times(self, factor: int) -> LinearForm:
        """Its product by a constant."""
        return _form(
            self.bits,
            self.number * factor,
            {value: old * factor for value, old in self.factors.items()},
        )

    def plus(self, other: LinearForm) -> LinearForm:
        """The sum of both."""
        both = dict(self.factors)
        for value, factor in other.factors.items():
            both[value] = both.get(value, 0) + factor
        return _form(self.bits, self.number + other.number, both)

    def cut(self, bits: int) -> LinearForm:
        """Its lower bits."""
        return _form(bits, self.number, self.factors)


def _form(bits: int, number: int, factors: Mapping[Value, int]) -> LinearForm:
    size = 1 << bits
    kept = {value: factor % size for value, factor in factors.items() if factor % size}
    return LinearForm(bits, number % size, kept)


class LinearForms:
    """The linear forms of a kernel's integers."""

    def __init__(self, kernel: Kernel, origins: Origins) -> None:
        self._origins = origins
        self._found: dict[Value, LinearForm] = {}
        self.numbers: dict[Value, object] = {}
        """The constants, also those that are splat."""
        for op in kernel.body.walk():
            if op.row is ops.CONST:
                self.numbers[op.result] = op.attrs["value"]
            elif op.row is ops.SPLAT and op.operands[0] in self.numbers:
                self.numbers[op.result] = self.numbers[op.operands[0]]

    def of(self, value: Value, depth: int = MOST_SUMS) -> LinearForm:
        """The form of an integer; of what is no sum, once the value itself."""
        form = self._found.get(value)
        if form is None:
            form = self._found[value] = self._new(value, element_of(value.type).bits, depth)
        return form

    def _new(self, value: Value, bits: int, depth: int) -> LinearForm:
        number, op = self.numbers.get(value), self._origins.owner(value)
        if isinstance(number, int):
            return LinearForm(bits, number % (1 << bits))
        found = self._sum(op, bits, depth - 1) if op is not None and depth else None
        if found is None or len(found.factors) > MOST_VALUES:
            return LinearForm(bits, 0, {value: 1})
        return found

    def steps(self, value: Value, by_ones: bool = True) -> Iterator[Value]:
        """The counters of loops, by ones, that a value follows in their steps, up or down, or by
        any number if asked. Widening is looked through."""
        form = self.of(value)
        for atom, factor in form.factors.items():
            owner = self._origins.owner(atom)
            if owner is None or (by_ones and factor not in (1, (1 << form.bits) - 1)):
                continue
            if owner.row is ops.CAST and is_integer(owner.operands[0]):
                yield from self.steps(owner.operands[0], by_ones)
            elif owner.regions and self._counts(atom, owner, by_ones):
                yield atom

    def _counts(self, value: Value, loop: Op, by_ones: bool) -> bool:
        """Whether a loop adds a number to an argument of its body in each step: 1 or -1, or any."""
        if loop.row is ops.FOR and value is loop.regions[0].args[0]:
            return not by_ones or self.numbers.get(loop.operands[2]) in (1, -1)
        if loop.row is ops.IF or value in loop.results:
            return False
        next_ones = map(self.of, self._origins.of(value))
        return any(
            dict(form.factors) == {value: 1}
            and (not by_ones or form.number in (1, (1 << form.bits) - 1))
            for form in next_ones
        )

    def negated(self, op: Op) -> tuple[Value, ...]:
        """Values whose sum an operation negates: one that it is made of, or all of its form."""
        form = self.of(op.result)
        opposite = form.times(-1)
        if form.factors:
            for value in self._within(op, MOST_LEVELS):
                if self.of(value).cut(form.bits) == opposite:
                    return (value,)
        is_sum = not form.number and set(opposite.factors.values()) == {1}
        return tuple(opposite.factors) if is_sum else ()

    def _within(self, op: Op, levels: int) -> Iterator[Value]:
        """The integers that the sums of an operation are made of, the nearest first."""
        if op.row not in _ROWS or not all(map(is_integer, op.operands)):
            return
        yield from op.operands
        owners = map(self._origins.owner, op.operands)
        for inner in (owner for owner in owners if owner is not None and levels):
            yield from self._within(inner, levels - 1)

    def _sum(self, op: Op, bits: int, depth: int) -> LinearForm | None:
        """The sum that an operation makes; None if it makes none."""
        if op.row not in _ROWS or not all(map(is_integer, op.operands)):
            return None
        match op.row, [self.of(v, depth) for v in op.operands]:
            case ops.NEG, [a]:
                return a.times(-1)
            case ops.NOT, [a]:
                return a.times(-1).plus(LinearForm(bits, -1))
            case ops.ADD, [a, b]:
                return a.plus(b)
            case ops.SUB, [a, b]:
                return a.plus(b.times(-1))
            case ops.MUL, [a, b] if not b.factors:
                return a.times(b.number)
            case ops.MUL, [a, b] if not a.factors:
                return b.times(a.number)
            case ops.SHL, [a, b] if not b.factors and b.number < bits:
                return a.times(1 << b.number)
            case ((ops.CAST | ops.BITCAST), [a]) if a.bits >= bits:
                return a.cut(bits)
            case _:
                return None


def is_integer(value: Value) -> bool:
    """Whether it is an integer, or a line of some."""
    return not isinstance(value.type, Buffer) and element_of(value.type).is_integer
