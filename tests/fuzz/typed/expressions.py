"""Random expressions whose types and values the model knows."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.generator import Chooser
from tests.fuzz.typed import nodes
from tests.fuzz.typed.nodes import Node
from tests.fuzz.typed.rules import FLOATS, INTEGERS, SMALLEST, Weak, fits, limits

INPUTS = (*INTEGERS, "f16", "f32", "f64", "bool")
"""The types of the arrays `x_...` that a program reads."""
NARROW = ("bf16", *SMALLEST)
"""Types that programs convert to and from, but that no array has."""
WHOLES: tuple[int, ...] = (0, 1, 2, 3, 7, 100, 127, 128, 200, 255, 256, 1000, 32767, 40000, 65535)
LARGE: tuple[int, ...] = (2**31 - 1, 2**31, 3_000_000_000, 2**32 - 1, 2**40 + 1, 2**63 - 1, 2**63)
REALS: tuple[float, ...] = (0.0, 0.1, 0.2, 0.5, 1.0, 1.5, 2.5, 3.3, 1e-3, 16777217.0, 1 / 3, 1e-8)
SYMBOLS = ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "min", "max")
TRUNCATED = ("cp.div_trunc", "cp.rem_trunc")
TRIALS = 20


class Expressions:
    """Writes expressions over the inputs and over `scope`, the locals that may be read."""

    def __init__(self, chooser: Chooser, contract: bool, has_f64: bool = True) -> None:
        self.c = chooser
        self.contract = contract
        self.inputs = tuple(t for t in INPUTS if has_f64 or t != "f64")
        self.scope: list[Node] = []

    def any(self, depth: int) -> Node:
        """A value that has a type."""
        for _ in range(TRIALS):
            made = self._attempt(depth)
            if made is not None and not isinstance(made.type, Weak):
                return made
        return self.leaf()

    def typed(self, t: str, depth: int) -> Node:
        """A value of a type: of it at once, or by a conversion."""
        made = self.any(depth)
        return made if made.type == t else nodes.cast(made, t)

    def arithmetic(self, depth: int) -> Node:
        """A value that the model calculates with: no float of 8 bits, no index."""
        for _ in range(TRIALS):
            made = self.any(depth)
            if made.type in INTEGERS or made.type in FLOATS:
                return made
        return nodes.local("x_i32[i]", "i32")

    # Leaves

    def leaf(self) -> Node:
        """An input, a local, a literal with a type, or a number rounded to a narrow float."""
        kind = self.c.number(0, 9)
        if kind < 4 and self.scope:
            return self.c.choose(self.scope)
        if kind == 4:
            t = self.c.choose(tuple(t for t in (*INTEGERS, *FLOATS) if t in self.inputs))
            return nodes.cast(self.literal(t), t)
        if kind == 5:
            return nodes.cast(self.input(), self.c.choose((*NARROW, "f16")))
        return self.input()

    def input(self) -> Node:
        """An element of an array."""
        t = self.c.choose(self.inputs)
        return nodes.local(f"x_{t}[{self.c.choose(('i', '15 - i'))}]", t)

    def literal(self, t: str | None = None) -> Node:
        """A literal that may stand beside a `t`."""
        is_real = t is None or t not in INTEGERS
        if is_real and self.c.number(0, 3):
            return nodes.literal(self.c.choose((1.0, -1.0)) * self.c.choose(REALS))
        number: int = self.c.choose((*WHOLES, *WHOLES, *LARGE)) * self.c.choose((1, 1, -1))
        if t in INTEGERS and not fits(number, t):
            number = self.c.choose((0, 1, 3, *limits(t)))
        return nodes.literal(number)

    def weak(self, t: str | None, depth: int) -> Node:
        """A literal that is chosen at run time."""
        a, b = self.literal(t), self.literal(t)
        if depth > 0 and self.c.number(0, 3) == 0:
            b = self.weak(t, depth - 1)
        if t is None and isinstance(a.type, Weak) and isinstance(b.type, Weak):
            b = b if a.type.is_float == b.type.is_float else a
        forms = ("({a} if {c} else {b})", "({a} if {c} else {b})", "cp.where({c}, {a}, {b})")
        made = nodes.chosen(self.c.choose(forms), self.condition(max(depth - 1, 0)), a, b)
        is_chosen = made is not None and isinstance(made.type, Weak) and made.type.alone
        return made if made is not None and is_chosen else a

    # Operators

    def _attempt(self, depth: int) -> Node | None:
        if depth <= 0:
            return self.leaf()
        kinds: tuple[Callable[[int], Node | None], ...] = (
            self._binary,
            self._binary,
            self._with_literal,
            self._unary,
            self._choice,
            self._convert,
            self._power,
            self._index,
            self._operand,
        )
        return self.c.choose(kinds)(depth - 1)

    def _binary(self, depth: int) -> Node | None:
        a, b = self.any(depth), self.any(depth)
        return self._join(a, b)

    def _join(self, a: Node, b: Node) -> Node | None:
        if {a.type, b.type} & set(SMALLEST):
            return None
        whole = a.type in INTEGERS and b.type in INTEGERS
        symbol = self.c.choose((*SYMBOLS, *TRUNCATED) if whole else SYMBOLS)
        if symbol in ("<<", ">>") and self.c.number(0, 1):
            b = nodes.literal(self.c.choose((0, 1, 3, 7, 8, 31)))
        return nodes.binary(symbol, a, b, self.contract)

    def _with_literal(self, depth: int) -> Node | None:
        a = self.any(depth)
        t = str(a.type)
        b = self.literal(t) if self.c.number(0, 1) else self.weak(t, 1)
        pair = (a, b) if self.c.number(0, 1) else (b, a)
        return self._join(*pair)

    def _unary(self, depth: int) -> Node | None:
        return nodes.unary(self.c.choose(tuple(nodes.UNARY)), self.any(depth))

    def _choice(self, depth: int) -> Node | None:
        a = self.any(depth)
        b = self.any(depth) if self.c.number(0, 2) else self.weak(str(a.type), 1)
        if {a.type, b.type} & set(SMALLEST):
            return None
        a, b = (a, b) if self.c.number(0, 1) else (b, a)
        form = self.c.choose(("({a} if {c} else {b})", "cp.where({c}, {a}, {b})"))
        return nodes.chosen(form, self.condition(depth), a, b)

    def _convert(self, depth: int) -> Node:
        own = tuple(t for t in (*INTEGERS, *FLOATS, *SMALLEST) if t in self.inputs or t in NARROW)
        t = self.c.choose(own)
        return nodes.cast(self.weak(t, 1) if self.c.number(0, 7) == 0 else self.any(depth), t)

    def _power(self, depth: int) -> Node | None:
        return nodes.power(self.any(depth), self.c.choose((2, 3)))

    def _index(self, depth: int) -> Node | None:
        """A position with a narrow integer, brought back to a type that wraps."""
        t = self.c.choose(("i8", "u8", "i16", "u16", "i32", "u32"))
        i = nodes.local("i", "index")
        a, b = nodes.binary(self.c.choose(("+", "*", "//", "%")), i, nodes.literal(3), False), None
        if a is not None:
            b = nodes.binary(self.c.choose(("+", "-", "*", "//", "%")), a, self.typed(t, 0), False)
        return None if b is None else nodes.cast(b, self.c.choose(("i64", "i32", "u32", "i16")))

    def _operand(self, depth: int) -> Node | None:
        a, b = self.any(depth), self.any(depth)
        if {a.type, b.type} & {*SMALLEST, "bool"}:
            return None
        return nodes.operand(self.c.choose(("and", "or")), a, b)

    # Conditions

    def condition(self, depth: int) -> Node:
        """A condition, which may itself be chosen by one."""
        kind = self.c.number(0, 7) if depth > 0 else 0
        if kind == 1:
            return nodes.negated(self.condition(depth - 1))
        if kind == 2:
            word = self.c.choose(("and", "or"))
            return nodes.joint(word, self.condition(depth - 1), self.condition(depth - 1))
        if kind in (3, 4):
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            form = "({a} if {c} else {b})"
            return nodes.chosen(form, self.condition(depth - 1), a, b) or a
        for _ in range(TRIALS):
            made = self._comparison(max(depth - 1, 0))
            if made is not None:
                return made
        return nodes.local("x_bool[i]", "bool")

    def _comparison(self, depth: int) -> Node | None:
        operands = [self.arithmetic(depth), self.arithmetic(depth)]
        if self.c.number(0, 2) == 0:
            operands[1] = self.literal(str(operands[0].type))
        if self.c.number(0, 4) == 0:
            operands.append(self.arithmetic(depth))
        symbols = [self.c.choose(tuple(nodes.COMPARISONS)) for _ in operands[1:]]
        return nodes.comparison(operands, symbols)
