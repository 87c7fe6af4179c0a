"""Expressions of C as text with a precedence, and the templates that make them. Knows no IR."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

from cubepy.record import dataclass

ATOM, POSTFIX, UNARY, MUL, ADD, SHIFT, COMPARE, EQUAL = 16, 15, 14, 13, 12, 11, 10, 9
BIT_AND, BIT_XOR, BIT_OR, AND, OR, TERNARY, LOWEST = 8, 7, 6, 5, 4, 3, 0
_OPENS = re.compile(r"[(\[,]\s*$")
_CLOSES = re.compile(r"\s*[)\],]")


@dataclass(frozen=True, slots=True)
class Expr:
    """An expression of C; `rank` says how tightly its outermost operator binds.

    In an f-string it has the parentheses that any neighbour may need. `whole` is the bare text, for
    positions that end at brackets, commas or semicolons: arguments, subscripts, initialisers.
    """

    whole: str
    rank: int = ATOM

    def within(self, rank: int) -> str:
        """The text as an operand of something that needs at least this rank."""
        return self.whole if self.rank >= rank else f"({self.whole})"

    def __str__(self) -> str:
        return self.within(POSTFIX)


@dataclass(frozen=True, slots=True)
class Spelling:
    """A template: `{0}`, `{1}`, ... are operands, `{t}` and other names come from the emitter.

    `needs`: the rank that each operand must have to stand without parentheses. Operands that it
    leaves out need none between brackets or commas, and have them everywhere else.
    """

    text: str
    rank: int = POSTFIX
    needs: tuple[int, ...] = ()
    chains: bool = False

    def fill(self, operands: list[Expr], **fields: str) -> Expr:
        """The expression for these operands."""
        texts = [self._operand(k, operand) for k, operand in enumerate(operands)]
        return Expr(self.text.format(*texts, **fields), self.rank)

    def _operand(self, k: int, operand: Expr) -> str:
        need = self.needs[k] if k < len(self.needs) else _needed(self.text, k)
        if k == 0 and self.chains and operand.rank == self.rank:
            need = self.rank
        text = operand.within(need)
        joins = text[0] in "-+&" and f"{text[0]}{{{k}}}" in self.text  # `--x` is another operator
        return f"({text})" if joins else text

    def repeated(self) -> set[int]:
        """Operands that the text has more than once: they must be names or literals."""
        found = re.findall(r"\{(\d)\}", self.text)
        return {int(k) for k in found if found.count(k) > 1}


@lru_cache(maxsize=1024)
def _needed(text: str, k: int) -> int:
    """The rank that is safe for an operand wherever the template has it."""
    around = itertools.pairwise(text.split(f"{{{k}}}"))
    delimited = all(_OPENS.search(left) and _CLOSES.match(right) for left, right in around)
    return LOWEST if delimited else POSTFIX


def infix(operator: str, rank: int) -> Spelling:
    """`a + b`; operands of the dangerous operators keep their parentheses."""
    text = f"{{0}} {operator} {{1}}"
    if rank in (SHIFT, BIT_AND, BIT_XOR, BIT_OR):
        return Spelling(text, rank, (UNARY, UNARY), chains=rank != SHIFT)
    if rank in (COMPARE, EQUAL):
        return Spelling(text, rank, (ADD, ADD))
    if rank in (AND, OR):
        return Spelling(text, rank, (EQUAL, EQUAL), chains=True)
    return Spelling(text, rank, (rank, rank + 1))


def call(name: str, count: int = 1) -> Spelling:
    """`name(a, b)`."""
    return Spelling(f"{name}({', '.join(f'{{{k}}}' for k in range(count))})")


def prefix(operator: str) -> Spelling:
    """`-a`."""
    return Spelling(operator + "{0}", UNARY, (UNARY,))


def cast(inner: Spelling | None = None) -> Spelling:
    """`(t)a`, or another spelling converted to the type of the result."""
    if inner is None:
        return Spelling("({t}){0}", UNARY, (UNARY,))
    wrapped = inner.text if inner.rank >= UNARY else f"({inner.text})"
    return Spelling(f"({{t}}){wrapped}", UNARY, inner.needs)
