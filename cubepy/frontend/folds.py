"""`sum`, `any`, `all`, `min`, `max` and `math.prod`: of known items in a row, and of what has its
items at run time, generator expressions among them, as loops."""

from __future__ import annotations

import ast
import builtins
import functools
import math
import operator
from inspect import Signature
from typing import Any
from weakref import WeakKeyDictionary

from cubepy.errors import Error
from cubepy.frontend.attributes import node_here
from cubepy.frontend.calls import over_lanes, run_local
from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.iterables import is_lazy
from cubepy.frontend.overloads import apply_binary, apply_comparison, deciding
from cubepy.frontend.sequences import items_of_call
from cubepy.frontend.tracer import Frame
from cubepy.frontend.unpacking import items_of, limited
from cubepy.frontend.values import (
    UNSET,
    FlatRef,
    Generated,
    LocalFunction,
    TensorRef,
    Unroll,
    is_comptime,
    is_number,
    typed_scalar,
)
from cubepy.frontend.walrus import all_targets
from cubepy.frontend.wording import describe
from cubepy.ir import ops
from cubepy.ir.core import Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Line, element_of, i32
from cubepy.lang import builtins as lang
from cubepy.lang.arrays import is_numpy
from cubepy.lang.function import Source

LONG = 64
"""A range of more numbers becomes a loop in a fold, though its numbers are comptime."""

# Known items


@intrinsic(builtins.any)
def _any_of(frame: Frame, sequence: Any) -> Any:
    return _fold_truth(frame, sequence, ops.OR, builtins.any)


@intrinsic(builtins.all)
def _all_of(frame: Frame, sequence: Any) -> Any:
    return _fold_truth(frame, sequence, ops.AND, builtins.all)


def _fold_truth(frame: Frame, sequence: Any, row: OpDef, function: Any) -> Any:
    if isinstance(sequence, Value):
        return _of_lanes(frame, sequence, "any" if row is ops.OR else "all")
    if is_lazy(sequence):
        return fold(frame, function, sequence)
    node = node_here(frame)
    known = items_of_call(frame, sequence, function.__name__)
    items = [deciding(frame, node, item) for item in known]
    if all(is_comptime(i) for i in items):
        return any(items) if row is ops.OR else all(items)
    result = frame.tracer.truth(items[0])
    for item in items[1:]:
        result = frame.tracer.b.emit(row, result, frame.tracer.truth(item))
    return result


def _of_lanes(frame: Frame, mask: Value, name: str) -> Value:
    return over_lanes(frame.tracer, mask, name) if isinstance(mask.type, Line) else mask


@intrinsic(lang.any_)
def any_(frame: Frame, mask: Any) -> Any:
    """One bool for a mask; see `cp.any_`."""
    if is_comptime(mask):
        return bool(mask)
    if not isinstance(mask, Value):
        given = describe(mask)
        raise frame.tracer.error("E207", what="any_()", expected="a mask", given=given)
    return _of_lanes(frame, mask, "any")


@intrinsic(builtins.sum)
def _sum_of(frame: Frame, sequence: Any, /, start: Any = 0) -> Any:
    if is_lazy(sequence):
        return fold(frame, builtins.sum, sequence, start=start)
    items = items_of_call(frame, sequence, "sum")
    return _in_a_row(frame, builtins.sum, ast.Add, items, start)


@intrinsic(operator.contains)
def _contains(frame: Frame, sequence: Any, item: Any, /) -> Any:
    """Whether an item of a sequence equals another; of a tensor with several axes, an element."""
    if isinstance(sequence, TensorRef):
        sequence = sequence if sequence.rank == 1 else FlatRef(sequence)
    elif is_numpy(sequence) and not is_comptime(item):
        sequence = sequence.reshape(-1)
    elif not is_lazy(sequence):
        return apply_comparison(frame, node_here(frame), ast.In, item, sequence)
    return fold(frame, operator.contains, sequence, item=item)


_math: Any = math


@intrinsic(_math.prod)
def _prod(frame: Frame, sequence: Any, /, *, start: Any = 1) -> Any:
    """The product of a sequence."""
    if is_lazy(sequence):
        return fold(frame, math.prod, sequence, start=start)
    items = items_of_call(frame, sequence, "prod")
    return _in_a_row(frame, math.prod, ast.Mult, items, start)


