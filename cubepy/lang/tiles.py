"""Which unit of a plane holds which elements of a tile of `cp.cmma`.

The matrix units of a target prescribe it: for NVIDIA's the PTX ISA, "Matrix Fragments for mma";
for Apple's there is no document, MLX (mlx/backend/metal/kernels/steel/gemm/mma.h) relies on the
same. Elsewhere factors lie in shared memory, and sums are dealt out to the units in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from cubepy.ir.types import (
    DType,
    bf16,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    find_dtype,
    i8,
    i16,
    i32,
    u8,
    u16,
)
from cubepy.targets import Target

USES = ("a", "b", "accumulator")
SUMS: dict[DType, DType] = {
    **dict.fromkeys((f8e4m3, f8e5m2, f16, bf16, f32), f32),
    f64: f64,
    **dict.fromkeys((i8, u8, i16, u16, i32), i32),
}
"""Types of factors, and what their products are added in."""
_TENSOR_CORES = {f8e4m3: f16, f8e5m2: f16, f16: f16, bf16: bf16, i8: i8, u8: u8}
_SIMDGROUPS = {f8e4m3: f16, f8e5m2: f16, f16: f16, bf16: f32, f32: f32}
"""Types of factors that matrix units take, and as what: these hold every value of those."""
_FIRST_WITH_MMA = 80
_PLANE = 32
_WORD_BITS = 32
Place = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Layout:
    """A tile in blocks of `rows` x `columns`, of which each unit holds `count` elements as `dtype`.

    `place(lane, k)` is where element k of a unit lies in its block. `packed`: elements in a word of
    32 bits, 0 where they are held one by one. `is_shared`: all lie in shared memory instead, in
    order. `multiply`: the matrix units that take such blocks, "" for none.
    """

    rows: int
    columns: int
    count: int
    dtype: DType
    place: Place
    packed: int = 0
    is_shared: bool = False
    multiply: str = ""


def choose(
    use: Any, rows: Any, columns: Any, dtype: Any, target: Target, plane: int, units: int
) -> Layout:
    """The layout of a tile; `plane` units make a plane, `units` a cube. ValueError says why not."""
    element = _checked(use, rows, columns, dtype)
    if min(plane, units) > 1 and units > plane and units % plane:
        raise ValueError(
            f"the last of the planes of {plane} has units missing: the cube has {units}"
        )
    if plane == _PLANE and units % _PLANE == 0:
        found = _by_units(use, element, target)
        if found is not None:
            return found
    return _in_turn(use, rows, columns, element, min(plane, units))


def _checked(use: Any, rows: Any, columns: Any, dtype: Any) -> DType:
    if use not in USES:
        raise ValueError(f'a fragment is used as "a", "b" or "accumulator", not as {use!r}')
    for extent in (rows, columns):
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
            raise ValueError(f"a fragment has comptime extents from 1 on, not {extent!r}")
    element = find_dtype(dtype)
    known = SUMS if use != "accumulator" else SUMS.values()
    if element is None or element not in known:
        names = ", ".join(t.name for t in dict.fromkeys(known))
        what = "an accumulator" if use == "accumulator" else "a factor"
        raise ValueError(f"{what} is of {names}; got {getattr(element, 'name', dtype)}")
    return element


def _by_units(use: str, dtype: DType, target: Target) -> Layout | None:
    if target.kind == "cuda" and int(target.arch.strip("sm_af")) >= _FIRST_WITH_MMA:
        return _of_tensor_cores(use, dtype)
    return _of_simdgroups(use, dtype) if target.kind == "metal" else None


def _of_tensor_cores(use: str, dtype: DType) -> Layout | None:
    """Blocks of mma.m16n8: 16 x k times k x 8, for k of eight words."""
    if use == "accumulator":
        return Layout(16, 8, 4, dtype, _place_of_sums, multiply="cuda")
    held = _TENSOR_CORES.get(dtype)
    if held is None:
        return None
    packed = _WORD_BITS // held.bits
    if use == "a":
        return Layout(
            16, 8 * packed, 4, held, partial(_place_of_a, packed), packed, multiply="cuda"
        )
    return Layout(8 * packed, 8, 2, held, partial(_place_of_b, packed), packed, multiply="cuda")


def _of_simdgroups(use: str, dtype: DType) -> Layout | None:
    """Blocks of 8 x 8, all alike."""
    held = _SIMDGROUPS.get(dtype)
    return None if held is None else Layout(8, 8, 2, held, _place_of_apple, multiply="metal")


def _in_turn(use: str, rows: int, columns: int, dtype: DType, units: int) -> Layout:
    """One block: factors in shared memory, sums dealt out; one unit alone has all for itself."""
    is_shared = use != "accumulator" and units > 1
    count = -(-rows * columns // units)
    place = partial(_place_in_turn, units, columns)
    return Layout(rows, columns, count, dtype, place, is_shared=is_shared)


def _place_of_a(packed: int, lane: Any, k: int) -> tuple[Any, Any]:
    word, part = divmod(k, packed)
    return lane // 4 + word % 2 * 8, lane % 4 * packed + word // 2 * 4 * packed + part


def _place_of_b(packed: int, lane: Any, k: int) -> tuple[Any, Any]:
    word, part = divmod(k, packed)
    return lane % 4 * packed + word * 4 * packed + part, lane // 4


def _place_of_sums(lane: Any, k: int) -> tuple[Any, Any]:
    return lane // 4 + k // 2 * 8, lane % 4 * 2 + k % 2


def _place_of_apple(lane: Any, k: int) -> tuple[Any, Any]:
    return lane // 16 * 4 + lane // 2 % 4, lane // 8 % 2 * 4 + lane % 2 * 2 + k


def _place_in_turn(units: int, columns: int, lane: Any, k: Any) -> tuple[Any, Any]:
    return (k * units + lane) // columns, (k * units + lane) % columns
