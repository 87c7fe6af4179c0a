"""What kernel parameters may be annotated with: Tensor, Lines, Comptime, and argument specs.

Data only; how an argument is matched against its annotation is the signature's matter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from types import CodeType, MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

from cubepy.errors import fail
from cubepy.ir.types import DType, Line, LineOf, find_dtype
from cubepy.lang.postponed import annotations_of, names_around
from cubepy.record import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TensorAnnotation:
    """`Tensor[...]`: element (a dtype, a TypeVar or None for any), and whether it counts in lines.

    `width` is the number of lanes where the annotation fixes it, else None.
    """

    element: Any = None
    is_line: bool = False
    width: int | None = None

    def __repr__(self) -> str:
        if self.width is not None:
            return f"cp.Tensor[cp.Line[{_shown(self.element)}, {self.width}]]"
        name = "cp.Lines" if self.is_line else "cp.Tensor"
        return name if self.element is None else f"{name}[{_shown(self.element)}]"


def _shown(element: Any) -> str:
    """A dtype or TypeVar as users write it."""
    if not isinstance(element, DType):
        return getattr(element, "__name__", repr(element))
    return f"cp.{element.name}"


class _TensorMeta(type):
    def __getitem__(cls, item: Any) -> TensorAnnotation:
        if isinstance(item, Line):
            return TensorAnnotation(item.element, True, item.width)
        if isinstance(item, LineOf):
            return TensorAnnotation(item.element, True)
        return TensorAnnotation(_element(item))


def _element(item: Any) -> Any:
    if isinstance(item, TypeVar) or item is None:
        return item
    if item is Any:
        return None
    dtype = find_dtype(item)
    if dtype is None:
        raise TypeError(f"{item!r} is not a dtype")
    return dtype


class _LinesMeta(_TensorMeta):
    def __getitem__(cls, item: Any) -> TensorAnnotation:
        return TensorAnnotation(_element(item), True)


@dataclass(frozen=True, slots=True)
class ComptimeAnnotation:
    """`Comptime[...]`: a hashable Python value that the kernel is specialised on. `default`: that
    of the parameter, in brackets, which is allowed whatever class is named."""

    of: Any = None
    default: tuple[Any, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        return "cp.Comptime" if self.of is None else f"cp.Comptime[{_shown(self.of)}]"


if TYPE_CHECKING:
    from typing import Annotated, Generic

    class _Elements(Any, Generic[T]):
        def __getitem__(self, index: Any) -> Any: ...

    # Kernels are called with arrays of any library.
    Tensor = Any | _Elements[T]
    Lines = Any | _Elements[T]
    Comptime = Annotated[T, "comptime"]
else:

    class Tensor(metaclass=_TensorMeta):
        """A tensor parameter of any rank: `cp.Tensor`, `cp.Tensor[cp.f32]`, `cp.Tensor[T]`."""

    class Lines(Tensor, metaclass=_LinesMeta):
        """A tensor counted in lines: `cp.Lines[cp.f32]`, for `cp.Tensor[cp.Line[cp.f32]]`."""

    class Comptime:
        """A parameter that is a Python value known while the kernel is specialised."""

        def __class_getitem__(cls, item: Any) -> ComptimeAnnotation:
            return ComptimeAnnotation(item)


@dataclass(frozen=True, slots=True)
class Spec:
    """An argument without data: dtype and, for tensors, a shape whose unknown extents are None."""

    dtype: DType
    shape: tuple[int | None, ...] | None = None

    def __str__(self) -> str:
        if self.shape is None:
            return self.dtype.name
        extents = ",".join("?" if n is None else str(n) for n in self.shape)
        return f"{self.dtype.name}[{extents}]"


_SPEC = r"\s*(?P<dtype>\w+)\s*(?:\[(?P<shape>[^\]]*)\])?\s*"


def spec(text: str | Spec) -> Spec:
    """The specification written as `f32`, `f32[1024,1024]` or `f32[?,1024]`.

    Raises `LaunchError` (E415) for anything else.
    """
    if isinstance(text, Spec):
        return text
    match = re.fullmatch(_SPEC, text) if isinstance(text, str) else None
    if not match:
        raise fail("E415", text=text, reason="it does not look like one")
    dtype = find_dtype(match["dtype"])
    if dtype is None:
        raise fail("E415", text=text, reason=f"{match['dtype']} is not a dtype")
    if match["shape"] is None:
        return Spec(dtype)
    parts = match["shape"].split(",")
    if not parts[-1].strip():  # of rank 0, or behind a last comma
        parts.pop()
    return Spec(dtype, tuple(_extent(text, part) for part in parts))


def _extent(text: str, part: str) -> int | None:
    part = part.strip()
    if part == "?":
        return None
    if not (part.isascii() and part.isdigit()):
        raise fail("E415", text=text, reason=f"{part!r} is not an extent")
    return int(part)


def resolve_annotations(function: Any) -> dict[str, Any]:
    """The annotations of parameters as objects, also where they are text, and dtypes of other
    libraries and their names as ours.

    None for text that says nothing to kernels, as a name that only type checkers import. E425 for
    text that asks CubePy for what it does not have, as `cp.float32`.
    """
    raw = annotations_of(function)
    if not any(isinstance(a, str) for a in raw.values()):
        return {name: meant(a) for name, a in raw.items()}
    closure = names_around(function)
    resolved: dict[str, Any] = {}
    for name, annotation in raw.items():
        try:
            resolved[name] = read_annotation(annotation, function.__globals__, closure)
        except (AttributeError, TypeError) as error:
            raise fail("E425", kernel=function.__name__, argument=name, reason=f"{error}") from None
    return resolved


def read_annotation(
    annotation: Any, names: dict[str, Any], around: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """An annotation that may be text with names of a module, and of functions around; None for text
    that says nothing to kernels. AttributeError, TypeError for what CubePy's own names do not
    have."""
    if not isinstance(annotation, str):
        return meant(annotation)
    try:
        code = _compiled(annotation)
        return meant(eval(code, names, around))
    except (AttributeError, TypeError):
        if any(_is_ours(around.get(name, names.get(name))) for name in code.co_names):
            raise
        return None
    except Exception:  # text for readers, names for type checkers, or a dtype's
        return find_dtype(annotation)


def _is_ours(value: Any) -> bool:
    """Whether a value is CubePy, or one of its names."""
    home = getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", "")
    return isinstance(home, str) and home.partition(".")[0] == "cubepy"


def meant(annotation: Any) -> Any:
    """The dtype that NumPy's, torch's or a name stands for; other annotations as they are. Python's
    own types stay, whose numbers follow the other arguments."""
    is_type = isinstance(annotation, type) and annotation.__module__ in ("numpy", "ml_dtypes")
    is_dtype = type(annotation).__module__.partition(".")[0] in ("numpy", "torch", "ml_dtypes")
    if is_type or is_dtype or isinstance(annotation, str):
        return find_dtype(annotation) or annotation
    return annotation


@lru_cache(maxsize=1024)
def _compiled(text: str) -> CodeType:
    return compile(text.lstrip(" \t"), "<annotation>", "eval")


def is_comptime_annotation(annotation: Any) -> bool:
    """`Comptime[...]` or bare `Comptime`."""
    if isinstance(annotation, ComptimeAnnotation):
        return True
    return (
        getattr(annotation, "__name__", "") == "Comptime"
        or get_origin(annotation) is ComptimeAnnotation
    )
