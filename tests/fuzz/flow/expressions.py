"""Random expressions of a type, over what a block may read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.fuzz.generator import Chooser
from tests.fuzz.typed.rules import FLOATS

TYPES = ("i32", "i32", "i64", "u8", "i16", "u32", "f32", "f64")


@dataclass
class Scope:
    """What a block may read, by type, and which of it the function may assign."""

    numbers: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    own: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    arrays: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    pairs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    records: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    functions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    indices: list[str] = field(default_factory=list[str])
    comptime: list[str] = field(default_factory=list[str])

    def copy(self) -> Scope:
        """A scope whose changes are its own."""
        return Scope(
            _copy(self.numbers),
            _copy(self.own),
            _copy(self.arrays),
            _copy(self.pairs),
            _copy(self.records),
            _copy(self.functions),
            list(self.indices),
            list(self.comptime),
        )


def _copy(names: dict[str, list[str]]) -> dict[str, list[str]]:
    return {t: list(of) for t, of in names.items()}


class Expressions:
    """Writes expressions; `_scope` says what they may read, and what `:=` may assign."""

    def __init__(self, chooser: Chooser, types: tuple[str, ...]) -> None:
        self._c = chooser
        self._count = 0
        self._scope = Scope()
        self.types = tuple(dict.fromkeys(("i32", *(chooser.choose(types) for _ in range(2)))))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """A part that assigns no names, as what a comprehension runs over."""
        saved, self._scope = self._scope, self._scope.copy()
        self._scope.own = {}
        yield
        self._scope = saved

    def _fresh(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _type(self) -> str:
        return self._c.choose(self.types)

    def _small(self, limit: int) -> str:
        """An integer from 0 to limit - 1."""
        return f"cp.i32({self._value('i32', 1)}) % {limit}"

    def _index(self, array: str) -> str:
        forms = (self._small(2), f"{self._small(9)} % {array}.size", "1", f"i % {array}.size")
        return self._c.choose(forms)

    def _value(self, t: str, depth: int) -> str:
        """An expression of a type."""
        if depth <= 0 or self._c.number(0, 4) == 0:
            return self._leaf(t)
        d = depth - 1
        a, b = self._value(t, d), self._value(t, d)
        kind = self._c.number(0, 20)
        if kind < 4:
            operators = "+-*" if t in FLOATS else "+-*&|^"
            return f"({a} {self._c.choose(operators)} {b})"
        if kind == 4:
            return f"({a} if {self._condition(d)} else {b})"
        if kind == 5:
            return f"({a} {self._c.choose(('and', 'or'))} {b})"
        if kind == 6:
            return f"note(log, {a})"
        if kind == 7 and self._scope.own.get(t):
            return f"({self._c.choose(self._scope.own[t])} := {a})"
        if kind == 8 and self._scope.functions.get(t):
            f = self._c.choose(self._scope.functions[t])
            return f"{f}({self._c.choose((a, f'{a}, {b}'))})"
        if kind == 9 and self._c.number(0, 1):
            q, r = self._fresh("q"), self._fresh("q")
            step = f"cp.{t}({q} - {self._with(t, r, d)})"
            items = self._c.choose((f"({a}, {b})", f"({a},), {b}"))
            return f"reduce(lambda {q}, {r}: {step}, {items})"
        if kind == 9:
            return f"{self._c.choose(('min', 'max', 'add', 'mul', 'sub'))}({a}, {b})"
        if kind == 10 and t not in FLOATS:
            return self._division(t, a, b)
        if kind == 11:
            q = self._fresh("q")
            own = f"cp.{t}({q})"
            item = f"{own} * {self._with(t, own, d)}"
            made = (f"[{item} for {q} in (1, 2)]", f"map(lambda {q}: {item}, (1, 2))")
            return f"sum({self._c.choose(made)}, {b})"
        if kind == 12:
            return f"cp.{t}({self._value(self._type(), d)})"
        if kind == 13:
            q, r = self._fresh("q"), self._fresh("q")
            return f"(lambda {q}, {r}={b}: cp.{t}({q} - {self._with(t, r, d)}))({a})"
        if kind == 14 and t not in FLOATS:
            return f"(-{a})" if t[0] == "i" else f"(~{a})"
        if kind == 18 and t not in FLOATS:  # equal floats differ, as 0.0 and -0.0
            items, reverse = f"({a}, {self._leaf(t)}, {b})", self._c.choose(("", ", reverse=True"))
            key = self._c.choose(("", ", key=lambda q: 1"))
            return f"sorted({items}{key}{reverse})[{self._c.number(0, 2)}]"
        if kind == 15:
            q = self._fresh("q")
            made = f"[lambda: {self._with(t, f'cp.{t}({q})', d)} for {q} in (1, 2, 3)]"
            return f"{made}[{self._c.number(0, 2)}]()"
        if kind >= 19:
            return self._fold(t, b, d)
        if kind == 16 and self._scope.records.get(t) and self._c.number(0, 1):
            return self._member(self._c.choose(self._scope.records[t]), a, b)
        if kind == 16:
            return f"Pair({a}, {b}){self._c.choose(('.less', f'.more({a}).less', '.more(1).b'))}"
        return f"cp.where(bool({self._condition(d)}), {a}, {b})"

    def _division(self, t: str, a: str, b: str) -> str:
        """A quotient or remainder, or both; the divisor is neither 0 nor -1."""
        counts = f"max({b}, 1)", f"cp.{t}(i % 3 + 1)"
        divisor = self._c.choose((f"(({b} | 1) * 3)", "3", "7", *counts))
        operator = self._c.choose(("//", "%", ""))
        if operator:
            return f"({a} {operator} {divisor})"
        leaf, divisor = self._leaf(t), f"max({self._leaf(t)}, 1)"
        return f"({leaf} // {divisor} - {leaf} % {divisor})"

    def _items(self, t: str) -> tuple[str, str, str]:
        """What a loop at run time runs over: its target, the iterable, and an item of a type."""
        q, r = self._fresh("q"), self._fresh("q")
        arrays = self._scope.arrays.get(t)
        ranges = (f"range({self._small(4)})", f"range({self._small(3)}, 4)", "range(i % 3)")
        some = self._c.choose(ranges)
        if arrays:
            array = self._c.choose(arrays)
            some = self._c.choose((some, array, f"reversed({array})", f"{array}[:i % 3]"))
        is_range = some.startswith("range")
        own = f"cp.{t}({q})"
        kind = self._c.number(0, 5)
        if kind == 0 and is_range:
            some = f"reversed({some})"
        if kind == 1:
            return f"{q}, {r}", f"enumerate({some}, {self._c.number(0, 2)})", f"{own} - cp.{t}({r})"
        if kind == 2:
            other = self._c.choose((*ranges, *(arrays or ()), "(3, 1, 2)"))
            return f"{q}, {r}", f"zip({some}, {other})", f"({own} - cp.{t}({r}))"
        if kind == 3:
            item = self._with(t, f"cp.{t}({r})", 0)
            return q, f"map(lambda {r}: note(log, {item}), {some})", q
        return q, some, own

    def _fold(self, t: str, start: str, depth: int) -> str:
        """A generator expression over what has its items at run time, folded to one number."""
        with self._reading():
            target, items, own = self._items(t)
            item = self._with(t, own, depth)
            loops = f"for {target} in {items}"
            if self._c.number(0, 2) == 0:
                loops += f" if {own} {self._c.choose(('<', '!='))} {self._value(t, 0)}"
            if self._c.number(0, 3) == 0:
                inner, others, other = self._items(t)
                loops, item = f"{loops} for {inner} in {others}", f"{item} - {other}"
            if self._c.number(0, 1):
                item = f"note(log, {item})"
            kind = self._c.number(0, 4)
            if kind == 0:
                return f"cp.{t}(sum({item} {loops}))"
            if kind == 1:
                return f"sum(({item} {loops}), {start})"
            if kind == 2:
                return f"prod(({item} {loops}), start={start})"
            name = self._c.choose(("min", "max"))
            if kind == 3:
                return f"{name}(({item} {loops}), default={start})"
            k = self._fresh("q")
            by = self._with(t, f"cp.{t}({k})", 0)
            return f"cp.{t}({name}(({item} {loops}), default={start}, key=lambda {k}: {by}))"

    def _member(self, record: str, a: str, b: str) -> str:
        """What a record's class defines, or that of a copy of it."""
        copy = f"replace({record}, {self._c.choose('ab')}={a})"
        owner = self._c.choose((record, record, copy, f"({record} & {a})", f"({b} & {record})"))
        forms = (f"({a})", f"({a}, k={b})", "[0]", f"[{self._small(3)}]", ".gap", ".gap")
        return f"{owner}{self._c.choose(forms)}"

    def _with(self, t: str, name: str, depth: int) -> str:
        """An expression that may read one more name; it assigns none."""
        with self._reading():
            return name if self._c.number(0, 1) else f"({name} + {self._value(t, depth)})"

    def _leaf(self, t: str) -> str:
        s = self._scope
        kind = self._c.number(0, 9)
        if kind == 0:
            return f"cp.{t}({self._c.choose(('0', '1', '2', '3', '5', '100'))})"
        if kind == 1 and s.indices:
            return f"cp.{t}({self._c.choose(s.indices)})"
        if kind == 2 and s.arrays.get(t):
            array = self._c.choose(s.arrays[t])
            return f"{array}[{self._c.choose(('0', '1', f'i % {array}.size'))}]"
        if kind == 3 and s.pairs.get(t):
            return f"{self._c.choose(s.pairs[t])}[{self._c.number(0, 1)}]"
        if kind == 4 and s.records.get(t):
            return f"{self._c.choose(s.records[t])}.{self._c.choose('ab')}"
        if kind == 5:
            return f"cp.{t}({self._c.choose(s.comptime)})"
        return self._c.choose(s.numbers[t])

    def _condition(self, depth: int) -> str:
        t, kind, d = self._type(), self._c.number(0, 9), max(depth - 1, 0)
        a, b = self._value(t, d), self._value(t, d)
        compare = self._c.choose(("<", "<=", ">", ">=", "==", "!="))
        if depth > 0 and kind == 0:
            word = self._c.choose(("and", "or"))
            return f"({self._condition(d)} {word} {self._condition(d)})"
        if depth > 0 and kind == 1:
            return f"(not {self._condition(d)})"
        if kind == 2:
            return f"({a} {compare} {b} {self._c.choose(('<', '>=', '!='))} {self._value(t, d)})"
        if kind == 3 and t not in FLOATS and self._c.number(0, 1):
            return f"({a} % 5 in (1, 3, {self._value(t, 0)}))"
        if kind == 3:
            with self._reading():
                target, items, _ = self._items(t)
            item = f"({a}, {b})" if "," in target else a
            return f"({item} {self._c.choose(('in', 'not in'))} {items})"
        if kind == 4:
            return f"(({a}, {b}) {compare} ({self._value(t, 0)}, {self._value(t, 0)}))"
        if kind == 5:
            q, word = self._fresh("q"), self._c.choose(("any", "all"))
            if self._c.number(0, 2) == 0:
                with self._reading():
                    target, items, own = self._items(t)
                    item = self._c.choose((own, f"note(log, {own})"))
                    return f"{word}({item} {compare} {self._value(t, 0)} for {target} in {items})"
            with self._reading():
                items = f"({self._value(t, d)}, {self._value(t, 0)})"
            form = self._c.choose(("[{}]", "{}"))
            item, more = self._c.choose((q, f"note(log, {q})")), ""
            if self._c.number(0, 2) == 0:
                r, own = self._fresh("q"), self._with(t, q, 0)
                item, more = f"note(log, {r})", f" for {r} in ({own}, {q})"
            if form == "{}" and self._c.number(0, 2) == 0:  # lists have as many items as written
                more += f" if {q} {self._c.choose(('<', '!='))} {self._value(t, 0)}"
            made = form.format(f"{item} {compare} {b} for {q} in {items}{more}")
            return f"{word}({made})"
        if kind == 6 and self._scope.records.get(t):
            x, y = (self._c.choose(self._scope.records[t]) for _ in "ab")
            forms = (f"({x} < {y})", f"({x} > {y})", x, f"(not {x})", f"({a} in {x})")
            return self._c.choose((*forms, f"({x} and {a})", f"({x} or {y})", f"bool({x})"))
        if kind == 7 and t not in FLOATS:
            return f"({a} % 3)"
        if kind == 8 and depth > 0:
            one, other = (f"bool({self._condition(d)})" for _ in "ab")  # arms are of one kind
            return f"({one} if {self._condition(d)} else {other})"
        return f"({a} {compare} {b})"
