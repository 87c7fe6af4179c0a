"""Python's operators on runtime numbers, as rows of the op table."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from typing import Any

from cubepy.errors import Error
from cubepy.frontend.checks import SYMBOLS, check_operands, check_range
from cubepy.frontend.running import comptime_result
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import (
    FlatRef,
    TensorRef,
    is_comptime,
    is_dict,
    is_number,
    is_sequence,
    typed_scalar,
)
from cubepy.frontend.wording import describe, spell
from cubepy.ir import ops
from cubepy.ir.core import Value
from cubepy.ir.opdef import OpDef, TypingError
from cubepy.ir.types import Kind, bool_, element_of, f32, i32, index, with_element

_operator: Any = operator  # type checkers have no types for some of its functions


def _is_in(item: Any, container: Any) -> bool:
    return item in container


def _is_not_in(item: Any, container: Any) -> bool:
    return item not in container


def _complement(value: Any) -> Any:
    """`~`; of a bool `not`, as of one of run time, where Python takes it for an integer."""
    return not value if isinstance(value, bool) else ~value


_PYTHON: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _operator.truediv,
    ast.FloorDiv: _operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _operator.pow,
    ast.LShift: _operator.lshift,
    ast.RShift: _operator.rshift,
    ast.BitAnd: _operator.and_,
    ast.BitOr: _operator.or_,
    ast.BitXor: _operator.xor,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: _complement,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: _is_in,
    ast.NotIn: _is_not_in,
}
_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.UAdd: "+",
    ast.USub: "-",
    ast.Invert: "~",
    ast.Not: "not",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.MatMult: "@",
}
_BINARY: dict[type[ast.AST], OpDef] = {
    ast.Add: ops.ADD,
    ast.Sub: ops.SUB,
    ast.Mult: ops.MUL,
    ast.Div: ops.DIV,
    ast.FloorDiv: ops.FLOORDIV,
    ast.Mod: ops.MOD,
    ast.LShift: ops.SHL,
    ast.RShift: ops.SHR,
    ast.BitAnd: ops.AND,
    ast.BitOr: ops.OR,
    ast.BitXor: ops.XOR,
}
_COMPARE: dict[type[ast.AST], OpDef] = {
    ast.Eq: ops.EQ,
    ast.NotEq: ops.NE,
    ast.Lt: ops.LT,
    ast.LtE: ops.LE,
    ast.Gt: ops.GT,
    ast.GtE: ops.GE,
}
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift)


def binary(frame: Frame, kind: type[ast.operator], a: Any, b: Any) -> Any:
    """`a <op> b`: in Python if both are comptime, else an operation on the common type."""
    if is_comptime(a) and is_comptime(b):
        if kind in _ARITHMETIC:
            a, b = _plain(a), _plain(b)
        return _in_python(frame, kind, a, b)
    if isinstance(a, tuple) and isinstance(b, tuple) and kind is ast.Add:
        return (*a, *b)
    if is_dict(a) and is_dict(b) and kind is ast.BitOr:
        return a | b
    folded = frame.tracer.fold_literals(_PYTHON[kind], a, b) if kind in _PYTHON else None
    if folded is not None:
        return folded
    if kind is ast.Pow:
        return power(frame, a, b)
    row = _BINARY.get(kind)
    if row is None:
        raise _refuse(frame, kind, a, b)
    x, y = unify(frame, kind, a, b)
    if kind is ast.Div and not element_of(x.type).is_float:
        t = with_element(x.type, f32)
        x, y = frame.tracer.cast(x, t), frame.tracer.cast(y, t)
    if kind in _ARITHMETIC and x.type == with_element(x.type, bool_):
        t = with_element(x.type, i32)
        x, y = frame.tracer.cast(x, t), frame.tracer.cast(y, t)
    check_operands(frame.tracer, row, x, y)
    result = _emit(frame, kind, row, x, y)
    if frame.tracer.strict and x.type is index:
        _check_range(frame, row, a if is_number(a) else x, b if is_number(b) else y)
    return frame.tracer.mark_arithmetic(result, row, a, b)


def _plain(v: Any) -> Any:
    """A bool of NumPy as one of Python, which is a number in arithmetic."""
    found = typed_scalar(v)
    return found[1] if found is not None and found[0] is bool_ else v


def _check_range(frame: Frame, row: OpDef, a: Any, b: Any) -> None:
    """In checked mode index arithmetic must not leave its range."""
    if row in SYMBOLS:
        check_range(frame.tracer, row, a, b)


def unify(frame: Frame, kind: type[ast.AST], a: Any, b: Any) -> tuple[Value, Value]:
    """The operands in their common type, or E201 for what is no number."""
    for operand in (a, b):
        if not (isinstance(operand, Value) or is_number(operand) or hasattr(operand, "item")):
            raise _refuse(frame, kind, a, b)
    if kind in _BITWISE:
        a, b = _as_mask(a, b), _as_mask(b, a)
    return frame.tracer.unify(a, b, _SYMBOLS[kind])


_BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor)


def _as_mask(x: Any, other: Any) -> Any:
    """A negative literal beside an unsigned number is the mask of its bits, as in `x & ~3`."""
    if not isinstance(x, int) or not isinstance(other, Value):
        return x
    dtype = element_of(other.type)
    if dtype.kind is not Kind.UINT or not -(1 << dtype.bits) <= x < 0:
        return x
    return x + (1 << dtype.bits)


def _emit(frame: Frame, kind: type[ast.AST], row: OpDef, *operands: Value) -> Value:
    try:
        return frame.tracer.b.emit(row, *operands)
    except TypingError:
        raise _refuse(frame, kind, *operands) from None


def _refuse(frame: Frame, kind: type[ast.AST], *operands: Any) -> Error:
    types = " and ".join(spell(o.type) if isinstance(o, Value) else describe(o) for o in operands)
    return frame.tracer.error(
        "E201", operator=_SYMBOLS[kind], types=types, suggestion=_suggestion(kind, operands)
    )


def _suggestion(kind: type[ast.AST], operands: tuple[Any, ...]) -> str:
    if kind in (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.Invert):
        return "bit operations take integers and bools; use cp.bitcast for the bits of a float"
    if kind is ast.MatMult:
        return "write the loops, or call cp.kernels.matmul outside the kernel"
    if kind in (ast.Is, ast.IsNot):
        return "`is` asks of comptime values, as in `x is None`; arrays may overlap in memory"
    if any(isinstance(o, TensorRef | FlatRef) for o in operands):
        return "index the tensor on every axis, as in x[i]"
    if any(isinstance(o, str) for o in operands):
        return "text is comptime; print values as print(text, value), or in an f-string"
    if kind is ast.Mult and any(is_sequence(o) for o in operands):
        return "write the items out, or add tuples: t + t"
    if any(is_sequence(o) for o in operands):
        return "index the tuple, as in x.shape[0]"
    if any(isinstance(o, complex) for o in operands):
        return "keep the real and the imaginary part apart"
    return "convert to a number first" if any(o is None for o in operands) else ""


def _in_python(frame: Frame, kind: type[ast.AST], *operands: Any) -> Any:
    function = _PYTHON.get(kind)
    if function is None:
        raise _refuse(frame, kind, *operands)
    return comptime_result(frame, function, *operands)


def power(frame: Frame, a: Any, b: Any) -> Any:
    """`a ** b`: multiplications for small integer literals, else the elementary function."""
    if isinstance(b, int) and not isinstance(b, bool) and 0 <= b <= 64:
        return _integer_power(frame, frame.tracer.value(a), b)
    if is_number(b) and isinstance(a, Value) and element_of(a.type).is_integer:
        a = frame.tracer.cast(a, with_element(a.type, f32))  # which has room for any exponent
    x, y = unify(frame, ast.Pow, a, b)
    if not element_of(x.type).is_float:
        t = with_element(x.type, f32)
        x, y = frame.tracer.cast(x, t), frame.tracer.cast(y, t)
    return frame.tracer.b.emit(ops.POW, x, y)


def _integer_power(frame: Frame, x: Value, exponent: int) -> Value:
    """Square and multiply, from the least significant bit."""
    b = frame.tracer.b
    if element_of(x.type).kind is Kind.BOOL:
        x = frame.tracer.cast(x, with_element(x.type, i32))
    result: Value | None = None
    while exponent:
        if exponent & 1:
            result = x if result is None else _product(frame, result, x)
        exponent >>= 1
        if exponent:
            x = _product(frame, x, x)
    return b.const(1, with_element(x.type, element_of(x.type))) if result is None else result


def _product(frame: Frame, a: Value, b: Value) -> Value:
    result = frame.tracer.b.emit(ops.MUL, a, b)
    if frame.tracer.strict and a.type is index:
        check_range(frame.tracer, ops.MUL, a, b)
    return result


def unary(frame: Frame, kind: type[ast.unaryop], a: Any) -> Any:
    """`-a`, `+a`, `~a`, `not a`."""
    if is_comptime(a):
        return _in_python(frame, kind, a)
    if not isinstance(a, Value):
        raise _refuse(frame, kind, a)
    if kind is ast.UAdd:
        return a
    folded = frame.tracer.fold_literals(_PYTHON[kind], a)
    if folded is not None:
        return folded
    if kind is ast.Not:
        return frame.tracer.b.emit(ops.NOT, frame.tracer.truth(a))
    operand = a
    if kind is ast.USub and element_of(a.type).kind is Kind.BOOL:
        operand = frame.tracer.cast(a, with_element(a.type, i32))
    result = _emit(frame, kind, ops.NEG if kind is ast.USub else ops.NOT, operand)
    if frame.tracer.strict and kind is ast.USub and operand.type is index:
        check_range(frame.tracer, ops.SUB, 0, operand)
    return frame.tracer.mark_arithmetic(result, ops.NEG, a) if kind is ast.USub else result


def any_of(frame: Frame, tests: Iterable[Any]) -> Any:
    """Whether one of several truths holds, each comptime or a runtime bool (or line of bools)."""
    return _fold(frame, tests, ops.OR, True)


def all_of(frame: Frame, tests: Iterable[Any]) -> Any:
    """Whether all of several truths hold."""
    return _fold(frame, tests, ops.AND, False)


def _fold(frame: Frame, tests: Iterable[Any], row: OpDef, decisive: bool) -> Any:
    result: Any = not decisive
    for test in tests:
        if is_comptime(test):
            if bool(test) is decisive:
                return decisive
        else:
            result = test if is_comptime(result) else frame.tracer.b.emit(row, result, test)
    return result


def inverted(frame: Frame, test: Any) -> Any:
    """The opposite of a truth."""
    return not test if is_comptime(test) else frame.tracer.b.emit(ops.NOT, test)


def comparison(frame: Frame, kind: type[ast.cmpop], a: Any, b: Any) -> Any:
    """`a < b` and the like; `is` and `in` are comptime."""
    if is_comptime(a) and is_comptime(b):
        return _in_python(frame, kind, a, b)
    if kind in (ast.Is, ast.IsNot) and any(is_comptime(x) and not is_number(x) for x in (a, b)):
        return kind is ast.IsNot  # a runtime value is no object like None
    if kind in (ast.Eq, ast.NotEq) and (a is None or b is None):
        return kind is ast.NotEq
    row = _COMPARE.get(kind)
    if row is None or isinstance(a, tuple) or isinstance(b, tuple):
        raise _refuse(frame, kind, a, b)
    folded = frame.tracer.fold_literals(_PYTHON[kind], a, b)
    if folded is not None:
        return folded
    return _emit(frame, kind, row, *unify(frame, kind, a, b))
