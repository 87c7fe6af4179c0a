"""Expressions: a text of the language, the type that the rules give it, and its value.

Every constructor returns None where the language refuses the combination.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fuzz.typed import numbers as n
from tests.fuzz.typed.rules import FLOATS, INTEGERS, Number, Type, Weak, common, weak

Environment = dict[str, Any]
"""The names of one unit: numbers of locals and of inputs; `Unspecified` for those left open."""
Value = Callable[[Environment], Number]


@dataclass(frozen=True)
class Node:
    """An expression. `product` holds the factors where it is one that a sum may contract."""

    text: str
    type: Type
    value: Value
    product: tuple[Node, Node] | None = None


def local(name: str, t: Type) -> Node:
    """A name that is read."""

    def value(e: Environment) -> Number:
        if e[name] is n.Unspecified:
            raise n.Unspecified
        return e[name]

    return Node(name, t, value)


def literal(number: Number) -> Node:
    """A literal as it is written."""
    return Node(f"({number!r})" if number < 0 else repr(number), Weak((number,)), lambda e: number)


def chosen(text: str, condition: Node, a: Node, b: Node) -> Node | None:
    """One of two values, as `text` says with the parts {c}, {a} and {b}."""
    t = common(a.type, b.type)
    if t is None:
        return None
    value = _either(condition, meet(a, t), meet(b, t))
    return Node(text.format(c=condition.text, a=a.text, b=b.text), t, value)


def _either(condition: Node, a: Value, b: Value) -> Value:
    return lambda e: a(e) if condition.value(e) else b(e)


def meet(a: Node, t: Type) -> Value:
    """The value of an operand in the common type."""
    if isinstance(t, Weak):
        return a.value
    return _converted(a.value, t) if a.type != t else a.value


def _converted(value: Value, t: str) -> Value:
    return lambda e: n.converted(value(e), t)


def cast(a: Node, t: str) -> Node:
    """`cp.t(a)`. A conversion to the same type is none."""
    same = a if a.type == t else None
    value = a.value if same else _converted(a.value, t)
    return Node(f"cp.{t}({a.text})", t, value, same.product if same else None)


def binary(symbol: str, a: Node, b: Node, contract: bool) -> Node | None:
    """`a symbol b`, or `symbol(a, b)` of a function's name."""
    text = f"({a.text} {symbol} {b.text})"
    if symbol[-1].isalpha():
        text = f"{symbol}({a.text}, {b.text})"
    t = common(a.type, b.type)
    if t is None:
        return None
    if isinstance(t, Weak):
        return _weak_binary(symbol, text, a, b)
    t, operation = _operation(symbol, t)
    if operation is None:
        return None
    if contract and symbol in "+-" and t in FLOATS and (a.product or b.product):
        return _contracted(symbol, text, a, b, t)
    x, y = meet(a, t), meet(b, t)
    factors = (Node("", t, x), Node("", t, y)) if symbol == "*" and t in FLOATS else None
    return Node(text, t, lambda e: operation(x(e), y(e), t), factors)


def _operation(symbol: str, t: str) -> tuple[str, Any]:
    if symbol == "/":
        return (t, n.REAL["/"]) if t in FLOATS else ("f32", n.REAL["/"])
    if t in FLOATS:
        return t, n.REAL.get(symbol)
    if t == "index" and symbol not in ("+", "-", "*", "//", "%", "min", "max"):
        return t, None
    if t == "bool" and symbol in ("&", "|", "^"):
        return t, n.WHOLE[symbol]
    if t == "bool":
        arithmetic = symbol in ("+", "-", "*", "//", "%", "<<", ">>")
        return "i32", n.WHOLE[symbol] if arithmetic else None
    return t, n.WHOLE.get(symbol)


def _weak_binary(symbol: str, text: str, a: Node, b: Node) -> Node | None:
    """Arithmetic on literals alone is Python's."""
    if symbol not in ("+", "-", "*"):
        return None
    assert isinstance(a.type, Weak) and isinstance(b.type, Weak)
    operation = {"+": _plus, "-": _minus, "*": _times}[symbol]
    t = weak(operation(x, y) for x in a.type.values for y in b.type.values)
    return t and Node(text, t, lambda e: operation(a.value(e), b.value(e)))


