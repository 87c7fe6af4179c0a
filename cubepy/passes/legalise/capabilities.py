"""What a target can do, as plain data: all that legalisation asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from cubepy.ir import ops
from cubepy.ir.opdef import Group, OpDef
from cubepy.ir.types import DTYPES, DType, f16, f32, f64
from cubepy.record import dataclass

if TYPE_CHECKING:
    from cubepy.passes.vectorise import Choice


OF_PLANES = {row for row in ops.TABLE.values() if row.convergent in (Group.PLANE, Group.WARPGROUP)}
"""Operations of the units of a plane together."""


class Planes(Enum):
    """How the units of a plane exchange values, where a plane has more than one unit."""

    SHUFFLES = "shuffles and votes of the hardware"
    MEMORY = "shared memory, with barriers of the whole cube"
    LOOPS = "arrays, as loops over the units run the cube"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """A target, as legalisation sees it. `target` names it in errors, `kind` is its kind.

    Types: `scalars` exist (`reasons` says why others do not). Of these floats, `stored` ones are
    only moved, and computed in f32; `soft` ones of them are also converted on their bits.
    `native_fma`: floats with a fused multiply-add that rounds once. `bools_in_memory`: buffers may
    hold bools; else they hold bytes.

    Operations: `native` lists the scalar types on which the target has each operation; None: it has
    all of them on all types but those that it `lacks`. `open_cases`
    are operations whose native forms leave edge cases undefined (a divisor of zero, a shift by the
    width, a conversion out of range). `refused` names what the target lacks, with a reason.
    `wraps_signed`: sums of signed integers wrap. `reduces_lines`: reductions of lines are native.
    `linear_positions`: positions over all axes are native. `of_nvidia`: NVIDIA's compilers, whose
    known defects are spelled around, may compile its text.

    Cooperation: `planes`, of `plane_dim` units, which go along rows of units only if
    `planes_in_rows`; `shuffles_keep`: a relative shuffle that finds no lane gives the own value.
    `named_barriers`: whole planes of a cube may wait for each other without the rest.
    `early_exit`: units that returned do not disturb barriers and plane operations.
    `refused_attributes`: attributes of launches that the target lacks, with a reason.
    `keeps_half_denormals`: conversions from f16 find its denormals.
    `most_buffers`: arrays of a kernel and the structure of its numbers; 0: any number.
    `vectorise`: whether units become lanes of lines of `line_bytes`, of which `line_registers`
    are at hand; see `passes/vectorise.py`.
    """

    target: str
    kind: str
    scalars: frozenset[DType] = frozenset(DTYPES)
    reasons: Mapping[DType, str] = field(default_factory=dict[DType, str])
    stored: frozenset[DType] = frozenset()
    soft: frozenset[DType] = frozenset()
    native_fma: frozenset[DType] = frozenset((f32, f64))
    bools_in_memory: bool = False
    native: Mapping[OpDef, frozenset[DType]] | None = None
    lacks: frozenset[OpDef] = frozenset()
    open_cases: frozenset[OpDef] = frozenset()
    refused: Mapping[OpDef, str] = field(default_factory=dict[OpDef, str])
    wraps_signed: bool = False
    reduces_lines: bool = False
    linear_positions: bool = False
    of_nvidia: bool = False
    planes: Planes = Planes.MEMORY
    plane_dim: int = 1
    planes_in_rows: bool = False
    shuffles_keep: bool = False
    named_barriers: bool = False
    early_exit: bool = False
    refused_attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    keeps_half_denormals: bool = True
    most_buffers: int = 0
    vectorise: Choice = False
    line_bytes: int = 16
    line_registers: int = 16

    def has(self, row: OpDef, dtype: DType) -> bool:
        """Whether an operation on a scalar type is native."""
        if row in self.lacks:
            return False
        return self.native is None or dtype in self.native.get(row, ())

    @property
    def narrows_f16_by_hand(self) -> bool:
        """Whether fused multiply-add of f16 goes through f64, which is then rounded on the bits."""
        return f16 not in self.native_fma and f64 in self.scalars
