"""What is drawn: a distribution and the type of its numbers."""

from __future__ import annotations

from cubepy.ir.types import DType, f32, f64
from cubepy.record import dataclass

WORDS = 4
"""Words of 32 bits in a block."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """`name` is "bits", "uniform", "normal" or "bernoulli"; `dtype` that of the numbers."""

    name: str
    dtype: DType

    @property
    def computed(self) -> DType:
        """The type that numbers are computed in before they are rounded."""
        return f64 if self.dtype is f64 else f32

    @property
    def count(self) -> int:
        """How many numbers come from a block."""
        return WORDS // 2 if self.is_long else WORDS

    @property
    def is_long(self) -> bool:
        """Whether a number takes two words; the outcome of a trial never does."""
        return self.dtype.bits == 64 and self.name != "bernoulli"
