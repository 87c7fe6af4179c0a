"""From the arguments of a call to a signature: annotations, dtypes, layouts, line sizes.

Every refusal is a typed error that names the kernel, the argument and the fix.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import prod
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

import numpy as np

from cubepy.array.interop import UnknownDtype, read_memory
from cubepy.array.memory import Memory
from cubepy.errors import Error, fail
from cubepy.frontend.promote import widest_float
from cubepy.frontend.signature import (
    Arg,
    ComptimeArg,
    ScalarArg,
    StructArg,
    TensorArg,
    TensorMapArg,
    comptime_key,
    comptime_type,
)
from cubepy.ir.core import ALIGNMENT
from cubepy.ir.numbers import limits
from cubepy.ir.types import DType, Line, LineOf, bool_, find_dtype, i64
from cubepy.lang.annotations import (
    Lines,
    Spec,
    Tensor,
    TensorAnnotation,
    is_comptime_annotation,
    read_annotation,
)
from cubepy.lang.builtins import Position
from cubepy.lang.cuda import TensorMap
from cubepy.lang.function import CubeFunction
from cubepy.lang.postponed import annotations_of
from cubepy.record import dataclass
from cubepy.targets import Target


@dataclass(frozen=True, slots=True)
class Layout:
    """An array argument before the line size is known; `strides` count elements.

    Extents of 1 have no stride of their own: theirs are those of a contiguous array. `address` 0
    stands for an argument without data.
    """

    dtype: DType
    shape: tuple[int | None, ...]
    strides: tuple[int, ...]
    address: int

    @property
    def axis(self) -> int | None:
        """The axis of stride one, the last if several."""
        found = [k for k, s in enumerate(self.strides) if s == 1]
        return found[-1] if found else None

    @property
    def is_linear(self) -> bool:
        """Row-major without gaps."""
        expected = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if stride != expected:
                return False
            expected *= 1 if n is None else max(n, 1)
        return True

    def begins_at(self, alignment: int) -> bool:
        """Whether the base and every stride but the unit one are multiples of so many bytes."""
        size = self.dtype.itemsize
        others = [s * size for k, s in enumerate(self.strides) if k != self.axis]
        return all(v % alignment == 0 for v in (self.address, *others))


def layout_of(kernel: str, name: str, memory: Memory) -> Layout:
    """The layout of an array; E403 if big-endian, E414 if elements are not aligned."""
    if not memory.is_native:
        raise fail("E403", kernel=kernel, argument=name, given=memory.owner[0].dtype)
    size = memory.dtype.itemsize
    strides: list[int] = []
    expected = 1
    for n, stride in zip(reversed(memory.shape), reversed(memory.strides), strict=True):
        strides.append(expected if n <= 1 else stride // size)
        if n > 1 and stride % size:
            raise fail("E414", kernel=kernel, argument=name)
        expected *= max(n, 1)
    if memory.address % size and prod(memory.shape):
        raise fail("E414", kernel=kernel, argument=name)
    return Layout(memory.dtype, memory.shape, tuple(reversed(strides)), memory.address)


def layout_of_spec(spec: Spec) -> Layout:
    """A contiguous, aligned array of the specified shape."""
    shape = spec.shape or ()
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= ALIGNMENT if n is None else max(n, 1)
    return Layout(spec.dtype, shape, tuple(reversed(strides)), 0)


class Matcher:
    """Matches one call's arguments with the parameters' annotations."""

    def __init__(self, kernel: str, annotations: dict[str, Any]) -> None:
        self.kernel = kernel
        self._annotations = annotations
        self._bound: dict[TypeVar, DType] = {}
        self._order: tuple[str, ...] = ()
        self.tensors: dict[str, tuple[Layout, TensorAnnotation]] = {}
        self.memories: dict[str, Memory] = {}
        self.arrays: dict[str, Any] = {}
        """What `memories` were read from, under the same names."""
        self.scalars: dict[str, Any] = {}
        self.maps: dict[str, TensorMap] = {}
        self.given: dict[str, Any] = {}
        """Every value as it was passed, those inside tuples and dataclasses too."""

    def name_of(self, array: Any) -> str | None:
        """The tensor argument that an array is, the first if several."""
        for name, memory in self.memories.items():
            owner = memory.owner
            if name not in self.tensors:
                continue  # the array of a tensor map
            if self.arrays[name] is array or owner is array:
                return name
            if isinstance(owner, tuple) and owner[1] is array:
                return name
        return None

    def match(self, arguments: dict[str, Any]) -> list[tuple[str, Any]]:
        """Each argument as a finished `Arg`, or as a name in `tensors`, or a pending scalar."""
        found: dict[str, Any] = {}
        self._order = tuple(arguments)
        for want_tensor in (True, False):  # numbers take the types that tensors give a TypeVar
            for name, value in arguments.items():
                annotation = self._annotations.get(name)
                if (tensor_annotation(annotation) is not None) is want_tensor:
                    found[name] = self._one(name, value, annotation)
        return [(name, found[name]) for name in arguments]

    def _one(self, name: str, value: Any, annotation: Any) -> Any:
        self.given[name] = value
        if isinstance(value, TensorMap) and annotation in (None, TensorMap):
            return self._tensor_map(name, value)
        if isinstance(value, TensorMap) or annotation is TensorMap:
            raise self._refused(name, value, annotation)
        if isinstance(value, Spec):
            return self._spec(name, value, annotation)
        if is_comptime_annotation(annotation):
            return self._comptime(name, value, annotation)
        wanted = tensor_annotation(annotation)
        memory = None if isinstance(value, type) else self._memory(name, value)
        if memory is not None and (isinstance(annotation, DType) or annotation in _NUMBERS):
            expected = getattr(annotation, "__name__", annotation)
            tensor = f"cp.Tensor[cp.{expected}]" if isinstance(annotation, DType) else "cp.Tensor"
            found: dict[str, Any] = {"expected": expected, "tensor": tensor}
            raise fail("E417", kernel=self.kernel, argument=name, **found)
        if memory is not None:
            self.arrays[name] = value
            return self._tensor(name, layout_of(self.kernel, name, memory), wanted, memory)
        if wanted is not None:
            raise self._refused(name, value, annotation)
        dtype = self._scalar_dtype(annotation)
        if dtype is not None or annotation is float or _is_number(value):
            return self._scalar(name, value, dtype, annotation)
        if is_struct(value):
            return self._struct(name, value)
        if _is_static(value):
            return self._comptime(name, value)
        raise self._refused(name, value)

    def _refused(self, name: str, value: Any, annotation: Any = None) -> Error:
        """E401 for what is neither an array nor a number, or not what the annotation asks for."""
        what, hint = f"{_spelled(value)}, which no kernel takes", None
        if tensor_annotation(annotation) is not None:
            what = f"{_spelled(value)}, but a tensor is expected"
            hint = f"pass an array; the order of the arguments is ({', '.join(self._order)})"
        if isinstance(value, dict):
            hint = "give each of its values a parameter of its own; kernels take no `**` parameters"
        if isinstance(value, list):
            hint = f"make it an array, as in np.array({name})"
        if _is_complex(value):
            hint = f"pass its real and imaginary parts, {name}.real and {name}.imag"
        if annotation is TensorMap:
            hint = "make a tensor map, as in cp.cuda.tensor_map(x, box)"
        return fail("E401", kernel=self.kernel, argument=name, what=f"is {what}", hint=hint)

    def _tensor_map(self, name: str, value: TensorMap) -> TensorMapArg:
        """A tensor map; its array is an argument like others to all checks of memory."""
        if isinstance(value.array, Spec):
            return TensorMapArg(value.array.dtype, value.box, value.swizzle, value.axes)
        memory = self._memory(name, value.array)
        if memory is None:
            raise self._refused(name, value.array, TensorMap)
        self.maps[name], self.memories[name] = value, memory
        self.arrays[name] = value.array
        return TensorMapArg(memory.dtype, value.box, value.swizzle, value.axes)

    def _memory(self, name: str, value: Any) -> Memory | None:
        fields: dict[str, Any] = {"kernel": self.kernel, "argument": name}
        try:
            return read_memory(value)
        except UnknownDtype as error:
            raise fail("E401", what=error.what, hint=error.advice(name), **fields) from None
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            what = f"is {_spelled(value)} that cannot be read: {error}"
            raise fail("E401", what=what, hint="", **fields) from None

    def _spec(self, name: str, spec: Spec, annotation: Any) -> Any:
        if spec.shape is None:
            wanted = self._scalar_dtype(annotation) or spec.dtype
            return ScalarArg(wanted)
        return self._tensor(name, layout_of_spec(spec), tensor_annotation(annotation), None)

    def _tensor(
        self, name: str, layout: Layout, wanted: TensorAnnotation | None, memory: Memory | None
    ) -> str:
        wanted = wanted or TensorAnnotation()
        self._check_element(name, layout.dtype, wanted.element)
        self.tensors[name] = (layout, wanted)
        if memory is not None:
            self.memories[name] = memory
        return name

    def _check_element(self, name: str, dtype: DType, element: Any) -> None:
        if isinstance(element, TypeVar):
            bound = self._bound.setdefault(element, dtype)
            allowed = [find_dtype(c) for c in element.__constraints__]
            if allowed and dtype not in allowed:
                expected = " or ".join(a.name for a in allowed if a)
                raise fail(
                    "E402", kernel=self.kernel, argument=name, given=dtype, expected=expected
                )
            element = bound
        if element is not None and element is not dtype:
            raise fail("E402", kernel=self.kernel, argument=name, given=dtype, expected=element)

    def _scalar_dtype(self, annotation: Any) -> DType | None:
        if isinstance(annotation, DType):
            return annotation
        if isinstance(annotation, TypeVar):
            return self._bound.get(annotation)
        if annotation is bool:
            return bool_
        return i64 if annotation is int else None

    def _scalar(self, name: str, value: Any, dtype: DType | None, annotation: Any) -> Any:
        if not _is_number(value):
            what, hint = f"is {_spelled(value)}, but a number is expected", "pass a number"
            if _is_complex(value):
                what = f"is {_spelled(value)}, but a real number is expected"
                hint = f"pass its real and imaginary parts, {name}.real and {name}.imag"
            if value is None:
                hint = "pass a number, or say in the annotation that it may be missing: `| None`"
            raise fail("E401", kernel=self.kernel, argument=name, what=what, hint=hint)
        self.scalars[name] = value.item() if isinstance(value, np.generic) else value
        if dtype is None:
            dtype = _own_dtype(value) if annotation is not float else None
        return ScalarArg(dtype) if dtype is not None else _PENDING_FLOAT

    def _struct(self, name: str, value: Any) -> StructArg:
        names, values = struct_items(value)
        annotations = field_annotations(type(value))
        items = tuple(
            self._one(f"{name}.{n}", v, annotations.get(n))
            for n, v in zip(names, values, strict=True)
        )
        return StructArg(type(value), names, items)

    def _comptime(self, name: str, value: Any, annotation: Any = None) -> ComptimeArg:
        of: Any = getattr(annotation, "of", None)
        is_default = any(value is default for default in getattr(annotation, "default", ()))
        if not is_default and not _is_of(value, of):
            raise fail(
                "E402",
                kernel=self.kernel,
                argument=name,
                given=type(value).__name__,
                expected=of.__name__,
                hint=f"its annotation is cp.Comptime[{of.__name__}]",
            )
        if isinstance(value, Position):
            what = f"is {value!r}, which is known inside kernels alone"
            raise fail("E401", kernel=self.kernel, argument=name, what=what)
        key = comptime_key(value)
        try:
            hash(key)
        except TypeError:
            raise fail(
                "E412", kernel=self.kernel, argument=name, type=type(value).__name__
            ) from None
        return ComptimeArg(key, comptime_type(value))

    def float_dtype(self) -> DType:
        """The type of Python float arguments in this call."""
        return widest_float([layout.dtype for layout, _ in self.tensors.values()])


def _is_of(value: Any, of: Any) -> bool:
    """Whether a comptime value is of the class that an annotation names; others say nothing here.
    Integers are floats, as type checkers have it, and NumPy's numbers are Python's."""
    if of is bool:
        return isinstance(value, bool | np.bool_)
    if of is int:
        return isinstance(value, int | np.integer)
    if of is float:
        return isinstance(value, int | float | np.integer | np.floating)
    return of is not str or isinstance(value, str)


def _is_number(value: Any) -> bool:
    """A Python number, or a NumPy scalar of a type that kernels have."""
    if isinstance(value, np.generic):
        return find_dtype(value.dtype) is not None
    return isinstance(value, bool | int | float)


def _is_complex(value: Any) -> bool:
    return isinstance(value, complex | np.complexfloating)


def _spelled(value: Any) -> str:
    """The class of a value, with its article."""
    name = type(value).__name__
    if value is None:
        return "None"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


_PENDING_FLOAT = object()
_NUMBERS = (bool, int, float)


@cache
def field_annotations(cls: type) -> dict[str, Any]:
    """The annotations of a dataclass's or NamedTuple's fields; text that names nothing is None."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        names = dict(getattr(sys.modules.get(base.__module__), "__dict__", {}))
        for name, annotation in annotations_of(base).items():
            try:
                found[name] = read_annotation(annotation, names)
            except (AttributeError, TypeError) as error:
                reason = f"{error}"
                raise fail("E425", kernel=cls.__name__, argument=name, reason=reason) from None
    return found


