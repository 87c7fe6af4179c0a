"""Zeros with a sign that a condition chooses, for a compiler that loses it.

ptxas (CUDA 13.0 and 13.5) takes a choice between -1 and -0, in f32, for the conversion of the
integers -1 and 0: the zero comes out positive. NVVM makes such a choice of `-(1.0 if c else 0.0)`
as well, and wherever further constants make -1 and -0 of those that are chosen. So the bits of
numbers are chosen instead, and `HIDDEN`, where one of them is -0, or where one is 0 and the sign of
the choice may be changed.

NVVM makes `x + (-1.0 if c else -0.0)` of `x - 1 if c else x`, too, also where both are stored. So
the 1 is `HIDDEN` where it is taken from what is chosen, or stored where something else is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import (
    DType,
    Line,
    bf16,
    element_of,
    f32,
    f64,
    i32,
    i64,
    u16,
    with_element,
)
from cubepy.passes.legalise.rows import HIDDEN
from cubepy.passes.origins import Origins
from cubepy.passes.rewrite import Rewriter

_BITS = {f32: i32, f64: i64, bf16: u16}  # of f16, no compiler looks into the conversion
_LOOPS = (ops.FOR, ops.LOOP)
_JUMPS = (ops.BREAK, ops.CONTINUE)
_CHOICES = (ops.SELECT, ops.IF, *_LOOPS)
_MOVES = (ops.CAST, ops.SPLAT, ops.EXTRACT, ops.INSERT, ops.SHUFFLE, *_CHOICES)
"""Operations that hand on the number of an operand."""
_SIGNS = (ops.NEG, ops.SUB, ops.MUL, ops.DIV, ops.FMA, ops.COPYSIGN)
"""Operations that may give a zero another sign."""


def hide_zeros(kernel: Kernel) -> Kernel:
    """The kernel in which no choice shows that it may be a zero whose sign matters."""
    if not any(op.row in _CHOICES for op in kernel.body.walk()):
        return kernel
    zeros = _Zeros(kernel)
    found, steps = zeros.hidden(), zeros.steps()
    return _Hide(found, steps).run(kernel) if found or steps else kernel


def _is_real(value: Value) -> bool:
    return isinstance(value.type, DType | Line) and element_of(value.type) in _BITS


class _Zeros:
    """Finds choices between constants, and where they go."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._origins = Origins(kernel)

    def hidden(self) -> set[Value]:
        """The results of choices that are to be hidden."""
        choices = {v: zeros for op in self._kernel.body.walk() for v, zeros in self._choices(op)}
        found = {v for v, zeros in choices.items() if any(math.copysign(1, z) < 0 for z in zeros)}
        if len(found) < len(choices):
            found |= choices.keys() & self._signed()
        return found

    def steps(self) -> dict[Op, Value]:
        """Numbers less 1, in f32, that meet another one in a choice or in memory, each with the
        number."""
        walked = list(self._kernel.body.walk())
        steps = {op: x for op in walked if (x := self._less_one(op)) is not None}
        if not steps:
            return steps
        choices = [(op, result) for op in walked if op.row in _CHOICES for result in op.results]
        met = {v for op, result in choices for v in self._alternatives(op, result)}
        stores = [op.operands for op in walked if op.row is ops.STORE]
        count = Counter(buffer for buffer, *_ in stores)
        met |= {v for buffer, *rest in stores if count[buffer] > 1 for v in rest}
        return {op: x for op, x in steps.items() if op.result in met}

    def _less_one(self, op: Op) -> Value | None:
        """The x of `x - 1`, which NVVM writes as the sum of x and -1."""
        if op.row not in (ops.SUB, ops.ADD) or element_of(op.result.type) is not f32:
            return None
        a, b = op.operands
        if self._number(b) == (1 if op.row is ops.SUB else -1):
            return a
        return b if op.row is ops.ADD and self._number(a) == -1 else None

    def _choices(self, op: Op) -> Iterator[tuple[Value, list[float]]]:
        """Results that are a zero or another constant, with their zeros."""
        if op.row not in _CHOICES:
            return
        for result in filter(_is_real, op.results):
            numbers = self._numbers(result)
            zeros = [n for n in numbers if n == 0]
            if zeros and len(set(map(repr, numbers))) > 1:
                yield result, zeros

    def _numbers(self, result: Value) -> list[float]:
        """The constants among what a choice gives, also where others choose before it."""
        numbers = map(self._number, self._reached([result], _CHOICES))
        return [number for number in numbers if number is not None]

    def _reached(self, values: list[Value], rows: tuple[OpDef, ...]) -> Iterator[Value]:
        """Values, and all that they may be made of by operations of some rows."""
        seen: set[Value] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            yield value
            op = self._origins.owner(value)
            if op is not None and op.row in rows:
                waiting += self._alternatives(op, value)

    def _alternatives(self, op: Op, result: Value) -> tuple[Value, ...]:
        return op.operands[1:] if op.row is ops.SELECT else tuple(self._origins.of(result))

    def _number(self, value: Value) -> float | None:
        """The number that a value is in all lanes; None where that is not known."""
        op = self._origins.owner(value)
        while op is not None and op.row in (ops.SPLAT, ops.CAST):
            op = self._origins.owner(op.operands[0])
        number = op.attrs["value"] if op is not None and op.row is ops.CONST else None
        return float(number) if isinstance(number, int | float) else None

    def _signed(self) -> set[Value]:
        """What reaches an operation that may change signs, beside constants alone."""
        waiting: list[Value] = []
        for op in self._kernel.body.walk():
            if op.row in _SIGNS and _is_real(op.result):
                open_ = [v for v in op.operands if self._number(v) is None]
                waiting += open_ if len(set(open_)) == 1 else ()
        return set(self._reached(waiting, (*_MOVES, *_SIGNS)))


