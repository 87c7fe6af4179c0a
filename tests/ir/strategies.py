"""Random verified kernels: all pure operations, lines, memory, locals and control flow.

A `Source` makes the choices: Hypothesis, so that failures shrink, or `random.Random` for fuzzing.
Kernels look like what the frontend emits: mutable locals, `if`s without results, loops that carry
nothing. They end, and stay inside buffers of `BUFFER_SIZE` elements.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

from cubepy.artifact import Data, Extent, Scalar
from cubepy.ir import ops
from cubepy.ir.build import Builder
from cubepy.ir.core import Attr, Kernel, Op, Param, Region, Value
from cubepy.ir.numbers import Number, convert, limits
from cubepy.ir.opdef import OpDef, TypingError
from cubepy.ir.ops import TABLE
from cubepy.ir.types import (
    DTYPES,
    Buffer,
    DType,
    Kind,
    Line,
    Type,
    bool_,
    element_of,
    i8,
    i32,
    index,
    make_line,
    u8,
    width_of,
    with_element,
)
from cubepy.ir.verify import verify
from cubepy.span import Span

BUFFER_SIZE = 16
_OFFSETS = 8
"""Accesses start below this offset; the widest line fits behind it."""
_WIDTHS = (1, 1, 2, 4)
_DEPTH = 3
_Item = TypeVar("_Item")


class Source(Protocol):
    """Makes choices."""

    def below(self, count: int) -> int:
        """A number from 0 to count - 1."""
        ...


class RandomSource:
    """Choices of a pseudo-random generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, count: int) -> int:
        return int(self._random.random() * count)


class _DrawSource:
    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
        self._draw = draw
        self._strategies: dict[int, st.SearchStrategy[int]] = {}

    def below(self, count: int) -> int:
        strategy = self._strategies.get(count)
        if strategy is None:
            strategy = self._strategies[count] = st.integers(0, count - 1)
        return self._draw(strategy)


@st.composite
def kernels(draw: Any, size: int = 12) -> Kernel:
    """Kernels with about `size` statements, found and shrunk by Hypothesis."""
    return make_kernel(_DrawSource(draw), size)


def random_kernel(seed: int, size: int = 30) -> Kernel:
    """The kernel of a seed."""
    return make_kernel(RandomSource(seed), size)


def make_kernel(source: Source, size: int) -> Kernel:
    """A verified kernel from the choices of `source`."""
    return verify(_Maker(source, size).kernel())


OPTIONAL = {"strict", "nonnegative", "nonzero", "everywhere", "inside", "in_row"}
"""Attributes that say what is known; random kernels know nothing."""


def stable(param: Param) -> int:
    """A number of a parameter that does not depend on its place."""
    name = param.value.name
    return int(name[1:]) + 1 if name[1:].isdigit() else 0


def special_numbers(dtype: DType) -> tuple[Number, ...]:
    """Numbers at which operations change their behaviour."""
    if dtype.kind is Kind.BOOL:
        return (False, True)
    if dtype is index:
        return (0, 1, 2, -1, 3, 8)
    if dtype.is_integer:
        low, high = limits(dtype)
        return (0, 1, 2, wrapped(-1, dtype), low, high, 7, dtype.bits)
    floats = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -2.5, 1e-7, 4e4, math.inf, -math.inf, math.nan)
    converted = (convert(number, dtype) for number in floats)
    return tuple(math.nan if number != number else number for number in converted)


def wrapped(number: int, dtype: DType) -> Number:
    """An integer in an integer type."""
    return convert(number, dtype)


def _accepts(row: OpDef, types: list[Type], **attrs: Attr) -> bool:
    try:
        row.rule(types, attrs)
    except TypingError:
        return False
    return True


def _plain_rows() -> dict[OpDef, list[tuple[DType, int, bool]]]:
    """Rows that take operands of one type and no attributes: scalar type, count, only lines."""
    found: dict[OpDef, list[tuple[DType, int, bool]]] = {}
    for row in TABLE.values():
        if not row.is_pure or row.kind or set(row.attrs) - OPTIONAL or row is ops.SELECT:
            continue
        for dtype in DTYPES:
            for count in (1, 2, 3):
                if _accepts(row, [dtype] * count):
                    found.setdefault(row, []).append((dtype, count, False))
                elif _accepts(row, [make_line(dtype, 2)] * count):
                    found.setdefault(row, []).append((dtype, count, True))
    return found


