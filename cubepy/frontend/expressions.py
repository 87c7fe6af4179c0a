"""Evaluation of expressions: comptime parts in Python, the rest as operations.

One handler for each kind of AST node, in the table at the end.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from cubepy.errors import Error
from cubepy.frontend import suggest
from cubepy.frontend.attributes import attribute, refuse_array
from cubepy.frontend.calls import call, capture
from cubepy.frontend.checks import check_index
from cubepy.frontend.cooperation import Formatted, escape_braces
from cubepy.frontend.overloads import apply_binary, apply_comparison, apply_unary
from cubepy.frontend.tensors import load_item
from cubepy.frontend.tracer import Frame, lookup_local
from cubepy.frontend.values import (
    FlatRef,
    LocalFunction,
    TensorRef,
    is_comptime,
    is_dict,
    is_number,
    is_sequence,
)
from cubepy.frontend.wording import describe, spell
from cubepy.ir import ops
from cubepy.ir.core import Op, Value
from cubepy.ir.types import Line, bool_
from cubepy.lang.function import Source

Handler = Callable[[Frame, Any], Any]


def evaluate(frame: Frame, node: ast.expr) -> Any:
    """The value of an expression: a Python object if comptime, else a runtime value."""
    handler = HANDLERS.get(type(node))
    builder = frame.tracer.b
    outer, builder.span = builder.span, frame.span(node)
    try:
        if handler is None:
            raise suggest.unsupported(frame, node)
        return handler(frame, node)
    finally:
        builder.span = outer


def _at(frame: Frame, node: ast.AST) -> None:
    frame.tracer.b.span = frame.span(node)


def comptime_result(frame: Frame, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of ordinary Python on comptime values; its exceptions become E113."""
    try:
        return function(*args, **kwargs)
    except Error:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise frame.tracer.error("E113", error=text) from None


def _constant(frame: Frame, node: ast.Constant) -> Any:
    return node.value


def _name(frame: Frame, node: ast.Name) -> Any:
    current: Frame | None = frame
    owner = frame
    while current is not None:
        if node.id in current.env:
            return lookup_local(current, node.id)
        owner, current = current, current.parent
    return _captured(frame, owner, node.id)


def _captured(frame: Frame, owner: Frame, name: str) -> Any:
    captures = owner.captures
    try:
        if captures is None:
            raise KeyError(name)
        value = captures.lookup(name)
    except KeyError:
        if name in frame.assigned.mutable or name in frame.slots or _is_local(frame, name):
            raise frame.tracer.error("E103", name=name) from None
        raise suggest.undefined(frame, owner, name) from None
    frame.tracer.facts.captures[(id(captures.function), name)] = (captures, name, value)
    return capture(frame, name, value)


def _is_local(frame: Frame, name: str) -> bool:
    code = frame.captures.function.__code__ if frame.captures else None
    return code is not None and name in (*code.co_varnames, *code.co_cellvars)


def _attribute(frame: Frame, node: ast.Attribute) -> Any:
    owner = evaluate(frame, node.value)
    return attribute(frame, owner, node.attr)


def _subscript(frame: Frame, node: ast.Subscript) -> Any:
    owner = evaluate(frame, node.value)
    item = evaluate(frame, node.slice)
    _at(frame, node)
    if isinstance(owner, TensorRef | FlatRef):
        return load_item(frame.tracer, owner, item)
    if isinstance(owner, Value):
        return _lane(frame, owner, item, ast.unparse(node.value))
    if not isinstance(owner, tuple | list) and not is_comptime(owner):
        raise frame.tracer.error(
            "E301",
            name=ast.unparse(node.value),
            type=describe(owner),
            suggestion="only tensors, lines and tuples have items",
        )
    if not is_comptime(item):
        hint = "unroll the loop, as in `for k in cp.unroll(range(n))`, or use cp.local(n, dtype)"
        raise frame.tracer.error("E112", what="the index of a tuple", hint=hint)
    found = comptime_result(frame, operator.getitem, owner, item)
    return refuse_array(frame, ast.unparse(node), found)


def _lane(frame: Frame, line: Value, item: Any, name: str) -> Value:
    if not isinstance(line.type, Line):
        raise frame.tracer.error(
            "E301",
            name=name,
            type=describe(line),
            suggestion="a number has no items",
        )
    b, width = frame.tracer.b, line.type.width
    if isinstance(item, slice):
        lanes = comptime_result(frame, lambda: tuple(range(width))[item])
        return b.emit(ops.SHUFFLE, line, line, lanes=lanes)
    if is_number(item):
        if not 0 <= item < width:
            raise frame.tracer.error("E209", lane=item, width=width)
        return b.emit(ops.EXTRACT, line, lane=int(item))
    lane = frame.tracer.index(item)
    check_index(frame.tracer, lane, line.type.width, "line", 0)
    return b.emit(ops.EXTRACT, line, frame.tracer.index_value(lane))


