"""Attributes of runtime values: `x.shape`, `v.dtype`, methods of lines, fields of records."""

from __future__ import annotations

import ast
import inspect
from collections import deque
from functools import cached_property, lru_cache
from math import prod
from types import ModuleType
from typing import Any

from cubepy.frontend.calls import LINE_METHODS, inline
from cubepy.frontend.captured import (
    holds_changing,
    is_users_method,
    may_change,
    note,
    note_method,
    refuse_array,
)
from cubepy.frontend.foreign import is_foreign, translation
from cubepy.frontend.positions import position
from cubepy.frontend.running import note_reads
from cubepy.frontend.suggest import closest, of_whole_arrays
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import (
    UNSET,
    FlatRef,
    Formatted,
    Index,
    LocalFunction,
    Method,
    Record,
    Table,
    TensorMapRef,
    TensorRef,
    is_comptime,
    is_sequence,
    type_of,
)
from cubepy.frontend.wording import OF_TEXT, describe
from cubepy.ir.core import Region, Value
from cubepy.ir.opdef import MEMORY, Resource, effects
from cubepy.ir.types import Buffer, DType, Line, element_of
from cubepy.lang.arrays import is_numpy
from cubepy.lang.builtins import Position
from cubepy.lang.function import ABSENT, Attributes, unwrap
from cubepy.lang.objects import is_fixed_class

_TENSOR_ATTRIBUTES = (
    "shape",
    "strides",
    "size",
    "rank",
    "ndim",
    "dtype",
    "line_axis",
    "line_size",
    "flat",
    "scalar_shape",
    "lane_mask",
    "space",
)


OF_NUMBERS = "epilogues that read `index` get numbers, unless they ask for `v.line_size`"
"""What errors about numbers that were taken for lines add."""


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
    if is_sequence(owner) and not is_comptime(owner):
        return _of_sequence(frame, owner, name)
    if isinstance(owner, Table) and name in ("shape", "dtype", "size"):
        return {"shape": owner.shape, "dtype": owner.dtype, "size": prod(owner.shape)}[name]
    if isinstance(owner, (FlatRef, Method, LocalFunction, Table)):
        raise _missing(frame, owner, name, ())
    if _is_own_data(type_of(owner)) and type_of(field := getattr(owner, name, UNSET)) in _PLAIN:
        return field
    if isinstance(owner, ModuleType) and is_foreign(owner) and translation(name):
        what = f"`{owner.__name__}.{name}`"
        raise frame.tracer.error("E108", name=what, suggestion=translation(name))
    if name in _OF_CONTAINERS and _is_of_container(type_of(owner), name):
        what = f"a {type_of(owner).__name__} that the kernel captured"
        raise frame.tracer.error("E302", what=what, suggestion=_CHANGED_ONCE.format(name=name))
    try:
        found = getattr(owner, name)
    except AttributeError:
        raise _missing(frame, owner, name, dir(owner)) from None
    _note_of_class(frame, owner, name)
    if isinstance(found, Position):
        return position(frame.tracer, found)
    holds = holds_changing(found) and not (is_numpy(found) and is_numpy(owner))
    if holds or may_change(owner) or is_users_method(found) or _is_computed(owner, name):
        found = note(frame, owner, Attributes(owner), name, found)
    return refuse_array(frame, name, found)


def _is_computed(owner: Any, name: str) -> bool:
    """Whether only a `__getattr__` of the user gives an attribute."""
    is_users = not is_fixed_class(type_of(owner))
    return is_users and inspect.getattr_static(owner, name, ABSENT) is ABSENT


_PLAIN = frozenset({int, float, bool, str, type(None), DType})
"""Types of values that hold nothing else."""


@lru_cache(maxsize=256)
def _is_own_data(cls: type) -> bool:
    """Whether a class is one of CubePy's own for data that do not change, as strategies are."""
    params = getattr(cls, "__dataclass_params__", None)
    return params is not None and params.frozen and is_fixed_class(cls)


def _is_of_container(cls: type, name: str) -> bool:
    """Whether a class has a method as one of Python's containers has it."""
    method = getattr(cls, name, None)
    bases = (base for base in _CONTAINERS if issubclass(cls, base))
    return any(method is getattr(base, name, None) for base in bases)


def _note_of_class(frame: Frame, owner: Any, name: str) -> None:
    """Note what a constant has from its class, the user's: a value, which may be assigned to also
    where the constant's fields may not, or what a property reads, which Python has run."""
    cls = type_of(owner)
    found = None if is_fixed_class(cls) else inspect.getattr_static(cls, name, None)
    if isinstance(found, property):
        note_method(frame, cls, name)
        note_reads(frame, found.fget, owner)
        return
    is_held = found is None or inspect.getattr_static(owner, name, None) is not found
    if not is_held and not hasattr(type_of(found), "__get__"):
        note(frame, cls, Attributes(cls), name, found)


