"""Calls: conversions, built-ins, methods, and functions of the user, which are inlined."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from inspect import BoundArguments, Signature
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeVar, cast

from cubepy.errors import Error
from cubepy.frontend import suggest
from cubepy.frontend.captured import note_code, note_method, note_partial
from cubepy.frontend.dispatch import Flow, Intrinsic, execute_block, intrinsic_of
from cubepy.frontend.running import comptime_result, failed, note_reads
from cubepy.frontend.suggest import closest
from cubepy.frontend.tensors import mask_of_lanes
from cubepy.frontend.tracer import Frame, Tracer, bind
from cubepy.frontend.values import (
    FlatRef,
    LocalFunction,
    Method,
    Record,
    TensorRef,
    is_comptime,
    is_dict,
    is_number,
    is_tuple_type,
    type_of,
)
from cubepy.frontend.wording import describe, spell
from cubepy.ir import ops
from cubepy.ir.core import Region, Value
from cubepy.ir.opdef import OpDef, TypingError
from cubepy.ir.types import (
    DType,
    Line,
    LineOf,
    bool_,
    element_of,
    find_dtype,
    i32,
    width_of,
    with_element,
)
from cubepy.lang.annotations import is_comptime_annotation, resolve_annotations
from cubepy.lang.builtins import BUILTINS, Position
from cubepy.lang.function import BoundFunction, Captures, CubeFunction, read_source, unwrap
from cubepy.lang.objects import is_fixed_class, is_generated
from cubepy.lang.postponed import signature_of

MAX_DEPTH = 128
_COMPREHENSIONS = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
LINE_METHODS: dict[str, OpDef] = {
    "sum": ops.REDUCE_ADD,
    "prod": ops.REDUCE_MUL,
    "min": ops.REDUCE_MIN,
    "max": ops.REDUCE_MAX,
    "any": ops.REDUCE_OR,
    "all": ops.REDUCE_AND,
}


def call(
    frame: Frame, node: ast.AST, function: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """The value of `function(*args, **kwargs)`."""
    if isinstance(function, Method):
        return _call_method(frame, node, function, args, kwargs)
    if isinstance(function, partial):
        note_partial(frame, cast("Any", function))
        function, args, kwargs = (
            function.func,
            [*function.args, *args],
            {**function.keywords, **kwargs},
        )
        return call(frame, node, function, args, kwargs)
    known = intrinsic_of(function)
    if known is not None:
        given = [*args, *kwargs.values()]
        note_reads(frame, *given)
        return _checked(frame, known, given, lambda: known.handler(frame, *args, **kwargs))
    number_type = function if isinstance(function, Line) else _as_dtype(function)
    if number_type is not None:
        return _convert(frame, number_type, args)
    if isinstance(function, LocalFunction):
        return _inline_local(frame, node, function, args, kwargs)
    if isinstance(function, BoundFunction):
        function, args = function.function, [function.owner, *args]
    _refuse_of_the_host(frame, function)
    if isinstance(function, MethodType) and unwrap(function.__func__) is not None:
        owner = (
            function.__self__ if isinstance(function.__self__, type) else type_of(function.__self__)
        )
        is_made = function.__func__.__module__ == "collections"
        if is_made and is_tuple_type(owner):  # NamedTuples' own move items alone
            return comptime_result(frame, function, *args, **kwargs)
        function, args = function.__func__, [function.__self__, *args]
    plain = unwrap(function)
    if plain is not None and _must_inline(function, plain, args, kwargs):
        return inline(frame, node, plain, args, kwargs)
    return _call_python(frame, node, function, args, kwargs)


def _checked(frame: Frame, known: Intrinsic, given: list[Any], action: Callable[[], Any]) -> Any:
    """Wrong arguments of a built-in are the user's error, not a Python traceback."""
    try:
        return action()
    except Error:
        raise
    except TypingError as error:
        types = " and ".join(spell(a.type) if isinstance(a, Value) else describe(a) for a in given)
        raise frame.tracer.error(
            "E201", operator=known.name, types=types, suggestion=f"it {error}"
        ) from None
    except (TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, TypeError) and _is_about_call(error):
            reason = str(error).split(") ", 1)[-1].replace("positional ", "")
            counts = re.fullmatch(r"takes (?:from \d+ to )?(\d+) arguments? but (\d+) .*", reason)
            if counts:  # the handler takes the frame too
                most, count = (int(n) - 1 for n in counts.groups())
                reason = f"it takes {most} argument{'s' if most != 1 else ''}, not {count}"
            signature = f"{known.name}{_signature_text(known.stub)}"
            raise frame.tracer.error(
                "E106", name=known.name, reason=reason, signature=signature
            ) from None
        if not all(is_comptime(a) for a in given):
            raise
        raise failed(frame, error, given) from None