def _slice(frame: Frame, node: ast.Slice) -> slice:
    parts = [None if p is None else evaluate(frame, p) for p in (node.lower, node.upper, node.step)]
    return slice(*parts)


def _tuple(frame: Frame, node: ast.Tuple | ast.List) -> Any:
    items: list[Any] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            items += _starred(frame, element)
        else:
            items.append(evaluate(frame, element))
    return tuple(items)


def _binary(frame: Frame, node: ast.BinOp) -> Any:
    a, b = evaluate(frame, node.left), evaluate(frame, node.right)
    _at(frame, node)
    return apply_binary(frame, node, type(node.op), a, b)


def _unary(frame: Frame, node: ast.UnaryOp) -> Any:
    a = evaluate(frame, node.operand)
    _at(frame, node)
    return apply_unary(frame, node, type(node.op), a)


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


def _bool_op(frame: Frame, node: ast.BoolOp) -> Any:
    is_and = isinstance(node.op, ast.And)
    result = evaluate(frame, node.values[0])
    for following in node.values[1:]:
        if is_comptime(result):
            if bool(result) != is_and:
                return result
            result = evaluate(frame, following)
        else:
            rest = partial(evaluate, frame, following)
            result = short_circuit(frame, result, rest, is_and)
    return result


def short_circuit(frame: Frame, left: Any, rest: Callable[[], Any], is_and: bool) -> Any:
    """`left and rest()` or `left or rest()`; `rest` runs only where it decides."""
    tracer = frame.tracer
    condition = _decided(frame, left)
    body, right = _in_region(frame, lambda: _decided(frame, rest()))
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


def _in_region(frame: Frame, action: Callable[[], Any]) -> tuple[list[Op], Any]:
    frame.depth += 1
    try:
        with frame.tracer.b.region() as body:
            result = action()
    finally:
        frame.depth -= 1
    return body, result


def _is_pure(body: list[Op]) -> bool:
    """Whether all of it may run where the condition is false; lanes must exist to be read."""
    return all(
        (op.row.is_pure and not (op.row is ops.EXTRACT and "lane" not in op.attrs))
        or op.row is ops.GET
        for op in body
    )


def _conditional(frame: Frame, node: ast.IfExp) -> Any:
    test = evaluate(frame, node.test)
    if is_comptime(test):
        return evaluate(frame, node.body if test else node.orelse)
    tracer = frame.tracer
    if isinstance(test, Value) and isinstance(test.type, Line):
        a, b = evaluate(frame, node.body), evaluate(frame, node.orelse)
        return select(frame, test, a, b)
    condition = tracer.truth(test)
    then, a = _in_region(frame, lambda: evaluate(frame, node.body))
    otherwise, b = _in_region(frame, lambda: evaluate(frame, node.orelse))
    if _is_pure(then) and _is_pure(otherwise) and _is_numeric(a) and _is_numeric(b):
        tracer.b.ops.extend([*then, *otherwise])
        return select(frame, condition, a, b)
    return _branching_conditional(frame, node, condition, (then, a), (otherwise, b))


def _is_numeric(x: Any) -> bool:
    return isinstance(x, Value) or is_number(x)


def _branching_conditional(frame: Frame, node: ast.IfExp, condition: Value, *arms: Any) -> Any:
    """Both arms assign one hidden local, in regions of an `if`."""
    tracer, key, slot = frame.tracer, frame.key(node, "ternary"), None
    regions: list[list[Op]] = []
    frame.depth += 1
    for body, value in arms:
        with tracer.b.region() as region:
            tracer.b.ops.extend(body)
            slot = tracer.assign(slot, value, key, "either", frame.depth)
            tracer.close(ops.YIELD)
        regions.append(region)
    frame.depth -= 1
    tracer.if_(condition, *regions)
    return tracer.read(slot)


def select(frame: Frame, mask: Value, a: Any, b: Any) -> Value:
    """`a` where the mask (a scalar or a line of bools) is true, else `b`."""
    tracer = frame.tracer
    if is_number(a) and is_number(b):
        a = tracer.value(a, tracer.value(b).type)  # type: ignore[arg-type]
    x, y = tracer.unify(a, b, "where")
    if isinstance(mask.type, Line) and not isinstance(x.type, Line):
        lanes = mask.type.width
        x = tracer.b.emit(ops.SPLAT, x, lanes=lanes)
        y = tracer.b.emit(ops.SPLAT, y, lanes=lanes)
    condition = mask if isinstance(mask.type, Line) else tracer.truth(mask)
    return tracer.mark_literal(tracer.b.emit(ops.SELECT, condition, x, y), a, b)


