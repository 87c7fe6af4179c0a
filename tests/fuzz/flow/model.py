"""What `cp` is to a program that Python runs: numbers that keep their type, and arrays of them.

Control flow is Python's own: branches, loops, scopes, patterns and the order of evaluation. Only
arithmetic is modelled, by the rules of `tests.fuzz.typed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from types import SimpleNamespace
from typing import Any

from tests.fuzz.typed import numbers as n
from tests.fuzz.typed.rules import FLOATS, INTEGERS, Number, Type, Weak, common


class Refused(Exception):
    """The language has no such operation: the generator is wrong."""


def _type(x: Any) -> Type:
    return x.type if isinstance(x, Num) else "bool" if isinstance(x, bool) else Weak((x,))


def _number(x: Any) -> Number:
    return x.value if isinstance(x, Num) else x


def _is_number(x: Any) -> bool:
    """Else an operator leaves it to the other operand, as Python's numbers do."""
    return isinstance(x, Num | int | float)


def _met(a: Any, b: Any) -> tuple[str, Number, Number]:
    """The common type of two operands, and both in it."""
    t = common(_type(a), _type(b))
    if not isinstance(t, str):
        raise Refused(f"{_type(a)} with {_type(b)}")
    x, y = (_number(x) if _type(x) == t else n.converted(_number(x), t) for x in (a, b))
    return t, x, y


def _binary(symbol: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(a: Any, b: Any) -> Any:
        if not (_is_number(a) and _is_number(b)):
            return NotImplemented
        t, x, y = _met(a, b)
        if symbol == "/" and t not in FLOATS:
            t, x, y = "f32", n.converted(x, "f32"), n.converted(y, "f32")
        operation = (n.REAL if t in FLOATS else n.WHOLE).get(symbol)
        if operation is None:
            raise Refused(f"{symbol} of {t}")
        return Num(t, operation(x, y, t))

    return forward, lambda a, b: forward(b, a)


def _comparison(test: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def compare(a: Any, b: Any) -> Any:
        if not _is_number(b):
            return NotImplemented
        _, x, y = _met(a, b)
        return test(x, y)

    return compare


@dataclass(frozen=True, eq=False)
class Num:
    """A number of a type of the language."""

    type: str
    value: Number

    __add__, __radd__ = _binary("+")
    __sub__, __rsub__ = _binary("-")
    __mul__, __rmul__ = _binary("*")
    __truediv__, __rtruediv__ = _binary("/")
    __floordiv__, __rfloordiv__ = _binary("//")
    __mod__, __rmod__ = _binary("%")
    __and__, __rand__ = _binary("&")
    __or__, __ror__ = _binary("|")
    __xor__, __rxor__ = _binary("^")
    __lshift__, __rlshift__ = _binary("<<")
    __rshift__, __rrshift__ = _binary(">>")
    __lt__ = _comparison(lambda a, b: a < b)
    __le__ = _comparison(lambda a, b: a <= b)
    __gt__ = _comparison(lambda a, b: a > b)
    __ge__ = _comparison(lambda a, b: a >= b)
    __eq__ = _comparison(lambda a, b: a == b)  # type: ignore[assignment]
    __ne__ = _comparison(lambda a, b: a != b)  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Num:
        return Num(self.type, n.negated(self.value, self.type))

    def __invert__(self) -> Num:
        return Num(self.type, n.inverted(self.value, self.type))

    def __abs__(self) -> Num:
        return Num(self.type, n.absolute(self.value, self.type))

    def __bool__(self) -> bool:
        return self.value != 0


class Array:
    """Memory of a unit, or a view of it: elements of one type."""

    def __init__(self, t: str, memory: list[Number], places: range) -> None:
        self.type, self._memory, self._places = t, memory, places

    @property
    def size(self) -> Num:
        return Num("index", len(self._places))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            parts = (index.start, index.stop, index.step)
            cut = slice(*(None if p is None else int(_number(p)) for p in parts))
            return Array(self.type, self._memory, self._places[cut])
        return Num(self.type, self._memory[self._place(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._memory[self._place(index)] = n.converted(_number(value), self.type)

    def __iter__(self) -> Iterator[Num]:
        return (self[k] for k in range(len(self._places)))

    def __reversed__(self) -> Iterator[Num]:
        return (self[k] for k in reversed(range(len(self._places))))

    def _place(self, index: Any) -> int:
        if not 0 <= _number(index) < len(self._places):
            raise Refused(f"index {index} of {len(self._places)}")
        return self._places[int(_number(index))]


class _Range:
    """`range`: its numbers are indices, but Python's own where a loop is unrolled."""

    def __init__(self, *bounds: Any) -> None:
        self.numbers = range(*(int(_number(b)) for b in bounds))
        self.is_known = not any(isinstance(b, Num) for b in bounds)

    def __iter__(self) -> Iterator[Num]:
        return (Num("index", k) for k in self.numbers)

    def __reversed__(self) -> Iterator[Num]:
        return (Num("index", k) for k in reversed(self.numbers))


def _cast(t: str) -> Callable[[Any], Num]:
    return lambda x: Num(t, n.converted(_number(x), t))


def _extreme(symbol: str) -> Callable[..., Any]:
    two, _ = _binary(symbol)

    def extreme(*items: Any, default: Any = None, key: Any = None) -> Any:
        if key is not None:
            return (min if symbol == "min" else max)(*items, default=default, key=key)
        given: Any = items
        found = given if len(given) > 1 else tuple(given[0])
        return reduce(two, found) if found else default

    return extreme


def _local(size: int, dtype: Any, fill: Number) -> Array:
    t = dtype(0).type
    return Array(t, [n.converted(fill, t)] * size, range(size))


def _where(condition: Any, a: Any, b: Any) -> Any:
    t, x, y = _met(a, b)
    return Num(t, x if condition else y)


def _unroll(items: Any) -> Any:
    return items.numbers if isinstance(items, _Range) else items


def _map(function: Any, items: Any) -> Any:
    """Of known items at once, as the guide says of kernels; else one by one, as in Python."""
    is_known = items.is_known if isinstance(items, _Range) else isinstance(items, tuple)
    return tuple(map(function, items)) if is_known else map(function, items)


def namespace() -> dict[str, Any]:
    """The names that a program finds: `cp`, and built-in functions that know its numbers."""
    casts = {t: _cast(t) for t in (*INTEGERS, *FLOATS)}
    cp = SimpleNamespace(**casts, local=_local, where=_where, unroll=_unroll, comptime=lambda x: x)
    cp.static_assert = lambda condition, message="": None
    extremes = {"min": _extreme("min"), "max": _extreme("max")}
    return {"cp": cp, "range": _Range, "map": _map, **extremes}