def _is_about_call(error: TypeError) -> bool:
    """Whether a handler was called with wrong arguments: the error comes from no deeper frame."""
    entry = error.__traceback__
    return entry is not None and entry.tb_next is not None and entry.tb_next.tb_next is None


def _signature_text(function: Any) -> str:
    try:
        return _text_of(signature_of(function))
    except (TypeError, ValueError):
        return "(...)"


def _text_of(signature: Signature) -> str:
    text = str(signature).partition(" -> ")[0]
    return re.sub(r": '([^']*)'", r": \1", text.replace(": 'Any'", "").replace(": 'Comptime'", ""))


def _as_dtype(function: Any) -> DType | None:
    if isinstance(function, DType):
        return function
    if isinstance(function, type) and function.__module__ in ("numpy", "ml_dtypes"):
        return find_dtype(function)
    return None


def _is_line(x: Any) -> bool:
    return isinstance(x, Value) and isinstance(x.type, Line)


def _line_of(frame: Frame, t: Line, args: list[Any]) -> Value:
    """A line of its lanes."""
    lanes = [_convert(frame, t.element, [a]) for a in args]
    line = frame.tracer.b.emit(ops.SPLAT, lanes[0], lanes=t.width)
    for k in range(1, t.width):
        line = frame.tracer.b.emit(ops.INSERT, line, lanes[k], lane=k)
    return line


def _convert(frame: Frame, t: DType | Line, args: list[Any]) -> Any:
    tracer = frame.tracer
    if isinstance(t, Line) and len(args) == t.width > 1 and not any(map(_is_line, args)):
        return _line_of(frame, t, args)
    if len(args) != 1 or not (
        isinstance(args[0], Value) or is_number(args[0]) or hasattr(args[0], "item")
    ):
        given = ", ".join(describe(a) for a in args) or "nothing"
        is_tensor = any(isinstance(a, TensorRef | FlatRef) for a in args)
        hint = "index the tensor first, as in x[i]" if is_tensor else None
        raise tracer.error(
            "E207", what=f"cp.{spell(t)}", expected="one number", given=given, hint=hint
        )
    value = args[0]
    if isinstance(value, Value) and isinstance(t, DType) and isinstance(value.type, Line):
        return tracer.convert(value, Line[t, width_of(value.type)])
    return tracer.convert(value, t)