def _plus(a: Number, b: Number) -> Number:
    return a + b


def _minus(a: Number, b: Number) -> Number:
    return a - b


def _times(a: Number, b: Number) -> Number:
    return a * b


def _contracted(symbol: str, text: str, a: Node, b: Node, t: str) -> Node:
    """The left product is fused with the other operand; the signs are exact."""
    sign = 1.0 if symbol == "+" else -1.0
    if a.product and a.type == t:
        (x, y), rest = a.product, meet(b, t)
        return Node(text, t, lambda e: n.fused(x.value(e), y.value(e), sign * float(rest(e)), t))
    if b.product and b.type == t:
        (x, y), rest = b.product, meet(a, t)
        return Node(text, t, lambda e: n.fused(sign * float(x.value(e)), y.value(e), rest(e), t))
    operation = n.REAL[symbol]
    p, q = meet(a, t), meet(b, t)
    return Node(text, t, lambda e: operation(p(e), q(e), t))


COMPARISONS: dict[str, Callable[[Number, Number], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def comparison(operands: list[Node], symbols: list[str]) -> Node | None:
    """A chain `a < b <= c`; each pair meets in its own common type."""
    pairs: list[tuple[str, Value, Value]] = []
    for symbol, a, b in zip(symbols, operands[:-1], operands[1:], strict=True):
        t = common(a.type, b.type)
        if t is None:
            return None
        pairs.append((symbol, meet(a, t), meet(b, t)))
    rest = "".join(f" {s} {o.text}" for s, o in zip(symbols, operands[1:], strict=True))

    def value(e: Environment) -> bool:
        return all([COMPARISONS[s](a(e), b(e)) for s, a, b in pairs])

    return Node(f"({operands[0].text}{rest})", "bool", value)


def joint(word: str, a: Node, b: Node) -> Node:
    """`a and b` of conditions."""
    both = word == "and"

    def value(e: Environment) -> bool:
        x, y = bool(a.value(e)), bool(b.value(e))
        return (x and y) if both else (x or y)

    return Node(f"({a.text} {word} {b.text})", "bool", value)


def operand(word: str, a: Node, b: Node) -> Node | None:
    """`a and b`, `a or b` of numbers: one of the operands, in their common type."""
    t = common(a.type, b.type)
    if t is None:
        return None
    x, y = meet(a, t), meet(b, t)

    def value(e: Environment) -> Number:
        first, second = x(e), y(e)
        taken = bool(a.value(e)) == (word == "or")
        return first if taken else second

    return Node(f"({a.text} {word} {b.text})", t, value)


def negated(a: Node) -> Node:
    """`not a`."""
    return Node(f"(not {a.text})", "bool", lambda e: not a.value(e))


UNARY: dict[str, tuple[Callable[[Number, str], Number], tuple[str, ...]]] = {
    "(-{})": (n.negated, (*INTEGERS, *FLOATS, "index")),
    "(~{})": (n.inverted, (*INTEGERS, "bool")),
    "abs({})": (n.absolute, (*INTEGERS, *FLOATS)),
    **{f"{name}({{}})": (function, tuple(FLOATS)) for name, function in n.ROUNDING.items()},
}


def unary(form: str, a: Node) -> Node | None:
    """An operation on one operand, which is in place of {}."""
    meaning, types = UNARY[form]
    t = a.type
    if isinstance(t, Weak):
        if form != "(-{})":
            return None
        return Node(form.format(a.text), Weak(tuple(-v for v in t.values)), lambda e: -a.value(e))
    if t not in types:
        return None
    return Node(form.format(a.text), t, lambda e: meaning(a.value(e), t))


def power(a: Node, exponent: int) -> Node | None:
    """`a ** 2` and `a ** 3` of floats: products, the last of which a sum may contract."""
    t = a.type
    if t not in FLOATS:
        return None

    def square(e: Environment) -> Number:
        x = a.value(e)
        return n.REAL["*"](x, x, str(t))

    last = a if exponent == 2 else Node("", t, square)

    def value(e: Environment) -> Number:
        return n.REAL["*"](a.value(e), last.value(e), str(t))

    return Node(f"({a.text} ** {exponent})", t, value, (a, last))