def _call(frame: Frame, node: ast.Call) -> Any:
    function = evaluate(frame, node.func)
    args: list[Any] = []
    for a in node.args:
        if isinstance(a, ast.Starred):
            args += _starred(frame, a)
        else:
            args.append(evaluate(frame, a))
    kwargs: dict[str, Any] = {}
    for k in node.keywords:
        more = {k.arg: evaluate(frame, k.value)} if k.arg else _double_starred(frame, k.value)
        for name in kwargs.keys() & more.keys():
            text = f"TypeError: the keyword argument `{name}` is given twice"
            raise frame.tracer.error("E113", error=text)
        kwargs |= more
    _at(frame, node)
    return call(frame, node, function, args, kwargs)


def _starred(frame: Frame, node: ast.Starred) -> list[Any]:
    """The items of `*sequence`, whose number must be known."""
    value = evaluate(frame, node.value)
    if isinstance(value, range) or is_sequence(value):
        return list(value)
    _at(frame, node)
    raise frame.tracer.error(
        "E207",
        what=f"`{ast.unparse(node)}`",
        expected="a tuple",
        given=describe(value),
        hint="the number of arguments must be known; loop over the elements",
    )


def _double_starred(frame: Frame, node: ast.expr) -> dict[str, Any]:
    """The items of `**mapping`, a comptime dict."""
    value = evaluate(frame, node)
    if is_dict(value):
        return value
    _at(frame, node)
    raise frame.tracer.error(
        "E207", what=f"`**{ast.unparse(node)}`", expected="a dict", given=describe(value)
    )


def _lambda(frame: Frame, node: ast.Lambda) -> LocalFunction:
    defaults = tuple(evaluate(frame, d) for d in node.args.defaults)
    source = Source(node, frame.source.file, "<lambda>", frame.source.column_offset)
    return LocalFunction(source, frame, defaults)


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


def _formatted(frame: Frame, node: ast.FormattedValue) -> Any:
    value = evaluate(frame, node.value)
    if isinstance(value, Value) and node.format_spec is None:
        return Formatted("{}", [value])
    if not is_comptime(value):
        hint = "print the value without a format, as in cp.print(value)"
        raise frame.tracer.error("E112", what="what an f-string formats", hint=hint)
    spec = evaluate(frame, node.format_spec) if node.format_spec else ""
    return comptime_result(frame, format, value, spec)


def _dict(frame: Frame, node: ast.Dict) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            made |= _double_starred(frame, value)
            continue
        name = evaluate(frame, key)
        if not is_comptime(name):
            _at(frame, key)
            hint = "compare with `if` and `elif`"
            raise frame.tracer.error("E112", what="the key of a dict", hint=hint)
        comptime_result(frame, made.__setitem__, name, evaluate(frame, value))
    return made


def _comprehension(frame: Frame, node: ast.ListComp | ast.GeneratorExp) -> tuple[Any, ...]:
    """Over comptime sequences only; gives a tuple."""
    items: list[Any] = []
    saved = dict(frame.env)
    _generate(frame, node, 0, items)
    frame.env = saved
    return tuple(items)


def _generate(
    frame: Frame, node: ast.ListComp | ast.GeneratorExp, level: int, out: list[Any]
) -> None:
    if level == len(node.generators):
        out.append(evaluate(frame, node.elt))
        return
    generator = node.generators[level]
    sequence = evaluate(frame, generator.iter)
    if not (isinstance(sequence, range) or is_sequence(sequence)):
        _at(frame, generator.iter)
        hint = "write a `for` loop that adds to a name or stores"
        raise frame.tracer.error("E112", what="what a comprehension runs over", hint=hint)
    outer = frame.unrolled
    for position, item in enumerate(sequence):
        _bind_item(frame, generator.target, item)
        frame.unrolled = (*outer, position)
        conditions = [evaluate(frame, c) for c in generator.ifs]
        if not all(is_comptime(c) for c in conditions):
            raise frame.tracer.error("E112", what="the condition of a comprehension")
        if all(conditions):
            _generate(frame, node, level + 1, out)
    frame.unrolled = outer


def _bind_item(frame: Frame, target: ast.expr, item: Any) -> None:
    if isinstance(target, ast.Name):
        frame.env[target.id] = item
        return
    names = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    if not is_sequence(item) or len(item) != len(names):
        raise frame.tracer.error("E112", what="what a comprehension unpacks")
    for part, value in zip(names, item, strict=True):
        _bind_item(frame, part, value)


HANDLERS: dict[type[ast.expr], Handler] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Tuple: _tuple,
    ast.List: _tuple,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.BoolOp: _bool_op,
    ast.IfExp: _conditional,
    ast.Call: _call,
    ast.Lambda: _lambda,
    ast.JoinedStr: _joined,
    ast.FormattedValue: _formatted,
    ast.Dict: _dict,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
}
