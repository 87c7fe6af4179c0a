"""Random programs for one unit: text, and a model that runs the same statements.

A program is a piece of a kernel: its names carry its seed, so that many of them stand in one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite

from tests.fuzz.generator import Chooser
from tests.fuzz.typed import functions, nodes
from tests.fuzz.typed.expressions import Expressions
from tests.fuzz.typed.nodes import Environment, Node
from tests.fuzz.typed.numbers import Unspecified, converted
from tests.fuzz.typed.rules import (
    FLOATS,
    INTEGERS,
    SMALLEST,
    UNSIGNED,
    Number,
    Weak,
    common,
    fits,
    joined,
    weak,
)

Statement = Callable[[Environment], None]
STORED = {"bool": "i32", "index": "i64", "bf16": "f32", "f8e4m3": "f32", "f8e5m2": "f32"}
"""The types in which values are stored that have no array of their own."""
NUMPY_TYPES = {t: f"{'u' * (t in UNSIGNED)}int{bits}" for t, bits in INTEGERS.items()}
NUMPY_TYPES |= {t: f"float{bits}" for t, bits in FLOATS.items()}
DEPTH = 3
CALLS = 3
"""Calls of functions of Python's modules."""
WIDE = ("i32", "u32", "i64", "u64", "f32", "f64")
"""Types that a local takes from the first value that meets its literals."""


@dataclass
class Piece:
    """A program: lines of helpers and of the body, the model, and the type of each result."""

    prefix: str
    helpers: list[str] = field(default_factory=list[str])
    lines: list[str] = field(default_factory=list[str])
    model: list[Statement] = field(default_factory=list[Statement])
    results: list[str] = field(default_factory=list[str])


def write(
    chooser: Chooser,
    tables: Chooser,
    calls: Chooser,
    prefix: str,
    contract: bool,
    has_f64: bool = True,
) -> Piece:
    """A random program whose names begin with `prefix`; `tables` decides what it looks up, `calls`
    which functions of Python's modules it calls, so that seeds mean what they meant before."""
    writer = _Writer(chooser, prefix, contract, has_f64)
    writer.piece()
    writer.table(tables)
    writer.calls(calls)
    return writer.made