class _Hide(Rewriter):
    def __init__(self, found: set[Value], steps: dict[Op, Value]) -> None:
        super().__init__()
        self._found, self._steps = found, steps
        self._carried: list[tuple[Value, ...]] = []
        """For each open loop its results, to which jumps give what it carries."""

    def visit(self, op: Op) -> None:
        if op.row in _LOOPS:
            self._loop(op)
        elif op.row in _JUMPS:
            operands = self._given(self.values(op.operands), self._carried[-1], op)
            self.out.append(Op(op.row, operands, op.attrs, (), (), op.span))
        elif op in self._steps:
            self._step(op)
        elif self._found.isdisjoint(op.results):
            self.out.append(self.renew(op))
        elif op.row is ops.SELECT:
            condition, *chosen = self.values(op.operands)
            bits = [self._bits(v, op) for v in chosen]
            found = self.emit(ops.SELECT, (condition, *bits), {}, op.span)
            self._show(found, op.result, op)
        else:
            regions = tuple([self._giving_bits(region, op) for region in op.regions])
            self._build(op, self.values(op.operands), regions)

    def _step(self, op: Op) -> None:
        """The difference to a 1 that no compiler sees."""
        one = self.emit_const(op.result.type, 1, op.span)
        hidden = self.emit(HIDDEN, (self._bits(one, op),), {}, op.span)
        shown = self.emit(ops.BITCAST, (hidden,), {"type": op.result.type}, op.span)
        operands = self.value(self._steps[op]), shown
        self.out.append(Op(ops.SUB, operands, {}, op.results, (), op.span))

    def _build(self, op: Op, operands: tuple[Value, ...], regions: tuple[Region, ...]) -> None:
        """Append a branch or loop that gives bits where its results are hidden."""
        results = [Value(_bits_of(v), v.name) if v in self._found else v for v in op.results]
        self.out.append(Op(op.row, operands, op.attrs, tuple(results), regions, op.span))
        for bits, old in zip(results, op.results, strict=True):
            if bits is not old:
                self._show(bits, old, op)

    def _giving_bits(self, region: Region, branch: Op) -> Region:
        rewritten = self.region(region)
        *inner, last = rewritten.ops
        if last.row is not ops.YIELD:
            return rewritten
        outer, self.out = self.out, list(inner)
        given = self._given(last.operands, branch.results, last)
        self.out.append(Op(last.row, given, last.attrs, (), (), last.span))
        built, self.out = self.out, outer
        return Region(rewritten.args, tuple(built))

    def _loop(self, op: Op) -> None:
        """A loop, which carries bits where its results are hidden."""
        (body,), count = op.regions, len(op.results)
        first = len(op.operands) - count
        operands = self.values(op.operands)
        operands = operands[:first] + self._given(operands[first:], op.results, op)
        args = list(body.args)
        shown: list[Op] = []
        for k, result in enumerate(op.results, len(args) - count):
            if result in self._found:
                old, args[k] = args[k], Value(_bits_of(args[k]), args[k].name)
                attrs: dict[str, Attr] = {"type": old.type}
                shown.append(Op(ops.BITCAST, (args[k],), attrs, (old,), (), op.span))
        self._carried.append(op.results)
        inner = self.region(body)
        self._carried.pop()
        self._build(op, operands, (Region(tuple(args), (*shown, *inner.ops)),))

    def _given(self, values: tuple[Value, ...], to: tuple[Value, ...], op: Op) -> tuple[Value, ...]:
        """The values that are given to results: their bits, where those are hidden."""
        pairs = zip(values, to, strict=True)
        return tuple([self._bits(v, op) if result in self._found else v for v, result in pairs])

    def _bits(self, value: Value, op: Op) -> Value:
        return self.emit(ops.BITCAST, (value,), {"type": _bits_of(value)}, op.span)

    def _show(self, bits: Value, old: Value, op: Op) -> None:
        """Append what makes the old value of hidden bits."""
        hidden = self.emit(HIDDEN, (bits,), {}, op.span)
        attrs: dict[str, Attr] = {"type": old.type}
        self.out.append(Op(ops.BITCAST, (hidden,), attrs, (old,), (), op.span))


def _bits_of(value: Value) -> DType | Line:
    return with_element(value.type, _BITS[element_of(value.type)])
