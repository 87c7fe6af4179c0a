"""Negations that feed an integer minimum or maximum, for compilers that lose their sign.

ptxas (CUDA 13.0 to 13.3) folds a negation into the second operand of a minimum, makes one
instruction of two minima (VIMNMX3) and forgets the sign there. It takes anything for a negation
that arithmetic shows to be one, as `y - (y + x)`. So the negations that reach such an operand
become `HIDDEN_NEG`, whose spelling is not recognised: one instruction more, in kernels that have
the combination alone. A difference counts as one where a choice may be what it is subtracted from,
as in `y - (min(max(y, 1), y) + x)`, of which NVVM knows that it is; where both are loads, which may
be of one element; and where what is subtracted from may be a constant, as the counter of a loop is
in the first step, which NVVM moves before the loop: such a one is negated twice. A load may be
whatever is stored to its memory, for NVVM remembers that.

ptxas takes an absolute value (`abs.s32`, which NVVM makes of a choice) for no negative number, but
that of the least integer is negative: so its negation is hidden, at two instructions more.

Negations of u16 that become i16 are hidden as well, for the reason that
`compilers/cstyle/nvidia.py` gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Buffer, Type, element_of, i16, u16, unsigned_like
from cubepy.passes.dce import dce
from cubepy.passes.legalise.linear_forms import LinearForm, LinearForms, is_integer
from cubepy.passes.legalise.rows import HIDDEN_NEG
from cubepy.passes.origins import Origins
from cubepy.passes.rewrite import Rewriter

_EXTREMA = (ops.MIN, ops.MAX)
_ORDERS = (ops.LT, ops.LE, ops.GT, ops.GE)
_MOVES = (
    *(ops.CAST, ops.BITCAST, ops.SPLAT, ops.EXTRACT, ops.INSERT, ops.SHUFFLE),
    *(ops.SELECT, ops.IF, ops.FOR, ops.LOOP, ops.LOAD),
)
"""Operations that hand on the number of an operand."""
_CASTS = (ops.CAST, ops.BITCAST)
_CHOICES = (*_CASTS, *_EXTREMA, ops.SELECT, ops.IF, ops.FOR, ops.LOOP, ops.LOAD)


def hide_negations(kernel: Kernel) -> Kernel:
    """The kernel whose minima and maxima of integers get no negation that a compiler sees."""
    if not any(op.row in _EXTREMA or op.row in _ORDERS or _signs(op) for op in kernel.body.walk()):
        return kernel
    negations = _Negations(kernel)
    found = negations.reaching_extrema() | negations.becoming_signed() | negations.of_absolutes()
    return dce(_Hide(found).run(kernel)) if found else kernel


class _Negations:
    """Finds negations, and which of them reach a minimum or a choice by comparison."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._origins = Origins(kernel)
        self._forms = LinearForms(kernel, self._origins)

    def reaching_extrema(self) -> dict[Op, tuple[Value, ...]]:
        """Each such negation, with the values whose sum it negates; none if it only may be one."""
        found: dict[Op, tuple[Value, ...]] = {}
        seen: set[Value] = set()
        waiting = [v for op in self._kernel.body.walk() for v in self._compared(op)]
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            op = self._origins.owner(value)
            negated = () if op is None else self._negated(op)
            if op is not None and (negated or self._may_negate(op)):
                found[op] = negated
            else:
                waiting += self._sources(value, _MOVES)
        return found

    def becoming_signed(self) -> dict[Op, tuple[Value, ...]]:
        """Negations of 16 bits without a sign that become signed numbers."""
        signed = [op for op in self._kernel.body.walk() if _signs(op)]
        return {op: negated for op in signed if (negated := self._negated(op))}

    def of_absolutes(self) -> dict[Op, tuple[Value, ...]]:
        """Negations that a comparison chooses beside what they negate."""
        found: dict[Op, tuple[Value, ...]] = {}
        for op in self._kernel.body.walk():
            compared = {self._bits(v) for v in self._choosing(op)}
            chosen = (v for result in op.results if compared for v in self._origins.of(result))
            for owner in filter(None, map(self._owner_of_bits, chosen)):
                negated = self._negated(owner)
                if negated and compared & set(map(self._bits, negated)):
                    found[owner] = negated
        return found

    def _choosing(self, op: Op) -> tuple[Value, ...]:
        """The integers whose comparison chooses the results of an operation."""
        if op.row not in (ops.SELECT, ops.IF):
            return ()
        condition = self._origins.owner(op.operands[0])
        if condition is None or condition.row not in _ORDERS:
            return ()
        return condition.operands if is_integer(condition.operands[0]) else ()

    def _compared(self, op: Op) -> Iterator[Value]:
        """What a minimum, or a choice by a comparison, takes."""
        if op.row in _EXTREMA and is_integer(op.operands[0]):
            yield from op.operands
            return
        operands = self._choosing(op)
        if operands and not set(operands).isdisjoint(self._given(op)):
            yield from operands

    def _given(self, op: Op) -> Iterator[Value]:
        """What a choice may give, or stores."""
        for result in op.results:
            yield from self._origins.of(result)
        for region in op.regions:
            yield from (inner.operands[2] for inner in region.ops if inner.row is ops.STORE)

    def _negated(self, op: Op) -> tuple[Value, ...]:
        """The values whose sum an operation negates, if it is a negation in any form."""
        if op.regions or len(op.results) != 1 or not is_integer(op.result):
            return ()
        return self._forms.negated(op)

    def _may_negate(self, op: Op) -> bool:
        """Whether an operation negates a sum if choices in it are what they are subtracted from, or
        if some of its terms are constants."""
        if op.regions or len(op.results) != 1 or not is_integer(op.result):
            return False
        form = self._forms.of(op.result)
        minus = (1 << form.bits) - 1
        others = {v: factor for v, factor in form.factors.items() if factor != minus}
        is_difference = 0 < len(others) < len(form.factors)
        if is_difference and all(self._may_vanish(v, f, form) for v, f in others.items()):
            return True
        added = [v for v, factor in form.factors.items() if factor == 1]
        taken = [v for v, factor in form.factors.items() if factor == minus]
        if form.number or not added or len(added) + len(taken) < len(form.factors):
            return False
        for value in added:
            same = next((v for v in taken if self._may_be(v, value)), None)
            if same is None:
                return False
            taken.remove(same)
        return bool(taken)

    def _may_vanish(self, value: Value, factor: int, form: LinearForm) -> bool:
        """Whether a term may be a constant that leaves nothing of a form but what it subtracts: in
        some step of a loop, where it starts at a constant; of what is chosen, or of a product."""
        return any(
            number is None or not (form.number + factor * number) % (1 << form.bits)
            for v in self._chosen_of(value, (*_CHOICES, ops.MUL, ops.AND))
            for number in self._known(v)
        )

    def _known(self, value: Value) -> Iterator[int | None]:
        """The number that a value is; None for what a loop changes that starts at a constant."""
        numbers, owner = self._forms.numbers, self._origins.owner(value)
        if isinstance(number := numbers.get(value), int):
            yield number
        elif owner is not None and owner.row in (ops.FOR, ops.LOOP):
            is_counter = owner.row is ops.FOR and value is owner.regions[0].args[0]
            first = owner.operands[0] if is_counter else next(self._origins.of(value))
            yield from (None,) if first in numbers else ()

    def _may_be(self, a: Value, b: Value) -> bool:
        """Whether one of two values may be chosen of others that have the other, or both may be
        loads of one element."""
        if self._loaded_from(a) & self._loaded_from(b):
            return True
        return bool(
            self._chosen_of(a) & self._chosen_of(b, _CASTS)
            or self._chosen_of(b) & self._chosen_of(a, _CASTS)
        )

    def _loaded_from(self, value: Value) -> set[Value]:
        """The memory that a value, or what it is chosen of, is read from."""
        return {v for v in self._chosen_of(value) if isinstance(v.type, Buffer)}

    def _chosen_of(self, value: Value, rows: Sequence[OpDef] = _CHOICES) -> set[Value]:
        """What a value may be, or is the bits of, and the memory that holds it."""
        found: set[Value] = set()
        waiting = [value]
        while waiting:
            v = waiting.pop()
            if v not in found:
                found.add(v)
                waiting += self._sources(v, rows)
        return found

    def _sources(self, value: Value, rows: Sequence[OpDef]) -> Iterable[Value]:
        """What a value may be, or is made of, by operations of some rows; of a load, the memory;
        of a memory, what is stored there."""
        if isinstance(value.type, Buffer):
            return self._origins.stored(value)
        op = self._origins.owner(value)
        if op is None or op.row not in rows:
            return ()
        return op.operands[:1] if op.row is ops.LOAD else self._origins.of(value)

    def _bits(self, value: Value) -> Value:
        """The value that has these bits first, under whatever type."""
        op = self._origins.owner(value)
        while op is not None and op.row is ops.BITCAST:
            value = op.operands[0]
            op = self._origins.owner(value)
        return value

    def _owner_of_bits(self, value: Value) -> Op | None:
        return self._origins.owner(self._bits(value))


