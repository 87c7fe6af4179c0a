"""Quantised factors of a product as plain data: stored numbers, and which of them share a scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import find_dtype
from cubepy.kernels.calls.arguments import normal_axis, refused, wrong
from cubepy.kernels.calls.libraries import library_of
from cubepy.kernels.matmul.problem import expanded, turned
from cubepy.kernels.quantisation.numbers import scale_array, scaled_in, zero_array
from cubepy.kernels.quantisation.operand import Quantised
from cubepy.kernels.quantisation.problem import FORMATS, Format
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Description:
    """What a `Quantised` says beside its arrays."""

    axis: Any
    block: Any
    packed: str | None
    size: int | None
    is_turned: bool
    has_zero: bool


@dataclass(frozen=True, slots=True)
class Factor:
    """Matrices of quantised numbers, as they are stored; the factor is the transposed one if it
    `is_turned`.

    `extents`: of the numbers, of which two share an element of `values` where the format is packed.
    `scale` and `zero` have as many axes, and elements for blocks of `block` rows and columns.
    """

    values: Memory
    scale: Memory
    zero: Memory | None
    block: tuple[int, int]
    form: Format
    extents: tuple[int, ...]
    is_turned: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the factor."""
        *batch, rows, columns = self.extents
        return (*batch, columns, rows) if self.is_turned else self.extents

    @property
    def factor(self) -> Memory:
        """The stored numbers with the axes of the factor; not for packed ones."""
        return turned(self.values) if self.is_turned else self.values

    @property
    def scales(self) -> Memory:
        """The scales with the axes of the factor."""
        return turned(self.scale) if self.is_turned else self.scale

    @property
    def blocks(self) -> tuple[int, int]:
        """Rows and columns of the factor that share a scale."""
        return (self.block[1], self.block[0]) if self.is_turned else self.block


# What a caller gives


def arrays_of(name: str, x: Any, other: Any) -> tuple[dict[str, Any], Description | None]:
    """The arrays of an operand of `matmul`, by their names, and the rest of a `Quantised`.

    Numbers become arrays of what products by the `other` operand are scaled in.
    """
    if not isinstance(x, Quantised):
        return {name: x}, None
    library, _ = library_of("matmul", name, x.values)
    kind = scaled_in(find_dtype(getattr(other, "dtype", None)))
    scale = scale_array("matmul", library, f"{name}.scale", x.scale, kind)
    zero = zero_array("matmul", library, f"{name}.zero_point", x.zero_point)
    found = {name: x.values, f"{name}.scale": scale}
    if zero is not None:
        found[f"{name}.zero_point"] = zero
    block = tuple(x.block_size) if isinstance(x.block_size, list) else x.block_size
    rest = x.packed, x.size, x.is_turned, x.zero_point is not None
    return found, Description(x.axis, block, *rest)


def factor_of(name: str, arrays: dict[str, Memory], how: Description) -> Factor:
    """A factor, checked; E601 for shapes that do not fit, E602 for types."""
    q, scale = arrays[name], arrays[f"{name}.scale"]
    zero = arrays.get(f"{name}.zero_point")
    form, extents = _stored(name, q, how)
    if not scale.dtype.is_float or scale.dtype.bits == 8:
        raise refused("matmul", f"{name}.scale", f"has dtype {scale.dtype}", "f16 to f64 do")
    if zero is not None:
        if form.is_float:
            raise wrong("matmul", f"`{name}.zero_point` is given, but {form.name} has none")
        if zero.dtype.is_float or zero.dtype.bits > 32:
            supported = "integers of 8 to 32 bits are supported"
            raise refused("matmul", f"{name}.zero_point", f"has dtype {zero.dtype}", supported)
        if zero.shape != scale.shape:
            reason = f"`{name}.zero_point` has shape {zero.shape}, `{name}.scale` {scale.shape}"
            raise wrong("matmul", reason, "they are alike")
    seen, block = _blocked(name, scale, extents, how)
    zero = None if zero is None else _blocked(name, zero, extents, how)[0]
    if how.packed and block[1] % 2 and 1 < block[1] < extents[-1]:
        raise wrong("matmul", f"`{name}` has blocks of {block[1]}, but two elements share a byte")
    return Factor(q, seen, zero, block, form, extents, how.is_turned)


