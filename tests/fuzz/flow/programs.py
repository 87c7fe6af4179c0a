"""Random programs that steer: text that the language and Python both run.

Each is a function of one unit, which returns a tuple of numbers. Names are assigned before they
are read, and an assignment keeps the type; all else is as wild as Python allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.fuzz.generator import Chooser
from tests.fuzz.typed.rules import FLOATS

TYPES = ("i32", "i32", "i64", "u8", "i16", "u32", "f32", "f64")
RESULTS = 3
SPAN = 5
"""Elements of a local array; views of it have at least two."""
HEAD = """from dataclasses import dataclass
from typing import Any, NamedTuple


class Pair(NamedTuple):
    a: Any
    b: Any

    @property
    def less(self):
        return self.a - self.b

    def more(self, v):
        return Pair(self.a + v, self.less)


@dataclass(frozen=True)
class Duo:
    a: Any
    b: Any

    def swapped(self):
        return Duo(self.b, self.a)

    def step(self, v):
        for k in range(3):
            if self.a > v:
                return Duo(self.a - v, self.b)
            if k == 1 and self.b > v:
                return self.swapped()
            v = v + self.b
        return Duo(self.b, v)

    def __add__(self, v):
        if isinstance(v, Duo):
            return Duo(self.a - v.b, self.b + v.a)
        return Duo(self.a + v, self.b)

    def __iadd__(self, v):
        return Twin(self.b, self.a - v).swapped()

    def __lt__(self, other):
        return self.a < other.b


@dataclass(frozen=True)
class Twin(Duo):
    def swapped(self):
        return Duo(self.a, self.b)


def held(numbers, name):
    return numbers[name] > numbers["first"]


def note(log, v):
    log[0] = (log[0] + 1) % 12
    log[log[0] + 1] += cp.i32(v)
    return v


def digest(log):
    total = cp.i32(0)
    for k in range(13):
        total = total * 31 + log[k]
    return total


