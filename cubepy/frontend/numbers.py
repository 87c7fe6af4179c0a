"""Numbers in a trace: literals and their types, conversions, index arithmetic, regions.

Knows neither syntax nor names.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from cubepy.errors import Error, fail
from cubepy.frontend.literals import (
    Apply,
    Choice,
    Held,
    Literal,
    Look,
    distribute,
    interval_of,
    kind_of,
    lanes_of,
    locals_in,
    numbers_in,
    own_type,
    union,
    wider_kind,
    zero_of_kind,
)
from cubepy.frontend.promote import (
    NoCommonType,
    convert_literal,
    holds,
    literal_type,
    promote_literal,
    promote_types,
)
from cubepy.frontend.values import Flag, Index, is_number, typed_scalar
from cubepy.frontend.wording import INTEGER_HINTS, NO_INTEGER, describe, spell
from cubepy.ir import ops
from cubepy.ir.build import Builder
from cubepy.ir.core import Op, Region, Value
from cubepy.ir.numbers import convert
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import (
    DType,
    Line,
    Ref,
    Type,
    bool_,
    element_of,
    f32,
    i64,
    index,
    make_line,
    u64,
    width_of,
    with_element,
)
from cubepy.span import Span


class Recorder(Builder):
    """A builder that knows which operation gave a value, and shares scalar constants.

    A constant of an open region is there for all that follows in it, so that a third of all
    operations need not be made, nor looked at by each pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[Value, Op] = {}
        self._constants: list[dict[object, Value]] = [{}]
        """Of each open region, those that were made in it since it was opened."""

    def const(self, value: int | float | bool, t: Type, name: str = "") -> Value:
        """A constant, of scalars without a name the one that is there."""
        if not isinstance(t, DType) or name:
            return super().const(value, t, name)
        exactly = value if value else repr(value)  # -0.0 is another zero
        key = t.name, type(value), exactly
        for known in reversed(self._constants):
            if key in known:
                return known[key]
        made = self._constants[-1][key] = super().const(value, t)
        return made

    @contextmanager
    def region(self) -> Generator[list[Op]]:
        """As of any builder."""
        self._constants.append({})
        try:
            with super().region() as body:
                yield body
        finally:
            self._constants.pop()

    @contextmanager
    def reopen(self, body: list[Op]) -> Generator[None]:
        """As of any builder."""
        self._constants.append({})
        try:
            with super().reopen(body):
                yield
        finally:
            self._constants.pop()

    def append(self, op: Op) -> Op:
        for result in op.results:
            self.made[result] = op
        self._open[-1].append(op)
        return op


