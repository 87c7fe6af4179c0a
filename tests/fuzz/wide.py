"""More of the language than `generator` writes: a second generator on top of the first.

The seeds of the first keep their kernels, so its finds stay valid.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.generator import EXTENT, FLOATS, INTEGERS, PLANES, Chooser, Generator, Program

TYPES = (*INTEGERS, "u16", *FLOATS, "bf16")
HEAD = """from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    v: object
    w: object

    def turned(self):
        t = self.v
        if self.w > self.v:
            t = self.w
        return Pair(self.w, t)

    def real(self):
        t = cp.f32(self.v)
        if t > 2:
            t = t - 1
        return Pair(t, cp.f32(self.w))

    def whole(self):
        t = cp.i32(self.v)
        if t > 7:
            t = t // 2
        return Pair(t, cp.i32(self.w))
"""
FAR = 1 << 33
"""An offset in elements that no array has: a cube that returned must not read there."""
BITS = {"i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32, "i64": 64, "u64": 64}


class WideGenerator(Generator):
    """Writes kernels as `Generator`, of more forms. Those of `HEAD` stand before the kernel.

    Without `returns` no unit ends early on its own, because PoCL 3.0 lets such units store behind
    barriers in branches.
    """

    def __init__(
        self,
        chooser: Chooser,
        types: tuple[str, ...] = TYPES,
        planes: tuple[int, ...] = PLANES,
        returns: bool = True,
    ) -> None:
        super().__init__(chooser, types, planes)
        self.returns = returns

    def program(self) -> Program:
        """The whole kernel, with more arrays: reversed, repeated, and a transposed matrix."""
        made = super().program()
        made.views = tuple(f"{letter}_{self.types[0]}" for letter in "nzm")
        head = f"kernel({', '.join(made.views)}, "
        made.source = HEAD + "\n\n" + made.source.replace("kernel(", head, 1)
        return made

    # Statements that all units reach

    def _together(self) -> None:
        if self._c.number(0, 2):
            super()._together()
            return
        choices = [
            self._barrier_trips,
            self._big_local,
            self._tail_continue,
            self._per_unit_memory,
        ]
        if self.returns:
            choices.append(self._tail_return)
        if self.plane_dim > 1:
            choices += [self._plane_branch, self._plane_branch]
        self._c.choose(choices)()

    def _barrier_trips(self) -> None:
        """Memory says how often a barrier runs; cubes that returned must not read it."""
        t, count = self.types[0], self._fresh("n")
        cubes = self._c.number(1, 2)
        with self._block(f"if cp.CUBE_POS >= {cubes}:"):
            self._line("return")
        offset = FAR if cubes == 1 else 1
        whole = t in BITS
        load = f"x_{t}[cp.CUBE_POS * {offset}]"
        self._line(
            f"{count} = {'cp.i32(' + load + ') % 3' if whole else f'cp.i32({load} > 0) + 1'}"
        )
        with self._block(f"for r{self._count} in range({count}):"):
            self._exchange()

    def _big_local(self) -> None:
        """An array of each unit that no register file holds, used on both sides of a barrier."""
        t, size = self._c.choose(self.types), self._c.choose((65, 300, 700))
        self._count += 1
        name = f"b{self._count}"
        self._line(f"{name} = cp.local({size}, cp.{t})")
        with self._block(f"for i{self._count} in range({size}):"):
            self._line(f"{name}[i{self._count}] = cp.{t}(i{self._count} % 7)")
        self._line(f"{name}[(p * 37) % {size}] = cp.{t}({self._value(t, 1)})")
        self._exchange()
        self._declare(t, f"{name}[(t * 37 + {self._c.number(0, 40)}) % {size}]")

    def _per_unit_memory(self) -> None:
        """Locals that differ in each unit and are used behind barriers."""
        t = self._c.choose(self.types)
        kept = [self._c.choose(self._scope.of(t)) for _ in range(2)]
        self._exchange()
        self._declare(t, f"{kept[0]} if p % 2 == 0 else {kept[1]}")

    def _tail_continue(self) -> None:
        """Some units go on with the next trip, behind the last barrier of a trip."""
        t = self._c.choose(self.types)
        name = self._c.choose(self._scope.of(t))
        with self._block(f"for r{self._count} in range({self._c.number(1, 3)}):"):
            self._exchange()
            with self._block(f"if {self._condition(1)}:"):
                self._line("continue")
            self._line(f"{name} = cp.{t}({self._value(t, 1)})")

    def _tail_return(self) -> None:
        """Some units end in a branch of the whole cube, behind its barrier."""
        with self._block("if cp.CUBE_POS % 2 == 0:"):
            self._exchange()
            with self._block(f"if p % {self._c.number(3, 9)} == 1:"):
                self._line("return")

    def _leave(self) -> None:
        if self.returns:
            super()._leave()

    def _plane_branch(self) -> None:
        """Plane operations where whole planes take a branch."""
        t = self._c.choose(self.types)
        name = self._c.choose(self._scope.of(t))
        with self._block(f"if {self._plane_position()} % 2 == {self._c.number(0, 1)}:"):
            operation = self._c.choose(("sum", "max", "inclusive_sum"))
            self._line(f"{name} = cp.{t}(cp.plane_{operation}(cp.{t}({self._value(t, 1)})))")

    def _plane_position(self) -> str:
        """The number of the unit's plane, in one of the ways that all of the plane agree on.

        No decision of the chooser says which, so that seeds keep their programs.
        """
        width, ways = self.plane_dim, ["cp.PLANE_POS"]
        if self.cube_dim % width == 0:
            ways += [
                f"(t // {width})",
                f"(cp.i32(t) // {width})",
                f"((t + {width}) // {width} + 1)",
            ]
            ways.append(f"(cp.i16(t % {2 * width}) // {width})")
            ways.append(f"(cp.i32(t) >> {width.bit_length() - 1})")
        return ways[len(self._lines) % len(ways)]

    # Statements of one unit

    def _statement(self) -> None:
        kinds: list[Callable[[], None]] = [
            self._literals,
            self._rebound,
            self._methods,
            self._flat,
            self._view,
            self._mixed_index,
            self._match,
            self._pair_helper,
            self._loop_else,
        ]
        if self._depth > 3 or self._c.number(0, 1):
            super()._statement()
        else:
            self._c.choose(kinds)()

    def _lines_of_lanes(self) -> None:
        """Also what all lanes are together, and lines that choose.

        No decision of the chooser says which, so that seeds keep their programs; a twin has as many
        names.
        """
        before = len(self._lines)
        super()._lines_of_lanes()
        made = self._lines[before].split("=")[0].strip()
        kinds = (
            f"cp.i32(({made} > 1).sum())",
            f"cp.i32({made}.any()) + 2 * cp.i32({made}.all())",
            f"cp.i32(any({made} - 1)) + 2 * cp.i32(all({made} < 3))",
            f"cp.i32(({made} > 0).max()) + 2 * cp.i32(({made} != 0).min())",
            f"cp.i32((1 if {made} else 2).sum())",
        )
        self._declare("i32", kinds[self._count % len(kinds)])

    def _literal(self, t: str) -> str:
        if t not in BITS:
            return self._c.choose(("0.1", "0.25", "-1.5", "3.0", "1e-3", "2"))
        high = 2 ** (BITS[t] - t.startswith("i")) - 1
        edges = (0, 1, 2, 3, high, high // 2 + 1)
        low = (-1, -2, -high - 1) if t.startswith("i") else ()
        return str(self._c.choose((*edges, *low)))

    def _literals(self) -> None:
        """A local that only literals are assigned."""
        t = self._c.choose(self.types)
        self._count += 1
        name = f"k{self._count}"
        self._line(f"{name} = {self._literal(t)}")
        with self._block(f"if {self._condition(1)}:"):
            self._line(f"{name} = {self._literal(t)}")
        operator = self._c.choose(("+", "*", "-"))
        self._declare(t, f"cp.{t}({self._value(t, 1)}) {operator} {name}")

    def _rebound(self) -> None:
        """A local that becomes another type on a straight path."""
        a, b = self._c.choose(self.types), self._c.choose(self.types)
        self._count += 1
        name = f"q{self._count}"
        self._line(f"{name} = cp.{a}({self._value(a, 1)})")
        self._declare(a, f"{name} * 3")
        self._line(f"{name} = cp.{b}({name})")
        self._declare(b, f"{name} + {name}")

    def _methods(self) -> None:
        """Methods of a dataclass in a chain, in one statement."""
        t = self._c.choose(self.types)
        pair = f"Pair({self._value(t, 1)}, {self._value(t, 1)})"
        chain = "".join(
            f".{self._c.choose(('turned', 'real', 'whole'))}()" for _ in range(self._c.number(1, 4))
        )
        self._declare(t, f"{pair}{chain}.{self._c.choose('vw')}")

    def _flat(self) -> None:
        """A stencil by flat index: the neighbours that are there."""
        t, width = self._c.choose(self.types), self._c.choose((3, 4, 5, 16))
        self._count += 1
        k = self._count
        self._line(f"r{k} = p // {width} % {max(1, EXTENT // width)}")
        self._line(f"c{k} = p % {width}")
        self._declare(t, f"x_{t}[r{k} * {width} + c{k}]")
        name = self._scope.of(t)[-1]
        rows = EXTENT // width
        guards = (
            (f"c{k} + 1 < {width}", f"r{k} * {width} + c{k} + 1"),
            (f"c{k} > 0", f"r{k} * {width} + c{k} - 1"),
            (f"r{k} + 1 < {rows}", f"(r{k} + 1) * {width} + c{k}"),
            (f"r{k} > 0", f"(r{k} - 1) * {width} + c{k}"),
        )
        (a, i), (b, j) = self._c.choose(guards), self._c.choose(guards)
        forward = self._condition(1)
        self._line(f"w{k} = {forward}")
        with self._block(f"if ({a} if w{k} else {b}):"):
            self._line(f"{name} = cp.{t}({name} + x_{t}[({i}) if w{k} else ({j})])")

    def _view(self) -> None:
        """Slices and rows; arrays with negative and zero strides."""
        t = self.types[0]
        step = self._c.choose(("2:14:3", "1:9", "::2", "4:"))
        self._count += 1
        name = f"u{self._count}"
        self._line(f"{name} = x_{t}[{step}]")
        form = self._c.choose(
            (
                f"{name}[p % {name}.shape[0]]",
                f"{name}[p % 4] + {name}[t % 3]",
                f"n_{t}[p % {EXTENT}]",
                f"z_{t}[p % {EXTENT}] + n_{t}[t % 5]",
                f"m_{t}[p % 4, t % 4]",
                f"m_{t}[p % 4][t % 4]",
                f"m_{t}.flat[p % {EXTENT}]",
            )
        )
        self._declare(t, form)

    def _mixed_index(self) -> None:
        """Indices made of integers of several widths and signs."""
        t, other = self._c.choose(self.types), self._c.choose(self.types)
        v = self._c.choose(self._scope.of(other))
        value = v if other in BITS else f"cp.i16({v} > 0)"
        form = self._c.choose(
            (
                "(cp.i32(p) * 3 + cp.u32(t))",
                "(cp.i32(t) - 20)",
                "(-p)",
                "(cp.u32({v}) + cp.i32(t))",
                "(cp.i64({v}) - cp.u32(p))",
                "cp.i32({v})",
                "cp.u64({v})",
                "(p - cp.i8({v}))",
                "(cp.u16({v}) * cp.i16(t))",
            )
        )
        index = form.format(v=value) + self._c.choose((f" % {EXTENT}", f" & {EXTENT - 1}"))
        self._declare(t, f"x_{t}[{index}]")

    def _match(self) -> None:
        t = self._c.choose(self.types)
        name = self._c.choose(self._scope.of(t))
        with self._block(f"match cp.i32({self._value('i32', 1)}) % 4:"):
            for pattern in ("0", "1 | 3", "_"):
                with self._block(f"case {pattern}:"):
                    self._line(f"{name} = cp.{t}({self._value(t, 1)})")

    def _pair_helper(self) -> None:
        """A helper with several returns of tuples, and a parameter that is bound anew."""
        t = self._c.choose(self.types)
        self._count += 1
        name, a, b = f"h{self._count}", self._fresh(t), self._fresh(t)
        with self._block(f"def {name}(a, b):"):
            with self._block("if a > b:"):
                self._line("return a, b")
            self._line(f"a = cp.{t}(a + b)")
            self._line("return b, a")
        arguments = f"cp.{t}({self._value(t, 1)}), cp.{t}({self._value(t, 1)})"
        self._line(f"{a}, {b} = {name}({arguments})")
        self._scope.of(t).extend((a, b))

    def _loop_else(self) -> None:
        """A loop that ends with a break, or else says so."""
        t = self._c.choose(self.types)
        name = self._c.choose(self._scope.of(t))
        with self._block(f"for i{self._count} in range({self._c.choose(('3', 'p % 4'))}):"):
            with self._block(f"if {self._condition(1)}:"):
                self._line("break")
        with self._block("else:"):
            self._line(f"{name} = cp.{t}({self._value(t, 1)})")

    # Expressions

    def _value(self, t: str, depth: int) -> str:
        if t == "bf16" and depth > 0:
            return self._float(t, depth - 1)
        return super()._value(t, depth)

    def _leaf(self, t: str) -> str:
        if t == "bf16" and not self._scope.of(t):
            return "cp.bf16(0.1)"
        return super()._leaf(t) if t != "bf16" else self._c.choose(self._scope.of(t))

    def _integer(self, t: str, depth: int) -> str:
        if self._c.number(0, 2):
            return super()._integer(t, depth)
        a, b = self._pair(t, depth)
        form = self._c.choose(
            (
                "({a} or {b})",
                "({a} and {b})",
                "({a} + ({l} if {c} else {m}))",
                "(cp.where({c}, {l}, {m}) * {a})",
                "min(min(cp.{t}(-{a}), {b}), {b} >> 3)",
                "max(max(cp.{t}(-{a}), {b} % ({b} | 7)), {b} >> 3)",
                "max({a} if {c} else {b}, max(-{a}, {a} + {a}))",
                "({a} // {l})",
                "({a} % {l})",
                "({a} << {n})",
                "({a} >> {n})",
                "(({a} if {c} else {b}) - ({b} if {c} else {a}))",
                "cp.{t}(cp.bf16({a}))",
                "cp.{t}(cp.f16(cp.i64({a})))",
                "cp.{t}(({l} if {c} else {m}))",
            )
        )
        return self._more(form, t, a, b, depth)

    def _float(self, t: str, depth: int) -> str:
        if self._c.number(0, 2):
            return super()._float(t, depth)
        a, b = self._pair(t, depth)
        form = self._c.choose(
            (
                "({a} or {b})",
                "({a} and {b})",
                "({a} * ({l} if {c} else {m}))",
                "(cp.where({c}, {l}, {m}) - {a})",
                "(({a} if {c} else {b}) / ({b} if {c} else {a}))",
                "cp.{t}(cp.bf16({a}))",
                "cp.{t}(cp.bf16({a} * {b} + {a}))",
                "cp.{t}(cp.f16({a} * {b} - {a}))",
                "cp.{t}(cp.f8e5m2({a}))",
                "cp.{t}(cp.f8e4m3({a}))",
                "(-({a} * {b}) - {a})",
                "min(-{a}, min({b}, {a}))",
                "({a} ** 2 + {b})",
            )
        )
        return self._more(form, t, a, b, depth)

    def _more(self, form: str, t: str, a: str, b: str, depth: int) -> str:
        bits = BITS.get(t, 8)
        condition = self._condition(depth) if "{c}" in form else ""
        count = self._c.choose((0, 1, bits - 1, bits, bits + 1))
        if "{n}" in form and t in ("i8", "u8"):
            count = min(count, 100)
        literals = {"l": self._literal(t), "m": self._literal(t), "n": count}
        return form.format(a=a, b=b, c=condition, t=t, **literals)

    def _condition(self, depth: int) -> str:
        kind = self._c.number(0, 5)
        if depth > 0 and kind == 0:
            then, other = self._condition(depth - 1), self._condition(depth - 1)
            return f"({then} if {self._condition(depth - 1)} else {other})"
        if kind == 1:
            t = self._c.choose(self.types)
            a, b = self._pair(t, depth - 1)
            first, second = (self._c.choose(("<", "<=", ">", "!=")) for _ in range(2))
            return f"({a} {first} {b} {second} {self._leaf(t)})"
        return super()._condition(depth)