_CHANGING = ("append", "extend", "insert", "pop", "remove", "sort", "reverse", "clear", "update")
"""What changes a list in place; lists of a kernel are tuples."""
_CONTAINERS = list, dict, set, bytearray, deque
_OF_CONTAINERS = frozenset(
    (
        *(*_CHANGING, "add", "appendleft", "discard", "extendleft", "popitem", "popleft", "rotate"),
        *("setdefault", "difference_update", "intersection_update", "symmetric_difference_update"),
    )
)
"""What changes a list, dict, set or deque in place."""
_CHANGED_ONCE = (
    "`{name}` would run once while the kernel is compiled, and not in a launch; "
    "store results in an output tensor"
)


def _missing(frame: Frame, owner: Any, name: str, names: Any) -> Exception:
    if is_sequence(owner) and name in _CHANGING:
        made = "sorted(old)" if name == "sort" else "(*old, new)"
        hint = f"lists of kernels do not change: make a new one, as in `{made}`, or use cp.local"
        return frame.tracer.error("E107", name=describe(owner), attribute=name, suggestion=hint)
    if isinstance(owner, Formatted):
        what = describe(owner)
        return frame.tracer.error("E107", name=what, attribute=name, suggestion=OF_TEXT)
    is_language = isinstance(owner, ModuleType) and owner.__name__.partition(".")[0] == "cubepy"
    fields = getattr(owner, "_fields", ()) if is_sequence(owner) else ()
    other = translation(name) if is_language or isinstance(owner, Value) else ""
    other = of_whole_arrays(name) if isinstance(owner, TensorRef) else other
    suggestion = other or closest(name, fields or names)
    if not suggestion and isinstance(owner, Value | TensorRef | Record):
        fields = names
    if not suggestion and fields:
        suggestion = f"it has {', '.join(fields)}"
    return frame.tracer.error("E107", name=describe(owner), attribute=name, suggestion=suggestion)


def _of_value(frame: Frame, v: Value, name: str) -> Any:
    if name == "dtype":
        return element_of(v.type)
    if isinstance(v.type, Line):
        if name == "line_size":
            return v.type.width
        if name in LINE_METHODS:
            return Method(v, name)
    if not isinstance(v.type, Line) and (name in LINE_METHODS or name == "line_size"):
        hint = f"a number is no line; {OF_NUMBERS}"
        raise frame.tracer.error("E107", name=describe(v), attribute=name, suggestion=hint)
    known = ("dtype", "line_size", *LINE_METHODS) if isinstance(v.type, Line) else ("dtype",)
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
    if name == "line_axis":
        return _line_axis(x)
    if name == "shape":
        return counted_shape(frame, x)
    return x.shape if name == "scalar_shape" else _counted_strides(frame, x)


def _line_axis(x: TensorRef) -> int | None:
    """The axis along which elements are neighbours in memory; None where none is known."""
    stride = x.strides[x.axis] if x.rank else None
    return x.axis if isinstance(stride, int) and stride == 1 else None


def _space(x: TensorRef) -> str:
    """Which memory a tensor lies in: "global", "shared" or "local"."""
    buffer = x.buffer.type
    assert isinstance(buffer, Buffer)
    return buffer.space.value


def _of_sequence(frame: Frame, owner: Any, name: str) -> Any:
    """A field, property or method of a NamedTuple with runtime items; other tuples have none."""
    cls, names = type_of(owner), getattr(owner, "_fields", ())
    if name in names:
        return getattr(owner, name)
    if not hasattr(cls, name) or hasattr(tuple, name):
        raise _missing(frame, owner, name, names)
    found = inspect.getattr_static(cls, name)
    note_method(frame, cls, name)
    if isinstance(found, property):
        return _property(frame, owner, found)
    return getattr(owner, name)


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
    note_method(frame, record.cls, name)
    if isinstance(found, property):
        return _property(frame, record, found)
    if isinstance(found, cached_property):
        return _cached_property(frame, record, found)
    return Method(record, name) if unwrap(found) is not None else getattr(record.cls, name)


def _property(frame: Frame, owner: Any, found: property) -> Any:
    return inline(frame, node_here(frame), unwrap(found.fget), [owner], {})


def _cached_property(frame: Frame, owner: Any, found: Any) -> Any:
    """Computed at each use, which gives the same unless it accesses memory: E108 then."""
    with frame.tracer.b.region() as body:
        value = inline(frame, node_here(frame), found.func, [owner], {})
    accessed = frozenset[Resource]().union(
        *(side for op in Region((), tuple(body)).walk() for side in effects(op))
    )
    if accessed & MEMORY:
        raise frame.tracer.error(
            "E108",
            name=f"the cached property `{found.attrname}`, which accesses memory,",
            suggestion="make it a property, which runs at each use, or keep its value in a local",
        )
    frame.tracer.b.ops.extend(body)
    return value


def node_here(frame: Frame) -> ast.AST:
    """A node where the tracer is, for calls that are written otherwise."""
    span = frame.tracer.b.span
    if span is None:
        return ast.Pass()
    offset = frame.source.column_offset
    return ast.Pass(
        lineno=span.line,
        col_offset=span.column - offset,
        end_lineno=span.end_line,
        end_col_offset=span.end_column - offset,
    )
