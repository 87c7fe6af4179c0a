"""Evaluation of expressions: comptime parts in Python, the rest as operations."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Generator
from functools import partial
from inspect import Parameter, Signature
from typing import Any, TypeVar

from cubepy.errors import Error
from cubepy.frontend import suggest
from cubepy.frontend.attributes import OF_NUMBERS, attribute
from cubepy.frontend.captured import capture, note, refuse_array
from cubepy.frontend.checks import check_index
from cubepy.frontend.cooperation import escape_braces, formatted
from cubepy.frontend.dispatch import evaluate, expression
from cubepy.frontend.joins import EITHER
from cubepy.frontend.literals import Choice
from cubepy.frontend.overloads import (
    apply_binary,
    apply_comparison,
    apply_method,
    apply_unary,
    deciding,
)
from cubepy.frontend.running import comptime_result
from cubepy.frontend.tables import look_up, table_of
from cubepy.frontend.tensors import load_item
from cubepy.frontend.tracer import Frame, Key, bind, left_behind, lookup_local, unset
from cubepy.frontend.type_variables import dtype_of
from cubepy.frontend.unpacking import items_of, limited
from cubepy.frontend.values import (
    UNSET,
    Conflict,
    FlatRef,
    Formatted,
    LocalFunction,
    Record,
    Table,
    TensorRef,
    Unset,
    as_items,
    is_comptime,
    is_dict,
    is_number,
    is_sequence,
    type_of,
)
from cubepy.frontend.walrus import certain_targets, targets_where_true
from cubepy.frontend.wording import describe, spell
from cubepy.ir import ops
from cubepy.ir.core import Op, Value
from cubepy.ir.opdef import is_speculatable
from cubepy.ir.types import Line, bool_, with_element
from cubepy.lang.function import Source


def _at(frame: Frame, node: ast.AST) -> None:
    frame.tracer.b.span = frame.span(node)


@expression(ast.Name)
def _name(frame: Frame, node: ast.Name) -> Any:
    current: Frame | None = frame
    owner = frame
    while current is not None:
        if node.id in current.env:
            return lookup_local(current, node.id)
        if node.id in current.assigned.names:
            raise unset(frame, node.id)
        owner, current = current, current.parent
    return _captured(frame, owner, node.id)


def _captured(frame: Frame, owner: Frame, name: str) -> Any:
    captures = owner.captures
    try:
        if captures is None:
            raise KeyError(name)
        value = captures.lookup(name)
    except KeyError:
        raise suggest.undefined(frame, owner, name) from None
    value = note(frame, captures.function, captures, name, value)
    return dtype_of(owner, value) if isinstance(value, TypeVar) else capture(frame, name, value)


@expression(ast.NamedExpr)
def _named(frame: Frame, node: ast.NamedExpr) -> Any:
    value = evaluate(frame, node.value)
    _at(frame, node)
    bind(frame, node.target.id, value)
    return value


def reveal(frame: Frame, names: frozenset[str]) -> None:
    """Bind names that a `:=` has assigned for certain here, though elsewhere it may not have."""
    for name in names & frame.hidden.keys():
        if isinstance(frame.env.get(name, UNSET), Unset | Conflict):
            frame.env[name] = frame.hidden[name]


@expression(ast.Attribute)
def _attribute(frame: Frame, node: ast.Attribute) -> Any:
    owner = evaluate(frame, node.value)
    return attribute(frame, owner, node.attr)


_PARTS = frozenset({Value, TensorRef, int, float, bool, type(None)})
"""Types of most items of tuples, which hold nothing that could change."""


@expression(ast.Subscript)
def _subscript(frame: Frame, node: ast.Subscript) -> Any:
    owner = evaluate(frame, node.value)
    item = evaluate(frame, node.slice)
    _at(frame, node)
    if isinstance(owner, (TensorRef, FlatRef)):
        return load_item(frame.tracer, owner, item)
    if isinstance(owner, Value):
        return _lane(frame, owner, item, node.value)
    if type_of(owner) is tuple and type(item) is int and -len(owner) <= item < len(owner):
        part = owner[item]
        if type(part) in _PARTS:
            return part
    found = apply_method(frame, node, owner, "__getitem__", item)
    if found is not NotImplemented:
        return found
    if not is_comptime(item) or isinstance(owner, Table):
        table = table_of(frame.tracer, owner, ast.unparse(node.value))
        if table is not None:
            return look_up(frame.tracer, table, item)
    known = is_comptime(item)
    if not isinstance(owner, (tuple, list, dict)) and not (
        is_comptime(owner) if known else hasattr(type_of(owner), "__getitem__")
    ):
        raise frame.tracer.error(
            "E301",
            name=ast.unparse(node.value),
            type=describe(owner),
            suggestion="only tensors, lines and tuples have items",
        )
    if not known:
        what, hint = next((w, h) for cls, w, h in _KNOWN_ALONE if isinstance(owner, cls))
        raise frame.tracer.error("E112", what=what, hint=hint)
    found = comptime_result(frame, operator.getitem, owner, item)
    return refuse_array(frame, node, found)


_USE_NUMBER = "pass an array, or leave the brackets out"
_UNROLL = (
    "its items are not all known: unroll the loop, as in `for k in cp.unroll(range(n))`, "
    "or use cp.local(n, dtype)"
)


_KNOWN_ALONE: tuple[tuple[type[Any], str, str], ...] = (
    (str, "the index of a text", "use bytes, as in b'abc', whose items are numbers"),
    (dict, "the key of a dictionary", "use a tuple of numbers, which takes an index at run time"),
    (object, "the index of a tuple", _UNROLL),
)


def _lane(frame: Frame, line: Value, item: Any, node: ast.expr) -> Value:
    if not isinstance(line.type, Line):
        raise frame.tracer.error(
            "E301",
            name=ast.unparse(node),
            type=describe(line),
            suggestion=f"a number has no items; {_USE_NUMBER if frame.is_kernel else OF_NUMBERS}",
        )
    b, width = frame.tracer.b, line.type.width
    if isinstance(item, slice):
        lanes = comptime_result(frame, lambda: tuple(range(width))[item])
        if not lanes:
            raise frame.tracer.error(
                "E207",
                what="a slice of a line",
                expected="at least one lane",
                given=f"none of the {width} lanes of `{ast.unparse(node)}`",
            )
        return b.emit(ops.SHUFFLE, line, line, lanes=lanes)
    chosen = as_items(item)
    if len(chosen) > 1:
        return _chosen_lanes(frame, line, chosen, width)
    if is_number(item):
        if not 0 <= item < width:
            raise frame.tracer.error("E209", lane=item, width=width)
        return b.emit(ops.EXTRACT, line, lane=int(item))
    lane = frame.tracer.index(item)
    check_index(frame.tracer, lane, line.type.width, "line", 0)
    return b.emit(ops.EXTRACT, line, frame.tracer.index_value(lane))


def _chosen_lanes(frame: Frame, line: Value, chosen: tuple[Any, ...], width: int) -> Value:
    if not all(map(is_number, chosen)):
        hint = "write numbers, or a slice"
        raise frame.tracer.error("E112", what="a choice of lanes", hint=hint)
    for lane in chosen:
        if not 0 <= lane < width:
            raise frame.tracer.error("E209", lane=lane, width=width)
    return frame.tracer.b.emit(ops.SHUFFLE, line, line, lanes=tuple(map(int, chosen)))


@expression(ast.Slice)
def _slice(frame: Frame, node: ast.Slice) -> slice:
    parts = [None if p is None else evaluate(frame, p) for p in (node.lower, node.upper, node.step)]
    return slice(*parts)


@expression(ast.Tuple, ast.List)
def _tuple(frame: Frame, node: ast.Tuple | ast.List) -> Any:
    items: list[Any] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            items += starred(frame, element)
        else:
            items.append(evaluate(frame, element))
    return tuple(items)


@expression(ast.BinOp)
def _binary(frame: Frame, node: ast.BinOp) -> Any:
    a, b = evaluate(frame, node.left), evaluate(frame, node.right)
    _at(frame, node)
    return apply_binary(frame, node, type(node.op), a, b)


@expression(ast.UnaryOp)
def _unary(frame: Frame, node: ast.UnaryOp) -> Any:
    a = (condition if isinstance(node.op, ast.Not) else evaluate)(frame, node.operand)
    _at(frame, node)
    return apply_unary(frame, node, type(node.op), a)


@expression(ast.Compare)
def _compare(frame: Frame, node: ast.Compare) -> Any:
    return _chain(frame, node, evaluate(frame, node.left), 0)


def _chain(frame: Frame, node: ast.Compare, left: Any, k: int) -> Any:
    """The k-th comparison of a chain and what follows, which a false one keeps from running."""
    right = evaluate(frame, node.comparators[k])
    _at(frame, node)
    part = apply_comparison(frame, node, type(node.ops[k]), left, right)
    if k + 1 == len(node.ops):
        return part
    if is_comptime(part):
        return _chain(frame, node, right, k + 1) if part else part
    return _guarded(frame, part, lambda: _chain(frame, node, right, k + 1))


def _guarded(frame: Frame, first: Value, rest: Callable[[], Any]) -> Any:
    """`first and rest()`; on lines both are evaluated."""
    if isinstance(first.type, Line):
        return _both(frame, first, rest())
    return short_circuit(frame, first, rest, True)


def _both(frame: Frame, a: Any, b: Any) -> Any:
    if is_comptime(a) and is_comptime(b):
        return a and b
    if is_comptime(a) or is_comptime(b):
        constant, other = (a, b) if is_comptime(a) else (b, a)
        return other if constant else False
    return frame.tracer.b.emit(ops.AND, *frame.tracer.unify(a, b, "and"))


@expression(ast.BoolOp)
def _bool_op(frame: Frame, node: ast.BoolOp) -> Any:
    """`and` and `or` give the operand that decides, as in Python, in the operands' common type."""
    is_and = isinstance(node.op, ast.And)
    result = evaluate(frame, node.values[0])
    for k in range(1, len(node.values)):
        rest = partial(_operand, frame, node, k, evaluate)
        decides = deciding(frame, node, result)
        if is_comptime(decides):
            if bool(decides) != is_and:
                return result
            result = rest()
        else:
            key = frame.key(node, "operand", k)
            result = _deciding(frame, key, (decides, result), rest, is_and)
    return result


