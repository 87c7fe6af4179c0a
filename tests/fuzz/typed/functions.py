"""Functions of Python's modules and of NumPy whose results are exact, and what they give.

The model is Python's own function where there is one, on exact numbers; floats narrower than f64
are rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from tests.fuzz.typed import nodes
from tests.fuzz.typed import numbers as n
from tests.fuzz.typed.nodes import Node
from tests.fuzz.typed.rules import FLOATS, INTEGERS, SIGNED, Number, common, limits

MOST = 4096
"""A greater exponent of two changes nothing: all is zero or infinite."""


def step(x: float, t: str) -> Fraction:
    """The distance of |x| to the next number of a type, as if there were no greatest."""
    size = abs(Fraction(x))
    exponent = n.LEAST[t]
    if size:
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= size < Fraction(2) ** exponent
    return Fraction(2) ** (max(exponent, n.LEAST[t]) - n.DIGITS[t] + 1)


def unit(x: Number, t: str) -> Number:
    """`math.ulp`."""
    return float(step(x, t)) if math.isfinite(x) else abs(x)


def after(x: Number, y: Number, t: str) -> Number:
    """`math.nextafter`."""
    if math.isnan(x) or math.isnan(y):
        return math.nan
    if x == y:
        return y
    if math.isinf(x):
        return math.copysign(float(n.GREATEST[t]), x)
    if x == 0:
        return math.copysign(float(step(0.0, t)), y)
    exact, own = Fraction(x), step(x, t)
    if (y > x) == (x > 0):
        return n.rounded(exact + math.copysign(1, x) * own, t)
    below = abs(exact) - own / 2
    own = step(float(below), t) if below == n.rounded(below, t) else own
    return math.copysign(float(abs(exact) - own), x)


def remainder(x: Number, y: Number, t: str) -> Number:
    """`math.remainder`, NaN where Python raises."""
    if math.isnan(x) or math.isnan(y) or math.isinf(x) or y == 0:
        return math.nan
    return math.remainder(x, y)


def scaled(x: Number, k: Number, t: str) -> Number:
    """`math.ldexp`, infinite where Python raises."""
    if x == 0 or not math.isfinite(x):
        return x
    found = n.rounded(Fraction(x) * Fraction(2) ** min(max(int(k), -MOST), MOST), t)
    return math.copysign(found, x)


def is_close(x: Number, y: Number, t: str) -> Number:
    """`math.isclose` with its own tolerance, each operation rounded; f16 and bf16 in f32."""
    t = t if t == "f64" else "f32"
    if x == y or not (math.isfinite(x) and math.isfinite(y)):
        return x == y
    bound = n.rounded(n.rounded(1e-9, t) * max(abs(x), abs(y)), t)
    return abs(n.rounded(x - y, t)) <= bound


def step_at_zero(x: Number, y: Number, t: str) -> Number:
    """`np.heaviside`."""
    return x if math.isnan(x) else y if x == 0 else float(x > 0)


def exponent_of(x: Number, t: str) -> Number:
    """Of `math.frexp`."""
    return math.frexp(x)[1] if math.isfinite(x) else 0


def divisor(a: Number, b: Number, t: str) -> Number:
    """`math.gcd`; open for the least integer, which has no absolute value."""
    if t in SIGNED and limits(t)[0] in (a, b):
        raise n.Unspecified
    return math.gcd(int(a), int(b))


def multiple(a: Number, b: Number, t: str) -> Number:
    """`math.lcm`, wrapped."""
    return n.wrapped(math.lcm(int(a), int(b)), t)


ONE_FLOAT: dict[str, tuple[Callable[[Number, str], Number], str | None]] = {
    "math.frexp({})[0]": (lambda x, t: math.frexp(x)[0], None),
    "math.frexp({})[1]": (exponent_of, "i32"),
    "np.modf({})[0]": (lambda x, t: math.modf(x)[0], None),
    "math.modf({})[1]": (lambda x, t: math.modf(x)[1], None),
    "math.ulp({})": (unit, None),
    "np.fix({})": (n.ROUNDING["cp.trunc"], None),
    "np.isposinf({})": (lambda x, t: x == math.inf, "bool"),
    "np.isneginf({})": (lambda x, t: x == -math.inf, "bool"),
}
"""By text, with the operand in place of {}: the meaning, and the type of the result unless it is
the operand's."""
TWO_FLOATS: dict[str, tuple[Callable[[Number, Number, str], Number], str | None]] = {
    "math.nextafter({}, {})": (after, None),
    "math.remainder({}, {})": (remainder, None),
    "math.isclose({}, {})": (is_close, "bool"),
    "np.heaviside({}, {})": (step_at_zero, None),
}
TWO_INTEGERS: dict[str, Callable[[Number, Number, str], Number]] = {
    "math.gcd({}, {})": divisor,
    "np.gcd({}, {})": divisor,
    "math.lcm({}, {})": multiple,
}
OPERATORS = {
    "operator.add": "+",
    "operator.sub": "-",
    "operator.mul": "*",
    "operator.truediv": "/",
    "operator.floordiv": "//",
    "operator.mod": "%",
    "operator.and_": "&",
    "operator.xor": "^",
    "min": "min",
    "max": "max",
}


