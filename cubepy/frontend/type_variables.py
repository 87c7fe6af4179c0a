"""What a TypeVar is inside a function: the dtype of the parameters that are annotated with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from cubepy.frontend.promote import literal_type
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import TensorRef, is_number, typed_scalar
from cubepy.ir.core import Value
from cubepy.ir.types import DType, LineOf, element_of
from cubepy.lang.annotations import TensorAnnotation, resolve_annotations


def dtype_of(frame: Frame, variable: Any) -> Any:
    """The dtype that a TypeVar stands for in the function of a frame, that of a literal last;
    the variable itself where no parameter has it."""
    annotations = resolve_annotations(frame.captures.function) if frame.captures else {}
    named = [n for n, a in annotations.items() if _variable_in(a) is variable]
    given = [frame.given[n] for n in named if n in frame.given]
    literals = (literal_type(x) for x in given if is_number(x))
    return next(_typed(given), None) or next(literals, variable)


def _variable_in(annotation: Any) -> Any:
    """The TypeVar of `T`, `cp.Tensor[T]`, `cp.Lines[T]` and `cp.Line[T]`."""
    if isinstance(annotation, TensorAnnotation | LineOf):
        return annotation.element
    return annotation if isinstance(annotation, TypeVar) else None


def _typed(given: list[Any]) -> Iterator[DType]:
    for x in given:
        scalar = typed_scalar(x)
        if isinstance(x, TensorRef):
            yield x.element
        elif isinstance(x, Value):
            yield element_of(x.type)
        elif scalar is not None:
            yield scalar[0]