def _operand(frame: Frame, node: ast.BoolOp, k: int, value: Callable[..., Any]) -> Any:
    """A later operand of `and` or `or`, which runs after those before it."""
    if frame.hidden:
        before = node.values[:k]
        find = targets_where_true if isinstance(node.op, ast.And) else certain_targets
        reveal(frame, frozenset[str]().union(*map(find, before)))
    return value(frame, node.values[k])


def _deciding(
    frame: Frame, key: Key, operand: tuple[Any, Any], rest: Callable[[], Any], is_and: bool
) -> Any:
    """`left and rest()` or `left or rest()`; `rest` runs only where it decides.

    The left operand comes with what decides for it.
    """
    decides, left = operand
    condition = _decided(frame, decides)
    body, right = _in_region(frame, rest)
    if _is_bool(left) and (isinstance(right, bool) or _is_bool(right)):
        return _either(frame, condition, body, frame.tracer.truth(right), is_and)
    kept, other = (list[Op](), left), (body, right)
    return choose(frame, key, condition, *((other, kept) if is_and else (kept, other)))


def _is_bool(x: Any) -> bool:
    return isinstance(x, Value) and x.type is bool_


def condition(frame: Frame, node: ast.expr) -> Any:
    """The value of an expression of which only the truth matters: for `if`, `while` and the like.

    Operands of `and` and `or` then need no common type.
    """
    if not isinstance(node, ast.BoolOp):
        return deciding(frame, node, evaluate(frame, node))
    is_and = isinstance(node.op, ast.And)
    result = condition(frame, node.values[0])
    for k in range(1, len(node.values)):
        rest = partial(_operand, frame, node, k, condition)
        if is_comptime(result):
            if bool(result) != is_and:
                return result
            result = rest()
        else:
            _at(frame, node)
            result = short_circuit(frame, result, rest, is_and)
    return result


