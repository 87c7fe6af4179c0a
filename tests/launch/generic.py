"""A generic kernel, under postponed annotations."""

from __future__ import annotations

from typing import TypeVar

import cubepy as cp

T = TypeVar("T", cp.f32, cp.f64)


@cp.cube
def scale(x: cp.Tensor[T], factor: T, out: cp.Tensor[T]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * factor
