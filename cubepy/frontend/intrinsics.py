"""What the built-in functions of the language (and their Python, math and NumPy twins) become.

One handler for each name; elementary functions share one that is driven by the op table.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import math
from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from cubepy.errors import Error
from cubepy.frontend.attributes import attribute, node_here
from cubepy.frontend.calls import call
from cubepy.frontend.captured import note_absent
from cubepy.frontend.checks import check_operands
from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.expressions import choose, select
from cubepy.frontend.folds import most
from cubepy.frontend.iterables import is_lazy
from cubepy.frontend.operators import power
from cubepy.frontend.overloads import apply_comparison, apply_method, deciding
from cubepy.frontend.running import comptime_result
from cubepy.frontend.sequences import items_of_call
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import (
    Record,
    Unroll,
    as_record,
    is_comptime,
    is_dict,
    is_number,
    is_sequence,
    is_tuple,
    type_of,
    typed_scalar,
)
from cubepy.frontend.wording import describe, spell
from cubepy.ir import metal, ops
from cubepy.ir.core import Value
from cubepy.ir.opdef import OpDef, TypingError
from cubepy.ir.types import (
    DType,
    Line,
    bool_,
    element_of,
    f32,
    i64,
    with_element,
)
from cubepy.lang import builtins as lang
from cubepy.lang import metal as lang_metal

Handler = Callable[..., Any]


# Numbers


def _check_count(frame: Frame, row: OpDef, stub: Any, args: tuple[Any, ...]) -> None:
    """E106 unless there are as many arguments as the stub of a row has parameters."""
    names = _parameters(stub)
    if len(args) != len(names):
        reason = f"it takes {len(names)} argument{'s' if names[1:] else ''}, not {len(args)}"
        text = f"{row.name}({', '.join(names)})"
        hint = _of_bases(args) if row.name == "log" and len(args) == 2 else None
        raise frame.tracer.error("E106", name=row.name, reason=reason, signature=text, hint=hint)


def _elementwise(row: OpDef, stub: Any) -> Handler:
    def handler(frame: Frame, *args: Any) -> Any:
        _check_count(frame, row, stub, args)
        if all(is_number(a) for a in args):
            return stub(*args)
        folded = frame.tracer.fold_literals(stub, *args)
        return _apply(frame, row, args) if folded is None else folded

    return handler


def _of_bases(args: tuple[Any, ...]) -> str:
    """What to write for the logarithm to a base."""
    base = args[1]
    if is_number(base) and base in (2, 10):
        return f"write cp.log{base:.0f}(value)"
    return "write cp.log(value) / cp.log(base)"


@cache
def _parameters(stub: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(stub).parameters)


def _apply(frame: Frame, row: OpDef, args: tuple[Any, ...]) -> Value:
    """A row on operands of one float type; integers convert to f32."""
    values = common(frame, args, row.name)
    if not element_of(values[0].type).is_float:
        values = [frame.tracer.cast(v, with_element(v.type, f32)) for v in values]
    return frame.tracer.mark_arithmetic(frame.tracer.b.emit(row, *values), row, *args)


def common(frame: Frame, args: tuple[Any, ...], name: str) -> list[Value]:
    """All operands in their common type."""
    for a in args:
        if not (isinstance(a, Value) or is_number(a) or hasattr(a, "item")):
            raise frame.tracer.error(
                "E201",
                operator=name,
                types=describe(a),
                suggestion="index the tensor first, as in x[i]",
            )
    tracer = frame.tracer
    if len(args) == 1:
        return [tracer.value(args[0])]
    first = next((a for a in args if tracer.literal_of(a) is None), args[0])
    merged: Any = first
    for a in args:
        if a is not first:
            merged = tracer.unify(merged, a, name)[0]
    t = tracer.value(merged).type
    return [tracer.implicit(a, t) for a in args]  # type: ignore[arg-type]


_NUMPY_NAMES = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "atan2": "arctan2",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "pow": "power",
}
"""What NumPy calls some of the elementary functions."""


def _bind_elementwise(row: OpDef) -> None:
    """Bind the row to the stub of its name, and to `math`'s and NumPy's functions."""
    stub, twin = lang.BUILTINS[row.name], getattr(math, row.name, None)
    twins = () if twin is None else (twin,)
    intrinsic(stub, *twins, numpy=(_NUMPY_NAMES.get(row.name, row.name),))(_elementwise(row, stub))


for _row in ops.TABLE.values():
    if _row.name in lang.BUILTINS and (
        _row.ulp
        or _row in (ops.SQRT, ops.FLOOR, ops.CEIL, ops.TRUNC, ops.RINT, ops.FMA, ops.COPYSIGN)
    ):
        _bind_elementwise(_row)


def _integer(row: OpDef, stub: Any) -> Handler:
    def handler(frame: Frame, *args: Any) -> Value:
        _check_count(frame, row, stub, args)
        values = common(frame, args, row.name)
        if not element_of(values[0].type).is_integer:
            raise frame.tracer.error(
                "E201",
                operator=row.name,
                types=spell(values[0].type),
                suggestion="it takes integers",
            )
        if values[1:]:
            check_operands(frame.tracer, row, *values)
        return frame.tracer.b.emit(row, *values)

    return handler


for _row in (ops.DIV_TRUNC, ops.REM_TRUNC, ops.MUL_HI, ops.POPCOUNT, ops.CLZ, ops.CTZ):
    intrinsic(lang.BUILTINS[_row.name])(_integer(_row, lang.BUILTINS[_row.name]))


@intrinsic(builtins.abs, math.fabs, numpy=("absolute", "fabs"))
def _abs(frame: Frame, a: Any) -> Any:
    found = apply_method(frame, node_here(frame), a, "__abs__")
    if found is not NotImplemented:
        return found
    if is_comptime(a):
        return abs(a)
    folded = frame.tracer.fold_literals(abs, a)
    if folded is not None:
        return folded
    result = frame.tracer.b.emit(ops.ABS, frame.tracer.value(a))
    return frame.tracer.mark_arithmetic(result, ops.ABS, a)


def _extremum(
    frame: Frame, row: OpDef, python: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    if len(args) == 1 and isinstance(args[0], Unroll):
        args = (args[0].items,)
    if options and is_comptime(args) and is_comptime(options):
        return comptime_result(frame, python, *args, **options)
    is_one = len(args) == 1
    for option in options.keys() - ({"default", "key"} if is_one else {"key"}):
        reason = f"got an unexpected keyword argument '{option}'"
        signature = f"{python.__name__}({'items, *, default' if is_one else 'a, b, *'}, key)"
        raise frame.tracer.error("E106", name=python.__name__, reason=reason, signature=signature)
    is_empty = is_sequence(args[0]) and not args[0] if is_one else not args
    if not options and not is_empty and is_comptime(args):
        return python(*args)
    if is_one and (is_lazy(args[0]) or "key" in options):
        return most(frame, python, args[0], **options)
    if "key" in options:
        return most(frame, python, args, **options)
    if "default" in options:
        args = (items_of_call(frame, args[0], python.__name__),)
        if args == ((),):
            return options["default"]
    if is_empty or (is_one and not is_sequence(args[0])):
        what, given = f"{python.__name__}()", describe(args[0]) if args else "nothing"
        raise frame.tracer.error(
            "E207", what=what, expected="two values or more, or a sequence of them", given=given
        )
    result, *rest = args[0] if len(args) == 1 else args
    for place, a in enumerate(rest):
        if any(isinstance(v, Record) or is_sequence(v) for v in (result, a)):
            result = _first_or_second(frame, row, result, a, place)
            continue
        folded = frame.tracer.fold_literals(python, result, a)
        result = _lesser_or_greater(frame, row, result, a) if folded is None else folded
    return result


def _first_or_second(frame: Frame, row: OpDef, a: Any, b: Any, place: int) -> Any:
    """Of two objects or tuples the first, unless they say that the second is less, or greater."""
    node = node_here(frame)
    test = apply_comparison(frame, node, ast.Lt if row is ops.MIN else ast.Gt, b, a)
    if is_comptime(test):
        return b if test else a
    key = frame.key(node, f"extremum of item {place}")
    return choose(frame, key, frame.tracer.truth(test), ([], b), ([], a))


def _lesser_or_greater(frame: Frame, row: OpDef, a: Any, b: Any) -> Value:
    x, y = common(frame, (a, b), row.name)
    if element_of(x.type) is bool_:
        return frame.tracer.b.emit(ops.AND if row is ops.MIN else ops.OR, x, y)
    return frame.tracer.mark_arithmetic(frame.tracer.b.emit(row, x, y), row, a, b)


@intrinsic(lang.minimum, builtins.min, numpy=("minimum",))
def minimum(frame: Frame, *args: Any, **options: Any) -> Any:
    """`min` of several values or of one tuple; NaN propagates."""
    return _extremum(frame, ops.MIN, min, args, options)


@intrinsic(lang.maximum, builtins.max, numpy=("maximum",))
def maximum(frame: Frame, *args: Any, **options: Any) -> Any:
    """`max` of several values or of one tuple; NaN propagates."""
    return _extremum(frame, ops.MAX, max, args, options)


@intrinsic(builtins.pow)
def _power(frame: Frame, base: Any, exp: Any, mod: Any = None) -> Any:
    if is_comptime((base, exp, mod)):
        return comptime_result(frame, pow, base, exp, mod)
    if mod is not None:
        hint = "multiply in a loop over the bits of the exponent, with % mod in each step"
        raise frame.tracer.error("E112", what="what pow() of three numbers takes", hint=hint)
    return power(frame, base, exp)


@intrinsic(builtins.divmod, numpy=("divmod",))
def _divmod(frame: Frame, a: Any, b: Any) -> Any:
    if is_comptime(a) and is_comptime(b):
        return divmod(a, b)
    x, y = common(frame, (a, b), "divmod")
    check_operands(frame.tracer, ops.FLOORDIV, x, y)
    return frame.tracer.b.emit(ops.FLOORDIV, x, y), frame.tracer.b.emit(ops.MOD, x, y)


@intrinsic(lang.isnan, math.isnan, numpy=("isnan",))
def _isnan(frame: Frame, a: Any) -> Any:
    if is_comptime(a):
        return math.isnan(a)
    v = frame.tracer.value(a)
    return frame.tracer.b.emit(ops.NE, v, v)


@intrinsic(lang.where, numpy=("where",))
def _where(frame: Frame, mask: Any, a: Any, b: Any) -> Any:
    if is_comptime(mask):
        return a if mask else b
    return select(frame, frame.tracer.value(mask), a, b)


@intrinsic(builtins.int)
def _int(frame: Frame, a: Any = 0) -> Any:
    if is_comptime(a):
        return int(a)
    v = frame.tracer.value(a)
    kept = element_of(v.type).is_integer
    return v if kept else frame.tracer.cast(v, with_element(v.type, i64))


@intrinsic(builtins.float)
def _float(frame: Frame, a: Any = 0.0) -> Any:
    if is_comptime(a):
        return float(a)
    v = frame.tracer.value(a)
    return v if element_of(v.type).is_float else frame.tracer.cast(v, with_element(v.type, f32))


@intrinsic(builtins.bool)
def _bool(frame: Frame, a: Any = False) -> Any:
    a = deciding(frame, node_here(frame), a)
    return bool(a) if is_comptime(a) else frame.tracer.truth(a)


# Objects and classes


@intrinsic(builtins.isinstance)
def _isinstance(frame: Frame, x: Any, cls: Any) -> bool:
    """Python's; a record is an instance of its class, and a runtime number, or a line of them, of
    `bool`, `int` or `float`, as a literal of its kind would be."""
    kind = x.cls if isinstance(x, Record) else _class_of_number(x)
    may_name_arrays = is_comptime(x) or isinstance(x, Record)
    if not _is_class(cls) or (not may_name_arrays and _names_arrays(cls)):
        expected, hint = "a class of Python or yours", "compare types, as in v.dtype == cp.f32"
        raise frame.tracer.error(
            "E207", what="isinstance()", expected=expected, given=describe(cls), hint=hint
        )
    if kind is None:
        return isinstance(x, cls)
    return issubclass(kind, cls) or (typed_scalar(x) is not None and isinstance(x, cls))


def _class_of_number(x: Any) -> type | None:
    """Python's class for numbers of the dtype of a runtime number or line, or of one of NumPy's,
    else None."""
    typed = typed_scalar(x)
    if typed is None and (not isinstance(x, Value) or not isinstance(x.type, DType | Line)):
        return None
    dtype = element_of(x.type) if typed is None else typed[0]
    return bool if dtype is bool_ else float if dtype.is_float else int


def _is_class(cls: Any) -> bool:
    """Whether `isinstance` takes it: a class, or some of them."""
    try:
        isinstance(None, cls)
    except TypeError:
        return False
    return True


def _names_arrays(cls: Any) -> bool:
    """Whether a class, or one in a tuple or union, is of NumPy or CubePy: the compiler has classes
    of its own for what these are to users."""
    classes: Any = get_args(cls) if get_origin(cls) in (Union, UnionType) else cls
    if is_tuple(classes):
        return any(map(_names_arrays, classes))
    return getattr(cls, "__module__", "").partition(".")[0] in ("numpy", "cubepy")


@intrinsic(builtins.getattr)
def _getattr(frame: Frame, owner: Any, name: Any, *default: Any) -> Any:
    if not isinstance(name, str):
        raise frame.tracer.error("E207", what="getattr()", expected="a name", given=describe(name))
    try:
        return attribute(frame, owner, name)
    except Error as error:
        if error.code != "E107" or not default:
            raise
        note_absent(frame, owner, name)
        return default[0]


@intrinsic(builtins.hasattr)
def _hasattr(frame: Frame, owner: Any, name: Any) -> bool:
    missing = object()
    return _getattr(frame, owner, name, missing) is not missing


@intrinsic(builtins.type)
def _type(frame: Frame, x: Any) -> Any:
    """Python's, of what has a class in kernels."""
    if isinstance(x, Record):
        return x.cls
    if is_comptime(x) or is_sequence(x) or is_dict(x):
        return type_of(x)
    hint = "compare the dtype, as in v.dtype == cp.f32" if isinstance(x, Value) else None
    raise frame.tracer.error(
        "E207", what="type()", expected="an object or a tuple", given=describe(x), hint=hint
    )


