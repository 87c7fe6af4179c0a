"""Calls: conversions, built-ins, methods, and functions of the user, which are inlined."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any, get_origin

from cubepy.errors import Error
from cubepy.frontend import suggest
from cubepy.frontend.attributes import note_captures, refuse_array
from cubepy.frontend.positions import position
from cubepy.frontend.suggest import closest
from cubepy.frontend.tracer import Frame, Restart, bind
from cubepy.frontend.values import (
    FlatRef,
    LocalFunction,
    Method,
    Record,
    TensorRef,
    is_comptime,
    is_number,
    is_tuple_type,
)
from cubepy.frontend.wording import describe, spell
from cubepy.ir import ops
from cubepy.ir.core import Value
from cubepy.ir.opdef import TypingError
from cubepy.ir.types import DType, Line, element_of, find_dtype, width_of
from cubepy.lang.annotations import ComptimeAnnotation
from cubepy.lang.builtins import BUILTINS, Position
from cubepy.lang.function import Captures, CubeFunction, read_source, unwrap

MAX_DEPTH = 128


def capture(frame: Frame, name: str, value: Any) -> Any:
    """A global or closure value as it is used: positions become values, arrays are refused."""
    if isinstance(value, Position):
        return position(frame.tracer, value)
    return refuse_array(frame, name, value)


def call(
    frame: Frame, node: ast.AST, function: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """The value of `function(*args, **kwargs)`."""
    from cubepy.frontend.intrinsics import INTRINSICS, intrinsic_name

    if isinstance(function, Method):
        return _call_method(frame, node, function, args, kwargs)
    if isinstance(function, partial):
        function, args, kwargs = (
            function.func,
            [*function.args, *args],
            {**function.keywords, **kwargs},
        )
        return call(frame, node, function, args, kwargs)
    name = intrinsic_name(function)
    if name is not None:
        handler = INTRINSICS[name]
        given = [*args, *kwargs.values()]
        return _checked(frame, name, function, given, lambda: handler(frame, *args, **kwargs))
    number_type = function if isinstance(function, Line) else _as_dtype(function)
    if number_type is not None:
        return _convert(frame, number_type, args)
    if isinstance(function, LocalFunction):
        return _inline_local(frame, node, function, args, kwargs)
    if isinstance(function, MethodType) and unwrap(function.__func__) is not None:
        function, args = function.__func__, [function.__self__, *args]
    plain = unwrap(function)
    if plain is not None and _must_inline(function, plain, args, kwargs):
        return inline(frame, node, plain, args, kwargs)
    return _call_python(frame, function, args, kwargs)


def _checked(
    frame: Frame, name: str, function: Any, given: list[Any], action: Callable[[], Any]
) -> Any:
    """Wrong arguments of a built-in are the user's error, not a Python traceback."""
    try:
        return action()
    except (Error, Restart):
        raise
    except TypingError as error:
        types = " and ".join(spell(a.type) if isinstance(a, Value) else describe(a) for a in given)
        raise frame.tracer.error(
            "E201", operator=name, types=types, suggestion=f"it {error}"
        ) from None
    except (TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, TypeError) and _is_about_call(error):
            reason = str(error).split(") ", 1)[-1].replace("positional ", "")
            signature = f"{name}{_signature_text(BUILTINS.get(name, function))}"
            raise frame.tracer.error(
                "E106", name=name, reason=reason, signature=signature
            ) from None
        if not all(is_comptime(a) for a in given):
            raise
        text = f"{type(error).__name__}: {error}"
        raise frame.tracer.error("E113", error=text) from None


def _is_about_call(error: TypeError) -> bool:
    """Whether a handler was called with wrong arguments: the error comes from no deeper frame."""
    entry = error.__traceback__
    return entry is not None and entry.tb_next is not None and entry.tb_next.tb_next is None


def _signature_text(function: Any) -> str:
    try:
        text = str(inspect.signature(function)).partition(" -> ")[0]
        return re.sub(
            r": '([^']*)'", r": \1", text.replace(": 'Any'", "").replace(": 'Comptime'", "")
        )
    except (TypeError, ValueError):
        return "(...)"


