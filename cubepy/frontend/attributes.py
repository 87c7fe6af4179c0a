"""Attributes of runtime values: `x.shape`, `v.dtype`, methods of lines, fields of records."""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

from cubepy.frontend.positions import position
from cubepy.frontend.suggest import closest
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import (
    FlatRef,
    Index,
    LocalFunction,
    Method,
    Record,
    TensorMapRef,
    TensorRef,
)
from cubepy.frontend.wording import describe
from cubepy.ir.core import Value
from cubepy.ir.types import Buffer, Line, element_of
from cubepy.lang.builtins import Position
from cubepy.lang.function import Captures

_LINE_METHODS = ("sum", "prod", "min", "max", "any", "all")
_TENSOR_ATTRIBUTES = (
    "shape",
    "strides",
    "size",
    "rank",
    "ndim",
    "dtype",
    "line_size",
    "flat",
    "scalar_shape",
    "lane_mask",
    "space",
)


def attribute(frame: Frame, owner: Any, name: str) -> Any:
    """`owner.name`; E107 with a suggestion where there is none."""
    if isinstance(owner, TensorRef):
        return _of_tensor(frame, owner, name)
    if isinstance(owner, Value):
        return _of_value(frame, owner, name)
    if isinstance(owner, Record):
        return _of_record(frame, owner, name)
    if isinstance(owner, TensorMapRef):
        return _of_tensor_map(frame, owner, name)
    if isinstance(owner, FlatRef | Method | LocalFunction):
        raise _missing(frame, owner, name, ())
    try:
        found = getattr(owner, name)
    except AttributeError:
        raise _missing(frame, owner, name, dir(owner)) from None
    if isinstance(found, Position):
        return position(frame.tracer, found)
    if _may_change(owner):
        frame.tracer.facts.captures[(id(owner), name)] = (Attributes(owner), name, found)
    return refuse_array(frame, name, found)


@dataclass(frozen=True, slots=True)
class Attributes:
    """Reads attributes of a captured object again, to compare them at later launches."""

    owner: Any

    def lookup(self, name: str) -> Any:
        """The attribute's present value."""
        return getattr(self.owner, name)


_FIXED = ("cubepy", "ml_dtypes", "numpy", "torch")
"""Modules whose attributes are taken not to change, besides those of the standard library."""


def _may_change(owner: Any) -> bool:
    """Whether the attributes of a comptime object may be assigned between launches."""
    if isinstance(owner, ModuleType):
        return not _is_fixed(owner.__name__)
    if isinstance(owner, SimpleNamespace):
        return True
    cls = owner if isinstance(owner, type) else type(owner)
    params = getattr(cls, "__dataclass_params__", None)
    if cls is not owner and (issubclass(cls, tuple) or (params is not None and params.frozen)):
        return False
    return not _is_fixed(cls.__module__)


def note_captures(frame: Frame, function: FunctionType | None) -> None:
    """Note all that a function which Python runs at comptime may read from outside."""
    todo: list[FunctionType] = [function] if function is not None else []
    seen: set[int] = set()
    while todo:
        current = todo.pop()
        if id(current) in seen or _is_fixed(current.__module__ or ""):
            continue
        seen.add(id(current))
        captures, names = Captures(current), _names_in(current.__code__)
        for name in names:
            try:
                value = captures.lookup(name)
            except KeyError:
                continue
            frame.tracer.facts.captures[(id(current), name)] = (captures, name, value)
            todo += [value] if isinstance(value, FunctionType) else []
            _note_attributes(frame, value, names)


def _note_attributes(frame: Frame, owner: Any, names: frozenset[str]) -> None:
    if not _may_change(owner):
        return
    for name in names:
        found = getattr(owner, name, None)
        key = (id(owner), name)
        if found is not None and key not in frame.tracer.facts.captures:
            frame.tracer.facts.captures[key] = (Attributes(owner), name, found)
            _note_attributes(frame, found, names)