"""


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


@dataclass
class Flow:
    """A program: a function `program`, which takes `x_t[i]` and `y_t[i]` of each type."""

    source: str
    types: tuple[str, ...]
    results: tuple[str, ...]


def write(chooser: Chooser, types: tuple[str, ...] = TYPES) -> Flow:
    """A random program."""
    return _Writer(chooser, types).program()


class _Writer:
    def __init__(self, chooser: Chooser, types: tuple[str, ...]) -> None:
        self._c = chooser
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0
        self._scope = Scope()
        self._loops = 0
        self._budget = 40
        self.types = tuple(dict.fromkeys(("i32", *(chooser.choose(types) for _ in range(2)))))
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
    def _reading(self) -> Iterator[None]:
        """A part that assigns no names, as what a comprehension runs over."""
        saved, self._scope = self._scope, self._scope.copy()
        self._scope.own = {}
        yield
        self._scope = saved

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        """A block: what it declares is not read behind it."""
        self._line(head)
        self._depth += 1
        saved, self._scope = self._scope, self._scope.copy()
        yield
        self._scope = saved
        self._depth -= 1

    def _fresh(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _declare(self, t: str, value: str) -> str:
        name = self._fresh("v")
        self._line(f"{name} = {value}")
        self._know(t, name)
        return name

    def _know(self, t: str, name: str) -> None:
        self._scope.numbers.setdefault(t, []).append(name)
        self._scope.own.setdefault(t, []).append(name)

    def _type(self) -> str:
        return self._c.choose(self.types)

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
            self._literal,
        ]
        nested: list[Callable[[], None]] = [
            self._branch,
            self._comptime_branch,
            self._both_arms,
            self._for,
            self._unrolled,
            self._while,
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
        part = self._c.choose(("", "", "[1:]", "[:3]", "[::2]"))
        place = self._index(array) if not part else f"cp.i32({self._value('i32', 1)}) % 2"
        self._line(f"{array}{part}[{place}] {sign} {self._value(t, 2)}")

    def _view(self) -> None:
        """A view of an array, which may move under control of the unit."""
        t = self._type()
        arrays = [a for a in self._scope.arrays.get(t, []) if a.startswith("l")]
        if not arrays:
            self._store()
            return
        array, name = self._c.choose(arrays), self._fresh("w")
        parts = ("[1:]", "[:2]", "[2:4]", f"[{self._small(3)}:]")
        self._line(f"{name} = {array}{self._c.choose(parts)}")
        if self._c.number(0, 1):
            with self._block(f"if {self._condition(1)}:"):
                self._line(f"{name} = {array}{self._c.choose(parts)}")
        self._scope.arrays[t].append(name)

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

    def _turned(self, name: str, t: str) -> str:
        """A pair of the class of another one."""
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
        kind, k, j = self._c.number(0, 3), self._fresh("c"), self._fresh("v")
        values = ", ".join(self._value(t, 1) for _ in range(self._c.number(1, 3)))
        heads = (
            f"for {k} in cp.unroll(range({self._c.number(1, 3)})):",
            f"for {k} in (1, 0, 3):",
            f"for {j} in ({values},):",
            f"for {k}, {j} in enumerate(({values},)):",
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
        kind = self._c.number(0, 3)
        with self._block(heads[kind]):
            if kind == 3:
                with self._block(f"if {counter} >= {limit}:"):
                    self._line("break")
            if kind != 1:
                self._line(f"{counter} += 1")
            self._loop_body()
        if kind != 3:
            self._else()
        self._know("i32", counter)

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
                    if new in pattern:
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

    # Expressions

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
        kind = self._c.number(0, 17)
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
            return f"({self._own(t)} := {a})" if self._lines else a
        if kind == 8 and self._scope.functions.get(t):
            f = self._c.choose(self._scope.functions[t])
            return f"{f}({self._c.choose((a, f'{a}, {b}'))})"
        if kind == 9:
            return f"{self._c.choose(('min', 'max'))}({a}, {b})"
        if kind == 10 and t not in FLOATS:
            return f"({a} {self._c.choose(('//', '%'))} {self._c.choose((f'({b} | 1)', '3', '7'))})"
        if kind == 11:
            q = self._fresh("q")
            own = f"cp.{t}({q})"
            return f"sum([{own} * {self._with(t, own, d)} for {q} in (1, 2)], {b})"
        if kind == 12:
            return f"cp.{t}({self._value(self._type(), d)})"
        if kind == 13:
            q, r = self._fresh("q"), self._fresh("q")
            return f"(lambda {q}, {r}={b}: cp.{t}({q} - {self._with(t, r, d)}))({a})"
        if kind == 14 and t not in FLOATS:
            return f"(-{a})" if t[0] == "i" else f"(~{a})"
        if kind == 15:
            q = self._fresh("q")
            made = f"[lambda: {self._with(t, f'cp.{t}({q})', d)} for {q} in (1, 2, 3)]"
            return f"{made}[{self._c.number(0, 2)}]()"
        if kind == 16:
            return f"Pair({a}, {b}){self._c.choose(('.less', f'.more({a}).less', '.more(1).b'))}"
        return f"cp.where({self._condition(d)}, {a}, {b})"

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
        if kind == 3 and t not in FLOATS:
            return f"({a} % 5 in (1, 3, {self._value(t, 0)}))"
        if kind == 4:
            return f"(({a}, {b}) {compare} ({self._value(t, 0)}, {self._value(t, 0)}))"
        if kind == 5:
            q, word = self._fresh("q"), self._c.choose(("any", "all"))
            with self._reading():
                items = f"({self._value(t, d)}, {self._value(t, 0)})"
            return f"{word}([{q} {compare} {b} for {q} in {items}])"
        if kind == 6 and self._scope.records.get(t):
            names = [self._c.choose(self._scope.records[t]) for _ in "ab"]
            return f"({names[0]} < {names[1]})"
        if kind == 7 and t not in FLOATS:
            return f"({a} % 3)"
        if kind == 8 and depth > 0:
            return f"({self._condition(d)} if {self._condition(d)} else {self._condition(d)})"
        return f"({a} {compare} {b})"