class _Writer:
    def __init__(self, chooser: Chooser, prefix: str, contract: bool, has_f64: bool) -> None:
        self._c = chooser
        self.made = Piece(prefix)
        self._e = Expressions(chooser, contract, has_f64)
        self._count = 0
        self._types = tuple(t for t in WIDE if t in self._e.inputs)

    def piece(self) -> None:
        """Statements of all kinds but look-ups."""
        kinds: tuple[Callable[[], None], ...] = (
            self._value,
            self._value,
            self._rebinding,
            self._literal_local,
            self._joined_local,
            self._accumulated,
            self._branch,
            self._stored_literal,
            self._helper_of_literals,
            self._early_return,
            self._helper_called_twice,
            self._tuple,
            self._match,
            self._chain,
        )
        for _ in range(self._c.number(2, 4)):
            self._c.choose(kinds)()

    # Writing

    def _fresh(self, letter: str) -> str:
        self._count += 1
        return f"{self.made.prefix}{letter}{self._count}"

    def _line(self, text: str, depth: int = 0) -> None:
        self.made.lines.append("    " * depth + text)

    def _define(self, text: str) -> None:
        self.made.helpers += text.splitlines()

    def _result(self, node: Node, stored: str | None = None) -> None:
        """Store a value where the comparison finds it."""
        t = stored or STORED.get(str(node.type), str(node.type))
        name = f"{self.made.prefix}r{len(self.made.results)}"
        plain = node if node.type == t or isinstance(node.type, Weak) else nodes.cast(node, t)
        self._line(f"out_{t}[@{name}@ + i] = {plain.text}")
        self.made.results.append(t)
        value = nodes.meet(plain, t)
        self._run(lambda e: _assign(e, name, value))

    def _run(self, statement: Statement) -> None:
        self.made.model.append(statement)

    def _assigned(self, name: str, node: Node, depth: int = 0) -> Statement:
        """Write `name = node`; the statement's meaning."""
        self._line(f"{name} = {node.text}", depth)
        return lambda e: _assign(e, name, node.value)

    def _keep(self, name: str, t: str) -> Node:
        """A local from here on; it is stored too, so that no product in it has one use alone."""
        made = nodes.local(name, t)
        self._result(made)
        if t not in SMALLEST:
            self._e.scope.append(made)
        return made

    # Statements

    def _value(self) -> None:
        node, name = self._e.any(DEPTH), self._fresh("v")
        self._run(self._assigned(name, node))
        self._keep(name, str(node.type))

    def _rebinding(self) -> None:
        """A local that becomes a value of another type, and is used before and after."""
        first, name, other = self._e.arithmetic(1), self._fresh("b"), self._fresh("w")
        self._run(self._assigned(name, first))
        own = nodes.local(name, first.type)
        product = nodes.binary("*", own, nodes.literal(3), False)
        symbol = self._c.choose((">>", "//", "-"))
        used = product and nodes.binary(symbol, product, own, self._e.contract)
        self._run(self._assigned(other, used or own))
        self._result(own)
        again = nodes.cast(own, self._c.choose(self._types))
        changed = nodes.binary(self._c.choose(("+", "*", "-")), again, nodes.literal(1), False)
        assert changed is not None
        self._run(self._assigned(name, changed))
        self._keep(other, str((used or own).type))
        self._keep(name, str(changed.type))

    def _literal_local(self) -> None:
        """A local that only literals are assigned takes the type of what it meets."""
        t = self._c.choose((*INTEGERS, *(t for t in FLOATS if t in self._e.inputs or t == "bf16")))
        first, other, name = self._e.literal(t), self._e.weak(t, 1), self._fresh("h")
        both = common(first.type, other.type)
        if both is None:
            return
        self._run(self._assigned(name, first))
        self._under(self._e.condition(1), name, other)
        weak = nodes.local(name, both)
        for _ in range(self._c.number(1, 2)):
            met = self._e.typed(t, 1)
            symbol = self._c.choose(("+", "*", "-", "min", "max"))
            pair = (met, weak) if self._c.number(0, 1) else (weak, met)
            node = nodes.binary(symbol, *pair, self._e.contract)
            if node is not None and not isinstance(node.type, Weak):
                self._result(node)

    def _under(self, condition: Node, name: str, node: Node) -> None:
        self._line(f"if {condition.text}:")
        inner = self._assigned(name, node, 1)
        self._run(lambda e: inner(e) if _holds(e, condition, name) else None)

    def _joined_local(self) -> None:
        """A local that starts as a literal, and may be assigned a value with a type."""
        value = self._e.arithmetic(2)
        first = self._e.literal(str(value.type))
        assert isinstance(first.type, Weak)
        t = joined(first.type, str(value.type))
        if t is None:
            return
        name, condition = self._fresh("j"), self._e.condition(1)
        self._run(self._assigned(name, _as(first, t)))
        self._under(condition, name, _as(value, t))
        self._keep(name, t)

    def _accumulated(self) -> None:
        """A sum that starts from a literal."""
        value = self._e.arithmetic(1)
        first = nodes.literal(0.0 if value.type in FLOATS and self._c.number(0, 1) else 0)
        assert isinstance(first.type, Weak)
        t = joined(first.type, str(value.type))
        if t is None:
            return
        name, trips = self._fresh("s"), self._c.choose(("3", "i % 4"))
        self._run(self._assigned(name, _as(first, t)))
        sum_of = nodes.binary("+", nodes.local(name, t), value, self._e.contract)
        assert sum_of is not None and sum_of.type == t
        self._line(f"for {self._fresh('k')} in range({trips}):")
        self._line(f"{name} += {value.text}", 1)
        step = sum_of.value
        count = {"3": lambda i: 3, "i % 4": lambda i: i % 4}[trips]
        self._run(lambda e: _repeat(e, count(e["i"]), name, step))
        self._keep(name, t)

    def _branch(self) -> None:
        """Both arms assign a local of one type."""
        t = self._c.choose((*self._types, "f16", "i8", "u16"))
        name, condition = self._fresh("a"), self._e.condition(2)
        arms = self._e.typed(t, 2), self._e.typed(t, 2)
        self._line(f"if {condition.text}:")
        then = self._assigned(name, arms[0], 1)
        self._line("else:")
        other = self._assigned(name, arms[1], 1)

        def run(e: Environment) -> None:
            if _holds(e, condition, name) is not None:
                (then if e["?"] else other)(e)

        self._run(run)
        self._keep(name, t)

    def _stored_literal(self) -> None:
        """A literal that is chosen at run time takes the type of the tensor."""
        t = self._c.choose((*INTEGERS, *(t for t in FLOATS if t in self._e.inputs)))
        weak = self._e.weak(t, 2)
        if common(weak.type, t) == t:
            self._result(weak, t)

    def _helper_of_literals(self) -> None:
        t = self._c.choose((*INTEGERS, *(t for t in FLOATS if t in self._e.inputs)))
        a, b = self._e.literal(t), self._e.literal(t)
        name, argument = self._fresh("f"), self._e.condition(1)
        self._define(f"def {name}(c):\n    if c:\n        return {a.text}\n    return {b.text}")
        made = nodes.chosen(f"{name}({{c}})", argument, a, b)
        node = made and nodes.binary("+", self._e.typed(t, 1), made, self._e.contract)
        if node is not None:
            self._result(node)

    def _early_return(self) -> None:
        """A helper that returns a literal, or a value with a type."""
        t = self._c.choose(self._types)
        value, a = self._e.typed(t, 1), self._e.literal(t)
        name, argument = self._fresh("f"), self._e.condition(1)
        body = (f"    if c:\n        return {a.text}\n", "    return v + v")
        self._define(f"def {name}(c, v):\n" + "".join(body))
        twice = nodes.binary("+", value, value, False)
        node = twice and nodes.chosen(f"{name}({{c}}, {value.text})", argument, a, twice)
        if node is not None:
            self._result(node)

    def _helper_called_twice(self) -> None:
        """One statement calls a helper with arguments of two types; its locals take both."""
        name = self._fresh("f")
        text = (
            "def {0}(v):\n    t = v\n    if v > 2:\n        t = t - 1\n    t = t + v\n    return t"
        )
        self._define(text.format(name))
        a, b = self._called(name), self._called(name)
        node = a and b and nodes.binary(self._c.choose(("+", "-", "max")), a, b, False)
        if node is not None:
            self._result(node)

    def _called(self, name: str) -> Node | None:
        v = self._e.arithmetic(1)
        t = _bumped(v)
        total = t and nodes.binary("+", t, v, False)
        return total and Node(f"{name}({v.text})", total.type, total.value)

    def _tuple(self) -> None:
        """A helper gives a value and a literal that is chosen at run time."""
        t = self._c.choose(self._types)
        value, weak_a, weak_b = self._e.typed(t, 1), self._e.literal(t), self._e.literal(t)
        argument, name = self._e.condition(1), self._fresh("f")
        literal_ = nodes.chosen(f"{weak_a.text} if c else {weak_b.text}", argument, weak_a, weak_b)
        if literal_ is None:
            return
        self._define(f"def {name}(c, v):\n    return v, {literal_.text}")
        p, q = self._fresh("p"), self._fresh("q")
        self._line(f"{p}, {q} = {name}({argument.text}, {value.text})")
        self._run(lambda e: _assign(e, p, value.value))
        self._run(lambda e: _assign(e, q, literal_.value))
        first = nodes.local(p, t)
        node = nodes.binary("*", first, nodes.local(q, literal_.type), False)
        self._result(first)
        if node is not None:
            self._result(node)

    def table(self, chooser: Chooser) -> None:
        """A table of the module, of literals or an array, indexed at run time."""
        self._c = self._e.c = chooser
        t = self._c.choose((*INTEGERS, *(t for t in FLOATS if t in self._e.inputs)))
        some = [self._e.literal(t) for _ in range(self._c.choose((2, 3, 5, 12)))]
        entries = [self._c.choose(some) for _ in range(self._c.choose((2, 4, 5, 9, 40)))]
        values = [entry.value({}) for entry in entries]
        own = weak(values) if self._c.number(0, 1) else t
        if own is None or not all(fits(v, t) for v in values):
            return
        numbers = values if own != t else [converted(v, t) for v in values]
        if not all(map(isfinite, numbers)):
            return
        name, texts = self._fresh("T"), ", ".join(map(repr, numbers))
        array = f"np.array([{texts}], np.{NUMPY_TYPES[t]})"
        self._define(f"{name} = ({texts},)" if own != t else f"{name} = {array}")
        start = self._e.typed(self._c.choose(("i32", "u8", "i64", "u32", "i16")), 1)
        place = nodes.binary("%", start, nodes.literal(len(entries)), False)
        assert place is not None
        look = Node(f"{name}[{place.text}]", own, lambda e: numbers[int(place.value(e))])
        symbol = self._c.choose(("+", "*", "-", "min", "max"))
        node = nodes.binary(symbol, self._e.typed(t, 1), look, self._e.contract)
        for made in (look, node):
            if made is not None and not isinstance(made.type, Weak):
                self._result(made)

    def calls(self, chooser: Chooser) -> None:
        """Functions of Python's modules and of NumPy."""
        self._c = self._e.c = chooser
        floats = (*(t for t in FLOATS if t in self._e.inputs), "bf16")
        for _ in range(CALLS):
            x, y = (self._e.typed(self._c.choose(floats), 1) for _ in range(2))
            k, m = (self._e.typed(self._c.choose(tuple(INTEGERS)), 1) for _ in range(2))
            a, b, c = (self._e.arithmetic(1) for _ in range(3))
            name = self._c.choose(tuple(functions.OPERATORS))
            made = self._c.choose(
                (
                    functions.of_float(self._c.choose(tuple(functions.ONE_FLOAT)), x),
                    functions.of_floats(self._c.choose(tuple(functions.TWO_FLOATS)), x, y),
                    functions.of_integers(self._c.choose(tuple(functions.TWO_INTEGERS)), k, m),
                    functions.root(k),
                    functions.ldexp(x, self._e.typed("i32", 0)),
                    functions.called(name, a, b, self._e.contract),
                    functions.reduced(name, (a, b, c), self._e.contract),
                    functions.mapped(a, b),
                )
            )
            if made is not None and not isinstance(made.type, Weak):
                self._result(made)

    def _match(self) -> None:
        """A `match` over a remainder gives a local one of three values."""
        t = self._c.choose(self._types)
        subject = nodes.cast(self._e.typed(self._c.choose(("i32", "u16", "i64")), 1), "i32")
        key = nodes.binary("%", subject, nodes.literal(4), False)
        assert key is not None
        name, arms = self._fresh("m"), [self._e.typed(t, 1) for _ in range(3)]
        self._line(f"match {key.text}:")
        done: list[Statement] = []
        for pattern, arm in zip(("0", "1 | 2", "_"), arms, strict=True):
            self._line(f"case {pattern}:", 1)
            done.append(self._assigned(name, arm, 2))

        def run(e: Environment) -> None:
            try:
                which = key.value(e)
            except Unspecified:
                e[name] = Unspecified
                return
            done[0 if which == 0 else 1 if which in (1, 2) else 2](e)

        self._run(run)
        self._keep(name, t)

    def _chain(self) -> None:
        """Methods of a dataclass that give another one, in one statement."""
        steps: tuple[tuple[str, Callable[[Node], Node | None]], ...] = (
            ("bump", _bumped),
            ("half", _halved),
            ("wide", lambda v: nodes.cast(v, "i64")),
            ("real", lambda v: nodes.cast(v, "f32")),
        )
        v: Node | None = self._e.arithmetic(1)
        text = f"Chain({v.text})"
        for _ in range(self._c.number(2, 4)):
            name, meaning = self._c.choose(steps)
            v = v and meaning(v)
            text += f".{name}()"
        if v is not None:
            self._result(Node(f"{text}.v", v.type, v.value))


