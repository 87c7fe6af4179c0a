"""What is quantised: types of few bits, and how scales belong to elements."""

from __future__ import annotations

from dataclasses import replace

from cubepy.array.memory import Memory
from cubepy.ir.types import DType, f8e4m3, f8e5m2, find_dtype, i8, i16, i32, u8, u16
from cubepy.kernels.calls.arguments import normal_axis, refused, wrong
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """How a quantised number is stored: numbers from `low` to `high`, `packed` two to a byte."""

    name: str
    stored: DType
    low: float
    high: float
    packed: bool = False

    @property
    def is_float(self) -> bool:
        """Whether numbers are floats, which have no zero point and are rounded as such."""
        return self.stored.is_float


FORMATS = {
    form.name: form
    for form in (
        Format("i8", i8, -128, 127),
        Format("u8", u8, 0, 255),
        Format("i16", i16, -(2**15), 2**15 - 1),
        Format("u16", u16, 0, 2**16 - 1),
        Format("i32", i32, -(2**31), 2**31 - 1),
        Format("int4", u8, -8, 7, packed=True),
        Format("uint4", u8, 0, 15, packed=True),
        Format("f8e4m3", f8e4m3, -448, 448),
        Format("f8e5m2", f8e5m2, -57344, 57344),
    )
}


def find_format(function: str, dtype: object) -> Format:
    """The format of a dtype, or "int4" or "uint4"; E602 for others."""
    known = FORMATS.get(dtype) if isinstance(dtype, str) else None
    found = find_dtype(dtype) if known is None else None
    known = known or (FORMATS.get(found.name) if found else None)
    if known is None or known.name == "i32":
        supported = ", ".join(name for name in FORMATS if name != "i32")
        raise refused(function, "dtype", f"is {dtype!r}", f"{supported} are supported")
    return known


@dataclass(frozen=True, slots=True)
class Scaling:
    """Which elements share a scale: all (`axis` None), those at one index of `axis`, or, of each
    line along `axis`, `block` that follow each other."""

    axis: int | None
    block: int | None

    def expected(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of scales for an array."""
        if self.axis is None:
            return ()
        if self.block is None:
            return (shape[self.axis],)
        return tuple(n // self.block if k == self.axis else n for k, n in enumerate(shape))

    def split(self, x: Memory) -> Memory:
        """An array whose blocks have an axis of their own, behind that which counts them."""
        if self.axis is None or self.block is None:
            return x
        before, behind, stride = (
            x.shape[: self.axis],
            x.shape[self.axis + 1 :],
            x.strides[self.axis],
        )
        shape = (*before, x.shape[self.axis] // self.block, self.block, *behind)
        strides = (
            *x.strides[: self.axis], self.block * stride, stride, *x.strides[self.axis + 1 :]
        )  # fmt: skip
        return replace(x, shape=shape, strides=strides)

    def spread(self, scale: Memory, shape: tuple[int, ...]) -> Memory:
        """Scales with the axes of a split array of `shape`; they stand still in a block."""
        if self.axis is None:
            return replace(scale, shape=shape, strides=(0,) * len(shape))
        if self.block is None:
            strides = tuple(scale.strides[0] if k == self.axis else 0 for k in range(len(shape)))
            return replace(scale, shape=shape, strides=strides)
        own, at = scale.strides, self.axis + 1
        return replace(scale, shape=shape, strides=(*own[:at], 0, *own[at:]))


def find_scaling(
    function: str, shape: tuple[int, ...], axis: object, block: object, packed: bool
) -> Scaling:
    """How scales belong to an array; E601 where they cannot."""
    if axis is None:
        if block is not None:
            raise wrong(function, "`block_size` is given without `axis`")
        return Scaling(None, None)
    which = normal_axis(function, len(shape), axis)
    if block is None:
        return Scaling(which, None)
    if not isinstance(block, int) or block < 1 or shape[which] % block:
        reason = f"`block_size` is {block!r}, which does not divide the {shape[which]} elements"
        raise wrong(function, f"{reason} along axis {which}")
    if packed and which == len(shape) - 1 and block % 2:
        raise wrong(function, f"`block_size` is {block}, but two elements share a byte")
    return Scaling(which, block)
