"""Scales and zero points that a caller gives as numbers."""

from __future__ import annotations

from typing import Any

from cubepy.frontend.promote import fits
from cubepy.ir.types import DType, f32, f64, i32
from cubepy.kernels.calls.arguments import float_of, refused, shown
from cubepy.kernels.calls.libraries import Library
from cubepy.kernels.elementwise.operands import SCALARS


def scaled_in(*dtypes: DType | None) -> DType:
    """What numbers of these dtypes are scaled in."""
    return f64 if f64 in dtypes else f32


def scale_array(function: str, library: Library, name: str, v: Any, dtype: DType) -> Any:
    """A scale as an array, without axes if it is a number; E602 for what does not fit."""
    if not isinstance(v, SCALARS):
        return v
    return library.constant(float_of(function, name, v), dtype)


def zero_array(function: str, library: Library, name: str, v: Any) -> Any:
    """A zero point as an array, without axes if it is a number; E602 for what does not fit."""
    if not isinstance(v, SCALARS):
        return v
    value = v if isinstance(v, bool | int | float) else v.item()
    if not isinstance(value, int) or not fits(value, i32):
        raise refused(function, name, f"is {shown(v)}; it takes integers of 32 bits", "")
    return library.constant(value, i32)