CHAIN = """
@dataclass(frozen=True)
class Chain:
    v: object

    def bump(self):
        t = self.v
        if t > 2:
            t = t - 1
        return Chain(t)

    def half(self):
        t = self.v / 2
        if t > 1:
            t = t - 1
        return Chain(t)

    def wide(self):
        return Chain(cp.i64(self.v))

    def real(self):
        return Chain(cp.f32(self.v))
"""


def _halved(v: Node) -> Node | None:
    half = nodes.binary("/", v, nodes.literal(2), False)
    return half and _bumped(half, 1)


def _bumped(v: Node, limit: int = 2) -> Node | None:
    above = nodes.comparison([v, nodes.literal(limit)], [">"])
    less = nodes.binary("-", v, nodes.literal(1), False)
    t = above and less and nodes.chosen("", above, less, v)
    return t if t and t.type == v.type else None


def _as(node: Node, t: str) -> Node:
    """The value in the type of the local that it is assigned to."""
    if node.type == t:
        return node
    value = node.value
    return Node(node.text, t, lambda e: converted(value(e), t))


def _repeat(e: Environment, times: int, name: str, value: Callable[[Environment], Number]) -> None:
    for _ in range(times):
        _assign(e, name, value)


def _assign(e: Environment, name: str, value: Callable[[Environment], Number]) -> None:
    try:
        e[name] = value(e)
    except Unspecified:
        e[name] = Unspecified


def _holds(e: Environment, condition: Node, name: str) -> bool | None:
    """Whether a condition holds, also as `e["?"]`; a local that depends on it is left open."""
    try:
        e["?"] = bool(condition.value(e))
    except Unspecified:
        e[name] = Unspecified
        return None
    return e["?"]