@intrinsic(dataclasses.replace)
def _replace(frame: Frame, x: Any, /, **changes: Any) -> Any:
    """Python's: an instance made anew, of the fields of `x` and of those given."""
    record = as_record(x)
    if record is None:
        raise frame.tracer.error(
            "E207", what="replace()", expected="an instance of a dataclass", given=describe(x)
        )
    if is_comptime((x, changes)):
        return dataclasses.replace(x, **changes)
    fields = dataclasses.fields(record.cls)
    fixed = next((f.name for f in fields if f.name in changes and not f.init), None)
    if fixed is not None:
        reason = f"`{fixed}` is a field that its initialiser sets"
        signature = f"replace({describe(x)}, field=value)"
        raise frame.tracer.error("E106", name="replace", reason=reason, signature=signature)
    values = {f.name: record.values[f.name] for f in fields if f.init}
    return call(frame, node_here(frame), record.cls, [], values | changes)


@intrinsic(builtins.super)
def _super(frame: Frame, *args: Any) -> None:
    suggestion = "name the class, as in Base.method(self)"
    raise frame.tracer.error("E108", name="`super`", suggestion=suggestion)


# Comptime tools


@intrinsic(lang.comptime)
def _comptime(frame: Frame, value: Any) -> Any:
    if not is_comptime(value):
        raise frame.tracer.error("E112", what="the argument of cp.comptime()")
    return value


