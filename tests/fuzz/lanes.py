"""Kernels whose control flow differs from unit to unit: a fourth generator, on top of `wide`.

They are what the pass that makes lanes of units must get right: nested loops that units leave one
by one, early returns, loads and stores at places that only some units may touch, memory of each
unit, and types of one to eight bytes together.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.generator import EXTENT, INTEGERS, Chooser, Program
from tests.fuzz.wide import FAR, HEAD, TYPES, WideGenerator

CUBES = ((8, 1), (16, 1), (16, 1), (32, 1), (32, 1), (48, 1), (24, 1), (16, 2), (8, 3), (4, 4))
"""Shapes of a cube; now and then a row is not as long as the widest line."""
PLANES = (1,) * 8 + (4, 8, 8, 16, 32)
OWN = 4
"""Elements of `w` that belong to a unit."""
EXTENTS = (16, 17, 29, 40, 100)
"""Elements of an input: fewer or more than there are units."""
WIDTHS = ("n + 3", "max(n, 0) * 9 + 17", "max(n + 30, 1)", "7", "40", "50", "n * 16")
"""Of images; of some it is known that they are no less than 0."""
TABLE = "(3, 1, 4, 1, 5, 9, 2)"
LOOPS = (ast.For, ast.While)
CONSTRUCTS: dict[str, Callable[[ast.AST], bool] | str] = {
    "loop in a loop": lambda node: any(isinstance(inner, LOOPS) for inner in _loop(node)),
    "return in a loop": lambda node: any(_ends(inner) for inner in _loop(node)),
    "return of a unit": lambda node: _ends(node),
    "break": lambda node: isinstance(node, ast.Break),
    "continue": lambda node: isinstance(node, ast.Continue),
    "else of a loop": lambda node: isinstance(node, LOOPS) and bool(node.orelse),
    "atomic in a loop": lambda node: any("atomic" in ast.dump(inner) for inner in _loop(node)),
    "gather in a loop": lambda node: any("id='j" in ast.dump(inner) for inner in _loop(node)),
    "match": lambda node: isinstance(node, ast.Match),
    "loop with bounds of the unit": r"in range\(.*(p|k_i32)",
    "while with bounds of the unit": r"while w\d+ < (p|k_i32)",
    "while True": r"while True",
    "guarded gather": r"if j\d+ >= 0",
    "gather at the end": r"size - 1 -",
    "neighbours": r"if p [+-]",
    "load that some units need": r"y_i32\[.* if ",
    "slice of neighbours": r"range\(p, min",
    "window that borders cut": r"range\(max\(0, p",
    "clamped window": r"max\(0, min\(.* [+-] i\d+, x_",
    "window behind a condition": r"if 0 <= .* [+-] i\d+ < x_",
    "reflected window": r"2 \* x_\w+.size - 2 - j",
    "window of an image": r"min\(.* % m\d+ \+ d|divmod\(p, m",
    "periodic window": r"[+-] i\d+\) % x_",
    "scatter": r"\bw_\w+\[p \* ",
    "stores of both branches": r"^( +)w_\w+\[(.*)\] = .*\n +else:\n +w_\w+\[\2\] = ",
    "scatter by permutation": r"\bw_\w+\[\(\(p \* ",
    "barrier": r"sync_cube",
    "tiles": r"\+ s_\w+\[.*\* s_\w+\[",
    "gather of shared memory": r"s_\w+\[\(",
    "memory of a unit": r"cp\.local\(",
    "atomic": r"cp\.atomic",
    "structure": r"Pair\(",
    "structure that a loop carries": r"q\d+ = q\d+\.turned",
    "helper with a loop": r"def h\d+\(a, n\)",
    "table": r"TABLE\[",
    "choices in choices": r"cp\.where\(.*cp\.where\(",
    "division": r"//|%|div_trunc|rem_trunc",
    "shift": r"<<|>>",
    "line": r"cp\.load\(",
    "planes": r"cp\.plane_",
    **{t: rf"\bcp\.{t}\(" for t in TYPES},
}
"""What kernels must have now and then: a test of a part of the program, or a pattern of a line."""


def _loop(node: ast.AST) -> list[ast.AST]:
    """What a loop holds; nothing for other parts of a program."""
    return (
        [inner for part in node.body for inner in ast.walk(part)] if isinstance(node, LOOPS) else []
    )


def _ends(node: ast.AST) -> bool:
    return isinstance(node, ast.Return) and node.value is None


@dataclass
class LanesProgram(Program):
    """A kernel with rows of units, and how large its inputs are."""

    shape: tuple[int, int] = (1, 1)
    extent: int = EXTENT

    def constructs(self) -> list[str]:
        """The names of what it has of `CONSTRUCTS`."""
        body = self.source[self.source.index("def kernel") :]
        nodes = list(ast.walk(ast.parse(body)))
        return [
            name
            for name, test in CONSTRUCTS.items()
            if (
                re.search(test, body, re.MULTILINE)
                if isinstance(test, str)
                else any(map(test, nodes))
            )
        ]


class LanesGenerator(WideGenerator):
    """Writes kernels as `WideGenerator`, mostly of loops and accesses that differ by unit."""

    def __init__(self, chooser: Chooser) -> None:
        super().__init__(chooser, planes=(1, 1))
        self.shape = chooser.choose(CUBES)
        self.cube_dim = self.shape[0] * self.shape[1]
        self.plane_dim = chooser.choose(PLANES) if self.shape[1] == 1 else 1
        self.cubes = chooser.number(1, 2)
        self.units = self.cube_dim * self.cubes
        self.extent = chooser.choose(EXTENTS)
        self._has_lines = chooser.number(0, 11) == 0
        self._is_apart = chooser.number(0, 2) == 0
        """Whether units go their own ways once the kernel has begun."""
        self._permutation = chooser.choose((1, 5, 7, 11))
        """One for the kernel, so that no two units write to one place."""

    def program(self) -> LanesProgram:
        """The whole kernel."""
        self._prologue()
        for _ in range(self._c.number(2, 4)):
            self._together()
        self._epilogue()
        arrays = [f"{a}_{t}" for a in ("x", "w", "out") for t in self.types]
        head = f"def kernel(k_i32, y_i32, {', '.join(arrays)}, sums, tops, bits, n: cp.i32):"
        text = "\n".join([head, *self._lines, ""])
        start = text.index("def kernel")
        source = f"{HEAD}\nTABLE = {TABLE}\n\n\n{text[start:]}"
        return LanesProgram(
            source,
            self.cube_dim,
            self.cubes,
            self.plane_dim,
            self.types,
            (),
            self.shape,
            self.extent,
        )

    def _prologue(self) -> None:
        self._line("t = cp.UNIT_POS")
        self._line("p = cp.ABSOLUTE_POS")
        for t in self.types:
            self._line(f"s_{t} = cp.shared({self.cube_dim}, cp.{t})")
            self._line(f"s_{t}[t] = x_{t}[p % x_{t}.size]")
        self._line("cp.sync_cube()")
        for t in self.types:
            self._declare(t, f"x_{t}[(p * 3 + 1) % x_{t}.size]")
        self._declare("i32", "k_i32[p]")

    def _epilogue(self) -> None:
        super()._epilogue()
        t = self.types[0]
        self._line(f"w_{t}[p * {OWN}] = {self._scope.of(t)[-1]}")

    # Statements that all units reach

    def _together(self) -> None:
        own: list[Callable[[], None]] = [
            self._statement,
            self._statement,
            self._statement,
            self._nest,
            self._nest,
            self._gathered_exchange,
            self._shared_trips,
            self._tiles,
        ]
        kind = self._c.number(0, 11)
        if self._is_apart:
            self._c.choose((self._statement, self._nest, self._image))()
        elif kind < 10:
            self._c.choose(own)()
        elif kind == 10 and self._depth == 1:
            self._leave()
        elif self.plane_dim > 1:
            self._plane()
        else:
            self._exchange()

    def _gathered_exchange(self) -> None:
        """Units read what any other unit of the cube wrote."""
        t = self._c.choose(self.types)
        self._line("cp.sync_cube()")
        self._line(f"s_{t}[t] = cp.{t}({self._value(t, 2)})")
        self._line("cp.sync_cube()")
        self._declare(t, f"s_{t}[({self._index()}) % {self.cube_dim}]")

    def _shared_trips(self) -> None:
        """A loop of the cube with barriers, in which units loop on their own."""
        self._count += 1
        with self._block(f"for r{self._count} in range({self._c.choose(('2', 'n % 3', 'n'))}):"):
            self._gathered_exchange()
            self._nest()

    def _tiles(self) -> None:
        """A loop of the cube over a tile, of which units read what rows, or columns, share."""
        self._count += 1
        t, k, (x, y) = self._c.choose(self.types), f"r{self._count}", self.shape
        self._declare(t, self._value(t, 1))
        total = self._scope.of(t)[-1]
        places = (f"cp.UNIT_POS_Y * {x} + {k}", "cp.UNIT_POS_X", f"{k}", f"{k} * {y} + {y - 1}")
        with self._block(f"for {k} in range({self._c.choose(('2', '3', 'n % 3'))}):"):
            self._line("cp.sync_cube()")
            self._line(f"s_{t}[t] = cp.{t}({self._value(t, 1)})")
            self._line("cp.sync_cube()")
            for _ in range(self._c.number(1, 3)):
                a, b = self._c.choose(places), self._c.choose(places)
                self._line(f"{total} = cp.{t}({total} + s_{t}[{a}] * s_{t}[{b}])")
            if self._c.number(0, 2) == 0:
                self._nest()
            if self.plane_dim > 1:
                self._plane()
            self._line("cp.sync_cube()")

    # Statements of one unit

    def _statement(self) -> None:
        kinds: list[Callable[[], None]] = [
            self._guarded_gather,
            self._end_gather,
            self._neighbours,
            self._chosen_load,
            self._slice,
            self._window,
            self._window,
            self._image,
            self._scatter,
            self._stores_of_branches,
            self._permuted,
            self._own_array,
            self._table,
            self._carried_pair,
            self._looping_helper,
            self._chain,
            self._forever,
        ]
        if self._depth > 3:
            self._c.choose((self._change, self._guarded_gather, self._scatter, self._atomic))()
        elif self._c.number(0, 2):
            self._c.choose(kinds)()
        else:
            super()._statement()

    def _lines_of_lanes(self) -> None:
        if self._has_lines:
            super()._lines_of_lanes()
        else:
            self._define()

    def _view(self) -> None:
        self._end_gather()

    def _flat(self) -> None:
        self._neighbours()

    def _index(self) -> str:
        """An integer that differs from unit to unit."""
        t = self._c.choose(self.types)
        name = self._c.choose(self._scope.of(t))
        value = name if t in INTEGERS else f"({name} > 0)"
        count = self._c.number(0, 9)
        forms = (f"cp.i32({value})", f"cp.i32({value}) + p", "k_i32[p]", f"k_i32[p] - {count}")
        narrow = self._c.choose(("i8", "u8", "i16"))
        wrapping = f"cp.i32(cp.{narrow}(p * {count}) + cp.{narrow}({self._c.choose((3, 100))}))"
        forms += (f"p * {count} + 1", f"k_i32[(p + {count}) % k_i32.size]", wrapping)
        return self._c.choose(forms)

    def _jump(self) -> None:
        """Some units leave the loop, skip the rest of a trip, or end."""
        words = ("break", "continue", "break", "continue", "return")
        with self._block(f"if {self._condition(1)}:"):
            if self._c.number(0, 2) == 0:
                self._change()
            self._line(self._c.choose(words if self._c.number(0, 2) == 0 else words[:-1]))

    def _nest(self) -> None:
        """A loop with bounds or a condition of the unit, which mostly holds more of them."""
        self._loop_of(self._c.choose((1, 2, 2, 3)))

    def _loop_of(self, levels: int) -> None:
        self._count += 1
        counter = f"w{self._count}"
        bounds = ("4", "p % 5", "t % 3, 4", "k_i32[p] % 5", "6, p % 4, -2", "n", "0, p % 7, 2")
        is_while = self._c.number(0, 1)
        if is_while:
            self._line(f"{counter} = 0")
            limit = self._c.choose((str(self._c.number(1, 4)), "p % 4", "k_i32[p] % 4", "n"))
            head = f"while {counter} < {limit} and {self._condition(1)}:"
        else:
            head = f"for {counter} in range({self._c.choose(bounds)}):"
        with self._block(head):
            if is_while:
                self._line(f"{counter} += 1")
            if self._c.number(0, 1):
                self._jump()
            if levels > 1:
                self._loop_of(levels - 1)
            else:
                self._c.choose((self._change, self._statement))()
            if self._c.number(0, 1):
                self._jump()
            self._change()
        if self._c.number(0, 4) == 0:
            with self._block("else:"):
                self._change()

    def _forever(self) -> None:
        """A loop that ends in its middle."""
        self._count += 1
        counter = f"w{self._count}"
        self._line(f"{counter} = cp.i32(0)")
        with self._block("while True:"):
            self._change()
            with self._block(f"if {counter} >= p % 6 or {self._condition(1)}:"):
                self._line(self._c.choose(("break", "break", "break", "return")))
            self._line(f"{counter} += 1")

    def _guarded_gather(self) -> None:
        """An element that may lie nowhere, where it is there."""
        t = self._c.choose(self.types)
        self._count += 1
        j, name = f"j{self._count}", self._c.choose(self._scope.of(t))
        far = self._c.choose(("", "", "", f" * {FAR}"))
        self._line(f"{j} = cp.i64({self._index()}){far}")
        inside = f"{j} >= 0 and {j} < x_{t}.size"
        with self._block(f"if {inside}:"):
            self._line(f"{name} = cp.{t}({name} + x_{t}[{j}])")
        if self._c.number(0, 1):
            self._declare(t, f"x_{t}[{j}] if {inside} else {name}")

    def _end_gather(self) -> None:
        """Elements up to the last one."""
        t = self._c.choose(self.types)
        forms = (
            f"x_{t}[x_{t}.size - 1 - ({self._index()}) % x_{t}.size]",
            f"x_{t}[x_{t}.size - 1 - p % x_{t}.size]",
            f"x_{t}[max(min(p * 2, x_{t}.size - 1 - t % 2), 0)]",
            f"x_{t}[x_{t}.size - 1 - n % x_{t}.size]",
        )
        self._declare(t, self._c.choose(forms))

    def _neighbours(self) -> None:
        """A neighbour in memory, where there is one."""
        t, shift = self._c.choose(self.types), self._c.choose((0, 0, 1, 7))
        name = self._c.choose(self._scope.of(t))
        place = f"p {self._c.choose('+-')} {shift}"
        with self._block(f"if {place} >= 0 and {place} < x_{t}.size:"):
            self._line(f"{name} = cp.{t}({name} - x_{t}[{place}])")
            if self._c.number(0, 1):
                self._change()

    def _chosen_load(self) -> None:
        """One element that some units need, and then others."""
        shift = self._c.number(0, 2)
        for _ in range(2):
            t = self._c.choose(self.types)
            a, b = (self._c.choose(self._scope.of(t)) for _ in range(2))
            self._declare("i32", f"y_i32[p + {shift}] if {a} < {b} else {self._c.number(0, 9)}")

    def _slice(self) -> None:
        """Some elements from the unit's own on."""
        t, width = self._c.choose(self.types), self._c.number(2, 5)
        name = self._c.choose(self._scope.of(t))
        self._count += 1
        k = f"i{self._count}"
        with self._block(f"for {k} in range(p, min(p + {width}, x_{t}.size)):"):
            self._line(f"{name} = cp.{t}({name} + x_{t}[{k}])")
            if self._c.number(0, 1):
                self._jump()

    def _window(self) -> None:
        """Elements around the unit's own, up to the ends of the array."""
        self._count += 1
        t, k = self._c.choose(self.types), f"i{self._count}"
        name, size = self._c.choose(self._scope.of(t)), f"x_{t}.size"
        a, b = (self._c.choose(("n", "1", "3", "n - 1", "n * 2", "0")) for _ in range(2))
        center = self._c.choose(("p", "p", "p - n", "p + 1 - n", "p * 2", "n - p", "40 - p"))
        if self._c.number(0, 2) == 0:  # around another loop
            self._count += 1
            outer = f"r{self._count}"
            center += self._c.choose(("", f" + {outer}", f" - {outer}"))
            with self._block(f"for {outer} in range({self._c.choose(('2', 'n', 'n % 2, 3'))}):"):
                self._window_of(t, k, name, size, (a, b), center)
        else:
            self._window_of(t, k, name, size, (a, b), center)

    def _window_of(
        self, t: str, k: str, name: str, size: str, ends: tuple[str, str], center: str
    ) -> None:
        a, b = ends
        place = f"{center} {self._c.choose('++-')} {k}"
        step = self._c.choose(("", "", "", ", 2"))
        span = f"range(-({a}), {b} + 1{step})"
        start = self._c.choose((f"max(0, {center} - {a})", f"max({center} - {a}, n, 0)"))
        cut = f"range({start}, min({size}, {center} + {b} + 1){step})"
        places = {
            f"x_{t}[{k}]": cut,
            f"x_{t}[max(0, min({place}, {size} - 1))]": span,
            f"x_{t}[min(max({place}, 0), {size} - 1)]": span,
            f"x_{t}[({place}) % {size}]": span,
            f"x_{t}[{place}]": span,
        }
        element = self._c.choose(list(places))
        if self._c.number(0, 4) == 0:
            self._reflected(t, k, name, size, span, place)
            return
        with self._block(f"for {k} in {places[element]}:"):
            added = f"{name} = cp.{t}({name} {self._c.choose('+-')} {element})"
            if element == f"x_{t}[{place}]":
                inside = (f"0 <= {place} < {size}", f"{place} >= 0 and {place} < {size}")
                skipped = f"{place} < 0 or {size} <= {place}"
                if self._c.number(0, 2):
                    with self._block(f"if {self._c.choose(inside)}:"):
                        self._line(added)
                else:
                    with self._block(f"if {skipped}:"):
                        self._line("continue")
                    self._line(added)
            else:
                self._line(added)
            if self._c.number(0, 3) == 0:
                self._change()
            if self._c.number(0, 5) == 0:
                self._jump()

    def _reflected(self, t: str, k: str, name: str, size: str, span: str, place: str) -> None:
        """The same with places that are chosen behind the ends."""
        j = f"j{self._count}"
        with self._block(f"for {k} in {span}:"):
            self._line(f"{j} = {place}")
            if self._c.number(0, 1):
                with self._block(f"if {j} < 0:"):
                    self._line(f"{j} = {self._c.choose(('0', f'-{j}', f'-1 - {j}'))}")
                with self._block(f"if {j} >= {size}:"):
                    self._line(f"{j} = 2 * {size} - 2 - {j}")
                with self._block(f"if not ({j} < 0 or {j} >= {size}):"):
                    self._line(f"{name} = cp.{t}({name} + x_{t}[{j}])")
            else:
                self._line(f"{j} = 0 if {j} < 0 else {j}")
                self._line(f"{j} = {size} - 1 if {j} >= {size} else {j}")
                self._line(f"{name} = cp.{t}({name} - x_{t}[{j}])")
            if self._c.number(0, 3) == 0:
                self._jump()

    def _image(self) -> None:
        """Elements around the unit's own in an image, of which the launch knows the width."""
        self._count += 1
        t, c = self._c.choose(self.types), self._count
        name, size, m = self._c.choose(self._scope.of(t)), f"x_{t}.size", f"m{c}"
        self._line(f"{m} = {self._c.choose(WIDTHS)}")
        y, i = f"p // {m}", f"p % {m}"
        if self._c.number(0, 1):
            self._line(f"y{c}, i{c} = {self._c.choose((f'{y}, {i}', f'divmod(p, {m})'))}")
            y, i = f"y{c}", f"i{c}"
        column = f"max(0, min({i} + d{c}, {m} - 1))"
        place = f"max(0, min(({y} + e{c}) * {m} + {column}, {size} - 1))"
        with self._block(f"for e{c} in range({self._c.choose(('2', '-1, 2', 'n'))}):"):
            with self._block(f"for d{c} in range(-({self._c.choose(('1', 'n', '3'))}), n):"):
                self._line(f"{name} = cp.{t}({name} + x_{t}[{place}])")
                if self._c.number(0, 3) == 0:
                    with self._block(f"if {y} == e{c} or {i} < d{c} or {i} == {m} - 1:"):
                        self._change()
                if self._c.number(0, 5) == 0:
                    self._jump()

    def _scatter(self) -> None:
        """Stores to elements of the unit's own, which it reads again."""
        t = self._c.choose(self.types)
        place = self._c.choose((f"({self._index()}) % {OWN}", str(self._c.number(0, OWN - 1))))
        self._line(f"w_{t}[p * {OWN} + {place}] = cp.{t}({self._value(t, 2)})")
        if self._c.number(0, 1):
            self._declare(t, f"w_{t}[p * {OWN} + ({self._index()}) % {OWN}]")

    def _stores_of_branches(self) -> None:
        """Branches that store to one place, or to two that may be one."""
        t, (a, b) = self._c.choose(self.types), (self._c.number(0, OWN - 1) for _ in range(2))
        places = [f"p * {OWN} + {a}", f"p * {OWN} + {self._c.choose((a, a, a, b))}"]
        heads = [f"if {self._condition(1)}:", "else:"]
        if self._c.number(0, 2) == 0:
            heads.insert(1, f"elif {self._condition(0)}:")
            places.append(f"p * {OWN} + {self._c.choose((a, a, b))}")
        for head, place in zip(heads, places, strict=True):
            with self._block(head):
                if self._c.number(0, 3) == 0:
                    self._change()
                if self._c.number(0, 5) == 0:
                    self._line(f"w_{t}[p * {OWN} + {b}] = cp.{t}({self._value(t, 1)})")
                self._line(f"w_{t}[{place}] = cp.{t}({self._value(t, 1)})")
                if self._c.number(0, 3) == 0:
                    self._change()
        self._declare(t, f"w_{t}[p * {OWN} + {a}]")

    def _permuted(self) -> None:
        """Each unit has one place elsewhere, behind what `_scatter` uses."""
        t = self._c.choose(self.types)
        place = f"(p * {self._permutation} + 3) % {self.units}"
        with self._block(f"if {self._condition(1)}:"):
            self._line(f"w_{t}[({place}) + {OWN * self.units}] = cp.{t}({self._value(t, 1)})")

    def _own_array(self) -> None:
        """An array of the unit, written and read at places of the unit."""
        t, size = self._c.choose(self.types), self._c.choose((3, 8, 70))
        self._count += 1
        name, k = f"l{self._count}", f"i{self._count}"
        self._line(f"{name} = cp.local({size}, cp.{t})")
        with self._block(f"for {k} in range({size}):"):
            self._line(f"{name}[{k}] = cp.{t}({self._leaf(t)})")
        with self._block(f"for {k} in range({self._c.choose(('p % 4', '3', 'n'))}):"):
            self._line(f"{name}[({self._index()}) % {size}] = cp.{t}({self._value(t, 1)})")
            if self._c.number(0, 1):
                self._jump()
            place = self._c.choose((str(self._c.number(0, size - 1)), f"{k} % {size}"))
            self._line(f"{name}[{place}] = cp.{t}({self._value(t, 1)})")
        self._declare(t, f"{name}[({self._index()}) % {size}]")
        self._declare(t, f"{name}[{self._c.number(0, size - 1)}]")

    def _table(self) -> None:
        t = self._c.choose(self.types)
        self._declare(t, f"TABLE[({self._index()}) % 7] + {self._value(t, 1)}")

    def _carried_pair(self) -> None:
        """A structure that changes in a loop of the unit."""
        t = self._c.choose(self.types)
        self._count += 1
        q, k = f"q{self._count}", f"i{self._count}"
        self._line(f"{q} = Pair(cp.{t}({self._value(t, 1)}), cp.{t}({self._value(t, 1)}))")
        with self._block(f"for {k} in range({self._c.choose(('p % 4', '3', 'k_i32[p] % 3'))}):"):
            with self._block(f"if {self._condition(1)}:"):
                self._line(f"{q} = {q}.turned()")
            if self._c.number(0, 1):
                self._jump()
            self._line(f"{q} = Pair({q}.w, cp.{t}({q}.v + {q}.w))")
        self._declare(t, f"{q}.v")
        self._declare(t, f"{q}.w")

    def _looping_helper(self) -> None:
        """A helper that returns from the middle of its loop."""
        t = self._c.choose(self.types)
        self._count += 1
        name = f"h{self._count}"
        with self._block(f"def {name}(a, n):"):
            with self._block("for k in range(n):"):
                with self._block(
                    self._c.choose((f"if a > cp.{t}(k):", "if a == 0:", "if k == 2:"))
                ):
                    self._line("return a")
                self._line(f"a = cp.{t}(a * 3 - 1)")
            self._line(f"return cp.{t}(a - 1)")
        bound = self._c.choose(("p % 5", "4", "cp.i32(k_i32[p] % 4)"))
        self._declare(t, f"{name}(cp.{t}({self._value(t, 1)}), {bound})")

    def _chain(self) -> None:
        """Choices in choices."""
        t = self._c.choose(self.types)
        a, b, c = (f"cp.{t}({self._value(t, 1)})" for _ in range(3))
        first, second = self._condition(1), self._condition(0)
        forms = (
            f"cp.where({first}, {a}, cp.where({second}, {b}, {c}))",
            f"{a} if {first} else ({b} if {second} else {c})",
        )
        self._declare(t, self._c.choose(forms))