def _must_inline(function: Any, plain: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Cube functions always; plain ones where runtime values or kernel words are involved."""
    if isinstance(function, CubeFunction):
        return True
    if not all(is_comptime(a) for a in (*args, *kwargs.values())):
        return True
    return _mentions_language(plain)


def _mentions_language(function: Any) -> bool:
    captures = Captures(function)
    for name in _free_names(function.__code__):
        try:
            value = captures.lookup(name)
        except KeyError:
            continue
        if isinstance(value, CubeFunction | Position) or getattr(value, "__name__", "") == "cubepy":
            return True
        if hasattr(value, "__cubepy_builtin__"):
            return True
    return False


def _free_names(code: CodeType) -> Iterator[str]:
    """Names of a function, and of its comprehensions, that it does not assign."""
    yield from (*code.co_names, *code.co_freevars)
    for part in code.co_consts:
        if isinstance(part, CodeType) and part.co_name in _COMPREHENSIONS:
            yield from _free_names(part)


def _leads_to_language(function: Any) -> bool:
    """Whether a plain function calls others that mention kernel words, which Python cannot run."""
    todo, seen = [function], set[int]()
    while todo:
        current = todo.pop()
        if id(current) in seen or not hasattr(current, "__code__"):
            continue
        seen.add(id(current))
        if _mentions_language(current):
            return True
        captures = Captures(current)
        for name in _free_names(current.__code__):
            try:
                value = captures.lookup(name)
            except KeyError:
                continue
            todo += [value] if isinstance(value, FunctionType) else []
    return False


def _call_python(
    frame: Frame, node: ast.AST, function: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    if isinstance(function, type) and not all(is_comptime(a) for a in (*args, *kwargs.values())):
        return _construct(frame, node, function, args, kwargs)
    method = method_of(frame, function, "__call__")
    if method is not None:
        return call(frame, node, method, [function, *args], kwargs)
    if not callable(function):
        is_tensor = isinstance(function, TensorRef | FlatRef)
        suggestion = "index it with brackets, as in x[i]" if is_tensor else "it is not a function"
        if isinstance(function, TypeVar):
            suggestion = "annotate a parameter with it, which gives it a type"
        raise frame.tracer.error("E108", name=describe(function), suggestion=suggestion)
    is_get = getattr(function, "__name__", "") == "get" and is_dict(
        getattr(function, "__self__", 0)
    )
    if is_get and is_comptime(args[:1]) and not kwargs:
        return comptime_result(frame, function, *args, **kwargs)
    if not all(is_comptime(a) for a in (*args, *kwargs.values())):
        name = getattr(function, "__name__", type(function).__name__)
        has_tensors = any(isinstance(a, TensorRef) for a in args)
        known = suggest.of_whole_arrays(name) if has_tensors else ""
        known = known or closest(name, BUILTINS, "cp.", 0.8)
        suggestion = known or "it runs in Python only: call it outside the kernel"
        raise frame.tracer.error("E108", name=f"`{name}`", suggestion=suggestion)
    plain = unwrap(function)
    try:
        return comptime_result(frame, function, *args, **kwargs)
    except Error:
        if plain is None or not _leads_to_language(plain):
            raise
    return inline(frame, node, plain, args, kwargs)


_CHANCE = ("random", "secrets", "time")
_CLOCKS = ("datetime.now", "datetime.today", "datetime.utcnow")


_OF_CALLERS = globals, locals, eval, exec
"""What Python gives by whoever calls it, which is the compiler here."""


def _refuse_of_the_host(frame: Frame, function: Any) -> None:
    """E108 for prebuilt functions, and for clocks and random numbers, which would be constants."""
    name = getattr(function, "__name__", "")
    module = getattr(function, "__module__", None) or ""
    if any(function is known for known in _OF_CALLERS):
        suggestion = "it would see the names of the compiler: write the name that you mean"
        raise frame.tracer.error("E108", name=f"`{name}`", suggestion=suggestion)
    if isinstance(function, FunctionType):
        public = sys.modules.get("cubepy.kernels") if module.startswith("cubepy.kernels.") else None
        if public is not None and vars(public).get(name) is function:
            suggestion = "it launches kernels itself: call it outside the kernel"
            raise frame.tracer.error("E108", name=f"`cp.kernels.{name}`", suggestion=suggestion)
        return
    owner = getattr(function, "__self__", None)
    module = module or (owner if isinstance(owner, type) else type_of(owner)).__module__
    is_chance = module in _CHANCE or f"{module}.{name}" in _CLOCKS
    if is_chance or module.startswith("numpy.random"):
        suggestion = (
            "it would run once, when the kernel is compiled: pass its result as an argument, "
            "such as numbers of cp.kernels.random"
        )
        raise frame.tracer.error("E108", name=f"`{module}.{name}`", suggestion=suggestion)


_INSTEAD_OF_CLASSES: dict[type[Any], str] = {
    str: "text is comptime; print values as print(text, value), or in an f-string",
    partial: "write a lambda",
}


def _construct(
    frame: Frame, node: ast.AST, cls: type[Any], args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """A NamedTuple, or a dataclass as its generated `__init__` makes it."""
    if is_tuple_type(cls) and hasattr(cls, "_fields"):
        return cls(*_bind_arguments(frame, signature_of(cls), cls.__name__, args, kwargs).args)
    if not is_dataclass(cls) or not is_generated(getattr(cls, "__init__", None)):
        raise frame.tracer.error(
            "E108",
            name=f"`{cls.__name__}`",
            suggestion="kernels make dataclasses and NamedTuples, but run no `__init__` of the user"
            if is_dataclass(cls)
            else _INSTEAD_OF_CLASSES.get(
                cls, "dataclasses and NamedTuples can be made inside kernels"
            ),
        )
    signature = signature_of(cls)
    given = _bind_arguments(frame, signature, cls.__name__, args, kwargs).arguments
    values: dict[str, Any] = {}
    for field in fields(cls):
        value = given.pop(field.name, field.default)
        is_given = field.init and value is not signature.parameters[field.name].default
        if field.default_factory is not MISSING and not is_given:
            value = call(frame, node, field.default_factory, [], {})
        if value is not MISSING:
            values[field.name] = value
    record = Record(cls, values)
    prepare = getattr(cls, "__post_init__", None)
    if prepare is not None:  # what is left are arguments for it alone
        inline(frame, node, prepare, [record, *given.values()], {})
    return record


def _call_method(
    frame: Frame, node: ast.AST, method: Method, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    if isinstance(method.owner, Record):
        function = getattr(method.owner.cls, method.name)
        return inline(frame, node, unwrap(function), [method.owner, *args], kwargs)
    if isinstance(method.owner, TensorRef):
        return mask_of_lanes(frame.tracer, method.owner, args[0] if len(args) == 1 else tuple(args))
    if args or kwargs:
        reason, text = "it takes no arguments: it is of all lanes", f"{method.name}()"
        raise frame.tracer.error("E106", name=method.name, reason=reason, signature=text)
    return over_lanes(frame.tracer, method.owner, method.name)


def over_lanes(tracer: Tracer, line: Value, name: str) -> Value:
    """The lanes of a line combined. `any` and `all` are of their truth; bools are counted by `sum`,
    as `prod` multiplies them as integers, and the least and the greatest of them are bools."""
    is_mask = element_of(line.type) is bool_
    if name in ("any", "all") and not is_mask:
        line = tracer.cast(line, with_element(line.type, bool_))
    elif is_mask and name in ("sum", "prod"):
        line = tracer.cast(line, with_element(line.type, i32))
    elif is_mask:
        name = {"min": "all", "max": "any"}.get(name, name)
    return tracer.b.emit(LINE_METHODS[name], line)


def method_of(frame: Frame, owner: Any, name: str) -> FunctionType | None:
    """The method of that name that the user defined in the class of `owner`; it is noted."""
    cls = owner.cls if isinstance(owner, Record) else type_of(owner)
    if is_fixed_class(cls):
        return None
    function = unwrap(inspect.getattr_static(cls, name, None))
    if function is None or is_generated(function):
        return None
    note_method(frame, cls, name)
    return function


# Inlining


def inline(
    frame: Frame, node: ast.AST, function: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Trace the body of a function of the user in place of its call."""
    tracer = frame.tracer
    code = function.__code__
    source = read_source(code)
    note_code(frame, function, code)
    if len(list(frame.span(node).chain())) > MAX_DEPTH:
        raise tracer.error("E109", name=source.name, limit=MAX_DEPTH)
    inner = Frame(tracer, source, Captures(function), frame.call_key(node), frame.span(node))
    signature, annotations = _head(tracer, function)
    bound = _bind_arguments(frame, signature, source.name, args, kwargs)
    for name, value in bound.arguments.items():
        inner.given[name] = _as_parameter(frame, name, value, annotations.get(name))
        bind(inner, name, inner.given[name])
    return _run(inner)


def _head(tracer: Tracer, function: FunctionType) -> tuple[Signature, dict[str, Any]]:
    """The signature and the annotations of a function, looked at once in a trace."""
    known = tracer.heads.get(function)
    if known is None:
        known = signature_of(function, follow_wrapped=False), resolve_annotations(function)
        tracer.heads[function] = known
    return known


def _bind_arguments(
    frame: Frame, signature: Signature, name: str, args: list[Any], kwargs: dict[str, Any]
) -> BoundArguments:
    """The arguments by parameter, with defaults; E106 where they do not match."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        text = f"{name}{_text_of(signature)}"
        raise frame.tracer.error("E106", name=name, reason=error, signature=text) from None
    bound.apply_defaults()
    return bound


def _inline_local(
    frame: Frame, node: ast.AST, function: LocalFunction, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    bound = _bind_arguments(frame, function.signature, function.source.name, args, kwargs)
    return run_local(frame, node, function, bound.arguments)


def run_local(
    frame: Frame, node: ast.AST, function: LocalFunction, arguments: dict[str, Any]
) -> Any:
    """Trace the body of a function that was defined in the kernel in place of its call."""
    tracer, source = frame.tracer, function.source
    inner = Frame(
        tracer,
        source,
        function.frame.captures,
        frame.call_key(node),
        frame.span(node),
        parent=function.frame,
    )
    if len(list(frame.span(node).chain())) > MAX_DEPTH:
        raise tracer.error("E109", name=source.name, limit=MAX_DEPTH)
    for name, value in arguments.items():
        bind(inner, name, value)
    return _run(inner)


def _as_parameter(frame: Frame, name: str, value: Any, annotation: Any) -> Any:
    """An argument of a helper as its annotation asks: comptime, or converted to a dtype."""
    if annotation is None:
        return value
    if is_comptime_annotation(annotation):
        if not is_comptime(value):
            raise frame.tracer.error("E112", what=f"the parameter `{name}`")
        return value
    if isinstance(annotation, LineOf):
        annotation = annotation.element  # lines of any width
    if isinstance(annotation, DType | Line) and (isinstance(value, Value) or is_number(value)):
        return narrow(frame, f"the parameter `{name}`", value, annotation)
    return value


def narrow(frame: Frame, what: str, value: Any, t: DType | Line) -> Value:
    """`value` converted to an annotated type; floats do not become integers silently."""
    target = element_of(t)
    is_float = element_of(value.type).is_float if isinstance(value, Value) else type(value) is float
    if is_float and not target.is_float:
        raise frame.tracer.error(
            "E207",
            what=what,
            expected=spell(t),
            given=spell(value.type) if isinstance(value, Value) else describe(value),
            hint=f"convert it explicitly, as in cp.{target.name}(value)",
        )
    if isinstance(value, Value) and isinstance(value.type, Line) and isinstance(t, DType):
        t = Line[t, value.type.width]
    literal = frame.tracer.literal_of(value)
    if literal is not None and target.is_integer:
        frame.tracer.check_fit(literal, target)
    return frame.tracer.convert(value, t)


def _run(inner: Frame) -> Any:
    """The value that an inlined function returns.

    Where it returns under runtime control its body becomes a loop that runs once, and each
    `return` leaves that.
    """
    tracer = inner.tracer
    outer_span = tracer.b.span
    with tracer.b.region() as body:
        flow = execute_block(inner, inner.source.body)
        if inner.return_flag is not None:
            if flow is Flow.NEXT and inner.result is not None:
                tracer.b.span = suggest.first_line(inner.span(inner.source.node))
                raise tracer.error("E118", name=inner.source.name)
            tracer.close(ops.BREAK)
    if inner.return_flag is None:
        tracer.b.ops.extend(body)
        tracer.b.span = outer_span
        return inner.result if flow is not Flow.NEXT else None
    tracer.b.span = inner.span(inner.source.node)
    tracer.set_number(inner.return_flag, tracer.b.const(False, bool_))
    tracer.b.emit_op(ops.LOOP, regions=(Region((), tuple(body)),))
    tracer.b.span = outer_span
    return None if inner.result is None else tracer.read(inner.result)
