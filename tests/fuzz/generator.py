"""Random kernels as Python source: well typed, free of races and undefined reads by construction.

Each unit writes to its own slots; shared memory is written before a barrier and read after it;
atomics are commutative and their old values unused; indices are reduced with `%`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

T = TypeVar("T")

INTEGERS = ("i8", "u8", "i16", "i32", "u32", "i64", "u64")
FLOATS = ("f32", "f64", "f16")
TYPES = (*INTEGERS, *FLOATS)
PLANES = (1, 1, 4, 8)
EXTENT = 16
"""Elements of every input, and slots of every output for each unit."""
SLOTS = 3


class Chooser(Protocol):
    """Where decisions come from: a seeded generator, or Hypothesis, which can shrink them."""

    def choose(self, options: Sequence[T]) -> T: ...
    def number(self, low: int, high: int) -> int: ...


@dataclass
class Program:
    """A generated kernel: its source, and how to launch it."""

    source: str
    cube_dim: int
    cubes: int
    plane_dim: int
    types: tuple[str, ...]
    views: tuple[str, ...] = ()
    """Further inputs: n_... is reversed, z_... repeats one element, m_... is transposed."""


@dataclass
class _Scope:
    names: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def of(self, t: str) -> list[str]:
        return self.names.setdefault(t, [])


class Generator:
    """Writes one kernel. `chooser` decides; nothing else is random.

    `types` and `planes` are what the kernel may use: the sizes of planes, of which the last one is
    also that of a cube now and then.
    """

    def __init__(
        self,
        chooser: Chooser,
        types: tuple[str, ...] = TYPES,
        planes: tuple[int, ...] = PLANES,
    ) -> None:
        self._c = chooser
        self._lines: list[str] = []
        self._depth = 1
        self._scope = _Scope()
        self._count = 0
        self._loops = 0
        self._may_return = False
        wide = (planes[-1],) if planes[-1] > 16 else ()
        self.cube_dim = chooser.choose((1, 4, 8, 16, *wide))
        self.plane_dim = chooser.choose(planes) if self.cube_dim >= 8 else 1
        self.types = tuple(dict.fromkeys(chooser.choose(types) for _ in range(3)))

    def program(self) -> Program:
        """The whole kernel."""
        self._prologue()
        for _ in range(self._c.number(2, 7)):
            self._together()
        self._epilogue()
        args = [*(f"x_{t}" for t in self.types), *(f"out_{t}" for t in self.types)]
        head = f"def kernel({', '.join(args)}, sums, tops, bits):"
        source = "\n".join([head, *self._lines, ""])
        cubes = self._c.number(1, 3)
        return Program(source, self.cube_dim, cubes, self.plane_dim, self.types)

    # Writing

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def _block(self, head: str):
        self._line(head)
        self._depth += 1
        saved = {t: list(names) for t, names in self._scope.names.items()}
        yield
        self._depth -= 1
        self._scope.names = saved

    def _fresh(self, t: str) -> str:
        self._count += 1
        return f"v{self._count}_{t}"

    def _declare(self, t: str, value: str) -> None:
        name = self._fresh(t)
        self._line(f"{name} = cp.{t}({value})")
        self._scope.of(t).append(name)

    # The frame of a kernel

    def _prologue(self) -> None:
        self._line("t = cp.UNIT_POS")
        self._line("p = cp.ABSOLUTE_POS")
        for t in self.types:
            self._line(f"s_{t} = cp.shared({self.cube_dim}, cp.{t})")
            self._line(f"s_{t}[t] = x_{t}[p % {EXTENT}]")
        self._line("cp.sync_cube()")
        for t in self.types:
            self._declare(t, f"x_{t}[(p * 3 + 1) % {EXTENT}]")
        self._declare("i32", "p")

    def _epilogue(self) -> None:
        for t in self.types:
            names = self._scope.of(t)
            for slot in range(SLOTS):
                value = names[-1 - slot % len(names)]
                self._line(f"out_{t}[p * {SLOTS} + {slot}] = {value}")

    # Statements that all units reach

    def _together(self) -> None:
        choices: list[Callable[[], None]] = [self._statement, self._statement, self._exchange]
        choices += [self._uniform_loop, self._uniform_branch]
        if self.plane_dim > 1:
            choices += [self._plane, self._plane]
        if self._c.number(0, 9) == 0:
            choices = [self._leave]
        self._c.choose(choices)()

    def _exchange(self) -> None:
        """Units exchange values through shared memory."""
        t = self._c.choose(self.types)
        self._line("cp.sync_cube()")
        self._line(f"s_{t}[t] = cp.{t}({self._value(t, 2)})")
        self._line("cp.sync_cube()")
        shift = self._c.number(0, 7)
        self._declare(t, f"s_{t}[(t + {shift}) % {self.cube_dim}]")

    def _uniform_loop(self) -> None:
        target = self._c.choose(self.types)
        accumulator = self._c.choose(self._scope.of(target))
        with self._block(f"for r{self._count} in range({self._c.number(1, 3)}):"):
            self._exchange()
            self._line(f"{accumulator} = cp.{target}({self._value(target, 2)})")
            if self._c.number(0, 3) == 0:
                with self._block(f"if x_{self.types[0]}[0] == 1:"):
                    self._line(self._c.choose(("break", "continue")))

    def _uniform_branch(self) -> None:
        target = self._c.choose(self.types)
        name = self._c.choose(self._scope.of(target))
        with self._block(f"if cp.CUBE_POS % 2 == {self._c.number(0, 1)}:"):
            self._exchange()
            self._line(f"{name} = cp.{target}({self._value(target, 1)})")

    def _plane(self) -> None:
        t = self._c.choose(self.types)
        value = f"cp.{t}({self._value(t, 1)})"
        kinds = ("sum", "min", "max", "inclusive_sum", "exclusive_sum", "prod")
        exchange = ("shuffle", "shuffle_xor", "shuffle_up", "shuffle_down", "broadcast")
        if self._c.number(0, 1):
            self._declare(t, f"cp.plane_{self._c.choose(kinds)}({value})")
        else:
            lane = self._c.number(0, self.plane_dim - 1)
            self._declare(t, f"cp.plane_{self._c.choose(exchange)}({value}, {lane})")

    def _leave(self) -> None:
        """Some units end; what they owe to the others is in place."""
        with self._block(f"if p % {self._c.number(3, 9)} == 2:"):
            self._line("return")

    # Statements of one unit

    def _statement(self) -> None:
        kinds: list[Callable[[], None]] = [
            self._define,
            self._change,
            self._branch,
            self._loop,
            self._atomic,
            self._local,
            self._lines_of_lanes,
            self._helper,
            self._while,
        ]
        if self._depth > 3:
            kinds = [self._define, self._change]
        self._c.choose(kinds)()

    def _define(self) -> None:
        t = self._c.choose(self.types)
        self._declare(t, self._value(t, 3))

    def _change(self) -> None:
        t = self._c.choose(self.types)
        name = self._c.choose(self._scope.of(t))
        self._line(f"{name} = cp.{t}({self._value(t, 3)})")

    def _body(self, count: int) -> None:
        for _ in range(count):
            self._statement()

    def _branch(self) -> None:
        with self._block(f"if {self._condition(2)}:"):
            self._body(self._c.number(1, 2))
        if self._c.number(0, 1):
            with self._block("else:"):
                self._body(1)

    def _loop(self) -> None:
        bounds = self._c.choose(("4", "1, 5", "7, 0, -2", "p % 5", "t % 3, 4"))
        with self._block(f"for i{self._count} in range({bounds}):"):
            self._change()
            if self._c.number(0, 2) == 0:
                with self._block(f"if {self._condition(1)}:"):
                    self._line(self._c.choose(("break", "continue")))
            self._change()

    def _while(self) -> None:
        self._count += 1
        counter = f"w{self._count}"
        self._line(f"{counter} = 0")
        with self._block(f"while {counter} < {self._c.number(1, 4)} and {self._condition(1)}:"):
            self._line(f"{counter} += 1")
            self._change()

    def _atomic(self) -> None:
        value = f"cp.i32({self._value('i32', 1)})"
        array, name = self._c.choose((("sums", "add"), ("tops", "max"), ("bits", "xor")))
        self._line(f"cp.atomic.{name}({array}, (p + {self._c.number(0, 5)}) % 4, {value})")

    def _local(self) -> None:
        t = self._c.choose(self.types)
        self._count += 1
        name = f"l{self._count}"
        self._line(f"{name} = cp.local(4, cp.{t}, {self._c.number(0, 3)})")
        self._line(f"{name}[(t + {self._c.number(0, 3)}) % 4] = cp.{t}({self._value(t, 1)})")
        self._declare(t, f"{name}[(p + {self._c.number(0, 3)}) % 4]")

    def _lines_of_lanes(self) -> None:
        t = self._c.choose(self.types)
        self._count += 1
        name, width = f"n{self._count}", self._c.choose((2, 3, 4, 8))
        self._line(f"{name} = cp.load(x_{t}, p % {EXTENT}, line={width}, fill=1)")
        operator = self._c.choose(("+", "*", "-"))
        self._line(f"{name} = cp.Line[cp.{t}, {width}]({name} {operator} {self._value(t, 1)})")
        pick = self._c.choose((".sum()", ".max()", ".min()", "[0]", f"[{width - 1}]"))
        self._declare(t, f"{name}{pick}")
        if t in INTEGERS and width in (2, 4, 8):
            self._words_of_lanes(t, name, width)

    def _words_of_lanes(self, t: str, name: str, width: int) -> None:
        """The same bits as lanes of another size. Of floats the bits of a NaN would differ."""
        total = width * int(t[1:])
        sizes = [u for u in self.types if u in INTEGERS and total % int(u[1:]) == 0]
        other = self._c.choose(sizes)
        lanes = total // int(other[1:])
        self._line(f"{name}w = cp.bitcast({name}, cp.Line[cp.{other}, {lanes}])")
        self._declare(other, f"{name}w[{self._c.number(0, lanes - 1)}]")
        self._declare(t, f"cp.bitcast({name}w ^ 1, cp.Line[cp.{t}, {width}])[{width - 1}]")

    def _helper(self) -> None:
        """A nested function with several returns."""
        t = self._c.choose(self.types)
        self._count += 1
        name = f"h{self._count}"
        with self._block(f"def {name}(a, b):"):
            with self._block("if a > b:"):
                self._line("return a")
            self._line(f"return cp.{t}(b)")
        self._declare(t, f"{name}(cp.{t}({self._value(t, 1)}), cp.{t}({self._value(t, 1)}))")

    # Expressions

    def _value(self, t: str, depth: int) -> str:
        """An expression whose value converts to `t`."""
        if depth <= 0 or self._c.number(0, 3) == 0:
            return self._leaf(t)
        if t in FLOATS:
            return self._float(t, depth - 1)
        return self._integer(t, depth - 1)

    def _leaf(self, t: str) -> str:
        names = self._scope.of(t)
        if names and self._c.number(0, 3):
            return self._c.choose(names)
        if t in FLOATS:
            return f"cp.{t}({self._c.choose((0.0, -0.0, 1.0, -1.0, -2.5, 0.1, 3e4, 1e-7))})"
        high = 127 if t in ("i8", "u8") else 1000
        number = self._c.choose((0, 1, 2, 3, self._c.number(0, high)))
        return f"cp.{t}({number})"

    def _pair(self, t: str, depth: int) -> tuple[str, str]:
        first = f"cp.{t}({self._value(t, depth)})"
        same = self._c.number(0, 5) == 0
        return first, first if same else f"cp.{t}({self._value(t, depth)})"

    def _integer(self, t: str, depth: int) -> str:
        a, b = self._pair(t, depth)
        form = self._c.choose(
            (
                "({a} + {b})",
                "({a} - {b})",
                "({a} * {b})",
                "({a} // {b})",
                "({a} % {b})",
                "({a} & {b})",
                "({a} | {b})",
                "({a} ^ {b})",
                "({a} << {b})",
                "({a} >> {b})",
                "min({a}, {b})",
                "max({a}, {b})",
                "(-{a})",
                "abs({a})",
                "(~{a})",
                "cp.div_trunc({a}, {b})",
                "cp.rem_trunc({a}, {b})",
                "cp.popcount({a})",
                "cp.clz({a})",
                "({a} if {c} else {b})",
                "cp.where({c}, {a}, {b})",
                "cp.{t}({o})",
            )
        )
        return self._fill(form, t, a, b, depth)

    def _float(self, t: str, depth: int) -> str:
        a, b = self._pair(t, depth)
        form = self._c.choose(
            (
                "({a} + {b})",
                "({a} - {b})",
                "({a} * {b})",
                "({a} / {b})",
                "min({a}, {b})",
                "max({a}, {b})",
                "(-{a})",
                "abs({a})",
                "cp.sqrt({a})",
                "cp.floor({a})",
                "cp.ceil({a})",
                "cp.trunc({a})",
                "cp.rint({a})",
                "cp.fma({a}, {b}, {a})",
                "cp.copysign({a}, {b} if {b} == {b} else 1.0)",
                "({a} if {c} else {b})",
                "cp.where({c}, {a}, {b})",
                "cp.{t}({o})",
                "({a} * {b} + {a})",
            )
        )
        return self._fill(form, t, a, b, depth)

    def _fill(self, form: str, t: str, a: str, b: str, depth: int) -> str:
        condition = self._condition(depth) if "{c}" in form else ""
        other = self._value(self._c.choose(self.types), depth) if "{o}" in form else ""
        return form.format(a=a, b=b, c=condition, o=other, t=t)

    def _condition(self, depth: int) -> str:
        t = self._c.choose(self.types)
        a, b = self._pair(t, depth - 1)
        test = f"{a} {self._c.choose(('<', '<=', '>', '>=', '==', '!='))} {b}"
        if depth > 0 and self._c.number(0, 3) == 0:
            joint = self._c.choose(("and", "or"))
            return f"({test} {joint} {self._condition(depth - 1)})"
        return f"({'not ' if self._c.number(0, 5) == 0 else ''}{test})"