def _names_in(code: CodeType) -> frozenset[str]:
    """The names that code refers to, also inside functions that it defines."""
    inner = [_names_in(c) for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset((*code.co_names, *code.co_freevars)).union(*inner)


def _is_fixed(module: str) -> bool:
    top = module.partition(".")[0]
    return top in _FIXED or top in sys.stdlib_module_names


def refuse_array(frame: Frame, name: str, value: Any) -> Any:
    """E110 if a captured value is an array: it is no constant."""
    is_array = hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__")
    is_class = isinstance(value, type)
    if is_array and not is_class and (hasattr(value, "__setitem__") or getattr(value, "ndim", 0)):
        raise frame.tracer.error("E110", name=name)
    return value


def _missing(frame: Frame, owner: Any, name: str, names: Any) -> Exception:
    suggestion = closest(name, names)
    if not suggestion and isinstance(owner, Value | TensorRef | Record):
        suggestion = f"it has {', '.join(names)}" if names else ""
    return frame.tracer.error("E107", name=describe(owner), attribute=name, suggestion=suggestion)


def _of_value(frame: Frame, v: Value, name: str) -> Any:
    if name == "dtype":
        return element_of(v.type)
    if isinstance(v.type, Line):
        if name == "line_size":
            return v.type.width
        if name in _LINE_METHODS:
            return Method(v, name)
    known = ("dtype", "line_size", *_LINE_METHODS) if isinstance(v.type, Line) else ("dtype",)
    raise _missing(frame, v, name, known)


def _of_tensor(frame: Frame, x: TensorRef, name: str) -> Any:
    if name == "flat":
        return FlatRef(x)
    if name == "size":
        return frame.tracer.product(counted_shape(frame, x))
    if name == "dtype":
        return x.element
    if name in ("rank", "ndim"):
        frame.tracer.facts.shaped.add(x.name)
        return x.rank
    if name == "line_size":
        return x.width
    if name == "space":
        return _space(x)
    if name == "lane_mask":
        return Method(x, name)
    if name not in _TENSOR_ATTRIBUTES:
        raise _missing(frame, x, name, _TENSOR_ATTRIBUTES)
    frame.tracer.facts.shaped.add(x.name)
    if name == "shape":
        return counted_shape(frame, x)
    return x.shape if name == "scalar_shape" else _counted_strides(frame, x)


def _space(x: TensorRef) -> str:
    """Which memory a tensor lies in: "global", "shared" or "local"."""
    buffer = x.buffer.type
    assert isinstance(buffer, Buffer)
    return buffer.space.value


_MAP_ATTRIBUTES = ("box", "dtype", "nbytes", "swizzle")


def _of_tensor_map(frame: Frame, x: TensorMapRef, name: str) -> Any:
    if name not in _MAP_ATTRIBUTES:
        raise _missing(frame, x, name, _MAP_ATTRIBUTES)
    return getattr(x, name)


def counted_shape(frame: Frame, x: TensorRef) -> tuple[Index, ...]:
    """The shape in what the tensor counts: elements, or lines rounded up."""
    if not x.is_line or x.width == 1:
        return x.shape
    lines = frame.tracer.lines(x.shape[x.axis], x.width)
    return tuple(lines if k == x.axis else n for k, n in enumerate(x.shape))


def _counted_strides(frame: Frame, x: TensorRef) -> tuple[Index, ...]:
    if not x.is_line or x.width == 1:
        return x.strides
    count = frame.tracer.floordiv
    return tuple(1 if k == x.axis else count(s, x.width) for k, s in enumerate(x.strides))


def _of_record(frame: Frame, record: Record, name: str) -> Any:
    if name in record.values:
        return record.values[name]
    found = inspect.getattr_static(record.cls, name, None)
    if found is None:
        raise _missing(frame, record, name, record.values)
    if isinstance(found, property):
        return _property(frame, record, found)
    is_bound = callable(found) and not isinstance(found, staticmethod)
    return Method(record, name) if is_bound else getattr(record.cls, name)


def _property(frame: Frame, record: Record, found: property) -> Any:
    from cubepy.frontend.calls import inline
    from cubepy.lang.function import unwrap

    span = frame.tracer.b.span
    node = ast.Pass(lineno=span.line, col_offset=span.column) if span else ast.Pass()
    return inline(frame, node, unwrap(found.fget), [record], {})