def _in_a_row(frame: Frame, function: Any, kind: type[ast.operator], items: Any, start: Any) -> Any:
    if is_number(start) and any(map(_is_narrow, items)):  # a local has more bits than these
        return fold(frame, function, Unroll(tuple(items)), start=start)
    node = node_here(frame)
    return functools.reduce(lambda a, b: apply_binary(frame, node, kind, a, b), items, start)


def _is_narrow(item: Any) -> bool:
    """Whether it is a bool, or a number of less than 32 bits."""
    dtype = element_of(item.type) if isinstance(item, Value) else (typed_scalar(item) or (i32,))[0]
    return dtype.bits < 32


def most(
    frame: Frame, function: Any, sequence: Any, *, default: Any = UNSET, key: Any = None
) -> Any:
    """`min` or `max` of a sequence; of several items with the same key the first. Of no items it is
    `default`; without one 0, and a fault in checked mode."""
    sequence = _unrolled(frame, sequence)
    options = {} if key is None else {"key": key}
    is_given = default is not UNSET
    if is_given and not _is_number(default):
        what, given = f"the default of {function.__name__}()", describe(default)
        raise frame.tracer.error("E207", what=what, expected="a number", given=given)
    options |= {"default": default if is_given else 0, "is_given": is_given}
    return fold(frame, function, sequence, **options)


# Loops

_SUM = """
def fold(items, start):
    total = start
    for EACH in ALL:
        total = total + ITEM
    return total
"""
_ANY = """
def fold(items):
    for EACH in ALL:
        if ITEM:
            return True
    return False
"""
_ALL = """
def fold(items):
    for EACH in ALL:
        if not ITEM:
            return False
    return True
"""
_CONTAINS = """
def fold(items, item):
    for EACH in ALL:
        if ITEM == item:
            return True
    return False
"""
_MOST = """
def fold(items, default, is_given):
    found, best = False, default
    for EACH in ALL:
        item = NUMBER(ITEM)
        best = FUNCTION(best, item) if found else item
        found = True
    if not is_given:
        assert found, "a sequence without items has no least and no greatest"
    return best
"""
_MOST_BY_KEY = """
def fold(items, default, is_given, key):
    found, best, most = False, default, 0
    for EACH in ALL:
        item = NUMBER(ITEM)
        value = NUMBER(key(item))
        if not found or value > most:
            found, best, most = True, item, value
    if not is_given:
        assert found, "a sequence without items has no least and no greatest"
    return best
"""
_FOLDS: dict[Any, str] = {
    builtins.sum: _SUM,
    math.prod: _SUM.replace("+", "*"),
    builtins.any: _ANY,
    builtins.all: _ALL,
    builtins.max: _MOST,
    builtins.min: _MOST,
    operator.contains: _CONTAINS,
}
_STARTS = {".total": "start", ".best": "default"}
"""What the locals of templates that hold results begin with."""
_BY_KEY = {builtins.max: _MOST_BY_KEY, builtins.min: _MOST_BY_KEY.replace(">", "<")}


def is_fold(function: Any) -> bool:
    """Whether a function of one sequence can be a loop over a generator expression."""
    return any(function is known for known in _FOLDS)


def generated(frame: Frame, node: ast.GeneratorExp, first: Any) -> Generated:
    """A generator expression of which `is_loop` holds, and what its first `for` runs over."""
    names = all_targets(node)
    if names:
        frame.tracer.b.span = frame.span(node)
        what = f"what `{min(names)} :=` binds in a generator expression"
        raise frame.tracer.error("E112", what=what, hint="write a `for` loop")
    return Generated(node, _unrolled(frame, first))


def fold(frame: Frame, function: Any, sequence: Any, **options: Any) -> Any:
    """A function of what has its items at run time."""
    templates = _BY_KEY if "key" in options else _FOLDS
    if not isinstance(sequence, Generated):
        sequence = Generated(_items_themselves(node_here(frame)), sequence)
    of, generator = frame.source, sequence.node
    node = _function_of(function, templates[function], generator)
    source = Source(node, of.file, "<genexpr>", of.column_offset, of.has_walrus)
    given = {f".{name}": value for name, value in {"items": sequence.first, **options}.items()}
    try:
        return run_local(frame, generator, LocalFunction(source, frame.scope, Signature()), given)
    except Error as error:
        own = next((n for n in _STARTS if f"`{n}`" in str(error)), None)
        if error.code not in ("E206", "E211") or own is None:
            raise
        name = _STARTS[own]
        what, hint = (
            f"{function.__name__}() at run time",
            f"give a `{name}` of the type of the items",
        )
        expected, given = f"items like its {name}", f"others than {describe(options[name])}"
        raise frame.tracer.error(
            "E207", what=what, expected=expected, given=given, hint=hint
        ) from None