def of_float(form: str, x: Node) -> Node | None:
    """A function of one float."""
    meaning, result = ONE_FLOAT[form]
    t = str(x.type)
    if t not in FLOATS:
        return None
    return Node(form.format(x.text), result or t, lambda e: meaning(x.value(e), t))


def of_floats(form: str, x: Node, y: Node) -> Node | None:
    """A function of two floats, which meet in their common type."""
    meaning, result = TWO_FLOATS[form]
    t = common(x.type, y.type)
    if not isinstance(t, str) or t not in FLOATS:
        return None
    a, b = nodes.meet(x, t), nodes.meet(y, t)
    return Node(form.format(x.text, y.text), result or t, lambda e: meaning(a(e), b(e), t))


def of_integers(form: str, x: Node, y: Node) -> Node | None:
    """A function of two integers."""
    t = common(x.type, y.type)
    if not isinstance(t, str) or t not in INTEGERS:
        return None
    a, b = nodes.meet(x, t), nodes.meet(y, t)
    meaning = TWO_INTEGERS[form]
    return Node(form.format(x.text, y.text), t, lambda e: meaning(a(e), b(e), t))


def root(x: Node) -> Node | None:
    """`math.isqrt`; 0 below 0."""
    t = str(x.type)
    if t not in INTEGERS:
        return None
    return Node(f"math.isqrt({x.text})", t, lambda e: math.isqrt(max(int(x.value(e)), 0)))


def ldexp(x: Node, k: Node) -> Node | None:
    """`math.ldexp` with an exponent of an integer type."""
    t = str(x.type)
    if t not in FLOATS or k.type not in INTEGERS:
        return None
    return Node(f"math.ldexp({x.text}, {k.text})", t, lambda e: scaled(x.value(e), k.value(e), t))


def called(name: str, a: Node, b: Node, contract: bool) -> Node | None:
    """An operator that is called by its name."""
    made = nodes.binary(OPERATORS[name], a, b, contract)
    return made and Node(f"{name}({a.text}, {b.text})", made.type, made.value)


def reduced(name: str, items: tuple[Node, Node, Node], contract: bool) -> Node | None:
    """`functools.reduce` of three values."""
    a, b, c = items
    made = nodes.binary(OPERATORS[name], a, b, contract)
    made = made and nodes.binary(OPERATORS[name], made, c, contract)
    text = f"functools.reduce({name}, ({a.text}, {b.text}, {c.text}))"
    return made and Node(text, made.type, made.value)


def mapped(a: Node, b: Node) -> Node | None:
    """`max` of a `map`."""
    x, y = nodes.unary("abs({})", a), nodes.unary("abs({})", b)
    made = x and y and nodes.binary("max", x, y, False)
    return made and Node(f"max(map(abs, ({a.text}, {b.text})))", made.type, made.value)