def _stored(name: str, q: Memory, how: Description) -> tuple[Format, tuple[int, ...]]:
    """The format of the numbers, and their extents."""
    if len(q.shape) < 2:
        raise wrong("matmul", f"`{name}` has shape {q.shape}; quantised factors have two axes")
    form = FORMATS.get(q.dtype.name if how.packed is None else how.packed)
    if how.packed is not None and (form is None or not form.packed or form.stored is not q.dtype):
        what = f"has dtype {q.dtype}, packed as {how.packed!r}"
        raise refused("matmul", name, what, "'int4' and 'uint4' lie in u8")
    if form is None or form.stored.bits > 8:
        supported = "i8, u8, f8e4m3, f8e5m2, and bytes of 'int4' or 'uint4' are supported"
        raise refused("matmul", name, f"has dtype {q.dtype}", supported)
    if not form.packed:
        if how.size is not None:
            raise wrong("matmul", f"`{name}.size` is given without `packed`")
        return form, q.shape
    count = 2 * q.shape[-1] if how.size is None else how.size
    if not isinstance(count, int) or -(-count // 2) != q.shape[-1]:
        raise wrong("matmul", f"`{name}.size` is {how.size!r}, but its values are {q.shape}")
    return form, (*q.shape[:-1], count)


def _blocked(
    name: str, scale: Memory, extents: tuple[int, ...], how: Description
) -> tuple[Memory, tuple[int, int]]:
    """Scales with an element for each block of the last two axes, and what a block is."""
    *batch, m, n = extents
    block, rank = how.block, len(extents)
    if isinstance(block, tuple):
        if how.axis is not None or len(block) != 2 or not all(_is_count(b) for b in block):
            raise wrong("matmul", f"`{name}.block_size` is {block!r}", "two ints, without `axis`")
        p, q = block
        counts = -(-m // p), -(-n // q)
        if len(scale.shape) != rank or scale.shape[-2:] != counts:
            raise _misfit(name, scale, extents, (*batch, *counts))
        return expanded(_placed(scale, batch, name, extents), (*batch, *counts)), (p, q)
    if how.axis is None:
        if block is not None:
            raise wrong("matmul", f"`{name}.block_size` is given without `axis`")
        missing = rank - len(scale.shape)
        shape = (1,) * missing + scale.shape
        if missing < 0 or any(s not in (1, e) for s, e in zip(shape, extents, strict=True)):
            raise _misfit(name, scale, extents, extents)
        seen = expanded(scale, (*batch, *shape[-2:]))
        own = tuple(e if s == 1 else 1 for s, e in zip(shape[-2:], (m, n), strict=True))
        return seen, (max(own[0], 1), max(own[1], 1))
    axis = normal_axis("matmul", rank, how.axis)
    if block is None:
        if scale.shape != (extents[axis],):
            raise _misfit(name, scale, extents, (extents[axis],))
        shape = tuple(e if k == axis else 1 for k, e in enumerate(extents))
        strides = tuple(scale.strides[0] if k == axis else 0 for k in range(rank))
        seen = expanded(replace(scale, shape=shape, strides=strides), (*batch, *shape[-2:]))
        own = [1 if k == axis else max(extents[k], 1) for k in (rank - 2, rank - 1)]
        return seen, (own[0], own[1])
    if not _is_count(block) or extents[axis] % block:
        reason = f"`{name}.block_size` is {block!r}, which does not divide {extents[axis]}"
        raise wrong("matmul", reason)
    counts = tuple(e // block if k == axis else e for k, e in enumerate(extents))
    if scale.shape != counts:
        raise _misfit(name, scale, extents, counts)
    if axis < rank - 2:
        raise wrong("matmul", f"`{name}.axis` is {axis}; blocks are along one of the last two")
    return scale, (block if axis == rank - 2 else 1, block if axis == rank - 1 else 1)


def _placed(scale: Memory, batch: list[int], name: str, extents: tuple[int, ...]) -> Memory:
    if any(s not in (1, e) for s, e in zip(scale.shape, batch, strict=False)):
        raise _misfit(name, scale, extents, (*batch, *scale.shape[-2:]))
    return scale


def _misfit(name: str, scale: Memory, extents: Any, expected: Any) -> Exception:
    reason = f"`{name}.scale` has shape {scale.shape}, for numbers of shape {extents}"
    return wrong("matmul", reason, f"one that fits {tuple(expected)}")


def _is_count(v: Any) -> bool:
    return isinstance(v, int) and not isinstance(v, bool) and v > 0