def _signs(op: Op) -> bool:
    """Whether it makes a signed number of 16 bits of an unsigned one."""
    if op.row not in (ops.CAST, ops.BITCAST) or not is_integer(op.operands[0]):
        return False
    return element_of(op.result.type) is i16 and element_of(op.operands[0].type) is u16


class _Hide(Rewriter):
    def __init__(self, found: dict[Op, tuple[Value, ...]]) -> None:
        super().__init__()
        self._found = found

    def visit(self, op: Op) -> None:
        negated = self._found.get(op)
        if negated is None:
            self.out.append(self.renew(op))
            return
        t = op.result.type
        if not negated:
            value = self.emit(op.row, self.values(op.operands), dict(op.attrs), op.span)
            value = self.emit(ops.NEG, (value,), {}, op.span)
        else:
            value = self.value(negated[0]) if len(negated) == 1 else self._sum(op, negated)
        self.out.append(Op(HIDDEN_NEG, (self._as(op, t, value),), {}, op.results, (), op.span))

    def _sum(self, op: Op, values: tuple[Value, ...]) -> Value:
        """The sum, unsigned as it may wrap."""
        unsigned = unsigned_like(op.result.type)
        first, *others = [self._as(op, unsigned, self.value(v)) for v in values]
        for other in others:
            first = self.emit(ops.ADD, (first, other), {}, op.span)
        return first

    def _as(self, op: Op, t: Type, value: Value) -> Value:
        """The lower bits of a value as another type."""
        return value if value.type == t else self.emit(ops.CAST, (value,), {"type": t}, op.span)
