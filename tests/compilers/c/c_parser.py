"""Reads an expression of C into a tree, by C's own precedences: what a template really means."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\s*(0x\w+|\d[\w.]*|[A-Za-z_]\w*|<<|>>|<=|>=|==|!=|&&|\|\||--|\+\+|.)")
_BINARY = {
    **dict.fromkeys(("*", "/", "%"), 13),
    **dict.fromkeys(("+", "-"), 12),
    **dict.fromkeys(("<<", ">>"), 11),
    **dict.fromkeys(("<", "<=", ">", ">="), 10),
    **dict.fromkeys(("==", "!="), 9),
    **{"&": 8, "^": 7, "|": 6, "&&": 5, "||": 4},
}
_TYPE_WORDS = frozenset(
    "const volatile signed unsigned char short int long float double bool half uchar ushort uint "
    "ulong bfloat16 float8_e4m3 float8_e5m2 _Float16 kind __global device atomic_int atomic_uint "
    "simd_vote :: vote_t".split()
)
Tree = tuple[object, ...] | str


def parse(text: str) -> Tree:
    """The tree: operators with their operands; brackets that only group leave no trace."""
    reader = _Reader(text)
    tree = reader.conditional()
    assert reader.at_end(), f"trailing {reader.rest()} in {text}"
    return tree


def contains(tree: Tree, part: Tree) -> bool:
    """Whether `part` is one of the nodes of `tree`."""
    if tree == part:
        return True
    return isinstance(tree, tuple) and any(
        contains(inner, part) for inner in tree if isinstance(inner, tuple | str)
    )


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = _TOKEN.findall(text.replace("simd_vote::vote_t", "vote_t"))
        self._at = 0

    def at_end(self) -> bool:
        return self._at == len(self._tokens)

    def rest(self) -> list[str]:
        return self._tokens[self._at :]

    def _peek(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._peek()
        assert token and expected in ("", token), (expected, self.rest())
        self._at += 1
        return token

    def conditional(self) -> Tree:
        condition = self._binary(4)
        if self._peek() != "?":
            return condition
        self._take("?")
        chosen = self.conditional()
        self._take(":")
        return ("?:", condition, chosen, self.conditional())

    def _binary(self, least: int) -> Tree:
        left = self._unary()
        while (rank := _BINARY.get(self._peek(), 0)) >= least:
            operator = self._take()
            left = (operator, left, self._binary(rank + 1))
        return left

    def _unary(self) -> Tree:
        if self._peek() in ("--", "++"):
            raise AssertionError(f"joined signs before {self.rest()}")
        if self._peek() in ("-", "!", "~", "&", "*"):
            return (self._take(), self._unary())
        if self._peek() == "(" and self._is_type():
            self._skip_type()
            return ("cast", self._unary())
        return self._postfix()

    def _is_type(self) -> bool:
        return self._peek(1) in _TYPE_WORDS

    def _skip_type(self) -> None:
        while self._take() != ")":
            pass

    def _postfix(self) -> Tree:
        if self._peek() == "(":
            self._take()
            tree = self.conditional()
            self._take(")")
        else:
            tree = self._take()
            assert re.fullmatch(r"\w[\w.]*", tree), tree
            if self._peek() == "<" and tree in ("as_type", "bits_as"):
                while self._take() != ">":
                    pass
        while self._peek() in ("(", "[", "."):
            opening = self._take()
            if opening == ".":
                tree = (".", tree, self._take())
                continue
            closing = ")" if opening == "(" else "]"
            arguments: list[Tree] = []
            while self._peek() != closing:
                arguments.append(self.conditional())
                if self._peek() == ",":
                    self._take()
            self._take(closing)
            tree = (opening, tree, *arguments)
        return tree