PLAIN_ROWS = _plain_rows()
"""Pure rows that need no special case here."""
ARITHMETIC = tuple(row for row in PLAIN_ROWS if row.exact and row.meaning)
"""Those that folding evaluates and simplifies: made more often."""
SPECIAL_ROWS = (
    ops.CONST,
    ops.CAST,
    ops.BITCAST,
    ops.SELECT,
    ops.SPLAT,
    ops.EXTRACT,
    ops.INSERT,
    ops.SHUFFLE,
    ops.LANE_MASK,
    ops.DOT,
    ops.LOOKUP,
    ops.MISALIGNMENT,
    *(
        row
        for row in TABLE.values()
        if row.is_pure and not row.kind and _accepts(row, [], axis="x")
    ),
)
"""Pure rows that `_Maker` makes one by one."""


class _Maker:
    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self._builder = Builder()
        self._left = size
        self._dtypes = [self.pick(DTYPES[:-1]), self.pick(DTYPES[:-1]), bool_, index]
        self._buffers: list[Value] = []
        self._locals: list[Value] = []
        self._values: list[Value] = []
        self._loops = 0

    # Choices

    def pick(self, items: Sequence[_Item]) -> _Item:
        return items[self._source.below(len(items))]

    def chance(self, percent: int) -> bool:
        return self._source.below(100) >= 100 - percent  # Hypothesis shrinks towards "no"

    def type_of(self, dtype: DType) -> DType | Line:
        width = self.pick(_WIDTHS)
        return dtype if width == 1 else make_line(dtype, width)

    def any_type(self) -> DType | Line:
        return self.type_of(self.pick(self._dtypes))

    # Kernels

    def kernel(self) -> Kernel:
        params = [Param(Value(index, "n"), "x", Extent())]
        params += [
            Param(Value(dtype, f"s{k}"), f"s{k}", Scalar()) for k, dtype in enumerate(self._dtypes)
        ]
        for k, dtype in enumerate(dict.fromkeys(self._dtypes)):
            self._buffers.append(Value(Buffer(dtype), f"b{k}"))
            params.append(Param(self._buffers[-1], f"b{k}", Data()))
        self._values += [p.value for p in params if not isinstance(p.value.type, Buffer)]
        with self._builder.region() as body:
            self._locals = [
                self._builder.emit(ops.VAR, type=self.any_type(), name=self.name())
                for _ in range(1 + self._source.below(3))
            ]
            self.statements(0)
            self._show_locals()
            self.terminate(ops.RETURN)
        names = frozenset(value.name for value in self._buffers)
        return Kernel("random", tuple(params), Region((), tuple(body)), (4, 1, 1), 1, names)

    def name(self) -> str:
        return self.pick(("", "x", "acc", "v", "v1"))

    def _show_locals(self) -> None:
        for local in list(self._locals):
            buffer = self.buffer_of(element_of(local.type))
            value = self._builder.emit(ops.GET, local)
            self._builder.emit_op(ops.STORE, buffer, self._builder.index(0), value)

    def buffer_of(self, dtype: DType) -> Value:
        return next(value for value in self._buffers if element_of(value.type) is dtype)

    def terminate(self, row: OpDef) -> None:
        self._builder.emit_op(row)

    @contextmanager
    def scope(self):
        """A region whose values and locals are forgotten afterwards."""
        kept, known = len(self._values), len(self._locals)
        with self._builder.region() as body:
            yield body
        del self._values[kept:]
        del self._locals[known:]

    # Statements

    def statements(self, depth: int) -> None:
        for _ in range(1 + self._source.below(5)):
            if self._left <= 0:
                return
            self._left -= 1
            self._builder.span = self.span()
            self.pick(self._kinds(depth))()
        if depth == 0 and self._left > 0:
            self.statements(depth)

    def _kinds(self, depth: int) -> list[Callable[[], object]]:
        kinds: list[Callable[[], object]] = [
            self.pure,
            self.pure,
            self.pure,
            self.assign,
            self.assign,
            self.load,
            self.store,
            self.effect,
            self.declare,
        ]
        if depth < _DEPTH:
            kinds += [
                lambda: self.branch(depth + 1),
                lambda: self.branch(depth + 1),
                lambda: self.count(depth + 1),
                lambda: self.repeat(depth + 1),
            ]
        return kinds

    def span(self) -> Span | None:
        if self.chance(50):
            return None
        caller = Span("b c.py", 7, 0, 7, 9, "caller") if self.chance(30) else None
        return Span("a.py", 1 + self._source.below(9), 0, 10, 4, self.pick(("f", "g")), caller)

    def declare(self) -> None:
        t = self.any_type()
        self._locals.append(self._builder.emit(ops.VAR, type=t, name=self.name()))

    def assign(self) -> None:
        local = self.pick(self._locals)
        self._builder.emit_op(ops.SET, local, self.value(local.type.of))  # type: ignore[union-attr]

    def branch(self, depth: int) -> None:
        regions = [self.arm(depth), self.arm(depth)]
        self._builder.emit_op(ops.IF, self.value(bool_), regions=regions)

    def arm(self, depth: int) -> Region:
        with self.scope() as body:
            if self.chance(70):
                self.statements(depth)
            jumps = [ops.RETURN, *([ops.BREAK, ops.CONTINUE] * 2 if self._loops else [])]
            self.terminate(self.pick(jumps) if self.chance(25) else ops.YIELD)
        return Region((), tuple(body))

    def count(self, depth: int) -> None:
        """A `for` with a few trips."""
        bounds = [self._builder.index(self._source.below(4)) for _ in range(2)]
        if self.chance(40):
            bounds[1] = self._values[0]
        step = self._builder.index(self.pick((1, 1, 1, 2, -1, 0)))
        position = Value(index, self.name())
        body = self.body(depth, position)
        regions = [Region((position,), body)]
        if self.chance(20):
            self._builder.emit_op(ops.FOR, *bounds, step, regions=regions, unroll=True)
        else:
            self._builder.emit_op(ops.FOR, *bounds, step, regions=regions)

    def repeat(self, depth: int) -> None:
        """A `loop` that counts its trips, so that it ends."""
        counter = self._builder.emit(ops.VAR, type=index, name="trips")
        self._builder.emit_op(ops.SET, counter, self._builder.index(0))
        body = self.body(depth, counter=counter)
        self._builder.emit_op(ops.LOOP, regions=[Region((), body)])

    def body(
        self, depth: int, position: Value | None = None, counter: Value | None = None
    ) -> tuple[Op, ...]:
        self._loops += 1
        with self.scope() as body:
            self._values += [position] if position else []
            if counter:
                self._leave_after(counter, self._source.below(4))
            self.statements(depth)
            self.terminate(ops.BREAK if self.chance(8) else ops.CONTINUE)
        self._loops -= 1
        return tuple(body)

    def _leave_after(self, counter: Value, trips: int) -> None:
        b = self._builder
        count = b.emit(ops.GET, counter)
        go = b.emit(ops.LT, count, b.index(trips))
        with b.region() as stay:
            self.terminate(ops.YIELD)
        with b.region() as leave:
            self.terminate(ops.BREAK)
        b.emit_op(ops.IF, go, regions=[Region((), tuple(stay)), Region((), tuple(leave))])
        b.emit_op(ops.SET, counter, b.emit(ops.ADD, count, b.index(1)))

    # Memory

    def offset(self) -> Value:
        limit = self._builder.index(_OFFSETS)
        return self._builder.emit(ops.MOD, self.value(index), limit)

    def load(self) -> None:
        buffer = self.pick(self._buffers)
        t = self.type_of(element_of(buffer.type))
        operands = [buffer, self.offset()]
        if self.chance(40):
            operands += [self.value(with_element(t, bool_)), self.value(t)]
        self.keep(self._builder.emit(ops.LOAD, *operands, type=t, name=self.name()))

    def store(self) -> None:
        buffer = self.pick(self._buffers)
        t = self.type_of(element_of(buffer.type))
        operands = [buffer, self.offset(), self.value(t)]
        if self.chance(40):
            operands.append(self.value(with_element(t, bool_)))
        self._builder.emit_op(ops.STORE, *operands)

    def effect(self) -> None:
        b = self._builder
        if self.chance(50):
            b.emit_op(self.pick((ops.SYNC_CUBE, ops.SYNC_PLANE, ops.SYNC_STORAGE)))
        elif self.chance(50):
            b.emit_op(ops.PREFETCH, self.pick(self._buffers), self.offset())
        else:
            dtype = self.pick(self._dtypes)
            space = self.pick(("shared", "local"))
            memory = b.emit(ops.ALLOC, type=dtype, size=BUFFER_SIZE, space=space)
            if self.chance(60):
                self._fill(memory, dtype)
                b.emit_op(ops.STORE, memory, self.offset(), self.value(dtype))
                self.keep(b.emit(ops.LOAD, memory, self.offset(), type=dtype))

    def _fill(self, memory: Value, dtype: DType) -> None:
        """Write all elements: what nobody wrote is undefined, so no kernel may read it."""
        b, position = self._builder, Value(index)
        with b.region() as body:
            b.emit_op(ops.STORE, memory, position, b.const(special_numbers(dtype)[-1], dtype))
            self.terminate(ops.CONTINUE)
        regions = [Region((position,), tuple(body))]
        b.emit_op(ops.FOR, b.index(0), b.index(BUFFER_SIZE), b.index(1), regions=regions)

    # Values

    def keep(self, value: Value) -> None:
        self._values.append(value)

    def value(self, t: Type) -> Value:
        """A value of this type: one that is there, a local's, or a constant."""
        there = [value for value in self._values if value.type == t]
        held = [local for local in self._locals if local.type.of == t]  # type: ignore[union-attr]
        choice = self._source.below(4)
        if held and choice == 2:
            return self._builder.emit(ops.GET, self.pick(held))
        if there and choice:
            return self.pick(there)
        numbers = special_numbers(element_of(t))
        number = self.pick(numbers[:3] if self.chance(50) else numbers)  # 0, 1: identities
        return self._builder.const(number, t)

    def pure(self) -> None:
        row = self.pick(self.pick((SPECIAL_ROWS, ARITHMETIC, ARITHMETIC, tuple(PLAIN_ROWS))))
        value = self.plain(row) if row in PLAIN_ROWS else self.special(row)
        self.keep(value)
        if self.chance(50):
            self.show(value)

    def show(self, value: Value) -> None:
        """Store a value, so that a pass that changes it is found out."""
        if element_of(value.type) in self._dtypes:
            buffer = self.buffer_of(element_of(value.type))
            offset = self._builder.index(self._source.below(_OFFSETS))
            self._builder.emit_op(ops.STORE, buffer, offset, value)

    def plain(self, row: OpDef) -> Value:
        fitting = [entry for entry in PLAIN_ROWS[row] if entry[0] in self._dtypes]
        dtype, count, only_lines = self.pick(fitting or PLAIN_ROWS[row])
        t = make_line(dtype, self.pick((2, 4))) if only_lines else self.type_of(dtype)
        if row in (ops.EQ, ops.NE):
            t = dtype if self.chance(50) else t
        operands = [self.value(t) for _ in range(count)]
        if self.chance(15):
            operands = operands[:1] * count
        return self._builder.emit(row, *operands, name=self.name())

    def special(self, row: OpDef) -> Value:
        b, t = self._builder, self.any_type()
        width = width_of(t)
        if row is ops.CONST:
            return b.const(self.pick(special_numbers(element_of(t))), t)
        if row is ops.CAST:
            return b.emit(row, self.value(t), type=with_element(t, self.pick(self._dtypes)))
        if row is ops.BITCAST:
            same = [d for d in DTYPES if d.bits == element_of(t).bits]
            return b.emit(row, self.value(t), type=with_element(t, self.pick(same)))
        if row is ops.SELECT:
            mask = self.pick((bool_, with_element(t, bool_)))
            return b.emit(row, self.value(mask), self.value(t), self.value(t))
        if row is ops.LOOKUP:
            dtype = self.pick([d for d in DTYPES if d is not index])
            table = tuple(self.pick(special_numbers(dtype)) for _ in range(self.pick((1, 3, 9))))
            return b.emit(row, self.value(index), type=dtype, table=table)
        if row is ops.MISALIGNMENT:
            return b.emit(row, self.pick(self._buffers), self.value(index), bytes=16)
        if row is ops.SPLAT:
            return b.emit(row, self.value(element_of(t)), lanes=self.pick((2, 4)))
        if row is ops.LANE_MASK:
            return b.emit(row, self.value(index), self.value(index), lanes=self.pick((2, 4)))
        if row is ops.DOT:  # of bf16, what is below 2**-126 counts as what the processor likes
            lanes = self.pick((1, 2, 4))
            factors = (make_line(self.pick((i8, u8)), 4 * lanes) for _ in range(2))
            sums = i32 if lanes == 1 else make_line(i32, lanes)
            return b.emit(row, *map(self.value, factors), self.value(sums))
        if row in (ops.EXTRACT, ops.INSERT, ops.SHUFFLE):
            return self.lanes(row, make_line(element_of(t), max(width, 2)))
        return b.emit(
            row, **({"axis": self.pick(("x", "y", "z", "all"))} if "axis" in row.attrs else {})
        )

    def lanes(self, row: OpDef, t: Line) -> Value:
        b, lane = self._builder, self._source.below(t.width)
        if row is ops.INSERT:
            return b.emit(row, self.value(t), self.value(t.element), lane=lane)
        if row is ops.SHUFFLE:
            lanes = tuple(self._source.below(2 * t.width) for _ in range(self.pick((2, 4))))
            return b.emit(row, self.value(t), self.value(t), lanes=lanes)
        if self.chance(50):
            return b.emit(row, self.value(t), b.index(lane))
        return b.emit(row, self.value(t), lane=lane)
