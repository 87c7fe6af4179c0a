"""What is scanned: running sums or products, as data."""

from __future__ import annotations

from cubepy.ir.types import DType, Kind, f32, f64, i64, u64
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Scan:
    """A running `name`, "sum" or "prod", whose numbers have the type `dtype` meanwhile."""

    name: str
    dtype: DType

    @property
    def identity(self) -> int:
        """What changes no result."""
        return 0 if self.name == "sum" else 1

    @property
    def nothing(self) -> float:
        """What changes no number at all: 0 + -0.0 is 0.0, and -0.0 + -0.0 is -0.0."""
        return -0.0 if self.name == "sum" and self.dtype.is_float else self.identity


def result_type(dtype: DType) -> DType:
    """That of sums and products: 64 bits for integers."""
    if dtype.is_float:
        return dtype
    return u64 if dtype.kind is Kind.UINT else i64


def running_type(dtype: DType, is_wide: bool) -> DType:
    """The type between elements and results: f64 for floats of CPUs, which costs nothing there, and
    at least f32 elsewhere."""
    if not dtype.is_float:
        return result_type(dtype)
    return f64 if not is_wide or dtype.bits == 64 else f32