class Numbers:
    """Appends operations on numbers to the kernel that is being traced."""

    def __init__(self) -> None:
        self.b = Recorder()
        self.locals: list[Op] = []
        self._literals: dict[Value, Literal] = {}
        """What a value is that was made of literals alone."""
        self._implicit: set[Value] = set()
        """Results of conversions that the types of operands asked for."""
        self._fits: list[tuple[Literal, DType, Span | None]] = []

    # Errors

    def error(self, code: str, **fields: Any) -> Error:
        """The error of `code` at the present position."""
        return fail(code, self.b.span, **fields)

    # Numbers

    def value(self, x: Any, like: DType | Line | None = None) -> Value:
        """`x` as a runtime number; literals take their own type, or that of `like`."""
        if isinstance(x, Value):
            return x
        if is_number(x):
            own = literal_type(x) if like is None else promote_literal(x, element_of(like))
            return self.literal(x, own if like is None else with_element(like, own))
        typed = typed_scalar(x)
        if typed is not None:
            return self.b.const(typed[1], typed[0])
        raise self.error("E207", what="this place", expected="a number", given=describe(x))

    def literal(self, x: bool | int | float, t: DType | Line) -> Value:
        """The constant `x`; E203 where `t` cannot hold it."""
        self.check_literal(x, element_of(t))
        return self.b.const(x, t)

    def check_literal(self, x: bool | int | float, dtype: DType, hint: str | None = None) -> None:
        """E203 for an integer that `dtype` does not hold."""
        if not holds(dtype, x):
            value, wide = describe(x), next((t for t in (i64, u64) if holds(t, x)), None)
            fix = f"use a wider type, as in cp.{wide.name}({value})" if wide else NO_INTEGER
            raise self.error("E203", value=value, type=dtype.name, hint=hint or fix)

    def _literal(self, tree: Literal, like: DType | Line) -> DType | Line:
        """The type in which a literal meets an operand of type `like`; E203 if it does not fit."""
        element = element_of(like)
        dtype = promote_literal(zero_of_kind(kind_of(tree)), element)
        for local in locals_in(tree):
            local.operand_types.add((element, dtype))
        self.check_fit(tree, dtype)
        lanes = lanes_of(tree)
        if lanes and isinstance(like, Line) and like.width != lanes:
            raise self.error("E208", left=spell(like), right=spell(make_line(element, lanes)))
        return make_line(dtype, lanes) if lanes else with_element(like, dtype)

    def check_fit(self, tree: Literal, dtype: DType) -> None:
        """E203 for a literal that `dtype` does not hold; `check_held` looks at those of locals."""
        for number in numbers_in(tree):
            self.check_literal(number, dtype)
        if dtype.is_integer and any(True for _ in locals_in(tree)):
            self._fits.append((tree, dtype, self.b.span))

    def check_held(self) -> None:
        """E203 for literals of locals that did not fit what they met."""
        for tree, dtype, span in self._fits:
            self.b.span = span
            if all(local.typing.is_literal for local in locals_in(tree)):
                for number in interval_of(tree) or ():
                    self.check_literal(number, dtype)

    def _own_type(self, *trees: Literal) -> DType | Line:
        """The type of literals that only met each other."""
        kind, interval = kind_of(trees[0]), interval_of(trees[0])
        for tree in trees[1:]:
            kind, interval = wider_kind(kind, kind_of(tree)), union(interval, interval_of(tree))
        own, lanes = own_type(kind, interval), max(lanes_of(tree) for tree in trees)
        if own is None:
            assert interval is not None
            value = max(interval, key=abs)
            raise self.error("E203", value=value, type="any integer type", hint=NO_INTEGER)
        return make_line(own, lanes) if lanes else own

    # Literals that are chosen or held at run time

    def literal_of(self, x: Any) -> Literal | None:
        """`x` as a literal, where it is one; else None."""
        if isinstance(x, Value):
            return self._literals.get(x)
        return x if is_number(x) else None

    def literal_value(self, tree: Literal) -> Any:
        """A literal as a value of its own type, which gives way to any that it meets."""
        if is_number(tree):
            return tree
        value = self.emit_literal(tree, self._own_type(tree))
        self._literals[value] = tree
        return value

    def mark_literal(self, value: Value, tree: Literal) -> Value:
        """Note that `value` is what a literal is in its own type."""
        self._literals[value] = tree
        return value

    def emit_literal(self, tree: Literal, t: DType | Line) -> Value:
        """A literal at a type: exact, or rounded once; integers wrap around."""
        if isinstance(tree, Choice):
            lanes = width_of(t) if isinstance(t, Line) else 0
            if lanes and not isinstance(tree.condition.type, Line):
                chosen = self.emit_literal(tree, element_of(t)) if not lanes_of(tree) else None
                if chosen is not None:
                    return self.b.emit(ops.SPLAT, chosen, lanes=lanes)
            a, b = self.emit_literal(tree.a, t), self.emit_literal(tree.b, t)
            return self.b.emit(ops.SELECT, tree.condition, a, b)
        if isinstance(tree, Held):
            tree.local.floats |= {element_of(t)} if element_of(t).is_float else set[DType]()
            return self._cast(tree.value, t)
        if isinstance(tree, Apply):
            return self._emit_arithmetic(tree, t)
        if isinstance(tree, Look):
            return self._emit_look(tree, t)
        return self.b.const(convert_literal(tree, element_of(t)), t)

    def _emit_arithmetic(self, tree: Apply, t: DType | Line) -> Value:
        if not element_of(t).is_float:
            return self._cast(self._emit_arithmetic(tree, with_element(t, f32)), t)
        return self.b.emit(tree.row, *(self.emit_literal(arg, t) for arg in tree.args))

    def _emit_look(self, tree: Look, t: DType | Line) -> Value:
        dtype = element_of(t)
        if dtype is index:  # tables hold what memory may
            return self._cast(self._emit_look(tree, with_element(t, i64)), t)
        table = tuple([convert(convert_literal(x, dtype), dtype) for x in tree.table])
        found = self.b.emit(ops.LOOKUP, tree.index, type=dtype, table=table)
        return self.b.emit(ops.SPLAT, found, lanes=t.width) if isinstance(t, Line) else found

    def fold_literals(self, function: Callable[..., Any], *args: Any) -> Any:
        """Python's `function` of literals that are chosen at run time; None where it is not so."""
        trees = [self.literal_of(a) for a in args]
        if any(tree is None for tree in trees):
            return None
        found = distribute(function, *(tree for tree in trees if tree is not None))
        return None if found is None else self.literal_value(found)

    def mark_arithmetic(self, result: Value, row: OpDef, *args: Any) -> Value:
        """`result`, noted as a literal if it is a float that was computed of literals."""
        trees = [self.literal_of(a) for a in args]
        if element_of(result.type).is_float and all(tree is not None for tree in trees):
            self._literals[result] = Apply(row, tuple(tree for tree in trees if tree is not None))
        return result

    # Conversions

    def cast(self, v: Value, t: DType | Line) -> Value:
        """`v` converted to `t`; a scalar is repeated to the lanes of a line.

        A literal has the type from here on, also where it is its own.
        """
        tree = self._literals.get(v)
        if tree is None:
            return self._cast(v, t)
        if v.type == t:
            return self.b.emit(ops.CAST, v, type=t)
        if isinstance(v.type, Line) and not (isinstance(t, Line) and t.width != v.type.width):
            t = with_element(v.type, element_of(t))
        elif isinstance(v.type, Line):
            raise self.error("E208", left=spell(v.type), right=spell(t))
        return self.emit_literal(tree, t)

    def _cast(self, v: Value, t: DType | Line) -> Value:
        if v.type == t:
            return v
        if isinstance(v.type, Line):
            width = v.type.width
            if isinstance(t, Line) and t.width != width:
                raise self.error("E208", left=spell(v.type), right=spell(t))
            return self.b.emit(ops.CAST, v, type=with_element(v.type, element_of(t)))
        scalar = v if v.type is element_of(t) else self.b.emit(ops.CAST, v, type=element_of(t))
        return self.b.emit(ops.SPLAT, scalar, lanes=t.width) if isinstance(t, Line) else scalar

    def convert(self, x: Any, t: DType | Line) -> Value:
        """`x` (literal or runtime) as a value of `t`, by an explicit conversion."""
        if is_number(x):
            if element_of(t).is_float:
                self.check_literal(x, element_of(t))
            return self.b.const(convert_literal(x, element_of(t)), t)
        return self.cast(self.value(x), t)

    def unify(self, a: Any, b: Any, operator: str) -> tuple[Value, Value]:
        """Two operands in their common type."""
        left, right = self.literal_of(a), self.literal_of(b)
        if left is not None and right is not None:
            t = self._own_type(left, right)
            return self.implicit(a, t), self.implicit(b, t)
        if left is not None:
            y = self.value(b)
            t = self._literal(left, _plain(y))
            return self.implicit(a, t), self.implicit(y, t)
        if right is not None:
            y, x = self.unify(b, a, operator)
            return x, y
        x, y = self.value(a), self.value(b)
        if x.type is y.type:
            return x, y
        try:
            t = promote_types(_plain(x), _plain(y))
        except NoCommonType:
            raise self._no_common_type(x, y, operator) from None
        return self.implicit(x, t), self.implicit(y, t)

    def implicit(self, x: Any, t: DType | Line) -> Value:
        """`x` converted to the type of an operation, which follows from that of `x`."""
        result = self.convert(x, t)
        if result is not x:
            self._implicit.add(result)
        return result

    def _no_common_type(self, x: Value, y: Value, operator: str) -> Error:
        if isinstance(x.type, Line) and isinstance(y.type, Line) and x.type.width != y.type.width:
            return self.error("E208", left=spell(x.type), right=spell(y.type))
        left, right, hint = spell(x.type), spell(y.type), None
        if operator in ("<<", ">>"):  # a shift of i64 to the right would keep the sign
            hint = f"convert the count, as in v {operator} cp.{element_of(x.type).name}(n)"
        return self.error("E202", left=left, right=right, example="u64", hint=hint)

    def truth(self, x: Any) -> Value:
        """A condition: a scalar bool."""
        if not isinstance(x, Value) and not is_number(x) and not typed_scalar(x):
            raise self.error("E207", what="a condition", expected="a number", given=describe(x))
        v = self.value(x)
        if isinstance(v.type, Line):
            raise self.error("E204", type=spell(v.type))
        return v if v.type is bool_ else self.cast(v, bool_)

    # Index arithmetic, on Python ints where possible

    def index(self, x: Any, what: str = "an index") -> Index:
        """`x` as an index: a Python int, or a value of type index."""
        if isinstance(x, bool) or not isinstance(x, (int, Value)):
            typed = typed_scalar(x)
            if typed is None or not typed[0].is_integer:
                raise self.error("E207", what=what, expected="an integer", given=describe(x))
            return int(typed[1])
        if isinstance(x, int):
            self.check_literal(x, index, "indices have 64 bits")
            return x
        if not isinstance(x.type, DType) or not x.type.is_integer:
            hint = INTEGER_HINTS.get(element_of(x.type).kind)
            raise self.error(
                "E207", what=what, expected="an integer", given=spell(x.type), hint=hint
            )
        return self.cast(x, index)

    def index_value(self, x: Index) -> Value:
        """An index as an IR value."""
        return self.b.index(x) if isinstance(x, int) else x

    def add(self, a: Index, b: Index) -> Index:
        """a + b"""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self.b.emit(ops.ADD, self.index_value(a), self.index_value(b))

    def sub(self, a: Index, b: Index) -> Index:
        """a - b"""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if b == 0:
            return a
        return self.b.emit(ops.SUB, self.index_value(a), self.index_value(b))

    def mul(self, a: Index, b: Index) -> Index:
        """a * b"""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        for x, y in ((a, b), (b, a)):
            if isinstance(x, int) and x in (0, 1):
                return 0 if x == 0 else y
        return self.b.emit(ops.MUL, self.index_value(a), self.index_value(b))

    def floordiv(self, a: Index, b: Index) -> Index:
        """a // b"""
        if isinstance(a, int) and isinstance(b, int):
            return a // b if b else 0
        if isinstance(b, int) and b == 1:
            return a
        return self.b.emit(ops.FLOORDIV, self.index_value(a), self.index_value(b))

    def minimum(self, a: Index, b: Index) -> Index:
        """min(a, b)"""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.b.emit(ops.MIN, self.index_value(a), self.index_value(b))

    def maximum(self, a: Index, b: Index) -> Index:
        """max(a, b)"""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.b.emit(ops.MAX, self.index_value(a), self.index_value(b))

    def lines(self, extent: Index, width: int) -> Index:
        """How many lines cover `extent` elements: rounded up."""
        return self.floordiv(self.add(extent, width - 1), width) if width > 1 else extent

    def product(self, factors: tuple[Index, ...]) -> Index:
        """The product of indices."""
        result: Index = 1
        for factor in factors:
            result = self.mul(result, factor)
        return result

    # Control

    def if_(self, condition: Value, then: list[Op], otherwise: list[Op]) -> None:
        """Append an `if` over finished regions."""
        regions = (Region((), tuple(then)), Region((), tuple(otherwise)))
        self.b.emit_op(ops.IF, condition, regions=regions)

    def close(self, row: ops.OpDef) -> None:
        """End the innermost region with a terminator, unless it has one."""
        if not self.b.is_terminated:
            self.b.emit_op(row)

    # Variables that the compiler adds

    def new_variable(self, t: DType | Line, name: str) -> Value:
        """A variable of the kernel, declared at its head."""
        ref = Value(Ref(t), name)
        self.locals.append(Op(ops.VAR, (), {"type": t}, (ref,), (), self.b.span))
        return ref

    def new_local(self, t: DType | Line, name: str) -> Flag:
        """A new variable without a value."""
        return Flag(self.new_variable(t, name))

    def set_number(self, slot: Flag, v: Value) -> None:
        """Assign a variable."""
        self.b.emit_op(ops.SET, slot.ref, v)

    def flag(self, name: str) -> Flag:
        """A new boolean variable that is false from here on."""
        slot = self.new_local(bool_, name)
        self.set_number(slot, self.b.const(False, bool_))
        return slot


def _plain(v: Value) -> DType | Line:
    assert isinstance(v.type, (DType, Line))
    return v.type
