"""Expressions of C as text with a precedence, and the templates that make them. Knows no IR."""

from __future__ import annotations

import re
from dataclasses import dataclass

ATOM, POSTFIX, UNARY, MUL, ADD, SHIFT, COMPARE, EQUAL = 16, 15, 14, 13, 12, 11, 10, 9
BIT_AND, BIT_XOR, BIT_OR, AND, OR, TERNARY, LOWEST = 8, 7, 6, 5, 4, 3, 0


@dataclass(frozen=True, slots=True)
class Expr:
    """Text of an expression; `rank` says how tightly its outermost operator binds."""

    text: str
    rank: int = ATOM

    def within(self, rank: int) -> str:
        """The text as an operand of something that needs at least this rank."""
        return self.text if self.rank >= rank else f"({self.text})"


@dataclass(frozen=True, slots=True)
class Spelling:
    """A template: `{0}`, `{1}`, ... are operands, `{t}` and other names come from the emitter.

    `needs`: the rank that each operand must have to stand without parentheses.
    """

    text: str
    rank: int = POSTFIX
    needs: tuple[int, ...] = ()
    chains: bool = False

    def fill(self, operands: list[Expr], **fields: str) -> Expr:
        """The expression for these operands."""
        texts: list[str] = []
        for k, operand in enumerate(operands):
            need = self.needs[k] if k < len(self.needs) else LOWEST
            if k == 0 and self.chains and operand.rank == self.rank:
                need = self.rank
            texts.append(operand.within(need))
        return Expr(self.text.format(*texts, **fields), self.rank)

    def repeated(self) -> set[int]:
        """Operands that the text has more than once: they must be names or literals."""
        found = re.findall(r"\{(\d)\}", self.text)
        return {int(k) for k in found if found.count(k) > 1}


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