def short_circuit(frame: Frame, left: Any, rest: Callable[[], Any], is_and: bool) -> Any:
    """The truth of `left and rest()` or `left or rest()`; `rest` runs only where it decides."""
    condition = _decided(frame, left)
    body, right = _in_region(frame, lambda: _decided(frame, rest()))
    return _either(frame, condition, body, right, is_and)


def _either(frame: Frame, condition: Value, body: list[Op], right: Value, is_and: bool) -> Value:
    """`condition and right` or `condition or right` of bools; `body` computes the right one."""
    tracer = frame.tracer
    if _is_pure(body):
        tracer.b.ops.extend(body)
        return tracer.b.emit(ops.AND if is_and else ops.OR, condition, right)
    slot = tracer.new_local(bool_, "both" if is_and else "either")
    tracer.set_number(slot, condition)
    with tracer.b.region() as then:
        tracer.b.ops.extend(body)
        tracer.set_number(slot, right)
        tracer.close(ops.YIELD)
    with tracer.b.region() as otherwise:
        tracer.close(ops.YIELD)
    tracer.if_(condition, *((then, otherwise) if is_and else (otherwise, then)))
    return tracer.read(slot)


def _decided(frame: Frame, value: Any) -> Value:
    """An operand of `and` or `or` as one bool."""
    if isinstance(value, Value) and isinstance(value.type, Line):
        hint = "combine masks with & and |, which work per lane"
        raise frame.tracer.error("E204", type=spell(value.type), hint=hint)
    return frame.tracer.truth(value)