@intrinsic(lang.static_assert)
def _static_assert(frame: Frame, condition: Any, message: Any = "the condition is false") -> None:
    if not is_comptime(condition):
        hint = "use `assert`, which checked mode tests at run time"
        raise frame.tracer.error("E112", what="the condition of cp.static_assert()", hint=hint)
    if not condition:
        raise frame.tracer.error("E114", message=message)


@intrinsic(lang.target)
def _target(frame: Frame) -> Any:
    return frame.tracer.target


@intrinsic(lang_metal.multiply_accumulate)
def _metal_multiply_accumulate(frame: Frame, a: Value, b: Value, c: Value) -> Value:
    return frame.tracer.b.emit(metal.MULTIPLY_ACCUMULATE, a, b, c)


# Lines


@intrinsic(lang.concat)
def _concat(frame: Frame, a: Any, b: Any) -> Value:
    """All lanes of `a`, then those of `b`; the IR shuffles lines of one width."""
    x, y = frame.tracer.value(a), frame.tracer.value(b)
    kinds = x.type, y.type
    if not isinstance(x.type, Line) or not isinstance(y.type, Line):
        raise frame.tracer.error("E208", left=spell(kinds[0]), right=spell(kinds[1]))
    if x.type.element != y.type.element:
        raise frame.tracer.error("E208", left=spell(kinds[0]), right=spell(kinds[1]))
    left, right, width = x.type.width, y.type.width, max(x.type.width, y.type.width)
    x, y = (_widened(frame, v, width) for v in (x, y))
    lanes = (*range(left), *range(width, width + right))
    return frame.tracer.b.emit(ops.SHUFFLE, x, y, lanes=lanes)


@intrinsic(lang.dot)
def _dot(frame: Frame, a: Any, b: Any, c: Any) -> Value:
    values = [frame.tracer.value(x) for x in (a, b)]
    sums = frame.tracer.value(c)
    try:
        ops.DOT.rule([v.type for v in (*values, sums)], {})
    except TypingError as error:
        given = ", ".join(spell(v.type) for v in (*values, sums))
        raise frame.tracer.error(
            "E207", what="cp.dot", expected=f"a row that {error}", given=given
        ) from None
    return frame.tracer.b.emit(ops.DOT, *values, sums)


def _widened(frame: Frame, v: Value, width: int) -> Value:
    """A line with lanes behind its own that nobody reads."""
    assert isinstance(v.type, Line)
    if v.type.width == width:
        return v
    lanes = tuple(min(k, v.type.width - 1) for k in range(width))
    return frame.tracer.b.emit(ops.SHUFFLE, v, v, lanes=lanes)