def _items_themselves(here: ast.AST) -> ast.GeneratorExp:
    """`(each for each in items)`"""
    target, item = ast.Name(".each", ast.Store()), ast.Name(".each", ast.Load())
    items = ast.Name(".items", ast.Load())
    generator = ast.GeneratorExp(item, [ast.comprehension(target, items, [], 0)])
    for node in (target, item, items, generator):
        ast.copy_location(node, here)
    return generator


def _unrolled(frame: Frame, sequence: Any) -> Any:
    """What has items, so that a loop over it is unrolled where they are comptime, and few."""
    if is_lazy(sequence) or (isinstance(sequence, range) and len(sequence) > LONG):
        return sequence
    items = items_of(sequence)
    return sequence if items is None else Unroll(limited(frame, items))


def _is_number(item: Any) -> bool:
    return isinstance(item, Value) or is_number(item) or typed_scalar(item) is not None


def _number(frame: Frame, item: Any) -> Any:
    """An item of which the least or greatest is asked for."""
    if _is_number(item):
        return item
    what = "min() or max() of a sequence of run time or with a `key`"
    hint = "look for the place, as in max(range(n), key=lambda k: a[k])"
    given = describe(item)
    raise frame.tracer.error("E207", what=what, expected="numbers", given=given, hint=hint)


_CALLED: dict[str, Any] = {"UNROLLED": _unrolled, "NUMBER": _number}
"""What templates call that no function of Python is."""
for _function in _CALLED.values():
    intrinsic(_function)(_function)


_made: WeakKeyDictionary[ast.AST, dict[tuple[str, str], ast.FunctionDef]] = WeakKeyDictionary()


def _function_of(function: Any, template: str, generator: ast.GeneratorExp) -> ast.FunctionDef:
    """A template with the loops, the conditions and the items of a generator expression."""
    known, key = _made.setdefault(generator, {}), (function.__name__, template)
    if key not in known:
        tree = ast.parse(template).body[0]
        for node in ast.walk(tree):
            ast.copy_location(node, generator)
        known[key] = _Filled(function, generator).visit(tree)
    return known[key]


class _Filled(ast.NodeTransformer):
    """Fills a template; its own names begin with a dot, so that no name of a user is one."""

    def __init__(self, function: Any, generator: ast.GeneratorExp) -> None:
        self.function, self.generator = function, generator

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "ITEM":
            return self.generator.elt
        constants = {"FUNCTION": self.function, **_CALLED}
        if node.id in constants:
            return ast.copy_location(ast.Constant(constants[node.id]), node)
        return ast.copy_location(ast.Name(f".{node.id}", node.ctx), node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(f".{node.arg}"), node)

    def visit_For(self, node: ast.For) -> ast.stmt:
        body: list[ast.stmt] = [self.visit(statement) for statement in node.body]
        for k, part in reversed(list(enumerate(self.generator.generators))):
            for condition in reversed(part.ifs):
                body = [ast.copy_location(ast.If(condition, body, []), condition)]
            body = [self._loop(part, body, is_first=k == 0)]
        return body[0]

    def _loop(self, part: ast.comprehension, body: list[ast.stmt], is_first: bool) -> ast.For:
        sequence: ast.expr = ast.Name(".items", ast.Load())
        if not is_first:
            sequence = ast.Call(ast.Constant(_CALLED["UNROLLED"]), [part.iter], [])
        for node in (sequence, getattr(sequence, "func", sequence)):
            ast.copy_location(node, part.iter)
        loop = ast.copy_location(ast.For(part.target, sequence, body, []), part.target)
        loop.end_lineno, loop.end_col_offset = part.iter.end_lineno, part.iter.end_col_offset
        return loop