_APART = 1000
"""Regions that an operand counts for, so that no local of a loop seems to be declared in it."""


def _in_region(frame: Frame, action: Callable[[], Any]) -> tuple[list[Op], Any]:
    """What an operand that may not run computes; names that it alone assigns are unset then."""
    before = frame.env
    frame.env = dict(before)
    frame.depth, frame.operands = frame.depth + _APART, frame.operands + 1
    try:
        with frame.tracer.b.region() as body:
            result = action()
            new = {n: v for n, v in frame.env.items() if before.get(n, UNSET) is not v}
            behind = {n: left_behind(frame, before.get(n, UNSET), v) for n, v in new.items()}
    finally:
        frame.depth, frame.operands = frame.depth - _APART, frame.operands - 1
    frame.hidden |= new
    frame.env = before | behind
    return body, result


def _is_pure(body: list[Op]) -> bool:
    """Whether all of it may run where the condition is false."""
    return all(is_speculatable(op) or op.row is ops.GET for op in body)


@expression(ast.IfExp)
def _conditional(frame: Frame, node: ast.IfExp) -> Any:
    test = condition(frame, node.test)
    if is_comptime(test):
        return evaluate(frame, node.body if test else node.orelse)
    tracer = frame.tracer
    if isinstance(test, Value) and isinstance(test.type, Line):
        mask = tracer.cast(test, with_element(test.type, bool_))
        a, b = evaluate(frame, node.body), evaluate(frame, node.orelse)
        return select(frame, mask, a, b)
    chosen = tracer.truth(test)
    then, a = _in_region(frame, partial(_where_true, frame, node))
    otherwise, b = _in_region(frame, lambda: evaluate(frame, node.orelse))
    return choose(frame, frame.key(node, "ternary"), chosen, (then, a), (otherwise, b))