def tensor_annotation(annotation: Any) -> TensorAnnotation | None:
    """The tensor part of an annotation; None where it asks for no tensor."""
    if isinstance(annotation, TensorAnnotation):
        return annotation
    if annotation is Lines:
        return TensorAnnotation(None, True)
    if annotation is Tensor:
        return TensorAnnotation()
    if isinstance(annotation, LineOf):
        return TensorAnnotation(annotation.element, True)
    return None


def _own_dtype(value: Any) -> DType | None:
    """The type that a number brings along; None for Python floats."""
    if isinstance(value, np.generic):
        return find_dtype(value.dtype)
    if isinstance(value, bool):
        return bool_
    return i64 if isinstance(value, int) else None


def is_struct(value: Any) -> bool:
    """Whether a value is passed as its fields: a tuple, NamedTuple or dataclass."""
    if isinstance(value, type | DType | Line):  # dtypes are dataclasses, but one thing
        return False
    return isinstance(value, tuple) or is_dataclass(value)


def struct_items(value: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None) or tuple(str(k) for k in range(len(value)))
        return tuple(names), tuple(value)
    names = tuple(f.name for f in fields(value))
    return names, tuple(getattr(value, n) for n in names)


def _is_static(value: Any) -> bool:
    plain = isinstance(
        value, str | DType | Line | CubeFunction | FunctionType | BuiltinFunctionType
    )
    if plain or value is None or isinstance(value, type):
        return True
    is_frozen = isinstance(value, Mapping) and type(value).__hash__ is not None  # a configuration
    return is_frozen or hasattr(value, "__cubepy_builtin__")


