"""Operators that dataclasses and NamedTuples of the user define: `__add__`, `__rmul__`, `__lt__`.

Their methods are inlined like any other.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from cubepy.frontend.calls import call, inline, method_of
from cubepy.frontend.iterables import count_of, known_step
from cubepy.frontend.operators import all_of, any_of, binary, comparison, inverted, unary
from cubepy.frontend.running import comptime_result, note_reads
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import (
    FlatRef,
    Iterated,
    LocalFunction,
    Range,
    Record,
    Table,
    TensorRef,
    Unroll,
    as_record,
    is_comptime,
    is_mapping,
    is_number,
    is_sequence,
    type_of,
)
from cubepy.ir.core import Value
from cubepy.ir.numbers import limits
from cubepy.ir.types import element_of, f32, i64, index
from cubepy.lang.arrays import is_numpy
from cubepy.lang.objects import is_generated

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
_COMPARE: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("__eq__", "__eq__"),
    ast.NotEq: ("__ne__", "__ne__"),
    ast.Lt: ("__lt__", "__gt__"),
    ast.LtE: ("__le__", "__ge__"),
    ast.Gt: ("__gt__", "__lt__"),
    ast.GtE: ("__ge__", "__le__"),
}
"""The method of the left operand, and that of the right one."""


_NUMBERS = frozenset({Value, bool, int, float})
"""Types without methods of the user."""


def apply_binary(
    frame: Frame, node: ast.AST, kind: type[ast.operator], left: Any, right: Any
) -> Any:
    """`left <op> right`, by a method of the user where an operand has one."""
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return binary(frame, kind, left, right)
    name = _BINARY[kind]
    found = _apply(frame, node, (f"__{name}__", f"__r{name}__"), left, right)
    return binary(frame, kind, left, right) if found is NotImplemented else found


def apply_augmented(
    frame: Frame, node: ast.AST, kind: type[ast.operator], left: Any, right: Any
) -> Any:
    """The value of `left` after `left <op>= right`."""
    found = apply_method(frame, node, left, f"__i{_BINARY[kind]}__", right)
    return apply_binary(frame, node, kind, left, right) if found is NotImplemented else found


def apply_comparison(
    frame: Frame, node: ast.AST, kind: type[ast.cmpop], left: Any, right: Any
) -> Any:
    """`left <op> right`, by a method of the user where an operand has one."""
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return comparison(frame, kind, left, right)
    found = _by_method(frame, node, kind, left, right)
    if found is not NotImplemented:
        return found
    if is_comptime(left) and is_comptime(right):
        return comparison(frame, kind, left, right)
    if kind in _COMPARE:
        left, right = _fields(kind, left, right)
        if is_sequence(left) and is_sequence(right):
            return _compare_items(frame, node, kind, tuple(left), tuple(right))
    if kind in (ast.In, ast.NotIn):
        found = _is_among(frame, node, right, left)
        if found is not NotImplemented:
            return found if kind is ast.In else inverted(frame, found)
    return comparison(frame, kind, left, right)


def _by_method(frame: Frame, node: ast.AST, kind: type[ast.cmpop], left: Any, right: Any) -> Any:
    """What a method of the user gives; else NotImplemented."""
    if kind in (ast.In, ast.NotIn):
        found = apply_method(frame, node, right, "__contains__", left)
    elif kind in _COMPARE:
        found = _apply(frame, node, _COMPARE[kind], left, right)
        if found is not NotImplemented or kind is not ast.NotEq:
            return found
        found = _apply(frame, node, _COMPARE[ast.Eq], left, right)
    else:
        return NotImplemented
    if found is NotImplemented:
        return found
    found = deciding(frame, node, found)
    return found if kind is ast.In else inverted(frame, found)


def _fields(kind: type[ast.cmpop], left: Any, right: Any) -> tuple[Any, Any]:
    """The fields of two records of one class that compares by them; else the operands."""
    a, b = as_record(left), as_record(right)
    name = "__eq__" if kind is ast.NotEq else _COMPARE[kind][0]
    if a is None or b is None or a.cls is not b.cls or not is_generated(getattr(a.cls, name)):
        return left, right
    names = [f.name for f in fields(a.cls) if f.compare]
    return tuple(a.values[n] for n in names), tuple(b.values[n] for n in names)


def _compare_items(
    frame: Frame, node: ast.AST, kind: type[ast.cmpop], a: tuple[Any, ...], b: tuple[Any, ...]
) -> Any:
    """Tuples are equal item by item, and ordered by the first items that differ."""
    pairs = list(zip(a, b, strict=False))
    if kind in (ast.Eq, ast.NotEq):
        items = (apply_comparison(frame, node, ast.Eq, x, y) for x, y in pairs)
        equal = all_of(frame, items) if len(a) == len(b) else False
        return equal if kind is ast.Eq else inverted(frame, equal)
    strictly = ast.Lt if kind in (ast.Lt, ast.LtE) else ast.Gt
    result: Any = comparison(frame, kind, len(a), len(b))
    for x, y in reversed(pairs):
        same = apply_comparison(frame, node, ast.Eq, x, y)
        rest = all_of(frame, [same, result])
        result = any_of(frame, [apply_comparison(frame, node, strictly, x, y), rest])
    return result


def _is_among(frame: Frame, node: ast.AST, container: Any, item: Any) -> Any:
    """Whether an item of a sequence, a key of a mapping, or a number of a range equals `item`."""
    if isinstance(container, range | Range):
        return _is_in_range(frame, container, item)
    if isinstance(container, TensorRef | FlatRef | Table | Iterated) or is_numpy(container):
        return call(frame, node, operator.contains, [container, item], {})
    if not is_sequence(container) and not is_mapping(container):
        return NotImplemented
    equal = [apply_comparison(frame, node, ast.Eq, item, x) for x in container]
    return any_of(frame, equal)


def _is_in_range(frame: Frame, numbers: range | Range, item: Any) -> Any:
    """A float is in a range if it is whole and its integer is, which has all bits of the ends."""
    if isinstance(item, Value) and element_of(item.type).is_float:
        cast = frame.tracer.cast
        wide = cast(item, f32) if element_of(item.type).bits < 32 else item
        whole = cast(wide, i64)
        is_whole = comparison(frame, ast.Eq, cast(whole, element_of(wide.type)), wide)
        return all_of(frame, [is_whole, _is_in_range(frame, numbers, whole)])
    if isinstance(numbers, range):
        return _in_range(frame, numbers, item)
    return _in_range_of_run_time(frame, numbers, item)


def _in_range(frame: Frame, numbers: range, item: Any) -> Any:
    if not numbers:
        return False
    ends, step = sorted((numbers[0], numbers[-1])), abs(numbers.step)
    low, high = (_bound(frame, item, end) for end in ends)
    tests = [comparison(frame, ast.GtE, item, low), comparison(frame, ast.LtE, item, high)]
    return all_of(frame, [*tests, *_on_step(frame, item, numbers[0], step)])


def _in_range_of_run_time(frame: Frame, r: Range, item: Any) -> Any:
    up = known_step(frame, r) > 0
    first, end = (ast.GtE, ast.Lt) if up else (ast.LtE, ast.Gt)
    start, stop = (_bound(frame, item, v) for v in (r.start, r.stop))
    tests = [comparison(frame, first, item, start), comparison(frame, end, item, stop)]
    return all_of(frame, [*tests, *_on_step(frame, item, r.start, abs(known_step(frame, r)))])


def _bound(frame: Frame, item: Any, number: Any) -> Any:
    """A number of a range; as an index where the type of the item does not have it."""
    if not isinstance(item, Value) or not isinstance(number, int):
        return number
    element = element_of(item.type)
    low, high = limits(element) if element.is_integer else (number, number)
    return number if low <= number <= high else frame.tracer.literal(number, index)


def _on_step(frame: Frame, item: Any, start: Any, step: int) -> Iterator[Any]:
    """The test that an item is whole steps away from the start, if it needs one: both leave the
    same rest, as their difference may be too large for their type."""
    if step > 1 or not (isinstance(item, Value) and element_of(item.type).is_integer):
        rest = binary(frame, ast.Mod, item, _bound(frame, item, step))
        yield comparison(frame, ast.Eq, rest, binary(frame, ast.Mod, start, step))


def _apply(frame: Frame, node: ast.AST, names: tuple[str, str], left: Any, right: Any) -> Any:
    """The first result of the operands' methods that is not NotImplemented.

    The left operand's comes first, unless the right one is of a class derived from its class, which
    in arithmetic has a method of its own. One class alone is asked once in arithmetic.
    """
    attempts = [(left, right, names[0]), (right, left, names[1])]
    a, b = _class_of(left), _class_of(right)
    is_arithmetic = names[1].startswith("__r")
    if a is b and is_arithmetic:
        attempts.pop()
    elif a is not b and issubclass(b, a):
        inherits = getattr(a, names[1], None) is getattr(b, names[1], None)
        if not (is_arithmetic and inherits):
            attempts.reverse()
    for owner, other, name in attempts:
        found = apply_method(frame, node, owner, name, other)
        if found is not NotImplemented:
            return found
    return NotImplemented


def _class_of(x: Any) -> type[Any]:
    return x.cls if isinstance(x, Record) else type_of(x)


_UNARY: dict[type[ast.unaryop], str] = {
    ast.USub: "__neg__",
    ast.UAdd: "__pos__",
    ast.Invert: "__invert__",
}


def apply_unary(frame: Frame, node: ast.AST, kind: type[ast.unaryop], a: Any) -> Any:
    """`-a` and the like, by a method of the user where `a` has one."""
    found = apply_method(frame, node, a, _UNARY[kind]) if kind in _UNARY else NotImplemented
    return unary(frame, kind, a) if found is NotImplemented else found


def apply_method(frame: Frame, node: ast.AST, owner: Any, name: str, *args: Any) -> Any:
    """`owner.name(*args)` of a method that the user defined; else NotImplemented.

    So it is where all is comptime: Python itself runs that, and what it captures is noted.
    """
    function = method_of(frame, owner, name)
    if function is None:
        return NotImplemented
    if all(map(is_comptime, (owner, *args))):
        note_reads(frame, function, owner, *args)
        return NotImplemented
    return inline(frame, node, function, [owner, *args], {})


def deciding(frame: Frame, node: ast.AST, value: Any) -> Any:
    """What decides where a condition is `value`: what `__bool__` or `__len__` of an object gives.

    Objects without these are true, and so are functions; tuples are where they have items.
    """
    if isinstance(value, Value) or is_number(value):
        return value
    found = apply_method(frame, node, value, "__bool__")
    if found is NotImplemented:
        found = apply_method(frame, node, value, "__len__")
    if found is not NotImplemented:
        return found
    if isinstance(value, Record | LocalFunction | Iterated):
        return True
    if isinstance(value, Range):
        return count_of(frame, value)
    if is_numpy(value):
        return comptime_result(frame, bool, value)
    value = value.items if isinstance(value, Unroll) else value
    return any(True for _ in value) if is_sequence(value) or is_mapping(value) else value
