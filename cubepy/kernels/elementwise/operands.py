"""Arrays and numbers that are computed with element by element."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from cubepy.errors import fail
from cubepy.frontend.promote import (
    NoCommonType,
    fits,
    literal_type,
    promote,
    promote_literal,
)
from cubepy.ir.types import DType, find_dtype
from cubepy.kernels.calls.arguments import shown
from cubepy.kernels.calls.libraries import Library, libraries_agree, library_of

NUMBERS = (bool, int, float)
SCALARS = (*NUMBERS, np.generic)


def operands(
    function: str, names: Sequence[str], arrays: Sequence[Any], of: int | None = None
) -> tuple[Library, list[Any]]:
    """The library of the arrays, and the arrays as it sees them; E602 where there is not one.

    Numbers take the common type of the arrays, or that of array number `of`.
    """
    library: Library | None = None
    first, seen = "", []
    for k, x in enumerate(arrays):
        if isinstance(x, SCALARS):
            continue
        own, x = library_of(function, names[k], x)
        if library is not None and own is not library:
            libraries_agree(function, ((first, library), (names[k], own)))
        library, first = own, first or names[k]
        seen.append(x)
    if library is None:
        reason = "it takes an array at least"
        raise fail("E602", function=function, reason=reason, suggestion="")
    if len(seen) == len(arrays):
        return library, seen
    typed = seen if of is None else [arrays[of]]
    dtypes, rest = [dtype_of(function, x) for x in typed], iter(seen)
    return library, [
        _as_array(function, library, dtypes, x) if isinstance(x, SCALARS) else next(rest)
        for x in arrays
    ]


def _as_array(function: str, library: Library, dtypes: Sequence[DType], x: Any) -> Any:
    """A number as an array without axes: Python's in the common type of the arrays."""
    if isinstance(x, np.generic):
        return library.constant(x.item(), dtype_of(function, x))
    try:
        common = reduce(promote, dtypes)
    except NoCommonType:
        common = literal_type(x)
    dtype = literal_type(x) if isinstance(x, bool) else promote_literal(x, common)
    if not holds(dtype, x):
        reason = f"{shown(x)} does not fit {dtype}"
        raise fail("E601", function=function, reason=reason, suggestion="")
    return library.constant(x, dtype)


def holds(dtype: DType, x: Any) -> bool:
    """Whether a dtype has a number for Python's number `x`, if only an infinity."""
    if not isinstance(x, int):
        return True
    return fits(x, dtype) if dtype.is_integer else abs(x) < 1 << sys.float_info.max_exp


def dtype_of(function: str, x: Any) -> DType:
    """The dtype of an array or NumPy scalar; E602 where kernels have none like it."""
    found = find_dtype(x.dtype)
    if found is None:
        raise fail("E602", function=function, reason=f"no kernel takes {x.dtype}", suggestion="")
    return found