# Line sizes


def line_width(
    tensors: dict[str, tuple[Layout, TensorAnnotation]], target: Target, asked: int | str
) -> int:
    """The line size of a call: as asked, or the widest that arguments and device allow.

    All line tensors share it; where their unit-stride axes differ, or one has none, it is 1.
    """
    lines = {n: (lay, a) for n, (lay, a) in tensors.items() if a.is_line}
    if not lines:
        return 1
    fixed = {a.width for _, a in lines.values() if a.width is not None}
    places = {None if lay.axis is None else len(lay.shape) - lay.axis for lay, _ in lines.values()}
    agree = len(places) == 1 and None not in places
    if len(fixed) == 1:
        return fixed.pop() if agree else 1
    if asked != "auto":
        return int(asked) if agree else 1
    widest = max(lay.dtype.itemsize for lay, _ in lines.values())
    return max(1, target.line_bytes // widest) if agree else 1


def tensor_arg(
    layout: Layout, annotation: TensorAnnotation, width: int, alignment: int, collapse: bool
) -> TensorArg:
    """What a kernel is specialised on, of one array."""
    rank, axis, shape = len(layout.shape), layout.axis, layout.shape
    if not annotation.is_line:
        return TensorArg(layout.dtype, rank, axis=axis, is_linear=layout.is_linear)
    if collapse:
        rank, axis, shape = 1, 0, (prod(n or 0 for n in layout.shape),)
    extent = shape[axis] if axis is not None and shape else 1
    divisible = width == 1 or (extent is not None and extent % width == 0)
    return TensorArg(
        layout.dtype,
        rank,
        True,
        width,
        axis,
        layout.is_linear,
        divisible,
        alignment if layout.begins_at(alignment) else 0,
    )


# Scalars


def check_scalar(kernel: str, name: str, value: Any, dtype: DType) -> None:
    """E407 where an integer does not fit, E402 where a float would become an integer."""
    if dtype.is_integer:
        if isinstance(value, float):
            hint = "pass an int, or annotate the parameter as cp.f32"
            raise fail(
                "E402", kernel=kernel, argument=name, given="float", expected=dtype, hint=hint
            )
        low, high = limits(dtype)
        if not low <= value <= high:
            raise fail("E407", kernel=kernel, argument=name, value=value, type=dtype.name)


def wrong_arguments(kernel: str, error: TypeError, signature: Any) -> Error:
    """E406 for a call that does not match the parameters."""
    return fail("E406", kernel=kernel, reason=str(error), signature=f"{kernel}{signature}")


def finish(
    items: list[tuple[str, Any]], matcher: Matcher, width: int, alignment: int, collapse: bool
) -> tuple[tuple[str, Arg], ...]:
    """The signature's arguments, once line size and float type are known."""
    how = matcher.tensors, ScalarArg(matcher.float_dtype()), width, alignment, collapse
    return tuple([(name, _finished(item, *how)) for name, item in items])


def _finished(
    item: Any,
    tensors: dict[str, tuple[Layout, TensorAnnotation]],
    float_arg: ScalarArg,
    width: int,
    alignment: int,
    collapse: bool,
) -> Arg:
    if item is _PENDING_FLOAT:
        return float_arg
    if isinstance(item, str):
        return tensor_arg(*tensors[item], width, alignment, collapse)
    if isinstance(item, StructArg):
        items = [_finished(i, tensors, float_arg, width, alignment, collapse) for i in item.items]
        return StructArg(item.cls, item.names, tuple(items))
    return item