def _as_dtype(function: Any) -> DType | None:
    if isinstance(function, DType):
        return function
    if isinstance(function, type) and function.__module__ in ("numpy", "ml_dtypes"):
        return find_dtype(function)
    return None


def _convert(frame: Frame, t: DType | Line, args: list[Any]) -> Any:
    tracer = frame.tracer
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
    for name in (*function.__code__.co_names, *function.__code__.co_freevars):
        try:
            value = captures.lookup(name)
        except KeyError:
            continue
        if isinstance(value, CubeFunction | Position) or getattr(value, "__name__", "") == "cubepy":
            return True
        if hasattr(value, "__cubepy_builtin__"):
            return True
    return False


def _call_python(frame: Frame, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    from cubepy.frontend.expressions import comptime_result

    if isinstance(function, type) and not all(is_comptime(a) for a in (*args, *kwargs.values())):
        return _construct(frame, function, args, kwargs)
    if not callable(function):
        is_tensor = isinstance(function, TensorRef | FlatRef)
        suggestion = "index it with brackets, as in x[i]" if is_tensor else "it is not a function"
        raise frame.tracer.error("E108", name=describe(function), suggestion=suggestion)
    if not all(is_comptime(a) for a in (*args, *kwargs.values())):
        name = getattr(function, "__name__", type(function).__name__)
        known = closest(name, BUILTINS, "cp.", 0.8)
        suggestion = known or "it runs in Python only: call it outside the kernel"
        raise frame.tracer.error("E108", name=f"`{name}`", suggestion=suggestion)
    note_captures(frame, unwrap(function))
    return comptime_result(frame, function, *args, **kwargs)


def _construct(frame: Frame, cls: type[Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    if is_tuple_type(cls) and hasattr(cls, "_fields"):
        return cls(*_bind_arguments(frame, cls, cls.__name__, args, kwargs).args)
    if hasattr(cls, "__dataclass_fields__"):
        bound = _bind_arguments(frame, cls, cls.__name__, args, kwargs)
        return Record(cls, dict(bound.arguments))
    raise frame.tracer.error(
        "E108",
        name=f"`{cls.__name__}`",
        suggestion="dataclasses and NamedTuples can be made inside kernels",
    )


def _call_method(
    frame: Frame, node: ast.AST, method: Method, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    from cubepy.frontend.intrinsics import LINE_METHODS
    from cubepy.frontend.tensors import mask_of_lanes

    if isinstance(method.owner, Record):
        function = getattr(method.owner.cls, method.name)
        return inline(frame, node, unwrap(function), [method.owner, *args], kwargs)
    if isinstance(method.owner, TensorRef):
        return mask_of_lanes(frame.tracer, method.owner, args[0] if len(args) == 1 else tuple(args))
    return frame.tracer.b.emit(LINE_METHODS[method.name], method.owner)


# Inlining


def inline(
    frame: Frame, node: ast.AST, function: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Trace the body of a function of the user in place of its call."""
    tracer = frame.tracer
    source = read_source(function.__code__)
    if len(list(frame.span(node).chain())) > MAX_DEPTH:
        raise tracer.error("E109", name=source.name, limit=MAX_DEPTH)
    inner = Frame(tracer, source, Captures(function), frame.key(node), frame.span(node))
    bound = _bind_arguments(frame, function, source.name, args, kwargs)
    annotations = resolve_annotations(function)
    for name, value in bound.arguments.items():
        bind(inner, name, _as_parameter(frame, name, value, annotations.get(name)))
    return _run(inner)


def _bind_arguments(
    frame: Frame, function: Any, name: str, args: list[Any], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    """The arguments by parameter, with defaults; E106 where they do not match."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        text = f"{name}{_signature_text(function)}"
        raise frame.tracer.error("E106", name=name, reason=error, signature=text) from None
    bound.apply_defaults()
    return bound


def _inline_local(
    frame: Frame, node: ast.AST, function: LocalFunction, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    tracer, source = frame.tracer, function.source
    inner = Frame(
        tracer,
        source,
        function.frame.captures,
        frame.key(node),
        frame.span(node),
        parent=function.frame,
    )
    if len(list(frame.span(node).chain())) > MAX_DEPTH:
        raise tracer.error("E109", name=source.name, limit=MAX_DEPTH)
    names = [a.arg for a in source.node.args.args]
    given = dict(zip(names[len(names) - len(function.defaults) :], function.defaults, strict=True))
    given |= dict(zip(names, args, strict=False)) | kwargs
    if set(given) != set(names) or len(args) > len(names):
        raise tracer.error(
            "E106",
            name=source.name,
            reason=f"it takes {len(names)} arguments",
            signature=f"{source.name}({', '.join(names)})",
        )
    for name in names:
        bind(inner, name, given[name])
    return _run(inner)


def resolve_annotations(function: Any) -> dict[str, Any]:
    """The parameters' annotations as objects, also under `from __future__ import annotations`."""
    raw = inspect.get_annotations(function)
    if not any(isinstance(a, str) for a in raw.values()):
        return raw
    cells = function.__closure__ or ()
    closure = dict(zip(function.__code__.co_freevars, (_cell(c) for c in cells), strict=False))
    resolved: dict[str, Any] = {}
    for name, text in raw.items():
        try:
            resolved[name] = (
                eval(text, function.__globals__, closure) if isinstance(text, str) else text
            )
        except Exception:
            resolved[name] = None
    return resolved


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def is_comptime_annotation(annotation: Any) -> bool:
    """`Comptime[...]` or bare `Comptime`."""
    if isinstance(annotation, ComptimeAnnotation):
        return True
    return (
        getattr(annotation, "__name__", "") == "Comptime"
        or get_origin(annotation) is ComptimeAnnotation
    )


def _as_parameter(frame: Frame, name: str, value: Any, annotation: Any) -> Any:
    """An argument of a helper as its annotation asks: comptime, or converted to a dtype."""
    if annotation is None:
        return value
    if is_comptime_annotation(annotation):
        if not is_comptime(value):
            raise frame.tracer.error("E112", what=f"the parameter `{name}`")
        return value
    if isinstance(annotation, DType | Line) and (isinstance(value, Value) or is_number(value)):
        return narrow(frame, f"the parameter `{name}`", value, annotation)
    return value


def narrow(frame: Frame, what: str, value: Any, t: DType | Line) -> Value:
    """`value` converted to an annotated type; floats do not become integers silently."""
    if isinstance(value, Value):
        source, target = element_of(value.type), element_of(t)
        if source.is_float and not target.is_float:
            raise frame.tracer.error(
                "E207",
                what=what,
                expected=spell(t),
                given=spell(value.type),
                hint=f"convert it explicitly, as in cp.{target.name}(value)",
            )
        if isinstance(t, DType) and isinstance(value.type, Line):
            t = Line[t, value.type.width]
    return frame.tracer.convert(value, t)


def _run(inner: Frame) -> Any:
    """The value that an inlined function returns.

    Returns under runtime control need a form of their own: the body becomes a loop that runs once,
    and a `return` leaves it.
    """
    from cubepy.frontend.statements import Flow, execute_block

    tracer = inner.tracer
    outer_span = tracer.b.span
    key = (*inner.path, "returns")
    inner.is_looping = key in tracer.learned.looping
    if not inner.is_looping:
        flow = execute_block(inner, inner.source.body)
        tracer.b.span = outer_span
        if flow is Flow.NEXT:
            inner.result = None
        return inner.result
    inner.return_flag = tracer.flag("returned")
    with tracer.b.region() as body:
        flow = execute_block(inner, inner.source.body)
        if flow is Flow.NEXT and inner.has_result and inner.result is not None:
            tracer.b.span = suggest.first_line(inner.span(inner.source.node))
            raise tracer.error("E118", name=inner.source.name)
        tracer.close(ops.BREAK)
    from cubepy.ir.core import Region

    tracer.b.span = inner.span(inner.source.node)
    tracer.b.emit_op(ops.LOOP, regions=(Region((), tuple(body)),))
    tracer.b.span = outer_span
    return tracer.read(inner.result) if inner.has_result and inner.result is not None else None