def _where_true(frame: Frame, node: ast.IfExp) -> Any:
    reveal(frame, targets_where_true(node.test))
    return evaluate(frame, node.body)


def choose(
    frame: Frame,
    key: Key,
    condition: Value,
    then: tuple[list[Op], Any],
    otherwise: tuple[list[Op], Any],
) -> Any:
    """One of two values at run time; each comes with the operations that compute it."""
    (first, a), (second, b) = then, otherwise
    if _is_pure(first) and _is_pure(second) and _is_numeric(a) and _is_numeric(b):
        frame.tracer.b.ops.extend([*first, *second])
        return select(frame, condition, a, b)
    return _branching_conditional(frame, key, condition, then, otherwise)


def _is_numeric(x: Any) -> bool:
    return isinstance(x, Value) or is_number(x)


def _branching_conditional(frame: Frame, key: Key, condition: Value, *arms: Any) -> Any:
    """Both arms assign one hidden local, in regions of an `if`."""
    tracer, slot = frame.tracer, None
    key = (*key, EITHER)
    regions: list[list[Op]] = []
    frame.depth += 1
    for body, value in arms:
        with tracer.b.region() as region:
            tracer.b.ops.extend(body)
            try:
                slot = tracer.assign(slot, value, key, "either", frame.depth, True)
            except Error as error:
                if error.code != "E206":
                    raise
                raise _no_choice(frame, *(v for _, v in arms)) from None
            tracer.close(ops.YIELD)
        regions.append(region)
    frame.depth -= 1
    tracer.if_(condition, *regions)
    return tracer.read(slot)


def _no_choice(frame: Frame, first: Any, second: Any) -> Error:
    """E212 for two values of which no local holds either."""
    both, hint = (first, second), None
    if any(isinstance(v, Record) or is_sequence(v) for v in both):
        hint = "give both one form: tuples of as many items, or one class with fields"
    elif any(isinstance(v, LocalFunction) or (is_comptime(v) and not is_number(v)) for v in both):
        hint = "text, None and functions are comptime: choose between numbers"
    if all(isinstance(v, TensorRef) for v in both):
        hint = "a view moves within one tensor; put the accesses into the branches"
    return frame.tracer.error("E212", first=describe(first), second=describe(second), hint=hint)


