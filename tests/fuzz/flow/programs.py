"""Random programs of control flow: text that the language and Python both run.

Each is a function of one unit, which returns a tuple of numbers. Names are assigned before they
are read, and an assignment keeps the type; all else is as wild as Python allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from tests.fuzz.flow.expressions import TYPES, Expressions
from tests.fuzz.generator import Chooser
from tests.fuzz.typed.rules import FLOATS

RESULTS = 3
SPAN = 5
"""Elements of a local array; views of it have at least two."""


@dataclass
class Flow:
    """A program: a function `program`, which takes `x_t[i]` and `y_t[i]` of each type."""

    source: str
    types: tuple[str, ...]
    results: tuple[str, ...]


def write(chooser: Chooser, types: tuple[str, ...] = TYPES) -> Flow:
    """A random program."""
    return _Writer(chooser, types).program()


class _Writer(Expressions):
    def __init__(self, chooser: Chooser, types: tuple[str, ...]) -> None:
        super().__init__(chooser, types)
        self._lines: list[str] = []
        self._depth = 1
        self._loops = 0
        self._budget = 40
        self._returns: list[Callable[[], str]] = []

    def program(self) -> Flow:
        """The whole function."""
        results = tuple(self._c.choose(self.types) for _ in range(RESULTS))
        arguments = ["i", *(f"{a}_{t}" for t in self.types for a in "xy")]
        for t in self.types:
            self._scope.numbers[t] = [f"x_{t}", f"y_{t}"]
        self._scope.indices.append("i")
        self._returns.append(
            lambda: f"({', '.join(self._value(t, 1) for t in results)}, digest(log))"
        )
        self._line("log = cp.local(14, cp.i32, 0)")
        self._line(f"mode = {self._c.number(0, 3)}")
        self._scope.comptime.append("mode")
        for t in self.types:
            self._declare(t, self._value(t, 1))
        self._body(self._c.number(4, 8))
        self._line(f"return {self._returns[-1]()}")
        decoys = " = ".join(f"{letter}{k}" for k in range(self._count + 1) for letter in "vqckh")
        head = [f"{decoys} = 77777  # that no function reads", ""]
        lines = [*head, f"def program({', '.join(arguments)}):", *self._lines, "", ""]
        return Flow("\n".join(lines), self.types, (*results, "i32"))

    # Writing

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        """A block: what it declares is not read behind it."""
        self._line(head)
        self._depth += 1
        saved, self._scope = self._scope, self._scope.copy()
        yield
        self._scope = saved
        self._depth -= 1

    def _declare(self, t: str, value: str) -> str:
        name = self._fresh("v")
        self._line(f"{name} = {value}")
        self._know(t, name)
        return name

    def _know(self, t: str, name: str) -> None:
        self._scope.numbers.setdefault(t, []).append(name)
        self._scope.own.setdefault(t, []).append(name)

    def _own(self, t: str) -> str:
        """A name that may be assigned."""
        names = self._scope.own.get(t)
        return self._c.choose(names) if names else self._declare(t, self._value(t, 1))

    # Statements

    def _body(self, count: int) -> None:
        for _ in range(count):
            self._statement()

    def _statement(self) -> None:
        self._budget -= 1
        simple: list[Callable[[], None]] = [
            self._define,
            self._change,
            self._augment,
            self._swap,
            self._store,
            self._pair,
            self._record,
            self._view,
            self._held_view,
            self._literal,
            self._starred,
            self._rebind,
        ]
        nested: list[Callable[[], None]] = [
            self._branch,
            self._comptime_branch,
            self._both_arms,
            self._only_arm,
            self._for,
            self._unrolled,
            self._while,
            self._search,
            self._match,
            self._function,
            self._function_of_arms,
            self._scan,
        ]
        deep = self._depth > 4 or self._budget < 0
        self._c.choose(simple if deep or self._c.number(0, 2) == 0 else nested)()

    def _define(self) -> None:
        t = self._type()
        self._declare(t, self._value(t, 3))

    def _change(self) -> None:
        t = self._type()
        name = self._own(t)
        self._line(f"{name} = {self._value(t, 3)}")

    def _augment(self) -> None:
        t = self._type()
        name = self._own(t)
        operators = "+-*" if t in FLOATS else "+-*&|^"
        self._line(f"{name} {self._c.choose(operators)}= {self._value(t, 2)}")

    def _swap(self) -> None:
        """Several targets at once, which may be items."""
        t = self._type()
        names = [self._own(t) for _ in range(self._c.number(2, 3))]
        arrays = self._scope.arrays.get(t)
        targets = list(names)
        if arrays and self._c.number(0, 2) == 0:
            array = self._c.choose(arrays)
            targets[-1] = f"{array}[{self._index(array)}]"
        if self._c.number(0, 3) == 0:
            self._line(f"{' = '.join(targets)} = {self._value(t, 2)}")
            return
        values = [self._c.choose((names[-k - 1], self._value(t, 1))) for k in range(len(names))]
        self._line(f"{', '.join(targets)} = {', '.join(values)}")

    def _literal(self) -> None:
        """A local that branches give one of two literals."""
        t = self._type()
        numbers = ("0.1", "0.5", "-2.5") if t in FLOATS else ("1", "3", "7", "100")
        name = self._fresh("h")
        self._line(f"{name} = {self._c.choose(numbers)}")
        with self._block(f"if {self._condition(1)}:"):
            self._line(f"{name} = {self._c.choose(numbers)}")
        self._declare(t, f"{self._value(t, 1)} {self._c.choose('+-*')} {name}")

    def _store(self) -> None:
        t = self._type()
        arrays = self._scope.arrays.get(t)
        if not arrays or self._c.number(0, 3) == 0:
            name = self._fresh("l")
            self._line(f"{name} = cp.local({SPAN}, cp.{t}, {self._c.number(0, 3)})")
            self._scope.arrays.setdefault(t, []).append(name)
            arrays = [name]
        array = self._c.choose(arrays)
        sign = self._c.choose(("=", "=", "+=", "-=", "*="))
        parts = ("[1:]", "[:3]", "[::2]") if array.startswith("l") else ()
        part = self._c.choose(("", "", *parts))
        place = self._index(array) if not part else f"cp.i32({self._value('i32', 1)}) % 2"
        self._line(f"{array}{part}[{place}] {sign} {self._value(t, 2)}")

    def _view(self) -> None:
        """A view of an array, which the name's next views may move on a straight path, under
        control of the unit, or in a loop."""
        t = self._type()
        arrays = [a for a in self._scope.arrays.get(t, []) if a.startswith("l")]
        if not arrays:
            self._store()
            return
        array, name = self._c.choose(arrays), self._fresh("w")
        parts = ("[1:]", "[:2]", "[2:4]", "[::2]", "[1::2]", f"[{self._small(3)}:]")
        self._line(f"{name} = {array}{self._c.choose(parts)}")
        for _ in range(self._c.number(0, 2)):
            loop = f"for {self._fresh('k')} in range({self._small(3)}):"
            head = self._c.choose(("", f"if {self._condition(1)}:", loop))
            with self._block(head) if head else nullcontext():
                moved = (
                    f"{array}{self._c.choose(parts)}",
                    f"{name}[:2]",
                    f"{name}[{name}.size - 2:]",
                )
                self._line(f"{name} = {self._c.choose(moved)}")
        self._scope.arrays[t].append(name)

    def _held_view(self) -> None:
        """A name that takes tuples with views, on a straight path and maybe in a branch."""
        t, name = self._type(), self._fresh("v")
        arrays = [a for a in self._scope.arrays.get(t, []) if a.startswith("l")]
        if not arrays:
            self._store()
            return
        self._line(f"{name} = ({self._c.choose(arrays)}, {self._value(t, 1)})")
        for _ in range(self._c.number(1, 3)):  # of five elements, two are left at least
            part = self._c.choose(("", "[1:]"))
            changed = self._c.choose((f"{name}[1]", f"{name}[1] + {self._value(t, 1)}"))
            head = self._c.choose(("", "", f"if {self._condition(1)}:"))
            with self._block(head) if head else nullcontext():
                self._line(f"{name} = ({name}[0]{part}, {changed})")
        self._declare(t, f"{name}[0][{self._small(2)}] - {name}[1]")

    def _pair(self) -> None:
        """A tuple that changes as a whole."""
        t = self._type()
        pairs = self._scope.pairs.setdefault(t, [])
        if not pairs or self._c.number(0, 2) == 0:
            made = self._c.choose(("", "Pair"))
            name = self._fresh(f"t{made}")
            self._line(f"{name} = {made}({self._value(t, 1)}, {self._value(t, 1)})")
            pairs.append(name)
            return
        name = self._c.choose(pairs)
        self._line(f"{self._own(t)}, {self._own(t)} = {name}")

    def _starred(self) -> None:
        """Targets of which one takes what the others leave."""
        t, rest = self._type(), self._fresh("t")
        values = [self._value(t, 1) for _ in range(self._c.number(2, 4))]
        names = [self._own(t) for _ in range(len(values) - 2)]
        names.insert(self._c.number(0, len(names)), f"*{rest}")
        self._line(f"{', '.join(names)}, = {', '.join(values)}")
        self._scope.pairs.setdefault(t, []).append(rest)

    def _rebind(self) -> None:
        """A name that takes things of other kinds on a straight path."""
        t, name, q = self._type(), self._fresh("v"), self._fresh("q")
        a, b = self._value(t, 1), self._value(t, 1)
        forms = (
            (f"({a}, {b})", f"{name}[0]"),
            (f"Pair({a}, {b})", f"{name}.less"),
            (f"Duo({a}, {b})", f"{name}.swapped().a"),
            (f"lambda {q}: {self._lambda(t, q, q)}", f"{name}({b})"),
            ("'text'", f"cp.{t}(len({name}))"),
        )
        for first, then in (self._c.choose(forms) for _ in range(self._c.number(1, 2))):
            self._line(f"{name} = {first}")
            self._line(f"{name} = {then}")
        self._know(t, name)

    def _turned(self, name: str, t: str) -> str:
        """A pair of the class of another one."""
        if name.startswith("tPair") and self._c.number(0, 2) == 0:
            return f"{name}._replace({self._c.choose('ab')}={self._value(t, 1)})"
        parts = [self._c.choose((f"{name}[1]", f"{name}[0]", self._value(t, 1))) for _ in "ab"]
        return f"{'Pair' if name.startswith('tPair') else ''}({parts[0]}, {parts[1]})"

    def _record(self) -> None:
        t = self._type()
        records = self._scope.records.setdefault(t, [])
        if not records or self._c.number(0, 2) == 0:
            name = self._fresh("d")
            self._line(f"{name} = Duo({self._value(t, 1)}, {self._value(t, 1)})")
            records.append(name)
            return
        name = self._c.choose(records)
        with self._block(f"if {self._condition(1)}:"):
            v = self._value(t, 1)
            forms = (
                f"{name} = {name}.step({v})",
                f"{name} = {name}.swapped()",
                f"{name} = {name} + {v}",
                f"{name} = {name}.swapped().step({v}) + {v}",
                f"{name} += {v}",
                f"{name} = replace({name}, {self._c.choose('ab')}={v})",
                f"{name} &= {v}",
                f"{name} = {name} or Duo({v}, {v})",
                f"{name} = sum(({name}, Duo({v}, {v}), {name}), {name})",
            )
            self._line(self._c.choose(forms))

    def _jump(self) -> None:
        """Leave a loop, or the function."""
        words = ["break", "continue"] * 3 if self._loops else []
        word = self._c.choose([*words, "return"])
        self._line(f"return {self._returns[-1]()}" if word == "return" else word)

    def _maybe_jump(self) -> None:
        if self._c.number(0, 2) == 0:
            with self._block(f"if {self._condition(2)}:"):
                if self._c.number(0, 1):
                    self._change()
                self._jump()

    def _branch(self) -> None:
        with self._block(f"if {self._condition(2)}:"):
            self._body(self._c.number(1, 3))
            if self._c.number(0, 5) == 0:
                self._jump()
        if self._c.number(0, 2) == 0:
            with self._block(f"elif {self._condition(2)}:"):
                self._body(1)
                self._maybe_jump()
        if self._c.number(0, 1):
            with self._block("else:"):
                self._body(self._c.number(1, 2))
                if self._c.number(0, 5) == 0:
                    self._jump()

    def _comptime_branch(self) -> None:
        """Of which one arm is not the language at all."""
        name, other = self._c.choose(self._scope.comptime), self._c.number(0, 3)
        with self._block(f"if {name} == {other}:"):
            self._body(1)
            self._maybe_jump()
        with self._block(f"elif {name} > 90:"):
            self._line("never.there(at_all)")
        with self._block("else:"):
            self._body(1)
            self._maybe_jump()

    def _both_arms(self) -> None:
        """A name that branches give its first value."""
        t, name = self._type(), self._fresh("v")
        with self._block(f"if {self._condition(2)}:"):
            self._body(self._c.number(0, 1))
            self._line(f"{name} = {self._value(t, 2)}")
        with self._block("else:"):
            self._line(f"{name} = {self._value(t, 2)}")
            self._body(self._c.number(0, 1))
        self._know(t, name)

    def _only_arm(self) -> None:
        """A name that the only arm that goes on gives its first value, which may be memory."""
        t, name, result = self._type(), self._fresh("v"), self._fresh("v")
        forms = (
            ("{}", "{}"),
            ("({}, {})", "{}[1]"),
            ("(Duo({}, {}), 1)", "{}[0].swapped().a"),
            ("{{'d': (Duo({}, {}), 'text')}}", "{}['d'][0].b"),
            ("{{'a': {}, 'b': ({}, 1)}}", "{}['b'][0]"),
            (f"cp.local({SPAN}, cp.{t}, {self._c.number(0, 3)})", f"{{}}[{SPAN - 1}]"),
            (f"{{{{'m': cp.local({SPAN}, cp.{t}, 2), 'n': {{}}}}}}", "{0}['m'][1] + {0}['n']"),
        )
        form, then = self._c.choose(forms)
        binds = self._c.number(0, 1) == 0
        for is_first in (True, False):
            with self._block(f"if {self._condition(2)}:" if is_first else "else:"):
                if is_first is binds:
                    self._body(self._c.number(0, 1))
                    self._line(f"{name} = " + form.format(self._value(t, 2), self._value(t, 1)))
                else:
                    self._jump()
        self._line(f"{result} = " + then.format(name))
        self._know(t, result)

    def _loop_body(self) -> None:
        self._loops += 1
        self._maybe_jump()
        self._body(self._c.number(1, 2))
        self._maybe_jump()
        if self._c.number(0, 2) == 0:
            self._change()
        self._loops -= 1

    def _else(self) -> None:
        if self._c.number(0, 2) == 0:
            with self._block("else:"):
                self._body(1)
                self._maybe_jump()

    def _for(self) -> None:
        k = self._fresh("k")
        small, more = self._small(4), self._small(3)
        bounds = (small, "3", f"{more}, 4", f"5, {more}, -2", f"{small}, -2, -1", "i % 4")
        head = f"for {k} in range({self._c.choose(bounds)}):"
        is_kept = self._c.number(0, 3) == 0
        if is_kept:
            self._line(f"{k} = cp.i64({self._c.number(0, 9)})")
        with self._block(head):
            if not is_kept:
                self._scope.indices.append(k)
            self._loop_body()
        self._else()
        if is_kept:
            self._scope.indices.append(k)

    def _unrolled(self) -> None:
        """A loop over Python's numbers, over numbers of the unit, or over pairs of both."""
        t = self._type()
        kind, k, j = self._c.number(0, 4), self._fresh("c"), self._fresh("v")
        q = self._fresh("q")
        values = ", ".join(self._value(t, 1) for _ in range(self._c.number(1, 3)))
        heads = (
            f"for {k} in cp.unroll(range({self._c.number(1, 3)})):",
            f"for {k} in (1, 0, 3):",
            f"for {j} in ({values},):",
            f"for {k}, {j} in enumerate(({values},)):",
            f"for {k}, {j} in (({q}, {self._with(t, f'cp.{t}({q})', 1)}) for {q} in (2, 0, 1)):",
        )
        self._budget -= 3
        with self._block(heads[kind]):
            if kind != 2:
                self._scope.comptime.append(k)
            if kind > 1:
                self._scope.numbers.setdefault(t, []).append(j)
            self._loops += 1
            if kind != 2 and self._c.number(0, 2) == 0:
                last = self._c.choose((1, 2, 3))
                with self._block(f"if {k} == {last}:"):
                    self._line(self._c.choose(("break", "continue")))
                self._line(f"cp.static_assert({k} != {last})")
            self._loops -= 1
            self._loop_body()
        self._else()
        self._scope.indices += [k] if kind != 2 else []
        if kind > 1:
            self._scope.numbers.setdefault(t, []).append(j)

    def _while(self) -> None:
        counter = self._fresh("n")
        self._line(f"{counter} = cp.i32(0)")
        limit = self._c.number(1, 4)
        heads = (
            f"while {counter} < {limit} and {self._condition(2)}:",
            f"while ({counter} := {counter} + 1) < {limit} and {self._condition(1)}:",
            f"while not ({counter} >= {limit} or {self._condition(1)}):",
            "while True:",
        )
        kind, t, late = self._c.number(0, 3), self._type(), ""
        with self._block(heads[kind]):
            if kind == 3:
                late = self._declare(t, self._value(t, 2))
                with self._block(f"if {counter} >= {limit}:"):
                    self._line("break")
            if kind != 1:
                self._line(f"{counter} += 1")
            self._loop_body()
        if kind != 3:
            self._else()
        self._know("i32", counter)
        if late:
            self._know(t, late)

    def _search(self) -> None:
        """A loop that alone binds a name, at each of its exits."""
        t, found, k = self._type(), self._fresh("v"), self._fresh("k")
        counter, kind = self._fresh("n"), self._c.number(0, 4)
        heads = (
            f"for {k} in range({self._small(5)}):",
            f"while ({counter} := {counter} + 1) < 3:",
            "while True:",
            f"for {k} in cp.unroll(range({self._c.number(1, 3)})):",
            f"for {k} in range({self._c.number(1, 4)}):",
        )
        if kind in (1, 2):
            self._line(f"{counter} = cp.i32(-1)")
        with self._block(heads[kind]):
            if kind in (0, 4):
                self._scope.indices.append(k)
            if kind == 2:
                self._line(f"{counter} += 1")
            if kind == 4:
                self._line(f"{found} = {self._value(t, 2)}")
            for _ in range(self._c.number(1, 3)):
                self._exit(t, found, "continue" if kind == 4 else "break")
            if kind == 2:
                with self._block(f"if {counter} > {self._c.number(0, 3)}:"):
                    self._line(f"{found} = {self._value(t, 1)}")
                    self._line("break")
        if kind in (0, 1, 3):
            with self._block("else:"):
                self._line(f"{found} = {self._value(t, 1)}")
        self._know(t, found)

    def _exit(self, t: str, found: str, other: str) -> None:
        with self._block(f"if {self._condition(1)}:"):
            self._line(f"{found} = {self._value(t, 2)}")
            if self._c.number(0, 2) == 0:
                self._change()
            self._line(self._c.choose(("break", "break", other)))

    def _match(self) -> None:
        t = "i32"
        a, b = f"{self._value(t, 2)} % 4", f"{self._value(t, 1)} % 3"
        old, new = self._own(t), self._fresh("q")
        if self._c.number(0, 1):
            subject, patterns = a, ["0", "1 | 2", f"{new} if {new} > 2", f"{old} if {{c}}"]
        else:
            subject = f"({a}, {b})"
            patterns = [
                f"(0, {new})",
                f"({new}, 1) | (1, {new})",
                f"({old}, 2)",
                f"({new}, {old}) if {{c}}",
                f"(2 | 3 as {new}, _)",
                f"({new}, *_)",
                f"({new}, 1 | 2) if {{c}}",
            ]
        with self._block(f"match {subject}:"):
            for _ in range(self._c.number(1, 3)):
                pattern = self._c.choose(patterns).format(c=self._condition(1))
                if pattern == f"({new}, *_)":
                    continue
                with self._block(f"case {pattern}:"):
                    if re.search(rf"\b{new}\b", pattern):
                        self._scope.numbers[t].append(new)
                    self._body(self._c.number(1, 2))
                    self._maybe_jump()
            with self._block("case _:"):
                self._body(1)

    def _function(self) -> None:
        """A function in the function, which sees what is around it as it is when it is called."""
        t, name, u, v = self._type(), self._fresh("f"), self._fresh("v"), self._fresh("v")
        if self._c.number(0, 2) == 0:
            self._line(f"{name} = lambda {u}, {v}={self._value(t, 1)}: {self._lambda(t, u, v)}")
        else:
            default = f"={self._value(t, 1)}" if self._c.number(0, 1) else "=cp." + t + "(2)"
            self._define_function(t, name, u, v, default)
        self._scope.functions.setdefault(t, []).append(name)

    def _function_of_arms(self) -> None:
        """A name that branches give another function, dtype and dict each, which they use."""
        t, f, d, c = self._type(), self._fresh("f"), self._fresh("d"), self._fresh("c")
        q, r = self._fresh("q"), self._fresh("q")
        for head in (f"if {self._condition(1)}:", "else:"):
            with self._block(head):
                self._line(f"{f} = lambda {q}, {r}={self._value(t, 1)}: {self._lambda(t, q, r)}")
                self._line(f"{c} = cp.{t}")
                numbers = f"{{'first': {self._value(t, 1)}, 'b': {c}({self._value('i32', 1)})}}"
                self._line(f"{d} = {numbers}")
                with self._block(f"if held({d}, 'b') or {self._value(t, 0)} in {d}.values():"):
                    self._line(f"{self._own(t)} = {f}({d}['first'])")

    def _lambda(self, t: str, u: str, v: str) -> str:
        with self._reading():
            self._scope.numbers[t] = [*self._scope.numbers[t], u, v, u, v]
            return self._value(t, 2)

    def _define_function(self, t: str, name: str, u: str, v: str, default: str) -> None:
        loops, self._loops = self._loops, 0
        self._returns.append(lambda: self._value(t, 1))
        self._budget -= 2
        with self._block(f"def {name}({u}, {v}{default}):"):
            self._scope.own = {t: [u, v]}
            self._scope.pairs, self._scope.records = {}, {}
            self._scope.numbers[t] = [*self._scope.numbers[t], u, v]
            self._body(self._c.number(1, 3))
            self._line(f"return {self._value(t, 2)}")
        self._returns.pop()
        self._loops = loops

    def _scan(self) -> None:
        """A loop that carries a pair, or a record, and ends early."""
        t = self._type()
        pairs = self._scope.pairs.get(t)
        if not pairs:
            self._pair()
            return
        name = self._c.choose(pairs)
        with self._block(f"for {self._fresh('k')} in range({self._small(4)}):"):
            self._line(f"{name} = {self._turned(name, t)}")
            self._loops += 1
            self._maybe_jump()
            self._loops -= 1
            self._body(1)
