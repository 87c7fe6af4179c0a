"""What is sorted: elements as unsigned keys, whose order is that of the results."""

from __future__ import annotations

from cubepy.ir.types import DType, Kind, i32, i64, u8, u16, u32, u64
from cubepy.record import dataclass

_BITS: dict[int, DType] = {8: u8, 16: u16, 32: u32, 64: u64}


@dataclass(frozen=True, slots=True)
class Order:
    """How elements of `dtype` are ordered: from the least, or `is_descending`; NaN is the greatest,
    and zeros are equal. `position`: the type of indices meanwhile.
    """

    dtype: DType
    is_descending: bool
    position: DType

    @property
    def bits(self) -> DType:
        """The unsigned integer as wide as an element."""
        return _BITS[self.dtype.bits]

    @property
    def key(self) -> DType:
        """The type of keys."""
        return u64 if self.dtype.bits == 64 else u32

    @property
    def sign(self) -> int:
        """The highest bit of an element."""
        return 1 << (self.dtype.bits - 1)

    @property
    def last(self) -> int:
        """The greatest key."""
        return (1 << self.dtype.bits) - 1

    @property
    def is_signed(self) -> bool:
        """Whether elements are signed integers."""
        return self.dtype.kind is Kind.INT


def make_order(dtype: DType, is_descending: bool, extent: int) -> Order:
    """The order of rows of `extent` elements."""
    return Order(dtype, is_descending, i32 if extent < 2**31 - 2**16 else i64)
