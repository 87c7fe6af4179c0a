"""What is reduced and how: reductions as data, with the functions on read and on write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.numbers import limits
from cubepy.ir.types import DType, Kind, bool_, f32, f64, i64, u8, u64
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Reduction:
    """One way to reduce: `name` is sum, prod, max or min; `dtype` is the type of running results.

    `read(v, centre)` is applied to lines of elements in that type, `write(v, count, centre)` to
    results; `centre` is a number for each result, or 0. `prologue(v)` and `epilogue(v)` are the
    caller's, before and after these. `is_compensated`: the rounding errors of a sum of floats are
    kept, because it is a long one.
    """

    name: str
    dtype: DType
    is_compensated: bool = False
    read: Callable[..., Any] | None = None
    write: Callable[..., Any] | None = None
    prologue: Callable[..., Any] | None = None
    epilogue: Callable[..., Any] | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What picks depend on: not which functions the caller gave, but whether there are some."""
        given = self.prologue is not None, self.epilogue is not None
        return self.name, self.dtype, self.is_compensated, self.read, self.write, *given

    @property
    def reads(self) -> bool:
        """Whether elements are changed when they are read."""
        return self.read is not None or self.prologue is not None

    @property
    def writes(self) -> bool:
        """Whether results are changed when they are written."""
        return self.write is not None or self.epilogue is not None

    @property
    def identity(self) -> int | float:
        """What changes no result."""
        if self.name in ("sum", "prod"):
            return 0 if self.name == "sum" else 1
        sign = -1 if self.name == "max" else 1
        return sign * float("inf") if self.dtype.is_float else limits(self.dtype)[(1 + sign) // 2]


def running_type(name: str, dtype: DType) -> DType:
    """The type of a running result: f32 for narrow floats, 64 bits for sums of integers."""
    if dtype.is_float:
        return f32 if dtype.bits < 32 else dtype
    if name in ("max", "min"):
        return u8 if dtype is bool_ else dtype
    return u64 if dtype.kind is Kind.UINT else i64


def real_type(dtype: DType) -> DType:
    """The type in which means are computed: f64 for integers, as in NumPy."""
    return running_type("sum", dtype) if dtype.is_float else f64


# On read


def is_true(v: Any, centre: Any) -> Any:
    """1 where an element is not zero."""
    return v


def square(v: Any, centre: Any) -> Any:
    """The square of an element."""
    return v * v


def absolute(v: Any, centre: Any) -> Any:
    """The absolute value of an element."""
    return abs(v)


def squared_distance(v: Any, centre: Any) -> Any:
    """The square of the distance from the centre."""
    return (v - centre) * (v - centre)


def exp_of_distance(v: Any, centre: Any) -> Any:
    """exp of the distance from the centre."""
    return cp.exp(v - finite(centre))


def finite(centre: Any) -> Any:
    """A centre, or 0 where it is none: infinite or NaN."""
    return cp.where(abs(centre) < float("inf"), centre, centre.dtype(0))


# On write


def mean(v: Any, count: Any, centre: Any) -> Any:
    """A sum by its number of elements."""
    return v / v.dtype(count)


def root(v: Any, count: Any, centre: Any) -> Any:
    """The square root."""
    return cp.sqrt(v)


def root_of_mean(v: Any, count: Any, centre: Any) -> Any:
    """The square root of a mean."""
    return cp.sqrt(v / v.dtype(count))


def log_and_centre(v: Any, count: Any, centre: Any) -> Any:
    """The logarithm, moved back by the centre."""
    return cp.log(v) + finite(centre)
