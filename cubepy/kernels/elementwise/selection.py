"""`where`: a choice between two arrays, element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cp
from cubepy.array.memory import Memory, numpy_dtype
from cubepy.frontend.promote import promote
from cubepy.ir.types import DType, bool_, find_dtype
from cubepy.kernels.calls.arguments import refused, shown, wrong
from cubepy.kernels.calls.call import run
from cubepy.kernels.calls.libraries import (
    Library,
    Shape,
    TorchLibrary,
    libraries_agree,
    library_of,
    torch,
)
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.elementwise.launches import broadcast, launch_each
from cubepy.kernels.elementwise.operands import NUMBERS, SCALARS, dtype_of, holds

_PLANS = Plans()
_NAMES = ("condition", "a", "b")


def where(condition: Any, a: Any, b: Any, *, out: Any = None) -> Any:
    """The elements of `a` where `condition` is true or not zero, else those of `b`.

    The three are arrays of one library and of any shapes, strides and dtypes, broadcast against
    each other, or numbers. The dtype of the result is that of `numpy.where`, for torch's tensors
    that of `torch.where`; numbers of Python take part as numbers of that dtype. Gives an array of
    that library, or `out`, which may be one of the arrays.

    Elements are converted as by a call of the dtype, without other rounding. Raises `LaunchError`
    for shapes that do not broadcast and numbers that do not fit, `LaunchTypeError` for what is no
    array and where no argument is one.
    """
    given = (condition, a, b)
    key, found = _PLANS.short.known("where", _NAMES, given, (), out)
    if found is not None:
        return found.run(given, 1, out)
    library, seen = _seen(given)
    dtype = _common_dtype(library, seen[1], seen[2])
    kinds = (bool_, dtype, dtype)
    arrays = [
        _constant(library, name, x, kind) if isinstance(x, SCALARS) else x
        for name, x, kind in zip(_NAMES, seen, kinds, strict=True)
    ]

    def make(planner: Planner, inputs: list[Memory]) -> None:
        extents = broadcast("where", [x.shape for x in inputs])
        result = planner.result(Shape(extents, dtype))
        inputs = planner.merged(inputs)
        result = planner.joined(result, inputs)
        launch_each(planner, _selecting(dtype), inputs, result)

    short = key, [True] * len(arrays)
    return run(_PLANS, "where", library, _NAMES, arrays, (dtype,), make, out, short=short)


@lru_cache(maxsize=64)
def _selecting(dtype: DType) -> Callable[..., Any]:
    """The function of the language that selects numbers of one dtype."""

    def select(condition: Any, a: Any, b: Any) -> Any:
        holds = condition if condition.dtype == cp.bool_ else condition != 0
        return cp.where(holds, dtype(a), dtype(b))

    return select


def _seen(given: tuple[Any, ...]) -> tuple[Library, list[Any]]:
    """The library of the arguments, and those that are arrays as it sees them."""
    library: Library | None = None
    first, seen = "", []
    for name, x in zip(_NAMES, given, strict=True):
        if not isinstance(x, SCALARS):
            own, x = library_of("where", name, x)
            if library is not None and own is not library:
                libraries_agree("where", ((first, library), (name, own)))
            library, first = own, first or name
        seen.append(x)
    if library is None:
        raise refused("where", "condition", "is a number, and so are the others", "use `if`")
    return library, seen


def _constant(library: Library, name: str, x: Any, dtype: DType) -> Any:
    """A number as an array without axes."""
    value = x.item() if isinstance(x, np.generic) else x
    if dtype is bool_:
        return library.constant(bool(value), dtype)
    if not holds(dtype, value):
        raise wrong("where", f"`{name}` is {shown(value)}, which does not fit {dtype}")
    return library.constant(value, dtype)


def _common_dtype(library: Library, a: Any, b: Any) -> DType:
    """The dtype of the result, as the library has it; CubePy's own where that has none."""
    if isinstance(library, TorchLibrary):
        one, two = (_torch_kind(x) for x in (a, b))
        found = find_dtype(torch().result_type(one, two))
    else:
        one, two = (x if isinstance(x, NUMBERS) else _numpy_kind(x) for x in (a, b))
        try:
            found = find_dtype(np.result_type(one, two))
        except TypeError:
            found = promote(dtype_of("where", a), dtype_of("where", b))
    if found is None:
        raise refused("where", "a", f"and `b` have no common dtype: {one} and {two}", "")
    return found


def _numpy_kind(x: Any) -> np.dtype[Any]:
    return numpy_dtype(dtype_of("where", x))


def _torch_kind(x: Any) -> Any:
    """What torch asks for a common dtype: a number, or a tensor, which counts less without axes."""
    if isinstance(x, NUMBERS):
        return x
    has_axes = isinstance(x, np.generic) or x.ndim > 0
    return torch().empty((1,) * has_axes, dtype=_torch_dtype(x))


def _torch_dtype(x: Any) -> Any:
    if isinstance(x, np.generic):
        return getattr(torch(), dtype_of("where", x).numpy_name)
    return x.dtype
