"""Quantised arrays as operands of other functions: `Quantised`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Quantised:
    """A matrix, or a stack of them, of which element q stands for (q - zero_point) * scale.

    `values`: integers of 8 bits or floats of 8, or bytes that `quantize` packed; `packed`: "int4"
    or "uint4" for these, of which the last axis has `size` numbers in all (None: all that there
    are). `scale`, `zero_point`, `axis` and `block_size` are those of `quantize`; without `axis` and
    `block_size` the scales broadcast to the values instead, so that (m, 1) has one for each row.
    `block_size` may be a pair: elements of the last two axes that share a scale, of which the last
    blocks may be smaller; the scales have as many elements there as there are blocks, and other
    axes broadcast. `T` is the transposed matrix; nothing moves.

    `matmul` takes it as a factor. Nothing is checked until then.
    """

    values: Any
    scale: Any
    zero_point: Any = None
    axis: int | None = None
    block_size: int | tuple[int, int] | None = None
    packed: str | None = None
    size: int | None = None
    is_turned: bool = False

    @property
    def T(self) -> Quantised:
        """The transposed matrices."""
        return replace(self, is_turned=not self.is_turned)