def _one_of(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def select(frame: Frame, mask: Value, a: Any, b: Any) -> Value:
    """`a` where the mask (a scalar or a line of bools) is true, else `b`."""
    tracer = frame.tracer
    condition = mask if isinstance(mask.type, Line) else tracer.truth(mask)
    left, right = tracer.literal_of(a), tracer.literal_of(b)
    if left is not None and right is not None:
        folded = tracer.fold_literals(_one_of, mask, a, b)
        return tracer.literal_value(Choice(condition, left, right)) if folded is None else folded
    x, y = tracer.unify(a, b, "where")
    if isinstance(mask.type, Line) and not isinstance(x.type, Line):
        lanes = mask.type.width
        x = tracer.b.emit(ops.SPLAT, x, lanes=lanes)
        y = tracer.b.emit(ops.SPLAT, y, lanes=lanes)
    return tracer.b.emit(ops.SELECT, condition, x, y)


def starred(frame: Frame, node: ast.Starred) -> tuple[Any, ...]:
    """The items of `*sequence`, whose number must be known."""
    value = evaluate(frame, node.value)
    items = items_of(value)
    if items is not None:
        return limited(frame, items)
    _at(frame, node)
    raise frame.tracer.error(
        "E207",
        what=f"`{ast.unparse(node)}`",
        expected="a tuple",
        given=describe(value),
        hint="the number of arguments must be known; loop over the elements",
    )


def double_starred(frame: Frame, node: ast.expr) -> dict[str, Any]:
    """The items of `**mapping`, a comptime dict."""
    value = evaluate(frame, node)
    if is_dict(value):
        return value
    _at(frame, node)
    raise frame.tracer.error(
        "E207", what=f"`**{ast.unparse(node)}`", expected="a dict", given=describe(value)
    )


@expression(ast.Lambda)
def _lambda(frame: Frame, node: ast.Lambda) -> LocalFunction:
    return local_function(frame, node, "<lambda>")


def local_function(frame: Frame, node: ast.FunctionDef | ast.Lambda, name: str) -> LocalFunction:
    """A function defined in a kernel; defaults are evaluated now, as in Python."""
    of = frame.source
    source = Source(node, of.file, name, of.column_offset, of.has_walrus)
    return LocalFunction(source, frame.scope, Signature(list(_parameters(frame, node.args))))


def _parameters(frame: Frame, a: ast.arguments) -> Generator[Parameter]:
    positional = [*a.posonlyargs, *a.args]
    without = len(positional) - len(a.defaults)
    for k, arg in enumerate(positional):
        kind = (
            Parameter.POSITIONAL_ONLY if k < len(a.posonlyargs) else Parameter.POSITIONAL_OR_KEYWORD
        )
        default = Parameter.empty if k < without else evaluate(frame, a.defaults[k - without])
        yield Parameter(arg.arg, kind, default=default)
    if a.vararg is not None:
        yield Parameter(a.vararg.arg, Parameter.VAR_POSITIONAL)
    for arg, value in zip(a.kwonlyargs, a.kw_defaults, strict=True):
        default = Parameter.empty if value is None else evaluate(frame, value)
        yield Parameter(arg.arg, Parameter.KEYWORD_ONLY, default=default)
    if a.kwarg is not None:
        yield Parameter(a.kwarg.arg, Parameter.VAR_KEYWORD)


@expression(ast.JoinedStr)
def _joined(frame: Frame, node: ast.JoinedStr) -> Any:
    """An f-string: text if all parts are comptime, else a `Formatted` for print."""
    parts = [evaluate(frame, v) for v in node.values]
    if all(isinstance(p, str) for p in parts):
        return "".join(parts)
    texts: list[str] = []
    operands: list[Value] = []
    for part in parts:
        texts.append(escape_braces(part) if isinstance(part, str) else part.text)
        operands += [] if isinstance(part, str) else part.operands
    return Formatted("".join(texts), operands)


_CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}


@expression(ast.FormattedValue)
def _formatted(frame: Frame, node: ast.FormattedValue) -> Any:
    value = evaluate(frame, node.value)
    spec = evaluate(frame, node.format_spec) if node.format_spec else ""
    converted = _CONVERSIONS.get(node.conversion)
    if isinstance(value, Value) and isinstance(spec, str):
        if converted is not None and spec:
            hint = 'leave the conversion out, as in f"{v:>8}"'
            _at(frame, node.value)
            raise frame.tracer.error("E112", what="the text that an f-string formats", hint=hint)
        return formatted(frame, value, spec)
    if not is_comptime(value) or not is_comptime(spec):
        hint = "print the value without a format, as in cp.print(value)"
        _at(frame, node.value)  # Python 3.11 gives the place of the whole f-string for `node`
        raise frame.tracer.error("E112", what="what an f-string formats", hint=hint)
    if converted is not None:
        value = comptime_result(frame, converted, value)
    return comptime_result(frame, format, value, spec)


@expression(ast.Dict)
def _dict(frame: Frame, node: ast.Dict) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            made |= double_starred(frame, value)
            continue
        name = evaluate(frame, key)
        if not is_comptime(name):
            _at(frame, key)
            hint = "compare with `if` and `elif`"
            raise frame.tracer.error("E112", what="the key of a dict", hint=hint)
        comptime_result(frame, made.__setitem__, name, evaluate(frame, value))
    return made
